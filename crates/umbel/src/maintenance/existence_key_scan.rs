//! [`KeyspaceKeys`]: iterates over every key of a keyspace, to build its existence filter.
//!
//! INVARIANT: the iteration includes every key with a put in the memtables or tables, even if the
//! put is hidden, deleted or not visible yet. A reader of an old snapshot can still see a hidden
//! put. A put is included as soon as it is in the memtable, before readers see it. Every super
//! version has the put in its memtables or in its tables.

use std::sync::Arc;

use umbel_base::fail_point;
use umbel_base::{Cursor, Result, ValueKind};
use umbel_existence::HashSource;

use crate::state::keyspace_state::KeyspaceState;
use crate::super_version::SuperVersion;
use crate::super_version::flush_compaction_inputs::{self, FlushInputs};
use crate::version::LiveTable;

/// All keys of a keyspace.
pub struct KeyspaceKeys<'a>(pub &'a KeyspaceState);

impl HashSource for KeyspaceKeys<'_> {
    fn hashes(
        &self,
        after: Option<&[u8]>,
        limit: usize,
        output: &mut Vec<u64>,
    ) -> Result<Option<Vec<u8>>> {
        let view = self.0.super_version.acquire();
        let mut memory = memtable_entries(&view);
        let mut tables = flush_compaction_inputs::of_tables(runs(&view, after));
        seek_after(&mut memory, after)?;
        seek_after(&mut tables, after)?;
        let mut last: Vec<u8> = Vec::new();
        let mut taken = 0;
        // A key is emitted at its first put; a key may have several entries.
        let mut is_out = true;
        loop {
            let memory_first = match (memory.valid(), tables.valid()) {
                (false, false) => return Ok(None),
                (true, true) => memory.key() <= tables.key(),
                (is_in_memory, _) => is_in_memory,
            };
            let source: &mut dyn Cursor = if memory_first { &mut memory } else { &mut tables };
            if taken == 0 || source.key() != last {
                if taken >= limit.max(1) {
                    return Ok(Some(last));
                }
                last.clear();
                last.extend_from_slice(source.key());
                taken += 1;
                is_out = false;
            }
            if !is_out && source.kind() != ValueKind::Delete {
                output.push(self.0.hash(source.key()));
                is_out = true;
            }
            source.next()?;
        }
    }

    fn estimated(&self) -> u64 {
        let view = self.0.super_version.acquire();
        let tables =
            view.version.tables().map(|(_, table)| table.meta.entries - table.meta.deletes);
        let buffers = std::iter::once(&view.active).chain(&view.frozen);
        let buffered: u64 = buffers.map(|buffer| buffer.memtable.entries()).sum();
        // 0 would mean that it is not known.
        (tables.sum::<u64>() + buffered).max(1)
    }

    fn is_busy(&self) -> bool {
        self.0.super_version.acquire().version.tables().any(|(_, table)| table.is_busy())
    }
}

/// Returns a merge of the entries of all memtables.
fn memtable_entries(view: &SuperVersion) -> FlushInputs {
    fail_point!("existence-walk-skip-memtables", |_| flush_compaction_inputs::of_memtables(
        [].iter()
    ));
    let buffers = std::iter::once(&view.active).chain(&view.frozen);
    flush_compaction_inputs::of_memtables(buffers.map(|buffer| &buffer.memtable))
}

/// Returns the tables with keys after `after`, as sorted runs, newest run first.
fn runs(view: &SuperVersion, after: Option<&[u8]>) -> Vec<Vec<Arc<LiveTable>>> {
    let reaches = |table: &&Arc<LiveTable>| after.is_none_or(|after| table.reaches(after));
    let sequential = |table: &Arc<LiveTable>| table.for_sequential_read();
    let (newest, deeper) = view.version.levels.split_at(1);
    let newest = newest.iter().flatten().filter(reaches).map(|table| vec![sequential(table)]);
    let deeper = deeper.iter().map(|level| level.iter().filter(reaches).map(sequential).collect());
    newest.chain(deeper.filter(|run: &Vec<_>| !run.is_empty())).collect()
}

/// Moves `cursor` to the first entry after all entries of the key `after`.
fn seek_after(cursor: &mut impl Cursor, after: Option<&[u8]>) -> Result<()> {
    let Some(after) = after else { return cursor.seek_to_first() };
    cursor.seek(after, 0)?;
    while cursor.valid() && cursor.key() == after {
        cursor.next()?;
    }
    Ok(())
}

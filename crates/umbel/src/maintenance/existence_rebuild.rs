//! [`Keys`]: every key of a keyspace, for making its existence filter.
//!
//! INVARIANT: what is handed out is every key with a put in the memtables or tables, whatever
//! number it has, hidden or deleted: a reader of an old snapshot may still see it. So it is found
//! from the moment it is in the memtable, before it is published; and a view has it in the
//! memtables or in the tables, never in neither.

use std::sync::Arc;

use umbel_base::{Cursor, Result, ValueKind};
use umbel_existence::Source;

use crate::inputs;
use crate::keyspace_core::KeyspaceCore;
use crate::memory::View;
use crate::version::TableFile;

/// Every key of a keyspace.
pub struct Keys<'a>(pub &'a KeyspaceCore);

impl Source for Keys<'_> {
    fn hashes(
        &self,
        after: Option<&[u8]>,
        most: usize,
        output: &mut Vec<u64>,
    ) -> Result<Option<Vec<u8>>> {
        let view = self.0.view.hold();
        let buffers = std::iter::once(&view.active).chain(&view.frozen);
        let mut memory = inputs::of_memtables(buffers.map(|buffer| &buffer.memtable));
        let mut tables = inputs::of_tables(runs(&view, after));
        #[cfg(feature = "canary")]
        if umbel_base::canary::Switch::ExistenceWalkSkipsMemtables.is_on() {
            memory = inputs::of_memtables(std::iter::empty());
        }
        seek(&mut memory, after)?;
        seek(&mut tables, after)?;
        let mut last: Vec<u8> = Vec::new();
        let mut taken = 0;
        // An entry is handed out for its key's first put; a key may come with several entries.
        let mut is_out = true;
        loop {
            let memory_first = match (memory.valid(), tables.valid()) {
                (false, false) => return Ok(None),
                (true, true) => memory.key() <= tables.key(),
                (is_in_memory, _) => is_in_memory,
            };
            let source: &mut dyn Cursor = if memory_first { &mut memory } else { &mut tables };
            if taken == 0 || source.key() != last {
                if taken >= most.max(1) {
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
        let view = self.0.view.hold();
        let tables =
            view.version.tables().map(|(_, table)| table.meta.entries - table.meta.deletes);
        let buffers = std::iter::once(&view.active).chain(&view.frozen);
        let buffered: u64 = buffers.map(|buffer| buffer.memtable.entries()).sum();
        // 0 would say that it is not known.
        (tables.sum::<u64>() + buffered).max(1)
    }

    fn is_busy(&self) -> bool {
        self.0.view.hold().version.tables().any(|(_, table)| table.is_busy())
    }
}

/// The tables that reach behind `after`, as sorted runs, newest first.
fn runs(view: &View, after: Option<&[u8]>) -> Vec<Vec<Arc<TableFile>>> {
    let reaches = |table: &&Arc<TableFile>| after.is_none_or(|after| table.reaches(after));
    let walked = |table: &Arc<TableFile>| table.for_a_walk();
    let (newest, deeper) = view.version.levels.split_at(1);
    let newest = newest.iter().flatten().filter(reaches).map(|table| vec![walked(table)]);
    let deeper = deeper.iter().map(|level| level.iter().filter(reaches).map(walked).collect());
    newest.chain(deeper.filter(|run: &Vec<_>| !run.is_empty())).collect()
}

/// Moves to the first entry behind every one of the key `after`.
fn seek(cursor: &mut impl Cursor, after: Option<&[u8]>) -> Result<()> {
    let Some(after) = after else { return cursor.seek_to_first() };
    cursor.seek(after, 0)?;
    while cursor.valid() && cursor.key() == after {
        cursor.next()?;
    }
    Ok(())
}

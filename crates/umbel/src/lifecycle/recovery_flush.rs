//! What recovery writes into tables because it does not fit into memory beside what is replayed
//! next.
//!
//! The tables become part of the store by the manifest that the open creates, which says at the
//! same time how far each keyspace is in tables and what of the logs counts. A crash before that
//! leaves the old manifest, which names neither, and all logs: the files are removed by the next
//! open before it writes any itself. Room for the new manifest is kept before the first of them is
//! begun (`reserve`).
//!
//! INVARIANT: what was replayed of the logs is durable, in tables or in logs, before the manifest
//! is: nothing depends on whether it was when a table was written.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use umbel_base::{Error, FragmentedTombstones, RangeTombstone, Result, SequenceNumber};
use umbel_env::Env;
use umbel_table::{TableBuilder, TableMeta, TableOptions};

use crate::budget::WALKED;
use crate::compaction::stream::{CompactionStream, Stripes, surviving_tombstones};
use crate::counters::add;
use crate::inputs;
use crate::keyspace_core::KeyspaceCore;
use crate::memory::Buffer;
use crate::memory_budget::Part;
use crate::names;
use crate::output::piece_bytes;
use crate::reserve::Reserve;
use crate::shares::writing_bytes;
use crate::version::edit::State;
use crate::version::{Edit, TableContext, TableFile};

/// The memtables are weighed once so many bytes were put into them, at most.
const GRAIN_BYTES: u64 = 64 << 10;

/// Where to recovery may write tables, and those that it wrote. Dropping it removes them, unless
/// [`Spill::adopt`] was called.
#[derive(Debug)]
pub struct Spill<'a> {
    env: &'a Env,
    folder: &'a Path,
    context: &'a Arc<TableContext>,
    /// Where new files get their ids from; `None` where nothing may be written.
    ids: Option<&'a AtomicU64>,
    /// Bytes that were replayed since the memtables were weighed.
    bytes_unweighed: u64,
    /// Of each keyspace, by id, its tables, and up to where it is in them.
    written: BTreeMap<u32, (Vec<Arc<TableMeta>>, SequenceNumber)>,
    unfinished: Option<u64>,
    /// Room for the manifest that will name the tables; there is none before the first of them.
    reserve: Option<Reserve>,
    adopted: bool,
}

impl<'a> Spill<'a> {
    /// Nothing was written yet.
    pub fn new(
        env: &'a Env,
        folder: &'a Path,
        context: &'a Arc<TableContext>,
        ids: Option<&'a AtomicU64>,
    ) -> Spill<'a> {
        let written = BTreeMap::new();
        Spill {
            env,
            folder,
            context,
            ids,
            bytes_unweighed: 0,
            written,
            unfinished: None,
            reserve: None,
            adopted: false,
        }
    }

    /// What tables share.
    pub fn context(&self) -> &'a Arc<TableContext> {
        self.context
    }

    /// Where new files get their ids from; `None` where nothing may be written.
    pub fn ids(&self) -> Option<&'a AtomicU64> {
        self.ids
    }

    /// Notes that so many bytes were put into the memtables of `keyspaces`, the last of them with
    /// number `last`. Where all memtables are over what they may take together, writes the largest
    /// ones into tables, as long as there is room for them beside a manifest with `state`.
    pub fn note(
        &mut self,
        state: &State,
        keyspaces: &[Arc<KeyspaceCore>],
        last: SequenceNumber,
        bytes: usize,
    ) -> Result<()> {
        let budget = &self.context.budget;
        let most = budget.replay_most();
        self.bytes_unweighed += bytes as u64;
        if self.ids.is_none() || self.bytes_unweighed < GRAIN_BYTES.min(most / 16) {
            return Ok(());
        }
        self.bytes_unweighed = 0;
        let total = || {
            let bytes = keyspaces.iter().map(|keyspace| keyspace.memtable_bytes()).sum();
            if let Some(membership) = budget.membership() {
                membership.publish_part(Part::Memtables, bytes);
            }
            bytes
        };
        while total() > most {
            let Some(ids) = self.ids else { break };
            let largest = keyspaces.iter().max_by_key(|keyspace| keyspace.memtable_bytes());
            let Some(largest) = largest else { break };
            match self.flush(state, largest, ids, last) {
                Ok(true) => {}
                Ok(false) => break,
                // A store that cannot be opened for want of room could never make any.
                Err(Error::Full { .. }) => {
                    self.ids = None;
                    let unfinished = self.unfinished.take();
                    self.remove(unfinished);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes all memtables of a keyspace into one table. `false` where they hold nothing.
    fn flush(
        &mut self,
        state: &State,
        keyspace: &Arc<KeyspaceCore>,
        ids: &AtomicU64,
        last: SequenceNumber,
    ) -> Result<bool> {
        if self.reserve.is_none() {
            let id = ids.fetch_add(1, Ordering::Relaxed);
            self.reserve = Some(Reserve::begin(self.env, self.folder, id, state)?);
        }
        if !keyspace.view.load().active.is_empty() {
            keyspace.view.freeze(&keyspace.options());
        }
        let buffers = keyspace.view.load().frozen.clone();
        let through = buffers.iter().map(|buffer| buffer.last_sequence()).max();
        let (Some(through), Some(meta)) = (through, self.write(keyspace, &buffers, ids, last)?)
        else {
            return Ok(false);
        };
        let meta = Arc::new(meta);
        if let Some(reserve) = &mut self.reserve {
            reserve.add(&added(keyspace.id, &meta))?;
        }
        let (metas, flushed) = self.written.entry(keyspace.id).or_default();
        metas.push(Arc::clone(&meta));
        *flushed = through;
        self.unfinished = None;
        let table = TableFile::new(meta, 0, keyspace.hasher.kind(), Arc::clone(self.context));
        // That it can be read back is checked with as little memory as can be.
        let read_back = table.unopened();
        read_back.set_level(WALKED);
        read_back.reader()?;
        let version = keyspace.view.load().version.apply(&[], &[(0, Arc::new(table))])?;
        keyspace.view.install(version, &buffers);
        Ok(true)
    }

    fn write(
        &mut self,
        keyspace: &KeyspaceCore,
        buffers: &[Arc<Buffer>],
        ids: &AtomicU64,
        last: SequenceNumber,
    ) -> Result<Option<TableMeta>> {
        let tombstones: Vec<RangeTombstone> = buffers
            .iter()
            .flat_map(|buffer| buffer.memtable.tombstones().to_tombstones())
            .collect();
        let tombstones = FragmentedTombstones::new(&tombstones);
        // There is no reader yet: whoever comes sees all that was replayed.
        let stripes = Stripes::new(vec![last]);
        let kept = surviving_tombstones(&tombstones, &stripes, |_, _| false);
        let merged = inputs::of_memtables(buffers.iter().map(|buffer| &buffer.memtable));
        let mut stream = CompactionStream::new(merged, tombstones, stripes, false, |_| false);
        let bytes: u64 = buffers.iter().map(|buffer| buffer.memtable.bytes() as u64).sum();
        let _claim = self.context.budget.claim(writing_bytes(bytes));
        let mut builder = None;
        while let Some(entry) = stream.next_entry()? {
            let builder = match &mut builder {
                Some(builder) => builder,
                none => none.insert(self.begin(keyspace, ids, bytes)?),
            };
            builder.add(entry.key, entry.sequence, entry.kind, entry.value)?;
        }
        if builder.is_none() && !kept.is_empty() {
            builder = Some(self.begin(keyspace, ids, bytes)?);
        }
        let Some(mut builder) = builder else { return Ok(None) };
        kept.iter().for_each(|tombstone| builder.add_tombstone(tombstone));
        let counts = stream.counts();
        let expected = buffers.iter().map(|buffer| buffer.memtable.entries()).sum();
        let counted = counts.check(expected);
        counted
            .map_err(|reason| Error::invalid(format!("internal: flush lost count: {reason}")))?;
        let meta = builder.finish()?;
        let work = &keyspace.counters.work[0];
        add(&work.jobs, 1);
        add(&work.entries_in, counts.entries_in);
        work.note_dropped(&counts);
        add(&work.bytes_written, meta.file_bytes);
        Ok(Some(meta))
    }

    fn begin(
        &mut self,
        keyspace: &KeyspaceCore,
        ids: &AtomicU64,
        bytes: u64,
    ) -> Result<TableBuilder> {
        let id = ids.fetch_add(1, Ordering::Relaxed);
        let file = self.env.files.create(&names::table(self.folder, id))?;
        self.unfinished = Some(id);
        let options = keyspace.options();
        let filter = options.level_filter(0);
        let (prefix, hasher) = (options.prefix.clone(), *self.context.hashers.of(options.hash));
        let options = TableOptions {
            block_bytes: options.block_bytes,
            compression: options.compression.levels[0],
            bloom_bits: filter.bits_per_key,
            filter_kind: filter.kind,
            filter_probes: filter.probes,
            second_filter: None,
        };
        let builder = TableBuilder::new(file, id, hasher, options);
        let builder = builder.with_prefix(prefix.as_ref());
        let pieces = piece_bytes(self.context.budget.sizes.ahead);
        Ok(builder.with_pieces(pieces, bytes, false))
    }

    /// Makes the names of the tables durable and notes in `state` what is in them. `false` where
    /// nothing was written.
    pub fn note_in(&self, state: &mut State) -> Result<bool> {
        if self.written.is_empty() {
            return Ok(false);
        }
        self.env.files.sync_dir(self.folder)?;
        for (&keyspace, (metas, through)) in &self.written {
            let add = |meta: &Arc<TableMeta>| added(keyspace, meta);
            let through = Edit::FlushedThrough { keyspace, sequence: *through };
            for edit in metas.iter().map(add).chain([through]) {
                let applied = state.apply(&edit);
                applied.map_err(|reason| Error::invalid(format!("internal: {reason}")))?;
            }
        }
        Ok(true)
    }

    fn remove(&self, ids: impl IntoIterator<Item = u64>) {
        for id in ids {
            // What cannot be removed now is removed at the next open.
            let _ = self.env.files.remove_file(&names::table(self.folder, id));
        }
    }

    /// Gives back the room that was kept for the manifest, which is to be written next.
    pub fn make_way(&self) -> Result<()> {
        self.reserve.as_ref().map_or(Ok(()), Reserve::give_back)
    }

    /// Whether a durable manifest may name the tables.
    pub fn is_adopted(&self) -> bool {
        self.adopted
    }

    /// Says that the tables may be named by a durable manifest from now on: they stay.
    pub fn adopt(&mut self) {
        self.adopted = true;
        self.reserve = None;
    }
}

fn added(keyspace: u32, meta: &Arc<TableMeta>) -> Edit {
    Edit::AddTable { keyspace, level: 0, meta: Arc::clone(meta) }
}

impl Drop for Spill<'_> {
    fn drop(&mut self) {
        if self.adopted {
            return;
        }
        let written = self.written.values().flat_map(|(metas, _)| metas.iter().map(|meta| meta.id));
        self.remove(written.chain(self.unfinished));
    }
}

//! Flushes during recovery, which keep the memtables within the memory limit.
//!
//! The tables become part of the store through the manifest that the open creates. The manifest
//! also says up to which write each keyspace is in tables, and which part of the WAL counts. A
//! crash before the new manifest is current leaves the old manifest, which does not name the
//! tables, and all WAL segments. The next open then removes the tables before it writes its own.
//! Space for the new manifest is reserved before the first table is begun (`reservation`).
//!
//! INVARIANT: the replayed part of the WAL is durable, in tables or in segments, before the new
//! manifest is durable.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use umbel_base::{Error, Result, SequenceNumber};
use umbel_env::Env;
use umbel_table::{TableBuilder, TableMeta, TableOptions};

use crate::compaction::compaction_stream::{CompactionStream, SnapshotStripes};
use crate::compaction::surviving_tombstones::surviving_tombstones;
use crate::fs::filenames;
use crate::lifecycle::manifest_reservation::ManifestReservation;
use crate::maintenance::table_writer::write_chunk_bytes;
use crate::shared_budget::MemoryUse;
use crate::shared_budget::memory_use_limits::writing_bytes;
use crate::state::keyspace_state::KeyspaceState;
use crate::store_budget::SEQUENTIAL_READ;
use crate::super_version::MemtableSlot;
use crate::super_version::flush_compaction_inputs;
use crate::thread_counters::add;
use crate::version::version_edit::ManifestState;
use crate::version::{Edit, LiveTable, TableContext};

/// Maximum number of replayed bytes between two checks of the memtables' size.
const CHECK_INTERVAL_BYTES: u64 = 64 << 10;

/// Writes recovery's tables, and lists the tables that it wrote. Dropping a `RecoveryFlush` removes
/// its tables, unless [`RecoveryFlush::keep_files`] was called.
#[derive(Debug)]
pub struct RecoveryFlush<'a> {
    env: &'a Env,
    folder: &'a Path,
    context: &'a Arc<TableContext>,
    /// Source of ids for new files; `None` if recovery must not write.
    ids: Option<&'a AtomicU64>,
    /// Bytes replayed since the last check of the memtables' size.
    bytes_since_check: u64,
    /// For each keyspace, by id, the tables that recovery wrote and the last sequence number in
    /// them.
    written: BTreeMap<u32, (Vec<Arc<TableMeta>>, SequenceNumber)>,
    unfinished: Option<u64>,
    /// Reserved space for the manifest that will name the tables; `None` before the first table.
    reservation: Option<ManifestReservation>,
    keeps_files: bool,
}

impl<'a> RecoveryFlush<'a> {
    /// Creates a `RecoveryFlush` that has written no table.
    pub fn new(
        env: &'a Env,
        folder: &'a Path,
        context: &'a Arc<TableContext>,
        ids: Option<&'a AtomicU64>,
    ) -> RecoveryFlush<'a> {
        let written = BTreeMap::new();
        RecoveryFlush {
            env,
            folder,
            context,
            ids,
            bytes_since_check: 0,
            written,
            unfinished: None,
            reservation: None,
            keeps_files: false,
        }
    }

    /// Returns the shared context of tables.
    pub fn context(&self) -> &'a Arc<TableContext> {
        self.context
    }

    /// Returns the source of ids for new files; `None` if recovery must not write.
    pub fn ids(&self) -> Option<&'a AtomicU64> {
        self.ids
    }

    /// Counts `bytes` put into the memtables of `keyspaces` by writes up to sequence number `last`.
    /// If all memtables together exceed their limit, writes the largest ones to tables, as long as
    /// disk space for a manifest with `state` remains.
    pub fn note(
        &mut self,
        state: &ManifestState,
        keyspaces: &[Arc<KeyspaceState>],
        last: SequenceNumber,
        bytes: usize,
    ) -> Result<()> {
        let budget = &self.context.budget;
        let limit = budget.replay_max();
        self.bytes_since_check += bytes as u64;
        if self.ids.is_none() || self.bytes_since_check < CHECK_INTERVAL_BYTES.min(limit / 16) {
            return Ok(());
        }
        self.bytes_since_check = 0;
        let total = || {
            let bytes = keyspaces.iter().map(|keyspace| keyspace.memtable_bytes()).sum();
            if let Some(membership) = budget.membership() {
                membership.publish_use(MemoryUse::Memtables, bytes);
            }
            bytes
        };
        while total() > limit {
            let Some(ids) = self.ids else { break };
            let largest = keyspaces.iter().max_by_key(|keyspace| keyspace.memtable_bytes());
            let Some(largest) = largest else { break };
            match self.flush(state, largest, ids, last) {
                Ok(true) => {}
                Ok(false) => break,
                // A store that cannot be opened for lack of disk space could never free any.
                Err(Error::DiskFull { .. }) => {
                    self.ids = None;
                    let unfinished = self.unfinished.take();
                    self.remove(unfinished);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes all memtables of a keyspace to one table. Returns `false` if the memtables are empty.
    fn flush(
        &mut self,
        state: &ManifestState,
        keyspace: &Arc<KeyspaceState>,
        ids: &AtomicU64,
        last: SequenceNumber,
    ) -> Result<bool> {
        if self.reservation.is_none() {
            let id = ids.fetch_add(1, Ordering::Relaxed);
            self.reservation = Some(ManifestReservation::create(self.env, self.folder, id, state)?);
        }
        if !keyspace.super_version.load().active.is_empty() {
            keyspace.super_version.freeze(&keyspace.options());
        }
        let buffers = keyspace.super_version.load().frozen.clone();
        let through = buffers.iter().map(|buffer| buffer.last_sequence()).max();
        let (Some(through), Some(meta)) = (through, self.write(keyspace, &buffers, ids, last)?)
        else {
            return Ok(false);
        };
        let meta = Arc::new(meta);
        if let Some(reserve) = &mut self.reservation {
            reserve.add(&added(keyspace.id, &meta))?;
        }
        let (metas, flushed) = self.written.entry(keyspace.id).or_default();
        metas.push(Arc::clone(&meta));
        *flushed = through;
        self.unfinished = None;
        let table = LiveTable::new(meta, 0, keyspace.hasher.kind(), Arc::clone(self.context));
        // Reading back is checked with as little memory as possible.
        let read_back = table.unopened();
        read_back.set_level(SEQUENTIAL_READ);
        read_back.reader()?;
        let version = keyspace.super_version.load().version.apply(&[], &[(0, Arc::new(table))])?;
        keyspace.super_version.install(version, &buffers);
        Ok(true)
    }

    fn write(
        &mut self,
        keyspace: &KeyspaceState,
        buffers: &[Arc<MemtableSlot>],
        ids: &AtomicU64,
        last: SequenceNumber,
    ) -> Result<Option<TableMeta>> {
        let tombstones = || buffers.iter().flat_map(|buffer| buffer.memtable.range_tombstones());
        // There is no reader yet: later readers see everything that was replayed.
        let stripes = SnapshotStripes::new(vec![last]);
        let kept = surviving_tombstones(tombstones(), &stripes, |_, _| false);
        let memtables = || buffers.iter().map(|buffer| &buffer.memtable);
        let tombstones = flush_compaction_inputs::tombstones_of_memtables(memtables());
        let merged = flush_compaction_inputs::of_memtables(memtables());
        let mut stream = CompactionStream::new(merged, tombstones, stripes, false, |_| false);
        let bytes: u64 = buffers.iter().map(|buffer| buffer.memtable.bytes() as u64).sum();
        let _claim = self.context.budget.reserve(writing_bytes(bytes));
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
        counted.map_err(|reason| {
            Error::invalid(format!(
                "internal: wrong entry count of a flush: \
                                                      {reason}"
            ))
        })?;
        let meta = builder.finish()?;
        let work = &keyspace.counters.levels[0];
        add(&work.jobs, 1);
        add(&work.entries_in, counts.entries_in);
        work.note_dropped(&counts);
        add(&work.bytes_written, meta.file_bytes);
        Ok(Some(meta))
    }

    fn begin(
        &mut self,
        keyspace: &KeyspaceState,
        ids: &AtomicU64,
        bytes: u64,
    ) -> Result<TableBuilder> {
        let id = ids.fetch_add(1, Ordering::Relaxed);
        let file = self.env.files.create(&filenames::table(self.folder, id))?;
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
        let pieces = write_chunk_bytes(self.context.budget.sizes.readahead);
        Ok(builder.with_chunk_size(pieces, bytes, false))
    }

    /// Makes the names of the written tables durable, and adds the tables to `state`. Returns
    /// `false` if no table was written.
    pub fn add_to_state(&self, state: &mut ManifestState) -> Result<bool> {
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
            // A file that cannot be removed now is removed at the next open.
            let _ = self.env.files.remove_file(&filenames::table(self.folder, id));
        }
    }

    /// Releases the space reserved for the manifest, which the caller writes next.
    pub fn release_reservation(&self) -> Result<()> {
        self.reservation.as_ref().map_or(Ok(()), ManifestReservation::release)
    }

    /// Whether [`RecoveryFlush::keep_files`] was called, since a durable manifest possibly names
    /// the tables.
    pub fn keeps_files(&self) -> bool {
        self.keeps_files
    }

    /// Keeps the tables from now on, since a durable manifest possibly names them.
    pub fn keep_files(&mut self) {
        self.keeps_files = true;
        self.reservation = None;
    }
}

fn added(keyspace: u32, meta: &Arc<TableMeta>) -> Edit {
    Edit::AddTable { keyspace, level: 0, meta: Arc::clone(meta) }
}

impl Drop for RecoveryFlush<'_> {
    fn drop(&mut self) {
        if self.keeps_files {
            return;
        }
        let written = self.written.values().flat_map(|(metas, _)| metas.iter().map(|meta| meta.id));
        self.remove(written.chain(self.unfinished));
    }
}

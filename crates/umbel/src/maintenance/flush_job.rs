//! Flush: writes frozen memtables to tables of level 0.
//!
//! INVARIANT: before a table with logged writes becomes part of a version, the WAL is durable up to
//! the table's newest write. Otherwise a crash could keep that write and lose an earlier write to
//! another keyspace.

use std::sync::Arc;

use umbel_base::{Error, Result, SequenceNumber};

use crate::advisor;
use crate::compaction::compaction_stream::{CompactionStream, SnapshotStripes};
use crate::compaction::surviving_tombstones::surviving_tombstones;
use crate::fs::blob_files;
use crate::maintenance::advisor_job;
use crate::maintenance::existence_maintenance;
use crate::maintenance::table_writer::{self, TableOutput, TablePlan};
use crate::maintenance::wal_recycling;
use crate::shared_budget::memory_use_limits::writing_bytes;
use crate::state::keyspace_state::KeyspaceState;
use crate::state::store::Store;
use crate::super_version::MemtableSlot;
use crate::super_version::flush_compaction_inputs;
use crate::thread_counters::add;
use crate::version::{Edit, LiveTable};

/// Frozen memtables of one keyspace that are flushed together.
#[derive(Debug)]
pub struct FlushJob {
    /// The keyspace that is flushed.
    pub keyspace: Arc<KeyspaceState>,
    /// The frozen memtables to flush, newest first.
    pub memtables: Vec<Arc<MemtableSlot>>,
    /// Marker to store instead of the markers of the memtables.
    pub marker: Option<Vec<u8>>,
}

/// Runs the jobs and installs their tables together: after a crash the store has either all these
/// tables or none.
///
/// REQUIRES: no other thread flushes these keyspaces, and the jobs have their oldest frozen
/// memtables.
pub fn run(store: &Arc<Store>, jobs: &[FlushJob]) -> Result<()> {
    let clock = &store.options.env.clock;
    let begun = clock.now();
    let mut written = Vec::with_capacity(jobs.len());
    for job in jobs {
        written.push(write_table(store, job)?);
    }
    if jobs.iter().any(|job| job.keyspace.uses_wal()) {
        let through = store.commit_lock().wal.last_sequence();
        store.group_sync.sync_through(through, &store.counters)?;
    }
    if let Some(gate) = &store.options.before_flush
        && jobs.iter().any(|job| !job.keyspace.uses_wal())
    {
        gate.pass()?;
    }
    let lasts = jobs.iter().map(|job| (&*job.keyspace, job.last_sequence()));
    existence_maintenance::flush(store, lasts)?;
    let tables = written.iter().map(TableOutput::open_tables).collect::<Result<Vec<_>>>()?;
    install(store, jobs, &mut written, &tables)?;
    let micros = (clock.now() - begun).as_micros() as u64;
    for (job, output) in jobs.iter().zip(&written) {
        let work = &job.keyspace.counters.levels[0];
        add(&work.jobs, 1);
        add(&work.micros, micros);
        add(&work.entries_in, output.counts.entries_in);
        work.note_dropped(&output.counts);
        add(&work.bytes_written, output.metas.iter().map(|meta| meta.file_bytes).sum());
    }
    wal_recycling::drop_obsolete(store)
}

fn write_table(store: &Arc<Store>, job: &FlushJob) -> Result<TableOutput> {
    let tombstones = || job.memtables.iter().flat_map(|buffer| buffer.memtable.range_tombstones());
    let expected = job.memtables.iter().map(|buffer| buffer.memtable.entries()).sum();
    // One list of boundaries serves entries and tombstones.
    let stripes = SnapshotStripes::new(store.snapshots.boundaries());
    let memtables = || job.memtables.iter().map(|buffer| &buffer.memtable);
    // Cut first: readers may wait for it.
    let runs = flush_compaction_inputs::tombstones_of_memtables(memtables());
    let kept = surviving_tombstones(tombstones(), &stripes, |_, _| false);
    let merged = flush_compaction_inputs::of_memtables(memtables());
    let (lower, upper, readers) = (None, None, stripes.boundaries().to_vec());
    let stream = CompactionStream::new(merged, runs, stripes, false, |_| false);
    let options = job.keyspace.options();
    let bytes: usize = job.memtables.iter().map(|buffer| buffer.memtable.bytes()).sum();
    let _claim = store.budget.reserve(writing_bytes(bytes as u64));
    let expected_bytes = bytes as u64;
    let inputs = [(None, expected)];
    let second_filter = advisor_job::choose_second_filter(store, &job.keyspace, 0, &inputs);
    let _building = store.budget.reserve(advisor::building_bytes(second_filter, &inputs, (1, 1)));
    let plan = TablePlan {
        level: 0,
        options,
        selection: job.keyspace.advisor.selection_for_new_table(0, second_filter.is_some()),
        second_filter,
        split: false,
        expected_bytes,
        lower,
        upper,
        snapshots: readers,
    };
    let output = table_writer::write_tables(store, &plan, stream, &kept, || false)?;
    let counted = output.counts.check(expected);
    counted.map_err(|reason| {
        Error::invalid(format!(
            "internal: wrong entry count of a flush: \
                                                     {reason}"
        ))
    })?;
    Ok(output)
}

fn install(
    store: &Store,
    jobs: &[FlushJob],
    written: &mut [TableOutput],
    tables: &[Vec<Arc<LiveTable>>],
) -> Result<()> {
    let mut edits = store.commit_lock().wal.seal_edits();
    let mut manifest = store.manifest_lock()?;
    // Another flush may have recorded an end meanwhile, or dropped the segment: it must not come
    // back.
    edits.retain(|edit| manifest.state().is_change(edit));
    let mut installed = Vec::with_capacity(jobs.len());
    for ((job, tables), output) in jobs.iter().zip(tables).zip(written) {
        // The flushed tables of a keyspace that was dropped meanwhile are dropped too.
        if job.keyspace.check_not_dropped().is_err() {
            continue;
        }
        let added: Vec<_> = tables.iter().map(|table| (0, Arc::clone(table))).collect();
        let version = job.keyspace.super_version.load().version.apply(&[], &added)?;
        push_edits(job, tables, &mut edits);
        edits.extend(advisor_job::read_stats_edit(&job.keyspace));
        installed.push((job, version, output, tables));
    }
    if edits.is_empty() {
        return Ok(());
    }
    // From here on a durable manifest may name the tables, whatever the commit returns.
    installed.iter_mut().for_each(|(_, _, output, _)| output.keep_files());
    if let Some(refused) = manifest.commit_unless_full(&edits)? {
        installed.iter().for_each(|(_, _, _, tables)| remove_tables(tables));
        return Err(refused);
    }
    for (job, version, _, tables) in installed {
        if let Some(marker) = job.marker() {
            job.keyspace.set_durable_marker(marker);
        }
        job.keyspace.super_version.install(version, &job.memtables);
        let held = job.memtables.iter().flat_map(|buffer| buffer.blobs());
        blob_files::mark_dropped(held, tables.iter().flat_map(|table| &table.meta.blobs));
    }
    drop(manifest);
    store.commit_lock().wal.note_sealed(&edits);
    Ok(())
}

/// Removes tables that no edit names.
fn remove_tables(tables: &[Arc<LiveTable>]) {
    tables.iter().for_each(|table| table.mark_obsolete());
}

fn push_edits(job: &FlushJob, tables: &[Arc<LiveTable>], edits: &mut Vec<Edit>) {
    let keyspace = job.keyspace.id;
    for table in tables {
        edits.push(Edit::AddTable { keyspace, level: 0, meta: table.meta.clone() });
    }
    let last = job.last_sequence();
    edits.push(Edit::FlushedThrough { keyspace, sequence: last });
    edits.push(Edit::LastSequence(last));
    if let Some(marker) = job.marker() {
        edits.push(Edit::Marker { keyspace, marker });
    }
}

impl FlushJob {
    /// Sequence number of the newest write that the job flushes.
    fn last_sequence(&self) -> SequenceNumber {
        self.memtables.iter().map(|buffer| buffer.last_sequence()).max().unwrap_or(0)
    }

    /// Returns the marker to store for the keyspace.
    pub fn marker(&self) -> Option<Vec<u8>> {
        // Memtables are ordered newest first, and the newest marker counts.
        self.marker.clone().or_else(|| self.memtables.iter().find_map(|buffer| buffer.marker()))
    }
}

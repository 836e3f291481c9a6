//! Flushing: frozen memtables become tables of level 0.
//!
//! INVARIANT: before a table with logged writes becomes part of a version, the log is durable up to
//! its newest write, in every keyspace; otherwise a crash could keep the later of two writes and
//! lose the earlier.

use std::sync::Arc;

use umbel_base::{Error, FragmentedTombstones, RangeTombstone, Result, SequenceNumber};

use crate::advise;
use crate::advisor;
use crate::blobs;
use crate::compaction::stream::{CompactionStream, Stripes, surviving_tombstones};
use crate::counters::add;
use crate::existence_upkeep;
use crate::inputs;
use crate::keyspace_core::KeyspaceCore;
use crate::memory::Buffer;
use crate::output::{self, Output, Plan};
use crate::segments;
use crate::shares::writing_bytes;
use crate::store::Store;
use crate::version::{Edit, TableFile};

/// Frozen memtables of one keyspace, newest first, that are flushed into one table.
#[derive(Debug)]
pub struct FlushJob {
    /// The keyspace.
    pub keyspace: Arc<KeyspaceCore>,
    /// Its memtables.
    pub buffers: Vec<Arc<Buffer>>,
    /// What to store instead of the memtables' own marker.
    pub marker: Option<Vec<u8>>,
}

/// Flushes the jobs and installs them together: after a crash all of them are there or none.
///
/// REQUIRES: the caller alone flushes these keyspaces, and passes their oldest frozen memtables.
pub fn flush(store: &Arc<Store>, jobs: &[FlushJob]) -> Result<()> {
    let clock = &store.options.env.clock;
    let begun = clock.now();
    let mut written = Vec::with_capacity(jobs.len());
    for job in jobs {
        written.push(write(store, job)?);
    }
    if jobs.iter().any(|job| job.keyspace.logs()) {
        let through = store.commit_lock().wal.last_sequence();
        store.sync_through(through)?;
    }
    if let Some(gate) = &store.options.before_flush
        && jobs.iter().any(|job| !job.keyspace.logs())
    {
        gate.pass()?;
    }
    let lasts = jobs.iter().map(|job| (&*job.keyspace, job.last_sequence()));
    existence_upkeep::flush(store, lasts)?;
    let tables = written.iter().map(Output::open).collect::<Result<Vec<_>>>()?;
    install(store, jobs, &mut written, &tables)?;
    let micros = (clock.now() - begun).as_micros() as u64;
    for (job, output) in jobs.iter().zip(&written) {
        let work = &job.keyspace.counters.work[0];
        add(&work.jobs, 1);
        add(&work.micros, micros);
        add(&work.entries_in, output.counts.entries_in);
        work.note_dropped(&output.counts);
        add(&work.bytes_written, output.metas.iter().map(|meta| meta.file_bytes).sum());
    }
    segments::drop_obsolete(store)
}

fn write(store: &Arc<Store>, job: &FlushJob) -> Result<Output> {
    let mut tombstones: Vec<RangeTombstone> = Vec::new();
    for buffer in &job.buffers {
        tombstones.extend(buffer.memtable.tombstones().to_tombstones());
    }
    let expected = job.buffers.iter().map(|buffer| buffer.memtable.entries()).sum();
    let tombstones = FragmentedTombstones::new(&tombstones);
    // One list of boundaries serves entries and tombstones.
    let stripes = Stripes::new(store.snapshots.boundaries());
    let kept = surviving_tombstones(&tombstones, &stripes, |_, _| false);
    let merged = inputs::of_memtables(job.buffers.iter().map(|buffer| &buffer.memtable));
    let (lower, upper, readers) = (None, None, stripes.held().to_vec());
    let stream = CompactionStream::new(merged, tombstones, stripes, false, |_| false);
    let options = job.keyspace.options();
    let bytes: usize = job.buffers.iter().map(|buffer| buffer.memtable.bytes()).sum();
    let _claim = store.budget.claim(writing_bytes(bytes as u64));
    let expected_bytes = bytes as u64;
    let inputs = [(None, expected)];
    let second_filter = advise::second_filter(store, &job.keyspace, 0, &inputs);
    let _building = store.budget.claim(advisor::building_bytes(second_filter, &inputs, (1, 1)));
    let plan = Plan {
        level: 0,
        options,
        choice: job.keyspace.advisor.choice_of_new(0, second_filter.is_some()),
        second_filter,
        split: false,
        expected_bytes,
        lower,
        upper,
        readers,
    };
    let output = output::write_tables(store, &plan, stream, &kept, || false)?;
    let counted = output.counts.check(expected);
    counted.map_err(|reason| Error::invalid(format!("internal: flush lost count: {reason}")))?;
    Ok(output)
}

fn install(
    store: &Store,
    jobs: &[FlushJob],
    written: &mut [Output],
    tables: &[Vec<Arc<TableFile>>],
) -> Result<()> {
    let mut edits = store.commit_lock().wal.ends();
    let mut manifest = store.manifest_lock()?;
    // Another flush may have written an end down meanwhile, or dropped the segment: it must not
    // come back.
    edits.retain(|edit| manifest.state().is_news(edit));
    let mut installed = Vec::with_capacity(jobs.len());
    for ((job, tables), output) in jobs.iter().zip(tables).zip(written) {
        // What was flushed of a keyspace that was dropped meanwhile goes with it.
        if job.keyspace.check_not_dropped().is_err() {
            continue;
        }
        let added: Vec<_> = tables.iter().map(|table| (0, Arc::clone(table))).collect();
        let version = job.keyspace.view.load().version.apply(&[], &added)?;
        describe(job, tables, &mut edits);
        edits.extend(advise::edit(&job.keyspace));
        installed.push((job, version, output, tables));
    }
    if edits.is_empty() {
        return Ok(());
    }
    // From here on the tables may be named by a durable manifest, whatever the commit answers.
    installed.iter_mut().for_each(|(_, _, output, _)| output.adopt());
    if let Some(refused) = manifest.commit_if_room(&edits)? {
        installed.iter().for_each(|(_, _, _, tables)| remove(tables));
        return Err(refused);
    }
    for (job, version, _, tables) in installed {
        if let Some(marker) = job.marker() {
            job.keyspace.set_durable_marker(marker);
        }
        job.keyspace.view.install(version, &job.buffers);
        let held = job.buffers.iter().flat_map(|buffer| buffer.blobs());
        blobs::retire(held, tables.iter().flat_map(|table| &table.meta.blobs));
    }
    drop(manifest);
    store.commit_lock().wal.note_ends(&edits);
    Ok(())
}

/// Removes tables that no edit names.
fn remove(tables: &[Arc<TableFile>]) {
    tables.iter().for_each(|table| table.mark_obsolete());
}

fn describe(job: &FlushJob, tables: &[Arc<TableFile>], edits: &mut Vec<Edit>) {
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
    /// The number of its newest write.
    fn last_sequence(&self) -> SequenceNumber {
        self.buffers.iter().map(|buffer| buffer.last_sequence()).max().unwrap_or(0)
    }

    /// What is stored as the keyspace's marker.
    pub fn marker(&self) -> Option<Vec<u8>> {
        // Buffers stand newest first, and the newest marker counts.
        self.marker.clone().or_else(|| self.buffers.iter().find_map(|buffer| buffer.marker()))
    }
}

//! Compaction job: merges the inputs into outputs, and replaces the inputs with the outputs.
//!
//! A large merge is done in steps of ascending key ranges. Each step replaces the tables of the
//! target level in its range, so that their space is free before the next step. The tables of upper
//! levels stay until the last step. Meanwhile, in the ranges that are done, an entry of an upper
//! level has a copy in the target level. Readers find the upper one first, and a merge drops the
//! copy, so each state between two steps has the same content.
//!
//! Inputs that newer range tombstones hide as a whole are removed before the first step, without
//! being read, so that a range delete frees space on a full disk.

use std::collections::HashSet;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard};

use umbel_base::fail_point;
use umbel_base::ignore_poison::IgnorePoison;
use umbel_base::{BlobPointer, Error, Result, SequenceNumber};
use umbel_table::RangeTombstoneBlock;

use crate::advisor;
use crate::compaction::bottommost_picker::{
    self, BottommostPick, LAST_LEVEL, ResumeKey, RewriteReason,
};
use crate::compaction::compaction_stream::{CompactionStream, SnapshotStripes, StreamCounts};
use crate::compaction::picker::{self, Pick, RangePick};
use crate::compaction::surviving_tombstones::surviving_tombstones;
use crate::fs::blob_files;
use crate::iter::range_tombstone_runs::RangeTombstoneRuns;
use crate::maintenance::advisor_job;
use crate::maintenance::compaction_jobs::cache_warming::warm_outputs;
use crate::maintenance::compaction_jobs::hidden_tables;
use crate::maintenance::compaction_jobs::picker_input;
use crate::maintenance::compaction_jobs::preemption::Preemption;
use crate::maintenance::table_writer::{self, TableOutput, TablePlan};
use crate::shared_budget::JobSlot;
use crate::shared_budget::memory_use_limits::merging_bytes;
use crate::state::keyspace_state::KeyspaceState;
use crate::state::snapshot_list::AwaitedRelease;
use crate::state::store::Store;
use crate::super_version::flush_compaction_inputs::{self, CompactionInputs};
use crate::thread_counters::add;
use crate::version::{Edit, LiveTable, Version};

/// Maximum number of steps of a merge, by the bytes of the target level's tables.
const STEPS_MAX: u64 = 8;

/// A picked compaction, whose inputs are marked busy until the job is dropped.
#[derive(Debug)]
pub struct CompactionJob {
    /// The keyspace that the job compacts.
    pub keyspace: Arc<KeyspaceState>,
    target: usize,
    is_trivial_move: bool,
    inputs: Box<Mutex<JobInputs>>,
    /// Bytes of all inputs.
    input_bytes: u64,
    /// Tables with keys in the range of the inputs that can hold entries older than an input's.
    /// Each such table of level 0 has a list of its own; deeper levels have one sorted list each.
    /// Usually empty.
    older_tables: Vec<Vec<Arc<LiveTable>>>,
    /// Preemption check of the job if it is optional.
    preemption: Option<Preemption>,
    /// Whether writers would eventually stall without this job.
    is_required: bool,
}

/// Levels and tables of a job's inputs, without those that earlier steps replaced.
#[derive(Debug, Clone, Default)]
struct JobInputs {
    /// The tables of the version.
    tables: Vec<(usize, Arc<LiveTable>)>,
    /// The same tables, to be read sequentially.
    scanned: Vec<(usize, Arc<LiveTable>)>,
    /// End of the key range of the steps that are done: a job that found the disk full is run again
    /// from there.
    done_to: Option<Vec<u8>>,
    /// Counts of the steps that are done.
    counts: StreamCounts,
    /// Number of entries of the tables that these steps replaced.
    entries_replaced: u64,
    /// Bytes of the tables that were removed without being read.
    bytes_skipped: u64,
    /// Long values that these steps kept.
    blobs: Vec<BlobPointer>,
}

/// Step of a merge: a key range, and the tables of the target level in it.
#[derive(Debug)]
struct MergeStep {
    lower: Option<Vec<u8>>,
    upper: Option<Vec<u8>>,
    targets: Vec<(usize, Arc<LiveTable>)>,
}

impl MergeStep {
    /// Whether no other step follows, so that the result replaces all inputs that are left.
    fn is_last(&self) -> bool {
        fail_point!("compaction-replace-inputs-early", |_| true);
        self.upper.is_none()
    }

    /// Checks the outputs' counts. All entries of the step's targets are in the step; how many
    /// entries of upper tables are in it is not known.
    fn check_counts(&self, outputs: &[TableOutput]) -> std::result::Result<(), String> {
        let mut counts = StreamCounts::default();
        outputs.iter().for_each(|output| counts.add(&output.counts));
        counts.check_part(self.targets.iter().map(|(_, table)| table.meta.entries).sum())
    }

    /// Whether a table's bounds overlap the step.
    fn is_reached_by(&self, table: &LiveTable) -> bool {
        self.lower.as_deref().is_none_or(|lower| table.reaches(lower))
            && self.upper.as_deref().is_none_or(|upper| table.meta.smallest.as_slice() < upper)
    }

    /// Adds the table's separators in the step to `keys`. Returns the table's approximate bytes in
    /// the step.
    fn add_separators(&self, table: &LiveTable, keys: &mut Vec<Vec<u8>>) -> Result<u64> {
        if !self.is_reached_by(table) {
            return Ok(0);
        }
        let is_after = |key: &[u8]| self.lower.as_deref().is_none_or(|lower| lower < key);
        let is_before = |key: &[u8]| self.upper.as_deref().is_none_or(|upper| key < upper);
        // Each range of blocks that the step meets counts whole.
        let (mut bytes, mut from, mut meets_next) = (0, 0, true);
        for (key, to) in table.reader()?.block_separators() {
            if is_after(key) {
                bytes += if meets_next { to - from } else { 0 };
                meets_next = is_before(key);
                keys.extend(meets_next.then(|| key.to_vec()));
            }
            from = to;
        }
        Ok(bytes)
    }
}

/// The range tombstones of a job's inputs.
struct InputTombstones {
    /// The range tombstones as they were written, by table.
    written: Vec<RangeTombstoneBlock>,
    /// The range tombstones cut where they overlap, shared with readers.
    runs: RangeTombstoneRuns,
}

/// REQUIRES: the caller holds the work lock if the result was installed. Otherwise a pick that
/// began with the earlier version could find the job's inputs idle.
impl Drop for CompactionJob {
    fn drop(&mut self) {
        for (_, table) in &self.inputs().tables {
            table.set_busy(false);
        }
    }
}

/// Urgency of a keyspace's most urgent compaction; `None` if no compaction is due.
pub fn urgency(keyspace: &KeyspaceState) -> Option<f64> {
    let options = keyspace.options();
    let version = Arc::clone(&keyspace.super_version.load().version);
    let cursors = keyspace.pick_cursors();
    picker::pick(&picker_input::build(&version, &options, &cursors)).map(|picked| picked.score)
}

/// Picks the most urgent compaction of a keyspace and marks its inputs busy.
/// REQUIRES: the caller holds the work lock, so that no two picks see the same tables idle.
pub fn pick_most_urgent(keyspace: &Arc<KeyspaceState>) -> Option<CompactionJob> {
    let options = keyspace.options();
    let version = Arc::clone(&keyspace.super_version.load().version);
    let cursors = keyspace.pick_cursors();
    let picked = picker::pick(&picker_input::build(&version, &options, &cursors))?;
    Some(claim(keyspace, &version, &picked))
}

/// Picks a table of a keyspace's last level to rewrite, because it holds entries that only past
/// readers could see. Returns a job, or the snapshots that must be dropped before there can be one.
/// REQUIRES: the caller holds the work lock.
pub fn pick_bottommost_rewrite(
    keyspace: &Arc<KeyspaceState>,
    readers: &[SequenceNumber],
) -> (Option<CompactionJob>, AwaitedRelease) {
    let options = keyspace.options();
    let version = Arc::clone(&keyspace.super_version.load().version);
    let found =
        bottommost_picker::pick_rewrite(&picker_input::build(&version, &options, &[]), readers);
    let awaited = AwaitedRelease {
        oldest: found.oldest_reader_needed,
        released_one_of: found.blocking_snapshots,
    };
    let job = found.pick.map(|picked| claim(keyspace, &version, &picked).into_optional());
    (job, awaited)
}

/// Picks tables of the last level to rewrite. REQUIRES: the caller holds the work lock.
pub fn pick_bottommost(
    keyspace: &Arc<KeyspaceState>,
    wanted: RewriteReason<'_>,
    range: (Option<&[u8]>, Option<&[u8]>),
    resume_after: &ResumeKey,
) -> JobPick {
    let options = keyspace.options();
    let version = Arc::clone(&keyspace.super_version.load().version);
    match bottommost_picker::pick_in_range(
        &picker_input::build(&version, &options, &[]),
        wanted,
        range,
        resume_after,
    ) {
        BottommostPick::Done => JobPick::Done,
        BottommostPick::Blocked => JobPick::Blocked,
        BottommostPick::Run(picked) => JobPick::Run(claim(keyspace, &version, &picked)),
    }
}

/// Outcome of installing the result of a job.
#[derive(Debug)]
enum InstallResult {
    Done,
    /// Nothing was installed, since the keyspace was dropped meanwhile.
    KeyspaceDropped,
    /// Nothing was installed, since the disk has no space for the edit.
    DiskFull(Error),
}

/// Next step of a manual compaction.
#[derive(Debug)]
pub enum JobPick {
    /// The level holds no key of the range any more.
    Done,
    /// Running compactions read the remaining tables of the range.
    Blocked,
    /// A job to run; its inputs are marked busy.
    Run(CompactionJob),
}

/// Picks the tables of `level` that overlap the range. REQUIRES: the caller holds the work lock.
pub fn pick_range(
    keyspace: &Arc<KeyspaceState>,
    level: usize,
    start: Option<&[u8]>,
    end: Option<&[u8]>,
) -> JobPick {
    let options = keyspace.options();
    let version = Arc::clone(&keyspace.super_version.load().version);
    let cursors = keyspace.pick_cursors();
    match picker::pick_range(&picker_input::build(&version, &options, &cursors), level, start, end)
    {
        RangePick::Done => JobPick::Done,
        RangePick::Blocked => JobPick::Blocked,
        RangePick::Run(picked) => JobPick::Run(claim(keyspace, &version, &picked)),
    }
}

fn claim(keyspace: &Arc<KeyspaceState>, version: &Version, picked: &Pick) -> CompactionJob {
    let mut inputs = Vec::new();
    for (level, ids) in &picked.inputs {
        let ids: HashSet<u64> = ids.iter().copied().collect();
        let picked = version.levels[*level].iter().filter(|table| ids.contains(&table.meta.id));
        inputs.extend(picked.map(|table| (*level, Arc::clone(table))));
    }
    if picked.level > 0
        && picked.level < LAST_LEVEL
        && let Some((_, last)) = inputs.iter().rfind(|(level, _)| *level == picked.level)
    {
        keyspace.set_pick_cursor(picked.level, last.meta.largest.clone());
    }
    let older_tables = find_older_tables(version, &inputs);
    let mut job = claim_inputs(keyspace, inputs);
    (job.target, job.is_trivial_move) = (picked.target_level, picked.trivial_move);
    job.older_tables = older_tables;
    job
}

/// Returns a job for these tables, and marks them busy. REQUIRES: the caller holds the work lock.
pub fn claim_inputs(
    keyspace: &Arc<KeyspaceState>,
    inputs: Vec<(usize, Arc<LiveTable>)>,
) -> CompactionJob {
    for (_, table) in &inputs {
        table.set_busy(true);
    }
    let scanned =
        inputs.iter().map(|(level, table)| (*level, table.for_sequential_read())).collect();
    let input_bytes = inputs.iter().map(|(_, table)| table.meta.file_bytes).sum();
    let inputs = JobInputs { tables: inputs, scanned, ..JobInputs::default() };
    CompactionJob {
        keyspace: Arc::clone(keyspace),
        target: 0,
        is_trivial_move: false,
        inputs: Box::new(Mutex::new(inputs)),
        input_bytes,
        older_tables: Vec::new(),
        preemption: None,
        is_required: true,
    }
}

/// Finds the tables that are not inputs, overlap the inputs' keys and can hold older entries. Such
/// tables are below the inputs' first level or, since tables of level 0 overlap, in level 0 itself.
fn find_older_tables(
    version: &Version,
    inputs: &[(usize, Arc<LiveTable>)],
) -> Vec<Vec<Arc<LiveTable>>> {
    let source = inputs.first().map_or(0, |(level, _)| *level);
    let smallest = inputs.iter().map(|(_, table)| table.meta.smallest.as_slice()).min();
    let largest = inputs.iter().map(|(_, table)| table.meta.largest.as_slice()).max();
    let (Some(smallest), Some(largest)) = (smallest, largest) else { return Vec::new() };
    let input_ids: HashSet<u64> = inputs.iter().map(|(_, table)| table.meta.id).collect();
    let near = |table: &&Arc<LiveTable>| {
        overlaps(table, smallest, largest) && !input_ids.contains(&table.meta.id)
    };
    let mut beneath: Vec<Vec<Arc<LiveTable>>> = Vec::new();
    let first = if source == 0 { 0 } else { source + 1 };
    for (level, tables) in version.levels.iter().enumerate().skip(first) {
        let near = tables.iter().filter(near).cloned();
        match level {
            0 => beneath.extend(near.map(|table| vec![table])),
            _ => beneath.push(near.collect()),
        }
    }
    beneath.retain(|tables| !tables.is_empty());
    beneath
}

/// Whether a table's bounds overlap `start..=end`.
fn overlaps(table: &LiveTable, start: &[u8], end: &[u8]) -> bool {
    table.reaches(start) && table.meta.smallest.as_slice() <= end
}

/// Runs a compaction and installs its result, unless required work preempts the compaction.
pub fn run(store: &Arc<Store>, job: &Arc<CompactionJob>) -> Result<()> {
    let clock = &store.options.env.clock;
    let begun = clock.now();
    let counts = if job.is_trivial_move { Some(job.move_table(store)?) } else { job.merge(store)? };
    let Some(counts) = counts else { return Ok(()) };
    let work = &job.keyspace.counters.levels[job.target];
    add(&work.jobs, 1);
    add(&work.micros, (clock.now() - begun).as_micros() as u64);
    // For level 0 it counts the inputs of flushes, not of joins there.
    add(&work.entries_in, if job.target > 0 { counts.entries_in } else { 0 });
    work.note_dropped(&counts);
    // The space that the WAL may keep depends on the bytes of all tables.
    store.wal_signal.notify();
    Ok(())
}

/// Removes the inputs of a job. REQUIRES: range tombstones hide all their entries.
pub fn remove_inputs(store: &Store, job: &CompactionJob) -> Result<()> {
    let inputs = job.inputs().tables.clone();
    job.replace(store, &inputs, &[], || ()).map(drop)
}

impl CompactionJob {
    /// Returns the job as one that required work can preempt.
    pub fn preemptible(mut self) -> CompactionJob {
        self.preemption = Some(Preemption::default());
        self.into_optional()
    }

    fn into_optional(mut self) -> CompactionJob {
        self.is_required = false;
        self
    }

    /// Whether writers would eventually stall without this job.
    pub fn is_required(&self) -> bool {
        self.is_required
    }

    /// Returns references to the job's tables, which keep their files.
    pub fn files(&self) -> impl Sized + use<> {
        (self.inputs().clone(), self.older_tables.clone())
    }

    fn inputs(&self) -> MutexGuard<'_, JobInputs> {
        self.inputs.lock().ignore_poison()
    }

    /// Returns the end of the inputs' keys, after which the next search starts.
    pub fn resume_key(&self) -> ResumeKey {
        let inputs = self.inputs();
        let (_, table) = inputs.tables.last()?;
        bottommost_picker::resume_key_of(&table.meta.largest, table.meta.largest_is_exclusive)
    }

    fn move_table(&self, store: &Store) -> Result<StreamCounts> {
        let inputs = self.inputs().tables.clone();
        let added: Vec<_> =
            inputs.iter().map(|(_, table)| (self.target, Arc::clone(table))).collect();
        match self.install(store, &inputs, &added, || ())? {
            InstallResult::Done => {
                let work = &self.keyspace.counters.levels[self.target];
                add(&work.bytes_moved, self.input_bytes);
            }
            InstallResult::KeyspaceDropped => {}
            InstallResult::DiskFull(refused) => return Err(refused),
        }
        add(&store.counters.bytes_compacted, self.input_bytes);
        Ok(StreamCounts::default())
    }

    /// Merges the inputs and installs the result. Returns `None` if required work preempted the
    /// job.
    fn merge(self: &Arc<Self>, store: &Arc<Store>) -> Result<Option<StreamCounts>> {
        // One list of boundaries serves all parts, entries and tombstones.
        let boundaries = store.snapshots.boundaries();
        let mut tombstones = self.tombstones()?;
        match self.remove_hidden_inputs(store, &tombstones, &boundaries)? {
            Some(0) => {}
            Some(_) => tombstones = self.tombstones()?,
            None => return Ok(Some(StreamCounts::default())),
        }
        let (expected, mut counts) = {
            let inputs = self.inputs();
            let left: u64 = inputs.tables.iter().map(|(_, table)| table.meta.entries).sum();
            (left + inputs.entries_replaced, inputs.counts)
        };
        let steps = self.steps();
        let last = steps.len() - 1;
        for (number, step) in steps.into_iter().enumerate() {
            let (cuts, _turns) = self.split_ranges(store, &step)?;
            let outputs = self.merge_ranges(store, (&step, cuts), &boundaries, &tombstones)?;
            if outputs.iter().any(|output| output.is_abandoned) {
                return Ok(None);
            }
            outputs.iter().for_each(|output| counts.add(&output.counts));
            // Before the first input is replaced.
            let checked = match number == last {
                true => counts.check(expected),
                false => step.check_counts(&outputs),
            };
            checked.map_err(|reason| {
                Error::invalid(format!("internal: wrong entry count of a compaction: {reason}"))
            })?;
            if !self.finish_step(store, step, outputs, counts)? {
                break;
            }
        }
        let work = &self.keyspace.counters.levels[self.target];
        add(&work.bytes_read, self.input_bytes - self.inputs().bytes_skipped);
        add(&store.counters.bytes_compacted, self.input_bytes);
        Ok(Some(counts))
    }

    /// Removes the inputs of which newer range tombstones of other inputs hide all entries from
    /// all readers. Returns the number of these tables; `None` if the keyspace was dropped
    /// meanwhile.
    fn remove_hidden_inputs(
        &self,
        store: &Store,
        tombstones: &InputTombstones,
        boundaries: &[u64],
    ) -> Result<Option<usize>> {
        let (tables, mut counts) = {
            let inputs = self.inputs();
            // The finished steps read a part of the upper tables, which the counts have.
            if inputs.done_to.is_some() {
                return Ok(Some(0));
            }
            (inputs.tables.clone(), inputs.counts)
        };
        let hidden = hidden_tables::find(&tables, &tombstones.runs, boundaries);
        let count = hidden.len();
        if count == 0 {
            return Ok(Some(0));
        }
        if !self.replace(store, &hidden, &[], || ())? {
            return Ok(None);
        }
        let entries = hidden.iter().map(|(_, table)| table.meta.entries).sum::<u64>();
        counts.entries_in += entries;
        counts.dropped_deleted_by_range += entries;
        self.inputs().bytes_skipped +=
            hidden.iter().map(|(_, table)| table.meta.file_bytes).sum::<u64>();
        self.release(hidden, None, counts);
        Ok(Some(count))
    }

    /// Returns the steps of the merge.
    fn steps(&self) -> Vec<MergeStep> {
        let inputs = self.inputs();
        let is_of_target = |(level, _): &&(usize, Arc<LiveTable>)| *level == self.target;
        let targets: Vec<_> = inputs.tables.iter().filter(is_of_target).cloned().collect();
        let bytes: u64 = targets.iter().map(|(_, table)| table.meta.file_bytes).sum();
        // Small tables are joined only inside a step.
        let step_bytes_min = 2 * self.keyspace.options_of_level(self.target).table_bytes;
        let step_bytes = step_bytes_min.max(bytes / STEPS_MAX);
        // A copy would be a second reference to the file of a long value.
        let has_upper_blobs = inputs
            .tables
            .iter()
            .any(|input| !is_of_target(&input) && !input.1.meta.blobs.is_empty());
        let begin = |lower| MergeStep { lower, upper: None, targets: Vec::new() };
        let (mut steps, mut step, mut in_step) = (Vec::new(), begin(inputs.done_to.clone()), 0);
        if self.target > 0 && !has_upper_blobs {
            for (level, table) in targets {
                if in_step >= step_bytes {
                    let bound = Some(table.meta.smallest.clone());
                    step.upper.clone_from(&bound);
                    steps.push(std::mem::replace(&mut step, begin(bound)));
                    in_step = 0;
                }
                in_step += table.meta.file_bytes;
                step.targets.push((level, table));
            }
        }
        steps.push(step);
        steps
    }

    /// Installs the result of a step. `counts` are those of all steps so far. Returns `false` if
    /// the keyspace was dropped meanwhile.
    fn finish_step(
        &self,
        store: &Store,
        step: MergeStep,
        mut outputs: Vec<TableOutput>,
        counts: StreamCounts,
    ) -> Result<bool> {
        let mut added = Vec::new();
        for output in &outputs {
            added.extend(output.open_tables()?.into_iter().map(|table| (self.target, table)));
        }
        let tables: Vec<_> = added.iter().map(|(_, table)| Arc::clone(table)).collect();
        let inputs = self.inputs().tables.clone();
        let warm = inputs.iter().map(|(_, table)| table).filter(|table| step.is_reached_by(table));
        let carried = warm_outputs(warm, &tables, || self.should_stop(store));
        add(&store.counters.blocks_warmed, carried);
        let replaced = if step.is_last() { inputs } else { step.targets };
        let adopt = || outputs.iter_mut().for_each(TableOutput::keep_files);
        if !self.replace(store, &replaced, &added, adopt)? {
            return Ok(false);
        }
        let work = &self.keyspace.counters.levels[self.target];
        add(&work.bytes_written, tables.iter().map(|table| table.meta.file_bytes).sum());
        if step.upper.is_some() {
            self.release(replaced, step.upper, counts);
        }
        Ok(true)
    }

    /// Replaces tables, and marks the files that no table needs any more. Returns `false` if the
    /// keyspace was dropped meanwhile.
    fn replace(
        &self,
        store: &Store,
        replaced: &[(usize, Arc<LiveTable>)],
        added: &[(usize, Arc<LiveTable>)],
        adopt: impl FnOnce(),
    ) -> Result<bool> {
        match self.install(store, replaced, added, adopt)? {
            InstallResult::Done => {}
            InstallResult::KeyspaceDropped => return Ok(false),
            InstallResult::DiskFull(refused) => {
                // No edit names them.
                added.iter().for_each(|(_, table)| table.mark_obsolete());
                return Err(refused);
            }
        }
        let blobs = {
            let mut inputs = self.inputs();
            let added = added.iter().flat_map(|(_, table)| table.meta.blobs.iter().copied());
            inputs.blobs.extend(added);
            inputs.blobs.clone()
        };
        replaced.iter().for_each(|(_, table)| table.mark_obsolete());
        let held = replaced.iter().flat_map(|(_, table)| table.blobs().iter().cloned());
        blob_files::mark_dropped(held, blobs.iter());
        Ok(true)
    }

    /// Forgets inputs that were replaced, so that their files are removed. The steps up to
    /// `done_to` are done, with these counts.
    fn release(
        &self,
        replaced: Vec<(usize, Arc<LiveTable>)>,
        done_to: Option<Vec<u8>>,
        counts: StreamCounts,
    ) {
        let ids: HashSet<u64> = replaced.iter().map(|(_, table)| table.meta.id).collect();
        let mut released = JobInputs::default();
        {
            let mut inputs = self.inputs();
            (inputs.done_to, inputs.counts) = (done_to, counts);
            inputs.entries_replaced +=
                replaced.iter().map(|(_, table)| table.meta.entries).sum::<u64>();
            let JobInputs { tables, scanned, .. } = &mut *inputs;
            for (from, to) in [(tables, &mut released.tables), (scanned, &mut released.scanned)] {
                let is_replaced =
                    |(_, table): &mut (usize, Arc<LiveTable>)| ids.contains(&table.meta.id);
                to.extend(from.extract_if(.., is_replaced));
            }
        }
        // Files are removed without a lock.
        drop((released, replaced));
    }

    /// Maximum number of tables that the merge reads at the same time: all inputs of level 0, and
    /// one of each deeper level.
    fn sources(&self) -> usize {
        let of_level0 = self.inputs().tables.iter().filter(|(level, _)| *level == 0).count();
        of_level0 + 2
    }

    /// Makes a result durable and visible to readers: `added` replaces `replaced`.
    fn install(
        &self,
        store: &Store,
        replaced: &[(usize, Arc<LiveTable>)],
        added: &[(usize, Arc<LiveTable>)],
        adopt: impl FnOnce(),
    ) -> Result<InstallResult> {
        let keyspace = self.keyspace.id;
        let removed: Vec<_> =
            replaced.iter().map(|(level, table)| (*level, table.meta.id)).collect();
        let remove = |&(level, id): &(usize, u64)| Edit::RemoveTable { keyspace, level, id };
        let insert = |(level, table): &(usize, Arc<LiveTable>)| Edit::AddTable {
            keyspace,
            level: *level,
            meta: table.meta.clone(),
        };
        let edits: Vec<Edit> = removed.iter().map(remove).chain(added.iter().map(insert)).collect();
        let mut manifest = store.manifest_lock()?;
        if self.keyspace.check_not_dropped().is_err() {
            return Ok(InstallResult::KeyspaceDropped);
        }
        let version = self.keyspace.super_version.load().version.apply(&removed, added)?;
        // From here on a durable manifest may name the tables, whatever the commit returns.
        adopt();
        if let Some(refused) = manifest.commit_unless_full(&edits)? {
            return Ok(InstallResult::DiskFull(refused));
        }
        self.keyspace.super_version.install(version, &[]);
        Ok(InstallResult::Done)
    }

    fn tombstones(&self) -> Result<Arc<InputTombstones>> {
        let inputs = self.inputs().clone();
        let runs = flush_compaction_inputs::tombstones_of_tables(&inputs.scanned)?;
        let tables = inputs.scanned.iter().map(|(_, table)| table);
        let tables = tables.filter(|table| table.meta.range_tombstones > 0);
        let written =
            tables.map(|table| table.reader()?.read_tombstones()).collect::<Result<_>>()?;
        Ok(Arc::new(InputTombstones { written, runs }))
    }

    /// Returns a cursor that merges the inputs, newest source first.
    fn cursor(&self) -> CompactionInputs {
        let mut runs: Vec<Vec<Arc<LiveTable>>> = Vec::new();
        let mut before = 0;
        for (level, table) in &self.inputs().scanned {
            match runs.last_mut() {
                Some(run) if *level > 0 && *level == before => run.push(Arc::clone(table)),
                _ => runs.push(vec![Arc::clone(table)]),
            }
            before = *level;
        }
        flush_compaction_inputs::of_tables(runs)
    }

    /// Whether no table older than the inputs can hold a key in `start..=end`.
    #[inline]
    fn is_bottommost(&self, start: &[u8], end: &[u8]) -> bool {
        fail_point!("compaction-drop-tombstones-early", |_| true);
        !self.older_tables.iter().any(|tables| {
            let first = tables.partition_point(|table| !table.reaches(start));
            tables.get(first).is_some_and(|table| table.meta.smallest.as_slice() <= end)
        })
    }

    /// Returns the keys that split a step into parts of about the same size, and a job slot for
    /// each part except one.
    fn split_ranges(
        &self,
        store: &Store,
        step: &MergeStep,
    ) -> Result<(Vec<Vec<u8>>, Vec<JobSlot>)> {
        let threads = store.options.background_threads.min(store.options.env.threads.parallelism());
        let threads = threads.min(store.budget.sizes.compactions);
        let (mut keys, mut bytes): (Vec<Vec<u8>>, u64) = (Vec::new(), 0);
        if self.target > 0 && threads > 1 {
            let inputs = self.inputs().scanned.clone();
            for (_, table) in &inputs {
                bytes += step.add_separators(table, &mut keys)?;
            }
        }
        let table_bytes = self.keyspace.options_of_level(self.target).table_bytes;
        let tables = (bytes / table_bytes.max(1)) as usize;
        let parts = threads.min(tables / 2);
        let turns: Vec<JobSlot> = (1..parts).map_while(|_| store.budget.try_take_slot()).collect();
        let parts = turns.len() + 1;
        keys.sort_unstable();
        keys.dedup();
        let cut = |part: usize| keys.get(keys.len() * part / parts).cloned();
        let mut cuts: Vec<_> = (1..parts).filter_map(cut).collect();
        cuts.dedup();
        Ok((cuts, turns))
    }

    /// Merges each part of a step; all parts except the last run on threads of their own.
    fn merge_ranges(
        self: &Arc<Self>,
        store: &Arc<Store>,
        (step, cuts): (&MergeStep, Vec<Vec<u8>>),
        boundaries: &[u64],
        tombstones: &Arc<InputTombstones>,
    ) -> Result<Vec<TableOutput>> {
        let mut bounds: Vec<Option<Vec<u8>>> = vec![step.lower.clone()];
        bounds.extend(cuts.into_iter().map(Some));
        bounds.push(step.upper.clone());
        let (sender, receiver) = mpsc::channel();
        let mut threads = Vec::new();
        let last = bounds.len() - 2;
        for (index, pair) in bounds.windows(2).enumerate() {
            let (job, store, sender) = (Arc::clone(self), Arc::clone(store), sender.clone());
            let (lower, upper) = (pair[0].clone(), pair[1].clone());
            let stripes = SnapshotStripes::new(boundaries.to_vec());
            let tombstones = Arc::clone(tombstones);
            let spawner = Arc::clone(&store.options.env.threads);
            let work = move || {
                let merged = job.merge_range(&store, lower, upper, stripes, &tombstones);
                // No receiver is left where another part could not be started.
                let _ = sender.send((index, merged));
            };
            if index == last {
                work();
            } else {
                threads.push(spawner.spawn("umbel-merge", Box::new(work))?);
            }
        }
        drop(sender);
        let mut parts: Vec<(usize, Result<TableOutput>)> = receiver.iter().collect();
        let succeeded = threads.into_iter().all(|thread| thread.join()) && parts.len() == last + 1;
        if !succeeded {
            return Err(Error::invalid("internal: a part of a compaction panicked"));
        }
        parts.sort_by_key(|(index, _)| *index);
        parts.into_iter().map(|(_, merged)| merged).collect()
    }

    fn merge_range(
        &self,
        store: &Arc<Store>,
        lower: Option<Vec<u8>>,
        upper: Option<Vec<u8>>,
        stripes: SnapshotStripes,
        tombstones: &InputTombstones,
    ) -> Result<TableOutput> {
        let readers = stripes.boundaries().to_vec();
        let is_bottom = |start: &[u8], end: &[u8]| self.is_bottommost(start, end);
        let written = tombstones.written.iter().flat_map(RangeTombstoneBlock::iter);
        let kept = surviving_tombstones(written, &stripes, is_bottom);
        // Tables of level 0 stay in order by their sequence numbers.
        let (zero, is_last) = (self.target > 0, |key: &[u8]| self.is_bottommost(key, key));
        let (cursor, tombstones) = (self.cursor(), tombstones.runs.clone());
        let stream = CompactionStream::new(cursor, tombstones, stripes, zero, is_last);
        let stream = stream.within(lower.as_deref(), upper.as_deref());
        let (level, split) = (self.target, self.target > 0);
        let options = self.keyspace.options_of_level(level);
        let merging =
            merging_bytes(self.sources(), store.budget.sizes.readahead, options.table_bytes);
        let _merging = store.budget.reserve(merging);
        let table_bytes_max = if split { options.table_bytes } else { u64::MAX };
        let expected_bytes = table_bytes_max.min(self.input_bytes);
        let entries = |(level, table): &(usize, Arc<LiveTable>)| (Some(*level), table.meta.entries);
        let inputs: Vec<_> = self.inputs().tables.iter().map(entries).collect();
        let second_filter =
            advisor_job::choose_second_filter(store, &self.keyspace, level, &inputs);
        let part = (expected_bytes, self.input_bytes);
        let _building = store.budget.reserve(advisor::building_bytes(second_filter, &inputs, part));
        let plan = TablePlan {
            level,
            options,
            selection: self
                .keyspace
                .advisor
                .selection_for_new_table(level, second_filter.is_some()),
            second_filter,
            split,
            expected_bytes,
            lower,
            upper,
            snapshots: readers,
        };
        table_writer::write_tables(store, &plan, stream, &kept, || self.should_stop(store))
    }

    /// Whether required work preempts this job.
    fn should_stop(&self, store: &Store) -> bool {
        self.preemption
            .as_ref()
            .is_some_and(|preemption| preemption.should_preempt(store, &self.keyspace))
    }
}

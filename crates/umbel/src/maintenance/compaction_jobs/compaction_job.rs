//! Running a compaction: merge the inputs, write the outputs, install both in one edit.

use std::sync::Arc;
use std::sync::mpsc;

use umbel_base::{Error, FragmentedTombstones, RangeTombstone, Result, SequenceNumber};

use crate::advise;
use crate::advisor;
use crate::blobs;
use crate::carry::carry_over;
use crate::compaction::last::{self, Behind, LAST, LastPick, Wanted};
use crate::compaction::pick::{self, Pick, RangePick};
use crate::compaction::stream::{CompactionStream, StreamCounts, Stripes, surviving_tombstones};
use crate::counters::add;
use crate::facts;
use crate::inputs::{self, CompactionInputs};
use crate::keyspace_core::KeyspaceCore;
use crate::memory_budget::Turn;
use crate::output::{self, Output, Plan};
use crate::shares::merging_bytes;
use crate::snapshots::Awaited;
use crate::store::Store;
use crate::version::{Edit, TableFile, Version};
use crate::way::Way;

/// A compaction that was picked; its inputs are marked busy until it is dropped.
#[derive(Debug)]
pub struct CompactionJob {
    /// The keyspace.
    pub keyspace: Arc<KeyspaceCore>,
    target: usize,
    trivial: bool,
    inputs: Vec<(usize, Arc<TableFile>)>,
    /// The inputs as they are read.
    walked: Vec<(usize, Arc<TableFile>)>,
    /// Tables that may hold something older than an input, over the inputs' keys: those of level 0
    /// in a list of their own each, the others by level and sorted. Usually none.
    beneath: Vec<Vec<Arc<TableFile>>>,
    /// Where it is not needed, but only of use: for what it is given up.
    way: Option<Way>,
    /// Whether writers would wait some day if it is not done.
    is_needed: bool,
}

/// REQUIRES: the work lock, where the job was installed: a pick that began with the version before
/// it must not meet its inputs idle.
impl Drop for CompactionJob {
    fn drop(&mut self) {
        for (_, table) in &self.inputs {
            table.set_busy(false);
        }
    }
}

/// How urgent the most urgent compaction of a keyspace is; `None` where there is none to run.
pub fn urgency(keyspace: &KeyspaceCore) -> Option<f64> {
    let options = keyspace.options();
    let version = Arc::clone(&keyspace.view.load().version);
    let cursors = keyspace.pick_cursors();
    pick::pick(&facts::of(&version, &options, &cursors)).map(|picked| picked.score)
}

/// Picks the most urgent compaction of a keyspace and marks its inputs busy.
/// REQUIRES: the work lock, so that no two picks see the same tables idle.
pub fn pick_most_urgent(keyspace: &Arc<KeyspaceCore>) -> Option<CompactionJob> {
    let options = keyspace.options();
    let version = Arc::clone(&keyspace.view.load().version);
    let cursors = keyspace.pick_cursors();
    let picked = pick::pick(&facts::of(&version, &options, &cursors))?;
    Some(take(keyspace, &version, &picked))
}

/// What of a keyspace's last level only readers that are gone could see: a job that writes a table
/// with such leftovers again, or what the readers must let go of first.
/// REQUIRES: the work lock.
pub fn pick_leftovers(
    keyspace: &Arc<KeyspaceCore>,
    readers: &[SequenceNumber],
) -> (Option<CompactionJob>, Awaited) {
    let options = keyspace.options();
    let version = Arc::clone(&keyspace.view.load().version);
    let found = last::leftovers(&facts::of(&version, &options, &[]), readers);
    let awaited = Awaited { oldest: found.waits_for, gone: found.waits_for_end_of };
    let job = found.pick.map(|picked| take(keyspace, &version, &picked).only_of_use());
    (job, awaited)
}

/// Picks tables of the last level to write again. REQUIRES: the work lock.
pub fn pick_last(
    keyspace: &Arc<KeyspaceCore>,
    wanted: Wanted<'_>,
    range: (Option<&[u8]>, Option<&[u8]>),
    behind: &Behind,
) -> Step {
    let options = keyspace.options();
    let version = Arc::clone(&keyspace.view.load().version);
    match last::pick_last(&facts::of(&version, &options, &[]), wanted, range, behind) {
        LastPick::Done => Step::Done,
        LastPick::Blocked => Step::Blocked,
        LastPick::Run(picked) => Step::Run(take(keyspace, &version, &picked)),
    }
}

/// What came of installing a result.
#[derive(Debug)]
enum Installed {
    Done,
    /// The keyspace was dropped meanwhile.
    NotWanted,
    /// The disk has no room for the edit: nothing was done.
    Refused(Error),
}

/// The next step of a compaction asked for by hand.
#[derive(Debug)]
pub enum Step {
    /// The level holds nothing of the range any more.
    Done,
    /// Running compactions hold what is left.
    Blocked,
    /// To be run; its inputs are marked busy.
    Run(CompactionJob),
}

/// Picks what of `level` overlaps the range. REQUIRES: the work lock.
pub fn pick_range(
    keyspace: &Arc<KeyspaceCore>,
    level: usize,
    start: Option<&[u8]>,
    end: Option<&[u8]>,
) -> Step {
    let options = keyspace.options();
    let version = Arc::clone(&keyspace.view.load().version);
    let cursors = keyspace.pick_cursors();
    match pick::pick_range(&facts::of(&version, &options, &cursors), level, start, end) {
        RangePick::Done => Step::Done,
        RangePick::Blocked => Step::Blocked,
        RangePick::Run(picked) => Step::Run(take(keyspace, &version, &picked)),
    }
}

fn take(keyspace: &Arc<KeyspaceCore>, version: &Version, picked: &Pick) -> CompactionJob {
    let mut inputs = Vec::new();
    for (level, ids) in &picked.inputs {
        let tables = &version.levels[*level];
        inputs.extend(
            tables.iter().filter(|t| ids.contains(&t.meta.id)).map(|t| (*level, Arc::clone(t))),
        );
    }
    if picked.level > 0
        && picked.level < LAST
        && let Some((_, last)) = inputs.iter().rfind(|(level, _)| *level == picked.level)
    {
        keyspace.set_pick_cursor(picked.level, last.meta.largest.clone());
    }
    for (_, table) in &inputs {
        table.set_busy(true);
    }
    let beneath = beneath(version, &inputs);
    let walked = inputs.iter().map(|(level, table)| (*level, table.for_a_walk())).collect();
    let keyspace = Arc::clone(keyspace);
    let (target, trivial) = (picked.target_level, picked.trivial_move);
    let (way, is_needed) = (None, true);
    CompactionJob { keyspace, target, trivial, inputs, walked, beneath, way, is_needed }
}

/// The tables older than the inputs that are no inputs and overlap their keys: those below the
/// inputs' first level and, as tables overlap there, those of level 0 itself.
fn beneath(version: &Version, inputs: &[(usize, Arc<TableFile>)]) -> Vec<Vec<Arc<TableFile>>> {
    let source = inputs.first().map_or(0, |(level, _)| *level);
    let smallest = inputs.iter().map(|(_, table)| table.meta.smallest.as_slice()).min();
    let largest = inputs.iter().map(|(_, table)| table.meta.largest.as_slice()).max();
    let (Some(smallest), Some(largest)) = (smallest, largest) else { return Vec::new() };
    let is_input = |id: u64| inputs.iter().any(|(_, table)| table.meta.id == id);
    let near =
        |table: &&Arc<TableFile>| overlaps(table, smallest, largest) && !is_input(table.meta.id);
    let mut beneath: Vec<Vec<Arc<TableFile>>> = Vec::new();
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

/// Whether a table's bounds meet `start..=end`.
fn overlaps(table: &TableFile, start: &[u8], end: &[u8]) -> bool {
    table.reaches(start) && table.meta.smallest.as_slice() <= end
}

/// Runs a compaction and installs its result, unless it is given up.
pub fn run(store: &Arc<Store>, job: &Arc<CompactionJob>) -> Result<()> {
    let clock = &store.options.env.clock;
    let begun = clock.now();
    let counts = if job.trivial { Some(job.move_down(store)?) } else { job.merge(store)? };
    let Some(counts) = counts else { return Ok(()) };
    let work = &job.keyspace.counters.work[job.target];
    add(&work.jobs, 1);
    add(&work.micros, (clock.now() - begun).as_micros() as u64);
    // Of level 0 it counts what flushes bring, not what is joined there.
    add(&work.entries_in, if job.target > 0 { counts.entries_in } else { 0 });
    work.note_dropped(&counts);
    Ok(())
}

impl CompactionJob {
    /// The same job, given up where something waits that is needed more.
    pub fn making_way(mut self) -> CompactionJob {
        self.way = Some(Way::default());
        self.only_of_use()
    }

    fn only_of_use(mut self) -> CompactionJob {
        self.is_needed = false;
        self
    }

    /// Whether writers would wait some day if it is not done.
    pub fn is_needed(&self) -> bool {
        self.is_needed
    }

    /// Keeps the files of the job's tables for as long as it is held.
    pub fn files(&self) -> impl Sized + use<> {
        (self.inputs.clone(), self.walked.clone(), self.beneath.clone())
    }

    /// The end of its keys.
    pub fn end(&self) -> Behind {
        let (_, table) = self.inputs.last()?;
        last::end_of(&table.meta.largest, table.meta.largest_is_exclusive)
    }

    fn move_down(&self, store: &Store) -> Result<StreamCounts> {
        let keyspace = self.keyspace.id;
        let mut edits = self.removals();
        let mut added = Vec::new();
        for (_, table) in &self.inputs {
            let meta = table.meta.clone();
            edits.push(Edit::AddTable { keyspace, level: self.target, meta });
            added.push((self.target, Arc::clone(table)));
        }
        match self.install(store, &edits, &added, || ())? {
            Installed::Done => {
                let bytes = self.input_bytes();
                add(&self.keyspace.counters.work[self.target].bytes_moved, bytes);
            }
            Installed::NotWanted => {}
            Installed::Refused(refused) => return Err(refused),
        }
        add(&store.counters.bytes_compacted, self.input_bytes());
        Ok(StreamCounts::default())
    }

    /// `None` where it was given up.
    fn merge(self: &Arc<Self>, store: &Arc<Store>) -> Result<Option<StreamCounts>> {
        // One list of boundaries serves all parts, entries and tombstones.
        let boundaries = store.snapshots.boundaries();
        let tombstones = Arc::new(self.tombstones()?);
        let (parts, _turns) = self.parts(store)?;
        let mut outputs = self.merge_parts(store, parts, &boundaries, &tombstones)?;
        if outputs.iter().any(|output| output.is_given_up) {
            return Ok(None);
        }
        let mut counts = StreamCounts::default();
        outputs.iter().for_each(|output| counts.add(&output.counts));
        let expected = self.inputs.iter().map(|(_, table)| table.meta.entries).sum();
        counts.check(expected).map_err(|reason| {
            Error::invalid(format!("internal: compaction lost count: {reason}"))
        })?;
        let mut edits = self.removals();
        let mut added = Vec::new();
        for output in &outputs {
            for table in output.open()? {
                let (keyspace, meta) = (self.keyspace.id, table.meta.clone());
                edits.push(Edit::AddTable { keyspace, level: self.target, meta });
                added.push((self.target, table));
            }
        }
        let tables: Vec<_> = added.iter().map(|(_, table)| Arc::clone(table)).collect();
        let inputs = self.inputs.iter().map(|(_, table)| table);
        let carried = carry_over(inputs, &tables, || self.makes_way(store));
        add(&store.counters.blocks_carried, carried);
        let adopt = || outputs.iter_mut().for_each(Output::adopt);
        match self.install(store, &edits, &added, adopt)? {
            Installed::Done => {
                self.inputs.iter().for_each(|(_, table)| table.mark_obsolete());
                let held = self.inputs.iter().flat_map(|(_, table)| table.blobs().iter().cloned());
                blobs::retire(held, added.iter().flat_map(|(_, table)| &table.meta.blobs));
            }
            Installed::NotWanted => {}
            Installed::Refused(refused) => {
                // No edit names them.
                tables.iter().for_each(|table| table.mark_obsolete());
                return Err(refused);
            }
        }
        let work = &self.keyspace.counters.work[self.target];
        add(&work.bytes_read, self.input_bytes());
        add(&store.counters.bytes_compacted, self.input_bytes());
        add(&work.bytes_written, added.iter().map(|(_, table)| table.meta.file_bytes).sum());
        Ok(Some(counts))
    }

    /// How many tables are read at the same time at most: those of level 0 and one of each deeper
    /// level.
    fn sources(&self) -> usize {
        let of_level0 = self.inputs.iter().filter(|(level, _)| *level == 0).count();
        of_level0 + 2
    }

    fn input_bytes(&self) -> u64 {
        self.inputs.iter().map(|(_, table)| table.meta.file_bytes).sum()
    }

    fn removals(&self) -> Vec<Edit> {
        let keyspace = self.keyspace.id;
        let remove = |(level, table): &(usize, Arc<TableFile>)| Edit::RemoveTable {
            keyspace,
            level: *level,
            id: table.meta.id,
        };
        self.inputs.iter().map(remove).collect()
    }

    /// Makes the result durable and visible.
    fn install(
        &self,
        store: &Store,
        edits: &[Edit],
        added: &[(usize, Arc<TableFile>)],
        adopt: impl FnOnce(),
    ) -> Result<Installed> {
        let removed: Vec<_> =
            self.inputs.iter().map(|(level, table)| (*level, table.meta.id)).collect();
        let mut manifest = store.manifest_lock()?;
        if self.keyspace.check_not_dropped().is_err() {
            return Ok(Installed::NotWanted);
        }
        let version = self.keyspace.view.load().version.apply(&removed, added)?;
        // From here on the tables may be named by a durable manifest, whatever the commit answers.
        adopt();
        if let Some(refused) = manifest.commit_if_room(edits)? {
            return Ok(Installed::Refused(refused));
        }
        self.keyspace.view.install(version, &[]);
        Ok(Installed::Done)
    }

    fn tombstones(&self) -> Result<FragmentedTombstones> {
        let mut all: Vec<RangeTombstone> = Vec::new();
        for (_, table) in &self.walked {
            if table.meta.range_tombstones > 0 {
                all.extend(table.reader()?.tombstones().to_tombstones());
            }
        }
        Ok(FragmentedTombstones::new(&all))
    }

    /// The inputs merged, newest source first.
    fn cursor(&self) -> CompactionInputs {
        let mut runs: Vec<Vec<Arc<TableFile>>> = Vec::new();
        let mut before = 0;
        for (level, table) in &self.walked {
            match runs.last_mut() {
                Some(run) if *level > 0 && *level == before => run.push(Arc::clone(table)),
                _ => runs.push(vec![Arc::clone(table)]),
            }
            before = *level;
        }
        inputs::of_tables(runs)
    }

    /// Whether nothing older than the inputs can hold a key in `start..=end`.
    #[inline]
    fn is_bottom(&self, start: &[u8], end: &[u8]) -> bool {
        #[cfg(feature = "canary")]
        if umbel_base::canary::Switch::TombstonesDroppedEarly.is_on() {
            return true;
        }
        !self.beneath.iter().any(|tables| {
            let first = tables.partition_point(|table| !table.reaches(start));
            tables.get(first).is_some_and(|table| table.meta.smallest.as_slice() <= end)
        })
    }

    /// The keys at which the work is cut into parts of about the same size, and a turn for each
    /// part but one.
    fn parts(&self, store: &Store) -> Result<(Vec<Vec<u8>>, Vec<Turn>)> {
        let threads = store.options.background_threads.min(store.options.env.threads.parallelism());
        let threads = threads.min(store.budget.sizes.compactions);
        let tables = (self.input_bytes() / self.keyspace.options().table_bytes.max(1)) as usize;
        let parts = if self.target == 0 { 1 } else { threads.min(tables / 2) };
        let turns: Vec<Turn> = (1..parts).map_while(|_| store.budget.take_turn()).collect();
        let parts = turns.len() + 1;
        if parts < 2 {
            return Ok((Vec::new(), turns));
        }
        let mut keys: Vec<Vec<u8>> = Vec::new();
        for (_, table) in &self.walked {
            let reader = table.reader()?;
            keys.extend(reader.block_separators().map(|(key, _)| key.to_vec()));
        }
        keys.sort_unstable();
        keys.dedup();
        let cut = |part: usize| keys.get(keys.len() * part / parts).cloned();
        let mut cuts: Vec<_> = (1..parts).filter_map(cut).collect();
        cuts.dedup();
        Ok((cuts, turns))
    }

    /// Merges each part, all but the last on a thread of its own.
    fn merge_parts(
        self: &Arc<Self>,
        store: &Arc<Store>,
        cuts: Vec<Vec<u8>>,
        boundaries: &[u64],
        tombstones: &Arc<FragmentedTombstones>,
    ) -> Result<Vec<Output>> {
        let mut bounds: Vec<Option<Vec<u8>>> = vec![None];
        bounds.extend(cuts.into_iter().map(Some));
        bounds.push(None);
        let (sender, receiver) = mpsc::channel();
        let mut threads = Vec::new();
        let last = bounds.len() - 2;
        for (index, pair) in bounds.windows(2).enumerate() {
            let (job, store, sender) = (Arc::clone(self), Arc::clone(store), sender.clone());
            let (lower, upper) = (pair[0].clone(), pair[1].clone());
            let stripes = Stripes::new(boundaries.to_vec());
            let tombstones = Arc::clone(tombstones);
            let spawner = Arc::clone(&store.options.env.threads);
            let work = move || {
                let merged = job.merge_part(&store, lower, upper, stripes, &tombstones);
                // Nobody listens any more where another part could not be started.
                let _ = sender.send((index, merged));
            };
            if index == last {
                work();
            } else {
                threads.push(spawner.spawn("umbel-merge", Box::new(work))?);
            }
        }
        drop(sender);
        let mut parts: Vec<(usize, Result<Output>)> = receiver.iter().collect();
        let whole = threads.into_iter().all(|thread| thread.join()) && parts.len() == last + 1;
        if !whole {
            return Err(Error::invalid("internal: a part of a compaction panicked"));
        }
        parts.sort_by_key(|(index, _)| *index);
        parts.into_iter().map(|(_, merged)| merged).collect()
    }

    fn merge_part(
        &self,
        store: &Arc<Store>,
        lower: Option<Vec<u8>>,
        upper: Option<Vec<u8>>,
        stripes: Stripes,
        tombstones: &FragmentedTombstones,
    ) -> Result<Output> {
        let readers = stripes.held().to_vec();
        let is_bottom = |start: &[u8], end: &[u8]| self.is_bottom(start, end);
        let kept = surviving_tombstones(tombstones, &stripes, is_bottom);
        // Tables of level 0 stay in order by their sequence numbers.
        let (zero, is_last) = (self.target > 0, |key: &[u8]| self.is_bottom(key, key));
        let (cursor, tombstones) = (self.cursor(), tombstones.clone());
        let stream = CompactionStream::new(cursor, tombstones, stripes, zero, is_last);
        let stream = stream.within(lower.as_deref(), upper.as_deref());
        let (level, split) = (self.target, self.target > 0);
        let options = self.keyspace.options_of_level(level);
        let merging = merging_bytes(self.sources(), store.budget.sizes.ahead, options.table_bytes);
        let _merging = store.budget.claim(merging);
        let most = if split { options.table_bytes } else { u64::MAX };
        let expected_bytes = most.min(self.input_bytes());
        let entries = |(level, table): &(usize, Arc<TableFile>)| (Some(*level), table.meta.entries);
        let inputs: Vec<_> = self.inputs.iter().map(entries).collect();
        let second_filter = advise::second_filter(store, &self.keyspace, level, &inputs);
        let part = (expected_bytes, self.input_bytes());
        let _building = store.budget.claim(advisor::building_bytes(second_filter, &inputs, part));
        let plan = Plan {
            level,
            options,
            choice: self.keyspace.advisor.choice_of_new(level, second_filter.is_some()),
            second_filter,
            split,
            expected_bytes,
            lower,
            upper,
            readers,
        };
        output::write_tables(store, &plan, stream, &kept, || self.makes_way(store))
    }

    /// Whether something waits that is needed more.
    fn makes_way(&self, store: &Store) -> bool {
        self.way.as_ref().is_some_and(|way| way.is_wanted(store, &self.keyspace))
    }
}

//! The advisor: chooses by observed lookups which filters stay in memory and which filters new
//! tables get.
//!
//! Every table always has the plain filter that `bloom_bits` requests on disk. The advisor releases
//! the filters of a level whose tables are rarely probed for absent keys. If clients look up absent
//! keys again, a [tripwire](crate::version::OpenedTable) reacts after some dozens of false reads.
//! The reader then loads the released filters, without waiting for a compaction or a background
//! thread.
//!
//! New tables may get a second filter, which is kept in memory instead of the plain filter.
//! Monkey's optimum over all levels gives the bits per key and the kind of a second filter. All
//! filters in memory together never take more memory than all plain filters would.

mod advisor_schedule;
mod bits_allocation;
mod memory_allocation;

use std::sync::{Arc, Mutex, MutexGuard};
use umbel_base::ignore_poison::IgnorePoison;

use umbel_base::limits::LEVELS;
use umbel_filter::{FilterKind, FilterOptions, FilterPlan, FilterSize};
use umbel_table::FilterChoice;

use crate::options::{KeyspaceOptions, LevelFilter};
use crate::store_budget::filter_selection::FilterSelection;
use crate::thread_counters::{ReadCounters, ReadEvent};
use crate::version::read_stats::{LevelReadCounts, LevelReads, ReadCounts, ReadStats};
use crate::version::{LiveTable, Version};
use bits_allocation::{dense_filter_pays, probe_cost};
use memory_allocation::GETS_MIN;

pub use advisor_schedule::AdvisorSchedule;
pub use bits_allocation::{LevelLoad, allocate_bits, second_filter_bits};
pub use memory_allocation::{FilterOption, allocate_memory, has_too_few_gets};

/// Second filters are built if at least this share of the gets are lookups of absent keys.
const ABSENT_MIN: f64 = 0.02;
/// Smallest number of lookups in a level for which the advisor uses the level's counts.
const READS_MIN: f64 = 64.0;
/// The advisor's prediction has failed if the second filters pass more than this multiple of the
/// absent keys that their design predicts.
const MISPREDICTION_FACTOR: f64 = 1.5;
/// Largest share of the plain filters' bits for the last level's second filters. The remaining
/// share is for the levels above, whose tables change often.
const BOTTOMMOST_SHARE: f64 = 0.94;
/// Approximate memory per key for building a dense filter, in bytes.
const DENSE_BUILD_BYTES: u64 = 32;
/// Bytes of a filter's header and of the trailer of its block.
const FILTER_OVERHEAD: u64 = 77;
/// Number of gets for which only plain filters are used after a failed prediction.
pub const PLAIN_PERIOD_GETS: u64 = 262_144;

/// Observed reads and filter decisions of a keyspace.
#[derive(Debug, Default)]
pub struct Advisor {
    state: Mutex<AdvisorState>,
}

/// State of the advisor, guarded by its lock.
#[derive(Debug, Default)]
pub struct AdvisorState {
    /// Recent reads of the keyspace.
    pub read_stats: ReadStats,
    /// Number of gets at the last update of `read_stats`.
    gets_seen: u64,
    /// Designed false-positive rates of each level's plain and second filters. The rates are
    /// cached, since computing a rate takes longer than the rest of the advisor's work.
    rates: [[Option<RateMemo>; 2]; LEVELS],
    /// Current selection for the tables of each level.
    pub selections: [FilterSelection; LEVELS],
    /// For each level, the number of gets after which its counts are valid; before, the level had
    /// no tables.
    observed_from: [u64; LEVELS],
    /// Number of gets up to which only plain filters are used.
    pub plain_until: u64,
    /// Number of failed predictions of the advisor.
    pub mispredictions: u64,
}

impl Advisor {
    /// Locks the advisor's state.
    pub fn lock(&self) -> MutexGuard<'_, AdvisorState> {
        self.state.lock().ignore_poison()
    }

    /// Starts with the read counts that the store saved when it was last open.
    pub fn restore(&self, saved: &ReadCounts) {
        self.lock().read_stats = ReadStats::from_saved(saved);
    }

    /// Filter selection for a new table of a level, until the advisor's next decision.
    pub fn selection_for_new_table(&self, level: usize, has_second: bool) -> FilterSelection {
        match self.lock().selections.get(level).copied().unwrap_or_default() {
            FilterSelection::Nothing => FilterSelection::Nothing,
            FilterSelection::Plain | FilterSelection::Second if has_second => {
                FilterSelection::Second
            }
            choice => choice,
        }
    }
}

/// Counts of the reads in a keyspace since it was opened.
fn counts(reads: &ReadCounters) -> ReadCounts {
    let levels = std::array::from_fn(|level| {
        let absent = reads.sum(level, ReadEvent::Absent);
        let false_reads = reads.sum(level, ReadEvent::FalseRead);
        let present = reads.sum(level, ReadEvent::TableRead).saturating_sub(false_reads);
        LevelReadCounts { absent, present, false_reads }
    });
    ReadCounts { gets: reads.gets(), loads: reads.get_loads(), levels }
}

impl AdvisorState {
    /// Adds the reads since the last call to the statistics. Nothing is summed if the number of
    /// gets is unchanged, since summing the counters takes time.
    pub fn observe(&mut self, reads: &ReadCounters, gets: u64) {
        if gets != self.gets_seen {
            self.gets_seen = gets;
            self.read_stats.add_counts(&counts(reads));
        }
    }

    /// Adds the reads since the last call, and returns the filter options of the levels of
    /// `version` after `gets` gets.
    pub fn filter_options(
        &mut self,
        version: &Version,
        options: &KeyspaceOptions,
        reads: &ReadCounters,
    ) -> Vec<FilterOption> {
        let gets = reads.gets();
        self.observe(reads, gets);
        self.note_empty(version, gets);
        let offers = filter_options_of(version, self, options, gets);
        if gets >= self.plain_until && has_mispredicted(&offers) {
            self.plain_until = gets + PLAIN_PERIOD_GETS;
            self.mispredictions += 1;
        }
        offers
    }

    /// The second filter for new tables of level `target`, if one pays off. `inputs` are the levels
    /// and entry counts of the new tables' inputs; level `None` stands for memtables.
    pub fn second_filter(
        &mut self,
        version: &Version,
        options: &KeyspaceOptions,
        target: usize,
        inputs: &[(Option<usize>, u64)],
    ) -> Option<FilterChoice> {
        let evidence = &self.read_stats;
        let absent: f64 = evidence.levels.iter().map(|reads| reads.absent).sum();
        if has_too_few_gets(evidence.gets) || absent < evidence.gets * ABSENT_MIN {
            return None;
        }
        let plain_bits = f64::from(options.bloom_bits);
        let loads = loads(version, evidence, plain_bits, target, inputs);
        let memory = loads.iter().map(|load| load.keys * load.plain_bits).sum();
        let mut bits = allocate_bits(&loads, memory)[target];
        if loads[target].is_last {
            // The entries above it now soon move down, and every flush brings new ones.
            bits = bits.min(plain_bits * BOTTOMMOST_SHARE);
        }
        let (kind, bits_per_key) = second_filter_bits(&loads[target], bits)?;
        Some(FilterChoice { kind, bits_per_key })
    }

    /// Notes which levels have no tables; the advisor must observe lookups of such a level before
    /// it decides.
    fn note_empty(&mut self, version: &Version, gets: u64) {
        for (level, tables) in version.levels.iter().enumerate() {
            if tables.is_empty() {
                self.selections[level] = FilterSelection::Plain;
                self.observed_from[level] = gets + GETS_MIN as u64;
            }
        }
    }
}

/// Whether the selected second filters pass more absent keys than their design predicts.
fn has_mispredicted(offers: &[FilterOption]) -> bool {
    let (mut seen, mut expected, mut gets) = (0.0, 0.0, 0.0);
    for offer in
        offers.iter().filter(|offer| offer.current == FilterSelection::Second && !offer.is_new)
    {
        seen += offer.reads.false_reads;
        // Some of the counts may predate the selection.
        expected += offer
            .false_reads(FilterSelection::Second)
            .max(offer.false_reads(FilterSelection::Plain));
        gets = offer.gets;
    }
    gets > 0.0 && seen > MISPREDICTION_FACTOR * expected + memory_allocation::omitted_below(gets)
}

/// Filter options of the levels of a version, after `gets` gets.
fn filter_options_of(
    version: &Version,
    state: &mut AdvisorState,
    options: &KeyspaceOptions,
    gets: u64,
) -> Vec<FilterOption> {
    let evidence = state.read_stats;
    let offer = |(level, tables): (usize, &Vec<Arc<LiveTable>>)| {
        let (mut plain, mut second) = (FilterTotals::default(), FilterTotals::default());
        let (mut beside, mut cost_of_second) = (FilterTotals::default(), 0.0f64);
        let mut kind = None;
        for meta in tables.iter().map(|table| &*table.meta) {
            plain.add(meta.plain_filter_bytes(), meta.entries);
            match meta.second_filter {
                None => beside.add(meta.plain_filter_bytes(), meta.entries),
                Some(filter) => {
                    second.add(filter.bytes, meta.entries);
                    kind = FilterKind::from_number(filter.kind);
                    cost_of_second = cost_of_second.max(kind.map_or(0.0, probe_cost));
                }
            }
        }
        let filter = options.level_filter(level);
        let [known_plain, known_second] = &mut state.rates[level];
        let plain_rate = plain.known_rate(known_plain, filter.kind, Some(filter));
        let second_rate = kind.map_or(1.0, |kind| second.known_rate(known_second, kind, None));
        let share = second.entries as f64 / plain.entries.max(1) as f64;
        let rate = share * second_rate + (1.0 - share) * plain_rate;
        // Where few tables have one it does not pay off.
        let is_there = kind.is_some() && share >= 0.5;
        // Gets that were answered above the level say nothing about it.
        let reads = evidence.levels[level];
        let is_unprobed = reads.absent + reads.present < READS_MIN;
        FilterOption {
            plain: (plain.bytes, plain_rate),
            second: is_there.then_some((second.bytes + beside.bytes, rate)),
            second_cost: share * cost_of_second / evidence.read_cost(),
            reads,
            gets: evidence.gets,
            current: state.selections[level],
            is_new: has_too_few_gets(evidence.gets)
                || is_unprobed
                || gets < state.observed_from[level],
        }
    };
    version.levels.iter().enumerate().map(offer).collect()
}

/// Sums of bytes and entries over the filters of some tables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct FilterTotals {
    tables: u64,
    bytes: u64,
    entries: u64,
}

/// A computed false-positive rate.
#[derive(Debug, Clone, Copy)]
struct RateMemo {
    /// Key of the rate: the filters, their kind and their options. The options are part of the key
    /// since filters of one size may have different numbers of probes.
    of: (FilterTotals, FilterKind, Option<LevelFilter>),
    rate: f64,
}

impl FilterTotals {
    fn add(&mut self, bytes: u64, entries: u64) {
        self.tables += u64::from(bytes > 0);
        self.bytes += bytes;
        self.entries += entries;
    }

    /// Like [`FilterTotals::rate`], but returns the rate in `known` if it was computed for the same
    /// filters, kind and options.
    fn known_rate(
        self,
        known: &mut Option<RateMemo>,
        kind: FilterKind,
        given: Option<LevelFilter>,
    ) -> f64 {
        let of = (self, kind, given);
        let same = known.filter(|known| known.of == of);
        known.insert(same.unwrap_or_else(|| RateMemo { of, rate: self.rate(kind, given) })).rate
    }

    /// The designed false-positive rate of filters of this kind on the average table. `given` holds
    /// the filters' options, if known. For filters written with other options the rate is
    /// approximate.
    fn rate(&self, kind: FilterKind, given: Option<LevelFilter>) -> f64 {
        let payload = self.bytes.saturating_sub(self.tables * FILTER_OVERHEAD);
        let (tables, keys) = (self.tables.max(1), self.entries / self.tables.max(1));
        if payload == 0 || keys == 0 {
            return 1.0;
        }
        let bits_per_key = (payload * 8) as f64 / self.entries as f64;
        let probes = given.and_then(|filter| filter.probes).map(u32::from);
        if kind == FilterKind::Blocked512 {
            let bits = given.map_or(bits_per_key as i32, |filter| filter.bits_per_key);
            let probes = probes.unwrap_or_else(|| umbel_filter::probes(bits));
            return umbel_filter::designed_rate(keys, (payload / 64 / tables).max(1), probes);
        }
        let size = FilterSize::BitsPerKey(bits_per_key);
        let options = FilterOptions { kind, size, probes, ..FilterOptions::default() };
        FilterPlan::of(&options, keys).map_or(1.0, |plan| plan.designed_rate)
    }
}

/// Approximate bytes of memory for building a second filter of a table, besides the key hashes. The
/// table gets `part` of `whole` bytes of the inputs.
pub fn building_bytes(
    second: Option<FilterChoice>,
    inputs: &[(Option<usize>, u64)],
    (part, whole): (u64, u64),
) -> u64 {
    let entries: u64 = inputs.iter().map(|(_, entries)| entries).sum();
    let keys = (entries as f64 * part as f64 / whole.max(1) as f64) as u64;
    match second.map(|second| second.kind) {
        None => 0,
        Some(FilterKind::BinaryFuse | FilterKind::Ribbon) => keys * DENSE_BUILD_BYTES,
        Some(_) => keys * 12,
    }
}

/// Predicted loads of the levels after `inputs` have become tables of level `target`.
pub fn loads(
    version: &Version,
    evidence: &ReadStats,
    plain_bits: f64,
    target: usize,
    inputs: &[(Option<usize>, u64)],
) -> Vec<LevelLoad> {
    let entries = |tables: &Vec<Arc<LiveTable>>| tables.iter().map(|t| t.meta.entries).sum();
    let mut keys: [u64; LEVELS] = std::array::from_fn(|level| entries(&version.levels[level]));
    // A level with next to no lookups gets nothing.
    let absent_reads =
        |reads: LevelReads| reads.absent - memory_allocation::negligible_bytes(evidence.gets);
    let mut absent = evidence.levels.map(|level| absent_reads(level).max(0.0));
    for &(level, entries) in inputs {
        keys[target] += entries;
        let Some(level) = level else { continue };
        keys[level] -= entries.min(keys[level]);
        if level != target {
            // An empty level will receive the lookups of the level above it. For level 0 these are
            // the lookups of each of its tables.
            let tables = if level == 0 { version.levels[0].len().max(1) } else { 1 };
            absent[target] = absent[target].max(absent[level] / tables as f64);
        }
    }
    let last = keys.iter().rposition(|&keys| keys > 0).unwrap_or(0);
    let load = |level: usize| {
        let is_last = level > 0 && level == last;
        LevelLoad {
            keys: keys[level] as f64,
            absent_reads: absent[level],
            plain_bits,
            is_last,
            is_dense: is_last && dense_filter_pays(evidence.read_cost()),
        }
    };
    (0..LEVELS).map(load).collect()
}

//! The advisor: which filters are kept in memory, and what filters new tables get, by what reads
//! ask.
//!
//! Every table has the plain filter that `bloom_bits` asks for on disk, always. Of a level whose
//! tables are hardly asked for keys that they do not have, the filters are let go of; where that
//! turns out wrong, a [tripwire](crate::version::OpenTable) has them brought back by whoever reads,
//! after some dozens of searches in vain, without waiting for a compaction or a thread. New tables
//! get a second filter, with bits and of a kind by Monkey's optimum over all levels, which is kept
//! in the plain one's place; all that is kept never takes more memory than the plain filters would.

mod optimum;
mod rhythm;
mod spend;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use umbel_base::limits::LEVELS;
use umbel_filter::{FilterKind, FilterOptions, FilterPlan, FilterSize};
use umbel_table::FilterChoice;

use crate::counters::{ReadCounters, ReadEvent};
use crate::evidence::{Asked, Count, Counts, Evidence};
use crate::filter_choice::Choice;
use crate::options::{KeyspaceOptions, LevelFilter};
use crate::version::{TableFile, Version};
use optimum::{cost, dense_pays};
use spend::GETS_LEAST;

pub use optimum::{Load, optimum, second};
pub use rhythm::Advising;
pub use spend::{Offer, choose, too_few};

/// Nothing is built where less of the questions are for absent keys, as a share of the gets.
const ABSENT_LEAST: f64 = 0.02;
/// Of a level that was asked less often nothing is known.
const ASKED_LEAST: f64 = 64.0;
/// Where so many times more absent keys were let through than by the design of the filters that
/// were chosen, the prediction has failed.
const FAILED: f64 = 1.5;
/// What of the plain filters' bits the last level's second ones take at most: the rest is for the
/// levels above, whose tables come and go. It is kept only once these have use for it.
const LAST_SHARE: f64 = 0.94;
/// Memory for each key that building a dense filter takes, about.
const DENSE_BUILD_BYTES: u64 = 32;
/// A filter's header and the trailer of its block.
const FILTER_OVERHEAD: u64 = 77;
/// How many gets the plain setting then holds.
pub const PLAIN_FOR_GETS: u64 = 262_144;

/// What the advisor knows of a keyspace and decided for it.
#[derive(Debug, Default)]
pub struct Advisor {
    state: Mutex<State>,
}

/// The same, while it is locked.
#[derive(Debug, Default)]
pub struct State {
    /// What reads asked of late.
    pub evidence: Evidence,
    /// Gets when that was last looked at.
    gets_seen: u64,
    /// The designed rates of each level's plain and second filters: to work them out takes longer
    /// than all else.
    rates: [[Option<KnownRate>; 2]; LEVELS],
    /// What was chosen for the tables of each level.
    pub choices: [Choice; LEVELS],
    /// Of each level the number of gets from which on something is known of it: it had no tables
    /// before.
    known_from: [u64; LEVELS],
    /// Until there were so many gets the plain setting holds.
    pub plain_until: u64,
    /// How often a prediction failed.
    pub failures: u64,
}

impl Advisor {
    /// Its state.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins with what was known when the store was last open.
    pub fn restore(&self, saved: &Counts) {
        self.lock().evidence = Evidence::from_saved(saved);
    }

    /// What is kept of a new table of a level, until it is decided anew.
    pub fn choice_of_new(&self, level: usize, has_second: bool) -> Choice {
        match self.lock().choices.get(level).copied().unwrap_or_default() {
            Choice::Nothing => Choice::Nothing,
            Choice::Plain | Choice::Second if has_second => Choice::Second,
            choice => choice,
        }
    }
}

/// What reads did in a keyspace since it was opened.
fn counts(reads: &ReadCounters) -> Counts {
    let levels = std::array::from_fn(|level| {
        let absent = reads.sum(level, ReadEvent::Absent);
        let false_reads = reads.sum(level, ReadEvent::FalseRead);
        let present = reads.sum(level, ReadEvent::TableRead).saturating_sub(false_reads);
        Count { absent, present, false_reads }
    });
    Counts { gets: reads.gets(), loads: reads.get_loads(), levels }
}

impl State {
    /// Takes in what was asked since the last time. Adding up the counters takes its time, and most
    /// who flush and compact do not read.
    pub fn look(&mut self, reads: &ReadCounters, gets: u64) {
        if gets != self.gets_seen {
            self.gets_seen = gets;
            self.evidence.note(&counts(reads));
        }
    }

    /// Takes in what was asked, and gives what the levels of `version` offer, after so many gets.
    pub fn offers(
        &mut self,
        version: &Version,
        options: &KeyspaceOptions,
        reads: &ReadCounters,
    ) -> Vec<Offer> {
        let gets = reads.gets();
        self.look(reads, gets);
        self.note_empty(version, gets);
        let offers = offers_of(version, self, options, gets);
        if gets >= self.plain_until && has_failed(&offers) {
            self.plain_until = gets + PLAIN_FOR_GETS;
            self.failures += 1;
        }
        offers
    }

    /// The second filter that new tables of a level get, if one is worth it. `inputs` are the
    /// levels and entries that go into them, `None` being memtables.
    pub fn second_filter(
        &mut self,
        version: &Version,
        options: &KeyspaceOptions,
        target: usize,
        inputs: &[(Option<usize>, u64)],
    ) -> Option<FilterChoice> {
        let evidence = &self.evidence;
        let absent: f64 = evidence.levels.iter().map(|asked| asked.absent).sum();
        if too_few(evidence.gets) || absent < evidence.gets * ABSENT_LEAST {
            return None;
        }
        let plain_bits = f64::from(options.bloom_bits);
        let loads = loads(version, evidence, plain_bits, target, inputs);
        let memory = loads.iter().map(|load| load.keys * load.plain_bits).sum();
        let mut bits = optimum(&loads, memory)[target];
        if loads[target].is_last {
            // What is above it now is soon gone, and comes back with every flush.
            bits = bits.min(plain_bits * LAST_SHARE);
        }
        let (kind, bits_per_key) = second(&loads[target], bits)?;
        Some(FilterChoice { kind, bits_per_key })
    }

    /// Notes which levels have no tables: what is asked of the first ones is not known yet.
    fn note_empty(&mut self, version: &Version, gets: u64) {
        for (level, tables) in version.levels.iter().enumerate() {
            if tables.is_empty() {
                self.choices[level] = Choice::Plain;
                self.known_from[level] = gets + GETS_LEAST as u64;
            }
        }
    }
}

/// Whether the second filters that were chosen let more absent keys through than by their design.
fn has_failed(offers: &[Offer]) -> bool {
    let (mut seen, mut expected, mut gets) = (0.0, 0.0, 0.0);
    for offer in offers.iter().filter(|offer| offer.now == Choice::Second && !offer.is_new) {
        seen += offer.asked.false_reads;
        // What was counted may be from before the choice.
        expected += offer.false_reads(Choice::Second).max(offer.false_reads(Choice::Plain));
        gets = offer.gets;
    }
    gets > 0.0 && seen > FAILED * expected + spend::left_out(gets)
}

/// What the levels of a version offer, after so many gets.
fn offers_of(
    version: &Version,
    state: &mut State,
    options: &KeyspaceOptions,
    gets: u64,
) -> Vec<Offer> {
    let evidence = state.evidence;
    let offer = |(level, tables): (usize, &Vec<Arc<TableFile>>)| {
        let (mut plain, mut second) = (Filters::default(), Filters::default());
        let (mut beside, mut cost_of_second) = (Filters::default(), 0.0f64);
        let mut kind = None;
        for meta in tables.iter().map(|table| &*table.meta) {
            plain.add(meta.plain_filter_bytes(), meta.entries);
            match meta.second_filter {
                None => beside.add(meta.plain_filter_bytes(), meta.entries),
                Some(filter) => {
                    second.add(filter.bytes, meta.entries);
                    kind = FilterKind::from_number(filter.kind);
                    cost_of_second = cost_of_second.max(kind.map_or(0.0, cost));
                }
            }
        }
        let filter = options.level_filter(level);
        let [known_plain, known_second] = &mut state.rates[level];
        let plain_rate = plain.known_rate(known_plain, filter.kind, Some(filter));
        let second_rate = kind.map_or(1.0, |kind| second.known_rate(known_second, kind, None));
        let share = second.entries as f64 / plain.entries.max(1) as f64;
        let rate = share * second_rate + (1.0 - share) * plain_rate;
        // Where few tables have one it is not worth the while.
        let is_there = kind.is_some() && share >= 0.5;
        // Gets that were answered above it say nothing of it.
        let asked = evidence.levels[level];
        let is_unasked = asked.absent + asked.present < ASKED_LEAST;
        Offer {
            plain: (plain.bytes, plain_rate),
            second: is_there.then_some((second.bytes + beside.bytes, rate)),
            second_cost: share * cost_of_second / evidence.read_cost(),
            asked,
            gets: evidence.gets,
            now: state.choices[level],
            is_new: too_few(evidence.gets) || is_unasked || gets < state.known_from[level],
        }
    };
    version.levels.iter().enumerate().map(offer).collect()
}

/// Filters of some tables, in sum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Filters {
    tables: u64,
    bytes: u64,
    entries: u64,
}

/// A rate that was worked out.
#[derive(Debug, Clone, Copy)]
struct KnownRate {
    /// What it is of: the filters, their kind, and what they are by the options. Filters with more
    /// or fewer probes are of the same size.
    of: (Filters, FilterKind, Option<LevelFilter>),
    rate: f64,
}

impl Filters {
    fn add(&mut self, bytes: u64, entries: u64) {
        self.tables += u64::from(bytes > 0);
        self.bytes += bytes;
        self.entries += entries;
    }

    /// As [`Filters::rate`], which is `known` where nothing has changed since.
    fn known_rate(
        self,
        known: &mut Option<KnownRate>,
        kind: FilterKind,
        given: Option<LevelFilter>,
    ) -> f64 {
        let of = (self, kind, given);
        let same = known.filter(|known| known.of == of);
        known.insert(same.unwrap_or_else(|| KnownRate { of, rate: self.rate(kind, given) })).rate
    }

    /// The share of absent keys that they let through by design, if they are of that kind, on the
    /// average table. `given` is what they are by the options, where these say it; of filters that
    /// were written with other options it is about that.
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

/// What building a second filter of a table with that share of the inputs, as so many of so many
/// bytes, takes besides the hashes of their keys, about.
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

/// The levels as they will be when `inputs` are tables of level `target`.
pub fn loads(
    version: &Version,
    evidence: &Evidence,
    plain_bits: f64,
    target: usize,
    inputs: &[(Option<usize>, u64)],
) -> Vec<Load> {
    let entries = |tables: &Vec<Arc<TableFile>>| tables.iter().map(|t| t.meta.entries).sum();
    let mut keys: [u64; LEVELS] = std::array::from_fn(|level| entries(&version.levels[level]));
    // Who is next to never asked gets nothing.
    let asked = |asked: Asked| asked.absent - spend::next_to_none(evidence.gets);
    let mut absent = evidence.levels.map(|level| asked(level).max(0.0));
    for &(level, entries) in inputs {
        keys[target] += entries;
        let Some(level) = level else { continue };
        keys[level] -= entries.min(keys[level]);
        if level != target {
            // A level that was empty will be asked for what the one above it was asked for; of
            // level 0 that was each of its tables.
            let tables = if level == 0 { version.levels[0].len().max(1) } else { 1 };
            absent[target] = absent[target].max(absent[level] / tables as f64);
        }
    }
    let last = keys.iter().rposition(|&keys| keys > 0).unwrap_or(0);
    let load = |level: usize| {
        let is_last = level > 0 && level == last;
        Load {
            keys: keys[level] as f64,
            absent: absent[level],
            plain_bits,
            is_last,
            is_dense: is_last && dense_pays(evidence.read_cost()),
        }
    };
    (0..LEVELS).map(load).collect()
}

//! Report of the advisor: its decisions, the reasons, and the effect of other memory sizes.

use std::sync::Arc;

use umbel_base::limits::LEVELS;
use umbel_existence::{ExistenceStats, HashSource};
use umbel_filter::FilterKind;

use crate::advisor::{FilterOption, LevelLoad, allocate_bits, loads, second_filter_bits};
use crate::maintenance::advisor_job::advise;
use crate::maintenance::existence_key_scan::KeyspaceKeys;
use crate::state::store::Store;
use crate::store_budget::filter_selection::FilterSelection;
use crate::version::LiveTable;

/// Filters of a keyspace that are kept in memory, and the effect of other memory sizes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FilterAdvice {
    /// Name of the keyspace.
    pub keyspace: String,
    /// Whether the keyspace's options let the advisor decide.
    pub is_on: bool,
    /// Whether the keyspace's options request filters at any level.
    pub has_filters: bool,
    /// Bits per key of the keyspace's plain filters.
    pub bloom_bits: i32,
    /// Number of gets on which the decisions rest; older gets weigh less.
    pub gets: f64,
    /// Number of times that second filters passed more absent keys than designed, so that the
    /// advisor went back to plain filters.
    pub mispredictions: u64,
    /// The keyspace's existence filter, if it has one; see [`KeyspaceStats`](crate::KeyspaceStats).
    pub existence: Option<ExistenceStats>,
    /// Share of recent gets of absent keys that reached the last level with tables. An existence
    /// filter would answer nearly all these gets.
    pub absent_share: f64,
    /// Approximate bytes that a growing existence filter would take for the keys in the keyspace.
    pub existence_bytes: u64,
    /// Bytes of all plain filters of the keyspace.
    pub plain_bytes: u64,
    /// Bytes of the selected filters.
    pub kept_bytes: u64,
    /// False reads per get, by design, with the selected filters.
    pub false_reads: f64,
    /// False reads per get, by design, if all plain filters were kept.
    pub plain_false_reads: f64,
    /// False reads per get with the best filters, after all tables are rewritten. The three numbers
    /// are for half, the same and twice the memory of the plain filters.
    pub best_false_reads: [f64; 3],
    /// The levels of the keyspace that have tables.
    pub levels: Vec<LevelAdvice>,
}

/// Filters of a level that are kept in memory.
#[derive(Debug, Clone, PartialEq)]
pub struct LevelAdvice {
    /// Number of the level.
    pub level: usize,
    /// Number of tables in the level.
    pub tables: u64,
    /// Number of entries in the level's tables.
    pub entries: u64,
    /// Lookups of absent keys in the level's tables, per recent get.
    pub absent_per_get: f64,
    /// Lookups of present keys in the level's tables, per recent get.
    pub present_per_get: f64,
    /// False reads of the level's tables, per recent get.
    pub false_reads_per_get: f64,
    /// Bytes and designed false-positive rate of the tables' plain filters.
    pub plain: (u64, f64),
    /// Bytes and designed false-positive rate of the tables' second filters; `None` unless all
    /// tables have one.
    pub second: Option<(u64, f64)>,
    /// Selected filters: `"plain"`, `"second"` or `"nothing"`; `"none there"` if the tables have no
    /// filters.
    pub kept: &'static str,
    /// Bytes of the level's filters that are in memory now.
    pub bytes_in_memory: u64,
    /// Kind and bits per key of the second filter that new tables of the level would get now.
    pub best: Option<(&'static str, f64)>,
    /// Reason for the selection of filters, as text.
    pub why: String,
}

/// Bits per key of a growing existence filter on average; the filter has between 10 and 20.
const EXISTENCE_BITS: u64 = 15;

/// Runs the advisor, and reports its decisions for every keyspace.
pub fn filter_advice(store: &Store) -> Vec<FilterAdvice> {
    advise(store);
    let mut all = Vec::new();
    for keyspace in store.keyspaces() {
        let options = keyspace.options();
        let version = Arc::clone(&keyspace.super_version.load().version);
        let (offers, evidence, choices) = {
            let mut state = keyspace.advisor.lock();
            let offers = state.filter_options(&version, &options, &keyspace.reads);
            (offers, state.read_stats, state.selections)
        };
        let has_filters = (0..LEVELS).any(|level| options.level_filter(level).bits_per_key > 0);
        let is_on = options.advisor && has_filters;
        let plain_bits = f64::from(options.bloom_bits.max(0));
        let loads = loads(&version, &evidence, plain_bits, 0, &[]);
        let gets = evidence.gets.max(1.0);
        let memory: f64 = loads.iter().map(|load| load.keys * plain_bits).sum();
        let best = allocate_bits(&loads, memory);
        let best_at =
            |share: f64| false_reads(&loads, &allocate_bits(&loads, memory * share)) / gets;
        let mut advice = FilterAdvice {
            keyspace: keyspace.name.clone(),
            is_on,
            has_filters,
            bloom_bits: options.bloom_bits,
            gets: evidence.gets,
            mispredictions: keyspace.advisor.lock().mispredictions,
            existence: keyspace.existence.stats(),
            existence_bytes: KeyspaceKeys(&keyspace).estimated() * EXISTENCE_BITS / 8,
            best_false_reads: [0.5, 1.0, 2.0].map(best_at),
            ..FilterAdvice::default()
        };
        for level in (0..LEVELS).filter(|&level| !version.levels[level].is_empty()) {
            let (offer, tables) = (&offers[level], &version.levels[level]);
            let choice = choices[level];
            advice.plain_bytes += offer.bytes(FilterSelection::Plain);
            advice.kept_bytes += offer.bytes(choice);
            advice.false_reads += offer.false_reads(choice) / gets;
            advice.plain_false_reads += offer.false_reads(FilterSelection::Plain) / gets;
            advice.absent_share = (offer.reads.absent / gets).min(1.0);
            let adds = is_on && options.level_filters.is_none();
            let new = second_filter_bits(&loads[level], best[level]).filter(|_| adds);
            let in_memory = |table: &Arc<LiveTable>| table.opened().map_or(0, |o| o.filter_bytes());
            advice.levels.push(LevelAdvice {
                level,
                tables: tables.len() as u64,
                entries: tables.iter().map(|table| table.meta.entries).sum(),
                absent_per_get: offer.reads.absent / gets,
                present_per_get: offer.reads.present / gets,
                false_reads_per_get: offer.reads.false_reads / gets,
                plain: offer.plain,
                second: offer.second,
                kept: match choice {
                    FilterSelection::Plain if offer.plain.0 == 0 => "none there",
                    FilterSelection::Plain => "plain",
                    FilterSelection::Nothing => "nothing",
                    FilterSelection::Second => "second",
                },
                bytes_in_memory: tables.iter().map(in_memory).sum(),
                best: new.map(|(kind, bits)| (FilterKind::name(kind), bits)),
                why: reason(is_on, offer, choice),
            });
        }
        all.push(advice);
    }
    all
}

fn false_reads(loads: &[LevelLoad], bits: &[f64]) -> f64 {
    let there = loads.iter().zip(bits).filter(|(load, _)| load.keys > 0.0);
    there.map(|(load, bits)| load.absent_reads * load.rate(*bits)).sum()
}

fn reason(is_on: bool, offer: &FilterOption, choice: FilterSelection) -> String {
    let share = 100.0 * offer.reads.absent / offer.gets.max(1.0);
    if !is_on {
        return "the advisor is off: the plain filters are kept as far as memory allows".into();
    }
    if offer.is_new {
        return "too few recent gets for a decision".into();
    }
    match choice {
        FilterSelection::Nothing => format!(
            "only {share:.2} % of the gets miss in this level: a filter would save next to nothing"
        ),
        FilterSelection::Second => format!(
            "{share:.1} % of the gets miss in this level: the second filter passes {:.3} % of \
             them, the plain one {:.3} %",
            100.0 * offer.second.unwrap_or(offer.plain).1,
            100.0 * offer.plain.1
        ),
        FilterSelection::Plain if offer.second.is_some() => format!(
            "{share:.1} % of the gets miss in this level: the plain filter is the best for the \
             memory"
        ),
        FilterSelection::Plain => {
            format!("{share:.1} % of the gets miss in this level; there is no other filter to keep")
        }
    }
}

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

/// Filters that are kept of a keyspace, and the effect of other memory sizes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FilterAdvice {
    /// The keyspace.
    pub keyspace: String,
    /// Whether its options let the advisor decide.
    pub is_on: bool,
    /// Whether its options request filters at any level.
    pub has_filters: bool,
    /// Bits per key of its plain filters.
    pub bloom_bits: i32,
    /// Weighted number of gets that the decisions rest on; older ones weigh less.
    pub gets: f64,
    /// Number of times that filters passed more absent keys than designed, so that the plain
    /// setting was restored.
    pub mispredictions: u64,
    /// Its existence filter, where it has one; see [`KeyspaceStats`](crate::KeyspaceStats).
    pub existence: Option<ExistenceStats>,
    /// Share of recent gets that reached the last level with tables for an absent key. An existence
    /// filter answers nearly all of those.
    pub absent_share: f64,
    /// Approximate bytes of a growing existence filter for the present keys.
    pub existence_bytes: u64,
    /// Bytes of all plain filters.
    pub plain_bytes: u64,
    /// Bytes of the selected filters.
    pub kept_bytes: u64,
    /// False reads per get, by design, with the selected filters.
    pub false_reads: f64,
    /// The same with the plain filters.
    pub plain_false_reads: f64,
    /// The same with the best filters, once all tables are rewritten, for half, the same and twice
    /// the memory of the plain ones.
    pub best_false_reads: [f64; 3],
    /// Its levels that have tables.
    pub levels: Vec<LevelAdvice>,
}

/// Filters that are kept of a level.
#[derive(Debug, Clone, PartialEq)]
pub struct LevelAdvice {
    /// Its number.
    pub level: usize,
    /// Its tables.
    pub tables: u64,
    /// Their entries.
    pub entries: u64,
    /// Lookups of absent keys in its tables, per recent get.
    pub absent_per_get: f64,
    /// Lookups of present keys in its tables, per recent get.
    pub present_per_get: f64,
    /// False reads of its tables, per recent get.
    pub false_reads_per_get: f64,
    /// Bytes of their plain filters, and the designed false-positive rate of these.
    pub plain: (u64, f64),
    /// The same of their second filters, where all have one.
    pub second: Option<(u64, f64)>,
    /// Selected filters: `"plain"`, `"second"` or `"nothing"`; `"none there"` where the tables have
    /// no filters.
    pub kept: &'static str,
    /// Bytes of filters that are in memory now.
    pub bytes_in_memory: u64,
    /// Kind and bits per key of the second filter that new tables would get now.
    pub best: Option<(&'static str, f64)>,
    /// Reason for the selection, as text.
    pub why: String,
}

/// Bits per key of a growing existence filter: it has between 10 and 20.
const EXISTENCE_BITS: u64 = 15;

/// Runs the advisor and reports the result for every keyspace.
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

//! What the advisor tells: what it does now, why, and what other memory would bring.

use std::sync::Arc;

use umbel_base::limits::LEVELS;
use umbel_existence::{ExistenceStats, Source};
use umbel_filter::FilterKind;

use super::advise;
use crate::advisor::{Load, Offer, loads, optimum, second};
use crate::existence_keys::Keys;
use crate::filter_choice::Choice;
use crate::store::Store;
use crate::version::TableFile;

/// What is kept of the filters of a keyspace, and what other memory would bring.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FilterAdvice {
    /// The keyspace.
    pub keyspace: String,
    /// Whether its options let the advisor decide.
    pub is_on: bool,
    /// Whether its options ask for filters at any level.
    pub has_filters: bool,
    /// Bits a key of its plain filters.
    pub bloom_bits: i32,
    /// Gets that the decisions rest on: of late, older ones weighing less.
    pub gets: f64,
    /// How often more keys were let through than by design, so that the plain setting was gone back
    /// to.
    pub failures: u64,
    /// Its existence filter, where it has one; see [`KeyspaceStats`](crate::KeyspaceStats).
    pub existence: Option<ExistenceStats>,
    /// Of the gets of late, the share that reached the last level with tables for a key which is
    /// not there: an existence filter answers nearly all of those.
    pub absent_share: f64,
    /// Bytes of an existence filter that grows, for the keys there are, about.
    pub existence_bytes: u64,
    /// Bytes that the plain filters would take.
    pub plain_bytes: u64,
    /// Bytes of the filters that are to be kept.
    pub kept_bytes: u64,
    /// Tables searched in vain for each get, by design, with what is kept.
    pub false_reads: f64,
    /// The same with the plain filters.
    pub plain_false_reads: f64,
    /// The same with the best filters, once all tables are written again, for half, the same and
    /// twice the memory of the plain ones.
    pub best_false_reads: [f64; 3],
    /// Its levels that have tables.
    pub levels: Vec<LevelAdvice>,
}

/// What is kept of the filters of a level.
#[derive(Debug, Clone, PartialEq)]
pub struct LevelAdvice {
    /// Its number.
    pub level: usize,
    /// Its tables.
    pub tables: u64,
    /// Their entries.
    pub entries: u64,
    /// How often a get of late asked them for a key that they do not have.
    pub absent_per_get: f64,
    /// How often for one that they have.
    pub present_per_get: f64,
    /// How often one of them was searched in vain.
    pub false_reads_per_get: f64,
    /// Bytes of their plain filters, and the share of absent keys that these let through by design.
    pub plain: (u64, f64),
    /// The same of their second filters, where all have one.
    pub second: Option<(u64, f64)>,
    /// What is to be kept: `"plain"`, `"second"` or `"nothing"`; `"none there"` where the tables
    /// have no filters.
    pub kept: &'static str,
    /// Bytes of filters that are in memory now.
    pub bytes_in_memory: u64,
    /// The kind and the bits a key that new tables would get for a second filter now.
    pub best: Option<(&'static str, f64)>,
    /// Why, in words.
    pub why: String,
}

/// Bits a key of an existence filter that grows: it has between 10 and 20.
const EXISTENCE_BITS: u64 = 15;

/// Has it decided anew and tells what came of it, for every keyspace.
pub fn advice(store: &Store) -> Vec<FilterAdvice> {
    advise(store);
    let mut all = Vec::new();
    for keyspace in store.keyspaces() {
        let options = keyspace.options();
        let version = Arc::clone(&keyspace.view.load().version);
        let (offers, evidence, choices) = {
            let mut state = keyspace.advisor.lock();
            let offers = state.offers(&version, &options, &keyspace.reads);
            (offers, state.evidence, state.choices)
        };
        let has_filters = (0..LEVELS).any(|level| options.level_filter(level).bits_per_key > 0);
        let is_on = options.advisor && has_filters;
        let plain_bits = f64::from(options.bloom_bits.max(0));
        let loads = loads(&version, &evidence, plain_bits, 0, &[]);
        let gets = evidence.gets.max(1.0);
        let memory: f64 = loads.iter().map(|load| load.keys * plain_bits).sum();
        let best = optimum(&loads, memory);
        let best_at = |share: f64| false_reads(&loads, &optimum(&loads, memory * share)) / gets;
        let mut advice = FilterAdvice {
            keyspace: keyspace.name.clone(),
            is_on,
            has_filters,
            bloom_bits: options.bloom_bits,
            gets: evidence.gets,
            failures: keyspace.advisor.lock().failures,
            existence: keyspace.existence.stats(),
            existence_bytes: Keys(&keyspace).estimated() * EXISTENCE_BITS / 8,
            best_false_reads: [0.5, 1.0, 2.0].map(best_at),
            ..FilterAdvice::default()
        };
        for level in (0..LEVELS).filter(|&level| !version.levels[level].is_empty()) {
            let (offer, tables) = (&offers[level], &version.levels[level]);
            let choice = choices[level];
            advice.plain_bytes += offer.bytes(Choice::Plain);
            advice.kept_bytes += offer.bytes(choice);
            advice.false_reads += offer.false_reads(choice) / gets;
            advice.plain_false_reads += offer.false_reads(Choice::Plain) / gets;
            advice.absent_share = (offer.asked.absent / gets).min(1.0);
            let adds = is_on && options.level_filters.is_none();
            let new = second(&loads[level], best[level]).filter(|_| adds);
            let in_memory = |table: &Arc<TableFile>| table.opened().map_or(0, |o| o.filter_bytes());
            advice.levels.push(LevelAdvice {
                level,
                tables: tables.len() as u64,
                entries: tables.iter().map(|table| table.meta.entries).sum(),
                absent_per_get: offer.asked.absent / gets,
                present_per_get: offer.asked.present / gets,
                false_reads_per_get: offer.asked.false_reads / gets,
                plain: offer.plain,
                second: offer.second,
                kept: match choice {
                    Choice::Plain if offer.plain.0 == 0 => "none there",
                    Choice::Plain => "plain",
                    Choice::Nothing => "nothing",
                    Choice::Second => "second",
                },
                bytes_in_memory: tables.iter().map(in_memory).sum(),
                best: new.map(|(kind, bits)| (FilterKind::name(kind), bits)),
                why: why(is_on, offer, choice),
            });
        }
        all.push(advice);
    }
    all
}

fn false_reads(loads: &[Load], bits: &[f64]) -> f64 {
    let there = loads.iter().zip(bits).filter(|(load, _)| load.keys > 0.0);
    there.map(|(load, bits)| load.absent * load.rate(*bits)).sum()
}

fn why(is_on: bool, offer: &Offer, choice: Choice) -> String {
    let share = 100.0 * offer.asked.absent / offer.gets.max(1.0);
    if !is_on {
        return "the advisor is off: the plain filters are kept as far as memory allows".into();
    }
    if offer.is_new {
        return "too few gets of late to decide on".into();
    }
    match choice {
        Choice::Nothing => format!(
            "only {share:.2} % of the gets asked here for a key that is not here: a filter would \
             save next to nothing"
        ),
        Choice::Second => format!(
            "{share:.1} % of the gets asked here for a key that is not here: the second filter \
             lets {:.3} % of them through, the plain one {:.3} %",
            100.0 * offer.second.unwrap_or(offer.plain).1,
            100.0 * offer.plain.1
        ),
        Choice::Plain if offer.second.is_some() => format!(
            "{share:.1} % of the gets asked here for a key that is not here: the plain filter is \
             the best for the memory"
        ),
        Choice::Plain => format!(
            "{share:.1} % of the gets asked here for a key that is not here; there is no other \
             filter to keep"
        ),
    }
}

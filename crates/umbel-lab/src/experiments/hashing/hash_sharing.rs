//! `hash-sharing`: a key hashed once for all tables, or once for each.

use umbel_filter::{Bloom, BloomBuilder, HashSecret, hash_key};
use umbel_keygen::keys::{push_decimal, push_random_bytes};

use super::hash_article;
use crate::engine::{Counters, ReadDigest, Result};
use crate::experiment::lab_context::{LabContext, MeasureContext};
use crate::experiment::{
    Experiment, ExperimentOptions, Figure, PublishedSeries, ResourceNeeds, Subject, Subjects,
    owned_settings,
};
use crate::measure::Stopwatch;
use crate::measure::sanity_checks::Expectations;
use crate::number_format::ratio;
use crate::results::outcome::{Better, Outcome, Scale};
use crate::results::sample_recorder::Recorder;

const GET: Figure = Figure { name: "missing key", unit: "ns", better: Better::Lower, plot: true };

/// Numbers of tables.
const TABLES: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Bytes of a key, as in the article.
const SIZES: [usize; 2] = [42, 168];
const BITS_PER_KEY: i32 = 10;
/// Number of different keys that are looked up.
const PROBED_KEYS: usize = 4096;

macro_rules! seed {
    ($series:literal: $($value:literal)*) => {
        PublishedSeries {
            series: concat!("the article, ", $series),
            beside: $series,
            figure: "missing key",
            unit: "ns",
            points: &seed!(@ ["1" "2" "4" "8" "16" "32" "64"] [$($value)*]),
        }
    };
    (@ [$($x:literal)*] [$($value:literal)*]) => {
        [$(($x, $value)),*]
    };
}

/// The definition.
pub const EXPERIMENT: Experiment = Experiment {
    name: "hash-sharing",
    title: "Hash once, or once for each table?",
    question: "With 1 to 64 tables: what does it save to hash a key once for all filters?",
    hypothesis: "A hash takes as long for each table as for the first, so that it weighs more the \
                 more tables there are and the longer the key is. Shared, a further table costs \
                 one look into its filter.",
    source: hash_article::source("hash sharing, the article before it"),
    axis: "tables",
    figures: &[GET],
    seeds: &[
        seed!("42 B, each": 80.0 105.0 180.0 260.0 460.0 860.0 1700.0),
        seed!("42 B, shared": 80.0 90.0 100.0 120.0 190.0 300.0 540.0),
        seed!("168 B, each": 98.0 125.0 230.0 410.0 780.0 1510.0 2900.0),
        seed!("168 B, shared": 110.0 110.0 125.0 160.0 235.0 400.0 650.0),
    ],
    options: ExperimentOptions {
        settings: |scale| {
            let rows = [
                (
                    "filters",
                    format!("one for each table, of {} keys and {BITS_PER_KEY} bits", keys(scale)),
                ),
                ("reads", format!("{} of {PROBED_KEYS} keys that no table has", reads(scale))),
                (
                    "a read",
                    "probes every filter; the other work of a store is the same for both".into(),
                ),
            ];
            owned_settings(rows)
        },
        needs: |_| ResourceNeeds { disk_bytes: 1 << 20, memory_bytes: 256 << 20 },
        rounds: |scale| scale.choose(5, 7),
        several_engines: false,
        warms_up: true,
        takes_data: false,
        unsupported: hash_article::wants_umbel,
    },
    subjects,
    meaning,
};

fn reads(scale: Scale) -> u64 {
    scale.choose(100_000, 2_000_000)
}

fn keys(scale: Scale) -> u64 {
    scale.choose(10_000, 100_000)
}

fn subjects(lab: &LabContext<'_>) -> Result<Subjects> {
    let secret = HashSecret::from_seed(*b"shared or not...");
    let mut all: Vec<Box<dyn Subject>> = Vec::new();
    for size in SIZES {
        for tables in TABLES {
            for shared in [false, true] {
                let (keys, reads) = (keys(lab.scale), reads(lab.scale));
                let place = lab.measure_context();
                all.push(Box::new(HashSharingCase {
                    place,
                    secret,
                    size,
                    tables,
                    shared,
                    keys,
                    reads,
                }));
            }
        }
    }
    Ok(all)
}

struct HashSharingCase {
    place: MeasureContext,
    secret: HashSecret,
    size: usize,
    tables: usize,
    shared: bool,
    keys: u64,
    reads: u64,
}

impl HashSharingCase {
    fn key(&self, number: u64) -> Vec<u8> {
        let mut key = Vec::new();
        push_random_bytes(3, self.size - 16, &mut key);
        push_decimal(number, 16, &mut key);
        key
    }

    fn filters(&self) -> Result<Vec<Bloom>> {
        let filter = |table: u64| {
            let mut builder = BloomBuilder::new(BITS_PER_KEY);
            for number in table * self.keys..(table + 1) * self.keys {
                builder.add(hash_key(&self.secret, &self.key(number)));
            }
            Bloom::decode(&builder.finish())
        };
        Ok((0..self.tables as u64).map(filter).collect::<std::result::Result<_, _>>()?)
    }

    fn series(&self) -> String {
        format!("{} B, {}", self.size, if self.shared { "shared" } else { "each" })
    }
}

impl Subject for HashSharingCase {
    fn name(&self) -> String {
        format!("{}, {} tables", self.series(), self.tables)
    }

    fn measure(&mut self, recorder: &mut Recorder<'_>) -> Result<()> {
        let filters = self.filters()?;
        let first = 1 << 40;
        let probed_keys: Vec<Vec<u8>> =
            (first..first + PROBED_KEYS as u64).map(|n| self.key(n)).collect();
        let hash = |key: &[u8]| hash_key(&self.secret, std::hint::black_box(key));
        let read = |count: u64| -> Result<ReadDigest> {
            let mut tally = ReadDigest::default();
            for key in probed_keys.iter().cycle().take(count as usize) {
                let passed = if self.shared {
                    let hash = hash(key);
                    filters.iter().filter(|filter| filter.may_contain(hash)).count()
                } else {
                    filters.iter().filter(|filter| filter.may_contain(hash(key))).count()
                };
                tally.found += passed as u64;
            }
            Ok(tally)
        };
        read(PROBED_KEYS as u64 * 2)?;
        let nothing = Counters::default;
        let work = |_: &Stopwatch| read(self.reads);
        let timed =
            self.place.timed_with_counters(Expectations::READS, &nothing, self.reads, work)?;
        let x = self.tables.to_string();
        recorder.record(&self.series(), &x, GET.name, timed.sample.thread(), &timed);
        Ok(())
    }
}

fn meaning(outcome: &Outcome) -> Vec<String> {
    let mut paragraphs = Vec::new();
    for size in SIZES {
        let of = |how: &str, x: &str| outcome.spread(&format!("{size} B, {how}"), x, GET.name);
        let (Some(each), Some(shared)) = (of("each", "64"), of("shared", "64")) else { continue };
        let (Some(each_one), Some(shared_one)) = (of("each", "1"), of("shared", "1")) else {
            continue;
        };
        paragraphs.push(format!(
            "Keys of {size} bytes and 64 tables: {:.0} ns with a hash for each table, {:.0} ns \
             with one for all, {} of it. A further table costs {:.1} ns with a hash of its own and \
             {:.1} ns without.",
            each.median,
            shared.median,
            ratio(shared.median, each.median),
            (each.median - each_one.median) / 63.0,
            (shared.median - shared_one.median) / 63.0,
        ));
    }
    paragraphs.push(
        "The article measured whole reads of a store and found 7 ns for each further table with a \
         shared hash, and 26 to 45 ns without. The engine here hashes a key once for memtables, \
         the filters of all tables and the tags in blocks."
            .to_string(),
    );
    paragraphs
}

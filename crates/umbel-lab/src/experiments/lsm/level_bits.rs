//! `levels`: the same memory for filters, distributed over the levels in three ways.

use umbel::{Db, FilterKind, Keyspace, KeyspaceOptions, LevelFilter, LevelStats, Options};
use umbel_keygen::keys::{KeySet, KeyShape, Random};

use crate::engine::umbel_engine::counters;
use crate::engine::{ReadDigest, Result};
use crate::experiment::lab_context::{LabContext, MeasureContext, Measurement, TemporaryDirectory};
use crate::experiment::{
    ArticleSource, Experiment, ExperimentOptions, Figure, ResourceNeeds, Subject, owned_settings,
};
use crate::experiments::hashing::hash_article::wants_umbel;
use crate::experiments::result_text;
use crate::measure::Stopwatch;
use crate::measure::sanity_checks::Expectations;
use crate::results::outcome::{Better, Outcome, Scale};
use crate::results::sample_recorder::{MeasurementEvidence, Recorder};
use crate::workload::answer_check::AnswerCheck;
use crate::workload::prepared_writes::for_each_key;

const MISSING: Figure =
    Figure { name: "missing key", unit: "ns per get", better: Better::Lower, plot: true };
const FALSE_READS: Figure = Figure {
    name: "false reads",
    unit: "tables per 100 missing",
    better: Better::Lower,
    plot: true,
};
const HIT: Figure =
    Figure { name: "key that is there", unit: "ns per get", better: Better::Lower, plot: true };
const FILTERS: Figure = Figure {
    name: "filters, missing keys asked",
    unit: "MiB",
    better: Better::Neither,
    plot: false,
};
const FILTERS_HITS: Figure = Figure {
    name: "filters, after only keys that are there",
    unit: "MiB",
    better: Better::Lower,
    plot: true,
};
const RUNS: Figure =
    Figure { name: "sorted runs", unit: "runs", better: Better::Neither, plot: false };

/// Bits per key at every level in the first way; the other two ways get the same memory.
const BITS: i32 = 10;
/// Number of runs that are younger than the last compaction, and the share of the keys in each.
const YOUNG_RUNS: u64 = 3;
const YOUNG_SHARE: u64 = 50;
/// Gets after which the advisor has enough statistics.
const ADVISOR_WARM_UP_GETS: u64 = 400_000;
/// Number of gets between two decisions of the advisor.
const ADVISOR_INTERVAL_GETS: u64 = 20_000;
/// `ln(2)` squared, which converts the logarithm of a rate to bits per key.
const LN_2_SQUARED: f64 = std::f64::consts::LN_2 * std::f64::consts::LN_2;

/// The definition.
pub const EXPERIMENT: Experiment = Experiment {
    name: "levels",
    title: "The same memory, spread better",
    question: "With the memory of 10 bits per key: the same at every level, Monkey's optimum, or \
           the advisor?",
    hypothesis: "A missing key is looked up at every level, so that the sum of the rates counts. \
                 Small levels can have low rates for little memory: the optimum gives each a rate \
                 in proportion to its size. An advisor that counts probes should find it, \
                 and give memory back where no missing key is looked up.",
    source: ArticleSource { name: "Monkey (SIGMOD 2017)", part: "optimal bits for each level" },
    axis: "filters",
    figures: &[MISSING, FALSE_READS, HIT, FILTERS, FILTERS_HITS, RUNS],
    seeds: &[],
    options: ExperimentOptions {
        settings: |scale| {
            let rows = [
                ("keys", format!("{} of 16 random bytes, values of 100 bytes", keys(scale))),
                (
                    "order",
                    "fill; twice: look up missing keys, compact, put a fiftieth three times; then \
                  measure missing keys, then keys that are there"
                        .to_string(),
                ),
                ("reads", format!("{} for each figure", reads(scale))),
            ];
            owned_settings(rows)
        },
        needs: |scale| ResourceNeeds {
            disk_bytes: keys(scale) * 600,
            memory_bytes: scale.choose(512 << 20, 3 << 30),
        },
        rounds: |scale| scale.choose(4, 4),
        several_engines: false,
        warms_up: true,
        takes_data: false,
        unsupported: wants_umbel,
    },
    subjects: |lab| {
        let answers = AnswerCheck::default();
        let ways = [BitsAllocation::Uniform, BitsAllocation::Monkey, BitsAllocation::Advised];
        Ok(ways.map(|way| case(lab, way, answers.clone())).into())
    },
    meaning,
};

fn keys(scale: Scale) -> u64 {
    scale.choose(200_000, 4_000_000)
}

fn reads(scale: Scale) -> u64 {
    scale.choose(200_000, 2_000_000)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BitsAllocation {
    Uniform,
    Monkey,
    Advised,
}

fn case(lab: &LabContext<'_>, way: BitsAllocation, answers: AnswerCheck) -> Box<dyn Subject> {
    let (place, num, reads) = (lab.measure_context(), keys(lab.scale), reads(lab.scale));
    Box::new(LevelBitsCase { place, way, num, reads, answers })
}

struct LevelBitsCase {
    place: MeasureContext,
    way: BitsAllocation,
    num: u64,
    reads: u64,
    answers: AnswerCheck,
}

impl LevelBitsCase {
    fn open(
        &self,
        name: &str,
        level_filters: Option<[LevelFilter; 7]>,
    ) -> Result<(TemporaryDirectory, Db, Keyspace)> {
        let folder = self.place.folder(name)?;
        let db =
            Db::open(folder.path(), Options { memory_bytes: Some(2 << 30), ..Options::default() })?;
        let part = (self.num * 2).clamp(64 << 10, 8 << 20);
        let options = KeyspaceOptions {
            bloom_bits: BITS,
            level_filters,
            advisor: self.way == BitsAllocation::Advised,
            memtable_bytes: part,
            table_bytes: part * 4,
            level_bytes_base: part * 3,
            level_ratio: 5,
            ..KeyspaceOptions::default()
        };
        let keyspace = db.keyspace("levels", options)?;
        Ok((folder, db, keyspace))
    }

    fn keys(&self) -> Result<KeySet> {
        Ok(KeySet::new(KeyShape::Random, self.num, 16, 100)?)
    }

    /// Fills the store, looks up missing keys for the advisor's statistics, and rewrites all
    /// tables.
    fn fill(&self, db: &Db, keyspace: &Keyspace, recorder: &Recorder<'_>) -> Result<()> {
        let keys = self.keys()?;
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let mut put = |index: u64| -> Result<()> {
            keys.key(keys.present(index), &mut key);
            keys.value(index, &mut value);
            if index.is_multiple_of(1 << 16) {
                recorder.next("filling")?;
            }
            Ok(keyspace.put(&key, &value)?)
        };
        (0..self.num).try_for_each(&mut put)?;
        db.wait_for_compaction()?;
        let mut random = Random::new(5);
        // One large run and smaller, newer ones, as in a store between compactions. The second time
        // all tables are written with the advisor's statistics.
        for _ in 0..2 {
            warm_up_advisor(db, keyspace, keys, false, self.num.max(ADVISOR_WARM_UP_GETS))?;
            keyspace.compact(None, None)?;
            for _ in 0..YOUNG_RUNS {
                (0..self.num / YOUNG_SHARE).try_for_each(|_| put(random.below(self.num)))?;
                keyspace.flush()?;
            }
            db.wait_for_compaction()?;
        }
        Ok(())
    }

    /// Returns Monkey's bits for the levels of this fill.
    fn monkey(&self, recorder: &Recorder<'_>) -> Result<[LevelFilter; 7]> {
        let (_folder, db, keyspace) = self.open("levels-first", None)?;
        self.fill(&db, &keyspace, recorder)?;
        let bits = monkey_bits(&keyspace.stats().levels);
        db.close()?;
        let filter =
            |bits_per_key| LevelFilter { kind: FilterKind::Blocked512, bits_per_key, probes: None };
        Ok(bits.map(filter))
    }
}

/// Looks up present or absent keys, which are made while the clock is stopped.
fn measure_gets(
    keyspace: &Keyspace,
    keys: KeySet,
    there: bool,
    count: u64,
    seed: u64,
    watch: &Stopwatch,
) -> Result<ReadDigest> {
    let (mut random, mut tally) = (Random::new(seed), ReadDigest::default());
    let make = |key: &mut Vec<u8>| {
        let index = random.below(keys.num());
        keys.key(if there { keys.present(index) } else { keys.absent(index) }, key);
        Ok(())
    };
    for_each_key(watch, count, make, |key| {
        keyspace.get_with(key, |value| tally.add_value(value))?;
        Ok(())
    })?;
    Ok(tally)
}

/// Reads every block once, because false positives may read any block.
fn warm_up(keyspace: &Keyspace) -> Result<()> {
    let mut cursor = keyspace.cursor::<&[u8]>(..)?;
    cursor.seek_to_first()?;
    while cursor.valid() {
        cursor.next()?;
    }
    Ok(())
}

/// Looks up keys until the advisor has statistics. The advisor decides regularly meanwhile, as it
/// does once a second with background threads.
fn warm_up_advisor(
    db: &Db,
    keyspace: &Keyspace,
    keys: KeySet,
    there: bool,
    count: u64,
) -> Result<()> {
    for part in 0..count.div_ceil(ADVISOR_INTERVAL_GETS) {
        measure_gets(
            keyspace,
            keys,
            there,
            ADVISOR_INTERVAL_GETS,
            100 + part,
            &Stopwatch::default(),
        )?;
        db.advice();
    }
    Ok(())
}

/// Returns bits for each level with the least sum of rates over all sorted runs, within [`BITS`]
/// for each key: every run's rate is in proportion to its entries.
fn monkey_bits(levels: &[LevelStats]) -> [i32; 7] {
    // The tables of level 0 are runs of their own.
    let runs = |level: &LevelStats| if level.level == 0 { level.tables.max(1) } else { 1 };
    let sizes: Vec<f64> =
        levels.iter().map(|level| level.entries as f64 / runs(level) as f64).collect();
    let all: f64 = levels.iter().map(|level| level.entries as f64).sum();
    let bits = |share: f64| -> Vec<f64> {
        let of = |size: &f64| {
            if *size > 0.0 { (-(share * size).ln() / LN_2_SQUARED).max(0.0) } else { 0.0 }
        };
        sizes.iter().map(of).collect()
    };
    let taken = |bits: &[f64]| -> f64 {
        levels.iter().zip(bits).map(|(level, bits)| level.entries as f64 * bits).sum()
    };
    // A smaller share means more bits: bisect its logarithm.
    let (mut low, mut high) = (-80.0f64, 0.0f64);
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        let fits = taken(&bits(middle.exp())) <= all * f64::from(BITS);
        *(if fits { &mut high } else { &mut low }) = middle;
    }
    let exact = bits(high.exp());
    // Whole bits: rounded down for the largest level, which has nearly all keys, so that the memory
    // limit holds; to the nearest for the others.
    let largest = sizes.iter().copied().fold(0.0, f64::max);
    let mut whole = [0; 7];
    for ((whole, exact), size) in whole.iter_mut().zip(&exact).zip(&sizes) {
        *whole = if *size == largest { exact.floor() } else { exact.round().min(40.0) } as i32;
    }
    // A table may be written for a level that is empty now.
    let bits_max = whole.iter().copied().max().unwrap_or(BITS);
    for (whole, size) in whole.iter_mut().zip(&sizes) {
        if *size == 0.0 {
            *whole = bits_max;
        }
    }
    whole
}

impl Subject for LevelBitsCase {
    fn name(&self) -> String {
        match self.way {
            BitsAllocation::Uniform => "10 bits everywhere",
            BitsAllocation::Monkey => "Monkey's optimum",
            BitsAllocation::Advised => "the advisor",
        }
        .to_string()
    }

    fn measure(&mut self, recorder: &mut Recorder<'_>) -> Result<()> {
        let level_filters = match self.way {
            BitsAllocation::Monkey => Some(self.monkey(recorder)?),
            BitsAllocation::Uniform | BitsAllocation::Advised => None,
        };
        let (_folder, db, keyspace) = self.open("levels", level_filters)?;
        self.fill(&db, &keyspace, recorder)?;
        let (keys, round) = (self.keys()?, recorder.round());
        let count = || counters(&db);
        let filters = || count().filter_mebibytes().unwrap_or(0.0);
        let x = self.name();
        let mut record = |figure: Figure, value: f64, evidence: MeasurementEvidence| {
            recorder.record("", &x, figure.name, value, evidence);
        };
        let read = |figure: Figure, there: bool| -> Result<Measurement> {
            let work = |watch: &Stopwatch| {
                measure_gets(&keyspace, keys, there, self.reads, u64::from(round) + 1, watch)
            };
            let read =
                self.place.timed_with_counters(Expectations::READS, &count, self.reads, work)?;
            self.answers.check("", figure.name, round, &x, read.sample.tally)?;
            Ok(read)
        };
        warm_up_advisor(&db, &keyspace, keys, false, self.reads)?;
        warm_up(&keyspace)?;
        let missing = read(MISSING, false)?;
        record(MISSING, missing.sample.thread(), (&missing).into());
        if let Some(vain) = missing.per_operation(|counters| counters.false_reads) {
            record(FALSE_READS, vain * 100.0, missing.flags.clone().into());
        }
        record(FILTERS, filters(), MeasurementEvidence::default());
        if missing.sample.tally.found > 0 {
            return Err("a key that was never put was found".into());
        }
        warm_up_advisor(&db, &keyspace, keys, true, self.reads * 2)?;
        let there = read(HIT, true)?;
        if there.sample.tally.found != self.reads {
            return Err("a key that was put was not found".into());
        }
        record(HIT, there.sample.thread(), (&there).into());
        record(FILTERS_HITS, filters(), MeasurementEvidence::default());
        let levels = keyspace.stats().levels;
        let runs = levels.iter().map(|level| match level.level {
            0 => level.tables,
            _ => u64::from(level.tables > 0),
        });
        record(RUNS, runs.sum::<u64>() as f64, MeasurementEvidence::default());
        Ok(db.close()?)
    }
}

fn meaning(outcome: &Outcome) -> Vec<String> {
    let of = |x: &str, figure: Figure| result_text::figure_text(outcome, "", x, figure.name);
    let vain = |x: &str| result_text::number_format(outcome, "", x, FALSE_READS.name);
    let (plain, monkey, advised) = ("10 bits everywhere", "Monkey's optimum", "the advisor");
    vec![
        format!(
            "A hundred missing keys cause useless searches of {} tables with 10 bits everywhere, \
             {} with Monkey's optimum ({}) and {} with the advisor ({}), which have {}, {} and \
             {} of filters.",
            vain(plain),
            vain(monkey),
            result_text::comparison_text(outcome, "", monkey, plain, FALSE_READS.name),
            vain(advised),
            result_text::comparison_text(outcome, "", advised, plain, FALSE_READS.name),
            of(plain, FILTERS),
            of(monkey, FILTERS),
            of(advised, FILTERS),
        ),
        format!(
            "After only keys that are there the advisor keeps {} of filters, where the others keep \
             {} and {}; such a key takes {}, {} and {}.",
            of(advised, FILTERS_HITS),
            of(plain, FILTERS_HITS),
            of(monkey, FILTERS_HITS),
            of(advised, HIT),
            of(plain, HIT),
            of(monkey, HIT),
        ),
        format!(
            "In time, with all tables in memory, a missing key takes {}, {} and {}: a table that \
             is searched uselessly costs a few dozen nanoseconds there. Where it costs a block \
             from a device, the false reads are what counts; `cold` shows that.",
            of(plain, MISSING),
            of(monkey, MISSING),
            of(advised, MISSING),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monkey_gives_small_levels_more_bits_within_memory() {
        let level =
            |level, tables, entries| LevelStats { level, tables, entries, ..LevelStats::default() };
        let levels = [level(0, 2, 20_000), level(1, 4, 100_000), level(2, 9, 1_000_000)];
        let bits = monkey_bits(&levels);
        assert!(bits[0] > bits[1] && bits[1] > bits[2], "{bits:?}");
        let taken: i64 =
            levels.iter().zip(bits).map(|(l, b)| l.entries as i64 * i64::from(b)).sum();
        let all = 1_120_000 * i64::from(BITS);
        assert!(taken <= all + all / 100 && taken > all * 9 / 10 - 1_000_000, "{taken} of {all}");
        // Ten times smaller: 4.8 bits more, up to rounding.
        assert!((4..=6).contains(&(bits[1] - bits[2])), "{bits:?}");
    }
}

//! `amplification`: bytes that a growing store writes, reads and stores for each byte of keys and
//! values.

use umbel_keygen::keys::{KeySet, KeyShape, Random};

use crate::engine::{Engine, EngineSettings, ReadDigest, Result, Store, Write, WriteSource};
use crate::experiment::lab_context::{MeasureContext, Measurement};
use crate::experiment::{
    ArticleSource as Article, Experiment, ExperimentOptions, Figure, ResourceNeeds, Subject,
    owned_settings,
};
use crate::experiments::result_text;
use crate::measure::Stopwatch;
use crate::measure::disk_usage;
use crate::measure::sanity_checks::Expectations;
use crate::results::outcome::{Better, Outcome, Scale};
use crate::results::sample_recorder::{MeasurementEvidence, Recorder, StopRequested};
use crate::workload::answer_check::AnswerCheck;
use crate::workload::prepared_writes::{PreparedWrites, for_each_key};

const WRITTEN: Figure = Figure {
    name: "write amplification",
    unit: "bytes per byte put",
    better: Better::Lower,
    plot: true,
};
const SPACE: Figure = Figure {
    name: "space amplification",
    unit: "bytes on disk per live byte",
    better: Better::Lower,
    plot: true,
};
const SEARCHED: Figure = Figure {
    name: "read amplification, missing",
    unit: "tables per 100 gets",
    better: Better::Lower,
    plot: true,
};
const PUT: Figure = Figure { name: "put", unit: "ns", better: Better::Lower, plot: true };
const HIT: Figure = Figure { name: "get, there", unit: "ns", better: Better::Lower, plot: true };
const MISSING: Figure =
    Figure { name: "get, missing", unit: "ns", better: Better::Lower, plot: true };

const KEY_BYTES: usize = 16;
const VALUE_BYTES: usize = 100;

/// The definition.
pub const EXPERIMENT: Experiment = Experiment {
    name: "amplification",
    title: "What growing costs",
    question: "As a store grows: what is written, read and kept for each byte?",
    hypothesis: "With each further level every byte is written some more times, and a missing key \
                 meets one more filter. With filters at every level the time of a missing key \
                 hardly grows.",
    source: Article {
        name: "the makers of log-structured stores",
        part: "the three amplifications",
    },
    axis: "keys",
    figures: &[WRITTEN, SPACE, SEARCHED, PUT, HIT, MISSING],
    seeds: &[],
    options: ExperimentOptions {
        settings: |scale| {
            let rows = [
                (
                    "keys",
                    format!("of {KEY_BYTES} random bytes, values of {VALUE_BYTES}, in no order"),
                ),
                (
                    "put",
                    "until nothing is left to do in the background, from one size to the next"
                        .into(),
                ),
                (
                    "reads",
                    format!(
                        "{} for each figure, with {} of cache",
                        reads(scale),
                        scale.choose("1 GiB", "4 GiB")
                    ),
                ),
            ];
            owned_settings(rows)
        },
        needs: |scale| {
            let keys_max = sizes(scale).iter().map(|(_, keys)| *keys).max().unwrap_or(0);
            ResourceNeeds {
                disk_bytes: keys_max * 350,
                memory_bytes: scale.choose(1 << 30, 6 << 30),
            }
        },
        rounds: |scale| scale.choose(4, 3),
        several_engines: true,
        warms_up: false,
        takes_data: false,
        unsupported: |_| None,
    },
    subjects: |lab| {
        let answers = AnswerCheck::default();
        let case = |engine: &Engine| {
            let answers = answers.clone();
            let series = if lab.engines.len() > 1 { engine.name } else { "" };
            let (place, scale) = (lab.measure_context(), lab.scale);
            Box::new(GrowthCase { place, engine: *engine, series, scale, answers })
                as Box<dyn Subject>
        };
        Ok(lab.engines.iter().map(case).collect())
    },
    meaning,
};

fn sizes(scale: Scale) -> Vec<(&'static str, u64)> {
    scale.choose(
        vec![("100 k", 100_000), ("300 k", 300_000), ("1 M", 1_000_000)],
        vec![
            ("1 M", 1_000_000),
            ("3 M", 3_000_000),
            ("10 M", 10_000_000),
            ("30 M", 30_000_000),
            ("100 M", 100_000_000),
        ],
    )
}

fn reads(scale: Scale) -> u64 {
    scale.choose(100_000, 1_000_000)
}

struct GrowthCase {
    place: MeasureContext,
    engine: Engine,
    series: &'static str,
    scale: Scale,
    answers: AnswerCheck,
}

struct GrowthWrites<'a> {
    keys: KeySet,
    numbers: std::ops::Range<u64>,
    recorder: &'a Recorder<'a>,
    stopped: Option<StopRequested>,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl WriteSource for GrowthWrites<'_> {
    fn next(&mut self) -> Option<Write<'_>> {
        let number = self.numbers.next()?;
        if number.is_multiple_of(1 << 18)
            && let Err(stopped) = self.recorder.next("growing")
        {
            self.stopped = Some(stopped);
            return None;
        }
        self.keys.key(self.keys.present(number), &mut self.key);
        self.keys.value(number, &mut self.value);
        Some((&self.key, Some(&self.value)))
    }
}

impl GrowthCase {
    fn grow(
        &self,
        store: &dyn Store,
        keys: KeySet,
        numbers: std::ops::Range<u64>,
        recorder: &Recorder<'_>,
    ) -> Result<Measurement> {
        let (puts, key, value) = (numbers.end - numbers.start, Vec::new(), Vec::new());
        let mut growth = GrowthWrites { keys, numbers, recorder, stopped: None, key, value };
        let grown = self.place.timed_with(Expectations::WRITES, store, puts, |watch| {
            store.write_all(&mut PreparedWrites::new(&mut growth, watch))?;
            match growth.stopped {
                Some(stopped) => Err(stopped.into()),
                None => Ok(ReadDigest::default()),
            }
        })?;
        Ok(grown.and_then(self.place.settle_store(store, || Ok(()))?))
    }

    fn measure_gets(
        &self,
        store: &dyn Store,
        keys: KeySet,
        num: u64,
        there: bool,
        seed: u64,
        watch: &Stopwatch,
    ) -> Result<ReadDigest> {
        let (mut reader, mut random) = (store.reader(0)?, Random::new(seed));
        let mut tally = ReadDigest::default();
        let make = |key: &mut Vec<u8>| {
            let index = random.below(num);
            keys.key(if there { keys.present(index) } else { keys.absent(index) }, key);
            Ok(())
        };
        for_each_key(watch, reads(self.scale), make, |key| reader.get(key, &mut tally))?;
        Ok(tally)
    }

    /// Reads all keys twice; the second pass is measured.
    fn read(
        &self,
        store: &dyn Store,
        keys: KeySet,
        (x, num): (&'static str, u64),
        there: bool,
        recorder: &Recorder<'_>,
    ) -> Result<Measurement> {
        let figure = if there { HIT } else { MISSING };
        recorder.next(figure.name)?;
        self.measure_gets(store, keys, num, there, 0, &Stopwatch::default())?;
        let (count, round) = (reads(self.scale), recorder.round());
        let work = |watch: &Stopwatch| {
            self.measure_gets(store, keys, num, there, u64::from(round) + 1, watch)
        };
        // The data need not fit the cache.
        let expects = Expectations { warm: false, busy: false, ..Expectations::READS };
        let read = self.place.timed_with(expects, store, count, work)?;
        if read.sample.tally.found != if there { count } else { 0 } {
            return Err("a wrong number of keys was found".into());
        }
        self.answers.check(x, figure.name, round, self.engine.name, read.sample.tally)?;
        Ok(read)
    }
}

impl Subject for GrowthCase {
    fn name(&self) -> String {
        self.engine.name.to_string()
    }

    fn measure(&mut self, recorder: &mut Recorder<'_>) -> Result<()> {
        let sizes = sizes(self.scale);
        let keys_max = sizes.last().map_or(1, |(_, num)| *num);
        let keys = KeySet::new(KeyShape::Random, keys_max, KEY_BYTES, VALUE_BYTES)?;
        let folder = self.place.folder("store")?;
        let cache_bytes = self.scale.choose(1 << 30, 4 << 30);
        let store = folder
            .open(&self.engine, &EngineSettings { cache_bytes, ..EngineSettings::default() })?;
        let (mut from, mut written) = (0, Some(0));
        for (x, num) in sizes {
            let grown = self.grow(&*store, keys, from..num, recorder)?;
            written = written.zip(grown.sample.written_bytes).map(|(a, b)| a + b);
            let bytes = num as f64 * (KEY_BYTES + VALUE_BYTES) as f64;
            let hit = self.read(&*store, keys, (x, num), true, recorder)?;
            let missing = self.read(&*store, keys, (x, num), false, recorder)?;
            let series = self.series;
            let mut record = |figure: Figure, value: f64, evidence: MeasurementEvidence| {
                recorder.record(series, x, figure.name, value, evidence);
            };
            record(PUT, grown.sample.wall(), (&grown).into());
            // Some file systems count no written bytes.
            if let Some(written) = written.filter(|written| *written > 0) {
                record(WRITTEN, written as f64 / bytes, grown.flags.clone().into());
            }
            let taken = disk_usage::bytes(folder.path())? as f64;
            record(SPACE, taken / bytes, MeasurementEvidence::default());
            record(HIT, hit.sample.wall(), (&hit).into());
            record(MISSING, missing.sample.wall(), (&missing).into());
            if let Some(vain) = missing.per_operation(|counters| counters.false_reads) {
                record(SEARCHED, vain * 100.0, missing.flags.clone().into());
            }
            from = num;
        }
        store.close()
    }
}

fn meaning(outcome: &Outcome) -> Vec<String> {
    let places = outcome.places();
    let (Some(first), Some(last)) = (places.first(), places.last()) else { return Vec::new() };
    let each = |series: &&str| {
        let of =
            |x: &str, figure: Figure| result_text::figure_text(outcome, series, x, figure.name);
        let prefix = if series.is_empty() { String::new() } else { format!("{series}: ") };
        format!(
            "{prefix}From {first} to {last} keys the bytes written for each byte put go from {} to \
             {}, and those kept for each live byte from {} to {}. A missing key takes {} and then \
             {}, one that is there {} and then {}; a put takes {} and then {} on the way.",
            result_text::number_format(outcome, series, first, WRITTEN.name),
            result_text::number_format(outcome, series, last, WRITTEN.name),
            result_text::number_format(outcome, series, first, SPACE.name),
            result_text::number_format(outcome, series, last, SPACE.name),
            of(first, MISSING),
            of(last, MISSING),
            of(first, HIT),
            of(last, HIT),
            of(first, PUT),
            of(last, PUT),
        )
    };
    outcome.series().iter().map(each).collect()
}

//! `amplification`: what is written, read and kept for each byte, as a store grows.

use super::say;
use crate::ahead::{Ahead, each_key};
use crate::answers::Answers;
use crate::disk;
use crate::engine::{Engine, Result, Settings, Source, Store, Tally, Write};
use crate::experiment::{Experiment, Figure, How, Needs, Source as Article, Subject, named};
use crate::keys::{Keys, Random, Shape};
use crate::lab::{Place, Timed};
use crate::measure::Stopwatch;
use crate::outcome::{Better, Outcome, Scale};
use crate::recorder::{Evidence, Recorder, Stopped};
use crate::sanity::Expects;

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
    asks: "As a store grows: what is written, read and kept for each byte?",
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
    how: How {
        settings: |scale| {
            let said = [
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
            named(said)
        },
        needs: |scale| {
            let most = sizes(scale).iter().map(|(_, keys)| *keys).max().unwrap_or(0);
            Needs { disk_bytes: most * 350, memory_bytes: scale.choose(1 << 30, 6 << 30) }
        },
        rounds: |scale| scale.choose(4, 3),
        several_engines: true,
        warms_up: false,
        takes_data: false,
        wants: |_| None,
    },
    subjects: |lab| {
        let answers = Answers::default();
        let case = |engine: &Engine| {
            let answers = answers.clone();
            let series = if lab.engines.len() > 1 { engine.name } else { "" };
            let (place, scale) = (lab.place(), lab.scale);
            Box::new(Case { place, engine: *engine, series, scale, answers }) as Box<dyn Subject>
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

struct Case {
    place: Place,
    engine: Engine,
    series: &'static str,
    scale: Scale,
    answers: Answers,
}

struct Growth<'a> {
    keys: Keys,
    numbers: std::ops::Range<u64>,
    recorder: &'a Recorder<'a>,
    stopped: Option<Stopped>,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Source for Growth<'_> {
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

impl Case {
    fn grow(
        &self,
        store: &dyn Store,
        keys: Keys,
        numbers: std::ops::Range<u64>,
        recorder: &Recorder<'_>,
    ) -> Result<Timed> {
        let (puts, key, value) = (numbers.end - numbers.start, Vec::new(), Vec::new());
        let mut growth = Growth { keys, numbers, recorder, stopped: None, key, value };
        let grown = self.place.timed_with(Expects::WRITES, store, puts, |watch| {
            store.write_all(&mut Ahead::new(&mut growth, watch))?;
            match growth.stopped {
                Some(stopped) => Err(stopped.into()),
                None => Ok(Tally::default()),
            }
        })?;
        Ok(grown.and_then(self.place.settled(store, || Ok(()))?))
    }

    fn ask(
        &self,
        store: &dyn Store,
        keys: Keys,
        num: u64,
        there: bool,
        seed: u64,
        watch: &Stopwatch,
    ) -> Result<Tally> {
        let (mut reader, mut random) = (store.reader(0)?, Random::new(seed));
        let mut tally = Tally::default();
        let make = |key: &mut Vec<u8>| {
            let index = random.below(num);
            keys.key(if there { keys.present(index) } else { keys.absent(index) }, key);
            Ok(())
        };
        each_key(watch, reads(self.scale), make, |key| reader.get(key, &mut tally))?;
        Ok(tally)
    }

    /// Reads twice, the second time by the clock.
    fn read(
        &self,
        store: &dyn Store,
        keys: Keys,
        (x, num): (&'static str, u64),
        there: bool,
        recorder: &Recorder<'_>,
    ) -> Result<Timed> {
        let figure = if there { HIT } else { MISSING };
        recorder.next(figure.name)?;
        self.ask(store, keys, num, there, 0, &Stopwatch::default())?;
        let (count, round) = (reads(self.scale), recorder.round());
        let work =
            |watch: &Stopwatch| self.ask(store, keys, num, there, u64::from(round) + 1, watch);
        // Not all of it need fit the cache.
        let expects = Expects { warm: false, busy: false, ..Expects::READS };
        let read = self.place.timed_with(expects, store, count, work)?;
        if read.sample.tally.found != if there { count } else { 0 } {
            return Err("a wrong number of keys was found".into());
        }
        self.answers.check(x, figure.name, round, self.engine.name, read.sample.tally)?;
        Ok(read)
    }
}

impl Subject for Case {
    fn name(&self) -> String {
        self.engine.name.to_string()
    }

    fn measure(&mut self, recorder: &mut Recorder<'_>) -> Result<()> {
        let sizes = sizes(self.scale);
        let most = sizes.last().map_or(1, |(_, num)| *num);
        let keys = Keys::new(Shape::Random, most, KEY_BYTES, VALUE_BYTES)?;
        let folder = self.place.folder("store")?;
        let cache_bytes = self.scale.choose(1 << 30, 4 << 30);
        let store = folder.open(&self.engine, &Settings { cache_bytes, ..Settings::default() })?;
        let (mut from, mut written) = (0, Some(0));
        for (x, num) in sizes {
            let grown = self.grow(&*store, keys, from..num, recorder)?;
            written = written.zip(grown.sample.written_bytes).map(|(a, b)| a + b);
            let bytes = num as f64 * (KEY_BYTES + VALUE_BYTES) as f64;
            let hit = self.read(&*store, keys, (x, num), true, recorder)?;
            let missing = self.read(&*store, keys, (x, num), false, recorder)?;
            let series = self.series;
            let mut record = |figure: Figure, value: f64, evidence: Evidence| {
                recorder.record(series, x, figure.name, value, evidence);
            };
            record(PUT, grown.sample.wall(), (&grown).into());
            // Some file systems count nothing.
            if let Some(written) = written.filter(|written| *written > 0) {
                record(WRITTEN, written as f64 / bytes, grown.flags.clone().into());
            }
            let taken = disk::bytes(folder.path())? as f64;
            record(SPACE, taken / bytes, Evidence::default());
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
        let of = |x: &str, figure: Figure| say::figure(outcome, series, x, figure.name);
        let who = if series.is_empty() { String::new() } else { format!("{series}: ") };
        format!(
            "{who}From {first} to {last} keys the bytes written for each byte put go from {} to \
             {}, and those kept for each live byte from {} to {}. A missing key takes {} and then \
             {}, one that is there {} and then {}; a put takes {} and then {} on the way.",
            say::number(outcome, series, first, WRITTEN.name),
            say::number(outcome, series, last, WRITTEN.name),
            say::number(outcome, series, first, SPACE.name),
            say::number(outcome, series, last, SPACE.name),
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

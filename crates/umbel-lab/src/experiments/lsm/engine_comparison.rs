//! `rivals`: db_bench's set and YCSB's six workloads on every engine that is built in.
//!
//! INVARIANT: all engines are asked the same; what they answer is compared, and a run in which two
//! differ stops.

use crate::ahead::{Ahead, each_key};
use crate::answers::Answers;
use crate::engine::{BATCH_ENTRIES, Engine, Reader, Result, Settings, Source, Store, Tally, Write};
use crate::experiment::{Experiment, Figure, How, Needs, Source as Article, Subject, named};
use crate::keys::{Keys, Random, Shape};
use crate::lab::{Place, Timed};
use crate::measure::Stopwatch;
use crate::number::{ratio, short};
use crate::outcome::{Better, Outcome, Scale};
use crate::recorder::Recorder;
use crate::sanity::Expects;
use crate::ycsb::{self, Records, Ycsb};

const fn nanoseconds(name: &'static str, unit: &'static str) -> Figure {
    Figure { name, unit, better: Better::Lower, plot: true }
}

const FILLSEQ: Figure = nanoseconds("fillseq", "ns per put");
const FILLBATCH: Figure = nanoseconds("fillbatch", "ns per put");
const FILLRANDOM: Figure = nanoseconds("fillrandom", "ns per put");
const SETTLED: Figure = nanoseconds("fillrandom, settled", "ns per put");
const OVERWRITE: Figure = nanoseconds("overwrite", "ns per put");
const READRANDOM: Figure = nanoseconds("readrandom", "ns per get");
const READMISSING: Figure = nanoseconds("readmissing", "ns per get");
const READHOT: Figure = nanoseconds("readhot", "ns per get");
const SEEKRANDOM: Figure = nanoseconds("seekrandom", "ns per seek and ten entries");
const READSEQ: Figure = nanoseconds("readseq", "ns per entry");
const YCSB: [Figure; 6] = [
    nanoseconds("ycsb-a", "ns per operation"),
    nanoseconds("ycsb-b", "ns per operation"),
    nanoseconds("ycsb-c", "ns per operation"),
    nanoseconds("ycsb-d", "ns per operation"),
    nanoseconds("ycsb-e", "ns per operation"),
    nanoseconds("ycsb-f", "ns per operation"),
];
const FIGURES: &[Figure] = &[
    FILLSEQ,
    FILLBATCH,
    FILLRANDOM,
    SETTLED,
    OVERWRITE,
    READRANDOM,
    READMISSING,
    READHOT,
    SEEKRANDOM,
    READSEQ,
    YCSB[0],
    YCSB[1],
    YCSB[2],
    YCSB[3],
    YCSB[4],
    YCSB[5],
];

/// The definition.
pub const EXPERIMENT: Experiment = Experiment {
    name: "rivals",
    title: "Side by side",
    asks: "db_bench's set and YCSB A to F: how does each engine do, on the same questions?",
    hypothesis: "A log-structured store writes faster than a B-tree and reads slower. With filters \
                 at every level, hash indexes in blocks and memory laid out for few cache misses \
                 it need not read slower.",
    source: Article { name: "db_bench and YCSB", part: "the usual set" },
    axis: "keys",
    figures: FIGURES,
    seeds: &[],
    how: How {
        settings: |scale| {
            let said = [
                ("keys", "of 16 random bytes, values of 100 bytes".to_string()),
                (
                    "reads",
                    format!("{} for each figure; all that is read lies in memory", reads(scale)),
                ),
                (
                    "YCSB",
                    format!(
                        "{} operations each, zipfian with 0.99 by the continuous law, each settled \
                         before the next, one after the other on one store; before ycsb-c, which \
                         reads alone, all is read once and the same operations are done once",
                        operations(scale)
                    ),
                ),
                (
                    "durability",
                    "what a put survives is said in the settings of each engine; umbel, rocksdb, \
                     leveldb, fjall and lmdb keep it through the death of the process, redb, \
                     sled and pebble not all of it"
                        .to_string(),
                ),
                (
                    "fillbatch",
                    format!(
                        "fillseq in batches of {BATCH_ENTRIES}, each there as a whole or not at \
                         all; lmdb, redb and surrealkv have no other way to write so many, and \
                         gather as many everywhere but in YCSB; the others put one by one but here"
                    ),
                ),
                (
                    "memtables",
                    format!(
                        "{} MiB where an engine can be told; a million keys fit into 128, so that \
                         there fillrandom is memtable and log, and `settled` the tables too",
                        settings(scale).memtable_bytes >> 20
                    ),
                ),
                ("answers", "compared between all engines, every byte of every value".to_string()),
            ];
            named(said)
        },
        needs: |scale| {
            let most = sizes(scale).iter().map(|(_, num)| *num).max().unwrap_or(0);
            Needs { disk_bytes: most * 900, memory_bytes: scale.choose(1 << 30, 8 << 30) }
        },
        rounds: |scale| scale.choose(4, 4),
        several_engines: true,
        warms_up: false,
        takes_data: false,
        wants: |_| None,
    },
    subjects: |lab| {
        let answers = Answers::default();
        let case = |engine: &Engine, (x, num): &(&'static str, u64)| {
            let case = Case {
                place: lab.place(),
                engine: *engine,
                x,
                num: *num,
                scale: lab.scale,
                answers: answers.clone(),
            };
            Box::new(case) as Box<dyn Subject>
        };
        let sizes = sizes(lab.scale);
        let each = |size| lab.engines.iter().map(move |engine| (engine, size));
        Ok(sizes.iter().flat_map(each).map(|(engine, size)| case(engine, size)).collect())
    },
    meaning,
};

fn sizes(scale: Scale) -> Vec<(&'static str, u64)> {
    scale.choose(vec![("200 k", 200_000)], vec![("1 M", 1_000_000), ("10 M", 10_000_000)])
}

fn reads(scale: Scale) -> u64 {
    scale.choose(100_000, 1_000_000)
}

fn operations(scale: Scale) -> u64 {
    scale.choose(50_000, 500_000)
}

/// How a store takes what is put.
type Writing = fn(&dyn Store, &mut dyn Source) -> Result<()>;

const ONE_BY_ONE: Writing = |store, source| store.write_all(source);
const IN_BATCHES: Writing = |store, source| store.write_in_batches(source);

struct Case {
    place: Place,
    engine: Engine,
    x: &'static str,
    num: u64,
    scale: Scale,
    answers: Answers,
}

struct Puts<'a> {
    keys: Keys,
    names: std::slice::Iter<'a, u64>,
    /// Mixed into names to make other values.
    salt: u64,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl<'a> Puts<'a> {
    fn new(keys: Keys, names: &'a [u64], salt: u64) -> Puts<'a> {
        Puts { keys, names: names.iter(), salt, key: Vec::new(), value: Vec::new() }
    }
}

impl Source for Puts<'_> {
    fn next(&mut self) -> Option<Write<'_>> {
        let name = *self.names.next()?;
        self.keys.key(name, &mut self.key);
        self.keys.value(name ^ self.salt, &mut self.value);
        Some((&self.key, Some(&self.value)))
    }
}

impl Case {
    fn put(&self, store: &dyn Store, mut puts: Puts<'_>, write: Writing) -> Result<Timed> {
        self.place.timed_with(Expects::WRITES, store, puts.names.len() as u64, |watch| {
            write(store, &mut Ahead::new(&mut puts, watch))?;
            Ok(Tally::default())
        })
    }

    fn record(&self, recorder: &mut Recorder<'_>, figure: Figure, value: f64, timed: &Timed) {
        recorder.record(self.engine.name, self.x, figure.name, value, timed);
    }

    /// Compares answers with those of the engine before.
    fn check(&self, figure: Figure, round: u32, tally: Tally) -> Result<()> {
        self.answers.check(self.x, figure.name, round, self.engine.name, tally)
    }

    fn fill_in_order(&self, keys: Keys, recorder: &mut Recorder<'_>) -> Result<()> {
        let names = keys.sorted();
        for (figure, write) in [(FILLSEQ, ONE_BY_ONE), (FILLBATCH, IN_BATCHES)] {
            recorder.next(figure.name)?;
            let folder = self.place.folder("store-in-order")?;
            let store = folder.open(&self.engine, &settings(self.scale))?;
            let filled = self.put(&*store, Puts::new(keys, &names, 0), write)?;
            self.record(recorder, figure, filled.sample.wall(), &filled);
            store.close()?;
        }
        Ok(())
    }

    fn fill(&self, store: &dyn Store, keys: Keys, recorder: &mut Recorder<'_>) -> Result<()> {
        recorder.next("fillrandom")?;
        let names = keys.shuffled();
        let filled = self.put(store, Puts::new(keys, &names, 0), ONE_BY_ONE)?;
        self.record(recorder, FILLRANDOM, filled.sample.wall(), &filled);
        let settled = self.place.settled(store, || Ok(()))?;
        let both = filled.and_then(settled);
        self.record(recorder, SETTLED, both.sample.wall(), &both);
        recorder.next("overwrite")?;
        let again: Vec<u64> = names.into_iter().step_by(5).collect();
        let filled = self.put(store, Puts::new(keys, &again, 1 << 60), ONE_BY_ONE)?;
        self.record(recorder, OVERWRITE, filled.sample.wall(), &filled);
        self.place.settled(store, || Ok(()))?;
        Ok(())
    }

    fn read(&self, store: &dyn Store, keys: Keys, recorder: &mut Recorder<'_>) -> Result<()> {
        recorder.next("warming up")?;
        let mut reader = store.reader(0)?;
        let (count, num, round) = (reads(self.scale), self.num, recorder.round());
        let mut warm = Tally::default();
        reader.scan(&mut warm)?;
        let hot = (num / 100).max(1);
        let name = |figure: Figure, random: &mut Random| match figure.name {
            "readmissing" => keys.absent(random.below(num)),
            "readhot" => keys.present(random.below(hot)),
            _ => keys.present(random.below(num)),
        };
        for figure in [READRANDOM, READMISSING, READHOT, SEEKRANDOM] {
            recorder.next(figure.name)?;
            let seeks = figure.name == SEEKRANDOM.name;
            let count = if seeks { count / 10 } else { count };
            let mut ask = |seed: u64, watch: &Stopwatch| -> Result<Tally> {
                let (mut random, mut tally) = (Random::new(seed), Tally::default());
                let make = |key: &mut Vec<u8>| {
                    keys.key(name(figure, &mut random), key);
                    Ok(())
                };
                each_key(watch, count, make, |key| one(&mut *reader, seeks, key, &mut tally))?;
                Ok(tally)
            };
            ask(77, &Stopwatch::default())?;
            let work = |watch: &Stopwatch| ask(u64::from(round) + 1, watch);
            let read = self.place.timed_with(Expects::READS, store, count, work)?;
            self.check(figure, round, read.sample.tally)?;
            self.record(recorder, figure, read.sample.thread(), &read);
        }
        recorder.next("readseq")?;
        let read = self.place.timed(Expects::READS, store, num, || {
            let mut tally = Tally::default();
            reader.scan(&mut tally)?;
            Ok(tally)
        })?;
        self.check(READSEQ, round, read.sample.tally)?;
        self.record(recorder, READSEQ, read.sample.thread(), &read);
        Ok(())
    }

    fn ycsb(&self, store: &dyn Store, keys: Keys, recorder: &mut Recorder<'_>) -> Result<()> {
        let (count, round) = (operations(self.scale), recorder.round());
        let mut records = Records { keys, more: 0 };
        for (workload, figure) in Ycsb::ALL.into_iter().zip(YCSB) {
            recorder.next(workload.name())?;
            let seed = u64::from(round) * 10 + 3;
            let way = self.engine.fresh_way;
            if workload == Ycsb::C {
                // It reads alone, from caches that hold what it asks for: the tables that the
                // updates before it made are in none yet, and LevelDB compacts what is asked often.
                self.place.settled(store, || Ok(()))?;
                store.reader(way)?.scan(&mut Tally::default())?;
                let watch = Stopwatch::default();
                ycsb::run(workload, (store, way), &mut records, (count, seed), &watch)?;
            }
            // What the one before left to do is not this one's work.
            self.place.settled(store, || Ok(()))?;
            let expects = if workload == Ycsb::C { Expects::READS } else { Expects::WRITES };
            let ran = self.place.timed_with(expects, store, count, |watch| {
                ycsb::run(workload, (store, way), &mut records, (count, seed), watch)
            })?;
            self.check(figure, round, ran.sample.tally)?;
            self.record(recorder, figure, ran.sample.wall(), &ran);
        }
        Ok(())
    }
}

fn one(reader: &mut dyn Reader, seeks: bool, key: &[u8], tally: &mut Tally) -> Result<()> {
    if seeks { reader.seek(key, 10, tally) } else { reader.get(key, tally) }
}

fn settings(scale: Scale) -> Settings {
    // As large a share of the data in memtables as of ten million keys in the usual ones.
    let memtable_bytes = scale.choose(4 << 20, 128 << 20);
    Settings { cache_bytes: 2 << 30, memtable_bytes, ..Settings::default() }
}

impl Subject for Case {
    fn name(&self) -> String {
        format!("{}, {} keys", self.engine.name, self.x)
    }

    fn measure(&mut self, recorder: &mut Recorder<'_>) -> Result<()> {
        let keys = Keys::new(Shape::Random, self.num, 16, 100)?;
        self.fill_in_order(keys, recorder)?;
        let folder = self.place.folder("store")?;
        let store = folder.open(&self.engine, &settings(self.scale))?;
        self.fill(&*store, keys, recorder)?;
        self.read(&*store, keys, recorder)?;
        self.ycsb(&*store, keys, recorder)?;
        store.close()
    }
}

fn meaning(outcome: &Outcome) -> Vec<String> {
    let ours = "umbel";
    if !outcome.series().contains(&ours) {
        return vec!["umbel did not take part, so that nothing stands beside it.".to_string()];
    }
    if outcome.series().len() < 2 {
        return vec![
            "Only one engine took part: `cargo xtask rivals lab run rivals --engine all` builds \
             and asks all of them."
                .to_string(),
        ];
    }
    let mut said = Vec::new();
    for x in outcome.places() {
        let (mut won, mut even, mut lost) = (Vec::new(), Vec::new(), Vec::new());
        let mut unsound = Vec::new();
        for figure in &outcome.figures {
            let of = |series: &str| outcome.spread(series, x, &figure.name);
            let Some(own) = of(ours) else { continue };
            let others = || outcome.series().into_iter().filter(|series| *series != ours);
            unsound.extend(
                others()
                    .filter(|series| of(series).is_none())
                    .map(|series| format!("{} of {series}", figure.name)),
            );
            let others = others().filter_map(|series| Some((series, of(series)?)));
            let Some((name, best)) = others.min_by(|a, b| a.1.median.total_cmp(&b.1.median)) else {
                continue;
            };
            let text = format!(
                "{} {} ({} for {} of {name})",
                figure.name,
                ratio(own.median, best.median),
                short(own.median),
                short(best.median)
            );
            if own.equals(&best) {
                even.push(text);
            } else if own.median < best.median {
                won.push(text);
            } else {
                lost.push(text);
            }
        }
        let list = |texts: &[String]| {
            if texts.is_empty() { "nothing".to_string() } else { texts.join(", ") }
        };
        said.push(format!(
            "{x} keys. Ahead of the best rival, in shares of its time: {}.",
            list(&won)
        ));
        said.push(format!("{x} keys. Equal within the spread: {}.", list(&even)));
        said.push(format!("{x} keys. Behind: {}.", list(&lost)));
        if !unsound.is_empty() {
            said.push(format!("{x} keys. Not sound, and so not compared: {}.", list(&unsound)));
        }
    }
    said
}

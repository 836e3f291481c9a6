//! `rivals`: db_bench's set and YCSB's six workloads on every engine that is built in.
//!
//! INVARIANT: all engines get the same operations; their answers are compared, and a difference
//! between two engines stops the run.

use umbel_keygen::keys::{KeySet, KeyShape, Random};

use crate::engine::{
    BATCH_ENTRIES, Engine, EngineSettings, ReadDigest, Reader, Result, Store, Write, WriteSource,
};
use crate::experiment::lab_context::{MeasureContext, Measurement};
use crate::experiment::{
    ArticleSource as Article, Experiment, ExperimentOptions, Figure, ResourceNeeds, Subject,
    owned_settings,
};
use crate::measure::Stopwatch;
use crate::measure::sanity_checks::Expectations;
use crate::number_format::{ratio, short};
use crate::results::outcome::{Better, Outcome, Scale};
use crate::results::sample_recorder::Recorder;
use crate::workload::answer_check::AnswerCheck;
use crate::workload::prepared_writes::{PreparedWrites, for_each_key};
use crate::workload::ycsb::{self, Ycsb, YcsbKeys};

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
    question: "db_bench's set and YCSB A to F: how does each engine do, with the same operations?",
    hypothesis: "A log-structured store writes faster than a B-tree and reads slower. With filters \
                 at every level, hash indexes in blocks and memory laid out for few cache misses \
                 it need not read slower.",
    source: Article { name: "db_bench and YCSB", part: "the usual set" },
    axis: "keys",
    figures: FIGURES,
    seeds: &[],
    options: ExperimentOptions {
        settings: |scale| {
            let rows = [
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
                         all; lmdb, redb and surrealkv write that many in no other way, and \
                         gather as many everywhere but in YCSB; the others put one by one but here"
                    ),
                ),
                (
                    "memtables",
                    format!(
                        "{} MiB where an engine has the setting; a million keys fit into 128, so \
                         that there fillrandom is memtable and log, and `settled` the tables too",
                        settings(scale).memtable_bytes >> 20
                    ),
                ),
                ("answers", "compared between all engines, every byte of every value".to_string()),
            ];
            owned_settings(rows)
        },
        needs: |scale| {
            let keys_max = sizes(scale).iter().map(|(_, num)| *num).max().unwrap_or(0);
            ResourceNeeds {
                disk_bytes: keys_max * 900,
                memory_bytes: scale.choose(1 << 30, 8 << 30),
            }
        },
        rounds: |scale| scale.choose(4, 4),
        several_engines: true,
        warms_up: false,
        takes_data: false,
        unsupported: |_| None,
    },
    subjects: |lab| {
        let answers = AnswerCheck::default();
        let case = |engine: &Engine, (x, num): &(&'static str, u64)| {
            let case = EngineCase {
                place: lab.measure_context(),
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

/// Method of a store for a source of writes.
type WriteMode = fn(&dyn Store, &mut dyn WriteSource) -> Result<()>;

const ONE_BY_ONE: WriteMode = |store, source| store.write_all(source);
const IN_BATCHES: WriteMode = |store, source| store.write_in_batches(source);

struct EngineCase {
    place: MeasureContext,
    engine: Engine,
    x: &'static str,
    num: u64,
    scale: Scale,
    answers: AnswerCheck,
}

struct PutWrites<'a> {
    keys: KeySet,
    names: std::slice::Iter<'a, u64>,
    /// Number that is mixed into names to make different values.
    salt: u64,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl<'a> PutWrites<'a> {
    fn new(keys: KeySet, names: &'a [u64], salt: u64) -> PutWrites<'a> {
        PutWrites { keys, names: names.iter(), salt, key: Vec::new(), value: Vec::new() }
    }
}

impl WriteSource for PutWrites<'_> {
    fn next(&mut self) -> Option<Write<'_>> {
        let name = *self.names.next()?;
        self.keys.key(name, &mut self.key);
        self.keys.value(name ^ self.salt, &mut self.value);
        Some((&self.key, Some(&self.value)))
    }
}

impl EngineCase {
    fn put(
        &self,
        store: &dyn Store,
        mut puts: PutWrites<'_>,
        write: WriteMode,
    ) -> Result<Measurement> {
        self.place.timed_with(Expectations::WRITES, store, puts.names.len() as u64, |watch| {
            write(store, &mut PreparedWrites::new(&mut puts, watch))?;
            Ok(ReadDigest::default())
        })
    }

    fn record(&self, recorder: &mut Recorder<'_>, figure: Figure, value: f64, timed: &Measurement) {
        recorder.record(self.engine.name, self.x, figure.name, value, timed);
    }

    /// Compares the answers of an engine with those of the previous engine.
    fn check(&self, figure: Figure, round: u32, tally: ReadDigest) -> Result<()> {
        self.answers.check(self.x, figure.name, round, self.engine.name, tally)
    }

    fn fill_in_order(&self, keys: KeySet, recorder: &mut Recorder<'_>) -> Result<()> {
        let names = keys.sorted();
        for (figure, write) in [(FILLSEQ, ONE_BY_ONE), (FILLBATCH, IN_BATCHES)] {
            recorder.next(figure.name)?;
            let folder = self.place.folder("store-in-order")?;
            let store = folder.open(&self.engine, &settings(self.scale))?;
            let filled = self.put(&*store, PutWrites::new(keys, &names, 0), write)?;
            self.record(recorder, figure, filled.sample.wall(), &filled);
            store.close()?;
        }
        Ok(())
    }

    fn fill(&self, store: &dyn Store, keys: KeySet, recorder: &mut Recorder<'_>) -> Result<()> {
        recorder.next("fillrandom")?;
        let names = keys.shuffled();
        let filled = self.put(store, PutWrites::new(keys, &names, 0), ONE_BY_ONE)?;
        self.record(recorder, FILLRANDOM, filled.sample.wall(), &filled);
        let settled = self.place.settle_store(store, || Ok(()))?;
        let both = filled.and_then(settled);
        self.record(recorder, SETTLED, both.sample.wall(), &both);
        recorder.next("overwrite")?;
        let again: Vec<u64> = names.into_iter().step_by(5).collect();
        let filled = self.put(store, PutWrites::new(keys, &again, 1 << 60), ONE_BY_ONE)?;
        self.record(recorder, OVERWRITE, filled.sample.wall(), &filled);
        self.place.settle_store(store, || Ok(()))?;
        Ok(())
    }

    fn read(&self, store: &dyn Store, keys: KeySet, recorder: &mut Recorder<'_>) -> Result<()> {
        recorder.next("warming up")?;
        let mut reader = store.reader(0)?;
        let (count, num, round) = (reads(self.scale), self.num, recorder.round());
        let mut warm = ReadDigest::default();
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
            let mut ask = |seed: u64, watch: &Stopwatch| -> Result<ReadDigest> {
                let (mut random, mut tally) = (Random::new(seed), ReadDigest::default());
                let make = |key: &mut Vec<u8>| {
                    keys.key(name(figure, &mut random), key);
                    Ok(())
                };
                for_each_key(watch, count, make, |key| {
                    read_one(&mut *reader, seeks, key, &mut tally)
                })?;
                Ok(tally)
            };
            ask(77, &Stopwatch::default())?;
            let work = |watch: &Stopwatch| ask(u64::from(round) + 1, watch);
            let read = self.place.timed_with(Expectations::READS, store, count, work)?;
            self.check(figure, round, read.sample.tally)?;
            self.record(recorder, figure, read.sample.thread(), &read);
        }
        recorder.next("readseq")?;
        let read = self.place.timed(Expectations::READS, store, num, || {
            let mut tally = ReadDigest::default();
            reader.scan(&mut tally)?;
            Ok(tally)
        })?;
        self.check(READSEQ, round, read.sample.tally)?;
        self.record(recorder, READSEQ, read.sample.thread(), &read);
        Ok(())
    }

    fn ycsb(&self, store: &dyn Store, keys: KeySet, recorder: &mut Recorder<'_>) -> Result<()> {
        let (count, round) = (operations(self.scale), recorder.round());
        let mut records = YcsbKeys { keys, more: 0 };
        for (workload, figure) in Ycsb::ALL.into_iter().zip(YCSB) {
            recorder.next(workload.name())?;
            let seed = u64::from(round) * 10 + 3;
            let way = self.engine.fresh_read_path;
            if workload == Ycsb::C {
                // It reads alone, from a cache that holds its keys. The updates before it wrote
                // tables that no cache holds yet, and LevelDB compacts frequently read tables.
                self.place.settle_store(store, || Ok(()))?;
                store.reader(way)?.scan(&mut ReadDigest::default())?;
                let watch = Stopwatch::default();
                ycsb::run(workload, (store, way), &mut records, (count, seed), &watch)?;
            }
            // Background work of the last workload must not count for this one.
            self.place.settle_store(store, || Ok(()))?;
            let expects =
                if workload == Ycsb::C { Expectations::READS } else { Expectations::WRITES };
            let ran = self.place.timed_with(expects, store, count, |watch| {
                ycsb::run(workload, (store, way), &mut records, (count, seed), watch)
            })?;
            self.check(figure, round, ran.sample.tally)?;
            self.record(recorder, figure, ran.sample.wall(), &ran);
        }
        Ok(())
    }
}

fn read_one(
    reader: &mut dyn Reader,
    seeks: bool,
    key: &[u8],
    tally: &mut ReadDigest,
) -> Result<()> {
    if seeks { reader.seek(key, 10, tally) } else { reader.get(key, tally) }
}

fn settings(scale: Scale) -> EngineSettings {
    // With fewer keys the same share of the data is in memtables.
    let memtable_bytes = scale.choose(4 << 20, 128 << 20);
    EngineSettings { cache_bytes: 2 << 30, memtable_bytes, ..EngineSettings::default() }
}

impl Subject for EngineCase {
    fn name(&self) -> String {
        format!("{}, {} keys", self.engine.name, self.x)
    }

    fn measure(&mut self, recorder: &mut Recorder<'_>) -> Result<()> {
        let keys = KeySet::new(KeyShape::Random, self.num, 16, 100)?;
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
             and measures all of them."
                .to_string(),
        ];
    }
    let mut paragraphs = Vec::new();
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
        paragraphs.push(format!(
            "{x} keys. Ahead of the best rival, in shares of its time: {}.",
            list(&won)
        ));
        paragraphs.push(format!("{x} keys. Equal within the spread: {}.", list(&even)));
        paragraphs.push(format!("{x} keys. Behind: {}.", list(&lost)));
        if !unsound.is_empty() {
            paragraphs
                .push(format!("{x} keys. Not sound, and so not compared: {}.", list(&unsound)));
        }
    }
    paragraphs
}

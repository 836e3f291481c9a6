//! `cold`: reads of data several times larger than the memory, where a false positive loads a
//! block.

use crate::engine::{Engine, EngineSettings, FilterSpread, Result, Store};
use crate::experiment::lab_context::{LabContext, MeasureContext, Measurement};
use crate::experiment::{
    ArticleSource, Experiment, ExperimentOptions, Figure, ResourceNeeds, Subject, owned_settings,
};
use crate::experiments::filters::leveldb_article::wants_bits;
use crate::experiments::result_text;
use crate::measure::Stopwatch;
use crate::measure::sanity_checks::Expectations;
use crate::results::outcome::{Better, Outcome, Scale};
use crate::results::sample_recorder::{MeasurementEvidence, Recorder};
use crate::workload::answer_check::AnswerCheck;
use crate::workload::{Queries, Workload, get};

const LOADED_MISSING: Figure = Figure {
    name: "blocks read, missing",
    unit: "per 100 gets",
    better: Better::Lower,
    plot: true,
};
const LOADED: Figure =
    Figure { name: "blocks read, random", unit: "per 100 gets", better: Better::Lower, plot: true };
const MISSING: Figure =
    Figure { name: "missing", unit: "ns per get", better: Better::Lower, plot: true };
const RANDOM: Figure =
    Figure { name: "random", unit: "ns per get", better: Better::Lower, plot: true };
const FILTERS: Figure =
    Figure { name: "filters", unit: "MiB", better: Better::Neither, plot: false };
const BITS: [(&str, i32); 7] =
    [("-1", -1), ("2", 2), ("4", 4), ("6", 6), ("10", 10), ("16", 16), ("24", 24)];

/// The definition.
pub const EXPERIMENT: Experiment = Experiment {
    name: "cold",
    title: "What a filter saves where memory is short",
    question: "With data several times the memory: how many reads of blocks does each bit save?",
    hypothesis: "This is the case that the article about the store in Java believed in and could \
                 not show. A filter in memory saves a read of a block for each table that has not \
                 got the key; bits in filters must bring more than the same bytes of cached \
                     blocks.",
    source: ArticleSource {
        name: "Building a database: Bloom filters and performance",
        part: "its last words",
    },
    axis: "bits per key",
    figures: &[LOADED_MISSING, LOADED, MISSING, RANDOM, FILTERS],
    seeds: &[],
    options: ExperimentOptions {
        settings: |scale| {
            let (num, memory) = sizes(scale);
            let rows = [
                (
                    "keys",
                    format!(
                        "{num}, numbers of 16 digits drawn with replacement, values of 100 \
                  bytes"
                    ),
                ),
                (
                    "memory",
                    format!(
                        "{} MiB, less than a quarter of the data: umbel's for everything, of other \
                         engines the cache, with a memtable of an eighth of that",
                        memory >> 20
                    ),
                ),
                ("reads", format!("{} for each figure", reads(scale))),
                (
                    "a block",
                    "of 4 KiB; it comes from the kernel's page cache or the device, as the \
                  machine has it"
                        .into(),
                ),
            ];
            owned_settings(rows)
        },
        needs: |scale| ResourceNeeds {
            disk_bytes: sizes(scale).0 * 500,
            memory_bytes: scale.choose(256 << 20, 1 << 30),
        },
        rounds: |scale| scale.choose(4, 4),
        several_engines: false,
        warms_up: true,
        takes_data: false,
        unsupported: wants_bits,
    },
    subjects: |lab| {
        let answers = AnswerCheck::default();
        let case = |(x, bits): &(&'static str, i32)| case(lab, x, *bits, answers.clone());
        Ok(BITS.iter().map(case).collect())
    },
    meaning,
};

/// Returns the number of keys and the bytes of memory.
fn sizes(scale: Scale) -> (u64, u64) {
    scale.choose((500_000, 8 << 20), (8_000_000, 128 << 20))
}

fn reads(scale: Scale) -> u64 {
    scale.choose(40_000, 400_000)
}

fn case(
    lab: &LabContext<'_>,
    x: &'static str,
    bits: i32,
    answers: AnswerCheck,
) -> Box<dyn Subject> {
    let (num, memory) = sizes(lab.scale);
    let workload = Workload::DbBench { num, reads: reads(lab.scale), value_bytes: 100 };
    let (place, engine) = (lab.measure_context(), lab.engines[0]);
    Box::new(ColdReadCase { place, engine, x, bits, memory, workload, answers })
}

struct ColdReadCase {
    place: MeasureContext,
    engine: Engine,
    x: &'static str,
    bits: i32,
    memory: u64,
    workload: Workload,
    answers: AnswerCheck,
}

impl ColdReadCase {
    fn measure_gets(
        &self,
        store: &dyn Store,
        mut queries: Queries<'_>,
        figure: Figure,
        recorder: &Recorder<'_>,
    ) -> Result<Measurement> {
        recorder.next(figure.name)?;
        let reads = self.workload.read_count();
        let mut reader = store.reader(0)?;
        // A first pass warms the cache as such reads do.
        let warm = queries.clone();
        get(&mut *reader, warm, reads / 2, &Stopwatch::default(), recorder)?;
        let mut key = Vec::new();
        (0..reads / 2).for_each(|_| queries.next(&mut key));
        let work = |watch: &Stopwatch| get(&mut *reader, queries, reads, watch, recorder);
        let read = self.place.timed_with(Expectations::COLD_READS, store, reads, work)?;
        let (subject, round) = (format!("{} with {}", self.engine.name, self.x), recorder.round());
        let keys = self.workload.name();
        self.answers.check(&keys, figure.name, round, &subject, read.sample.tally)?;
        Ok(read)
    }
}

impl Subject for ColdReadCase {
    fn name(&self) -> String {
        self.x.to_string()
    }

    fn measure(&mut self, recorder: &mut Recorder<'_>) -> Result<()> {
        let folder = self.place.folder("store")?;
        let settings = EngineSettings {
            cache_bytes: self.memory,
            memtable_bytes: self.memory / 8,
            bloom_bits: self.bits,
            spread: FilterSpread::Uniform,
            ..EngineSettings::default()
        };
        let store = folder.open(&self.engine, &settings)?;
        let store = &*store;
        recorder.next("filling")?;
        self.workload.fill(store, &Stopwatch::default(), recorder)?;
        let settled = self.place.settle_store(store, || Ok(()))?;
        let seed = u64::from(recorder.round()) + 1;
        let mut random = self.measure_gets(store, self.workload.queries(seed), RANDOM, recorder)?;
        let missing = self.workload.missing(seed).ok_or("there are no missing keys")?;
        let mut missing = self.measure_gets(store, missing, MISSING, recorder)?;
        random.flags.extend(settled.flags.iter().cloned());
        missing.flags.extend(settled.flags);
        let mut record = |figure: Figure, value: f64, evidence: MeasurementEvidence| {
            recorder.record("", self.x, figure.name, value, evidence);
        };
        record(RANDOM, random.sample.wall(), (&random).into());
        record(MISSING, missing.sample.wall(), (&missing).into());
        let loaded = |timed: &Measurement| {
            timed.per_operation(|counters| counters.blocks_loaded).map(|loaded| loaded * 100.0)
        };
        if let Some(loaded) = loaded(&random) {
            record(LOADED, loaded, random.flags.clone().into());
        }
        if let Some(loaded) = loaded(&missing) {
            record(LOADED_MISSING, loaded, missing.flags.clone().into());
        }
        if let Some(filters) = store.counters().filter_mebibytes() {
            record(FILTERS, filters, MeasurementEvidence::default());
        }
        Ok(())
    }
}

fn meaning(outcome: &Outcome) -> Vec<String> {
    let of = |x: &str, figure: Figure| result_text::figure_text(outcome, "", x, figure.name);
    let mut paragraphs = vec![format!(
        "A hundred missing keys read {} blocks without filters, {} with 4 bits, {} with 10 and {} \
         with 24; a missing key takes {}, {}, {} and {}.",
        result_text::number_format(outcome, "", "-1", LOADED_MISSING.name),
        result_text::number_format(outcome, "", "4", LOADED_MISSING.name),
        result_text::number_format(outcome, "", "10", LOADED_MISSING.name),
        result_text::number_format(outcome, "", "24", LOADED_MISSING.name),
        of("-1", MISSING),
        of("4", MISSING),
        of("10", MISSING),
        of("24", MISSING),
    )];
    let loaded = |x: &str| outcome.spread("", x, LOADED_MISSING.name).map(|s| s.median);
    if let (Some(none), Some(four), Some(ten), Some(many)) =
        (loaded("-1"), loaded("4"), loaded("10"), loaded("24"))
    {
        paragraphs.push(format!(
            "Each of the first four bits saves {:.1} blocks per hundred missing keys, each of the \
             next six {:.2}, each of the next fourteen {:.3}.",
            (none - four) / 4.0,
            (four - ten) / 6.0,
            (ten - many) / 14.0,
        ));
    }
    paragraphs.push(format!(
        "Random keys, two thirds of which are there, read {} blocks per hundred without filters \
         and {} with 10 bits, though the filters' {} are taken from the cache ({} and {} for a \
             get).",
        result_text::number_format(outcome, "", "-1", LOADED.name),
        result_text::number_format(outcome, "", "10", LOADED.name),
        of("10", FILTERS),
        of("-1", RANDOM),
        of("10", RANDOM),
    ));
    paragraphs
}

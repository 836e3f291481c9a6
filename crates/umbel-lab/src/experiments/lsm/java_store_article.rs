//! `java-article`: the test of the article about a store in Java, in which filters brought no gain.

use umbel_keygen::keys::Random;

use crate::engine::{
    Engine, EngineSettings, FilterSpread, ReadDigest, Result, Store, Write, WriteSource,
};
use crate::experiment::lab_context::{LabContext, MeasureContext};
use crate::experiment::{
    ArticleSource as Article, Experiment, ExperimentOptions, Figure, PublishedSeries,
    ResourceNeeds, Subject, owned_settings,
};
use crate::experiments::result_text;
use crate::measure::Stopwatch;
use crate::measure::sanity_checks::Expectations;
use crate::number_format::short;
use crate::results::outcome::{Better, Outcome, Scale};
use crate::results::sample_recorder::Recorder;
use crate::workload::answer_check::AnswerCheck;
use crate::workload::prepared_writes::{PreparedWrites, for_each_key};

const PUT: Figure = Figure { name: "put", unit: "ns", better: Better::Lower, plot: true };
const GET: Figure = Figure { name: "get, there", unit: "ns", better: Better::Lower, plot: true };
const GET_MISSING: Figure =
    Figure { name: "get, missing", unit: "ns", better: Better::Lower, plot: true };
const SEARCHED: Figure = Figure {
    name: "searched in vain, there",
    unit: "tables per get",
    better: Better::Lower,
    plot: false,
};
const SEARCHED_MISSING: Figure = Figure {
    name: "searched in vain, missing",
    unit: "tables per get",
    better: Better::Lower,
    plot: false,
};

/// The article's sizes.
const PUTS: u64 = 400_000;
const GETS: u64 = 100_000;
const MEMTABLE_RECORDS: u64 = 50_000;

/// The definition.
pub const EXPERIMENT: Experiment = Experiment {
    name: "java-article",
    title: "Why a filter can bring nothing",
    question: "Puts into eight tables, gets of what is there, with and without filters: why did \
           the article see no gain?",
    hypothesis: "A filter saves searching tables that do not have a key. If every looked up key \
                 is there, and an index in memory says as fast as a filter that a table has \
                 not got it, then there is nothing to save.",
    source: Article {
        name: "Building a database: Bloom filters and performance",
        part: "its test",
    },
    axis: "filters",
    figures: &[PUT, GET, GET_MISSING, SEARCHED, SEARCHED_MISSING],
    seeds: &[
        PublishedSeries {
            series: "the article",
            beside: "",
            figure: "put",
            unit: "µs",
            points: &[("without", 100.0), ("with", 100.0)],
        },
        PublishedSeries {
            series: "the article",
            beside: "",
            figure: "get, there",
            unit: "µs",
            points: &[("without", 556.0), ("with", 572.0)],
        },
    ],
    options: ExperimentOptions {
        settings: |scale| {
            let (puts, gets, records) = sizes(scale);
            let rows = [
                ("puts", format!("{puts}, `key` and a number, in no order")),
                (
                    "gets",
                    format!(
                        "{gets} of keys that are there, as the article's, and as many that are not"
                    ),
                ),
                (
                    "tables",
                    format!("one for each {records} records, none compacted: {}", puts / records),
                ),
            ];
            owned_settings(rows)
        },
        needs: |_| ResourceNeeds { disk_bytes: 512 << 20, memory_bytes: 512 << 20 },
        rounds: |_| 5,
        several_engines: false,
        warms_up: true,
        takes_data: false,
        unsupported: |tunes| (!tunes.spread).then_some("cannot be kept from compacting its tables"),
    },
    subjects: |lab| {
        let answers = AnswerCheck::default();
        Ok([-1, 10].map(|bits| case(lab, bits, answers.clone())).into())
    },
    meaning,
};

fn sizes(scale: Scale) -> (u64, u64, u64) {
    scale.choose((PUTS / 8, GETS, MEMTABLE_RECORDS / 8), (PUTS, GETS, MEMTABLE_RECORDS))
}

fn case(lab: &LabContext<'_>, bits: i32, answers: AnswerCheck) -> Box<dyn Subject> {
    let engine = lab.engines[0];
    Box::new(JavaArticleCase {
        place: lab.measure_context(),
        engine,
        bits,
        scale: lab.scale,
        answers,
    })
}

struct JavaArticleCase {
    place: MeasureContext,
    engine: Engine,
    bits: i32,
    scale: Scale,
    answers: AnswerCheck,
}

struct JavaArticleWrites {
    numbers: std::ops::Range<u64>,
    key: String,
    value: String,
}

impl WriteSource for JavaArticleWrites {
    fn next(&mut self) -> Option<Write<'_>> {
        let number = self.numbers.next()?;
        self.key = key(number);
        self.value = format!("value{number}");
        Some((self.key.as_bytes(), Some(self.value.as_bytes())))
    }
}

/// Returns keys in pseudo-random order, by a factor coprime to the number of keys.
fn key(number: u64) -> String {
    format!("key{:010}", number.wrapping_mul(2_654_435_761) % (1 << 32))
}

impl JavaArticleCase {
    fn fill(
        &self,
        store: &dyn Store,
        watch: &Stopwatch,
        recorder: &Recorder<'_>,
    ) -> Result<ReadDigest> {
        let (puts, _, records) = sizes(self.scale);
        for first in (0..puts).step_by(records as usize) {
            recorder.next("putting")?;
            let numbers = first..(first + records).min(puts);
            let (key, value) = (String::new(), String::new());
            let mut records = JavaArticleWrites { numbers, key, value };
            store.write_all(&mut PreparedWrites::new(&mut records, watch))?;
            store.flush()?;
        }
        Ok(ReadDigest::default())
    }

    fn get(
        &self,
        store: &dyn Store,
        first: u64,
        seed: u64,
        watch: &Stopwatch,
    ) -> Result<ReadDigest> {
        let (puts, gets, _) = sizes(self.scale);
        let (mut reader, mut random) = (store.reader(0)?, Random::new(seed));
        let mut tally = ReadDigest::default();
        let make = |made: &mut Vec<u8>| {
            made.clear();
            made.extend_from_slice(key(first + random.below(puts)).as_bytes());
            Ok(())
        };
        for_each_key(watch, gets, make, |key| reader.get(key, &mut tally))?;
        Ok(tally)
    }
}

impl Subject for JavaArticleCase {
    fn name(&self) -> String {
        if self.bits > 0 { "with" } else { "without" }.to_string()
    }

    fn measure(&mut self, recorder: &mut Recorder<'_>) -> Result<()> {
        let x = self.name();
        let (puts, gets, _) = sizes(self.scale);
        let folder = self.place.folder("store")?;
        let settings = EngineSettings {
            bloom_bits: self.bits,
            spread: FilterSpread::Uniform,
            compacts: false,
            ..EngineSettings::default()
        };
        let store = folder.open(&self.engine, &settings)?;
        let store = &*store;
        let work = |watch: &Stopwatch| self.fill(store, watch, recorder);
        let filled = self.place.timed_with(Expectations::WRITES, store, puts, work)?;
        recorder.record("", &x, PUT.name, filled.sample.wall(), &filled);
        let seed = u64::from(recorder.round()) + 1;
        // Absent keys have numbers that were not put and are spread among the present ones.
        for (first, figure, searched) in [(0, GET, SEARCHED), (puts, GET_MISSING, SEARCHED_MISSING)]
        {
            recorder.next(figure.name)?;
            self.get(store, first, 0, &Stopwatch::default())?;
            let work = |watch: &Stopwatch| self.get(store, first, seed, watch);
            let read = self.place.timed_with(Expectations::READS, store, gets, work)?;
            let found = read.sample.tally.found;
            if found != if first == 0 { gets } else { 0 } {
                return Err(format!("{found} of {gets} keys were found").into());
            }
            self.answers.check("", figure.name, recorder.round(), &x, read.sample.tally)?;
            recorder.record("", &x, figure.name, read.sample.thread(), &read);
            if let Some(vain) = read.per_operation(|counters| counters.false_reads) {
                recorder.record("", &x, searched.name, vain, read.flags);
            }
        }
        Ok(())
    }
}

fn meaning(outcome: &Outcome) -> Vec<String> {
    let of = |x: &str, figure: &str| result_text::figure_text(outcome, "", x, figure);
    let share = |figure: &str| result_text::comparison_text(outcome, "", "with", "without", figure);
    let faster = outcome.spread("", "with", "get, there").map_or_else(String::new, |spread| {
        format!(", {} times less than the article's 572,000 ns", short(572_000.0 / spread.median))
    });
    vec![
        format!(
            "A key that is there takes {} without filters and {} with them ({}){faster}. To find \
             it {} are searched uselessly without and {} with.",
            of("without", "get, there"),
            of("with", "get, there"),
            share("get, there"),
            of("without", "searched in vain, there"),
            of("with", "searched in vain, there"),
        ),
        format!(
            "A missing key, which the article did not look up, takes {} without and {} with \
             ({}).",
            of("without", "get, missing"),
            of("with", "get, missing"),
            share("get, missing"),
        ),
        "Why the article saw no gain: each of its gets opened a file and read a line of it, half a \
         millisecond, and that happened only in the one table that had the key, since each table's \
         whole index was a map in memory. What a filter could save was a look into that map, which \
         costs as much as a filter made of six computed positions and a hash of the key computed \
         for each table. Its author expected that; the gain comes where to search a table costs a \
         block, or where most looked up keys are absent."
            .to_string(),
    ]
}

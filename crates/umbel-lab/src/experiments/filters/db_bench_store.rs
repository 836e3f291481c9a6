//! A store with certain settings, filled and read as by db_bench: one subject of the experiments
//! about bits and hashes.

use crate::engine::{Counters, Engine, EngineSettings, ReadDigest, Result, Store};
use crate::experiment::lab_context::{LabContext, MeasureContext, TemporaryDirectory};
use crate::experiment::{Figure, Subject};
use crate::measure::Stopwatch;
use crate::measure::disk_usage;
use crate::measure::sanity_checks::Expectations;
use crate::results::outcome::Better;
use crate::results::sample_recorder::{MeasurementEvidence, Recorder};
use crate::workload::answer_check::AnswerCheck;
use crate::workload::{Workload, get};

/// Time of random puts, until they are acknowledged.
pub const FILLRANDOM: Figure =
    Figure { name: "fillrandom", unit: "ns per put", better: Better::Lower, plot: true };
/// Time of random puts, until the background work is done.
pub const SETTLED: Figure =
    Figure { name: "fill, settled", unit: "ns per put", better: Better::Lower, plot: true };
/// Time of gets of random keys, of which two thirds are present.
pub const READRANDOM: Figure =
    Figure { name: "readrandom", unit: "ns per get", better: Better::Lower, plot: true };
/// Time of gets of absent keys.
pub const READMISSING: Figure =
    Figure { name: "readmissing", unit: "ns per get", better: Better::Lower, plot: true };
/// Table searches without a hit for a hundred missing keys.
pub const FALSE_READS: Figure = Figure {
    name: "false reads",
    unit: "tables per 100 missing",
    better: Better::Lower,
    plot: true,
};
/// Share of filter probes for absent keys that are false positives.
pub const FALSE_POSITIVES: Figure =
    Figure { name: "false positives", unit: "% of probes", better: Better::Neither, plot: false };
/// Memory of the filters.
pub const FILTERS: Figure =
    Figure { name: "filters", unit: "MiB", better: Better::Neither, plot: false };

/// All figures of these experiments.
pub const FIGURES: &[Figure] =
    &[FILLRANDOM, SETTLED, READRANDOM, READMISSING, FALSE_READS, FALSE_POSITIVES, FILTERS];

/// A store with certain settings.
pub struct DbBenchStore {
    place: MeasureContext,
    engine: Engine,
    settings: EngineSettings,
    workload: Workload,
    series: String,
    x: String,
    answers: AnswerCheck,
}

impl DbBenchStore {
    /// Creates the store that is point `x` of a series; its answers are compared with `answers`.
    pub fn new(
        lab: &LabContext<'_>,
        engine: Engine,
        settings: EngineSettings,
        workload: Workload,
        point: (&str, &str),
        answers: AnswerCheck,
    ) -> DbBenchStore {
        let (series, x) = (point.0.to_string(), point.1.to_string());
        DbBenchStore {
            place: lab.measure_context(),
            engine,
            settings,
            workload,
            series,
            x,
            answers,
        }
    }

    fn record(
        &self,
        recorder: &mut Recorder<'_>,
        figure: Figure,
        value: f64,
        evidence: impl Into<MeasurementEvidence>,
    ) {
        recorder.record(&self.series, &self.x, figure.name, value, evidence);
    }

    fn check(&self, what: &'static str, round: u32, tally: ReadDigest) -> Result<()> {
        let subject = match self.series.is_empty() {
            true => format!("{} with {}", self.engine.name, self.x),
            false => format!("{}, {}", self.series, self.x),
        };
        self.answers.check(&self.workload.name(), what, round, &subject, tally)
    }

    fn fill(
        &self,
        store: &dyn Store,
        folder: &TemporaryDirectory,
        recorder: &mut Recorder<'_>,
    ) -> Result<()> {
        let puts = self.workload.put_count();
        let work = |watch: &Stopwatch| self.workload.fill(store, watch, recorder);
        let filled = self.place.timed_with(Expectations::WRITES, store, puts, work)?;
        recorder.next("settling")?;
        let settled = self.place.settle_store(store, || disk_usage::sync_all(folder.path()))?;
        self.record(recorder, FILLRANDOM, filled.sample.wall(), &filled);
        let both = filled.and_then(settled);
        self.record(recorder, SETTLED, both.sample.wall(), &both);
        Ok(())
    }

    fn read(&self, store: &dyn Store, recorder: &mut Recorder<'_>) -> Result<()> {
        let (reads, round) = (self.workload.read_count(), recorder.round());
        let seed = u64::from(round) + 1;
        let mut reader = store.reader(0)?;
        let scanned = self.workload.warm_up(&mut *reader, recorder)?;
        self.check("a scan", round, scanned)?;
        recorder.next("readrandom")?;
        let queries = self.workload.queries(seed);
        let work = |watch: &Stopwatch| get(&mut *reader, queries, reads, watch, recorder);
        let read = self.place.timed_with(Expectations::READS, store, reads, work)?;
        self.check(READRANDOM.name, round, read.sample.tally)?;
        self.record(recorder, READRANDOM, read.sample.thread(), &read);
        if let Some(missing) = self.workload.missing(seed) {
            recorder.next("readmissing")?;
            if let Some(missing) = self.workload.missing(0) {
                get(&mut *reader, missing, reads / 4, &Stopwatch::default(), recorder)?;
            }
            let work = |watch: &Stopwatch| get(&mut *reader, missing, reads, watch, recorder);
            let read = self.place.timed_with(Expectations::READS, store, reads, work)?;
            if read.sample.tally.found > 0 {
                return Err(format!(
                    "the store found {} keys that were never put",
                    read.sample.tally.found
                )
                .into());
            }
            self.record(recorder, READMISSING, read.sample.thread(), &read);
            if let Some(searched) = read.per_operation(|counters| counters.false_reads) {
                self.record(recorder, FALSE_READS, searched * 100.0, read.flags.clone());
            }
            if let Some(share) = false_positives(&read.before, &read.after) {
                self.record(recorder, FALSE_POSITIVES, share * 100.0, read.flags.clone());
            }
        }
        if let Some(filters) = store.counters().filter_mebibytes() {
            self.record(recorder, FILTERS, filters, Vec::new());
        }
        Ok(())
    }
}

/// Returns the share of probes with a positive result; all probed keys are absent.
fn false_positives(before: &Counters, after: &Counters) -> Option<f64> {
    let probes = after.filter_probes?.saturating_sub(before.filter_probes?);
    let passed = after.filter_false_positives?.saturating_sub(before.filter_false_positives?);
    (probes > 0).then(|| passed as f64 / probes as f64)
}

impl Subject for DbBenchStore {
    fn name(&self) -> String {
        if self.series.is_empty() { self.x.clone() } else { format!("{}, {}", self.series, self.x) }
    }

    fn measure(&mut self, recorder: &mut Recorder<'_>) -> Result<()> {
        let folder = self.place.folder("store")?;
        let store = folder.open(&self.engine, &self.settings)?;
        self.fill(&*store, &folder, recorder)?;
        self.read(&*store, recorder)?;
        store.close()
    }
}

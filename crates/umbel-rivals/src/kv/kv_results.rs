//! Results of a run, and the check that the engines' answers agree.

use std::collections::BTreeMap;

use umbel_lab::engine::ReadDigest;
use umbel_lab::measure::Sample;

use crate::kv::memory_peak::MemoryPeak;
use crate::kv::phase::Phase;

/// Engine with whose times the times of other engines are compared.
pub const OURS: &str = "umbel";

/// One repetition of one phase by one engine.
#[derive(Debug, Clone)]
pub struct PhaseRecord {
    /// The engine's name.
    pub engine: &'static str,
    /// Index of the read path; 0 is the usual one.
    pub read_path: usize,
    /// Phase that was run.
    pub phase: Phase,
    /// Number of the repetition, from 0 on.
    pub round: u64,
    /// Measurements of the repetition.
    pub sample: Sample,
    /// Load average of the last minute, at the end of the repetition.
    pub load: Option<f64>,
}

/// Facts about an engine besides its times.
#[derive(Debug, Clone)]
pub struct Participant {
    /// Name of the engine.
    pub name: &'static str,
    /// Version of the engine.
    pub version: String,
    /// Bytes on disk of the store that was filled in random order, after it settled.
    pub disk_bytes: Option<u64>,
    /// Bytes on disk of the same store after aging, before it is read.
    pub aged_disk_bytes: Option<u64>,
    /// Peak of the engine's memory, measured in a separate process.
    pub memory: Option<MemoryPeak>,
    /// Reason why the engine did not take part, or left the run.
    pub absence_reason: Option<String>,
}

/// Measurements on keys of one shape.
#[derive(Debug, Clone, Default)]
pub struct KvResults {
    /// Every repetition.
    pub records: Vec<PhaseRecord>,
    /// Every engine of the run.
    pub participants: Vec<Participant>,
    /// Bytes of all keys and values that are filled.
    pub user_bytes: u64,
    /// Bytes of the keys and values that are present when the store is read.
    pub live_bytes: u64,
}

/// Median and extremes of some figures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// Smallest figure.
    pub least: f64,
    /// Median.
    pub median: f64,
    /// Largest figure.
    pub most: f64,
}

impl Spread {
    /// Computes median and extremes; `None` without figures.
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut figures: Vec<f64> = figures.into_iter().collect();
        figures.sort_by(f64::total_cmp);
        let (least, most) = (*figures.first()?, *figures.last()?);
        let middle = figures.len() / 2;
        let median = match figures.len() % 2 {
            0 => f64::midpoint(figures[middle - 1], figures[middle]),
            _ => figures[middle],
        };
        Some(Spread { least, median, most })
    }
}

impl KvResults {
    /// Returns the repetitions of a phase by an engine over one read path, by round.
    pub fn of(
        &self,
        engine: &str,
        read_path: usize,
        phase: Phase,
    ) -> impl Iterator<Item = &PhaseRecord> {
        let ours = move |r: &&PhaseRecord| {
            r.engine == engine && r.read_path == read_path && r.phase == phase
        };
        self.records.iter().filter(ours)
    }

    /// Returns the repetitions over the engine's read path that counts.
    pub fn counting(&self, engine: &str, phase: Phase) -> impl Iterator<Item = &PhaseRecord> {
        self.of(engine, self.best_read_path(engine, phase), phase)
    }

    /// Returns the read path that counts: the usual one of Umbel, the fastest one of any other
    /// engine.
    pub fn best_read_path(&self, engine: &str, phase: Phase) -> usize {
        if engine == OURS {
            return 0;
        }
        let records = self.records.iter().filter(|r| r.engine == engine && r.phase == phase);
        let last = records.map(|record| record.read_path).max().unwrap_or(0);
        let time = |read_path: usize| {
            let spread = Spread::of(self.of(engine, read_path, phase).map(|r| r.sample.wall()));
            spread.map_or(f64::INFINITY, |spread| spread.median)
        };
        (0..=last).min_by(|&a, &b| time(a).total_cmp(&time(b))).unwrap_or(0)
    }

    /// Times of one operation of a phase; `time` selects which time.
    pub fn spread(
        &self,
        engine: &str,
        read_path: usize,
        phase: Phase,
        time: impl Fn(&Sample) -> f64,
    ) -> Option<Spread> {
        Spread::of(
            self.of(engine, read_path, phase).map(|record| phase.figure(time(&record.sample))),
        )
    }

    /// Umbel's time as a fraction of another engine's: the median of the rounds' ratios.
    pub fn ratio(
        &self,
        (ours, our_way): (Phase, usize),
        (other, theirs): (&str, Phase),
        time: impl Fn(&Sample) -> f64,
    ) -> Option<Spread> {
        let theirs: BTreeMap<u64, f64> =
            self.counting(other, theirs).map(|r| (r.round, time(&r.sample))).collect();
        Spread::of(self.of(OURS, our_way, ours).filter_map(|record| {
            theirs.get(&record.round).map(|theirs| time(&record.sample) / theirs)
        }))
    }

    /// Returns the entry of an engine.
    pub fn participant(&self, engine: &str) -> Option<&Participant> {
        self.participants.iter().find(|participant| participant.name == engine)
    }

    /// Returns the bytes written by a random fill, until settled and synced.
    pub fn written_bytes(&self, engine: &str) -> Option<u64> {
        self.of(engine, 0, Phase::FillRandom).next()?.sample.written_bytes
    }

    /// Returns a sentence for each phase in which two engines answered differently.
    pub fn disagreements(&self) -> Vec<String> {
        let mut first: BTreeMap<(Phase, u64), (&str, ReadDigest)> = BTreeMap::new();
        let mut found = Vec::new();
        let answers = |r: &&PhaseRecord| r.engine != "none" && r.phase.has_answers();
        for record in self.records.iter().filter(answers) {
            let tally = record.sample.tally;
            let (engine, expected) =
                *first.entry((record.phase, record.round)).or_insert((record.engine, tally));
            if tally != expected {
                found.push(format!(
                    "{} round {}: {engine} found {} values with sum {:016x}, {} {} with {:016x}",
                    record.phase.name(),
                    record.round,
                    expected.found,
                    expected.checksum,
                    record.engine,
                    tally.found,
                    tally.checksum
                ));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(
        engine: &'static str,
        read_path: usize,
        round: u64,
        wall_ns: u64,
        sum: u64,
    ) -> PhaseRecord {
        let tally = ReadDigest { found: 1, checksum: sum };
        let sample = Sample { operations: 1, wall_ns, tally, ..Sample::default() };
        PhaseRecord { engine, read_path, phase: Phase::GetHit, round, sample, load: None }
    }

    fn results(records: Vec<PhaseRecord>) -> KvResults {
        KvResults { records, ..KvResults::default() }
    }

    #[test]
    fn ratio_compares_equal_rounds() {
        let results = results(vec![
            record("umbel", 0, 0, 10, 1),
            record("lmdb", 0, 0, 20, 1),
            record("umbel", 0, 1, 100, 2),
            record("lmdb", 0, 1, 100, 2),
            record("umbel", 0, 2, 30, 3),
            record("lmdb", 0, 2, 10, 3),
        ]);
        let hit = Phase::GetHit;
        let ratio = results.ratio((hit, 0), ("lmdb", hit), Sample::wall).unwrap();
        assert_eq!(ratio, Spread { least: 0.5, median: 1.0, most: 3.0 });
        let spread = results.spread("umbel", 0, hit, Sample::wall).unwrap();
        assert_eq!(spread, Spread { least: 10.0, median: 30.0, most: 100.0 });
        assert!(results.disagreements().is_empty());
    }

    #[test]
    fn usual_path_of_umbel_and_best_path_of_others_count() {
        let results = results(vec![
            record("umbel", 0, 0, 30, 1),
            record("umbel", 1, 0, 10, 1),
            record("lmdb", 0, 0, 60, 1),
            record("lmdb", 1, 0, 40, 1),
        ]);
        assert_eq!(results.best_read_path("umbel", Phase::GetHit), 0);
        assert_eq!(results.best_read_path("lmdb", Phase::GetHit), 1);
        let hit = Phase::GetHit;
        let ratio = results.ratio((hit, 0), ("lmdb", hit), Sample::wall).unwrap();
        assert_eq!(ratio.median, 0.75);
    }

    #[test]
    fn different_answer_is_reported() {
        let results = results(vec![record("umbel", 0, 0, 1, 1), record("lmdb", 0, 0, 1, 2)]);
        assert_eq!(results.disagreements().len(), 1);
    }
}

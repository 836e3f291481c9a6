//! What a run brings to light, and whether the engines' answers agree.

use std::collections::BTreeMap;

use umbel_lab::engine::Tally;
use umbel_lab::measure::Sample;

use crate::memory::Memory;
use crate::plan::Phase;

/// The engine whose times the others' are compared with.
pub const OURS: &str = "umbel";

/// One repetition of one phase by one engine.
#[derive(Debug, Clone)]
pub struct Record {
    /// The engine's name.
    pub engine: &'static str,
    /// The way in which it was read, 0 for its usual one.
    pub way: usize,
    /// What it did.
    pub phase: Phase,
    /// The repetition, from 0 on.
    pub round: u64,
    /// What it took.
    pub sample: Sample,
    /// The machine's load in the last minute, at its end.
    pub load: Option<f64>,
}

/// What is known of an engine besides its times.
#[derive(Debug, Clone)]
pub struct Participant {
    /// Its name.
    pub name: &'static str,
    /// Its version.
    pub version: String,
    /// Bytes on disk of the store filled at random, settled.
    pub disk_bytes: Option<u64>,
    /// The same when it had been lived in, before it is read.
    pub lived_in_disk_bytes: Option<u64>,
    /// What it took of memory, in a process of its own.
    pub memory: Option<Memory>,
    /// Why it did not take part, or left.
    pub absent_because: Option<String>,
}

/// All that was measured on keys of one shape.
#[derive(Debug, Clone, Default)]
pub struct Results {
    /// Every repetition.
    pub records: Vec<Record>,
    /// Every engine that was asked for.
    pub participants: Vec<Participant>,
    /// Bytes of all keys and values that are filled in.
    pub user_bytes: u64,
    /// Bytes of those that are there when the store is read.
    pub live_bytes: u64,
}

/// The middle of some figures, and the extremes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// The smallest.
    pub least: f64,
    /// The middle one.
    pub median: f64,
    /// The largest.
    pub most: f64,
}

impl Spread {
    /// `None` of no figures.
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

impl Results {
    /// The repetitions of a phase by an engine in one way, by round.
    pub fn of(&self, engine: &str, way: usize, phase: Phase) -> impl Iterator<Item = &Record> {
        let ours = move |r: &&Record| r.engine == engine && r.way == way && r.phase == phase;
        self.records.iter().filter(ours)
    }

    /// Those of the way that counts: our usual one, the better one of another engine.
    pub fn counting(&self, engine: &str, phase: Phase) -> impl Iterator<Item = &Record> {
        self.of(engine, self.best_way(engine, phase), phase)
    }

    /// The way that counts.
    pub fn best_way(&self, engine: &str, phase: Phase) -> usize {
        if engine == OURS {
            return 0;
        }
        let ways = self.records.iter().filter(|r| r.engine == engine && r.phase == phase);
        let most = ways.map(|record| record.way).max().unwrap_or(0);
        let time = |way: usize| {
            let spread = Spread::of(self.of(engine, way, phase).map(|r| r.sample.wall()));
            spread.map_or(f64::INFINITY, |spread| spread.median)
        };
        (0..=most).min_by(|&a, &b| time(a).total_cmp(&time(b))).unwrap_or(0)
    }

    /// What a phase took, an operation: `time` says which time.
    pub fn spread(
        &self,
        engine: &str,
        way: usize,
        phase: Phase,
        time: impl Fn(&Sample) -> f64,
    ) -> Option<Spread> {
        Spread::of(self.of(engine, way, phase).map(|record| phase.figure(time(&record.sample))))
    }

    /// How much of another engine's time ours took: the middle of the rounds' ratios.
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

    /// The engine's own entry.
    pub fn participant(&self, engine: &str) -> Option<&Participant> {
        self.participants.iter().find(|participant| participant.name == engine)
    }

    /// Bytes written while filling at random, until settled and synced.
    pub fn written_bytes(&self, engine: &str) -> Option<u64> {
        self.of(engine, 0, Phase::FillRandom).next()?.sample.written_bytes
    }

    /// A sentence for each question that two engines answered differently.
    pub fn disagreements(&self) -> Vec<String> {
        let mut first: BTreeMap<(Phase, u64), (&str, Tally)> = BTreeMap::new();
        let mut found = Vec::new();
        let answers = |r: &&Record| r.engine != "none" && r.phase.has_answers();
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
                    expected.sum,
                    record.engine,
                    tally.found,
                    tally.sum
                ));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(engine: &'static str, way: usize, round: u64, wall_ns: u64, sum: u64) -> Record {
        let tally = Tally { found: 1, sum };
        let sample = Sample { operations: 1, wall_ns, tally, ..Sample::default() };
        Record { engine, way, phase: Phase::GetHit, round, sample, load: None }
    }

    fn results(records: Vec<Record>) -> Results {
        Results { records, ..Results::default() }
    }

    #[test]
    fn compares_rounds_with_their_own_kind() {
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
    fn the_better_way_of_another_counts_and_our_usual_one() {
        let results = results(vec![
            record("umbel", 0, 0, 30, 1),
            record("umbel", 1, 0, 10, 1),
            record("lmdb", 0, 0, 60, 1),
            record("lmdb", 1, 0, 40, 1),
        ]);
        assert_eq!(results.best_way("umbel", Phase::GetHit), 0);
        assert_eq!(results.best_way("lmdb", Phase::GetHit), 1);
        let hit = Phase::GetHit;
        let ratio = results.ratio((hit, 0), ("lmdb", hit), Sample::wall).unwrap();
        assert_eq!(ratio.median, 0.75);
    }

    #[test]
    fn a_different_answer_is_reported() {
        let results = results(vec![record("umbel", 0, 0, 1, 1), record("lmdb", 0, 0, 1, 2)]);
        assert_eq!(results.disagreements().len(), 1);
    }
}

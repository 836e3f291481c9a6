//! What a run brings to light, and whether the engines' answers agree.

use std::collections::BTreeMap;

use crate::engine::Tally;
use crate::measure::Sample;
use crate::plan::Phase;

/// One repetition of one phase by one engine.
#[derive(Debug, Clone)]
pub struct Record {
    /// The engine's name.
    pub engine: &'static str,
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
    /// Its settings in words.
    pub settings: &'static str,
    /// Bytes on disk of the store filled at random, settled.
    pub disk_bytes: Option<u64>,
    /// Why it did not take part, or left.
    pub absent_because: Option<String>,
}

/// All that was measured.
#[derive(Debug, Clone, Default)]
pub struct Results {
    /// Every repetition.
    pub records: Vec<Record>,
    /// Every engine that was asked for.
    pub participants: Vec<Participant>,
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
    /// The repetitions of a phase by an engine, by round.
    pub fn of(&self, engine: &str, phase: Phase) -> impl Iterator<Item = &Record> {
        self.records.iter().filter(move |r| r.engine == engine && r.phase == phase)
    }

    /// What a phase took, an operation: `time` says which time.
    pub fn spread(
        &self,
        engine: &str,
        phase: Phase,
        time: impl Fn(&Sample) -> f64,
    ) -> Option<Spread> {
        Spread::of(self.of(engine, phase).map(|record| phase.figure(time(&record.sample))))
    }

    /// How much of the other engine's time ours took: the middle of the rounds' ratios.
    pub fn ratio(
        &self,
        ours: &str,
        other: &str,
        phase: Phase,
        time: impl Fn(&Sample) -> f64,
    ) -> Option<Spread> {
        let theirs: BTreeMap<u64, f64> =
            self.of(other, phase).map(|record| (record.round, time(&record.sample))).collect();
        Spread::of(self.of(ours, phase).filter_map(|record| {
            theirs.get(&record.round).map(|theirs| time(&record.sample) / theirs)
        }))
    }

    /// Bytes written while filling at random and settling.
    pub fn written_bytes(&self, engine: &str) -> Option<u64> {
        let of = |phase| self.of(engine, phase).next()?.sample.written_bytes;
        Some(of(Phase::FillRandom)? + of(Phase::Settle)?)
    }

    /// Processor time of all threads for a put, with what it causes until the store is settled.
    pub fn put_processor_ns(&self, engine: &str) -> Option<f64> {
        let fill = self.of(engine, Phase::FillRandom).next()?.sample;
        let settle = self.of(engine, Phase::Settle).next()?.sample;
        Some((fill.process_ns + settle.process_ns) as f64 / fill.operations.max(1) as f64)
    }

    /// A sentence for each question that two engines answered differently.
    pub fn disagreements(&self) -> Vec<String> {
        let mut first: BTreeMap<(Phase, u64), (&str, Tally)> = BTreeMap::new();
        let mut found = Vec::new();
        for record in self.records.iter().filter(|record| record.engine != "none") {
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

    fn record(engine: &'static str, round: u64, wall_ns: u64, sum: u64) -> Record {
        let tally = Tally { found: 1, sum };
        let sample = Sample { operations: 1, wall_ns, tally, ..Sample::default() };
        Record { engine, phase: Phase::GetHit, round, sample, load: None }
    }

    #[test]
    fn compares_rounds_with_their_own_kind() {
        let records = vec![
            record("umbel", 0, 10, 1),
            record("lmdb", 0, 20, 1),
            record("umbel", 1, 100, 2),
            record("lmdb", 1, 100, 2),
            record("umbel", 2, 30, 3),
            record("lmdb", 2, 10, 3),
        ];
        let results = Results { records, participants: Vec::new() };
        let ratio = results.ratio("umbel", "lmdb", Phase::GetHit, Sample::wall).unwrap();
        assert_eq!(ratio, Spread { least: 0.5, median: 1.0, most: 3.0 });
        let spread = results.spread("umbel", Phase::GetHit, Sample::wall).unwrap();
        assert_eq!(spread, Spread { least: 10.0, median: 30.0, most: 100.0 });
        assert!(results.disagreements().is_empty());
    }

    #[test]
    fn a_different_answer_is_reported() {
        let records = vec![record("umbel", 0, 1, 1), record("lmdb", 0, 1, 2)];
        let results = Results { records, participants: Vec::new() };
        assert_eq!(results.disagreements().len(), 1);
    }
}

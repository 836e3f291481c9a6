//! The six core workloads of YCSB (Cooper et al., SoCC 2010), as reads and writes in one order that
//! is the same for every engine.

use crate::engine::{Result, Source, Store, Tally, Write};
use crate::keys::{Keys, Random, mix};
use crate::measure::Stopwatch;
use crate::zipfian;

/// The longest scan of workload E.
const SCAN_MAX: u64 = 100;

/// A core workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ycsb {
    /// Half reads, half updates.
    A,
    /// 95 reads of a hundred, 5 updates.
    B,
    /// Reads alone.
    C,
    /// 95 reads of a hundred, most of what came last, and 5 inserts.
    D,
    /// 95 scans of a hundred, and 5 inserts.
    E,
    /// Half reads, half reads with an update of what was read.
    F,
}

/// What is done next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Read,
    Scan,
    Update,
    Insert,
    Modify,
}

impl Ycsb {
    /// All of them.
    pub const ALL: [Ycsb; 6] = [Ycsb::A, Ycsb::B, Ycsb::C, Ycsb::D, Ycsb::E, Ycsb::F];

    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Ycsb::A => "ycsb-a",
            Ycsb::B => "ycsb-b",
            Ycsb::C => "ycsb-c",
            Ycsb::D => "ycsb-d",
            Ycsb::E => "ycsb-e",
            Ycsb::F => "ycsb-f",
        }
    }

    fn step(self, draw: u64) -> Step {
        match self {
            Ycsb::A if draw < 50 => Step::Read,
            Ycsb::A => Step::Update,
            Ycsb::B if draw < 95 => Step::Read,
            Ycsb::B => Step::Update,
            Ycsb::C => Step::Read,
            Ycsb::D if draw < 95 => Step::Read,
            Ycsb::E if draw < 95 => Step::Scan,
            Ycsb::D | Ycsb::E => Step::Insert,
            Ycsb::F if draw < 50 => Step::Read,
            Ycsb::F => Step::Modify,
        }
    }
}

/// Keys that are there and those that come to be: as many as `keys` has, and `more`.
#[derive(Debug, Clone, Copy)]
pub struct Records {
    /// The keys of the beginning.
    pub keys: Keys,
    /// How many were inserted since.
    pub more: u64,
}

impl Records {
    fn count(&self) -> u64 {
        self.keys.num() + self.more
    }

    fn name(&self, index: u64) -> u64 {
        match index.checked_sub(self.keys.num()) {
            None => self.keys.present(index),
            Some(further) => self.keys.further(further),
        }
    }
}

/// Operations that are made at once, while the clock is stopped.
const BATCH: u64 = 1024;

/// An operation with what it takes, by where that ends in the bytes of its batch.
#[derive(Debug, Clone, Copy)]
struct Planned {
    step: Step,
    /// How many entries a scan reads.
    entries: usize,
    key_end: usize,
    value_end: usize,
}

/// Makes operations: the same ones for every store, as no answer decides what comes next.
struct Plan<'a> {
    ycsb: Ycsb,
    records: &'a mut Records,
    /// How many records there were: which keys are hot does not change while others are inserted.
    known: u64,
    random: Random,
    bytes: Vec<u8>,
    planned: Vec<Planned>,
    scratch: Vec<u8>,
}

impl Plan<'_> {
    fn next_batch(&mut self, operations: u64) {
        self.bytes.clear();
        self.planned.clear();
        (0..operations).for_each(|_| self.next());
    }

    fn next(&mut self) {
        let Plan { ycsb, records, known, random, bytes, planned, scratch } = self;
        let step = ycsb.step(random.below(100));
        let index = match step {
            Step::Insert => records.count(),
            _ => draw(*ycsb, records.count(), *known, random),
        };
        records.keys.key(records.name(index), scratch);
        bytes.extend_from_slice(scratch);
        let key_end = bytes.len();
        let entries = if step == Step::Scan { 1 + random.below(SCAN_MAX) as usize } else { 0 };
        if step.writes() {
            records.keys.value(random.below(u64::MAX), scratch);
            bytes.extend_from_slice(scratch);
            records.more += u64::from(step == Step::Insert);
        }
        planned.push(Planned { step, entries, key_end, value_end: bytes.len() });
    }
}

impl Step {
    fn writes(self) -> bool {
        matches!(self, Step::Update | Step::Insert | Step::Modify)
    }
}

/// Does so many operations of a workload, drawn by a seed, in one of the store's ways, and says
/// what was read. Each write is acknowledged before the next operation begins, and every read sees
/// it: engines that gather writes commit each alone. Keys, values and draws are made while the
/// clock is stopped.
///
/// # Errors
/// Those of the store.
pub fn run(
    ycsb: Ycsb,
    (store, way): (&dyn Store, usize),
    records: &mut Records,
    (operations, seed): (u64, u64),
    watch: &Stopwatch,
) -> Result<Tally> {
    let (mut reader, mut tally) = (store.reader(way)?, Tally::default());
    let known = records.count();
    let (random, bytes, planned, scratch) = (Random::new(seed), Vec::new(), Vec::new(), Vec::new());
    let mut plan = Plan { ycsb, records, known, random, bytes, planned, scratch };
    let mut left = operations;
    while left > 0 {
        watch.untimed(|| plan.next_batch(left.min(BATCH)));
        left -= left.min(BATCH);
        let mut start = 0;
        for Planned { step, entries, key_end, value_end } in &plan.planned {
            let key = &plan.bytes[start..*key_end];
            match step {
                Step::Read | Step::Modify => reader.get(key, &mut tally)?,
                Step::Scan => reader.seek(key, *entries, &mut tally)?,
                Step::Update | Step::Insert => {}
            }
            if step.writes() {
                let value = &plan.bytes[*key_end..*value_end];
                store.write_all(&mut One(Some((key, Some(value)))))?;
            }
            start = *value_end;
        }
    }
    Ok(tally)
}

/// Some keys are asked for much more often than others; those that came last, in workload D.
/// Inserted ones are read in D alone.
fn draw(ycsb: Ycsb, count: u64, known: u64, random: &mut Random) -> u64 {
    let most = if ycsb == Ycsb::D { count } else { known };
    let rank = zipfian::rank(random.below(1 << 53), most).saturating_sub(1).min(most - 1);
    match ycsb {
        Ycsb::D => most - 1 - rank,
        _ => mix(rank) % most,
    }
}

/// One write.
struct One<'a>(Option<Write<'a>>);

impl Source for One<'_> {
    fn next(&mut self) -> Option<Write<'_>> {
        self.0.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_those_of_the_workloads() {
        for (ycsb, read, scan, update, insert, modify) in [
            (Ycsb::A, 50, 0, 50, 0, 0),
            (Ycsb::B, 95, 0, 5, 0, 0),
            (Ycsb::C, 100, 0, 0, 0, 0),
            (Ycsb::D, 95, 0, 0, 5, 0),
            (Ycsb::E, 0, 95, 0, 5, 0),
            (Ycsb::F, 50, 0, 0, 0, 50),
        ] {
            let count = |step| (0..100).filter(|draw| ycsb.step(*draw) == step).count();
            let counts = [Step::Read, Step::Scan, Step::Update, Step::Insert, Step::Modify];
            assert_eq!(counts.map(count), [read, scan, update, insert, modify], "{ycsb:?}");
        }
    }
}

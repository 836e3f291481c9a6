//! The six core workloads of YCSB (Cooper et al., SoCC 2010), as reads and writes in an order that
//! is the same for every engine.

use umbel_keygen::keys::{KeySet, Random, mix};
use umbel_keygen::zipfian;

use crate::engine::{ReadDigest, Result, Store, Write, WriteSource};
use crate::measure::Stopwatch;

/// Largest number of entries in a scan of workload E.
const SCAN_MAX: u64 = 100;

/// A core workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ycsb {
    /// Half reads, half updates.
    A,
    /// 95 % reads, 5 % updates.
    B,
    /// Reads only.
    C,
    /// 95 % reads, mostly of the newest keys, and 5 % inserts.
    D,
    /// 95 % scans, and 5 % inserts.
    E,
    /// Half reads, half read-modify-writes.
    F,
}

/// Next operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum YcsbOperation {
    Read,
    Scan,
    Update,
    Insert,
    Modify,
}

impl Ycsb {
    /// All core workloads.
    pub const ALL: [Ycsb; 6] = [Ycsb::A, Ycsb::B, Ycsb::C, Ycsb::D, Ycsb::E, Ycsb::F];

    /// Returns the workload's name in results.
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

    fn step(self, draw: u64) -> YcsbOperation {
        match self {
            Ycsb::A if draw < 50 => YcsbOperation::Read,
            Ycsb::A => YcsbOperation::Update,
            Ycsb::B if draw < 95 => YcsbOperation::Read,
            Ycsb::B => YcsbOperation::Update,
            Ycsb::C => YcsbOperation::Read,
            Ycsb::D if draw < 95 => YcsbOperation::Read,
            Ycsb::E if draw < 95 => YcsbOperation::Scan,
            Ycsb::D | Ycsb::E => YcsbOperation::Insert,
            Ycsb::F if draw < 50 => YcsbOperation::Read,
            Ycsb::F => YcsbOperation::Modify,
        }
    }
}

/// Present keys: those of `keys`, and `more` inserted ones.
#[derive(Debug, Clone, Copy)]
pub struct YcsbKeys {
    /// The initial keys.
    pub keys: KeySet,
    /// Number of inserted keys.
    pub more: u64,
}

impl YcsbKeys {
    fn count(&self) -> u64 {
        self.keys.num() + self.more
    }

    fn name(&self, index: u64) -> u64 {
        match index.checked_sub(self.keys.num()) {
            None => self.keys.present(index),
            Some(further) => self.keys.new_name(further),
        }
    }
}

/// Number of operations that are made at once, while the clock is stopped.
const BATCH: u64 = 1024;

/// An operation with its key and value, as end offsets in the bytes of its batch.
#[derive(Debug, Clone, Copy)]
struct PlannedOperation {
    step: YcsbOperation,
    /// Number of entries that a scan reads.
    entries: usize,
    key_end: usize,
    value_end: usize,
}

/// Generates operations: the same ones for every store, because no answer influences the next.
struct OperationStream<'a> {
    ycsb: Ycsb,
    records: &'a mut YcsbKeys,
    /// Number of records: inserts do not change which keys are hot.
    known: u64,
    random: Random,
    bytes: Vec<u8>,
    planned: Vec<PlannedOperation>,
    scratch: Vec<u8>,
}

impl OperationStream<'_> {
    fn next_batch(&mut self, operations: u64) {
        self.bytes.clear();
        self.planned.clear();
        (0..operations).for_each(|_| self.next());
    }

    fn next(&mut self) {
        let OperationStream { ycsb, records, known, random, bytes, planned, scratch } = self;
        let step = ycsb.step(random.below(100));
        let index = match step {
            YcsbOperation::Insert => records.count(),
            _ => draw(*ycsb, records.count(), *known, random),
        };
        records.keys.key(records.name(index), scratch);
        bytes.extend_from_slice(scratch);
        let key_end = bytes.len();
        let entries =
            if step == YcsbOperation::Scan { 1 + random.below(SCAN_MAX) as usize } else { 0 };
        if step.writes() {
            records.keys.value(random.below(u64::MAX), scratch);
            bytes.extend_from_slice(scratch);
            records.more += u64::from(step == YcsbOperation::Insert);
        }
        planned.push(PlannedOperation { step, entries, key_end, value_end: bytes.len() });
    }
}

impl YcsbOperation {
    fn writes(self) -> bool {
        matches!(self, YcsbOperation::Update | YcsbOperation::Insert | YcsbOperation::Modify)
    }
}

/// Runs the given number of operations of a workload, drawn by a seed, on one of the store's read
/// paths, and returns the digest of the reads. Each write is acknowledged before the next
/// operation, and every later read sees the write: engines that gather writes commit each write
/// alone. Keys, values and random choices are made while the clock is stopped.
///
/// # Errors
/// The errors of the store.
pub fn run(
    ycsb: Ycsb,
    (store, way): (&dyn Store, usize),
    records: &mut YcsbKeys,
    (operations, seed): (u64, u64),
    watch: &Stopwatch,
) -> Result<ReadDigest> {
    let (mut reader, mut tally) = (store.reader(way)?, ReadDigest::default());
    let known = records.count();
    let (random, bytes, planned, scratch) = (Random::new(seed), Vec::new(), Vec::new(), Vec::new());
    let mut plan = OperationStream { ycsb, records, known, random, bytes, planned, scratch };
    let mut left = operations;
    while left > 0 {
        watch.untimed(|| plan.next_batch(left.min(BATCH)));
        left -= left.min(BATCH);
        let mut start = 0;
        for PlannedOperation { step, entries, key_end, value_end } in &plan.planned {
            let key = &plan.bytes[start..*key_end];
            match step {
                YcsbOperation::Read | YcsbOperation::Modify => reader.get(key, &mut tally)?,
                YcsbOperation::Scan => reader.seek(key, *entries, &mut tally)?,
                YcsbOperation::Update | YcsbOperation::Insert => {}
            }
            if step.writes() {
                let value = &plan.bytes[*key_end..*value_end];
                store.write_all(&mut SingleWrite(Some((key, Some(value)))))?;
            }
            start = *value_end;
        }
    }
    Ok(tally)
}

/// Draws a key: some keys are much more frequent than others, in workload D the newest keys. Only
/// workload D reads inserted keys.
fn draw(ycsb: Ycsb, count: u64, known: u64, random: &mut Random) -> u64 {
    let key_count = if ycsb == Ycsb::D { count } else { known };
    let rank = zipfian::rank(random.below(1 << 53), key_count).saturating_sub(1).min(key_count - 1);
    match ycsb {
        Ycsb::D => key_count - 1 - rank,
        _ => mix(rank) % key_count,
    }
}

/// One write.
struct SingleWrite<'a>(Option<Write<'a>>);

impl WriteSource for SingleWrite<'_> {
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
            let counts = [
                YcsbOperation::Read,
                YcsbOperation::Scan,
                YcsbOperation::Update,
                YcsbOperation::Insert,
                YcsbOperation::Modify,
            ];
            assert_eq!(counts.map(count), [read, scan, update, insert, modify], "{ycsb:?}");
        }
    }
}

//! Work of one thread of each benchmark.

use std::hint::black_box;

use umbel::{Batch, Db, Durability, Keyspace, Result};
use umbel_base::checksum::checksum;

use super::bench_settings::Settings;
use crate::bench::bench_flags::LineFormat;
use crate::bench::benchmark_plan::{BenchmarkKind, BenchmarkStep};
use crate::bench::key_generator::{KeyGenerator, Random};
use crate::bench::result_lines::found_message;
use crate::bench::thread_stats::{Operation, ThreadStats};
use crate::bench::value_generator::ValueGenerator;

/// Bytes that one checksum operation covers, and bytes that the benchmark covers in total.
const CHECKSUM_BYTES: usize = 4096;
const CHECKSUM_TOTAL: u64 = 500 << 20;

/// Live elements of a queue.
const QUEUE_ELEMENTS: u64 = 1000;

/// Work of one thread on a benchmark.
pub struct Worker<'a> {
    /// Benchmark that the thread runs.
    pub step: &'a BenchmarkStep,
    /// Settings of the run.
    pub settings: &'a Settings,
    /// Store that the thread uses.
    pub db: Db,
    /// Keyspace that the thread uses.
    pub keyspace: Keyspace,
    /// Whether this thread runs beside the counting threads, like the writer of `readwhilewriting`.
    pub beside: bool,
    /// Random numbers of the thread.
    pub random: Random,
    /// Values that the thread writes.
    pub values: ValueGenerator,
    /// Counts of the thread.
    pub tally: ThreadStats<'a>,
}

impl Worker<'_> {
    /// Runs until the counts are reached, the time is over, or the thread is stopped.
    pub fn run(&mut self) -> Result<()> {
        match (self.step.kind, self.beside) {
            (BenchmarkKind::ReadWhileWriting, true) => self.write_in_background(),
            (BenchmarkKind::ReadWhileScanning, true) => self.scan_in_background(),
            (BenchmarkKind::WriteSequential, _) => self.write(|number, _| number),
            (BenchmarkKind::WriteRandom, _) => {
                let num = self.step.num;
                self.write(move |_, random| random.below(num))
            }
            (BenchmarkKind::WriteUnique, _) => {
                let order = shuffled(self.step.num, &mut self.random);
                self.write(move |number, _| order[(number % order.len() as u64) as usize])
            }
            (BenchmarkKind::Update, _) => self.update(),
            (BenchmarkKind::DeleteSequential, _) => self.delete(|number, _| number),
            (BenchmarkKind::DeleteRandom, _) => {
                let num = self.step.num;
                self.delete(move |_, random| random.below(num))
            }
            (BenchmarkKind::DeleteRanges, _) => self.delete_ranges(),
            (BenchmarkKind::DeleteNestedRanges, _) => self.delete_nested_ranges(),
            (BenchmarkKind::Queue, _) => self.queue(),
            (BenchmarkKind::ReadMissing, _) => {
                self.read(KeyGenerator::missing_key(self.settings), self.step.num)
            }
            (BenchmarkKind::ReadHot, _) => {
                self.read(KeyGenerator::new(self.settings), self.step.num.div_ceil(100))
            }
            (
                BenchmarkKind::ReadRandom
                | BenchmarkKind::ReadWhileWriting
                | BenchmarkKind::ReadWhileScanning,
                _,
            ) => self.read(KeyGenerator::new(self.settings), self.step.num),
            (BenchmarkKind::ReadSequential, _) => self.iterate(false),
            (BenchmarkKind::ReadReverse, _) => self.iterate(true),
            (BenchmarkKind::MultiRead, _) => self.multi_read(),
            (BenchmarkKind::Seek, _) => self.seek(),
            (BenchmarkKind::ReadWrite, _) => self.read_write(),
            (BenchmarkKind::Checksum, _) => self.checksum(),
            (BenchmarkKind::Compact, _) => self.keyspace.compact(None, None),
            (BenchmarkKind::Flush, _) => self.db.flush(),
            // The runner does these itself.
            (
                BenchmarkKind::Open
                | BenchmarkKind::WaitForCompaction
                | BenchmarkKind::Verify
                | BenchmarkKind::Stats
                | BenchmarkKind::LevelStats,
                _,
            ) => Ok(()),
        }
    }

    fn durability(&self) -> Durability {
        if self.step.sync { Durability::Synced } else { Durability::Buffered }
    }

    fn write(&mut self, mut choose: impl FnMut(u64, &mut Random) -> u64) -> Result<()> {
        let limit = self.settings.writes.unwrap_or(self.step.num);
        let size = self.step.value_size;
        let mut keys = KeyGenerator::new(self.settings);
        let mut number = 0;
        // Single puts are as durable as the store was opened for.
        let puts_suffice = self.settings.sync || !self.step.sync;
        if self.step.batch_size == 1 && puts_suffice {
            while self.tally.wants_more(limit) {
                let key = keys.key(choose(number, &mut self.random));
                self.keyspace.put(key, self.values.next(size))?;
                self.tally.bytes += (key.len() + size) as u64;
                self.tally.count_operations(1, Operation::Write);
                number += 1;
            }
            return Ok(());
        }
        while self.tally.wants_more(limit) {
            let mut batch = self.db.batch();
            for _ in 0..self.batch_entries(limit) {
                let key = keys.key(choose(number, &mut self.random));
                batch.put(&self.keyspace, key, self.values.next(size));
                self.tally.bytes += (key.len() + size) as u64;
                number += 1;
            }
            self.commit(batch, Operation::Write)?;
        }
        Ok(())
    }

    /// Number of entries of the next batch; the last batch does not exceed the limit.
    fn batch_entries(&self, limit: u64) -> u64 {
        let left = limit.saturating_sub(self.tally.done);
        let size = self.step.batch_size as u64;
        if left == 0 { size } else { size.min(left) }
    }

    fn commit(&mut self, batch: Batch, kind: Operation) -> Result<()> {
        let entries = batch.len() as u64;
        batch.commit(self.durability())?;
        self.tally.count_operations(entries, kind);
        Ok(())
    }

    fn delete(&mut self, mut choose: impl FnMut(u64, &mut Random) -> u64) -> Result<()> {
        self.delete_in_batches(|worker, batch, keys, number| {
            let key = keys.key(choose(number, &mut worker.random));
            batch.delete(&worker.keyspace, key);
        })
    }

    /// Deletes in batches; `add` adds the deletes of one number.
    fn delete_in_batches(
        &mut self,
        mut add: impl FnMut(&mut Self, &mut Batch, &mut KeyGenerator, u64),
    ) -> Result<()> {
        let limit = self.settings.deletes.unwrap_or(self.step.num);
        let mut keys = KeyGenerator::new(self.settings);
        let mut number = 0;
        while self.tally.wants_more(limit) {
            let mut batch = self.db.batch();
            for _ in 0..self.batch_entries(limit) {
                add(self, &mut batch, &mut keys, number);
                number += 1;
            }
            self.commit(batch, Operation::Delete)?;
        }
        Ok(())
    }

    fn delete_ranges(&mut self) -> Result<()> {
        self.delete_in_batches(|worker, batch, keys, number| {
            // Every second key, so that no two ranges touch.
            let start = keys.key(2 * number).to_vec();
            batch.delete_range(&worker.keyspace, start, keys.key(2 * number + 1));
        })
    }

    fn delete_nested_ranges(&mut self) -> Result<()> {
        let count = self.settings.deletes.unwrap_or(self.step.num);
        let mut keys = KeyGenerator::new(self.settings);
        let mut batch = self.db.batch();
        for number in 0..count {
            let start = keys.key(number).to_vec();
            batch.delete_range(&self.keyspace, start, keys.key(2 * count - number));
        }
        self.commit(batch, Operation::Delete)
    }

    fn queue(&mut self) -> Result<()> {
        let limit = self.settings.deletes.unwrap_or(self.step.num);
        let size = self.step.value_size;
        let mut keys = KeyGenerator::new(self.settings);
        for number in 0..QUEUE_ELEMENTS {
            self.keyspace.put(keys.key(number), self.values.next(size))?;
        }
        let mut number = QUEUE_ELEMENTS;
        while self.tally.wants_more(limit) {
            if let Some((first, value)) = self.keyspace.first()? {
                self.tally.found += 1;
                self.tally.bytes += (first.len() + value.len()) as u64;
                self.keyspace.delete(first)?;
            }
            self.keyspace.put(keys.key(number), self.values.next(size))?;
            self.tally.lookup_count += 1;
            self.tally.count_operations(1, Operation::Update);
            number += 1;
        }
        self.set_found_message();
        Ok(())
    }

    fn update(&mut self) -> Result<()> {
        let limit = self.settings.writes.unwrap_or(self.settings.reads);
        let size = self.step.value_size;
        let mut keys = KeyGenerator::new(self.settings);
        let mut buffer = Vec::new();
        while self.tally.wants_more(limit) {
            let key = keys.key(self.random.below(self.step.num));
            self.tally.lookup_count += 1;
            if self.keyspace.get_into(key, &mut buffer)? {
                self.tally.found += 1;
                self.tally.bytes += (key.len() + buffer.len()) as u64;
            }
            self.keyspace.put(key, self.values.next(size))?;
            self.tally.bytes += (key.len() + size) as u64;
            self.tally.count_operations(1, Operation::Update);
        }
        self.tally.message =
            format!("( updates:{} found:{})", self.tally.lookup_count, self.tally.found);
        Ok(())
    }

    fn read(&mut self, mut keys: KeyGenerator, num: u64) -> Result<()> {
        let limit = self.step.reads;
        let mut buffer = Vec::new();
        while self.tally.wants_more(limit) {
            let key = keys.key(self.random.below(num));
            let value_bytes = if self.settings.pin_slice {
                self.keyspace.get_with(key, |value| black_box(value).len())?
            } else {
                let found = self.keyspace.get_into(key, &mut buffer)?;
                found.then(|| black_box(&buffer).len())
            };
            self.tally.lookup_count += 1;
            if let Some(value_bytes) = value_bytes {
                self.tally.found += 1;
                self.tally.bytes += (key.len() + value_bytes) as u64;
            }
            self.tally.count_operations(1, Operation::Read);
        }
        self.set_found_message();
        Ok(())
    }

    fn set_found_message(&mut self) {
        let format = self.settings.format;
        // LevelDB's benchmarks of these two say nothing.
        let is_silent =
            matches!(self.step.kind, BenchmarkKind::ReadHot | BenchmarkKind::ReadMissing);
        if format == LineFormat::Leveldb && is_silent {
            return;
        }
        let tally = &mut self.tally;
        tally.message = found_message(format, tally.found, tally.lookup_count, self.step.num);
    }

    fn multi_read(&mut self) -> Result<()> {
        let limit = self.step.reads;
        let count = self.settings.multi_get_keys;
        let mut keys = KeyGenerator::new(self.settings);
        let mut lookup_keys: Vec<Vec<u8>> = vec![Vec::new(); count];
        while self.tally.wants_more(limit) {
            for slot in &mut lookup_keys {
                slot.clear();
                slot.extend_from_slice(keys.key(self.random.below(self.step.num)));
            }
            let values = self.keyspace.multi_get(&lookup_keys)?;
            self.tally.lookup_count += count as u64;
            for (key, value) in lookup_keys.iter().zip(&values) {
                if let Some(value) = value {
                    self.tally.found += 1;
                    self.tally.bytes += (key.len() + value.len()) as u64;
                }
            }
            self.tally.count_operations(count as u64, Operation::Read);
        }
        self.set_found_message();
        // RocksDB's message for this benchmark has no line break.
        self.tally.message.truncate(self.tally.message.trim_end().len());
        Ok(())
    }

    fn seek(&mut self) -> Result<()> {
        let limit = self.step.reads;
        let mut keys = KeyGenerator::new(self.settings);
        while self.tally.wants_more(limit) {
            let key = keys.key(self.random.below(self.step.num));
            let mut cursor = self.keyspace.cursor::<&[u8]>(..)?;
            cursor.seek(key)?;
            self.tally.lookup_count += 1;
            if cursor.valid() && cursor.key() == key {
                self.tally.found += 1;
            }
            for _ in 0..self.settings.seek_nexts {
                if !cursor.valid() {
                    break;
                }
                self.tally.bytes += (cursor.key().len() + black_box(cursor.value()?).len()) as u64;
                if self.settings.reverse_iterator { cursor.prev()? } else { cursor.next()? }
            }
            drop(cursor);
            self.tally.count_operations(1, Operation::Seek);
        }
        self.set_found_message();
        Ok(())
    }

    fn iterate(&mut self, reverse: bool) -> Result<()> {
        let limit = self.step.reads;
        let mut cursor = self.keyspace.cursor::<&[u8]>(..)?;
        if reverse {
            cursor.seek_to_last()?
        } else {
            cursor.seek_to_first()?
        }
        while cursor.valid() && self.tally.wants_more(limit) {
            self.tally.bytes += (cursor.key().len() + black_box(cursor.value()?).len()) as u64;
            self.tally.count_operations(1, Operation::Read);
            if reverse { cursor.prev()? } else { cursor.next()? }
        }
        Ok(())
    }

    fn read_write(&mut self) -> Result<()> {
        let limit = self.step.reads;
        let size = self.step.value_size;
        let mut keys = KeyGenerator::new(self.settings);
        let (mut reads, mut writes) = (0u64, 0u64);
        while self.tally.wants_more(limit) {
            let key = keys.key(self.random.below(self.step.num));
            if (reads + writes) % 100 < self.settings.read_percent {
                reads += 1;
                self.tally.lookup_count += 1;
                if self.keyspace.get_with(key, |value| black_box(value).len())?.is_some() {
                    self.tally.found += 1;
                }
                self.tally.count_operations(1, Operation::Read);
            } else {
                writes += 1;
                self.keyspace.put(key, self.values.next(size))?;
                self.tally.count_operations(1, Operation::Write);
            }
        }
        let (total, found) = (reads + writes, self.tally.found);
        self.tally.message =
            format!("( reads:{reads} writes:{writes} total:{total} found:{found})");
        Ok(())
    }

    fn write_in_background(&mut self) -> Result<()> {
        let size = self.step.value_size;
        let mut keys = KeyGenerator::new(self.settings);
        while self.tally.others_running() && !self.tally.is_stopped() {
            let key = keys.key(self.random.below(self.step.num));
            self.keyspace.put(key, self.values.next(size))?;
        }
        Ok(())
    }

    fn scan_in_background(&mut self) -> Result<()> {
        while self.tally.others_running() && !self.tally.is_stopped() {
            let mut cursor = self.keyspace.cursor::<&[u8]>(..)?;
            cursor.seek_to_first()?;
            while cursor.valid() && self.tally.others_running() {
                black_box(cursor.value()?);
                cursor.next()?;
            }
        }
        Ok(())
    }

    fn checksum(&mut self) -> Result<()> {
        let bytes = vec![b'x'; CHECKSUM_BYTES];
        let mut sum = 0;
        while self.tally.bytes < CHECKSUM_TOTAL && !self.tally.is_stopped() {
            sum ^= checksum(sum, 0, black_box(&bytes));
            self.tally.bytes += CHECKSUM_BYTES as u64;
            self.tally.count_operations(1, Operation::Hash);
        }
        black_box(sum);
        self.tally.message = "(4K per op)".to_string();
        Ok(())
    }
}

/// The numbers below `count` in random order.
fn shuffled(count: u64, random: &mut Random) -> Vec<u64> {
    let mut order: Vec<u64> = (0..count).collect();
    for index in (1..order.len()).rev() {
        order.swap(index, random.below(index as u64 + 1) as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shuffling_keeps_every_number() {
        let mut order = shuffled(1000, &mut Random::new(1));
        assert_ne!(order[..10], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        order.sort_unstable();
        assert!(order.iter().copied().eq(0..1000));
    }
}

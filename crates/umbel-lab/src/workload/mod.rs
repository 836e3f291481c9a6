//! Contents of a store and lookups in it: as in LevelDB's db_bench, or the user's own.

use std::sync::Arc;

use umbel_keygen::keys::{Random, push_decimal, push_random_bytes};

use crate::engine::{ReadDigest, Reader, Result, Store, Write, WriteSource};
use crate::measure::Stopwatch;
use crate::results::sample_recorder::{Recorder, StopRequested};
use crate::workload::data_file::UserData;
use crate::workload::prepared_writes::{PreparedWrites, for_each_key};

pub mod answer_check;
pub mod data_file;
pub mod prepared_writes;
pub mod stream_batch;
pub mod ycsb;

/// Digits of db_bench's keys.
const DIGITS: usize = 16;
/// Operations between two checks for a stop: some milliseconds, more with long values.
const OPERATIONS_PER_STOP_CHECK: u64 = 256;

/// Keys and values.
#[derive(Debug, Clone)]
pub enum Workload {
    /// Numbers below `num` of 16 digits, drawn with replacement, as in db_bench's `fillrandom` and
    /// `readrandom`: about two thirds of them are present.
    DbBench {
        /// Number of puts, and the bound of the numbers.
        num: u64,
        /// Number of lookups in a measurement.
        reads: u64,
        /// Bytes of a value.
        value_bytes: usize,
    },
    /// The user's data, in the order of the file, with `reads` lookups and at least one pass.
    UserData {
        /// The keys and queries.
        data: Arc<UserData>,
        /// Number of lookups in a measurement.
        reads: u64,
    },
}

impl Workload {
    /// Number of writes that fill a store.
    pub fn put_count(&self) -> u64 {
        match self {
            Workload::DbBench { num, .. } => *num,
            Workload::UserData { data, .. } => data.puts.len() as u64,
        }
    }

    /// Returns the number of lookups in a measurement.
    pub fn read_count(&self) -> u64 {
        match self {
            Workload::DbBench { reads, .. } => *reads,
            Workload::UserData { data, reads } => (*reads).max(data.gets.len() as u64),
        }
    }

    /// Returns its name among the workloads of one experiment.
    pub fn name(&self) -> String {
        match self {
            Workload::DbBench { num, value_bytes, .. } => format!("{num} of {value_bytes} bytes"),
            Workload::UserData { .. } => "the user's".to_string(),
        }
    }

    /// Puts all keys and values.
    ///
    /// # Errors
    /// An error of the store, or a stop of the run.
    pub fn fill(
        &self,
        store: &dyn Store,
        watch: &Stopwatch,
        recorder: &Recorder<'_>,
    ) -> Result<ReadDigest> {
        recorder.next("filling")?;
        let mut writes = WorkloadWrites {
            workload: self,
            recorder,
            stopped: None,
            random: Random::new(1_000),
            at: 0,
            key: Vec::new(),
            value: Vec::new(),
        };
        store.write_all(&mut PreparedWrites::new(&mut writes, watch))?;
        match writes.stopped {
            Some(stopped) => Err(stopped.into()),
            None => Ok(ReadDigest::default()),
        }
    }

    /// Returns the keys to look up, in an endless sequence.
    pub fn queries(&self, seed: u64) -> Queries<'_> {
        Queries { workload: self, missing: false, random: Random::new(2_000 + seed), at: 0 }
    }

    /// Returns absent keys; `None` if the user's data looks up none.
    pub fn missing(&self, seed: u64) -> Option<Queries<'_>> {
        match self {
            Workload::UserData { data, .. } if data.missing.is_empty() => None,
            _ => Some(Queries {
                workload: self,
                missing: true,
                random: Random::new(3_000 + seed),
                at: 0,
            }),
        }
    }

    /// Warms the cache by a scan and by as many gets as a measurement has. Returns the digest of
    /// the scan.
    ///
    /// # Errors
    /// An error of the store.
    pub fn warm_up(&self, reader: &mut dyn Reader, recorder: &Recorder<'_>) -> Result<ReadDigest> {
        recorder.next("warming up")?;
        let mut tally = ReadDigest::default();
        reader.scan(&mut tally)?;
        get(reader, self.queries(0), self.read_count(), &Stopwatch::default(), recorder)?;
        Ok(tally)
    }
}

/// Looks up the given number of keys, which are made while the clock is stopped.
///
/// # Errors
/// An error of the store, or a stop of the run.
pub fn get(
    reader: &mut dyn Reader,
    mut queries: Queries<'_>,
    count: u64,
    watch: &Stopwatch,
    recorder: &Recorder<'_>,
) -> Result<ReadDigest> {
    let mut tally = ReadDigest::default();
    let make = |key: &mut Vec<u8>| {
        queries.next(key);
        Ok(recorder.check_stop()?)
    };
    for_each_key(watch, count, make, |key| reader.get(key, &mut tally))?;
    Ok(tally)
}

/// Sequence of keys to look up.
#[derive(Debug, Clone)]
pub struct Queries<'a> {
    workload: &'a Workload,
    missing: bool,
    random: Random,
    at: usize,
}

impl Queries<'_> {
    /// Writes the next key.
    #[inline]
    pub fn next(&mut self, key: &mut Vec<u8>) {
        key.clear();
        match self.workload {
            Workload::DbBench { num, .. } => {
                push_decimal(self.random.below(*num), DIGITS, key);
                if self.missing {
                    // As in db_bench's `readmissing`: a key without its last byte is absent.
                    key.pop();
                }
            }
            Workload::UserData { data, .. } => {
                let queries = if self.missing { &data.missing } else { &data.gets };
                key.extend_from_slice(&queries[self.at]);
                self.at = (self.at + 1) % queries.len();
            }
        }
    }
}

/// The writes that fill a store.
struct WorkloadWrites<'a> {
    workload: &'a Workload,
    recorder: &'a Recorder<'a>,
    stopped: Option<StopRequested>,
    random: Random,
    at: u64,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl WriteSource for WorkloadWrites<'_> {
    fn next(&mut self) -> Option<Write<'_>> {
        if self.at == self.workload.put_count() {
            return None;
        }
        if self.at.is_multiple_of(OPERATIONS_PER_STOP_CHECK)
            && let Err(stopped) = self.recorder.check_stop()
        {
            self.stopped = Some(stopped);
            return None;
        }
        self.key.clear();
        self.value.clear();
        match self.workload {
            Workload::DbBench { num, value_bytes, .. } => {
                push_decimal(self.random.below(*num), DIGITS, &mut self.key);
                push_random_bytes(self.at, *value_bytes, &mut self.value);
            }
            Workload::UserData { data, .. } => {
                let put = &data.puts[self.at as usize];
                self.key.extend_from_slice(&put.key);
                push_random_bytes(self.at, put.value_bytes, &mut self.value);
            }
        }
        self.at += 1;
        Some((&self.key, Some(&self.value)))
    }
}

//! What is put into a store and what is asked of it: as LevelDB's db_bench does it, or the user's
//! own.

use std::sync::Arc;

use crate::ahead::{Ahead, each_key};
use crate::engine::{Reader, Result, Source, Store, Tally, Write};
use crate::keys::{Random, decimal, stream};
use crate::measure::Stopwatch;
use crate::recorder::{Recorder, Stopped};
use crate::user_data::UserData;

/// Digits of db_bench's keys.
const DIGITS: usize = 16;
/// Operations between two looks at whether to stop: some milliseconds, where values are long more.
const PER_LOOK: u64 = 256;

/// Keys and values.
#[derive(Debug, Clone)]
pub enum Workload {
    /// Numbers below `num` of 16 digits, drawn with replacement, as db_bench's `fillrandom` and
    /// `readrandom` do: some two thirds of them are there.
    DbBench {
        /// How many are put, and below which they are drawn.
        num: u64,
        /// How many are asked for in a measurement.
        reads: u64,
        /// Bytes of a value.
        value_bytes: usize,
    },
    /// What the user gave, in the order of the file, asked for `reads` times and at least once
    /// through.
    Own {
        /// The keys and queries.
        data: Arc<UserData>,
        /// How many are asked for in a measurement.
        reads: u64,
    },
}

impl Workload {
    /// How many writes fill a store.
    pub fn puts(&self) -> u64 {
        match self {
            Workload::DbBench { num, .. } => *num,
            Workload::Own { data, .. } => data.puts.len() as u64,
        }
    }

    /// How many keys are asked for in a measurement.
    pub fn reads(&self) -> u64 {
        match self {
            Workload::DbBench { reads, .. } => *reads,
            Workload::Own { data, reads } => (*reads).max(data.gets.len() as u64),
        }
    }

    /// What it is called among those of one experiment.
    pub fn name(&self) -> String {
        match self {
            Workload::DbBench { num, value_bytes, .. } => format!("{num} of {value_bytes} bytes"),
            Workload::Own { .. } => "the user's".to_string(),
        }
    }

    /// Puts everything.
    ///
    /// # Errors
    /// Those of the store, or that the run was stopped.
    pub fn fill(
        &self,
        store: &dyn Store,
        watch: &Stopwatch,
        recorder: &Recorder<'_>,
    ) -> Result<Tally> {
        recorder.next("filling")?;
        let mut writes = Writes {
            workload: self,
            recorder,
            stopped: None,
            random: Random::new(1_000),
            at: 0,
            key: Vec::new(),
            value: Vec::new(),
        };
        store.write_all(&mut Ahead::new(&mut writes, watch))?;
        match writes.stopped {
            Some(stopped) => Err(stopped.into()),
            None => Ok(Tally::default()),
        }
    }

    /// The keys that are asked for, one after the other without an end.
    pub fn queries(&self, seed: u64) -> Queries<'_> {
        Queries { workload: self, missing: false, random: Random::new(2_000 + seed), at: 0 }
    }

    /// Keys that are not there; `None` where the user asks for none.
    pub fn missing(&self, seed: u64) -> Option<Queries<'_>> {
        match self {
            Workload::Own { data, .. } if data.missing.is_empty() => None,
            _ => Some(Queries {
                workload: self,
                missing: true,
                random: Random::new(3_000 + seed),
                at: 0,
            }),
        }
    }

    /// Reads everything once: a scan, and as many gets as a measurement has. Says what the scan
    /// found.
    ///
    /// # Errors
    /// Those of the store.
    pub fn warm_up(&self, reader: &mut dyn Reader, recorder: &Recorder<'_>) -> Result<Tally> {
        recorder.next("warming up")?;
        let mut tally = Tally::default();
        reader.scan(&mut tally)?;
        get(reader, self.queries(0), self.reads(), &Stopwatch::default(), recorder)?;
        Ok(tally)
    }
}

/// Gets of so many keys, which are made while the clock is stopped.
///
/// # Errors
/// Those of the store, or that the run was stopped.
pub fn get(
    reader: &mut dyn Reader,
    mut queries: Queries<'_>,
    count: u64,
    watch: &Stopwatch,
    recorder: &Recorder<'_>,
) -> Result<Tally> {
    let mut tally = Tally::default();
    let make = |key: &mut Vec<u8>| {
        queries.next(key);
        Ok(recorder.go_on()?)
    };
    each_key(watch, count, make, |key| reader.get(key, &mut tally))?;
    Ok(tally)
}

/// Keys to ask for.
#[derive(Debug, Clone)]
pub struct Queries<'a> {
    workload: &'a Workload,
    missing: bool,
    random: Random,
    at: usize,
}

impl Queries<'_> {
    /// Writes the next one.
    #[inline]
    pub fn next(&mut self, key: &mut Vec<u8>) {
        key.clear();
        match self.workload {
            Workload::DbBench { num, .. } => {
                decimal(self.random.below(*num), DIGITS, key);
                if self.missing {
                    // As db_bench's `readmissing`: a key without its last byte is none.
                    key.pop();
                }
            }
            Workload::Own { data, .. } => {
                let queries = if self.missing { &data.missing } else { &data.gets };
                key.extend_from_slice(&queries[self.at]);
                self.at = (self.at + 1) % queries.len();
            }
        }
    }
}

/// The writes that fill a store.
struct Writes<'a> {
    workload: &'a Workload,
    recorder: &'a Recorder<'a>,
    stopped: Option<Stopped>,
    random: Random,
    at: u64,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Source for Writes<'_> {
    fn next(&mut self) -> Option<Write<'_>> {
        if self.at == self.workload.puts() {
            return None;
        }
        if self.at.is_multiple_of(PER_LOOK)
            && let Err(stopped) = self.recorder.go_on()
        {
            self.stopped = Some(stopped);
            return None;
        }
        self.key.clear();
        self.value.clear();
        match self.workload {
            Workload::DbBench { num, value_bytes, .. } => {
                decimal(self.random.below(*num), DIGITS, &mut self.key);
                stream(self.at, *value_bytes, &mut self.value);
            }
            Workload::Own { data, .. } => {
                let put = &data.puts[self.at as usize];
                self.key.extend_from_slice(&put.key);
                stream(self.at, put.value_bytes, &mut self.value);
            }
        }
        self.at += 1;
        Some((&self.key, Some(&self.value)))
    }
}

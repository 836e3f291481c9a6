//! Reads next to one writer at full rate.
//!
//! The writer writes present keys with the value that they already have, in random order. So the
//! answers to the reader do not depend on the speed of reader or writer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use umbel_keygen::keys::Random;
use umbel_lab::engine::{ReadDigest, Reader, Result, Store, Write, WriteSource};
use umbel_lab::measure::latency::Latencies;
use umbel_lab::measure::{Sample, measure, now, pause};

use crate::kv::key_population::Population;

/// Interval between the turns of a reader with a limited rate.
const SLOT: Duration = Duration::from_millis(1);

/// Source of overwrites, until it is stopped.
struct OverwriteSource<'a> {
    population: Population,
    random: Random,
    is_stopped: &'a AtomicBool,
    begun: &'a AtomicBool,
    done: u64,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl WriteSource for OverwriteSource<'_> {
    fn next(&mut self) -> Option<Write<'_>> {
        if self.is_stopped.load(Ordering::Relaxed) {
            return None;
        }
        self.done += 1;
        self.begun.store(true, Ordering::Relaxed);
        let index = self.random.below(self.population.keys.num());
        self.population.entry(index, &mut self.key, &mut self.value);
        Some((&self.key, Some(&self.value)))
    }
}

/// Times reads of this many present keys, at the given rate or as fast as possible.
pub fn read_alone(
    store: &dyn Store,
    read_path: usize,
    population: Population,
    reads: u64,
    seed: u64,
    rate: Option<f64>,
) -> Result<Sample> {
    let mut reader = store.reader(read_path)?;
    let reader = &mut *reader;
    let mut latencies = Latencies::with_capacity(reads);
    let mut random = Random::new(seed);
    let mut sample = measure(reads, || {
        let mut tally = ReadDigest::default();
        let (mut done, start) = (0, now());
        while done < reads {
            let slot = match rate {
                None => reads,
                // Reads that are due by now, at least one, so that each turn makes progress.
                Some(rate) => ((start.elapsed().as_secs_f64() * rate) as u64).max(done + 1),
            };
            let slot = slot.min(reads);
            time_read(reader, population, slot - done, &mut random, &mut latencies, &mut tally)?;
            done = slot;
            if rate.is_some() && done < reads {
                pause(SLOT);
            }
        }
        Ok(tally)
    })?;
    sample.latency = Some(latencies.spread());
    Ok(sample)
}

fn time_read(
    reader: &mut dyn Reader,
    population: Population,
    reads: u64,
    random: &mut Random,
    latencies: &mut Latencies,
    tally: &mut ReadDigest,
) -> Result<()> {
    let mut key = Vec::new();
    for _ in 0..reads {
        let name = population.present(random.below(population.keys.num()));
        population.keys.key(name, &mut key);
        let start = now();
        reader.get(&key, tally)?;
        latencies.add(start.elapsed().as_nanos() as u64);
    }
    Ok(())
}

/// Times reads like [`read_alone`] beside a writer, which begins first and has stopped on return.
pub fn read_while_writing(
    store: &dyn Store,
    read_path: usize,
    population: Population,
    reads: u64,
    seed: u64,
    rate: Option<f64>,
) -> Result<Sample> {
    let (stop, begun) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let (random, start) = (Random::new(!seed), now());
            let (key, value) = (Vec::new(), Vec::new());
            let mut source = OverwriteSource {
                population,
                random,
                is_stopped: &stop,
                begun: &begun,
                done: 0,
                key,
                value,
            };
            let written = store.write_all(&mut source);
            written.map(|()| source.done as f64 / start.elapsed().as_secs_f64())
        });
        // A short phase could be over before the writer has begun.
        while !begun.load(Ordering::Relaxed) && !writer.is_finished() {
            pause(SLOT);
        }
        let read = read_alone(store, read_path, population, reads, seed, rate);
        stop.store(true, Ordering::Relaxed);
        let rate = writer.join().map_err(|_| "the writer panicked")??;
        read.map(|sample| Sample { writes_per_second: Some(rate), ..sample })
    })
}

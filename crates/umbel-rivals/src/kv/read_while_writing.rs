//! Reading beside one writer at full rate.
//!
//! The writer gives keys that are there the value they have already, in an order without order, so
//! that what the reader finds does not depend on how fast either of them is.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use umbel_lab::engine::{Reader, Result, Source, Store, Tally, Write};
use umbel_lab::keys::Random;
use umbel_lab::latency::Latencies;
use umbel_lab::measure::{Sample, measure, now, pause};

use crate::population::Population;

/// How often a reader that is held back has a turn.
const SLOT: Duration = Duration::from_millis(1);

/// Overwrites until it is told to stop.
struct Overwrites<'a> {
    population: Population,
    random: Random,
    stop: &'a AtomicBool,
    begun: &'a AtomicBool,
    done: u64,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Source for Overwrites<'_> {
    fn next(&mut self) -> Option<Write<'_>> {
        if self.stop.load(Ordering::Relaxed) {
            return None;
        }
        self.done += 1;
        self.begun.store(true, Ordering::Relaxed);
        let index = self.random.below(self.population.keys.num());
        self.population.entry(index, &mut self.key, &mut self.value);
        Some((&self.key, Some(&self.value)))
    }
}

/// Reads this many keys that are there, each timed; at most so many a second, where that is said.
pub fn alone(
    store: &dyn Store,
    way: usize,
    population: Population,
    reads: u64,
    seed: u64,
    rate: Option<f64>,
) -> Result<Sample> {
    let mut reader = store.reader(way)?;
    let reader = &mut *reader;
    let mut latencies = Latencies::with_room(reads);
    let mut random = Random::new(seed);
    let mut sample = measure(reads, || {
        let mut tally = Tally::default();
        let (mut done, start) = (0, now());
        while done < reads {
            let slot = match rate {
                None => reads,
                // What is due by now, and no less than one, so that it goes on.
                Some(rate) => ((start.elapsed().as_secs_f64() * rate) as u64).max(done + 1),
            };
            let slot = slot.min(reads);
            timed(reader, population, slot - done, &mut random, &mut latencies, &mut tally)?;
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

fn timed(
    reader: &mut dyn Reader,
    population: Population,
    reads: u64,
    random: &mut Random,
    latencies: &mut Latencies,
    tally: &mut Tally,
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

/// The same beside a writer. It begins first, and has stopped when this returns.
pub fn beside(
    store: &dyn Store,
    way: usize,
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
            let mut source =
                Overwrites { population, random, stop: &stop, begun: &begun, done: 0, key, value };
            let written = store.write_all(&mut source);
            written.map(|()| source.done as f64 / start.elapsed().as_secs_f64())
        });
        // A short phase was over before the writer had begun.
        while !begun.load(Ordering::Relaxed) && !writer.is_finished() {
            pause(SLOT);
        }
        let read = alone(store, way, population, reads, seed, rate);
        stop.store(true, Ordering::Relaxed);
        let rate = writer.join().map_err(|_| "the writer panicked")??;
        read.map(|sample| Sample { writes_per_second: Some(rate), ..sample })
    })
}

//! Fills and reads the store of any engine.

use std::path::Path;
use std::time::Duration;

use umbel_keygen::keys::{KeySet, Random};
use umbel_lab::engine::{ReadDigest, Reader, Result, Store, Write, WriteSource};
use umbel_lab::measure::disk_usage;
use umbel_lab::measure::{Sample, measure};

use crate::kv::key_population::Population;
use crate::kv::phase::Phase;

/// Number of keys that the hot phase reads.
const HOT_KEYS: u64 = 10_000;
/// Keys of one multi_get.
const TOGETHER: usize = 32;
/// Entries after a seek.
const ENTRIES: usize = 10;
/// Threads of the concurrent phase.
const THREADS: u64 = 8;

/// Source that makes entries from names while they are written.
struct Entries<'a> {
    keys: KeySet,
    names: std::slice::Iter<'a, u64>,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl WriteSource for Entries<'_> {
    fn next(&mut self) -> Option<Write<'_>> {
        let name = *self.names.next()?;
        self.keys.key(name, &mut self.key);
        self.keys.value(name, &mut self.value);
        Some((&self.key, Some(&self.value)))
    }
}

/// Fills a store with the keys of these names, in the given order.
pub fn fill(store: &dyn Store, keys: KeySet, names: &[u64]) -> Result<Sample> {
    let mut entries = Entries { keys, names: names.iter(), key: Vec::new(), value: Vec::new() };
    measure(names.len() as u64, || {
        store.write_all(&mut entries)?;
        Ok(ReadDigest::default())
    })
}

/// Waits until the store has no work left and all its files are synced. The time in which the store
/// was only observed to be quiet does not count.
pub fn settle(store: &dyn Store, folder: &Path) -> Result<Sample> {
    let mut watched = Duration::ZERO;
    let mut sample = measure(1, || {
        store.flush()?;
        watched = store.wait()?;
        disk_usage::sync_all(folder)?;
        Ok(ReadDigest::default())
    })?;
    sample.wall_ns = sample.wall_ns.saturating_sub(watched.as_nanos() as u64);
    Ok(sample)
}

/// Reads everything twice to warm the caches: every key by a get, then all by a scan. The gets are
/// in random order, so that blocks do not lie in memory as they do on disk.
pub fn warm_up(store: &dyn Store, population: Population) -> Result<ReadDigest> {
    let mut reader = store.reader(0)?;
    let mut tally = ReadDigest::default();
    let mut key = Vec::new();
    let num = population.keys.num();
    for place in 0..num {
        // A prime above the largest number of keys, so that its steps reach each key once.
        let index = place * 1_000_000_007 % num;
        population.keys.key(population.present(index), &mut key);
        reader.get(&key, &mut tally)?;
    }
    reader.scan(&mut tally)?;
    Ok(tally)
}

/// Runs one repetition of a phase that reads; `seed` selects the keys.
pub fn read(
    store: &dyn Store,
    read_path: usize,
    population: Population,
    phase: Phase,
    reads: u64,
    seed: u64,
) -> Result<Sample> {
    let mut reader = store.reader(read_path)?;
    let reader = &mut *reader;
    let (keys, num) = (population.keys, population.keys.num());
    let hot = HOT_KEYS.min(num);
    let hot_name = |place: u64| population.present(place * (num / hot));
    let mut random = Random::new(seed);
    let hit = |random: &mut Random| population.present(random.below(num));
    let missing = |random: &mut Random| keys.absent(random.below(num));
    let half = |random: &mut Random| match random.below(2) {
        0 => population.present(random.below(num)),
        _ => keys.absent(random.below(num)),
    };
    let batches = reads.div_ceil(TOGETHER as u64);
    let multi = batches * TOGETHER as u64;
    let seeks = (reads / 5).max(1);
    match phase {
        Phase::GetHit => measure(reads, || get(reader, keys, reads, |_| hit(&mut random))),
        Phase::GetMissing => measure(reads, || get(reader, keys, reads, |_| missing(&mut random))),
        Phase::GetHalf => measure(reads, || get(reader, keys, reads, |_| half(&mut random))),
        Phase::GetHot => {
            get(reader, keys, hot, hot_name)?;
            measure(reads, || get(reader, keys, reads, |_| hot_name(random.below(hot))))
        }
        Phase::MultiHit => {
            measure(multi, || multi_get(reader, keys, batches, |_| hit(&mut random)))
        }
        Phase::MultiHalf => {
            measure(multi, || multi_get(reader, keys, batches, |_| half(&mut random)))
        }
        Phase::MultiMissing => {
            measure(multi, || multi_get(reader, keys, batches, |_| missing(&mut random)))
        }
        Phase::SeekKept | Phase::SeekFresh => {
            let kept = phase == Phase::SeekKept;
            measure(seeks, || seek(reader, keys, seeks, kept, |_| hit(&mut random)))
        }
        Phase::Scan => measure(population.live(), || {
            let mut tally = ReadDigest::default();
            reader.scan(&mut tally)?;
            Ok(tally)
        }),
        _ => Err(format!("{} is not a read phase", phase.name()).into()),
    }
}

#[inline]
fn get(
    reader: &mut dyn Reader,
    keys: KeySet,
    reads: u64,
    mut name: impl FnMut(u64) -> u64,
) -> Result<ReadDigest> {
    let mut tally = ReadDigest::default();
    let mut key = Vec::new();
    for place in 0..reads {
        keys.key(name(place), &mut key);
        reader.get(&key, &mut tally)?;
    }
    Ok(tally)
}

#[inline]
fn multi_get(
    reader: &mut dyn Reader,
    keys: KeySet,
    batches: u64,
    mut name: impl FnMut(u64) -> u64,
) -> Result<ReadDigest> {
    let mut tally = ReadDigest::default();
    let mut batch = vec![Vec::new(); TOGETHER];
    for place in 0..batches {
        for key in &mut batch {
            keys.key(name(place), key);
        }
        reader.multi_get(&batch, &mut tally)?;
    }
    Ok(tally)
}

#[inline]
fn seek(
    reader: &mut dyn Reader,
    keys: KeySet,
    seeks: u64,
    kept: bool,
    mut name: impl FnMut(u64) -> u64,
) -> Result<ReadDigest> {
    let mut tally = ReadDigest::default();
    let mut key = Vec::new();
    for place in 0..seeks {
        keys.key(name(place), &mut key);
        if kept {
            reader.seek_reusing_cursor(&key, ENTRIES, &mut tally)?;
        } else {
            reader.seek(&key, ENTRIES, &mut tally)?;
        }
    }
    Ok(tally)
}

/// Gets one key, after which a store counts as open.
pub fn first_answer(store: &dyn Store, population: Population) -> Result<ReadDigest> {
    let mut tally = ReadDigest::default();
    let mut key = Vec::new();
    population.keys.key(population.present(population.keys.num() / 2), &mut key);
    store.reader(0)?.get(&key, &mut tally)?;
    Ok(tally)
}

/// Number of keys that the synced phases of one round write.
pub fn synced_keys(puts: u64) -> u64 {
    puts + 2 * puts.div_ceil(THREADS) * THREADS
}

/// Puts keys from `first` on, synced, from one thread.
pub fn synced_one(store: &dyn Store, keys: KeySet, first: u64, puts: u64) -> Result<Sample> {
    measure(puts, || {
        put_synced(store, keys, first, puts)?;
        Ok(ReadDigest::default())
    })
}

/// Puts twice as many keys as [`synced_one`], synced, from eight threads.
pub fn synced_eight(store: &dyn Store, keys: KeySet, first: u64, puts: u64) -> Result<Sample> {
    let each = 2 * puts.div_ceil(THREADS);
    measure(each * THREADS, || {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| {
                    scope.spawn(move || put_synced(store, keys, first + thread * each, each))
                })
                .collect();
            threads.into_iter().try_for_each(|thread| match thread.join() {
                Ok(done) => done,
                Err(_) => Err("a thread that wrote panicked".into()),
            })
        })?;
        Ok(ReadDigest::default())
    })
}

fn put_synced(store: &dyn Store, keys: KeySet, first: u64, puts: u64) -> Result<()> {
    let (mut key, mut value) = (Vec::new(), Vec::new());
    for index in first..first + puts {
        let name = keys.new_name(index);
        keys.key(name, &mut key);
        keys.value(name, &mut value);
        store.put_synced(&key, &value)?;
    }
    Ok(())
}

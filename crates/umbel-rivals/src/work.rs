//! The phases, for any engine.

use std::time::Duration;

use crate::engine::{Reader, Result, Source, Store, Tally};
use umbel_lab::keys::{Keys, Random};
use crate::measure::{Sample, measure};
use crate::plan::Phase;

/// How many keys the hot phase reads.
const HOT_KEYS: u64 = 10_000;
/// Keys of one multi_get.
const TOGETHER: usize = 32;
/// Entries after a seek.
const ENTRIES: usize = 10;
/// Threads of the phase with several.
const THREADS: u64 = 8;

/// Makes entries out of names while they are written.
struct Entries<'a> {
    keys: Keys,
    names: std::slice::Iter<'a, u64>,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Source for Entries<'_> {
    fn next(&mut self) -> Option<(&[u8], &[u8])> {
        let name = *self.names.next()?;
        self.keys.key(name, &mut self.key);
        self.keys.value(name, &mut self.value);
        Some((&self.key, &self.value))
    }
}

/// Fills a store with the keys of these names in this order.
pub fn fill(store: &dyn Store, keys: Keys, names: &[u64]) -> Result<Sample> {
    let mut entries = Entries { keys, names: names.iter(), key: Vec::new(), value: Vec::new() };
    measure(names.len() as u64, || {
        store.write_all(&mut entries)?;
        Ok(Tally::default())
    })
}

/// Waits until the store has nothing to do. What was spent only to see that is not counted.
pub fn settle(store: &dyn Store) -> Result<Sample> {
    let mut watched = Duration::ZERO;
    let mut sample = measure(1, || {
        watched = store.settle()?;
        Ok(Tally::default())
    })?;
    sample.wall_ns = sample.wall_ns.saturating_sub(watched.as_nanos() as u64);
    Ok(sample)
}

/// Reads everything twice, so that caches are warm: by a scan, and every key by a get.
pub fn warm_up(store: &dyn Store, keys: Keys, sorted: &[u64]) -> Result<Tally> {
    let mut reader = store.reader()?;
    let mut tally = Tally::default();
    reader.scan(&mut tally)?;
    let mut key = Vec::new();
    for &name in sorted {
        keys.key(name, &mut key);
        reader.get(&key, &mut tally)?;
    }
    Ok(tally)
}

/// One repetition of a phase that reads; `seed` decides which keys.
pub fn read(store: &dyn Store, keys: Keys, phase: Phase, reads: u64, seed: u64) -> Result<Sample> {
    let mut reader = store.reader()?;
    let random = Random::new(seed);
    let hot = HOT_KEYS.min(keys.num());
    if phase == Phase::GetHot {
        get(&mut *reader, keys, hot, |place| hot_name(keys, hot, place))?;
    }
    let mut random = random;
    let reader = &mut *reader;
    match phase {
        Phase::GetHit => {
            measure(reads, || get(reader, keys, reads, |_| keys.present(random.below(keys.num()))))
        }
        Phase::GetMissing => {
            measure(reads, || get(reader, keys, reads, |_| keys.absent(random.below(keys.num()))))
        }
        Phase::GetHot => {
            measure(reads, || get(reader, keys, reads, |_| hot_name(keys, hot, random.below(hot))))
        }
        Phase::MultiGet => {
            let batches = reads.div_ceil(TOGETHER as u64);
            measure(batches * TOGETHER as u64, || multi_get(reader, keys, batches, random))
        }
        Phase::Seek => {
            let seeks = (reads / 5).max(1);
            measure(seeks, || seek(reader, keys, seeks, random))
        }
        Phase::Scan => measure(keys.num(), || {
            let mut tally = Tally::default();
            reader.scan(&mut tally)?;
            Ok(tally)
        }),
        _ => Err(format!("{} does not only read", phase.name()).into()),
    }
}

/// The name of a hot key: they lie all over the store, each in another block.
fn hot_name(keys: Keys, hot: u64, place: u64) -> u64 {
    keys.present(place * (keys.num() / hot))
}

#[inline]
fn get(
    reader: &mut dyn Reader,
    keys: Keys,
    reads: u64,
    mut name: impl FnMut(u64) -> u64,
) -> Result<Tally> {
    let mut tally = Tally::default();
    let mut key = Vec::new();
    for place in 0..reads {
        keys.key(name(place), &mut key);
        reader.get(&key, &mut tally)?;
    }
    Ok(tally)
}

fn multi_get(
    reader: &mut dyn Reader,
    keys: Keys,
    batches: u64,
    mut random: Random,
) -> Result<Tally> {
    let mut tally = Tally::default();
    let mut batch = vec![Vec::new(); TOGETHER];
    for _ in 0..batches {
        for key in &mut batch {
            keys.key(keys.present(random.below(keys.num())), key);
        }
        reader.multi_get(&batch, &mut tally)?;
    }
    Ok(tally)
}

fn seek(reader: &mut dyn Reader, keys: Keys, seeks: u64, mut random: Random) -> Result<Tally> {
    let mut tally = Tally::default();
    let mut key = Vec::new();
    for _ in 0..seeks {
        keys.key(keys.present(random.below(keys.num())), &mut key);
        reader.seek(&key, ENTRIES, &mut tally)?;
    }
    Ok(tally)
}

/// One get, after which a store counts as open.
pub fn first_answer(store: &dyn Store, keys: Keys) -> Result<Tally> {
    let mut tally = Tally::default();
    let mut key = Vec::new();
    keys.key(keys.present(keys.num() / 2), &mut key);
    store.reader()?.get(&key, &mut tally)?;
    Ok(tally)
}

/// How many keys the synced phases of one round write.
pub fn synced_keys(puts: u64) -> u64 {
    puts + 2 * puts.div_ceil(THREADS) * THREADS
}

/// Synced puts from one thread, of keys from `first` on.
pub fn synced_one(store: &dyn Store, keys: Keys, first: u64, puts: u64) -> Result<Sample> {
    measure(puts, || {
        put_synced(store, keys, first, puts)?;
        Ok(Tally::default())
    })
}

/// Twice as many synced puts from eight threads.
pub fn synced_eight(store: &dyn Store, keys: Keys, first: u64, puts: u64) -> Result<Sample> {
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
        Ok(Tally::default())
    })
}

fn put_synced(store: &dyn Store, keys: Keys, first: u64, puts: u64) -> Result<()> {
    let (mut key, mut value) = (Vec::new(), Vec::new());
    for index in first..first + puts {
        let name = keys.further(index);
        keys.key(name, &mut key);
        keys.value(name, &mut value);
        store.put_synced(&key, &value)?;
    }
    Ok(())
}

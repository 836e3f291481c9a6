//! Threads that insert, probe, flush, step and rebuild at the same time: no reader gets a false
//! negative for a published key, and every key is present after a restart.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use umbel_env::Env;
use umbel_existence::{ExistenceFilter, ExistenceOptions, ExistenceSize, HashSource};

use super::fixture::small;
use umbel_testing::existence_script::memory_hash_source::{hash_of, settle};

const INSERTERS: u64 = 3;
const KEYS_EACH: u64 = 20_000;

/// Keys that each inserter has put where the source finds them, and those that it published.
#[derive(Default)]
struct Shared {
    put: [AtomicU64; INSERTERS as usize],
    published: [AtomicU64; INSERTERS as usize],
    /// Number of rounds of the worker; inserters insert at the worker's pace.
    rounds: AtomicU64,
    done: AtomicBool,
}

impl Shared {
    /// Number of keys that all inserters have published.
    fn published_total(&self) -> u64 {
        self.published.iter().map(|count| count.load(Ordering::Acquire)).sum()
    }
}

fn key(inserter: u64, number: u64) -> u64 {
    hash_of(number * INSERTERS + inserter)
}

/// Returns keys in the order of the inserters; the cursor is an inserter and a number.
impl HashSource for Shared {
    fn hashes(
        &self,
        after: Option<&[u8]>,
        most: usize,
        output: &mut Vec<u64>,
    ) -> umbel_base::Result<Option<Vec<u8>>> {
        let at = after.map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
        let (inserter, start) = (at >> 32, at & 0xffff_ffff);
        let put = self.put[inserter as usize].load(Ordering::Acquire);
        let end = put.min(start + most as u64);
        output.extend((start..end).map(|number| key(inserter, number)));
        let next = if end < put { at - start + end } else { (inserter + 1) << 32 };
        Ok((next >> 32 < INSERTERS).then(|| next.to_le_bytes().to_vec()))
    }
}

fn insert_all(filter: &ExistenceFilter, shared: &Shared, inserter: u64) {
    for number in 0..KEYS_EACH {
        while shared.rounds.load(Ordering::Acquire) < number / 40 {
            std::thread::yield_now();
        }
        shared.put[inserter as usize].store(number + 1, Ordering::Release);
        filter.insert(key(inserter, number));
        shared.published[inserter as usize].store(number + 1, Ordering::Release);
    }
}

fn probe_published(filter: &ExistenceFilter, shared: &Shared, mut state: u64) -> u64 {
    let mut queries = 0;
    while !shared.done.load(Ordering::Acquire) {
        for inserter in 0..INSERTERS {
            let published = shared.published[inserter as usize].load(Ordering::Acquire);
            if published == 0 {
                continue;
            }
            state = hash_of(state);
            // The newest key, which races with concurrent work, and a random one.
            for number in [published - 1, state % published] {
                let hash = key(inserter, number);
                assert!(filter.may_contain(hash), "key {number} of {inserter} of {published}");
                let mut answer = [false];
                filter.may_contain_batch(&[hash], &mut answer);
                assert!(answer[0], "key {number} of {inserter} of {published}, in a batch");
            }
            queries += 2;
        }
    }
    queries
}

/// Calls `step`, flushes with the position of all published keys, and requests rebuilds.
fn work(filter: &ExistenceFilter, shared: &Shared) {
    let mut round = 0u64;
    while !shared.done.load(Ordering::Acquire) {
        filter.step(shared).unwrap();
        round += 1;
        shared.rounds.store(round, Ordering::Release);
        if round.is_multiple_of(5) {
            filter.flush(shared.published_total()).unwrap();
        }
        if round.is_multiple_of(90) {
            filter.rebuild();
        }
    }
}

fn all_there(filter: &ExistenceFilter) -> bool {
    let all = (0..INSERTERS).flat_map(|of| (0..KEYS_EACH).map(move |number| key(of, number)));
    all.into_iter().all(|hash| filter.may_contain(hash))
}

fn run(env: &Env, folder: &Path, options: ExistenceOptions) -> Shared {
    let filter = ExistenceFilter::open(env, folder, options).unwrap();
    let shared = Shared::default();
    std::thread::scope(|scope| {
        let readers = [1, 2].map(|seed| {
            let (filter, shared) = (&filter, &shared);
            scope.spawn(move || probe_published(filter, shared, seed))
        });
        let worker = scope.spawn(|| work(&filter, &shared));
        let inserters = [0, 1, 2].map(|inserter| {
            let (filter, shared) = (&filter, &shared);
            scope.spawn(move || insert_all(filter, shared, inserter))
        });
        let ended = inserters.map(std::thread::ScopedJoinHandle::join);
        shared.done.store(true, Ordering::Release);
        assert!(ended.iter().all(Result::is_ok));
        worker.join().unwrap();
        assert!(readers.into_iter().map(|reader| reader.join().unwrap()).sum::<u64>() > 0);
    });
    assert!(all_there(&filter));
    let stats = filter.stats();
    assert!(stats.growths + stats.rebuilds > 2, "{stats:?}");
    filter.flush(shared.published_total()).unwrap();
    shared
}

#[test]
fn concurrent_readers_get_no_false_negative() {
    for first_keys in [100, 3_000, 1 << 20] {
        let folder = tempfile::tempdir().unwrap();
        let options = ExistenceOptions {
            size: ExistenceSize::Growing { first_keys },
            step_bytes: 1 << 16,
            ..small()
        };
        let shared = run(&Env::system(), folder.path(), options);
        let again = ExistenceFilter::open(&Env::system(), folder.path(), options).unwrap();
        assert_eq!(again.covered(), INSERTERS * KEYS_EACH);
        assert!(all_there(&again));
        settle(&again, &shared).unwrap();
        assert!(all_there(&again));
    }
}

/// Lines are healed, and pages read late, while other threads insert and probe.
#[test]
fn damaged_lines_heal_beside_inserts() {
    let folder = tempfile::tempdir().unwrap();
    let env = Env::system();
    let options = ExistenceOptions {
        size: ExistenceSize::Fixed { bytes: 1 << 20 },
        step_bytes: 1 << 17,
        ..small()
    };
    let shared = run(&env, folder.path(), options);
    let filter = ExistenceFilter::open(&env, folder.path(), options).unwrap();
    filter.checkpoint(INSERTERS * KEYS_EACH).unwrap();
    drop(filter);
    // Two while a second filter is filled: it replaces the first one, and is repaired.
    let mut damaged_files = 0;
    for entry in env.files.read_dir(folder.path()).unwrap() {
        if entry.name.ends_with(".filter") {
            damaged_files += 1;
            let path = folder.path().join(&entry.name);
            let file = env.files.open(&path, umbel_env::Access::ReadWrite).unwrap();
            // A sector of each 64 KiB: eight of 1,024 lines.
            for at in (4096..1 << 20).step_by(64 * 1024) {
                file.write_all_at(&[0; 512], at).unwrap();
            }
        }
    }
    let filter = ExistenceFilter::open(&env, folder.path(), options).unwrap();
    let (done, published) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Keys that the source does not hand out: only `insert` adds them.
            for number in 0..60_000 {
                filter.insert(hash_of((1 << 41) + number));
                published.store(number + 1, Ordering::Release);
            }
            done.store(true, Ordering::Release);
        });
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                let published = published.load(Ordering::Acquire);
                for number in published.saturating_sub(50)..published {
                    assert!(filter.may_contain(hash_of((1 << 41) + number)), "{number}");
                }
            }
        });
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                filter.step(&CombinedSource(&shared, &published)).unwrap();
            }
        });
    });
    settle(&filter, &CombinedSource(&shared, &published)).unwrap();
    let stats = filter.stats();
    let healed = (stats.healed_lines, stats.damaged_lines);
    assert_eq!(healed, (128 * damaged_files, 0), "{stats:?}");
    assert!(all_there(&filter));
    assert!((0..60_000).all(|number| filter.may_contain(hash_of((1 << 41) + number))));
}

/// The keys of all inserters, and then the keys of the inserter beside the healing that were
/// published when the walk reached them.
struct CombinedSource<'a>(&'a Shared, &'a AtomicU64);

impl HashSource for CombinedSource<'_> {
    fn hashes(
        &self,
        after: Option<&[u8]>,
        most: usize,
        output: &mut Vec<u64>,
    ) -> umbel_base::Result<Option<Vec<u8>>> {
        if after.is_none() {
            // One more than the published keys: it may be inserted and not published yet.
            let published = self.1.load(Ordering::Acquire) + 1;
            output.extend((0..published).map(|number| hash_of((1 << 41) + number)));
        }
        self.0.hashes(after, most, output)
    }
}

//! Threads that insert, ask, flush, step and rebuild beside each other: no key is denied to whoever
//! learned of it, and every key is there after a restart.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use umbel_env::Env;
use umbel_existence::{ExistenceFilter, ExistenceOptions, Size, Source};

use super::keys::{hash_of, settle};
use super::stage::small;

const INSERTERS: u64 = 3;
const KEYS_EACH: u64 = 20_000;

/// What each inserter has put where the source finds it, and of how many keys it told others.
#[derive(Default)]
struct Shared {
    put: [AtomicU64; INSERTERS as usize],
    told: [AtomicU64; INSERTERS as usize],
    /// How often the worker has worked; inserters keep to its pace.
    rounds: AtomicU64,
    done: AtomicBool,
}

fn key(inserter: u64, number: u64) -> u64 {
    hash_of(number * INSERTERS + inserter)
}

/// In the order of the inserters; the cursor is an inserter and a number.
impl Source for Shared {
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
        shared.told[inserter as usize].store(number + 1, Ordering::Release);
    }
}

fn ask(filter: &ExistenceFilter, shared: &Shared, mut state: u64) -> u64 {
    let mut asked = 0;
    while !shared.done.load(Ordering::Acquire) {
        for inserter in 0..INSERTERS {
            let told = shared.told[inserter as usize].load(Ordering::Acquire);
            if told == 0 {
                continue;
            }
            state = hash_of(state);
            // The newest, which races with what goes on, and any one.
            for number in [told - 1, state % told] {
                let hash = key(inserter, number);
                assert!(filter.may_contain(hash), "key {number} of {inserter} of {told}");
                let mut answer = [false];
                filter.may_contain_batch(&[hash], &mut answer);
                assert!(answer[0], "key {number} of {inserter} of {told}, in a batch");
            }
            asked += 2;
        }
    }
    asked
}

/// Steps, flushes with the position that all keys told before make up, and asks for rebuilds.
fn work(filter: &ExistenceFilter, shared: &Shared) {
    let mut round = 0u64;
    while !shared.done.load(Ordering::Acquire) {
        filter.step(shared).unwrap();
        round += 1;
        shared.rounds.store(round, Ordering::Release);
        if round.is_multiple_of(5) {
            let told = || shared.told.iter().map(|told| told.load(Ordering::Acquire)).sum::<u64>();
            filter.flush(told()).unwrap();
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
            scope.spawn(move || ask(filter, shared, seed))
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
    let told: u64 = shared.told.iter().map(|told| told.load(Ordering::Acquire)).sum();
    filter.flush(told).unwrap();
    shared
}

#[test]
fn nobody_is_denied_a_key_he_learned_of() {
    for first_keys in [100, 3_000, 1 << 20] {
        let folder = tempfile::tempdir().unwrap();
        let options =
            ExistenceOptions { size: Size::Growing { first_keys }, step_bytes: 1 << 16, ..small() };
        let shared = run(&Env::system(), folder.path(), options);
        let again = ExistenceFilter::open(&Env::system(), folder.path(), options).unwrap();
        assert_eq!(again.covered(), INSERTERS * KEYS_EACH);
        assert!(all_there(&again));
        settle(&again, &shared).unwrap();
        assert!(all_there(&again));
    }
}

/// Lines are healed, and pages read late, while others insert and ask.
#[test]
fn damaged_lines_are_remade_beside_inserters() {
    let folder = tempfile::tempdir().unwrap();
    let env = Env::system();
    let options =
        ExistenceOptions { size: Size::Fixed { bytes: 1 << 20 }, step_bytes: 1 << 17, ..small() };
    let shared = run(&env, folder.path(), options);
    let filter = ExistenceFilter::open(&env, folder.path(), options).unwrap();
    filter.checkpoint(INSERTERS * KEYS_EACH).unwrap();
    drop(filter);
    for entry in env.files.read_dir(folder.path()).unwrap() {
        if entry.name.ends_with(".filter") {
            let path = folder.path().join(&entry.name);
            let file = env.files.open(&path, umbel_env::Access::ReadWrite).unwrap();
            // A sector of each 64 KiB: eight of 1,024 lines.
            for at in (4096..1 << 20).step_by(64 * 1024) {
                file.write_all_at(&[0; 512], at).unwrap();
            }
        }
    }
    let filter = ExistenceFilter::open(&env, folder.path(), options).unwrap();
    let (done, told) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Beyond those that the source hands out: only `insert` brings them.
            for number in 0..60_000 {
                filter.insert(hash_of((1 << 41) + number));
                told.store(number + 1, Ordering::Release);
            }
            done.store(true, Ordering::Release);
        });
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                let told = told.load(Ordering::Acquire);
                for number in told.saturating_sub(50)..told {
                    assert!(filter.may_contain(hash_of((1 << 41) + number)), "{number}");
                }
            }
        });
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                filter.step(&Both(&shared, &told)).unwrap();
            }
        });
    });
    settle(&filter, &Both(&shared, &told)).unwrap();
    let stats = filter.stats();
    assert_eq!((stats.healed_lines, stats.damaged_lines), (128, 0), "{stats:?}");
    assert!(all_there(&filter));
    assert!((0..60_000).all(|number| filter.may_contain(hash_of((1 << 41) + number))));
}

/// The keys of all inserters, and then those of the one beside the healing that were told of when
/// the walk came to them.
struct Both<'a>(&'a Shared, &'a AtomicU64);

impl Source for Both<'_> {
    fn hashes(
        &self,
        after: Option<&[u8]>,
        most: usize,
        output: &mut Vec<u64>,
    ) -> umbel_base::Result<Option<Vec<u8>>> {
        if after.is_none() {
            // One more than was told: it may be inserted and not told yet.
            let told = self.1.load(Ordering::Acquire) + 1;
            output.extend((0..told).map(|number| hash_of((1 << 41) + number)));
        }
        self.0.hashes(after, most, output)
    }
}

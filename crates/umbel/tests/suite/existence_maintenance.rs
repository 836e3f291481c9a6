//! Tests of the maintenance of existence filters: which thread does it after a failure, what waits
//! for it, and its memory.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use umbel::{Db, Env, Error, ExistenceSize, Keyspace, KeyspaceOptions, Options, Result};
use umbel_env::{JoinHandle, Threads};
use umbel_sim::{Fault, FaultKind, Sim};

use crate::suite::existence::{denies, filter, filtered, has_all};
use crate::suite::fixture::{PATH, again, existing, fill, inline, key, new_store, threaded, tiny};
use crate::suite::hooked_files::{Hooks, hooked};

/// An environment that refuses to start the maintenance thread of filters, a given number of times.
#[derive(Debug)]
struct Refusing {
    threads: Arc<dyn Threads>,
    left: AtomicUsize,
}

impl Threads for Refusing {
    fn spawn(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> Result<Box<dyn JoinHandle>> {
        let take = |left: usize| left.checked_sub(1);
        let (relaxed, left) = (Ordering::Relaxed, &self.left);
        if name == "umbel-existence" && left.fetch_update(relaxed, relaxed, take).is_ok() {
            let source = io::Error::other("too many threads");
            return Err(Error::io("start a thread", Path::new(name), source));
        }
        self.threads.spawn(name, work)
    }

    fn parallelism(&self) -> usize {
        self.threads.parallelism()
    }
}

/// Waits up to half a minute for another thread.
fn wait_until(mut is_done: impl FnMut() -> bool) {
    let (_sender, never) = mpsc::channel::<()>();
    for _ in 0..3000 {
        if is_done() {
            return;
        }
        let _ = never.recv_timeout(Duration::from_millis(10));
    }
    panic!("the condition did not become true in time");
}

fn answers(keyspace: &Keyspace) -> bool {
    keyspace.stats().existence.is_some_and(|stats| stats.is_answering)
}

/// Story: if the maintenance thread could not be started, the start was never retried, and the
/// existing keyspace could not be opened.
#[test]
fn thread_start_is_retried() {
    let sim = Sim::new(1);
    let system = sim.env();
    let left = AtomicUsize::new(usize::MAX);
    let refusing = Arc::new(Refusing { threads: Arc::clone(&system.threads), left });
    let env = Env { threads: Arc::<Refusing>::clone(&refusing), ..system };
    let db = Db::open(PATH, threaded(&env, 1)).unwrap();
    let keyspace = db.keyspace("a", filtered(tiny())).unwrap();
    fill(&keyspace, 0..100, 1);
    let problem = keyspace.stats().existence_problem.expect("there is no thread");
    assert!(problem.contains("too many threads"), "{problem}");
    has_all(&keyspace, 0..100);
    drop((keyspace, db));
    // With a filter at the open too.
    let db = Db::open(PATH, threaded(&env, 1)).unwrap();
    let keyspace = existing(&db, "a");
    has_all(&keyspace, 0..100);
    assert!(!answers(&keyspace));
    refusing.left.store(0, Ordering::Relaxed);
    let mut next = 100;
    wait_until(|| {
        // Time passes, and an event wakes the threads.
        sim.advance(Duration::from_secs(70));
        fill(&keyspace, next..next + 1, 1);
        keyspace.flush().unwrap();
        next += 1;
        answers(&keyspace)
    });
    assert_eq!(keyspace.stats().existence_problem, None);
    denies(&keyspace, 100_000..100_300);
    has_all(&keyspace, 0..next);
}

/// Makes the filter maintenance of the first keyspace panic whenever it creates the filter's
/// directory.
fn panic_repeatedly(hooks: &Hooks) {
    let again = hooks.clone();
    hooks.before("create_dir_all *000000.existence", move || {
        panic_repeatedly(&again);
        panic!("planted: the folder of the first filter");
    });
}

/// Story: a panic in the maintenance of one filter ended the round, so the filters after it were
/// never maintained. Without background threads the caller's put panicked.
#[test]
fn panic_in_one_filter_does_not_affect_others() {
    for threads in [0, 1] {
        let sim = Sim::new(1);
        let (env, hooks) = hooked(&sim.env());
        panic_repeatedly(&hooks);
        let db = Db::open(PATH, threaded(&env, threads)).unwrap();
        let first = db.keyspace("a", filtered(tiny())).unwrap();
        let second = db.keyspace("b", filtered(tiny())).unwrap();
        for keyspace in [&first, &second] {
            fill(keyspace, 0..300, 1);
            keyspace.flush().unwrap();
        }
        wait_until(|| answers(&second));
        denies(&second, 1000..1300);
        wait_until(|| first.stats().existence_problem.is_some());
        let problem = first.stats().existence_problem.unwrap_or_default();
        assert!(problem.contains("panicked"), "{problem}");
        has_all(&first, 0..300);
        has_all(&second, 0..300);
        assert_eq!(db.stats().read_only_reason, None);
        drop((first, second));
        db.close().unwrap();
        // The next open repeats the upkeep.
        let db = again(&sim);
        denies(&existing(&db, "a"), 1000..1300);
        has_all(&existing(&db, "a"), 0..300);
    }
}

/// Story: a close did not wait for callers' threads that worked on a filter. After a close the
/// directory can belong to another process.
#[test]
fn close_waits_for_filter_work_on_caller_threads() {
    let sim = Sim::new(1);
    let (env, hooks) = hooked(&sim.env());
    let db = Db::open(PATH, inline(&env)).unwrap();
    let keyspace = db.keyspace("a", filtered(tiny())).unwrap();
    fill(&keyspace, 0..50, 1);
    let (entered, has_entered) = mpsc::channel();
    let (release, is_released) = mpsc::channel::<()>();
    let (closed, has_closed) = mpsc::channel();
    hooks.before("create *.filter", move || {
        entered.send(()).unwrap();
        is_released.recv().unwrap();
    });
    let size = ExistenceSize::Fixed { bytes: 8192 };
    let other = KeyspaceOptions { existence_filter: size, ..tiny() };
    let was_closed_early = std::thread::scope(|scope| {
        let caller = scope.spawn(|| db.keyspace("a", other).map(drop));
        has_entered.recv().unwrap();
        sim.fail_site("sync *.log", 1, Fault { kind: FaultKind::Eio, sticky: true });
        let synced = keyspace.put(key(60), b"x").and_then(|()| db.sync());
        let closer = scope.spawn(|| {
            let ended = db.clone().close();
            closed.send(()).unwrap();
            ended
        });
        let was_closed_early = has_closed.recv_timeout(Duration::from_millis(300)).is_ok();
        release.send(()).unwrap();
        drop(caller.join().unwrap());
        assert!(closer.join().unwrap().is_err() && synced.is_err(), "the disk failed");
        was_closed_early
    });
    assert!(!was_closed_early, "a thread still worked on a filter");
}

/// Story: deleted keys stayed in a filter forever, and a growing filter kept growing.
#[test]
fn filter_is_rebuilt_when_most_keys_are_deleted() {
    for size in [ExistenceSize::Growing { first_keys: 50 }, ExistenceSize::Fixed { bytes: 4096 }] {
        let (_sim, db) = new_store();
        let options = KeyspaceOptions { existence_filter: size, ..tiny() };
        let keyspace = db.keyspace("a", options).unwrap();
        fill(&keyspace, 0..2000, 1);
        keyspace.compact(None, None).unwrap();
        let full = filter(&keyspace);
        assert!(full.items > 1800, "{full:?}");
        let snapshot = db.snapshot();
        (100..2000).for_each(|number| keyspace.delete(key(number)).unwrap());
        keyspace.compact(None, None).unwrap();
        put_and_flush(&keyspace);
        assert_eq!(filter(&keyspace).rebuilds, full.rebuilds, "a snapshot sees them still");
        for number in (100..2000).step_by(19) {
            assert!(keyspace.get_at(&snapshot, key(number)).unwrap().is_some(), "{number}");
        }
        drop(snapshot);
        keyspace.compact(None, None).unwrap();
        put_and_flush(&keyspace);
        let rebuilt = filter(&keyspace);
        assert!(rebuilt.rebuilds > full.rebuilds && !rebuilt.is_filling, "{rebuilt:?}");
        assert!((95..=210).contains(&rebuilt.items), "{rebuilt:?}");
        assert!(rebuilt.memory_bytes <= full.memory_bytes, "{rebuilt:?} {full:?}");
        assert_eq!(rebuilt.designed_items < full.designed_items, full.growths > 0, "{rebuilt:?}");
        has_all(&keyspace, 0..100);
        denies(&keyspace, 100..2000);
        // Not repeatedly.
        (0..5).for_each(|_| put_and_flush(&keyspace));
        assert_eq!(filter(&keyspace).rebuilds, rebuilt.rebuilds);
        fill(&keyspace, 2000..2500, 1);
        has_all(&keyspace, 2000..2500);
    }
}

/// Puts and flushes, after which the filter maintenance runs.
fn put_and_flush(keyspace: &Keyspace) {
    fill(keyspace, 0..1, 2);
    keyspace.flush().unwrap();
}

/// Story: a filter that was installed or grew counted against the budget only when another event
/// recomputed the memory.
#[test]
fn block_cache_shrinks_as_soon_as_filter_is_installed() {
    let sim = Sim::new(1);
    let options = Options { memory_bytes: Some(64 << 20), ..inline(&sim.env()) };
    let db = Db::open(PATH, options).unwrap();
    let plain = KeyspaceOptions { memtable_bytes: 1 << 20, ..tiny() };
    let keyspace = db.keyspace("a", plain.clone()).unwrap();
    fill(&keyspace, 0..100, 1);
    keyspace.flush().unwrap();
    let before = db.stats();
    let size = ExistenceSize::Fixed { bytes: 8 << 20 };
    db.keyspace("a", KeyspaceOptions { existence_filter: size, ..plain.clone() }).unwrap();
    let with = db.stats();
    let more = with.memory.table_bytes - before.memory.table_bytes;
    assert!(more.abs_diff(8 << 20) < 1 << 16, "{more} bytes more");
    let less = before.cache_capacity - with.cache_capacity;
    assert!((7 << 20..9 << 20).contains(&less), "{less} bytes less for blocks");
    assert!(with.memory.held_bytes <= with.memory.budget_bytes);
    // And they get it back.
    db.keyspace("a", plain).unwrap();
    let without = db.stats();
    assert!(without.memory.table_bytes.abs_diff(before.memory.table_bytes) < 1 << 16);
    assert!(without.cache_capacity.abs_diff(before.cache_capacity) < 1 << 20);
    has_all(&keyspace, 0..100);
}

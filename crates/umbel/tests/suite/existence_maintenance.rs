//! The upkeep of existence filters: who does it when something is in its way, what it waits for and
//! what waits for it, and what it takes of the memory.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use umbel::{Db, Env, Error, ExistenceSize, Keyspace, KeyspaceOptions, Options, Result};
use umbel_env::{JoinHandle, Threads};
use umbel_sim::{Fault, FaultKind, Sim};

use crate::suite::existence::{denies, filter, filtered, has_all};
use crate::suite::hooked::{Hooks, hooked};
use crate::suite::stage::{PATH, again, existing, fill, inline, key, new_store, threaded, tiny};

/// Threads of a machine that gives none to the upkeep of filters, so many times.
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

/// Waits up to half a minute for what another thread does.
fn wait_until(mut is_done: impl FnMut() -> bool) {
    let (_sender, never) = mpsc::channel::<()>();
    for _ in 0..3000 {
        if is_done() {
            return;
        }
        let _ = never.recv_timeout(Duration::from_millis(10));
    }
    panic!("it did not come to pass");
}

fn answers(keyspace: &Keyspace) -> bool {
    keyspace.stats().existence.is_some_and(|stats| stats.is_answering)
}

/// Story: where the thread could not be begun, nobody ever tried again, and the keyspace, which was
/// there, could not be had.
#[test]
fn a_thread_that_was_not_given_is_asked_for_again() {
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
    // With a filter at the open, too.
    let db = Db::open(PATH, threaded(&env, 1)).unwrap();
    let keyspace = existing(&db, "a");
    has_all(&keyspace, 0..100);
    assert!(!answers(&keyspace));
    refusing.left.store(0, Ordering::Relaxed);
    let mut next = 100;
    wait_until(|| {
        // Time goes on, and something wakes the threads.
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

/// Has the upkeep of the first keyspace panic whenever it makes the folder.
fn panic_again_and_again(hooks: &Hooks) {
    let again = hooks.clone();
    hooks.before("create_dir_all *000000.existence", move || {
        panic_again_and_again(&again);
        panic!("planted: the folder of the first filter");
    });
}

/// Story: a panic in the upkeep of one filter ended the round, so that those after it never had
/// their turn; without background threads it came out of the caller's put.
#[test]
fn a_panic_in_the_upkeep_of_one_filter_is_no_matter_of_others() {
    for threads in [0, 1] {
        let sim = Sim::new(1);
        let (env, hooks) = hooked(&sim.env());
        panic_again_and_again(&hooks);
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
        // Whoever opens it next makes up for it.
        let db = again(&sim);
        denies(&existing(&db, "a"), 1000..1300);
        has_all(&existing(&db, "a"), 0..300);
    }
}

/// Story: a close waited for nobody who worked on a filter on a caller's thread, unless it came to
/// work on that filter itself; afterwards the folder may be another process's.
#[test]
fn a_close_waits_for_the_upkeep_on_threads_of_callers() {
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
    assert!(!was_closed_early, "somebody worked on a filter");
}

/// Story: what was deleted stayed in a filter for ever, and one that grows grew by it.
#[test]
fn a_filter_is_made_anew_when_most_of_its_keys_are_gone() {
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
        let anew = filter(&keyspace);
        assert!(anew.rebuilds > full.rebuilds && !anew.is_filling, "{anew:?}");
        assert!((95..=210).contains(&anew.items), "{anew:?}");
        assert!(anew.memory_bytes <= full.memory_bytes, "{anew:?} {full:?}");
        assert_eq!(anew.designed_items < full.designed_items, full.growths > 0, "{anew:?}");
        has_all(&keyspace, 0..100);
        denies(&keyspace, 100..2000);
        // Not again and again.
        (0..5).for_each(|_| put_and_flush(&keyspace));
        assert_eq!(filter(&keyspace).rebuilds, anew.rebuilds);
        fill(&keyspace, 2000..2500, 1);
        has_all(&keyspace, 2000..2500);
    }
}

/// Does the upkeep, which follows a flush.
fn put_and_flush(keyspace: &Keyspace) {
    fill(keyspace, 0..1, 2);
    keyspace.flush().unwrap();
}

/// Story: a filter that was put in or grew counted against the budget only when something else had
/// the memory weighed.
#[test]
fn blocks_leave_room_for_a_filter_as_soon_as_it_is_there() {
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
    // And they have it back.
    db.keyspace("a", plain).unwrap();
    let without = db.stats();
    assert!(without.memory.table_bytes.abs_diff(before.memory.table_bytes) < 1 << 16);
    assert!(without.cache_capacity.abs_diff(before.cache_capacity) < 1 << 20);
    has_all(&keyspace, 0..100);
}

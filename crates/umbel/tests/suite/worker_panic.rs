//! A panic in a background thread outside of its jobs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use umbel::{Db, Error, Options};
use umbel_env::Clock;
use umbel_sim::Sim;

use crate::suite::fixture::{PATH, key, threaded, tiny, value};

/// Clock that panics in background threads while `is_broken`.
#[derive(Debug)]
struct BreakingClock {
    clock: Arc<dyn Clock>,
    is_broken: Arc<AtomicBool>,
}

impl Clock for BreakingClock {
    fn now(&self) -> Duration {
        let thread = std::thread::current();
        let is_worker = thread.name().is_some_and(|name| name.starts_with("umbel-work"));
        assert!(!is_worker || !self.is_broken.load(Ordering::SeqCst), "the clock is broken");
        self.clock.now()
    }

    fn wall_micros(&self) -> u64 {
        self.clock.wall_micros()
    }
}

/// Story: a panic in the search for work ended its thread. Writers waited for ever for flushes that
/// no thread did, and a close waited for them.
#[test]
fn panic_in_the_search_for_work_makes_the_store_read_only() {
    let sim = Sim::new(1);
    let is_broken = Arc::new(AtomicBool::new(false));
    let mut env = sim.env();
    env.clock = Arc::new(BreakingClock { clock: env.clock, is_broken: Arc::clone(&is_broken) });
    let options = Options { memory_bytes: Some(16 << 20), ..threaded(&env, 1) };
    let db = Db::open(PATH, options).unwrap();
    let keyspace = db.keyspace("a", tiny()).unwrap();
    keyspace.put(key(0), value(0, 1)).unwrap();
    is_broken.store(true, Ordering::SeqCst);
    // More than memtables hold, so that writers wait for flushes.
    let refused = (0..1_000_000).find_map(|at| keyspace.put(key(at), vec![1; 4096]).err());
    let refused = refused.expect("no thread flushes");
    assert!(matches!(refused, Error::ReadOnly(_)), "{refused:?}");
    assert!(refused.to_string().contains("the search for work panicked"), "{refused}");
    assert!(db.failure().is_some());
    assert!(keyspace.get(key(0)).unwrap().is_some());
    drop(keyspace);
    db.close().unwrap_err();
}

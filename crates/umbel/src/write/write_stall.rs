//! Whether writers wait for flushes and compactions, which are behind.

use std::sync::atomic::Ordering;
use std::time::Duration;

use umbel_base::{Error, Result};

use crate::counters::add;
use crate::keyspace_core::KeyspaceCore;
use crate::put_off::WaitingWriter;
use crate::store::Store;

/// Frozen memtables of one keyspace at which its writers wait for a flush.
const FROZEN_MAX: usize = 4;
/// Delay below which a writer is not held back yet.
const DELAY_GRAIN_NS: u64 = 1_000_000;
/// How often a writer without background threads tries again until its write is refused.
const TRIES_MAX: usize = 100;

/// Whether a writer has to wait until something was done.
pub fn is_full(store: &Store, keyspace: &KeyspaceCore) -> bool {
    keyspace.view.load().frozen.len() >= FROZEN_MAX
        || keyspace.stopped.load(Ordering::Acquire)
        || store.buffers_full.load(Ordering::Acquire)
}

/// Whether a writer would be held back now, for a moment or until something was done.
pub fn holds_back(store: &Store, keyspace: &KeyspaceCore) -> bool {
    keyspace.delay_per_byte_ns() != 0.0 || is_full(store, keyspace)
}

/// Lets a write pass that was held back because there is no room for a flush or a compaction, where
/// it helps to make some: the log keeps a little for it, so that the memory it takes is bounded.
#[cold]
pub fn let_pass(store: &Store, makes_room: bool, error: Error) -> Result<()> {
    let passes = makes_room && matches!(error, Error::Full { .. }) && !store.poison.is_set();
    if passes { Ok(()) } else { Err(error) }
}

/// Holds a writer back in proportion to what it writes, before it takes any lock. Where it waits
/// for work that finds no room, it is refused with that.
///
/// Where there are no background threads it does all work there is by `run_inline`.
pub fn hold_back(
    store: &Store,
    keyspace: &KeyspaceCore,
    bytes: usize,
    run_inline: impl Fn() -> Result<()>,
) -> Result<()> {
    let full = || is_full(store, keyspace);
    if store.options.background_threads == 0 {
        return if full() { work_off(store, keyspace, run_inline) } else { Ok(()) };
    }
    let delay = keyspace.delay_per_byte_ns();
    if delay == 0.0 && !full() {
        return Ok(());
    }
    // Without a flush there is nothing to wait for.
    store.check_writable()?;
    keyspace.check_not_dropped()?;
    let clock = &store.options.env.clock;
    let begun = clock.now();
    let owed = (delay * bytes as f64) as u64;
    let owed = keyspace.owed_ns.fetch_add(owed, Ordering::Relaxed) + owed;
    if owed >= DELAY_GRAIN_NS {
        // One of several writers pays for all, so that nothing is taken off twice.
        let owed = keyspace.owed_ns.swap(0, Ordering::Relaxed);
        // A spurious or early wake-up only shortens the delay.
        store.wait_for_change(Duration::from_nanos(owed), || false);
    }
    let waits = full().then(|| WaitingWriter::new(store));
    while full() && !store.poison.is_set() {
        store.check_open()?;
        keyspace.check_not_dropped()?;
        if let Some(refusal) = waits.as_ref().and_then(WaitingWriter::refusal) {
            return Err(refusal);
        }
        store.wait_for_change(Duration::from_millis(100), || !full() || store.poison.is_set());
    }
    add(&store.counters.stalls, 1);
    add(&store.counters.stall_micros, (clock.now() - begun).as_micros() as u64);
    Ok(())
}

/// Does all work there is, until `keyspace` may be written to. Several threads may write: one that
/// finds the work taken waits for the one that took it.
#[cold]
fn work_off(
    store: &Store,
    keyspace: &KeyspaceCore,
    run_inline: impl Fn() -> Result<()>,
) -> Result<()> {
    let (waits, mut tries) = (WaitingWriter::new(store), 0);
    while is_full(store, keyspace) {
        store.check_writable()?;
        keyspace.check_not_dropped()?;
        if let Some(refusal) = waits.refusal() {
            return Err(refusal);
        }
        match run_inline() {
            Err(error) if error.is_short_of_descriptors() && tries < TRIES_MAX => tries += 1,
            done => done?,
        }
        store.wait_for_change(Duration::from_millis(10), || !is_full(store, keyspace));
    }
    Ok(())
}

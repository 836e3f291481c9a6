//! Write stalls and the write throttle: writers wait for flushes and compactions.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use umbel_base::{Error, Result};

use crate::maintenance::disk_full_retry::StalledWriter;
use crate::maintenance::scheduler;
use crate::state::keyspace_state::KeyspaceState;
use crate::state::store::Store;
use crate::thread_counters::add;

/// Number of frozen memtables of one keyspace at which its writers wait for a flush.
const FROZEN_MAX: usize = 4;
/// Accumulated delay below which a writer does not sleep yet.
const DELAY_MIN_NS: u64 = 1_000_000;
/// Number of times that a writer retries its stalled write, in a store without background threads,
/// before the write fails.
const ATTEMPTS_MAX: usize = 100;

/// Whether a writer must wait until a flush or compaction ends.
#[inline]
fn is_stalled(store: &Store, keyspace: &KeyspaceState) -> bool {
    keyspace.super_version.load().frozen.len() >= FROZEN_MAX
        || keyspace.is_stalled.load(Ordering::Acquire)
        || store.memtables_full.load(Ordering::Acquire)
}

/// Whether a writer would be throttled or stalled now.
#[inline]
pub fn is_delayed(store: &Store, keyspace: &KeyspaceState) -> bool {
    keyspace.delay_per_byte_ns() != 0.0 || is_stalled(store, keyspace)
}

/// Admits a writer before it takes any lock: delays it in proportion to the `bytes` that it writes,
/// or stalls it. If the writer waits for a flush or compaction that finds the disk full, it fails
/// with that error.
///
/// A full disk does not stop a write that helps to free space. The WAL keeps a little space for
/// such writes, which also bounds their memory.
#[inline]
pub fn admit_writer(
    store: &Arc<Store>,
    keyspace: &KeyspaceState,
    bytes: usize,
    frees_space: impl Fn() -> bool,
) -> Result<()> {
    if !is_delayed(store, keyspace) {
        return Ok(());
    }
    match delay_writer(store, keyspace, bytes) {
        Err(Error::DiskFull { .. }) if frees_space() && !store.fatal_error.is_set() => Ok(()),
        delayed => delayed,
    }
}

/// Delays a writer. In a store without background threads the writer does all pending work itself.
#[cold]
fn delay_writer(store: &Arc<Store>, keyspace: &KeyspaceState, bytes: usize) -> Result<()> {
    let full = || is_stalled(store, keyspace);
    if store.options.background_threads == 0 {
        return if full() { run_until_unstalled(store, keyspace) } else { Ok(()) };
    }
    let delay = keyspace.delay_per_byte_ns();
    if delay == 0.0 && !full() {
        return Ok(());
    }
    // Without flushes there is nothing to wait for.
    store.check_writable()?;
    keyspace.check_not_dropped()?;
    let clock = &store.options.env.clock;
    let begun = clock.now();
    let debt_ns = (delay * bytes as f64) as u64;
    let debt_ns = keyspace.delay_debt_ns.fetch_add(debt_ns, Ordering::Relaxed) + debt_ns;
    if debt_ns >= DELAY_MIN_NS {
        // One of several writers sleeps for all, so that no delay is subtracted twice.
        let debt_ns = keyspace.delay_debt_ns.swap(0, Ordering::Relaxed);
        // A spurious or early wake-up only shortens the delay.
        store.wait_for_change(Duration::from_nanos(debt_ns), || false);
    }
    let waits = full().then(|| StalledWriter::new(store));
    while full() && !store.fatal_error.is_set() {
        store.check_open()?;
        keyspace.check_not_dropped()?;
        if let Some(refusal) = waits.as_ref().and_then(StalledWriter::refusal) {
            return Err(refusal);
        }
        store.wait_for_change(Duration::from_millis(100), || !full() || store.fatal_error.is_set());
    }
    add(&store.counters.stalls, 1);
    add(&store.counters.stall_micros, (clock.now() - begun).as_micros() as u64);
    Ok(())
}

/// Does all pending work, until writes to `keyspace` do not stall any more. If another thread has
/// claimed the work, waits for that thread.
#[cold]
fn run_until_unstalled(store: &Arc<Store>, keyspace: &KeyspaceState) -> Result<()> {
    let (waits, mut tries) = (StalledWriter::new(store), 0);
    while is_stalled(store, keyspace) {
        store.check_writable()?;
        keyspace.check_not_dropped()?;
        if let Some(refusal) = waits.refusal() {
            return Err(refusal);
        }
        match scheduler::run_all_inline(store) {
            Err(error) if error.is_out_of_descriptors() && tries < ATTEMPTS_MAX => tries += 1,
            done => done?,
        }
        store.wait_for_change(Duration::from_millis(10), || !is_stalled(store, keyspace));
    }
    Ok(())
}

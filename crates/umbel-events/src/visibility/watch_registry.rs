//! [`WatchRegistry`]: the wake-ups that wait for events to become visible, and their streams.
//!
//! A waiter registers, then looks at the store, and waits if it finds no new event. A writer makes
//! its events visible and then checks whether any wake-up is registered, which costs a single load
//! if none is. If any is, the writer takes out the wake-ups for all events, and those for a stream
//! that got an event. The writer uses these wake-ups after it has released its locks: a callback
//! may drop the store's last handle, and closing needs the locks. The hash of its name identifies a
//! stream; a collision causes a spurious wake-up.
//!
//! # Why no wake-up is missed
//!
//! An append raises the position (P), then loads the count (A). A waiter raises the count (W),
//! under the lock and with its wake-up inserted, then loads the position (L). All four operations
//! are sequentially consistent: they have one order, with P before A and W before L.
//!
//! - W before A: the count matches the number of wake-ups whenever the lock is free, so A sees more
//!   than 0 as long as this wake-up exists. The append takes the lock after the registration and
//!   finds the wake-up, or another append has taken the wake-up out and uses it.
//! - A before W: then P is before L, so L sees the position that P stored. What the append did
//!   before P, including the index update, happened before every read after L: the waiter's look
//!   finds the event.
//!
//! A wake-up may have been caused by an event that the waiter already knows. So a woken waiter
//! registers again before it looks again, and the argument above holds again.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use umbel_base::fail_point;
use umbel_base::ignore_poison::IgnorePoison;

use umbel_env::ProcessMark;

use crate::primitives::prehashed_map::PrehashedMap;
use crate::primitives::wakeup::Wakeup;

/// Wake-ups that wait for events to become visible.
pub struct WatchRegistry {
    /// Process that owns the wake-ups. In a forked child no event becomes visible, and the lock may
    /// be held forever.
    process: ProcessMark,
    /// Number of wake-ups; changed only under the lock.
    count: AtomicUsize,
    /// Number of wake-ups that were taken out and not used yet; changed only under the lock.
    ready_count: AtomicUsize,
    registered: Mutex<RegisteredWakeups>,
}

#[derive(Default)]
struct RegisteredWakeups {
    last_number: u64,
    all: BTreeMap<u64, Arc<Wakeup>>,
    /// Wake-ups by the hash of the stream's name.
    streams: PrehashedMap<BTreeMap<u64, Arc<Wakeup>>>,
    /// Wake-ups that were taken out, each with the position to pass to its callback.
    ready: Vec<(u64, Arc<Wakeup>)>,
}

impl RegisteredWakeups {
    /// Takes out the wake-ups for these streams.
    fn take_streams(&mut self, position: u64, streams: impl Iterator<Item = u64>) {
        for hash in streams {
            if self.streams.is_empty() {
                return;
            }
            let of_stream = self.streams.remove(&hash).unwrap_or_default();
            self.ready.extend(of_stream.into_values().map(|wakeup| (position, wakeup)));
            fail_point!("watch-wake-first-stream-only", |_| ());
        }
    }
}

/// Registration of a wake-up, until it is dropped or used.
pub struct WatchRegistration {
    registry: Arc<WatchRegistry>,
    stream: Option<u64>,
    number: u64,
}

impl Default for WatchRegistry {
    fn default() -> WatchRegistry {
        WatchRegistry {
            process: ProcessMark::current(),
            count: AtomicUsize::new(0),
            ready_count: AtomicUsize::new(0),
            registered: Mutex::default(),
        }
    }
}

impl WatchRegistry {
    /// Whether this is a forked child.
    pub fn is_forked(&self) -> bool {
        !self.process.is_current()
    }

    /// Registers a wake-up: for all events, or for the events of the stream with this hash.
    ///
    /// In a forked child, the wake-up is dropped instead.
    pub fn add(self: &Arc<Self>, stream: Option<u64>, wakeup: Arc<Wakeup>) -> WatchRegistration {
        if !self.process.is_current() {
            return WatchRegistration { registry: Arc::clone(self), stream, number: 0 };
        }
        let mut waiting = self.registered.lock().ignore_poison();
        waiting.last_number += 1;
        let number = waiting.last_number;
        match stream {
            None => {
                waiting.all.insert(number, wakeup);
            }
            Some(hash) => {
                waiting.streams.entry(hash).or_default().insert(number, wakeup);
            }
        }
        self.count.fetch_add(1, Ordering::SeqCst);
        drop(waiting);
        WatchRegistration { registry: Arc::clone(self), stream, number }
    }

    /// Takes out the wake-ups for all events and those for one of these streams. The caller must
    /// then call [`WatchRegistry::wake_ready`], without a lock.
    #[inline]
    pub fn take_ready(&self, position: u64, streams: impl Iterator<Item = u64>) {
        if self.count.load(Ordering::SeqCst) > 0 {
            self.take_ready_locked(position, streams);
        }
    }

    fn take_ready_locked(&self, position: u64, streams: impl Iterator<Item = u64>) {
        let mut waiting = self.registered.lock().ignore_poison();
        let waiting = &mut *waiting;
        let before = waiting.ready.len();
        let with_position = |wakeup| (position, wakeup);
        waiting.ready.extend(std::mem::take(&mut waiting.all).into_values().map(with_position));
        waiting.take_streams(position, streams);
        self.count.fetch_sub(waiting.ready.len() - before, Ordering::SeqCst);
        self.ready_count.store(waiting.ready.len(), Ordering::Relaxed);
    }

    /// Uses the wake-ups that were taken out.
    #[inline]
    pub fn wake_ready(&self) {
        // A thread that took some sees at least its own, unless another has called them.
        if self.ready_count.load(Ordering::Relaxed) > 0 {
            let mut waiting = self.registered.lock().ignore_poison();
            let taken = self.drain_ready(&mut waiting);
            drop(waiting);
            wake_each(taken);
        }
    }

    /// Removes and returns the wake-ups that were taken out. REQUIRES: the caller holds the lock.
    fn drain_ready(&self, waiting: &mut RegisteredWakeups) -> Vec<(u64, Arc<Wakeup>)> {
        self.ready_count.store(0, Ordering::Relaxed);
        std::mem::take(&mut waiting.ready)
    }

    /// Uses every registered wake-up.
    pub fn wake_all(&self, position: u64) {
        let mut waiting = self.registered.lock().ignore_poison();
        let mut called = self.drain_ready(&mut waiting);
        let before = called.len();
        let of_all = std::mem::take(&mut waiting.all).into_values();
        let of_streams = std::mem::take(&mut waiting.streams).into_values();
        let wakeups = of_all.chain(of_streams.flat_map(BTreeMap::into_values));
        called.extend(wakeups.map(|wakeup| (position, wakeup)));
        self.count.fetch_sub(called.len() - before, Ordering::SeqCst);
        drop(waiting);
        wake_each(called);
    }

    fn remove(&self, stream: Option<u64>, number: u64) {
        if !self.process.is_current() {
            return;
        }
        let mut waiting = self.registered.lock().ignore_poison();
        let removed = match stream {
            None => waiting.all.remove(&number),
            Some(hash) => waiting.remove_of_stream(hash, number),
        };
        self.count.fetch_sub(usize::from(removed.is_some()), Ordering::SeqCst);
        // Dropping what its callback owns may take the lock.
        drop(waiting);
        drop(removed);
    }
}

fn wake_each(taken: Vec<(u64, Arc<Wakeup>)>) {
    for (position, wakeup) in taken {
        wakeup.wake_at(position);
    }
}

impl RegisteredWakeups {
    fn remove_of_stream(&mut self, hash: u64, number: u64) -> Option<Arc<Wakeup>> {
        let of_stream = self.streams.get_mut(&hash)?;
        let wakeup = of_stream.remove(&number)?;
        if of_stream.is_empty() {
            self.streams.remove(&hash);
        }
        Some(wakeup)
    }
}

impl Drop for WatchRegistration {
    fn drop(&mut self) {
        self.registry.remove(self.stream, self.number);
    }
}

impl fmt::Debug for WatchRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watchers").field(&self.count.load(Ordering::Relaxed)).finish()
    }
}

impl fmt::Debug for WatchRegistration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watching").field("stream", &self.stream).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of called callbacks, in order.
    type Called = Arc<Mutex<Vec<(&'static str, u64)>>>;

    fn add(
        watchers: &Arc<WatchRegistry>,
        called: &Called,
        name: &'static str,
        stream: Option<u64>,
    ) -> WatchRegistration {
        let called = Arc::clone(called);
        let note = move |at| called.lock().ignore_poison().push((name, at));
        watchers.add(stream, Wakeup::with_callback(note))
    }

    fn take_and_call(watchers: &WatchRegistry, position: u64, streams: impl Iterator<Item = u64>) {
        watchers.take_ready(position, streams);
        watchers.wake_ready();
    }

    fn taken(called: &Called) -> Vec<(&'static str, u64)> {
        let mut taken = std::mem::take(&mut *called.lock().ignore_poison());
        taken.sort_unstable();
        taken
    }

    #[test]
    fn append_calls_each_matching_watch_once() {
        let (watchers, called) = (Arc::new(WatchRegistry::default()), Called::default());
        let _all = add(&watchers, &called, "all", None);
        let _one = add(&watchers, &called, "one", Some(1));
        let _another = add(&watchers, &called, "another", Some(1));
        let _two = add(&watchers, &called, "two", Some(2));
        take_and_call(&watchers, 10, [3, 4].into_iter());
        assert_eq!(taken(&called), [("all", 10)]);
        take_and_call(&watchers, 11, [3, 1, 1].into_iter());
        assert_eq!(taken(&called), [("another", 11), ("one", 11)]);
        take_and_call(&watchers, 12, [1].into_iter());
        assert_eq!(taken(&called), []);
        watchers.wake_all(12);
        assert_eq!(taken(&called), [("two", 12)]);
        assert_eq!(watchers.count.load(Ordering::SeqCst), 0, "no watch is left");
    }

    #[test]
    fn removed_watch_is_not_called_and_takes_no_memory() {
        let (watchers, called) = (Arc::new(WatchRegistry::default()), Called::default());
        let dropped =
            [None, Some(1), Some(1)].map(|stream| add(&watchers, &called, "gone", stream));
        let here = add(&watchers, &called, "here", Some(1));
        drop(dropped);
        assert_eq!(watchers.count.load(Ordering::SeqCst), 1);
        take_and_call(&watchers, 5, [1].into_iter());
        assert_eq!(taken(&called), [("here", 5)]);
        drop(here);
        assert_eq!(watchers.count.load(Ordering::SeqCst), 0, "it was counted off once");
        let waiting = watchers.registered.lock().ignore_poison();
        assert!(waiting.all.is_empty() && waiting.streams.is_empty());
    }

    /// Regression: removing a callback scanned all other callbacks of its stream, under the lock
    /// that appends need.
    #[test]
    fn removing_a_watch_does_not_scan_its_stream() {
        const COUNT: usize = 200_000;
        let (watchers, called) = (Arc::new(WatchRegistry::default()), Called::default());
        let add = |_| add(&watchers, &called, "gone", Some(1));
        let mut watching: Vec<_> = (0..COUNT).map(add).collect();
        let clock = umbel_env::Env::system().clock;
        // It takes a fifth of a second; with such scans, minutes.
        let until = clock.now() + std::time::Duration::from_secs(20);
        while watching.pop().is_some() {
            assert!(clock.now() < until, "{} are there yet", watching.len());
        }
        assert_eq!(watchers.count.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn panicking_watch_does_not_block_other_watches() {
        let (watchers, called) = (Arc::new(WatchRegistry::default()), Called::default());
        let _wrong =
            watchers.add(None, Wakeup::with_callback(|_| panic!("a callback of the test")));
        let _right = add(&watchers, &called, "right", None);
        take_and_call(&watchers, 7, std::iter::empty());
        assert_eq!(taken(&called), [("right", 7)]);
    }

    #[test]
    fn callback_may_remove_a_watch_and_register_again() {
        let (watchers, called) = (Arc::new(WatchRegistry::default()), Called::default());
        let other = add(&watchers, &called, "other", Some(2));
        let again = (Arc::clone(&watchers), Arc::clone(&called));
        let kept = Arc::new(Mutex::new(None));
        let keep = Arc::clone(&kept);
        let _first = watchers.add(
            None,
            Wakeup::with_callback(move |_| {
                drop(other);
                *keep.lock().ignore_poison() = Some(add(&again.0, &again.1, "again", Some(1)));
            }),
        );
        take_and_call(&watchers, 7, [2].into_iter());
        take_and_call(&watchers, 8, [1, 2].into_iter());
        let called = taken(&called);
        assert!(called.contains(&("again", 8)), "{called:?}");
        assert!(kept.lock().ignore_poison().is_some());
    }
}

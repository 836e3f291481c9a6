//! [`Watchers`]: who waits for events to become visible, and for which.
//!
//! Who waits registers, then looks at the store, and waits where he found nothing new. Who appends
//! makes his events visible and then looks whether anybody is registered: one load where nobody
//! is. Otherwise those are taken out who wait for everything or for a stream that got an event, and
//! called once whoever appends has let go of his locks: a callback may let go of the store's last
//! handle, and closing needs them. A stream is known by the hash of its name; who shares one is
//! called in vain.
//!
//! # Why nobody is forgotten
//!
//! An append raises the position (P), then loads the count (A). Who waits counts himself (W), under
//! the lock and with his callback there already, then loads the position (L). All four are
//! sequentially consistent: there is one order of them, with P before A and W before L.
//!
//! - W before A: the count is that of the callbacks whenever the lock is free, so A sees more than
//!   0 for as long as this one is there. The append takes the lock after it was registered and
//!   finds it, or another append has taken it out and calls it.
//! - A before W: then P is before L, so L sees the position that P stored. What the append did
//!   before P, the index among it, happened before whatever is read after L: looking finds it.
//!
//! A call may be about an earlier event than the one that comes next. So who was called registers
//! again before he looks again, and all of this holds once more.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use umbel_env::ProcessMark;

use crate::by_name::ByHash;
use crate::lock::locked;
use crate::panics::caught;

/// What is called, with the position of the last event.
pub type Callback = Box<dyn FnOnce(u64) + Send>;

/// What somebody waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watched<'a> {
    /// An event, whatever its stream.
    All,
    /// An event of this stream. Its metadata is a stream of its own.
    Stream(&'a str),
    /// An event of this view, such as `$ce-cart`. Other events may call, too.
    View(&'a str),
}

/// Who waits for events to become visible.
pub struct Watchers {
    /// The process that has them. In a forked child nothing becomes visible, and the lock may be
    /// held for ever.
    process: ProcessMark,
    /// How many callbacks there are; changed under the lock only.
    count: AtomicUsize,
    /// How many callbacks were taken out and not called yet; changed under the lock only.
    taken: AtomicUsize,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    last_number: u64,
    all: BTreeMap<u64, Callback>,
    /// By the hash of the stream's name.
    streams: ByHash<BTreeMap<u64, Callback>>,
    /// Those that were taken out, each with what it is told.
    taken: Vec<(u64, Callback)>,
}

/// Somebody who is registered; until it is dropped, or was called.
pub struct Watching {
    watchers: Arc<Watchers>,
    stream: Option<u64>,
    number: u64,
}

impl Default for Watchers {
    fn default() -> Watchers {
        Watchers {
            process: ProcessMark::current(),
            count: AtomicUsize::new(0),
            taken: AtomicUsize::new(0),
            waiting: Mutex::default(),
        }
    }
}

impl Watchers {
    /// Whether this is a forked child.
    pub fn is_forked(&self) -> bool {
        !self.process.is_current()
    }

    /// Registers a callback: for everything, or for the stream with this hash.
    ///
    /// In a forked child it is not, and the callback is dropped.
    pub fn add(self: &Arc<Self>, stream: Option<u64>, callback: Callback) -> Watching {
        if !self.process.is_current() {
            return Watching { watchers: Arc::clone(self), stream, number: 0 };
        }
        let mut waiting = locked(&self.waiting);
        waiting.last_number += 1;
        let number = waiting.last_number;
        match stream {
            None => {
                waiting.all.insert(number, callback);
            }
            Some(hash) => {
                waiting.streams.entry(hash).or_default().insert(number, callback);
            }
        }
        self.count.fetch_add(1, Ordering::SeqCst);
        drop(waiting);
        Watching { watchers: Arc::clone(self), stream, number }
    }

    /// Takes out who waits for everything or for one of these streams.
    /// [`Watchers::call_taken`] calls them: whoever took them has to, without a lock.
    #[inline]
    pub fn take(&self, position: u64, streams: impl Iterator<Item = u64>) {
        if self.count.load(Ordering::SeqCst) > 0 {
            self.take_some(position, streams);
        }
    }

    fn take_some(&self, position: u64, streams: impl Iterator<Item = u64>) {
        let mut waiting = locked(&self.waiting);
        let waiting = &mut *waiting;
        let before = waiting.taken.len();
        let with_position = |callback| (position, callback);
        waiting.taken.extend(std::mem::take(&mut waiting.all).into_values().map(with_position));
        for hash in streams {
            if waiting.streams.is_empty() {
                break;
            }
            let of_stream = waiting.streams.remove(&hash).unwrap_or_default();
            waiting.taken.extend(of_stream.into_values().map(with_position));
            #[cfg(feature = "canary")]
            if umbel_base::canary::Switch::SubscriberNotWoken.is_on() {
                break;
            }
        }
        self.count.fetch_sub(waiting.taken.len() - before, Ordering::SeqCst);
        self.taken.store(waiting.taken.len(), Ordering::Relaxed);
    }

    /// Calls those that were taken out.
    #[inline]
    pub fn call_taken(&self) {
        // Who took some sees at least his own, unless another has called them.
        if self.taken.load(Ordering::Relaxed) > 0 {
            let mut waiting = locked(&self.waiting);
            let taken = self.all_taken(&mut waiting);
            drop(waiting);
            call(taken);
        }
    }

    /// REQUIRES: the lock is held.
    fn all_taken(&self, waiting: &mut Waiting) -> Vec<(u64, Callback)> {
        self.taken.store(0, Ordering::Relaxed);
        std::mem::take(&mut waiting.taken)
    }

    /// Calls everybody.
    pub fn call_all(&self, position: u64) {
        let mut waiting = locked(&self.waiting);
        let mut called = self.all_taken(&mut waiting);
        let before = called.len();
        let of_all = std::mem::take(&mut waiting.all).into_values();
        let of_streams = std::mem::take(&mut waiting.streams).into_values();
        let callbacks = of_all.chain(of_streams.flat_map(BTreeMap::into_values));
        called.extend(callbacks.map(|callback| (position, callback)));
        self.count.fetch_sub(called.len() - before, Ordering::SeqCst);
        drop(waiting);
        call(called);
    }

    fn remove(&self, stream: Option<u64>, number: u64) {
        if !self.process.is_current() {
            return;
        }
        let mut waiting = locked(&self.waiting);
        let removed = match stream {
            None => waiting.all.remove(&number),
            Some(hash) => waiting.remove_of_stream(hash, number),
        };
        self.count.fetch_sub(usize::from(removed.is_some()), Ordering::SeqCst);
        // What a callback holds may want the lock when it goes.
        drop(waiting);
        drop(removed);
    }
}

fn call(taken: Vec<(u64, Callback)>) {
    for (position, callback) in taken {
        caught(|| callback(position));
    }
}

impl Waiting {
    fn remove_of_stream(&mut self, hash: u64, number: u64) -> Option<Callback> {
        let of_stream = self.streams.get_mut(&hash)?;
        let callback = of_stream.remove(&number)?;
        if of_stream.is_empty() {
            self.streams.remove(&hash);
        }
        Some(callback)
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.watchers.remove(self.stream, self.number);
    }
}

impl fmt::Debug for Watchers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watchers").field(&self.count.load(Ordering::Relaxed)).finish()
    }
}

impl fmt::Debug for Watching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watching").field("stream", &self.stream).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who was called, in order.
    type Called = Arc<Mutex<Vec<(&'static str, u64)>>>;

    fn add(
        watchers: &Arc<Watchers>,
        called: &Called,
        name: &'static str,
        stream: Option<u64>,
    ) -> Watching {
        let called = Arc::clone(called);
        watchers.add(stream, Box::new(move |at| locked(&called).push((name, at))))
    }

    fn take_and_call(watchers: &Watchers, position: u64, streams: impl Iterator<Item = u64>) {
        watchers.take(position, streams);
        watchers.call_taken();
    }

    fn taken(called: &Called) -> Vec<(&'static str, u64)> {
        let mut taken = std::mem::take(&mut *locked(called));
        taken.sort_unstable();
        taken
    }

    #[test]
    fn an_append_calls_those_it_concerns_and_each_once() {
        let (watchers, called) = (Arc::new(Watchers::default()), Called::default());
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
        watchers.call_all(12);
        assert_eq!(taken(&called), [("two", 12)]);
        assert_eq!(watchers.count.load(Ordering::SeqCst), 0, "nobody waits any more");
    }

    #[test]
    fn who_has_gone_away_is_not_called_and_costs_nothing() {
        let (watchers, called) = (Arc::new(Watchers::default()), Called::default());
        let gone = [None, Some(1), Some(1)].map(|stream| add(&watchers, &called, "gone", stream));
        let here = add(&watchers, &called, "here", Some(1));
        drop(gone);
        assert_eq!(watchers.count.load(Ordering::SeqCst), 1);
        take_and_call(&watchers, 5, [1].into_iter());
        assert_eq!(taken(&called), [("here", 5)]);
        drop(here);
        assert_eq!(watchers.count.load(Ordering::SeqCst), 0, "it was counted off once");
        let waiting = locked(&watchers.waiting);
        assert!(waiting.all.is_empty() && waiting.streams.is_empty());
    }

    /// Each looked through all others of its stream, under the lock that appends need.
    #[test]
    fn many_of_one_stream_go_away_without_looking_through_each_other() {
        const COUNT: usize = 200_000;
        let (watchers, called) = (Arc::new(Watchers::default()), Called::default());
        let add = |_| add(&watchers, &called, "gone", Some(1));
        let mut watching: Vec<_> = (0..COUNT).map(add).collect();
        let clock = umbel_env::Env::system().clock;
        // It takes a fifth of a second; where they look through each other, minutes.
        let until = clock.now() + std::time::Duration::from_secs(20);
        while watching.pop().is_some() {
            assert!(clock.now() < until, "{} are there yet", watching.len());
        }
        assert_eq!(watchers.count.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn one_that_panics_keeps_nobody_from_being_called() {
        let (watchers, called) = (Arc::new(Watchers::default()), Called::default());
        let _wrong = watchers.add(None, Box::new(|_| panic!("a callback of the test")));
        let _right = add(&watchers, &called, "right", None);
        take_and_call(&watchers, 7, std::iter::empty());
        assert_eq!(taken(&called), [("right", 7)]);
    }

    #[test]
    fn a_callback_may_let_go_of_another_and_register_again() {
        let (watchers, called) = (Arc::new(Watchers::default()), Called::default());
        let other = add(&watchers, &called, "other", Some(2));
        let again = (Arc::clone(&watchers), Arc::clone(&called));
        let kept = Arc::new(Mutex::new(None));
        let keep = Arc::clone(&kept);
        let _first = watchers.add(
            None,
            Box::new(move |_| {
                drop(other);
                *locked(&keep) = Some(add(&again.0, &again.1, "again", Some(1)));
            }),
        );
        take_and_call(&watchers, 7, [2].into_iter());
        take_and_call(&watchers, 8, [1, 2].into_iter());
        let called = taken(&called);
        assert!(called.contains(&("again", 8)), "{called:?}");
        assert!(locked(&kept).is_some());
    }
}

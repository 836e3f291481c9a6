//! [`Visible`]: up to which position readers see, and [`Watch`]: who wants to know when there is
//! more.
//!
//! INVARIANT: an event is visible only once it is acknowledged at the store's durability level, and
//! every event before it is visible then, too.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::event::Position;
use crate::lock::locked;
use crate::panics::caught;
use crate::watchers::{Callback, Watchers, Watching};

thread_local! {
    /// Of which this thread is telling that nothing more will be seen. Only compared.
    static TELLING: Cell<*const Visible> = const { Cell::new(ptr::null()) };
}

/// Up to which position readers see.
#[derive(Debug, Default)]
pub struct Visible {
    position: AtomicU64,
    /// Whether nothing more will be seen.
    has_ended: AtomicBool,
    watchers: Arc<Watchers>,
}

/// Calls something once, when more can be seen, unless it is dropped before.
#[derive(Debug)]
pub struct Watch {
    _watching: Watching,
    position: u64,
}

impl Watch {
    /// The position of the last event that could be seen when this was made: of that nobody is
    /// told.
    pub fn position(&self) -> Position {
        Position(self.position)
    }
}

impl Visible {
    /// The position of the last event that can be seen; 0 where there is none.
    pub fn position(&self) -> u64 {
        self.position.load(Ordering::SeqCst)
    }

    /// Lets everybody see up to `position`. Who waits for events of these streams, which are named
    /// by the hashes of their names, is called by [`Visible::tell`], which has to follow.
    ///
    /// REQUIRES: the events are in the index.
    #[inline]
    pub fn advance(&self, position: u64, streams: impl Iterator<Item = u64>) {
        self.position.fetch_max(position, Ordering::SeqCst);
        self.watchers.take(position, streams);
    }

    /// Calls who waited for what can be seen by now.
    ///
    /// REQUIRES: no lock of the store is held; who is called may let go of its last handle.
    #[inline]
    pub fn tell(&self) {
        self.watchers.call_taken();
    }

    /// Calls whoever waits, although nothing can be seen that could not, and from now on whoever
    /// is going to wait: nothing more will be seen.
    pub fn end(&self) {
        // Before the lock of the watchers is taken: whom the call misses took it later, and sees
        // this.
        self.has_ended.store(true, Ordering::SeqCst);
        self.tell_the_end();
    }

    /// Calls whoever waits. Who waits again because of that was told, and is not called once more:
    /// he would never come to an end.
    fn tell_the_end(&self) {
        if ptr::eq(TELLING.get(), self) {
            return;
        }
        let before = TELLING.replace(self);
        self.watchers.call_all(self.position());
        TELLING.set(before);
    }

    /// Has `callback` called once, when an event can be seen that could not: any, or one of the
    /// stream whose name has this hash; at once, and by whoever calls this, where nothing more will
    /// be seen.
    ///
    /// In a forked child, where nothing more will be seen, the same.
    pub fn watch(&self, stream: Option<u64>, callback: Callback) -> Watch {
        if self.watchers.is_forked() {
            let position = self.position();
            caught(|| callback(position));
            let watching = self.watchers.add(stream, Box::new(|_| ()));
            return Watch { _watching: watching, position };
        }
        let watching = self.watchers.add(stream, callback);
        // In this order: what is not seen here is what the callback will be called for.
        let position = self.position();
        if self.has_ended.load(Ordering::SeqCst) {
            self.tell_the_end();
        }
        Watch { _watching: watching, position }
    }

    /// Waits until more than `position` can be seen, or the time has passed, or nothing more will
    /// be seen. Returns what can be seen then.
    pub fn wait_beyond(&self, position: u64, most: Duration) -> u64 {
        if self.watchers.is_forked() {
            return self.position();
        }
        let called = Arc::new((Mutex::new(false), Condvar::new()));
        let caller = Arc::clone(&called);
        let watch = self.watch(
            None,
            Box::new(move |_| {
                *locked(&caller.0) = true;
                caller.1.notify_all();
            }),
        );
        if watch.position <= position {
            let (is_called, changed) = &*called;
            let waited = changed.wait_timeout_while(locked(is_called), most, |is| !*is);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
        self.position()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use umbel_env::Env;

    use super::*;

    /// Nothing here takes longer, unless somebody is forgotten.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Waits for more than `position` as a subscriber does: registers, looks, waits.
    fn wait(visible: &Visible, stream: Option<u64>, position: u64) {
        loop {
            let (sender, called) = mpsc::channel();
            let watch = visible.watch(
                stream,
                Box::new(move |_| {
                    let _ = sender.send(());
                }),
            );
            if visible.position() > position {
                return;
            }
            assert_eq!(watch.position(), Position(position));
            called.recv_timeout(PATIENCE).expect("whoever waits is called");
        }
    }

    /// Two threads answer each other, so that one who is forgotten is noticed: nothing comes that
    /// would wake him after all.
    #[test]
    fn nobody_is_forgotten_who_registers_before_he_looks() {
        const ROUNDS: u64 = 20_000;
        let ways = Arc::new((Visible::default(), Visible::default()));
        let others = Arc::clone(&ways);
        let answering = move || {
            for round in 0..ROUNDS {
                wait(&others.0, Some(7), round);
                others.1.advance(round + 1, [9].into_iter());
                others.1.tell();
            }
        };
        let thread = Env::system().threads.spawn("answer", Box::new(answering)).expect("a thread");
        for round in 0..ROUNDS {
            ways.0.advance(round + 1, [3, 7].into_iter());
            ways.0.tell();
            wait(&ways.1, None, round);
        }
        assert!(thread.join(), "it had every answer");
    }

    #[test]
    fn waiting_ends_with_the_time_or_when_nothing_more_will_be_seen() {
        let visible = Arc::new(Visible::default());
        visible.advance(5, std::iter::empty());
        assert_eq!(visible.wait_beyond(4, PATIENCE), 5);
        assert_eq!(visible.wait_beyond(5, Duration::ZERO), 5);
        let (sender, called) = mpsc::channel();
        let waiting = Arc::clone(&visible);
        let work = move || sender.send(waiting.wait_beyond(5, PATIENCE)).expect("somebody listens");
        let thread = Env::system().threads.spawn("wait", Box::new(work)).expect("a thread");
        visible.end();
        assert_eq!(called.recv_timeout(PATIENCE / 2).expect("it is woken"), 5);
        assert!(thread.join());
    }

    /// Who registered when the others had been woken slept for all of his patience, and a watch was
    /// never called.
    #[test]
    fn who_comes_when_nothing_more_will_be_seen_is_called_too() {
        // Whoever of the two is first.
        for _ in 0..1000 {
            let visible = Arc::new(Visible::default());
            let ending = Arc::clone(&visible);
            let work = move || ending.end();
            let thread = Env::system().threads.spawn("end", Box::new(work)).expect("a thread");
            let (sender, called) = mpsc::channel();
            let _watch = visible
                .watch(Some(7), Box::new(move |_| sender.send(()).expect("somebody listens")));
            called.recv_timeout(PATIENCE).expect("whoever watches is called");
            assert!(thread.join());
        }
        let visible = Arc::new(Visible::default());
        visible.end();
        let (sender, called) = mpsc::channel();
        let waiting = Arc::clone(&visible);
        let work = move || sender.send(waiting.wait_beyond(0, PATIENCE)).expect("somebody listens");
        let thread = Env::system().threads.spawn("wait", Box::new(work)).expect("a thread");
        assert_eq!(called.recv_timeout(PATIENCE / 2).expect("it does not wait"), 0);
        assert!(thread.join());
    }

    /// Registers again whenever it is called.
    fn watch_again(visible: &Arc<Visible>, calls: &mpsc::Sender<u64>) -> Watch {
        let (again, sender) = (Arc::clone(visible), calls.clone());
        visible.watch(
            None,
            Box::new(move |position| {
                sender.send(position).expect("somebody listens");
                std::mem::forget(watch_again(&again, &sender));
            }),
        )
    }

    #[test]
    fn who_waits_again_whenever_he_is_called_is_told_of_the_end_once() {
        let (visible, (calls, called)) = (Arc::new(Visible::default()), mpsc::channel());
        let _watch = watch_again(&visible, &calls);
        visible.advance(3, std::iter::empty());
        visible.tell();
        visible.end();
        assert_eq!(called.try_iter().collect::<Vec<_>>(), [3, 3]);
        let _late = watch_again(&visible, &calls);
        // The one that registered again at the end is called now, with it; then it is enough.
        assert_eq!(called.try_iter().collect::<Vec<_>>(), [3, 3]);
    }
}

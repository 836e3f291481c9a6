//! [`VisiblePosition`]: the position up to which readers see events. [`Watch`]: a wake-up for new
//! visible events.
//!
//! INVARIANT: an event is visible only once it is acknowledged at the store's durability level, and
//! every event before it is visible then, too. Only
//! `IndexCommit` advances the position.

use std::cell::Cell;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::primitives::wakeup::Wakeup;
use crate::types::error::Result;
use crate::types::event::Position;
use crate::visibility::index_gate::{CommitPermit, IndexGate};
use crate::visibility::watch_registry::{WatchRegistration, WatchRegistry};

thread_local! {
    /// Visible position whose end this thread is announcing. The pointer is only compared.
    static NOTIFYING_END: Cell<*const VisiblePosition> = const { Cell::new(ptr::null()) };
}

/// Position up to which readers see events.
#[derive(Debug, Default)]
pub struct VisiblePosition {
    position: AtomicU64,
    /// Decides how far the position may advance.
    pub gate: IndexGate,
    /// Number of events appended since the store was opened.
    appended: AtomicU64,
    /// Whether no more events will become visible.
    has_ended: AtomicBool,
    registry: Arc<WatchRegistry>,
}

/// Wakes its waiter once when more events are visible, unless the watch is dropped before.
#[derive(Debug)]
pub struct Watch {
    _watching: WatchRegistration,
    position: u64,
}

impl Watch {
    /// Position of the last event that was visible when the watch was created; the watch does not
    /// wake for that event.
    pub fn position(&self) -> Position {
        Position(self.position)
    }
}

impl VisiblePosition {
    /// A position that advances as this gate permits. Nothing is visible yet.
    pub fn new(gate: IndexGate) -> VisiblePosition {
        VisiblePosition { gate, ..VisiblePosition::default() }
    }

    /// Position of the last visible event; 0 if there is none.
    pub fn position(&self) -> u64 {
        self.position.load(Ordering::SeqCst)
    }

    /// Number of events appended since the store was opened.
    pub fn appended(&self) -> u64 {
        self.appended.load(Ordering::Relaxed)
    }

    /// Counts events that are appended and become visible next.
    #[inline]
    pub fn count_appended(&self, events: usize) {
        self.appended.fetch_add(events as u64, Ordering::Relaxed);
    }

    /// Makes events up to `position` visible. `streams` are the hashes of the streams' names. The
    /// caller must then call [`VisiblePosition::notify`], which wakes the waiters for these
    /// streams.
    ///
    /// REQUIRES: the events are in the index, and `permit` covers them.
    ///
    /// # Errors
    /// Those of [`IndexGate::finish_commit`]; nothing becomes visible then.
    #[inline]
    pub fn advance(
        &self,
        permit: CommitPermit,
        position: u64,
        streams: impl Iterator<Item = u64>,
    ) -> Result<()> {
        debug_assert!(position < permit.end(), "beyond the permitted part");
        self.gate.finish_commit(permit, || {
            self.position.fetch_max(position, Ordering::SeqCst);
            self.registry.take_ready(position, streams);
        })
    }

    /// Wakes the waiters for events that have become visible.
    ///
    /// REQUIRES: the caller holds no lock of the store, since a callback may drop the store's last
    /// handle.
    #[inline]
    pub fn notify(&self) {
        self.registry.wake_ready();
    }

    /// Wakes every waiter, and every later waiter at once, because no more events will become
    /// visible.
    pub fn close(&self) {
        // Set before the registry's lock is taken: a registration that is missed took the lock
        // later, and sees this.
        self.has_ended.store(true, Ordering::SeqCst);
        self.notify_end();
    }

    /// Wakes every waiter because no more events will become visible. A watch that a callback
    /// registers meanwhile is not woken; otherwise this function might never return.
    fn notify_end(&self) {
        if ptr::eq(NOTIFYING_END.get(), self) {
            return;
        }
        let before = NOTIFYING_END.replace(self);
        self.registry.wake_all(self.position());
        NOTIFYING_END.set(before);
    }

    /// Registers a wake-up that is used once when a new event is visible. With a hash, only events
    /// of the stream whose name has this hash count. If no more events will become visible, the
    /// wake-up is used at once on the calling thread.
    ///
    /// In a forked child, where no more events become visible, the wake-up is used at once, too.
    pub fn watch(&self, stream: Option<u64>, wakeup: Arc<Wakeup>) -> Watch {
        if self.registry.is_forked() {
            let position = self.position();
            wakeup.wake_at(position);
            return Watch { _watching: self.registry.add(stream, wakeup), position };
        }
        let watching = self.registry.add(stream, wakeup);
        // In this order: it wakes for every event that is not visible here.
        let position = self.position();
        if self.has_ended.load(Ordering::SeqCst) {
            self.notify_end();
        }
        Watch { _watching: watching, position }
    }

    /// Waits until a position after `position` is visible, the time has passed, or no more events
    /// will become visible. Returns the visible position.
    pub fn wait_past(&self, position: u64, timeout: Duration) -> u64 {
        if self.registry.is_forked() {
            return self.position();
        }
        let wakeup = Arc::new(Wakeup::default());
        let watch = self.watch(None, Arc::clone(&wakeup));
        if watch.position <= position {
            wakeup.wait(timeout);
        }
        self.position()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use umbel_env::Env;

    use super::*;

    /// Upper bound of a wait, which is exceeded only after a missed call.
    const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

    fn advance(visible: &VisiblePosition, position: u64, streams: &[u64]) {
        let permit = visible.gate.begin_commit().expect("a store on one machine");
        visible.advance(permit, position, streams.iter().copied()).expect("permitted");
    }

    /// Waits for an event after `position` like a subscriber: registers a wake-up, looks for
    /// events, then waits.
    fn wait(visible: &VisiblePosition, stream: Option<u64>, position: u64) {
        loop {
            let (sender, called) = mpsc::channel();
            let watch = visible.watch(
                stream,
                Wakeup::with_callback(move |_| {
                    let _ = sender.send(());
                }),
            );
            if visible.position() > position {
                return;
            }
            assert_eq!(watch.position(), Position(position));
            called.recv_timeout(WAIT_TIMEOUT).expect("the waiting callback is called");
        }
    }

    /// Two threads wait for each other's events, so that a missed call is noticed: no later event
    /// would wake a thread.
    #[test]
    fn callback_registered_before_the_check_is_called() {
        const ROUNDS: u64 = 20_000;
        let pair = Arc::new((VisiblePosition::default(), VisiblePosition::default()));
        let others = Arc::clone(&pair);
        let answering = move || {
            for round in 0..ROUNDS {
                wait(&others.0, Some(7), round);
                advance(&others.1, round + 1, &[9]);
                others.1.notify();
            }
        };
        let thread = Env::system().threads.spawn("answer", Box::new(answering)).expect("a thread");
        for round in 0..ROUNDS {
            advance(&pair.0, round + 1, &[3, 7]);
            pair.0.notify();
            wait(&pair.1, None, round);
        }
        assert!(thread.join(), "it saw every event");
    }

    #[test]
    fn wait_ends_at_timeout_or_close() {
        let visible = Arc::new(VisiblePosition::default());
        advance(&visible, 5, &[]);
        assert_eq!(visible.wait_past(4, WAIT_TIMEOUT), 5);
        assert_eq!(visible.wait_past(5, Duration::ZERO), 5);
        let (sender, called) = mpsc::channel();
        let waiting = Arc::clone(&visible);
        let work =
            move || sender.send(waiting.wait_past(5, WAIT_TIMEOUT)).expect("the receiver exists");
        let thread = Env::system().threads.spawn("wait", Box::new(work)).expect("a thread");
        visible.close();
        assert_eq!(called.recv_timeout(WAIT_TIMEOUT / 2).expect("it is woken"), 5);
        assert!(thread.join());
    }

    /// Regression: a thread that registered after the close had woken all waiters slept until its
    /// timeout. A watch registered after the close was never called.
    #[test]
    fn callback_registered_after_close_is_called() {
        // Either of the two may be first.
        for _ in 0..1000 {
            let visible = Arc::new(VisiblePosition::default());
            let ending = Arc::clone(&visible);
            let work = move || ending.close();
            let thread = Env::system().threads.spawn("end", Box::new(work)).expect("a thread");
            let (sender, called) = mpsc::channel();
            let send = move |_| sender.send(()).expect("the receiver exists");
            let _watch = visible.watch(Some(7), Wakeup::with_callback(send));
            called.recv_timeout(WAIT_TIMEOUT).expect("the watch is called");
            assert!(thread.join());
        }
        let visible = Arc::new(VisiblePosition::default());
        visible.close();
        let (sender, called) = mpsc::channel();
        let waiting = Arc::clone(&visible);
        let work =
            move || sender.send(waiting.wait_past(0, WAIT_TIMEOUT)).expect("the receiver exists");
        let thread = Env::system().threads.spawn("wait", Box::new(work)).expect("a thread");
        assert_eq!(called.recv_timeout(WAIT_TIMEOUT / 2).expect("it does not wait"), 0);
        assert!(thread.join());
    }

    /// Registers a watch whose callback registers a watch again at each call.
    fn watch_again(visible: &Arc<VisiblePosition>, calls: &mpsc::Sender<u64>) -> Watch {
        let (again, sender) = (Arc::clone(visible), calls.clone());
        visible.watch(
            None,
            Wakeup::with_callback(move |position| {
                sender.send(position).expect("the receiver exists");
                std::mem::forget(watch_again(&again, &sender));
            }),
        )
    }

    #[test]
    fn reregistering_callback_is_called_once_after_close() {
        let (visible, (calls, called)) = (Arc::new(VisiblePosition::default()), mpsc::channel());
        let _watch = watch_again(&visible, &calls);
        advance(&visible, 3, &[]);
        visible.notify();
        visible.close();
        assert_eq!(called.try_iter().collect::<Vec<_>>(), [3, 3]);
        let _late = watch_again(&visible, &calls);
        // The watch that registered again at the end is called now, with it, and then no more.
        assert_eq!(called.try_iter().collect::<Vec<_>>(), [3, 3]);
    }
}

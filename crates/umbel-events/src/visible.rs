//! [`Visible`]: up to which position readers see, and [`Watch`]: who wants to know when there is
//! more.
//!
//! INVARIANT: an event is visible only once it is acknowledged at the store's durability level, and
//! every event before it is visible then, too.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::event::Position;
use crate::lock::locked;
use crate::watchers::{Callback, Watchers, Watching};

/// Up to which position readers see.
#[derive(Debug, Default)]
pub struct Visible {
    position: AtomicU64,
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

    /// Lets everybody see up to `position`, and calls who waits for events of these streams, which
    /// are named by the hashes of their names.
    ///
    /// REQUIRES: the events are in the index.
    #[inline]
    pub fn advance(&self, position: u64, streams: impl Iterator<Item = u64>) {
        self.position.fetch_max(position, Ordering::SeqCst);
        self.watchers.call(position, streams);
    }

    /// Calls whoever waits, although nothing can be seen that could not.
    pub fn wake(&self) {
        self.watchers.call_all(self.position());
    }

    /// Has `callback` called once, when an event can be seen that could not: any, or one of the
    /// stream whose name has this hash.
    pub fn watch(&self, stream: Option<u64>, callback: Callback) -> Watch {
        let watching = self.watchers.add(stream, callback);
        // In this order: what is not seen here is what the callback will be called for.
        let position = self.position();
        Watch { _watching: watching, position }
    }

    /// Waits until more than `position` can be seen, or the time has passed, or somebody wakes it.
    /// Returns what can be seen then.
    pub fn wait_beyond(&self, position: u64, most: Duration) -> u64 {
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
            }
        };
        let thread = Env::system().threads.spawn("answer", Box::new(answering)).expect("a thread");
        for round in 0..ROUNDS {
            ways.0.advance(round + 1, [3, 7].into_iter());
            wait(&ways.1, None, round);
        }
        assert!(thread.join(), "it had every answer");
    }

    #[test]
    fn waiting_ends_with_the_time_or_when_somebody_wakes_it() {
        let visible = Arc::new(Visible::default());
        visible.advance(5, std::iter::empty());
        assert_eq!(visible.wait_beyond(4, PATIENCE), 5);
        assert_eq!(visible.wait_beyond(5, Duration::ZERO), 5);
        let (sender, called) = mpsc::channel();
        let waiting = Arc::clone(&visible);
        let work = move || sender.send(waiting.wait_beyond(5, PATIENCE)).expect("somebody listens");
        let thread = Env::system().threads.spawn("wait", Box::new(work)).expect("a thread");
        loop {
            visible.wake();
            match called.recv_timeout(Duration::from_millis(1)) {
                Ok(position) => break assert_eq!(position, 5),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(error) => panic!("{error}"),
            }
        }
        assert!(thread.join());
    }
}

//! [`Peers`]: the connections there are, and which of them end so that others have room.
//!
//! A connection without a call costs a place and nothing else, and there are only so many. One
//! that says nothing but answers when it is asked whether it is there could keep its place for
//! ever. So it keeps it only until somebody comes who finds none: then the one that is quiet for
//! the longest time is ended, and its client connects again when it has something to say.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{self, Arc, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;

use crate::limits::PAGES_MAX;

/// The connections there are.
#[derive(Debug, Default)]
pub struct Peers {
    next: AtomicU64,
    all: sync::Mutex<HashMap<u64, Arc<Peer>>>,
    /// How many calls are open on all of them.
    calls: Arc<AtomicUsize>,
}

/// A connection, as what serves its calls sees it.
#[derive(Debug)]
pub struct Peer {
    number: u64,
    /// Where its client is, where that is known.
    address: Option<SocketAddr>,
    began: Instant,
    /// How many calls are open, on this one and on all.
    calls: AtomicUsize,
    all_calls: Arc<AtomicUsize>,
    /// When the last one began or ended, in milliseconds since the connection began.
    quiet_since: AtomicU64,
    /// Places for pages that were answered and are not written.
    pages: Arc<Semaphore>,
    /// Which of its calls waits for room for what it reads.
    turn: Mutex<()>,
    end: watch::Sender<bool>,
}

/// The place of a page among those of its connection, until all of it was written.
#[derive(Debug, Clone)]
pub struct PagePlace {
    _permit: Arc<OwnedSemaphorePermit>,
}

/// A connection among the others, until this is dropped.
#[derive(Debug)]
pub struct Place {
    peers: Arc<Peers>,
    /// The connection.
    pub peer: Arc<Peer>,
}

impl Peers {
    /// Takes a connection among the others, from this client.
    pub fn place(self: &Arc<Peers>, address: Option<SocketAddr>) -> Place {
        let peer = Arc::new(Peer {
            number: self.next.fetch_add(1, Ordering::Relaxed),
            address,
            began: Instant::now(),
            calls: AtomicUsize::new(0),
            all_calls: Arc::clone(&self.calls),
            quiet_since: AtomicU64::new(0),
            pages: Arc::new(Semaphore::new(PAGES_MAX)),
            turn: Mutex::new(()),
            end: watch::Sender::new(false),
        });
        self.locked(|all| all.insert(peer.number, Arc::clone(&peer)));
        Place { peers: Arc::clone(self), peer }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.locked(|all| all.len())
    }

    /// How many calls are open on all of them.
    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    /// Ends the connection on which the most calls are open, unless calls are about to end with
    /// another.
    pub fn end_the_busiest(&self) {
        let calls = |peer: &&Arc<Peer>| peer.calls.load(Ordering::Relaxed);
        let busiest = self.locked(|all| {
            let is_one_ending = all.values().any(|peer| peer.is_ending() && calls(&peer) > 0);
            let busiest = all.values().filter(|_| !is_one_ending).max_by_key(calls);
            busiest.map(Arc::clone)
        });
        if let Some(peer) = busiest {
            peer.end();
        }
    }

    /// Ends the connection that has had no call for the longest time, if that is as long as this:
    /// whether there is one.
    pub fn end_the_quietest(&self, quiet: Duration) -> bool {
        let quietest = self.locked(|all| {
            let since = |peer: &Arc<Peer>| Some((peer.quiet_since()?, Arc::clone(peer)));
            all.values().filter_map(since).min_by_key(|(since, _)| *since)
        });
        match quietest {
            Some((since, peer)) if since.elapsed() >= quiet => {
                peer.end();
                true
            }
            _ => false,
        }
    }

    fn locked<T>(&self, work: impl FnOnce(&mut HashMap<u64, Arc<Peer>>) -> T) -> T {
        // Nothing here can leave the map half changed.
        work(&mut self.all.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.peers.locked(|all| all.remove(&self.peer.number));
    }
}

impl Peer {
    /// Ends the connection with all of its calls.
    pub fn end(&self) {
        self.end.send_replace(true);
    }

    /// Where its client is, where that is known.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Waits for a place for a page.
    pub async fn page(&self) -> Option<PagePlace> {
        let place = Arc::clone(&self.pages).acquire_owned().await;
        place.ok().map(|place| PagePlace { _permit: Arc::new(place) })
    }

    /// Waits until no other call of the connection waits for room for what it reads.
    pub async fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// Whether it is about to end.
    pub fn is_ending(&self) -> bool {
        *self.end.borrow()
    }

    /// Waits until it is to end.
    pub async fn ended(&self) {
        // It cannot fail: the sender is this one's own.
        let _ = self.end.subscribe().wait_for(|end| *end).await;
    }

    /// Notes a call, until what it gives is dropped.
    pub fn call(self: &Arc<Peer>) -> Call {
        self.calls.fetch_add(1, Ordering::AcqRel);
        self.all_calls.fetch_add(1, Ordering::Relaxed);
        Call { peer: Arc::clone(self) }
    }

    /// Since when it has had no call; `None` while it has one or is about to end.
    fn quiet_since(&self) -> Option<Instant> {
        let is_quiet = self.calls.load(Ordering::Acquire) == 0 && !self.is_ending();
        let since = Duration::from_millis(self.quiet_since.load(Ordering::Acquire));
        is_quiet.then_some(self.began + since)
    }
}

/// A call that is open, until this is dropped.
#[derive(Debug)]
pub struct Call {
    peer: Arc<Peer>,
}

impl Call {
    /// The connection over which it came.
    pub fn peer(&self) -> Arc<Peer> {
        Arc::clone(&self.peer)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let now = self.peer.began.elapsed().as_millis();
        let now = u64::try_from(now).unwrap_or(u64::MAX);
        self.peer.quiet_since.store(now, Ordering::Release);
        self.peer.calls.fetch_sub(1, Ordering::AcqRel);
        self.peer.all_calls.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::run;

    #[test]
    fn the_busiest_ends_and_no_other_before_it_has() {
        let peers = Arc::new(Peers::default());
        let [idle, busy, other] = [(); 3].map(|()| peers.place(None));
        let mut calls: Vec<Call> = (0..3).map(|_| busy.peer.call()).collect();
        let _other = other.peer.call();
        assert_eq!(peers.calls(), 4);
        let ending = || [&idle, &busy, &other].map(|place| place.peer.is_ending());
        for _ in 0..2 {
            peers.end_the_busiest();
            assert_eq!(ending(), [false, true, false]);
        }
        calls.clear();
        drop(busy);
        assert_eq!(peers.calls(), 1);
        peers.end_the_busiest();
        assert!(other.peer.is_ending() && !idle.peer.is_ending());
    }

    #[test]
    fn the_quietest_ends_and_none_that_has_a_call() {
        run(async {
            let peers = Arc::new(Peers::default());
            let [first, busy, last] = [(); 3].map(|()| peers.place(None));
            let call = busy.peer.call();
            tokio::time::sleep(Duration::from_millis(10)).await;
            drop(first.peer.call());
            let ending = || [&first, &busy, &last].map(|place| place.peer.is_ending());
            assert!(!peers.end_the_quietest(Duration::from_secs(1)));
            assert_eq!(ending(), [false; 3], "nobody was quiet for long enough");
            tokio::time::sleep(Duration::from_secs(2)).await;
            assert!(peers.end_the_quietest(Duration::from_secs(1)));
            assert_eq!(ending(), [false, false, true]);
            assert!(peers.end_the_quietest(Duration::from_secs(1)));
            assert_eq!(ending(), [true, false, true]);
            assert!(!peers.end_the_quietest(Duration::from_secs(1)));
            assert_eq!(ending(), [true, false, true]);
            drop((first, call));
            assert_eq!(peers.count(), 2);
            last.peer.ended().await;
        });
    }
}

//! [`ConnectionRegistry`]: open connections; ends idle ones so that other clients get a slot.
//!
//! A connection without a call occupies only a slot, but slots are limited. A connection that only
//! answers keepalive pings could keep its slot for ever. So an idle connection keeps its slot only
//! until another client finds no free slot. For that client, the server ends the connection that
//! has been idle longest, whose client reconnects when needed.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{self, Arc};
use std::time::Duration;
use umbel_base::ignore_poison::IgnorePoison;

use tokio::sync::{Mutex, MutexGuard, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;

use crate::limits::PAGES_MAX;

/// Registry of the open connections.
#[derive(Debug, Default)]
pub struct ConnectionRegistry {
    next: AtomicU64,
    connections: sync::Mutex<HashMap<u64, Arc<Connection>>>,
    /// Number of open calls on all connections.
    open_calls: Arc<AtomicUsize>,
}

/// A connection, as the handlers of its calls see it.
#[derive(Debug)]
pub struct Connection {
    number: u64,
    /// Address of the client, if known.
    address: Option<SocketAddr>,
    opened_at: Instant,
    /// Number of open calls on this connection, and on all connections.
    open_calls: AtomicUsize,
    all_open_calls: Arc<AtomicUsize>,
    /// Time at which a call last began or ended, in milliseconds since the connection began.
    idle_since: AtomicU64,
    /// Slots for response pages that are not written yet.
    page_slots: Arc<Semaphore>,
    /// Lock of the one call that waits for read quota.
    quota_turn: Mutex<()>,
    /// Locks of the one message of each size that waits for its decoding.
    decoding_turns: [Mutex<()>; 2],
    closing: watch::Sender<bool>,
}

/// A connection as the source of credentials.
#[derive(Debug, Clone, Copy)]
pub struct LoginPeer {
    /// Number of the connection.
    pub connection: u64,
    /// Address of the client, if known.
    pub address: Option<IpAddr>,
}

/// Slot of a page within its connection, held until the whole page is written.
#[derive(Debug, Clone)]
pub struct PageSlot {
    _permit: Arc<OwnedSemaphorePermit>,
}

/// Entry of a connection in the registry; dropping it removes the entry.
#[derive(Debug)]
pub struct ConnectionSlot {
    registry: Arc<ConnectionRegistry>,
    /// The registered connection.
    pub connection: Arc<Connection>,
}

impl ConnectionRegistry {
    /// Registers a connection from this client.
    pub fn register(self: &Arc<ConnectionRegistry>, address: Option<SocketAddr>) -> ConnectionSlot {
        let peer = Arc::new(Connection {
            number: self.next.fetch_add(1, Ordering::Relaxed),
            address,
            opened_at: Instant::now(),
            open_calls: AtomicUsize::new(0),
            all_open_calls: Arc::clone(&self.open_calls),
            idle_since: AtomicU64::new(0),
            page_slots: Arc::new(Semaphore::new(PAGES_MAX)),
            quota_turn: Mutex::new(()),
            decoding_turns: Default::default(),
            closing: watch::Sender::new(false),
        });
        self.locked(|all| all.insert(peer.number, Arc::clone(&peer)));
        ConnectionSlot { registry: Arc::clone(self), connection: peer }
    }

    /// Number of open connections.
    pub fn count(&self) -> usize {
        self.locked(|all| all.len())
    }

    /// Number of open calls on all connections.
    pub fn open_calls(&self) -> usize {
        self.open_calls.load(Ordering::Relaxed)
    }

    /// Ends the connection with the most open calls, unless another connection is closing and still
    /// has open calls.
    pub fn close_busiest(&self) {
        let calls = |peer: &&Arc<Connection>| peer.open_calls.load(Ordering::Relaxed);
        let busiest = self.locked(|all| {
            let is_one_ending = all.values().any(|peer| peer.is_closing() && calls(&peer) > 0);
            let busiest = all.values().filter(|_| !is_one_ending).max_by_key(calls);
            busiest.map(Arc::clone)
        });
        if let Some(peer) = busiest {
            peer.close();
        }
    }

    /// Ends the connection that has been idle longest, if it has been idle for at least `quiet`.
    /// Returns whether a connection was ended.
    pub fn close_idle(&self, idle_time: Duration) -> bool {
        let quietest = self.locked(|all| {
            let since = |peer: &Arc<Connection>| Some((peer.idle_since()?, Arc::clone(peer)));
            all.values().filter_map(since).min_by_key(|(since, _)| *since)
        });
        match quietest {
            Some((since, peer)) if since.elapsed() >= idle_time => {
                peer.close();
                true
            }
            _ => false,
        }
    }

    fn locked<T>(&self, work: impl FnOnce(&mut HashMap<u64, Arc<Connection>>) -> T) -> T {
        // No panic here can leave the map inconsistent.
        work(&mut self.connections.lock().ignore_poison())
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.registry.locked(|all| all.remove(&self.connection.number));
    }
}

impl Connection {
    /// Ends the connection with all of its calls.
    pub fn close(&self) {
        self.closing.send_replace(true);
    }

    /// Address of the client, if known.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// The connection as the queue of logins identifies it.
    pub fn login_peer(&self) -> LoginPeer {
        let address = self.address.map(|address| address.ip().to_canonical());
        LoginPeer { connection: self.number, address }
    }

    /// Waits for a page slot.
    pub async fn acquire_page_slot(&self) -> Option<PageSlot> {
        let slot = Arc::clone(&self.page_slots).acquire_owned().await;
        slot.ok().map(|slot| PageSlot { _permit: Arc::new(slot) })
    }

    /// Waits until no other call of the connection waits for read quota.
    pub async fn wait_quota_turn(&self) -> MutexGuard<'_, ()> {
        self.quota_turn.lock().await
    }

    /// Waits until no other message of the connection waits for its decoding among those of this
    /// size.
    pub async fn wait_decoding_turn(&self, is_long: bool) -> MutexGuard<'_, ()> {
        self.decoding_turns[usize::from(is_long)].lock().await
    }

    /// Whether the connection is closing.
    pub fn is_closing(&self) -> bool {
        *self.closing.borrow()
    }

    /// Waits until the connection is to close.
    pub async fn closed(&self) {
        // Cannot fail: `self` owns the sender.
        let _ = self.closing.subscribe().wait_for(|end| *end).await;
    }

    /// Counts a call until the returned value is dropped.
    pub fn begin_call(self: &Arc<Connection>) -> OpenCall {
        self.open_calls.fetch_add(1, Ordering::AcqRel);
        self.all_open_calls.fetch_add(1, Ordering::Relaxed);
        OpenCall { connection: Arc::clone(self) }
    }

    /// Time since which the connection has had no call; `None` during a call or while closing.
    fn idle_since(&self) -> Option<Instant> {
        let is_quiet = self.open_calls.load(Ordering::Acquire) == 0 && !self.is_closing();
        let since = Duration::from_millis(self.idle_since.load(Ordering::Acquire));
        is_quiet.then_some(self.opened_at + since)
    }
}

/// An open call, which counts until this value is dropped.
#[derive(Debug)]
pub struct OpenCall {
    connection: Arc<Connection>,
}

impl OpenCall {
    /// The call's connection.
    pub fn connection(&self) -> Arc<Connection> {
        Arc::clone(&self.connection)
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        let now = self.connection.opened_at.elapsed().as_millis();
        let now = u64::try_from(now).unwrap_or(u64::MAX);
        self.connection.idle_since.store(now, Ordering::Release);
        self.connection.open_calls.fetch_sub(1, Ordering::AcqRel);
        self.connection.all_open_calls.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::test_service::run_paused;

    #[test]
    fn busiest_connection_is_closed_one_at_a_time() {
        let registry = Arc::new(ConnectionRegistry::default());
        let [idle, busy, other] = [(); 3].map(|()| registry.register(None));
        let mut calls: Vec<OpenCall> = (0..3).map(|_| busy.connection.begin_call()).collect();
        let _other = other.connection.begin_call();
        assert_eq!(registry.open_calls(), 4);
        let ending = || [&idle, &busy, &other].map(|slot| slot.connection.is_closing());
        for _ in 0..2 {
            registry.close_busiest();
            assert_eq!(ending(), [false, true, false]);
        }
        calls.clear();
        drop(busy);
        assert_eq!(registry.open_calls(), 1);
        registry.close_busiest();
        assert!(other.connection.is_closing() && !idle.connection.is_closing());
    }

    #[test]
    fn most_idle_connection_without_calls_is_closed() {
        run_paused(async {
            let registry = Arc::new(ConnectionRegistry::default());
            let [first, busy, last] = [(); 3].map(|()| registry.register(None));
            let call = busy.connection.begin_call();
            tokio::time::sleep(Duration::from_millis(10)).await;
            drop(first.connection.begin_call());
            let ending = || [&first, &busy, &last].map(|slot| slot.connection.is_closing());
            assert!(!registry.close_idle(Duration::from_secs(1)));
            assert_eq!(ending(), [false; 3], "no connection was idle for long enough");
            tokio::time::sleep(Duration::from_secs(2)).await;
            assert!(registry.close_idle(Duration::from_secs(1)));
            assert_eq!(ending(), [false, false, true]);
            assert!(registry.close_idle(Duration::from_secs(1)));
            assert_eq!(ending(), [true, false, true]);
            assert!(!registry.close_idle(Duration::from_secs(1)));
            assert_eq!(ending(), [true, false, true]);
            drop((first, call));
            assert_eq!(registry.count(), 2);
            last.connection.closed().await;
        });
    }
}

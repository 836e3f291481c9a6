//! [`LoginQueue`]: the requests that wait for the verification of their credentials.
//!
//! Requests with the same credentials wait for one result. The different credentials that wait are
//! bounded: in all, for each address, and, to a few, for each connection. So a client that guesses
//! passwords takes few of the places that others need.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use umbel_base::ignore_poison::IgnorePoison;

use tonic::Status;

use crate::limits::{
    ADDRESS_PENDING_CREDENTIALS_MAX, CONNECTION_PENDING_CREDENTIALS_MAX, PENDING_CREDENTIALS_MAX,
};
use crate::protocol::grpc_status;
use crate::resources::connection_registry::LoginPeer;

/// A keyed hash of a name and a password.
pub type CredentialHash = [u8; 32];

/// A lock that one of several requests holds.
type Turn = Arc<tokio::sync::Mutex<()>>;

/// Requests that wait for a verification.
#[derive(Debug, Default)]
pub struct LoginQueue(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    credentials: HashMap<CredentialHash, WaitingCredentials>,
    connections: HashMap<u64, WaitingConnection>,
    /// Number of different credentials of each connection, summed by address.
    addresses: HashMap<IpAddr, usize>,
}

#[derive(Debug, Default)]
struct WaitingCredentials {
    turn: Turn,
    requests: usize,
}

#[derive(Debug, Default)]
struct WaitingConnection {
    turn: Turn,
    /// Number of requests with each of the credentials.
    credentials: HashMap<CredentialHash, usize>,
}

/// Place of a request in the queue, until this value is dropped.
#[derive(Debug)]
pub struct LoginPlace {
    queue: Arc<LoginQueue>,
    hash: CredentialHash,
    peer: Option<LoginPeer>,
    /// Turn among the requests with the same credentials.
    pub credentials_turn: Turn,
    /// Turn among the requests of the same connection.
    pub connection_turn: Option<Turn>,
}

impl LoginQueue {
    /// Joins the queue with these credentials.
    ///
    /// # Errors
    /// The connection, its address or all clients together have too many different credentials in
    /// the queue.
    pub fn join(
        queue: &Arc<LoginQueue>,
        hash: CredentialHash,
        peer: Option<LoginPeer>,
    ) -> Result<LoginPlace, Status> {
        let mut waiting = queue.locked();
        let waiting = &mut *waiting;
        waiting.check(&hash, peer)?;
        let of_all = waiting.credentials.entry(hash).or_default();
        of_all.requests += 1;
        let credentials_turn = Arc::clone(&of_all.turn);
        let connection_turn = peer.map(|peer| {
            let connection = waiting.connections.entry(peer.connection).or_default();
            let requests = connection.credentials.entry(hash).or_default();
            if *requests == 0
                && let Some(address) = peer.address
            {
                *waiting.addresses.entry(address).or_default() += 1;
            }
            *requests += 1;
            Arc::clone(&connection.turn)
        });
        let queue = Arc::clone(queue);
        Ok(LoginPlace { queue, hash, peer, credentials_turn, connection_turn })
    }

    /// Whether no request waits.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        let waiting = self.locked();
        waiting.credentials.is_empty()
            && waiting.connections.is_empty()
            && waiting.addresses.is_empty()
    }

    fn locked(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().ignore_poison()
    }
}

impl Waiting {
    fn check(&self, hash: &CredentialHash, peer: Option<LoginPeer>) -> Result<(), Status> {
        let is_full = !self.credentials.contains_key(hash)
            && self.credentials.len() >= PENDING_CREDENTIALS_MAX;
        let is_peer_full = peer.is_some_and(|peer| {
            let connection = self.connections.get(&peer.connection);
            let (is_new, count) = connection.map_or((true, 0), |connection| {
                let credentials = &connection.credentials;
                (!credentials.contains_key(hash), credentials.len())
            });
            let of_address = peer.address.and_then(|address| self.addresses.get(&address));
            is_new
                && (count >= CONNECTION_PENDING_CREDENTIALS_MAX
                    || of_address.is_some_and(|count| *count >= ADDRESS_PENDING_CREDENTIALS_MAX))
        });
        match is_full || is_peer_full {
            true => Err(grpc_status::authentication_overloaded()),
            false => Ok(()),
        }
    }

    fn leave(&mut self, hash: &CredentialHash, peer: Option<LoginPeer>) {
        if let Some(of_all) = self.credentials.get_mut(hash) {
            of_all.requests -= 1;
            if of_all.requests == 0 {
                self.credentials.remove(hash);
            }
        }
        let Some(peer) = peer else { return };
        let Some(connection) = self.connections.get_mut(&peer.connection) else { return };
        let Some(requests) = connection.credentials.get_mut(hash) else { return };
        *requests -= 1;
        if *requests > 0 {
            return;
        }
        connection.credentials.remove(hash);
        if connection.credentials.is_empty() {
            self.connections.remove(&peer.connection);
        }
        let Some(address) = peer.address else { return };
        if let Some(count) = self.addresses.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                self.addresses.remove(&address);
            }
        }
    }
}

impl Drop for LoginPlace {
    fn drop(&mut self) {
        self.queue.locked().leave(&self.hash, self.peer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: usize) -> CredentialHash {
        let mut hash = [0; 32];
        hash[..8].copy_from_slice(&number.to_le_bytes());
        hash
    }

    fn peer(connection: u64, address: u8) -> Option<LoginPeer> {
        Some(LoginPeer { connection, address: Some(IpAddr::from([10, 0, 0, address])) })
    }

    #[test]
    fn places_are_limited_by_connection_address_and_total() {
        let queue = Arc::new(LoginQueue::default());
        let join = |number, peer| LoginQueue::join(&queue, hash(number), peer);
        let mut places = Vec::new();
        for number in 0..CONNECTION_PENDING_CREDENTIALS_MAX {
            places.push(join(number, peer(1, 1)).unwrap());
            // The same credentials take no further place.
            places.push(join(number, peer(1, 1)).unwrap());
        }
        assert!(join(100, peer(1, 1)).is_err(), "the connection has its places");
        places.push(join(100, peer(2, 1)).unwrap());
        let of_address = CONNECTION_PENDING_CREDENTIALS_MAX + 1..ADDRESS_PENDING_CREDENTIALS_MAX;
        for number in of_address {
            places.push(join(1000 + number, peer(1000 + number as u64, 1)).unwrap());
        }
        assert!(join(100, peer(3, 1)).is_err(), "the address has its places");
        let left = PENDING_CREDENTIALS_MAX - ADDRESS_PENDING_CREDENTIALS_MAX;
        for number in 0..left {
            let connection = 10_000 + number as u64;
            places.push(join(10_000 + number, peer(connection, 2)).unwrap());
        }
        assert!(join(100_000, peer(4, 3)).is_err(), "all places are taken");
        assert!(join(100_000, None).is_err(), "all places are taken");
        places.push(join(100, peer(4, 3)).unwrap());
        drop(places);
        assert!(queue.is_empty());
    }
}

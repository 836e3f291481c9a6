//! [`Unread`]: what was read from the store for clients that have not taken it yet.
//!
//! A call holds what it read last until it is asked for more, and that may never come: a client
//! can open many calls, let each begin, and take nothing. All pages together stay within a budget.
//! Room for the largest page there can be is taken before the store is read, and what the page does
//! not need is given back at once. Who finds no room waits, first come, first served, and while he
//! waits connections end that hold pages nobody took for some seconds, the one with the most first.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::limits::{ROOM_TIME, UNREAD_PAGE_BYTES, UNREAD_TIME};
use crate::peers::Peer;

/// What a permit stands for.
const UNIT_BYTES: usize = 1 << 10;
/// Room for the largest page.
const PAGE_UNITS: u32 = (UNREAD_PAGE_BYTES / UNIT_BYTES) as u32;

/// What all pages together may hold, and who holds which.
#[derive(Debug)]
pub struct Unread {
    units: usize,
    room: Arc<Semaphore>,
    /// By the number of the call.
    held: Mutex<Pages>,
}

#[derive(Debug, Default)]
struct Pages {
    next: u64,
    pages: HashMap<u64, PageHeld>,
}

#[derive(Debug)]
struct PageHeld {
    since: Instant,
    permit: OwnedSemaphorePermit,
    /// Whose it is; `None` where nobody can end it.
    peer: Option<Arc<Peer>>,
}

/// What one call holds.
#[derive(Debug)]
pub struct Held {
    unread: Arc<Unread>,
    number: u64,
    peer: Option<Arc<Peer>>,
}

/// Room for a page that is being read.
#[derive(Debug)]
pub struct Room(OwnedSemaphorePermit);

impl Unread {
    /// So many bytes, but no fewer than a page may have.
    pub fn new(bytes_max: usize) -> Unread {
        let units = (bytes_max / UNIT_BYTES).clamp(PAGE_UNITS as usize, Semaphore::MAX_PERMITS);
        let room = Arc::new(Semaphore::new(units));
        Unread { units, room, held: Mutex::default() }
    }

    /// The bytes that pages hold.
    pub fn bytes(&self) -> usize {
        (self.units - self.room.available_permits()) * UNIT_BYTES
    }

    /// What a call over this connection holds: nothing yet.
    pub fn held(self: &Arc<Unread>, peer: Option<Arc<Peer>>) -> Held {
        let number = self.locked(|held| {
            held.next += 1;
            held.next
        });
        Held { unread: Arc::clone(self), number, peer }
    }

    /// Waits for room for a page.
    async fn room(&self) -> Option<Room> {
        let mut taken = pin!(Arc::clone(&self.room).acquire_many_owned(PAGE_UNITS));
        loop {
            tokio::select! {
                permit = &mut taken => return permit.ok().map(Room),
                () = tokio::time::sleep(ROOM_TIME) => self.end_one(UNREAD_TIME),
            }
        }
    }

    /// Ends the connection that holds the most of what was not taken for so long.
    fn end_one(&self, unread: Duration) {
        let most = self.locked(|held| {
            let mut sums: HashMap<*const Peer, (usize, Arc<Peer>)> = HashMap::new();
            for page in held.pages.values().filter(|page| page.since.elapsed() >= unread) {
                if let Some(peer) = page.peer.as_ref().filter(|peer| !peer.is_ending()) {
                    let sum = sums.entry(Arc::as_ptr(peer)).or_insert((0, Arc::clone(peer)));
                    sum.0 += page.permit.num_permits();
                }
            }
            sums.into_values().max_by_key(|(units, _)| *units)
        });
        if let Some((_, peer)) = most {
            peer.end();
        }
    }

    fn locked<T>(&self, work: impl FnOnce(&mut Pages) -> T) -> T {
        // Nothing here can leave the pages half changed.
        work(&mut self.held.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Held {
    /// Gives back what the last page held: its answers were taken.
    pub fn give_back(&self) {
        self.unread.locked(|held| held.pages.remove(&self.number));
    }

    /// Gives back what the last page held, and waits for room for the next one. `None` where there
    /// will be none any more.
    pub async fn room(&self) -> Option<Room> {
        self.give_back();
        self.unread.room().await
    }

    /// Holds a page of so many bytes.
    pub fn hold(&self, room: Room, bytes: usize) {
        let Room(mut permit) = room;
        let units = bytes.div_ceil(UNIT_BYTES).min(permit.num_permits());
        drop(permit.split(permit.num_permits() - units));
        if units == 0 {
            return;
        }
        let page = PageHeld { since: Instant::now(), permit, peer: self.peer.clone() };
        self.unread.locked(|held| held.pages.insert(self.number, page));
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::Peers;
    use crate::stage::run;

    const MIB: usize = 1 << 20;

    #[test]
    fn pages_stay_within_the_budget_and_who_takes_nothing_is_ended() {
        run(async {
            let peers = Arc::new(Peers::default());
            let [stuck, other] = [(); 2].map(|()| peers.place(None));
            let unread = Arc::new(Unread::new(2 * UNREAD_PAGE_BYTES));
            let calls: Vec<Held> =
                (0..20).map(|_| unread.held(Some(Arc::clone(&stuck.peer)))).collect();
            let mut served = 0;
            for call in &calls {
                if let Ok(room) = tokio::time::timeout(ROOM_TIME / 2, call.room()).await {
                    call.hold(room.unwrap(), MIB);
                    served += 1;
                }
            }
            let page = UNREAD_PAGE_BYTES.div_ceil(MIB);
            assert!(served >= page && served <= 2 * page, "{served}");
            assert!(unread.bytes() <= 2 * UNREAD_PAGE_BYTES);
            let call = unread.held(Some(Arc::clone(&other.peer)));
            let waiting = tokio::spawn(async move {
                let room = call.room().await.unwrap();
                call.hold(room, MIB);
                call
            });
            stuck.peer.ended().await;
            assert!(!other.peer.is_ending());
            drop(calls);
            let call = waiting.await.unwrap();
            assert_eq!(unread.bytes(), MIB);
            call.give_back();
            assert_eq!(unread.bytes(), 0);
        });
    }
}

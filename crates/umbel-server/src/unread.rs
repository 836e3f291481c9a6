//! [`Unread`]: what was read from the store for clients that have not taken it yet.
//!
//! A client can open many calls, let each begin, and take nothing. What was read for it is held
//! until more is asked for, and then by the frames that were made of it: the connection takes one
//! after the other, and keeps each until its client has room. All pages together stay within a
//! budget. Room for the largest page there can be is taken before the store is read, and what the
//! page does not need is given back at once, the rest when the last frame was written. Who finds no
//! room waits, first come, first served but one call of a connection at a time, and while he waits
//! connections end that hold pages nobody took anything of for some seconds, the one with the most
//! first.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::body::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tonic::Extensions;

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
    /// By their numbers.
    held: Mutex<Pages>,
}

#[derive(Debug, Default)]
struct Pages {
    next: u64,
    pages: HashMap<u64, PageHeld>,
}

#[derive(Debug)]
struct PageHeld {
    /// When it came, or when a frame of it was written last.
    since: Instant,
    units: usize,
    /// Whose it is; `None` where nobody can end it.
    peer: Option<Arc<Peer>>,
}

/// What was read last for one call.
#[derive(Debug)]
pub struct Held {
    unread: Arc<Unread>,
    peer: Option<Arc<Peer>>,
    unsent: Unsent,
}

/// The same, for whoever makes frames of it.
#[derive(Debug, Clone, Default)]
pub struct Unsent(Arc<Mutex<Option<Arc<Page>>>>);

/// A page, as long as its call or a frame of it is there.
#[derive(Debug)]
struct Page {
    unread: Arc<Unread>,
    number: u64,
    permit: OwnedSemaphorePermit,
}

/// Bytes of a page on their way.
#[derive(Debug)]
struct Carried {
    bytes: Bytes,
    page: Arc<Page>,
}

/// Room for a page that is being read. It is held as the page will be: the call that reads it goes
/// on only as long as its client takes what came before.
#[derive(Debug)]
pub struct Room(Page);

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
        Held { unread: Arc::clone(self), peer, unsent: Unsent::default() }
    }

    /// What a call with these extensions holds: nothing yet.
    pub fn held_for(self: &Arc<Unread>, asked: &Extensions) -> Held {
        self.held(asked.get::<Arc<Peer>>().cloned())
    }

    /// Waits for room for a page that is read over this connection.
    async fn room(self: &Arc<Unread>, peer: Option<Arc<Peer>>) -> Option<Room> {
        // Who waits is not passed by: what is free is his first.
        if let Ok(permit) = Arc::clone(&self.room).try_acquire_many_owned(PAGE_UNITS) {
            return Some(self.taken(permit, peer));
        }
        let mut taken = pin!(Arc::clone(&self.room).acquire_many_owned(PAGE_UNITS));
        loop {
            tokio::select! {
                permit = &mut taken => return permit.ok().map(|permit| self.taken(permit, peer)),
                () = tokio::time::sleep(ROOM_TIME) => self.end_one(UNREAD_TIME),
            }
        }
    }

    fn taken(self: &Arc<Unread>, permit: OwnedSemaphorePermit, peer: Option<Arc<Peer>>) -> Room {
        let page = PageHeld { since: Instant::now(), units: permit.num_permits(), peer };
        let number = self.locked(|held| {
            held.next += 1;
            held.pages.insert(held.next, page);
            held.next
        });
        Room(Page { unread: Arc::clone(self), number, permit })
    }

    /// Ends the connection that holds the most of what was not taken for so long.
    fn end_one(&self, unread: Duration) {
        let most = self.locked(|held| {
            let mut sums: HashMap<*const Peer, (usize, Arc<Peer>)> = HashMap::new();
            for page in held.pages.values().filter(|page| page.since.elapsed() >= unread) {
                if let Some(peer) = page.peer.as_ref().filter(|peer| !peer.is_ending()) {
                    let sum = sums.entry(Arc::as_ptr(peer)).or_insert((0, Arc::clone(peer)));
                    sum.0 += page.units;
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
    /// Gives back what the last page held, but for the frames of it that were not written.
    pub fn give_back(&self) {
        self.unsent.locked(|page| *page = None);
    }

    /// Gives back what the last page held, and waits for room for the next one. `None` where there
    /// will be none any more.
    pub async fn room(&self) -> Option<Room> {
        self.give_back();
        // However many calls a connection has, the others wait behind one of them.
        let _turn = match &self.peer {
            Some(peer) => Some(peer.turn().await),
            None => None,
        };
        self.unread.room(self.peer.clone()).await
    }

    /// Holds a page of so many bytes.
    pub fn hold(&self, room: Room, bytes: usize) {
        let Room(mut page) = room;
        let room = page.permit.num_permits();
        let units = bytes.div_ceil(UNIT_BYTES).min(room);
        drop(page.permit.split(room - units));
        if units == 0 {
            return;
        }
        self.unread.locked(|held| {
            if let Some(held) = held.pages.get_mut(&page.number) {
                (held.since, held.units) = (Instant::now(), units);
            }
        });
        self.unsent.locked(|held| *held = Some(Arc::new(page)));
    }

    /// What is held, for whoever makes frames of it. It outlives this: the last page is made into
    /// frames when there is nothing more to read.
    pub fn unsent(&self) -> Unsent {
        self.unsent.clone()
    }
}

impl Unsent {
    /// Bytes that hold the page they are of until they were written.
    pub fn carry(&self, bytes: Bytes) -> Bytes {
        match self.locked(|page| page.clone()) {
            Some(page) if !bytes.is_empty() => Bytes::from_owner(Carried { bytes, page }),
            _ => bytes,
        }
    }

    fn locked<T>(&self, work: impl FnOnce(&mut Option<Arc<Page>>) -> T) -> T {
        // Nothing here can leave it half changed.
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.unread.locked(|held| held.pages.remove(&self.number));
    }
}

impl AsRef<[u8]> for Carried {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Carried {
    fn drop(&mut self) {
        // Something of it was taken.
        let now = Instant::now();
        self.page.unread.locked(|held| {
            if let Some(page) = held.pages.get_mut(&self.page.number) {
                page.since = now;
            }
        });
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

    /// The connection takes a frame before its client has room for it, and asks for more. A page
    /// whose frames lay there was given back: clients that read nothing had as much read for them
    /// as they liked.
    #[test]
    fn a_page_is_held_until_its_last_frame_was_written() {
        run(async {
            let unread = Arc::new(Unread::new(2 * UNREAD_PAGE_BYTES));
            let call = unread.held(None);
            let unsent = call.unsent();
            assert_eq!(unsent.carry(Bytes::from_static(b"head")), "head");
            call.hold(call.room().await.unwrap(), MIB);
            let frames = [&b"one"[..], b"two"].map(|text| unsent.carry(Bytes::from_static(text)));
            assert_eq!((&frames[0][..], unread.bytes()), (&b"one"[..], MIB));
            let room = call.room().await.unwrap();
            call.hold(room, 2 * MIB);
            assert_eq!(unread.bytes(), 3 * MIB, "the first one's frames are there");
            let [one, two] = frames;
            drop((one, two.slice(1..)));
            assert_eq!(unread.bytes(), 3 * MIB);
            drop(two);
            assert_eq!(unread.bytes(), 2 * MIB);
            // The last page is still to be made into frames when its call has no more to read.
            drop(call);
            let last = unsent.carry(Bytes::from_static(b"last"));
            drop(unsent);
            assert_eq!(unread.bytes(), 2 * MIB);
            drop(last);
            assert_eq!(unread.bytes(), 0);
        });
    }

    /// A thousand calls of one connection stood in front of whoever came next: he waited until each
    /// had had its page, and for its end.
    #[test]
    fn many_calls_of_a_connection_wait_as_one() {
        run(async {
            let peers = Arc::new(Peers::default());
            let [many, one] = [(); 2].map(|()| peers.place(None));
            let unread = Arc::new(Unread::new(UNREAD_PAGE_BYTES));
            let first = unread.held(Some(Arc::clone(&many.peer)));
            let room = first.room().await.unwrap();
            let order = Arc::new(Mutex::new(Vec::new()));
            let mut waiting = Vec::new();
            for (name, peer) in [("many", &many), ("many", &many), ("many", &many), ("one", &one)] {
                let call = unread.held(Some(Arc::clone(&peer.peer)));
                let order = Arc::clone(&order);
                waiting.push(tokio::spawn(async move {
                    let room = call.room().await.unwrap();
                    order.lock().unwrap().push(name);
                    drop(room);
                }));
                tokio::task::yield_now().await;
            }
            drop(room);
            for call in waiting {
                call.await.unwrap();
            }
            assert_eq!(*order.lock().unwrap(), ["many", "one", "many", "many"]);
        });
    }

    /// A call took room, and its client none of what came before: so nobody had the call go on and
    /// read its page. What was no page yet could not be taken away, and 32 such calls kept others
    /// from reading for as long as their client liked.
    #[test]
    fn room_that_is_taken_and_not_used_is_taken_away() {
        run(async {
            let peers = Arc::new(Peers::default());
            let [stuck, other] = [(); 2].map(|()| peers.place(None));
            let unread = Arc::new(Unread::new(UNREAD_PAGE_BYTES));
            let call = unread.held(Some(Arc::clone(&stuck.peer)));
            let room = call.room().await.unwrap();
            let call = unread.held(Some(Arc::clone(&other.peer)));
            let waiting = tokio::spawn(async move { call.room().await.is_some() });
            let ended = tokio::time::timeout(2 * UNREAD_TIME, stuck.peer.ended()).await;
            assert!(ended.is_ok() && !other.peer.is_ending());
            drop(room);
            assert!(waiting.await.unwrap());
            assert_eq!(unread.bytes(), 0);
        });
    }
}

//! [`Unread`]: what was read from the store for clients that have not taken it yet.
//!
//! A client can open many calls, let each begin, and take nothing. What was read for it is held
//! until more is asked for, and then by the frames that were made of it: the connection takes one
//! after the other, and keeps each until its client has room. All pages together stay within a
//! budget. Room for the largest page there can be is taken before the store is read, and what the
//! page does not need is given back at once, the rest when the last frame was written. Who finds no
//! room waits, first come, first served but one call of a connection at a time, and while he waits
//! connections end that hold pages nobody took anything of for some seconds, the one with the most
//! first. Who takes a little from time to time keeps his pages only as long as others find room:
//! once somebody waited as long in vain, whoever holds the most of pages that old is ended.
//!
//! Frames of other answers take no room before they are made. They are counted beside the budget,
//! and where they come to as much again, connections end in the same way.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use hyper::body::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tonic::{Extensions, Status};

use crate::failure;
use crate::limits::{LOOK_TIME, ROOM_TIME, UNREAD_PAGE_BYTES, UNREAD_TIME};
use crate::peers::Peer;

/// What a permit stands for. Frames of fewer bytes are not counted unless they are of a page.
const UNIT_BYTES: usize = 1 << 10;
/// Room for the largest page.
const PAGE_UNITS: usize = UNREAD_PAGE_BYTES / UNIT_BYTES;

/// What all pages together may hold, and who holds which.
#[derive(Debug)]
pub struct Unread {
    units: usize,
    room: Arc<Semaphore>,
    held: Mutex<Pages>,
}

#[derive(Debug, Default)]
struct Pages {
    next: u64,
    /// By their numbers.
    pages: HashMap<u64, PageHeld>,
    /// What frames have that took no room.
    beside: usize,
    /// When it was last looked which connection has to end,
    looked: Option<Instant>,
    /// and when one was ended of which something was taken.
    ended_slow: Option<Instant>,
}

/// What connections hold.
type Sums = HashMap<*const Peer, (usize, Arc<Peer>)>;

#[derive(Debug)]
struct PageHeld {
    /// When it came,
    came: Instant,
    /// or when a frame of it was written last; `None` while it is made, which its client cannot
    /// delay.
    since: Option<Instant>,
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
pub struct Unsent(Arc<Mutex<Making>>);

/// What frames are made of.
#[derive(Debug, Default)]
struct Making {
    page: Option<Arc<Page>>,
    /// Whether there is a frame of it.
    is_begun: bool,
    /// Pages that were given back before there was a frame of them: their bytes are in the next.
    given_back: Vec<Arc<Page>>,
}

/// A page, as long as its call or a frame of it is there.
#[derive(Debug)]
struct Page {
    unread: Arc<Unread>,
    number: u64,
    /// `None` where it took no room.
    permit: Option<OwnedSemaphorePermit>,
}

/// The pages that a frame is made of.
#[derive(Debug, Clone)]
pub struct Carrier {
    last: Arc<Page>,
    before: Vec<Arc<Page>>,
}

/// Bytes of pages on their way.
#[derive(Debug)]
struct Carried {
    bytes: Bytes,
    pages: Carrier,
}

/// Room for a page that is being read. It is held as the page will be: the call that reads it goes
/// on only as long as its client takes what came before. Whoever reads takes it along, so that it
/// is there as long as what was read.
#[derive(Debug)]
pub struct Room(Page);

impl Unread {
    /// So many bytes, but no fewer than a page may have.
    pub fn new(bytes_max: usize) -> Unread {
        let units = (bytes_max / UNIT_BYTES).clamp(PAGE_UNITS, Semaphore::MAX_PERMITS);
        let room = Arc::new(Semaphore::new(units));
        Unread { units, room, held: Mutex::default() }
    }

    /// The bytes that pages hold, and frames of other answers.
    pub fn bytes(&self) -> usize {
        let units = self.units - self.room.available_permits();
        (units + self.locked(|held| held.beside)) * UNIT_BYTES
    }

    /// Nobody finds room any more, and who waits is told so.
    pub fn close(&self) {
        self.room.close();
    }

    /// What a call over this connection holds: nothing yet.
    pub fn held(self: &Arc<Unread>, peer: Option<Arc<Peer>>) -> Held {
        Held { unread: Arc::clone(self), peer, unsent: Unsent::default() }
    }

    /// What a call with these extensions holds: nothing yet.
    pub fn held_for(self: &Arc<Unread>, asked: &Extensions) -> Held {
        self.held(asked.get::<Arc<Peer>>().cloned())
    }

    /// Waits for room for something that is read over this connection. `None` where there will be
    /// none any more.
    async fn room(self: &Arc<Unread>, peer: Option<Arc<Peer>>, units: usize) -> Option<Room> {
        let units = units.clamp(1, self.units);
        let wanted = u32::try_from(units).unwrap_or(u32::MAX);
        // Who waits is not passed by: what is free is his first.
        if let Ok(permit) = Arc::clone(&self.room).try_acquire_many_owned(wanted) {
            return Some(self.taken(permit, peer));
        }
        // A call whose client takes nothing may never be asked again how it gets on. So a task
        // waits for it: what that finds is known to be held, and stands in nobody's way.
        let (unread, mut waiting) = (Arc::clone(self), JoinSet::new());
        waiting.spawn(async move {
            // However many calls a connection has, the others wait behind one of them.
            let _turn = match &peer {
                Some(peer) => Some(peer.turn().await),
                None => None,
            };
            let began = Instant::now();
            let mut taken = pin!(Arc::clone(&unread.room).acquire_many_owned(wanted));
            loop {
                tokio::select! {
                    permit = &mut taken => {
                        return permit.ok().map(|permit| unread.taken(permit, peer.clone()));
                    }
                    () = tokio::time::sleep(ROOM_TIME) => {
                        unread.end_one(units, began.elapsed() >= UNREAD_TIME);
                    }
                }
            }
        });
        waiting.join_next().await?.ok()?
    }

    fn taken(self: &Arc<Unread>, permit: OwnedSemaphorePermit, peer: Option<Arc<Peer>>) -> Room {
        let units = permit.num_permits();
        let number = self.locked(|held| held.add(units, peer));
        Room(Page { unread: Arc::clone(self), number, permit: Some(permit) })
    }

    /// What holds the bytes of a frame that took no room; nothing where they are few.
    pub fn beside(self: &Arc<Unread>, bytes: &Bytes, peer: &Arc<Peer>) -> Option<Carrier> {
        let units = bytes.len() / UNIT_BYTES;
        if units == 0 {
            return None;
        }
        let last = Arc::new(self.without_room(units, Some(Arc::clone(peer))));
        let over = self.locked(|held| held.beside.saturating_sub(self.units));
        if over > 0 {
            self.end_one(self.room.available_permits() + over, false);
        }
        Some(Carrier { last, before: Vec::new() })
    }

    /// Something that took no room.
    fn without_room(self: &Arc<Unread>, units: usize, peer: Option<Arc<Peer>>) -> Page {
        let number = self.locked(|held| {
            held.beside += units;
            held.add(units, peer)
        });
        Page { unread: Arc::clone(self), number, permit: None }
    }

    /// Ends the connection that holds the most of what was not taken for some time, unless somebody
    /// just looked or so much room is on its way back. Where there is none and somebody waited for
    /// long already, what was taken of in part counts as well, but from time to time only.
    fn end_one(&self, wanted: usize, has_waited: bool) {
        let most = self.locked(|held| {
            if !held.may_look() {
                return None;
            }
            let mut coming = self.room.available_permits();
            let [mut untaken, mut slow] = [(); 2].map(|()| Sums::new());
            for page in held.pages.values() {
                let Some(peer) = &page.peer else { continue };
                let sums = match page {
                    _ if peer.is_ending() => {
                        coming += page.units;
                        continue;
                    }
                    _ if page.is_untaken() => &mut untaken,
                    _ if has_waited && page.is_slow() => &mut slow,
                    _ => continue,
                };
                sums.entry(Arc::as_ptr(peer)).or_insert((0, Arc::clone(peer))).0 += page.units;
            }
            if coming >= wanted {
                return None;
            }
            if untaken.is_empty() && !slow.is_empty() && held.may_end_slow() {
                untaken = slow;
            }
            untaken.into_values().max_by_key(|(units, _)| *units)
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

impl Pages {
    fn add(&mut self, units: usize, peer: Option<Arc<Peer>>) -> u64 {
        self.next += 1;
        let came = Instant::now();
        self.pages.insert(self.next, PageHeld { came, since: Some(came), units, peer });
        self.next
    }

    /// Whether some time has passed since somebody looked, who looks at all pages.
    fn may_look(&mut self) -> bool {
        has_passed(&mut self.looked, LOOK_TIME)
    }

    /// Whether some time has passed since somebody was ended who had taken something.
    fn may_end_slow(&mut self) -> bool {
        has_passed(&mut self.ended_slow, ROOM_TIME)
    }
}

/// Whether so much time has passed since this was asked and said so.
fn has_passed(last: &mut Option<Instant>, time: Duration) -> bool {
    let has = last.is_none_or(|last| last.elapsed() >= time);
    if has {
        *last = Some(Instant::now());
    }
    has
}

impl PageHeld {
    /// Whether nothing of it was taken for some time.
    fn is_untaken(&self) -> bool {
        self.since.is_some_and(|since| since.elapsed() >= UNREAD_TIME)
    }

    /// Whether not all of it was taken in that time.
    fn is_slow(&self) -> bool {
        self.since.is_some() && self.came.elapsed() >= UNREAD_TIME
    }
}

impl Room {
    /// What is to be held is made without the client: however long that takes, it is not his doing.
    pub fn is_made(&self) {
        self.set(None);
    }

    /// Does the work that makes it; from then on he can take it.
    pub fn during<T>(self, work: impl FnOnce() -> T) -> (T, Room) {
        self.is_made();
        let done = work();
        self.set(Some(Instant::now()));
        (done, self)
    }

    fn set(&self, since: Option<Instant>) {
        let Room(Page { unread, number, .. }) = self;
        unread.locked(|held| {
            if let Some(held) = held.pages.get_mut(number) {
                held.since = since;
                held.came = since.unwrap_or(held.came);
            }
        });
    }
}

impl Held {
    /// Gives back what the last page held, but for the frames of it that were not written. What is
    /// not in a frame yet goes into one first.
    pub async fn give_back(&self) {
        if self.unsent.locked(|making| making.page.is_some()) {
            let mut has_paused = false;
            // Whoever makes frames makes one of what is there where nothing more is.
            poll_fn(|context| {
                if std::mem::replace(&mut has_paused, true) {
                    return Poll::Ready(());
                }
                context.waker().wake_by_ref();
                Poll::Pending
            })
            .await;
        }
        self.unsent.locked(Making::give_back);
    }

    /// Gives back what the last page held, and waits for room for the next one.
    ///
    /// # Errors
    /// Where there will be none any more, because the server is about to stop.
    pub async fn room(&self) -> Result<Room, Status> {
        self.room_for(UNREAD_PAGE_BYTES).await
    }

    /// The same for so many bytes.
    ///
    /// # Errors
    /// As [`Held::room`].
    pub async fn room_for(&self, bytes: usize) -> Result<Room, Status> {
        self.give_back().await;
        let room = self.unread.room(self.peer.clone(), bytes.div_ceil(UNIT_BYTES));
        room.await.ok_or_else(failure::stopping)
    }

    /// Waits for room for so many bytes, and holds something that `work` makes and `measure` says
    /// the bytes of. Its client cannot delay that.
    ///
    /// # Errors
    /// As [`Held::room`], and those of `work`.
    pub async fn made<A: Send + 'static>(
        self,
        bytes: usize,
        work: impl Future<Output = Result<A, Status>> + Send + 'static,
        measure: impl FnOnce(&A) -> usize + Send + 'static,
    ) -> Result<(A, Unsent), Status> {
        let mut making = JoinSet::new();
        making.spawn(async move {
            let room = self.room_for(bytes).await?;
            room.is_made();
            let made = work.await?;
            self.hold(room, measure(&made));
            Ok((made, self.unsent()))
        });
        // A panic in there was reported; the call ends as if the server did.
        making.join_next().await.and_then(Result::ok).unwrap_or_else(|| Err(failure::stopping()))
    }

    /// Holds a page of so many bytes. What is more than there was room for counts as what took
    /// none.
    pub fn hold(&self, room: Room, bytes: usize) {
        let Room(mut page) = room;
        let Some(permit) = &mut page.permit else { return };
        let room = permit.num_permits();
        let all = bytes.div_ceil(UNIT_BYTES);
        let units = all.min(room);
        drop(permit.split(room - units));
        let more = (all > room).then(|| self.unread.without_room(all - room, self.peer.clone()));
        if units == 0 {
            return;
        }
        self.unread.locked(|held| {
            if let Some(held) = held.pages.get_mut(&page.number) {
                held.came = Instant::now();
                (held.since, held.units) = (Some(held.came), units);
            }
        });
        self.unsent.locked(|making| {
            making.give_back();
            (making.page, making.is_begun) = (Some(Arc::new(page)), false);
            making.given_back.extend(more.map(Arc::new));
        });
    }

    /// What is held, for whoever makes frames of it. It outlives this: the last page is made into
    /// frames when there is nothing more to read.
    pub fn unsent(&self) -> Unsent {
        self.unsent.clone()
    }
}

impl Making {
    fn give_back(&mut self) {
        let page = self.page.take().filter(|_| !self.is_begun);
        self.given_back.extend(page);
    }
}

impl Unsent {
    /// The pages that the next frame is made of; nothing where there are none.
    pub fn carrier(&self) -> Option<Carrier> {
        self.locked(|making| {
            let mut before = std::mem::take(&mut making.given_back);
            making.is_begun = making.page.is_some();
            let last = making.page.clone().or_else(|| before.pop())?;
            Some(Carrier { last, before })
        })
    }

    fn locked<T>(&self, work: impl FnOnce(&mut Making) -> T) -> T {
        // Nothing here can leave it half changed.
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Carrier {
    /// Bytes that hold the pages until they were written.
    pub fn carry(&self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Carried { bytes, pages: self.clone() })
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        self.unread.locked(|held| {
            let gone = held.pages.remove(&self.number);
            if self.permit.is_none() {
                held.beside -= gone.map_or(0, |gone| gone.units);
            }
        });
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
        let Carrier { last, before } = &self.pages;
        last.unread.locked(|held| {
            for page in before.iter().chain([last]) {
                if let Some(page) = held.pages.get_mut(&page.number) {
                    page.since = Some(now);
                }
            }
        });
    }
}

#[cfg(test)]
#[path = "unread_tests.rs"]
mod tests;

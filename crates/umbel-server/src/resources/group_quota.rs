//! [`GroupRoom`]: what all groups of consumers together may hold in memory.
//!
//! A group takes room for the largest page there can be before it reads, first come, first served,
//! gives back at once what the page does not need, and the rest as its events are done. Who finds
//! no room waits and nothing fails. Nobody waits for ever: while somebody waits, groups let go of
//! what their consumers have taken or nobody was sent for long, and read it again when it is
//! needed; and consumers end that take nothing of what they are sent.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::limits::UNREAD_PAGE_BYTES;

/// What a permit stands for.
const UNIT_BYTES: usize = 1 << 10;
/// Room for the largest page.
const PAGE_UNITS: usize = UNREAD_PAGE_BYTES.div_ceil(UNIT_BYTES);
/// What a group that holds something keeps rather than give it back at each event.
const SLACK_UNITS: usize = 64;

/// What all groups together may hold.
#[derive(Debug)]
pub struct GroupRoom {
    units: usize,
    room: Arc<Semaphore>,
    /// How many groups wait.
    waiting: watch::Sender<usize>,
}

impl GroupRoom {
    /// So many bytes, but no fewer than a page may have.
    pub fn new(bytes_max: usize) -> GroupRoom {
        let units = (bytes_max / UNIT_BYTES).clamp(PAGE_UNITS, Semaphore::MAX_PERMITS);
        let room = Arc::new(Semaphore::new(units));
        GroupRoom { units, room, waiting: watch::Sender::new(0) }
    }

    /// The bytes that groups hold.
    pub fn bytes(&self) -> usize {
        (self.units - self.room.available_permits()) * UNIT_BYTES
    }

    /// What one group holds: nothing yet.
    pub fn part(self: &Arc<GroupRoom>) -> Part {
        Part { room: Arc::clone(self), held: None, page: None, turn: None }
    }

    /// Hears of it when somebody waits.
    pub fn wanted(&self) -> Wanted {
        Wanted(self.waiting.subscribe())
    }

    fn try_page(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.room).try_acquire_many_owned(PAGE_UNITS as u32).ok()
    }

    async fn page(self: Arc<GroupRoom>) -> Option<OwnedSemaphorePermit> {
        let _waits = Waits::new(&self.waiting);
        Arc::clone(&self.room).acquire_many_owned(PAGE_UNITS as u32).await.ok()
    }
}

/// Somebody who waits, until this is dropped.
struct Waits<'a>(&'a watch::Sender<usize>);

impl Waits<'_> {
    fn new(waiting: &watch::Sender<usize>) -> Waits<'_> {
        waiting.send_modify(|count| *count += 1);
        Waits(waiting)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// Whether somebody waits for room.
#[derive(Debug)]
pub struct Wanted(watch::Receiver<usize>);

impl Wanted {
    /// Whether somebody does now.
    pub fn is_now(&self) -> bool {
        *self.0.borrow() > 0
    }

    /// Waits until somebody does.
    pub async fn comes(&mut self) {
        // An error says that nobody can wait any more.
        if self.0.wait_for(|count| *count > 0).await.is_err() {
            std::future::pending().await
        }
    }
}

type Turn = Pin<Box<dyn Future<Output = Option<OwnedSemaphorePermit>> + Send + Sync>>;

/// What one group holds, until it is dropped.
pub struct Part {
    room: Arc<GroupRoom>,
    held: Option<OwnedSemaphorePermit>,
    /// Room for the next page.
    page: Option<OwnedSemaphorePermit>,
    /// Its place among those who wait.
    turn: Option<Turn>,
}

impl Part {
    /// Whether it has room for a page. Takes it where there is some and nobody waits for it.
    pub fn has_page(&mut self) -> bool {
        if self.page.is_none() && self.turn.is_none() {
            self.page = self.room.try_page();
        }
        self.page.is_some()
    }

    /// Waits for room for a page. Its place among those who wait is kept where this is given up and
    /// called again.
    pub async fn page_comes(&mut self) {
        if self.has_page() {
            return;
        }
        let room = &self.room;
        let turn = self.turn.get_or_insert_with(|| Box::pin(Arc::clone(room).page()));
        self.page = turn.await;
        self.turn = None;
    }

    /// Wants no page any more.
    pub fn leave(&mut self) {
        (self.page, self.turn) = (None, None);
    }

    /// Holds so many bytes, and gives back the rest.
    pub fn hold(&mut self, bytes: usize) {
        let units = bytes.div_ceil(UNIT_BYTES);
        match (&mut self.held, self.page.take()) {
            (Some(held), Some(page)) => held.merge(page),
            (None, Some(page)) => self.held = Some(page),
            (_, None) => {}
        }
        let Some(held) = &mut self.held else { return };
        let free = held.num_permits().saturating_sub(units);
        if units == 0 {
            self.held = None;
        } else if free > SLACK_UNITS {
            drop(held.split(free));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::stage::run;

    #[test]
    fn room_is_given_back_and_places_are_kept() {
        run(async {
            let room = Arc::new(GroupRoom::new(0));
            let page = PAGE_UNITS * UNIT_BYTES;
            let (mut one, mut two, mut three) = (room.part(), room.part(), room.part());
            one.page_comes().await;
            assert_eq!(room.bytes(), page);
            one.hold(page - 1);
            let (mut wanted, soon) = (room.wanted(), Duration::from_millis(1));
            assert!(!wanted.is_now());
            for _ in 0..3 {
                assert!(tokio::time::timeout(soon, two.page_comes()).await.is_err());
                assert!(tokio::time::timeout(soon, three.page_comes()).await.is_err());
            }
            wanted.comes().await;
            one.hold(0);
            assert!(!one.has_page(), "others came first");
            assert!(!three.has_page());
            two.page_comes().await;
            two.hold(2 * SLACK_UNITS * UNIT_BYTES);
            assert_eq!(room.bytes(), page, "and the next one has its room in part");
            two.hold(0);
            three.page_comes().await;
            assert!(!wanted.is_now());
            three.leave();
            assert_eq!(room.bytes(), 0);
            assert!(one.has_page());
        });
    }
}

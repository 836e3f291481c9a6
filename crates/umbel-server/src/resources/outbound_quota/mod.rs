//! [`OutboundQuota`]: memory quota for data that was read from the store but not yet taken by
//! clients.
//!
//! A client can open many calls, let each begin, and read nothing. The data read for a call stays
//! in memory until the call is polled for more, and then in the frames made of the data. The
//! connection takes one frame after the other, and keeps each frame until the client has
//! flow-control window for it.
//!
//! Reservations:
//!
//! - All pages together stay within a budget.
//! - A reservation for the largest possible page precedes each read of the store.
//! - The reservation shrinks at once to the size of the page, and ends after the page's last frame
//!   is written.
//! - Calls that find no quota wait, first come, first served; of each connection only one call is
//!   in the queue.
//!
//! Connections that end while a call waits:
//!
//! - First the connections with pages of which the client has taken nothing for some seconds, in
//!   descending order of their bytes.
//! - A slow client that takes a little from time to time keeps its pages only as long as the quota
//!   suffices. Once a call has waited for this number of seconds, the connection with the most
//!   bytes in pages of that age ends.
//!
//! Frames of other responses need no reservation, and count against a second budget of the same
//! size. If these frames exceed the second budget, connections end in the same way.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use umbel_base::ignore_poison::IgnorePoison;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::limits::{PAGE_BYTES_MAX, QUOTA_SCAN_TIME_MIN, QUOTA_WAIT_TIME, UNREAD_TIME};
use crate::resources::connection_registry::Connection;

/// Bytes of one permit. Frames smaller than this do not count unless they belong to a page.
pub const UNIT_BYTES: usize = 1 << 10;
/// Permits for the largest page.
const PAGE_UNITS: usize = PAGE_BYTES_MAX / UNIT_BYTES;

/// Quota of all pages together, and the pages that each connection holds.
#[derive(Debug)]
pub struct OutboundQuota {
    units: usize,
    semaphore: Arc<Semaphore>,
    table: Mutex<PageTable>,
}

#[derive(Debug, Default)]
struct PageTable {
    next: u64,
    /// Pages by their numbers.
    pages: HashMap<u64, PageEntry>,
    /// Number of permits that frames without a reservation would need.
    uncovered_units: usize,
    /// Time of the last scan for a connection to end.
    last_scan: Option<Instant>,
    /// Time at which the quota last ended a connection whose client was only slow.
    last_slow_close: Option<Instant>,
}

/// Permits that each connection holds.
type ConnectionTotals = HashMap<*const Connection, (usize, Arc<Connection>)>;

#[derive(Debug)]
struct PageEntry {
    /// Time at which the page was charged.
    charged_at: Instant,
    /// Time at which the page's last frame was written; `None` while the page is produced, which
    /// the client cannot delay.
    last_write: Option<Instant>,
    units: usize,
    /// The page's connection; `None` if it cannot be ended.
    connection: Option<Arc<Connection>>,
}

/// Charge of a page, which lasts as long as the page's call or any of its frames.
#[derive(Debug)]
pub struct PageCharge {
    quota: Arc<OutboundQuota>,
    number: u64,
    /// Permit of the page; `None` without a reservation.
    permit: Option<OwnedSemaphorePermit>,
}

/// Reservation for a page that is being read. The reservation is tracked like a page, because the
/// reading call proceeds only while its client takes earlier pages. The reading task owns the
/// reservation, so that it lives as long as the data.
#[derive(Debug)]
pub struct PageReservation(PageCharge);

impl OutboundQuota {
    /// Creates a quota of `bytes_max` bytes, at least one page.
    pub fn new(bytes_max: usize) -> OutboundQuota {
        let units = (bytes_max / UNIT_BYTES).clamp(PAGE_UNITS, Semaphore::MAX_PERMITS);
        let semaphore = Arc::new(Semaphore::new(units));
        OutboundQuota { units, semaphore, table: Mutex::default() }
    }

    /// Bytes held by pages and by frames of other responses.
    pub fn bytes(&self) -> usize {
        let units = self.units - self.semaphore.available_permits();
        (units + self.locked(|held| held.uncovered_units)) * UNIT_BYTES
    }

    /// Closes the quota: every present and later wait fails.
    pub fn close(&self) {
        self.semaphore.close();
    }

    /// Waits for quota for a read on this connection. Returns `None` once the quota is closed.
    pub async fn reserve(
        self: &Arc<OutboundQuota>,
        peer: Option<Arc<Connection>>,
        units: usize,
    ) -> Option<PageReservation> {
        let units = units.clamp(1, self.units);
        let wanted = u32::try_from(units).unwrap_or(u32::MAX);
        // Queued waiters are not overtaken: free permits are theirs first.
        if let Ok(permit) = Arc::clone(&self.semaphore).try_acquire_many_owned(wanted) {
            return Some(self.track_reserved(permit, peer));
        }
        // A call whose client takes nothing may never be polled again. So a task waits for it: the
        // quota that the task gets is tracked and blocks no other call.
        let (unread, mut waiting) = (Arc::clone(self), JoinSet::new());
        waiting.spawn(async move {
            // All calls of a connection together occupy one place in the queue.
            let _turn = match &peer {
                Some(peer) => Some(peer.wait_quota_turn().await),
                None => None,
            };
            let began = Instant::now();
            let mut taken = pin!(Arc::clone(&unread.semaphore).acquire_many_owned(wanted));
            loop {
                tokio::select! {
                    permit = &mut taken => {
                        let peer = peer.clone();
                        return permit.ok().map(|permit| unread.track_reserved(permit, peer));
                    }
                    () = tokio::time::sleep(QUOTA_WAIT_TIME) => {
                        unread.close_one_connection(units, began.elapsed() >= UNREAD_TIME);
                    }
                }
            }
        });
        waiting.join_next().await?.ok()?
    }

    fn track_reserved(
        self: &Arc<OutboundQuota>,
        permit: OwnedSemaphorePermit,
        peer: Option<Arc<Connection>>,
    ) -> PageReservation {
        let units = permit.num_permits();
        let number = self.locked(|held| held.add(units, peer));
        PageReservation(PageCharge { quota: Arc::clone(self), number, permit: Some(permit) })
    }

    /// Charges a frame of this many bytes without a reservation; `None` if it is small.
    pub fn charge_frame(
        self: &Arc<OutboundQuota>,
        bytes: usize,
        peer: &Arc<Connection>,
    ) -> Option<PageCharge> {
        let units = bytes / UNIT_BYTES;
        if units == 0 {
            return None;
        }
        let charge = self.track_uncovered(units, Some(Arc::clone(peer)));
        let over = self.locked(|held| held.uncovered_units.saturating_sub(self.units));
        if over > 0 {
            self.close_one_connection(self.semaphore.available_permits() + over, false);
        }
        Some(charge)
    }

    /// Tracks units without a reservation.
    fn track_uncovered(
        self: &Arc<OutboundQuota>,
        units: usize,
        peer: Option<Arc<Connection>>,
    ) -> PageCharge {
        let number = self.locked(|held| {
            held.uncovered_units += units;
            held.add(units, peer)
        });
        PageCharge { quota: Arc::clone(self), number, permit: None }
    }

    /// Ends the connection that holds the most stalled bytes, unless a scan has just run or closing
    /// connections free enough. If no page is stalled and the caller has waited long, slow pages
    /// count as well, but only from time to time.
    fn close_one_connection(&self, wanted: usize, has_waited: bool) {
        let largest = self.locked(|held| {
            if !held.may_scan() {
                return None;
            }
            let mut coming = self.semaphore.available_permits();
            let [mut untaken, mut slow] = [(); 2].map(|()| ConnectionTotals::new());
            for page in held.pages.values() {
                let Some(peer) = &page.connection else { continue };
                let sums = match page {
                    _ if peer.is_closing() => {
                        coming += page.units;
                        continue;
                    }
                    _ if page.is_stalled() => &mut untaken,
                    _ if has_waited && page.is_slow() => &mut slow,
                    _ => continue,
                };
                sums.entry(Arc::as_ptr(peer)).or_insert((0, Arc::clone(peer))).0 += page.units;
            }
            if coming >= wanted {
                return None;
            }
            if untaken.is_empty() && !slow.is_empty() && held.may_close_slow() {
                untaken = slow;
            }
            untaken.into_values().max_by_key(|(units, _)| *units)
        });
        if let Some((_, peer)) = largest {
            peer.close();
        }
    }

    fn locked<T>(&self, work: impl FnOnce(&mut PageTable) -> T) -> T {
        // No panic here can leave the pages inconsistent.
        work(&mut self.table.lock().ignore_poison())
    }
}

impl PageTable {
    fn add(&mut self, units: usize, peer: Option<Arc<Connection>>) -> u64 {
        self.next += 1;
        let now = Instant::now();
        self.pages.insert(
            self.next,
            PageEntry { charged_at: now, last_write: Some(now), units, connection: peer },
        );
        self.next
    }

    /// Whether enough time has passed since the last scan, because a scan visits all pages.
    fn may_scan(&mut self) -> bool {
        has_passed(&mut self.last_scan, QUOTA_SCAN_TIME_MIN)
    }

    /// Whether enough time has passed since a slow connection was ended.
    fn may_close_slow(&mut self) -> bool {
        has_passed(&mut self.last_slow_close, QUOTA_WAIT_TIME)
    }
}

/// Whether `time` has passed since this last returned `true`.
fn has_passed(last: &mut Option<Instant>, time: Duration) -> bool {
    let has = last.is_none_or(|last| last.elapsed() >= time);
    if has {
        *last = Some(Instant::now());
    }
    has
}

impl PageEntry {
    /// Whether the client has taken no part of the page for some time.
    fn is_stalled(&self) -> bool {
        self.last_write.is_some_and(|since| since.elapsed() >= UNREAD_TIME)
    }

    /// Whether the client has not taken the whole page within `UNREAD_TIME`.
    fn is_slow(&self) -> bool {
        self.last_write.is_some() && self.charged_at.elapsed() >= UNREAD_TIME
    }
}

impl PageReservation {
    /// Stops the page's clock while the page is produced, since the client does not cause that
    /// delay.
    pub fn pause_clock(&self) {
        self.set(None);
    }

    /// Runs the work that produces the page; the page's clock starts when the work is done.
    pub fn fill<T>(self, work: impl FnOnce() -> T) -> (T, PageReservation) {
        self.pause_clock();
        let done = work();
        self.set(Some(Instant::now()));
        (done, self)
    }

    /// Runs blocking work that produces the page, on another thread. The other thread keeps the
    /// reservation until the work is done, even if the caller is dropped.
    ///
    /// # Errors
    /// `Closed` if the work panics or the runtime ends.
    pub async fn fill_blocking<T: Send + 'static>(
        self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> umbel::Result<(T, PageReservation)> {
        // The work may have to wait for a thread.
        self.pause_clock();
        let filled = tokio::task::spawn_blocking(move || self.fill(work)).await;
        filled.map_err(|_| umbel::Error::Closed)
    }

    /// Returns the charge of a page of `bytes` bytes; `None` for 0 bytes. Bytes beyond the
    /// reservation have a second charge, like bytes without a reservation.
    pub fn into_charges(mut self, bytes: usize) -> Option<(PageCharge, Option<PageCharge>)> {
        let permit = self.0.permit.as_mut()?;
        let reserved = permit.num_permits();
        let all = bytes.div_ceil(UNIT_BYTES);
        let units = all.min(reserved);
        drop(permit.split(reserved - units));
        let PageReservation(page) = self;
        if units == 0 {
            return None;
        }
        let connection = page.quota.locked(|held| {
            let held = held.pages.get_mut(&page.number)?;
            held.charged_at = Instant::now();
            (held.last_write, held.units) = (Some(held.charged_at), units);
            held.connection.clone()
        });
        let more = (all > reserved).then(|| page.quota.track_uncovered(all - reserved, connection));
        Some((page, more))
    }

    fn set(&self, since: Option<Instant>) {
        let PageReservation(PageCharge { quota: unread, number, .. }) = self;
        unread.locked(|held| {
            if let Some(held) = held.pages.get_mut(number) {
                held.last_write = since;
                held.charged_at = since.unwrap_or(held.charged_at);
            }
        });
    }
}

impl PageCharge {
    /// Records that the client took a part of a frame of these pages.
    pub fn note_write(&self, others: &[Arc<PageCharge>]) {
        let now = Instant::now();
        self.quota.locked(|held| {
            for page in others.iter().map(|page| &**page).chain([self]) {
                if let Some(page) = held.pages.get_mut(&page.number) {
                    page.last_write = Some(now);
                }
            }
        });
    }
}

impl Drop for PageCharge {
    fn drop(&mut self) {
        self.quota.locked(|held| {
            let removed = held.pages.remove(&self.number);
            if self.permit.is_none() {
                held.uncovered_units -= removed.map_or(0, |removed| removed.units);
            }
        });
    }
}

#[cfg(test)]
mod tests;

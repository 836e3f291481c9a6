//! [`GroupQuota`]: memory quota that all consumer groups share.
//!
//! A group reserves quota for the largest possible page before it reads, first come, first served.
//! The group returns the quota that the page does not need at once, and the remaining quota as its
//! events are processed. A group that finds no quota waits; its calls do not fail.
//!
//! No group waits for ever. While a group waits, other groups evict events that have long been
//! unacknowledged or unsent, and read these events again when needed. Consumers that do not take
//! the events sent to them are disconnected.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::limits::PAGE_BYTES_MAX;

/// Bytes of one permit.
const UNIT_BYTES: usize = 1 << 10;
/// Permits for the largest page.
const PAGE_UNITS: usize = PAGE_BYTES_MAX.div_ceil(UNIT_BYTES);
/// Permits that a group keeps instead of returning them at each event.
const SLACK_UNITS: usize = 64;

/// Quota that all groups share.
#[derive(Debug)]
pub struct GroupQuota {
    units: usize,
    semaphore: Arc<Semaphore>,
    /// Number of groups that wait.
    waiting: watch::Sender<usize>,
}

impl GroupQuota {
    /// Creates a quota of `bytes_max` bytes, at least one page.
    pub fn new(bytes_max: usize) -> GroupQuota {
        let units = (bytes_max / UNIT_BYTES).clamp(PAGE_UNITS, Semaphore::MAX_PERMITS);
        let semaphore = Arc::new(Semaphore::new(units));
        GroupQuota { units, semaphore, waiting: watch::Sender::new(0) }
    }

    /// Bytes that groups hold.
    pub fn bytes(&self) -> usize {
        (self.units - self.semaphore.available_permits()) * UNIT_BYTES
    }

    /// Creates an empty share for one group.
    pub fn new_share(self: &Arc<GroupQuota>) -> GroupShare {
        GroupShare { quota: Arc::clone(self), permit: None, page_permit: None, waiter: None }
    }

    /// Returns a receiver that notices waiting groups.
    pub fn demand(&self) -> QuotaDemand {
        QuotaDemand(self.waiting.subscribe())
    }

    fn try_page(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.semaphore).try_acquire_many_owned(PAGE_UNITS as u32).ok()
    }

    async fn acquire_page(self: Arc<GroupQuota>) -> Option<OwnedSemaphorePermit> {
        let _waits = WaiterCount::new(&self.waiting);
        Arc::clone(&self.semaphore).acquire_many_owned(PAGE_UNITS as u32).await.ok()
    }
}

/// Counts one waiting group until this value is dropped.
struct WaiterCount<'a>(&'a watch::Sender<usize>);

impl WaiterCount<'_> {
    fn new(waiting: &watch::Sender<usize>) -> WaiterCount<'_> {
        waiting.send_modify(|count| *count += 1);
        WaiterCount(waiting)
    }
}

impl Drop for WaiterCount<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

/// Receiver that notices when a group waits for quota.
#[derive(Debug)]
pub struct QuotaDemand(watch::Receiver<usize>);

impl QuotaDemand {
    /// Whether a group waits now.
    pub fn is_waiting(&self) -> bool {
        *self.0.borrow() > 0
    }

    /// Waits until a group waits for quota.
    pub async fn wait(&mut self) {
        // An error means that no group can wait any more.
        if self.0.wait_for(|count| *count > 0).await.is_err() {
            std::future::pending().await
        }
    }
}

type PageWaiter = Pin<Box<dyn Future<Output = Option<OwnedSemaphorePermit>> + Send + Sync>>;

/// Quota that one group holds until this value is dropped.
pub struct GroupShare {
    quota: Arc<GroupQuota>,
    permit: Option<OwnedSemaphorePermit>,
    /// Permit for the next page.
    page_permit: Option<OwnedSemaphorePermit>,
    /// The group's place in the queue for a page.
    waiter: Option<PageWaiter>,
}

impl GroupShare {
    /// Returns whether the group has quota for a page; takes that quota if it is available and no
    /// group waits.
    pub fn try_reserve_page(&mut self) -> bool {
        if self.page_permit.is_none() && self.waiter.is_none() {
            self.page_permit = self.quota.try_page();
        }
        self.page_permit.is_some()
    }

    /// Waits for quota for a page. Cancel safe: the group keeps its place in the queue for the next
    /// call.
    pub async fn reserve_page(&mut self) {
        if self.try_reserve_page() {
            return;
        }
        let quota = &self.quota;
        let turn = self.waiter.get_or_insert_with(|| Box::pin(Arc::clone(quota).acquire_page()));
        self.page_permit = turn.await;
        self.waiter = None;
    }

    /// Gives up the reservation for a page.
    pub fn cancel(&mut self) {
        (self.page_permit, self.waiter) = (None, None);
    }

    /// Keeps quota for `bytes` bytes and returns the remaining quota.
    pub fn shrink_to(&mut self, bytes: usize) {
        let units = bytes.div_ceil(UNIT_BYTES);
        match (&mut self.permit, self.page_permit.take()) {
            (Some(held), Some(page)) => held.merge(page),
            (None, Some(page)) => self.permit = Some(page),
            (_, None) => {}
        }
        let Some(held) = &mut self.permit else { return };
        let free = held.num_permits().saturating_sub(units);
        if units == 0 {
            self.permit = None;
        } else if free > SLACK_UNITS {
            drop(held.split(free));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::test_support::test_service::run_paused;

    #[test]
    fn released_quota_goes_to_shares_in_queue_order() {
        run_paused(async {
            let quota = Arc::new(GroupQuota::new(0));
            let page = PAGE_UNITS * UNIT_BYTES;
            let (mut one, mut two, mut three) =
                (quota.new_share(), quota.new_share(), quota.new_share());
            one.reserve_page().await;
            assert_eq!(quota.bytes(), page);
            one.shrink_to(page - 1);
            let (mut wanted, soon) = (quota.demand(), Duration::from_millis(1));
            assert!(!wanted.is_waiting());
            for _ in 0..3 {
                assert!(tokio::time::timeout(soon, two.reserve_page()).await.is_err());
                assert!(tokio::time::timeout(soon, three.reserve_page()).await.is_err());
            }
            wanted.wait().await;
            one.shrink_to(0);
            assert!(!one.try_reserve_page(), "others are first in the queue");
            assert!(!three.try_reserve_page());
            two.reserve_page().await;
            two.shrink_to(2 * SLACK_UNITS * UNIT_BYTES);
            assert_eq!(quota.bytes(), page, "the next share is partly reserved");
            two.shrink_to(0);
            three.reserve_page().await;
            assert!(!wanted.is_waiting());
            three.cancel();
            assert_eq!(quota.bytes(), 0);
            assert!(one.try_reserve_page());
        });
    }
}

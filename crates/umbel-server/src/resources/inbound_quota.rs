//! [`InboundQuota`]: memory quota of all connections together for appends and for received
//! messages.
//!
//! A call proceeds only while its client takes responses, so a call may keep its share for ever. A
//! value that waits for such a call therefore belongs to an [`EvictableValue`]. Where a share finds
//! no quota, the values that have waited longest are dropped, if they have waited for some time.
//! Their calls fail once they are polled again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::time::Instant;
use umbel_base::ignore_poison::IgnorePoison;

use crate::limits::{APPENDS_BYTES_MAX, QUOTA_SCAN_TIME_MIN};

/// Byte limit for all connections together, and the bytes in use.
#[derive(Debug)]
pub struct InboundQuota {
    bytes_max: usize,
    bytes: AtomicUsize,
    next: AtomicU64,
    values: Mutex<ValueTable>,
}

/// Values that may be evicted.
#[derive(Default)]
struct ValueTable {
    values: HashMap<u64, Weak<dyn Evictable>>,
    /// Time of the last scan that found too little.
    failed_scan: Option<Instant>,
}

impl std::fmt::Debug for ValueTable {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("ValueTable").field("values", &self.values.len()).finish_non_exhaustive()
    }
}

/// A value that the quota may drop.
trait Evictable: Send + Sync {
    /// Time from which the value may be dropped; `None` while it is in use.
    fn evictable_at(&self) -> Option<Instant>;

    /// Drops the value with its share, unless it is in use.
    fn evict(&self);
}

/// Quota that one append or message holds until this value is dropped.
#[derive(Debug)]
pub struct QuotaShare {
    quota: Arc<InboundQuota>,
    bytes: usize,
}

impl Default for InboundQuota {
    fn default() -> InboundQuota {
        InboundQuota::new(APPENDS_BYTES_MAX)
    }
}

impl InboundQuota {
    /// Creates a quota of `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> InboundQuota {
        InboundQuota {
            bytes_max,
            bytes: AtomicUsize::new(0),
            next: AtomicU64::new(0),
            values: Mutex::default(),
        }
    }

    /// Bytes in use.
    pub fn used_bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether the smallest append would find quota.
    pub fn has_capacity(&self) -> bool {
        self.used_bytes() < self.bytes_max
    }

    /// Creates an empty share.
    pub fn new_share(self: &Arc<InboundQuota>) -> QuotaShare {
        QuotaShare { quota: Arc::clone(self), bytes: 0 }
    }

    fn try_take(&self, bytes: usize) -> bool {
        let grown = |held: usize| held.checked_add(bytes).filter(|sum| *sum <= self.bytes_max);
        self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown).is_ok()
    }

    /// Drops values whose time has come, those that have waited longest first, until `bytes` bytes
    /// are free.
    fn evict(&self, bytes: usize) {
        if bytes > self.bytes_max {
            return;
        }
        let now = Instant::now();
        let values: Vec<Arc<dyn Evictable>> = {
            let table = self.table();
            let is_recent = |scan: Instant| now.duration_since(scan) < QUOTA_SCAN_TIME_MIN;
            if table.failed_scan.is_some_and(is_recent) {
                return;
            }
            table.values.values().filter_map(Weak::upgrade).collect()
        };
        // A value may be the last owner of others. So the table is not locked while it is dropped.
        let due = values.iter().filter_map(|value| Some((value.evictable_at()?, value)));
        let mut due: Vec<_> = due.filter(|(at, _)| *at <= now).collect();
        due.sort_by_key(|(at, _)| *at);
        for (_, value) in due {
            if self.used_bytes().saturating_add(bytes) <= self.bytes_max {
                return;
            }
            value.evict();
        }
        if self.used_bytes().saturating_add(bytes) > self.bytes_max {
            self.table().failed_scan = Some(now);
        }
    }

    fn table(&self) -> std::sync::MutexGuard<'_, ValueTable> {
        // No code panics between two changes of the table.
        self.values.lock().ignore_poison()
    }
}

impl QuotaShare {
    /// Takes `bytes` more bytes of quota, for which values that wait for a stalled call may be
    /// evicted. Returns `false` and takes no quota if not enough is left.
    #[must_use]
    pub fn grow(&mut self, bytes: usize) -> bool {
        let quota = &self.quota;
        let is_taken = quota.try_take(bytes) || {
            quota.evict(bytes);
            quota.try_take(bytes)
        };
        self.bytes += if is_taken { bytes } else { 0 };
        is_taken
    }

    /// Grows to at least `bytes` bytes, as [`grow`](QuotaShare::grow) does.
    #[must_use]
    pub fn grow_to(&mut self, bytes: usize) -> bool {
        self.grow(bytes.saturating_sub(self.bytes))
    }
}

impl Drop for QuotaShare {
    fn drop(&mut self) {
        self.quota.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A value of a call that may stall, with its share of the quota. Clones are the same value.
#[derive(Debug)]
pub struct EvictableValue<T>(Arc<ValueEntry<T>>);

#[derive(Debug)]
struct ValueEntry<T> {
    quota: Arc<InboundQuota>,
    number: u64,
    state: Mutex<ValueState<T>>,
}

#[derive(Debug)]
struct ValueState<T> {
    /// The value with its share; `None` once it was taken or evicted.
    content: Option<(T, QuotaShare)>,
    evictable_at: Option<Instant>,
}

impl<T> Clone for EvictableValue<T> {
    fn clone(&self) -> EvictableValue<T> {
        EvictableValue(Arc::clone(&self.0))
    }
}

impl<T: Send + 'static> EvictableValue<T> {
    /// Adds a value with an empty share, which is not evicted.
    pub fn new(quota: &Arc<InboundQuota>, value: T) -> EvictableValue<T> {
        let number = quota.next.fetch_add(1, Ordering::Relaxed);
        let content = Some((value, quota.new_share()));
        let state = Mutex::new(ValueState { content, evictable_at: None });
        let entry = Arc::new(ValueEntry { quota: Arc::clone(quota), number, state });
        let evictable: Arc<dyn Evictable> = Arc::<ValueEntry<T>>::clone(&entry);
        quota.table().values.insert(number, Arc::downgrade(&evictable));
        EvictableValue(entry)
    }

    /// Changes the value and its share; `None` if the value was evicted. If the value is not
    /// changed again for `evictable_after`, it may be evicted.
    pub fn change<R>(
        &self,
        evictable_after: Option<Duration>,
        change: impl FnOnce(&mut T, &mut QuotaShare) -> R,
    ) -> Option<R> {
        let mut state = self.0.state.lock().ignore_poison();
        let (value, share) = state.content.as_mut()?;
        let changed = change(value, share);
        state.evictable_at = evictable_after.map(|after| Instant::now() + after);
        Some(changed)
    }

    /// Reads the value, which is no progress of its call; `None` if it was evicted.
    pub fn inspect<R>(&self, inspect: impl FnOnce(&T) -> R) -> Option<R> {
        let state = self.0.state.lock().ignore_poison();
        state.content.as_ref().map(|(value, _)| inspect(value))
    }

    /// Takes the value; `None` if it was evicted. Releases its share.
    pub fn take(&self) -> Option<T> {
        let content = self.0.state.lock().ignore_poison().content.take();
        content.map(|(value, _)| value)
    }
}

impl<T: Send> Evictable for ValueEntry<T> {
    fn evictable_at(&self) -> Option<Instant> {
        // A value in use is not waited for: its user may wait for the quota.
        self.state.try_lock().ok()?.evictable_at
    }

    fn evict(&self) {
        let evicted = match self.state.try_lock() {
            Ok(mut state) if state.evictable_at.is_some_and(|at| at <= Instant::now()) => {
                state.evictable_at = None;
                state.content.take()
            }
            _ => None,
        };
        drop(evicted);
    }
}

impl<T> Drop for ValueEntry<T> {
    fn drop(&mut self) {
        self.quota.table().values.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::test_service::run_paused;

    #[test]
    fn shares_stay_within_the_quota_and_release_it() {
        let budget = Arc::new(InboundQuota::new(10));
        let (mut one, mut two) = (budget.new_share(), budget.new_share());
        assert!(one.grow(4) && two.grow(6) && !budget.has_capacity());
        assert!(!one.grow(1) && !two.grow(usize::MAX));
        drop(two);
        assert_eq!(budget.used_bytes(), 4);
        assert!(one.grow(6) && !one.grow(1));
        drop(one);
        assert_eq!(budget.used_bytes(), 0);
    }

    /// Story: calls whose clients read no responses kept the memory of received messages. Fifteen
    /// connections filled the quota of all clients for ever.
    #[test]
    fn stalled_values_are_evicted_for_others_in_their_order() {
        run_paused(async {
            let quota = Arc::new(InboundQuota::new(100));
            let second = Duration::from_secs(1);
            let value = |bytes: usize, after: Option<Duration>| {
                let value = EvictableValue::new(&quota, vec![7; bytes]);
                assert_eq!(value.change(after, |_, share| share.grow(bytes)), Some(true));
                value
            };
            let used = value(40, None);
            let first = value(30, Some(second));
            tokio::time::sleep(Duration::from_millis(500)).await;
            let later = value(30, Some(second));
            let mut share = quota.new_share();
            assert!(!share.grow(10), "nothing has waited for long enough");
            tokio::time::sleep(Duration::from_millis(700)).await;
            assert!(!share.grow(101), "no eviction suffices");
            assert!(share.grow(10));
            assert_eq!((first.take(), quota.used_bytes()), (None, 80));
            assert!(!share.grow(30), "the later value has not waited for long enough");
            // A value that changes starts to wait again.
            assert_eq!(later.change(Some(second), |value, _| value.len()), Some(30));
            tokio::time::sleep(Duration::from_millis(700)).await;
            assert!(!share.grow(30));
            tokio::time::sleep(second).await;
            assert!(share.grow(30));
            assert!(later.change(None, |_, _| ()).is_none());
            assert_eq!(used.take().map(|value| value.len()), Some(40));
            drop((used, first, later));
            assert_eq!(quota.used_bytes(), 40);
            assert!(quota.table().values.is_empty());
        });
    }
}

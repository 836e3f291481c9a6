//! [`InboundQuota`]: memory quota of all connections together for appends and for partially
//! received messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::limits::APPENDS_BYTES_MAX;

/// Byte limit for all connections together, and the bytes in use.
#[derive(Debug)]
pub struct InboundQuota {
    bytes_max: usize,
    bytes: AtomicUsize,
}

/// Quota that one append holds until this value is dropped.
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
        InboundQuota { bytes_max, bytes: AtomicUsize::new(0) }
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
}

impl QuotaShare {
    /// Takes `bytes` more bytes of quota. Returns `false` and takes no quota if not enough is left.
    #[must_use]
    pub fn grow(&mut self, bytes: usize) -> bool {
        let grown =
            |held: usize| held.checked_add(bytes).filter(|sum| *sum <= self.quota.bytes_max);
        let taken = self.quota.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown);
        self.bytes += if taken.is_ok() { bytes } else { 0 };
        taken.is_ok()
    }
}

impl Drop for QuotaShare {
    fn drop(&mut self) {
        self.quota.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}

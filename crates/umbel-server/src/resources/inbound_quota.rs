//! [`Budget`]: what all connections together may hold in memory: of appends, and of messages that
//! have come in part.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::limits::APPENDS_BYTES_MAX;

/// Bytes that all together may hold, and how many they hold.
#[derive(Debug)]
pub struct Budget {
    bytes_max: usize,
    bytes: AtomicUsize,
}

/// What one append holds of a budget, until it is dropped.
#[derive(Debug)]
pub struct Share {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget::new(APPENDS_BYTES_MAX)
    }
}

impl Budget {
    /// One of so many bytes.
    pub fn new(bytes_max: usize) -> Budget {
        Budget { bytes_max, bytes: AtomicUsize::new(0) }
    }

    /// The bytes that are held.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether an append as small as there are would find room.
    pub fn has_room(&self) -> bool {
        self.bytes() < self.bytes_max
    }

    /// Nothing of it, to begin with.
    pub fn share(self: &Arc<Budget>) -> Share {
        Share { budget: Arc::clone(self), bytes: 0 }
    }
}

impl Share {
    /// Takes so many bytes more. `false`, and nothing is taken, where there are not so many.
    #[must_use]
    pub fn grow(&mut self, bytes: usize) -> bool {
        let grown =
            |held: usize| held.checked_add(bytes).filter(|sum| *sum <= self.budget.bytes_max);
        let taken = self.budget.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown);
        self.bytes += if taken.is_ok() { bytes } else { 0 };
        taken.is_ok()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_together_stay_within_the_budget_and_give_back_what_they_took() {
        let budget = Arc::new(Budget::new(10));
        let (mut one, mut two) = (budget.share(), budget.share());
        assert!(one.grow(4) && two.grow(6) && !budget.has_room());
        assert!(!one.grow(1) && !two.grow(usize::MAX));
        drop(two);
        assert_eq!(budget.bytes(), 4);
        assert!(one.grow(6) && !one.grow(1));
        drop(one);
        assert_eq!(budget.bytes(), 0);
    }
}

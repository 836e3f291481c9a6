//! [`DamageCount`]: counts errors about damaged data of a store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Error;

/// An error that can report damage of a store.
pub trait StoreError {
    /// Whether the error reports that a file of the store does not match what was written. Damage
    /// of a backup is no damage of the store.
    fn is_store_damage(&self) -> bool;
}

impl StoreError for Error {
    fn is_store_damage(&self) -> bool {
        matches!(self, Error::Corruption { .. })
    }
}

/// Counts errors about a file of the store that does not match what was written. Clones share the
/// count.
///
/// An error counts where it leaves the store. A search that meets damage and succeeds in another
/// way does not count. One operation can have several errors, and several appends can share one.
#[derive(Debug, Clone, Default)]
pub struct DamageCount(Arc<AtomicU64>);

impl DamageCount {
    /// Counts the error of this result if it is damage of the store. Returns the result.
    pub fn record<T, E: StoreError>(&self, result: Result<T, E>) -> Result<T, E> {
        if let Err(error) = &result {
            self.record_error(error);
        }
        result
    }

    /// Counts this error if it is damage of the store.
    #[cold]
    pub fn record_error(&self, error: &impl StoreError) {
        if error.is_store_damage() {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Number of counted errors.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_damage_counts() {
        let damage = DamageCount::default();
        let corruption = || Error::corruption("/kv/7.table".as_ref(), 3, "bad");
        assert!(damage.record(Ok::<(), Error>(())).is_ok());
        assert!(damage.record::<(), _>(Err(Error::Closed)).is_err());
        assert_eq!(damage.count(), 0);
        assert!(damage.clone().record::<(), _>(Err(corruption())).is_err());
        assert_eq!(damage.count(), 1, "clones share the count");
    }
}

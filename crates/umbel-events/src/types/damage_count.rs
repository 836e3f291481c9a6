//! [`DamageCount`]: counts operations that failed because data of the store is damaged.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::types::error::{Error, Result};

/// Counts operations that failed because a file of the store does not match what was written.
/// Clones share the count.
///
/// An operation counts where its error leaves the store. A search that meets damage and succeeds
/// in another way does not count.
#[derive(Debug, Clone, Default)]
pub struct DamageCount(Arc<AtomicU64>);

impl DamageCount {
    /// Counts the operation with this result if damage made it fail. Returns the result.
    pub fn record<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            self.record_error(error);
        }
        result
    }

    /// Counts an operation that failed with this error if the error is damage of the store. Damage
    /// of a backup does not count: the store is intact.
    #[cold]
    pub fn record_error(&self, error: &Error) {
        if matches!(error, Error::Store(umbel::Error::Corruption { .. })) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Number of counted operations.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_damage_of_the_store_counts() {
        let damage = DamageCount::default();
        let corruption = || umbel::Error::corruption("/events/CHUNKS".as_ref(), 3, "bad");
        assert!(damage.record(Ok(())).is_ok());
        assert!(damage.record::<()>(Err(Error::invalid("a request"))).is_err());
        assert!(damage.record::<()>(Err(Error::Backup(corruption()))).is_err());
        assert!(damage.record::<()>(Err(umbel::Error::Closed.into())).is_err());
        assert_eq!(damage.count(), 0);
        assert!(damage.clone().record::<()>(Err(corruption().into())).is_err());
        assert_eq!(damage.count(), 1, "clones share the count");
    }
}

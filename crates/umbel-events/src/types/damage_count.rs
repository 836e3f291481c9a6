//! [`DamageCount`]: counts errors about damaged data of the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::types::error::{Error, Result};

/// Counts errors about a file of the store that does not match what was written. Clones share the
/// count.
///
/// An error counts where it leaves the store. A search that meets damage and succeeds in another
/// way does not count. One operation can have several errors, and several appends can share one.
#[derive(Debug, Clone, Default)]
pub struct DamageCount(Arc<AtomicU64>);

impl DamageCount {
    /// Counts the error of this result if it is damage of the store. Returns the result.
    pub fn record<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            self.record_error(error);
        }
        result
    }

    /// Counts this error if it is damage of the store. Damage of a backup does not count: the store
    /// is intact.
    #[cold]
    pub fn record_error(&self, error: &Error) {
        if matches!(error, Error::Store(umbel::Error::Corruption { .. })) {
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

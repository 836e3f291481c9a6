//! [`KvDamage`]: counts errors about damaged data of keys and values.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tonic::{Code, Status};
use umbel::Error;

/// Counts errors about a file of keys and values that does not match what was written. Clones share
/// the count.
#[derive(Debug, Clone, Default)]
pub struct KvDamage(Arc<AtomicU64>);

impl KvDamage {
    /// Counts the error of this result if it is damage. Returns the result.
    pub fn record<T>(&self, result: umbel::Result<T>) -> umbel::Result<T> {
        if let Err(Error::Corruption { .. }) = &result {
            self.increment();
        }
        result
    }

    /// Counts the error of this result if it is damage. Returns the result.
    pub fn record_status<T>(&self, result: Result<T, Status>) -> Result<T, Status> {
        if let Err(status) = &result
            && status.code() == Code::DataLoss
        {
            self.increment();
        }
        result
    }

    fn increment(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of counted errors.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::grpc_status;

    #[test]
    fn only_damage_counts() {
        let damage = KvDamage::default();
        let corruption = || Error::corruption("/kv/7.table".as_ref(), 3, "bad");
        assert!(damage.record(Ok(())).is_ok());
        assert!(damage.record::<()>(Err(Error::Closed)).is_err());
        assert!(damage.record_status::<()>(Err(Status::internal("a disk"))).is_err());
        assert_eq!(damage.count(), 0);
        assert!(damage.record::<()>(Err(corruption())).is_err());
        let status = grpc_status::engine_status(&corruption());
        assert!(damage.clone().record_status::<()>(Err(status)).is_err());
        assert_eq!(damage.count(), 2, "clones share the count");
    }
}

//! [`DecodingPlaces`]: the places of the messages that are decoded at the same time.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::limits::DECODED_MESSAGES_MAX;

/// The places of the messages that are decoded at the same time, by their size. Long ones have
/// places of their own, so that they do not delay shorter ones. Clones are the same places.
#[derive(Debug, Clone)]
pub struct DecodingPlaces([Arc<Semaphore>; 2]);

impl Default for DecodingPlaces {
    fn default() -> DecodingPlaces {
        DecodingPlaces([(); 2].map(|()| Arc::new(Semaphore::new(DECODED_MESSAGES_MAX))))
    }
}

impl DecodingPlaces {
    /// Waits for a place, which is free again once the returned value is dropped.
    pub async fn acquire(&self, is_long: bool) -> Option<OwnedSemaphorePermit> {
        // The semaphores are never closed.
        Arc::clone(&self.0[usize::from(is_long)]).acquire_owned().await.ok()
    }
}

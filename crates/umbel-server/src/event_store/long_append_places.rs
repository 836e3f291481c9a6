//! [`LongAppendPlaces`]: how many bytes of long appends are in flight.
//!
//! A short append waits for the sync of everything that is in flight with it. So long appends share
//! places, and while short appends arrive, they share fewer places. Without short appends, a bulk
//! load has all places, since fewer syncs of more bytes are faster.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use umbel_env::Clock;

use crate::limits::{
    LONG_APPENDS_BESIDE_SHORT_BYTES_MAX, LONG_APPENDS_BYTES_MAX, SHORT_APPENDS_TIME,
};

/// Places of the long appends in flight, in KiB.
#[derive(Debug)]
pub struct LongAppendPlaces {
    all: Arc<Semaphore>,
    /// Places of those that begin while short appends arrive.
    beside_short: Arc<Semaphore>,
    clock: Arc<dyn Clock>,
    /// Time of the last short append by the clock, in microseconds; 0 before the first one.
    last_short: AtomicU64,
}

/// Place of a long append, which dropping frees.
#[derive(Debug)]
pub struct LongAppendPlace {
    _all: OwnedSemaphorePermit,
    _beside_short: Option<OwnedSemaphorePermit>,
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl LongAppendPlaces {
    /// Creates places of which none is taken.
    pub fn new(clock: &Arc<dyn Clock>) -> LongAppendPlaces {
        let places = |bytes: usize| Arc::new(Semaphore::new(bytes >> 10));
        LongAppendPlaces {
            all: places(LONG_APPENDS_BYTES_MAX),
            beside_short: places(LONG_APPENDS_BESIDE_SHORT_BYTES_MAX),
            clock: Arc::clone(clock),
            last_short: AtomicU64::new(0),
        }
    }

    /// Records that a short append arrived.
    pub fn note_short(&self) {
        self.last_short.store(micros(self.clock.now()).max(1), Ordering::Relaxed);
    }

    fn is_beside_short(&self) -> bool {
        match self.last_short.load(Ordering::Relaxed) {
            0 => false,
            last => micros(self.clock.now()).saturating_sub(last) < micros(SHORT_APPENDS_TIME),
        }
    }

    /// Number of places that an append of this size takes of all places, and of those beside short
    /// appends. An append that is larger than all places is alone.
    fn sizes(bytes: usize) -> (u32, u32) {
        let size = |places: usize| (bytes.min(places) >> 10) as u32;
        (size(LONG_APPENDS_BYTES_MAX), size(LONG_APPENDS_BESIDE_SHORT_BYTES_MAX))
    }

    /// Takes a place if it is free, and no append waits for one.
    pub fn try_take(&self, bytes: usize) -> Option<LongAppendPlace> {
        let (all, fewer) = LongAppendPlaces::sizes(bytes);
        let all = Arc::clone(&self.all).try_acquire_many_owned(all).ok()?;
        let beside_short = match self.is_beside_short() {
            true => Some(Arc::clone(&self.beside_short).try_acquire_many_owned(fewer).ok()?),
            false => None,
        };
        Some(LongAppendPlace { _all: all, _beside_short: beside_short })
    }

    /// Waits for a place. Appends get places in the order of these calls.
    pub async fn take(&self, bytes: usize) -> Option<LongAppendPlace> {
        let (all, fewer) = LongAppendPlaces::sizes(bytes);
        // The semaphores are never closed.
        let all = Arc::clone(&self.all).acquire_many_owned(all).await.ok()?;
        let beside_short = match self.is_beside_short() {
            true => Some(Arc::clone(&self.beside_short).acquire_many_owned(fewer).await.ok()?),
            false => None,
        };
        Some(LongAppendPlace { _all: all, _beside_short: beside_short })
    }

    /// Number of free places.
    #[cfg(test)]
    pub fn free(&self) -> usize {
        self.all.available_permits()
    }
}

#[cfg(test)]
mod tests {
    use umbel_env::Env;

    use super::*;

    /// Clock that a test advances, in microseconds.
    #[derive(Debug, Default)]
    struct TestClock(AtomicU64);

    impl Clock for TestClock {
        fn now(&self) -> Duration {
            Duration::from_micros(self.0.load(Ordering::Relaxed))
        }

        fn wall_micros(&self) -> u64 {
            0
        }
    }

    /// Number of appends of 64 KiB that get a place.
    fn in_flight(places: &LongAppendPlaces) -> usize {
        let taken: Vec<_> = std::iter::from_fn(|| places.try_take(64 << 10)).collect();
        taken.len()
    }

    /// Story: an append of a few bytes waited for the sync of 1 MiB beside clients that appended
    /// 64 KiB each.
    #[test]
    fn fewer_long_appends_are_in_flight_beside_short_ones() {
        let clock = Arc::new(TestClock::default());
        let places = LongAppendPlaces::new(&(Arc::clone(&clock) as Arc<dyn Clock>));
        assert_eq!(in_flight(&places), LONG_APPENDS_BYTES_MAX >> 16);
        places.note_short();
        assert_eq!(in_flight(&places), LONG_APPENDS_BESIDE_SHORT_BYTES_MAX >> 16);
        clock.0.fetch_add(micros(SHORT_APPENDS_TIME) + 1, Ordering::Relaxed);
        assert_eq!(in_flight(&places), LONG_APPENDS_BYTES_MAX >> 16);
        places.note_short();
        let largest = places.try_take(16 << 20).expect("it is alone");
        assert_eq!((in_flight(&places), places.free()), (0, 0));
        drop(largest);
        assert_eq!(places.free(), LONG_APPENDS_BYTES_MAX >> 10);
    }

    #[test]
    fn appends_get_places_in_order() {
        let places = LongAppendPlaces::new(&Env::system().clock);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let first = places.take(LONG_APPENDS_BYTES_MAX).await.expect("a place");
            let mut second = std::pin::pin!(places.take(LONG_APPENDS_BYTES_MAX));
            let is_pending = |context: &mut std::task::Context<'_>| {
                std::task::Poll::Ready(second.as_mut().poll(context).is_pending())
            };
            assert!(std::future::poll_fn(is_pending).await);
            assert!(places.try_take(1 << 10).is_none());
            drop(first);
            assert!(places.try_take(1 << 10).is_none(), "the second append came before");
            assert!(second.await.is_some());
        });
    }
}

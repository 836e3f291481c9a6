//! [`StreamCache`]: values that nearly every call needs from single streams, cached until an append
//! to the streams.
//!
//! INVARIANT: a cached value includes every append to its streams that was acknowledged before the
//! request. The cache registers a watch before it reads the streams, so a later append marks the
//! entry as stale. The watch is called only after the append is visible, perhaps after the client
//! has its acknowledgment. Code that acknowledges an append to such a stream therefore first calls
//! [`StreamCache::invalidate`].

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use umbel_base::ignore_poison::IgnorePoison;

use umbel_events::{Error, Source, Store, Watch};

/// A value read from a stream, with its freshness.
#[derive(Debug)]
pub struct CacheEntry<T> {
    /// The value that was read.
    pub value: T,
    /// Bytes that it counts in the cache.
    bytes: usize,
    is_stale: Arc<AtomicBool>,
    _watches: Vec<Watch>,
}

/// Cached values of streams, by name.
pub struct StreamCache<T> {
    entries: Mutex<CacheEntries<T>>,
    limits: CacheLimits,
    /// The bytes that a value counts.
    weigh: fn(&T) -> usize,
    /// Number of invalidations.
    invalidations: AtomicU64,
    /// Number of values that were read from the store.
    #[cfg(test)]
    pub reads: AtomicU64,
}

/// Limits of a cache.
#[derive(Debug, Clone, Copy)]
pub struct CacheLimits {
    /// Most entries of each of the two generations, recent and previous.
    pub entries_max: usize,
    /// Most bytes of each of the two generations. A larger value is a generation of its own.
    pub bytes_max: usize,
}

struct CacheEntries<T> {
    recent: HashMap<Arc<str>, Arc<CacheEntry<T>>>,
    previous: HashMap<Arc<str>, Arc<CacheEntry<T>>>,
    /// Bytes of the recent entries.
    recent_bytes: usize,
}

impl<T> CacheEntry<T> {
    /// An entry of no cache.
    #[cfg(test)]
    pub fn fresh(value: T) -> CacheEntry<T> {
        CacheEntry { value, bytes: 0, is_stale: Arc::default(), _watches: Vec::new() }
    }

    /// Whether no append to the entry's streams has happened since the read.
    pub fn is_fresh(&self) -> bool {
        !self.is_stale.load(Ordering::SeqCst)
    }
}

impl<T> StreamCache<T> {
    /// An empty cache of two generations with at most this many entries each.
    #[cfg(test)]
    pub fn new(entries_max: usize) -> StreamCache<T> {
        StreamCache::with_limits(CacheLimits { entries_max, bytes_max: usize::MAX }, |_| 0)
    }

    /// An empty cache with these limits, of values that this function weighs.
    pub fn with_limits(limits: CacheLimits, weigh: fn(&T) -> usize) -> StreamCache<T> {
        let (recent, previous) = (HashMap::new(), HashMap::new());
        let entries = Mutex::new(CacheEntries { recent, previous, recent_bytes: 0 });
        StreamCache {
            entries,
            limits,
            weigh,
            invalidations: AtomicU64::new(0),
            #[cfg(test)]
            reads: AtomicU64::new(0),
        }
    }

    /// The fresh value under this name, if it is cached.
    pub fn get(&self, name: &str) -> Option<Arc<CacheEntry<T>>> {
        let mut entries = self.locked();
        if let Some(entry) = entries.recent.get(name) {
            return entry.is_fresh().then(|| Arc::clone(entry));
        }
        let (key, entry) = entries.previous.remove_entry(name)?;
        if !entry.is_fresh() {
            return None;
        }
        entries.insert(key, Arc::clone(&entry), self.limits);
        Some(entry)
    }

    /// Returns the fresh value under this name, otherwise the value that the function reads from
    /// these streams.
    pub fn get_or_read(
        &self,
        store: &Store,
        name: &str,
        streams: &[&str],
        read: impl FnOnce(&Store) -> Result<T, Error>,
    ) -> Result<Arc<CacheEntry<T>>, Error> {
        if let Some(entry) = self.get(name) {
            return Ok(entry);
        }
        let before = self.invalidations.load(Ordering::SeqCst);
        let is_old = Arc::new(AtomicBool::new(false));
        let watch = |stream: &&str| {
            let is_old = Arc::clone(&is_old);
            let source = Source::Stream((*stream).into());
            store.watch(&source, move |_| is_old.store(true, Ordering::SeqCst))
        };
        let watches = streams.iter().map(watch).collect();
        let value = read(store)?;
        #[cfg(test)]
        self.reads.fetch_add(1, Ordering::SeqCst);
        let bytes = (self.weigh)(&value);
        let entry = Arc::new(CacheEntry { value, bytes, is_stale: is_old, _watches: watches });
        let mut entries = self.locked();
        if self.invalidations.load(Ordering::SeqCst) == before {
            entries.insert(name.into(), Arc::clone(&entry), self.limits);
        } else {
            // The read may precede an append that was acknowledged meanwhile.
            entry.is_stale.store(true, Ordering::SeqCst);
        }
        Ok(entry)
    }

    /// Removes the value under this name, and marks a value that is being read as stale.
    pub fn invalidate(&self, name: &str) {
        let mut entries = self.locked();
        self.invalidations.fetch_add(1, Ordering::SeqCst);
        let recent = entries.remove_recent(name);
        for entry in [recent, entries.previous.remove(name)].into_iter().flatten() {
            entry.is_stale.store(true, Ordering::SeqCst);
        }
    }

    fn locked(&self) -> MutexGuard<'_, CacheEntries<T>> {
        self.entries.lock().ignore_poison()
    }
}

impl<T> CacheEntries<T> {
    fn insert(&mut self, name: Arc<str>, entry: Arc<CacheEntry<T>>, limits: CacheLimits) {
        self.remove_recent(&name);
        let is_full = self.recent.len() >= limits.entries_max
            || self.recent_bytes.saturating_add(entry.bytes) > limits.bytes_max;
        if is_full {
            self.previous = std::mem::take(&mut self.recent);
            self.recent_bytes = 0;
        }
        self.recent_bytes += entry.bytes;
        self.recent.insert(name, entry);
    }

    fn remove_recent(&mut self, name: &str) -> Option<Arc<CacheEntry<T>>> {
        let entry = self.recent.remove(name)?;
        self.recent_bytes -= entry.bytes;
        Some(entry)
    }
}

impl<T> fmt::Debug for StreamCache<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamCache").field("limits", &self.limits).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::test_service::TestService;
    use umbel_events::{ExpectedVersion, NewEvent};

    fn append(store: &Store, stream: &str) {
        let event = NewEvent::json(store.new_id().unwrap(), "Said", b"{}");
        store.append(stream, ExpectedVersion::Any, &[event]).unwrap();
    }

    #[test]
    fn cached_value_is_invalidated_by_an_append() {
        let (fixture, known) = (TestService::new(), StreamCache::new(10));
        let read = |value: u32| {
            let read = known.get_or_read(&fixture.store, "a", &["a", "$$a"], |_| Ok(value));
            read.unwrap().value
        };
        assert_eq!((read(1), read(2)), (1, 1));
        append(&fixture.store, "b");
        assert_eq!(read(3), 1);
        for (stream, value) in [("a", 4), ("$$a", 5)] {
            append(&fixture.store, stream);
            assert!(known.get("a").is_none());
            assert_eq!(read(value), value);
        }
        known.invalidate("a");
        assert!(known.get("a").is_none());
    }

    /// Story: a value over a limit was not kept, but read and parsed at each request.
    #[test]
    fn large_value_is_cached_alone_and_the_others_fit_the_limit_of_bytes() {
        let limits = CacheLimits { entries_max: 10, bytes_max: 12 };
        let (fixture, known) =
            (TestService::new(), StreamCache::with_limits(limits, |value: &usize| *value));
        let read =
            |name, value| known.get_or_read(&fixture.store, name, &[], |_| Ok(value)).unwrap();
        let read = |name, value| read(name, value).value;
        assert_eq!((read("a", 70), read("a", 8), read("b", 2), read("a", 9)), (70, 70, 2, 70));
        assert_eq!((read("c", 3), read("d", 4), read("e", 12)), (3, 4, 12));
        known.invalidate("a");
        ["b", "c", "d", "e"].iter().for_each(|name| known.invalidate(name));
        for round in 0..30 {
            for name in ["a", "b", "c", "d"] {
                read(name, 1 + round % 5);
                if round % 7 == 0 {
                    known.invalidate(name);
                }
                let entries = known.locked();
                let bytes = |of: &HashMap<Arc<str>, Arc<CacheEntry<usize>>>| {
                    of.values().map(|entry| entry.value).sum::<usize>()
                };
                assert_eq!(bytes(&entries.recent), entries.recent_bytes);
                assert!(entries.recent_bytes <= 12 && bytes(&entries.previous) <= 12);
            }
        }
    }

    /// A value read before an append was acknowledged must not be cached after it.
    #[test]
    fn value_invalidated_during_its_read_is_not_cached() {
        let (fixture, known) = (TestService::new(), StreamCache::new(10));
        let read = known.get_or_read(&fixture.store, "a", &[], |_| {
            known.invalidate("a");
            Ok(1)
        });
        assert!(!read.unwrap().is_fresh());
        assert!(known.get("a").is_none());
    }

    #[test]
    fn recently_used_entries_survive_eviction() {
        let (fixture, known) = (TestService::new(), StreamCache::new(4));
        for number in 0..100 {
            let name = format!("s{number}");
            known.get_or_read(&fixture.store, &name, &[], |_| Ok(())).unwrap();
            known.get_or_read(&fixture.store, "often", &[], |_| Ok(())).unwrap();
            let entries = known.locked();
            assert!(entries.recent.len() <= 4 && entries.previous.len() <= 4);
        }
        assert!(known.get("often").is_some() && known.get("s0").is_none());
    }
}

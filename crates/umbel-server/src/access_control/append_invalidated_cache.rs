//! [`StreamCache`]: values that nearly every call needs from single streams, cached until an append
//! to the streams.
//!
//! INVARIANT: a cached value includes every append to its streams that was acknowledged before the
//! request. The watch is made before the streams are read, so a later append marks the entry as
//! stale. A watch fires only after its append is visible, perhaps after the client has its
//! acknowledgment. Code that acknowledges an append to such a stream therefore first calls
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
    is_stale: Arc<AtomicBool>,
    _watches: Vec<Watch>,
}

/// Cached values of streams, by name.
pub struct StreamCache<T> {
    entries: Mutex<CacheEntries<T>>,
    /// Most entries of each of the two generations, recent and previous.
    generation_max: usize,
    /// Whether a value is cached; other values are read for each request.
    is_cacheable: fn(&T) -> bool,
    /// Number of invalidations.
    invalidations: AtomicU64,
}

struct CacheEntries<T> {
    recent: HashMap<Arc<str>, Arc<CacheEntry<T>>>,
    previous: HashMap<Arc<str>, Arc<CacheEntry<T>>>,
}

impl<T> CacheEntry<T> {
    /// Whether no append to its streams has happened since the read.
    pub fn is_fresh(&self) -> bool {
        !self.is_stale.load(Ordering::SeqCst)
    }
}

impl<T> StreamCache<T> {
    /// An empty cache of two generations with at most this many entries each.
    pub fn new(max_entries: usize) -> StreamCache<T> {
        StreamCache::with_filter(max_entries, |_| true)
    }

    /// An empty cache that keeps only the values that the predicate accepts.
    pub fn with_filter(max_entries: usize, is_kept: fn(&T) -> bool) -> StreamCache<T> {
        let entries = CacheEntries { recent: HashMap::new(), previous: HashMap::new() };
        StreamCache {
            entries: Mutex::new(entries),
            generation_max: max_entries,
            is_cacheable: is_kept,
            invalidations: AtomicU64::new(0),
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
        entries.insert(key, Arc::clone(&entry), self.generation_max);
        Some(entry)
    }

    /// The fresh value under this name, else the value that the function reads from these streams.
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
        let is_kept = (self.is_cacheable)(&value);
        let entry = Arc::new(CacheEntry { value, is_stale: is_old, _watches: watches });
        if !is_kept {
            return Ok(entry);
        }
        let mut entries = self.locked();
        if self.invalidations.load(Ordering::SeqCst) == before {
            entries.insert(name.into(), Arc::clone(&entry), self.generation_max);
        } else {
            // The read may precede an append that was acknowledged meanwhile.
            entry.is_stale.store(true, Ordering::SeqCst);
        }
        Ok(entry)
    }

    /// Removes the value under this name and marks it as stale.
    pub fn invalidate(&self, name: &str) {
        let mut entries = self.locked();
        self.invalidations.fetch_add(1, Ordering::SeqCst);
        let entries = &mut *entries;
        for entry in
            [entries.recent.remove(name), entries.previous.remove(name)].into_iter().flatten()
        {
            entry.is_stale.store(true, Ordering::SeqCst);
        }
    }

    fn locked(&self) -> MutexGuard<'_, CacheEntries<T>> {
        self.entries.lock().ignore_poison()
    }
}

impl<T> CacheEntries<T> {
    fn insert(&mut self, name: Arc<str>, entry: Arc<CacheEntry<T>>, max_entries: usize) {
        if self.recent.len() >= max_entries {
            self.previous = std::mem::take(&mut self.recent);
        }
        self.recent.insert(name, entry);
    }
}

impl<T> fmt::Debug for StreamCache<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamCache")
            .field("generation_max", &self.generation_max)
            .finish_non_exhaustive()
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

    #[test]
    fn value_rejected_by_the_filter_is_not_cached() {
        let (fixture, known) =
            (TestService::new(), StreamCache::with_filter(10, |value: &u32| *value < 5));
        let read =
            |value| known.get_or_read(&fixture.store, "a", &[], |_| Ok(value)).unwrap().value;
        assert_eq!((read(7), read(8), read(3), read(9)), (7, 8, 3, 3));
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

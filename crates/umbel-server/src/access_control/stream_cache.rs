//! [`Known`]: what single streams say that nearly every call asks for, kept in memory until
//! somebody appends to them.
//!
//! INVARIANT: what is handed out was read after the last append to its streams that was
//! acknowledged before it was asked for. A watch is made first, then the streams are read, so
//! whatever becomes visible later makes the entry old. A watch is called only after an append can
//! be seen, maybe after somebody was told that it is done: whoever acknowledges an append to such a
//! stream calls [`Known::forget`] before.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use umbel_events::{Error, Store, Watch, Watched};

/// What a stream says, and whether it still does.
#[derive(Debug)]
pub struct Entry<T> {
    /// What it says.
    pub value: T,
    is_old: Arc<AtomicBool>,
    _watches: Vec<Watch>,
}

/// What streams say, by their names.
pub struct Known<T> {
    entries: Mutex<Entries<T>>,
    /// How many are kept twice over: those asked for lately, and those before them.
    most: usize,
    /// Whether it is worth keeping: what is not is read whenever it is asked for.
    is_kept: fn(&T) -> bool,
    /// How often something was forgotten.
    forgotten: AtomicU64,
}

struct Entries<T> {
    young: HashMap<Arc<str>, Arc<Entry<T>>>,
    old: HashMap<Arc<str>, Arc<Entry<T>>>,
}

impl<T> Entry<T> {
    /// Whether nobody has appended to its streams since it was read.
    pub fn is_fresh(&self) -> bool {
        !self.is_old.load(Ordering::SeqCst)
    }
}

impl<T> Known<T> {
    /// Nothing yet, and never more than twice so many.
    pub fn new(most: usize) -> Known<T> {
        Known::of(most, |_| true)
    }

    /// The same of what is worth keeping.
    pub fn of(most: usize, is_kept: fn(&T) -> bool) -> Known<T> {
        let entries = Entries { young: HashMap::new(), old: HashMap::new() };
        Known { entries: Mutex::new(entries), most, is_kept, forgotten: AtomicU64::new(0) }
    }

    /// What is known under this name.
    pub fn get(&self, name: &str) -> Option<Arc<Entry<T>>> {
        let mut entries = self.locked();
        if let Some(entry) = entries.young.get(name) {
            return entry.is_fresh().then(|| Arc::clone(entry));
        }
        let (key, entry) = entries.old.remove_entry(name)?;
        if !entry.is_fresh() {
            return None;
        }
        entries.keep(key, Arc::clone(&entry), self.most);
        Some(entry)
    }

    /// What is known under this name, or what `read` finds in these streams.
    pub fn get_or_read(
        &self,
        store: &Store,
        name: &str,
        streams: &[&str],
        read: impl FnOnce(&Store) -> Result<T, Error>,
    ) -> Result<Arc<Entry<T>>, Error> {
        if let Some(entry) = self.get(name) {
            return Ok(entry);
        }
        let before = self.forgotten.load(Ordering::SeqCst);
        let is_old = Arc::new(AtomicBool::new(false));
        let watch = |stream: &&str| {
            let is_old = Arc::clone(&is_old);
            store.watch(Watched::Stream(stream), move |_| is_old.store(true, Ordering::SeqCst))
        };
        let watches = streams.iter().map(watch).collect();
        let value = read(store)?;
        let is_kept = (self.is_kept)(&value);
        let entry = Arc::new(Entry { value, is_old, _watches: watches });
        if !is_kept {
            return Ok(entry);
        }
        let mut entries = self.locked();
        if self.forgotten.load(Ordering::SeqCst) == before {
            entries.keep(name.into(), Arc::clone(&entry), self.most);
        } else {
            // It may have been read before what was acknowledged meanwhile.
            entry.is_old.store(true, Ordering::SeqCst);
        }
        Ok(entry)
    }

    /// What was known under this name no longer counts.
    pub fn forget(&self, name: &str) {
        let mut entries = self.locked();
        self.forgotten.fetch_add(1, Ordering::SeqCst);
        let entries = &mut *entries;
        for entry in [entries.young.remove(name), entries.old.remove(name)].into_iter().flatten() {
            entry.is_old.store(true, Ordering::SeqCst);
        }
    }

    fn locked(&self) -> MutexGuard<'_, Entries<T>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Entries<T> {
    fn keep(&mut self, name: Arc<str>, entry: Arc<Entry<T>>, most: usize) {
        if self.young.len() >= most {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(name, entry);
    }
}

impl<T> fmt::Debug for Known<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Known").field("most", &self.most).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::Stage;
    use umbel_events::{Expected, NewEvent};

    fn append(store: &Store, stream: &str) {
        let event = NewEvent::json(store.new_id().unwrap(), "Said", b"{}");
        store.append(stream, Expected::Any, &[event]).unwrap();
    }

    #[test]
    fn what_is_known_counts_until_somebody_appends() {
        let (stage, known) = (Stage::new(), Known::new(10));
        let read = |value: u32| {
            let read = known.get_or_read(&stage.store, "a", &["a", "$$a"], |_| Ok(value));
            read.unwrap().value
        };
        assert_eq!((read(1), read(2)), (1, 1));
        append(&stage.store, "b");
        assert_eq!(read(3), 1);
        for (stream, value) in [("a", 4), ("$$a", 5)] {
            append(&stage.store, stream);
            assert!(known.get("a").is_none());
            assert_eq!(read(value), value);
        }
        known.forget("a");
        assert!(known.get("a").is_none());
    }

    #[test]
    fn what_is_not_worth_keeping_is_read_again() {
        let (stage, known) = (Stage::new(), Known::of(10, |value: &u32| *value < 5));
        let read = |value| known.get_or_read(&stage.store, "a", &[], |_| Ok(value)).unwrap().value;
        assert_eq!((read(7), read(8), read(3), read(9)), (7, 8, 3, 3));
    }

    /// What was read before an append was acknowledged must not be kept after it.
    #[test]
    fn what_is_forgotten_while_it_is_read_is_not_kept() {
        let (stage, known) = (Stage::new(), Known::new(10));
        let read = known.get_or_read(&stage.store, "a", &[], |_| {
            known.forget("a");
            Ok(1)
        });
        assert!(!read.unwrap().is_fresh());
        assert!(known.get("a").is_none());
    }

    #[test]
    fn what_is_asked_for_stays_and_the_rest_goes() {
        let (stage, known) = (Stage::new(), Known::new(4));
        for number in 0..100 {
            let name = format!("s{number}");
            known.get_or_read(&stage.store, &name, &[], |_| Ok(())).unwrap();
            known.get_or_read(&stage.store, "often", &[], |_| Ok(())).unwrap();
            let entries = known.locked();
            assert!(entries.young.len() <= 4 && entries.old.len() <= 4);
        }
        assert!(known.get("often").is_some() && known.get("s0").is_none());
    }
}

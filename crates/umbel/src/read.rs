//! Point reads: memtables, then level 0 newest first, then one table a level.

use umbel_base::{Result, SequenceNumber, ValueKind};

use crate::counters::{ReadCounters, ReadEvent};
use crate::keyspace_core::KeyspaceCore;
use crate::memory::View;
use crate::store::Store;
use crate::version::TableFile;

/// The newest entry of a key that a reader sees, handed to a closure; deletes included.
enum Answer<R> {
    /// The closure's result.
    Value(R),
    /// The key was deleted.
    Deleted,
}

/// Looks up `key` in the present state and hands its value to `read`.
#[inline]
pub fn get_with<R>(
    store: &Store,
    keyspace: &KeyspaceCore,
    key: &[u8],
    at: Option<SequenceNumber>,
    read: impl FnOnce(&[u8]) -> R,
) -> Result<Option<R>> {
    // The view first, the number second: see the invariant of `View`.
    let view = keyspace.view.load();
    let sequence = at.unwrap_or_else(|| store.snapshots.visible());
    let counters = &keyspace.counters.reads;
    counters.count_get();
    let look = Look { key, hash: store.hash(key), sequence, counters };
    look.up(&view, |_, value| read(value))
}

/// Looks up several keys in one consistent state.
pub fn multi_get<K: AsRef<[u8]>>(
    store: &Store,
    keyspace: &KeyspaceCore,
    keys: &[K],
    at: Option<SequenceNumber>,
) -> Result<Vec<Option<Vec<u8>>>> {
    let view = keyspace.view.load();
    let sequence = at.unwrap_or_else(|| store.snapshots.visible());
    let counters = &keyspace.counters.reads;
    let one = |key: &K| {
        let key = key.as_ref();
        counters.count_get();
        let look = Look { key, hash: store.hash(key), sequence, counters };
        look.up(&view, |_, value| value.to_vec())
    };
    keys.iter().map(one).collect()
}

/// Whether `key` may have a value: `false` is certain, `true` is what filters say. Reads nothing
/// from disk but a table's filter when it is first needed.
pub fn may_contain(store: &Store, keyspace: &KeyspaceCore, key: &[u8]) -> Result<bool> {
    let view = keyspace.view.load();
    let hash = store.hash(key);
    for buffer in std::iter::once(&view.active).chain(&view.frozen) {
        if buffer.memtable.may_contain(hash) && buffer.memtable.get(key, u64::MAX).is_some() {
            return Ok(true);
        }
    }
    for table in &view.version.levels[0] {
        if table.holds(key) && table.reader()?.may_contain(hash) {
            return Ok(true);
        }
    }
    for level in 1..view.version.levels.len() {
        if let Some(table) = view.version.find(level, key)
            && table.reader()?.may_contain(hash)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The sequence number of the newest write to `key`, deletes and range deletes included; 0 where
/// nothing is known of one.
pub fn newest_write(keyspace: &KeyspaceCore, store: &Store, key: &[u8]) -> Result<SequenceNumber> {
    let view = keyspace.view.load();
    let hash = store.hash(key);
    for buffer in std::iter::once(&view.active).chain(&view.frozen) {
        let memtable = &buffer.memtable;
        let range = match memtable.has_tombstones() {
            true => memtable.tombstones().covering(key, u64::MAX).unwrap_or(0),
            false => 0,
        };
        let point = match memtable.may_contain(hash) {
            true => memtable.get(key, u64::MAX).map_or(0, |found| found.sequence),
            false => 0,
        };
        if range.max(point) > 0 {
            return Ok(range.max(point));
        }
    }
    let deeper = (1..view.version.levels.len()).filter_map(|level| view.version.find(level, key));
    for table in view.version.levels[0].iter().filter(|table| table.holds(key)).chain(deeper) {
        let reader = table.reader()?;
        let range = reader.tombstones().covering(key, u64::MAX).unwrap_or(0);
        let point = match reader.may_contain(hash) {
            true => reader.get_with(key, hash, u64::MAX, |sequence, _, _| sequence)?,
            false => None,
        };
        if range > 0 || point.is_some() {
            return Ok(range.max(point.unwrap_or(0)));
        }
    }
    Ok(0)
}

struct Look<'a> {
    key: &'a [u8],
    hash: u64,
    sequence: SequenceNumber,
    counters: &'a ReadCounters,
}

impl Look<'_> {
    #[inline]
    fn up<R>(
        &self,
        view: &View,
        read: impl FnOnce(SequenceNumber, &[u8]) -> R,
    ) -> Result<Option<R>> {
        // Handed on until the one place that finds the key uses it.
        let mut read = Some(read);
        let mut answer = |covering: SequenceNumber, sequence, kind, value: &[u8]| {
            if sequence < covering || kind == ValueKind::Delete {
                return Answer::Deleted;
            }
            let read = read.take().expect("a key is found once");
            Answer::Value(read(sequence, value))
        };
        let found = match self.in_memory(view, &mut answer) {
            Some(found) => Some(found),
            None => self.in_tables(view, &mut answer)?,
        };
        match found {
            Some(Answer::Value(value)) => Ok(Some(value)),
            Some(Answer::Deleted) | None => Ok(None),
        }
    }

    #[inline]
    fn in_memory<R>(
        &self,
        view: &View,
        answer: &mut impl FnMut(SequenceNumber, SequenceNumber, ValueKind, &[u8]) -> Answer<R>,
    ) -> Option<Answer<R>> {
        for buffer in std::iter::once(&view.active).chain(&view.frozen) {
            let memtable = &buffer.memtable;
            let mut covering = 0;
            if memtable.has_tombstones() {
                covering = memtable.tombstones().covering(self.key, self.sequence).unwrap_or(0);
            }
            if memtable.may_contain(self.hash) {
                if let Some(found) = memtable.get(self.key, self.sequence) {
                    return Some(answer(covering, found.sequence, found.kind, found.value));
                }
            } else {
                self.counters.count_memtable_negative();
            }
            // Whatever lies further down is older than the range delete.
            if covering > 0 {
                return Some(Answer::Deleted);
            }
        }
        None
    }

    #[inline]
    fn in_tables<R>(
        &self,
        view: &View,
        answer: &mut impl FnMut(SequenceNumber, SequenceNumber, ValueKind, &[u8]) -> Answer<R>,
    ) -> Result<Option<Answer<R>>> {
        for table in &view.version.levels[0] {
            if table.holds(self.key) {
                let found = self.in_table(0, table, answer)?;
                if found.is_some() {
                    return Ok(found);
                }
            }
        }
        for level in 1..view.version.levels.len() {
            if let Some(table) = view.version.find(level, self.key) {
                let found = self.in_table(level, table, answer)?;
                if found.is_some() {
                    return Ok(found);
                }
            }
        }
        Ok(None)
    }

    #[inline]
    fn in_table<R>(
        &self,
        level: usize,
        table: &TableFile,
        answer: &mut impl FnMut(SequenceNumber, SequenceNumber, ValueKind, &[u8]) -> Answer<R>,
    ) -> Result<Option<Answer<R>>> {
        let reader = table.reader()?;
        let covering = reader.tombstones().covering(self.key, self.sequence).unwrap_or(0);
        let filtered = reader.has_filter();
        if filtered {
            self.counters.count(level, ReadEvent::FilterProbe);
        }
        if reader.may_contain(self.hash) {
            self.counters.count(level, ReadEvent::TableRead);
            let found =
                reader.get_with(self.key, self.hash, self.sequence, |sequence, kind, value| {
                    answer(covering, sequence, kind, value)
                })?;
            if found.is_some() {
                return Ok(found);
            }
            if filtered {
                self.counters.count(level, ReadEvent::FilterFalsePositive);
            }
        } else {
            self.counters.count(level, ReadEvent::FilterNegative);
        }
        Ok((covering > 0).then_some(Answer::Deleted))
    }
}

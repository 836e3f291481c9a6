//! Kinds of deletion: the entries before them, and the entries that remain.

use umbel_lab::engine::{ReadDigest, Reader, Result, Store, Write, WriteSource};

/// Bytes of a key.
pub const KEY_BYTES: u64 = 16;

/// Writes that free space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deletion {
    /// A delete of each entry but every tenth.
    Points,
    /// One range delete over the first nine tenths.
    Range,
    /// One range delete over everything.
    RangeOverAll,
    /// Four overwrites of each entry.
    Overwrites,
    /// At a given rate, a put after the last entry and a delete of the first one.
    SteadyQueue,
    /// At a given rate, overwrites of entries in random order.
    SteadyOverwrites,
}

/// One comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeletionKind {
    /// Its name.
    pub name: &'static str,
    /// Entries before the deletion, at scale 100.
    pub entries: u64,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// The deletion.
    pub deletion: Deletion,
}

/// All comparisons.
pub const ALL: [DeletionKind; 7] = [
    DeletionKind {
        name: "long-values",
        entries: 2_000,
        value_bytes: 200_000,
        deletion: Deletion::Points,
    },
    DeletionKind {
        name: "short-values",
        entries: 2_000_000,
        value_bytes: 100,
        deletion: Deletion::Points,
    },
    DeletionKind { name: "range", entries: 2_000_000, value_bytes: 100, deletion: Deletion::Range },
    DeletionKind {
        name: "range-over-all",
        entries: 2_000_000,
        value_bytes: 100,
        deletion: Deletion::RangeOverAll,
    },
    DeletionKind {
        name: "overwrites",
        entries: 200_000,
        value_bytes: 1_000,
        deletion: Deletion::Overwrites,
    },
    DeletionKind {
        name: "steady-queue",
        entries: 500_000,
        value_bytes: 500,
        deletion: Deletion::SteadyQueue,
    },
    DeletionKind {
        name: "steady-overwrites",
        entries: 500_000,
        value_bytes: 500,
        deletion: Deletion::SteadyOverwrites,
    },
];

/// A key.
pub fn key(number: u64) -> [u8; KEY_BYTES as usize] {
    let mut key = [0; KEY_BYTES as usize];
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}

/// Fills `value` with bytes that no compression shortens. They differ for each version of a key.
fn fill(value: &mut [u8], number: u64, version: u64) {
    let mut word = number ^ version.rotate_left(40);
    for chunk in value.chunks_mut(8) {
        // The steps of splitmix64, by Steele, Lea and Flood, 2014.
        word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        chunk.copy_from_slice(&(mixed ^ (mixed >> 31)).to_le_bytes()[..chunk.len()]);
    }
}

/// Puts or deletes, made one by one.
struct Writes<'a> {
    /// Numbers of the keys and versions of the values; without a version the key is deleted.
    numbers: &'a mut dyn Iterator<Item = (u64, Option<u64>)>,
    key: [u8; KEY_BYTES as usize],
    value: Vec<u8>,
}

impl WriteSource for Writes<'_> {
    fn next(&mut self) -> Option<Write<'_>> {
        let (number, version) = self.numbers.next()?;
        self.key = key(number);
        let Some(version) = version else { return Some((&self.key, None)) };
        fill(&mut self.value, number, version);
        Some((&self.key, Some(&self.value)))
    }
}

impl DeletionKind {
    /// Whether it runs at a given rate for some time.
    pub fn is_steady(&self) -> bool {
        matches!(self.deletion, Deletion::SteadyQueue | Deletion::SteadyOverwrites)
    }

    /// Bytes of one entry.
    pub fn entry_bytes(&self) -> u64 {
        KEY_BYTES + self.value_bytes as u64
    }

    /// Number of entries that remain of `entries`.
    pub fn entries_left(&self, entries: u64) -> u64 {
        match self.deletion {
            Deletion::Points => entries.div_ceil(10),
            Deletion::Range => entries - entries / 10 * 9,
            Deletion::RangeOverAll => 0,
            Deletion::Overwrites | Deletion::SteadyQueue | Deletion::SteadyOverwrites => entries,
        }
    }

    /// Applies writes, given by numbers of keys and versions of values.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn write(
        &self,
        store: &dyn Store,
        mut numbers: impl Iterator<Item = (u64, Option<u64>)>,
    ) -> Result<()> {
        let value = vec![0; self.value_bytes];
        store.write_all(&mut Writes { numbers: &mut numbers, key: key(0), value })
    }

    /// Deletes at once. Returns the bytes that the writes passed to the engine.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn delete(&self, store: &dyn Store, entries: u64) -> Result<u64> {
        match self.deletion {
            Deletion::Points => {
                let deleted = (0..entries).filter(|number| number % 10 != 0);
                self.write(store, deleted.map(|number| (number, None)))?;
                Ok((entries - entries.div_ceil(10)) * KEY_BYTES)
            }
            Deletion::Range | Deletion::RangeOverAll => {
                let last = if self.entries_left(entries) == 0 { entries } else { entries / 10 * 9 };
                if store.delete_range(&key(0), &key(last))? {
                    return Ok(2 * KEY_BYTES);
                }
                self.write(store, (0..last).map(|number| (number, None)))?;
                Ok(last * KEY_BYTES)
            }
            Deletion::Overwrites => {
                for version in 1..5 {
                    self.write(store, (0..entries).map(|number| (number, Some(version))))?;
                }
                Ok(4 * entries * self.entry_bytes())
            }
            Deletion::SteadyQueue | Deletion::SteadyOverwrites => Ok(0),
        }
    }

    /// The write of step `step` of a steady kind: of two steps of a queue, one puts and one
    /// deletes.
    pub fn steady_write(&self, entries: u64, step: u64) -> (u64, Option<u64>) {
        match (self.deletion, step.is_multiple_of(2)) {
            (Deletion::SteadyQueue, true) => (entries + step / 2, Some(0)),
            (Deletion::SteadyQueue, false) => (step / 2, None),
            // An odd factor visits all numbers below a power of two, in an order without locality.
            _ => {
                let mixed = (step + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
                (mixed % entries, Some(step + 1))
            }
        }
    }

    /// Checks that exactly the remaining entries can be read.
    ///
    /// # Errors
    /// Those of the engine, or a wrong number of entries.
    pub fn check(&self, reader: &mut dyn Reader, entries: u64) -> Result<()> {
        let mut found = ReadDigest::default();
        reader.scan(&mut found)?;
        let expected = self.entries_left(entries);
        if found.found == expected {
            return Ok(());
        }
        Err(format!("{}: {} entries are left, not {expected}", self.name, found.found).into())
    }
}

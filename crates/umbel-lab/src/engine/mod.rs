//! What every engine must be able to do to take part, and how its answers are counted.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

/// Whatever an engine complains of.
pub type Failure = Box<dyn Error + Send + Sync>;
/// The result of anything that may fail.
pub type Result<T> = std::result::Result<T, Failure>;

/// What was read: how many values, and a checksum over every byte of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// How many values were found.
    pub found: u64,
    /// A checksum that does not depend on the order.
    pub sum: u64,
}

impl Tally {
    /// Takes in what another reader read.
    pub fn merge(&mut self, other: Tally) {
        self.found += other.found;
        self.sum = self.sum.wrapping_add(other.sum);
    }

    /// Counts a value. Reads every byte of it, as whoever asked for it would.
    #[inline]
    pub fn value(&mut self, value: &[u8]) {
        self.found += 1;
        self.sum = self.sum.wrapping_add(digest(value));
    }

    /// Counts an entry of a scan.
    #[inline]
    pub fn entry(&mut self, key: &[u8], value: &[u8]) {
        self.sum = self.sum.wrapping_add(digest(key).rotate_left(1));
        self.value(value);
    }
}

/// The sum of the bytes in words of eight: cheap, and no byte is left unread.
#[inline]
fn digest(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let sum = words
        .iter()
        .fold(bytes.len() as u64, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    sum.wrapping_add(u64::from_le_bytes(last))
}

/// A write: a key with its new value, or without one where it is deleted.
pub type Write<'a> = (&'a [u8], Option<&'a [u8]>);

/// Writes, lent one by one.
pub trait Source {
    /// The next write.
    fn next(&mut self) -> Option<Write<'_>>;
}

/// How many writes make a batch: as many as db_bench's `fillbatch` takes.
pub const BATCH_ENTRIES: usize = 1000;

/// Hands the next writes of a source to `add`, as many as make a batch. Returns how many.
///
/// # Errors
/// Those of `add`.
pub fn take_batch(
    source: &mut dyn Source,
    mut add: impl FnMut(Write<'_>) -> Result<()>,
) -> Result<usize> {
    for taken in 0..BATCH_ENTRIES {
        let Some(write) = source.next() else { return Ok(taken) };
        add(write)?;
    }
    Ok(BATCH_ENTRIES)
}

/// What is the same for all engines.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Bytes of the cache of an engine that has one.
    pub cache_bytes: u64,
    /// Bits per key of the filters of an engine that [can be told](Tunes::bloom_bits); -1 and 0
    /// mean none.
    pub bloom_bits: i32,
    /// How many of these bits a key sets, where the engine [can be told](Tunes::probes).
    pub probes: Option<u8>,
    /// Bytes of a memtable, where the engine [can be told](Tunes::memtable_bytes).
    pub memtable_bytes: u64,
    /// How filters are spread over the levels, where the engine [can be told](Tunes::spread).
    pub spread: FilterSpread,
    /// Whether tables are compacted, where the engine can be told how filters are spread.
    pub compacts: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            cache_bytes: 1 << 30,
            bloom_bits: 10,
            probes: None,
            memtable_bytes: 128 << 20,
            spread: FilterSpread::Advised,
            compacts: true,
        }
    }
}

/// Who decides how many bits of filters each level has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterSpread {
    /// The engine, by what reads ask.
    Advised,
    /// Nobody: the same at every level, and all are kept.
    Uniform,
    /// These bits for each level, level 0 first.
    Levels([i32; 7]),
}

/// Which settings besides the cache an engine can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tunes {
    /// Bits per key.
    pub bloom_bits: bool,
    /// The most bits per key that its filters have: told more, it takes this many and says nothing.
    pub bloom_bits_max: Option<i32>,
    /// How many of them a key sets.
    pub probes: bool,
    /// The size of memtables.
    pub memtable_bytes: bool,
    /// Filters by level, with and without an advisor.
    pub spread: bool,
}

/// What a store has counted since it was opened, as far as its engine counts.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Counters {
    /// Flushes and compactions done.
    pub background_jobs: Option<u64>,
    /// Blocks that reads had to load.
    pub blocks_loaded: Option<u64>,
    /// How often a filter was asked.
    pub filter_probes: Option<u64>,
    /// How often one said no.
    pub filter_negatives: Option<u64>,
    /// How often one said maybe for a key that was not there.
    pub filter_false_positives: Option<u64>,
    /// How often a table was searched in vain, for want of a filter or by a filter's mistake.
    pub false_reads: Option<u64>,
    /// Bytes of filters in memory.
    pub filter_bytes: Option<u64>,
    /// Bytes written to tables and the log for each byte of keys and values.
    pub write_amplification: Option<f64>,
    /// Tables, or sorted runs, that there are.
    pub tables: Option<u64>,
    /// A checksum over names and lengths of the files, of an engine that counts no jobs.
    pub files: Option<u64>,
}

impl Counters {
    /// Mebibytes of filters in memory.
    pub fn filter_mebibytes(&self) -> Option<f64> {
        self.filter_bytes.map(|bytes| bytes as f64 / f64::from(1 << 20))
    }
}

/// An engine that can be asked to take part.
#[derive(Debug, Clone, Copy)]
pub struct Engine {
    /// Its name on the command line and in the tables.
    pub name: &'static str,
    /// Why it cannot take part in this build.
    pub missing: Option<&'static str>,
    /// Its settings in words, made of what it is opened with.
    pub settings: fn() -> String,
    /// Where its makers or users recommend them.
    pub recommended: &'static [&'static str],
    /// Which settings it can be told.
    pub tunes: Tunes,
    /// Whether several keys can be asked for at once; otherwise they are asked for one by one.
    pub multi_get: bool,
    /// Whether a cursor can be kept and moved by the next seek.
    pub kept_cursor: bool,
    /// Whether it is a log-structured merge tree.
    pub lsm: bool,
    /// The ways in which it can be read, its usual one first.
    pub ways: &'static [&'static str],
    /// The way that sees what was written after the reader was made.
    pub fresh_way: usize,
    /// Opens or creates a store in a folder that exists.
    pub open: fn(&Path, &Settings) -> Result<Box<dyn Store>>,
}

/// An open store.
pub trait Store: Sync {
    /// The version of the engine, as it says itself.
    fn version(&self) -> String;

    /// Does every write, one by one, where they survive the death of the process at least.
    fn write_all(&self, source: &mut dyn Source) -> Result<()>;

    /// Does every write in batches of [`BATCH_ENTRIES`], each of which is there as a whole or not
    /// at all: by itself for an engine that gathers writes in any case.
    fn write_in_batches(&self, source: &mut dyn Source) -> Result<()> {
        self.write_all(source)
    }

    /// Puts an entry where it survives power loss.
    fn put_synced(&self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Writes memtables out.
    fn flush(&self) -> Result<()>;

    /// Waits until there is nothing left to do in the background. Returns how much of that time
    /// was spent only to see that nothing happens any more.
    fn wait(&self) -> Result<Duration>;

    /// Compacts everything into one level.
    fn compact(&self) -> Result<()>;

    /// Holds a snapshot of the present state, or lets go of it.
    fn hold_snapshot(&self, hold: bool) -> Result<()>;

    /// A reader, in one of the engine's ways.
    fn reader(&self, way: usize) -> Result<Box<dyn Reader + '_>>;

    /// What it has counted.
    fn counters(&self) -> Counters {
        Counters::default()
    }

    /// Closes the store cleanly.
    fn close(self: Box<Self>) -> Result<()>;
}

/// Reads from an open store.
pub trait Reader {
    /// Looks up a key.
    fn get(&mut self, key: &[u8], tally: &mut Tally) -> Result<()>;

    /// Looks up several keys.
    fn multi_get(&mut self, keys: &[Vec<u8>], tally: &mut Tally) -> Result<()> {
        keys.iter().try_for_each(|key| self.get(key, tally))
    }

    /// Reads this many entries from the first key not less than `key` on, with an iterator made for
    /// it.
    fn seek(&mut self, key: &[u8], entries: usize, tally: &mut Tally) -> Result<()>;

    /// The same with a cursor that is kept from call to call, where the engine has one.
    fn seek_kept(&mut self, key: &[u8], entries: usize, tally: &mut Tally) -> Result<()> {
        self.seek(key, entries, tally)
    }

    /// Reads every entry in key order.
    fn scan(&mut self, tally: &mut Tally) -> Result<()>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_counts() {
        let bytes: Vec<u8> = (0..100).collect();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert_ne!(digest(&changed), digest(&bytes), "byte {at}");
        }
        assert_ne!(digest(&bytes[..99]), digest(&bytes));
    }
}

//! Interface of an engine, its settings, and the digest of its answers.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

pub mod built_in_engines;
pub mod umbel_engine;

/// Error of any engine.
pub type BoxError = Box<dyn Error + Send + Sync>;
/// The result of an engine's operation that can fail.
pub type Result<T> = std::result::Result<T, BoxError>;

/// Digest of the values that were read: their number, and a checksum over every byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadDigest {
    /// Number of values that were found.
    pub found: u64,
    /// Checksum over all values, independent of their order.
    pub checksum: u64,
}

impl ReadDigest {
    /// Adds the digest of another reader.
    pub fn merge(&mut self, other: ReadDigest) {
        self.found += other.found;
        self.checksum = self.checksum.wrapping_add(other.checksum);
    }

    /// Counts a value. Reads every byte of it, as a caller would.
    #[inline]
    pub fn add_value(&mut self, value: &[u8]) {
        self.found += 1;
        self.checksum = self.checksum.wrapping_add(checksum_bytes(value));
    }

    /// Counts an entry of a scan.
    #[inline]
    pub fn add_entry(&mut self, key: &[u8], value: &[u8]) {
        self.checksum = self.checksum.wrapping_add(checksum_bytes(key).rotate_left(1));
        self.add_value(value);
    }
}

/// Returns the sum of the bytes as words of eight, which is cheap and reads every byte.
#[inline]
fn checksum_bytes(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let sum = words
        .iter()
        .fold(bytes.len() as u64, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    sum.wrapping_add(u64::from_le_bytes(last))
}

/// A write: a key with its new value, or without a value for a delete.
pub type Write<'a> = (&'a [u8], Option<&'a [u8]>);

/// Source of writes, which are lent one by one.
pub trait WriteSource {
    /// Returns the next write.
    fn next(&mut self) -> Option<Write<'_>>;
}

/// Number of writes in a batch, as in db_bench's `fillbatch`.
pub const BATCH_ENTRIES: usize = 1000;

/// Passes the writes of the next batch to `add`. Returns their number.
///
/// # Errors
/// The errors of `add`.
pub fn take_batch(
    source: &mut dyn WriteSource,
    mut add: impl FnMut(Write<'_>) -> Result<()>,
) -> Result<usize> {
    for taken in 0..BATCH_ENTRIES {
        let Some(write) = source.next() else { return Ok(taken) };
        add(write)?;
    }
    Ok(BATCH_ENTRIES)
}

/// Settings that all engines of a run get.
#[derive(Debug, Clone, Copy)]
pub struct EngineSettings {
    /// Bytes of the cache of an engine that has one.
    pub cache_bytes: u64,
    /// Bits per key of the filters of an engine that [accepts them](TunableSettings::bloom_bits);
    /// -1 and 0 mean none.
    pub bloom_bits: i32,
    /// Number of these bits that a key sets, where the engine [accepts
    /// it](TunableSettings::probes).
    pub probes: Option<u8>,
    /// Bytes of a memtable, where the engine [accepts it](TunableSettings::memtable_bytes).
    pub memtable_bytes: u64,
    /// Distribution of filter bits over the levels, where the engine [accepts
    /// it](TunableSettings::spread).
    pub spread: FilterSpread,
    /// Whether tables are compacted, for engines whose distribution of filter bits can be
    /// configured.
    pub compacts: bool,
}

impl Default for EngineSettings {
    fn default() -> EngineSettings {
        EngineSettings {
            cache_bytes: 1 << 30,
            bloom_bits: 10,
            probes: None,
            memtable_bytes: 128 << 20,
            spread: FilterSpread::Advised,
            compacts: true,
        }
    }
}

/// Source of the filter bits of each level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilterSpread {
    /// The engine's advisor, by the probes of reads.
    Advised,
    /// The same bits at every level, and all filters stay in memory.
    Uniform,
    /// These bits for each level, level 0 first.
    Levels([i32; 7]),
}

/// Settings besides the cache that an engine accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TunableSettings {
    /// Bits per key.
    pub bloom_bits: bool,
    /// Maximum number of bits per key of the engine's filters, to which the engine silently reduces
    /// a larger setting.
    pub bloom_bits_max: Option<i32>,
    /// Number of bits that a key sets.
    pub probes: bool,
    /// The size of memtables.
    pub memtable_bytes: bool,
    /// Filters by level, with and without an advisor.
    pub spread: bool,
}

/// Counters of a store since its open; `None` for a counter that the engine does not have.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Counters {
    /// Flushes and compactions done.
    pub background_jobs: Option<u64>,
    /// Blocks that reads had to load.
    pub blocks_loaded: Option<u64>,
    /// Number of probes of a filter.
    pub filter_probes: Option<u64>,
    /// Number of negative probes.
    pub filter_negatives: Option<u64>,
    /// Number of false positives.
    pub filter_false_positives: Option<u64>,
    /// Number of searches of a table without a hit, without a filter or after a false positive.
    pub false_reads: Option<u64>,
    /// Bytes of filters in memory.
    pub filter_bytes: Option<u64>,
    /// Bytes written to tables and the log for each byte of keys and values.
    pub write_amplification: Option<f64>,
    /// Number of tables or sorted runs.
    pub tables: Option<u64>,
    /// A checksum over names and lengths of the store's files, for an engine without a job counter.
    pub files: Option<u64>,
}

impl Counters {
    /// Mebibytes of filters in memory.
    pub fn filter_mebibytes(&self) -> Option<f64> {
        self.filter_bytes.map(|bytes| bytes as f64 / f64::from(1 << 20))
    }
}

/// An engine that can take part in experiments.
#[derive(Debug, Clone, Copy)]
pub struct Engine {
    /// The engine's name on the command line and in the tables.
    pub name: &'static str,
    /// Reason why the engine cannot take part in this build, if so.
    pub missing_reason: Option<&'static str>,
    /// Returns the engine's settings in words, from the options with which it is opened.
    pub settings: fn() -> String,
    /// Sources in which the engine's makers or users recommend these settings.
    pub recommended: &'static [&'static str],
    /// Settings that the engine accepts.
    pub tunes: TunableSettings,
    /// Whether the engine can look up several keys in one call; otherwise keys are looked up one by
    /// one.
    pub multi_get: bool,
    /// Whether a cursor can be kept and moved by the next seek.
    pub reuses_cursor: bool,
    /// Whether the engine is a log-structured merge tree.
    pub lsm: bool,
    /// Names of the engine's read paths, the default one first.
    pub read_paths: &'static [&'static str],
    /// Index of the read path that sees writes made after the reader was created.
    pub fresh_read_path: usize,
    /// Opens or creates a store in an existing folder.
    pub open: fn(&Path, &EngineSettings) -> Result<Box<dyn Store>>,
}

/// An open store.
pub trait Store: Sync {
    /// Returns the version that the engine reports.
    fn version(&self) -> String;

    /// Applies every write, one by one, with at least buffered durability.
    fn write_all(&self, source: &mut dyn WriteSource) -> Result<()>;

    /// Applies every write in atomic batches of [`BATCH_ENTRIES`]; an engine that always gathers
    /// writes uses its own batches.
    fn write_in_batches(&self, source: &mut dyn WriteSource) -> Result<()> {
        self.write_all(source)
    }

    /// Deletes all keys of `start..end` by one range delete. Returns `false` where the engine has
    /// no such call.
    fn delete_range(&self, start: &[u8], end: &[u8]) -> Result<bool> {
        let _ = (start, end);
        Ok(false)
    }

    /// Puts an entry durably against power loss.
    fn put_synced(&self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Flushes the memtables.
    fn flush(&self) -> Result<()>;

    /// Waits until the background work is done. Returns the part of the time that only confirmed
    /// that the store is idle.
    fn wait(&self) -> Result<Duration>;

    /// Compacts everything into one level.
    fn compact(&self) -> Result<()>;

    /// Takes a snapshot of the current state, or releases it.
    fn hold_snapshot(&self, hold: bool) -> Result<()>;

    /// Returns a reader of one of the engine's read paths.
    fn reader(&self, way: usize) -> Result<Box<dyn Reader + '_>>;

    /// Returns the store's counters.
    fn counters(&self) -> Counters {
        Counters::default()
    }

    /// Closes the store cleanly.
    fn close(self: Box<Self>) -> Result<()>;
}

/// Reads from an open store.
pub trait Reader {
    /// Looks up a key.
    fn get(&mut self, key: &[u8], tally: &mut ReadDigest) -> Result<()>;

    /// Looks up several keys.
    fn multi_get(&mut self, keys: &[Vec<u8>], tally: &mut ReadDigest) -> Result<()> {
        keys.iter().try_for_each(|key| self.get(key, tally))
    }

    /// Reads `entries` entries from the first key not less than `key`, with a new iterator.
    fn seek(&mut self, key: &[u8], entries: usize, tally: &mut ReadDigest) -> Result<()>;

    /// As [`Reader::seek`], with a cursor that is reused between calls, if the engine has one.
    fn seek_reusing_cursor(
        &mut self,
        key: &[u8],
        entries: usize,
        tally: &mut ReadDigest,
    ) -> Result<()> {
        self.seek(key, entries, tally)
    }

    /// Reads the last entry, with a new iterator. Returns `false` if the engine does not implement
    /// this.
    fn last(&mut self, tally: &mut ReadDigest) -> Result<bool> {
        let _ = tally;
        Ok(false)
    }

    /// Reads every entry in key order.
    fn scan(&mut self, tally: &mut ReadDigest) -> Result<()>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_changes_the_checksum() {
        let bytes: Vec<u8> = (0..100).collect();
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert_ne!(checksum_bytes(&changed), checksum_bytes(&bytes), "byte {at}");
        }
        assert_ne!(checksum_bytes(&bytes[..99]), checksum_bytes(&bytes));
    }
}

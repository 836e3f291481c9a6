//! Options of a store and of a keyspace: plain structs, checked at use.

use std::sync::Arc;
use std::time::Duration;

use umbel_base::{Decoder, Error, Result, limits, varint};
use umbel_env::Env;
use umbel_existence::ExistenceOptions;
pub use umbel_existence::ExistenceSize;
use umbel_filter::PrefixExtractor;
pub use umbel_filter::{FilterKind, HashKind, KeyPrefix};
pub use umbel_table::Compression;
use umbel_table::TableHasher;

use crate::fs::file_cache::OPEN_TABLES_MIN;
pub use crate::options::flush_precondition::FlushPrecondition;
use crate::shared_budget::MemoryBudget;

pub mod flush_precondition;

/// The failures that an acknowledged write survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// The write survives the death of the process. Power loss can lose the newest buffered writes,
    /// but never a write that precedes a surviving one.
    #[default]
    Buffered,
    /// The write survives power loss, too: the WAL is synced before the write is acknowledged.
    Synced,
}

/// Options of a store, given at each open.
#[derive(Debug, Clone)]
pub struct Options {
    /// Whether an open creates the store if the directory does not exist or is empty.
    pub create_if_missing: bool,
    /// Whether an open fails if the store exists.
    pub error_if_exists: bool,
    /// Time to wait while another process or handle has the store open, before the open fails with
    /// `Locked`. Zero, the default, does not wait.
    pub lock_wait: Duration,
    /// Durability of single puts and deletes; a batch specifies its durability at commit.
    pub durability: Durability,
    /// Memory budget in bytes for everything that the store keeps: memtables, cached blocks, open
    /// tables' indexes and filters, mapped WAL, compaction buffers. `None`: a quarter of the memory
    /// that the process may use, at most 4 GiB, but at least 5/4 of what the other options need.
    /// The store takes memory only when data needs it. If the budget is too small for the other
    /// options, memtables, tables and WAL segments stay smaller than these options say.
    pub memory_bytes: Option<u64>,
    /// A memory budget shared with other stores of the process, instead of `memory_bytes`. With a
    /// shared budget neither `memory_bytes` nor `cache_bytes` may be set;
    /// `write_buffer_total_bytes` still limits this one store. `None`: the store has a budget of
    /// its own.
    pub memory_budget: Option<MemoryBudget>,
    /// Maximum bytes of uncompressed blocks kept in memory, within `memory_bytes`. `None`: the
    /// bytes of `memory_bytes` that other uses leave.
    pub cache_bytes: Option<u64>,
    /// Number of background threads that flush and compact. 0: writing threads flush and compact
    /// inline, which makes every run deterministic.
    pub background_threads: usize,
    /// Maximum bytes of one WAL segment, unless a batch needs more. The first segment has at most 4
    /// MiB, and each further segment twice the bytes of the one before, up to this maximum.
    pub log_segment_bytes: u64,
    /// Bytes of all memtables together, within `memory_bytes`. Above this limit the largest
    /// memtables are flushed, and above twice this limit writers wait. `None`: an eighth of
    /// `memory_bytes`, at most 256 MiB.
    pub write_buffer_total_bytes: Option<u64>,
    /// Longest value that is stored with the keys, in bytes: from 64 to the longest permitted
    /// value. A longer value gets a file of its own and is written once; WAL, memtable and tables
    /// hold only a pointer to a longer value. A put syncs such a value's bytes, whatever durability
    /// it requests. The flush or compaction that drops a replaced or deleted value frees its disk
    /// space.
    pub inline_value_bytes_max: usize,
    /// Maximum number of table files open at the same time. `None`: half of the files that the
    /// process may open, after the store raised the soft limit towards the hard limit.
    pub open_tables_max: Option<u64>,
    /// Whether flushes and compactions write large tables past the page cache, if the file system
    /// allows it. Direct writes take less processor time and keep the page cache, but the first
    /// read of a new table goes to the device. `None`: direct once the tables exceed a quarter of
    /// the memory that the process may use.
    pub direct_writes: Option<bool>,
    /// Condition that must succeed before tables of keyspaces without WAL become part of the store.
    /// A caller with a log of its own, which catches up from the markers, syncs that log in this
    /// condition. If the condition fails, the flush fails.
    pub before_flush: Option<FlushPrecondition>,
    /// The environment in which the store runs: file system, clock and threads.
    pub env: Env,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            create_if_missing: true,
            error_if_exists: false,
            lock_wait: Duration::ZERO,
            durability: Durability::Buffered,
            memory_bytes: None,
            memory_budget: None,
            cache_bytes: None,
            background_threads: 2,
            log_segment_bytes: 64 << 20,
            write_buffer_total_bytes: None,
            inline_value_bytes_max: limits::INLINE_VALUE_BYTES_MAX,
            open_tables_max: None,
            direct_writes: None,
            before_flush: None,
            env: Env::system(),
        }
    }
}

impl Options {
    /// Returns an error if any option is out of range by itself.
    pub(crate) fn check_ranges(&self) -> Result<()> {
        check_range("log_segment_bytes", self.log_segment_bytes, 4 << 10, 1 << 30)?;
        check_range("background_threads", self.background_threads as u64, 0, 64)?;
        let inline = self.inline_value_bytes_max as u64;
        check_range("inline_value_bytes_max", inline, 64, limits::VALUE_BYTES_MAX as u64)?;
        let own = [("memory_bytes", self.memory_bytes), ("cache_bytes", self.cache_bytes)];
        if self.memory_budget.is_some()
            && let Some((name, _)) = own.iter().find(|(_, bytes)| bytes.is_some())
        {
            return Err(Error::invalid(format!(
                "memory_budget and {name} are both given, but a store with a shared budget has no \
                 {name} of its own: leave one of them out"
            )));
        }
        if let Some(memory) = self.memory_bytes {
            check_range("memory_bytes", memory, 1, 1 << 50)?;
        }
        if let Some(buffers) = self.write_buffer_total_bytes {
            check_range("write_buffer_total_bytes", buffers, 16 << 10, 1 << 40)?;
        }
        if let Some(tables) = self.open_tables_max {
            check_range("open_tables_max", tables, OPEN_TABLES_MIN, 1 << 32)?;
        }
        Ok(())
    }
}

/// Compression of the tables of each level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CompressionPlan {
    /// The compression of each level, level 0 first.
    pub levels: [Compression; limits::LEVELS],
}

impl CompressionPlan {
    /// The same compression at every level.
    pub const fn all(compression: Compression) -> CompressionPlan {
        CompressionPlan { levels: [compression; limits::LEVELS] }
    }
}

impl Default for CompressionPlan {
    fn default() -> CompressionPlan {
        CompressionPlan::all(Compression::None)
    }
}

/// Kind and size of the filters of a level's tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LevelFilter {
    /// The kind of the filters: any kind except a counting filter.
    pub kind: FilterKind,
    /// Bits per key, 1 to 1000; -1 and 0 mean no filter. Kinds that store fingerprints use as many
    /// fingerprint bits as fit into these bits per key.
    pub bits_per_key: i32,
    /// Number of filter bits that a key sets: 1 to 24 in filters of 512-bit or 256-bit blocks, and
    /// 1 to 255 in standard Bloom filters. For other kinds it must be `None`. `None`: the best
    /// number for `bits_per_key`.
    pub probes: Option<u8>,
}

impl LevelFilter {
    /// Checks the number of probes for the filters of level `level`.
    fn check_probes(&self, level: usize) -> Result<()> {
        let Some(probes) = self.probes else { return Ok(()) };
        let has = format!("level_filters has {probes} probes for level {level}");
        match self.kind.most_probes() {
            None => Err(Error::invalid(format!(
                "{has}, but a {} filter has a fixed number of probes: leave probes out, or use \
                 a {}, {} or {} filter",
                self.kind,
                FilterKind::Blocked512,
                FilterKind::Blocked256,
                FilterKind::Standard
            ))),
            Some(max) if !(1..=max).contains(&u32::from(probes)) => Err(Error::invalid(format!(
                "{has}, but a {} filter must have 1 to {max}: leave them out for the best number",
                self.kind
            ))),
            Some(_) => Ok(()),
        }
    }
}

/// Options of a keyspace. Changed options apply to new writes; tables written with other options
/// stay readable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyspaceOptions {
    /// Filter bits per key, 1 to 1000; -1 and 0 mean no filter. With 10, about 1 in 100 lookups of
    /// absent keys is a false positive in each probed table.
    pub bloom_bits: i32,
    /// The filters of the tables of each level, level 0 first. `None`: Bloom filters of 512-bit
    /// blocks, with `bloom_bits` at every level. If set, `bloom_bits` applies only to the
    /// memtables. The advisor then adds no second filters, but decides which filters stay in
    /// memory.
    pub level_filters: Option<[LevelFilter; limits::LEVELS]>,
    /// The rule that gives keys their prefixes, such as `"until:/"`. With a rule each table gets a
    /// prefix filter, and scans of a prefix skip tables without keys of that prefix. Scans do not
    /// skip tables written with another rule or without one.
    pub prefix: Option<KeyPrefix>,
    /// Size of the existence filter: a filter of every key that was ever put, which gets probe
    /// first. A get of a key that the filter rejects costs one cache line. For a keyspace that
    /// already has keys, a background thread builds the filter, which takes effect when it is
    /// complete. An open without this option, or with another size, removes the existing filter.
    /// Stores opened read-only do not probe the filter.
    ///
    /// A deleted key stays in the existence filter. The filter is rebuilt when tables and memtables
    /// show that more than half of its keys are gone. For this purpose a deleted key counts as
    /// present until a compaction drops it, and a filter less than a quarter full is not rebuilt. A
    /// rebuilt growing filter gets the size for the remaining keys.
    pub existence_filter: ExistenceSize,
    /// Hash function of keys, for filters and for the tags of blocks: [`HashKind::Keyed`], or
    /// [`HashKind::SipHash13`], a slower pseudorandom function. Other kinds are refused, since an
    /// attacker who knows the function can choose colliding keys. A keyspace keeps the hash
    /// function with which it was created.
    pub hash: HashKind,
    /// Bytes of a memtable above which the memtable is flushed.
    pub memtable_bytes: u64,
    /// Bytes of a table that compaction writes.
    pub table_bytes: u64,
    /// Bytes of a block before compression.
    pub block_bytes: usize,
    /// Maximum bytes of the first level below level 0 that holds tables. A compaction of level 0
    /// merges with that whole level. So the level is also limited to three times the bytes with
    /// which level 0's compaction starts.
    pub level_bytes_base: u64,
    /// Size of each level relative to the level above it.
    pub level_ratio: u32,
    /// Number of tables in level 0 that starts a compaction.
    pub level0_tables: usize,
    /// Compression of the tables of each level.
    pub compression: CompressionPlan,
    /// Whether the advisor decides, by observed lookups, which filters stay in memory and which
    /// second filters new tables get. Without the advisor every table has only the filter of
    /// `bloom_bits`, kept in memory as far as the budget allows.
    pub advisor: bool,
    /// Whether writes go to the WAL. Without a WAL a crash loses writes that were not flushed; see
    /// `Db::flush_all` and `Batch::set_marker`.
    pub log: bool,
}

impl Default for KeyspaceOptions {
    fn default() -> KeyspaceOptions {
        KeyspaceOptions {
            bloom_bits: 10,
            level_filters: None,
            prefix: None,
            existence_filter: ExistenceSize::Off,
            hash: HashKind::Keyed,
            memtable_bytes: 128 << 20,
            table_bytes: 64 << 20,
            block_bytes: 4096,
            level_bytes_base: 1536 << 20,
            level_ratio: 10,
            level0_tables: 4,
            compression: CompressionPlan::default(),
            advisor: true,
            log: true,
        }
    }
}

/// Limits on some options of a keyspace that follow from the memory budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionCaps {
    /// Maximum bytes of a memtable.
    pub memtable_bytes: u64,
    /// Maximum bytes of a table.
    pub table_bytes: u64,
    /// Maximum bytes of a table of the last level.
    pub last_table_bytes: u64,
    /// Maximum bytes of the first level below level 0.
    pub level_bytes_base: u64,
}

impl KeyspaceOptions {
    /// Returns the options, reduced to the limits `caps`.
    pub(crate) fn within(&self, caps: &OptionCaps) -> KeyspaceOptions {
        KeyspaceOptions {
            memtable_bytes: self.memtable_bytes.min(caps.memtable_bytes),
            table_bytes: self.table_bytes.min(caps.table_bytes),
            level_bytes_base: self.level_bytes_base.min(caps.level_bytes_base),
            ..self.clone()
        }
    }

    /// Returns the filter options for the tables of level `level`.
    pub fn level_filter(&self, level: usize) -> LevelFilter {
        let (kind, bits_per_key) = (FilterKind::Blocked512, self.bloom_bits);
        let usual = LevelFilter { kind, bits_per_key, probes: None };
        self.level_filters.and_then(|levels| levels.get(level).copied()).unwrap_or(usual)
    }

    /// Returns the maximum bytes of the first level below level 0.
    pub(crate) fn base_bytes(&self) -> u64 {
        let level0 = self.memtable_bytes.saturating_mul(self.level0_tables as u64);
        self.level_bytes_base.min(level0.saturating_mul(3))
    }

    /// Returns an error that names the option that is out of range and its permitted values.
    pub fn check(&self) -> Result<()> {
        if !limits::BLOOM_BITS_RANGE.contains(&self.bloom_bits) {
            return Err(Error::invalid(format!(
                "bloom_bits is {}, but must be -1 (no filter) or 0 to 1000 bits per key",
                self.bloom_bits
            )));
        }
        for (level, filter) in self.level_filters.iter().flatten().enumerate() {
            if !limits::BLOOM_BITS_RANGE.contains(&filter.bits_per_key) {
                return Err(Error::invalid(format!(
                    "level_filters has {} bits per key for level {level}, but must have -1 (no \
                     filter) or 0 to 1000",
                    filter.bits_per_key
                )));
            }
            if filter.kind == FilterKind::Counting {
                return Err(Error::invalid(format!(
                    "level_filters has a counting filter for level {level}, but tables never \
                     change: use another kind"
                )));
            }
            filter.check_probes(level)?;
        }
        if !TableHasher::KINDS.contains(&self.hash) {
            let known = TableHasher::KINDS.map(HashKind::name).join(" or ");
            return Err(Error::invalid(format!(
                "hash is {}, but must be {known}: an attacker can make keys that collide under the \
                 others",
                self.hash
            )));
        }
        ExistenceOptions { size: self.existence_filter, ..ExistenceOptions::default() }.check()?;
        check_range("memtable_bytes", self.memtable_bytes, 4 << 10, 16 << 30)?;
        check_range("table_bytes", self.table_bytes, 4 << 10, 16 << 30)?;
        check_range("block_bytes", self.block_bytes as u64, 64, 1 << 20)?;
        check_range("level_bytes_base", self.level_bytes_base, 4 << 10, 1 << 50)?;
        check_range("level_ratio", u64::from(self.level_ratio), 2, 1000)?;
        check_range("level0_tables", self.level0_tables as u64, 1, 1000)
    }

    /// FORMAT: the options as the manifest stores them.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        varint::put_u64(out, (self.bloom_bits + 1) as u64);
        for value in [
            self.memtable_bytes,
            self.table_bytes,
            self.block_bytes as u64,
            self.level_bytes_base,
            u64::from(self.level_ratio),
            self.level0_tables as u64,
        ] {
            varint::put_u64(out, value);
        }
        out.extend(self.compression.levels.map(|compression| compression as u8));
        let has_filters = self.level_filters.is_some();
        let has_hash = self.hash != HashKind::Keyed;
        let has_prefix = self.prefix.is_some();
        let has_probes = self.level_filters.iter().flatten().any(|filter| filter.probes.is_some());
        let existence = existence_bytes(self.existence_filter);
        let flags = [self.log, !self.advisor, has_filters, has_prefix, has_hash, has_probes]
            .into_iter()
            .chain([existence.is_some()]);
        out.push((0..).zip(flags).map(|(bit, is_set)| u8::from(is_set) << bit).sum());
        for filter in self.level_filters.iter().flatten() {
            out.push(filter.kind.number());
            varint::put_u64(out, (filter.bits_per_key + 1) as u64);
        }
        if let Some(prefix) = &self.prefix {
            varint::put_bytes(out, prefix.name().as_bytes());
        }
        if has_hash {
            out.push(self.hash.number());
        }
        if has_probes {
            let filters = self.level_filters.iter().flatten();
            out.extend(filters.map(|filter| filter.probes.unwrap_or(0)));
        }
        if let Some((kind, number)) = existence {
            out.push(kind);
            varint::put_u64(out, number);
        }
    }

    /// Reads the output of [`KeyspaceOptions::encode`]; `None` if it is malformed.
    pub(crate) fn decode(decoder: &mut Decoder<'_>) -> Option<KeyspaceOptions> {
        let bloom_bits = i32::try_from(decoder.varint()?).ok()? - 1;
        let memtable_bytes = decoder.varint()?;
        let table_bytes = decoder.varint()?;
        let block_bytes = decoder.varint_usize()?;
        let level_bytes_base = decoder.varint()?;
        let level_ratio = u32::try_from(decoder.varint()?).ok()?;
        let level0_tables = decoder.varint_usize()?;
        let mut levels = [Compression::None; limits::LEVELS];
        for level in &mut levels {
            *level = Compression::from_u8(decoder.u8()?)?;
        }
        let flags = decoder.u8().filter(|flags| *flags < 128)?;
        let (log, advisor) = (flags & 1 != 0, flags & 2 == 0);
        let mut level_filters = None;
        if flags & 4 != 0 {
            let kind = FilterKind::Blocked512;
            let filter = LevelFilter { kind, bits_per_key: 0, probes: None };
            let mut filters = [filter; limits::LEVELS];
            for filter in &mut filters {
                filter.kind = FilterKind::from_number(decoder.u8()?)?;
                filter.bits_per_key = i32::try_from(decoder.varint()?).ok()? - 1;
            }
            level_filters = Some(filters);
        }
        let mut prefix = None;
        if flags & 8 != 0 {
            let name = std::str::from_utf8(decoder.bytes()?).ok()?;
            // Each rule has only one name.
            prefix = Some(name.parse().ok().filter(|rule: &KeyPrefix| rule.name() == name)?);
        }
        let hash = match flags & 16 {
            0 => HashKind::Keyed,
            // The default kind is not encoded.
            _ => HashKind::from_number(decoder.u8()?).filter(|kind| *kind != HashKind::Keyed)?,
        };
        if flags & 32 != 0 {
            decode_probes(decoder, level_filters.as_mut()?)?;
        }
        let existence_filter = match flags & 64 {
            0 => ExistenceSize::Off,
            _ => decode_existence(decoder)?,
        };
        let options = KeyspaceOptions {
            bloom_bits,
            level_filters,
            prefix,
            existence_filter,
            hash,
            memtable_bytes,
            table_bytes,
            block_bytes,
            level_bytes_base,
            level_ratio,
            level0_tables,
            compression: CompressionPlan { levels },
            advisor,
            log,
        };
        options.check().is_ok().then_some(options)
    }
}

/// Reads the numbers of probes of the levels' filters, at least one of which is set. Returns `None`
/// if they are malformed.
fn decode_probes(
    decoder: &mut Decoder<'_>,
    filters: &mut [LevelFilter; limits::LEVELS],
) -> Option<()> {
    for filter in filters.iter_mut() {
        filter.probes = Some(decoder.u8()?).filter(|probes| *probes > 0);
    }
    filters.iter().any(|filter| filter.probes.is_some()).then_some(())
}

/// FORMAT: the kind and the size of the existence filter, if the options request one.
fn existence_bytes(size: ExistenceSize) -> Option<(u8, u64)> {
    match size {
        ExistenceSize::Off => None,
        ExistenceSize::Fixed { bytes } => Some((1, bytes)),
        ExistenceSize::Growing { first_keys } => Some((2, first_keys)),
    }
}

fn decode_existence(decoder: &mut Decoder<'_>) -> Option<ExistenceSize> {
    let kind = decoder.u8()?;
    let number = decoder.varint()?;
    match kind {
        1 => Some(ExistenceSize::Fixed { bytes: number }),
        2 => Some(ExistenceSize::Growing { first_keys: number }),
        _ => None,
    }
}

fn check_range(name: &str, value: u64, min: u64, max: u64) -> Result<()> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    Err(Error::invalid(format!("{name} is {value}, but must be {min} to {max}")))
}

/// The store's options, shared by all its parts.
pub(crate) type SharedOptions = Arc<Options>;

#[cfg(test)]
mod tests;

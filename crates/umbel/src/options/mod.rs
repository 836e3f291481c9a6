//! Options of a store and of a keyspace: plain structs, checked when they are used.

use std::sync::Arc;
use std::time::Duration;

use umbel_base::{Decoder, Error, Result, limits, varint};
use umbel_env::Env;
use umbel_existence::ExistenceOptions;
pub use umbel_existence::Size as ExistenceSize;
use umbel_filter::PrefixExtractor;
pub use umbel_filter::{FilterKind, HashKind, KeyPrefix};
pub use umbel_table::Compression;
use umbel_table::TableHasher;

use crate::descriptors::OPEN_TABLES_MIN;
pub use crate::flush_gate::FlushGate;
use crate::memory_budget::MemoryBudget;

/// What an acknowledged write survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// The death of the process. Power loss may take the newest such writes, never one out of the
    /// middle.
    #[default]
    Buffered,
    /// Power loss too: the log is synced before the write is acknowledged.
    Synced,
}

/// Options of a store, given at each open.
#[derive(Debug, Clone)]
pub struct Options {
    /// Create the store where the folder does not exist or is empty.
    pub create_if_missing: bool,
    /// Refuse a store that exists.
    pub error_if_exists: bool,
    /// How long to wait while another process or handle has the store open, before the open is
    /// refused with `Locked`. Zero, the default, does not wait.
    pub lock_wait: Duration,
    /// What single puts and deletes survive; a batch says it at its commit.
    pub durability: Durability,
    /// Bytes of memory for everything the store keeps: memtables, cached blocks, indexes and
    /// filters of open tables, the mapped log, buffers of compactions. `None`: a quarter of what
    /// the process may use, at most 4 GiB, or what the finer settings ask for and a quarter more
    /// where that is more. It is taken only as data needs it; with less than the
    /// data would like, memtables, tables and log segments stay smaller than their options say.
    pub memory_bytes: Option<u64>,
    /// A budget shared with other stores of the process, in the place of `memory_bytes`: neither
    /// that nor `cache_bytes` is given with it. `write_buffer_total_bytes` bounds this one store
    /// still. `None`: the store has a budget of its own.
    pub memory_budget: Option<MemoryBudget>,
    /// Bytes of blocks kept in memory at most, uncompressed, inside of `memory_bytes`. `None`: what
    /// the other parts leave.
    pub cache_bytes: Option<u64>,
    /// Threads that flush and compact. 0: the writing thread does it inline, which makes every run
    /// the same.
    pub background_threads: usize,
    /// The most bytes of one write-ahead log segment, unless a batch needs more. The first one has
    /// 4 MiB at most, and each next one twice as many up to this.
    pub log_segment_bytes: u64,
    /// Bytes of all memtables together, inside of `memory_bytes`; above it the fullest is flushed,
    /// and at twice that writers wait. `None`: an eighth of `memory_bytes`, at most 256 MiB.
    pub write_buffer_total_bytes: Option<u64>,
    /// Longest value that stands among the keys, in bytes: 64 to the longest value there is. A
    /// longer one gets a file of its own, which log, memtable and tables only point at, so that it
    /// is written once. It is made durable when it is put, whatever the durability; and the room of
    /// one that was replaced or deleted is given back by the flush or compaction that drops it.
    pub inline_value_bytes_max: usize,
    /// Files of tables that may be open at the same time. `None`: half of what the process may
    /// open, after its soft limit was raised towards the hard one.
    pub open_tables_max: Option<u64>,
    /// Whether flushes and compactions write large tables past the page cache, where the file
    /// system allows it. That takes less processor time and leaves the page cache alone, but what
    /// is read first after it comes from the device. `None`: once the tables take more than a
    /// quarter of the memory the process may use, so that the page cache could not hold them.
    pub direct_writes: Option<bool>,
    /// What has to succeed before tables of keyspaces without a log become part of the store: who
    /// keeps a log of his own, and catches up from it by the markers, makes that durable here.
    /// Where it fails the flush does.
    pub before_flush: Option<FlushGate>,
    /// The world the store lives in.
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
    /// An error where an option alone is out of range.
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

/// How the tables of each level are compressed.
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

/// A filter of the tables of a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LevelFilter {
    /// Its kind; every kind but a counting one.
    pub kind: FilterKind,
    /// Bits per key: -1 and 0 no filter, 1 to 1000. Kinds that are built of fingerprints get as
    /// many bits of them as fit.
    pub bits_per_key: i32,
    /// How many bits of the filter a key sets: 1 to 24 in lines of 512 bits and blocks of 256, 1 to
    /// 255 in standard filters; other kinds let nobody choose. `None`: as many as are best for
    /// `bits_per_key`.
    pub probes: Option<u8>,
}

impl LevelFilter {
    /// What is wrong with the number of probes, for the filters of that level.
    fn check_probes(&self, level: usize) -> Result<()> {
        let Some(probes) = self.probes else { return Ok(()) };
        let has = format!("level_filters has {probes} probes for level {level}");
        match self.kind.most_probes() {
            None => Err(Error::invalid(format!(
                "{has}, but a {} filter lets nobody choose them: leave them out or take a {}, {} \
                 or {} filter",
                self.kind,
                FilterKind::Blocked512,
                FilterKind::Blocked256,
                FilterKind::Standard
            ))),
            Some(most) if !(1..=most).contains(&u32::from(probes)) => Err(Error::invalid(format!(
                "{has}, but a {} filter must have 1 to {most}: leave them out for the best number",
                self.kind
            ))),
            Some(_) => Ok(()),
        }
    }
}

/// Options of a keyspace. They shape what is written from now on; tables that exist stay readable
/// whatever they were written with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyspaceOptions {
    /// Filter bits per key: -1 and 0 no filter, 1 to 1000. 10 lets about 1 in 100 missing keys
    /// through per table asked.
    pub bloom_bits: i32,
    /// The filters of the tables of each level, level 0 first. `None`: Bloom filters in lines of
    /// 512 bits, of `bloom_bits` at every level. Where they are given, `bloom_bits` is that of the
    /// memtables, and the advisor adds no filters, but decides which of these are kept.
    pub level_filters: Option<[LevelFilter; limits::LEVELS]>,
    /// The rule by which keys have prefixes, such as `"until:/"`: with it each table gets a prefix
    /// filter, by which scans of the keys that begin in one way leave out tables that have none.
    /// Tables written with another rule, or with none, are scanned.
    pub prefix: Option<KeyPrefix>,
    /// A filter of every key that was ever put, asked by gets before anything else: a key that it
    /// denies costs one line of memory. It is made in the background, for a keyspace that has keys
    /// already from all of them, and answers once it is; without it, or with another size, the one
    /// there is goes. Not asked by stores opened read-only.
    ///
    /// A key that is deleted stays in it. It is made anew once, by what tables and memtables hold,
    /// more than half of its keys are gone: what compactions did not drop yet counts as there, and
    /// one that is not filled to a quarter is left. One that grows gets the size for what is left.
    pub existence_filter: ExistenceSize,
    /// What keys are hashed with, for filters and for the tags of blocks: [`HashKind::Keyed`], or
    /// [`HashKind::SipHash13`], which is slower, for those who want a pseudorandom function. Others
    /// are not keyed well enough: who knows one can choose keys that collide. A keyspace keeps what
    /// it was created with.
    pub hash: HashKind,
    /// Bytes a memtable may take before it is flushed.
    pub memtable_bytes: u64,
    /// Bytes of a table that compaction writes.
    pub table_bytes: u64,
    /// Bytes of a disk block before compression.
    pub block_bytes: usize,
    /// Bytes of the first level below level 0, at most. As what is compacted into it meets all of
    /// it, it is never more than three times what level 0 holds when its compaction starts.
    pub level_bytes_base: u64,
    /// How many times larger each level is than the one above it.
    pub level_ratio: u32,
    /// Tables in level 0 that start a compaction.
    pub level0_tables: usize,
    /// How the tables of each level are compressed.
    pub compression: CompressionPlan,
    /// Whether the advisor decides, by what reads ask, which filters are kept in memory and what
    /// filters new tables get besides one of `bloom_bits`. Without it every table has the one, and
    /// it is kept as far as the memory allows.
    pub advisor: bool,
    /// Whether writes go to the write-ahead log. Without it a crash loses what was not flushed;
    /// see `Db::flush_all` and `Batch::set_marker`.
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

/// The most that some options of a keyspace may be for the memory there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// Bytes of a memtable.
    pub memtable_bytes: u64,
    /// Bytes of a table.
    pub table_bytes: u64,
    /// Bytes of a table of the last level.
    pub last_table_bytes: u64,
    /// Bytes of the first level below level 0.
    pub level_bytes_base: u64,
}

impl KeyspaceOptions {
    /// The options as far as the memory allows them.
    pub(crate) fn within(&self, caps: &Caps) -> KeyspaceOptions {
        KeyspaceOptions {
            memtable_bytes: self.memtable_bytes.min(caps.memtable_bytes),
            table_bytes: self.table_bytes.min(caps.table_bytes),
            level_bytes_base: self.level_bytes_base.min(caps.level_bytes_base),
            ..self.clone()
        }
    }

    /// The filter of the tables of a level.
    pub fn level_filter(&self, level: usize) -> LevelFilter {
        let (kind, bits_per_key) = (FilterKind::Blocked512, self.bloom_bits);
        let usual = LevelFilter { kind, bits_per_key, probes: None };
        self.level_filters.and_then(|levels| levels.get(level).copied()).unwrap_or(usual)
    }

    /// Bytes of the first level below level 0.
    pub(crate) fn base_bytes(&self) -> u64 {
        let level0 = self.memtable_bytes.saturating_mul(self.level0_tables as u64);
        self.level_bytes_base.min(level0.saturating_mul(3))
    }

    /// An error that says which option is out of range and what it may be.
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
                     change: take any other kind"
                )));
            }
            filter.check_probes(level)?;
        }
        if !TableHasher::KINDS.contains(&self.hash) {
            let known = TableHasher::KINDS.map(HashKind::name).join(" or ");
            return Err(Error::invalid(format!(
                "hash is {}, but must be {known}: keys that collide are known or can be made for \
                 the others",
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

    /// FORMAT: the options as the manifest keeps them.
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

    /// Reads what [`KeyspaceOptions::encode`] wrote; `None` where it is malformed.
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
            // A rule has one name only.
            prefix = Some(name.parse().ok().filter(|rule: &KeyPrefix| rule.name() == name)?);
        }
        let hash = match flags & 16 {
            0 => HashKind::Keyed,
            // The usual one is not written down.
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

/// Reads the probes of filters, of which at least one has some; `None` where that is malformed.
fn decode_probes(
    decoder: &mut Decoder<'_>,
    filters: &mut [LevelFilter; limits::LEVELS],
) -> Option<()> {
    for filter in filters.iter_mut() {
        filter.probes = Some(decoder.u8()?).filter(|probes| *probes > 0);
    }
    filters.iter().any(|filter| filter.probes.is_some()).then_some(())
}

/// FORMAT: the kind and the number of an existence filter, where there is one.
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

fn check_range(name: &str, value: u64, least: u64, most: u64) -> Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Error::invalid(format!("{name} is {value}, but must be {least} to {most}")))
}

/// Options shared by everything that holds a store.
pub(crate) type SharedOptions = Arc<Options>;

#[cfg(test)]
#[path = "options_tests.rs"]
mod tests;

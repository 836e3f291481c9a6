//! Fixture of the tests: a model of a table's entries, and tables built from it.

use std::collections::BTreeMap;
use std::sync::Arc;

use umbel_base::{Cursor, RangeTombstone, Result, ValueKind};
use umbel_filter::{HashKind, KeyPrefix, PrefixHasher};
use umbel_table::{
    BlockCache, BlockSlots, Compression, SequentialReader, Table, TableBuilder, TableHasher,
    TableMeta, TableOptions, UnboundedCache,
};

use umbel_env::memory_file::MemoryFile;

pub const TABLE_ID: u64 = 7;

/// A version as tests compare it.
pub type Version = (u64, ValueKind, Vec<u8>);

/// Entries in internal order: the sequence number is inverted in the key of the map.
#[derive(Debug, Clone, Default)]
pub struct Model {
    pub entries: BTreeMap<(Vec<u8>, u64), (ValueKind, Vec<u8>)>,
    pub tombstones: Vec<RangeTombstone>,
}

impl Model {
    pub fn put(&mut self, key: &[u8], sequence: u64, value: &[u8]) {
        self.entries.insert((key.to_vec(), !sequence), (ValueKind::Put, value.to_vec()));
    }

    pub fn delete(&mut self, key: &[u8], sequence: u64) {
        self.entries.insert((key.to_vec(), !sequence), (ValueKind::Delete, Vec::new()));
    }

    pub fn get(&self, key: &[u8], sequence: u64) -> Option<Version> {
        let ((found, at), (kind, value)) =
            self.entries.range((key.to_vec(), !sequence)..).next()?;
        (found == key).then(|| (!at, *kind, value.clone()))
    }

    /// Returns all entries in the order of a cursor.
    pub fn list(&self) -> Vec<(Vec<u8>, Version)> {
        self.entries
            .iter()
            .map(|((key, at), (kind, value))| (key.clone(), (!at, *kind, value.clone())))
            .collect()
    }

    pub fn keys(&self) -> Vec<Vec<u8>> {
        let mut keys: Vec<Vec<u8>> = self.entries.keys().map(|(key, _)| key.clone()).collect();
        keys.dedup();
        keys
    }

    pub fn build(&self, options: TableOptions) -> (MemoryFile, TableMeta) {
        self.build_with(options, None)
    }

    pub fn build_with(
        &self,
        options: TableOptions,
        rule: Option<&KeyPrefix>,
    ) -> (MemoryFile, TableMeta) {
        let file = MemoryFile::default();
        let builder = TableBuilder::new(Arc::new(file.clone()), TABLE_ID, hasher(), options);
        let mut builder = builder.with_prefix(rule);
        for tombstone in &self.tombstones {
            builder.add_tombstone(tombstone);
        }
        for ((key, at), (kind, value)) in &self.entries {
            builder.add(key, !at, *kind, value).unwrap();
        }
        assert_eq!(builder.entries(), self.entries.len() as u64);
        let estimate = builder.estimated_bytes();
        let meta = builder.finish().unwrap();
        assert_eq!(meta.file_bytes, file.bytes().len() as u64);
        let open_block = (options.block_bytes + 2 * meta.largest.len()) as u64;
        let slack = meta.file_bytes / 3 + 2048 + open_block;
        assert!(estimate.abs_diff(meta.file_bytes) <= slack, "{estimate} {}", meta.file_bytes);
        (file, meta)
    }
}

pub fn hasher() -> TableHasher {
    let prefixes = PrefixHasher::new(HashKind::Keyed, [5; 16]).ok();
    TableHasher { prefixes, ..TableHasher::keyed([5; 16], 3) }
}

pub fn options(block_bytes: usize, compression: Compression) -> TableOptions {
    TableOptions { block_bytes, compression, ..TableOptions::default() }
}

pub fn open(
    file: &MemoryFile,
    meta: &TableMeta,
    hasher: Option<&TableHasher>,
) -> Result<Arc<Table>> {
    let file = Arc::new(file.clone());
    Table::open(file, meta, hasher, Arc::new(UnboundedCache)).map(Arc::new)
}

/// A cache that evicts every block after its load.
#[derive(Debug)]
pub struct KeepNothing;

impl BlockCache for KeepNothing {
    fn admit(&self, slots: &Arc<BlockSlots>, block: u32, bytes: usize) {
        assert_eq!(slots.evict(block), bytes, "the reported block is the evicted block");
    }
}

/// Opens a table with a paged index, of which only the top stays in memory.
pub fn open_paged(
    file: &MemoryFile,
    meta: &TableMeta,
    cache: Arc<dyn BlockCache>,
) -> Result<Arc<Table>> {
    let file = Arc::new(file.clone());
    Table::open_as(file, &Arc::new(meta.clone()), Some(&hasher()), cache, true).map(Arc::new)
}

/// Does a point read.
pub fn get(table: &Table, key: &[u8], sequence: u64) -> Result<Option<Version>> {
    let hash = hasher().keys.hash(key);
    table.get_with(key, hash, sequence, |sequence, kind, value| (sequence, kind, value.to_vec()))
}

pub fn entry(cursor: &impl Cursor) -> (Vec<u8>, Version) {
    (cursor.key().to_vec(), (cursor.sequence(), cursor.kind(), cursor.value().to_vec()))
}

/// Returns all entries from the first one at or after `from`, or all entries, as a compaction reads
/// them.
pub fn run(table: &Table, from: Option<(&[u8], u64)>) -> Result<Vec<(Vec<u8>, Version)>> {
    let mut run = SequentialReader::default();
    match from {
        None => run.seek_to_first(table)?,
        Some((key, sequence)) => run.seek(table, key, sequence)?,
    }
    let mut entries: Vec<(Vec<u8>, Version)> = Vec::new();
    let mut repeats = false;
    while run.valid() {
        assert_eq!(repeats, entries.last().is_some_and(|(key, _)| key == run.key()));
        let version = (run.sequence(), run.kind(), run.value().to_vec());
        entries.push((run.key().to_vec(), version));
        repeats = run.next_repeats(table)?;
    }
    assert!(!repeats);
    Ok(entries)
}

/// Reads all entries forward and backward, and checks that both give the same entries.
pub fn walk(table: &Arc<Table>, fill_cache: bool) -> Result<Vec<(Vec<u8>, Version)>> {
    let mut cursor = table.cursor(fill_cache);
    let mut forwards = Vec::new();
    cursor.seek_to_first()?;
    while cursor.valid() {
        forwards.push(entry(&cursor));
        cursor.next()?;
    }
    let mut backwards = Vec::new();
    cursor.seek_to_last()?;
    while cursor.valid() {
        backwards.push(entry(&cursor));
        cursor.prev()?;
    }
    backwards.reverse();
    assert!(forwards == backwards, "a walk backwards sees other entries");
    Ok(forwards)
}

//! Work of the killed process: the seed decides a sequence of operations for each thread, so that
//! the parent knows every possible state.

use std::collections::BTreeMap;

use umbel::{
    Compression, CompressionPlan, Db, Durability, Env, ExistenceSize, FilterKind, HashKind,
    KeyPrefix, Keyspace, KeyspaceOptions, LevelFilter, Options,
};
use umbel_sim::Random;

use crate::support::derived_seed::derive_seed;

/// Number of writing threads, each of which has its own keys.
pub const THREADS: usize = 4;
/// The keyspaces written to.
pub const KEYSPACES: [&str; 3] = ["first", "second", "large"];
/// Number of keys of each thread in each keyspace.
pub const KEYS: u64 = 400;

/// One change of one key or range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyChange {
    /// Puts a value for a key.
    Put(Vec<u8>, Vec<u8>),
    /// Deletes a key.
    Delete(Vec<u8>),
    /// Deletes the keys from the first up to the second, exclusive.
    DeleteRange(Vec<u8>, Vec<u8>),
}

/// One operation, acknowledged as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadOperation {
    /// A single write to a keyspace.
    Single(usize, KeyChange),
    /// Writes that take effect together.
    Batch(Durability, Vec<(usize, KeyChange)>),
    /// A flush of everything.
    Flush,
    /// A flush of a keyspace.
    FlushKeyspace(usize),
    /// A compaction of a keyspace.
    Compact(usize),
    /// A sync.
    Sync,
}

/// Content of a thread's keys, by keyspace.
pub type ThreadMaps = [BTreeMap<Vec<u8>, Vec<u8>>; KEYSPACES.len()];

/// Progress of a thread.
#[derive(Debug, Clone, Default)]
pub struct ThreadProgress {
    /// Number of finished operations.
    pub done: u64,
    /// Content of the thread's keys after these operations.
    pub maps: ThreadMaps,
}

/// Returns the options of a folder's store: the store is always small; the seed decides about
/// threads, and in one of four folders single writes are synced.
pub fn options(seed: u64) -> Options {
    let is_synced = derive_seed(seed, 2).is_multiple_of(4);
    Options {
        create_if_missing: true,
        error_if_exists: false,
        durability: if is_synced { Durability::Synced } else { Durability::Buffered },
        cache_bytes: Some(1 << 20),
        memory_bytes: None,
        memory_budget: None,
        open_tables_max: None,
        direct_writes: Some(derive_seed(seed, 4).is_multiple_of(2)),
        before_flush: None,
        lock_wait: std::time::Duration::ZERO,
        background_threads: [2, 2, 1, 0][(derive_seed(seed, 1) % 4) as usize],
        log_segment_bytes: 64 << 10,
        // In every other folder the longest values are long values.
        inline_value_bytes_max: [1000, 1 << 20][(derive_seed(seed, 3) % 2) as usize],
        write_buffer_total_bytes: Some(96 << 10),
        env: Env::system(),
    }
}

/// The options of a keyspace.
pub fn keyspace_options(space: usize) -> KeyspaceOptions {
    // The last memtable is flushed only when all of them together exceed the limit.
    let memtable_bytes = [48 << 10, 24 << 10, 4 << 20][space];
    let compression = [Compression::None, Compression::Lz4, Compression::Zstd][space];
    KeyspaceOptions {
        bloom_bits: 10,
        memtable_bytes,
        table_bytes: 16 << 10,
        block_bytes: 1024,
        level_bytes_base: 64 << 10,
        level_ratio: 4,
        level0_tables: 2,
        compression: CompressionPlan::all(compression),
        // Each filter kind and a prefix filter, so that kills interrupt their writes.
        level_filters: (space == 2).then(|| {
            std::array::from_fn(|level| LevelFilter {
                kind: FilterKind::ALL[level % 6],
                bits_per_key: 10,
                probes: None,
            })
        }),
        prefix: (space == 1).then(|| KeyPrefix::fixed(3).ok()).flatten(),
        existence_filter: [
            ExistenceSize::Off,
            ExistenceSize::Growing { first_keys: 100 },
            ExistenceSize::Fixed { bytes: 64 << 10 },
        ][space],
        hash: [HashKind::Keyed, HashKind::SipHash13][space % 2],
        advisor: true,
        log: true,
    }
}

/// The first byte of a thread's keys.
pub fn thread_byte(thread: usize) -> u8 {
    b'a' + thread as u8
}

/// A thread's key.
pub fn key(thread: usize, number: u64) -> Vec<u8> {
    format!("{}{number:05}", thread_byte(thread) as char).into_bytes()
}

fn put(thread: usize, index: u64, random: &mut Random) -> KeyChange {
    let len = match random.below(40) {
        0 => 0,
        1 => 3000,
        _ => random.below(300) as usize,
    };
    // The value names the operation, so that a stale one is recognized.
    let mut value = format!("{thread}.{index}.").into_bytes();
    let bytes = random.bytes(len);
    if len > 0 {
        value.extend(bytes)
    } else {
        value.clear()
    }
    KeyChange::Put(key(thread, random.below(KEYS)), value)
}

fn delete(thread: usize, random: &mut Random) -> KeyChange {
    KeyChange::Delete(key(thread, random.below(KEYS)))
}

fn delete_range(thread: usize, random: &mut Random) -> KeyChange {
    let start = random.below(KEYS);
    KeyChange::DeleteRange(key(thread, start), key(thread, start + 1 + random.below(30)))
}

/// Returns the `index`-th operation of a thread in the store with this seed.
pub fn operation(seed: u64, thread: usize, index: u64) -> LoadOperation {
    let random = &mut Random::new(derive_seed(derive_seed(seed, thread as u64), index));
    let space = random.below(KEYSPACES.len() as u64) as usize;
    match random.below(1000) {
        0..=29 => {
            LoadOperation::Batch(Durability::Synced, vec![(space, put(thread, index, random))])
        }
        30..=179 => batch(thread, index, random),
        180..=309 => LoadOperation::Single(space, delete(thread, random)),
        310..=329 => LoadOperation::Single(space, delete_range(thread, random)),
        330..=331 => LoadOperation::Flush,
        332..=334 => LoadOperation::FlushKeyspace(space),
        335 => LoadOperation::Compact(space),
        336 => LoadOperation::Sync,
        _ => LoadOperation::Single(space, put(thread, index, random)),
    }
}

fn batch(thread: usize, index: u64, random: &mut Random) -> LoadOperation {
    let durability = if random.once_in(8) { Durability::Synced } else { Durability::Buffered };
    // Always every keyspace, so that a partial effect is noticed.
    let mut changes: Vec<(usize, KeyChange)> =
        (0..KEYSPACES.len()).map(|space| (space, put(thread, index, random))).collect();
    for _ in 0..random.below(12) {
        let space = random.below(KEYSPACES.len() as u64) as usize;
        let change = match random.below(8) {
            0 | 1 => delete(thread, random),
            2 => delete_range(thread, random),
            _ => put(thread, index, random),
        };
        changes.push((space, change));
    }
    LoadOperation::Batch(durability, changes)
}

impl ThreadProgress {
    /// Applies operations to the model until `count` are done.
    pub fn advance(&mut self, seed: u64, thread: usize, count: u64) {
        while self.done < count {
            match operation(seed, thread, self.done) {
                LoadOperation::Single(space, change) => self.change(space, change),
                LoadOperation::Batch(_, changes) => {
                    changes.into_iter().for_each(|(space, change)| self.change(space, change));
                }
                _ => {}
            }
            self.done += 1;
        }
    }

    fn change(&mut self, space: usize, change: KeyChange) {
        let map = &mut self.maps[space];
        match change {
            KeyChange::Put(key, value) => {
                map.insert(key, value);
            }
            KeyChange::Delete(key) => {
                map.remove(&key);
            }
            KeyChange::DeleteRange(start, end) => {
                map.extract_if(start..end, |_, _| true).for_each(drop);
            }
        }
    }
}

/// Applies an operation to the store.
pub fn perform(db: &Db, spaces: &[Keyspace], operation: LoadOperation) -> umbel::Result<()> {
    match operation {
        LoadOperation::Single(space, KeyChange::Put(key, value)) => spaces[space].put(key, value),
        LoadOperation::Single(space, KeyChange::Delete(key)) => spaces[space].delete(key),
        LoadOperation::Single(space, KeyChange::DeleteRange(start, end)) => {
            spaces[space].delete_range(start, end)
        }
        LoadOperation::Batch(durability, changes) => {
            let mut batch = db.batch();
            for (space, change) in &changes {
                match change {
                    KeyChange::Put(key, value) => batch.put(&spaces[*space], key, value),
                    KeyChange::Delete(key) => batch.delete(&spaces[*space], key),
                    KeyChange::DeleteRange(start, end) => {
                        batch.delete_range(&spaces[*space], start, end);
                    }
                }
            }
            batch.commit(durability)
        }
        LoadOperation::Flush => db.flush(),
        LoadOperation::FlushKeyspace(space) => spaces[space].flush(),
        LoadOperation::Compact(space) => spaces[space].compact(None, None),
        LoadOperation::Sync => db.sync(),
    }
}

/// Opens the keyspaces and creates missing ones.
pub fn open_keyspaces(db: &Db) -> umbel::Result<Vec<Keyspace>> {
    let names = KEYSPACES.iter().enumerate();
    names.map(|(space, name)| db.keyspace(name, keyspace_options(space))).collect()
}

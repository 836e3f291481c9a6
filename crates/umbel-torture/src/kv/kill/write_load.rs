//! What the killed process does: a stream of operations for each thread that its seed decides, so
//! that the survivor knows every state there may be.

use std::collections::BTreeMap;

use umbel::{
    Compression, CompressionPlan, Db, Durability, Env, ExistenceSize, FilterKind, HashKind,
    KeyPrefix, Keyspace, KeyspaceOptions, LevelFilter, Options,
};

use crate::random::{Random, join};

/// Writing threads, each with keys of its own.
pub const THREADS: usize = 4;
/// The keyspaces written to.
pub const SPACES: [&str; 3] = ["first", "second", "large"];
/// Keys of each thread in each keyspace.
pub const KEYS: u64 = 400;

/// One change of one key or range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A value for a key.
    Put(Vec<u8>, Vec<u8>),
    /// No value for a key.
    Delete(Vec<u8>),
    /// No value for the keys from the first up to the second.
    DeleteRange(Vec<u8>, Vec<u8>),
}

/// One operation, acknowledged as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// A single write to a keyspace.
    Single(usize, Change),
    /// Writes that happen together.
    Batch(Durability, Vec<(usize, Change)>),
    /// A flush of everything.
    Flush,
    /// A flush of a keyspace.
    FlushSpace(usize),
    /// A compaction of a keyspace.
    Compact(usize),
    /// A sync.
    Sync,
}

/// What a thread's keys hold, keyspace by keyspace.
pub type Maps = [BTreeMap<Vec<u8>, Vec<u8>>; SPACES.len()];

/// How far a thread has come.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    /// Operations done.
    pub done: u64,
    /// What they left.
    pub maps: Maps,
}

/// The options of a folder's store: always small, inline or with threads as the seed says, and in
/// one folder of four with single writes that are synced too.
pub fn options(seed: u64) -> Options {
    let is_synced = join(seed, 2).is_multiple_of(4);
    Options {
        create_if_missing: true,
        error_if_exists: false,
        durability: if is_synced { Durability::Synced } else { Durability::Buffered },
        cache_bytes: Some(1 << 20),
        memory_bytes: None,
        memory_budget: None,
        open_tables_max: None,
        direct_writes: Some(join(seed, 4).is_multiple_of(2)),
        before_flush: None,
        lock_wait: std::time::Duration::ZERO,
        background_threads: [2, 2, 1, 0][(join(seed, 1) % 4) as usize],
        log_segment_bytes: 64 << 10,
        // In every other folder the longest values get files of their own.
        inline_value_bytes_max: [1000, 1 << 20][(join(seed, 3) % 2) as usize],
        write_buffer_total_bytes: Some(96 << 10),
        env: Env::system(),
    }
}

/// The options of a keyspace.
pub fn space_options(space: usize) -> KeyspaceOptions {
    // The last one's memtable is flushed only when all of them together take too much.
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
        // Each kind once, and a prefix filter: that they were killed while written must show.
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

fn put(thread: usize, index: u64, random: &mut Random) -> Change {
    let len = match random.below(40) {
        0 => 0,
        1 => 3000,
        _ => random.below(300) as usize,
    };
    // The value names the operation, so that a stale one is seen for what it is.
    let mut value = format!("{thread}.{index}.").into_bytes();
    let bytes = random.bytes(len);
    if len > 0 {
        value.extend(bytes)
    } else {
        value.clear()
    }
    Change::Put(key(thread, random.below(KEYS)), value)
}

fn delete(thread: usize, random: &mut Random) -> Change {
    Change::Delete(key(thread, random.below(KEYS)))
}

fn delete_range(thread: usize, random: &mut Random) -> Change {
    let start = random.below(KEYS);
    Change::DeleteRange(key(thread, start), key(thread, start + 1 + random.below(30)))
}

/// The operation that a thread of the store with this seed does as its `index`-th.
pub fn operation(seed: u64, thread: usize, index: u64) -> Operation {
    let random = &mut Random::new(join(join(seed, thread as u64), index));
    let space = random.below(SPACES.len() as u64) as usize;
    match random.below(1000) {
        0..=29 => Operation::Batch(Durability::Synced, vec![(space, put(thread, index, random))]),
        30..=179 => batch(thread, index, random),
        180..=309 => Operation::Single(space, delete(thread, random)),
        310..=329 => Operation::Single(space, delete_range(thread, random)),
        330..=331 => Operation::Flush,
        332..=334 => Operation::FlushSpace(space),
        335 => Operation::Compact(space),
        336 => Operation::Sync,
        _ => Operation::Single(space, put(thread, index, random)),
    }
}

fn batch(thread: usize, index: u64, random: &mut Random) -> Operation {
    let durability = if random.once_in(8) { Durability::Synced } else { Durability::Buffered };
    // Always every keyspace, so that half of it would show.
    let mut changes: Vec<(usize, Change)> =
        (0..SPACES.len()).map(|space| (space, put(thread, index, random))).collect();
    for _ in 0..random.below(12) {
        let space = random.below(SPACES.len() as u64) as usize;
        let change = match random.below(8) {
            0 | 1 => delete(thread, random),
            2 => delete_range(thread, random),
            _ => put(thread, index, random),
        };
        changes.push((space, change));
    }
    Operation::Batch(durability, changes)
}

impl Progress {
    /// Does operations of the model until `count` are done.
    pub fn advance(&mut self, seed: u64, thread: usize, count: u64) {
        while self.done < count {
            match operation(seed, thread, self.done) {
                Operation::Single(space, change) => self.change(space, change),
                Operation::Batch(_, changes) => {
                    changes.into_iter().for_each(|(space, change)| self.change(space, change));
                }
                _ => {}
            }
            self.done += 1;
        }
    }

    fn change(&mut self, space: usize, change: Change) {
        let map = &mut self.maps[space];
        match change {
            Change::Put(key, value) => {
                map.insert(key, value);
            }
            Change::Delete(key) => {
                map.remove(&key);
            }
            Change::DeleteRange(start, end) => {
                map.extract_if(start..end, |_, _| true).for_each(drop);
            }
        }
    }
}

/// Does an operation to the store.
pub fn perform(db: &Db, spaces: &[Keyspace], operation: Operation) -> umbel::Result<()> {
    match operation {
        Operation::Single(space, Change::Put(key, value)) => spaces[space].put(key, value),
        Operation::Single(space, Change::Delete(key)) => spaces[space].delete(key),
        Operation::Single(space, Change::DeleteRange(start, end)) => {
            spaces[space].delete_range(start, end)
        }
        Operation::Batch(durability, changes) => {
            let mut batch = db.batch();
            for (space, change) in &changes {
                match change {
                    Change::Put(key, value) => batch.put(&spaces[*space], key, value),
                    Change::Delete(key) => batch.delete(&spaces[*space], key),
                    Change::DeleteRange(start, end) => {
                        batch.delete_range(&spaces[*space], start, end);
                    }
                }
            }
            batch.commit(durability)
        }
        Operation::Flush => db.flush(),
        Operation::FlushSpace(space) => spaces[space].flush(),
        Operation::Compact(space) => spaces[space].compact(None, None),
        Operation::Sync => db.sync(),
    }
}

/// The keyspaces, made where they are not there.
pub fn spaces(db: &Db) -> umbel::Result<Vec<Keyspace>> {
    let names = SPACES.iter().enumerate();
    names.map(|(space, name)| db.keyspace(name, space_options(space))).collect()
}

//! Scripts: short sequences of operations on a store with small limits, so that a few writes are
//! enough to flush, compact and rotate.

pub use umbel::KeyspaceOptions;
use umbel::{Compression, CompressionPlan, Durability, ExistenceSize, HashKind};

/// One write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Sets the value of a key of a keyspace.
    Put(&'static str, Vec<u8>, Vec<u8>),
    /// Deletes a key of a keyspace.
    Delete(&'static str, Vec<u8>),
    /// Deletes a range of keys of a keyspace.
    DeleteRange(&'static str, Vec<u8>, Vec<u8>),
}

impl Write {
    /// Returns the keyspace of the write.
    pub fn keyspace(&self) -> &'static str {
        match self {
            Write::Put(name, ..) | Write::Delete(name, _) | Write::DeleteRange(name, ..) => name,
        }
    }
}

/// Condition of a conditional batch.
#[derive(Debug, Clone)]
pub enum Condition {
    /// The key has no value.
    Absent(&'static str, Vec<u8>),
    /// The key has this value.
    Value(&'static str, Vec<u8>, Vec<u8>),
    /// The key was not written since the script's snapshot was taken.
    Unchanged(&'static str, Vec<u8>),
}

/// One step of a script.
#[derive(Debug, Clone)]
pub enum Op {
    /// Opens, creates or changes a keyspace.
    Keyspace(&'static str, KeyspaceOptions),
    /// Drops a keyspace.
    Drop(&'static str),
    /// A single put or delete, with the store's default durability.
    Single(Write),
    /// A batch, perhaps with conditions and markers.
    Batch {
        /// Writes of the batch.
        writes: Vec<Write>,
        /// Conditions of the batch.
        conditions: Vec<Condition>,
        /// Markers of keyspaces without a log.
        markers: Vec<(&'static str, Vec<u8>)>,
        /// Durability of the batch.
        durability: Durability,
    },
    /// Makes all earlier writes durable.
    Sync,
    /// Flushes every keyspace.
    Flush,
    /// Flushes one keyspace.
    FlushOne(&'static str),
    /// Flushes several keyspaces without a log together.
    FlushAll(Vec<&'static str>, Vec<u8>),
    /// Compacts a range of a keyspace.
    Compact(&'static str, Option<Vec<u8>>, Option<Vec<u8>>),
    /// Waits until all compactions are done.
    Settle,
    /// Takes the script's snapshot and replaces an earlier one.
    Snapshot,
    /// Reads the whole state of the snapshot and releases it.
    Release,
    /// Opens an iterator over a keyspace and keeps it.
    HoldIterator(&'static str),
    /// Reads the kept iterator to its end.
    ReadIterator,
    /// Copies the store by a checkpoint.
    Checkpoint(&'static str),
    /// Reads everything and compares it with the model.
    Read,
    /// Closes and opens again.
    Reopen,
    /// Closes by dropping the last handle and opens again.
    DropReopen,
    /// Closes, opens for reading only, reads, closes, opens again.
    ReadOnly,
    /// The process dies and the store is opened again.
    Kill,
    /// The process dies; the store is opened for reading only, then for writing.
    KillReadOnly,
    /// The power fails with losses that this number decides, and the store is opened again.
    PowerCut(u64),
    /// The process dies and leaves half a `CURRENT.new` and half a table; the store is then opened
    /// again.
    Leftovers,
    /// Another process tries to open the store and must be refused.
    SecondOpen,
}

/// A named sequence of operations.
#[derive(Debug, Clone)]
pub struct Script {
    /// Name of the script.
    pub name: String,
    /// The operations.
    pub ops: Vec<Op>,
    /// Durability of single writes.
    pub durability: Durability,
    /// Bytes of a log segment.
    pub log_segment_bytes: u64,
    /// Bytes of all memtables together.
    pub write_buffer_bytes: u64,
    /// Bytes of all memtables together in later opens, if different; if smaller, recovery writes
    /// the excess to tables.
    pub write_buffer_bytes_later: Option<u64>,
    /// Whether the store gets the smallest allowed memory and number of open table files.
    pub uses_minimum_memory: bool,
    /// Longest value without a file of its own.
    pub inline_value_bytes_max: usize,
    /// Whether the disk can map files.
    pub mapping: bool,
    /// Folder of the store.
    pub folder: &'static str,
}

/// Returns options of a keyspace with small limits.
pub fn small() -> KeyspaceOptions {
    KeyspaceOptions {
        bloom_bits: 10,
        memtable_bytes: 4096,
        table_bytes: 4096,
        block_bytes: 256,
        level_bytes_base: 8192,
        level_ratio: 2,
        level0_tables: 2,
        compression: CompressionPlan::default(),
        level_filters: None,
        prefix: None,
        existence_filter: ExistenceSize::Off,
        hash: HashKind::Keyed,
        advisor: true,
        log: true,
    }
}

/// Like [`small`], with a memtable that a script does not fill.
pub fn roomy() -> KeyspaceOptions {
    KeyspaceOptions { memtable_bytes: 1 << 20, ..small() }
}

/// Like [`roomy`], without a WAL.
pub fn unlogged() -> KeyspaceOptions {
    KeyspaceOptions { log: false, ..roomy() }
}

/// Adds an existence filter that grows several times within a script.
pub fn with_existence_filter(options: KeyspaceOptions) -> KeyspaceOptions {
    KeyspaceOptions { existence_filter: ExistenceSize::Growing { first_keys: 10 }, ..options }
}

/// Like [`small`], with another compression at each level.
pub fn compressed() -> KeyspaceOptions {
    let mut levels = [Compression::Zstd; umbel::limits::LEVELS];
    levels[0] = Compression::None;
    levels[1] = Compression::Lz4;
    KeyspaceOptions { compression: CompressionPlan { levels }, ..small() }
}

/// Returns the key with this number; keys are in the order of their numbers.
pub fn key(number: usize) -> Vec<u8> {
    format!("key{number:04}").into_bytes()
}

/// Returns a value that names its write.
pub fn value(number: usize, tag: &str, len: usize) -> Vec<u8> {
    let mut bytes = format!("{tag}-{number}-").into_bytes();
    while bytes.len() < len {
        bytes.push(b'a' + ((bytes.len() * 7 + number) % 26) as u8);
    }
    bytes
}

impl Script {
    /// Creates an empty script.
    pub fn new(name: &str) -> Script {
        Script {
            name: name.to_string(),
            ops: Vec::new(),
            durability: Durability::Buffered,
            log_segment_bytes: 4096,
            write_buffer_bytes: 64 << 10,
            write_buffer_bytes_later: None,
            uses_minimum_memory: false,
            inline_value_bytes_max: umbel::limits::INLINE_VALUE_BYTES_MAX,
            mapping: true,
            folder: "/data/store",
        }
    }

    /// Adds an operation.
    pub fn op(mut self, op: Op) -> Script {
        self.ops.push(op);
        self
    }

    /// Adds a keyspace.
    pub fn keyspace(self, name: &'static str, options: KeyspaceOptions) -> Script {
        self.op(Op::Keyspace(name, options))
    }

    /// Adds a put.
    pub fn put(self, name: &'static str, number: usize, tag: &str, len: usize) -> Script {
        self.op(Op::Single(Write::Put(name, key(number), value(number, tag, len))))
    }

    /// Adds puts of the keys in a range.
    pub fn fill(
        mut self,
        name: &'static str,
        numbers: std::ops::Range<usize>,
        tag: &str,
        len: usize,
    ) -> Script {
        for number in numbers {
            self = self.put(name, number, tag, len);
        }
        self
    }

    /// Adds a deletion.
    pub fn delete(self, name: &'static str, number: usize) -> Script {
        self.op(Op::Single(Write::Delete(name, key(number))))
    }

    /// Adds a deletion of a range.
    pub fn delete_range(self, name: &'static str, numbers: std::ops::Range<usize>) -> Script {
        self.op(Op::Single(Write::DeleteRange(name, key(numbers.start), key(numbers.end))))
    }

    /// Adds a batch.
    pub fn batch(self, durability: Durability, writes: Vec<Write>) -> Script {
        let (conditions, markers) = (Vec::new(), Vec::new());
        self.op(Op::Batch { writes, conditions, markers, durability })
    }

    /// Adds a batch with conditions.
    pub fn conditional_batch(
        self,
        durability: Durability,
        conditions: Vec<Condition>,
        writes: Vec<Write>,
    ) -> Script {
        self.op(Op::Batch { writes, conditions, markers: Vec::new(), durability })
    }

    /// Adds a buffered batch that sets a marker.
    pub fn marker_batch(self, name: &'static str, marker: &[u8], writes: Vec<Write>) -> Script {
        let markers = vec![(name, marker.to_vec())];
        let durability = Durability::Buffered;
        self.op(Op::Batch { writes, conditions: Vec::new(), markers, durability })
    }
}

/// Returns a put for a batch.
pub fn put(name: &'static str, number: usize, tag: &str, len: usize) -> Write {
    Write::Put(name, key(number), value(number, tag, len))
}

/// Returns a delete for a batch.
pub fn delete(name: &'static str, number: usize) -> Write {
    Write::Delete(name, key(number))
}

/// Returns a range delete for a batch.
pub fn delete_range(name: &'static str, numbers: std::ops::Range<usize>) -> Write {
    Write::DeleteRange(name, key(numbers.start), key(numbers.end))
}

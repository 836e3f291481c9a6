//! Engine fjall.

use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;
use umbel_base::ignore_poison::IgnorePoison;

use fjall::config::{
    BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry, HashRatioPolicy,
    PartitioningPolicy, PinningPolicy,
};
use fjall::{
    AbstractTree, CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode, Snapshot,
};
use umbel_lab::engine::{
    Counters, Engine, EngineSettings, ReadDigest, Reader, Result, Store, TunableSettings,
    WriteSource, take_batch,
};
use umbel_lab::measure::{now, pause};

pub const ENGINE: Engine = Engine {
    name: "fjall",
    missing_reason: None,
    settings: in_words,
    recommended: &[
        "https://docs.rs/fjall/latest/fjall/struct.KeyspaceCreateOptions.html",
        "https://docs.rs/crate/fjall/latest/source/src/keyspace/options.rs",
    ],
    tunes: TunableSettings {
        bloom_bits: true,
        bloom_bits_max: None,
        probes: false,
        memtable_bytes: true,
        spread: false,
    },
    multi_get: false,
    reuses_cursor: false,
    lsm: true,
    read_paths: &["lent"],
    fresh_read_path: 0,
    open,
};

/// Number of buckets of a block's hash index for each entry of the block.
const HASH_RATIO: f32 = 8.0;
const WORKERS: usize = 2;

/// Describes in words the settings of [`open`] that the run does not set.
fn in_words() -> String {
    let settings = EngineSettings::default();
    format!(
        "memtables of {} MiB (unless the run sets it; its makers advise 8 to 64) as the others \
         have them, hash index in blocks (ratio {HASH_RATIO}), filters of {} bits per key (unless \
         the run sets it) at every level (its own have more at level 0), filters and indexes whole \
         and pinned at every level, no compression, {WORKERS} workers for two processors, the \
         cache of the run; single puts, journal given to the kernel with each",
        settings.memtable_bytes >> 20,
        settings.bloom_bits,
    )
}

/// Time without any change after which the store counts as settled.
const QUIET: Duration = Duration::from_millis(500);

struct Fjall {
    db: Database,
    keyspace: Keyspace,
    /// Version of the tree when it was opened; each flush and compaction makes the next version.
    first_version: u64,
    snapshot: Mutex<Option<Snapshot>>,
}

fn options(settings: &EngineSettings) -> KeyspaceCreateOptions {
    let filters = match settings.bloom_bits {
        ..=0 => FilterPolicy::disabled(),
        bits => FilterPolicy::all(FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(
            bits as f32,
        ))),
    };
    KeyspaceCreateOptions::default()
        .max_memtable_size(settings.memtable_bytes)
        .data_block_compression_policy(CompressionPolicy::all(CompressionType::None))
        .index_block_compression_policy(CompressionPolicy::all(CompressionType::None))
        .data_block_hash_ratio_policy(HashRatioPolicy::all(HASH_RATIO))
        .filter_policy(filters)
        .filter_block_pinning_policy(PinningPolicy::all(true))
        .index_block_pinning_policy(PinningPolicy::all(true))
        .filter_block_partitioning_policy(PartitioningPolicy::all(false))
        .index_block_partitioning_policy(PartitioningPolicy::all(false))
}

fn open(folder: &Path, settings: &EngineSettings) -> Result<Box<dyn Store>> {
    let db = Database::builder(folder)
        .cache_size(settings.cache_bytes)
        .journal_compression(CompressionType::None)
        .worker_threads(WORKERS)
        .open()?;
    let keyspace = db.keyspace("default", || options(settings))?;
    let first_version = keyspace.tree.current_version().id();
    Ok(Box::new(Fjall { db, keyspace, first_version, snapshot: Mutex::new(None) }))
}

impl Store for Fjall {
    fn version(&self) -> String {
        super::crate_version("fjall")
    }

    fn write_all(&self, source: &mut dyn WriteSource) -> Result<()> {
        while let Some((key, value)) = source.next() {
            match value {
                Some(value) => self.keyspace.insert(key, value)?,
                None => self.keyspace.remove(key)?,
            }
        }
        Ok(())
    }

    fn write_in_batches(&self, source: &mut dyn WriteSource) -> Result<()> {
        loop {
            let mut batch = self.db.batch();
            let taken = take_batch(source, |(key, value)| {
                match value {
                    Some(value) => batch.insert(&self.keyspace, key, value),
                    None => batch.remove(&self.keyspace, key),
                }
                Ok(())
            })?;
            if taken == 0 {
                return Ok(());
            }
            batch.commit()?;
        }
    }

    fn put_synced(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.keyspace.insert(key, value)?;
        Ok(self.db.persist(PersistMode::SyncData)?)
    }

    fn flush(&self) -> Result<()> {
        Ok(self.keyspace.rotate_memtable_and_wait()?)
    }

    fn wait(&self) -> Result<Duration> {
        let mut completed = self.db.compactions_completed();
        let mut quiet_since = now();
        while quiet_since.elapsed() < QUIET {
            pause(Duration::from_millis(10));
            let busy = self.db.outstanding_flushes() > 0 || self.db.active_compactions() > 0;
            if busy || self.db.compactions_completed() != completed {
                completed = self.db.compactions_completed();
                quiet_since = now();
            }
        }
        Ok(quiet_since.elapsed())
    }

    fn compact(&self) -> Result<()> {
        Ok(self.keyspace.major_compact()?)
    }

    fn hold_snapshot(&self, hold: bool) -> Result<()> {
        let snapshot = hold.then(|| self.db.snapshot());
        *self.snapshot.lock().ignore_poison() = snapshot;
        Ok(())
    }

    fn reader(&self, _: usize) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(FjallReader { keyspace: &self.keyspace }))
    }

    fn counters(&self) -> Counters {
        let tree = &self.keyspace.tree;
        Counters {
            background_jobs: Some(tree.current_version().id().saturating_sub(self.first_version)),
            filter_bytes: Some(tree.pinned_filter_size() as u64),
            tables: Some(tree.table_count() as u64),
            ..Counters::default()
        }
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.hold_snapshot(false)?;
        Ok(self.db.persist(PersistMode::SyncAll)?)
    }
}

struct FjallReader<'a> {
    keyspace: &'a Keyspace,
}

impl Reader for FjallReader<'_> {
    fn get(&mut self, key: &[u8], tally: &mut ReadDigest) -> Result<()> {
        if let Some(value) = self.keyspace.get(key)? {
            tally.add_value(&value);
        }
        Ok(())
    }

    fn seek(&mut self, key: &[u8], entries: usize, tally: &mut ReadDigest) -> Result<()> {
        for guard in self.keyspace.range(key..).take(entries) {
            let (key, value) = guard.into_inner()?;
            tally.add_entry(&key, &value);
        }
        Ok(())
    }

    fn last(&mut self, tally: &mut ReadDigest) -> Result<bool> {
        if let Some(guard) = self.keyspace.iter().next_back() {
            let (key, value) = guard.into_inner()?;
            tally.add_entry(&key, &value);
        }
        Ok(true)
    }

    fn scan(&mut self, tally: &mut ReadDigest) -> Result<()> {
        for guard in self.keyspace.iter() {
            let (key, value) = guard.into_inner()?;
            tally.add_entry(&key, &value);
        }
        Ok(())
    }
}

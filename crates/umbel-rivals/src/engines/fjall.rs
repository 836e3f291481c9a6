//! fjall.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fjall::config::{
    BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry, HashRatioPolicy,
    PartitioningPolicy, PinningPolicy,
};
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, PersistMode, Snapshot};

use crate::engine::{Engine, Reader, Result, Settings, Source, Store, Tally};
use crate::measure::{now, pause};

pub const ENGINE: Engine = Engine {
    name: "fjall",
    missing: None,
    settings: "128 MiB memtables, hash index in blocks (ratio 8), filters of 10 bits per key, \
               filters and indexes whole and pinned at every level, no compression, 2 workers, the \
               cache of the run; single puts, journal given to the kernel with each",
    multi_get: false,
    kept_cursor: false,
    lsm: true,
    ways: &["lent"],
    fresh_way: 0,
    open,
};

/// How long nothing must happen before the store counts as settled.
const QUIET: Duration = Duration::from_millis(500);

struct Fjall {
    db: Database,
    keyspace: Keyspace,
    snapshot: Mutex<Option<Snapshot>>,
}

fn options() -> KeyspaceCreateOptions {
    let bloom = FilterPolicyEntry::Bloom(BloomConstructionPolicy::BitsPerKey(10.0));
    KeyspaceCreateOptions::default()
        .max_memtable_size(128 << 20)
        .data_block_compression_policy(CompressionPolicy::all(CompressionType::None))
        .index_block_compression_policy(CompressionPolicy::all(CompressionType::None))
        .data_block_hash_ratio_policy(HashRatioPolicy::all(8.0))
        .filter_policy(FilterPolicy::all(bloom))
        .filter_block_pinning_policy(PinningPolicy::all(true))
        .index_block_pinning_policy(PinningPolicy::all(true))
        .filter_block_partitioning_policy(PartitioningPolicy::all(false))
        .index_block_partitioning_policy(PartitioningPolicy::all(false))
}

fn open(folder: &Path, settings: &Settings) -> Result<Box<dyn Store>> {
    let db = Database::builder(folder)
        .cache_size(settings.cache_bytes)
        .journal_compression(CompressionType::None)
        .worker_threads(2)
        .open()?;
    let keyspace = db.keyspace("default", options)?;
    Ok(Box::new(Fjall { db, keyspace, snapshot: Mutex::new(None) }))
}

impl Store for Fjall {
    fn version(&self) -> String {
        super::built_with("fjall")
    }

    fn write_all(&self, source: &mut dyn Source) -> Result<()> {
        while let Some((key, value)) = source.next() {
            match value {
                Some(value) => self.keyspace.insert(key, value)?,
                None => self.keyspace.remove(key)?,
            }
        }
        Ok(())
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
        *self.snapshot.lock().unwrap_or_else(PoisonError::into_inner) = snapshot;
        Ok(())
    }

    fn reader(&self, _: usize) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(FjallReader { keyspace: &self.keyspace }))
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
    fn get(&mut self, key: &[u8], tally: &mut Tally) -> Result<()> {
        if let Some(value) = self.keyspace.get(key)? {
            tally.value(&value);
        }
        Ok(())
    }

    fn seek(&mut self, key: &[u8], entries: usize, tally: &mut Tally) -> Result<()> {
        for guard in self.keyspace.range(key..).take(entries) {
            let (key, value) = guard.into_inner()?;
            tally.entry(&key, &value);
        }
        Ok(())
    }

    fn scan(&mut self, tally: &mut Tally) -> Result<()> {
        for guard in self.keyspace.iter() {
            let (key, value) = guard.into_inner()?;
            tally.entry(&key, &value);
        }
        Ok(())
    }
}

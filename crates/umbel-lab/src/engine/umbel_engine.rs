//! Umbel as an engine of the lab.

use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;
use umbel_base::ignore_poison::IgnorePoison;

use umbel::{
    Batch, Compression, CompressionPlan, Db, DbCursor, Durability, FilterKind, Keyspace,
    KeyspaceOptions, LevelFilter, Options, Snapshot,
};

use crate::engine::{
    Counters, Engine, EngineSettings, FilterSpread, ReadDigest, Reader, Result, Store,
    TunableSettings, WriteSource, take_batch,
};

/// Entry of Umbel in a list of engines.
pub const ENGINE: Engine = Engine {
    name: "umbel",
    missing_reason: None,
    settings: in_words,
    recommended: &[],
    tunes: TunableSettings {
        bloom_bits: true,
        bloom_bits_max: None,
        probes: true,
        memtable_bytes: true,
        spread: true,
    },
    multi_get: true,
    reuses_cursor: true,
    lsm: true,
    read_paths: &["lent", "copied"],
    fresh_read_path: 0,
    open,
};

/// Limit of tables in level 0, so high that tables are never compacted into level 1.
const LEVEL0_TABLES_MAX: usize = 1000;

/// Returns the default options of [`open`] in words.
fn in_words() -> String {
    let settings = EngineSettings::default();
    let (options, keyspace) = (options(&settings), keyspace_options(&settings));
    let KeyspaceOptions { memtable_bytes, block_bytes, bloom_bits, table_bytes, .. } = keyspace;
    let compression = match keyspace.compression {
        plan if plan == CompressionPlan::all(Compression::None) => "no compression",
        _ => "compression by level",
    };
    format!(
        "{} MiB memtables, {} KiB blocks, {bloom_bits} bits per key at every level (these or as \
         the run says), filters {} an advisor (or as the run says), {} MiB tables, {compression}, \
         {} background threads, the cache of the run as the budget for all memory; single puts, \
         {:?}, log {}; read with values lent and cursors, and with values copied and iterators",
        memtable_bytes >> 20,
        block_bytes >> 10,
        if keyspace.advisor { "kept by" } else { "kept without" },
        table_bytes >> 20,
        options.background_threads,
        options.durability,
        if keyspace.log { "on" } else { "off" },
    )
}

struct UmbelStore {
    db: Db,
    keyspace: Keyspace,
    snapshot: Mutex<Option<Snapshot>>,
}

fn open(folder: &Path, settings: &EngineSettings) -> Result<Box<dyn Store>> {
    let db = Db::open(folder, options(settings))?;
    let keyspace = db.keyspace("default", keyspace_options(settings))?;
    Ok(Box::new(UmbelStore { db, keyspace, snapshot: Mutex::new(None) }))
}

fn options(settings: &EngineSettings) -> Options {
    // One budget for everything, as large as the caches of the other engines.
    Options { memory_bytes: Some(settings.cache_bytes), ..Options::default() }
}

fn keyspace_options(settings: &EngineSettings) -> KeyspaceOptions {
    let filter = |bits_per_key| {
        // A configured number of probes needs the standard filter; the blocked filter has a fixed
        // number.
        let kind = settings.probes.map_or(FilterKind::Blocked512, |_| FilterKind::Standard);
        LevelFilter { kind, bits_per_key, probes: settings.probes }
    };
    let levels = match (settings.spread, settings.probes) {
        (FilterSpread::Levels(bits), _) => Some(bits.map(filter)),
        (_, Some(_)) => Some([filter(settings.bloom_bits); 7]),
        (FilterSpread::Advised | FilterSpread::Uniform, None) => None,
    };
    let usual = KeyspaceOptions::default();
    KeyspaceOptions {
        bloom_bits: settings.bloom_bits,
        level_filters: levels,
        memtable_bytes: settings.memtable_bytes,
        advisor: settings.spread == FilterSpread::Advised,
        level0_tables: if settings.compacts { usual.level0_tables } else { LEVEL0_TABLES_MAX },
        ..usual
    }
}

impl Store for UmbelStore {
    fn version(&self) -> String {
        env!("CARGO_PKG_VERSION").to_string()
    }

    fn write_all(&self, source: &mut dyn WriteSource) -> Result<()> {
        while let Some((key, value)) = source.next() {
            match value {
                Some(value) => self.keyspace.put(key, value)?,
                None => self.keyspace.delete(key)?,
            }
        }
        Ok(())
    }

    fn write_in_batches(&self, source: &mut dyn WriteSource) -> Result<()> {
        let (keyspace, mut batch) = (&self.keyspace, self.db.batch());
        let mut fill = |batch: &mut Batch| {
            take_batch(source, |(key, value)| {
                match value {
                    Some(value) => batch.put(keyspace, key, value),
                    None => batch.delete(keyspace, key),
                }
                Ok(())
            })
        };
        while fill(&mut batch)? > 0 {
            batch.try_commit(Durability::Buffered)?;
        }
        Ok(())
    }

    fn delete_range(&self, start: &[u8], end: &[u8]) -> Result<bool> {
        self.keyspace.delete_range(start, end)?;
        Ok(true)
    }

    fn put_synced(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut batch = self.db.batch();
        batch.put(&self.keyspace, key, value);
        Ok(batch.commit(Durability::Synced)?)
    }

    fn flush(&self) -> Result<()> {
        Ok(self.keyspace.flush()?)
    }

    fn wait(&self) -> Result<Duration> {
        self.db.wait_for_compaction()?;
        Ok(Duration::ZERO)
    }

    fn compact(&self) -> Result<()> {
        Ok(self.keyspace.compact(None, None)?)
    }

    fn hold_snapshot(&self, hold: bool) -> Result<()> {
        let snapshot = hold.then(|| self.db.snapshot());
        *self.snapshot.lock().ignore_poison() = snapshot;
        Ok(())
    }

    fn reader(&self, way: usize) -> Result<Box<dyn Reader + '_>> {
        if way == 0 {
            return Ok(Box::new(LendingReader { keyspace: &self.keyspace, cursor: None }));
        }
        Ok(Box::new(CopyingReader { keyspace: &self.keyspace }))
    }

    fn counters(&self) -> Counters {
        counters(&self.db)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.hold_snapshot(false)?;
        Ok(self.db.close()?)
    }
}

/// Returns the counters of a store of Umbel.
pub fn counters(db: &Db) -> Counters {
    let stats = db.stats();
    let levels = || stats.keyspaces.iter().flat_map(|keyspace| &keyspace.levels);
    Counters {
        background_jobs: Some(levels().map(|level| level.compactions).sum()),
        blocks_loaded: Some(stats.cache_misses),
        filter_probes: Some(levels().map(|level| level.filter_probes).sum()),
        filter_negatives: Some(levels().map(|level| level.filter_true_negatives).sum()),
        filter_false_positives: Some(levels().map(|level| level.filter_false_positives).sum()),
        false_reads: Some(levels().map(|level| level.false_reads).sum()),
        filter_bytes: Some(levels().map(|level| level.filter_bytes_in_memory).sum()),
        write_amplification: Some(stats.write_amplification),
        tables: Some(levels().map(|level| level.tables).sum()),
        ..Counters::default()
    }
}

struct LendingReader<'a> {
    keyspace: &'a Keyspace,
    cursor: Option<DbCursor>,
}

fn count(cursor: &mut DbCursor, entries: usize, tally: &mut ReadDigest) -> Result<()> {
    for _ in 0..entries {
        if !cursor.valid() {
            break;
        }
        tally.add_entry(cursor.key(), cursor.value()?);
        cursor.next()?;
    }
    Ok(())
}

impl Reader for LendingReader<'_> {
    fn get(&mut self, key: &[u8], tally: &mut ReadDigest) -> Result<()> {
        self.keyspace.get_with(key, |value| tally.add_value(value))?;
        Ok(())
    }

    fn multi_get(&mut self, keys: &[Vec<u8>], tally: &mut ReadDigest) -> Result<()> {
        self.keyspace.multi_get_with(keys, |_, value| {
            if let Some(value) = value {
                tally.add_value(value);
            }
        })?;
        Ok(())
    }

    fn seek(&mut self, key: &[u8], entries: usize, tally: &mut ReadDigest) -> Result<()> {
        let mut cursor = self.keyspace.cursor::<&[u8]>(..)?;
        cursor.seek(key)?;
        count(&mut cursor, entries, tally)
    }

    fn seek_reusing_cursor(
        &mut self,
        key: &[u8],
        entries: usize,
        tally: &mut ReadDigest,
    ) -> Result<()> {
        let cursor = match &mut self.cursor {
            Some(cursor) => cursor,
            none => none.insert(self.keyspace.cursor::<&[u8]>(..)?),
        };
        cursor.seek(key)?;
        count(cursor, entries, tally)
    }

    fn last(&mut self, tally: &mut ReadDigest) -> Result<bool> {
        let mut cursor = self.keyspace.cursor::<&[u8]>(..)?;
        cursor.seek_to_last()?;
        if cursor.valid() {
            tally.add_entry(cursor.key(), cursor.value()?);
        }
        Ok(true)
    }

    fn scan(&mut self, tally: &mut ReadDigest) -> Result<()> {
        let mut cursor = self.keyspace.cursor::<&[u8]>(..)?;
        cursor.seek_to_first()?;
        count(&mut cursor, usize::MAX, tally)
    }
}

struct CopyingReader<'a> {
    keyspace: &'a Keyspace,
}

impl Reader for CopyingReader<'_> {
    fn get(&mut self, key: &[u8], tally: &mut ReadDigest) -> Result<()> {
        if let Some(value) = self.keyspace.get(key)? {
            tally.add_value(&value);
        }
        Ok(())
    }

    fn multi_get(&mut self, keys: &[Vec<u8>], tally: &mut ReadDigest) -> Result<()> {
        for value in self.keyspace.multi_get(keys)?.iter().flatten() {
            tally.add_value(value);
        }
        Ok(())
    }

    fn seek(&mut self, key: &[u8], entries: usize, tally: &mut ReadDigest) -> Result<()> {
        for entry in self.keyspace.range(key..).take(entries) {
            let (key, value) = entry?;
            tally.add_entry(&key, &value);
        }
        Ok(())
    }

    fn scan(&mut self, tally: &mut ReadDigest) -> Result<()> {
        for entry in self.keyspace.iter() {
            let (key, value) = entry?;
            tally.add_entry(&key, &value);
        }
        Ok(())
    }
}

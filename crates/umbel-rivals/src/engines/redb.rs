//! Engine redb.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;
use umbel_base::ignore_poison::IgnorePoison;

use redb::{
    Builder, Database, Durability, ReadOnlyTable, ReadTransaction, ReadableDatabase, ReadableTable,
    TableDefinition,
};
use umbel_lab::engine::{
    BATCH_ENTRIES, Counters, Engine, EngineSettings, ReadDigest, Reader, Result, Store, Write,
    WriteSource,
};

pub const ENGINE: Engine = Engine {
    name: "redb",
    missing_reason: None,
    settings: in_words,
    recommended: &[
        "https://github.com/cberner/redb/blob/master/crates/redb-bench/benches/lmdb_benchmark.rs",
        "https://docs.rs/redb/latest/redb/enum.Durability.html",
    ],
    tunes: super::NOT_TUNABLE,
    multi_get: false,
    reuses_cursor: false,
    lsm: false,
    read_paths: &["kept transaction", "transaction per call"],
    fresh_read_path: 1,
    open,
};

/// Durability of the transactions that fill the store.
const FILLING: Durability = Durability::None;
const ENTRIES: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("entries");

/// Describes in words what [`open`] and [`Store::write_all`] do.
fn in_words() -> String {
    format!(
        "filled in batches of {BATCH_ENTRIES} puts to a write transaction of durability \
         {FILLING:?}, which a killed process loses; read in one transaction kept open, and in a \
         transaction per call; a synced put is a durable transaction of its own; the cache of \
         the run, no filters; it has no threads of its own, its file is watched beside reads"
    )
}

struct Redb {
    folder: PathBuf,
    db: Database,
    snapshot: Mutex<Option<ReadTransaction>>,
}

fn open(folder: &Path, settings: &EngineSettings) -> Result<Box<dyn Store>> {
    let cache = usize::try_from(settings.cache_bytes)?;
    let db = Builder::new().set_cache_size(cache).create(folder.join("store.redb"))?;
    let folder = folder.to_path_buf();
    Ok(Box::new(Redb { folder, db, snapshot: Mutex::new(None) }))
}

impl Redb {
    /// Writes at most one batch. Returns whether more writes may follow.
    fn write_batch(&self, durability: Durability, source: &mut dyn WriteSource) -> Result<bool> {
        let mut transaction = self.db.begin_write()?;
        transaction.set_durability(durability)?;
        let mut full = true;
        let mut table = transaction.open_table(ENTRIES)?;
        for _ in 0..BATCH_ENTRIES {
            let Some((key, value)) = source.next() else {
                full = false;
                break;
            };
            match value {
                Some(value) => table.insert(key, value)?,
                None => table.remove(key)?,
            };
        }
        drop(table);
        transaction.commit()?;
        Ok(full)
    }
}

struct SingleWrite<'a>(Option<Write<'a>>);

impl WriteSource for SingleWrite<'_> {
    fn next(&mut self) -> Option<Write<'_>> {
        self.0.take()
    }
}

impl Store for Redb {
    fn version(&self) -> String {
        super::crate_version("redb")
    }

    fn write_all(&self, source: &mut dyn WriteSource) -> Result<()> {
        while self.write_batch(FILLING, source)? {}
        Ok(())
    }

    fn put_synced(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write_batch(Durability::Immediate, &mut SingleWrite(Some((key, Some(value)))))?;
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.write_batch(Durability::Immediate, &mut SingleWrite(None))?;
        Ok(())
    }

    fn wait(&self) -> Result<Duration> {
        Ok(Duration::ZERO)
    }

    fn compact(&self) -> Result<()> {
        Ok(())
    }

    fn hold_snapshot(&self, hold: bool) -> Result<()> {
        let snapshot = if hold { Some(self.db.begin_read()?) } else { None };
        *self.snapshot.lock().ignore_poison() = snapshot;
        Ok(())
    }

    fn reader(&self, read_path: usize) -> Result<Box<dyn Reader + '_>> {
        if read_path == 1 {
            return Ok(Box::new(RedbPerCallReader { db: &self.db }));
        }
        Ok(Box::new(RedbReader { table: self.db.begin_read()?.open_table(ENTRIES)? }))
    }

    fn counters(&self) -> Counters {
        super::file_counters(&self.folder)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.hold_snapshot(false)?;
        drop(self.db);
        Ok(())
    }
}

struct RedbReader {
    table: ReadOnlyTable<&'static [u8], &'static [u8]>,
}

impl Reader for RedbReader {
    fn get(&mut self, key: &[u8], tally: &mut ReadDigest) -> Result<()> {
        if let Some(value) = self.table.get(key)? {
            tally.add_value(value.value());
        }
        Ok(())
    }

    fn seek(&mut self, key: &[u8], entries: usize, tally: &mut ReadDigest) -> Result<()> {
        for entry in self.table.range(key..)?.take(entries) {
            let (key, value) = entry?;
            tally.add_entry(key.value(), value.value());
        }
        Ok(())
    }

    fn last(&mut self, tally: &mut ReadDigest) -> Result<bool> {
        if let Some((key, value)) = self.table.last()? {
            tally.add_entry(key.value(), value.value());
        }
        Ok(true)
    }

    fn scan(&mut self, tally: &mut ReadDigest) -> Result<()> {
        for entry in self.table.iter()? {
            let (key, value) = entry?;
            tally.add_entry(key.value(), value.value());
        }
        Ok(())
    }
}

struct RedbPerCallReader<'a> {
    db: &'a Database,
}

impl RedbPerCallReader<'_> {
    fn begin(&self) -> Result<RedbReader> {
        Ok(RedbReader { table: self.db.begin_read()?.open_table(ENTRIES)? })
    }
}

impl Reader for RedbPerCallReader<'_> {
    fn get(&mut self, key: &[u8], tally: &mut ReadDigest) -> Result<()> {
        self.begin()?.get(key, tally)
    }

    fn multi_get(&mut self, keys: &[Vec<u8>], tally: &mut ReadDigest) -> Result<()> {
        self.begin()?.multi_get(keys, tally)
    }

    fn seek(&mut self, key: &[u8], entries: usize, tally: &mut ReadDigest) -> Result<()> {
        self.begin()?.seek(key, entries, tally)
    }

    fn last(&mut self, tally: &mut ReadDigest) -> Result<bool> {
        self.begin()?.last(tally)
    }

    fn scan(&mut self, tally: &mut ReadDigest) -> Result<()> {
        self.begin()?.scan(tally)
    }
}

//! redb.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use redb::{
    Builder, Database, Durability, ReadOnlyTable, ReadTransaction, ReadableDatabase, ReadableTable,
    TableDefinition,
};
use umbel_lab::engine::{
    BATCH_ENTRIES, Counters, Engine, Reader, Result, Settings, Source, Store, Tally, Write,
};

pub const ENGINE: Engine = Engine {
    name: "redb",
    missing: None,
    settings: in_words,
    recommended: &[
        "https://github.com/cberner/redb/blob/master/crates/redb-bench/benches/lmdb_benchmark.rs",
        "https://docs.rs/redb/latest/redb/enum.Durability.html",
    ],
    tunes: super::UNTUNED,
    multi_get: false,
    kept_cursor: false,
    lsm: false,
    ways: &["kept transaction", "transaction per call"],
    fresh_way: 1,
    open,
};

/// How they are filled.
const FILLING: Durability = Durability::None;
const ENTRIES: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("entries");

/// What [`open`] and [`Store::write_all`] do, in words.
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

fn open(folder: &Path, settings: &Settings) -> Result<Box<dyn Store>> {
    let cache = usize::try_from(settings.cache_bytes)?;
    let db = Builder::new().set_cache_size(cache).create(folder.join("store.redb"))?;
    let folder = folder.to_path_buf();
    Ok(Box::new(Redb { folder, db, snapshot: Mutex::new(None) }))
}

impl Redb {
    /// Writes up to a batch. Whether there may be more.
    fn write_batch(&self, durability: Durability, source: &mut dyn Source) -> Result<bool> {
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

struct One<'a>(Option<Write<'a>>);

impl Source for One<'_> {
    fn next(&mut self) -> Option<Write<'_>> {
        self.0.take()
    }
}

impl Store for Redb {
    fn version(&self) -> String {
        super::built_with("redb")
    }

    fn write_all(&self, source: &mut dyn Source) -> Result<()> {
        while self.write_batch(FILLING, source)? {}
        Ok(())
    }

    fn put_synced(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write_batch(Durability::Immediate, &mut One(Some((key, Some(value)))))?;
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.write_batch(Durability::Immediate, &mut One(None))?;
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
        *self.snapshot.lock().unwrap_or_else(PoisonError::into_inner) = snapshot;
        Ok(())
    }

    fn reader(&self, way: usize) -> Result<Box<dyn Reader + '_>> {
        if way == 1 {
            return Ok(Box::new(PerCall { db: &self.db }));
        }
        Ok(Box::new(RedbReader { table: self.db.begin_read()?.open_table(ENTRIES)? }))
    }

    fn counters(&self) -> Counters {
        super::watched_files(&self.folder)
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
    fn get(&mut self, key: &[u8], tally: &mut Tally) -> Result<()> {
        if let Some(value) = self.table.get(key)? {
            tally.value(value.value());
        }
        Ok(())
    }

    fn seek(&mut self, key: &[u8], entries: usize, tally: &mut Tally) -> Result<()> {
        for entry in self.table.range(key..)?.take(entries) {
            let (key, value) = entry?;
            tally.entry(key.value(), value.value());
        }
        Ok(())
    }

    fn scan(&mut self, tally: &mut Tally) -> Result<()> {
        for entry in self.table.iter()? {
            let (key, value) = entry?;
            tally.entry(key.value(), value.value());
        }
        Ok(())
    }
}

struct PerCall<'a> {
    db: &'a Database,
}

impl PerCall<'_> {
    fn begin(&self) -> Result<RedbReader> {
        Ok(RedbReader { table: self.db.begin_read()?.open_table(ENTRIES)? })
    }
}

impl Reader for PerCall<'_> {
    fn get(&mut self, key: &[u8], tally: &mut Tally) -> Result<()> {
        self.begin()?.get(key, tally)
    }

    fn multi_get(&mut self, keys: &[Vec<u8>], tally: &mut Tally) -> Result<()> {
        self.begin()?.multi_get(keys, tally)
    }

    fn seek(&mut self, key: &[u8], entries: usize, tally: &mut Tally) -> Result<()> {
        self.begin()?.seek(key, entries, tally)
    }

    fn scan(&mut self, tally: &mut Tally) -> Result<()> {
        self.begin()?.scan(tally)
    }
}

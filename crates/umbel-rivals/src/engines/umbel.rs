//! Umbel.

use std::path::Path;
use std::time::Duration;

use umbel::{Db, Durability, Keyspace, KeyspaceOptions, Options};

use crate::engine::{Engine, Reader, Result, Settings, Source, Store, Tally};

pub const ENGINE: Engine = Engine {
    name: "umbel",
    missing: None,
    settings: "defaults (64 MiB memtables, 4 KiB blocks, 10 bits per key at every level, no \
               compression, 2 background threads) with the cache of the run; single puts, \
               buffered, log on; reads lend the value",
    multi_get: true,
    open,
};

struct Umbel {
    db: Db,
    keyspace: Keyspace,
}

fn open(folder: &Path, settings: &Settings) -> Result<Box<dyn Store>> {
    let options = Options { cache_bytes: settings.cache_bytes, ..Options::default() };
    let db = Db::open(folder, options)?;
    let keyspace = db.keyspace("default", KeyspaceOptions::default())?;
    Ok(Box::new(Umbel { db, keyspace }))
}

impl Store for Umbel {
    fn version(&self) -> String {
        super::built_with("umbel")
    }

    fn write_all(&self, source: &mut dyn Source) -> Result<()> {
        while let Some((key, value)) = source.next() {
            self.keyspace.put(key, value)?;
        }
        Ok(())
    }

    fn put_synced(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut batch = self.db.batch();
        batch.put(&self.keyspace, key, value);
        Ok(batch.commit(Durability::Synced)?)
    }

    fn settle(&self) -> Result<Duration> {
        self.keyspace.flush()?;
        self.db.wait_for_compaction()?;
        Ok(Duration::ZERO)
    }

    fn compact(&self) -> Result<()> {
        Ok(self.keyspace.compact(None, None)?)
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(UmbelReader { keyspace: &self.keyspace }))
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.db.close()?)
    }
}

struct UmbelReader<'a> {
    keyspace: &'a Keyspace,
}

impl Reader for UmbelReader<'_> {
    fn get(&mut self, key: &[u8], tally: &mut Tally) -> Result<()> {
        self.keyspace.get_with(key, |value| tally.value(value))?;
        Ok(())
    }

    fn multi_get(&mut self, keys: &[Vec<u8>], tally: &mut Tally) -> Result<()> {
        for value in self.keyspace.multi_get(keys)?.iter().flatten() {
            tally.value(value);
        }
        Ok(())
    }

    fn seek(&mut self, key: &[u8], entries: usize, tally: &mut Tally) -> Result<()> {
        let mut cursor = self.keyspace.cursor::<&[u8]>(..)?;
        cursor.seek(key)?;
        for _ in 0..entries {
            if !cursor.valid() {
                break;
            }
            tally.entry(cursor.key(), cursor.value());
            cursor.next()?;
        }
        Ok(())
    }

    fn scan(&mut self, tally: &mut Tally) -> Result<()> {
        let mut cursor = self.keyspace.cursor::<&[u8]>(..)?;
        cursor.seek_to_first()?;
        while cursor.valid() {
            tally.entry(cursor.key(), cursor.value());
            cursor.next()?;
        }
        Ok(())
    }
}

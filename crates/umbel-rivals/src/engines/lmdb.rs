//! LMDB, through heed.

use std::path::Path;
use std::time::Duration;

use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, FlagSetMode, RoTxn, WithTls};

use crate::engine::{Engine, Failure, Reader, Result, Settings, Source, Store, Tally};

pub const ENGINE: Engine = Engine {
    name: "lmdb",
    missing: None,
    settings: "filled in batches of 1000 puts to a write transaction with MDB_NOSYNC (survives the \
               process, not the machine); reads in one transaction kept open; a synced put is a \
               synced transaction of its own; no cache of its own, no filters",
    multi_get: false,
    open,
};

/// Puts to a write transaction while filling.
const BATCH: usize = 1000;
/// Address space for the file, which grows as it is needed.
const MAP_BYTES: usize = 64 << 30;

type Entries = Database<'static, Bytes, Bytes>;

struct Lmdb {
    env: Env,
    entries: Entries,
}

fn open(folder: &Path, _: &Settings) -> Result<Box<dyn Store>> {
    let mut options = EnvOpenOptions::new();
    options.map_size(MAP_BYTES);
    // SAFETY: the folder was made for this run and nobody else knows of it, so the file is changed
    // through LMDB only; it is on a local file system; and the lock file is used.
    let env = unsafe { options.open(folder)? };
    let transaction = env.write_txn()?;
    let entries = env
        .create_databases_and_commit(transaction, |opener, transaction| {
            let created = opener.create_database(transaction, None)?;
            Ok::<_, heed::Error>(CommitOrAbort::<_, ()>::Commit(created))
        })?
        .unwrap_commit();
    Ok(Box::new(Lmdb { env, entries }))
}

impl Lmdb {
    fn sync_commits(&self, sync: bool) -> Result<()> {
        let mode = if sync { FlagSetMode::Disable } else { FlagSetMode::Enable };
        // SAFETY: flags are set from the thread that fills, when no other thread uses the store.
        // Without syncs a crash of the machine may damage the file, which lives for this run only;
        // the file is not mapped for writing, so nothing else depends on the flag.
        unsafe { self.env.set_flags(EnvFlags::NO_SYNC, mode)? };
        Ok(())
    }

    fn write_batches(&self, source: &mut dyn Source) -> Result<()> {
        let mut full = true;
        while full {
            let mut transaction = self.env.write_txn()?;
            for _ in 0..BATCH {
                let Some((key, value)) = source.next() else {
                    full = false;
                    break;
                };
                self.entries.put(&mut transaction, key, value)?;
            }
            transaction.commit()?;
        }
        Ok(())
    }
}

impl Store for Lmdb {
    fn version(&self) -> String {
        let version = heed::lmdb_version();
        format!("{}.{}.{}", version.major, version.minor, version.patch)
    }

    fn write_all(&self, source: &mut dyn Source) -> Result<()> {
        self.sync_commits(false)?;
        let written = self.write_batches(source);
        self.sync_commits(true)?;
        written
    }

    fn put_synced(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut transaction = self.env.write_txn()?;
        self.entries.put(&mut transaction, key, value)?;
        Ok(transaction.commit()?)
    }

    fn settle(&self) -> Result<Duration> {
        self.env.force_sync()?;
        Ok(Duration::ZERO)
    }

    fn compact(&self) -> Result<()> {
        Ok(())
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(LmdbReader { transaction: self.env.read_txn()?, entries: self.entries }))
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.env.force_sync()?;
        let closing = self.env.prepare_for_closing();
        closing.wait();
        Ok(())
    }
}

struct LmdbReader<'a> {
    transaction: RoTxn<'a, WithTls>,
    entries: Entries,
}

impl Reader for LmdbReader<'_> {
    fn get(&mut self, key: &[u8], tally: &mut Tally) -> Result<()> {
        if let Some(value) = self.entries.get(&self.transaction, key)? {
            tally.value(value);
        }
        Ok(())
    }

    fn seek(&mut self, key: &[u8], entries: usize, tally: &mut Tally) -> Result<()> {
        use std::ops::Bound;
        let range = (Bound::Included(key), Bound::Unbounded);
        for entry in self.entries.range(&self.transaction, &range)?.take(entries) {
            let (key, value) = entry?;
            tally.entry(key, value);
        }
        Ok(())
    }

    fn scan(&mut self, tally: &mut Tally) -> Result<()> {
        self.entries.iter(&self.transaction)?.try_for_each(|entry| {
            let (key, value) = entry?;
            tally.entry(key, value);
            Ok::<(), Failure>(())
        })
    }
}

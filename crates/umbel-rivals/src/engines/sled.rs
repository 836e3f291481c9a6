//! Engine sled.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sled::{Batch, Config, Db, Mode};
use umbel_lab::engine::{
    Counters, Engine, EngineSettings, ReadDigest, Reader, Result, Store, WriteSource, take_batch,
};

pub const ENGINE: Engine = Engine {
    name: "sled",
    missing_reason: None,
    settings: in_words,
    recommended: &[
        "https://docs.rs/sled/0.34.7/sled/struct.Config.html",
        "https://docs.rs/crate/sled/0.34.7/source/README.md",
    ],
    tunes: super::NOT_TUNABLE,
    multi_get: false,
    reuses_cursor: false,
    lsm: false,
    read_paths: &["lent"],
    fresh_read_path: 0,
    open,
};

/// Interval at which sled writes and syncs buffered data, which is sled's default.
const FLUSH_EVERY_MS: u64 = 500;

/// Describes in words what [`open`] sets.
fn in_words() -> String {
    format!(
        "its defaults with the mode of high throughput and the cache of the run; no compression, \
         no filters; single puts that wait in its own memory until it writes and syncs them, every \
         {FLUSH_EVERY_MS} ms, so that a killed process loses later writes; a synced put is one \
         put, a flush of everything and, as its flush leaves the device's own cache as it is, a \
         sync of its log; it has no snapshots, so none is held while it is read; it does not \
         report background work, so its files and threads are watched"
    )
}

struct Sled {
    db: Db,
    /// Log file of the store, which holds everything except values longer than those of this
    /// comparison.
    log: File,
    folder: PathBuf,
}

fn open(folder: &Path, settings: &EngineSettings) -> Result<Box<dyn Store>> {
    let config =
        Config::new().path(folder).mode(Mode::HighThroughput).cache_capacity(settings.cache_bytes);
    let config = config.flush_every_ms(Some(FLUSH_EVERY_MS)).use_compression(false);
    let db = config.open()?;
    let log = File::open(folder.join("db"))?;
    Ok(Box::new(Sled { db, log, folder: folder.to_path_buf() }))
}

impl Store for Sled {
    fn version(&self) -> String {
        super::crate_version("sled")
    }

    fn write_all(&self, source: &mut dyn WriteSource) -> Result<()> {
        while let Some((key, value)) = source.next() {
            match value {
                Some(value) => self.db.insert(key, value)?,
                None => self.db.remove(key)?,
            };
        }
        Ok(())
    }

    fn write_in_batches(&self, source: &mut dyn WriteSource) -> Result<()> {
        loop {
            let mut batch = Batch::default();
            let taken = take_batch(source, |(key, value)| {
                match value {
                    Some(value) => batch.insert(key, value),
                    None => batch.remove(key),
                }
                Ok(())
            })?;
            if taken == 0 {
                return Ok(());
            }
            self.db.apply_batch(batch)?;
        }
    }

    fn put_synced(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.db.insert(key, value)?;
        self.flush()?;
        Ok(self.log.sync_data()?)
    }

    fn flush(&self) -> Result<()> {
        self.db.flush()?;
        Ok(())
    }

    fn wait(&self) -> Result<Duration> {
        super::wait_until_quiet(&self.folder)
    }

    fn compact(&self) -> Result<()> {
        Ok(())
    }

    fn hold_snapshot(&self, _: bool) -> Result<()> {
        Ok(())
    }

    fn reader(&self, _: usize) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(SledReader { db: &self.db }))
    }

    fn counters(&self) -> Counters {
        super::file_counters(&self.folder)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.flush()
    }
}

struct SledReader<'a> {
    db: &'a Db,
}

impl Reader for SledReader<'_> {
    fn get(&mut self, key: &[u8], tally: &mut ReadDigest) -> Result<()> {
        if let Some(value) = self.db.get(key)? {
            tally.add_value(&value);
        }
        Ok(())
    }

    fn seek(&mut self, key: &[u8], entries: usize, tally: &mut ReadDigest) -> Result<()> {
        for entry in self.db.range(key..).take(entries) {
            let (key, value) = entry?;
            tally.add_entry(&key, &value);
        }
        Ok(())
    }

    fn scan(&mut self, tally: &mut ReadDigest) -> Result<()> {
        for entry in self.db.iter() {
            let (key, value) = entry?;
            tally.add_entry(&key, &value);
        }
        Ok(())
    }
}

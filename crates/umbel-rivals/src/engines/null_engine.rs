//! Engine that does nothing: its times are those of the harness. Only synced puts do work: each is
//! a bare fsync, which is an upper bound for any engine that syncs puts one after the other.

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use umbel_lab::engine::{Engine, EngineSettings, ReadDigest, Reader, Result, Store, WriteSource};

pub const ENGINE: Engine = Engine {
    name: "none",
    missing_reason: None,
    settings: in_words,
    recommended: &[],
    tunes: super::NOT_TUNABLE,
    multi_get: true,
    reuses_cursor: true,
    lsm: false,
    read_paths: &["lent"],
    fresh_read_path: 0,
    open,
};

const VALUE: [u8; 100] = [1; 100];
/// Bytes of a record of the synced file.
const RECORD: [u8; 128] = [2; 128];
const RECORDS: u64 = 1 << 16;

/// Describes in words what the engine does.
fn in_words() -> String {
    format!(
        "returns the same value to every read: its times are those of the harness; a synced \
         put writes {} bytes into a file that was written before, and syncs its data",
        RECORD.len()
    )
}

struct NullStore {
    entries: AtomicU64,
    records: AtomicU64,
    log: File,
}

fn open(folder: &Path, _: &EngineSettings) -> Result<Box<dyn Store>> {
    let path = folder.join("log");
    let written = path.exists();
    let log = File::options().write(true).create(true).truncate(false).open(path)?;
    if !written {
        log.write_all_at(&vec![0; RECORD.len() * RECORDS as usize], 0)?;
        log.sync_all()?;
    }
    let (entries, records) = (AtomicU64::new(0), AtomicU64::new(0));
    Ok(Box::new(NullStore { entries, records, log }))
}

impl Store for NullStore {
    fn version(&self) -> String {
        "-".to_string()
    }

    fn write_all(&self, source: &mut dyn WriteSource) -> Result<()> {
        while let Some(entry) = source.next() {
            black_box(entry);
            self.entries.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn put_synced(&self, key: &[u8], value: &[u8]) -> Result<()> {
        black_box((key, value));
        let record = self.records.fetch_add(1, Ordering::Relaxed) % RECORDS;
        self.log.write_all_at(&RECORD, record * RECORD.len() as u64)?;
        Ok(self.log.sync_data()?)
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn wait(&self) -> Result<Duration> {
        Ok(Duration::ZERO)
    }

    fn compact(&self) -> Result<()> {
        Ok(())
    }

    fn hold_snapshot(&self, _: bool) -> Result<()> {
        Ok(())
    }

    fn reader(&self, _: usize) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(NullReader { entries: self.entries.load(Ordering::Relaxed) }))
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

struct NullReader {
    entries: u64,
}

impl Reader for NullReader {
    fn get(&mut self, key: &[u8], tally: &mut ReadDigest) -> Result<()> {
        black_box(key);
        tally.add_value(black_box(&VALUE));
        Ok(())
    }

    fn seek(&mut self, key: &[u8], entries: usize, tally: &mut ReadDigest) -> Result<()> {
        for _ in 0..entries {
            tally.add_entry(black_box(key), black_box(&VALUE));
        }
        Ok(())
    }

    fn scan(&mut self, tally: &mut ReadDigest) -> Result<()> {
        for _ in 0..self.entries {
            tally.add_entry(black_box(&VALUE[..16]), black_box(&VALUE));
        }
        Ok(())
    }
}

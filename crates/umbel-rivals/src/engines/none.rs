//! The engine that does nothing: what it takes is the harness's own.

use std::hint::black_box;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::engine::{Engine, Reader, Result, Settings, Source, Store, Tally};

pub const ENGINE: Engine = Engine {
    name: "none",
    missing: None,
    settings: "answers every question with the same value: what it takes is the harness's own",
    multi_get: true,
    open,
};

const VALUE: [u8; 100] = [1; 100];

struct Nothing {
    entries: AtomicU64,
}

fn open(_: &Path, _: &Settings) -> Result<Box<dyn Store>> {
    Ok(Box::new(Nothing { entries: AtomicU64::new(0) }))
}

impl Store for Nothing {
    fn version(&self) -> String {
        "-".to_string()
    }

    fn write_all(&self, source: &mut dyn Source) -> Result<()> {
        while let Some(entry) = source.next() {
            black_box(entry);
            self.entries.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn put_synced(&self, key: &[u8], value: &[u8]) -> Result<()> {
        black_box((key, value));
        Ok(())
    }

    fn settle(&self) -> Result<Duration> {
        Ok(Duration::ZERO)
    }

    fn compact(&self) -> Result<()> {
        Ok(())
    }

    fn reader(&self) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(NoneReader { entries: self.entries.load(Ordering::Relaxed) }))
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

struct NoneReader {
    entries: u64,
}

impl Reader for NoneReader {
    fn get(&mut self, key: &[u8], tally: &mut Tally) -> Result<()> {
        black_box(key);
        tally.value(black_box(&VALUE));
        Ok(())
    }

    fn seek(&mut self, key: &[u8], entries: usize, tally: &mut Tally) -> Result<()> {
        for _ in 0..entries {
            tally.entry(black_box(key), black_box(&VALUE));
        }
        Ok(())
    }

    fn scan(&mut self, tally: &mut Tally) -> Result<()> {
        for _ in 0..self.entries {
            tally.entry(black_box(&VALUE[..16]), black_box(&VALUE));
        }
        Ok(())
    }
}

//! Tests of files whose calls fail: the caller gets the file's error, never "not found", the end of
//! a scan or a finished table.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use umbel_base::{Cursor, Error, Result, ValueKind};
use umbel_env::{File, FileIdentity, Mapping};
use umbel_table::{Compression, Table, TableBuilder, UnboundedCache};

use crate::fixture::{Model, TABLE_ID, hasher, options, walk};
use umbel_env::memory_file::MemoryFile;

/// A file in memory of which every call after the first `left` fails.
#[derive(Debug)]
struct FailingFile {
    inner: MemoryFile,
    left: AtomicU64,
}

impl FailingFile {
    fn new(inner: &MemoryFile, left: u64) -> Arc<FailingFile> {
        Arc::new(FailingFile { inner: inner.clone(), left: AtomicU64::new(left) })
    }

    fn call(&self, operation: &str) -> Result<()> {
        let step = |left: u64| left.checked_sub(1);
        if self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, step).is_ok() {
            return Ok(());
        }
        Err(Error::io(operation, self.path(), io::Error::other("made to fail")))
    }
}

impl File for FailingFile {
    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn identity(&self) -> Result<FileIdentity> {
        Ok(FileIdentity { device: 0, inode: 0 })
    }

    fn modified_micros(&self) -> Result<u64> {
        self.inner.modified_micros()
    }

    fn len(&self) -> Result<u64> {
        self.inner.len()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.call("read")?;
        self.inner.read_at(buffer, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.call("write")?;
        self.inner.write_all_at(bytes, offset)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.inner.set_len(len)
    }

    fn preallocate(&self, len: u64) -> Result<()> {
        self.inner.preallocate(len)
    }

    fn sync(&self) -> Result<()> {
        self.call("sync")
    }

    fn map(&self, len: u64) -> Result<Option<Box<dyn Mapping>>> {
        self.inner.map(len)
    }
}

fn model() -> Model {
    let mut model = Model::default();
    for number in 0..400u64 {
        model.put(format!("k{number:04}").as_bytes(), 3, &[number as u8; 50]);
    }
    model
}

fn is_io<T>(result: &Result<T>) -> bool {
    matches!(result, Err(Error::Io { .. }))
}

#[test]
fn failed_read_is_an_error_and_a_retry_succeeds() {
    let model = model();
    let (file, meta) = model.build(options(256, Compression::None));
    let failing = FailingFile::new(&file, u64::MAX);
    let shared: Arc<dyn File> = Arc::<FailingFile>::clone(&failing);
    let table = Table::open(shared, &meta, Some(&hasher()), Arc::new(UnboundedCache));
    let table = Arc::new(table.unwrap());
    for (key, (sequence, _, value)) in model.list().iter().step_by(7) {
        let hash = hasher().keys.hash(key);
        let get = || table.get_with(key, hash, *sequence, |_, _, found| found == value);
        failing.left.store(0, Ordering::Relaxed);
        assert!(is_io(&get()), "neither found nor not found");
        failing.left.store(u64::MAX, Ordering::Relaxed);
        assert_eq!(get().unwrap(), Some(true), "the failure left no state");
    }
    let blocks = u64::from(meta.blocks);
    for fill_cache in [false, true] {
        for left in [0, 1, 2, blocks / 3] {
            for block in 0..meta.blocks {
                table.slots().evict(block);
            }
            failing.left.store(left, Ordering::Relaxed);
            let mut cursor = table.cursor(fill_cache);
            let mut moved = cursor.seek_to_first();
            let mut seen = 0;
            while moved.is_ok() && cursor.valid() {
                seen += 1;
                moved = cursor.next();
            }
            // A cursor that reads ahead may have all it needs by then.
            assert!(is_io(&moved) || !fill_cache && seen == model.entries.len());
            assert!(!cursor.valid());
            failing.left.store(u64::MAX, Ordering::Relaxed);
            assert!(walk(&table, fill_cache).unwrap() == model.list());
        }
    }
}

#[test]
fn opening_fails_wherever_a_read_fails() {
    let (file, meta) = model().build(options(256, Compression::None));
    let open = |left| {
        Table::open(FailingFile::new(&file, left), &meta, Some(&hasher()), Arc::new(UnboundedCache))
    };
    let first_good = (0..20).find(|&left| open(left).is_ok()).unwrap();
    assert!(first_good >= 4, "footer, properties, index and filter are read");
    assert!((0..first_good).all(|left| is_io(&open(left))));
}

#[test]
fn writing_fails_wherever_a_write_or_the_sync_fails() {
    let write = |left| {
        let file = FailingFile::new(&MemoryFile::default(), left);
        let mut builder =
            TableBuilder::new(file, TABLE_ID, hasher(), options(4096, Compression::None));
        for number in 0..9000u32 {
            builder.add(&number.to_be_bytes(), 1, ValueKind::Put, &[7; 100])?;
        }
        builder.finish()
    };
    let first_good = (0..20).find(|&left| write(left).is_ok()).unwrap();
    assert!(first_good >= 4, "some pieces, the rest and the sync");
    assert!((0..first_good).all(|left| is_io(&write(left))));
}

//! RocksDB, through its C interface.
//!
//! INVARIANT: the pointers of a [`RocksDb`] come from the library, are not null and stay valid
//! until the [`RocksDb`] is closed. Readers and iterators borrow the [`RocksDb`], so none outlives
//! it. The library returns errors as strings that it allocated and that [`checked`] frees.

use std::ffi::{CStr, CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};
use std::sync::Mutex;
use std::time::Duration;
use umbel_base::ignore_poison::IgnorePoison;

use umbel_lab::engine::{
    Counters, Engine, EngineSettings, ReadDigest, Reader, Result, Store, TunableSettings, Write,
    WriteSource, take_batch,
};
use umbel_lab::measure::{now, pause};

use crate::engines::rocksdb::rocksdb_c::*;
use crate::engines::rocksdb::rocksdb_options::{BLOOM_BITS_MAX, in_words, options};

mod rocksdb_c;
mod rocksdb_counters;
mod rocksdb_options;

pub const ENGINE: Engine = Engine {
    name: "rocksdb",
    missing_reason: None,
    settings: in_words,
    recommended: &[
        "https://github.com/facebook/rocksdb/wiki/Setup-Options-and-Basic-Tuning",
        "https://github.com/facebook/mysql-5.6/wiki/my.cnf-tuning",
        "https://github.com/facebook/rocksdb/pull/4174",
    ],
    tunes: TunableSettings {
        bloom_bits: true,
        bloom_bits_max: Some(BLOOM_BITS_MAX),
        probes: false,
        memtable_bytes: true,
        spread: false,
    },
    multi_get: true,
    reuses_cursor: true,
    lsm: true,
    read_paths: &["pinned"],
    fresh_read_path: 0,
    open,
};

/// Time without pending work after which the store counts as settled.
const QUIET: Duration = Duration::from_millis(500);
/// Upper bound on the keys in one multi_get.
const KEYS_MAX: usize = 32;

/// Pointer to a snapshot of the library, or null.
struct RocksDbSnapshot(*const Snapshot);

// SAFETY: a snapshot is only handed back to the library, which any thread may do.
unsafe impl Send for RocksDbSnapshot {}

struct RocksDb {
    db: *mut Db,
    family: *mut Family,
    options: *mut Opts,
    cache: *mut Cache,
    reads: *mut ReadOpts,
    buffered: *mut WriteOpts,
    synced: *mut WriteOpts,
    folder: PathBuf,
    snapshot: Mutex<RocksDbSnapshot>,
}

// SAFETY: RocksDB's documentation says that several threads may use its handle at once. The options
// are only read once they are set up.
unsafe impl Sync for RocksDb {}

fn open(folder: &Path, settings: &EngineSettings) -> Result<Box<dyn Store>> {
    let name = CString::new(folder.as_os_str().as_bytes())?;
    let cache_bytes = usize::try_from(settings.cache_bytes)?;
    // SAFETY: the cache is freed after the store is closed. The arrays have one element, as the
    // call names; all names end in a zero and outlive it.
    let store = unsafe {
        let cache = rocksdb_cache_create_lru(cache_bytes);
        let options = options(cache, settings)?;
        let synced = rocksdb_writeoptions_create();
        rocksdb_writeoptions_set_sync(synced, 1);
        let (mut family, mut error) = (null_mut(), null_mut());
        let db = rocksdb_open_column_families(
            options,
            name.as_ptr(),
            1,
            [c"default".as_ptr()].as_ptr(),
            [options.cast_const()].as_ptr(),
            &mut family,
            &mut error,
        );
        checked(error)?;
        RocksDb {
            db,
            family,
            options,
            cache,
            reads: rocksdb_readoptions_create(),
            buffered: rocksdb_writeoptions_create(),
            synced,
            folder: folder.to_path_buf(),
            snapshot: Mutex::new(RocksDbSnapshot(null())),
        }
    };
    Ok(Box::new(store))
}

/// Reads RocksDB's version, which its C interface does not report, from the store's options file.
fn version(folder: &Path) -> String {
    let unknown = || "unknown".to_string();
    let Ok(entries) = std::fs::read_dir(folder) else { return unknown() };
    entries
        .flatten()
        .filter(|entry| entry.file_name().as_bytes().starts_with(b"OPTIONS-"))
        .filter_map(|entry| std::fs::read_to_string(entry.path()).ok())
        .find_map(|text| {
            let (_, rest) = text.split_once("rocksdb_version=")?;
            Some(rest.lines().next()?.to_string())
        })
        .unwrap_or_else(unknown)
}

/// Turns an error of the library into an error of this program.
fn checked(error: *mut c_char) -> Result<()> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: an error that is not null is a string that ends in a zero and is ours to free.
    let text = unsafe {
        let text = CStr::from_ptr(error).to_string_lossy().into_owned();
        rocksdb_free(error.cast());
        text
    };
    Err(text.into())
}

impl RocksDb {
    fn put(&self, options: *const WriteOpts, key: &[u8], value: &[u8]) -> Result<()> {
        let mut error = null_mut();
        // SAFETY: see the invariant; key and value are read during the call only.
        unsafe {
            rocksdb_put(
                self.db,
                options,
                key.as_ptr(),
                key.len(),
                value.as_ptr(),
                value.len(),
                &mut error,
            );
        }
        checked(error)
    }

    /// Whether work is running or pending.
    fn busy(&self) -> bool {
        let names = [
            c"rocksdb.mem-table-flush-pending",
            c"rocksdb.num-running-flushes",
            c"rocksdb.compaction-pending",
            c"rocksdb.num-running-compactions",
        ];
        names.into_iter().any(|name| {
            let mut value = 0;
            // SAFETY: see the invariant; the name ends in a zero.
            let failed = unsafe { rocksdb_property_int(self.db, name.as_ptr(), &mut value) };
            failed == 0 && value > 0
        })
    }

    /// Commits the writes of a source, one batch after the other.
    ///
    /// # Safety
    /// `batch` comes from the library, and is empty.
    unsafe fn write_batches(
        &self,
        batch: *mut WriteBatch,
        source: &mut dyn WriteSource,
    ) -> Result<()> {
        let mut add = |(key, value): Write<'_>| {
            let (key, len) = (key.as_ptr(), key.len());
            // SAFETY: see the invariant; keys and values are read during the calls only.
            unsafe {
                match value {
                    Some(value) => {
                        rocksdb_writebatch_put(batch, key, len, value.as_ptr(), value.len());
                    }
                    None => rocksdb_writebatch_delete(batch, key, len),
                }
            }
            Ok(())
        };
        while take_batch(source, &mut add)? > 0 {
            let mut error = null_mut();
            // SAFETY: see the invariant.
            unsafe {
                rocksdb_write(self.db, self.buffered, batch, &mut error);
                rocksdb_writebatch_clear(batch);
            }
            checked(error)?;
        }
        Ok(())
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        let mut error = null_mut();
        // SAFETY: see the invariant; the key is read during the call only.
        unsafe { rocksdb_delete(self.db, self.buffered, key.as_ptr(), key.len(), &mut error) };
        checked(error)
    }

    /// Makes a new iterator, which is freed when it is dropped.
    fn iterator(&self) -> RocksDbIterator<'_> {
        // SAFETY: see the invariant.
        let iter = unsafe { rocksdb_create_iterator(self.db, self.reads) };
        RocksDbIterator { iter, _store: self }
    }
}

impl Store for RocksDb {
    fn version(&self) -> String {
        version(&self.folder)
    }

    fn write_all(&self, source: &mut dyn WriteSource) -> Result<()> {
        while let Some((key, value)) = source.next() {
            match value {
                Some(value) => self.put(self.buffered, key, value)?,
                None => self.delete(key)?,
            }
        }
        Ok(())
    }

    fn write_in_batches(&self, source: &mut dyn WriteSource) -> Result<()> {
        // SAFETY: see the invariant; the batch is made and freed here, and copies what it is given.
        unsafe {
            let batch = rocksdb_writebatch_create();
            let written = self.write_batches(batch, source);
            rocksdb_writebatch_destroy(batch);
            written
        }
    }

    fn delete_range(&self, start: &[u8], end: &[u8]) -> Result<bool> {
        let (mut error, options) = (null_mut(), self.buffered);
        // SAFETY: see the invariant; the keys are read during the call only.
        unsafe {
            rocksdb_delete_range_cf(
                self.db,
                options,
                self.family,
                start.as_ptr(),
                start.len(),
                end.as_ptr(),
                end.len(),
                &mut error,
            );
        }
        checked(error)?;
        Ok(true)
    }

    fn put_synced(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.put(self.synced, key, value)
    }

    fn flush(&self) -> Result<()> {
        let mut error = null_mut();
        // SAFETY: see the invariant; the options are made and freed here and wait by default.
        unsafe {
            let options = rocksdb_flushoptions_create();
            rocksdb_flush(self.db, options, &mut error);
            rocksdb_flushoptions_destroy(options);
        }
        checked(error)
    }

    fn wait(&self) -> Result<Duration> {
        let mut quiet_since = now();
        while quiet_since.elapsed() < QUIET {
            pause(Duration::from_millis(10));
            if self.busy() {
                quiet_since = now();
            }
        }
        Ok(quiet_since.elapsed())
    }

    fn compact(&self) -> Result<()> {
        // SAFETY: see the invariant; null stands for an open end.
        unsafe { rocksdb_compact_range(self.db, null(), 0, null(), 0) };
        Ok(())
    }

    fn hold_snapshot(&self, hold: bool) -> Result<()> {
        let mut snapshot = self.snapshot.lock().ignore_poison();
        // SAFETY: see the invariant; a snapshot is released once, and only while the store is open.
        unsafe {
            if !snapshot.0.is_null() {
                rocksdb_release_snapshot(self.db, snapshot.0);
            }
            snapshot.0 = if hold { rocksdb_create_snapshot(self.db) } else { null() };
        }
        Ok(())
    }

    fn reader(&self, _: usize) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(RocksDbReader { store: self, kept: None }))
    }

    fn counters(&self) -> Counters {
        // SAFETY: see the invariant.
        unsafe { rocksdb_counters::counters(self.db) }
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.hold_snapshot(false)?;
        drop(self);
        Ok(())
    }
}

impl Drop for RocksDb {
    fn drop(&mut self) {
        // SAFETY: no code borrows the store any more, and each object is freed once. The cache is
        // freed last, because the store holds a share of it.
        unsafe {
            rocksdb_column_family_handle_destroy(self.family);
            rocksdb_close(self.db);
            rocksdb_options_destroy(self.options);
            rocksdb_readoptions_destroy(self.reads);
            rocksdb_writeoptions_destroy(self.buffered);
            rocksdb_writeoptions_destroy(self.synced);
            rocksdb_cache_destroy(self.cache);
        }
    }
}

struct RocksDbIterator<'a> {
    iter: *mut Iter,
    _store: &'a RocksDb,
}

impl RocksDbIterator<'_> {
    /// Counts up to this many entries from the iterator's position on.
    fn count(&mut self, entries: usize, tally: &mut ReadDigest) -> Result<()> {
        let mut error = null_mut();
        // SAFETY: the iterator is ours. Key and value are read only where it is valid, and before
        // it moves, which is how long the library keeps them.
        unsafe {
            for _ in 0..entries {
                if rocksdb_iter_valid(self.iter) == 0 {
                    break;
                }
                let (mut key_len, mut value_len) = (0, 0);
                let key = rocksdb_iter_key(self.iter, &mut key_len);
                let value = rocksdb_iter_value(self.iter, &mut value_len);
                tally.add_entry(
                    std::slice::from_raw_parts(key, key_len),
                    std::slice::from_raw_parts(value, value_len),
                );
                rocksdb_iter_next(self.iter);
            }
            rocksdb_iter_get_error(self.iter, &mut error);
        }
        checked(error)
    }
}

impl Drop for RocksDbIterator<'_> {
    fn drop(&mut self) {
        // SAFETY: the iterator is ours and freed once, before its store.
        unsafe { rocksdb_iter_destroy(self.iter) };
    }
}

struct RocksDbReader<'a> {
    store: &'a RocksDb,
    kept: Option<RocksDbIterator<'a>>,
}

/// Counts a value that the library lends, and returns it to the library.
fn count_pinned(pinned: *mut Pinned, tally: &mut ReadDigest) {
    if pinned.is_null() {
        return;
    }
    let mut len = 0;
    // SAFETY: a slice that is not null is ours to free, and lends its bytes until then.
    unsafe {
        let value = rocksdb_pinnableslice_value(pinned, &mut len);
        if !value.is_null() {
            tally.add_value(std::slice::from_raw_parts(value, len));
        }
        rocksdb_pinnableslice_destroy(pinned);
    }
}

impl Reader for RocksDbReader<'_> {
    fn get(&mut self, key: &[u8], tally: &mut ReadDigest) -> Result<()> {
        let mut error = null_mut();
        let (db, reads) = (self.store.db, self.store.reads);
        // SAFETY: see the invariant; the key is read during the call only.
        let pinned = unsafe { rocksdb_get_pinned(db, reads, key.as_ptr(), key.len(), &mut error) };
        count_pinned(pinned, tally);
        checked(error)
    }

    fn multi_get(&mut self, keys: &[Vec<u8>], tally: &mut ReadDigest) -> Result<()> {
        for keys in keys.chunks(KEYS_MAX) {
            let mut starts = [null(); KEYS_MAX];
            let mut lens = [0; KEYS_MAX];
            for (place, key) in keys.iter().enumerate() {
                (starts[place], lens[place]) = (key.as_ptr(), key.len());
            }
            let mut values = [null_mut(); KEYS_MAX];
            let mut errors = [null_mut(); KEYS_MAX];
            // SAFETY: see the invariant; every array has capacity for as many as there are keys,
            // which are at most `KEYS_MAX`, and is used during the call only.
            unsafe {
                rocksdb_batched_multi_get_cf(
                    self.store.db,
                    self.store.reads,
                    self.store.family,
                    keys.len(),
                    starts.as_ptr(),
                    lens.as_ptr(),
                    values.as_mut_ptr(),
                    errors.as_mut_ptr(),
                    false,
                );
            }
            values.iter().for_each(|&pinned| count_pinned(pinned, tally));
            errors.into_iter().try_for_each(checked)?;
        }
        Ok(())
    }

    fn seek(&mut self, key: &[u8], entries: usize, tally: &mut ReadDigest) -> Result<()> {
        let mut walk = self.store.iterator();
        // SAFETY: the iterator is ours; the key is read during the call only.
        unsafe { rocksdb_iter_seek(walk.iter, key.as_ptr(), key.len()) };
        walk.count(entries, tally)
    }

    fn seek_reusing_cursor(
        &mut self,
        key: &[u8],
        entries: usize,
        tally: &mut ReadDigest,
    ) -> Result<()> {
        let walk = self.kept.get_or_insert_with(|| self.store.iterator());
        // SAFETY: the iterator is ours; the key is read during the call only.
        unsafe { rocksdb_iter_seek(walk.iter, key.as_ptr(), key.len()) };
        walk.count(entries, tally)
    }

    fn last(&mut self, tally: &mut ReadDigest) -> Result<bool> {
        let mut walk = self.store.iterator();
        // SAFETY: the iterator is ours.
        unsafe { rocksdb_iter_seek_to_last(walk.iter) };
        walk.count(1, tally)?;
        Ok(true)
    }

    fn scan(&mut self, tally: &mut ReadDigest) -> Result<()> {
        let mut walk = self.store.iterator();
        // SAFETY: the iterator is ours.
        unsafe { rocksdb_iter_seek_to_first(walk.iter) };
        walk.count(usize::MAX, tally)
    }
}

//! LevelDB, through its C interface.
//!
//! INVARIANT: the pointers of a [`LevelDb`] come from the library, are not null and stay valid
//! until the [`LevelDb`] is closed. Readers and iterators borrow the [`LevelDb`], so none outlives
//! it. The library returns errors as strings that it allocated and that [`checked`] frees.

use std::ffi::{CStr, CString, c_char, c_int};
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
use umbel_lab::measure::disk_usage;
use umbel_lab::measure::{now, pause};

use crate::engines::leveldb::leveldb_c::*;

mod leveldb_c;
mod leveldb_log;

pub const ENGINE: Engine = Engine {
    name: "leveldb",
    missing_reason: None,
    settings: in_words,
    recommended: &[
        "https://github.com/google/leveldb/blob/main/doc/index.md",
        "https://github.com/google/leveldb/blob/main/include/leveldb/options.h",
        "https://github.com/bitcoin/bitcoin/blob/master/src/dbwrapper.cpp",
    ],
    tunes: TunableSettings {
        bloom_bits: true,
        bloom_bits_max: None,
        probes: false,
        memtable_bytes: true,
        spread: false,
    },
    multi_get: false,
    reuses_cursor: true,
    lsm: true,
    read_paths: &["copied"],
    fresh_read_path: 0,
    open,
};

const BLOCK_BYTES: usize = 4096;
const TABLE_BYTES: usize = 32 << 20;
const OPEN_FILES: c_int = 5000;

/// Describes in words the settings of [`open`] that the run does not set.
fn in_words() -> String {
    let settings = EngineSettings::default();
    format!(
        "write buffer of {} MiB (unless the run sets it), {} KiB blocks, {} MiB tables, filters of \
         {} bits per key (unless the run sets it; of 44 bits and more it sets 30 for a key), no \
         compression, the cache of the run, {OPEN_FILES} open files; single puts, log given to the \
         kernel with each; it offers no lending get, so each get is a malloc and a copy; it counts \
         as settled when all work in its info log has ended and its levels and files do not change",
        settings.memtable_bytes >> 20,
        BLOCK_BYTES >> 10,
        TABLE_BYTES >> 20,
        settings.bloom_bits,
    )
}

/// Time without running work and without changes of levels and files after which the store counts
/// as settled.
const QUIET: Duration = Duration::from_secs(1);

/// Pointer to a snapshot of the library, or null.
struct LevelDbSnapshot(*const Snapshot);

// SAFETY: a snapshot is only handed back to the library, which any thread may do.
unsafe impl Send for LevelDbSnapshot {}

struct LevelDb {
    db: *mut Db,
    options: *mut Opts,
    filter: *mut Filter,
    cache: *mut Cache,
    reads: *mut ReadOpts,
    buffered: *mut WriteOpts,
    synced: *mut WriteOpts,
    snapshot: Mutex<LevelDbSnapshot>,
    folder: PathBuf,
}

// SAFETY: LevelDB's documentation says that several threads may use its handle at once. The options
// are only read once they are set up.
unsafe impl Sync for LevelDb {}

fn open(folder: &Path, settings: &EngineSettings) -> Result<Box<dyn Store>> {
    let name = CString::new(folder.as_os_str().as_bytes())?;
    let memtable_bytes = usize::try_from(settings.memtable_bytes)?;
    // SAFETY: the constructors take nothing and return an object of their kind. The setters get
    // that object and plain numbers. `name` ends in a zero and outlives the call. The filter, which
    // null stands for the lack of, and the cache are kept until after the store is closed, as the
    // library requires.
    let store = unsafe {
        let filter = match settings.bloom_bits {
            ..=0 => null_mut(),
            bits => leveldb_filterpolicy_create_bloom(bits),
        };
        let cache = leveldb_cache_create_lru(usize::try_from(settings.cache_bytes)?);
        let options = leveldb_options_create();
        leveldb_options_set_create_if_missing(options, 1);
        leveldb_options_set_filter_policy(options, filter);
        leveldb_options_set_cache(options, cache);
        leveldb_options_set_write_buffer_size(options, memtable_bytes);
        leveldb_options_set_max_file_size(options, TABLE_BYTES);
        leveldb_options_set_block_size(options, BLOCK_BYTES);
        leveldb_options_set_max_open_files(options, OPEN_FILES);
        leveldb_options_set_compression(options, 0);
        let synced = leveldb_writeoptions_create();
        leveldb_writeoptions_set_sync(synced, 1);
        let mut error = null_mut();
        let db = leveldb_open(options, name.as_ptr(), &mut error);
        checked(error)?;
        LevelDb {
            db,
            options,
            filter,
            cache,
            reads: leveldb_readoptions_create(),
            buffered: leveldb_writeoptions_create(),
            synced,
            snapshot: Mutex::new(LevelDbSnapshot(null())),
            folder: folder.to_path_buf(),
        }
    };
    Ok(Box::new(store))
}

/// Turns an error of the library into an error of this program.
fn checked(error: *mut c_char) -> Result<()> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: an error that is not null is a string that ends in a zero and is ours to free.
    let text = unsafe {
        let text = CStr::from_ptr(error).to_string_lossy().into_owned();
        leveldb_free(error.cast());
        text
    };
    Err(text.into())
}

impl LevelDb {
    fn put(&self, options: *const WriteOpts, key: &[u8], value: &[u8]) -> Result<()> {
        let mut error = null_mut();
        // SAFETY: see the invariant; key and value are read during the call only.
        unsafe {
            leveldb_put(
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

    /// Reads a property of the library; empty if it does not know the name.
    fn property(&self, name: &CStr) -> String {
        // SAFETY: the name ends in a zero; the answer is null or a string that is ours to free.
        unsafe {
            let text = leveldb_property_value(self.db, name.as_ptr());
            if text.is_null() {
                return String::new();
            }
            let value = CStr::from_ptr(text).to_string_lossy().into_owned();
            leveldb_free(text.cast());
            value
        }
    }

    /// Reads the info log that the library has written since the store was opened.
    fn log_text(&self) -> String {
        let log = std::fs::read(self.folder.join("LOG")).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// Reads the library's description of the sizes and work of the levels.
    fn levels(&self) -> String {
        self.property(c"leveldb.stats")
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
                        leveldb_writebatch_put(batch, key, len, value.as_ptr(), value.len());
                    }
                    None => leveldb_writebatch_delete(batch, key, len),
                }
            }
            Ok(())
        };
        while take_batch(source, &mut add)? > 0 {
            let mut error = null_mut();
            // SAFETY: see the invariant.
            unsafe {
                leveldb_write(self.db, self.buffered, batch, &mut error);
                leveldb_writebatch_clear(batch);
            }
            checked(error)?;
        }
        Ok(())
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        let mut error = null_mut();
        // SAFETY: see the invariant; the key is read during the call only.
        unsafe { leveldb_delete(self.db, self.buffered, key.as_ptr(), key.len(), &mut error) };
        checked(error)
    }

    /// Makes a new iterator, which is freed when it is dropped.
    fn iterator(&self) -> LevelDbIterator<'_> {
        // SAFETY: see the invariant.
        let iter = unsafe { leveldb_create_iterator(self.db, self.reads) };
        LevelDbIterator { iter, _store: self }
    }
}

impl Store for LevelDb {
    fn version(&self) -> String {
        // SAFETY: these only return numbers.
        unsafe { format!("{}.{}", leveldb_major_version(), leveldb_minor_version()) }
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
            let batch = leveldb_writebatch_create();
            let written = self.write_batches(batch, source);
            leveldb_writebatch_destroy(batch);
            written
        }
    }

    fn put_synced(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.put(self.synced, key, value)
    }

    fn flush(&self) -> Result<()> {
        // An empty range flushes the memtable and moves little else.
        // SAFETY: see the invariant; both keys are read during the call only.
        unsafe { leveldb_compact_range(self.db, c"".as_ptr().cast(), 0, c"".as_ptr().cast(), 0) };
        Ok(())
    }

    fn wait(&self) -> Result<Duration> {
        let state = || Result::Ok((self.levels(), disk_usage::fingerprint(&self.folder)?));
        let mut seen = state()?;
        let mut quiet_since = now();
        while quiet_since.elapsed() < QUIET {
            pause(Duration::from_millis(50));
            let present = state()?;
            // Levels change only when a job ends, which may take longer than the quiet time.
            if present != seen || leveldb_log::is_job_running(&self.log_text()) {
                seen = present;
                quiet_since = now();
            }
        }
        Ok(quiet_since.elapsed())
    }

    fn compact(&self) -> Result<()> {
        // SAFETY: see the invariant; null stands for an open end.
        unsafe { leveldb_compact_range(self.db, null(), 0, null(), 0) };
        Ok(())
    }

    fn hold_snapshot(&self, hold: bool) -> Result<()> {
        let mut snapshot = self.snapshot.lock().ignore_poison();
        // SAFETY: see the invariant; a snapshot is released once, and only while the store is open.
        unsafe {
            if !snapshot.0.is_null() {
                leveldb_release_snapshot(self.db, snapshot.0);
            }
            snapshot.0 = if hold { leveldb_create_snapshot(self.db) } else { null() };
        }
        Ok(())
    }

    fn reader(&self, _: usize) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(LevelDbReader { store: self, kept: None }))
    }

    fn counters(&self) -> Counters {
        let tables = self.property(c"leveldb.sstables");
        Counters {
            background_jobs: Some(leveldb_log::finished_jobs(&self.log_text())),
            tables: Some(tables.lines().filter(|line| !line.starts_with("---")).count() as u64),
            ..Counters::default()
        }
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.hold_snapshot(false)?;
        drop(self);
        Ok(())
    }
}

impl Drop for LevelDb {
    fn drop(&mut self) {
        // SAFETY: no code borrows the store any more, and each object is freed once. The cache and
        // the filter are freed after the store that uses them.
        unsafe {
            leveldb_close(self.db);
            leveldb_options_destroy(self.options);
            leveldb_cache_destroy(self.cache);
            if !self.filter.is_null() {
                leveldb_filterpolicy_destroy(self.filter);
            }
            leveldb_readoptions_destroy(self.reads);
            leveldb_writeoptions_destroy(self.buffered);
            leveldb_writeoptions_destroy(self.synced);
        }
    }
}

struct LevelDbIterator<'a> {
    iter: *mut Iter,
    _store: &'a LevelDb,
}

impl LevelDbIterator<'_> {
    /// Counts up to this many entries from the iterator's position on.
    fn count(&mut self, entries: usize, tally: &mut ReadDigest) -> Result<()> {
        let mut error = null_mut();
        // SAFETY: the iterator is ours. Key and value are read only where it is valid, and before
        // it moves, which is how long the library keeps them.
        unsafe {
            for _ in 0..entries {
                if leveldb_iter_valid(self.iter) == 0 {
                    break;
                }
                let (mut key_len, mut value_len) = (0, 0);
                let key = leveldb_iter_key(self.iter, &mut key_len);
                let value = leveldb_iter_value(self.iter, &mut value_len);
                tally.add_entry(
                    std::slice::from_raw_parts(key, key_len),
                    std::slice::from_raw_parts(value, value_len),
                );
                leveldb_iter_next(self.iter);
            }
            leveldb_iter_get_error(self.iter, &mut error);
        }
        checked(error)
    }
}

impl Drop for LevelDbIterator<'_> {
    fn drop(&mut self) {
        // SAFETY: the iterator is ours and freed once, before its store.
        unsafe { leveldb_iter_destroy(self.iter) };
    }
}

struct LevelDbReader<'a> {
    store: &'a LevelDb,
    kept: Option<LevelDbIterator<'a>>,
}

impl Reader for LevelDbReader<'_> {
    fn get(&mut self, key: &[u8], tally: &mut ReadDigest) -> Result<()> {
        let (mut error, mut len) = (null_mut(), 0);
        // SAFETY: see the invariant; a value that is not null is `len` bytes that are ours to free.
        unsafe {
            let (db, reads) = (self.store.db, self.store.reads);
            let value = leveldb_get(db, reads, key.as_ptr(), key.len(), &mut len, &mut error);
            if !value.is_null() {
                tally.add_value(std::slice::from_raw_parts(value, len));
                leveldb_free(value.cast());
            }
        }
        checked(error)
    }

    fn seek(&mut self, key: &[u8], entries: usize, tally: &mut ReadDigest) -> Result<()> {
        let mut walk = self.store.iterator();
        // SAFETY: the iterator is ours; the key is read during the call only.
        unsafe { leveldb_iter_seek(walk.iter, key.as_ptr(), key.len()) };
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
        unsafe { leveldb_iter_seek(walk.iter, key.as_ptr(), key.len()) };
        walk.count(entries, tally)
    }

    fn last(&mut self, tally: &mut ReadDigest) -> Result<bool> {
        let mut walk = self.store.iterator();
        // SAFETY: the iterator is ours.
        unsafe { leveldb_iter_seek_to_last(walk.iter) };
        walk.count(1, tally)?;
        Ok(true)
    }

    fn scan(&mut self, tally: &mut ReadDigest) -> Result<()> {
        let mut walk = self.store.iterator();
        // SAFETY: the iterator is ours.
        unsafe { leveldb_iter_seek_to_first(walk.iter) };
        walk.count(usize::MAX, tally)
    }
}

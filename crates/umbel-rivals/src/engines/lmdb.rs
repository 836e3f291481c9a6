//! Engine LMDB, through its C interface, which is its fastest interface.
//!
//! INVARIANT: the environment of an [`Lmdb`] is valid until the [`Lmdb`] is dropped; readers borrow
//! the [`Lmdb`], so none outlives it. A transaction belongs to one reader or to one call; read
//! transactions are not bound to threads (`MDB_NOTLS`). A store's folder was made for one run, so
//! no other process changes it.

use std::ffi::{CStr, CString, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::{null, null_mut};
use std::sync::Mutex;
use std::time::Duration;
use umbel_base::ignore_poison::IgnorePoison;

use lmdb_master_sys as sys;
use umbel_lab::engine::{
    BATCH_ENTRIES, Counters, Engine, EngineSettings, ReadDigest, Reader, Result, Store, Write,
    WriteSource,
};

pub const ENGINE: Engine = Engine {
    name: "lmdb",
    missing_reason: None,
    settings: in_words,
    recommended: &[
        "http://www.lmdb.tech/doc/group__mdb.html",
        "https://docs.rs/heed/latest/heed/struct.EnvOpenOptions.html",
    ],
    tunes: super::NOT_TUNABLE,
    multi_get: false,
    reuses_cursor: true,
    lsm: false,
    read_paths: &["kept transaction", "transaction per call"],
    fresh_read_path: 1,
    open,
};

/// Bytes of address space for the store's file, which grows as needed.
const MAP_BYTES: usize = 64 << 30;

/// Describes in words what [`open`] and [`Store::write_all`] do.
fn in_words() -> String {
    format!(
        "written in batches of {BATCH_ENTRIES} to a write transaction with MDB_NOSYNC (survives \
         the process, not the machine); read in one transaction kept open, and in a transaction \
         renewed for each call; a synced put is a synced transaction of its own; a map of {} GiB, \
         no cache of its own, no filters; it has no threads of its own, its files are watched \
         beside reads",
        MAP_BYTES >> 30,
    )
}

struct Lmdb {
    folder: PathBuf,
    env: *mut sys::MDB_env,
    entries: sys::MDB_dbi,
    snapshot: Mutex<Option<Transaction>>,
}

// SAFETY: LMDB's documentation says that several threads may use its environment at once. It allows
// one write transaction at a time, and read transactions are not bound to threads.
unsafe impl Sync for Lmdb {}

/// Transaction that is aborted if it was not committed.
struct Transaction(*mut sys::MDB_txn);

// SAFETY: only read transactions move between threads, which `MDB_NOTLS` allows.
unsafe impl Send for Transaction {}

impl Drop for Transaction {
    fn drop(&mut self) {
        // SAFETY: the transaction is ours and ends once: `commit` takes it out.
        unsafe { sys::mdb_txn_abort(self.0) };
    }
}

impl Transaction {
    fn commit(self) -> Result<()> {
        let transaction = std::mem::ManuallyDrop::new(self);
        // SAFETY: the transaction is ours and is not used again.
        checked(unsafe { sys::mdb_txn_commit(transaction.0) })
    }
}

/// Turns an error of the library into an error of this program.
#[inline]
fn checked(code: c_int) -> Result<()> {
    if code == sys::MDB_SUCCESS {
        return Ok(());
    }
    // SAFETY: the library returns a static text for every code.
    let text = unsafe { CStr::from_ptr(sys::mdb_strerror(code)) };
    Err(text.to_string_lossy().into_owned().into())
}

#[inline]
fn lent(bytes: &[u8]) -> sys::MDB_val {
    sys::MDB_val { mv_size: bytes.len(), mv_data: bytes.as_ptr().cast::<c_void>().cast_mut() }
}

const EMPTY: sys::MDB_val = sys::MDB_val { mv_size: 0, mv_data: null_mut() };

/// Returns the bytes that the library lends.
///
/// # Safety
/// The library filled in the value, and the transaction stays open while the bytes are used.
#[inline]
unsafe fn bytes<'a>(value: &sys::MDB_val) -> &'a [u8] {
    if value.mv_size == 0 {
        return &[];
    }
    // SAFETY: the caller keeps the transaction open.
    unsafe { std::slice::from_raw_parts(value.mv_data.cast::<u8>(), value.mv_size) }
}

fn open(folder: &Path, _: &EngineSettings) -> Result<Box<dyn Store>> {
    let name = CString::new(folder.as_os_str().as_bytes())?;
    let (folder, snapshot) = (folder.to_path_buf(), Mutex::new(None));
    let mut store = Lmdb { folder, env: null_mut(), entries: 0, snapshot };
    // SAFETY: the environment is made first and freed by dropping the store; the name ends in a
    // zero and outlives the call.
    unsafe {
        checked(sys::mdb_env_create(&mut store.env))?;
        checked(sys::mdb_env_set_mapsize(store.env, MAP_BYTES))?;
        checked(sys::mdb_env_open(store.env, name.as_ptr(), sys::MDB_NOTLS, 0o644))?;
        let transaction = store.begin(0)?;
        checked(sys::mdb_dbi_open(transaction.0, null(), 0, &mut store.entries))?;
        transaction.commit()?;
    }
    Ok(Box::new(store))
}

impl Lmdb {
    fn begin(&self, flags: u32) -> Result<Transaction> {
        let mut transaction = null_mut();
        // SAFETY: see the invariant.
        checked(unsafe { sys::mdb_txn_begin(self.env, null_mut(), flags, &mut transaction) })?;
        Ok(Transaction(transaction))
    }

    fn sync_commits(&self, sync: bool) -> Result<()> {
        // SAFETY: flags are set by the only thread that writes. Without syncs a crash of the
        // machine may damage the file, which lives for this run only.
        checked(unsafe { sys::mdb_env_set_flags(self.env, sys::MDB_NOSYNC, c_int::from(!sync)) })
    }

    fn write(&self, transaction: &Transaction, (key, value): Write<'_>) -> Result<()> {
        let mut key = lent(key);
        // SAFETY: the transaction is an open write transaction; key and value are read during the
        // call only, and not written to.
        unsafe {
            let Some(value) = value else {
                let code = sys::mdb_del(transaction.0, self.entries, &mut key, null_mut());
                return if code == sys::MDB_NOTFOUND { Ok(()) } else { checked(code) };
            };
            let mut value = lent(value);
            checked(sys::mdb_put(transaction.0, self.entries, &mut key, &mut value, 0))
        }
    }

    fn write_batches(&self, source: &mut dyn WriteSource) -> Result<()> {
        let mut full = true;
        while full {
            let transaction = self.begin(0)?;
            for _ in 0..BATCH_ENTRIES {
                let Some(write) = source.next() else {
                    full = false;
                    break;
                };
                self.write(&transaction, write)?;
            }
            transaction.commit()?;
        }
        Ok(())
    }
}

impl Store for Lmdb {
    fn version(&self) -> String {
        let (mut major, mut minor, mut patch) = (0, 0, 0);
        // SAFETY: the library writes three numbers.
        unsafe { sys::mdb_version(&mut major, &mut minor, &mut patch) };
        format!("{major}.{minor}.{patch}")
    }

    fn write_all(&self, source: &mut dyn WriteSource) -> Result<()> {
        self.sync_commits(false)?;
        let written = self.write_batches(source);
        self.sync_commits(true)?;
        written
    }

    fn put_synced(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let transaction = self.begin(0)?;
        self.write(&transaction, (key, Some(value)))?;
        transaction.commit()
    }

    fn flush(&self) -> Result<()> {
        // SAFETY: see the invariant.
        checked(unsafe { sys::mdb_env_sync(self.env, 1) })
    }

    fn wait(&self) -> Result<Duration> {
        Ok(Duration::ZERO)
    }

    fn compact(&self) -> Result<()> {
        Ok(())
    }

    fn hold_snapshot(&self, hold: bool) -> Result<()> {
        let snapshot = if hold { Some(self.begin(sys::MDB_RDONLY)?) } else { None };
        *self.snapshot.lock().ignore_poison() = snapshot;
        Ok(())
    }

    fn reader(&self, read_path: usize) -> Result<Box<dyn Reader + '_>> {
        let transaction = self.begin(sys::MDB_RDONLY)?;
        if read_path == 0 {
            return Ok(Box::new(LmdbReader { store: self, transaction, cursor: null_mut() }));
        }
        // SAFETY: the transaction is ours; it is renewed before it is used again.
        unsafe { sys::mdb_txn_reset(transaction.0) };
        Ok(Box::new(LmdbPerCallReader(LmdbReader { store: self, transaction, cursor: null_mut() })))
    }

    fn counters(&self) -> Counters {
        super::file_counters(&self.folder)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.flush()
    }
}

impl Drop for Lmdb {
    fn drop(&mut self) {
        self.snapshot.get_mut().ignore_poison().take();
        // SAFETY: no code borrows the store any more, and all transactions have ended.
        unsafe { sys::mdb_env_close(self.env) };
    }
}

struct LmdbReader<'a> {
    store: &'a Lmdb,
    transaction: Transaction,
    /// Cursor that the reader keeps; null until it is needed.
    cursor: *mut sys::MDB_cursor,
}

impl Drop for LmdbReader<'_> {
    fn drop(&mut self) {
        if !self.cursor.is_null() {
            // SAFETY: the cursor is ours and closed once, before its transaction ends.
            unsafe { sys::mdb_cursor_close(self.cursor) };
        }
    }
}

impl LmdbReader<'_> {
    fn cursor(&self) -> Result<*mut sys::MDB_cursor> {
        let mut cursor = null_mut();
        let entries = self.store.entries;
        // SAFETY: the transaction is open.
        checked(unsafe { sys::mdb_cursor_open(self.transaction.0, entries, &mut cursor) })?;
        Ok(cursor)
    }

    /// Moves a cursor and counts up to this many entries from its new position on.
    fn count(
        &self,
        cursor: *mut sys::MDB_cursor,
        from: Option<&[u8]>,
        entries: usize,
        tally: &mut ReadDigest,
    ) -> Result<()> {
        let (mut key, mut value) = (from.map_or(EMPTY, lent), EMPTY);
        let mut move_to = if from.is_some() { sys::MDB_SET_RANGE } else { sys::MDB_FIRST };
        for _ in 0..entries {
            // SAFETY: cursor and transaction are open; what they lend is read before they move on,
            // and the transaction only reads.
            unsafe {
                let code = sys::mdb_cursor_get(cursor, &mut key, &mut value, move_to);
                if code == sys::MDB_NOTFOUND {
                    break;
                }
                checked(code)?;
                tally.add_entry(bytes(&key), bytes(&value));
            }
            move_to = sys::MDB_NEXT;
        }
        Ok(())
    }

    fn walk(&self, from: Option<&[u8]>, entries: usize, tally: &mut ReadDigest) -> Result<()> {
        let cursor = self.cursor()?;
        let counted = self.count(cursor, from, entries, tally);
        // SAFETY: the cursor was opened above and is not used again.
        unsafe { sys::mdb_cursor_close(cursor) };
        counted
    }
}

impl Reader for LmdbReader<'_> {
    fn get(&mut self, key: &[u8], tally: &mut ReadDigest) -> Result<()> {
        let (mut key, mut value) = (lent(key), EMPTY);
        // SAFETY: the transaction is open and only reads; the key is read during the call only.
        unsafe {
            let entries = self.store.entries;
            let code = sys::mdb_get(self.transaction.0, entries, &mut key, &mut value);
            if code == sys::MDB_NOTFOUND {
                return Ok(());
            }
            checked(code)?;
            tally.add_value(bytes(&value));
        }
        Ok(())
    }

    fn seek(&mut self, key: &[u8], entries: usize, tally: &mut ReadDigest) -> Result<()> {
        self.walk(Some(key), entries, tally)
    }

    fn seek_reusing_cursor(
        &mut self,
        key: &[u8],
        entries: usize,
        tally: &mut ReadDigest,
    ) -> Result<()> {
        if self.cursor.is_null() {
            self.cursor = self.cursor()?;
        }
        self.count(self.cursor, Some(key), entries, tally)
    }

    fn last(&mut self, tally: &mut ReadDigest) -> Result<bool> {
        let (cursor, mut key, mut value) = (self.cursor()?, EMPTY, EMPTY);
        // SAFETY: cursor and transaction are open; what they lend is read before the cursor is
        // closed, which is not used again.
        unsafe {
            let code = sys::mdb_cursor_get(cursor, &mut key, &mut value, sys::MDB_LAST);
            if code == sys::MDB_SUCCESS {
                tally.add_entry(bytes(&key), bytes(&value));
            }
            sys::mdb_cursor_close(cursor);
            if code != sys::MDB_NOTFOUND {
                checked(code)?;
            }
        }
        Ok(true)
    }

    fn scan(&mut self, tally: &mut ReadDigest) -> Result<()> {
        self.walk(None, usize::MAX, tally)
    }
}

/// Reader that renews its transaction for every call and resets it afterwards.
struct LmdbPerCallReader<'a>(LmdbReader<'a>);

impl LmdbPerCallReader<'_> {
    fn call<T>(&mut self, read: impl FnOnce(&mut LmdbReader<'_>) -> Result<T>) -> Result<T> {
        // SAFETY: the transaction was reset, so it may be renewed.
        checked(unsafe { sys::mdb_txn_renew(self.0.transaction.0) })?;
        let done = read(&mut self.0);
        // SAFETY: it was just renewed, and nothing that it lent is still used.
        unsafe { sys::mdb_txn_reset(self.0.transaction.0) };
        done
    }
}

impl Reader for LmdbPerCallReader<'_> {
    fn get(&mut self, key: &[u8], tally: &mut ReadDigest) -> Result<()> {
        self.call(|reader| reader.get(key, tally))
    }

    fn multi_get(&mut self, keys: &[Vec<u8>], tally: &mut ReadDigest) -> Result<()> {
        self.call(|reader| reader.multi_get(keys, tally))
    }

    fn seek(&mut self, key: &[u8], entries: usize, tally: &mut ReadDigest) -> Result<()> {
        self.call(|reader| reader.seek(key, entries, tally))
    }

    fn last(&mut self, tally: &mut ReadDigest) -> Result<bool> {
        self.call(|reader| reader.last(tally))
    }

    fn scan(&mut self, tally: &mut ReadDigest) -> Result<()> {
        self.call(|reader| reader.scan(tally))
    }
}

//! Pebble, CockroachDB's engine written in Go, through a C interface of this crate.
//!
//! INVARIANT: the number of a [`Pebble`] identifies a store that Go has opened, and is valid until
//! the [`Pebble`] is closed. Readers and their iterators borrow the [`Pebble`], so none outlives
//! it. Go copies its results into memory that it borrows for one call. Go returns errors as strings
//! that [`checked`] frees.

use std::ffi::{CStr, CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{null, null_mut};
use std::time::Duration;

use umbel_lab::engine::{
    Counters, Engine, EngineSettings, ReadDigest, Reader, Result, Store, TunableSettings, Write,
    WriteSource, take_batch,
};
use umbel_lab::measure::{now, pause};

use crate::engines::pebble::pebble_c::*;

mod pebble_c;

pub const ENGINE: Engine = Engine {
    name: "pebble",
    missing_reason: None,
    settings: in_words,
    recommended: &[
        "https://github.com/cockroachdb/cockroach/blob/master/pkg/storage/pebble.go",
        "https://github.com/cockroachdb/pebble/blob/master/cmd/pebble/db.go",
        "https://github.com/cockroachdb/cockroach/pull/119605",
    ],
    // Bits are configured, but its get probes no filter of the last level, where nearly all keys
    // are. An experiment on bits would measure something else.
    tunes: TunableSettings { memtable_bytes: true, ..super::NOT_TUNABLE },
    multi_get: false,
    reuses_cursor: true,
    lsm: true,
    read_paths: &["get", "kept iterator"],
    fresh_read_path: 0,
    open,
};

/// Describes in words the options that Go opens a store with, and how the store is used.
fn in_words() -> String {
    let EngineSettings { cache_bytes, memtable_bytes, bloom_bits, .. } = EngineSettings::default();
    // SAFETY: it takes numbers and returns a string of its own.
    let options = text(unsafe { umbel_pebble_settings(cache_bytes, memtable_bytes, bloom_bits) });
    format!(
        "as CockroachDB sets it, but as the others have them filters, memtables (both as here or \
         as the run sets them; its own are of 64 MiB), no compression, and the cache of the run: \
         {options}; its logs are allocated ahead and used again; single puts that wait in its own \
         memory for the log, where a killed process loses them; one call from C into Go for each \
         put, get and seek, which copies what it found into a buffer (an empty one took 41 to 66 \
         ns where it was measured), and one for each {} KiB of a scan; its get probes no filter of \
         the last level; it is also read by a kept iterator, which does, and sees no new writes; \
         it counts as settled when no job runs and none was done for {} ms, and the entries of all \
         tables are counted",
        BUFFER_BYTES >> 10,
        QUIET.as_millis(),
    )
}

/// Time without running work after which the store counts as settled.
const QUIET: Duration = Duration::from_millis(500);
/// Time without running work after which a store counts as settled although obsolete tables wait
/// for deletion. Pebble throttles deletions, and the next flush deletes some of these tables.
const QUIET_DELETING: Duration = Duration::from_secs(2);
/// Value that replaces a value's length for a deleted key.
const DELETED: u32 = u32::MAX;
/// Initial bytes of a reader's buffer.
const BUFFER_BYTES: usize = 64 << 10;

struct Pebble {
    store: i32,
}

fn open(folder: &Path, settings: &EngineSettings) -> Result<Box<dyn Store>> {
    let name = CString::new(folder.as_os_str().as_bytes())?;
    let mut failure = null_mut();
    // SAFETY: the name ends in a zero and outlives the call.
    let store = unsafe {
        umbel_pebble_open(
            name.as_ptr(),
            settings.cache_bytes,
            settings.memtable_bytes,
            settings.bloom_bits,
            &mut failure,
        )
    };
    checked(failure)?;
    Ok(Box::new(Pebble { store }))
}

/// Turns an error of the library into an error of this program.
fn checked(failure: *mut c_char) -> Result<()> {
    if failure.is_null() { Ok(()) } else { Err(text(failure).into()) }
}

/// Takes ownership of a string that the library made.
fn text(made: *mut c_char) -> String {
    // SAFETY: it ends in a zero and is ours to free.
    unsafe {
        let text = CStr::from_ptr(made).to_string_lossy().into_owned();
        umbel_pebble_free(made);
        text
    }
}

/// Returns the address of bytes that are passed to Go. Empty slices of Rust can have a dangling
/// address, which Go reports as damage if it is on Go's stack.
fn address(bytes: &[u8]) -> *const u8 {
    static SOMEWHERE: [u8; 1] = [0];
    if bytes.is_empty() { SOMEWHERE.as_ptr() } else { bytes.as_ptr() }
}

/// Metrics of Pebble, by their index in the array that it fills in.
#[derive(Clone, Copy)]
enum PebbleMetric {
    Jobs,
    Running,
    Obsolete,
    Misses,
    Probes,
    Negatives,
    Tables,
    Unknown,
    Last,
}

impl Pebble {
    fn write(&self, (key, value): Write<'_>, synced: bool) -> Result<()> {
        let mut failure = null_mut();
        // An empty value still has an address; an absent value has none.
        let (start, len) = value.map_or((null(), 0), |value| (address(value), value.len()));
        // SAFETY: see the invariant; key and value are read during the call only.
        unsafe {
            umbel_pebble_write(
                self.store,
                address(key),
                key.len(),
                start,
                len,
                i32::from(synced),
                &mut failure,
            );
        }
        checked(failure)
    }

    fn figures(&self) -> [u64; PebbleMetric::Last as usize] {
        let mut figures = [0; PebbleMetric::Last as usize];
        // SAFETY: see the invariant; the array has capacity for what is written.
        unsafe { umbel_pebble_metrics(self.store, figures.as_mut_ptr()) };
        figures
    }

    fn iterator(&self) -> Result<PebbleIterator<'_>> {
        let mut failure = null_mut();
        // SAFETY: see the invariant.
        let iter = unsafe { umbel_pebble_iterator(self.store, &mut failure) };
        checked(failure)?;
        Ok(PebbleIterator { iter, _store: self })
    }
}

impl Store for Pebble {
    fn version(&self) -> String {
        // SAFETY: it takes nothing and returns a string of its own.
        text(unsafe { umbel_pebble_version() })
    }

    fn write_all(&self, source: &mut dyn WriteSource) -> Result<()> {
        while let Some(write) = source.next() {
            self.write(write, false)?;
        }
        Ok(())
    }

    fn write_in_batches(&self, source: &mut dyn WriteSource) -> Result<()> {
        let mut writes = Vec::new();
        loop {
            writes.clear();
            let taken = take_batch(source, |(key, value)| {
                let len = |bytes: &[u8]| u32::try_from(bytes.len()).map(u32::to_ne_bytes);
                writes.extend_from_slice(&len(key)?);
                writes.extend_from_slice(&value.map_or(Ok(DELETED.to_ne_bytes()), len)?);
                writes.extend_from_slice(key);
                writes.extend_from_slice(value.unwrap_or_default());
                Ok(())
            })?;
            if taken == 0 {
                return Ok(());
            }
            let mut failure = null_mut();
            // SAFETY: see the invariant; the writes are read during the call only.
            unsafe {
                umbel_pebble_write_batch(self.store, writes.as_ptr(), writes.len(), &mut failure);
            }
            checked(failure)?;
        }
    }

    fn put_synced(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write((key, Some(value)), true)
    }

    fn flush(&self) -> Result<()> {
        let mut failure = null_mut();
        // SAFETY: see the invariant.
        unsafe { umbel_pebble_flush(self.store, &mut failure) };
        checked(failure)
    }

    fn wait(&self) -> Result<Duration> {
        let mut seen = self.figures();
        let mut quiet_since = now();
        let still = |seen: &[u64]| match seen[PebbleMetric::Obsolete as usize] {
            0 => QUIET,
            _ => QUIET_DELETING,
        };
        while quiet_since.elapsed() < still(&seen) {
            pause(Duration::from_millis(10));
            let present = self.figures();
            let changed = |figure: PebbleMetric| present[figure as usize] != seen[figure as usize];
            // A table whose entries are not counted yet may still need a compaction.
            let running = present[PebbleMetric::Running as usize]
                + present[PebbleMetric::Unknown as usize]
                > 0;
            if running || changed(PebbleMetric::Jobs) || changed(PebbleMetric::Obsolete) {
                quiet_since = now();
            }
            seen = present;
        }
        Ok(quiet_since.elapsed())
    }

    fn compact(&self) -> Result<()> {
        let mut failure = null_mut();
        // SAFETY: see the invariant.
        unsafe { umbel_pebble_compact(self.store, &mut failure) };
        checked(failure)
    }

    fn hold_snapshot(&self, hold: bool) -> Result<()> {
        let mut failure = null_mut();
        // SAFETY: see the invariant.
        unsafe { umbel_pebble_snapshot(self.store, i32::from(hold), &mut failure) };
        checked(failure)
    }

    fn reader(&self, read_path: usize) -> Result<Box<dyn Reader + '_>> {
        let finder = if read_path == 1 { Some(self.iterator()?) } else { None };
        let buffer = vec![0; BUFFER_BYTES];
        Ok(Box::new(PebbleReader { store: self, finder, kept: None, buffer }))
    }

    fn counters(&self) -> Counters {
        let figures = self.figures();
        let figure = |figure: PebbleMetric| Some(figures[figure as usize]);
        Counters {
            background_jobs: figure(PebbleMetric::Jobs),
            blocks_loaded: figure(PebbleMetric::Misses),
            filter_probes: figure(PebbleMetric::Probes),
            filter_negatives: figure(PebbleMetric::Negatives),
            tables: figure(PebbleMetric::Tables),
            ..Counters::default()
        }
    }

    fn close(self: Box<Self>) -> Result<()> {
        let store = std::mem::ManuallyDrop::new(self).store;
        let mut failure = null_mut();
        // SAFETY: no code borrows the store any more, and it is closed once: it is not dropped as
        // well.
        unsafe { umbel_pebble_close(store, &mut failure) };
        checked(failure)
    }
}

impl Drop for Pebble {
    fn drop(&mut self) {
        let mut failure = null_mut();
        // SAFETY: no code borrows the store any more, and `close` did not run.
        unsafe { umbel_pebble_close(self.store, &mut failure) };
        // A caller that needs the error calls `close`.
        let _ = checked(failure);
    }
}

/// Iterator that its reader keeps.
struct PebbleIterator<'a> {
    iter: i32,
    _store: &'a Pebble,
}

impl PebbleIterator<'_> {
    /// Copies entries from `key` or from the iterator's position on: up to this many, as many as
    /// fit. Returns the number and the bytes of the copied entries.
    fn walk(
        &mut self,
        key: Option<&[u8]>,
        entries: usize,
        buffer: &mut [u8],
    ) -> Result<(usize, usize)> {
        let (mut used, mut failure) = (0, null_mut());
        let (start, len) = key.map_or((null(), 0), |key| (address(key), key.len()));
        // SAFETY: see the invariant; the key is read and the buffer written during the call only.
        let count = unsafe {
            umbel_pebble_walk(
                self.iter,
                start,
                len,
                entries as u64,
                buffer.as_mut_ptr(),
                buffer.len(),
                &mut used,
                &mut failure,
            )
        };
        checked(failure)?;
        Ok((usize::try_from(count)?, used))
    }

    /// Counts up to this many entries from `key` on.
    fn count(
        &mut self,
        key: &[u8],
        entries: usize,
        buffer: &mut Vec<u8>,
        tally: &mut ReadDigest,
    ) -> Result<()> {
        let (mut from, mut left) = (Some(key), entries);
        while left > 0 {
            let (count, used) = self.walk(from, left, buffer)?;
            from = None;
            match count {
                0 if used == 0 => break,
                0 => buffer.resize(used, 0),
                _ => count_entries(&buffer[..used], tally)?,
            }
            left -= count;
        }
        Ok(())
    }
}

impl Drop for PebbleIterator<'_> {
    fn drop(&mut self) {
        let mut failure = null_mut();
        // SAFETY: the iterator is ours and closed once, before its store.
        unsafe { umbel_pebble_iterator_close(self.iter, &mut failure) };
        // The call that failed has already returned its error.
        let _ = checked(failure);
    }
}

/// Counts entries as Go writes them: two lengths of 4 bytes, little end first, key and value.
fn count_entries(mut bytes: &[u8], tally: &mut ReadDigest) -> Result<()> {
    let cut = || "Pebble's entries are cut off";
    while let Some((lens, rest)) = bytes.split_first_chunk::<8>() {
        let [a, b, c, d, value_len @ ..] = *lens;
        let key_len = u32::from_le_bytes([a, b, c, d]) as usize;
        let (key, rest) = rest.split_at_checked(key_len).ok_or_else(cut)?;
        let value_len = u32::from_le_bytes(value_len) as usize;
        let (value, rest) = rest.split_at_checked(value_len).ok_or_else(cut)?;
        tally.add_entry(key, value);
        bytes = rest;
    }
    Ok(())
}

struct PebbleReader<'a> {
    store: &'a Pebble,
    /// Iterator that looks up keys, in the read path that uses an iterator for lookups.
    finder: Option<PebbleIterator<'a>>,
    kept: Option<PebbleIterator<'a>>,
    buffer: Vec<u8>,
}

impl PebbleReader<'_> {
    /// Looks a key up, and copies as much of its value as fits. Returns the length of the value.
    fn find(&mut self, key: &[u8]) -> Result<Option<usize>> {
        let (mut len, mut failure) = (0, null_mut());
        let (start, key_len) = (address(key), key.len());
        let (buffer, capacity) = (self.buffer.as_mut_ptr(), self.buffer.len());
        let failure_at = &mut failure;
        // SAFETY: see the invariant; the key is read and the buffer written during the call only.
        let found = unsafe {
            match &self.finder {
                Some(PebbleIterator { iter, .. }) => {
                    umbel_pebble_find(*iter, start, key_len, buffer, capacity, &mut len, failure_at)
                }
                None => {
                    let store = self.store.store;
                    umbel_pebble_get(store, start, key_len, buffer, capacity, &mut len, failure_at)
                }
            }
        };
        checked(failure)?;
        Ok((found == 1).then_some(len))
    }
}

impl Reader for PebbleReader<'_> {
    fn get(&mut self, key: &[u8], tally: &mut ReadDigest) -> Result<()> {
        while let Some(len) = self.find(key)? {
            if let Some(value) = self.buffer.get(..len) {
                tally.add_value(value);
                break;
            }
            self.buffer.resize(len, 0);
        }
        Ok(())
    }

    fn seek(&mut self, key: &[u8], entries: usize, tally: &mut ReadDigest) -> Result<()> {
        loop {
            let (mut used, mut failure) = (0, null_mut());
            // SAFETY: see the invariant; the key is read and the buffer written during the call.
            unsafe {
                umbel_pebble_seek(
                    self.store.store,
                    address(key),
                    key.len(),
                    entries as u64,
                    self.buffer.as_mut_ptr(),
                    self.buffer.len(),
                    &mut used,
                    &mut failure,
                );
            }
            checked(failure)?;
            match self.buffer.get(..used) {
                Some(bytes) => return count_entries(bytes, tally),
                None => self.buffer.resize(2 * self.buffer.len(), 0),
            }
        }
    }

    fn seek_reusing_cursor(
        &mut self,
        key: &[u8],
        entries: usize,
        tally: &mut ReadDigest,
    ) -> Result<()> {
        let iter = match &mut self.kept {
            Some(iter) => iter,
            none => none.insert(self.store.iterator()?),
        };
        iter.count(key, entries, &mut self.buffer, tally)
    }

    fn scan(&mut self, tally: &mut ReadDigest) -> Result<()> {
        self.store.iterator()?.count(b"", usize::MAX, &mut self.buffer, tally)
    }
}

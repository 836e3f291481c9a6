//! Pebble, CockroachDB's engine, which is written in Go, through a C interface of our own.
//!
//! INVARIANT: the number of a [`Pebble`] is one that Go gave for an open store, and is valid until
//! it is closed; readers and their iterators borrow it, so none outlives it. Go copies what it
//! hands over into memory that it is lent for one call. Errors come as strings that [`checked`]
//! frees.

use std::ffi::{CStr, CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{null, null_mut};
use std::time::Duration;

use umbel_lab::engine::{
    Counters, Engine, Reader, Result, Settings, Source, Store, Tally, Tunes, Write, take_batch,
};
use umbel_lab::measure::{now, pause};

use self::library::*;

mod library;

pub const ENGINE: Engine = Engine {
    name: "pebble",
    missing: None,
    settings: in_words,
    recommended: &[
        "https://github.com/cockroachdb/cockroach/blob/master/pkg/storage/pebble.go",
        "https://github.com/cockroachdb/pebble/blob/master/cmd/pebble/db.go",
        "https://github.com/cockroachdb/cockroach/pull/119605",
    ],
    // Bits are told, but its get asks no filter of the last level, where nearly all keys are: an
    // experiment on bits would measure something else.
    tunes: Tunes { memtable_bytes: true, ..super::UNTUNED },
    multi_get: false,
    kept_cursor: true,
    lsm: true,
    ways: &["get", "kept iterator"],
    fresh_way: 0,
    open,
};

/// What the options say of themselves that Go opens a store with, and what is done with it.
fn in_words() -> String {
    let Settings { cache_bytes, memtable_bytes, bloom_bits, .. } = Settings::default();
    // SAFETY: it takes numbers and returns a string of its own.
    let told = text(unsafe { umbel_pebble_settings(cache_bytes, memtable_bytes, bloom_bits) });
    format!(
        "as CockroachDB sets it, but as the others have them filters, memtables (both as here or \
         as the run says; its own are of 64 MiB), no compression, and the cache of the run: \
         {told}; its logs are allocated ahead and used again; single puts that wait in its own \
         memory for the log, where a killed process loses them; one call from C into Go for each \
         put, get and seek, which copies what it found into a buffer (an empty one took 41 to 66 \
         ns where it was measured), and one for each {} KiB of a scan; its get asks no filter of \
         the last level, so that it is also read by a kept iterator that does, and sees no new \
         writes; it counts as settled when no job runs and none was done for {} ms, and no table \
         waits to be looked at",
        BUFFER_BYTES >> 10,
        QUIET.as_millis(),
    )
}

/// How long nothing must be going on before the store counts as settled.
const QUIET: Duration = Duration::from_millis(500);
/// The same where tables wait for their deletion, which is held back, and some of which only the
/// next flush deletes.
const QUIET_DELETING: Duration = Duration::from_secs(2);
/// In place of a value's length: the key is deleted.
const DELETED: u32 = u32::MAX;
/// Bytes of a reader's buffer at first.
const BUFFER_BYTES: usize = 64 << 10;

struct Pebble {
    store: i32,
}

fn open(folder: &Path, settings: &Settings) -> Result<Box<dyn Store>> {
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

/// Turns an error of the library into ours.
fn checked(failure: *mut c_char) -> Result<()> {
    if failure.is_null() { Ok(()) } else { Err(text(failure).into()) }
}

/// Takes a string that the library made.
fn text(made: *mut c_char) -> String {
    // SAFETY: it ends in a zero and is ours to free.
    unsafe {
        let text = CStr::from_ptr(made).to_string_lossy().into_owned();
        umbel_pebble_free(made);
        text
    }
}

/// Where bytes begin that Go is told of. Empty ones of Rust may begin at an address that is none,
/// which Go takes for damage when it finds it on its stack.
fn address(bytes: &[u8]) -> *const u8 {
    static SOMEWHERE: [u8; 1] = [0];
    if bytes.is_empty() { SOMEWHERE.as_ptr() } else { bytes.as_ptr() }
}

/// What Pebble counts, by its place in the array that it fills in.
#[derive(Clone, Copy)]
enum Figure {
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
        // A value without bytes is still somewhere; none at all is nowhere.
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

    fn figures(&self) -> [u64; Figure::Last as usize] {
        let mut figures = [0; Figure::Last as usize];
        // SAFETY: see the invariant; the array has room for what is written.
        unsafe { umbel_pebble_metrics(self.store, figures.as_mut_ptr()) };
        figures
    }

    fn iterator(&self) -> Result<Iter<'_>> {
        let mut failure = null_mut();
        // SAFETY: see the invariant.
        let iter = unsafe { umbel_pebble_iterator(self.store, &mut failure) };
        checked(failure)?;
        Ok(Iter { iter, _store: self })
    }
}

impl Store for Pebble {
    fn version(&self) -> String {
        // SAFETY: it takes nothing and returns a string of its own.
        text(unsafe { umbel_pebble_version() })
    }

    fn write_all(&self, source: &mut dyn Source) -> Result<()> {
        while let Some(write) = source.next() {
            self.write(write, false)?;
        }
        Ok(())
    }

    fn write_in_batches(&self, source: &mut dyn Source) -> Result<()> {
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
        let still = |seen: &[u64]| match seen[Figure::Obsolete as usize] {
            0 => QUIET,
            _ => QUIET_DELETING,
        };
        while quiet_since.elapsed() < still(&seen) {
            pause(Duration::from_millis(10));
            let present = self.figures();
            let changed = |figure: Figure| present[figure as usize] != seen[figure as usize];
            // A table whose entries are not yet counted may still ask for a compaction.
            let running = present[Figure::Running as usize] + present[Figure::Unknown as usize] > 0;
            if running || changed(Figure::Jobs) || changed(Figure::Obsolete) {
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

    fn reader(&self, way: usize) -> Result<Box<dyn Reader + '_>> {
        let finder = if way == 1 { Some(self.iterator()?) } else { None };
        let buffer = vec![0; BUFFER_BYTES];
        Ok(Box::new(PebbleReader { store: self, finder, kept: None, buffer }))
    }

    fn counters(&self) -> Counters {
        let figures = self.figures();
        let figure = |figure: Figure| Some(figures[figure as usize]);
        Counters {
            background_jobs: figure(Figure::Jobs),
            blocks_loaded: figure(Figure::Misses),
            filter_probes: figure(Figure::Probes),
            filter_negatives: figure(Figure::Negatives),
            tables: figure(Figure::Tables),
            ..Counters::default()
        }
    }

    fn close(self: Box<Self>) -> Result<()> {
        let store = std::mem::ManuallyDrop::new(self).store;
        let mut failure = null_mut();
        // SAFETY: nobody borrows the store any more, and it is closed once: not dropped as well.
        unsafe { umbel_pebble_close(store, &mut failure) };
        checked(failure)
    }
}

impl Drop for Pebble {
    fn drop(&mut self) {
        let mut failure = null_mut();
        // SAFETY: nobody borrows the store any more, and `close` did not run.
        unsafe { umbel_pebble_close(self.store, &mut failure) };
        // Somebody who cares for its errors closes it.
        let _ = checked(failure);
    }
}

/// An iterator that is kept.
struct Iter<'a> {
    iter: i32,
    _store: &'a Pebble,
}

impl Iter<'_> {
    /// Hands over up to this many entries, from `key` on or from where it stands, as many as fit.
    /// Returns how many, and the bytes they take.
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
        tally: &mut Tally,
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

impl Drop for Iter<'_> {
    fn drop(&mut self) {
        let mut failure = null_mut();
        // SAFETY: the iterator is ours and closed once, before its store.
        unsafe { umbel_pebble_iterator_close(self.iter, &mut failure) };
        // What went wrong was said by the call that met it.
        let _ = checked(failure);
    }
}

/// Counts entries as Go writes them: two lengths of 4 bytes, little end first, key and value.
fn count_entries(mut bytes: &[u8], tally: &mut Tally) -> Result<()> {
    let cut = || "Pebble's entries are cut off";
    while let Some((lens, rest)) = bytes.split_first_chunk::<8>() {
        let [a, b, c, d, value_len @ ..] = *lens;
        let key_len = u32::from_le_bytes([a, b, c, d]) as usize;
        let (key, rest) = rest.split_at_checked(key_len).ok_or_else(cut)?;
        let value_len = u32::from_le_bytes(value_len) as usize;
        let (value, rest) = rest.split_at_checked(value_len).ok_or_else(cut)?;
        tally.entry(key, value);
        bytes = rest;
    }
    Ok(())
}

struct PebbleReader<'a> {
    store: &'a Pebble,
    /// The iterator that looks up keys, in the way that has one.
    finder: Option<Iter<'a>>,
    kept: Option<Iter<'a>>,
    buffer: Vec<u8>,
}

impl PebbleReader<'_> {
    /// Looks a key up. The length of its value, of which as much was copied as fits.
    fn find(&mut self, key: &[u8]) -> Result<Option<usize>> {
        let (mut len, mut failure) = (0, null_mut());
        let (start, key_len) = (address(key), key.len());
        let (buffer, capacity) = (self.buffer.as_mut_ptr(), self.buffer.len());
        let failure_at = &mut failure;
        // SAFETY: see the invariant; the key is read and the buffer written during the call only.
        let found = unsafe {
            match &self.finder {
                Some(Iter { iter, .. }) => {
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
    fn get(&mut self, key: &[u8], tally: &mut Tally) -> Result<()> {
        while let Some(len) = self.find(key)? {
            if let Some(value) = self.buffer.get(..len) {
                tally.value(value);
                break;
            }
            self.buffer.resize(len, 0);
        }
        Ok(())
    }

    fn seek(&mut self, key: &[u8], entries: usize, tally: &mut Tally) -> Result<()> {
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

    fn seek_kept(&mut self, key: &[u8], entries: usize, tally: &mut Tally) -> Result<()> {
        let iter = match &mut self.kept {
            Some(iter) => iter,
            none => none.insert(self.store.iterator()?),
        };
        iter.count(key, entries, &mut self.buffer, tally)
    }

    fn scan(&mut self, tally: &mut Tally) -> Result<()> {
        self.store.iterator()?.count(b"", usize::MAX, &mut self.buffer, tally)
    }
}

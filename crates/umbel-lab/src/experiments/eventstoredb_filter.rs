//! The stream existence filter of EventStoreDB, reimplemented from its published description, as a
//! comparison.
//!
//! The filter is one array of bits over which six probes of a name are spread. Lines have 64 bytes,
//! of which the last 4 are a checksum of the first 60. Changed pages of 8 KiB are written in place,
//! then a checkpoint. An open reads everything and verifies each line. The cost of hashing a name
//! is left out: the caller passes both hashes. The memory barrier of each probe and the wait of
//! five seconds before each checkpoint are left out too.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use umbel_base::ignore_poison::IgnorePoison;
use umbel_keygen::keys::mix;

use xxhash_rust::xxh3::xxh3_64;

use crate::engine::Result;
use crate::measure::pause;

const LINE_WORDS: usize = 16;
const PROBES: u64 = 6;
/// Bytes that are written together.
const PAGE_BYTES: usize = 8 << 10;
const PAGE_WORDS: usize = PAGE_BYTES / 4;
/// Share of damaged lines above which the filter is rebuilt.
const DAMAGED_SHARE_MAX: f64 = 0.05;
/// Pause between two batches of pages of a background flush.
const THROTTLE: Duration = Duration::from_millis(128);
/// Approximate duration of a flush of all pages with a pause after each batch.
const WHOLE_FLUSH_MS: usize = 60_000;
/// Files of the filter in its folder.
const BITS_FILE: &str = "streamExistenceFilter.dat";
const CHECKPOINT_FILE: &str = "streamExistenceFilter.chk";

/// The two hashes of a name.
#[derive(Debug, Clone, Copy)]
pub struct NameHashes {
    first: u64,
    second: u64,
}

impl NameHashes {
    /// Derives two hashes from one.
    #[inline]
    pub fn of(hash: u64) -> NameHashes {
        NameHashes { first: hash, second: mix(!hash) }
    }
}

/// The filter in memory.
pub struct PublishedFilter {
    words: Vec<AtomicU32>,
    bits: u64,
    changed: Vec<AtomicBool>,
    adding: Mutex<()>,
}

/// Result of an open.
pub struct OpenedFilter {
    /// The filter.
    pub filter: PublishedFilter,
    /// Number of damaged lines, which now pass every name.
    pub damaged_lines: u64,
}

/// Returns the word of a bit and the bit's position in that word.
#[inline]
fn bit_position(bit: u64) -> (usize, u32) {
    let byte = bit / 8;
    let at = byte + byte / 60 * 4 + 64;
    ((at / 4) as usize, 1 << (at % 4 * 8 + bit % 8))
}

/// Number of lines that are read at a time.
const READ_LINES: usize = 16 << 10;

/// Returns the size, in the file and in memory, of a filter with the setting `bytes`.
pub fn file_bytes(bytes: u64) -> u64 {
    let end = bytes + bytes / 60 * 4 + 64;
    end / 64 * 64 + 64
}

impl PublishedFilter {
    /// Creates an empty filter with `bytes` as its setting.
    pub fn new(bytes: u64) -> PublishedFilter {
        let words = (file_bytes(bytes) / 4) as usize;
        let zeros = vec![0u32; words];
        // As in ours, so that the layouts are compared and not the page sizes.
        umbel_arena::advise_huge_pages(&zeros);
        PublishedFilter {
            words: zeros.into_iter().map(AtomicU32::new).collect(),
            bits: bytes * 8,
            changed: (0..words.div_ceil(PAGE_WORDS)).map(|_| AtomicBool::new(false)).collect(),
            adding: Mutex::new(()),
        }
    }

    #[inline]
    fn bit_positions(&self, hashes: NameHashes) -> impl Iterator<Item = (usize, u32)> + use<> {
        let bits = self.bits;
        (1..=PROBES).map(move |probe| {
            let hash = hashes.first.wrapping_add(probe.wrapping_mul(hashes.second));
            bit_position((hash & i64::MAX as u64) % bits)
        })
    }

    /// Whether a name may have been added.
    #[inline]
    pub fn may_contain(&self, hashes: NameHashes) -> bool {
        self.bit_positions(hashes)
            .all(|(word, bit)| self.words[word].load(Ordering::Relaxed) & bit != 0)
    }

    /// Adds a name and recomputes the checksum of a line for each newly set bit.
    pub fn insert(&self, hashes: NameHashes) {
        let _adding = self.adding.lock().ignore_poison();
        for (word, bit) in self.bit_positions(hashes) {
            let old = self.words[word].load(Ordering::Relaxed);
            if old & bit == 0 {
                self.words[word].store(old | bit, Ordering::Release);
                self.update_checksum(word / LINE_WORDS);
                self.changed[word / PAGE_WORDS].store(true, Ordering::Release);
            }
        }
    }

    /// Adds many names to a filter that no thread probes or flushes before
    /// [`PublishedFilter::update_all_checksums`].
    pub fn fill(&self, names: impl Iterator<Item = NameHashes>) {
        for hashes in names {
            for (word, bit) in self.bit_positions(hashes) {
                let old = self.words[word].load(Ordering::Relaxed);
                self.words[word].store(old | bit, Ordering::Relaxed);
            }
        }
    }

    /// Computes the checksum of every line and marks every page as changed.
    pub fn update_all_checksums(&self) {
        (1..self.words.len() / LINE_WORDS).for_each(|line| self.update_checksum(line));
        self.changed.iter().for_each(|page| page.store(true, Ordering::Release));
    }

    fn line(&self, line: usize) -> &[AtomicU32] {
        &self.words[line * LINE_WORDS..(line + 1) * LINE_WORDS]
    }

    fn update_checksum(&self, line: usize) {
        let words = self.line(line);
        words[LINE_WORDS - 1].store(checksum(words), Ordering::Release);
    }

    /// Returns the bytes of memory.
    pub fn bytes(&self) -> u64 {
        self.words.len() as u64 * 4
    }

    /// Writes the changed pages in place, then the checkpoint. The change marks are cleared before
    /// the pages are written, as in the published filter. After each batch of pages, `waits`
    /// decides whether to pause for other work. Returns the number of pages.
    ///
    /// # Errors
    /// The error of the operating system.
    pub fn flush(&self, folder: &Path, position: u64, waits: &dyn Fn() -> bool) -> Result<u64> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(folder.join(BITS_FILE))?;
        file.set_len(self.bytes())?;
        let pages = self.changed.len();
        let taken: Vec<usize> =
            (0..pages).filter(|page| self.changed[*page].swap(false, Ordering::AcqRel)).collect();
        let batch = (pages * THROTTLE.as_millis() as usize / WHOLE_FLUSH_MS).max(96);
        let mut bytes = Vec::with_capacity(PAGE_BYTES);
        for batch in taken.chunks(batch.next_multiple_of(32)) {
            for page in batch {
                bytes.clear();
                let end = self.words.len().min((page + 1) * PAGE_WORDS);
                for word in &self.words[page * PAGE_WORDS..end] {
                    bytes.extend_from_slice(&word.load(Ordering::Acquire).to_le_bytes());
                }
                file.write_all_at(&bytes, (page * PAGE_BYTES) as u64)?;
            }
            file.sync_all()?;
            if waits() {
                pause(THROTTLE);
            }
        }
        let checkpoint = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(folder.join(CHECKPOINT_FILE))?;
        checkpoint.write_all_at(&position.to_le_bytes(), 0)?;
        checkpoint.sync_all()?;
        Ok(taken.len() as u64)
    }

    /// Reads the whole filter and verifies each line. A damaged line is tried with each of its bits
    /// cleared, then set to all ones.
    ///
    /// # Errors
    /// The error of the operating system, or an error if more than a twentieth of the lines is
    /// damaged.
    pub fn open(folder: &Path, bytes: u64) -> Result<OpenedFilter> {
        let mut position = [0; 8];
        File::open(folder.join(CHECKPOINT_FILE))?.read_exact(&mut position)?;
        let mut file = File::open(folder.join(BITS_FILE))?;
        let filter = PublishedFilter::new(bytes);
        if file.metadata()?.len() != filter.bytes() {
            return Err("the file's length differs from the filter's".into());
        }
        let mut damaged_lines = 0;
        let mut buffer = vec![0; READ_LINES * LINE_WORDS * 4];
        let mut line = 0;
        let lines = filter.words.len() / LINE_WORDS;
        while line < lines {
            let count = (lines - line).min(READ_LINES);
            let part = &mut buffer[..count * LINE_WORDS * 4];
            file.read_exact(part)?;
            let words = &filter.words[line * LINE_WORDS..];
            for (word, four) in words.iter().zip(part.as_chunks::<4>().0) {
                word.store(u32::from_le_bytes(*four), Ordering::Relaxed);
            }
            // The first line is the header.
            for line in line.max(1)..line + count {
                damaged_lines += u64::from(!filter.verify(line));
            }
            line += count;
        }
        if damaged_lines as f64 > lines as f64 * DAMAGED_SHARE_MAX {
            return Err("more than a twentieth of the lines is damaged".into());
        }
        Ok(OpenedFilter { filter, damaged_lines })
    }

    /// Whether a line is intact, except for one bit that its checksum does not include yet.
    fn verify(&self, line: usize) -> bool {
        let words = self.line(line);
        let stored = words[LINE_WORDS - 1].load(Ordering::Relaxed);
        if stored == checksum(words) {
            return true;
        }
        for word in &words[..LINE_WORDS - 1] {
            let whole = word.load(Ordering::Relaxed);
            for bit in (0..32).map(|at| 1u32 << at).filter(|bit| whole & bit != 0) {
                word.store(whole & !bit, Ordering::Relaxed);
                let fits = stored == checksum(words);
                word.store(whole, Ordering::Relaxed);
                if fits {
                    self.update_checksum(line);
                    return true;
                }
            }
        }
        words.iter().for_each(|word| word.store(u32::MAX, Ordering::Relaxed));
        false
    }
}

/// Returns the checksum of the bits of a line; the checksum of an empty line is 0.
fn checksum(words: &[AtomicU32]) -> u32 {
    let mut bytes = [0; (LINE_WORDS - 1) * 4];
    let mut any = 0;
    for (word, four) in words.iter().zip(bytes.as_chunks_mut::<4>().0) {
        let word = word.load(Ordering::Relaxed);
        any |= word;
        *four = word.to_le_bytes();
    }
    if any == 0 { 0 } else { xxh3_64(&bytes) as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: u64) -> NameHashes {
        NameHashes::of(mix(number))
    }

    #[test]
    fn filter_matches_the_published_size_rate_and_flush() {
        assert_eq!(file_bytes(256_000_000), 273_066_752);
        let bytes = 300_000;
        let filter = PublishedFilter::new(bytes);
        (0..bytes).for_each(|number| filter.insert(name(number)));
        assert!((0..bytes).all(|number| filter.may_contain(name(number))));
        let passed = (0..200_000).filter(|n| filter.may_contain(name(1 << 40 | n))).count();
        let rate = passed as f64 / 200_000.0;
        assert!((rate - 0.0216).abs() < 0.002, "{rate}");
        let folder = tempfile::tempdir().expect("a folder");
        let pages = filter.flush(folder.path(), 7, &|| false).expect("flushed");
        assert_eq!(pages, file_bytes(bytes).div_ceil(PAGE_BYTES as u64));
        assert_eq!(filter.flush(folder.path(), 7, &|| false).expect("flushed"), 0);
    }

    #[test]
    fn reopen_finds_every_name_and_the_damage() {
        let folder = tempfile::tempdir().expect("a folder");
        let (filter, filled) = (PublishedFilter::new(100_000), PublishedFilter::new(100_000));
        (0..50_000).for_each(|number| filter.insert(name(number)));
        filled.fill((0..50_000).map(name));
        filled.update_all_checksums();
        let words = |filter: &PublishedFilter| -> Vec<u32> {
            filter.words.iter().map(|word| word.load(Ordering::Relaxed)).collect()
        };
        assert_eq!(words(&filter), words(&filled), "filled at once or one by one");
        filter.flush(folder.path(), 7, &|| false).expect("flushed");
        let opened = PublishedFilter::open(folder.path(), 100_000).expect("opened");
        assert_eq!((words(&opened.filter), opened.damaged_lines), (words(&filter), 0));

        let path = folder.path().join(BITS_FILE);
        let mut bytes = std::fs::read(&path).expect("read");
        bytes[64 * 5..64 * 5 + 20].fill(0x5a);
        // A bit that was set before its checksum was written: the open tries one bit.
        let unset = (64 * 9..64 * 10).find(|at| bytes[*at] & 1 == 0).expect("a bit");
        bytes[unset] |= 1;
        std::fs::write(&path, &bytes).expect("written");
        let opened = PublishedFilter::open(folder.path(), 100_000).expect("opened");
        assert_eq!(opened.damaged_lines, 1);
        assert!((0..50_000).all(|number| opened.filter.may_contain(name(number))));
        bytes[64..].fill(0x5a);
        std::fs::write(&path, &bytes).expect("written");
        assert!(PublishedFilter::open(folder.path(), 100_000).is_err());
    }
}

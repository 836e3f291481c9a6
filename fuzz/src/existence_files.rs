//! The files of an existence filter from mutated parts, with right checksums.
//!
//! FORMAT: `docs/formats/existence.md`. This code follows that page and does not use
//! `umbel_existence`.

use std::path::{Path, PathBuf};

use umbel_base::checksum::{checksum, checksum_parts};

use crate::memory_env::Image;
use crate::structured_input::Parts;

/// The folder of the filter.
pub const FOLDER: &str = "/existence";
/// Identities of the store and hash for which the files are assembled.
pub const WHOSE: (u64, u64) = (8, 3);
/// The keys of the journal and of the filter file.
const KEYS: (u64, u64) = (77, 99);
/// Number of the lineage of the covered log.
const HISTORY: u64 = 96;
const PAGE_BYTES: usize = 4096;
/// Maximum number of pages of the filter, so that an input takes little time.
const PAGES_MAX: u64 = 3;

fn path(name: &str) -> PathBuf {
    Path::new(FOLDER).join(name)
}

/// Returns the files that an input describes. The input has deviations of `CHECKPOINT`, words to be
/// set in the filter, records of the journal, and damage to the finished files.
pub fn assemble(mut parts: Parts<'_>) -> Image {
    let pages = 1 + parts.number::<1>() % PAGES_MAX;
    let unusual = parts.number::<1>();
    let (value, word) = (parts.number::<8>(), parts.number::<2>());
    let filter = filter(pages, word);
    let digests: Vec<u64> = filter.chunks(PAGE_BYTES).enumerate().skip(1).map(digest).collect();
    let mut fields = vec![2, 5, WHOSE.0, WHOSE.1, 7, 3, KEYS.0];
    // The history of the coverage, in every other one.
    let history = (word % 2 == 1).then_some(HISTORY);
    fields.extend(history);
    fields.push(1);
    fields.extend([5, 4, KEYS.1, 64 * pages, 60 * 64 * pages, 1, 0]);
    fields.extend(digests);
    // One of them is another number than it should be.
    let at = unusual as usize % fields.len();
    fields[at] ^= value;
    let version = 1 + u8::from(history.is_some());
    let mut checkpoint = [&b"UmbelExC"[..], &[version, 0, 0, 0, 0, 0, 0, 0]].concat();
    fields.iter().for_each(|field| checkpoint.extend_from_slice(&field.to_le_bytes()));
    let sum = checksum(u64::MAX, 0, &checkpoint);
    checkpoint.extend_from_slice(&sum.to_le_bytes());
    let journal = journal(&mut parts);
    let mut files =
        [("CHECKPOINT", checkpoint), ("000003.journal", journal), ("000004.filter", filter)];
    // Damage: a file, a place, a mask.
    while !parts.is_empty() {
        let (file, at, mask) = (parts.number::<1>(), parts.number::<2>(), parts.number::<1>());
        let bytes = &mut files[file as usize % 3].1;
        if let Some(byte) = bytes.get_mut(at as usize) {
            *byte ^= mask as u8;
        }
    }
    files.into_iter().map(|(name, bytes)| (path(name), bytes)).collect()
}

/// Returns valid files, except for one file, which has these bytes.
pub fn with_raw(mode: u8, bytes: &[u8]) -> Image {
    let mut files = assemble(Parts::new(&[]));
    let name = ["CHECKPOINT", "000003.journal", "000004.filter"][usize::from(mode) % 3];
    files.insert(path(name), bytes.to_vec());
    files
}

/// Returns a filter file: a header, and lines in some of which a word is set.
fn filter(pages: u64, word: u64) -> Vec<u8> {
    let mut header = [&b"UmbelExF"[..], &[1, 0, 0, 0, 5, 0, 0, 0]].concat();
    for field in [4, KEYS.1, 64 * pages, 60 * 64 * pages] {
        header.extend_from_slice(&field.to_le_bytes());
    }
    header.resize(PAGE_BYTES - 8, 0);
    let sum = checksum(KEYS.1, 0, &header);
    header.extend_from_slice(&sum.to_le_bytes());
    let mut bytes = header;
    for line in 0..64 * pages {
        let at = bytes.len();
        bytes.resize(at + 60, 0);
        if line % 5 == word % 5 {
            bytes[at..at + 2].copy_from_slice(&(word as u16).to_le_bytes());
        }
        let sum = checksum(KEYS.1, at as u64, &bytes[at..]) as u32;
        bytes.extend_from_slice(&sum.to_le_bytes());
    }
    bytes
}

fn digest((number, page): (usize, &[u8])) -> u64 {
    checksum(KEYS.1, (number * PAGE_BYTES) as u64, page)
}

/// Returns a journal: a header and up to eight records. The input has each record's kind, its
/// count, and the deviations of count and position from the correct values.
fn journal(parts: &mut Parts<'_>) -> Vec<u8> {
    let mut bytes = [&b"UmbelExJ"[..], &[1, 0, 0, 0, 0, 0, 0, 0]].concat();
    bytes.extend_from_slice(&3u64.to_le_bytes());
    bytes.extend_from_slice(&KEYS.0.to_le_bytes());
    bytes.resize(56, 0);
    let mut chain = checksum(KEYS.0, 0, &bytes);
    bytes.extend_from_slice(&chain.to_le_bytes());
    for number in 1..=parts.number::<1>() % 9 {
        let (kind, count) = (1 ^ parts.number::<1>() as u32, parts.number::<1>());
        let (more, covered) = (parts.number::<1>(), parts.number::<1>());
        let mut record = kind.to_le_bytes().to_vec();
        record.extend_from_slice(&((count + more) as u32).to_le_bytes());
        record.extend_from_slice(&(7 + number + covered).to_le_bytes());
        for index in 0..count {
            record.extend_from_slice(&(index << 56 | number).to_le_bytes());
        }
        chain = checksum_parts(KEYS.0, bytes.len() as u64, &[&chain.to_le_bytes(), &record]);
        bytes.extend_from_slice(&chain.to_le_bytes());
        bytes.extend_from_slice(&record);
    }
    bytes
}

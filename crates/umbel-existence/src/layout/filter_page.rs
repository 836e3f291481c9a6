//! The format of a filter file's pages, for writer and reader. `docs/formats/existence.md`
//! describes the bytes.

use umbel_base::checksum::checksum;
use umbel_base::fail_point;

use crate::layout::cache_line::{ALL_ONES, LAST_WORD, LINE_BYTES, LINE_WORDS, Line};

/// FORMAT: lines in a page.
pub(crate) const PAGE_LINES: u64 = 64;
/// FORMAT: bytes of a page; the header of a filter file takes one too.
pub(crate) const PAGE_BYTES: usize = 4096;

/// FORMAT: the first eight bytes of a filter file.
const MAGIC: [u8; 8] = *b"UmbelExF";
/// FORMAT: the version of filter files that this build writes.
const VERSION: u32 = 1;

/// The lines of one page in memory.
pub(crate) type PageBytes = [u8; PAGE_BYTES];

/// Lines of a page; `None` for a damaged line.
pub(crate) type PageLines = [Option<Line>; PAGE_LINES as usize];

/// FORMAT: the header: magic, version `u32`, probes `u32`, id, key, lines, keys `u64` each, zeros,
/// checksum `u64` of the 4088 bytes before it at offset 0.
pub(crate) fn header(id: u64, key: u64, probes: u32, lines: u64, keys: u64) -> PageBytes {
    let mut bytes = [0; PAGE_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12..16].copy_from_slice(&probes.to_le_bytes());
    for (field, at) in [id, key, lines, keys].into_iter().zip((16..).step_by(8)) {
        bytes[at..at + 8].copy_from_slice(&field.to_le_bytes());
    }
    let sum = checksum(key, 0, &bytes[..PAGE_BYTES - 8]);
    bytes[PAGE_BYTES - 8..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Whether bytes begin with the magic of a filter file.
pub(crate) fn has_magic(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// Offset of page `number` in its file.
pub(crate) fn offset(number: u64) -> u64 {
    (number + 1) * PAGE_BYTES as u64
}

/// FORMAT: the digest of a page in `CHECKPOINT`: the page's checksum at the page's offset.
fn digest(key: u64, number: u64, bytes: &[u8]) -> u64 {
    checksum(key, offset(number), bytes)
}

/// FORMAT: the low half of the checksum of a line's 60 bytes at the line's offset. All bits of the
/// sum are inverted if the line is all ones because it is damaged.
fn line_sum(key: u64, page: u64, line: usize, bits: &[u8]) -> u32 {
    checksum(key, offset(page) + (line * LINE_BYTES) as u64, bits) as u32
}

/// Appends a page to `output`, and marks the lines for which `is_damaged` is true. Returns the
/// page's digest.
pub(crate) fn encode(
    key: u64,
    number: u64,
    lines: &[Line; PAGE_LINES as usize],
    is_damaged: impl Fn(u64) -> bool,
    output: &mut Vec<u8>,
) -> u64 {
    let start = output.len();
    for (index, line) in lines.iter().enumerate() {
        let marked = is_damaged(number * PAGE_LINES + index as u64);
        let line = if marked { &ALL_ONES } else { line };
        let at = output.len();
        line.iter().for_each(|word| output.extend_from_slice(&word.to_le_bytes()));
        let sum = line_sum(key, number, index, &output[at..at + LINE_BYTES - 4]);
        let sum = if marked { !sum } else { sum };
        output[at + LINE_BYTES - 4..].copy_from_slice(&sum.to_le_bytes());
    }
    digest(key, number, &output[start..])
}

fn digest_matches(key: u64, number: u64, bytes: &PageBytes, expected: u64) -> bool {
    fail_point!("existence-ignore-page-digest", |_| true);
    digest(key, number, bytes) == expected
}

/// Returns the lines of a page. If the page's digest does not match, each line is checked by its
/// own checksum. If all lines then match, the page is an old one, and no line is valid. Without
/// `has_marks`, no line of the page was marked as damaged when the page was written.
///
/// INVARIANT: a line that differs from the written line is `None`, except with a chance of 2^-32.
pub(crate) fn decode(
    key: u64,
    number: u64,
    expected: u64,
    has_marks: bool,
    bytes: &PageBytes,
) -> PageLines {
    let mut intact = digest_matches(key, number, bytes, expected);
    let (lines, _) = bytes.as_chunks::<LINE_BYTES>();
    if intact && !has_marks {
        return std::array::from_fn(|index| Some(words(&lines[index])));
    }
    let mut unsound = 0;
    let mut found: PageLines = std::array::from_fn(|index| {
        let (bits, sum) = lines[index].split_at(LINE_BYTES - 4);
        let right = line_sum(key, number, index, bits).to_le_bytes();
        let marked = right.map(|byte| !byte);
        unsound += usize::from(sum != right && sum != marked);
        (sum == right).then(|| words(&lines[index]))
    });
    // A digest that does not match although every line does: a page of another time.
    intact |= unsound > 0;
    if !intact {
        found = [None; PAGE_LINES as usize];
    }
    found
}

fn words(bytes: &[u8; LINE_BYTES]) -> Line {
    let (words, _) = bytes.as_chunks::<8>();
    let mut line: Line = std::array::from_fn(|index| u64::from_le_bytes(words[index]));
    line[LINE_WORDS - 1] &= LAST_WORD;
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> [Line; PAGE_LINES as usize] {
        std::array::from_fn(|line| {
            let mut words: Line = std::array::from_fn(|word| (line * word * 77) as u64);
            words[LINE_WORDS - 1] &= LAST_WORD;
            words
        })
    }

    fn encoded(marked: Option<u64>) -> (PageBytes, u64) {
        let mut bytes = Vec::new();
        let digest = encode(5, 3, &page(), |line| Some(line) == marked, &mut bytes);
        (bytes.try_into().unwrap(), digest)
    }

    #[test]
    fn page_round_trips_and_keeps_its_marks() {
        let (bytes, digest) = encoded(None);
        assert_eq!(decode(5, 3, digest, false, &bytes), page().map(Some));
        let (bytes, digest) = encoded(Some(3 * 64 + 7));
        let read = decode(5, 3, digest, true, &bytes);
        assert_eq!(read[7], None);
        assert_eq!(read.iter().flatten().count(), 63);
    }

    #[test]
    fn flipped_bit_invalidates_only_its_line() {
        let (bytes, digest) = encoded(None);
        for bit in 0..PAGE_BYTES * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            let read = decode(5, 3, digest, bit % 2 == 0, &damaged);
            for (index, line) in read.iter().enumerate() {
                let hit = index == bit / 8 / LINE_BYTES;
                assert_eq!(*line, (!hit).then(|| page()[index]), "bit {bit}, line {index}");
            }
        }
    }

    #[test]
    fn zeroed_misplaced_and_old_pages_are_ignored() {
        let (bytes, digest) = encoded(None);
        let nothing: PageLines = [None; PAGE_LINES as usize];
        assert_eq!(decode(5, 3, digest, false, &[0; PAGE_BYTES]), nothing);
        assert_eq!(decode(6, 3, digest, false, &bytes), nothing);
        assert_eq!(decode(5, 4, digest, false, &bytes), nothing);
        assert_eq!(decode(5, 3, digest ^ 1, false, &bytes), nothing);
    }
}

//! Builds the encoded filter from all its hashes, one part after the other.

use super::KIND;
use crate::format::bloom_header::HEADER_BYTES;
use crate::format::static_filter_header::StaticHeader;
use crate::radix_partition::scatter;
use crate::ribbon::back_substitution::back_substitute;
use crate::ribbon::banding::Banding;
use crate::ribbon::column_layout::{BLOCK, BLOCKS_MAX, ColumnLayout, PartEntry};
use crate::ribbon::row_density::RowDensity;
use crate::ribbon::row_hash::{mix, part_of};

/// About this number of keys share a part: with its rows it fits the second cache, and overfull
/// stretches are rare enough in it.
const KEYS_PER_PART: usize = 1 << 14;
/// Maximum number of parts: one line of eight hashes for each still fits the L2 cache. Beyond,
/// parts become larger.
const PARTS_MAX: usize = 1 << 14;
/// Number of slots per key in which a row can begin, up to [`COMMON_COLUMNS`] columns.
/// Fewer make crowded stretches common, so that more seeds have to be tried; more take space.
const SLOTS_PER_KEY: f64 = 1.04;
/// Filters of more columns have space for shorter queues: this many more slots for each column.
const COMMON_COLUMNS: u32 = 14;
const EXTRA_SLOTS_PER_COLUMN: f64 = 0.004;
/// With how many seeds it is tried to have the rows of a part nowhere too crowded. After that the
/// best one is taken: every seed gives a valid filter.
const SEED_TRIES: u8 = 64;

/// Collects hashes; the filter is sized and built at the end. That always succeeds.
///
/// Takes 8 bytes of memory for each hash while it collects. [`RibbonBuilder::finish`] needs up to
/// 16 bytes for each, then 8 and the filter.
///
/// ```
/// use umbel_filter::{RibbonBuilder, RibbonView};
///
/// let mut builder = RibbonBuilder::new(0.03);
/// (0..1000).for_each(|number| builder.add(number));
/// let bytes = builder.finish();
/// let filter = RibbonView::parse(&bytes)?;
/// assert!((0..1000).all(|number| filter.contains(number)));
/// # Ok::<(), umbel_filter::FilterError>(())
/// ```
#[derive(Clone, Debug)]
pub struct RibbonBuilder {
    columns: ColumnLayout,
    hash_kind: u8,
    seed_id: u32,
    hashes: Vec<u64>,
}

impl RibbonBuilder {
    /// A builder of a filter that passes about `rate` of all absent keys. The rate is clamped to
    /// 2^-32 (also for NaN) and to
    /// a half.
    pub fn new(rate: f64) -> RibbonBuilder {
        RibbonBuilder::from_hashes(rate, Vec::new())
    }

    /// The same, with hashes that are there already.
    pub fn from_hashes(rate: f64, hashes: Vec<u64>) -> RibbonBuilder {
        let header = StaticHeader::new(KIND);
        RibbonBuilder {
            columns: ColumnLayout::of(rate),
            hash_kind: header.hash_kind,
            seed_id: header.seed_id,
            hashes,
        }
    }

    /// Notes in the filter which of the store's seeds its hashes are made with.
    pub fn with_seed_id(mut self, seed_id: u32) -> RibbonBuilder {
        self.seed_id = seed_id;
        self
    }

    /// Notes in the filter by its number which hash function the hashes come from; without it the
    /// keyed default. A filter over a number that readers do not know answers "maybe".
    pub fn with_hash_kind(mut self, hash_kind: u8) -> RibbonBuilder {
        self.hash_kind = hash_kind;
        self
    }

    /// Adds a key by its hash. Equal hashes in a row count once; others take space until one in
    /// sixteen is there again, and are then taken out.
    #[inline]
    pub fn add(&mut self, hash: u64) {
        if self.hashes.last() != Some(&hash) {
            self.hashes.push(hash);
        }
    }

    /// Number of hashes added.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Whether no hash was added.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Number of bytes the filter of `keys` different hashes has, give or take two blocks of 64
    /// slots for each of its parts.
    ///
    /// A key takes 1.04 slots, and a part 64 more and the rounding up to whole blocks: at
    /// 16,384 keys for each part 1.046 slots, 1.06 at 5,000 keys, 1.16 at 1,000 and 1.92 at 100.
    /// A slot has `log2(1 / rate)` bits where that is a whole number, else up to 0.086 more.
    pub fn expected_bytes(&self, keys: u64) -> u64 {
        let parts = parts_for(usize::try_from(keys).unwrap_or(usize::MAX)) as u64;
        let words = self
            .columns
            .words(blocks_for(keys.div_ceil(parts), self.columns))
            .saturating_mul(parts);
        words
            .saturating_mul(8)
            .saturating_add(HEADER_BYTES as u64 + parts * PartEntry::BYTES as u64)
    }

    /// The encoded filter. The same hashes in the same order give the same bytes.
    pub fn finish(self) -> Vec<u8> {
        let parts = parts_for(self.hashes.len());
        let expected = self.expected_bytes(self.hashes.len() as u64);
        let (mut mixed, ends) = scatter(&self.hashes, parts, mix);
        drop(self.hashes);
        let mut filter = PartBuilder::new(self.columns, parts as u32, expected);
        let mut start = 0;
        for (part, end) in ends.into_iter().enumerate() {
            filter.build(part, &mut mixed[start..end]);
            start = end;
        }
        let mut header = StaticHeader::new(KIND);
        header.hash_kind = self.hash_kind;
        header.seed_id = self.seed_id;
        header.keys = filter.keys;
        header.units = filter.slots;
        header.fields[0] = self.columns.all as u8;
        header.fields[2..6].copy_from_slice(&(parts as u32).to_le_bytes());
        header.fields[6..10].copy_from_slice(&self.columns.lower.to_le_bytes());
        filter.bytes[..HEADER_BYTES].copy_from_slice(&header.to_bytes());
        filter.bytes
    }
}

fn parts_for(keys: usize) -> usize {
    (keys / KEYS_PER_PART).clamp(1, PARTS_MAX)
}

/// Number of blocks a part of `keys` keys has.
fn blocks_for(keys: u64, columns: ColumnLayout) -> u64 {
    let more = f64::from(columns.most().saturating_sub(COMMON_COLUMNS)) * EXTRA_SLOTS_PER_COLUMN;
    let slots = (keys as f64 * (SLOTS_PER_KEY + more)) as u64;
    (slots.div_ceil(BLOCK).max(1) + 1).min(BLOCKS_MAX)
}

/// The parts of a filter that were built so far.
struct PartBuilder {
    columns: ColumnLayout,
    count: u32,
    /// Header and directory, still to be written, and the words of the parts.
    bytes: Vec<u8>,
    crowding: RowDensity,
    banding: Banding,
    words: Vec<u64>,
    slots: u64,
    keys: u64,
}

impl PartBuilder {
    fn new(columns: ColumnLayout, count: u32, expected_bytes: u64) -> PartBuilder {
        let mut bytes = Vec::with_capacity(usize::try_from(expected_bytes).unwrap_or(0));
        bytes.resize(HEADER_BYTES + count as usize * PartEntry::BYTES, 0);
        let (crowd, band, words) = (RowDensity::default(), Banding::default(), Vec::new());
        PartBuilder {
            columns,
            count,
            bytes,
            crowding: crowd,
            banding: band,
            words,
            slots: 0,
            keys: 0,
        }
    }

    /// Builds part `number`, the next one, from its mixed hashes.
    fn build(&mut self, number: usize, mixed: &mut [u64]) {
        let mut mixed = mixed;
        let mut blocks = blocks_for(mixed.len() as u64, self.columns);
        let mut seed = self.choose_seed(mixed, blocks);
        self.banding.fill(row_hashes(mixed, self.count), blocks, seed);
        if self.banding.redundant() > mixed.len() / 16 {
            mixed = deduplicate(mixed);
            blocks = blocks_for(mixed.len() as u64, self.columns);
            seed = self.choose_seed(mixed, blocks);
            self.banding.fill(row_hashes(mixed, self.count), blocks, seed);
        }
        let directory = HEADER_BYTES + self.count as usize * PartEntry::BYTES;
        let first_word = (self.bytes.len() - directory) as u64 / 8;
        let entry = PartEntry { first_word, blocks, seed }.to_bytes();
        let at = HEADER_BYTES + number * PartEntry::BYTES;
        self.bytes[at..at + PartEntry::BYTES].copy_from_slice(&entry);
        self.words.clear();
        self.words.resize(self.columns.words(blocks) as usize, 0);
        back_substitute(self.banding.slots(), self.columns, self.slots, &mut self.words);
        self.bytes.extend(self.words.iter().flat_map(|word| word.to_le_bytes()));
        self.slots += blocks * BLOCK;
        self.keys += mixed.len() as u64;
    }

    /// The first seed with which the rows are nowhere too crowded, or the one with which they are
    /// the least.
    fn choose_seed(&mut self, mixed: &[u64], blocks: u64) -> u8 {
        let tolerated = queue_max(self.columns);
        let (mut best, mut least) = (0, usize::MAX);
        for seed in 0..SEED_TRIES {
            let longest = self.crowding.longest(row_hashes(mixed, self.count), blocks, seed);
            if longest < least {
                (best, least) = (seed, longest);
            }
            if longest <= tolerated {
                break;
            }
        }
        best
    }
}

/// Rest of the mixed hashes after the choice of the part.
fn row_hashes(mixed: &[u64], parts: u32) -> impl Iterator<Item = u64> {
    mixed.iter().map(move |mixed| part_of(*mixed, u64::from(parts)).1)
}

/// Maximum length of the queue of rows. Where it is shorter than a row by the number of
/// columns, or a few more, the densest range adds less than a hundredth to the share
/// of absent keys that pass, because the range is short.
fn queue_max(columns: ColumnLayout) -> usize {
    62usize.saturating_sub(columns.most() as usize).min(48)
}

/// Moves the distinct hashes to the front, and returns them.
fn deduplicate(mixed: &mut [u64]) -> &mut [u64] {
    mixed.sort_unstable();
    let mut kept = 0;
    for at in 0..mixed.len() {
        if at == 0 || mixed[at] != mixed[at - 1] {
            mixed[kept] = mixed[at];
            kept += 1;
        }
    }
    &mut mixed[..kept]
}

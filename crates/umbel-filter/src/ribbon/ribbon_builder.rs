//! Builds the encoded filter from all its hashes, one part after the other.

use super::KIND;
use crate::format::bloom_header::HEADER_BYTES;
use crate::format::static_filter_header::StaticHeader;
use crate::radix_partition::scatter;
use crate::ribbon::back_substitution::back_substitute;
use crate::ribbon::banding::Banding;
use crate::ribbon::column_layout::{BLOCK, BLOCKS_MAX, ColumnLayout, PartEntry};
use crate::ribbon::row_hash::{mix, part_of};
use crate::ribbon::rows_per_slot::RowsPerSlot;

/// Approximate number of keys of a part. A part of this size fits the L2 cache with its rows, and
/// overfull stretches are rare enough in it.
const KEYS_PER_PART: usize = 1 << 14;
/// Maximum number of parts: one line of eight hashes for each part still fits the L2 cache. With
/// more keys parts become larger.
const PARTS_MAX: usize = 1 << 14;
/// Number of slots per key in which a row can begin, up to [`COMMON_COLUMNS`] columns. With fewer
/// slots crowded stretches are common, so that more seeds have to be tried; more slots take space.
const SLOTS_PER_KEY: f64 = 1.04;
/// Number of columns above which a filter has more slots for each column, so that queues are
/// shorter.
const COMMON_COLUMNS: u32 = 14;
const EXTRA_SLOTS_PER_COLUMN: f64 = 0.004;
/// Number of seeds that are tried to avoid crowded stretches in a part. After that the best seed is
/// taken, since every seed gives a valid filter.
const SEED_TRIES: u8 = 64;

/// Collects hashes, and sizes and builds a ribbon filter at the end, which always succeeds.
///
/// Takes 8 bytes of memory for each hash while it collects. [`RibbonBuilder::finish`] needs up to
/// 16 bytes for each hash, then 8 bytes and the filter.
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
    /// Creates a builder of a filter that passes a share of about `rate` of absent keys. The rate
    /// is clamped to 2^-32 (also for NaN) and to a half.
    pub fn new(rate: f64) -> RibbonBuilder {
        RibbonBuilder::from_hashes(rate, Vec::new())
    }

    /// Creates a builder as [`RibbonBuilder::new`] does, with `hashes` already added.
    pub fn from_hashes(rate: f64, hashes: Vec<u64>) -> RibbonBuilder {
        let header = StaticHeader::new(KIND);
        RibbonBuilder {
            columns: ColumnLayout::of(rate),
            hash_kind: header.hash_kind,
            seed_id: header.seed_id,
            hashes,
        }
    }

    /// Sets the id of the store's seed by which hashes are computed, for the filter's header.
    pub fn with_seed_id(mut self, seed_id: u32) -> RibbonBuilder {
        self.seed_id = seed_id;
        self
    }

    /// Sets the number of the hash function for the filter's header; without a call it is the keyed
    /// hash. A reader that does not know the number answers "maybe" to every key.
    pub fn with_hash_kind(mut self, hash_kind: u8) -> RibbonBuilder {
        self.hash_kind = hash_kind;
        self
    }

    /// Adds a key by its hash. Equal consecutive hashes count once. Other repeated hashes take
    /// space, unless one in sixteen hashes is repeated; then all repeated hashes are removed.
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

    /// Approximate number of bytes of the filter of `keys` different hashes, within two blocks of
    /// 64 slots for each part.
    ///
    /// A key takes 1.04 slots. A part has 64 more slots and is rounded up to whole blocks. So a
    /// filter has 1.046 slots for each key with 16,384 keys in each part, 1.06 with 5,000 keys,
    /// 1.16 with 1,000 and 1.92 with 100. A slot has `log2(1 / rate)` bits if that is a whole
    /// number, else up to 0.086 more.
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

    /// Builds and encodes the filter. The same hashes in the same order give the same bytes.
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

/// Number of blocks of a part of `keys` keys.
fn blocks_for(keys: u64, columns: ColumnLayout) -> u64 {
    let more = f64::from(columns.most().saturating_sub(COMMON_COLUMNS)) * EXTRA_SLOTS_PER_COLUMN;
    let slots = (keys as f64 * (SLOTS_PER_KEY + more)) as u64;
    (slots.div_ceil(BLOCK).max(1) + 1).min(BLOCKS_MAX)
}

/// The parts of a filter that are built so far.
struct PartBuilder {
    columns: ColumnLayout,
    count: u32,
    /// Space for header and directory, and the words of the parts.
    bytes: Vec<u8>,
    crowding: RowsPerSlot,
    banding: Banding,
    words: Vec<u64>,
    slots: u64,
    keys: u64,
}

impl PartBuilder {
    fn new(columns: ColumnLayout, count: u32, expected_bytes: u64) -> PartBuilder {
        let mut bytes = Vec::with_capacity(usize::try_from(expected_bytes).unwrap_or(0));
        bytes.resize(HEADER_BYTES + count as usize * PartEntry::BYTES, 0);
        let (crowd, band, words) = (RowsPerSlot::default(), Banding::default(), Vec::new());
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

    /// Builds the next part, with number `number`, from its mixed hashes.
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

    /// Chooses the first seed whose queue is short enough, or the seed with the shortest queue.
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

/// Remaining bits of the mixed hashes after the choice of the part.
fn row_hashes(mixed: &[u64], parts: u32) -> impl Iterator<Item = u64> {
    mixed.iter().map(move |mixed| part_of(*mixed, u64::from(parts)).1)
}

/// Maximum length of the queue of rows. A queue shorter than a row by the number of columns, or by
/// a few more, adds less than a hundredth to the false-positive rate, because its stretch is short.
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

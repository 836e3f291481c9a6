//! Builds the encoded filter from all its hashes, one part after the other.

use super::KIND;
use super::band::Band;
use super::crowd::Crowd;
use super::place::{mix, part_of};
use super::shape::{BLOCK, Columns, MOST_BLOCKS, Part};
use super::solve::solve;
use crate::encoding::HEADER_BYTES;
use crate::scatter::scatter;
use crate::static_header::StaticHeader;

/// About so many keys share a part: with its rows it fits the second cache, and overfull stretches
/// are rare enough in it.
const PART_KEYS: usize = 1 << 14;
/// The most parts: so many lines of eight hashes each still fit the second cache. Beyond, parts
/// become larger.
const MOST_PARTS: usize = 1 << 14;
/// How many slots that a row can begin in there are for a key, up to [`COMMON_COLUMNS`] columns.
/// Fewer make crowded stretches common, so that more seeds have to be tried; more take space.
const SLOTS_PER_KEY: f64 = 1.04;
/// Filters of more columns have room for shorter queues: so many slots more for each column.
const COMMON_COLUMNS: u32 = 14;
const MORE_SLOTS: f64 = 0.004;
/// With how many seeds it is tried to have the rows of a part nowhere too crowded. After that the
/// best one is taken: every seed gives a valid filter.
const SEEDS: u8 = 64;

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
    columns: Columns,
    hash_kind: u8,
    seed_id: u32,
    hashes: Vec<u64>,
}

impl RibbonBuilder {
    /// A builder of a filter that lets about `rate` of all absent keys pass: from 2^-32, which also
    /// stands for what is not above 0 and for what is no number, to a half, which stands for all
    /// above.
    pub fn new(rate: f64) -> RibbonBuilder {
        RibbonBuilder::from_hashes(rate, Vec::new())
    }

    /// The same, with hashes that are there already.
    pub fn from_hashes(rate: f64, hashes: Vec<u64>) -> RibbonBuilder {
        let header = StaticHeader::new(KIND);
        RibbonBuilder {
            columns: Columns::of(rate),
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

    /// How many hashes were added.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Whether no hash was added.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// How many bytes the filter of `keys` different hashes has, give or take two blocks of 64
    /// slots for each of its parts.
    ///
    /// A key takes 1.04 slots, and a part 64 more and what rounding up to whole blocks makes: at
    /// 16,384 keys for each part 1.046 slots, 1.06 at 5,000 keys, 1.16 at 1,000 and 1.92 at 100.
    /// A slot has `log2(1 / rate)` bits where that is a whole number and up to 0.086 more between.
    pub fn expected_bytes(&self, keys: u64) -> u64 {
        let parts = parts_for(usize::try_from(keys).unwrap_or(usize::MAX)) as u64;
        let words = self
            .columns
            .words(blocks_for(keys.div_ceil(parts), self.columns))
            .saturating_mul(parts);
        words.saturating_mul(8).saturating_add(HEADER_BYTES as u64 + parts * Part::BYTES as u64)
    }

    /// The encoded filter. The same hashes in the same order give the same bytes.
    pub fn finish(self) -> Vec<u8> {
        let parts = parts_for(self.hashes.len());
        let expected = self.expected_bytes(self.hashes.len() as u64);
        let (mut mixed, ends) = scatter(&self.hashes, parts, mix);
        drop(self.hashes);
        let mut filter = Parts::new(self.columns, parts as u32, expected);
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
    (keys / PART_KEYS).clamp(1, MOST_PARTS)
}

/// How many blocks a part of `keys` keys has.
fn blocks_for(keys: u64, columns: Columns) -> u64 {
    let more = f64::from(columns.most().saturating_sub(COMMON_COLUMNS)) * MORE_SLOTS;
    let slots = (keys as f64 * (SLOTS_PER_KEY + more)) as u64;
    (slots.div_ceil(BLOCK).max(1) + 1).min(MOST_BLOCKS)
}

/// The parts of a filter that were built so far.
struct Parts {
    columns: Columns,
    count: u32,
    /// Header and directory, still to be written, and the words of the parts.
    bytes: Vec<u8>,
    crowd: Crowd,
    band: Band,
    words: Vec<u64>,
    slots: u64,
    keys: u64,
}

impl Parts {
    fn new(columns: Columns, count: u32, expected_bytes: u64) -> Parts {
        let mut bytes = Vec::with_capacity(usize::try_from(expected_bytes).unwrap_or(0));
        bytes.resize(HEADER_BYTES + count as usize * Part::BYTES, 0);
        let (crowd, band, words) = (Crowd::default(), Band::default(), Vec::new());
        Parts { columns, count, bytes, crowd, band, words, slots: 0, keys: 0 }
    }

    /// Builds part `number`, the next one, from its mixed hashes.
    fn build(&mut self, number: usize, mixed: &mut [u64]) {
        let mut mixed = mixed;
        let mut blocks = blocks_for(mixed.len() as u64, self.columns);
        let mut seed = self.choose_seed(mixed, blocks);
        self.band.fill(left(mixed, self.count), blocks, seed);
        if self.band.redundant() > mixed.len() / 16 {
            mixed = different(mixed);
            blocks = blocks_for(mixed.len() as u64, self.columns);
            seed = self.choose_seed(mixed, blocks);
            self.band.fill(left(mixed, self.count), blocks, seed);
        }
        let directory = HEADER_BYTES + self.count as usize * Part::BYTES;
        let first_word = (self.bytes.len() - directory) as u64 / 8;
        let entry = Part { first_word, blocks, seed }.to_bytes();
        let at = HEADER_BYTES + number * Part::BYTES;
        self.bytes[at..at + Part::BYTES].copy_from_slice(&entry);
        self.words.clear();
        self.words.resize(self.columns.words(blocks) as usize, 0);
        solve(self.band.slots(), self.columns, self.slots, &mut self.words);
        self.bytes.extend(self.words.iter().flat_map(|word| word.to_le_bytes()));
        self.slots += blocks * BLOCK;
        self.keys += mixed.len() as u64;
    }

    /// The first seed with which the rows are nowhere too crowded, or the one with which they are
    /// the least.
    fn choose_seed(&mut self, mixed: &[u64], blocks: u64) -> u8 {
        let tolerated = tolerated(self.columns);
        let (mut best, mut least) = (0, usize::MAX);
        for seed in 0..SEEDS {
            let longest = self.crowd.longest(left(mixed, self.count), blocks, seed);
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

/// What is left of mixed hashes behind the choice of the part.
fn left(mixed: &[u64], parts: u32) -> impl Iterator<Item = u64> {
    mixed.iter().map(move |mixed| part_of(*mixed, u64::from(parts)).1)
}

/// How long the queue of rows may become. Where it is shorter than a row by as many as there are
/// columns, or a few more, the stretch where it is longest adds less than a hundredth to the share
/// of absent keys that pass, for the stretch is short.
fn tolerated(columns: Columns) -> usize {
    62usize.saturating_sub(columns.most() as usize).min(48)
}

/// Puts what is different to the front, and returns it.
fn different(mixed: &mut [u64]) -> &mut [u64] {
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

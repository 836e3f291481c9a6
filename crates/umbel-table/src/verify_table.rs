//! Verifies a table: reads every byte of the file and checks checksums, order and counts.

use std::cmp::Ordering;

use umbel_base::{BlobPointer, Error, Result, SequenceNumber, ValueKind};
use umbel_filter::{KeyHasher, PrefixHasher};

use crate::block::block_search_data::SearchDataKind;
use crate::block::{Block, EntryPosition};
use crate::filter::resident_filter::ResidentFilter;
use crate::filter::resident_prefix_filter::ResidentPrefixFilter;
use crate::format::footer::read_metadata_block;
use crate::format::footer::{FOOTER_BYTES, Footer};
use crate::format::range_tombstone_block::RangeTombstoneBlock;
use crate::format::table_meta::TableMeta;
use crate::format::{BlockKind, HEADER_BYTES, chain_checksum, header, sealed_checksum};
use crate::index::in_memory_index::TableIndex;
use crate::index::index_loading::IndexRegion;
use crate::reader::table_reader::Table;

/// Approximate bytes that one read of the data region reads.
const PIECE_BYTES: usize = 1024 * 1024;

/// Counts of the verified data, in which no damage was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VerifyReport {
    /// Number of bytes read, which is the length of the file.
    pub bytes: u64,
    /// Number of data blocks.
    pub blocks: u64,
    /// Number of entries, all versions and deletes included.
    pub entries: u64,
    /// Number of entries that are deletes.
    pub deletes: u64,
    /// Number of range tombstones.
    pub range_tombstones: u64,
    /// Number of distinct keys for which the filter was probed; 0 without a filter, or if its hash
    /// function is not known.
    pub filter_keys: u64,
}

/// The filters whose hash function is known, so that they are probed for each key.
#[derive(Default)]
struct VerifiedFilters {
    of_keys: Vec<ResidentFilter>,
    of_prefixes: Option<(ResidentPrefixFilter, PrefixHasher)>,
}

impl VerifiedFilters {
    fn is_empty(&self) -> bool {
        self.of_keys.is_empty() && self.of_prefixes.is_none()
    }

    fn rejects(&self, hash: u64, key: &[u8]) -> bool {
        let by_prefix = self.of_prefixes.as_ref();
        !self.of_keys.iter().all(|filter| filter.may_contain(hash))
            || by_prefix.is_some_and(|(filter, hasher)| !filter.may_contain_key(hasher, key))
    }
}

/// State of a verification: counts and positions of the data read so far.
#[derive(Default)]
struct VerifyState {
    report: VerifyReport,
    chain: u64,
    key: Vec<u8>,
    sequence: SequenceNumber,
    scratch: Vec<u8>,
    smallest: Vec<u8>,
    key_bytes: u64,
    value_bytes: u64,
    sequence_min: SequenceNumber,
    sequence_max: SequenceNumber,
    blobs: Vec<BlobPointer>,
}

impl Table {
    /// Reads the whole file and checks every checksum, the order of the entries within and across
    /// blocks and against the index, and all counts. Checks that the filters pass every key, and
    /// that every byte of the file belongs to a region. No block enters the cache.
    ///
    /// # Errors
    /// [`Error::Corruption`] for the first damage; the file's error if a read fails.
    pub fn verify(&self) -> Result<VerifyReport> {
        let footer = self.footer();
        let mut start = [0; HEADER_BYTES];
        self.file().read_exact_at(&mut start, 0)?;
        if start != header(footer.file_id) {
            return Err(self.corruption(0, "the header of the file is damaged"));
        }
        let (again, checksum) = Footer::read(self.file(), footer.file_id)?;
        if again != *footer || checksum != self.meta().footer_checksum {
            return Err(self.corruption(0, "the file is no longer the one that was opened"));
        }
        let (index, filters) = self.verify_metadata()?;
        let tombstones = self.read_tombstones()?;
        let probed = Some(&filters).filter(|filters| !filters.is_empty()).zip(self.hasher());
        let mut walk = VerifyState { sequence_min: u64::MAX, ..VerifyState::default() };
        self.verify_data(&index, probed, &mut walk)?;
        if walk.chain != footer.data.checksum {
            let reason = "a data block is not the one that the footer was written for";
            return Err(self.corruption(footer.data.offset, reason));
        }
        walk.blobs.sort_unstable_by_key(|blob| blob.id);
        self.verify_counts(&walk, &tombstones)?;
        let mut report = walk.report;
        report.range_tombstones = self.meta().range_tombstones;
        report.bytes = footer.properties.offset + footer.properties.len + FOOTER_BYTES as u64;
        Ok(report)
    }

    /// Reads all regions after the data again.
    fn verify_metadata(&self) -> Result<(TableIndex, VerifiedFilters)> {
        let footer = self.footer();
        let part = |region, kind| read_metadata_block(self.file(), footer, region, kind);
        part(footer.properties, BlockKind::Properties)?;
        let [plain, second, prefix] = self.filter_regions();
        let mut filters = VerifiedFilters::default();
        if let Some(plain) = plain {
            filters.of_keys.extend(self.decode_filter(plain, BlockKind::Filter, 1)?);
        }
        if let Some(second) = second {
            filters.of_keys.extend(self.decode_filter(second, BlockKind::SecondFilter, 1)?);
        }
        if let Some(prefix) = prefix {
            filters.of_prefixes = self.decode_prefix_filter(prefix)?.zip(self.prefixes());
        }
        if !self.filter_is_usable() {
            filters = VerifiedFilters::default();
        }
        let region = IndexRegion::new(self.file().path(), footer);
        let (_, index) = region.read_all(self.file(), self.slots().arena())?;
        Ok((index, filters))
    }

    fn verify_data(
        &self,
        index: &TableIndex,
        filters: Option<(&VerifiedFilters, &KeyHasher)>,
        walk: &mut VerifyState,
    ) -> Result<()> {
        let mut piece = Vec::new();
        let mut number = 0;
        while let Some((piece_at, first_len)) = index.extent(number) {
            let mut len = first_len;
            let mut end = number + 1;
            while let Some((_, next)) = index.extent(end).filter(|(_, n)| len + n < PIECE_BYTES) {
                len += next;
                end += 1;
            }
            piece.resize(len, 0);
            self.file().read_exact_at(&mut piece, piece_at)?;
            for block in number..end {
                let Some((offset, len)) = index.extent(block) else { break };
                let skip = (offset - piece_at) as usize;
                let sealed = piece.get(skip..skip + len).unwrap_or_default();
                walk.chain = chain_checksum(walk.chain, offset, sealed_checksum(sealed));
                let parsed = self.parse_block(offset, sealed, SearchDataKind::Offsets)?;
                let refuse = |reason: &str| self.corruption(offset, reason);
                walk.block(&parsed, filters, refuse)?;
                verify_bounds(index, block, &parsed, walk, refuse)?;
            }
            number = end;
        }
        Ok(())
    }

    fn verify_counts(&self, walk: &VerifyState, tombstones: &RangeTombstoneBlock) -> Result<()> {
        let meta = self.meta();
        let mut smallest = (meta.entries > 0).then_some(walk.smallest.as_slice());
        let mut largest = walk.key.as_slice();
        let (mut least, mut greatest) = (walk.sequence_min, walk.sequence_max);
        for tombstone in tombstones.iter() {
            if smallest.is_none_or(|smallest| tombstone.start < smallest) {
                smallest = Some(tombstone.start);
            }
            largest = largest.max(tombstone.end);
            least = least.min(tombstone.sequence);
            greatest = greatest.max(tombstone.sequence);
        }
        let exclusive = meta.entries == 0 || largest != walk.key;
        let seen = TableMeta {
            entries: walk.report.entries,
            deletes: walk.report.deletes,
            key_bytes: walk.key_bytes,
            value_bytes: walk.value_bytes,
            smallest: smallest.unwrap_or_default().to_vec(),
            largest: largest.to_vec(),
            largest_is_exclusive: exclusive,
            sequence_min: least,
            sequence_max: greatest,
            blobs: walk.blobs.clone(),
            ..meta.clone()
        };
        if seen == *meta {
            return Ok(());
        }
        let reason = "the counts of entries differ from those in the properties";
        Err(self.corruption(self.footer().properties.offset, reason))
    }
}

impl VerifyState {
    /// Reads the entries of a block, and checks their order, counts and filters.
    fn block(
        &mut self,
        block: &Block,
        filters: Option<(&VerifiedFilters, &KeyHasher)>,
        refuse: impl Fn(&str) -> Error,
    ) -> Result<()> {
        self.report.blocks += 1;
        for group in 0..block.groups() {
            for entry in 0..block.group_entries(group) {
                let Some(entry) = block.entry(EntryPosition { group, entry }) else {
                    return Err(refuse("an entry cannot be read"));
                };
                self.scratch.clear();
                self.scratch.extend_from_slice(block.prefix(group));
                self.scratch.extend_from_slice(entry.suffix);
                let key_order = self.key.cmp(&self.scratch);
                let first = self.report.entries == 0;
                let entry_order = key_order.then_with(|| entry.sequence.cmp(&self.sequence));
                if !first && entry_order != Ordering::Less {
                    return Err(refuse("an entry is not after the one before it"));
                }
                if first {
                    self.smallest.clone_from(&self.scratch);
                }
                if (first || key_order != Ordering::Equal)
                    && let Some((filters, hasher)) = filters
                {
                    self.report.filter_keys += 1;
                    if filters.rejects(hasher.hash(&self.scratch), &self.scratch) {
                        return Err(refuse("the filter rejects a key that the table has"));
                    }
                }
                if entry.kind == ValueKind::BlobPointer {
                    let pointer = BlobPointer::decode(entry.value);
                    self.blobs
                        .push(pointer.ok_or_else(|| refuse("an entry is not a blob pointer"))?);
                }
                self.report.entries += 1;
                self.report.deletes += u64::from(entry.kind == ValueKind::Delete);
                self.key_bytes += self.scratch.len() as u64;
                self.value_bytes += entry.value.len() as u64;
                self.sequence = entry.sequence;
                self.sequence_min = self.sequence_min.min(entry.sequence);
                self.sequence_max = self.sequence_max.max(entry.sequence);
                std::mem::swap(&mut self.key, &mut self.scratch);
            }
        }
        Ok(())
    }
}

/// Checks that a block, whose last entry was read last, lies between its separators.
fn verify_bounds(
    index: &TableIndex,
    number: usize,
    block: &Block,
    walk: &VerifyState,
    refuse: impl Fn(&str) -> Error,
) -> Result<()> {
    let own = index.compare(number, &walk.key, walk.sequence);
    let mut sound = own.is_some_and(|order| order != Ordering::Less);
    if let Some(before) = number.checked_sub(1)
        && let Some(first) = block.entry(EntryPosition::default())
    {
        let key = [block.prefix(0), first.suffix].concat();
        sound &= index.compare(before, &key, first.sequence) == Some(Ordering::Less);
    }
    if sound { Ok(()) } else { Err(refuse("a block does not lie between its separators")) }
}

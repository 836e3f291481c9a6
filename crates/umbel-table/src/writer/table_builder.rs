//! Writes a table file.

use std::cmp::Ordering;
use std::sync::Arc;

use umbel_base::limits::{KEY_BYTES_MAX, SEQUENCE_MAX, VALUE_BYTES_MAX};
use umbel_base::{BlobPointer, Error, RangeTombstoneRef, Result, SequenceNumber, ValueKind};
use umbel_env::File;
use umbel_filter::{
    BloomBuilder, FilterBuilder, FilterKind, FilterOptions, FilterSize, FilterView,
    HEADER_BYTES as FILTER_HEADER_BYTES, KeyPrefix, PrefixFilterBuilder,
};

use crate::block::block_builder::BlockBuilder;
use crate::compression::{Compression, Compressor};
use crate::format::footer::{FOOTER_BYTES, Footer, Region};
use crate::format::properties::{FilterChecksums, Properties};
use crate::format::range_tombstone_block::{RangeTombstoneBlock, RangeTombstoneBlockBuilder};
use crate::format::table_meta::{SecondFilter, TableMeta};
use crate::format::{
    BlockKind, HEADER_BYTES, TRAILER_BYTES, chain_checksum, feature, head64, header, seal,
    seal_in_place, sealed_checksum,
};
use crate::index::index_builder::{IndexBuilder, shortest_separator};
use crate::options::{FilterChoice, TableHasher, TableOptions};
use crate::writer::output_file::OutputFile;

/// Bits per prefix of the prefix filter of a table without a filter of its keys.
const PREFIX_BITS: i32 = 10;
/// Maximum bytes by which a filter is larger than its bits, since it consists of whole cache lines.
const LINE_BYTES: f64 = 64.0;
const BLOCK_BYTES_MIN: usize = 64;
const BLOCK_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Writes one table, entry by entry in internal order.
///
/// After an error the file is useless and every call of the builder fails.
#[derive(Debug)]
pub struct TableBuilder {
    output: OutputFile,
    hasher: TableHasher,
    options: TableOptions,
    block: BlockBuilder,
    compressor: Compressor,
    index: IndexBuilder,
    filter: BloomBuilder,
    prefixes: Option<PrefixFilterBuilder<KeyPrefix>>,
    /// Approximate bits per key of all filters together.
    filter_bits: u64,
    tombstones: RangeTombstoneBlockBuilder,
    separator: Vec<u8>,
    last_key: Vec<u8>,
    /// Head of `last_key`.
    last_head: u64,
    last_sequence: SequenceNumber,
    meta: TableMeta,
    payload_bytes_max: usize,
    features: u32,
    data_checksum: u64,
    failed: bool,
}

impl TableBuilder {
    /// Creates a builder that writes table `id` into the empty file `file`.
    pub fn new(
        file: Arc<dyn File>,
        id: u64,
        hasher: TableHasher,
        options: TableOptions,
    ) -> TableBuilder {
        let block_bytes = options.block_bytes.clamp(BLOCK_BYTES_MIN, BLOCK_BYTES_MAX);
        let options = TableOptions { block_bytes, ..options };
        TableBuilder {
            output: OutputFile::new(file, &header(id)),
            filter: BloomBuilder::new(options.bloom_bits)
                .with_hash_kind(hasher.kind())
                .with_seed_id(hasher.seed_id),
            prefixes: None,
            filter_bits: u64::from(options.bloom_bits.max(0).unsigned_abs())
                + options.second_filter.map_or(0, |second| second.bits_per_key as u64),
            hasher,
            options,
            block: BlockBuilder::default(),
            compressor: Compressor::new(options.compression),
            index: IndexBuilder::default(),
            tombstones: RangeTombstoneBlockBuilder::default(),
            separator: Vec::new(),
            last_key: Vec::new(),
            last_head: 0,
            last_sequence: 0,
            meta: TableMeta { id, sequence_min: u64::MAX, ..TableMeta::default() },
            payload_bytes_max: 0,
            features: 0,
            data_checksum: 0,
            failed: false,
        }
    }

    /// Makes each write to the file `piece_bytes` long. `file_bytes` is the approximate length of
    /// the file, and `direct` requests writes past the page cache if the file system permits them.
    /// REQUIRES: no entry was added yet.
    pub fn with_chunk_size(mut self, piece_bytes: usize, file_bytes: u64, direct: bool) -> Self {
        self.output.set_chunk_size(piece_bytes, file_bytes, direct);
        self
    }

    /// Gives the table a prefix filter by this rule, if the prefix hasher is known.
    /// REQUIRES: no entry was added yet.
    pub fn with_prefix(mut self, rule: Option<&KeyPrefix>) -> Self {
        let both = rule.cloned().zip(self.hasher.prefixes);
        self.prefixes = both.and_then(|(rule, hasher)| PrefixFilterBuilder::new(rule, hasher).ok());
        self
    }

    /// Whether the file is written past the page cache; `false` before this is decided.
    pub fn is_direct(&self) -> bool {
        self.output.is_direct()
    }

    /// Adds the next entry.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the entry is not after the previous one in internal order or is over a
    /// limit; the file's error if a write fails.
    pub fn add(
        &mut self,
        key: &[u8],
        sequence: SequenceNumber,
        kind: ValueKind,
        value: &[u8],
    ) -> Result<()> {
        let result = self.add_checked(key, sequence, kind, value);
        self.failed |= result.is_err();
        result
    }

    fn add_checked(
        &mut self,
        key: &[u8],
        sequence: SequenceNumber,
        kind: ValueKind,
        value: &[u8],
    ) -> Result<()> {
        let mut same_key = false;
        // Most keys are distinguished by their first bytes alone.
        let head = head64(key);
        if self.meta.entries > 0 {
            let order = self.last_head.cmp(&head).then_with(|| self.last_key.as_slice().cmp(key));
            same_key = order == Ordering::Equal;
            if order.then_with(|| sequence.cmp(&self.last_sequence)) != Ordering::Less {
                return Err(self.out_of_order());
            }
        } else {
            self.meta.smallest.extend_from_slice(key);
        }
        self.last_head = head;
        if self.failed
            || key.len() > KEY_BYTES_MAX
            || value.len() > VALUE_BYTES_MAX
            || sequence > SEQUENCE_MAX
        {
            return Err(self.over_limit());
        }
        let full = self.block.bytes_with(key, value) > self.options.block_bytes;
        if full && !self.block.is_empty() {
            if same_key {
                self.separator.clone_from(&self.last_key);
                self.close_block(self.last_sequence)?;
            } else {
                shortest_separator(&self.last_key, key, &mut self.separator);
                self.close_block(0)?;
            }
        }
        if kind == ValueKind::BlobPointer {
            self.record_blob(value)?;
        }
        self.block.add(key, sequence, kind, value);
        if !same_key {
            if self.options.bloom_bits > 0 {
                self.filter.add(self.hasher.keys.hash(key));
            }
            if self.prefixes.is_some() {
                self.add_prefix(key);
            }
            self.last_key.clear();
            self.last_key.extend_from_slice(key);
        }
        self.last_sequence = sequence;
        self.count(key, sequence, kind, value);
        Ok(())
    }

    #[inline(never)]
    fn add_prefix(&mut self, key: &[u8]) {
        if let Some(prefixes) = &mut self.prefixes {
            prefixes.add(key);
        }
    }

    #[cold]
    fn record_blob(&mut self, value: &[u8]) -> Result<()> {
        let pointer = BlobPointer::decode(value).ok_or_else(|| {
            let bytes = value.len();
            Error::invalid(format!("internal: an entry's {bytes} bytes are not a blob pointer"))
        })?;
        self.features |= feature::BLOB_POINTERS;
        self.meta.blobs.push(pointer);
        Ok(())
    }

    #[inline]
    fn count(&mut self, key: &[u8], sequence: SequenceNumber, kind: ValueKind, value: &[u8]) {
        let meta = &mut self.meta;
        meta.entries += 1;
        meta.deletes += u64::from(kind == ValueKind::Delete);
        meta.key_bytes += key.len() as u64;
        meta.value_bytes += value.len() as u64;
        meta.sequence_min = meta.sequence_min.min(sequence);
        meta.sequence_max = meta.sequence_max.max(sequence);
    }

    #[cold]
    fn out_of_order(&self) -> Error {
        Error::invalid(format!(
            "an entry for table {} is not after the one before it in internal order; \
             this is a bug in the code that writes the table",
            self.meta.id
        ))
    }

    #[cold]
    fn over_limit(&self) -> Error {
        if self.failed {
            return Error::invalid(format!(
                "table {} could not be written before: write it again into a new file",
                self.meta.id
            ));
        }
        Error::invalid(format!(
            "a key is longer than {KEY_BYTES_MAX} bytes, a value longer than {VALUE_BYTES_MAX} \
             bytes or a sequence number over {SEQUENCE_MAX}: make it smaller"
        ))
    }

    /// Adds a range tombstone, in any order and at any time before [`TableBuilder::finish`]. Empty
    /// tombstones and duplicates are dropped; a tombstone over a limit makes `finish` fail.
    pub fn add_tombstone<'a>(&mut self, tombstone: impl Into<RangeTombstoneRef<'a>>) {
        let tombstone = tombstone.into();
        if tombstone.start >= tombstone.end {
            return;
        }
        // The end is exclusive, so that it can be one byte longer than the last key it covers.
        let fits = tombstone.start.len() <= KEY_BYTES_MAX
            && tombstone.end.len() <= KEY_BYTES_MAX + 1
            && tombstone.sequence <= SEQUENCE_MAX;
        self.failed |= !fits;
        self.tombstones.add(tombstone);
    }

    /// Approximate bytes of the file if it were finished now.
    pub fn estimated_bytes(&self) -> u64 {
        let pinned = self.index.bytes() + self.tombstones.bytes() + self.block.bytes();
        let filter = self.filter.len() as u64 * self.filter_bits / 8;
        self.output.end() + pinned as u64 + filter + FOOTER_BYTES as u64
    }

    /// Number of entries added.
    pub fn entries(&self) -> u64 {
        self.meta.entries
    }

    /// Whether neither an entry nor a range tombstone was added.
    pub fn is_empty(&self) -> bool {
        self.meta.entries == 0 && self.tombstones.is_empty()
    }

    /// Writes the open block. REQUIRES: the caller has set `separator`.
    fn close_block(&mut self, separator_sequence: SequenceNumber) -> Result<()> {
        let sealed = self.block.finish();
        let payload = &sealed[..sealed.len() - TRAILER_BYTES];
        self.payload_bytes_max = self.payload_bytes_max.max(payload.len());
        let (id, offset) = (self.meta.id, self.output.end());
        let (compression, sealed) = match self.compressor.pack(payload) {
            Some(packed) => {
                packed.extend_from_slice(&[0; TRAILER_BYTES]);
                (self.options.compression, packed.as_mut_slice())
            }
            None => (Compression::None, sealed),
        };
        self.features |= match compression {
            Compression::None => 0,
            Compression::Lz4 => feature::LZ4,
            Compression::Zstd => feature::ZSTD,
        };
        let payload_len = (sealed.len() - TRAILER_BYTES) as u64;
        let sum = seal_in_place(sealed, id, offset, BlockKind::Data, compression);
        self.data_checksum = chain_checksum(self.data_checksum, offset, sum);
        self.output.push(sealed)?;
        self.index.add(&self.separator, separator_sequence, payload_len);
        self.block.clear();
        Ok(())
    }

    /// Writes the index. Returns its region, and the bytes of its top.
    fn write_index(&mut self) -> Result<(Region, u32)> {
        let offset = self.output.end();
        let sealed = std::mem::take(&mut self.index).finish(self.meta.id, offset);
        if u32::try_from(sealed.bytes.len()).is_err() {
            return Err(self.over_length());
        }
        self.output.push(&sealed.bytes)?;
        let len = sealed.bytes.len() as u64;
        Ok((Region { offset, len, checksum: sealed.checksum }, sealed.top_bytes))
    }

    #[cold]
    fn over_length(&self) -> Error {
        Error::invalid(format!(
            "a part of table {} would be longer than 4 GiB: write smaller tables",
            self.meta.id
        ))
    }

    /// Writes a block after the data; writes nothing if the payload is empty.
    fn write_metadata_block(&mut self, kind: BlockKind, mut payload: Vec<u8>) -> Result<Region> {
        let offset = self.output.end();
        if payload.is_empty() {
            return Ok(Region { offset, len: 0, checksum: 0 });
        }
        if u32::try_from(payload.len()).is_err() {
            return Err(self.over_length());
        }
        let checksum = seal(&mut payload, self.meta.id, offset, kind, Compression::None);
        debug_assert_eq!(checksum, sealed_checksum(&payload));
        self.output.push(&payload)?;
        Ok(Region { offset, len: payload.len() as u64, checksum })
    }

    /// Writes the filters. Returns their region, and the checksums of filters that the region does
    /// not have.
    fn write_filters(&mut self) -> Result<(Region, FilterChecksums)> {
        let filter = std::mem::replace(&mut self.filter, BloomBuilder::new(0));
        let TableOptions { bloom_bits, filter_kind, filter_probes, second_filter, .. } =
            self.options;
        let plain = match (filter_kind, filter_probes) {
            (FilterKind::Blocked512, None) => filter.build(),
            (kind, probes) => {
                let choice = FilterChoice { kind, bits_per_key: f64::from(bloom_bits) };
                let other = self.filter_of(choice, probes, || filter.hashes().to_vec());
                // Where that kind cannot be built, the usual kind can.
                other.unwrap_or_else(|| filter.build())
            }
        };
        let plain = self.write_metadata_block(BlockKind::Filter, plain)?;
        let second = second_filter.filter(|_| plain.len > 0);
        let second = second.and_then(|choice| {
            // Few keys take some kinds more bits than they are meant for.
            let bytes_max = choice.bits_per_key * filter.len() as f64 / 8.0 + LINE_BYTES;
            let built = self.filter_of(choice, None, || filter.hashes().to_vec());
            let usual = FilterChoice { kind: FilterKind::Blocked512, ..choice };
            built
                .filter(|bytes| (bytes.len() - FILTER_HEADER_BYTES) as f64 <= bytes_max)
                .or_else(|| self.filter_of(usual, None, || filter.into_hashes()))
        });
        let mut all = plain;
        let mut checksums = FilterChecksums::default();
        // The built filter may be of another kind than the requested one.
        let kind = |bytes: &[u8]| FilterView::parse(bytes).ok().and_then(|view| view.kind());
        if let Some((kind, second)) = second.and_then(|second| Some((kind(&second)?, second))) {
            let second = self.write_metadata_block(BlockKind::SecondFilter, second)?;
            self.features |= feature::SECOND_FILTER;
            self.meta.second_filter = Some(SecondFilter { kind: kind.number(), bytes: second.len });
            checksums.plain = Some(plain.checksum);
            all = all.join(second);
        }
        let bits = if bloom_bits > 0 { bloom_bits } else { PREFIX_BITS };
        let prefixes = self.prefixes.take();
        let prefixes = prefixes.map(|prefixes| prefixes.finish(bits, self.hasher.seed_id));
        if let Some(prefixes) = prefixes.filter(|bytes| !bytes.is_empty()) {
            let prefixes = self.write_metadata_block(BlockKind::PrefixFilter, prefixes)?;
            self.features |= feature::PREFIX_FILTER;
            self.meta.prefix_filter_bytes = prefixes.len;
            checksums.before_prefix = Some(all.checksum);
            all = all.join(prefixes);
        }
        Ok((all, checksums))
    }

    /// Returns a filter of the chosen kind for the keys with these hashes. `None` if no filter can
    /// be built with these options.
    fn filter_of(
        &self,
        choice: FilterChoice,
        probes: Option<u8>,
        hashes: impl FnOnce() -> Vec<u64>,
    ) -> Option<Vec<u8>> {
        let options = FilterOptions {
            kind: choice.kind,
            size: FilterSize::BitsPerKey(choice.bits_per_key),
            probes: probes.map(u32::from),
            hash_kind: self.hasher.kind(),
            seed_id: self.hasher.seed_id,
            ..FilterOptions::default()
        };
        options.check().ok()?;
        let built = FilterBuilder::from_hashes(options, hashes()).and_then(FilterBuilder::finish);
        built.ok().filter(|bytes| !bytes.is_empty())
    }

    /// Closes the last block, writes filter, index, range tombstones, properties and footer, and
    /// syncs the file (not its directory).
    ///
    /// # Errors
    /// [`Error::Invalid`] if no entry and no range tombstone was added, or an earlier call failed;
    /// the file's error if a write or sync fails.
    pub fn finish(mut self) -> Result<TableMeta> {
        if self.failed {
            return Err(self.over_limit());
        }
        if self.is_empty() {
            return Err(Error::invalid("a table needs an entry or a range tombstone"));
        }
        if !self.block.is_empty() {
            self.separator.clone_from(&self.last_key);
            self.close_block(0)?;
        }
        let start = HEADER_BYTES as u64;
        let len = self.output.end() - start;
        let data = Region { offset: start, len, checksum: self.data_checksum };
        self.meta.blocks = self.index.blocks();
        self.meta.blobs.sort_unstable_by_key(|blob| blob.id);
        if !self.meta.blobs.is_sorted_by(|a, b| a.id < b.id) {
            return Err(Error::invalid("internal: two entries point at the same blob"));
        }
        let (index, index_top_bytes) = self.write_index()?;
        let (filter, filter_checksums) = self.write_filters()?;
        let tombstones = self.finish_tombstones()?.into_payload();
        let tombstones = self.write_metadata_block(BlockKind::Tombstones, tombstones)?;
        let properties =
            Properties::new(self.meta.clone(), &self.options, filter_checksums).encode();
        let properties = self.write_metadata_block(BlockKind::Properties, properties)?;
        let file_bytes = self.output.end() + FOOTER_BYTES as u64;
        let footer = Footer {
            file_id: self.meta.id,
            file_bytes,
            entries: self.meta.entries,
            blocks: self.meta.blocks,
            payload_bytes_max: self.payload_bytes_max as u32,
            features: self.features,
            hash_kind: self.hasher.kind(),
            seed_id: self.hasher.seed_id,
            top_level_index_bytes: index_top_bytes,
            data,
            index,
            filter,
            tombstones,
            properties,
        };
        let (footer, footer_checksum) = footer.encode();
        self.output.push(&footer)?;
        self.output.finish()?;
        self.meta.file_bytes = file_bytes;
        self.meta.filter_bytes = filter.len;
        self.meta.index_bytes = index.len;
        self.meta.footer_checksum = footer_checksum;
        Ok(self.meta)
    }

    /// Sorts the range tombstones, and extends the table's bounds to include them.
    fn finish_tombstones(&mut self) -> Result<RangeTombstoneBlock> {
        let tombstones = std::mem::take(&mut self.tombstones).finish();
        let tombstones = tombstones.ok_or_else(|| self.over_length())?;
        let meta = &mut self.meta;
        meta.largest.clone_from(&self.last_key);
        let Some(first) = tombstones.iter().next() else { return Ok(tombstones) };
        self.features |= feature::RANGE_TOMBSTONES;
        if meta.entries == 0 || first.start < meta.smallest.as_slice() {
            meta.smallest = first.start.to_vec();
        }
        let mut largest = meta.largest.as_slice();
        for tombstone in tombstones.iter() {
            if tombstone.end > largest {
                largest = tombstone.end;
                meta.largest_is_exclusive = true;
            }
            meta.sequence_min = meta.sequence_min.min(tombstone.sequence);
            meta.sequence_max = meta.sequence_max.max(tombstone.sequence);
        }
        meta.largest = largest.to_vec();
        meta.range_tombstones = tombstones.len() as u64;
        Ok(tombstones)
    }
}

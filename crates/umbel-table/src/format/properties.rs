//! The properties block: metadata of a table that readers do not need, by name.
//!
//! FORMAT: `payload := count varint, (name, value) * count`. Names and values are a varint length
//! and bytes, sorted by name. Numbers are varints, flags a byte 0 or 1, keys plain bytes. A reader
//! skips names that it does not know.

use std::sync::Arc;

use umbel_base::{Decoder, varint};

use crate::format::table_meta::{SecondFilter, TableMeta};
use crate::options::TableOptions;

/// Fields of the properties block, which the footer does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Properties {
    /// Metadata of the table. Its checksum of the footer is 0, since the footer comes after the
    /// properties block.
    pub meta: Arc<TableMeta>,
    /// Filter bits per key that were requested.
    pub bloom_bits: i32,
    /// Bytes of a full data block, as requested.
    pub block_bytes: u64,
    /// The number of the compression that was requested.
    pub compression: u8,
    /// The checksums of filters that the footer's filter region does not have.
    pub(crate) filter_checksums: FilterChecksums,
}

/// The checksums of filters after which another filter follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct FilterChecksums {
    /// Checksum of the plain filter, if the table has a second filter; 0 without a plain filter.
    pub(crate) plain: Option<u64>,
    /// Checksum of the last filter before the prefix filter, if the table has a prefix filter; 0 if
    /// it has no other filter.
    pub(crate) before_prefix: Option<u64>,
}

/// Limit on the number of properties, which is more than any version will have.
const PROPERTIES_MAX: usize = 1024;

impl Properties {
    /// Collects the properties to write.
    pub(crate) fn new(
        meta: TableMeta,
        options: &TableOptions,
        filter_checksums: FilterChecksums,
    ) -> Properties {
        Properties {
            meta: Arc::new(meta),
            bloom_bits: options.bloom_bits,
            block_bytes: options.block_bytes as u64,
            compression: options.compression as u8,
            filter_checksums,
        }
    }

    /// Returns the payload of the properties block.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let number = |number: u64| {
            let mut out = Vec::new();
            varint::put_u64(&mut out, number);
            out
        };
        let meta = &self.meta;
        let mut list = vec![
            ("block_bytes", number(self.block_bytes)),
            ("bloom_bits", number(self.bloom_bits.max(0) as u64)),
            ("compression", number(self.compression.into())),
            ("deletes", number(meta.deletes)),
            ("entries", number(meta.entries)),
            ("key_bytes", number(meta.key_bytes)),
            ("largest", meta.largest.clone()),
            ("largest_is_exclusive", number(meta.largest_is_exclusive.into())),
            ("range_tombstones", number(meta.range_tombstones)),
            ("sequence_max", number(meta.sequence_max)),
            ("sequence_min", number(meta.sequence_min)),
            ("smallest", meta.smallest.clone()),
            ("value_bytes", number(meta.value_bytes)),
        ];
        if !meta.blobs.is_empty() {
            let mut blobs = Vec::new();
            meta.encode_blobs(&mut blobs);
            list.push(("blobs", blobs));
        }
        if let (Some(second), Some(checksum)) = (meta.second_filter, self.filter_checksums.plain) {
            let mut value = vec![second.kind];
            varint::put_u64(&mut value, second.bytes);
            value.extend_from_slice(&checksum.to_le_bytes());
            list.push(("second_filter", value));
        }
        if let Some(checksum) = self.filter_checksums.before_prefix {
            let mut value = number(meta.prefix_filter_bytes);
            value.extend_from_slice(&checksum.to_le_bytes());
            list.push(("prefix_filter", value));
        }
        list.sort_unstable_by_key(|(name, _)| *name);
        let mut out = Vec::new();
        varint::put_u64(&mut out, list.len() as u64);
        for (name, value) in list {
            varint::put_bytes(&mut out, name.as_bytes());
            varint::put_bytes(&mut out, &value);
        }
        out
    }

    /// Reads a payload. Metadata fields that only the footer has are left 0. The error is a reason
    /// in words.
    pub(crate) fn decode(payload: &[u8]) -> Result<Properties, &'static str> {
        const CUT: &str = "the properties end too early";
        let mut decoder = Decoder::new(payload);
        let count = decoder.varint_usize().filter(|&count| count <= PROPERTIES_MAX).ok_or(CUT)?;
        let mut list: Vec<(&[u8], &[u8])> = Vec::new();
        for _ in 0..count {
            list.push((decoder.bytes().ok_or(CUT)?, decoder.bytes().ok_or(CUT)?));
        }
        if !decoder.is_done() || !list.is_sorted_by(|a, b| a.0 < b.0) {
            return Err("the properties are not sorted or have bytes after the last one");
        }
        let bytes = |name: &str| {
            let found = list.binary_search_by(|(other, _)| (*other).cmp(name.as_bytes())).ok();
            found.map(|at| list[at].1).ok_or("a property that every table has is missing")
        };
        let number = |name| {
            let mut decoder = Decoder::new(bytes(name)?);
            let number = decoder.varint().filter(|_| decoder.is_done());
            number.ok_or("a property is not a number")
        };
        let mut meta = TableMeta {
            entries: number("entries")?,
            deletes: number("deletes")?,
            range_tombstones: number("range_tombstones")?,
            key_bytes: number("key_bytes")?,
            value_bytes: number("value_bytes")?,
            smallest: bytes("smallest")?.to_vec(),
            largest: bytes("largest")?.to_vec(),
            largest_is_exclusive: number("largest_is_exclusive")? != 0,
            sequence_min: number("sequence_min")?,
            sequence_max: number("sequence_max")?,
            ..TableMeta::default()
        };
        if let Ok(blobs) = bytes("blobs") {
            // Fields of the footer only are not known yet and need not match here.
            let mut decoder = Decoder::new(blobs);
            let mut list = TableMeta { blocks: 1, ..meta.clone() };
            let taken = list.decode_blobs(&mut decoder).filter(|()| decoder.is_done());
            taken.ok_or("the list of blobs is one that no version writes")?;
            meta.blobs = list.blobs;
        }
        let mut filter_checksums = FilterChecksums::default();
        let odd = "the properties of a filter have values that no version writes";
        if let Ok(second) = bytes("second_filter") {
            let mut decoder = Decoder::new(second);
            let (kind, bytes) = decoder.u8().zip(decoder.varint()).ok_or(odd)?;
            meta.second_filter = Some(SecondFilter { kind, bytes });
            let checksum = decoder.u64().filter(|_| decoder.is_done() && kind > 0 && bytes > 0);
            filter_checksums.plain = Some(checksum.ok_or(odd)?);
        }
        if let Ok(prefix) = bytes("prefix_filter") {
            let mut decoder = Decoder::new(prefix);
            meta.prefix_filter_bytes = decoder.varint().filter(|&bytes| bytes > 0).ok_or(odd)?;
            let checksum = decoder.u64().filter(|_| decoder.is_done());
            filter_checksums.before_prefix = Some(checksum.ok_or(odd)?);
        }
        let small = "a property is out of range";
        Ok(Properties {
            filter_checksums,
            meta: Arc::new(meta),
            bloom_bits: i32::try_from(number("bloom_bits")?).map_err(|_| small)?,
            block_bytes: number("block_bytes")?,
            compression: u8::try_from(number("compression")?).map_err(|_| small)?,
        })
    }
}

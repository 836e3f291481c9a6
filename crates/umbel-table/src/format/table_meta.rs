//! Table metadata in the engine's manifest, so that opening a store reads no table.

use umbel_base::limits::{KEY_BYTES_MAX, SEQUENCE_MAX};
use umbel_base::{BlobPointer, Decoder, SequenceNumber, varint};

/// Metadata of a table's second filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecondFilter {
    /// Number of the filter's kind.
    pub kind: u8,
    /// Bytes of the filter in the file.
    pub bytes: u64,
}

/// Metadata of a finished table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TableMeta {
    /// Id of the table's file, which is part of every checksum in the file.
    pub id: u64,
    /// Length of the file.
    pub file_bytes: u64,
    /// Number of entries, all versions and deletes included.
    pub entries: u64,
    /// Number of entries that are deletes.
    pub deletes: u64,
    /// Number of range tombstones.
    pub range_tombstones: u64,
    /// Bytes of all entries' keys.
    pub key_bytes: u64,
    /// Bytes of all entries' values.
    pub value_bytes: u64,
    /// The least key that an entry has or a range tombstone starts with.
    pub smallest: Vec<u8>,
    /// The greatest key that an entry has or a range tombstone ends with.
    pub largest: Vec<u8>,
    /// Whether `largest` is only the end of a range tombstone, which does not delete this key.
    pub largest_is_exclusive: bool,
    /// The least sequence number of an entry or a range tombstone.
    pub sequence_min: SequenceNumber,
    /// The greatest sequence number of an entry or a range tombstone.
    pub sequence_max: SequenceNumber,
    /// Bytes of the filters in the file; 0 without filters.
    pub filter_bytes: u64,
    /// The second filter, if the table has one.
    pub second_filter: Option<SecondFilter>,
    /// Bytes of the prefix filter in the file; 0 without one.
    pub prefix_filter_bytes: u64,
    /// Bytes of the index in the file.
    pub index_bytes: u64,
    /// Number of data blocks.
    pub blocks: u32,
    /// Checksum of the footer, which distinguishes this file from any other file with the same id.
    pub footer_checksum: u64,
    /// Blob pointers of the entries, by id.
    pub blobs: Vec<BlobPointer>,
}

impl TableMeta {
    /// Appends the metadata to `out`, except the blob pointers and the filters other than the plain
    /// one.
    ///
    /// FORMAT: all numbers as varints, keys as a varint length and bytes, the flag as a byte 0 or
    /// 1, the checksum as `u64`, in the order of the fields.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let numbers = [
            self.id,
            self.file_bytes,
            self.entries,
            self.deletes,
            self.range_tombstones,
            self.key_bytes,
            self.value_bytes,
        ];
        numbers.into_iter().for_each(|number| varint::put_u64(out, number));
        varint::put_bytes(out, &self.smallest);
        varint::put_bytes(out, &self.largest);
        out.push(u8::from(self.largest_is_exclusive));
        let numbers = [
            self.sequence_min,
            self.sequence_max,
            self.filter_bytes,
            self.index_bytes,
            u64::from(self.blocks),
        ];
        numbers.into_iter().for_each(|number| varint::put_u64(out, number));
        out.extend_from_slice(&self.footer_checksum.to_le_bytes());
    }

    /// Reads metadata without blob pointers from a decoder. Returns `None` if [`TableMeta::encode`]
    /// could not have written the bytes.
    pub fn decode(decoder: &mut Decoder<'_>) -> Option<TableMeta> {
        let meta = TableMeta {
            id: decoder.varint()?,
            file_bytes: decoder.varint()?,
            entries: decoder.varint()?,
            deletes: decoder.varint()?,
            range_tombstones: decoder.varint()?,
            key_bytes: decoder.varint()?,
            value_bytes: decoder.varint()?,
            smallest: decoder.bytes()?.to_vec(),
            largest: decoder.bytes()?.to_vec(),
            largest_is_exclusive: match decoder.u8()? {
                0 => false,
                1 => true,
                _ => return None,
            },
            sequence_min: decoder.varint()?,
            sequence_max: decoder.varint()?,
            filter_bytes: decoder.varint()?,
            second_filter: None,
            prefix_filter_bytes: 0,
            index_bytes: decoder.varint()?,
            blocks: u32::try_from(decoder.varint()?).ok()?,
            footer_checksum: decoder.u64()?,
            blobs: Vec::new(),
        };
        meta.is_plausible().then_some(meta)
    }

    /// Appends the blob pointers of the entries to `out`.
    ///
    /// FORMAT: the number of pointers as a varint, then for each pointer, by ascending id, id and
    /// length as varints and the checksum as `u64`.
    pub fn encode_blobs(&self, out: &mut Vec<u8>) {
        varint::put_u64(out, self.blobs.len() as u64);
        for blob in &self.blobs {
            varint::put_u64(out, blob.id);
            varint::put_u64(out, blob.value_bytes);
            out.extend_from_slice(&blob.checksum.to_le_bytes());
        }
    }

    /// Reads a nonempty list of blob pointers from a decoder. Returns `None` if
    /// [`TableMeta::encode_blobs`] could not have written the bytes, or the list does not fit the
    /// number of entries.
    pub fn decode_blobs(&mut self, decoder: &mut Decoder<'_>) -> Option<()> {
        let count = decoder.varint_usize()?;
        // No blob takes fewer bytes.
        if count == 0 || count > decoder.remaining() / 10 {
            return None;
        }
        for _ in 0..count {
            let (id, value_bytes) = (decoder.varint()?, decoder.varint()?);
            self.blobs.push(BlobPointer { id, value_bytes, checksum: decoder.u64()? });
        }
        self.is_plausible().then_some(())
    }

    /// Bytes of the second filter in the file; 0 without one.
    pub fn second_filter_bytes(&self) -> u64 {
        self.second_filter.map_or(0, |filter| filter.bytes)
    }

    /// Bytes of the plain filter in the file; 0 without one.
    pub fn plain_filter_bytes(&self) -> u64 {
        self.filter_bytes.saturating_sub(self.extra_filter_bytes().unwrap_or(u64::MAX))
    }

    /// Bytes of the filters other than the plain one.
    fn extra_filter_bytes(&self) -> Option<u64> {
        self.second_filter_bytes().checked_add(self.prefix_filter_bytes)
    }

    /// Whether the table has filters other than the plain one.
    pub fn has_extra_filters(&self) -> bool {
        self.second_filter.is_some() || self.prefix_filter_bytes > 0
    }

    /// Appends the metadata of the filters other than the plain one to `out`.
    ///
    /// FORMAT: the number of the second filter's kind as a byte and its bytes as a varint, both 0
    /// without a second filter. After these comes the number of bytes of the prefix filter as a
    /// varint.
    pub fn encode_extra_filters(&self, out: &mut Vec<u8>) {
        out.push(self.second_filter.map_or(0, |filter| filter.kind));
        varint::put_u64(out, self.second_filter_bytes());
        varint::put_u64(out, self.prefix_filter_bytes);
    }

    /// Reads the metadata of the filters other than the plain one from a decoder. Returns `None` if
    /// [`TableMeta::encode_extra_filters`] could not have written the bytes.
    pub fn decode_extra_filters(&mut self, decoder: &mut Decoder<'_>) -> Option<()> {
        let (kind, bytes) = (decoder.u8()?, decoder.varint()?);
        self.second_filter = (kind > 0).then_some(SecondFilter { kind, bytes });
        self.prefix_filter_bytes = decoder.varint()?;
        let fits = (kind > 0) == (bytes > 0) && self.has_extra_filters();
        (fits && self.is_plausible()).then_some(())
    }

    /// Bytes of the long values that the table's entries point at.
    pub fn blob_value_bytes(&self) -> u64 {
        self.blobs.iter().map(|blob| blob.value_bytes).sum()
    }

    /// Whether the fields are consistent with each other.
    pub(crate) fn is_plausible(&self) -> bool {
        self.deletes <= self.entries
            && self.extra_filter_bytes() <= Some(self.filter_bytes)
            && self.extra_filter_bytes().is_some()
            && self.smallest <= self.largest
            && self.largest.len() <= KEY_BYTES_MAX + 1
            && self.sequence_min <= self.sequence_max
            && self.sequence_max <= SEQUENCE_MAX
            && (self.entries > 0 || self.range_tombstones > 0)
            && (self.entries > 0) == (self.blocks > 0)
            && self.blobs.len() as u64 <= self.entries - self.deletes
            && self.blobs.iter().all(BlobPointer::is_plausible)
            && self.blobs.is_sorted_by(|a, b| a.id < b.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn meta_round_trips_and_malformed_bytes_are_refused() {
        let meta = TableMeta {
            id: 7,
            file_bytes: 1 << 40,
            entries: 300,
            deletes: 2,
            range_tombstones: 1,
            key_bytes: 99,
            value_bytes: 1000,
            smallest: b"a".to_vec(),
            largest: b"b".to_vec(),
            largest_is_exclusive: true,
            sequence_min: 3,
            sequence_max: SEQUENCE_MAX,
            filter_bytes: 64,
            second_filter: None,
            prefix_filter_bytes: 0,
            index_bytes: 30,
            blocks: 9,
            footer_checksum: u64::MAX,
            blobs: Vec::new(),
        };
        let mut bytes = Vec::new();
        meta.encode(&mut bytes);
        let mut decoder = Decoder::new(&bytes);
        assert_eq!(TableMeta::decode(&mut decoder).as_ref(), Some(&meta));
        assert!(decoder.is_done());
        for cut in 0..bytes.len() {
            assert_eq!(TableMeta::decode(&mut Decoder::new(&bytes[..cut])), None);
        }
        let swapped = TableMeta { smallest: b"c".to_vec(), ..meta };
        let mut bytes = Vec::new();
        swapped.encode(&mut bytes);
        assert_eq!(TableMeta::decode(&mut Decoder::new(&bytes)), None);
    }

    #[test]
    fn blob_list_round_trips_and_invalid_lists_are_refused() {
        let table = TableMeta { entries: 3, deletes: 1, blocks: 1, ..TableMeta::default() };
        let blob = |id, value_bytes| BlobPointer { id, value_bytes, checksum: 77 };
        let taken = |blobs: &[BlobPointer]| {
            let mut bytes = Vec::new();
            TableMeta { blobs: blobs.to_vec(), ..table.clone() }.encode_blobs(&mut bytes);
            let mut meta = table.clone();
            meta.decode_blobs(&mut Decoder::new(&bytes)).map(|()| meta.blobs)
        };
        let good = [blob(7, 300), blob(400, 1)];
        assert_eq!(taken(&good).as_deref(), Some(&good[..]));
        let more = [blob(1, 1), blob(2, 1), blob(3, 1)];
        let bad = [&[][..], &[blob(7, 1), blob(7, 1)], &[blob(8, 1), blob(7, 1)], &more];
        for list in bad.into_iter().chain([&[blob(0, 1)][..], &[blob(7, 0)]]) {
            assert_eq!(taken(list), None, "{list:?}");
        }
        let mut bytes = Vec::new();
        TableMeta { blobs: good.to_vec(), ..table.clone() }.encode_blobs(&mut bytes);
        for cut in 0..bytes.len() {
            assert_eq!(table.clone().decode_blobs(&mut Decoder::new(&bytes[..cut])), None);
        }
    }

    #[test]
    fn second_filter_round_trips_and_invalid_bytes_are_refused() {
        let table = TableMeta { filter_bytes: 500, entries: 1, blocks: 1, ..TableMeta::default() };
        let taken = |kind, bytes, prefix_filter_bytes| {
            let second_filter = Some(SecondFilter { kind, bytes });
            let mut out = Vec::new();
            let meta = TableMeta { second_filter, prefix_filter_bytes, ..table.clone() };
            meta.encode_extra_filters(&mut out);
            let mut meta = table.clone();
            let decoded = meta.decode_extra_filters(&mut Decoder::new(&out));
            let cut = &mut Decoder::new(&out[..out.len() - 1]);
            assert_eq!(table.clone().decode_extra_filters(cut), None);
            decoded.map(|()| (meta.second_filter_bytes(), meta.plain_filter_bytes()))
        };
        assert_eq!(taken(5, 300, 0), Some((300, 200)));
        assert_eq!(taken(5, 300, 70), Some((300, 130)));
        assert_eq!(taken(0, 0, 70), Some((0, 430)));
        assert_eq!(taken(0, 0, 0), None);
        assert_eq!(taken(0, 300, 0), None);
        assert_eq!(taken(5, 0, 0), None);
        assert_eq!(taken(5, 501, 0), None);
        assert_eq!(taken(5, 300, 201), None);
        assert_eq!(taken(5, u64::MAX, 2), None);
    }

    proptest! {
        #[test]
        fn any_bytes_never_panic(bytes: Vec<u8>) {
            TableMeta::decode(&mut Decoder::new(&bytes));
            TableMeta::default().decode_blobs(&mut Decoder::new(&bytes));
        }
    }
}

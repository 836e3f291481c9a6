//! The footer: the last bytes of a table file, of fixed size, with the offset, length and checksum
//! of each region.
//!
//! FORMAT: file id `u64`, file length `u64`, entries `u64`, data blocks `u32`, longest uncompressed
//! payload `u32`, feature bits `u32`, hash kind `u8`, comparator `u8` (0: by bytes), zero `u16`,
//! seed id `u32`, bytes of the index's top `u32`, five regions (data, index, filter, tombstones,
//! properties) of offset `u64`, length `u64`, checksum `u64`. The tail follows: footer length
//! `u32`, format version `u32`, checksum `u64` of all bytes of the footer before the checksum,
//! magic. The tail has the same layout in every version.

use std::borrow::Cow;
use std::path::Path;

use umbel_base::checksum::checksum;
use umbel_base::{Decoder, Error, Result};
use umbel_env::File;

use crate::format::{
    BlockKind, FORMAT_VERSION, HEADER_BYTES, MAGIC, PAYLOAD_BYTES_MAX, TRAILER_BYTES, feature,
    open_sealed, sealed_checksum,
};

/// FORMAT: length of the footer of this version.
pub(crate) const FOOTER_BYTES: usize = 192;
/// FORMAT: length of the tail with which the footer of every version ends.
const TAIL_BYTES: usize = 24;
/// Longest footer of any version.
const FOOTER_BYTES_MAX: usize = 64 * 1024;

/// A region of a table file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Region {
    pub(crate) offset: u64,
    /// Length of the region, trailers included; 0 if the table has no such region.
    pub(crate) len: u64,
    /// Checksum in the trailer of the region's last block; for the data region, the checksum over
    /// the checksums of all blocks.
    pub(crate) checksum: u64,
}

impl Region {
    /// Joins this region with `next`, which follows it.
    pub(crate) fn join(self, next: Region) -> Region {
        Region { len: self.len + next.len, checksum: next.checksum, ..self }
    }
}

/// Content of the footer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Footer {
    pub(crate) file_id: u64,
    pub(crate) file_bytes: u64,
    pub(crate) entries: u64,
    pub(crate) blocks: u32,
    /// Bytes of the longest uncompressed payload of any data block.
    pub(crate) payload_bytes_max: u32,
    pub(crate) features: u32,
    pub(crate) hash_kind: u8,
    pub(crate) seed_id: u32,
    /// Bytes of the top of the index, trailer included, which is at the end of the index region.
    pub(crate) top_level_index_bytes: u32,
    pub(crate) data: Region,
    pub(crate) index: Region,
    pub(crate) filter: Region,
    pub(crate) tombstones: Region,
    pub(crate) properties: Region,
}

impl Footer {
    fn regions(&self) -> [Region; 5] {
        [self.data, self.index, self.filter, self.tombstones, self.properties]
    }

    /// Returns the footer's bytes and its checksum. The footer's offset follows from `file_bytes`.
    pub(crate) fn encode(&self) -> (Vec<u8>, u64) {
        let mut out = Vec::with_capacity(FOOTER_BYTES);
        for number in [self.file_id, self.file_bytes, self.entries] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for number in [self.blocks, self.payload_bytes_max, self.features] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&[self.hash_kind, 0, 0, 0]);
        out.extend_from_slice(&self.seed_id.to_le_bytes());
        out.extend_from_slice(&self.top_level_index_bytes.to_le_bytes());
        for region in self.regions() {
            for number in [region.offset, region.len, region.checksum] {
                out.extend_from_slice(&number.to_le_bytes());
            }
        }
        out.extend_from_slice(&(FOOTER_BYTES as u32).to_le_bytes());
        out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        let sum = checksum(self.file_id, self.file_bytes - FOOTER_BYTES as u64, &out);
        out.extend_from_slice(&sum.to_le_bytes());
        out.extend_from_slice(&MAGIC);
        (out, sum)
    }

    /// Reads and checks the footer of table `file_id`. Returns the footer with its checksum.
    pub(crate) fn read(file: &dyn File, file_id: u64) -> Result<(Footer, u64)> {
        let path = file.path();
        let file_bytes = file.len()?;
        let refuse = |offset, reason: &str| Err(Error::corruption(path, offset, reason));
        let Some(tail_at) = file_bytes.checked_sub(TAIL_BYTES as u64) else {
            return refuse(0, "the file is shorter than the end of a table's footer");
        };
        let mut tail = [0; TAIL_BYTES];
        file.read_exact_at(&mut tail, tail_at)?;
        let mut fields = Decoder::new(&tail);
        let len = fields.u32().unwrap_or(0) as usize;
        let version = fields.u32().unwrap_or(0);
        let sum = fields.u64().unwrap_or(0);
        if fields.take(MAGIC.len()) != Some(&MAGIC) {
            return refuse(tail_at + 16, "the file does not end with a table's magic bytes");
        }
        let at = file_bytes.checked_sub(len as u64);
        let Some(at) = at.filter(|_| (TAIL_BYTES..=FOOTER_BYTES_MAX).contains(&len)) else {
            return refuse(tail_at, "the footer claims a length that it cannot have");
        };
        let mut bytes = vec![0; len];
        file.read_exact_at(&mut bytes, at)?;
        let covered = &bytes[..len - 16];
        if checksum(file_id, at, covered) != sum {
            let named = covered.first_chunk().map_or(0, |id| u64::from_le_bytes(*id));
            let reason = if named == file_id {
                "the checksum of the footer does not match its bytes".to_string()
            } else {
                format!("this should be table {file_id}, but the footer is of table {named}")
            };
            return refuse(at, &reason);
        }
        if version > FORMAT_VERSION {
            return Err(Error::invalid(format!(
                "the table {} has format version {version}, and this build reads versions up to \
                 {FORMAT_VERSION}: open the store with a newer Umbel",
                path.display()
            )));
        }
        let footer = Footer::decode(covered).filter(|_| len == FOOTER_BYTES && version > 0);
        let Some(footer) = footer else {
            return refuse(at, "the footer contradicts itself");
        };
        footer.check(path, file_id, file_bytes)?;
        Ok((footer, sum))
    }

    fn decode(bytes: &[u8]) -> Option<Footer> {
        let mut decoder = Decoder::new(bytes);
        let mut footer = Footer {
            file_id: decoder.u64()?,
            file_bytes: decoder.u64()?,
            entries: decoder.u64()?,
            blocks: decoder.u32()?,
            payload_bytes_max: decoder.u32()?,
            features: decoder.u32()?,
            hash_kind: decoder.u8()?,
            ..Footer::default()
        };
        let comparator = decoder.u8()?;
        let zeros = decoder.u16()?;
        footer.seed_id = decoder.u32()?;
        footer.top_level_index_bytes = decoder.u32()?;
        let Footer { data, index, filter, tombstones, properties, .. } = &mut footer;
        for region in [data, index, filter, tombstones, properties] {
            *region =
                Region { offset: decoder.u64()?, len: decoder.u64()?, checksum: decoder.u64()? };
        }
        (comparator == 0 && zeros == 0).then_some(footer)
    }

    /// Checks that the regions fill the file without a gap, and that this build can read all of
    /// them.
    fn check(&self, path: &Path, file_id: u64, file_bytes: u64) -> Result<()> {
        let at = file_bytes - FOOTER_BYTES as u64;
        let unknown = self.features & !feature::KNOWN;
        if unknown != 0 {
            return Err(Error::invalid(format!(
                "the table {} uses features (bits {unknown:#x}) that this build does not know: \
                 open the store with a newer Umbel",
                path.display()
            )));
        }
        let mut end = Some(HEADER_BYTES as u64);
        for region in self.regions() {
            let starts_here = end == Some(region.offset);
            end = region.offset.checked_add(region.len).filter(|_| starts_here);
        }
        let has_content = |region: Region| region.len > TRAILER_BYTES as u64;
        let fits = end == Some(at)
            && self.file_id == file_id
            && self.file_bytes == file_bytes
            && self.payload_bytes_max as usize <= PAYLOAD_BYTES_MAX
            && u64::from(self.top_level_index_bytes) >= TRAILER_BYTES as u64
            && u64::from(self.top_level_index_bytes) <= self.index.len
            && has_content(self.properties)
            && (self.filter.len == 0 || has_content(self.filter))
            && (self.features & (feature::SECOND_FILTER | feature::PREFIX_FILTER) == 0
                || self.filter.len > 0)
            && (self.tombstones.len == 0 || has_content(self.tombstones));
        if fits {
            Ok(())
        } else {
            Err(Error::corruption(path, at, "the parts named in the footer do not fill the file"))
        }
    }
}

/// Reads and checks a region after the data; returns an empty payload if the table has no such
/// region.
pub(crate) fn read_metadata_block(
    file: &dyn File,
    footer: &Footer,
    region: Region,
    kind: BlockKind,
) -> Result<Vec<u8>> {
    if region.len == 0 {
        return Ok(Vec::new());
    }
    let refuse = |reason: &str| Err(Error::corruption(file.path(), region.offset, reason));
    let Ok(len) = usize::try_from(region.len) else {
        return refuse("a block is longer than the address space of this machine");
    };
    let mut sealed = vec![0; len];
    file.read_exact_at(&mut sealed, region.offset)?;
    if sealed_checksum(&sealed) != region.checksum {
        return refuse("the part that starts here is not the one that the footer was written for");
    }
    let payload = open_sealed(file.path(), footer.file_id, region.offset, kind, &sealed, 0)?;
    if let Cow::Owned(unpacked) = payload {
        return Ok(unpacked);
    }
    sealed.truncate(len - TRAILER_BYTES);
    Ok(sealed)
}

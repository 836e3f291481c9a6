//! Compression of blocks. Decompression does not trust the length that a compressed block claims.

use std::cell::RefCell;

use zstd::bulk::{Compressor as ZstdCompressor, Decompressor as ZstdDecompressor};

/// Compression of blocks. The numbers are stored in each block's trailer and never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum Compression {
    /// No compression.
    #[default]
    None = 0,
    /// LZ4 block format.
    Lz4 = 1,
    /// One Zstandard frame, level 3.
    Zstd = 2,
}

/// Compression level of Zstandard, which is its default.
const ZSTD_LEVEL: i32 = 3;

/// FORMAT: a compressed payload starts with the uncompressed length as a `u32`.
const LENGTH_BYTES: usize = 4;

impl Compression {
    /// Returns the kind with this number; `None` if the number is unknown.
    pub fn from_u8(byte: u8) -> Option<Compression> {
        match byte {
            0 => Some(Compression::None),
            1 => Some(Compression::Lz4),
            2 => Some(Compression::Zstd),
            _ => None,
        }
    }
}

/// Compresses blocks one after the other, and keeps the compressor's state between blocks.
pub(crate) struct Compressor {
    kind: Compression,
    zstd: Option<ZstdCompressor<'static>>,
    packed: Vec<u8>,
}

impl std::fmt::Debug for Compressor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Compressor").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl Compressor {
    /// Creates a compressor of the given kind.
    pub(crate) fn new(kind: Compression) -> Compressor {
        Compressor { kind, zstd: None, packed: Vec::new() }
    }

    /// Compresses `payload`. Returns `None` if compression saves less than an eighth, so that the
    /// block is to be stored uncompressed: decompression would cost more than the saved bytes.
    pub(crate) fn pack(&mut self, payload: &[u8]) -> Option<&mut Vec<u8>> {
        let len = u32::try_from(payload.len()).ok()?;
        self.packed.clear();
        self.packed.extend_from_slice(&len.to_le_bytes());
        let written = match self.kind {
            Compression::None => return None,
            Compression::Lz4 => {
                let bytes_max = lz4_flex::block::get_maximum_output_size(payload.len());
                self.packed.resize(LENGTH_BYTES + bytes_max, 0);
                lz4_flex::block::compress_into(payload, &mut self.packed[LENGTH_BYTES..]).ok()?
            }
            Compression::Zstd => {
                let bytes_max = zstd::zstd_safe::compress_bound(payload.len());
                self.packed.resize(LENGTH_BYTES + bytes_max, 0);
                if self.zstd.is_none() {
                    self.zstd = ZstdCompressor::new(ZSTD_LEVEL).ok();
                }
                let target = &mut self.packed[LENGTH_BYTES..];
                self.zstd.as_mut()?.compress_to_buffer(payload, target).ok()?
            }
        };
        self.packed.truncate(LENGTH_BYTES + written);
        (self.packed.len() < payload.len() - payload.len() / 8).then_some(&mut self.packed)
    }
}

thread_local! {
    /// Zstandard context of a thread, kept because creating one takes longer than decompressing a
    /// block.
    static UNPACK_ZSTD: RefCell<Option<ZstdDecompressor<'static>>> = const { RefCell::new(None) };
}

/// Decompresses a payload. The length that the payload claims is compared with `limit` before
/// memory is allocated. The error is a reason in words.
pub(crate) fn unpack(
    kind: Compression,
    packed: &[u8],
    limit: usize,
) -> Result<Vec<u8>, &'static str> {
    let Some((len, packed)) = packed.split_first_chunk::<LENGTH_BYTES>() else {
        return Err("a compressed block is too short for its decompressed length");
    };
    let len = u32::from_le_bytes(*len) as usize;
    if len > limit {
        return Err(
            "a compressed block's recorded length is over that of every block of this file",
        );
    }
    let mut unpacked = vec![0; len];
    let written = match kind {
        Compression::None => return Err("internal: an uncompressed block was to be decompressed"),
        Compression::Lz4 => lz4_flex::block::decompress_into(packed, &mut unpacked).ok(),
        Compression::Zstd => UNPACK_ZSTD.with_borrow_mut(|context| {
            if context.is_none() {
                *context = ZstdDecompressor::new().ok();
            }
            context.as_mut()?.decompress_to_buffer(packed, &mut unpacked[..]).ok()
        }),
    };
    if written != Some(len) {
        return Err("a compressed block does not decompress to its recorded length");
    }
    Ok(unpacked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compressed_blocks_round_trip_and_false_ones_are_refused() {
        let payload: Vec<u8> = (0..5000u32).flat_map(|i| [(i / 100) as u8, 7]).collect();
        for kind in [Compression::Lz4, Compression::Zstd] {
            let mut compressor = Compressor::new(kind);
            let packed = compressor.pack(&payload).expect("it repeats").clone();
            assert!(packed.len() < payload.len() / 2);
            assert_eq!(unpack(kind, &packed, payload.len()).as_ref(), Ok(&payload));
            assert!(unpack(kind, &packed, payload.len() - 1).is_err());
            for claimed in [0u32, 9_999, 10_001] {
                let mut lying = packed.clone();
                lying[..4].copy_from_slice(&claimed.to_le_bytes());
                assert!(unpack(kind, &lying, 1 << 20).is_err(), "{kind:?} {claimed}");
            }
            assert!(unpack(kind, &packed[..3], 1 << 20).is_err());
        }
    }

    #[test]
    fn incompressible_blocks_are_stored_raw() {
        let mut state = 1u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .take(4096)
        .collect();
        for kind in [Compression::None, Compression::Lz4, Compression::Zstd] {
            assert!(Compressor::new(kind).pack(&noise).is_none());
        }
    }
}

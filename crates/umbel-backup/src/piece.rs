//! [`Piece`]: a range of the bytes of a store's file, in an object of its own.
//!
//! FORMAT: `docs/formats/object-backup.md`. The bytes of the range come first, so that an offset in
//! the object is an offset in the file minus the start of the range. The checksums of the blocks
//! follow, then the footer.

use std::sync::{Arc, Mutex};

use umbel_base::checksum::checksum;
use umbel_base::ignore_poison::IgnorePoison;
use umbel_base::shell_word::quote_path;
use umbel_base::{Decoder, varint};
use umbel_env::{File, ObjectError, ObjectErrorKind, ObjectSource};

use crate::backup_kind::BackupKind;

/// Bytes of a range that share a checksum.
pub const BLOCK_BYTES: u64 = 1 << 20;
const VERSION: u32 = 1;
/// Maximum offset after the last byte of a piece.
const PIECE_END_MAX: u64 = 1 << 48;
/// Bytes after the checksums of the blocks.
pub const FOOTER_BYTES: u64 = 88;

/// A file of the store: a chunk of the event log, a table or a long value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceFile {
    /// Id of the chunk, of the table or of the long value.
    pub id: u64,
    /// Version of the file. A chunk's version is 0 until a scavenge rewrites it; a table has
    /// version 0, a long value 1.
    pub version: u64,
}

/// A range of a file in an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Piece {
    /// Random id of the upload.
    pub uid: [u8; 16],
    /// Whether the object holds a whole file that never changes.
    pub is_whole: bool,
    /// Offset of the first byte in the file.
    pub from: u64,
    /// Offset after the last byte in the file.
    pub to: u64,
    /// Checksum of the block checksums and the footer.
    pub digest: u64,
}

impl Piece {
    /// The random id in hexadecimal, for names of objects.
    pub fn uid_text(&self) -> String {
        self.uid.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Number of bytes of the object.
    pub fn object_bytes(&self) -> u64 {
        let bytes = self.to - self.from;
        bytes + trailer_bytes(bytes)
    }

    /// Appends the bytes of the piece to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.is_whole));
        out.extend_from_slice(&self.uid);
        varint::put_u64(out, self.from);
        varint::put_u64(out, self.to - self.from);
        out.extend_from_slice(&self.digest.to_le_bytes());
    }

    /// Decodes the output of [`Piece::encode`]; `None` where it is malformed.
    pub fn decode(decoder: &mut Decoder<'_>) -> Option<Piece> {
        let is_whole = decoder.u8().filter(|kind| *kind < 2)? == 1;
        let uid = decoder.array()?;
        let (from, bytes) = (decoder.varint()?, decoder.varint()?);
        let to = from.checked_add(bytes).filter(|to| *to > from && *to <= PIECE_END_MAX)?;
        Some(Piece { uid, is_whole, from, to, digest: decoder.u64()? })
    }
}

/// Number of bytes after the bytes of a range.
pub fn trailer_bytes(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES) * 8 + FOOTER_BYTES
}

/// Returns block checksums and footer, and sets the digest of the piece.
pub fn encode_trailer(
    piece: &mut Piece,
    (kind, backup, file): (BackupKind, &[u8; 16], SourceFile),
    block_checksums: &[u64],
) -> Vec<u8> {
    let mut out = Vec::new();
    block_checksums.iter().for_each(|sum| out.extend_from_slice(&sum.to_le_bytes()));
    out.extend_from_slice(&kind.piece_magic());
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&u32::from(piece.is_whole).to_le_bytes());
    out.extend_from_slice(backup);
    out.extend_from_slice(&piece.uid);
    for number in [file.id, file.version, piece.from, piece.to] {
        out.extend_from_slice(&number.to_le_bytes());
    }
    piece.digest = checksum(file.id, piece.to - piece.from, &out);
    out.extend_from_slice(&piece.digest.to_le_bytes());
    out
}

/// Returns the block checksums of a trailer.
///
/// # Errors
/// The bytes are not the trailer that was written; the reason.
pub fn decode_trailer(
    bytes: &[u8],
    piece: &Piece,
    (kind, backup, file): (BackupKind, &[u8; 16], SourceFile),
) -> Result<Vec<u64>, &'static str> {
    let sums_bytes = bytes.len().checked_sub(FOOTER_BYTES as usize);
    let Some((sums, _)) = sums_bytes.and_then(|at| bytes.split_at_checked(at)) else {
        return Err("its footer is cut short");
    };
    let sums = sums.chunks_exact(8).filter_map(|sum| sum.first_chunk());
    let sums: Vec<u64> = sums.map(|sum| u64::from_le_bytes(*sum)).collect();
    let mut expected = *piece;
    // Every field is known from the manifest, and so is the digest of all of them.
    match encode_trailer(&mut expected, (kind, backup, file), &sums) == bytes
        && expected.digest == piece.digest
    {
        true => Ok(sums),
        false => Err("its checksums or its footer are not those that the manifest names"),
    }
}

/// The bytes of a piece's object, read from the store's file. Each block is compared with its
/// checksum when it is read, so that the object has the bytes that were verified before.
#[derive(Debug)]
pub struct PieceSource {
    file: Arc<dyn File>,
    kind: BackupKind,
    id: u64,
    piece: Piece,
    block_checksums: Vec<u64>,
    trailer: Vec<u8>,
    /// The block that was read last.
    block: Mutex<Option<(u64, Vec<u8>)>>,
}

impl PieceSource {
    /// Creates the source of a piece from the checksums of its blocks, and sets the digest of the
    /// piece.
    pub fn new(
        file: Arc<dyn File>,
        piece: &mut Piece,
        (kind, backup, source): (BackupKind, &[u8; 16], SourceFile),
        block_checksums: Vec<u64>,
    ) -> PieceSource {
        let trailer = encode_trailer(piece, (kind, backup, source), &block_checksums);
        let (id, piece, block) = (source.id, *piece, Mutex::default());
        PieceSource { file, kind, id, piece, block_checksums, trailer, block }
    }

    fn error(&self, cause: String) -> ObjectError {
        let shown = self.file.path().display().to_string();
        ObjectError::new(ObjectErrorKind::Refused, "upload", shown, cause)
    }

    fn load(&self, number: u64) -> Result<Vec<u8>, ObjectError> {
        let at = self.piece.from + number * BLOCK_BYTES;
        let mut bytes = vec![0; BLOCK_BYTES.min(self.piece.to - at) as usize];
        let read = self.file.read_exact_at(&mut bytes, at);
        read.map_err(|error| self.error(format!("the local file cannot be read: {error}")))?;
        let expected = self.block_checksums.get(number as usize);
        if expected != Some(&checksum(self.id, at, &bytes)) {
            // The chunks of an event store have a directory of their own.
            let depth = if self.kind == BackupKind::Events { 2 } else { 1 };
            let directory = self.file.path().ancestors().nth(depth).unwrap_or(self.file.path());
            return Err(self.error(format!(
                "the local file changed at byte {at} or later while it was uploaded; check the {} \
                 with `umbel verify --db {}`",
                self.kind.store(),
                quote_path(directory)
            )));
        }
        Ok(bytes)
    }
}

impl ObjectSource for PieceSource {
    fn byte_count(&self) -> u64 {
        self.piece.object_bytes()
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<(), ObjectError> {
        let body = self.piece.to - self.piece.from;
        let (mut done, mut at) = (0, offset);
        while done < buffer.len() {
            let rest = &mut buffer[done..];
            let count = if at < body {
                let number = at / BLOCK_BYTES;
                let mut held = self.block.lock().ignore_poison();
                if held.as_ref().is_none_or(|(loaded, _)| *loaded != number) {
                    *held = Some((number, self.load(number)?));
                }
                let bytes = held.as_ref().map_or(&[][..], |(_, bytes)| bytes);
                copy_from(bytes, (at % BLOCK_BYTES) as usize, rest)
            } else {
                copy_from(&self.trailer, (at - body) as usize, rest)
            };
            if count == 0 {
                return Err(self.error("internal: the range lies outside of the bytes".into()));
            }
            (done, at) = (done + count, at + count as u64);
        }
        Ok(())
    }
}

/// Copies bytes from `at` on into the beginning of `buffer`, and returns their number.
fn copy_from(bytes: &[u8], at: usize, buffer: &mut [u8]) -> usize {
    let bytes = bytes.get(at..).unwrap_or_default();
    let count = bytes.len().min(buffer.len());
    buffer[..count].copy_from_slice(&bytes[..count]);
    count
}

/// Decodes a trailer of a piece of each length. For fuzzing only.
pub fn fuzz(bytes: &[u8]) {
    let file = SourceFile { id: 3, version: 0 };
    let to = (bytes.len() as u64).max(1);
    let piece = Piece { uid: [7; 16], is_whole: false, from: 0, to, digest: 0 };
    let _ = decode_trailer(bytes, &piece, (BackupKind::Events, &[9; 16], file));
    let mut decoder = Decoder::new(bytes);
    if let Some(piece) = Piece::decode(&mut decoder) {
        let mut again = Vec::new();
        piece.encode(&mut again);
        assert_eq!(Piece::decode(&mut Decoder::new(&again)), Some(piece));
    }
}

#[cfg(test)]
mod tests {
    use umbel_env::{Access, Env};

    use super::*;

    const KIND: BackupKind = BackupKind::Events;
    const FILE: SourceFile = SourceFile { id: 3, version: 0 };

    fn piece(from: u64, to: u64) -> Piece {
        Piece { uid: [7; 16], is_whole: false, from, to, digest: 0 }
    }

    #[test]
    fn changed_trailers_are_rejected() {
        let mut piece = piece(64, 64 + BLOCK_BYTES + 100);
        let bytes = encode_trailer(&mut piece, (KIND, &[9; 16], FILE), &[5, 6]);
        assert_eq!(bytes.len() as u64, trailer_bytes(BLOCK_BYTES + 100));
        assert_eq!(decode_trailer(&bytes, &piece, (KIND, &[9; 16], FILE)), Ok(vec![5, 6]));
        assert!(decode_trailer(&bytes, &piece, (KIND, &[8; 16], FILE)).is_err(), "another backup");
        let other = SourceFile { version: 1, ..FILE };
        assert!(decode_trailer(&bytes, &piece, (KIND, &[9; 16], other)).is_err(), "another file");
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_trailer(&changed, &piece, (KIND, &[9; 16], FILE)).is_err(), "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert!(
                decode_trailer(&bytes[..len], &piece, (KIND, &[9; 16], FILE)).is_err(),
                "{len}"
            );
        }
    }

    /// A store may read parts of any length in any order, and a part again.
    #[test]
    fn source_has_the_bytes_and_notices_a_changed_file() {
        let folder = tempfile::tempdir().expect("a directory");
        let (env, path) = (Env::system(), folder.path().join("1.chunk"));
        let len = 2 * BLOCK_BYTES + 77;
        let bytes: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
        env.files.create(&path).expect("created").write_all_at(&bytes, 0).expect("written");
        let from = 40;
        let blocks = bytes[from as usize..].chunks(BLOCK_BYTES as usize).enumerate();
        let sum = |(number, block): (usize, &[u8])| {
            checksum(3, from + number as u64 * BLOCK_BYTES, block)
        };
        let block_checksums: Vec<u64> = blocks.map(sum).collect();
        let mut piece = piece(from, len);
        let file = env.files.open(&path, Access::Read).expect("opened");
        let source = PieceSource::new(file, &mut piece, (KIND, &[9; 16], FILE), block_checksums);
        let expected = [&bytes[from as usize..], &source.trailer].concat();
        assert_eq!(source.byte_count(), expected.len() as u64);
        for (at, count) in [(0, expected.len()), (len as usize - 50, 100), (5, 0), (1000, 1)] {
            let mut part = vec![0; count];
            source.read(&mut part, at as u64).expect("read");
            assert!(part == expected[at..at + count], "{count} bytes from {at}");
        }
        let mut beyond = [0; 2];
        source.read(&mut beyond, expected.len() as u64 - 1).expect_err("beyond the end");
        let file = env.files.open(&path, Access::ReadWrite).expect("opened");
        file.write_all_at(&[255], from + BLOCK_BYTES + 9).expect("damaged");
        let mut part = [0; 10];
        source.read(&mut part, 0).expect("another block");
        let error = source.read(&mut part, BLOCK_BYTES).expect_err("changed").to_string();
        assert!(error.contains("1.chunk") && error.contains("changed at byte 1048616"), "{error}");
    }
}

//! The bytes of a log file: its header, the header of a record, the end record.
//!
//! FORMAT: `docs/formats/log.md` is the description; the names here follow it. All integers are
//! little-endian and have a fixed width.

use umbel_base::checksum::{checksum, checksum_parts};

/// The length of a file's header, and so the offset of the first record.
pub const HEADER_BYTES: u64 = 64;
/// The length of a record's header, which stands before the payload.
pub const RECORD_HEADER_BYTES: usize = 32;
/// Every record begins at a multiple of this offset.
pub const RECORD_ALIGN: u64 = 8;
/// Bytes of an end record. A segment always keeps this much space, so that sealing cannot fail.
pub const END_RECORD_BYTES: u64 = (RECORD_HEADER_BYTES + END_PAYLOAD_BYTES) as u64;

/// The first eight bytes of every log file.
pub(crate) const MAGIC: [u8; 8] = *b"UmbelLog";
/// The version this code writes, and the newest it reads.
pub(crate) const VERSION: u32 = 1;
/// The largest payload of one record.
pub(crate) const PAYLOAD_BYTES_MAX: u64 = u32::MAX as u64;
/// The end record's payload: the number of records before it and the running checksum over them.
pub(crate) const END_PAYLOAD_BYTES: usize = 16;

const HEADER_CHECKSUM_AT: usize = HEADER_BYTES as usize - 8;

/// Use of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum LogKind {
    /// Batches of changes that are not in tables yet.
    WriteAhead = 1,
    /// Changes of the set of files that make up the store.
    Manifest = 2,
    /// Events of an event store.
    Events = 3,
}

impl LogKind {
    /// Noun for error messages.
    pub(crate) fn noun(self) -> &'static str {
        match self {
            LogKind::WriteAhead => "write-ahead log",
            LogKind::Manifest => "manifest",
            LogKind::Events => "event log chunk",
        }
    }
}

/// Length and checksum of a sealed log. Kept elsewhere, it proves that the file was not cut,
/// exchanged or replaced by an older copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Seal {
    /// The offset after the end record, in bytes.
    pub len: u64,
    /// The running checksum over the checksums of all records before the end record.
    pub checksum: u64,
}

/// Number of bytes a record with a payload of this length takes in the file.
pub const fn record_bytes(payload_bytes: u64) -> u64 {
    (RECORD_HEADER_BYTES as u64).saturating_add(payload_bytes).saturating_add(RECORD_ALIGN - 1)
        & !(RECORD_ALIGN - 1)
}

/// Values to which the checksum binds every record of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordBinding {
    /// The log's id.
    pub log_id: u64,
    /// A number unknown to clients that choose payloads; 0 for logs in new files. With it no
    /// payload of an earlier log in the same file can pass for a record of this one.
    pub salt: u64,
}

impl RecordBinding {
    /// The file id in the checksums of the log's records. Its lower half stands in each of them.
    #[inline]
    pub(crate) fn checksum_id(self) -> u64 {
        self.log_id ^ self.salt
    }
}

/// The header of a file, read or to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileHeader {
    /// The version of the format.
    pub version: u32,
    /// The byte of a [`LogKind`].
    pub kind: u8,
    /// The log's id and salt.
    pub binding: RecordBinding,
    /// Whether a byte that version 1 leaves zero is set.
    pub reserved_set: bool,
    /// The header's own checksum, with which the running checksum begins.
    pub checksum: u64,
}

impl FileHeader {
    /// FORMAT: `magic[8] version:u32 kind:u8 zero[3] log_id:u64 salt:u64 zero[24] checksum:u64`.
    pub fn encode(kind: LogKind, binding: RecordBinding) -> [u8; HEADER_BYTES as usize] {
        let RecordBinding { log_id, salt } = binding;
        let mut bytes = [0; HEADER_BYTES as usize];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12] = kind as u8;
        bytes[16..24].copy_from_slice(&log_id.to_le_bytes());
        bytes[24..32].copy_from_slice(&salt.to_le_bytes());
        let sum = checksum(log_id, 0, &bytes[..HEADER_CHECKSUM_AT]);
        bytes[HEADER_CHECKSUM_AT..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// The salt that a header seems to have, which may be damaged.
    /// REQUIRES: `bytes` holds a header.
    pub fn salt(bytes: &[u8]) -> u64 {
        u64_at(bytes, 24)
    }

    /// `None` where magic or checksum are wrong. Everything else is the caller's to judge.
    pub fn decode(bytes: &[u8; HEADER_BYTES as usize]) -> Option<FileHeader> {
        let log_id = u64_at(bytes, 16);
        let stored = u64_at(bytes, HEADER_CHECKSUM_AT);
        if bytes[..8] != MAGIC || stored != checksum(log_id, 0, &bytes[..HEADER_CHECKSUM_AT]) {
            return None;
        }
        let reserved_set = [&bytes[13..16], &bytes[32..HEADER_CHECKSUM_AT]]
            .iter()
            .any(|part| part.iter().any(|&byte| byte != 0));
        let version = u32_at(bytes, 8);
        let binding = RecordBinding { log_id, salt: FileHeader::salt(bytes) };
        Some(FileHeader { version, kind: bytes[12], binding, reserved_set, checksum: stored })
    }
}

/// Kind of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum RecordKind {
    /// A payload of the log's user.
    Data = 1,
    /// The last record of a sealed log.
    End = 2,
}

/// The header of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    /// Over everything after it up to the record's end, padding included.
    pub checksum: u64,
    /// The payload's length.
    pub payload_bytes: u32,
    /// The record's sequence number.
    pub sequence: u64,
    /// Everything below this offset was synced when the record was written.
    pub durable: u64,
    /// Kind of the record.
    pub kind: RecordKind,
}

impl RecordHeader {
    /// FORMAT: `checksum:u64 length:u32 bound_low:u32 sequence:u64 durable/8:u32 kind:u8 zero[3]`.
    /// `bound_low` is the low half of [`RecordBinding::checksum_id`]. So a client without the salt
    /// cannot store a value that looks like records of a later log. A durable
    /// mark beyond 32 GiB is stored as 32 GiB, which is lower but true.
    #[inline]
    pub fn encode(&self, checksum_id: u64) -> [u8; RECORD_HEADER_BYTES] {
        let mark = u32::try_from(self.durable / RECORD_ALIGN).unwrap_or(u32::MAX);
        let mut bytes = [0; RECORD_HEADER_BYTES];
        bytes[..8].copy_from_slice(&self.checksum.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.payload_bytes.to_le_bytes());
        bytes[12..16].copy_from_slice(&(checksum_id as u32).to_le_bytes());
        bytes[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[24..28].copy_from_slice(&mark.to_le_bytes());
        bytes[28] = self.kind as u8;
        bytes
    }

    /// `None` where the bytes cannot be the header of a record of this log. Does not check the
    /// checksum, which needs the payload.
    /// REQUIRES: `bytes` holds at least [`RECORD_HEADER_BYTES`].
    #[inline]
    pub fn decode(checksum_id: u64, bytes: &[u8]) -> Option<RecordHeader> {
        if u32_at(bytes, 12) != checksum_id as u32 {
            return None;
        }
        // The kind and the three reserved zeros after it, read as one number.
        let kind = match u32_at(bytes, 28) {
            1 => RecordKind::Data,
            2 => RecordKind::End,
            _ => return None,
        };
        Some(RecordHeader {
            checksum: u64_at(bytes, 0),
            payload_bytes: u32_at(bytes, 8),
            sequence: u64_at(bytes, 16),
            durable: u64::from(u32_at(bytes, 24)) * RECORD_ALIGN,
            kind,
        })
    }

    /// Number of bytes the record takes.
    #[inline]
    pub fn record_bytes(&self) -> u64 {
        record_bytes(u64::from(self.payload_bytes))
    }
}

/// The checksum a whole record (header, payload, padding) ought to carry at `offset`.
/// REQUIRES: `record` holds at least the checksum's own 8 bytes.
#[inline]
pub(crate) fn record_checksum(binding: RecordBinding, offset: u64, record: &[u8]) -> u64 {
    checksum(binding.checksum_id(), offset, &record[8..])
}

/// The same of a record in parts, the first of which begins after the checksum.
pub(crate) fn parts_checksum(binding: RecordBinding, offset: u64, parts: &[&[u8]]) -> u64 {
    checksum_parts(binding.checksum_id(), offset, parts)
}

/// FORMAT: content of the end record. It begins as the file header's checksum, and each
/// record makes it `checksum(file_id = running, offset, the record's checksum as 8 bytes)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RunningChecksum {
    /// The number of records so far.
    pub records: u64,
    /// The checksum so far.
    pub checksum: u64,
}

impl RunningChecksum {
    /// Before the first record.
    pub fn new(header_checksum: u64) -> RunningChecksum {
        RunningChecksum { records: 0, checksum: header_checksum }
    }

    /// Takes in one more record.
    #[inline]
    pub fn add(&mut self, offset: u64, record_checksum: u64) {
        self.records += 1;
        self.checksum = checksum(self.checksum, offset, &record_checksum.to_le_bytes());
    }

    /// The payload of the end record.
    pub fn encode(&self) -> [u8; END_PAYLOAD_BYTES] {
        let mut bytes = [0; END_PAYLOAD_BYTES];
        bytes[..8].copy_from_slice(&self.records.to_le_bytes());
        bytes[8..].copy_from_slice(&self.checksum.to_le_bytes());
        bytes
    }

    /// The payload of an end record; `None` where it has another length.
    pub fn decode(bytes: &[u8]) -> Option<RunningChecksum> {
        (bytes.len() == END_PAYLOAD_BYTES)
            .then(|| RunningChecksum { records: u64_at(bytes, 0), checksum: u64_at(bytes, 8) })
    }
}

#[inline]
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[inline]
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_round_trip() {
        let binding = RecordBinding { log_id: 0x1_2345_6789, salt: 0xfedc_ba98_7654_3210 };
        let bytes = FileHeader::encode(LogKind::Manifest, binding);
        let header = FileHeader::decode(&bytes).expect("just encoded");
        assert_eq!((header.version, header.kind, header.binding), (1, 2, binding));
        assert!(!header.reserved_set);
        for at in 0..bytes.len() {
            let mut flipped = bytes;
            flipped[at] ^= 0x10;
            assert_eq!(FileHeader::decode(&flipped), None, "byte {at}");
        }
    }

    #[test]
    fn record_headers_round_trip() {
        let header = RecordHeader {
            checksum: 7,
            payload_bytes: 8,
            sequence: u64::MAX - 1,
            durable: 4096,
            kind: RecordKind::End,
        };
        let bytes = header.encode(0x9_0000_0001);
        assert_eq!(RecordHeader::decode(0x9_0000_0001, &bytes), Some(header));
        assert_eq!(RecordHeader::decode(2, &bytes), None);
    }

    #[test]
    fn mark_over_its_field_is_stored_as_the_maximum() {
        let header = RecordHeader {
            checksum: 0,
            payload_bytes: 0,
            sequence: 0,
            durable: 1 << 40,
            kind: RecordKind::Data,
        };
        let back = RecordHeader::decode(1, &header.encode(1)).expect("a header");
        assert_eq!(back.durable, u64::from(u32::MAX) * 8);
    }

    #[test]
    fn records_are_aligned() {
        assert_eq!(record_bytes(0), 32);
        assert_eq!(record_bytes(1), 40);
        assert_eq!(record_bytes(8), 40);
        assert_eq!(record_bytes(PAYLOAD_BYTES_MAX), 32 + (1 << 32));
        assert_eq!(END_RECORD_BYTES, record_bytes(END_PAYLOAD_BYTES as u64));
    }
}

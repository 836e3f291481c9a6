//! The format of a log file: its header, the header of a record, the end record.
//!
//! FORMAT: `docs/formats/log.md` describes the format, with the same names. All integers are
//! little-endian and have a fixed width.

use umbel_base::checksum::{checksum, checksum_parts};

/// Length of a file's header, which is also the offset of the first record.
pub const HEADER_BYTES: u64 = 64;
/// Length of a record's header, which is before the payload.
pub const RECORD_HEADER_BYTES: usize = 32;
/// Every record begins at an offset that is a multiple of this number.
pub const RECORD_ALIGN: u64 = 8;
/// Bytes of an end record. A segment always keeps this much space, so that sealing cannot fail.
pub const END_RECORD_BYTES: u64 = (RECORD_HEADER_BYTES + END_PAYLOAD_BYTES) as u64;

/// The first eight bytes of every log file.
pub(crate) const MAGIC: [u8; 8] = *b"UmbelLog";
/// The version that this build writes, which is also the newest that it reads.
pub(crate) const VERSION: u32 = 1;
/// Maximum bytes of the payload of a record.
pub(crate) const PAYLOAD_BYTES_MAX: u64 = u32::MAX as u64;
/// Bytes of the end record's payload: the number of records before the end record, and the running
/// checksum over them.
pub(crate) const END_PAYLOAD_BYTES: usize = 16;

const HEADER_CHECKSUM_AT: usize = HEADER_BYTES as usize - 8;

/// Use of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum LogKind {
    /// A WAL segment: batches of writes that are possibly not in tables yet.
    WriteAhead = 1,
    /// A manifest: edits of the set of files of which the store consists.
    Manifest = 2,
    /// A chunk of an event store: events.
    Events = 3,
}

impl LogKind {
    /// Returns the noun for the kind in error messages.
    pub(crate) fn noun(self) -> &'static str {
        match self {
            LogKind::WriteAhead => "write-ahead log",
            LogKind::Manifest => "manifest",
            LogKind::Events => "event log chunk",
        }
    }
}

/// Length and checksum of a sealed log. A seal that is kept in another file proves that the log was
/// not truncated or replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Seal {
    /// Offset after the end record, in bytes.
    pub len: u64,
    /// The running checksum over the checksums of all records before the end record.
    pub checksum: u64,
}

/// Returns the bytes in the file of a record with a payload of this length.
pub const fn record_bytes(payload_bytes: u64) -> u64 {
    (RECORD_HEADER_BYTES as u64).saturating_add(payload_bytes).saturating_add(RECORD_ALIGN - 1)
        & !(RECORD_ALIGN - 1)
}

/// The id and salt to which the checksum binds every record of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordBinding {
    /// The log's id.
    pub log_id: u64,
    /// A number that clients who choose payloads do not know; 0 for logs in new files. With the
    /// salt no payload of an earlier log in the same file can pass for a record of this log.
    pub salt: u64,
}

impl RecordBinding {
    /// Returns the file id that the checksums of the log's records use. Every record has the lower
    /// half of this id.
    #[inline]
    pub(crate) fn checksum_id(self) -> u64 {
        self.log_id ^ self.salt
    }
}

/// The header of a log file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileHeader {
    /// Version of the format.
    pub version: u32,
    /// Byte of the [`LogKind`].
    pub kind: u8,
    /// The log's id and salt.
    pub binding: RecordBinding,
    /// Whether a byte that must be zero in version 1 is not zero.
    pub reserved_set: bool,
    /// Checksum of the header, with which the running checksum begins.
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

    /// Returns the salt in the bytes of a header, which is possibly damaged.
    /// REQUIRES: `bytes` has the length of a header.
    pub fn salt(bytes: &[u8]) -> u64 {
        u64_at(bytes, 24)
    }

    /// Decodes a header. Returns `None` if magic or checksum are wrong; the caller checks the other
    /// fields.
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
    /// A record with a payload of the caller.
    Data = 1,
    /// The last record of a sealed log.
    End = 2,
}

/// The header of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    /// Checksum of all bytes after it up to the record's end, padding included.
    pub checksum: u64,
    /// Length of the payload.
    pub payload_bytes: u32,
    /// The record's sequence number.
    pub sequence: u64,
    /// Durable mark: all bytes below this offset were synced when the record was written.
    pub durable: u64,
    /// Kind of the record.
    pub kind: RecordKind,
}

impl RecordHeader {
    /// FORMAT: `checksum:u64 length:u32 bound_low:u32 sequence:u64 durable/8:u32 kind:u8 zero[3]`.
    /// `bound_low` is the low half of [`RecordBinding::checksum_id`]. So a client without the salt
    /// cannot store a value that looks like records of a later log. A durable mark beyond 32 GiB is
    /// stored as 32 GiB, which is still true.
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

    /// Decodes a record's header. Returns `None` if the bytes cannot be the header of a record of
    /// this log. Does not check the checksum, which needs the payload.
    /// REQUIRES: `bytes` has at least [`RECORD_HEADER_BYTES`].
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

    /// Returns the bytes of the record in the file.
    #[inline]
    pub fn record_bytes(&self) -> u64 {
        record_bytes(u64::from(self.payload_bytes))
    }
}

/// Returns the right checksum of a whole record (header, payload, padding) at `offset`.
/// REQUIRES: `record` has at least the 8 bytes of the checksum.
#[inline]
pub(crate) fn record_checksum(binding: RecordBinding, offset: u64, record: &[u8]) -> u64 {
    checksum(binding.checksum_id(), offset, &record[8..])
}

/// Returns the right checksum of a record that is given in parts, the first of which begins after
/// the checksum.
pub(crate) fn parts_checksum(binding: RecordBinding, offset: u64, parts: &[&[u8]]) -> u64 {
    checksum_parts(binding.checksum_id(), offset, parts)
}

/// FORMAT: content of the end record. The running checksum begins as the file header's checksum.
/// Each record changes the running checksum to `checksum(file_id = running, offset, the record's
/// checksum as 8 bytes)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RunningChecksum {
    /// The number of records so far.
    pub records: u64,
    /// The checksum so far.
    pub checksum: u64,
}

impl RunningChecksum {
    /// Returns the running checksum before the first record.
    pub fn new(header_checksum: u64) -> RunningChecksum {
        RunningChecksum { records: 0, checksum: header_checksum }
    }

    /// Adds a record to the running checksum.
    #[inline]
    pub fn add(&mut self, offset: u64, record_checksum: u64) {
        self.records += 1;
        self.checksum = checksum(self.checksum, offset, &record_checksum.to_le_bytes());
    }

    /// Returns the payload of the end record.
    pub fn encode(&self) -> [u8; END_PAYLOAD_BYTES] {
        let mut bytes = [0; END_PAYLOAD_BYTES];
        bytes[..8].copy_from_slice(&self.records.to_le_bytes());
        bytes[8..].copy_from_slice(&self.checksum.to_le_bytes());
        bytes
    }

    /// Decodes the payload of an end record; returns `None` if it has another length.
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

//! Reads single records, for callers that salvage a damaged log.

use crate::format::{
    END_RECORD_BYTES, FileHeader, HEADER_BYTES, LogKind, RECORD_HEADER_BYTES, RecordBinding,
    RecordHeader, RecordKind, RunningChecksum, Seal, VERSION, record_bytes, record_checksum,
    u32_at,
};
use crate::reader::Record;

/// Returns the data record at `offset` of a log's file, whose bytes from there on are `bytes`;
/// `None` if there is no valid one.
///
/// A valid record need not be an appended one: in a log without a salt, a client that chooses
/// payloads can put the image of a record into a payload. The caller decides by the records around
/// it.
pub fn record_at(binding: RecordBinding, offset: u64, bytes: &[u8]) -> Option<Record<'_>> {
    let head = bytes.get(..RECORD_HEADER_BYTES)?;
    let header = RecordHeader::decode(binding.checksum_id(), head)?;
    let is_plausible = header.kind == RecordKind::Data && header.durable <= offset;
    let len = usize::try_from(header.record_bytes()).ok().filter(|_| is_plausible)?;
    let record = bytes.get(..len)?;
    let is_valid = record_checksum(binding, offset, record) == header.checksum;
    let payload_end = RECORD_HEADER_BYTES + header.payload_bytes as usize;
    let payload = &record[RECORD_HEADER_BYTES..payload_end];
    is_valid.then_some(Record { sequence: header.sequence, offset, payload })
}

/// Whether the bytes are the header of the log with this binding, in this version of the format.
pub fn is_header(kind: LogKind, binding: RecordBinding, bytes: &[u8]) -> bool {
    let header = bytes.first_chunk::<{ HEADER_BYTES as usize }>().and_then(FileHeader::decode);
    header.is_some_and(|header| {
        header.version == VERSION
            && !header.reserved_set
            && header.kind == kind as u8
            && header.binding == binding
    })
}

/// Returns the seal that the end record at `offset` proves, whose bytes are `bytes`; `None` if
/// there is no valid one.
pub fn seal_at(binding: RecordBinding, offset: u64, bytes: &[u8]) -> Option<Seal> {
    let record = bytes.get(..END_RECORD_BYTES as usize)?;
    let header = RecordHeader::decode(binding.checksum_id(), record)?;
    let is_end = header.kind == RecordKind::End && header.record_bytes() == END_RECORD_BYTES;
    let is_valid = is_end && record_checksum(binding, offset, record) == header.checksum;
    let payload_end = RECORD_HEADER_BYTES + header.payload_bytes as usize;
    let payload = record.get(RECORD_HEADER_BYTES..payload_end).filter(|_| is_valid)?;
    let running = RunningChecksum::decode(payload)?;
    Some(Seal { len: offset + END_RECORD_BYTES, checksum: running.checksum })
}

/// Returns the length of the record at the start of `bytes` according to its header, which is not
/// verified. `None` if `bytes` is shorter than a header.
pub fn stated_bytes(bytes: &[u8]) -> Option<u64> {
    let head = bytes.get(..RECORD_HEADER_BYTES)?;
    Some(record_bytes(u64::from(u32_at(head, 8))))
}

/// Returns the durable mark of the record at the start of `bytes` according to its header, in units
/// of 8 bytes. The header is not verified. `None` if `bytes` is shorter than a header.
pub fn stated_mark(bytes: &[u8]) -> Option<u32> {
    let head = bytes.get(..RECORD_HEADER_BYTES)?;
    Some(u32_at(head, 24))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_and_end_record_are_valid_only_for_their_log() {
        let binding = RecordBinding { log_id: 9, salt: 0 };
        let other = RecordBinding { log_id: 8, salt: 0 };
        let bytes = FileHeader::encode(LogKind::Events, binding);
        assert!(is_header(LogKind::Events, binding, &bytes));
        assert!(!is_header(LogKind::Events, other, &bytes));
        assert!(!is_header(LogKind::Manifest, binding, &bytes));
        assert!(!is_header(LogKind::Events, binding, &bytes[..63]));
        let running = RunningChecksum { records: 3, checksum: 88 };
        let header = RecordHeader {
            checksum: 0,
            payload_bytes: 16,
            sequence: 77,
            durable: 64,
            kind: RecordKind::End,
        };
        let mut bytes = header.encode(9).to_vec();
        bytes.extend_from_slice(&running.encode());
        let sum = record_checksum(binding, 104, &bytes);
        bytes[..8].copy_from_slice(&sum.to_le_bytes());
        let seal = Seal { len: 104 + END_RECORD_BYTES, checksum: 88 };
        assert_eq!(seal_at(binding, 104, &bytes), Some(seal));
        assert_eq!(seal_at(binding, 112, &bytes), None);
        assert_eq!(seal_at(other, 104, &bytes), None);
        assert_eq!((stated_mark(&bytes), stated_mark(&bytes[..31])), (Some(8), None));
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(seal_at(binding, 104, &changed), None, "bit {bit}");
        }
    }

    #[test]
    fn record_is_valid_only_at_its_offset() {
        let binding = RecordBinding { log_id: 9, salt: 0 };
        let header = RecordHeader {
            checksum: 0,
            payload_bytes: 5,
            sequence: 77,
            durable: 64,
            kind: RecordKind::Data,
        };
        let mut bytes = header.encode(9).to_vec();
        bytes.extend_from_slice(b"hello\0\0\0");
        let sum = record_checksum(binding, 104, &bytes);
        bytes[..8].copy_from_slice(&sum.to_le_bytes());
        let found = record_at(binding, 104, &bytes).expect("just written");
        assert_eq!((found.sequence, found.payload), (77, &b"hello"[..]));
        assert_eq!(stated_bytes(&bytes), Some(40));
        assert!(record_at(binding, 112, &bytes).is_none());
        assert!(record_at(RecordBinding { log_id: 8, salt: 0 }, 104, &bytes).is_none());
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(record_at(binding, 104, &changed).is_none(), "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert!(record_at(binding, 104, &bytes[..len]).is_none(), "{len} bytes");
        }
    }
}

//! Reads single records, for callers that salvage a damaged log.

use crate::format::{
    RECORD_HEADER_BYTES, RecordBinding, RecordHeader, RecordKind, record_bytes, record_checksum,
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

/// Returns the length of the record at the start of `bytes` according to its header, which is not
/// verified. `None` if `bytes` is shorter than a header.
pub fn stated_bytes(bytes: &[u8]) -> Option<u64> {
    let head = bytes.get(..RECORD_HEADER_BYTES)?;
    Some(record_bytes(u64::from(u32_at(head, 8))))
}

#[cfg(test)]
mod tests {
    use super::*;

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

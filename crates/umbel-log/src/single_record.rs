//! One record by itself, for whoever looks for what is left of a damaged log.

use crate::format::{
    Binding, RECORD_HEADER_BYTES, RecordHeader, RecordKind, record_bytes, record_checksum, u32_at,
};
use crate::reader::Record;

/// The record with data that stands at `offset` of a log's file, whose bytes from there on are
/// `bytes`; `None` where there is no valid one.
///
/// A valid record is not yet one that was appended: in a log without a salt whoever chooses
/// payloads can put the image of one into a payload. Only the records around it tell.
pub fn record_at(binding: Binding, offset: u64, bytes: &[u8]) -> Option<Record<'_>> {
    let head = bytes.get(..RECORD_HEADER_BYTES)?;
    let header = RecordHeader::decode(binding.checksum_id(), head)?;
    let is_plausible = header.kind == RecordKind::Data && header.durable <= offset;
    let len = usize::try_from(header.record_bytes()).ok().filter(|_| is_plausible)?;
    let whole = bytes.get(..len)?;
    let is_valid = record_checksum(binding, offset, whole) == header.checksum;
    let payload_end = RECORD_HEADER_BYTES + header.payload_bytes as usize;
    let payload = &whole[RECORD_HEADER_BYTES..payload_end];
    is_valid.then_some(Record { sequence: header.sequence, offset, payload })
}

/// How many bytes the record that begins `bytes` says that it takes, of which nothing is known to
/// be right; `None` where that is not there.
pub fn stated_bytes(bytes: &[u8]) -> Option<u64> {
    let head = bytes.get(..RECORD_HEADER_BYTES)?;
    Some(record_bytes(u64::from(u32_at(head, 8))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_found_where_it_was_written_and_nowhere_else() {
        let binding = Binding { log_id: 9, salt: 0 };
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
        assert!(record_at(Binding { log_id: 8, salt: 0 }, 104, &bytes).is_none());
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

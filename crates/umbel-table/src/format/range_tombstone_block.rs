//! The range tombstone block.
//!
//! FORMAT: `payload := count varint, tombstone * count`, `tombstone := start, end, sequence
//! varint`, keys as a varint length and bytes. Sorted by start, end, sequence; none twice;
//! `start < end`. They stand as they were given, not cut where they overlap: cutting can square
//! their number.

use umbel_base::limits::{KEY_BYTES_MAX, SEQUENCE_MAX};
use umbel_base::{Decoder, RangeTombstone, varint};

/// The payload for tombstones that are sorted and distinct.
pub(crate) fn encode(tombstones: &[RangeTombstone]) -> Vec<u8> {
    let mut out = Vec::new();
    varint::put_u64(&mut out, tombstones.len() as u64);
    for tombstone in tombstones {
        varint::put_bytes(&mut out, &tombstone.start);
        varint::put_bytes(&mut out, &tombstone.end);
        varint::put_u64(&mut out, tombstone.sequence);
    }
    out
}

/// Reads a payload. The error is a reason in words.
pub(crate) fn decode(payload: &[u8]) -> Result<Vec<RangeTombstone>, &'static str> {
    const CUT: &str = "the range tombstones end too early";
    let mut decoder = Decoder::new(payload);
    let count = decoder.varint_usize().ok_or(CUT)?;
    if count > decoder.remaining() {
        return Err(CUT);
    }
    let mut tombstones: Vec<RangeTombstone> = Vec::new();
    while tombstones.len() < count {
        let start = decoder.bytes().ok_or(CUT)?.to_vec();
        let end = decoder.bytes().ok_or(CUT)?.to_vec();
        let sequence = decoder.varint().ok_or(CUT)?;
        if start >= end || end.len() > KEY_BYTES_MAX + 1 || sequence > SEQUENCE_MAX {
            return Err("a range tombstone is empty or over the limit");
        }
        tombstones.push(RangeTombstone { start, end, sequence });
    }
    if !decoder.is_done() || !tombstones.is_sorted_by(|a, b| a < b) {
        return Err("the range tombstones are not sorted or have bytes after the last one");
    }
    Ok(tombstones)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tombstones_round_trip_and_damaged_ones_are_refused() {
        let one = |start: &str, end: &str, sequence| RangeTombstone {
            start: start.into(),
            end: end.into(),
            sequence,
        };
        let list = vec![one("", "b", 1), one("a", "b", 7), one("a", "c", 3)];
        let payload = encode(&list);
        assert_eq!(decode(&payload), Ok(list.clone()));
        for cut in 0..payload.len() {
            assert!(decode(&payload[..cut]).is_err());
        }
        assert!(decode(&encode(&[one("b", "a", 1)])).is_err());
        assert!(decode(&encode(&[one("b", "c", 1), one("a", "c", 1)])).is_err());
    }
}

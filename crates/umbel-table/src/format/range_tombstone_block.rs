//! The range tombstone block.
//!
//! FORMAT: `payload := count varint, tombstone * count`, `tombstone := start, end, sequence
//! varint`, keys as a varint length and bytes. Tombstones are sorted by start, end and sequence,
//! without duplicates, and `start < end`. Tombstones are not cut where they overlap, since cutting
//! can square their number.

use umbel_base::limits::{KEY_BYTES_MAX, SEQUENCE_MAX};
use umbel_base::{Decoder, RangeTombstoneRef, varint};

/// The range tombstones of a table, checked but still encoded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangeTombstoneBlock {
    payload: Vec<u8>,
    count: usize,
}

/// Collects the range tombstones of a table, encoded one after the other.
#[derive(Debug, Default)]
pub(crate) struct RangeTombstoneBlockBuilder {
    encoded: Vec<u8>,
    /// Offset in `encoded` at which each tombstone begins.
    offsets: Vec<u32>,
    /// Whether a tombstone was added that sorts before the one added before it.
    is_unsorted: bool,
    is_too_long: bool,
}

impl RangeTombstoneBlock {
    /// Checks a payload. The error is a reason in words.
    pub(crate) fn parse(payload: Vec<u8>) -> Result<RangeTombstoneBlock, &'static str> {
        const CUT: &str = "the range tombstones end too early";
        let mut decoder = Decoder::new(&payload);
        let count = decoder.varint_usize().ok_or(CUT)?;
        if count > decoder.remaining() {
            return Err(CUT);
        }
        let mut before = None;
        let mut is_sorted = true;
        for _ in 0..count {
            let tombstone = decode_one(&mut decoder).ok_or(CUT)?;
            let RangeTombstoneRef { start, end, sequence } = tombstone;
            if start >= end || end.len() > KEY_BYTES_MAX + 1 || sequence > SEQUENCE_MAX {
                return Err("a range tombstone is empty or over the limit");
            }
            is_sorted &= before.replace(tombstone).is_none_or(|before| before < tombstone);
        }
        if !decoder.is_done() || !is_sorted {
            return Err("the range tombstones are not sorted or have bytes after the last one");
        }
        Ok(RangeTombstoneBlock { payload, count })
    }

    /// Number of tombstones.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether the block has no tombstones.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The tombstones, sorted by start, end and sequence number.
    pub fn iter(&self) -> impl Iterator<Item = RangeTombstoneRef<'_>> + Clone {
        let mut decoder = Decoder::new(&self.payload);
        decoder.varint();
        // Every byte was checked.
        std::iter::repeat_n((), self.count).scan(decoder, |decoder, ()| decode_one(decoder))
    }

    /// Returns the payload of the block.
    pub(crate) fn into_payload(self) -> Vec<u8> {
        self.payload
    }
}

fn decode_one<'a>(decoder: &mut Decoder<'a>) -> Option<RangeTombstoneRef<'a>> {
    let (start, end) = (decoder.bytes()?, decoder.bytes()?);
    Some(RangeTombstoneRef { start, end, sequence: decoder.varint()? })
}

impl RangeTombstoneBlockBuilder {
    /// Adds a tombstone, in any order. Duplicates are dropped by `finish`.
    pub(crate) fn add(&mut self, tombstone: RangeTombstoneRef<'_>) {
        let Ok(offset) = u32::try_from(self.encoded.len()) else {
            self.is_too_long = true;
            return;
        };
        let last = self.offsets.last().and_then(|&last| self.at(last));
        self.is_unsorted |= last.is_some_and(|last| last >= tombstone);
        self.offsets.push(offset);
        varint::put_bytes(&mut self.encoded, tombstone.start);
        varint::put_bytes(&mut self.encoded, tombstone.end);
        varint::put_u64(&mut self.encoded, tombstone.sequence);
    }

    fn at(&self, offset: u32) -> Option<RangeTombstoneRef<'_>> {
        decode_one(&mut Decoder::new(&self.encoded[offset as usize..]))
    }

    /// Whether no tombstone was added.
    pub(crate) fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// Bytes of the encoded tombstones so far.
    pub(crate) fn bytes(&self) -> usize {
        self.encoded.len()
    }

    /// Sorts the tombstones and drops duplicates. Returns `None` if they are longer than a block
    /// may be.
    pub(crate) fn finish(mut self) -> Option<RangeTombstoneBlock> {
        if self.is_too_long {
            return None;
        }
        if self.is_empty() {
            return Some(RangeTombstoneBlock::default());
        }
        let mut head = Vec::new();
        if self.is_unsorted {
            let mut offsets = std::mem::take(&mut self.offsets);
            // Mostly a few long stretches are sorted already.
            offsets.sort_by_key(|&offset| self.at(offset));
            offsets.dedup_by_key(|offset| self.at(*offset));
            varint::put_u64(&mut head, offsets.len() as u64);
            for tombstone in offsets.iter().filter_map(|&offset| self.at(offset)) {
                varint::put_bytes(&mut head, tombstone.start);
                varint::put_bytes(&mut head, tombstone.end);
                varint::put_u64(&mut head, tombstone.sequence);
            }
            return Some(RangeTombstoneBlock { payload: head, count: offsets.len() });
        }
        let (mut payload, count) = (self.encoded, self.offsets.len());
        varint::put_u64(&mut head, count as u64);
        payload.reserve_exact(head.len());
        payload.splice(0..0, head);
        Some(RangeTombstoneBlock { payload, count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use umbel_base::RangeTombstone;

    fn encode(tombstones: &[RangeTombstone]) -> Vec<u8> {
        let mut payload = Vec::new();
        varint::put_u64(&mut payload, tombstones.len() as u64);
        for tombstone in tombstones {
            varint::put_bytes(&mut payload, &tombstone.start);
            varint::put_bytes(&mut payload, &tombstone.end);
            varint::put_u64(&mut payload, tombstone.sequence);
        }
        payload
    }

    fn decode(payload: &[u8]) -> Result<Vec<RangeTombstone>, &'static str> {
        let block = RangeTombstoneBlock::parse(payload.to_vec())?;
        let list: Vec<_> = block.iter().map(RangeTombstoneRef::to_owned).collect();
        assert_eq!((list.len(), list.is_empty()), (block.len(), block.is_empty()));
        Ok(list)
    }

    fn build(tombstones: &[RangeTombstone]) -> Vec<u8> {
        let mut builder = RangeTombstoneBlockBuilder::default();
        tombstones.iter().for_each(|tombstone| builder.add(tombstone.into()));
        builder.finish().unwrap().into_payload()
    }

    #[test]
    fn tombstones_round_trip_and_damaged_ones_are_refused() {
        let one = |start: &str, end: &str, sequence| RangeTombstone {
            start: start.into(),
            end: end.into(),
            sequence,
        };
        let list = vec![one("", "b", 1), one("a", "b", 7), one("a", "c", 3)];
        let payload = encode(&list);
        assert_eq!(build(&list), payload);
        assert_eq!(decode(&payload), Ok(list.clone()));
        for cut in 0..payload.len() {
            assert!(decode(&payload[..cut]).is_err());
        }
        assert_eq!(build(&[]), []);
        assert!(decode(&encode(&[one("b", "a", 1)])).is_err());
        assert!(decode(&encode(&[one("b", "c", 1), one("a", "c", 1)])).is_err());
        assert!(decode(&encode(&[one("b", "c", 1), one("b", "c", 1)])).is_err());
        assert!(decode(&encode(&[one("b", "c", SEQUENCE_MAX + 1)])).is_err());
        let long = RangeTombstone { end: vec![9; KEY_BYTES_MAX + 2], ..one("", "", 1) };
        assert!(decode(&encode(&[long])).is_err());
        assert!(decode(&[&payload[..], &[0]].concat()).is_err());
    }

    proptest! {
        #[test]
        fn tombstones_in_any_order_give_the_sorted_block(
            list in prop::collection::vec((0u8..6, 1u8..6, 1u64..9), 0..12),
        ) {
            let mut list: Vec<RangeTombstone> = list.into_iter()
                .map(|(start, bytes, sequence)| RangeTombstone {
                    start: vec![start],
                    end: vec![start + 1; bytes.into()],
                    sequence: sequence << 14,
                })
                .collect();
            let payload = build(&list);
            list.sort_unstable();
            list.dedup();
            prop_assert_eq!(payload.is_empty(), list.is_empty());
            if !list.is_empty() {
                prop_assert_eq!(&payload, &encode(&list));
                prop_assert_eq!(decode(&payload), Ok(list));
            }
        }

        #[test]
        fn damaged_bytes_are_refused_or_give_valid_tombstones(
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
            tail in prop::collection::vec(any::<u8>(), 0..3),
        ) {
            let list: Vec<_> = (1..9_u8)
                .map(|start| RangeTombstone {
                    start: vec![start; usize::from(start) % 3],
                    end: vec![start + 1, start],
                    sequence: u64::from(start) << 12,
                })
                .collect();
            let mut payload = build(&list);
            for (at, byte) in flips {
                let at = at.index(payload.len());
                payload[at] = byte;
            }
            payload.extend(tail);
            if let Ok(found) = decode(&payload) {
                prop_assert!(found.is_sorted_by(|a, b| a < b));
                prop_assert!(found.iter().all(|tombstone| tombstone.start < tombstone.end));
            }
        }
    }
}

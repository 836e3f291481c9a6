//! A chunk with overwritten bytes, for fuzzing and for tests of the salvage.

use umbel_base::checksum::checksum;
use umbel_log::HEADER_BYTES;

use super::salvage::{ChunkBytes, SalvageResult};
use crate::event_log::event_format::{self, FrameLocation, FrameMeta, RECORD_GAP_BYTES};
use crate::types::event::{EventId, NewEvent};

const CHUNK_ID: u64 = 3;
const CHUNK_START: u64 = 1 << 20;

/// Chunk that was built for a test, with the offsets of its appends.
struct FuzzChunk {
    bytes: Vec<u8>,
    /// Offsets where each append's record begins and ends.
    appends: Vec<(u64, u64)>,
    /// Offset of each event, by append.
    event_offsets: Vec<Vec<u64>>,
}

impl FuzzChunk {
    /// Creates sixteen appends of one to four events.
    fn new() -> FuzzChunk {
        let bytes = vec![0; HEADER_BYTES as usize];
        let mut specimen = FuzzChunk { bytes, appends: Vec::new(), event_offsets: Vec::new() };
        let mut last = 0;
        for number in 0..16_u64 {
            let begin = specimen.bytes.len() as u64;
            let mut offset = begin + RECORD_GAP_BYTES;
            let (mut payload, mut places) = (Vec::new(), Vec::new());
            let count = 1 + number % 4;
            for index in 0..count {
                let data = vec![number as u8; (number * 13 % 90) as usize];
                let event = NewEvent::binary(EventId([number as u8; 16]), "Edited", &data);
                let stamp = FrameMeta {
                    location: FrameLocation { chunk: CHUNK_ID, offset },
                    position: CHUNK_START + offset,
                    back: if last == 0 { 0 } else { (offset - last) as u32 },
                    revision: number,
                    created: number,
                    ends_append: index + 1 == count,
                };
                let before = payload.len();
                event_format::encode(&mut payload, "stream", &event, &stamp);
                places.push(offset);
                last = offset;
                offset += (payload.len() - before) as u64;
            }
            specimen.add_record(begin, &payload);
            specimen.appends.push((begin, offset));
            specimen.event_offsets.push(places);
        }
        specimen
    }

    /// FORMAT: a record as `docs/formats/log.md` describes it, encoded here independently of the
    /// product's code.
    fn add_record(&mut self, begin: u64, payload: &[u8]) {
        let mut record = vec![0; 8];
        record.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        record.extend_from_slice(&(CHUNK_ID as u32).to_le_bytes());
        record.extend_from_slice(&(CHUNK_START + begin + RECORD_GAP_BYTES).to_le_bytes());
        record.extend_from_slice(&0_u32.to_le_bytes());
        record.extend_from_slice(&[1, 0, 0, 0]);
        record.extend_from_slice(payload);
        let sum = checksum(CHUNK_ID, begin, &record[8..]);
        record[..8].copy_from_slice(&sum.to_le_bytes());
        self.bytes.extend_from_slice(&record);
    }

    /// Checks the salvage result after the bytes at these offsets were changed.
    fn check(&self, bytes: &[u8], changed: &[u64], saved: &SalvageResult, is_anchored: bool) {
        assert!(saved.offsets.is_sorted(), "in order");
        assert!(saved.lost.is_sorted_by(|one, next| one.to <= next.from), "apart");
        let mut found = 0;
        for (places, (begin, end)) in self.event_offsets.iter().zip(&self.appends) {
            let there = places.iter().filter(|place| saved.offsets.binary_search(place).is_ok());
            let there = there.count();
            assert!(there == 0 || there == places.len(), "whole appends");
            found += there;
            let is_same =
                bytes[*begin as usize..*end as usize] == self.bytes[*begin as usize..*end as usize];
            let position = CHUNK_START + begin;
            let is_reported = saved.lost.iter().any(|l| l.from <= position && position < l.to);
            assert!(there > 0 || is_reported, "the loss is reported");
            // A single damaged byte range is always bridged.
            let is_hit =
                |(from, to): &(u64, u64)| changed.iter().any(|at| (*from..*to).contains(at));
            let hits = self.appends.iter().filter(|append| is_hit(append)).count();
            assert!(!(is_same && hits == 1 && is_anchored && there == 0), "lost without need");
        }
        assert_eq!(found, saved.offsets.len(), "no event is invented");
    }
}

/// Overwrites bytes of a chunk and salvages it. Each change takes three bytes of the input: an
/// offset and a new value. For fuzzing only.
pub fn fuzz(input: &[u8]) {
    let specimen = FuzzChunk::new();
    let mut bytes = specimen.bytes.clone();
    let mut changed = Vec::new();
    for edit in input.chunks_exact(3) {
        let offset = usize::from(u16::from_le_bytes([edit[0], edit[1]])) % bytes.len();
        bytes[offset] ^= edit[2];
        changed.push(offset as u64);
    }
    let end = bytes.len() as u64;
    let last = specimen.event_offsets.iter().flatten().copied().max().unwrap_or(0);
    let source = ChunkBytes::new(CHUNK_ID, CHUNK_START, &bytes);
    let anchored = ChunkBytes { end: Some(end), ..source }.salvage_appended(&[last], false);
    specimen.check(&bytes, &changed, &anchored, true);
    // The end is not known, and damage may hide the last append completely.
    let free = source.salvage_appended(&[], true);
    assert!(free.offsets.is_sorted() && free.offsets.len() <= anchored.offsets.len() + 40);
    assert!(free.offsets.iter().all(|at| source.frame(*at).is_some()), "events");
    // The same bytes are no scavenged chunk, but events are found in them nevertheless.
    let scavenged = source.salvage_scavenged(1 << 40, None, None);
    assert!(scavenged.offsets.iter().all(|at| source.frame(*at).is_some()), "events");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_bit_flip_loses_at_most_one_append() {
        let specimen = FuzzChunk::new();
        let end = specimen.bytes.len() as u64;
        let last = specimen.event_offsets.iter().flatten().copied().max().unwrap_or(0);
        let all: usize = specimen.event_offsets.iter().map(Vec::len).sum();
        let whole = ChunkBytes {
            end: Some(end),
            ..ChunkBytes::new(CHUNK_ID, CHUNK_START, &specimen.bytes)
        };
        let saved = whole.salvage_appended(&[], false);
        assert_eq!((saved.offsets.len(), saved.lost.len()), (all, 0));
        let mut losses = 0;
        for bit in HEADER_BYTES * 8..end * 8 {
            let mut bytes = specimen.bytes.clone();
            bytes[bit as usize / 8] ^= 1 << (bit % 8);
            let source =
                ChunkBytes { end: Some(end), ..ChunkBytes::new(CHUNK_ID, CHUNK_START, &bytes) };
            let saved = source.salvage_appended(&[last], false);
            specimen.check(&bytes, &[bit / 8], &saved, true);
            losses += usize::from(!saved.lost.is_empty());
        }
        assert!(losses > end as usize * 4, "{losses} of {} flips cost something", end * 8);
    }

    /// Frame as one append; the previous event begins `back` bytes earlier.
    fn append(offset: u64, back: u64, data: &[u8]) -> Vec<u8> {
        let event = NewEvent::binary(EventId([1; 16]), "Edited", data);
        let stamp = FrameMeta {
            location: FrameLocation { chunk: CHUNK_ID, offset },
            position: CHUNK_START + offset,
            back: back as u32,
            revision: 0,
            created: 1,
            ends_append: true,
        };
        let mut payload = Vec::new();
        event_format::encode(&mut payload, "stream", &event, &stamp);
        payload
    }

    /// The data of the first event holds the image of an append. One damaged length leads to this
    /// image, and the other to the event after the first.
    #[test]
    fn damaged_length_into_event_data_is_not_followed() {
        let (first, forged) = (96_u64, 216_u64);
        let new =
            || FuzzChunk { bytes: Vec::new(), appends: Vec::new(), event_offsets: Vec::new() };
        for back in [forged - first, 208] {
            let mut image = new();
            image.add_record(forged - RECORD_GAP_BYTES, &append(forged, back, b"forged"));
            // 84 bytes of the frame precede the data, which begins at 180.
            let data = [&[0; 4][..], &image.bytes, &[7; 60]].concat();
            let mut chunk = new();
            chunk.bytes = vec![0; HEADER_BYTES as usize];
            chunk.add_record(HEADER_BYTES, &append(first, 0, &data));
            let next = chunk.bytes.len() as u64 + RECORD_GAP_BYTES;
            chunk.add_record(next - RECORD_GAP_BYTES, &append(next, next - first, b"next"));
            let whole = ChunkBytes::new(CHUNK_ID, CHUNK_START, &chunk.bytes);
            assert!(whole.frame(forged).is_some(), "the image is one of an event");
            assert_eq!(whole.salvage_appended(&[], false).offsets, [first, next]);
            let of_record = (forged - RECORD_GAP_BYTES - HEADER_BYTES - RECORD_GAP_BYTES) as u32;
            let of_frame = (forged - RECORD_GAP_BYTES - first) as u32;
            for (at, length) in [(HEADER_BYTES + 8, of_record), (first + 8, of_frame)] {
                let mut bytes = chunk.bytes.clone();
                bytes[at as usize..at as usize + 4].copy_from_slice(&length.to_le_bytes());
                // The data is damaged too, so the event is not trusted.
                bytes[next as usize - 40] ^= 1;
                let source = ChunkBytes::new(CHUNK_ID, CHUNK_START, &bytes);
                let saved = source.salvage_appended(&[], false);
                // The next event is certain only if the image names another previous event.
                let wanted: &[u64] = if back == 208 { &[next] } else { &[] };
                assert_eq!(saved.offsets, wanted, "length at {at}, back {back}");
            }
        }
    }

    #[test]
    fn many_changed_bytes_invent_no_event() {
        let mut state = 1_u64;
        for round in 0..3000_u64 {
            let mut input = Vec::new();
            for _ in 0..3 * (1 + round % 12) {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                input.push((state >> 40) as u8);
            }
            fuzz(&input);
        }
    }
}

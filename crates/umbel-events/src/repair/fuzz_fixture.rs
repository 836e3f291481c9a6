//! A chunk whose bytes were overwritten, for fuzzing and for tests of what is saved of it.

use umbel_base::checksum::checksum;
use umbel_log::HEADER_BYTES;

use super::salvage::{Saved, Source};
use crate::event::{EventId, NewEvent};
use crate::format::{self, BETWEEN_RECORDS, Place, Stamp};

const ID: u64 = 3;
const START: u64 = 1 << 20;

/// A chunk that was made for this, and where its appends stand.
struct Specimen {
    bytes: Vec<u8>,
    /// Where each append's record begins and ends.
    appends: Vec<(u64, u64)>,
    /// The place of each event, by append.
    places: Vec<Vec<u64>>,
}

impl Specimen {
    /// Sixteen appends of one to four events.
    fn new() -> Specimen {
        let bytes = vec![0; HEADER_BYTES as usize];
        let mut specimen = Specimen { bytes, appends: Vec::new(), places: Vec::new() };
        let mut last = 0;
        for number in 0..16_u64 {
            let begin = specimen.bytes.len() as u64;
            let mut offset = begin + BETWEEN_RECORDS;
            let (mut payload, mut places) = (Vec::new(), Vec::new());
            let count = 1 + number % 4;
            for index in 0..count {
                let data = vec![number as u8; (number * 13 % 90) as usize];
                let event = NewEvent::binary(EventId([number as u8; 16]), "Edited", &data);
                let stamp = Stamp {
                    place: Place { chunk: ID, offset },
                    position: START + offset,
                    back: if last == 0 { 0 } else { (offset - last) as u32 },
                    revision: number,
                    created: number,
                    ends_append: index + 1 == count,
                };
                let before = payload.len();
                format::encode(&mut payload, "stream", &event, &stamp);
                places.push(offset);
                last = offset;
                offset += (payload.len() - before) as u64;
            }
            specimen.add_record(begin, &payload);
            specimen.appends.push((begin, offset));
            specimen.places.push(places);
        }
        specimen
    }

    /// FORMAT: the record of `docs/formats/log.md`, written from that page.
    fn add_record(&mut self, begin: u64, payload: &[u8]) {
        let mut record = vec![0; 8];
        record.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        record.extend_from_slice(&(ID as u32).to_le_bytes());
        record.extend_from_slice(&(START + begin + BETWEEN_RECORDS).to_le_bytes());
        record.extend_from_slice(&0_u32.to_le_bytes());
        record.extend_from_slice(&[1, 0, 0, 0]);
        record.extend_from_slice(payload);
        let sum = checksum(ID, begin, &record[8..]);
        record[..8].copy_from_slice(&sum.to_le_bytes());
        self.bytes.extend_from_slice(&record);
    }

    /// Checks what was saved after the bytes at these offsets were changed.
    fn check(&self, bytes: &[u8], changed: &[u64], saved: &Saved, is_anchored: bool) {
        assert!(saved.offsets.is_sorted(), "in order");
        assert!(saved.lost.is_sorted_by(|one, next| one.to <= next.from), "apart");
        let mut found = 0;
        for (places, (begin, end)) in self.places.iter().zip(&self.appends) {
            let there = places.iter().filter(|place| saved.offsets.binary_search(place).is_ok());
            let there = there.count();
            assert!(there == 0 || there == places.len(), "whole appends");
            found += there;
            let is_same =
                bytes[*begin as usize..*end as usize] == self.bytes[*begin as usize..*end as usize];
            let position = START + begin;
            let is_told = saved.lost.iter().any(|l| l.from <= position && position < l.to);
            assert!(there > 0 || is_told, "what is lost is told");
            // One damaged place is always bridged.
            let is_hit =
                |(from, to): &(u64, u64)| changed.iter().any(|at| (*from..*to).contains(at));
            let hits = self.appends.iter().filter(|append| is_hit(append)).count();
            assert!(!(is_same && hits == 1 && is_anchored && there == 0), "lost without need");
        }
        assert_eq!(found, saved.offsets.len(), "nothing is made up");
    }
}

/// Overwrites bytes of a chunk, three bytes of the input for each: an offset and what to change,
/// and looks for what can be saved. For fuzzing only.
pub fn fuzz(input: &[u8]) {
    let specimen = Specimen::new();
    let mut bytes = specimen.bytes.clone();
    let mut changed = Vec::new();
    for edit in input.chunks_exact(3) {
        let offset = usize::from(u16::from_le_bytes([edit[0], edit[1]])) % bytes.len();
        bytes[offset] ^= edit[2];
        changed.push(offset as u64);
    }
    let end = bytes.len() as u64;
    let last = specimen.places.iter().flatten().copied().max().unwrap_or(0);
    let source = Source::new(ID, START, &bytes);
    let anchored = Source { end: Some(end), ..source }.appended(&[last], false);
    specimen.check(&bytes, &changed, &anchored, true);
    // Nobody knows where it ends, and of the last append nothing may be left to tell of it.
    let free = source.appended(&[], true);
    assert!(free.offsets.is_sorted() && free.offsets.len() <= anchored.offsets.len() + 40);
    assert!(free.offsets.iter().all(|at| source.frame(*at).is_some()), "events");
    // The same bytes are no packed chunk, and what is found in them are events nevertheless.
    let packed = source.packed(1 << 40, None, None);
    assert!(packed.offsets.iter().all(|at| source.frame(*at).is_some()), "events");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_single_flip_costs_one_append_and_no_more() {
        let specimen = Specimen::new();
        let end = specimen.bytes.len() as u64;
        let last = specimen.places.iter().flatten().copied().max().unwrap_or(0);
        let all: usize = specimen.places.iter().map(Vec::len).sum();
        let whole = Source { end: Some(end), ..Source::new(ID, START, &specimen.bytes) };
        let saved = whole.appended(&[], false);
        assert_eq!((saved.offsets.len(), saved.lost.len()), (all, 0));
        let mut losses = 0;
        for bit in HEADER_BYTES * 8..end * 8 {
            let mut bytes = specimen.bytes.clone();
            bytes[bit as usize / 8] ^= 1 << (bit % 8);
            let source = Source { end: Some(end), ..Source::new(ID, START, &bytes) };
            let saved = source.appended(&[last], false);
            specimen.check(&bytes, &[bit / 8], &saved, true);
            losses += usize::from(!saved.lost.is_empty());
        }
        assert!(losses > end as usize * 4, "{losses} of {} flips cost something", end * 8);
    }

    /// A frame as one append, whose event before it begins so many bytes before.
    fn append(offset: u64, back: u64, data: &[u8]) -> Vec<u8> {
        let event = NewEvent::binary(EventId([1; 16]), "Edited", data);
        let stamp = Stamp {
            place: Place { chunk: ID, offset },
            position: START + offset,
            back: back as u32,
            revision: 0,
            created: 1,
            ends_append: true,
        };
        let mut payload = Vec::new();
        format::encode(&mut payload, "stream", &event, &stamp);
        payload
    }

    /// The data of the first event holds the image of an append. One damaged length leads there,
    /// and the other to the event behind.
    #[test]
    fn a_damaged_length_that_leads_into_the_data_of_an_event_is_not_followed() {
        let (first, forged) = (96_u64, 216_u64);
        let new = || Specimen { bytes: Vec::new(), appends: Vec::new(), places: Vec::new() };
        for back in [forged - first, 208] {
            let mut image = new();
            image.add_record(forged - BETWEEN_RECORDS, &append(forged, back, b"forged"));
            // 84 bytes of frame come before the data, which begins at 180.
            let data = [&[0; 4][..], &image.bytes, &[7; 60]].concat();
            let mut chunk = new();
            chunk.bytes = vec![0; HEADER_BYTES as usize];
            chunk.add_record(HEADER_BYTES, &append(first, 0, &data));
            let next = chunk.bytes.len() as u64 + BETWEEN_RECORDS;
            chunk.add_record(next - BETWEEN_RECORDS, &append(next, next - first, b"next"));
            let whole = Source::new(ID, START, &chunk.bytes);
            assert!(whole.frame(forged).is_some(), "the image is one of an event");
            assert_eq!(whole.appended(&[], false).offsets, [first, next]);
            let of_record = (forged - BETWEEN_RECORDS - HEADER_BYTES - BETWEEN_RECORDS) as u32;
            let of_frame = (forged - BETWEEN_RECORDS - first) as u32;
            for (at, length) in [(HEADER_BYTES + 8, of_record), (first + 8, of_frame)] {
                let mut bytes = chunk.bytes.clone();
                bytes[at as usize..at as usize + 4].copy_from_slice(&length.to_le_bytes());
                // And the data is damaged, so that the event cannot be believed.
                bytes[next as usize - 40] ^= 1;
                let source = Source::new(ID, START, &bytes);
                let saved = source.appended(&[], false);
                // Only where the image names another event before it the way is clear.
                let wanted: &[u64] = if back == 208 { &[next] } else { &[] };
                assert_eq!(saved.offsets, wanted, "length at {at}, back {back}");
            }
        }
    }

    #[test]
    fn many_changed_bytes_make_nothing_up() {
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

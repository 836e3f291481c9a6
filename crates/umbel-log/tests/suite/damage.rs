//! Every byte of a small log is flipped and every length cut: damage is detected or harmless, and a
//! record that was not written is never returned.

use umbel_base::Error;
use umbel_log::{ExpectedEnd, Seal};

use super::memory_disk::{Entry, LOG_ID, corruption_offset, read};
use super::model_format::{self, Forge};

/// A log whose last durable mark is after its second record, and its content.
struct Sample {
    forge: Forge,
    entries: Vec<Entry>,
    /// The offset of each record, and of the end of the last.
    offsets: Vec<u64>,
    mark: u64,
}

fn sample() -> Sample {
    let mut forge = Forge::new(LOG_ID);
    let payloads: [&[u8]; 5] = [b"one", b"", b"three records and a mark", b"four", b"the fifth"];
    let (mut entries, mut offsets, mut mark) = (Vec::new(), Vec::new(), 0);
    for (index, payload) in payloads.iter().enumerate() {
        let sequence = 10 + index as u64;
        offsets.push(forge.bytes.len() as u64);
        forge.add(sequence, mark, payload);
        entries.push((sequence, payload.to_vec()));
        if index == 1 {
            mark = forge.bytes.len() as u64;
        }
    }
    offsets.push(forge.bytes.len() as u64);
    Sample { forge, entries, offsets, mark }
}

fn flips(bytes: &[u8]) -> impl Iterator<Item = (usize, Vec<u8>)> {
    (0..bytes.len() * 8).map(|bit| {
        let mut flipped = bytes.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        (bit / 8, flipped)
    })
}

#[test]
fn every_flip_in_a_sealed_log_is_detected() {
    let Sample { mut forge, entries, mark, .. } = sample();
    let sealed = forge.seal(14, mark);
    let mut image = forge.bytes;
    image.resize(image.len() + 64, 0);
    for (at, flipped) in flips(&image) {
        let (records, end) = read(&flipped, ExpectedEnd::Sealed(sealed));
        if (at as u64) < sealed.len {
            let offset = corruption_offset(&end.expect_err("a flip inside"));
            assert!(offset <= at as u64, "the damage at {at} was named at {offset}");
            assert!(entries.starts_with(&records));
        } else {
            assert_eq!(end.unwrap().end, sealed.len);
            assert_eq!(records, entries);
        }
    }
}

#[test]
fn every_flip_in_an_open_log_leaves_a_prefix_or_is_corruption() {
    let Sample { forge, entries, offsets, mark } = sample();
    let mut image = forge.bytes;
    image.resize(image.len() + 64, 0);
    for (at, flipped) in flips(&image) {
        let (records, end) = read(&flipped, ExpectedEnd::Open);
        assert!(entries.starts_with(&records));
        // The record that holds the flipped byte, and so where the gap begins.
        let intact = offsets.iter().skip(1).filter(|&&end| end <= at as u64).count();
        let gap = if at < 64 { 0 } else { offsets[intact] };
        if (at as u64) < mark {
            assert_eq!(corruption_offset(&end.expect_err("it was durable")), gap);
        } else {
            let outcome = end.unwrap();
            assert_eq!((records.len(), outcome.end, outcome.torn), (intact, gap, true));
        }
    }
}

#[test]
fn every_truncation_is_detected_or_leaves_a_prefix() {
    let Sample { mut forge, entries, offsets, mark } = sample();
    let sealed = forge.seal(14, mark);
    for len in 0..=forge.bytes.len() {
        let cut = &forge.bytes[..len];
        let (records, end) = read(cut, ExpectedEnd::Open);
        let intact = offsets.iter().skip(1).filter(|&&end| end <= len as u64).count();
        assert_eq!(records, entries[..intact]);
        let outcome = end.unwrap();
        let complete = len as u64 == sealed.len;
        let at_an_end = complete || offsets.contains(&(len as u64));
        assert_eq!((outcome.sealed, outcome.torn), (complete, !at_an_end));
        let (_, end) = read(cut, ExpectedEnd::Sealed(sealed));
        match end {
            Ok(_) => assert!(complete),
            Err(error) => assert_eq!(corruption_offset(&error), len as u64),
        }
        // Cut and preallocated again: the missing bytes are zeros, and the length reveals nothing.
        let mut zeroed = cut.to_vec();
        zeroed.resize(forge.bytes.len() + 100, 0);
        let (_, end) = read(&zeroed, ExpectedEnd::Sealed(sealed));
        // The last bytes of the log may be zeros of their own.
        assert_eq!(end.is_ok(), zeroed[..sealed.len as usize] == forge.bytes);
    }
}

#[test]
fn false_seal_never_matches() {
    let Sample { mut forge, mark, .. } = sample();
    let sealed = forge.seal(14, mark);
    forge.bytes.resize(forge.bytes.len() + 64, 0);
    for len in 0..forge.bytes.len() as u64 + 64 {
        for checksum in [sealed.checksum, sealed.checksum ^ 1] {
            let claim = Seal { len, checksum };
            let (_, end) = read(&forge.bytes, ExpectedEnd::Sealed(claim));
            assert_eq!(end.is_ok(), claim == sealed, "{claim:?}");
        }
    }
}

#[test]
fn records_cannot_be_moved_exchanged_or_repeated() {
    let mut forge = Forge::new(LOG_ID);
    for sequence in 0..4 {
        forge.add(sequence, 0, b"of equal length");
    }
    let record = 48;
    for (from, to) in [(0, 1), (1, 0), (2, 3), (3, 2), (0, 3)] {
        let mut bytes = forge.bytes.clone();
        let start = 64 + from * record;
        bytes.copy_within(start..start + record, 64 + to * record);
        let (records, end) = read(&bytes, ExpectedEnd::Open);
        assert_eq!(records.len(), to, "the copy ends the log");
        assert!(end.unwrap().torn);
    }
}

#[test]
fn a_payload_that_looks_like_records_is_never_replayed() {
    // A record image inside a payload, valid for exactly its offset there. Its
    // mark proves something only where it is after the gap and not after the image itself.
    for (mark, corrupt) in [(0, false), (64, false), (72, true), (112, true), (120, false)] {
        let mut forge = Forge::new(LOG_ID);
        let image_at = forge.bytes.len() as u64 + 32 + 16;
        let image =
            model_format::record(LOG_ID, image_at, 99, mark / 8, model_format::DATA, b"never said");
        let payload = [&[0; 16], &image[..]].concat();
        forge.add(1, 0, &payload);
        let extra_at = forge.bytes.len() as u64;
        forge.add(2, 0, b"behind");
        let (records, end) = read(&forge.bytes, ExpectedEnd::Open);
        assert_eq!(records, [(1, payload), (2, b"behind".to_vec())]);
        assert!(!end.unwrap().torn);
        // Without the record around it, it ends the log, or proves damage, but nothing else.
        for at in 64..96 {
            let mut bytes = forge.bytes.clone();
            bytes[at] ^= 0x80;
            let (records, end) = read(&bytes, ExpectedEnd::Open);
            assert!(records.is_empty());
            match end {
                Ok(outcome) => assert!(outcome.torn && !corrupt),
                Err(error) => assert_eq!((corruption_offset(&error), corrupt), (64, true)),
            }
        }
        // The same inside the tail after a whole record.
        let mut bytes = forge.bytes.clone();
        bytes.truncate(extra_at as usize);
        bytes.extend(&image);
        assert_eq!(read(&bytes, ExpectedEnd::Open).0.len(), 1, "right bytes in a wrong place");
    }
}

#[test]
fn a_lost_header_is_corruption_only_where_it_had_been_durable() {
    for (mark, corrupt) in [(0, false), (64, true)] {
        let mut forge = Forge::new(LOG_ID);
        forge.add(1, 0, b"first");
        forge.add(2, mark, b"second");
        let mut bytes = forge.bytes;
        bytes[..64].fill(0);
        let (records, end) = read(&bytes, ExpectedEnd::Open);
        assert!(records.is_empty());
        match end {
            Ok(outcome) => assert!(outcome.torn && outcome.end == 0 && !corrupt),
            Err(error) => assert_eq!((corruption_offset(&error), corrupt), (0, true)),
        }
        let (_, end) = read(&bytes, ExpectedEnd::Sealed(Seal { len: 128, checksum: 0 }));
        assert!(matches!(end, Err(Error::Corruption { offset: 0, .. })));
    }
}

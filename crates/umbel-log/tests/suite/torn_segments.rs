//! Tests in which a power loss leaves any subset of the unsynced sectors of a mapped segment.

use umbel_log::ExpectedEnd;

use super::memory_disk::{Entry, LOG_ID, read};
use super::model_format::Forge;

const SECTOR: usize = 512;
const SEGMENT: usize = 16 * SECTOR;

/// A segment as it was when the last sync began, as it was when the power failed, and how many
/// records were synced.
struct Segment {
    synced: Vec<u8>,
    last: Vec<u8>,
    synced_len: usize,
    synced_records: usize,
    entries: Vec<Entry>,
}

/// `old` is the previous content of the segment.
fn segment(old: &[u8]) -> Segment {
    let over = |forge: &Forge| [&forge.bytes[..], &old[forge.bytes.len()..]].concat();
    let mut forge = Forge::new(LOG_ID);
    let mut entries = Vec::new();
    let mut add = |forge: &mut Forge, mark: usize| {
        let sequence = entries.len() as u64;
        let payload = vec![sequence as u8 + 1; 90 + (sequence as usize * 37) % 300];
        forge.add(sequence, mark as u64, &payload);
        entries.push((sequence, payload));
    };
    for _ in 0..3 {
        add(&mut forge, 0);
    }
    let first_sync = forge.bytes.len();
    for _ in 0..3 {
        add(&mut forge, first_sync);
    }
    let (synced, synced_len) = (over(&forge), forge.bytes.len());
    // Half of the following records were written during the second sync, and do not carry its mark.
    for mark in [first_sync, first_sync, synced_len, synced_len, synced_len, synced_len] {
        add(&mut forge, mark);
    }
    forge.seal(99, synced_len as u64);
    let last = over(&forge);
    Segment { synced, last, synced_len, synced_records: 6, entries }
}

/// Zeros, random bytes, records of another log at the same offsets, and records of a log
/// whose id differs only in its high half.
fn old_contents() -> Vec<Vec<u8>> {
    let other = |log_id| {
        let mut forge = Forge::new(log_id);
        while forge.bytes.len() < SEGMENT - 400 {
            let sequence = forge.bytes.len() as u64;
            let durable = forge.bytes.len() as u64 - 64;
            forge.add(sequence, durable, &vec![0xEE; 90 + sequence as usize % 200]);
        }
        forge.bytes.resize(SEGMENT, 0);
        forge.bytes
    };
    let noise = (0..SEGMENT as u32).map(|at| (at.wrapping_mul(0x9E37_79B1) >> 13) as u8).collect();
    vec![vec![0; SEGMENT], noise, other(LOG_ID - 1), other(LOG_ID + (1 << 32))]
}

fn check(segment: &Segment, image: &[u8]) -> usize {
    let (records, end) = read(image, ExpectedEnd::Open);
    end.expect("a power cut is not corruption");
    assert!(records.len() >= segment.synced_records, "synced records are there");
    assert!(segment.entries.starts_with(&records), "a prefix of what was written");
    records.len()
}

#[test]
fn any_subset_of_sectors_leaves_a_prefix_with_all_that_was_synced() {
    for old in old_contents() {
        let segment = segment(&old);
        assert_eq!(check(&segment, &segment.last), segment.entries.len());
        let dirty: Vec<usize> = (segment.synced_len / SECTOR..SEGMENT / SECTOR)
            .filter(|sector| {
                let range = sector * SECTOR..(sector + 1) * SECTOR;
                segment.synced[range.clone()] != segment.last[range]
            })
            .collect();
        assert!((4..=10).contains(&dirty.len()), "enough to tear, few enough to try all");
        let mut lengths = [0; 16];
        for survivors in 0..1_u32 << dirty.len() {
            let mut image = segment.synced.clone();
            for (bit, sector) in dirty.iter().enumerate() {
                if survivors >> bit & 1 == 1 {
                    let range = sector * SECTOR..(sector + 1) * SECTOR;
                    image[range.clone()].copy_from_slice(&segment.last[range]);
                }
            }
            lengths[check(&segment, &image)] += 1;
        }
        assert!(lengths.iter().filter(|&&count| count > 0).count() > 3, "tears of many kinds");
    }
}

#[test]
fn a_tear_at_any_aligned_offset_leaves_a_prefix() {
    for old in old_contents() {
        let segment = segment(&old);
        let Segment { synced, last, synced_len, .. } = &segment;
        for at in (*synced_len..SEGMENT).step_by(8) {
            let new_first = [&last[..at], &synced[at..]].concat();
            check(&segment, &new_first);
            let new_last = [&synced[..at], &last[at..]].concat();
            check(&segment, &new_last);
        }
    }
}

#[test]
fn a_process_that_dies_inside_a_copy_leaves_no_half_record() {
    let segment = segment(&vec![0; SEGMENT]);
    let mut intact = 0;
    for at in 64..SEGMENT {
        let image = [&segment.last[..at], &segment.synced[at.max(segment.synced_len)..]].concat();
        let mut image = image;
        image.resize(SEGMENT, 0);
        if at < segment.synced_len {
            image[at..].fill(0);
        }
        let (records, end) = read(&image, ExpectedEnd::Open);
        end.unwrap();
        assert!(segment.entries.starts_with(&records));
        assert!(records.len() >= intact, "more bytes never give fewer records");
        intact = records.len();
    }
    assert_eq!(intact, segment.entries.len());
}

#[test]
fn a_segment_used_again_never_gives_old_records() {
    for old in old_contents() {
        for records in 0..4 {
            let mut forge = Forge::new(LOG_ID);
            for sequence in 0..records {
                forge.add(sequence, 0, b"new");
            }
            let len = forge.bytes.len();
            let image = [&forge.bytes[..], &old[len..]].concat();
            let (found, end) = read(&image, ExpectedEnd::Open);
            assert_eq!(found.len(), records as usize);
            assert_eq!(end.unwrap().end, len as u64);
        }
    }
}

//! Tests that damage of every kind is detected, and that the error names file and offset.

use umbel_base::Error;
use umbel_base::checksum::checksum_parts;
use umbel_blob::{BlobReader, CHUNK_BYTES};
use umbel_sim::Sim;

use super::fixture::{machine, open, path, read, value, write};

/// Reads by every kind of read, each of which must return that the file is damaged. Returns the
/// offset in the error.
fn noticed(sim: &Sim, pointer: &umbel_base::BlobPointer) -> u64 {
    let error = read(sim, pointer).unwrap_err();
    let verified = BlobReader::open(open(sim, pointer.id), pointer).and_then(|blob| blob.verify());
    assert_eq!(verified.unwrap_err().to_string(), error.to_string());
    match error {
        Error::Corruption { file, offset, .. } => {
            assert_eq!(file, path(pointer.id));
            offset
        }
        other => panic!("not a corruption: {other}"),
    }
}

#[test]
fn every_flipped_byte_is_detected_at_its_offset() {
    let sim = machine();
    let pointer = write(&sim, 7, &value(1, 300)).unwrap();
    let len = sim.read(path(7)).len() as u64;
    for at in 0..len {
        for mask in [1, 0x80, 0xff] {
            let damaged = sim.clone_disk();
            damaged.flip(path(7), at, mask);
            let offset = noticed(&damaged, &pointer);
            // Another length is noticed where the file ends, or where it should.
            match at {
                24..32 => assert!(offset <= len, "byte {at}: {offset}"),
                0..72 => assert_eq!(offset, 0, "byte {at}"),
                _ => assert_eq!(offset, 72, "byte {at}"),
            }
        }
    }
}

#[test]
fn damage_in_a_later_chunk_is_named_by_its_offset() {
    let sim = machine();
    let pointer = write(&sim, 7, &value(1, 20 * CHUNK_BYTES)).unwrap();
    let start = 64 + 8 * 20;
    for chunk in [0, 1, 15, 16, 19] {
        let damaged = sim.clone_disk();
        let at = start + chunk * CHUNK_BYTES as u64;
        damaged.flip(path(7), at + 77, 4);
        assert_eq!(noticed(&damaged, &pointer), at);
    }
}

#[test]
fn every_other_file_length_is_detected() {
    let sim = machine();
    let pointer = write(&sim, 7, &value(1, 500)).unwrap();
    let len = sim.read(path(7)).len() as u64;
    for cut in 0..len {
        let damaged = sim.clone_disk();
        damaged.truncate(path(7), cut);
        assert_eq!(noticed(&damaged, &pointer), cut);
    }
    sim.extend(path(7), &[0]);
    assert_eq!(noticed(&sim, &pointer), len);
}

#[test]
fn swapped_files_chunks_and_old_copies_are_detected() {
    let sim = machine();
    let one = write(&sim, 1, &value(1, 3 * CHUNK_BYTES)).unwrap();
    let two = write(&sim, 2, &value(2, 3 * CHUNK_BYTES)).unwrap();
    let swapped = sim.clone_disk();
    swapped.swap_files(path(1), path(2));
    noticed(&swapped, &one);
    noticed(&swapped, &two);
    let blocks = sim.clone_disk();
    let start = 64 + 8 * 3;
    blocks.swap_blocks(path(1), start, start + CHUNK_BYTES as u64, CHUNK_BYTES);
    assert_eq!(noticed(&blocks, &one), start);
    // Another value of the same length under the same id, sound in itself.
    let other = machine();
    write(&other, 1, &value(3, 3 * CHUNK_BYTES)).unwrap();
    noticed(&other, &one);
    // One of another length.
    let shorter = machine();
    write(&shorter, 1, &value(1, 100)).unwrap();
    noticed(&shorter, &one);
}

/// Returns the file's bytes with a change to the header, and with a checksum that matches.
fn forged(sim: &Sim, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut bytes = sim.read(path(7));
    change(&mut bytes[..56]);
    let sum = checksum_parts(7, 0, &[&bytes[..56], &bytes[64..72]]);
    bytes[56..64].copy_from_slice(&sum.to_le_bytes());
    bytes
}

#[test]
fn newer_version_is_named_and_impossible_header_is_damage() {
    let sim = machine();
    write(&sim, 7, &value(1, 100)).unwrap();
    let open_as = |bytes: &[u8]| {
        sim.replace(path(7), bytes);
        BlobReader::open_standalone(open(&sim, 7), 7).map(|blob| *blob.pointer())
    };
    let same = forged(&sim, |_| ());
    let newer = forged(&sim, |header| header[8] = 2);
    let others = [(8, 0), (13, 1), (14, 2), (32, 1), (55, 9)];
    let others = others.map(|(at, byte)| forged(&sim, |header| header[at] = byte));
    assert!(open_as(&same).is_ok());
    let error = open_as(&newer).unwrap_err();
    assert!(
        matches!(&error, Error::Invalid(message) if message.contains("format version 2")),
        "{error}"
    );
    for bytes in others {
        assert!(matches!(open_as(&bytes), Err(Error::Corruption { .. })));
    }
}

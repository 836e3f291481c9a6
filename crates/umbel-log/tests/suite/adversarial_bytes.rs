//! Tests with malicious bytes: the reader ends in time proportional to the file's length.

use umbel_log::ExpectedEnd;

use super::memory_disk::{LOG_ID, corruption_offset, read};
use super::model_format::{self, Forge};

/// Appends headers with wrong checksums, each of which claims a payload up to the file's end.
fn bait(mark: u64, spacing: usize, len: usize) -> Forge {
    let mut forge = Forge::new(LOG_ID);
    forge.add(1, 0, b"whole");
    let start = forge.bytes.len();
    for at in (start..start + len).step_by(spacing) {
        let rest = (start + len - at).saturating_sub(32);
        let mut header =
            model_format::record(LOG_ID, 0, 1, (mark / 8) as u32, model_format::DATA, b"");
        header[8..12].copy_from_slice(&(rest as u32).to_le_bytes());
        header.resize(spacing, 0);
        forge.bytes.extend(header);
    }
    forge
}

#[test]
fn tail_full_of_baits_is_refused() {
    // Without a limit this would checksum 32 Ki records of a mebibyte each: half a minute.
    let forge = bait(112, 64, 2 << 20);
    let (records, end) = read(&forge.bytes, ExpectedEnd::Open);
    assert_eq!(records.len(), 1);
    let error = end.unwrap_err();
    assert_eq!(corruption_offset(&error), 104);
    assert!(error.to_string().contains("much like records"), "{error}");
}

#[test]
fn baits_that_could_prove_nothing_cost_nothing() {
    // Their marks are at the gap, not after it.
    let forge = bait(104, 64, 2 << 20);
    let (records, end) = read(&forge.bytes, ExpectedEnd::Open);
    assert_eq!(records.len(), 1);
    assert!(end.unwrap().torn);
}

#[test]
fn proof_is_found_at_every_chunk_end() {
    // The tail is searched in pieces of a mebibyte: let the record lie across their border.
    for shift in (0..96).step_by(8) {
        let mut forge = Forge::new(LOG_ID);
        forge.add(1, 0, b"durable");
        let gap = 64;
        forge.bytes[70] ^= 1;
        forge.bytes.resize((1 << 20) + gap - shift, 0);
        forge.add(2, 112, &[5; 40]);
        forge.bytes.resize((3 << 20) + 3, 0);
        let (records, end) = read(&forge.bytes, ExpectedEnd::Open);
        assert!(records.is_empty());
        assert_eq!(corruption_offset(&end.unwrap_err()), gap as u64);
        // A long one, too.
        let mut forge = Forge::new(LOG_ID);
        forge.bytes.resize(104 + shift, 0);
        forge.add(2, 104, &vec![5; 3 << 20]);
        assert!(read(&forge.bytes, ExpectedEnd::Open).1.is_err());
    }
}

#[test]
fn a_length_beyond_the_file_is_a_tail_and_allocates_nothing() {
    let mut forge = Forge::new(LOG_ID);
    let mut record = model_format::record(LOG_ID, 64, 1, 0, model_format::DATA, b"short");
    record[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
    forge.bytes.extend(record);
    let (records, end) = read(&forge.bytes, ExpectedEnd::Open);
    assert!(records.is_empty());
    assert!(end.unwrap().torn);
}

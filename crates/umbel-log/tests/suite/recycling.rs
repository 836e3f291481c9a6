//! Tests of a log in the file of an earlier one: records of the earlier log are never taken for
//! records of the new one.

use std::path::Path;
use std::sync::Arc;

use umbel_env::Access;
use umbel_log::{
    ExpectedEnd, HEADER_BYTES, LogKind, LogOptions, LogReader, LogWriter, ReadOutcome,
    record_bytes, write_recycled_header,
};

use super::memory_disk::{Disk, Entry, LOG_ID, PATH};
use super::model_format;

const NEXT: &str = "000008.log";
const SALT: u64 = 0x1234_5678_9abc_def0;

fn options(log_id: u64, salt: u64) -> LogOptions {
    LogOptions { kind: LogKind::WriteAhead, log_id, salt, segment_bytes: 16 << 10 }
}

/// Writes a log full of records with `payload`, and creates the next log in its file.
fn reused(disk: &Arc<Disk>, payload: &[u8], next: LogOptions) -> LogWriter {
    let env = disk.env();
    let mut writer = LogWriter::create(&env, Path::new(PATH), options(LOG_ID, 0)).unwrap();
    let mut sequence = 1;
    while writer.fits(payload.len()) {
        writer.append(sequence, &[payload]).unwrap();
        writer.set_durable(writer.end());
        sequence += 1;
    }
    writer.seal().unwrap();
    let file = env.files.open(Path::new(PATH), Access::ReadWrite).unwrap();
    write_recycled_header(&*file, next).unwrap();
    env.files.rename(Path::new(PATH), Path::new(NEXT)).unwrap();
    LogWriter::reuse(&env, Path::new(NEXT), next).unwrap()
}

fn read(disk: &Arc<Disk>, next: LogOptions, salt: Option<u64>) -> (Vec<Entry>, ReadOutcome) {
    let (kind, id, open) = (LogKind::WriteAhead, next.log_id, ExpectedEnd::Open);
    let env = disk.env();
    let opened = LogReader::open_bound(&env, Path::new(NEXT), kind, id, salt, open);
    let mut reader = opened.unwrap();
    let mut records = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        records.push((record.sequence, record.payload.to_vec()));
    }
    (records, reader.outcome())
}

#[test]
fn records_of_an_earlier_log_are_a_torn_tail() {
    for (salt, payload) in [(0, &[7; 100][..]), (SALT, b""), (SALT, &[0; 5000])] {
        let disk = Arc::new(Disk::new(true));
        let next = options(LOG_ID + 1, salt);
        let mut writer = reused(&disk, payload, next);
        let (records, outcome) = read(&disk, next, Some(salt));
        assert_eq!((records, outcome.end, outcome.torn), (vec![], HEADER_BYTES, true));
        writer.set_durable(HEADER_BYTES);
        for sequence in 50..60 {
            // The same lengths as before, so that the old records begin where the new ones end.
            writer.append(sequence, &[payload]).unwrap();
            let (records, outcome) = read(&disk, next, Some(salt));
            assert_eq!(records.len() as u64, sequence - 49);
            assert!(records.iter().all(|(_, found)| found == payload));
            assert_eq!((outcome.end, outcome.sealed), (writer.end(), false));
            if !writer.fits(payload.len()) {
                break;
            }
        }
        let sealed = writer.seal().unwrap();
        let (_, outcome) = read(&disk, next, Some(salt));
        assert_eq!((outcome.end, outcome.sealed), (sealed.len, true));
    }
}

/// An attacker who chooses payloads guesses the next log's id and end, and writes the image of a
/// record of that log there.
#[test]
fn forged_record_in_an_old_payload_is_refused() {
    let (first, next_id) = (record_bytes(8), LOG_ID + 1);
    let offset = HEADER_BYTES + first;
    // Behind the header of the record that carries it.
    let before = (first - 32) as usize;
    let forged = model_format::record(next_id, offset, 99, 0, model_format::DATA, b"forged!!");
    let payload = [&vec![0; before][..], &forged].concat();
    for (salt, taken) in [(0, true), (SALT, false)] {
        let disk = Arc::new(Disk::new(true));
        let next = options(next_id, salt);
        let mut writer = reused(&disk, &payload, next);
        writer.append(50, &[b"eight by"]).unwrap();
        let (records, _) = read(&disk, next, Some(salt));
        let is_taken = records.iter().any(|(_, payload)| payload == b"forged!!");
        assert_eq!((records.len(), is_taken), (1 + usize::from(taken), taken), "salt {salt}");
    }
}

/// Story: payloads full of headers that fit the next log stopped its search for durable records.
/// A store whose process was killed did not open.
#[test]
fn baits_for_the_next_log_are_not_searched() {
    let next_id = LOG_ID + 1;
    let mut bait = model_format::record(next_id, 0, 99, 112 / 8, model_format::DATA, b"");
    bait[8..12].copy_from_slice(&2000u32.to_le_bytes());
    let payload = bait.repeat(480);
    for (salt, gives_up) in [(0, true), (SALT, false)] {
        let disk = Arc::new(Disk::new(true));
        let next = options(next_id, salt);
        let mut writer = reused(&disk, &payload, next);
        writer.append(50, &[b"eight by"]).unwrap();
        let (kind, open) = (LogKind::WriteAhead, ExpectedEnd::Open);
        let env = disk.env();
        let opened = LogReader::open_bound(&env, Path::new(NEXT), kind, next_id, Some(salt), open);
        let mut reader = opened.unwrap();
        assert!(reader.next().unwrap().is_some());
        assert_eq!(reader.next().is_err(), gives_up, "salt {salt}");
    }
}

#[test]
fn log_with_another_salt_is_misplaced() {
    let disk = Arc::new(Disk::new(true));
    let next = options(LOG_ID + 1, SALT);
    let mut writer = reused(&disk, &[1; 40], next);
    writer.append(50, &[b"fifty"]).unwrap();
    assert_eq!(read(&disk, next, None).0.len(), 1, "without the salt it is accepted");
    for salt in [0, SALT + 1] {
        let (kind, open) = (LogKind::WriteAhead, ExpectedEnd::Open);
        let env = disk.env();
        let opened = LogReader::open_bound(&env, NEXT.as_ref(), kind, LOG_ID + 1, Some(salt), open);
        assert!(opened.unwrap_err().to_string().contains("wrong place"));
    }
}

/// A damaged header of a salted log must not look like a log that was torn when it was made.
#[test]
fn known_salt_detects_damage_to_any_header_byte() {
    let disk = Arc::new(Disk::new(true));
    let next = options(LOG_ID + 1, SALT);
    let mut writer = reused(&disk, &[1; 40], next);
    writer.set_durable(HEADER_BYTES);
    writer.append(50, &[b"fifty"]).unwrap();
    let file = disk.env().files.open(NEXT.as_ref(), Access::ReadWrite).unwrap();
    for at in 0..HEADER_BYTES {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 0x20], at).unwrap();
        let (kind, open) = (LogKind::WriteAhead, ExpectedEnd::Open);
        let env = disk.env();
        let read = LogReader::open_bound(&env, NEXT.as_ref(), kind, LOG_ID + 1, Some(SALT), open);
        assert!(read.is_err(), "byte {at}");
        file.write_all_at(&byte, at).unwrap();
    }
}

#[test]
fn a_file_that_cannot_be_mapped_is_not_used_again() {
    let disk = Arc::new(Disk::new(false));
    let next = options(LOG_ID + 1, SALT);
    LogWriter::create(&disk.env(), Path::new(NEXT), next).unwrap();
    let error = LogWriter::reuse(&disk.env(), Path::new(NEXT), next).unwrap_err();
    assert!(error.to_string().contains("cannot be mapped"), "{error}");
}

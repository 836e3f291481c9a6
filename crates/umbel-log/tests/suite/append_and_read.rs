//! Tests that appended records are read again, and that invalid appends write nothing.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use umbel_base::Error;
use umbel_env::{Access, Env};
use umbel_log::{
    END_RECORD_BYTES, ExpectedEnd, HEADER_BYTES, LogKind, LogOptions, LogReader, LogWriter, Seal,
    record_bytes,
};

use super::memory_disk::{Disk, Entry, LOG_ID, PATH, corruption_offset, read, read_env};
use super::model_format::{self, Forge};

fn options(segment_bytes: u64) -> LogOptions {
    LogOptions { kind: LogKind::WriteAhead, log_id: LOG_ID, salt: 0, segment_bytes }
}

fn create(disk: &Arc<Disk>, segment_bytes: u64) -> LogWriter {
    LogWriter::create(&disk.env(), Path::new(PATH), options(segment_bytes)).unwrap()
}

/// Returns entries with payloads of every kind of length: empty, unaligned, around a chunk, stored
/// in parts.
fn entries() -> Vec<Entry> {
    let lengths = [0, 1, 7, 8, 9, 500, 65_503, 65_504, 65_505, 200_001, (1 << 20) + 5, 3, 0];
    let fill = |(index, len): (usize, &usize)| {
        let payload = (0..*len).map(|at| (at * 7 + index) as u8).collect();
        (index as u64 / 2, payload)
    };
    lengths.iter().enumerate().map(fill).collect()
}

fn write_all(writer: &mut LogWriter, entries: &[Entry]) {
    for (sequence, payload) in entries {
        let (front, back) = payload.split_at(payload.len() / 3);
        let appended = writer.append(*sequence, &[front, &[], back]).unwrap();
        assert_eq!(appended.end, writer.end());
        if sequence % 3 == 0 {
            writer.set_durable(appended.end);
        }
    }
}

#[test]
fn every_write_mode_gives_the_same_bytes() {
    let mut images = Vec::new();
    for (maps, segment_bytes) in [(false, 0), (true, 0), (false, 4 << 20), (true, 4 << 20)] {
        let disk = Arc::new(Disk::new(maps));
        let mut writer = create(&disk, segment_bytes);
        assert_eq!((writer.end(), writer.log_id()), (HEADER_BYTES, LOG_ID));
        write_all(&mut writer, &entries());
        let end = writer.end();

        let (records, outcome) = read_env(&disk.env(), Path::new(PATH), ExpectedEnd::Open);
        let outcome = outcome.unwrap();
        assert_eq!(records, entries());
        assert_eq!((outcome.end, outcome.sealed, outcome.torn), (end, false, false));
        assert_eq!(outcome.records, entries().len() as u64);
        assert!(outcome.durable_max > HEADER_BYTES);

        let sealed = writer.seal().unwrap();
        assert_eq!(sealed.len, end + END_RECORD_BYTES);
        assert_eq!(sealed.checksum, outcome.checksum);
        for expectation in [ExpectedEnd::Open, ExpectedEnd::Sealed(sealed)] {
            let (records, outcome) = read_env(&disk.env(), Path::new(PATH), expectation);
            let outcome = outcome.unwrap();
            assert_eq!(records, entries());
            assert_eq!((outcome.end, outcome.sealed, outcome.torn), (sealed.len, true, false));
        }
        images.push((sealed, disk.bytes()[..sealed.len as usize].to_vec()));
    }
    for image in &images {
        assert!(image == &images[0]);
    }
}

#[test]
fn the_model_writes_the_same_bytes() {
    let disk = Arc::new(Disk::new(true));
    let mut writer = create(&disk, 1 << 12);
    let mut forge = Forge::new(LOG_ID);
    for (sequence, payload) in [(0, &b"a"[..]), (5, b""), (5, b"12345678"), (9, b"123456789")] {
        writer.append(sequence, &[payload]).unwrap();
        forge.add(sequence, if sequence > 0 { 104 } else { 0 }, payload);
        writer.set_durable(104);
    }
    assert_eq!(writer.seal().unwrap(), forge.seal(9, 104));
    assert_eq!(disk.bytes()[..forge.bytes.len()], forge.bytes);
}

#[test]
fn the_real_file_system_keeps_a_mapped_log() {
    let env = Env::system();
    let name = format!("umbel-log-{}-{}", std::process::id(), env.clock.wall_micros());
    let folder = std::env::temp_dir().join(name);
    env.files.create_dir_all(&folder).unwrap();
    for segment_bytes in [0, 4 << 20] {
        let path = folder.join(format!("{segment_bytes}.log"));
        let mut writer = LogWriter::create(&env, &path, options(segment_bytes)).unwrap();
        write_all(&mut writer, &entries());
        writer.file().sync().unwrap();
        assert_eq!(read_env(&env, &path, ExpectedEnd::Open).0, entries());
        let sealed = writer.seal().unwrap();
        writer.file().sync().unwrap();
        drop(writer);
        let (records, outcome) = read_env(&env, &path, ExpectedEnd::Sealed(sealed));
        assert_eq!(records, entries());
        assert!(outcome.unwrap().sealed);
        env.files.remove_file(&path).unwrap();
    }
    std::fs::remove_dir(&folder).unwrap();
}

#[test]
fn a_segment_is_filled_to_the_last_byte_and_can_still_be_sealed() {
    let disk = Arc::new(Disk::new(true));
    let records = record_bytes(100) + record_bytes(8);
    let mut writer = create(&disk, HEADER_BYTES + records + END_RECORD_BYTES + 5);
    writer.append(1, &[&[1; 100]]).unwrap();
    assert!(writer.fits(8) && !writer.fits(9));
    let before = disk.bytes();
    let refused = writer.append(2, &[&[2; 9]]).unwrap_err();
    assert!(matches!(refused, Error::Invalid(_)), "{refused}");
    assert_eq!(disk.bytes(), before);
    writer.append(2, &[&[2; 8]]).unwrap();
    assert!(!writer.fits(0));
    let sealed = writer.seal().unwrap();
    let (records, _) = read_env(&disk.env(), Path::new(PATH), ExpectedEnd::Sealed(sealed));
    assert_eq!(records, [(1, vec![1; 100]), (2, vec![2; 8])]);
}

#[test]
fn invalid_requests_are_refused_without_effect() {
    let disk = Arc::new(Disk::new(false));
    let error = LogWriter::create(&disk.env(), Path::new(PATH), options(111)).unwrap_err();
    assert!(matches!(error, Error::Invalid(_)), "{error}");
    let mut writer = create(&disk, 0);
    let error = LogWriter::create(&disk.env(), Path::new(PATH), options(0)).unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "{error}");
    writer.append(5, &[b"five"]).unwrap();
    let error = writer.append(4, &[b"four"]).unwrap_err();
    assert!(matches!(error, Error::Invalid(_)), "{error}");
    assert!(!writer.fits(1 << 32) && writer.fits((1 << 32) - 1));
    writer.append(5, &[b"five again"]).unwrap();
    let sealed = writer.seal().unwrap();
    for error in [writer.append(6, &[b"six"]).unwrap_err(), writer.seal().unwrap_err()] {
        assert!(error.to_string().contains("sealed"), "{error}");
    }
    assert_eq!(disk.bytes().len() as u64, sealed.len);
}

#[test]
fn a_failed_write_is_final() {
    for (maps, payload) in [(false, 10), (true, 10), (true, 100_000)] {
        let disk = Arc::new(Disk::new(maps));
        let mut writer = create(&disk, 1 << 20);
        writer.append(1, &[b"one"]).unwrap();
        let end = writer.end();
        disk.writes_left.store(0, Ordering::Relaxed);
        let error = writer.append(2, &[&vec![2; payload]]).unwrap_err();
        assert!(matches!(error, Error::Io { .. }), "{error}");
        disk.writes_left.store(-1, Ordering::Relaxed);
        for error in [writer.append(3, &[b"three"]).unwrap_err(), writer.seal().unwrap_err()] {
            assert!(matches!(error, Error::ReadOnly(_)), "{error}");
        }
        assert_eq!(writer.end(), end);
        let (records, outcome) = read_env(&disk.env(), Path::new(PATH), ExpectedEnd::Open);
        assert_eq!(records, [(1, b"one".to_vec())]);
        assert_eq!(outcome.unwrap().end, end);
    }
}

#[test]
fn full_disk_fails_segment_creation() {
    let mut disk = Disk::new(true);
    disk.len_max = Some(1 << 20);
    let disk = Arc::new(disk);
    let error = LogWriter::create(&disk.env(), Path::new(PATH), options(2 << 20)).unwrap_err();
    assert!(matches!(error, Error::DiskFull { .. }), "{error}");
    assert!(!disk.env().files.exists(Path::new(PATH)).unwrap(), "no file is left");
    let mut writer = create(&disk, 1 << 20);
    while writer.fits(999) {
        writer.append(1, &[&[1; 999]]).unwrap();
    }
    writer.seal().unwrap();
}

#[test]
fn torn_creation_is_an_empty_log() {
    let header = model_format::header(1, 1, LOG_ID);
    let mut images = vec![vec![], vec![0; 63], vec![0; 4096], header[..63].to_vec()];
    images.push([&header[..32], &[0; 500][..]].concat());
    for image in images {
        let (records, outcome) = read(&image, ExpectedEnd::Open);
        let outcome = outcome.unwrap();
        assert!(records.is_empty());
        assert_eq!((outcome.end, outcome.torn, outcome.sealed), (0, true, false));
    }
}

#[test]
fn missing_or_exchanged_sealed_log_is_named() {
    let disk = Arc::new(Disk::new(false));
    let sealed = Seal { len: 112, checksum: 3 };
    let (_, missing) = read_env(&disk.env(), Path::new(PATH), ExpectedEnd::Sealed(sealed));
    let text = missing.unwrap_err().to_string();
    assert!(text.contains(PATH) && text.contains("missing"), "{text}");
    let (_, missing) = read_env(&disk.env(), Path::new(PATH), ExpectedEnd::Open);
    assert!(missing.unwrap_err().is_missing_file());

    // The same log, sealed by an earlier incarnation with one record less, and with another one.
    let (mut old, mut other) = (Forge::new(LOG_ID), Forge::new(LOG_ID));
    old.add(1, 0, b"first");
    let mut now = old.clone();
    old.seal(1, 0);
    other.add(1, 0, b"First");
    other.add(2, 0, b"second");
    other.seal(2, 0);
    now.add(2, 0, b"second");
    let sealed = now.seal(2, 0);
    assert!(read(&now.bytes, ExpectedEnd::Sealed(sealed)).1.is_ok());
    for copy in [&old, &other] {
        assert!(read(&copy.bytes, ExpectedEnd::Open).1.unwrap().sealed);
        let error = read(&copy.bytes, ExpectedEnd::Sealed(sealed)).1.unwrap_err();
        assert!(error.to_string().contains("older copy"), "{error}");
    }
    old.bytes.resize(4096, 0);
    let error = read(&old.bytes, ExpectedEnd::Sealed(sealed)).1.unwrap_err();
    assert_eq!(corruption_offset(&error), 104);
}

#[test]
fn another_log_or_a_newer_format_is_not_read() {
    let open = |kind, log_id, bytes: &[u8]| {
        let env = Disk::with_bytes(bytes).env();
        LogReader::open(&env, Path::new(PATH), kind, log_id, ExpectedEnd::Open).map(|_| ())
    };
    let log = Forge::new(LOG_ID).bytes;
    open(LogKind::WriteAhead, LOG_ID, &log).unwrap();
    for (kind, log_id) in [(LogKind::Manifest, LOG_ID), (LogKind::WriteAhead, LOG_ID + (1 << 32))] {
        let error = open(kind, log_id, &log).unwrap_err();
        assert_eq!(corruption_offset(&error), 0);
    }
    let error = open(LogKind::WriteAhead, LOG_ID, &model_format::header(2, 1, LOG_ID)).unwrap_err();
    assert!(matches!(&error, Error::Invalid(text) if text.contains("newer Umbel")), "{error}");
    let error = open(LogKind::WriteAhead, LOG_ID, &model_format::header(0, 1, LOG_ID)).unwrap_err();
    assert_eq!(corruption_offset(&error), 8);
}

#[test]
fn impossible_records_are_corruption() {
    let mut forge = Forge::new(LOG_ID);
    forge.add(5, 0, b"five");
    let second = forge.bytes.len() as u64;
    type Damage = fn(&mut Forge);
    let cases: [Damage; 4] = [
        |forge| forge.add(4, 0, b"four"),
        |forge| forge.add(6, 1 << 20, b"a mark from the future"),
        |forge| forge.put(6, 0, model_format::END, b"too short"),
        |forge| forge.put(6, 0, model_format::END, &[7; 16]),
    ];
    for damage in cases {
        let mut forge = forge.clone();
        damage(&mut forge);
        let (records, end) = read(&forge.bytes, ExpectedEnd::Open);
        assert_eq!(records, [(5, b"five".to_vec())]);
        assert_eq!(corruption_offset(&end.unwrap_err()), second);
    }
    forge.seal(5, 0);
    let extra_at = forge.bytes.len() as u64;
    forge.add(6, 0, b"beyond the end");
    let (records, end) = read(&forge.bytes, ExpectedEnd::Open);
    assert_eq!(records.len(), 1);
    assert_eq!(corruption_offset(&end.unwrap_err()), extra_at);
}

/// Story: a writer of another process ended the log and cut off its unused space, between
/// a reader's check of the length and its read. The reader reported damage.
#[test]
fn truncation_to_the_end_during_a_read_is_harmless() {
    let disk = Arc::new(Disk::new(true));
    let mut writer = create(&disk, 1 << 20);
    let entries: Vec<Entry> = (0..9).map(|number| (number, vec![number as u8; 500])).collect();
    write_all(&mut writer, &entries);
    let (env, path) = (disk.env(), Path::new(PATH));
    let kind = LogKind::WriteAhead;
    let mut reader = LogReader::open(&env, path, kind, LOG_ID, ExpectedEnd::Open).unwrap();
    env.files.open(path, Access::ReadWrite).unwrap().set_len(writer.end()).unwrap();
    let mut found = Vec::new();
    while let Some(record) = reader.next().unwrap() {
        found.push((record.sequence, record.payload.to_vec()));
    }
    assert_eq!(found, entries);
    assert!(!reader.outcome().torn);
}

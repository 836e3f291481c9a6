//! Tests of logs that another writer's records continue, and of prefixes whose end is known.

use std::path::Path;
use std::sync::Arc;

use umbel_base::Error;
use umbel_log::{
    END_RECORD_BYTES, ExpectedEnd, HEADER_BYTES, LogKind, LogOptions, LogWriter, RECORD_ALIGN,
};

use super::memory_disk::{Disk, LOG_ID, PATH, corruption_offset, read_env};

const SEGMENT_BYTES: u64 = 1 << 20;

fn options() -> LogOptions {
    LogOptions { kind: LogKind::WriteAhead, log_id: LOG_ID, salt: 0, segment_bytes: SEGMENT_BYTES }
}

fn create(disk: &Arc<Disk>) -> LogWriter {
    LogWriter::create_deferred(&disk.env(), Path::new(PATH), options()).unwrap()
}

fn resume(disk: &Arc<Disk>, end: u64, defers: bool) -> umbel_base::Result<LogWriter> {
    LogWriter::resume(&disk.env(), Path::new(PATH), options(), end, defers)
}

/// A log of some records, and the ends of these records.
fn source(records: u64) -> (Arc<Disk>, LogWriter, Vec<u64>) {
    let disk = Arc::new(Disk::new(true));
    let mut writer = create(&disk);
    let mut ends = vec![HEADER_BYTES];
    for number in 1..=records {
        let payload = vec![number as u8; 700 * number as usize % 5000];
        ends.push(writer.append(number, &[&payload]).unwrap().end);
        if number % 2 == 0 {
            // Later records have a durable mark.
            writer.progress().sync().unwrap();
        }
    }
    writer.progress().sync().unwrap();
    (disk, writer, ends)
}

fn bytes_between(disk: &Disk, start: u64, end: u64) -> Vec<u8> {
    disk.bytes()[start as usize..end as usize].to_vec()
}

#[test]
fn records_of_another_writer_make_the_same_file() {
    for maps in [true, false] {
        let (from, mut writer, ends) = source(9);
        let disk = Arc::new(Disk::new(maps));
        let mut copy = create(&disk);
        for (part, end) in [(0, 1), (1, 4), (4, 4), (4, 9)] {
            let (start, end) = (ends[part], ends[end]);
            let appended = copy.append_encoded(&bytes_between(&from, start, end)).unwrap();
            assert_eq!((appended.end, copy.end()), (end, end));
            copy.progress().sync().unwrap();
        }
        assert_eq!(copy.running_checksum(), writer.running_checksum());
        let mark = (writer.progress().durable() / RECORD_ALIGN) as u32;
        let seals = (writer.seal().unwrap(), copy.seal_with_mark(mark).unwrap());
        assert_eq!(seals.0, seals.1);
        writer.progress().sync().unwrap();
        copy.progress().sync().unwrap();
        assert!(from.bytes() == disk.bytes(), "the same bytes");
    }
}

#[test]
fn bytes_that_do_not_continue_the_log_are_refused() {
    let (from, mut writer, ends) = source(4);
    writer.seal().unwrap();
    writer.progress().sync().unwrap();
    let disk = Arc::new(Disk::new(true));
    let mut copy = create(&disk);
    let good = bytes_between(&from, ends[0], ends[3]);
    let gap = bytes_between(&from, ends[1], ends[2]);
    let cut = good[..good.len() - 8].to_vec();
    let sealed = bytes_between(&from, ends[0], ends[4] + END_RECORD_BYTES);
    let mut flipped = good.clone();
    flipped[200] ^= 1;
    for bad in [gap, cut, sealed, flipped, vec![0; 64], vec![0; SEGMENT_BYTES as usize]] {
        let refused = copy.append_encoded(&bad);
        assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
        assert_eq!(copy.end(), HEADER_BYTES);
    }
    copy.append_encoded(&good).unwrap();
    assert!(matches!(copy.append_encoded(&good), Err(Error::Invalid(_))), "twice");
    assert!(matches!(copy.seal_with_mark(u32::MAX), Err(Error::Invalid(_))));
    copy.seal_with_mark(0).unwrap();
    assert!(matches!(copy.append_encoded(&[]), Err(Error::Invalid(_))), "sealed");
}

#[test]
fn log_continues_after_any_record() {
    let (whole, _, ends) = source(9);
    for defers in [true, false] {
        for end in &ends {
            let disk = Arc::new(Disk::new(true));
            disk.put(&whole.bytes());
            let mut writer = resume(&disk, *end, defers).unwrap();
            assert_eq!(writer.end(), *end);
            assert!(disk.bytes()[*end as usize..].iter().all(|byte| *byte == 0));
            writer.append_encoded(&bytes_between(&whole, *end, ends[9])).unwrap();
            writer.progress().sync().unwrap();
            assert!(disk.bytes() == whole.bytes(), "the same bytes");
            // Its own records follow, up to a full segment.
            let long = vec![7; 20_000];
            let mut number = 10;
            while writer.fits(long.len()) {
                writer.append(number, &[&long]).unwrap();
                writer.progress().sync().unwrap();
                number += 1;
            }
            writer.seal().unwrap();
            writer.progress().sync().unwrap();
            let (records, outcome) = read_env(&disk.env(), Path::new(PATH), ExpectedEnd::Open);
            assert!(outcome.unwrap().sealed);
            assert_eq!(records.len() as u64, number - 1);
        }
    }
}

#[test]
fn log_that_cannot_be_continued_is_refused() {
    let (disk, mut writer, ends) = source(3);
    let before = disk.bytes();
    assert_eq!(corruption_offset(&resume(&disk, ends[3] + 8, true).unwrap_err()), ends[3]);
    assert_eq!(corruption_offset(&resume(&disk, ends[2] - 8, true).unwrap_err()), ends[1]);
    assert!(disk.bytes() == before, "nothing was cut");
    let seal = writer.seal().unwrap();
    writer.progress().sync().unwrap();
    assert!(matches!(resume(&disk, seal.len, true), Err(Error::Invalid(_))));
}

#[test]
fn prefix_ends_at_its_end_whatever_follows() {
    let (disk, _, ends) = source(6);
    let read = |end: u64| {
        let (records, outcome) = read_env(&disk.env(), Path::new(PATH), ExpectedEnd::Prefix(end));
        outcome.map(|outcome| (records.len(), outcome.end, outcome.sealed))
    };
    for (count, end) in ends.iter().enumerate() {
        assert_eq!(read(*end).unwrap(), (count, *end, false));
    }
    // The third record is lost, and a later one says that it was durable.
    let mut bytes = disk.bytes();
    bytes[ends[2] as usize + 40] ^= 1;
    disk.put(&bytes);
    assert_eq!(read(ends[2]).unwrap(), (2, ends[2], false));
    assert_eq!(corruption_offset(&read(ends[3]).unwrap_err()), ends[2]);
    let (_, whole) = read_env(&disk.env(), Path::new(PATH), ExpectedEnd::Open);
    assert_eq!(corruption_offset(&whole.unwrap_err()), ends[2]);
    let longer = disk.bytes().len() as u64 + 8;
    assert_eq!(corruption_offset(&read(longer).unwrap_err()), longer - 8);
}

#[test]
fn prefix_can_end_with_the_end_record() {
    let (disk, mut writer, ends) = source(3);
    let seal = writer.seal().unwrap();
    writer.progress().sync().unwrap();
    let read = |end: u64| {
        let (records, outcome) = read_env(&disk.env(), Path::new(PATH), ExpectedEnd::Prefix(end));
        outcome.map(|outcome| (records.len(), outcome.sealed))
    };
    assert_eq!(read(ends[3]).unwrap(), (3, false));
    assert_eq!(read(seal.len).unwrap(), (3, true));
    assert_eq!(corruption_offset(&read(seal.len + 8).unwrap_err()), seal.len);
}

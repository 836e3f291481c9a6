//! Tests of a log that holds its records in memory until they are synced.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use umbel_base::Error;
use umbel_env::Access;
use umbel_log::{ExpectedEnd, HEADER_BYTES, LogKind, LogOptions, LogWriter};
use umbel_sim::{Fault, FaultKind, Sim};

use super::memory_disk::{Disk, LOG_ID, PATH, read_env};

const SEGMENT_BYTES: u64 = 3 << 20;

fn options(segment_bytes: u64) -> LogOptions {
    LogOptions { kind: LogKind::WriteAhead, log_id: LOG_ID, salt: 0, segment_bytes }
}

fn held(disk: &Arc<Disk>) -> LogWriter {
    LogWriter::create_deferred(&disk.env(), Path::new(PATH), options(SEGMENT_BYTES)).unwrap()
}

fn records(disk: &Arc<Disk>) -> usize {
    let (records, outcome) = read_env(&disk.env(), Path::new(PATH), ExpectedEnd::Open);
    outcome.unwrap();
    records.len()
}

#[test]
fn records_reach_the_file_when_they_are_synced_or_written_out() {
    let disk = Arc::new(Disk::new(true));
    let mut writer = held(&disk);
    let progress = Arc::clone(writer.progress());
    assert_eq!((progress.written(), progress.durable()), (HEADER_BYTES, 0));
    let first = writer.append(1, &[b"first"]).unwrap().end;
    assert_eq!((progress.end(), progress.written(), records(&disk)), (first, HEADER_BYTES, 0));
    progress.write_pending().unwrap();
    assert_eq!((progress.written(), progress.durable(), records(&disk)), (first, 0, 1));
    progress.write_pending().unwrap();
    let long = vec![7; 100_000];
    writer.append(2, &[&long]).unwrap();
    let third = writer.append(3, &[b"third"]).unwrap().end;
    assert_eq!(records(&disk), 1);
    progress.sync().unwrap();
    assert_eq!((progress.written(), progress.durable(), records(&disk)), (third, third, 3));
    writer.seal().unwrap();
    progress.sync().unwrap();

    let other = Arc::new(Disk::new(true));
    let path = Path::new(PATH);
    let mut mapped = LogWriter::create(&other.env(), path, options(SEGMENT_BYTES)).unwrap();
    mapped.append(1, &[b"first"]).unwrap();
    mapped.append(2, &[&long]).unwrap();
    mapped.append(3, &[b"third"]).unwrap();
    mapped.progress().sync().unwrap();
    mapped.seal().unwrap();
    assert!(disk.bytes() == other.bytes(), "the same bytes as of a mapped log");
}

#[test]
fn failed_write_is_final_and_acknowledges_nothing() {
    let disk = Arc::new(Disk::new(true));
    let mut writer = held(&disk);
    let progress = Arc::clone(writer.progress());
    let first = writer.append(1, &[b"first"]).unwrap().end;
    progress.sync().unwrap();
    writer.append(2, &[b"second"]).unwrap();
    disk.writes_left.store(0, Ordering::Relaxed);
    assert!(matches!(progress.sync(), Err(Error::Io { .. })));
    disk.writes_left.store(-1, Ordering::Relaxed);
    // It is unknown how much of it reached the file, so nothing is written after it.
    writer.append(3, &[b"third"]).unwrap();
    for _ in 0..2 {
        assert!(matches!(progress.write_pending(), Err(Error::ReadOnly(_))));
        assert!(matches!(progress.sync(), Err(Error::ReadOnly(_))));
    }
    assert_eq!((progress.written(), progress.durable(), records(&disk)), (first, first, 1));
}

/// The system reports a failed write-back once; the next sync succeeds without these bytes.
#[test]
fn a_failed_sync_is_final() {
    for holds in [false, true] {
        let sim = Sim::new(1);
        let (env, path) = (sim.env(), Path::new("/7.log"));
        let mut writer = match holds {
            true => LogWriter::create_deferred(&env, path, options(SEGMENT_BYTES)).unwrap(),
            false => LogWriter::create(&env, path, options(SEGMENT_BYTES)).unwrap(),
        };
        let progress = Arc::clone(writer.progress());
        let first = writer.append(1, &[b"first"]).unwrap().end;
        progress.sync().unwrap();
        writer.append(2, &[b"second"]).unwrap();
        sim.fail_site("sync", 1, Fault { kind: FaultKind::Eio, sticky: false });
        assert!(matches!(progress.sync(), Err(Error::Io { .. })));
        assert_eq!(sim.faults_fired(), 1);
        assert!(matches!(progress.sync(), Err(Error::ReadOnly(_))));
        assert_eq!(progress.durable(), first);
    }
}

#[test]
fn preallocated_segment_is_zero_filled_ahead() {
    for (maps, has_filler) in [(true, false), (true, true), (false, false)] {
        let disk = Arc::new(Disk::new(maps));
        let mut writer = held(&disk);
        let progress = Arc::clone(writer.progress());
        let (mut end, mut count) = (0, 0);
        let mut distances = Vec::new();
        while writer.fits(60_000) {
            end = writer.append(1, &[&[7; 60_000]]).unwrap().end;
            if has_filler {
                progress.fill_ahead().unwrap();
                assert!(!progress.wants_fill());
            }
            progress.sync().unwrap();
            distances.push(disk.written_end() - end);
            count += 1;
        }
        writer.seal().unwrap();
        progress.sync().unwrap();
        assert!(end > SEGMENT_BYTES - 70_000 && disk.bytes().len() as u64 == SEGMENT_BYTES);
        assert_eq!(records(&disk), count);
        distances.truncate(count - 10);
        let least = *distances.iter().min().unwrap();
        match (maps, has_filler) {
            (true, true) => assert!(least >= 400_000, "{distances:?}"),
            (true, false) => {
                assert!(distances.iter().any(|distance| *distance > 400_000), "{distances:?}");
            }
            _ => assert!(distances.iter().all(|distance| *distance < 4096), "{distances:?}"),
        }
    }
}

/// Three write modes give the same file: past the page cache, through the page cache, and a change
/// from the first to the second.
#[test]
fn every_write_mode_gives_the_same_records() {
    let mut files = Vec::new();
    for refused_from in [0, 5, usize::MAX] {
        let sim = Sim::new(1);
        let (env, path) = (sim.env(), Path::new("/7.log"));
        let mut writer = LogWriter::create_deferred(&env, path, options(SEGMENT_BYTES)).unwrap();
        let progress = Arc::clone(writer.progress());
        let mut ends = vec![HEADER_BYTES];
        for (index, len) in
            [10, 4000, 100, 200_000, 0, 4096, 70_000, 1, 1_200_000, 5].iter().enumerate()
        {
            if index == refused_from {
                sim.allow_direct(false);
            }
            ends.push(writer.append(index as u64, &[&vec![index as u8 + 1; *len]]).unwrap().end);
            progress.sync().unwrap();
            // The newest records need not be read from the file.
            let mut read = vec![0; (ends[index + 1] - ends[index]) as usize];
            let is_recent = progress.read_recent(&mut read, ends[index]);
            assert_eq!(is_recent, index < refused_from && *len < 1 << 20);
            if is_recent {
                let mut there = vec![0; read.len()];
                progress.file().read_exact_at(&mut there, ends[index]).unwrap();
                assert!(there == read, "record {index}");
            }
        }
        let mut far = [0; 8];
        assert!(!progress.read_recent(&mut far, progress.written() - 4), "after the end");
        let is_recent = progress.read_recent(&mut far, HEADER_BYTES);
        assert_eq!(is_recent, refused_from == 5, "too old, but where nothing came later");
        writer.seal().unwrap();
        progress.sync().unwrap();
        let mut bytes = vec![0; SEGMENT_BYTES as usize];
        env.files.open(path, Access::Read).unwrap().read_exact_at(&mut bytes, 0).unwrap();
        let (found, outcome) = read_env(&env, path, ExpectedEnd::Open);
        assert!(outcome.unwrap().sealed && found.len() == 10);
        files.push(bytes);
    }
    assert!(files[0] == files[1] && files[1] == files[2]);
}

#[test]
fn sync_beside_an_appender_covers_whole_records() {
    let disk = Arc::new(Disk::new(true));
    let mut writer = held(&disk);
    let progress = Arc::clone(writer.progress());
    std::thread::scope(|scope| {
        let syncing = scope.spawn(|| {
            while progress.durable() < HEADER_BYTES + 5000 * 40 {
                let end = progress.end();
                progress.sync().unwrap();
                assert!(progress.durable() >= end && progress.written() >= end);
            }
        });
        for number in 0..5000u64 {
            writer.append(number, &[&number.to_le_bytes()]).unwrap();
        }
        syncing.join().unwrap();
    });
    assert_eq!(records(&disk), 5000);
}

#[test]
fn buffering_needs_a_preallocated_segment() {
    let disk = Arc::new(Disk::new(true));
    let refused = LogWriter::create_deferred(&disk.env(), Path::new(PATH), options(0)).unwrap_err();
    assert!(refused.to_string().contains("length of a segment"), "{refused}");
    assert!(!disk.env().files.exists(Path::new(PATH)).unwrap());
}

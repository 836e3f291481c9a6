//! What the log calls durable.

use std::path::Path;
use std::sync::Arc;

use umbel_log::HEADER_BYTES;
use umbel_sim::Sim;

use super::*;
use crate::chunk::FIRST_EVENT_AT;

fn log(holds: bool) -> EventLog {
    let env = Sim::new(1).env();
    let folder = Path::new("/store");
    env.files.create_dir_all(&chunk_folder(folder)).unwrap();
    let mut table = ChunkTable::new([7; 16], [8; 16]);
    table.write(&env, folder).unwrap();
    let kept = Arc::new(KeptFiles::new(Arc::clone(&env.files), None));
    EventLog::new(&env, folder.to_path_buf(), (64 << 10, holds), table, kept)
}

/// A chunk is ready before the one before it has its end record. Who syncs in between saw the new
/// one's events as durable, behind a chunk that a power cut could leave without its end: these were
/// then taken for what nobody had relied on.
#[test]
fn events_behind_a_chunk_without_its_end_are_not_durable() {
    for holds in [false, true] {
        let log = log(holds);
        let (first, mut writer) = log.take_next(100, false).unwrap();
        let end = writer.append(first.start + FIRST_EVENT_AT, &[&[1; 100]]).unwrap().end;
        first.grew(end, FIRST_EVENT_AT);
        let (second, mut next) = log.take_next(100, false).unwrap();
        let next_end = next.append(second.start + FIRST_EVENT_AT, &[&[2; 100]]).unwrap().end;
        log.sync().unwrap();
        assert_eq!((log.durable(), next.progress().durable()), (first.start + end, HEADER_BYTES));
        let sealed = writer.seal().unwrap();
        let ended = Ended { end, last_event: FIRST_EVENT_AT, sealed: Some(sealed) };
        first.ended.set(ended).unwrap();
        log.sync().unwrap();
        assert_eq!(log.durable(), second.start + next_end);
        assert_eq!(next.progress().durable(), next_end);
    }
}

/// Whoever reads an event that is held has it written, and no reader takes along what is not.
#[test]
fn held_events_are_written_for_whoever_reads_them() {
    let log = Arc::new(log(true));
    let (chunk, mut writer) = log.take_next(100, false).unwrap();
    let end = writer.append(chunk.start + FIRST_EVENT_AT, &[&[1; 100]]).unwrap().end;
    chunk.grew(end, FIRST_EVENT_AT);
    assert_eq!(writer.progress().written(), HEADER_BYTES);
    assert_eq!(chunk.readable(FIRST_EVENT_AT).unwrap(), end);
    assert_eq!(writer.progress().written(), end);
    let later = writer.append(chunk.start + end, &[&[2; 100]]).unwrap().end;
    chunk.grew(later, end + BETWEEN_RECORDS);
    assert_eq!(chunk.readable(FIRST_EVENT_AT).unwrap(), end, "only what is in the file");
    assert_eq!(chunk.readable(end + BETWEEN_RECORDS).unwrap(), later);
}

/// Files of chunks that are synced to their end are not kept open for writing.
#[test]
fn a_chunk_lets_go_of_its_file_once_it_is_synced() {
    let log = log(true);
    let (chunk, mut writer) = log.take_next(100, false).unwrap();
    let sealed = writer.seal().unwrap();
    let progress = Arc::downgrade(writer.progress());
    chunk.ended.set(Ended { end: HEADER_BYTES, last_event: 0, sealed: Some(sealed) }).unwrap();
    drop(writer);
    drop(log.take_next(100, false).unwrap());
    assert!(progress.upgrade().is_some(), "it has to be synced");
    log.sync().unwrap();
    assert!(progress.upgrade().is_none());
}

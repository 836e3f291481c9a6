//! Durable part of the log.

use std::path::Path;
use std::sync::Arc;

use umbel_log::HEADER_BYTES;
use umbel_sim::Sim;

use super::*;
use crate::event_log::chunk::FIRST_EVENT_OFFSET;
use crate::event_log::event_format::RECORD_GAP_BYTES;

fn log(holds: bool) -> EventLog {
    let env = Sim::new(1).env();
    let folder = Path::new("/store");
    env.files.create_dir_all(&chunk_directory(folder)).unwrap();
    let mut manifest = ChunkManifest::new([7; 16], [8; 16]);
    manifest.write(&env, folder).unwrap();
    let kept = Arc::new(PinnedFiles::new(Arc::clone(&env.files), None));
    EventLog::new(&env, folder.to_path_buf(), (64 << 10, holds), manifest, kept)
}

/// A chunk is prepared before the previous chunk has its end record. A sync before that end record
/// once reported the new chunk's events as durable, while power loss could still take the previous
/// chunk's end. An open then treated these events as unacknowledged.
#[test]
fn events_after_a_chunk_without_end_record_are_not_durable() {
    for holds in [false, true] {
        let log = log(holds);
        let (first, mut writer) = log.take_next(100, false).unwrap();
        let end = writer.append(first.start + FIRST_EVENT_OFFSET, &[&[1; 100]]).unwrap().end;
        first.set_end(end, FIRST_EVENT_OFFSET);
        let (second, mut next) = log.take_next(100, false).unwrap();
        let next_end = next.append(second.start + FIRST_EVENT_OFFSET, &[&[2; 100]]).unwrap().end;
        log.sync().unwrap();
        assert_eq!((log.durable(), next.progress().durable()), (first.start + end, HEADER_BYTES));
        let sealed = writer.seal().unwrap();
        let ended = ChunkEnd { end, last_event: FIRST_EVENT_OFFSET, seal: Some(sealed) };
        first.ended.set(ended).unwrap();
        log.sync().unwrap();
        assert_eq!(log.durable(), second.start + next_end);
        assert_eq!(next.progress().durable(), next_end);
    }
}

/// A read of a buffered event writes it to the file first, and no reader gets unwritten bytes.
#[test]
fn reading_a_buffered_event_writes_it_first() {
    let log = Arc::new(log(true));
    let (chunk, mut writer) = log.take_next(100, false).unwrap();
    let end = writer.append(chunk.start + FIRST_EVENT_OFFSET, &[&[1; 100]]).unwrap().end;
    chunk.set_end(end, FIRST_EVENT_OFFSET);
    assert_eq!(writer.progress().written(), HEADER_BYTES);
    assert_eq!(chunk.readable_end(FIRST_EVENT_OFFSET).unwrap(), end);
    assert_eq!(writer.progress().written(), end);
    let later = writer.append(chunk.start + end, &[&[2; 100]]).unwrap().end;
    chunk.set_end(later, end + RECORD_GAP_BYTES);
    assert_eq!(chunk.readable_end(FIRST_EVENT_OFFSET).unwrap(), end, "only what is in the file");
    assert_eq!(chunk.readable_end(end + RECORD_GAP_BYTES).unwrap(), later);
}

/// Files of chunks that are synced to their end are not kept open for writing.
#[test]
fn fully_synced_chunk_closes_its_file() {
    let log = log(true);
    let (chunk, mut writer) = log.take_next(100, false).unwrap();
    let sealed = writer.seal().unwrap();
    let progress = Arc::downgrade(writer.progress());
    chunk.ended.set(ChunkEnd { end: HEADER_BYTES, last_event: 0, seal: Some(sealed) }).unwrap();
    drop(writer);
    drop(log.take_next(100, false).unwrap());
    assert!(progress.upgrade().is_some(), "it has to be synced");
    log.sync().unwrap();
    assert!(progress.upgrade().is_none());
}

//! Tests of the WAL under the commit lock.

use std::path::Path;

use umbel_sim::Sim;

use super::*;
use crate::fs::filenames;
use crate::version::{Edit, LogState};

const FOLDER: &str = "/store";

fn wal(sim: &Sim) -> Wal {
    let env = sim.env();
    env.files.create_dir_all(Path::new(FOLDER)).unwrap();
    let lock = env.files.lock(&Path::new(FOLDER).join(filenames::LOCK)).unwrap();
    let (files, ids) = (Arc::clone(&env.files), Arc::new(AtomicU64::new(1)));
    let obsolete = ObsoleteFiles::new(files, Arc::default(), Some(lock));
    let options = WalOptions {
        env,
        obsolete,
        fatal_error: Arc::default(),
        folder: PathBuf::from(FOLDER),
        segment_bytes: SegmentSize::Fixed(64 << 10),
        secret: HashSecret::from_seed([7; 16]),
        ids,
        has_worker: true,
    };
    Wal::new(options, Vec::new())
}

fn next_segment(wal: &mut Wal) {
    let writer = wal.create_segment(10, false).unwrap();
    wal.retire_current().unwrap();
    wal.begin(writer);
}

/// Story: a sync skipped a released segment whose drop was not durable yet. So records of the next
/// segment became durable before the end of the released one. Recovery stopped at the end of the
/// released segment and lost these records.
#[test]
fn syncs_cover_released_segments_until_edit_is_durable() {
    let mut wal = wal(&Sim::new(1));
    next_segment(&mut wal);
    wal.append_to_current(1, 1, &[b"one"]).unwrap();
    next_segment(&mut wal);
    wal.append_to_current(2, 2, &[b"two"]).unwrap();
    let obsolete = wal.take_obsolete(1);
    wal.begin_release();
    assert_eq!(obsolete.len(), 1);
    assert_eq!(wal.tail().snapshot().1.len(), 2);
    wal.note_released(&obsolete);
    assert_eq!(wal.tail().snapshot().1.len(), 1);
}

/// Story: a write into a spare segment was lost with the process, because an older, empty segment
/// was about to be dropped. Recovery stops at an empty segment.
#[test]
fn no_spare_segment_before_older_ones_are_dropped() {
    let mut wal = wal(&Sim::new(1));
    next_segment(&mut wal);
    wal.append_to_current(1, 1, &[b"one"]).unwrap();
    let older = wal.create_segment(10, false).unwrap();
    assert!(wal.add_spare(older, false).is_none());
    let surplus = wal.release_idle(0, false).unwrap();
    assert_eq!(surplus.spares.len(), 1);
    wal.begin_release();
    let making = |wal: &mut Wal| {
        std::iter::from_fn(|| wal.next_task()).any(|task| matches!(task, WalTask::CreateSpare(..)))
    };
    assert!(!making(&mut wal));
    let newer = wal.create_segment(10, false).unwrap();
    assert!(wal.add_spare(newer, false).is_none());
    assert!(!wal.take_spare(10).unwrap());
    wal.note_released(&[]);
    assert!(wal.take_spare(10).unwrap());
}

/// Story: a segment that ended because writes stopped stayed open in the manifest of a closed
/// store, so damage there looked like a torn write.
#[test]
fn close_seals_segments_that_ended_before() {
    let mut wal = wal(&Sim::new(1));
    next_segment(&mut wal);
    wal.append_to_current(1, 1, &[b"one"]).unwrap();
    wal.release_idle(0, false).unwrap();
    assert!(wal.seal_edits().is_empty(), "its end is not durable yet");
    let (edits, _) = wal.close().unwrap();
    assert!(
        edits.iter().any(|edit| matches!(edit, Edit::Log { id: 1, state: LogState::Sealed(_) }))
    );
}

/// Story: the device was idle while the WAL grew, and had to write all of it at the sync.
#[test]
fn ended_segment_is_written_back_in_order() {
    let mut wal = wal(&Sim::new(1));
    let next = |wal: &mut Wal| {
        let mut tasks = std::iter::from_fn(|| wal.next_task());
        tasks.find_map(|task| match task {
            WalTask::WriteBack(_, _, range) => Some((range.start, range.end)),
            _ => None,
        })
    };
    let writer = wal.create_segment(4 << 20, false).unwrap();
    wal.begin(writer);
    assert_eq!(next(&mut wal), None);
    wal.append_to_current(1, 1, &[&vec![1; 2 << 20]]).unwrap();
    assert_eq!(next(&mut wal), Some((0, 2 << 20)), "whole steps below the end, which grows");
    assert_eq!(next(&mut wal), None);
    next_segment(&mut wal);
    let end = wal.old[0].bytes;
    assert_eq!(next(&mut wal), Some((2 << 20, end)));
    assert_eq!(next(&mut wal), None);
}

/// Story: the limit of a store that flushes early was no power of two, so that files of no segment
/// had its size. A kept file of another size stayed, and files that fitted were removed.
#[test]
fn files_of_the_next_size_are_reused() {
    let mut wal = wal(&Sim::new(1));
    wal.segment_bytes = SegmentSize::Fixed(64 << 20);
    wal.bytes_max = u64::MAX;
    for table_bytes in [0, 64 << 20, 100 << 20, 300 << 20, 1000 << 20] {
        wal.limit_segments(table_bytes);
        let limit = wal.early_flush_bytes_max.unwrap();
        assert!(limit.is_power_of_two(), "{table_bytes}: {limit}");
    }
    let segment =
        |id, bytes| OldSegment { reusable_bytes: bytes, ..OldSegment::recovered(id, 1, bytes) };
    next_segment(&mut wal);
    let bytes = wal.next_bytes();
    wal.reusable = Some(RecyclableSegment { id: 7, bytes: 2 * bytes });
    assert_eq!(wal.offer_for_reuse(&segment(8, 4 * bytes)), Some(8));
    assert_eq!(wal.offer_for_reuse(&segment(9, bytes)), Some(7));
    assert_eq!(wal.offer_for_reuse(&segment(10, bytes)), Some(10));
    assert_eq!(wal.reusable, Some(RecyclableSegment { id: 9, bytes }));
}

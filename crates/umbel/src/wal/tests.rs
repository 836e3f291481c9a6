//! Tests of the log under the commit lock.

use std::path::Path;

use umbel_sim::Sim;

use super::*;

const FOLDER: &str = "/store";

fn wal(sim: &Sim) -> Wal {
    let env = sim.env();
    env.files.create_dir_all(Path::new(FOLDER)).unwrap();
    let lock = env.files.lock(&Path::new(FOLDER).join(names::LOCK)).unwrap();
    let (files, ids) = (Arc::clone(&env.files), Arc::new(AtomicU64::new(1)));
    let obsolete = ObsoleteFiles::new(files, Arc::default(), Some(lock));
    let options = WalOptions {
        env,
        obsolete,
        folder: PathBuf::from(FOLDER),
        segment_bytes: SegmentBytes::Fixed(64 << 10),
        secret: HashSecret::from_seed([7; 16]),
        ids,
        is_tended: true,
    };
    Wal::new(options, Vec::new())
}

fn go_on(wal: &mut Wal) {
    let writer = wal.create_segment(10, false).unwrap();
    wal.retire_current().unwrap();
    wal.begin(writer);
}

/// A sync that left out a segment between its being taken out and the edit that drops it made
/// records of the next one durable before its end. Recovery stopped there and lost them.
#[test]
fn syncs_cover_what_is_given_back_until_no_edit_names_it() {
    let mut wal = wal(&Sim::new(1));
    go_on(&mut wal);
    wal.append(1, 1, &[b"one"]).unwrap();
    go_on(&mut wal);
    wal.append(2, 2, &[b"two"]).unwrap();
    let obsolete = wal.take_obsolete(1);
    wal.give_back();
    assert_eq!(obsolete.len(), 1);
    assert_eq!(wal.tail().begin().1.len(), 2);
    wal.gave_back(&obsolete);
    assert_eq!(wal.tail().begin().1.len(), 1);
}

/// A write into a spare segment behind an older empty one that was about to be dropped was lost
/// with the process: recovery stops at an empty segment.
#[test]
fn no_spare_is_made_or_taken_before_older_ones_are_dropped() {
    let mut wal = wal(&Sim::new(1));
    go_on(&mut wal);
    wal.append(1, 1, &[b"one"]).unwrap();
    let older = wal.create_segment(10, false).unwrap();
    assert!(wal.add_spare(older, false).is_none());
    let surplus = wal.rest(0).unwrap();
    assert_eq!(surplus.spares.len(), 1);
    wal.give_back();
    let making = |wal: &mut Wal| {
        std::iter::from_fn(|| wal.next_chore()).any(|chore| matches!(chore, Chore::Make(..)))
    };
    assert!(!making(&mut wal));
    let newer = wal.create_segment(10, false).unwrap();
    assert!(wal.add_spare(newer, false).is_none());
    assert!(!wal.take_spare(10).unwrap());
    wal.gave_back(&[]);
    assert!(wal.take_spare(10).unwrap());
}

/// A segment that was ended for want of writes stayed open in the manifest of a store that was
/// closed, so that damage to its end looked like a torn write.
#[test]
fn a_close_seals_what_was_ended_before() {
    let mut wal = wal(&Sim::new(1));
    go_on(&mut wal);
    wal.append(1, 1, &[b"one"]).unwrap();
    wal.rest(0).unwrap();
    assert!(wal.ends().is_empty(), "its end is not durable yet");
    let (edits, _) = wal.close().unwrap();
    assert!(
        edits.iter().any(|edit| matches!(edit, Edit::Log { id: 1, state: LogState::Sealed(_) }))
    );
}

/// The device had nothing to do while the log grew, and everything when it was synced.
#[test]
fn an_ended_segment_is_written_back_behind_what_was_begun_already() {
    let mut wal = wal(&Sim::new(1));
    let next = |wal: &mut Wal| {
        let mut chores = std::iter::from_fn(|| wal.next_chore());
        chores.find_map(|chore| match chore {
            Chore::WriteBack(_, _, range) => Some((range.start, range.end)),
            _ => None,
        })
    };
    let writer = wal.create_segment(4 << 20, false).unwrap();
    wal.begin(writer);
    assert_eq!(next(&mut wal), None);
    wal.append(1, 1, &[&vec![1; 2 << 20]]).unwrap();
    assert_eq!(next(&mut wal), Some((0, 2 << 20)), "whole steps below the end, which grows");
    assert_eq!(next(&mut wal), None);
    go_on(&mut wal);
    let end = wal.old[0].bytes;
    assert_eq!(next(&mut wal), Some((2 << 20, end)));
    assert_eq!(next(&mut wal), None);
}

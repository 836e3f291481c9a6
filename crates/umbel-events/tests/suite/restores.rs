//! Restores: what they restore, how the store continues, and which targets are refused.

use umbel_events::{
    CopyOptions, Direction, Error, ExpectedVersion, NewEvent, Position, Revision, Store,
    StreamState, restore,
};
use umbel_sim::Sim;

use super::support::{all, append, append_large, id, options};

fn plain() -> CopyOptions<'static> {
    CopyOptions::default()
}

/// A disk with a closed store and a backup of the whole store.
fn specimen() -> Sim {
    let sim = Sim::new(11);
    let store = Store::open("/events", options(&sim)).expect("a new store");
    (0..25).for_each(|number| append_large(&store, "a", number, 6000));
    append(&store, "b", 100..103);
    store.delete("b", ExpectedVersion::Exact(2)).expect("deleted");
    store.tombstone("c", ExpectedVersion::Any).expect("tombstoned");
    let metadata = NewEvent::json(id(200), "$metadata", br#"{"$maxCount":4}"#);
    store.append("$$a", ExpectedVersion::Any, &[metadata]).expect("metadata");
    store.backup("/backup", plain()).expect("backed up");
    store.close().expect("closed");
    sim
}

#[test]
fn restored_store_equals_its_source_and_accepts_appends() {
    let sim = specimen();
    let report = restore(&sim.env(), "/backup".as_ref(), "/deep/down/here".as_ref(), plain());
    let report = report.expect("restored");
    let original = Store::open("/events", options(&sim)).expect("the original");
    let store = Store::open("/deep/down/here", options(&sim)).expect("the restored");
    assert_eq!(all(&store), all(&original));
    assert_eq!(Some(report.through.0), all(&original).last().map(|event| event.position));
    for stream in ["a", "b", "c", "$$a", "none"] {
        let state = original.stream_state(stream).expect("known");
        assert_eq!(store.stream_state(stream).expect("known"), state, "{stream}");
        if state != StreamState::Tombstoned {
            let read = |store: &Store| {
                let events = store.read(stream, Revision::END, Direction::Backwards);
                events.map(|event| event.expect("readable")).collect::<Vec<_>>()
            };
            assert_eq!(read(&store), read(&original), "{stream}");
        }
    }
    // Appends to the original after the backup get no position that the restored store assigns.
    (300..340).for_each(|number| append_large(&original, "a", number, 6000));
    append(&store, "a", 300..303);
    let events_after =
        |store: &Store| store.read_all(Position(report.through.0 + 1), Direction::Forwards);
    let highest = events_after(&original).map(|event| event.expect("readable").position).max();
    let lowest = events_after(&store).map(|event| event.expect("readable").position).min();
    assert!(lowest > highest && highest > Some(report.through.0), "{lowest:?} {highest:?}");
    // An append from before the backup is still recognized.
    let data = [24; 6000];
    let again = NewEvent::binary(id(24), "Large", &data).with_metadata(b"m");
    let result = store.append("a", ExpectedVersion::Any, &[again]).expect("known");
    assert!(result.is_retry);
    // So is that to a stream which was deleted later, if the append names the revision.
    let again = NewEvent::json(id(102), "Happened", b"{}");
    let result = store.append("b", ExpectedVersion::Exact(1), &[again]).expect("known");
    assert!(result.is_retry);
    assert!(store.verify().expect("verified").damage.is_empty());
    store.close().expect("closed");
    let store = Store::open("/deep/down/here", options(&sim)).expect("opened again");
    assert_eq!(store.read_all(Position::START, Direction::Forwards).count(), 25 + 3 + 3 + 3);
    // Also after a restart past the gap.
    assert!(store.append("b", ExpectedVersion::Exact(1), &[again]).expect("known").is_retry);
}

#[test]
fn restore_rejects_nonempty_targets() {
    let sim = specimen();
    let env = sim.env();
    env.files.create_dir_all("/files".as_ref()).expect("a directory");
    env.files.create("/files/letter".as_ref()).expect("a file");
    env.files.create_dir_all("/empty".as_ref()).expect("a directory");
    let held = Store::open("/other", options(&sim)).expect("a store in use");
    append(&held, "a", 0..1);
    for (target, why) in [
        ("/events", "holds an event store already"),
        ("/other", "holds an event store already"),
        ("/files", "holds 'letter'"),
        ("/backup", "holds a backup"),
        ("/events/index", "holds"),
    ] {
        let before = sim.files();
        let refused = restore(&env, "/backup".as_ref(), target.as_ref(), plain());
        let message = refused.expect_err(target).to_string();
        assert!(
            message.contains(why) && message.contains("empty directory"),
            "{target}: {message}"
        );
        assert_eq!(sim.files(), before, "{target}");
    }
    for (backup, why) in [
        ("/events", "there is no backup in /events: the directory holds an event store"),
        ("/empty", "there is no backup in /empty"),
        ("/missing", "there is no backup in /missing"),
    ] {
        let refused = restore(&env, backup.as_ref(), "/new".as_ref(), plain()).expect_err(backup);
        assert!(refused.to_string().contains(why), "{refused}");
    }
    let lock = env.files.lock("/backup/LOCK".as_ref()).expect("a free lock");
    let refused = restore(&env, "/backup".as_ref(), "/new".as_ref(), plain()).expect_err("busy");
    assert!(matches!(refused, Error::BackupInUse(_)), "{refused}");
    assert!(refused.to_string().contains("another process backs up to /backup"), "{refused}");
    drop(lock);
    restore(&env, "/backup".as_ref(), "/empty".as_ref(), plain()).expect("an empty one will do");
}

#[test]
fn interrupted_restore_resumes_only_with_the_same_backup() {
    let sim = specimen();
    let store = Store::open("/events", options(&sim)).expect("opened");
    append(&store, "d", 500..503);
    store.backup("/another", plain()).expect("backed up");
    // Killed when half of the files existed.
    let whole = sim.clone_disk();
    let env = whole.env();
    restore(&env, "/backup".as_ref(), "/target".as_ref(), plain()).expect("restored");
    let calls = whole.changing_calls();
    let killed = sim.clone_disk();
    killed.crash_at(calls[calls.len() / 2], umbel_sim::CrashSide::Before);
    let env = killed.env();
    restore(&env, "/backup".as_ref(), "/target".as_ref(), plain()).expect_err("killed");
    let killed = killed.kill_image();
    let message = Store::open("/target", options(&killed)).expect_err("no store yet").to_string();
    assert!(message.contains("the restore of a backup into"), "{message}");
    let env = killed.env();
    let other = restore(&env, "/another".as_ref(), "/target".as_ref(), plain());
    let message = other.expect_err("of another backup").to_string();
    assert!(message.contains("an interrupted restore of another backup"), "{message}");
    let backing_up = Store::open("/events", options(&killed)).expect("opened");
    let message = backing_up.backup("/target", plain()).expect_err("no backup").to_string();
    assert!(message.contains("/target holds '"), "{message}");
    restore(&env, "/backup".as_ref(), "/target".as_ref(), plain()).expect("resumed");
    assert_eq!(Store::open("/target", options(&killed)).map(|s| all(&s).len()).ok(), Some(31));
}

//! Backups into a simulated object store: they hold all events, upload only new data, are restored
//! to any position and time, and refuse prefixes of other stores and servers.

use std::ops::{Range, RangeInclusive};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use umbel_env::{
    Creation, Env, ListPage, ObjectBytes, ObjectName, ObjectResult, ObjectSource, Objects,
};
use umbel_events::{
    Durability, ExistenceSize, ObjectBackup, ObjectBackupError, ObjectBackupErrorKind,
    ObjectBackupOptions, ObjectBackupResult, ObjectRequestOptions, Position, RecordedEvent,
    RestoreTo, RetentionOptions, RetentionReport, ScavengeOptions, Store, StoreOptions,
    restore_events_from_objects, restore_from_objects, retain, verify_objects,
};
use umbel_sim::{ObjectDamage, ObjectSim, Sim};

use super::support::{all, append, append_large, options};

/// A store, and an object store whose clock is that of the store's environment.
#[derive(Clone)]
pub struct Fixture {
    pub objects: ObjectSim,
    pub env: Env,
    pub store: Store,
}

/// Options of a store in this environment.
pub fn options_in(env: &Env) -> StoreOptions {
    // A store of these tests is opened often, and writes its existence filter each time.
    let existence = ExistenceSize::Growing { first_keys: 1024 };
    StoreOptions { env: env.clone(), existence, ..options(&Sim::new(1)) }
}

/// Options of requests on one thread.
pub fn plain() -> ObjectRequestOptions {
    ObjectRequestOptions { parallel_requests: 1, ..ObjectRequestOptions::default() }
}

/// Options of a backup on one thread.
pub fn backup_options() -> ObjectBackupOptions {
    ObjectBackupOptions { requests: plain(), ..ObjectBackupOptions::default() }
}

impl Fixture {
    pub fn new(seed: u64) -> Fixture {
        let objects = ObjectSim::new(seed);
        let env = objects.env();
        let store = Store::open("/events", options_in(&env)).expect("a new store");
        Fixture { objects, env, store }
    }

    pub fn client(&self) -> Arc<dyn Objects> {
        self.objects.client(1)
    }

    pub fn backup(&self) -> ObjectBackup {
        self.store.object_backup(self.client(), backup_options()).expect("opened")
    }

    /// Events of a restore on a disk of its own.
    pub fn restored(&self, restore_to: RestoreTo) -> Vec<RecordedEvent> {
        restored(&self.objects, restore_to)
    }

    pub fn retain(&self, keep: Duration, dry_run: bool) -> ObjectBackupResult<RetentionReport> {
        let options = RetentionOptions { keep, dry_run, requests: plain() };
        retain(&self.env, self.client(), options)
    }

    fn damage(&self) -> Vec<String> {
        let checked = verify_objects(&self.env, self.client(), plain()).expect("verified");
        checked.damage.iter().map(ToString::to_string).collect()
    }
}

/// Events of a restore on a disk of its own.
pub fn restored(objects: &ObjectSim, restore_to: RestoreTo) -> Vec<RecordedEvent> {
    let env = objects.env();
    let report =
        restore_from_objects(&env, objects.client(9), "/copy".as_ref(), restore_to, plain());
    let report = report.expect("restored");
    let store = Store::open("/copy", options_in(&env)).expect("opened");
    let checked = store.verify().expect("verified");
    assert!(checked.damage.is_empty(), "{:?}", checked.damage);
    let events = all(&store);
    let last = events.last().map_or(0, |event| event.position);
    assert!(report.through.0 >= last, "{report:?} {last}");
    append(&store, "after", 5_000_000..5_000_001);
    events
}

#[test]
fn object_backup_contains_all_earlier_appends() {
    for durability in [Durability::Buffered, Durability::Synced] {
        let objects = ObjectSim::new(1);
        let env = objects.env();
        let store = Store::open("/events", StoreOptions { durability, ..options_in(&env) });
        let fixture = Fixture { objects, env, store: store.expect("a new store") };
        let backup = fixture.backup();
        let empty = backup.run_once().expect("of nothing");
        assert_eq!((empty.through, empty.manifest), (Position::START, 1));
        assert!(fixture.restored(RestoreTo::Latest).is_empty());
        for number in 0..40 {
            append_large(&fixture.store, ["a", "b"][number as usize % 2], number, 5000);
            let report = backup.run_once().expect("backed up");
            let events = all(&fixture.store);
            assert_eq!(events.last().map(|event| event.position), Some(report.through.0));
            assert_eq!((report.manifest, report.created_manifests), (number + 2, 1));
            if number % 7 == 0 {
                assert_eq!(fixture.restored(RestoreTo::Latest), events, "{durability:?}, {number}");
            }
        }
        assert!(fixture.store.stats().expect("stats").chunks > 2, "it went on in other chunks");
        let idle = backup.run_once().expect("nothing is new");
        assert!(idle.requests.is_empty() && idle.created_manifests == 0, "{idle:?}");
        assert_eq!(fixture.damage(), Vec::<String>::new());
        let state = backup.state();
        assert_eq!((state.lag_bytes, state.successes, state.failures), (0, 42, 0));
    }
}

/// Story: the lag was a distance of positions, with the gaps that starts leave, and was of the time
/// of the last run.
#[test]
fn lag_is_in_bytes_of_the_log() {
    let fixture = Fixture::new(21);
    let backup = fixture.backup();
    append(&fixture.store, "a", 0..2);
    let lag = || backup.state().lag_bytes;
    assert!(lag() > 0, "nothing is in the backup");
    let through = backup.run_once().expect("backed up").through;
    assert_eq!(lag(), 0);
    append(&fixture.store, "a", 2..9);
    let visible = fixture.store.visible_position();
    assert_eq!(lag(), fixture.store.log_bytes_between(through, visible));
    assert!(lag() > 0, "{visible:?}");
    backup.run_once().expect("backed up");
    assert_eq!(lag(), 0);
}

#[test]
fn every_position_and_time_is_restored_exactly() {
    let fixture = Fixture::new(2);
    let backup = fixture.backup();
    for number in 0..30 {
        append_large(&fixture.store, ["a", "b"][number as usize % 2], number, 5000);
        fixture.objects.advance(Duration::from_secs(1));
        if number % 3 == 0 {
            backup.run_once().expect("backed up");
        }
    }
    backup.run_once().expect("backed up");
    let events = all(&fixture.store);
    for (index, event) in events.iter().enumerate().step_by(3) {
        for position in [event.position, event.position + 1] {
            let found = fixture.restored(RestoreTo::Position(Position(position)));
            assert_eq!(found, events[..=index], "position {position}");
        }
        let found = fixture.restored(RestoreTo::Time(event.created));
        assert_eq!(found, events[..=index], "time {}", event.created);
        let found = fixture.restored(RestoreTo::Time(event.created - 1));
        assert_eq!(found, events[..index], "before time {}", event.created);
    }
    assert!(fixture.restored(RestoreTo::Position(Position(1))).is_empty());
    assert_eq!(fixture.restored(RestoreTo::Time(u64::MAX)), events);
}

#[test]
fn restore_to_a_position_keeps_appends_whole() {
    let fixture = Fixture::new(3);
    append(&fixture.store, "a", 0..1);
    append(&fixture.store, "a", 1..4);
    fixture.backup().run_once().expect("backed up");
    let events = all(&fixture.store);
    let found = |index: usize| {
        fixture.restored(RestoreTo::Position(Position(events[index].position))).len()
    };
    assert_eq!([found(0), found(1), found(2), found(3)], [1, 1, 1, 4]);
}

/// Story: a script took an empty store for a success. A position inside the first append made one,
/// and so did an end before the first event of a backup whose first state is empty.
#[test]
fn restore_of_events_to_before_the_first_append_is_refused() {
    let fixture = Fixture::new(30);
    let backup = fixture.backup();
    backup.run_once().expect("of nothing");
    let env = fixture.objects.env();
    let restore = |target: &str, end: RestoreTo| {
        let target = Path::new(target);
        restore_events_from_objects(&env, fixture.client(), target, end, plain())
    };
    let of_nothing = restore("/empty", RestoreTo::Position(Position(5))).expect("restored");
    assert_eq!(of_nothing.through, Position::START);
    append(&fixture.store, "a", 0..3);
    append(&fixture.store, "a", 3..4);
    backup.run_once().expect("backed up");
    let events = all(&fixture.store);
    let (first, last) = (&events[0], &events[2]);
    let ends = [
        RestoreTo::Position(Position(0)),
        RestoreTo::Position(Position(first.position)),
        RestoreTo::Position(Position(last.position - 1)),
        RestoreTo::Time(0),
        RestoreTo::Time(first.created - 1),
    ];
    for end in ends {
        match restore("/copy", end).expect_err("no append ends there") {
            ObjectBackupError::NoEvents { position, created } => {
                assert_eq!((position.0, created), (last.position, last.created), "{end:?}");
            }
            other => panic!("{end:?}: {other}"),
        }
        assert!(!env.files.exists(Path::new("/copy")).expect("looked up"), "{end:?}");
    }
    let report = restore("/copy", RestoreTo::Position(Position(last.position))).expect("restored");
    assert_eq!(report.through.0, last.position);
    // The directory is checked before the first append is downloaded.
    let error = restore("/copy", RestoreTo::Position(Position(0))).expect_err("a store is there");
    assert!(error.to_string().contains("holds an event store already"), "{error}");
}

#[test]
fn only_new_bytes_are_uploaded() {
    let fixture = Fixture::new(4);
    let backup = fixture.backup();
    (0..40).for_each(|number| append_large(&fixture.store, "a", number, 6000));
    backup.run_once().expect("backed up");
    let mut uploaded = 0;
    for round in 0..60 {
        append_large(&fixture.store, "b", 1000 + round, 6000);
        let next = backup.run_once().expect("backed up");
        uploaded += next.uploaded_bytes;
        assert!(next.uploaded_objects <= 2, "{next:?}");
    }
    // An event of 6 KB, a footer, a manifest, at times a new chunk, and one full manifest.
    assert!(uploaded <= 60 * (6000 + 600) + 6000, "{uploaded}");
    // A server that starts again continues from the newest manifest.
    let again = fixture.backup();
    append_large(&fixture.store, "b", 2000, 6000);
    let next = again.run_once().expect("backed up");
    assert!(next.uploaded_objects <= 2 && next.uploaded_bytes <= 6000 + 9000, "{next:?}");
    assert_eq!(fixture.restored(RestoreTo::Latest), all(&fixture.store));
}

/// Story: each `umbel backup --to` is a process of its own, and wrote a full manifest. After 1,500
/// runs that had 49 KB, for an event of any length.
#[test]
fn first_manifest_of_a_process_has_only_changes() {
    let fixture = Fixture::new(5);
    let options = ObjectBackupOptions { full_manifest_interval: 20, ..backup_options() };
    let mut lengths = Vec::new();
    for number in 0..60 {
        append(&fixture.store, "a", number..number + 1);
        let process = fixture.store.object_backup(fixture.client(), options.clone());
        process.expect("opened").run_once().expect("backed up");
        let objects = fixture.objects.objects();
        let manifests = objects.range("manifests/".to_string().."manifests0".to_string());
        lengths.push(manifests.last().expect("a manifest").1.len());
    }
    let full = lengths.iter().filter(|length| **length > 1000).count();
    assert!((1..=3).contains(&full), "one of 20 manifests is full: {lengths:?}");
    assert_eq!(fixture.restored(RestoreTo::Latest), all(&fixture.store));
}

#[test]
fn many_small_tails_are_merged() {
    let fixture = Fixture::new(5);
    let options = ObjectBackupOptions { small_tails_max: 8, ..backup_options() };
    let backup = fixture.store.object_backup(fixture.client(), options).expect("opened");
    let mut uploaded = 0;
    for number in 0..100 {
        append(&fixture.store, "a", number..number + 1);
        uploaded += backup.run_once().expect("backed up").uploaded_objects;
    }
    assert_eq!(uploaded, 100, "a merge includes the new bytes");
    let checked = verify_objects(&fixture.env, fixture.client(), plain()).expect("verified");
    assert!(checked.damage.is_empty());
    fixture.objects.set_rates(umbel_sim::FaultRates::none());
    let before = fixture.objects.request_counts()["read"];
    assert_eq!(fixture.restored(RestoreTo::Latest), all(&fixture.store));
    let reads = fixture.objects.request_counts()["read"] - before;
    assert!(reads < 130, "{reads} reads: the manifests since the full one, and few tails");
}

#[test]
fn scavenged_chunks_replace_their_copies() {
    let fixture = Fixture::new(6);
    let backup = fixture.backup();
    for number in 0..40 {
        append_large(&fixture.store, ["gone", "kept"][number as usize % 2], number, 5000);
    }
    backup.run_once().expect("backed up");
    let before = all(&fixture.store);
    fixture.store.delete("gone", umbel_events::ExpectedVersion::Any).expect("deleted");
    append_large(&fixture.store, "kept", 100, 60_000);
    let scavenge = |store: &Store| {
        let options = ScavengeOptions { removes_all: true, ..ScavengeOptions::default() };
        store.scavenge(&options).expect("scavenged")
    };
    scavenge(&fixture.store);
    backup.run_once().expect("backed up");
    let after = all(&fixture.store);
    assert!(after.len() < before.len());
    assert_eq!(fixture.restored(RestoreTo::Latest), after);
    // The earliest manifest that has the position has the removed events, too.
    let last = before.last().expect("events").position;
    assert_eq!(fixture.restored(RestoreTo::Position(Position(last))), before);
    assert_eq!(fixture.damage(), Vec::<String>::new());
    // A new backup has only scavenged chunks; it is cut within one.
    let other = ObjectSim::new(60);
    let backup = fixture.store.object_backup(other.client(1), backup_options()).expect("opened");
    backup.run_once().expect("backed up");
    for (index, event) in after.iter().enumerate().step_by(4) {
        let found = restored(&other, RestoreTo::Position(Position(event.position)));
        assert_eq!(found, after[..=index], "{}", event.position);
    }
}

#[test]
fn prefixes_of_others_are_refused_before_anything_is_written() {
    let fixture = Fixture::new(7);
    append(&fixture.store, "a", 0..3);
    fixture.backup().run_once().expect("backed up");
    let refused = |store: &Store, objects: &ObjectSim, why: &str| {
        let before = objects.objects();
        let opened = store.object_backup(objects.client(2), backup_options());
        let error = opened.expect_err(why);
        assert_eq!(error.kind(), ObjectBackupErrorKind::Stop, "{error}");
        assert!(error.to_string().contains(why), "{error}");
        assert_eq!(objects.objects(), before, "nothing was written");
    };
    let other = Store::open("/other", options_in(&fixture.env)).expect("another store");
    refused(&other, &fixture.objects, "holds the backup of another store");
    let env = fixture.objects.env();
    let path = Path::new("/copy");
    restore_from_objects(&env, fixture.client(), path, RestoreTo::Latest, plain())
        .expect("restored");
    let copy = Store::open("/copy", options_in(&env)).expect("opened");
    refused(&copy, &fixture.objects, "the backup of another copy of this store");
    let foreign = ObjectSim::new(8);
    let name = ObjectName::new("photos/1.jpg").expect("a name");
    foreign.client(1).create(&name, b"x").expect("created");
    refused(&fixture.store, &foreign, "holds photos/1.jpg, but no backup");
    assert!(fixture.objects.damage("BACKUP", ObjectDamage::Missing, 0));
    refused(&fixture.store, &fixture.objects, "but no object BACKUP");
}

/// A virtual machine was set back to a snapshot, and appended more than the backup had before its
/// next run. Each open ends the chunk before, so the chunk is shorter than its copy.
#[test]
fn store_that_was_set_back_does_not_continue_the_backup_of_its_later_history() {
    let (sim, objects) = (Sim::new(1), ObjectSim::new(19));
    let open = |sim: &Sim| Store::open("/events", options(sim)).expect("opened");
    let back_up = |store: &Store| {
        let backup = store.object_backup(objects.client(1), backup_options()).expect("opened");
        backup.run_once().map(|report| report.through)
    };
    let store = open(&sim);
    append_large(&store, "a", 0, 1000);
    back_up(&store).expect("backed up");
    let snapshot = sim.clone_disk();
    append_large(&store, "a", 1, 1000);
    back_up(&store).expect("backed up");
    let events = all(&store);
    let restarted = sim.clone_disk();
    let set_back = open(&snapshot);
    (10..13).for_each(|number| append_large(&set_back, "a", number, 1000));
    let error = back_up(&set_back).expect_err("another history").to_string();
    assert!(error.contains("it has another end of chunk 1"), "{error}");
    assert_eq!(restored(&objects, RestoreTo::Latest), events);
    // The store itself goes on after a restart.
    let store = open(&restarted);
    append_large(&store, "a", 20, 1000);
    back_up(&store).expect("backed up");
    assert_eq!(restored(&objects, RestoreTo::Latest), all(&store));
}

#[test]
fn older_of_two_servers_stops_for_good() {
    let fixture = Fixture::new(9);
    append(&fixture.store, "a", 0..3);
    let first = fixture.backup();
    first.run_once().expect("backed up");
    let second = fixture.backup();
    append(&fixture.store, "a", 3..4);
    second.run_once().expect("backed up");
    append(&fixture.store, "a", 4..5);
    for _ in 0..2 {
        let error = first.run_once().expect_err("the other one has the number");
        assert!(error.to_string().contains("another server backs up to"), "{error}");
        assert_eq!(error.kind(), ObjectBackupErrorKind::Stop);
    }
    second.run_once().expect("backed up");
    assert_eq!(fixture.restored(RestoreTo::Latest), all(&fixture.store));
    assert_eq!(first.state().failures_in_row, 2);
}

#[test]
fn verification_reports_damage_and_what_remains_restorable() {
    let fixture = Fixture::new(10);
    let backup = fixture.backup();
    for number in 0..20 {
        append_large(&fixture.store, "a", number, 8000);
        backup.run_once().expect("backed up");
    }
    let names: Vec<String> = fixture.objects.objects().into_keys().collect();
    let mut pieces = 0;
    for name in names.iter().filter(|name| *name != "BACKUP") {
        for damage in [ObjectDamage::Flip, ObjectDamage::Cut, ObjectDamage::Missing] {
            let copy = ObjectSim::new(11);
            for (name, bytes) in fixture.objects.objects() {
                let name = ObjectName::new(name).expect("a name");
                copy.client(1).create(&name, &bytes).expect("copied");
            }
            assert!(copy.damage(name, damage, 777), "{name} {damage:?}");
            let checked = verify_objects(&fixture.env, copy.client(1), plain()).expect("verified");
            let text: Vec<_> = checked.damage.iter().map(ToString::to_string).collect();
            let is_missing_newest = name.ends_with("00020") && damage == ObjectDamage::Missing;
            let is_named = text.iter().any(|text| text.contains(name));
            assert!(is_named || is_missing_newest, "{name} {damage:?}: {text:?}");
            pieces += usize::from(!name.starts_with("manifests"));
            for range in &checked.restorable {
                for manifest in [range.first_through, range.last_through] {
                    let events = restored(&copy, RestoreTo::Position(manifest));
                    assert_eq!(events.last().map(|event| event.position), Some(manifest.0));
                }
            }
            let is_whole = checked.restorable.len() == 1 && checked.restorable[0].last == 20;
            assert!(!is_whole || is_missing_newest || checked.restorable[0].first > 1, "{name}");
        }
    }
    assert!(pieces > 20);
    let whole = verify_objects(&fixture.env, fixture.client(), plain()).expect("verified");
    assert_eq!((whole.restorable.len(), whole.restorable[0].last), (1, 20));
}

#[test]
fn damaged_local_record_is_never_uploaded() {
    let fixture = Fixture::new(12);
    let backup = fixture.backup();
    append_large(&fixture.store, "a", 0, 5000);
    let good = backup.run_once().expect("backed up");
    let events = all(&fixture.store);
    append_large(&fixture.store, "a", 1, 5000);
    fixture.store.backup("/sync", Default::default()).expect("durable");
    let path = Path::new("/events/log/00000001.chunk");
    let file = fixture.env.files.open(path, umbel_env::Access::ReadWrite).expect("the chunk");
    let offset = good.through.0 + 5000 + 1000;
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).expect("read");
    file.write_all_at(&[byte[0] ^ 1], offset).expect("damaged");
    let error = backup.run_once().expect_err("the record is damaged");
    let text = error.to_string();
    assert!(text.contains("00000001.chunk") && text.contains("at byte"), "{text}");
    assert_eq!(error.kind(), ObjectBackupErrorKind::Stop);
    assert_eq!(fixture.store.stats().expect("stats").damage_errors, 1);
    assert_eq!(fixture.restored(RestoreTo::Latest), events);
    file.write_all_at(&byte, offset).expect("repaired");
    backup.run_once().expect("backed up");
    assert_eq!(fixture.restored(RestoreTo::Latest), all(&fixture.store));
}

/// Advances the clock of an object store, and backs up something new.
fn back_up_later(fixture: &Fixture, backup: &ObjectBackup, number: u64, seconds: u64) {
    fixture.objects.advance(Duration::from_secs(seconds));
    append_large(&fixture.store, "a", number, 8000);
    backup.run_once().expect("backed up");
}

#[test]
fn retention_keeps_every_moment_of_the_kept_time() {
    let fixture = Fixture::new(13);
    let options = ObjectBackupOptions { full_manifest_interval: 2, ..backup_options() };
    let backup = fixture.store.object_backup(fixture.client(), options).expect("opened");
    (0..30).for_each(|number| back_up_later(&fixture, &backup, number, 3600));
    let scavenge = ScavengeOptions { removes_all: true, ..ScavengeOptions::default() };
    fixture.store.delete("a", umbel_events::ExpectedVersion::Any).expect("deleted");
    let events = all(&fixture.store);
    fixture.store.scavenge(&scavenge).expect("scavenged");
    (100..130).for_each(|number| back_up_later(&fixture, &backup, number, 3600));
    let hours = |hours: u64| Duration::from_secs(hours * 3600);
    let run = |keep, dry_run| fixture.retain(keep, dry_run).expect("retained");
    let before = fixture.objects.objects();
    assert_eq!(run(hours(100), false).deleted_manifests, 0, "everything is younger");
    assert_eq!(fixture.objects.objects().keys().collect::<Vec<_>>(), {
        before.keys().collect::<Vec<_>>()
    });
    // The removed events are in pieces that the kept manifests still name.
    let copies = backup.remaining_copies().expect("listed");
    assert!(!copies.is_empty() && copies.iter().all(|copy| !copy.is_current), "{copies:?}");
    let last = events[20].position;
    assert_eq!(fixture.restored(RestoreTo::Position(Position(last))), events[..=20]);
    let dry = run(hours(10), true);
    assert_eq!(fixture.objects.objects(), before, "a dry run deletes nothing");
    let done = run(hours(10), false);
    assert_eq!(done, dry);
    assert!(done.first_manifest > 40 && done.deleted_manifests == done.first_manifest - 1);
    assert!(done.deleted_pieces > 20, "{done:?}");
    assert_eq!(fixture.damage(), Vec::<String>::new());
    assert!(backup.remaining_copies().expect("listed").is_empty());
    assert_eq!(fixture.restored(RestoreTo::Latest), all(&fixture.store));
    // A second retention has nothing to do, and the backup goes on.
    let again = run(hours(10), false);
    assert_eq!((again.deleted_manifests, again.deleted_pieces), (0, 0));
    back_up_later(&fixture, &backup, 200, 1);
    assert_eq!(fixture.restored(RestoreTo::Latest), all(&fixture.store));
}

/// An operator restored a damaged manifest from a version, as the error advises. The object store
/// then lists it as younger than pieces of later manifests, and a retention deleted those pieces.
#[test]
fn restored_manifest_does_not_make_pieces_of_later_ones_expire() {
    let fixture = Fixture::new(21);
    let options = ObjectBackupOptions { small_tails_max: 4, ..backup_options() };
    let backup = fixture.store.object_backup(fixture.client(), options).expect("opened");
    (0..30).for_each(|number| back_up_later(&fixture, &backup, number, 3600));
    let name = ObjectName::new(format!("manifests/{:020}", 1)).expect("a name");
    let bytes = fixture.objects.objects()[name.as_str()].clone();
    fixture.client().delete(&name).expect("deleted");
    fixture.client().create(&name, &bytes).expect("restored");
    (30..35).for_each(|number| back_up_later(&fixture, &backup, number, 3600));
    let before = fixture.objects.objects();
    let done = fixture.retain(Duration::from_secs(60), false).expect("retained");
    assert_eq!((done.first_manifest, done.deleted_pieces), (1, 0), "it is the only full one");
    let lost = before.keys().find(|name| !fixture.objects.objects().contains_key(*name));
    assert_eq!(lost, None);
    assert_eq!(fixture.damage(), Vec::<String>::new());
    assert_eq!(fixture.restored(RestoreTo::Latest), all(&fixture.store));
}

/// Story: the clock of an object store was corrected by hours. The pieces of later manifests were
/// older than the first one, and a retention deleted them.
#[test]
fn retention_keeps_pieces_of_after_the_clock_went_back() {
    let fixture = Fixture::new(23);
    let options = ObjectBackupOptions { small_tails_max: 2, ..backup_options() };
    let backup = fixture.store.object_backup(fixture.client(), options).expect("opened");
    back_up_later(&fixture, &backup, 0, 60);
    fixture.objects.shift_store_clock(-5 * 3_600_000_000);
    (1..12).for_each(|number| back_up_later(&fixture, &backup, number, 60));
    let done = fixture.retain(Duration::from_secs(30 * 24 * 3600), false).expect("retained");
    assert_eq!((done.first_manifest, done.deleted_pieces), (1, 0));
    assert_eq!(fixture.damage(), Vec::<String>::new());
    assert_eq!(fixture.restored(RestoreTo::Latest), all(&fixture.store));
}

/// One machine of an object store, or a proxy, stated a time of next year.
#[test]
fn wrong_time_of_the_object_store_does_not_expire_everything() {
    let fixture = Fixture::new(22);
    let options = ObjectBackupOptions { full_manifest_interval: 1, ..backup_options() };
    let backup = fixture.store.object_backup(fixture.client(), options).expect("opened");
    (0..6).for_each(|number| back_up_later(&fixture, &backup, number, 36_000));
    let year: i64 = 365 * 24 * 3_600_000_000;
    fixture.objects.shift_store_clock(year);
    let time = ObjectName::new("probe/time").expect("a name");
    fixture.client().create(&time, b"").expect("created");
    let done = fixture.retain(Duration::from_secs(30 * 24 * 3600), false).expect("retained");
    assert_eq!((done.first_manifest, done.deleted_manifests), (1, 0));
}

#[test]
fn retention_deletes_nothing_if_a_kept_piece_is_missing() {
    let fixture = Fixture::new(14);
    let options = ObjectBackupOptions { full_manifest_interval: 1, ..backup_options() };
    let backup = fixture.store.object_backup(fixture.client(), options).expect("opened");
    (0..6).for_each(|number| back_up_later(&fixture, &backup, number, 36_000));
    let names: Vec<String> = fixture.objects.objects().into_keys().collect();
    let piece = names.iter().find(|name| name.starts_with("tails/")).expect("a tail");
    assert!(fixture.objects.damage(piece, ObjectDamage::Missing, 0));
    let before = fixture.objects.objects();
    let error = fixture.retain(Duration::ZERO, false).expect_err("damaged");
    assert!(error.to_string().contains(piece.as_str()), "{error}");
    assert_eq!(fixture.objects.objects(), before);
}

#[test]
fn interrupted_restore_resumes_and_another_one_is_refused() {
    let fixture = Fixture::new(15);
    let backup = fixture.backup();
    (0..60).for_each(|number| append_large(&fixture.store, "a", number, 6000));
    backup.run_once().expect("backed up");
    let (objects, env) = (&fixture.objects, fixture.objects.env());
    let path = Path::new("/copy");
    let cancel = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let cancelled = ObjectRequestOptions { cancel: Some(Arc::clone(&cancel)), ..plain() };
    let client = Arc::new(CancellingObjects { inner: objects.client(3), cancel, after: 6.into() });
    let error = restore_from_objects(&env, client, path, RestoreTo::Latest, cancelled)
        .expect_err("cancelled");
    assert_eq!(error.kind(), ObjectBackupErrorKind::Cancelled, "{error}");
    let message = Store::open(path, options_in(&env)).expect_err("no store").to_string();
    assert!(message.contains("restore"), "{message}");
    let other = RestoreTo::Position(Position(1));
    let error = restore_from_objects(&env, objects.client(3), path, other, plain());
    let error = error.expect_err("another restore").to_string();
    assert!(error.contains("an interrupted restore of another backup"), "{error}");
    let events = all(&fixture.store);
    append_large(&fixture.store, "a", 60, 6000);
    // Regression: the backup went on, so the restore was refused as that of another manifest.
    backup.run_once().expect("backed up");
    let before = objects.request_counts()["read"];
    let report = restore_from_objects(&env, objects.client(3), path, RestoreTo::Latest, plain());
    assert!(report.expect("restored").is_resumed);
    let resumed = objects.request_counts()["read"] - before;
    let store = Store::open(path, options_in(&env)).expect("opened");
    assert_eq!(all(&store), events);
    let before = objects.request_counts()["read"];
    fixture.restored(RestoreTo::Latest);
    let whole = objects.request_counts()["read"] - before;
    assert!(resumed < whole, "{resumed} of {whole} reads: complete files are kept");
}

/// Sets the cancellation flag after a number of reads.
#[derive(Debug)]
struct CancellingObjects {
    inner: Arc<dyn Objects>,
    cancel: Arc<std::sync::atomic::AtomicBool>,
    after: std::sync::atomic::AtomicU64,
}

impl Objects for CancellingObjects {
    umbel_env::delegate_object_calls!(inner: location create create_concurrently put list delete);

    fn read(&self, name: &ObjectName, range: Range<u64>) -> ObjectResult<Option<ObjectBytes>> {
        use std::sync::atomic::Ordering;
        if self.after.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.cancel.store(true, Ordering::Relaxed);
        }
        self.inner.read(name, range)
    }
}

/// Lets a writer create the manifests with these numbers, and a retention delete all earlier ones.
/// REQUIRES: the writer creates full manifests only.
fn take_over_and_retain(
    fixture: &Fixture,
    writer: &ObjectBackup,
    manifests: RangeInclusive<u64>,
) -> RetentionReport {
    let last = *manifests.end();
    for manifest in manifests {
        append_large(&fixture.store, "a", manifest, 60_000);
        assert_eq!(writer.run_once().expect("backed up").manifest, manifest);
    }
    fixture.env.threads.pause(Duration::from_secs(10));
    let retained = fixture.retain(Duration::ZERO, false).expect("retained");
    assert_eq!(retained.first_manifest, last);
    retained
}

/// Story: one writer was idle while another one took the prefix over, and a retention deleted the
/// oldest manifests. Their numbers were free again, so the first writer went on there and reported
/// success. No restore had its events.
#[test]
fn writer_does_not_go_on_at_numbers_that_a_retention_freed() {
    let fixture = Fixture::new(23);
    let options = ObjectBackupOptions { full_manifest_interval: 1, ..backup_options() };
    let open = || fixture.store.object_backup(fixture.client(), options.clone()).expect("opened");
    let (first, second) = (open(), open());
    append_large(&fixture.store, "a", 0, 60_000);
    assert_eq!(first.run_once().expect("backed up").manifest, 1);
    assert_eq!(take_over_and_retain(&fixture, &second, 2..=4).deleted_manifests, 3);
    append_large(&fixture.store, "a", 9, 60_000);
    let before = first.state();
    let error = first.run_once().expect_err("the events are in no backup that counts");
    assert!(error.to_string().contains("another server backs up to"), "{error}");
    // Story: the state was that of the manifest that does not count, so no lag was reported.
    let state = first.state();
    assert_eq!((state.manifest, state.through), (before.manifest, before.through));
    assert!(state.lag_bytes > 60_000, "{state:?}");
    let report = second.run_once().expect("backed up");
    assert_eq!((report.manifest, report.through), (5, fixture.store.visible_position()));
}

/// Story: a rule of the bucket had deleted the floor as well, so that no number looked freed.
#[test]
fn writer_does_not_go_on_at_freed_numbers_without_their_floor() {
    for full_manifest_interval in [1, 64] {
        let fixture = Fixture::new(31);
        let taking_over = ObjectBackupOptions { full_manifest_interval: 1, ..backup_options() };
        let options = ObjectBackupOptions { full_manifest_interval, ..backup_options() };
        let first = fixture.store.object_backup(fixture.client(), options).expect("opened");
        let second = fixture.store.object_backup(fixture.client(), taking_over).expect("opened");
        append_large(&fixture.store, "a", 0, 60_000);
        assert_eq!(first.run_once().expect("backed up").manifest, 1);
        take_over_and_retain(&fixture, &second, 2..=4);
        let floor = ObjectName::new(format!("floors/{:020}", 4)).expect("a name");
        fixture.client().delete(&floor).expect("deleted");
        append_large(&fixture.store, "a", 9, 60_000);
        let error = first.run_once().expect_err("no restore has the events");
        assert!(error.to_string().contains("another server backs up to"), "{error}");
    }
}

/// Story: the later writer created several manifests at freed numbers in its first run, and stopped
/// for good when it met one of the earlier writer. The later writer is the one that goes on.
#[test]
fn later_writer_begins_again_after_its_first_manifests_did_not_count() {
    let fixture = Fixture::new(33);
    let options = ObjectBackupOptions { full_manifest_interval: 1, ..backup_options() };
    let earlier = fixture.store.object_backup(fixture.client(), options).expect("opened");
    append_large(&fixture.store, "a", 0, 60_000);
    earlier.run_once().expect("backed up");
    let overtaking = OvertakenObjects {
        inner: fixture.client(),
        overtake: Mutex::new(Some(Box::new({
            let fixture = fixture.clone();
            move || {
                take_over_and_retain(&fixture, &earlier, 2..=4);
            }
        }))),
    };
    let options = ObjectBackupOptions { manifest_bytes: 1, ..backup_options() };
    let later = fixture.store.object_backup(Arc::new(overtaking), options).expect("opened");
    (5..12).for_each(|number| append_large(&fixture.store, "a", number, 60_000));
    let report = later.run_once().expect("backed up");
    assert_eq!(report.through, fixture.store.visible_position());
    assert_eq!(fixture.restored(RestoreTo::Latest), all(&fixture.store));
}

/// Runs a function before the first object is written.
struct OvertakenObjects {
    inner: Arc<dyn Objects>,
    overtake: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl std::fmt::Debug for OvertakenObjects {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("OvertakenObjects")
    }
}

impl Objects for OvertakenObjects {
    umbel_env::delegate_object_calls!(inner: location create create_concurrently read list delete);

    fn put(&self, name: &ObjectName, source: &dyn ObjectSource) -> ObjectResult<()> {
        let overtake = self.overtake.lock().expect("not poisoned").take();
        overtake.into_iter().for_each(|overtake| overtake());
        self.inner.put(name, source)
    }
}

/// Story: a writer looked whether the manifest before its own still exists. A late creation, or an
/// operator, had brought that one back after its deletion. So the writer went on below the floor.
#[test]
fn restored_manifest_below_the_floor_does_not_let_its_writer_go_on() {
    let fixture = Fixture::new(25);
    let options = ObjectBackupOptions { full_manifest_interval: 1, ..backup_options() };
    let open = || fixture.store.object_backup(fixture.client(), options.clone()).expect("opened");
    let (first, second) = (open(), open());
    append_large(&fixture.store, "a", 0, 60_000);
    assert_eq!(first.run_once().expect("backed up").manifest, 1);
    let name = ObjectName::new(format!("manifests/{:020}", 1)).expect("a name");
    let bytes = fixture.objects.objects()[name.as_str()].clone();
    take_over_and_retain(&fixture, &second, 2..=4);
    fixture.client().create(&name, &bytes).expect("brought back");
    append_large(&fixture.store, "a", 9, 60_000);
    let error = first.run_once().expect_err("the events are in no backup that counts");
    assert!(error.to_string().contains("another server backs up to"), "{error}");
    second.run_once().expect("backed up");
    assert_eq!(fixture.restored(RestoreTo::Latest), all(&fixture.store));
}

/// Story: a list of a directory is no snapshot. A retention created a floor and deleted the one
/// before while an idle writer listed the floors, so the list had neither. The manifest before the
/// writer's own one was there, since a late creation had brought it back.
#[test]
fn writer_finds_a_floor_although_a_retention_runs_during_its_list() {
    let fixture = Fixture::new(34);
    let objects = Arc::new(ListedObjects::new(&fixture));
    let first = full_writer(&fixture, objects.clone());
    append_large(&fixture.store, "a", 0, 60_000);
    assert_eq!(first.run_once().expect("backed up").manifest, 1);
    let bring_back = bring_back_later(&fixture, 1);
    take_over_and_retain(&fixture, &full_writer(&fixture, fixture.client()), 2..=4);
    let during = fixture.clone();
    objects.run_during_list(move || {
        take_over_and_retain(&during, &full_writer(&during, during.client()), 5..=5);
        bring_back();
    });
    append_large(&fixture.store, "a", 9, 60_000);
    let error = first.run_once().expect_err("the events are in no backup that counts");
    assert!(error.to_string().contains("another server backs up to"), "{error}");
    assert!(objects.has_run(), "a list of the floors was divided");
}

/// As above, with two whole retentions during the list, which lacks a floor that the writer has
/// seen.
#[test]
fn writer_lists_again_without_a_floor_that_it_has_seen() {
    let fixture = Fixture::new(35);
    let objects = Arc::new(ListedObjects::new(&fixture));
    let first = full_writer(&fixture, objects.clone());
    take_over_and_retain(&fixture, &first, 1..=2);
    append_large(&fixture.store, "a", 3, 60_000);
    assert_eq!(first.run_once().expect("it sees the floor 2").manifest, 3);
    let bring_back = bring_back_later(&fixture, 3);
    // The first manifest of each writer is full, whatever its length.
    let take_over = |fixture: &Fixture, manifest: u64| {
        let writer = full_writer(fixture, fixture.client());
        take_over_and_retain(fixture, &writer, manifest..=manifest);
    };
    (4..=5).for_each(|manifest| take_over(&fixture, manifest));
    let during = fixture.clone();
    objects.run_during_list(move || {
        (6..=7).for_each(|manifest| take_over(&during, manifest));
        bring_back();
    });
    append_large(&fixture.store, "a", 9, 60_000);
    let error = first.run_once().expect_err("the events are in no backup that counts");
    assert!(error.to_string().contains("another server backs up to"), "{error}");
    assert!(objects.has_run(), "a list of the floors was divided");
}

/// Opens a writer of full manifests.
fn full_writer(fixture: &Fixture, objects: Arc<dyn Objects>) -> ObjectBackup {
    let options = ObjectBackupOptions { full_manifest_interval: 1, ..backup_options() };
    fixture.store.object_backup(objects, options).expect("opened")
}

/// Returns a function that creates a manifest again with the bytes that it has now.
fn bring_back_later(fixture: &Fixture, manifest: u64) -> Box<dyn FnOnce() + Send> {
    let name = ObjectName::new(format!("manifests/{manifest:020}")).expect("a name");
    let bytes = fixture.objects.objects()[name.as_str()].clone();
    let client = fixture.client();
    Box::new(move || {
        let answer = client.create(&name, &bytes).expect("brought back");
        assert_eq!(answer.value, Creation::Created);
    })
}

/// Runs a function during the next list of floors. The list then has only what guarantee 5 demands:
/// the floors that exist before and after the function.
struct ListedObjects {
    inner: Arc<dyn Objects>,
    during: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl ListedObjects {
    fn new(fixture: &Fixture) -> ListedObjects {
        ListedObjects { inner: fixture.client(), during: Mutex::default() }
    }

    fn run_during_list(&self, function: impl FnOnce() + Send + 'static) {
        *self.during.lock().expect("not poisoned") = Some(Box::new(function));
    }

    fn has_run(&self) -> bool {
        self.during.lock().expect("not poisoned").is_none()
    }
}

impl std::fmt::Debug for ListedObjects {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("ListedObjects")
    }
}

impl Objects for ListedObjects {
    umbel_env::delegate_object_calls!(inner: location create create_concurrently put read delete);

    fn list(&self, prefix: &str, after: Option<&str>, count: usize) -> ObjectResult<ListPage> {
        let mut before = self.inner.list(prefix, after, count)?;
        if prefix != "floors/" {
            return Ok(before);
        }
        let during = self.during.lock().expect("not poisoned").take();
        if let Some(during) = during {
            during();
            let later = self.inner.list(prefix, after, count)?.value.objects;
            before.value.objects.retain(|floor| later.iter().any(|other| other.name == floor.name));
        }
        Ok(before)
    }
}

/// Story: a rule of the bucket deleted the newest manifest. The next one stated only what changed
/// since, and the run reported success, but nothing could be restored.
#[test]
fn run_after_the_loss_of_the_newest_manifest_creates_a_full_one() {
    let fixture = Fixture::new(27);
    let backup = fixture.backup();
    for manifest in 1..=3 {
        append_large(&fixture.store, "a", manifest, 60_000);
        assert_eq!(backup.run_once().expect("backed up").manifest, manifest);
    }
    let name = ObjectName::new(format!("manifests/{:020}", 3)).expect("a name");
    fixture.client().delete(&name).expect("deleted");
    append_large(&fixture.store, "a", 4, 60_000);
    let report = backup.run_once().expect("backed up");
    assert_eq!((report.manifest, report.created_manifests), (5, 2), "4 builds on the lost one");
    assert_eq!(report.through, fixture.store.visible_position());
    assert_eq!(fixture.restored(RestoreTo::Latest), all(&fixture.store));
    append_large(&fixture.store, "a", 5, 60_000);
    assert_eq!(backup.run_once().expect("backed up").manifest, 6);
    assert_eq!(fixture.restored(RestoreTo::Latest), all(&fixture.store));
}

/// Story: as above, and another writer had created a manifest with the number of the lost one.
#[test]
fn writer_stops_if_the_manifest_before_its_own_is_that_of_another_writer() {
    let fixture = Fixture::new(29);
    let (first, second) = (fixture.backup(), fixture.backup());
    for manifest in 1..=2 {
        append_large(&fixture.store, "a", manifest, 60_000);
        assert_eq!(first.run_once().expect("backed up").manifest, manifest);
    }
    let name = ObjectName::new(format!("manifests/{:020}", 2)).expect("a name");
    fixture.client().delete(&name).expect("deleted");
    append_large(&fixture.store, "a", 3, 60_000);
    assert_eq!(second.run_once().expect("backed up").manifest, 2);
    append_large(&fixture.store, "a", 4, 60_000);
    let error = first.run_once().expect_err("its manifest builds on a lost one");
    assert!(error.to_string().contains("another server backs up to"), "{error}");
}

#[test]
fn expired_credentials_and_an_outage_are_errors_of_their_kinds() {
    let fixture = Fixture::new(17);
    append(&fixture.store, "a", 0..3);
    let backup = fixture.backup();
    fixture.objects.expire_credentials(true);
    let error = backup.run_once().expect_err("expired");
    assert_eq!(error.kind(), ObjectBackupErrorKind::Stop, "{error}");
    fixture.objects.expire_credentials(false);
    let outage = umbel_sim::FaultRates::none().with(umbel_sim::ObjectFault::LostRequest, 1000);
    fixture.objects.set_rates(outage);
    let error = backup.run_once().expect_err("an outage");
    assert_eq!(error.kind(), ObjectBackupErrorKind::Retry, "{error}");
    assert_eq!(backup.state().failures_in_row, 2);
    fixture.objects.set_rates(umbel_sim::FaultRates::none());
    backup.run_once().expect("backed up");
    assert_eq!((backup.state().failures_in_row, backup.state().last_error), (0, None));
    assert_eq!(fixture.restored(RestoreTo::Latest), all(&fixture.store));
}

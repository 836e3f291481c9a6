//! Backups into a simulated object store: they hold all writes, upload only new files, are restored
//! to the state of any run, and refuse prefixes of other stores and processes.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use umbel::{
    BackupError, BackupErrorKind, Db, Env, KeyspaceOptions, ObjectBackup, ObjectBackupOptions,
    ObjectRequestOptions, Options, RestoreTo, RetentionOptions, check_restorable,
    restore_from_objects, retain, verify_objects,
};
use umbel_env::{ObjectBytes, ObjectName, ObjectResult, ObjectSource, Objects};
use umbel_sim::{ObjectDamage, ObjectSim};

use super::fixture::{PATH, all, existing, fill, inline, key, tiny, unlogged};

/// All entries of all keyspaces.
pub type Contents = BTreeMap<String, Vec<(Vec<u8>, Vec<u8>)>>;

/// Entries of all keyspaces of a store.
pub fn contents(db: &Db) -> Contents {
    let entries = |name: String| {
        let entries = all(&existing(db, &name));
        (name, entries)
    };
    db.keyspaces().into_iter().map(entries).collect()
}

/// A store, and an object store whose clock is that of the store's environment.
pub struct Fixture {
    pub objects: ObjectSim,
    pub env: Env,
    pub db: Db,
}

/// Options of a store with few inline bytes, so that small values have files of their own.
pub fn options_in(env: &Env) -> Options {
    Options { inline_value_bytes_max: 500, ..inline(env) }
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
        let db = Db::open(PATH, options_in(&env)).expect("a new store");
        Fixture { objects, env, db }
    }

    fn keyspace(&self, name: &str) -> umbel::Keyspace {
        self.db.keyspace(name, tiny()).expect("a keyspace")
    }

    fn client(&self) -> Arc<dyn Objects> {
        self.objects.client(1)
    }

    fn backup(&self) -> ObjectBackup {
        self.db.object_backup(self.client(), backup_options()).expect("opened")
    }

    fn restored(&self, restore_to: RestoreTo) -> Contents {
        restored(&self.objects, restore_to).expect("restored")
    }

    fn damage(&self) -> Vec<String> {
        let checked = verify_objects(&self.env, self.client(), plain()).expect("verified");
        checked.damage.iter().map(ToString::to_string).collect()
    }
}

/// Contents of a store that is restored on a disk of its own.
pub fn restored(objects: &ObjectSim, restore_to: RestoreTo) -> Result<Contents, BackupError> {
    let env = objects.env();
    let path = Path::new("/copy");
    restore_from_objects(&env, objects.client(9), path, restore_to, plain())?;
    let db = Db::open(path, options_in(&env))?;
    let checked = db.verify()?;
    assert!(checked.damage.is_empty(), "{:?}", checked.damage);
    let found = contents(&db);
    db.keyspace("after", None)?.put("a", "write")?;
    db.flush()?;
    Ok(found)
}

#[test]
fn object_backup_contains_all_earlier_writes() {
    let fixture = Fixture::new(1);
    let backup = fixture.backup();
    let empty = backup.run_once().expect("of nothing");
    assert_eq!((empty.manifest, empty.uploaded_objects), (1, 0));
    assert!(fixture.restored(RestoreTo::Latest).is_empty());
    let (users, logless) = (fixture.keyspace("users"), fixture.db.keyspace("u", unlogged()));
    let logless = logless.expect("a keyspace");
    for round in 0..30 {
        fill(&users, round * 20..round * 20 + 60, round);
        logless.put(key(round), "unlogged").expect("put");
        users.put(format!("long-{}", round % 7), vec![round as u8; 3000]).expect("put");
        users.delete_range(key(round * 10), key(round * 10 + 5)).expect("deleted");
        if round == 20 {
            fixture.db.drop_keyspace("u").expect("dropped");
            fixture.db.keyspace("v", KeyspaceOptions::default()).expect("a keyspace");
        }
        let report = match round < 20 {
            true => backup.run_once().expect("backed up"),
            false => fixture.backup().run_once().expect("backed up"),
        };
        assert_eq!((report.manifest, report.created_manifests), (round as u64 + 2, 1));
        assert_eq!(fixture.restored(RestoreTo::Latest), contents(&fixture.db), "round {round}");
        if round == 20 {
            break;
        }
    }
    assert_eq!(fixture.damage(), Vec::<String>::new());
    let state = backup.state();
    assert_eq!((state.missing_bytes, state.successes, state.failures), (0, 21, 0));
}

#[test]
fn only_new_files_are_uploaded_and_an_idle_run_makes_no_request() {
    let fixture = Fixture::new(2);
    let backup = fixture.backup();
    let users = fixture.keyspace("users");
    fill(&users, 0..2000, 0);
    users.compact(None, None).expect("compacted");
    let whole = backup.run_once().expect("backed up");
    assert!(whole.uploaded_objects > 10, "{whole:?}");
    let idle = backup.run_once().expect("nothing is new");
    assert!(idle.requests.is_empty() && idle.created_manifests == 0, "{idle:?}");
    fill(&users, 5000..5010, 1);
    let next = backup.run_once().expect("backed up");
    assert!(next.uploaded_objects <= 12, "{next:?}");
    assert!(next.uploaded_bytes < whole.uploaded_bytes / 3, "{next:?} after {whole:?}");
    // A compaction changes the files, and nothing else.
    users.compact(None, None).expect("compacted");
    let compacted = backup.run_once().expect("backed up");
    assert_eq!(compacted.created_manifests, 1, "{compacted:?}");
    assert_eq!(compacted.last_sequence, next.last_sequence);
    assert!(backup.run_once().expect("nothing is new").requests.is_empty());
    assert_eq!(fixture.restored(RestoreTo::Latest), contents(&fixture.db));
    // A process that starts again continues from the newest manifest.
    let again = fixture.backup().run_once().expect("backed up");
    assert_eq!((again.created_manifests, again.uploaded_objects), (0, 0), "{again:?}");
}

#[test]
fn state_of_every_run_is_restored_exactly() {
    let fixture = Fixture::new(3);
    let options = ObjectBackupOptions { full_manifest_interval: 4, ..backup_options() };
    let backup = fixture.db.object_backup(fixture.client(), options).expect("opened");
    let users = fixture.keyspace("users");
    let mut runs = Vec::new();
    for round in 0..25 {
        fixture.objects.advance(Duration::from_secs(10));
        fill(&users, round * 7..round * 7 + 40, round);
        users.delete(key(round * 3)).expect("deleted");
        let report = backup.run_once().expect("backed up");
        runs.push((report.captured_micros, report.manifest, contents(&fixture.db)));
    }
    for (micros, manifest, expected) in &runs {
        let of = |restore_to| fixture.restored(restore_to);
        assert_eq!(of(RestoreTo::Time(*micros)), *expected, "at {micros}");
        assert_eq!(of(RestoreTo::Time(micros + 9_000_000)), *expected, "after {micros}");
        assert_eq!(of(RestoreTo::Manifest(*manifest)), *expected, "manifest {manifest}");
    }
    let early = RestoreTo::Time(runs[0].0 - 1);
    let error = restored(&fixture.objects, early).expect_err("before the first run");
    assert!(error.to_string().contains("no state of that time or before"), "{error}");
    // Story: no message named the time of the first state.
    let check = |end| check_restorable(&fixture.env, fixture.client(), end, plain());
    match check(early) {
        Err(BackupError::NoState { first_micros, .. }) => assert_eq!(first_micros, runs[0].0),
        other => panic!("{other:?}"),
    }
    check(RestoreTo::Time(runs[0].0)).expect("the first run");
    let error = restored(&fixture.objects, RestoreTo::Manifest(26)).expect_err("too high");
    assert!(error.to_string().contains("has no manifest 26"), "{error}");
    let range = verify_objects(&fixture.env, fixture.client(), plain()).expect("verified");
    let range = &range.restorable;
    assert_eq!((range.len(), range[0].first, range[0].last), (1, 1, 25));
    assert_eq!((range[0].first_wall_micros, range[0].last_wall_micros), (runs[0].0, runs[24].0));
}

#[test]
fn prefixes_of_others_are_refused_before_anything_is_written() {
    let fixture = Fixture::new(4);
    fill(&fixture.keyspace("users"), 0..50, 0);
    fixture.backup().run_once().expect("backed up");
    let refused = |db: &Db, objects: &ObjectSim, why: &str| {
        let before = objects.objects();
        let error = db.object_backup(objects.client(2), backup_options()).expect_err(why);
        assert_eq!(error.kind(), BackupErrorKind::Stop, "{error}");
        assert!(error.to_string().contains(why), "{error}");
        assert_eq!(objects.objects(), before, "nothing was written");
    };
    let other = Db::open("/other", options_in(&fixture.env)).expect("another store");
    refused(&other, &fixture.objects, "holds the backup of another store");
    let env = fixture.objects.env();
    restore_from_objects(&env, fixture.client(), "/copy".as_ref(), RestoreTo::Latest, plain())
        .expect("restored");
    let copy = Db::open("/copy", options_in(&env)).expect("opened");
    refused(&copy, &fixture.objects, "the backup of another copy of this store");
    let foreign = ObjectSim::new(8);
    let name = ObjectName::new("photos/1.jpg").expect("a name");
    foreign.client(1).create(&name, b"x").expect("created");
    refused(&fixture.db, &foreign, "holds photos/1.jpg, but no backup");
    assert!(fixture.objects.damage("BACKUP", ObjectDamage::Missing, 0));
    refused(&fixture.db, &fixture.objects, "but no object BACKUP");
    let empty = ObjectSim::new(9);
    let error = restored(&empty, RestoreTo::Latest).expect_err("no backup");
    assert!(error.to_string().contains("there is no backup in"), "{error}");
}

/// A store that was set back to an earlier state has other files under the same ids.
#[test]
fn store_that_was_set_back_is_refused() {
    let objects = ObjectSim::new(5);
    let sim = umbel_sim::Sim::new(5);
    let env = Env { files: sim.env().files, ..objects.env() };
    let db = Db::open(PATH, options_in(&env)).expect("a new store");
    let users = db.keyspace("users", tiny()).expect("a keyspace");
    fill(&users, 0..20, 0);
    drop(users);
    db.close().expect("closed");
    let earlier = sim.clone_disk();
    let back_up = |round: usize| {
        let db = Db::open(PATH, options_in(&env)).expect("opened");
        fill(&existing(&db, "users"), 0..20 + round, round);
        let backup = db.object_backup(objects.client(1), backup_options()).expect("opened");
        backup.run_once().map(|_| contents(&db))
    };
    let later = back_up(1).expect("backed up");
    sim.restore(&earlier);
    let error = back_up(2).expect_err("set back");
    assert!(error.to_string().contains("another copy of this store"), "{error}");
    assert_eq!(restored(&objects, RestoreTo::Latest).expect("restored"), later);
}

#[test]
fn older_of_two_writers_stops_for_good() {
    let fixture = Fixture::new(6);
    let users = fixture.keyspace("users");
    let first = fixture.backup();
    first.run_once().expect("backed up");
    let second = fixture.backup();
    fill(&users, 0..5, 0);
    second.run_once().expect("backed up");
    fill(&users, 5..9, 0);
    for _ in 0..2 {
        let error = first.run_once().expect_err("the other one has the number");
        assert!(error.to_string().contains("another server backs up to"), "{error}");
        assert_eq!(error.kind(), BackupErrorKind::Stop);
    }
    second.run_once().expect("backed up");
    assert_eq!(fixture.restored(RestoreTo::Latest), contents(&fixture.db));
    assert_eq!(first.state().failures_in_row, 2);
}

/// Path of the newest table of the store, or of its newest long value.
fn newest_file(fixture: &Fixture, extension: &str) -> std::path::PathBuf {
    let entries = fixture.env.files.read_dir(Path::new(PATH)).expect("a directory");
    let names = entries.into_iter().map(|entry| entry.name);
    let newest = names.filter(|name| name.ends_with(extension)).max();
    Path::new(PATH).join(newest.expect("a file"))
}

/// Story: a run uploaded a table, created its manifest, and met a damaged table. It never checked
/// that the manifest counts, so neither the state nor the metrics had it.
#[test]
fn manifest_before_local_damage_is_confirmed() {
    let fixture = Fixture::new(11);
    let users = fixture.keyspace("users");
    let backup = fixture.backup();
    fill(&users, 0..10, 0);
    backup.run_once().expect("backed up");
    assert_eq!(backup.state().manifest, 1);
    let good = contents(&fixture.db);
    // A table in each, which no compaction merges.
    for name in ["b", "c"] {
        let keyspace = fixture.keyspace(name);
        fill(&keyspace, 0..10, 0);
        keyspace.flush().expect("flushed");
    }
    let path = newest_file(&fixture, ".table");
    let file = fixture.env.files.open(&path, umbel_env::Access::ReadWrite).expect("a file");
    let mut byte = [0];
    file.read_exact_at(&mut byte, 30).expect("read");
    file.write_all_at(&[byte[0] ^ 1], 30).expect("damaged");
    let error = backup.run_once().expect_err("the file is damaged");
    assert!(matches!(error, BackupError::Store(_)), "{error}");
    let names: Vec<String> = fixture.objects.objects().into_keys().collect();
    let manifests = names.iter().filter(|name| name.starts_with("manifests/")).count();
    assert_eq!((manifests, backup.state().manifest), (2, 2));
    assert_eq!(fixture.restored(RestoreTo::Latest), good);
    file.write_all_at(&byte, 30).expect("repaired");
    assert_eq!(backup.run_once().expect("backed up").manifest, 3);
    assert_eq!(fixture.restored(RestoreTo::Latest), contents(&fixture.db));
}

#[test]
fn damaged_local_file_is_never_uploaded() {
    for extension in [".table", ".blob"] {
        let fixture = Fixture::new(7);
        let users = fixture.keyspace("users");
        let backup = fixture.backup();
        fill(&users, 0..10, 0);
        users.put("long", vec![1; 5000]).expect("put");
        backup.run_once().expect("backed up");
        let good = contents(&fixture.db);
        fill(&users, 10..20, 0);
        users.put("longer", vec![2; 5000]).expect("put");
        users.flush().expect("flushed");
        let path = newest_file(&fixture, extension);
        let file = fixture.env.files.open(&path, umbel_env::Access::ReadWrite).expect("a file");
        let mut byte = [0];
        for at in [30, file.len().expect("a length") / 2] {
            file.read_exact_at(&mut byte, at).expect("read");
            file.write_all_at(&[byte[0] ^ 1], at).expect("damaged");
            let error = backup.run_once().expect_err("the file is damaged");
            assert_eq!(error.kind(), BackupErrorKind::Stop, "{error}");
            let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
            assert!(error.to_string().contains(name), "{error}");
            assert_eq!(restored(&fixture.objects, RestoreTo::Latest).expect("restored"), good);
            file.write_all_at(&byte, at).expect("repaired");
        }
        backup.run_once().expect("backed up");
        assert_eq!(fixture.restored(RestoreTo::Latest), contents(&fixture.db));
        // Damage of a file that the backup has already does not harm its copy.
        let before = contents(&fixture.db);
        file.write_all_at(&[byte[0] ^ 1], file.len().expect("a length") / 2).expect("damaged");
        users.put("last", "value").expect("put");
        let _ = backup.run_once();
        let mut after = before.clone();
        after.get_mut("users").expect("there").push((b"last".to_vec(), b"value".to_vec()));
        after.get_mut("users").expect("there").sort();
        let found = fixture.restored(RestoreTo::Latest);
        assert!(found == before || found == after, "{extension}");
    }
}

/// Copies all objects, with one of them changed or left out.
fn copy_with(objects: &BTreeMap<String, Vec<u8>>, name: &str, bytes: Option<&[u8]>) -> ObjectSim {
    let copy = ObjectSim::new(11);
    for (other, kept) in objects {
        let bytes = if other == name { bytes } else { Some(&kept[..]) };
        let Some(bytes) = bytes else { continue };
        let other = ObjectName::new(other.clone()).expect("a name");
        copy.client(1).create(&other, bytes).expect("copied");
    }
    copy
}

#[test]
fn every_flipped_byte_of_an_object_is_an_error_and_never_other_data() {
    let fixture = Fixture::new(8);
    let users = fixture.keyspace("users");
    let backup = fixture.backup();
    users.put("ada", "1815").expect("put");
    users.put("long", vec![3; 600]).expect("put");
    backup.run_once().expect("backed up");
    users.put("grace", "1906").expect("put");
    backup.run_once().expect("backed up");
    let expected = contents(&fixture.db);
    let objects = fixture.objects.objects();
    for (name, bytes) in &objects {
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << (at % 8);
            let copy = copy_with(&objects, name, Some(&changed));
            let checked = verify_objects(&copy.env(), copy.client(1), plain());
            let is_found = match checked {
                Ok(checked) => !checked.damage.is_empty(),
                Err(error) => error.to_string().contains(name.as_str()),
            };
            assert!(is_found, "byte {at} of {name}");
            if at % 5 == 0 {
                match restored(&copy, RestoreTo::Latest) {
                    Ok(found) => assert_eq!(found, expected, "byte {at} of {name}"),
                    Err(error) => assert!(error.to_string().contains(name.as_str()), "{error}"),
                }
            }
        }
        let copy = copy_with(&objects, name, Some(&bytes[..bytes.len() / 2]));
        restored(&copy, RestoreTo::Latest).expect_err("cut short");
        let copy = copy_with(&objects, name, None);
        match restored(&copy, RestoreTo::Latest) {
            // Without the newest manifest, the backup is that of the earlier run.
            Ok(found) => assert!(found != expected && name.ends_with("02"), "{name}"),
            Err(error) => {
                let folder = name.split('/').next().unwrap_or_default();
                assert!(error.to_string().contains(folder), "{name}: {error}");
            }
        }
    }
}

/// Regression: a writer never looked at its objects again. After the deletion of one by something
/// else, none of its later states could be restored.
#[test]
fn run_replaces_each_object_that_was_deleted_or_cut() {
    let fixture = Fixture::new(41);
    let options = ObjectBackupOptions { full_manifest_interval: 5, ..backup_options() };
    let backup = fixture.db.object_backup(fixture.client(), options).expect("opened");
    let keyspace = fixture.keyspace("a");
    for number in 0..14 {
        keyspace.put(key(number), vec![number as u8; 300 + number * 60]).expect("put");
        backup.run_once().expect("backed up");
    }
    let names: Vec<String> = fixture.objects.objects().into_keys().collect();
    let (mut lost, mut unneeded) = (0, 0);
    for (index, name) in names.iter().enumerate() {
        let damage = [ObjectDamage::Missing, ObjectDamage::Cut][index % 2];
        if !fixture.objects.damage(name, damage, 10) {
            continue;
        }
        match backup.find_lost().expect("listed").len() {
            0 => unneeded += 1,
            _ => lost += 1,
        }
        backup.run_once().expect("backed up");
        assert_eq!(backup.find_lost().expect("listed"), []);
        assert_eq!(fixture.restored(RestoreTo::Latest), contents(&fixture.db), "{name}");
        keyspace.put(key(index), "later").expect("put");
        backup.run_once().expect("backed up");
        assert_eq!(fixture.restored(RestoreTo::Latest), contents(&fixture.db), "{name}");
    }
    assert!(lost > 5 && unneeded > 5, "{lost} {unneeded}");
}

#[test]
fn interrupted_restore_is_refused_at_open_and_resumes() {
    let fixture = Fixture::new(9);
    let users = fixture.keyspace("users");
    let backup = fixture.backup();
    fill(&users, 0..1500, 0);
    let first = backup.run_once().expect("backed up");
    fill(&users, 0..10, 1);
    backup.run_once().expect("backed up");
    let (objects, env) = (&fixture.objects, fixture.objects.env());
    let path = Path::new("/copy");
    let cancel = Arc::new(AtomicBool::new(false));
    let cancelled = ObjectRequestOptions { cancel: Some(Arc::clone(&cancel)), ..plain() };
    let client = Arc::new(CancellingObjects { inner: objects.client(3), cancel, after: 12.into() });
    let error = restore_from_objects(&env, client, path, RestoreTo::Latest, cancelled)
        .expect_err("cancelled");
    assert_eq!(error.kind(), BackupErrorKind::Cancelled, "{error}");
    for opened in [Db::open(path, options_in(&env)), Db::open_read_only(path, options_in(&env))] {
        let message = opened.expect_err("no store").to_string();
        assert!(message.contains("a restore into /copy did not end"), "{message}");
    }
    let other = RestoreTo::Manifest(first.manifest);
    let error = restore_from_objects(&env, objects.client(3), path, other, plain());
    let error = error.expect_err("another restore").to_string();
    assert!(error.contains("an interrupted restore of another state"), "{error}");
    let reads = || objects.request_counts()["read"];
    let expected = contents(&fixture.db);
    users.put("later", "value").expect("put");
    // Regression: the backup went on, so the restore was refused as that of another state.
    backup.run_once().expect("backed up");
    let before = reads();
    let report = restore_from_objects(&env, objects.client(3), path, RestoreTo::Latest, plain());
    assert!(report.expect("restored").is_resumed);
    let resumed = reads() - before;
    let copy = Db::open(path, options_in(&env)).expect("opened");
    assert_eq!(contents(&copy), expected);
    drop(copy);
    let error = restore_from_objects(&env, objects.client(3), path, RestoreTo::Latest, plain());
    let error = error.expect_err("there is a store").to_string();
    assert!(error.contains("holds a key-value store already"), "{error}");
    let before = reads();
    fixture.restored(RestoreTo::Latest);
    let whole = reads() - before;
    assert!(resumed < whole, "{resumed} of {whole} reads: complete files are kept");
}

/// A restore can fail at any call of the file system, and the same restore then completes.
#[test]
fn restore_that_crashes_anywhere_is_refused_or_complete() {
    let fixture = Fixture::new(10);
    let users = fixture.keyspace("users");
    fill(&users, 0..30, 0);
    users.put("long", vec![1; 900]).expect("put");
    fixture.backup().run_once().expect("backed up");
    let expected = contents(&fixture.db);
    let restore = |sim: &umbel_sim::Sim| {
        let env = Env { files: sim.env().files, ..fixture.objects.env() };
        let client = fixture.objects.client(4);
        restore_from_objects(&env, client, "/copy".as_ref(), RestoreTo::Latest, plain())
            .map(|_| env)
    };
    let whole = umbel_sim::Sim::new(1);
    restore(&whole).expect("restored");
    let calls = whole.changing_calls();
    assert!(calls.len() > 10, "{calls:?}");
    for call in calls {
        let sim = umbel_sim::Sim::new(1);
        sim.crash_at(call, umbel_sim::CrashSide::Before);
        restore(&sim).expect_err("crashed");
        let after = sim.crash_image(&umbel_sim::Survival::Random(0.5), call);
        let env = Env { files: after.env().files, ..fixture.objects.env() };
        let options = Options { create_if_missing: false, ..options_in(&env) };
        if let Ok(db) = Db::open("/copy", options) {
            assert_eq!(contents(&db), expected, "call {call}");
            continue;
        }
        let env = restore(&after).unwrap_or_else(|error| panic!("call {call}: {error}"));
        let db = Db::open("/copy", options_in(&env)).expect("opened");
        assert_eq!(contents(&db), expected, "call {call}");
    }
}

#[test]
fn interrupted_first_backup_keeps_its_uploads() {
    let fixture = Fixture::new(12);
    let users = fixture.keyspace("users");
    fill(&users, 0..1500, 0);
    let options = ObjectBackupOptions { manifest_bytes: 1, ..backup_options() };
    let cancel = Arc::new(AtomicBool::new(false));
    let requests = ObjectRequestOptions { cancel: Some(Arc::clone(&cancel)), ..plain() };
    let client = Arc::new(CancellingObjects { inner: fixture.client(), cancel, after: 5.into() });
    let interrupted = ObjectBackupOptions { requests, ..options.clone() };
    let backup = fixture.db.object_backup(client, interrupted).expect("opened");
    let error = backup.run_once().expect_err("cancelled");
    assert_eq!(error.kind(), BackupErrorKind::Cancelled, "{error}");
    let uploaded = fixture.objects.objects().keys().filter(|it| it.starts_with("tables/")).count();
    assert!(uploaded >= 2, "{uploaded}");
    let error = restored(&fixture.objects, RestoreTo::Latest).expect_err("not complete");
    assert!(error.to_string().contains("is not complete"), "{error}");
    let report = fixture.backup().run_once().expect("backed up");
    let names = fixture.objects.objects();
    let tables = names.keys().filter(|name| name.starts_with("tables/")).count();
    assert_eq!(tables as u64, report.uploaded_objects + uploaded as u64, "no table twice");
    assert_eq!(fixture.restored(RestoreTo::Latest), contents(&fixture.db));
    assert_eq!(fixture.damage(), Vec::<String>::new());
    let restorable = verify_objects(&fixture.env, fixture.client(), plain()).expect("verified");
    assert_eq!(restorable.restorable.len(), 1, "{restorable:?}");
    assert_eq!(restorable.restorable[0].first, report.manifest);
}

#[test]
fn retention_keeps_every_state_of_the_kept_time() {
    let fixture = Fixture::new(13);
    let options = ObjectBackupOptions { full_manifest_interval: 2, ..backup_options() };
    let backup = fixture.db.object_backup(fixture.client(), options).expect("opened");
    let users = fixture.keyspace("users");
    let mut runs = Vec::new();
    for round in 0..60 {
        fixture.objects.advance(Duration::from_secs(3600));
        fill(&users, 0..40, round);
        users.compact(None, None).expect("compacted");
        let report = backup.run_once().expect("backed up");
        runs.push((report.captured_micros, report.manifest, contents(&fixture.db)));
    }
    let run = |hours: u64, dry_run| {
        let keep = Duration::from_secs(hours * 3600);
        let options = RetentionOptions { keep, dry_run, requests: plain() };
        retain(&fixture.env, fixture.client(), options).expect("retained")
    };
    let before = fixture.objects.objects();
    assert_eq!(run(100, false).deleted_manifests, 0, "everything is younger");
    let dry = run(10, true);
    assert_eq!(fixture.objects.objects().keys().collect::<Vec<_>>(), {
        before.keys().collect::<Vec<_>>()
    });
    let done = run(10, false);
    assert_eq!(done, dry);
    assert!(done.first_manifest > 40 && done.deleted_manifests == done.first_manifest - 1);
    assert!(done.deleted_objects > 20, "{done:?}");
    assert_eq!(fixture.damage(), Vec::<String>::new());
    for (micros, manifest, expected) in &runs {
        match *manifest >= done.first_manifest {
            true => assert_eq!(fixture.restored(RestoreTo::Time(*micros)), *expected),
            false => {
                drop(restored(&fixture.objects, RestoreTo::Time(*micros)).expect_err("deleted"))
            }
        }
    }
    let again = run(10, false);
    assert_eq!((again.deleted_manifests, again.deleted_objects), (0, 0));
    fill(&users, 0..40, 99);
    backup.run_once().expect("backed up");
    assert_eq!(fixture.restored(RestoreTo::Latest), contents(&fixture.db));
}

#[test]
fn wall_clock_that_falls_back_does_not_reorder_states() {
    let fixture = Fixture::new(14);
    let users = fixture.keyspace("users");
    let backup = fixture.backup();
    fill(&users, 0..5, 0);
    let first = backup.run_once().expect("backed up");
    drop(backup);
    let slow = Env { clock: Arc::new(SlowClock), ..fixture.env.clone() };
    let before = contents(&fixture.db);
    drop((users, fixture.db));
    let db = Db::open(PATH, options_in(&slow)).expect("opened");
    fill(&existing(&db, "users"), 5..9, 0);
    let backup = db.object_backup(fixture.objects.client(1), backup_options()).expect("opened");
    let second = backup.run_once().expect("backed up");
    assert_eq!(second.captured_micros, first.captured_micros);
    let at = |restore_to| restored(&fixture.objects, restore_to).expect("restored");
    assert_eq!(at(RestoreTo::Time(first.captured_micros)), contents(&db));
    assert_eq!(at(RestoreTo::Manifest(first.manifest)), before);
}

/// A wall clock that is in 1970.
#[derive(Debug)]
struct SlowClock;

impl umbel_env::Clock for SlowClock {
    fn now(&self) -> Duration {
        Duration::ZERO
    }

    fn wall_micros(&self) -> u64 {
        7
    }
}

#[test]
fn expired_credentials_and_an_outage_are_errors_of_their_kinds() {
    let fixture = Fixture::new(15);
    let users = fixture.keyspace("users");
    let backup = fixture.backup();
    fill(&users, 0..5, 0);
    fixture.objects.expire_credentials(true);
    let error = backup.run_once().expect_err("expired");
    assert_eq!(error.kind(), BackupErrorKind::Stop, "{error}");
    fixture.objects.expire_credentials(false);
    let outage = umbel_sim::FaultRates::none().with(umbel_sim::ObjectFault::LostRequest, 1000);
    fixture.objects.set_rates(outage);
    let error = backup.run_once().expect_err("an outage");
    assert_eq!(error.kind(), BackupErrorKind::Retry, "{error}");
    assert_eq!(backup.state().failures_in_row, 2);
    fixture.objects.set_rates(umbel_sim::FaultRates::none());
    backup.run_once().expect("backed up");
    assert_eq!((backup.state().failures_in_row, backup.state().last_error), (0, None));
    assert_eq!(fixture.restored(RestoreTo::Latest), contents(&fixture.db));
    let read_only = Db::open_read_only(PATH, options_in(&fixture.env)).expect("opened");
    read_only.object_backup(fixture.client(), backup_options()).expect_err("read-only");
}

/// Sets the cancellation flag after a number of reads and writes of objects.
#[derive(Debug)]
pub struct CancellingObjects {
    pub inner: Arc<dyn Objects>,
    pub cancel: Arc<AtomicBool>,
    pub after: AtomicU64,
}

impl CancellingObjects {
    fn step(&self) {
        if self.after.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.cancel.store(true, Ordering::Relaxed);
        }
    }
}

impl Objects for CancellingObjects {
    umbel_env::delegate_object_calls!(inner: location create create_concurrently list delete);

    fn put(&self, name: &ObjectName, source: &dyn ObjectSource) -> ObjectResult<()> {
        let put = self.inner.put(name, source);
        self.step();
        put
    }

    fn read(&self, name: &ObjectName, range: Range<u64>) -> ObjectResult<Option<ObjectBytes>> {
        self.step();
        self.inner.read(name, range)
    }
}

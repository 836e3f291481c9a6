//! Tests of WAL segments that are complete but contain records that no store writes.

use umbel_filter::HashSecret;
use umbel_log::{LogKind, LogOptions, LogWriter};
use umbel_sim::{CrashSide, Fault, FaultKind, Sim, Survival};

use super::*;
use crate::api::db::Db;
use crate::options::{KeyspaceOptions, Options};
use crate::version::Manifest;

const FOLDER: &str = "/store";

fn open(sim: &Sim) -> Result<Db> {
    let options = Options {
        env: sim.env(),
        background_threads: 0,
        cache_bytes: Some(1 << 20),
        log_segment_bytes: 4 << 10,
        ..Options::default()
    };
    Db::open(FOLDER, options)
}

/// Returns a store that a crash left with one open WAL segment, and the segment's path and id.
fn crashed() -> (Sim, PathBuf, u64) {
    let sim = Sim::new(1);
    let db = open(&sim).expect("a new store");
    let options = KeyspaceOptions { memtable_bytes: 64 << 10, ..KeyspaceOptions::default() };
    let plants = db.keyspace("plants", options).expect("a keyspace");
    plants.put("basil", "green").expect("a write");
    let image = sim.kill_image();
    let is_log = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "log");
    let path = image.files().into_iter().find(is_log).expect("there is a log");
    let stem = path.file_stem().expect("it has a name").to_string_lossy();
    let id = stem.parse().expect("a number");
    (image, path.clone(), id)
}

/// Opens the store after its WAL segment was replaced by one with these records.
fn with_log(records: &[(u64, &[u8])]) -> Result<Db> {
    let (sim, path, id) = crashed();
    let other = Sim::new(2);
    let env = other.env();
    env.files.create_dir_all(Path::new(FOLDER))?;
    // The salt comes from the store's secret.
    let salt = sim.read(&path)[24..32].try_into().expect("eight bytes");
    let salt = u64::from_le_bytes(salt);
    let options =
        LogOptions { kind: LogKind::WriteAhead, log_id: id, salt, segment_bytes: 4 << 10 };
    let mut writer = LogWriter::create(&env, &path, options)?;
    for (sequence, payload) in records {
        writer.append(*sequence, &[payload])?;
    }
    sim.replace(&path, &other.read(&path));
    open(&sim)
}

const PUT: &[u8] = &[1, 1, 0, 1, b'k', 1, b'v'];
const TWO: &[u8] = &[2, 1, 0, 1, b'k', 1, b'v', 0, 0, 1, b'k', 0];

fn assert_corrupt(records: &[(u64, &[u8])], reason: &str) {
    let error = with_log(records).expect_err(reason);
    assert!(matches!(error, Error::Corruption { .. }), "{error}");
    assert!(error.to_string().contains(reason), "{error}");
}

#[test]
fn sequence_numbers_must_increase_below_the_limit() {
    assert!(with_log(&[(1, TWO), (3, PUT)]).is_ok());
    assert!(with_log(&[(1, PUT), (9, TWO)]).is_ok(), "gaps are writes without a log");
    assert_corrupt(&[(0, PUT)], "used already or over the limit");
    assert_corrupt(&[(1, TWO), (2, PUT)], "used already or over the limit");
    assert_corrupt(&[(limits::SEQUENCE_MAX, TWO)], "used already or over the limit");
    assert_corrupt(&[(u64::MAX, PUT)], "used already or over the limit");
}

#[test]
fn invalid_payload_is_reported() {
    assert_corrupt(&[(1, PUT), (2, &[1, 7, 0, 1, b'k', 0])], "byte 1 of this record's payload");
    assert_corrupt(&[(1, PUT), (2, &[])], "byte 0 of this record's payload");
}

#[test]
fn writes_to_dropped_keyspace_are_skipped() {
    let db = with_log(&[(1, PUT), (2, &[1, 1, 9, 1, b'x', 0])]).expect("it opens");
    let plants = db.existing_keyspace("plants").expect("open").expect("it is there");
    assert_eq!(plants.get("k").expect("it reads").as_deref(), Some(&b"v"[..]));
    assert_eq!(plants.iter().count(), 1);
}

#[test]
fn wal_segment_with_lost_edit_is_not_an_orphan() {
    let (sim, log, _) = crashed();
    let is_manifest = |path: &PathBuf| path.extension().is_some_and(|e| e == "manifest");
    let path = sim.files().into_iter().find(is_manifest).expect("there is a manifest");
    // The last record, which no mark covers, is the edit that names the segment.
    let end = sim.read(&path).len() as u64;
    sim.flip(&path, end - 8, 1);
    let error = open(&sim).expect_err("a durable write would be lost");
    assert!(matches!(error, Error::Corruption { .. }), "{error}");
    assert!(error.to_string().contains("the end of the manifest is lost"), "{error}");
    assert!(sim.has(&log), "nothing is removed");
}

#[test]
fn unnamed_empty_wal_segment_is_an_orphan() {
    let (sim, _, id) = crashed();
    let path = filenames::segment(Path::new(FOLDER), id + 1);
    let state = Manifest::read(&sim.env(), Path::new(FOLDER)).expect("it reads").expect("a store");
    let seed = state.identity.expect("it has one").hash_seed;
    let options = wal::log_options(&HashSecret::from_seed(seed), id + 1, 4 << 10);
    LogWriter::create(&sim.env(), &path, options).expect("a log");
    let db = open(&sim).expect("it opens");
    assert!(!sim.has(&path));
    drop(db);
}

#[test]
fn stray_file_with_number_near_limit_is_rejected() {
    let (sim, _, _) = crashed();
    let stray = filenames::table(Path::new(FOLDER), filenames::ID_MAX - 1);
    sim.env().files.create(&stray).expect("a file");
    let error = open(&sim).expect_err("no numbers are left");
    assert!(matches!(error, Error::Invalid(_)), "{error}");
    assert!(sim.has(&stray), "nothing is removed");
    sim.remove(&stray);
    assert!(open(&sim).is_ok());
}

/// Returns options of a store whose memory budget limits all memtables together to `bytes`.
fn with_buffers(sim: &Sim, bytes: u64) -> Options {
    Options {
        env: sim.env(),
        background_threads: 0,
        cache_bytes: Some(1 << 20),
        log_segment_bytes: 64 << 10,
        write_buffer_total_bytes: Some(bytes),
        ..Options::default()
    }
}

fn name(number: u32) -> Vec<u8> {
    format!("key {number:05}").into_bytes()
}

/// Returns a store with two keyspaces whose 6,000 writes are in the WAL only.
fn killed_with_full_memtables() -> Sim {
    let sim = Sim::new(3);
    let db = Db::open(FOLDER, with_buffers(&sim, 64 << 20)).expect("a new store");
    let both = ["left", "right"].map(|name| db.keyspace(name, None).expect("a keyspace"));
    for number in 0..3_000 {
        for (side, keyspace) in both.iter().enumerate() {
            let value = vec![side as u8; 60 + number as usize % 90];
            keyspace.put(name(number), value).expect("a write");
        }
        if number % 100 == 50 {
            both[0].delete_range(name(number - 20), name(number - 10)).expect("a write");
        }
    }
    sim.kill_image()
}

#[test]
fn replayed_writes_over_memtable_limit_are_flushed() {
    let sim = killed_with_full_memtables();
    let buffers = 64 << 10;
    let folder = Path::new(FOLDER);
    let logs = |sim: &Sim| {
        sim.files().iter().filter(|path| path.extension().is_some_and(|e| e == "log")).count()
    };
    let before = logs(&sim);
    let store =
        crate::lifecycle::open::open(folder, with_buffers(&sim, buffers), false).expect("it opens");
    let keyspaces = store.keyspaces();
    let held: u64 = keyspaces.iter().map(|keyspace| keyspace.memtable_bytes()).sum();
    // Entries between two checks come on top, and so does the memory of their index.
    assert!(held < 2 * buffers + (24 << 10), "{held}");
    for keyspace in &keyspaces {
        let view = keyspace.super_version.load();
        assert!(view.version.levels[0].len() > 2, "{}", keyspace.name);
        assert!(view.version.levels[0].iter().all(|table| table.opened().is_none()));
    }
    assert!(logs(&sim) + 4 < before, "complete logs are in the tables");
    // The process dies before anything else is done.
    let again = sim.kill_image();
    drop(store);
    for sim in [sim, again] {
        let db = Db::open(FOLDER, with_buffers(&sim, buffers)).expect("it opens");
        assert_holds_all(&db);
    }
}

/// A batch of 1,000 range deletes was one memtable before the crash and four after: each was cut
/// apart from the others, and each was a table later.
#[test]
fn batch_of_range_deletes_is_replayed_into_one_memtable() {
    let sim = Sim::new(3);
    let db = Db::open(FOLDER, with_buffers(&sim, 64 << 20)).expect("a new store");
    let keyspaces = ["left", "right"].map(|name| db.keyspace(name, None).expect("a keyspace"));
    let mut batch = db.batch();
    for number in 0..1_000 {
        for keyspace in &keyspaces {
            batch.delete_range(keyspace, name(number), name(2_000 - number));
        }
    }
    batch.commit(None).expect("a write");
    keyspaces[0].put(name(1), "after").expect("a write");
    let image = sim.kill_image();
    let options = with_buffers(&image, 64 << 20);
    let store = crate::lifecycle::open::open(Path::new(FOLDER), options, false).expect("it opens");
    for keyspace in &store.keyspaces() {
        let view = keyspace.super_version.load();
        assert_eq!(view.frozen.len() + view.version.tables().count(), 1, "{}", keyspace.name);
    }
}

#[test]
fn replay_within_original_memory_flushes_nothing() {
    let sim = killed_with_full_memtables();
    let options = with_buffers(&sim, 64 << 20);
    let store = crate::lifecycle::open::open(Path::new(FOLDER), options, false).expect("it opens");
    let tables =
        |keyspace: &Arc<KeyspaceState>| keyspace.super_version.load().version.tables().count();
    assert!(store.keyspaces().iter().all(|keyspace| tables(keyspace) == 0));
}

#[test]
fn open_succeeds_without_space_for_recovery_flush() {
    let sim = killed_with_full_memtables();
    sim.fail_site("create *.table", 2, Fault { kind: FaultKind::Enospc, sticky: false });
    let options = with_buffers(&sim, 64 << 10);
    let store = crate::lifecycle::open::open(Path::new(FOLDER), options, false).expect("it opens");
    let entries = |keyspace: &Arc<KeyspaceState>| {
        let view = keyspace.super_version.load();
        let frozen = view.frozen.iter().chain([&view.active]);
        frozen.map(|buffer| buffer.memtable.entries()).sum::<u64>()
    };
    // One table was written before.
    let held = store.keyspaces().iter().map(entries).sum::<u64>();
    assert!((4_000..6_000).contains(&held), "{held}");
}

#[test]
fn failed_open_leaves_no_tables() {
    let sim = killed_with_full_memtables();
    let newest = |path: &PathBuf| path.extension().is_some_and(|e| e == "log");
    let log = sim.files().into_iter().rfind(newest).expect("there are logs");
    sim.remove(&log);
    let options = with_buffers(&sim, 64 << 10);
    let opened = crate::lifecycle::open::open(Path::new(FOLDER), options, false);
    assert!(matches!(opened, Err(Error::Corruption { .. })));
    assert!(!sim.files().iter().any(|path| path.extension().is_some_and(|e| e == "table")));
}

fn with_extension(sim: &Sim, extension: &str) -> usize {
    sim.files().iter().filter(|path| path.extension().is_some_and(|e| e == extension)).count()
}

fn assert_holds_all(db: &Db) {
    let both = ["left", "right"].map(|name| db.keyspace(name, None).expect("a keyspace"));
    for number in 0..3_000 {
        for (side, keyspace) in both.iter().enumerate() {
            let deleted = side == 0 && (30..40).contains(&(number % 100));
            let value = vec![side as u8; 60 + number as usize % 90];
            let wanted = (!deleted).then_some(value);
            assert_eq!(keyspace.get(name(number)).expect("it reads"), wanted, "{number}");
        }
    }
}

/// Each killed open left the tables that it had written, and the next open wrote the same tables
/// again.
#[test]
fn repeatedly_killed_opens_leave_tables_of_one_only() {
    let mut sim = killed_with_full_memtables();
    let open = |sim: &Sim| {
        crate::lifecycle::open::open(Path::new(FOLDER), with_buffers(sim, 64 << 10), false)
    };
    let mut left = Vec::new();
    for round in 0..4 {
        let trial = sim.clone_disk();
        open(&trial).expect("it opens");
        let is_begin = |call: &u64| trial.site_of(*call).as_deref() == Some("create *.table");
        let begins: Vec<u64> = trial.changing_calls().into_iter().filter(is_begin).collect();
        sim.crash_at(begins[begins.len() - 1 - round], CrashSide::After);
        open(&sim).expect_err("the power failed");
        sim = match round % 2 {
            0 => sim.kill_image(),
            _ => sim.crash_image(&Survival::All, round as u64),
        };
        left.push(with_extension(&sim, "table"));
    }
    assert!(left[0] > 8 && left.windows(2).all(|two| two[1] < two[0]), "{left:?}");
    // An open that is killed before it has written any leaves none.
    sim.fail_site("create *.table", 1, Fault { kind: FaultKind::Eio, sticky: false });
    open(&sim).expect_err("a table cannot be written");
    assert_eq!((with_extension(&sim, "table"), with_extension(&sim, "manifest")), (0, 1));
    let store = open(&sim).expect("it opens");
    let version =
        |keyspace: &Arc<KeyspaceState>| Arc::clone(&keyspace.super_version.load().version);
    let named = store.keyspaces().iter().map(|keyspace| version(keyspace).tables().count()).sum();
    assert_eq!((with_extension(&sim, "table"), with_extension(&sim, "manifest")), (named, 1));
    drop(store);
    assert_holds_all(&Db::open(FOLDER, with_buffers(&sim, 64 << 10)).expect("it opens"));
}

/// Recovery wrote tables until the disk was full, and the manifest that was to name them found no
/// space. The store could not be opened, and the tables stayed.
#[test]
fn recovery_flush_leaves_space_for_the_manifest() {
    let sim = killed_with_full_memtables();
    let pages = |sim: &Sim| {
        let bytes = |path: &PathBuf| (sim.read(path).len() as u64).next_multiple_of(4096);
        sim.files().iter().map(bytes).sum::<u64>() / 4096
    };
    let used = pages(&sim);
    let opened = |buffers: u64, free: u64| {
        let sim = sim.clone_disk();
        sim.set_capacity((used + free) * 4096);
        let opened =
            crate::lifecycle::open::open(Path::new(FOLDER), with_buffers(&sim, buffers), false);
        (sim, opened)
    };
    let least = (0..100).find(|free| opened(64 << 20, *free).1.is_ok()).expect("some are enough");
    for free in (0..least + 12).chain((least + 12..least + 160).step_by(7)) {
        let (sim, opened) = opened(64 << 10, free);
        match opened {
            Ok(store) => {
                drop(store);
                sim.clear_capacity();
                assert_holds_all(&Db::open(FOLDER, with_buffers(&sim, 64 << 20)).expect("again"));
            }
            Err(Error::DiskFull { .. }) if free < least => {
                let left = (with_extension(&sim, "table"), with_extension(&sim, "manifest"));
                assert_eq!(left, (0, 1), "{free} free pages");
            }
            Err(error) => panic!("{free} free pages, {least} are needed: {error}"),
        }
    }
}

/// A failed creation of the new manifest leaves no tables of recovery, unless the manifest can be
/// current and name them.
#[test]
fn open_without_manifest_leaves_no_tables() {
    for site in ["create *.manifest", "write *.manifest", "sync *.manifest", "write CURRENT.new"] {
        let sim = killed_with_full_memtables();
        // The first created file is the reservation.
        let nth = if site.starts_with("create") { 2 } else { 1 };
        sim.fail_site(site, nth, Fault { kind: FaultKind::Eio, sticky: false });
        let options = with_buffers(&sim, 64 << 10);
        let opened = crate::lifecycle::open::open(Path::new(FOLDER), options, false);
        assert!(opened.is_err(), "{site}");
        let left = (with_extension(&sim, "table"), with_extension(&sim, "manifest"));
        assert_eq!(left, (0, 1), "{site}");
        assert_holds_all(&Db::open(FOLDER, with_buffers(&sim, 64 << 10)).expect("it opens"));
    }
}

/// The end of the manifest that an open reads is possibly not durable. If a power loss removes that
/// end, the tables that it dropped are needed again, so killed opens must not have removed them.
#[test]
fn killed_opens_keep_tables_of_the_durable_manifest() {
    let sim = killed_with_full_memtables();
    let db = Db::open(FOLDER, with_buffers(&sim, 64 << 20)).expect("it opens");
    let left = db.keyspace("left", None).expect("a keyspace");
    left.flush().expect("a table");
    left.put(name(0), vec![0; 60]).expect("the same again");
    left.flush().expect("another table");
    let right = db.keyspace("right", None).expect("a keyspace");
    for number in 0..3_000 {
        right.put(name(number), vec![1; 60 + number as usize % 90]).expect("the same again");
    }
    sim.fail_site("sync *.manifest", 1, Fault { kind: FaultKind::Eio, sticky: false });
    left.compact(None, None).expect_err("its edit is not durable");
    let mut sim = sim.kill_image();
    drop((left, right, db));
    for _ in 0..3 {
        let options = |sim: &Sim| with_buffers(sim, 64 << 10);
        let trial = sim.clone_disk();
        crate::lifecycle::open::open(Path::new(FOLDER), options(&trial), false).expect("it opens");
        let is_begin = |call: &u64| trial.site_of(*call).as_deref() == Some("create *.table");
        let last = trial.changing_calls().into_iter().rfind(is_begin);
        sim.crash_at(last.expect("tables are written"), CrashSide::After);
        crate::lifecycle::open::open(Path::new(FOLDER), options(&sim), false)
            .expect_err("no power");
        sim = sim.kill_image();
        let image = sim.crash_image(&Survival::None, 1);
        assert_holds_all(&Db::open(FOLDER, options(&image)).expect("it opens"));
    }
}

//! Tests of read-only handles concurrent with a writer. Each handle sees every write acknowledged
//! before its open; no handle reports false damage or blocks the writer.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use umbel::{Db, Env, Error, KeyspaceOptions, Options, Result};
use umbel_env::Access;
use umbel_env::skipped_test::print_skipped;
use umbel_sim::{Mount, Sim};

use super::child_process;
use super::hooked_files::hooked_everywhere;

const PATH: &str = "/store";
const MOUNTED: &str = "/mounted";

/// Options with small memtables and WAL segments, and with all work on the caller's thread.
fn options(env: &Env) -> Options {
    Options {
        env: env.clone(),
        memory_bytes: Some(8 << 20),
        background_threads: 0,
        log_segment_bytes: 64 << 10,
        create_if_missing: true,
        ..Options::default()
    }
}

fn keyspace_options() -> KeyspaceOptions {
    KeyspaceOptions { memtable_bytes: 64 << 10, ..KeyspaceOptions::default() }
}

/// A writer that changes every kind of file.
struct Writer {
    db: Db,
    round: AtomicU64,
}

fn key(number: u64) -> Vec<u8> {
    format!("key-{:04}", number % 97).into_bytes()
}

impl Writer {
    fn open(env: &Env) -> Result<Writer> {
        let db = Db::open(PATH, options(env))?;
        db.keyspace("default", keyspace_options())?;
        Ok(Writer { db, round: AtomicU64::new(1) })
    }

    /// The newest round whose write was acknowledged.
    fn acknowledged(&self) -> u64 {
        self.round.load(Ordering::SeqCst) - 1
    }

    /// Does one step: writes, and occasionally flushes, compacts, puts a long value or creates a
    /// keyspace.
    fn step(&self) {
        let round = self.round.load(Ordering::SeqCst);
        let keyspace = self.db.keyspace("default", None).unwrap();
        let value = [&round.to_le_bytes()[..], &vec![round as u8; 700]].concat();
        keyspace.put(key(round), &value).unwrap();
        keyspace.put(b"newest", round.to_le_bytes()).unwrap();
        self.round.store(round + 1, Ordering::SeqCst);
        match round % 11 {
            3 | 7 => self.db.flush().unwrap(),
            5 => keyspace.compact(None, None).unwrap(),
            8 => keyspace.put(b"long", vec![round as u8; (1 << 20) + 1]).unwrap(),
            9 => {
                self.db.keyspace("second", None).unwrap();
                self.db.drop_keyspace("second").unwrap();
            }
            _ => {}
        }
    }
}

/// Checks that a handle sees one whole state not older than `acknowledged`.
fn check(db: &Db, acknowledged: u64) -> Result<u64> {
    let report = db.verify()?;
    assert_eq!(report.damage, Vec::<String>::new());
    let Some(keyspace) = db.existing_keyspace("default")? else {
        assert_eq!(acknowledged, 0);
        return Ok(0);
    };
    let newest = keyspace.get(b"newest")?;
    let newest = newest.map_or(0, |value| u64::from_le_bytes((*value).try_into().unwrap()));
    assert!(newest >= acknowledged, "sees {newest}, but {acknowledged} had been acknowledged");
    for round in newest.saturating_sub(96)..=newest {
        if round == 0 {
            continue;
        }
        let value = keyspace.get(key(round))?.expect("every key of the last 97 rounds is there");
        let found = u64::from_le_bytes(value[..8].try_into().unwrap());
        assert!(found == round || found == newest + 1 && round + 97 == found, "{round}: {found}");
    }
    Ok(newest)
}

/// Story: 127 of 200 opens of a reader failed with "corruption", and `verify` reported a healthy
/// store as damaged. The writer removed, recycled and wrote files between two of its calls. In this
/// test the writer does all of that before each file system call of a read-only open and of a
/// `verify` after it.
#[test]
fn reader_tolerates_writer_before_any_call() {
    for mount in [None, Some(Mount::ReadOnly), Some(Mount::WithoutPermission)] {
        let sim = Sim::new(1);
        let writer = Arc::new(Writer::open(&sim.env()).unwrap());
        (0..40).for_each(|_| writer.step());
        let path = match mount {
            None => PATH,
            Some(mount) => {
                sim.make_dir(MOUNTED);
                sim.mount(PATH, MOUNTED, mount);
                MOUNTED
            }
        };
        let mut calls = 0;
        for at in 0.. {
            let (env, hooks) = hooked_everywhere(&sim.env());
            let stepping = Arc::clone(&writer);
            hooks.before_call(at, move || (0..12).for_each(|_| stepping.step()));
            let acknowledged = writer.acknowledged();
            let db = Db::open_read_only(path, options(&env)).unwrap();
            check(&db, acknowledged).unwrap();
            if !hooks.was_called() {
                calls = at;
                break;
            }
        }
        assert!(calls > 20, "the reader made {calls} calls");
    }
}

/// The writer works before every file system call of the reader, so that no two calls of the reader
/// see the same files.
#[test]
fn reader_opens_beside_constant_writer() {
    let sim = Sim::new(2);
    let writer = Arc::new(Writer::open(&sim.env()).unwrap());
    (0..40).for_each(|_| writer.step());
    for _ in 0..20 {
        let (env, hooks) = hooked_everywhere(&sim.env());
        let stepping = Arc::clone(&writer);
        hooks.before_each_call(move || stepping.step());
        let acknowledged = writer.acknowledged();
        let db = Db::open_read_only(PATH, options(&env)).unwrap();
        check(&db, acknowledged).unwrap();
        assert!(writer.acknowledged() > acknowledged + 20, "the writer continued to write");
    }
}

/// If the reader cannot pin a version, the writer can remove files that the reader needs. The
/// reader's error then says to open the store again, and does not report damage.
#[test]
fn reader_without_pin_gets_reopen_error() {
    let (sim, mut stale) = (Sim::new(3), 0);
    sim.allow_pins(false);
    let writer = Arc::new(Writer::open(&sim.env()).unwrap());
    (0..40).for_each(|_| writer.step());
    for at in 0.. {
        let (env, hooks) = hooked_everywhere(&sim.env());
        let stepping = Arc::clone(&writer);
        hooks.before_call(at, move || (0..12).for_each(|_| stepping.step()));
        let acknowledged = writer.acknowledged();
        let opened = Db::open_read_only(PATH, options(&env));
        match opened.and_then(|db| check(&db, acknowledged)) {
            Ok(_) => {}
            Err(Error::Stale { .. }) => stale += 1,
            Err(error) => panic!("before call {at}: {error}"),
        }
        if !hooks.was_called() {
            break;
        }
    }
    assert!(stale > 0, "the writer removed what a reader needed");
}

/// Files pinned by a reader stay on the disk, also across a restart of the writer, and are removed
/// once no reader needs them. A reader does not keep files that were obsolete before its open.
#[test]
fn obsolete_files_are_removed_with_their_last_reader() {
    let sim = Sim::new(4);
    let writer = Writer::open(&sim.env()).unwrap();
    (0..40).for_each(|_| writer.step());
    let first = Db::open_read_only(PATH, options(&sim.env())).unwrap();
    (0..40).for_each(|_| writer.step());
    let kept = writer.db.stats().readers;
    assert!(kept.pinned_files > 5 && kept.pinned_file_bytes > 0, "{kept:?}");
    let files = sim.env().files.read_dir(Path::new(PATH)).unwrap().len();
    let Writer { db, round } = writer;
    db.close().unwrap();
    let writer = Writer { db: Db::open(PATH, options(&sim.env())).unwrap(), round };
    check(&first, 40).unwrap();
    let second = Db::open_read_only(PATH, options(&sim.env())).unwrap();
    assert!(writer.db.stats().readers.pinned_files > 5, "they are known after a restart");
    writer.step();
    drop(first);
    assert_eq!(writer.db.stats().readers.pinned_files, 0, "the second reader knows none of them");
    check(&second, writer.acknowledged() - 1).unwrap();
    assert!(sim.env().files.read_dir(Path::new(PATH)).unwrap().len() < files);
}

/// A reader reports damage also while a writer writes.
#[test]
fn damage_is_reported_beside_a_writer() {
    let sim = Sim::new(5);
    let writer = Writer::open(&sim.env()).unwrap();
    (0..40).for_each(|_| writer.step());
    writer.db.flush().unwrap();
    let entries = sim.env().files.read_dir(Path::new(PATH)).unwrap();
    let table = entries.iter().rfind(|entry| entry.name.ends_with(".table")).unwrap();
    let path = Path::new(PATH).join(&table.name);
    let db = Db::open_read_only(PATH, options(&sim.env())).unwrap();
    let file = sim.env().files.open(&path, Access::ReadWrite).unwrap();
    file.write_all_at(&[0xa5; 64], 100).unwrap();
    assert!(!db.verify().unwrap().damage.is_empty());
    let env = sim.env();
    let missing = Db::open_read_only(PATH, options(&env)).unwrap();
    sim.remove_tree(&path);
    let report = missing.verify().unwrap();
    assert!(report.damage.iter().any(|line| line.contains("missing")), "{report:?}");
}

/// Several read-only handles at once, a writer that opens at the same time, and a killed one.
#[test]
fn readers_and_writers_do_not_exclude_each_other() {
    let sim = Sim::new(6);
    let writer = Writer::open(&sim.env()).unwrap();
    (0..20).for_each(|_| writer.step());
    let handles: Vec<Db> =
        (0..4).map(|_| Db::open_read_only(PATH, options(&sim.env())).unwrap()).collect();
    assert!(matches!(Db::open(PATH, options(&sim.env())), Err(Error::Locked(_))));
    drop(writer);
    let writer = Writer::open(&sim.env()).expect("readers keep no writer out");
    for db in &handles {
        check(db, 20).unwrap();
    }
    drop(writer);
    let image = sim.kill_image();
    let db = Db::open_read_only(PATH, options(&image.env())).expect("no writer is there");
    check(&db, 20).unwrap();
}

/// The files that two processes share in the test below.
fn shared(root: &Path) -> (std::path::PathBuf, std::path::PathBuf) {
    (root.join("store"), root.join("acknowledged"))
}

/// The reader of the test below: opens the store often, concurrently with the writing process.
#[test]
#[ignore = "run by another test, in a process of its own"]
fn child_reads_beside_writing_process() {
    let Some(argument) = child_process::argument() else { return };
    let mut argument = argument.split('|');
    let (store, shared_file, opens) = (
        argument.next().unwrap(),
        argument.next().unwrap(),
        argument.next().unwrap().parse().unwrap(),
    );
    let env = Env::system();
    let acknowledged = || {
        let mut bytes = [0; 8];
        let file = env.files.open(Path::new(shared_file), Access::Read).unwrap();
        file.read_exact_at(&mut bytes, 0).unwrap();
        u64::from_le_bytes(bytes)
    };
    let (mut stale, mut opened) = (0, 0u64);
    let first = acknowledged();
    // At least `opens` times, and until the writer made enough progress, however slow the disk.
    while opened < opens || acknowledged() < first + opens {
        let before = acknowledged();
        opened += 1;
        assert!(opened < 100 * opens, "the writer made no progress");
        match Db::open_read_only(store, options(&env)).and_then(|db| check(&db, before)) {
            Ok(_) => {}
            Err(Error::Stale { .. }) => stale += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(stale, 0, "a reader that pins is never out of date");
}

/// One process writes without a pause, and another opens the store read-only 100 times or more and
/// verifies it each time. The reader opens the store at its path and through a read-only mount.
/// Through such a mount 127 of 200 opens returned "corruption".
#[test]
fn reader_process_works_beside_writer_process() {
    let root = tempfile::tempdir().unwrap();
    let (path, acknowledged) = shared(root.path());
    let env = Env::system();
    let file = env.files.create(&acknowledged).unwrap();
    file.write_all_at(&0u64.to_le_bytes(), 0).unwrap();
    let db = Db::open(&path, Options { background_threads: 2, ..options(&env) }).unwrap();
    db.keyspace("default", keyspace_options()).unwrap();
    let writer = Arc::new(Writer { db, round: AtomicU64::new(1) });
    let is_over = Arc::new(AtomicBool::new(false));
    let (steps, ends) = (Arc::clone(&writer), Arc::clone(&is_over));
    let work = move || {
        while !ends.load(Ordering::Relaxed) {
            steps.step();
            file.write_all_at(&steps.acknowledged().to_le_bytes(), 0).unwrap();
        }
    };
    let thread = env.threads.spawn("writer", Box::new(work)).unwrap();
    let name = "suite::read_only::child_reads_beside_writing_process";
    let argument =
        |store: &Path, opens| format!("{}|{}|{opens}", store.display(), acknowledged.display());
    child_process::run(name, &argument(&path, 100), "");
    let mounted = root.path().join("mounted");
    env.files.create_dir_all(&mounted).unwrap();
    // Without the permission to mount, the store's own path is read once more, and the reason
    // printed.
    let mount = format!(
        "mount --bind '{0}' '{1}' && mount -o remount,ro,bind '{1}'",
        path.display(),
        mounted.display()
    );
    match child_process::can_mount(&mount) {
        true => drop(child_process::run_in_mounts(name, &argument(&mounted, 100), &mount)),
        false => print_skipped("readers of a read-only mount", "this user may not mount"),
    }
    is_over.store(true, Ordering::Relaxed);
    assert!(thread.join());
}

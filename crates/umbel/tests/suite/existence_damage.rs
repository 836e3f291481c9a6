//! Tests that present keys are found even if an existence filter's files are damaged, old, missing
//! or could not be written.

use std::path::{Path, PathBuf};

use umbel::{Db, Durability, Keyspace, KeyspaceOptions, Options};
use umbel_sim::{Fault, FaultKind, Sim, Survival};

use crate::suite::existence::{filter, filtered, has_all};
use crate::suite::fixture::{PATH, again, existing, fill, inline, tiny, unlogged};

/// A change of a machine's disk.
type Damage = Box<dyn Fn(&Sim)>;

/// The directory of the first keyspace's filter.
fn folder() -> PathBuf {
    Path::new(PATH).join("000000.existence")
}

/// The files of the filter.
fn files(sim: &Sim) -> Vec<PathBuf> {
    sim.files().into_iter().filter(|path| path.starts_with(folder())).collect()
}

/// Returns a killed store whose filter has a generation file and a journal.
fn killed() -> Sim {
    let sim = Sim::new(1);
    let db = Db::open(PATH, inline(&sim.env())).unwrap();
    let keyspace = db.keyspace("a", filtered(tiny())).unwrap();
    fill(&keyspace, 0..150, 1);
    keyspace.flush().unwrap();
    fill(&keyspace, 150..170, 1);
    keyspace.flush().unwrap();
    fill(&keyspace, 170..180, 1);
    db.sync().unwrap();
    sim.kill_image()
}

fn opened(sim: &Sim) -> (Db, Keyspace) {
    let db = again(sim);
    let keyspace = existing(&db, "a");
    (db, keyspace)
}

#[test]
fn damaged_filter_files_reject_no_present_key() {
    let intact = killed();
    let found = files(&intact);
    assert!(found.len() >= 3, "a CHECKPOINT, a filter and a journal: {found:?}");
    for file in found {
        let len = intact.read(&file).len() as u64;
        let mut damages: Vec<Damage> = Vec::new();
        for offset in (0..len).step_by(usize::max(1, len as usize / 60)) {
            let (at, cut) = (file.clone(), file.clone());
            damages.push(Box::new(move |sim| sim.flip(&at, offset, 0x41)));
            damages.push(Box::new(move |sim| sim.truncate(&cut, offset)));
        }
        for offset in (0..len).step_by(512) {
            let file = file.clone();
            damages.push(Box::new(move |sim| sim.zero_sector(&file, offset)));
        }
        let removed = file.clone();
        damages.push(Box::new(move |sim| sim.remove(&removed)));
        for damage in damages {
            let sim = intact.clone_disk();
            damage(&sim);
            let (db, keyspace) = opened(&sim);
            has_all(&keyspace, 0..180);
            fill(&keyspace, 180..185, 1);
            drop((keyspace, db));
            let (_db, keyspace) = opened(&sim);
            has_all(&keyspace, 0..185);
        }
    }
}

/// All files of the filter are from an earlier state, and each of them is valid.
#[test]
fn files_of_an_earlier_state_are_not_trusted() {
    for options in [tiny(), KeyspaceOptions { log: false, ..tiny() }] {
        let sim = Sim::new(1);
        let db = Db::open(PATH, inline(&sim.env())).unwrap();
        let keyspace = db.keyspace("a", filtered(options)).unwrap();
        let mut disks = vec![sim.clone_disk()];
        for round in 0..6 {
            fill(&keyspace, round * 30..round * 30 + 30, 1);
            keyspace.flush().unwrap();
            disks.push(sim.clone_disk());
        }
        drop((keyspace, db));
        for old in disks {
            let mixed = sim.clone_disk();
            files(&mixed).iter().for_each(|file| mixed.remove(file));
            for file in files(&old) {
                let again = mixed.env().files.create(&file).unwrap();
                again.write_all_at(&old.read(&file), 0).unwrap();
                again.sync().unwrap();
            }
            let folder = folder();
            if mixed.env().files.exists(&folder).unwrap() {
                mixed.env().files.sync_dir(&folder).unwrap();
            }
            let (db, keyspace) = opened(&mixed);
            has_all(&keyspace, 0..180);
            fill(&keyspace, 180..200, 1);
            drop((keyspace, db));
            has_all(&opened(&mixed).1, 0..200);
        }
    }
}

/// A memtable becomes a table and its WAL is dropped, but the filter cannot be written. Then the
/// process dies, or the power fails.
#[test]
fn unwritten_filter_is_rebuilt_after_crash() {
    let sites = ["write *.journal", "sync *.journal", "create *.journal", "write *.filter"];
    for kind in [FaultKind::Eio, FaultKind::Enospc] {
        for (log, site) in sites.into_iter().flat_map(|site| [(true, site), (false, site)]) {
            let sim = Sim::new(1);
            let db = Db::open(PATH, inline(&sim.env())).unwrap();
            let keyspace = db.keyspace("a", filtered(KeyspaceOptions { log, ..tiny() })).unwrap();
            fill(&keyspace, 0..60, 1);
            keyspace.flush().unwrap();
            sim.fail_site(site, 1, Fault { kind, sticky: true });
            fill(&keyspace, 60..400, 1);
            keyspace.flush().unwrap();
            has_all(&keyspace, 0..400);
            assert_eq!(db.stats().read_only_reason, None, "{site}");
            if sim.faults_fired() > 0 && site.ends_with("journal") {
                assert!(keyspace.stats().existence_problem.is_some(), "{site}");
            }
            for image in [sim.kill_image(), sim.crash_image(&Survival::None, 2)] {
                let (db, keyspace) = opened(&image);
                has_all(&keyspace, 0..400);
                fill(&keyspace, 400..420, 1);
                drop((keyspace, db));
                has_all(&opened(&image).1, 0..420);
            }
            sim.heal();
            fill(&keyspace, 400..800, 1);
            keyspace.flush().unwrap();
            assert_eq!(keyspace.stats().existence_problem, None, "{site}");
            drop((keyspace, db));
            let (_db, keyspace) = opened(&sim);
            has_all(&keyspace, 0..800);
            assert_eq!(filter(&keyspace).lost, None, "{site}: the failed write was repeated");
        }
    }
}

/// On a disk with any amount of free space, a filter that cannot be written rejects no present key.
#[test]
fn full_disk_rejects_no_present_key() {
    for capacity in (8 << 10..160 << 10).step_by(3 << 10) {
        let sim = Sim::new(1);
        let small = Options { log_segment_bytes: 8 << 10, ..inline(&sim.env()) };
        sim.set_capacity(capacity);
        let Ok(db) = Db::open(PATH, small) else { continue };
        let Ok(keyspace) = db.keyspace("a", filtered(tiny())) else { continue };
        let mut written = 0;
        while written < 400 {
            let number = written;
            if keyspace.put(crate::suite::fixture::key(number), [7; 90]).is_err() {
                break;
            }
            written += 1;
        }
        has_all(&keyspace, 0..written);
        sim.clear_capacity();
        let image = sim.kill_image();
        has_all(&existing(&again(&image), "a"), 0..written);
        drop((keyspace, db));
        has_all(&existing(&again(&sim), "a"), 0..written);
    }
}

/// The power fails at each call of a run with flushes of a keyspace without a WAL. Sequence numbers
/// of lost writes are then assigned again.
#[test]
fn reassigned_sequence_numbers_reject_no_present_key() {
    let sim = Sim::new(1);
    let db = Db::open(PATH, inline(&sim.env())).unwrap();
    let keyspace = db.keyspace("a", filtered(unlogged())).unwrap();
    fill(&keyspace, 0..20, 1);
    keyspace.flush().unwrap();
    let first = sim.calls();
    drop((keyspace, db));
    let before = sim.clone_disk();
    drop(sim);
    for call in 0..first {
        let sim = before.clone_disk();
        let db = again(&sim);
        let keyspace = existing(&db, "a");
        sim.crash_at(sim.calls() + call, umbel_sim::CrashSide::After);
        for number in 100..120 {
            let _ = keyspace.put(crate::suite::fixture::key(number), b"lost");
        }
        let _ = keyspace.flush();
        let image = sim.crash_image(&Survival::Random(0.5), call);
        drop((keyspace, db));
        let (db, keyspace) = opened(&image);
        fill(&keyspace, 200..225, 1);
        let mut batch = db.batch();
        batch.set_marker(&keyspace, b"second");
        batch.commit(Durability::Buffered).unwrap();
        keyspace.flush().unwrap();
        let image = image.crash_image(&Survival::None, call);
        let (_db, keyspace) = opened(&image);
        has_all(&keyspace, 0..20);
        has_all(&keyspace, 200..225);
    }
}

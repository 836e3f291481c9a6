//! A full disk: no acknowledged write is lost, the handle continues once space is free, and deletes
//! work meanwhile.

use umbel::{Db, Durability, Error, Keyspace, KeyspaceOptions, Options};
use umbel_sim::{CrashSide, Fault, FaultKind, Sim, Survival};

use crate::suite::fixture::{PATH, again, all, existing, fill, filled, inline, key, tiny, value};

const FULL: Fault = Fault { kind: FaultKind::Enospc, sticky: false };
const STAYS_FULL: Fault = Fault { kind: FaultKind::Enospc, sticky: true };
const PAGE: u64 = 4096;

type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// Bytes of all files.
fn used(sim: &Sim) -> u64 {
    let bytes = |path| (sim.read(path).len() as u64).next_multiple_of(PAGE);
    sim.files().iter().map(bytes).sum()
}

fn small(sim: &Sim) -> Options {
    Options { log_segment_bytes: 256 << 10, ..inline(&sim.env()) }
}

/// Puts keys from number `first` on until a put fails on the full disk. Returns the number of the
/// failed put's key.
fn fill_up(keyspace: &Keyspace, first: usize) -> usize {
    let mut index = first;
    loop {
        match keyspace.put(key(index), value(index, 1)) {
            Ok(()) => index += 1,
            Err(Error::DiskFull { .. }) => return index,
            Err(error) => panic!("put {index}: {error}"),
        }
    }
}

/// Checks that acknowledged writes survive a kill and, if they were synced, every crash.
fn survives(sim: &Sim, db: &Db, expected: &Entries) {
    db.sync().unwrap();
    assert_eq!(db.stats().read_only_reason, None);
    let policies = [Survival::None, Survival::Garbage(0.5)];
    let images = policies.iter().map(|policy| sim.crash_image(policy, 7));
    for image in images.chain([sim.kill_image()]) {
        assert_eq!(&all(&existing(&again(&image), "a")), expected);
    }
}

/// Story: a manual flush or compaction on a full disk made the handle read-only for good, although
/// background work on a full disk only waits.
#[test]
fn manual_work_fails_and_can_be_retried() {
    type Call = fn(&Db, &Keyspace) -> umbel::Result<()>;
    let calls: [(&str, Call); 4] = [
        ("flush", |_, keyspace| keyspace.flush()),
        ("compact", |_, keyspace| keyspace.compact(None, None)),
        ("flush of all", |db, _| db.flush()),
        ("checkpoint", |db, _| db.checkpoint("/data/copy").map(drop)),
    ];
    for (name, call) in calls {
        for site in ["create *.table", "write *.table", "sync *.table", "write *.manifest"] {
            let sim = Sim::new(1);
            let db = Db::open(PATH, small(&sim)).unwrap();
            let keyspace = db.keyspace("a", KeyspaceOptions::default()).unwrap();
            fill(&keyspace, 0..100, 1);
            sim.fail_site(site, 1, STAYS_FULL);
            let refused = call(&db, &keyspace);
            assert!(matches!(refused, Err(Error::DiskFull { .. })), "{name} {site}: {refused:?}");
            let message = refused.unwrap_err().to_string();
            assert!(message.contains("free space") && !message.contains("read-only"), "{message}");
            // A compaction releases the space that the WAL had prepared.
            let is_written = name != "compact";
            if is_written {
                fill(&keyspace, 100..110, 1);
            }
            survives(&sim, &db, &filled(0..if is_written { 110 } else { 100 }, 1));
            sim.heal();
            fill(&keyspace, 100..110, 1);
            if name != "checkpoint" {
                call(&db, &keyspace).unwrap();
            }
            keyspace.flush().unwrap();
            fill(&keyspace, 110..120, 1);
            survives(&sim, &db, &filled(0..120, 1));
        }
    }
}

/// Story: a synced write whose sync found no space returned the disk-full error, which says that
/// nothing was done and that freeing space is the remedy. But the write was done, and the store was
/// read-only.
#[test]
fn sync_without_space_is_no_disk_full_error() {
    let sim = Sim::new(1);
    let db = Db::open(PATH, small(&sim)).unwrap();
    let keyspace = db.keyspace("a", KeyspaceOptions::default()).unwrap();
    fill(&keyspace, 0..10, 1);
    sim.fail_site("sync *.log", 1, FULL);
    let mut batch = db.batch();
    batch.put(&keyspace, key(10), value(10, 1));
    let failed = batch.commit(Durability::Synced).unwrap_err();
    assert!(matches!(failed, Error::Io { .. }), "{failed:?}");
    assert!(!failed.to_string().contains("free space"), "{failed}");
    let refused = keyspace.put(key(11), value(11, 1)).unwrap_err();
    assert!(matches!(refused, Error::ReadOnly(_)), "{refused:?}");
    assert_eq!(keyspace.get(key(10)).unwrap(), Some(value(10, 1)));
}

/// Story: creating a keyspace, changing its options or dropping it found no space for the manifest,
/// and the store accepted no writes any more.
#[test]
fn edit_without_space_fails_alone() {
    let sim = Sim::new(1);
    let db = Db::open(PATH, inline(&sim.env())).unwrap();
    let keyspace = db.keyspace("a", tiny()).unwrap();
    fill(&keyspace, 0..10, 1);
    let full = || sim.fail_site("write *.manifest", 1, STAYS_FULL);
    full();
    assert!(matches!(db.keyspace("b", tiny()), Err(Error::DiskFull { .. })));
    assert_eq!(db.keyspaces(), ["a"]);
    let changed = KeyspaceOptions { memtable_bytes: 16 << 10, ..tiny() };
    assert!(matches!(db.keyspace("a", changed.clone()), Err(Error::DiskFull { .. })));
    fill(&keyspace, 10..20, 1);
    assert!(matches!(db.drop_keyspace("a"), Err(Error::DiskFull { .. })));
    survives(&sim, &db, &filled(0..20, 1));
    sim.heal();
    db.keyspace("b", tiny()).unwrap();
    db.keyspace("a", changed).unwrap();
    db.drop_keyspace("b").unwrap();
    survives(&sim, &db, &filled(0..20, 1));
}

/// Story: with a WAL that is not mapped, the first put that found the disk full was the last. The
/// partial record must be cut off: its missing end may be zeros, so that it would be complete after
/// a crash, although it failed.
#[test]
fn unmapped_wal_resumes_when_space_is_free() {
    for seed in 0..40 {
        let sim = Sim::new(seed);
        sim.allow_mapping(false);
        let db = Db::open(PATH, small(&sim)).unwrap();
        let keyspace = db.keyspace("a", KeyspaceOptions::default()).unwrap();
        fill(&keyspace, 0..10, 1);
        for round in 0..3 {
            sim.fail_site("write *.log", 1, FULL);
            let next = 10 * (round + 1);
            // Longer than a sector, with zeros to its end.
            let refused = keyspace.put("refused", vec![0; 3000]).unwrap_err();
            assert!(matches!(refused, Error::DiskFull { .. }), "{refused}");
            sim.heal();
            // No sync happens in between.
            for policy in [Survival::None, Survival::All, Survival::Random(0.5)] {
                let image = sim.crash_image(&policy, seed);
                let kept = existing(&again(&image), "a");
                assert_eq!(kept.get("refused").unwrap(), None, "seed {seed}, {policy:?}");
            }
            fill(&keyspace, next..next + 10, 1);
            survives(&sim, &db, &filled(0..next + 10, 1));
        }
        keyspace.flush().unwrap();
        survives(&sim, &db, &filled(0..40, 1));
        drop(keyspace);
        db.close().unwrap();
        assert_eq!(all(&existing(&again(&sim), "a")), filled(0..40, 1));
    }
}

/// Story: with a WAL that is not mapped, the end record of a segment found the disk full. No other
/// segment was begun, and the store accepted no writes any more.
#[test]
fn segment_end_is_retried_after_full_disk() {
    for nth in 1..40 {
        let sim = Sim::new(nth);
        sim.allow_mapping(false);
        let options = Options { log_segment_bytes: 4 << 10, ..inline(&sim.env()) };
        let db = Db::open(PATH, options).unwrap();
        let keyspace = db.keyspace("a", KeyspaceOptions::default()).unwrap();
        sim.fail_site("write *.log", nth, FULL);
        let mut expected = Vec::new();
        for index in 0..60 {
            match keyspace.put(key(index), value(index, 1)) {
                Ok(()) => expected.push((key(index), value(index, 1))),
                Err(error) => assert!(matches!(error, Error::DiskFull { .. }), "{nth}: {error}"),
            }
        }
        assert_eq!(sim.faults_fired(), 1, "{nth}");
        assert!(expected.len() >= 59, "{nth}");
        survives(&sim, &db, &expected);
        keyspace.flush().unwrap();
        survives(&sim, &db, &expected);
    }
}

/// A store that fills its disk to the last page, some of it in tables.
fn filled_up(sim: &Sim, free: u64) -> (Db, Keyspace, usize) {
    let db = Db::open(PATH, small(sim)).unwrap();
    let keyspace = db.keyspace("a", tiny()).unwrap();
    fill(&keyspace, 0..4000, 1);
    sim.set_capacity(used(sim) + free);
    let written = fill_up(&keyspace, 4000);
    (db, keyspace, written)
}

/// Story: on a full disk deletes failed as puts do, so no write could free space.
#[test]
fn full_disk_accepts_deletes_and_compaction_frees_space() {
    for free in (0..6).map(|pages| 7 * pages * PAGE) {
        let sim = Sim::new(1);
        let (db, keyspace, written) = filled_up(&sim, free);
        survives(&sim, &db, &filled(0..written, 1));
        for index in 0..50 {
            keyspace.delete(key(index)).unwrap();
        }
        let mut batch = db.batch();
        (50..100).for_each(|index| batch.delete(&keyspace, key(index)));
        batch.commit(Durability::Synced).unwrap();
        survives(&sim, &db, &filled(100..written, 1));
        keyspace.delete_range(key(100), key(written - 1)).unwrap();
        survives(&sim, &db, &filled(written - 1..written, 1));
        let before = used(&sim);
        keyspace.compact(None, None).unwrap();
        survives(&sim, &db, &filled(written - 1..written, 1));
        assert!(used(&sim) < before, "{free}: {before} bytes before, {} after", used(&sim));
        fill(&keyspace, 0..100, 2);
        let mut expected = filled(0..100, 2);
        expected.extend(filled(written - 1..written, 1));
        survives(&sim, &db, &expected);
    }
}

/// Story: a merge first wrote again what lay before a deleted range. On a full disk it found no
/// space for that, and the tables in the range stayed.
#[test]
fn range_delete_on_full_disk_frees_its_tables() {
    let sim = Sim::new(1);
    let db = Db::open(PATH, of_small_segments(&sim)).unwrap();
    // A step of a merge writes at least two tables.
    let large = KeyspaceOptions { table_bytes: 256 << 10, ..tiny() };
    let keyspace = db.keyspace("a", large).unwrap();
    fill(&keyspace, 0..20_000, 1);
    keyspace.compact(None, None).unwrap();
    sim.set_capacity(used(&sim));
    let written = fill_up(&keyspace, 20_000);
    let from = written * 4 / 5;
    keyspace.delete_range(key(from), key(written)).unwrap();
    keyspace.compact(None, None).unwrap();
    fill(&keyspace, written..written + 50, 2);
    let mut expected = filled(0..from, 1);
    expected.extend(filled(written..written + 50, 2));
    survives(&sim, &db, &expected);
}

/// Story: all long values were deleted on a full disk. The flush that frees their files found no
/// page for its table of tombstones, and failed until a compaction or the next open.
#[test]
fn flush_of_deletes_on_full_disk_takes_part_of_the_reserve() {
    let sim = Sim::new(1);
    let options = Options { inline_value_bytes_max: 300, ..of_small_segments(&sim) };
    let db = Db::open(PATH, options).unwrap();
    let large = KeyspaceOptions { memtable_bytes: 4 << 20, ..tiny() };
    let keyspaces: Vec<_> =
        (0..12).map(|at| db.keyspace(&format!("k{at}"), large.clone()).unwrap()).collect();
    let mut written = 0;
    let mut put = |bytes: usize| {
        written += 1;
        keyspaces[written % 12].put(key(written), vec![written as u8; bytes])
    };
    (0..600).for_each(|_| put(1000).unwrap());
    sim.set_capacity(used(&sim));
    while put(1000).is_ok() || put(10).is_ok() {}
    for keyspace in &keyspaces {
        keyspace.delete_range(key(0), key(100_000)).unwrap();
    }
    sim.set_capacity(used(&sim));
    let before = used(&sim);
    for keyspace in &keyspaces {
        keyspace.flush().unwrap();
    }
    assert!(used(&sim) < before / 2, "{before} bytes before, {} after", used(&sim));
    for keyspace in &keyspaces {
        (0..10).for_each(|at| keyspace.put(key(at), vec![1; 1000]).unwrap());
    }
}

/// Story: a keyspace could not be dropped, although that frees most space.
#[test]
fn keyspace_can_be_dropped_on_full_disk() {
    let sim = Sim::new(1);
    let (db, keyspace, _) = filled_up(&sim, 0);
    let before = used(&sim);
    drop(keyspace);
    db.drop_keyspace("a").unwrap();
    assert!(used(&sim) < before);
    let keyspace = db.keyspace("a", tiny()).unwrap();
    fill(&keyspace, 0..100, 1);
    survives(&sim, &db, &filled(0..100, 1));
}

/// Story: after the process died without a free page on the disk, the store opened at best, but
/// writes that free space failed.
#[test]
fn killed_store_opens_on_full_disk_and_accepts_deletes() {
    for free in (0..8).map(|pages| pages * PAGE) {
        let sim = Sim::new(1);
        let (_db, _keyspace, written) = filled_up(&sim, free);
        let image = sim.kill_image();
        image.set_capacity(used(&image));
        let db = Db::open(PATH, small(&image)).unwrap();
        let keyspace = existing(&db, "a");
        assert_eq!(all(&keyspace), filled(0..written, 1));
        keyspace.delete_range(key(0), key(written - 1)).unwrap();
        keyspace.compact(None, None).unwrap();
        survives(&image, &db, &filled(written - 1..written, 1));
        fill(&keyspace, 0..100, 1);
        drop(keyspace);
        db.close().unwrap();
        let keyspace = existing(&again(&image), "a");
        assert_eq!(keyspace.iter().count(), 101);
    }
}

/// A store of many tables, whose manifest is larger than the space its WAL could free.
fn of_many_tables(sim: &Sim) -> (Db, Keyspace, usize) {
    let db = Db::open(PATH, of_small_segments(sim)).unwrap();
    let many = KeyspaceOptions { level0_tables: 1000, ..tiny() };
    let keyspace = db.keyspace("a", many).unwrap();
    let tables = 900;
    for table in 0..tables {
        fill(&keyspace, table..table + 1, 1);
        keyspace.flush().unwrap();
    }
    (db, keyspace, tables)
}

/// Options of [`of_many_tables`].
fn of_small_segments(sim: &Sim) -> Options {
    Options { log_segment_bytes: 64 << 10, ..inline(&sim.env()) }
}

/// Opens the store on a disk without a free page, twice as if a process died after the first open,
/// and frees space by deleting.
fn check_opens_and_accepts_deletes(image: &Sim, written: usize) {
    image.set_capacity(used(image));
    let options = of_small_segments;
    let db = Db::open(PATH, options(image)).unwrap();
    assert_eq!(all(&existing(&db, "a")), filled(0..written, 1));
    let image = image.kill_image();
    image.set_capacity(used(&image));
    let db = Db::open(PATH, options(&image)).unwrap();
    let keyspace = existing(&db, "a");
    assert_eq!(all(&keyspace), filled(0..written, 1));
    keyspace.delete_range(key(0), key(written - 1)).unwrap();
    db.sync().unwrap();
    keyspace.compact(None, None).unwrap();
    fill(&keyspace, 0..10, 2);
    let mut expected = filled(0..10, 2);
    expected.extend(filled(written - 1..written, 1));
    survives(&image, &db, &expected);
    drop(keyspace);
    db.close().unwrap();
    assert_eq!(all(&existing(&again(&image), "a")), expected);
}

/// Story: the manifest of a store of hundreds of tables was larger than the space its WAL freed.
/// After its process died on a full disk the store did not open, and nothing could be deleted.
#[test]
fn killed_store_of_many_tables_opens_on_full_disk() {
    for free in (0..8).map(|pages| pages * PAGE) {
        let sim = Sim::new(1);
        let (_db, keyspace, tables) = of_many_tables(&sim);
        sim.set_capacity(used(&sim) + free);
        let written = fill_up(&keyspace, tables);
        check_opens_and_accepts_deletes(&sim.kill_image(), written);
    }
}

/// Story: a store that was closed before another program filled the disk did not open.
#[test]
fn closed_store_opens_on_full_disk_and_accepts_deletes() {
    let sim = Sim::new(1);
    let (db, keyspace, tables) = of_many_tables(&sim);
    drop(keyspace);
    db.close().unwrap();
    check_opens_and_accepts_deletes(&sim.kill_image(), tables);
    let sim = Sim::new(1);
    let (db, keyspace, written) = filled_up(&sim, 16 * PAGE);
    drop(keyspace);
    db.close().unwrap();
    check_opens_and_accepts_deletes(&sim.kill_image(), written);
}

/// Story: an open that was killed on a full disk left its manifest in the space reserved for it.
/// After three such opens the store did not open any more.
#[test]
fn killed_opens_on_full_disk_use_no_space() {
    let sim = Sim::new(1);
    let db = Db::open(PATH, of_small_segments(&sim)).unwrap();
    let many = KeyspaceOptions { level0_tables: 1000, ..tiny() };
    let keyspace = db.keyspace("a", many).unwrap();
    // Each table takes twice as many bytes in the manifest.
    let long_key = |number: usize| [key(number), vec![b'k'; 2000]].concat();
    for number in 0..60 {
        keyspace.put(long_key(number), b"").unwrap();
        keyspace.flush().unwrap();
    }
    sim.set_capacity(used(&sim));
    let keys = 60 + fill_up(&keyspace, 1000) - 1000;
    let capacity = used(&sim);
    let image = |sim: &Sim| {
        let image = sim.kill_image();
        image.set_capacity(capacity);
        image
    };
    let opened = |sim: &Sim| Db::open(PATH, of_small_segments(sim));
    let calls_of_open = |sim: &Sim| {
        let probe = image(sim);
        let before = probe.calls();
        let _db = opened(&probe).unwrap();
        probe.calls() - before
    };
    let mut left = image(&sim);
    // The calls that change something come last.
    for before_end in (0..100).rev() {
        // Each starts from the state that the one before it left.
        let calls = calls_of_open(&left);
        left.crash_at(left.calls() + calls - before_end, CrashSide::After);
        let _ = opened(&left);
        left = image(&left);
    }
    let found = opened(&image(&left)).unwrap();
    assert_eq!(existing(&found, "a").iter().count(), keys);
    let db = opened(&left).unwrap();
    let keyspace = existing(&db, "a");
    keyspace.delete_range(key(0), key(2000)).unwrap();
    keyspace.compact(None, None).unwrap();
    fill(&keyspace, 3000..3010, 1);
    survives(&left, &db, &filled(3000..3010, 1));
}

/// A store opens with any file under the name of the reserved space, and without one. A file with
/// other content belongs to another program, and stays unchanged.
#[test]
fn reserved_space_file_may_have_any_content() {
    let foreign = vec![7; 500_000];
    let name = format!("{PATH}/RESERVED");
    for change in 0..4 {
        let sim = Sim::new(1);
        let db = Db::open(PATH, small(&sim)).unwrap();
        fill(&db.keyspace("a", tiny()).unwrap(), 0..100, 1);
        db.close().unwrap();
        let files = sim.env().files;
        assert!(!sim.read(&name).is_empty());
        if change > 0 {
            files.remove_file(name.as_ref()).unwrap();
        }
        match change {
            1 => drop(files.create(name.as_ref()).unwrap()),
            2 => files.create(name.as_ref()).unwrap().write_all_at(&foreign, 0).unwrap(),
            3 => files.create_dir_all(name.as_ref()).unwrap(),
            _ => {}
        }
        let db = Db::open(PATH, small(&sim)).unwrap();
        let keyspace = existing(&db, "a");
        fill(&keyspace, 100..200, 1);
        survives(&sim, &db, &filled(0..200, 1));
        assert!(db.verify().unwrap().damage.is_empty());
        drop(keyspace);
        db.close().unwrap();
        assert_eq!(all(&existing(&again(&sim), "a")), filled(0..200, 1));
        if change == 2 {
            assert_eq!(sim.read(&name), foreign);
        }
    }
    let sim = Sim::new(1);
    sim.env().files.create_dir_all(PATH.as_ref()).unwrap();
    sim.env().files.create(name.as_ref()).unwrap();
    let refused = Db::open(PATH, small(&sim)).unwrap_err().to_string();
    assert!(refused.contains("is not a store") && refused.contains("RESERVED"), "{refused}");
}

/// A close that finds the disk full for a flush leaves the writes to the WAL.
#[test]
fn close_on_full_disk_loses_nothing() {
    for free in (0..8).map(|pages| pages * PAGE) {
        let sim = Sim::new(1);
        let (db, keyspace, written) = filled_up(&sim, free);
        drop(keyspace);
        match db.close() {
            Ok(()) | Err(Error::DiskFull { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        sim.clear_capacity();
        assert_eq!(all(&existing(&again(&sim), "a")), filled(0..written, 1));
    }
}

/// The states after a script's operations, and how many of the operations were synced. After a
/// crash every state from the last synced one on is permitted.
struct Script {
    sim: Sim,
    /// The entries after each acknowledged operation.
    states: Vec<Entries>,
    /// Number of operations known to be synced.
    synced: usize,
}

/// Fills the disk, deletes, compacts and continues, until the machine dies or the script ends.
fn run(sim: Sim, mapping: bool) -> Script {
    sim.allow_mapping(mapping);
    let mut script = Script { sim, states: vec![Vec::new()], synced: 1 };
    let _ = script.run_operations();
    script
}

impl Script {
    fn run_operations(&mut self) -> umbel::Result<()> {
        let options = Options { log_segment_bytes: 64 << 10, ..inline(&self.sim.env()) };
        let db = Db::open(PATH, options)?;
        let keyspace = db.keyspace("a", tiny())?;
        for index in 0..100 {
            self.put(&keyspace, index)?;
        }
        if !self.sim.is_dead() {
            self.sim.set_capacity(used(&self.sim) + 16 * PAGE);
        }
        for index in 100..600 {
            match self.put(&keyspace, index) {
                Err(Error::DiskFull { .. }) => break,
                put => put?,
            }
        }
        self.sync(&db)?;
        keyspace.delete_range(key(0), key(90))?;
        self.note(|entries| entries.retain(|(found, _)| *found >= key(90)));
        self.sync(&db)?;
        keyspace.compact(None, None)?;
        for index in 0..20 {
            self.put(&keyspace, index)?;
        }
        self.sync(&db)
    }

    fn put(&mut self, keyspace: &Keyspace, index: usize) -> umbel::Result<()> {
        keyspace.put(key(index), value(index, 1))?;
        self.note(|entries| {
            let at = entries.partition_point(|(found, _)| *found < key(index));
            entries.insert(at, (key(index), value(index, 1)));
        });
        Ok(())
    }

    fn note(&mut self, change: impl FnOnce(&mut Entries)) {
        let mut entries = self.states.last().cloned().unwrap_or_default();
        change(&mut entries);
        self.states.push(entries);
    }

    fn sync(&mut self, db: &Db) -> umbel::Result<()> {
        db.sync()?;
        self.synced = self.states.len();
        Ok(())
    }
}

/// Runs the script with a crash at one call after the other. After a power loss the store has the
/// state after a prefix of the operations that includes every synced one. After a kill the prefix
/// includes every acknowledged operation. The same must hold if the disk is still full at the next
/// open.
#[test]
fn crash_at_any_call_on_full_disk_loses_nothing() {
    for mapping in [true, false] {
        let complete = run(Sim::new(3), mapping);
        assert!(complete.sim.sites().keys().any(|site| site.contains("table")));
        assert_eq!(complete.synced, complete.states.len(), "it runs to its end");
        let calls = complete.sim.changing_calls();
        for call in calls.iter().step_by(if mapping { 17 } else { 13 }) {
            let sim = Sim::new(3);
            sim.crash_at(*call, CrashSide::Before);
            let script = run(sim, mapping);
            for (policy, synced) in
                [(Survival::None, script.synced), (Survival::All, script.states.len())]
            {
                let image = script.sim.crash_image(&policy, *call);
                image.allow_mapping(mapping);
                image.set_capacity(used(&image) + 4 * PAGE);
                let found = match Db::open(PATH, inline(&image.env())) {
                    Ok(db) => db.existing_keyspace("a").unwrap().map_or(vec![], |a| all(&a)),
                    Err(Error::DiskFull { .. }) => {
                        image.clear_capacity();
                        again(&image).existing_keyspace("a").unwrap().map_or(vec![], |a| all(&a))
                    }
                    Err(error) => panic!("call {call}, {policy:?}: {error}"),
                };
                // An operation in flight may be present.
                let may = &script.states[synced - 1..];
                let in_flight = found.len() == 1 + script.states[script.states.len() - 1].len();
                let is_one = may.contains(&found) || in_flight;
                assert!(is_one, "call {call}, {policy:?}: {} entries", found.len());
            }
        }
    }
}

//! Tests that background work that finds the disk full, while no caller waits for it, is postponed
//! and retried.

use std::sync::mpsc;
use std::time::Duration;

use umbel::{Db, Durability, Error, Keyspace, KeyspaceOptions, Options};
use umbel_sim::{Fault, FaultKind, Sim, Survival};

use crate::suite::fixture::{
    self, PATH, again, all, existing, fill, filled, inline, key, live_tables, overwrite_a_third,
    threaded, tiny, value,
};
use crate::suite::hooked_files::hooked;

const FULL: Fault = Fault { kind: FaultKind::Enospc, sticky: false };
const STAYS_FULL: Fault = Fault { kind: FaultKind::Enospc, sticky: true };
const KEYS: usize = 3000;

/// Gives other threads time to run.
fn pause(millis: u64) {
    let (_sender, receiver) = mpsc::channel::<()>();
    let _ = receiver.recv_timeout(Duration::from_millis(millis));
}

/// Whether a condition becomes true within the time limit.
fn wait_until(mut it: impl FnMut() -> bool) -> bool {
    (0..4000).any(|_| {
        if !it() {
            pause(5);
            return false;
        }
        true
    })
}

fn has_garbage(keyspace: &Keyspace) -> bool {
    keyspace.stats().levels[0].tables > 0
}

/// Checks that all live files are present, also after a crash, and that the directory has no other
/// files.
fn check_complete(sim: &Sim, db: &Db, expected: &[(Vec<u8>, Vec<u8>)]) {
    db.sync().unwrap();
    assert_eq!(db.stats().read_only_reason, None);
    assert_eq!(fixture::files(&sim.env(), ".table") as u64, live_tables(db));
    let images = [Survival::None, Survival::All, Survival::Garbage(0.5)];
    let images = images.iter().map(|policy| sim.crash_image(policy, 7));
    for image in images.chain([sim.kill_image()]) {
        assert_eq!(all(&existing(&again(&image), "a")), expected);
    }
}

/// Story: after a write in the meantime, or a wait for all compactions, the store accepted no
/// writes any more because garbage was not compacted.
#[test]
fn garbage_on_full_disk_does_not_stop_writes() {
    for (threads, site) in
        [0, 1, 2].into_iter().flat_map(|n| [(n, "create *.table"), (n, "write *.manifest")])
    {
        let sim = Sim::new(1);
        overwrite_a_third(&sim, KEYS);
        let (env, hooks) = hooked(&sim.env());
        let db = Db::open(PATH, threaded(&env, threads)).unwrap();
        let keyspace = existing(&db, "a");
        // The segment is provisioned before the disk is full.
        fill(&keyspace, KEYS..KEYS + 1, 1);
        pause(100);
        let (writer, full) = (keyspace.clone(), sim.clone());
        hooks.before("create *.table", move || {
            fill(&writer, KEYS + 1..KEYS + 2, 1);
            full.fail_site(site, 1, STAYS_FULL);
        });
        // The write meanwhile may end this wait, but not the next one.
        let ended = db.wait_for_compaction();
        assert!(
            matches!(ended, Ok(()) | Err(Error::DiskFull { .. })),
            "{threads} {site}: {ended:?}"
        );
        assert!(hooks.was_called());
        let refused = db.wait_for_compaction();
        assert!(sim.faults_fired() > 0);
        assert!(matches!(refused, Err(Error::DiskFull { .. })), "{threads} {site}: {refused:?}");
        assert_eq!(db.stats().read_only_reason, None);
        assert!(has_garbage(&keyspace));
        fill(&keyspace, KEYS + 2..KEYS + 3, 1);
        let expected = [filled(0..KEYS / 3, 2), filled(KEYS / 3..KEYS + 3, 1)].concat();
        check_complete(&sim, &db, &expected);
        sim.heal();
        db.wait_for_compaction().unwrap();
        assert!(!has_garbage(&keyspace));
        check_complete(&sim, &db, &expected);
    }
}

/// Story: a failed flush without a waiting writer was fatal if a write had happened since. A failed
/// flush was always fatal if the manifest had no space for its edit.
#[test]
fn flush_without_waiting_writer_is_postponed() {
    for site in ["create *.table", "write *.table", "write *.manifest"] {
        let sim = Sim::new(1);
        let db = Db::open(PATH, threaded(&sim.env(), 1)).unwrap();
        let keyspace = db.keyspace("a", tiny()).unwrap();
        fill(&keyspace, 0..1, 1);
        pause(100);
        sim.fail_site(site, 1, STAYS_FULL);
        let mut count = 1;
        while keyspace.stats().frozen_memtables == 0 {
            fill(&keyspace, count..count + 1, 1);
            count += 1;
        }
        fill(&keyspace, count..count + 1, 1);
        assert!(wait_until(|| db.stats().descriptors.postponed_work.is_some()), "{site}");
        check_complete(&sim, &db, &filled(0..count + 1, 1));
        sim.heal();
        sim.advance(Duration::from_secs(2));
        assert!(wait_until(|| keyspace.stats().frozen_memtables == 0), "{site}");
        check_complete(&sim, &db, &filled(0..count + 1, 1));
        assert_eq!(db.stats().descriptors.postponed_work, None);
    }
}

/// Story: another thread had checked for garbage while the writers were already stalled. Since no
/// write had happened since that check, the flush was postponed forever, and the writers waited
/// forever.
#[test]
fn stalled_writers_get_the_disk_full_error() {
    let sim = Sim::new(1);
    let (env, hooks) = hooked(&sim.env());
    let db = Db::open(PATH, threaded(&env, 2)).unwrap();
    let keyspace = db.keyspace("a", tiny()).unwrap();
    let (sender, receiver) = mpsc::channel();
    let (writer, full) = (keyspace.clone(), sim.clone());
    hooks.before("create *.table", move || {
        let stats = writer.clone();
        let writes = move || {
            let mut writes = (1000..).map(|index| writer.put(key(index), value(index, 1)));
            sender.send(writes.find_map(Result::err)).unwrap();
        };
        env.threads.spawn("writer", Box::new(writes)).unwrap();
        assert!(wait_until(|| stats.stats().frozen_memtables >= 4));
        pause(200);
        full.fail_site("create *.table", 1, STAYS_FULL);
    });
    let mut count = 0;
    while keyspace.stats().frozen_memtables == 0 && !hooks.was_called() {
        fill(&keyspace, count..count + 1, 1);
        count += 1;
    }
    let refused = receiver.recv_timeout(Duration::from_secs(20)).expect("it waits no more");
    assert!(refused.is_some_and(|error| error.to_string().contains("free space")));
    // A failure was final then, even after space was freed.
    assert_eq!(db.stats().read_only_reason, None);
    sim.heal();
    // An attempt that began before may end after, and a writer that waits for it fails.
    assert!(wait_until(|| keyspace.put(key(0), value(0, 2)).is_ok()));
    assert!(wait_until(|| db.wait_for_compaction().is_ok()));
    assert_eq!(keyspace.get(key(0)).unwrap(), Some(value(0, 2)));
    fill(&keyspace, 0..1, 3);
    assert_eq!(keyspace.get(key(0)).unwrap(), Some(value(0, 3)));
}

/// Story: without background threads, a conditional synced batch that was stored returned a
/// disk-full error, because the flush after it failed. A caller that took that for a failure and
/// retried got a conflict with its own write.
#[test]
fn stored_write_is_acknowledged_despite_failed_flush() {
    for site in ["create *.table", "write *.table", "sync *.table"] {
        let sim = Sim::new(1);
        let db = Db::open(PATH, inline(&sim.env())).unwrap();
        let keyspace = db.keyspace("a", tiny()).unwrap();
        sim.fail_site(site, 1, STAYS_FULL);
        let mut stored = 0;
        let refused = loop {
            let mut batch = db.batch();
            batch.expect_absent(&keyspace, key(stored));
            batch.put(&keyspace, key(stored), b"value");
            match batch.commit(Durability::Synced) {
                Ok(()) => stored += 1,
                Err(error) => break error,
            }
            assert!(stored < KEYS, "{site} was never reached");
        };
        assert!(refused.to_string().contains("free space"), "{site}: {refused}");
        assert_eq!(db.stats().read_only_reason, None);
        assert_eq!((all(&keyspace).len(), keyspace.get(key(stored)).unwrap()), (stored, None));
        let crashed = again(&sim.crash_image(&Survival::None, 3));
        assert_eq!(all(&existing(&crashed, "a")).len(), stored);
    }
}

/// Story: postponed work filled the disk completely each second for as long as no write happened.
#[test]
fn postponed_work_is_retried_with_backoff() {
    let sim = Sim::new(1);
    overwrite_a_third(&sim, KEYS);
    let db = Db::open(PATH, threaded(&sim.env(), 1)).unwrap();
    sim.fail_site("create *.table", 1, STAYS_FULL);
    assert!(db.wait_for_compaction().is_err());
    let keyspace = existing(&db, "a");
    let tries = |seconds: u64| {
        let before = sim.faults_fired();
        for _ in 0..seconds {
            sim.advance(Duration::from_secs(1));
            // Makes the store read the clock.
            keyspace.flush().unwrap();
            pause(10);
        }
        sim.faults_fired() - before
    };
    let often = tries(60);
    assert!((3..10).contains(&often), "{often} times");
    // But forever.
    sim.heal();
    sim.advance(Duration::from_secs(300));
    keyspace.flush().unwrap();
    assert!(wait_until(|| !has_garbage(&keyspace)));
}

/// Bytes of the WAL files.
fn logs(sim: &Sim) -> u64 {
    let entries = sim.env().files.read_dir(PATH.as_ref()).unwrap();
    entries.iter().filter(|entry| entry.name.ends_with(".log")).map(|entry| entry.len).sum()
}

/// Story: a spare segment that no edit could name kept its disk space until the next open.
#[test]
fn unnamed_spare_segment_takes_no_space() {
    let sim = Sim::new(1);
    let options = Options { log_segment_bytes: 16 << 10, ..inline(&sim.env()) };
    let db = Db::open(PATH, options).unwrap();
    let keyspace = db.keyspace("a", None).unwrap();
    fill(&keyspace, 0..1, 1);
    assert_eq!(logs(&sim), 16 << 10);
    sim.fail_site("write *.manifest", 1, FULL);
    fill(&keyspace, 1..100, 1);
    assert_eq!((sim.faults_fired(), logs(&sim)), (1, 16 << 10));
    check_complete(&sim, &db, &filled(0..100, 1));
    fill(&keyspace, 100..500, 1);
    check_complete(&sim, &db, &filled(0..500, 1));
}

/// Story: segments that could not be released on a full disk stayed until the next write.
#[test]
fn idle_store_releases_segments_when_space_is_free() {
    let sim = Sim::new(1);
    let options = Options { log_segment_bytes: 16 << 10, ..threaded(&sim.env(), 1) };
    let db = Db::open(PATH, options).unwrap();
    let keyspace = db.keyspace("a", KeyspaceOptions::default()).unwrap();
    fill(&keyspace, 0..1000, 1);
    pause(1500);
    // The first names the table.
    sim.fail_site("write *.manifest", 2, STAYS_FULL);
    keyspace.flush().unwrap();
    pause(1500);
    let before = logs(&sim);
    assert!(sim.faults_fired() > 0 && before > 64 << 10, "{before}");
    sim.heal();
    assert!(wait_until(|| logs(&sim) <= 32 << 10), "{}", logs(&sim));
    check_complete(&sim, &db, &filled(0..1000, 1));
}

//! A disk without room while work is done that nobody waits for: it is put off, and tried again.

use std::sync::mpsc;
use std::time::Duration;

use umbel::{Db, Durability, Error, Keyspace, KeyspaceOptions, Options};
use umbel_sim::{Fault, FaultKind, Sim, Survival};

use crate::suite::hooked::hooked;
use crate::suite::stage::{
    self, PATH, again, all, existing, fill, filled, inline, key, live_tables, overwrite_a_third,
    threaded, tiny, value,
};

const FULL: Fault = Fault { kind: FaultKind::Enospc, sticky: false };
const STAYS_FULL: Fault = Fault { kind: FaultKind::Enospc, sticky: true };
const KEYS: usize = 3000;

/// Lets other threads go on for a while.
fn pause(millis: u64) {
    let (_sender, receiver) = mpsc::channel::<()>();
    let _ = receiver.recv_timeout(Duration::from_millis(millis));
}

/// Whether something comes to pass before anybody loses patience.
fn comes_to_pass(mut it: impl FnMut() -> bool) -> bool {
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

/// Everything that counts is there after a crash as well, and nothing else lies in the folder.
fn is_whole(sim: &Sim, db: &Db, expected: &[(Vec<u8>, Vec<u8>)]) {
    db.sync().unwrap();
    assert_eq!(db.stats().read_only_reason, None);
    assert_eq!(stage::files(&sim.env(), ".table") as u64, live_tables(db));
    let images = [Survival::None, Survival::All, Survival::Garbage(0.5)];
    let images = images.iter().map(|policy| sim.crash_image(policy, 7));
    for image in images.chain([sim.kill_image()]) {
        assert_eq!(all(&existing(&again(&image), "a")), expected);
    }
}

/// Where anybody wrote in the meantime, or waited for all compactions, nobody could write any more
/// because garbage was not compacted.
#[test]
fn garbage_on_a_full_disk_is_no_harm_whoever_writes() {
    for (threads, site) in
        [0, 1, 2].into_iter().flat_map(|n| [(n, "create *.table"), (n, "write *.manifest")])
    {
        let sim = Sim::new(1);
        overwrite_a_third(&sim, KEYS);
        let (env, hooks) = hooked(&sim.env());
        let db = Db::open(PATH, threaded(&env, threads)).unwrap();
        let keyspace = existing(&db, "a");
        // The segment is made ready before the disk is full.
        fill(&keyspace, KEYS..KEYS + 1, 1);
        pause(100);
        let (writer, full) = (keyspace.clone(), sim.clone());
        hooks.before("create *.table", move || {
            fill(&writer, KEYS + 1..KEYS + 2, 1);
            full.fail_site(site, 1, STAYS_FULL);
        });
        // The write meanwhile may end this, but not the next one.
        let ended = db.wait_for_compaction();
        assert!(matches!(ended, Ok(()) | Err(Error::Full { .. })), "{threads} {site}: {ended:?}");
        assert!(hooks.was_called());
        let refused = db.wait_for_compaction();
        assert!(sim.faults_fired() > 0);
        assert!(matches!(refused, Err(Error::Full { .. })), "{threads} {site}: {refused:?}");
        assert_eq!(db.stats().read_only_reason, None);
        assert!(has_garbage(&keyspace));
        fill(&keyspace, KEYS + 2..KEYS + 3, 1);
        let expected = [filled(0..KEYS / 3, 2), filled(KEYS / 3..KEYS + 3, 1)].concat();
        is_whole(&sim, &db, &expected);
        sim.heal();
        db.wait_for_compaction().unwrap();
        assert!(!has_garbage(&keyspace));
        is_whole(&sim, &db, &expected);
    }
}

/// A flush that no writer waited for was final because somebody had written since, and where the
/// manifest had no room for it even if nobody had.
#[test]
fn a_flush_that_nobody_waits_for_is_put_off() {
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
        assert!(comes_to_pass(|| db.stats().descriptors.work_put_off.is_some()), "{site}");
        is_whole(&sim, &db, &filled(0..count + 1, 1));
        sim.heal();
        sim.advance(Duration::from_secs(2));
        assert!(comes_to_pass(|| keyspace.stats().frozen_memtables == 0), "{site}");
        is_whole(&sim, &db, &filled(0..count + 1, 1));
        assert_eq!(db.stats().descriptors.work_put_off, None);
    }
}

/// Another thread had looked for garbage when the writers were held back already. Thus nobody had
/// written since, the flush was put off for ever, and they waited as long.
#[test]
fn writers_that_wait_for_a_flush_learn_that_the_disk_is_full() {
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
        assert!(comes_to_pass(|| stats.stats().frozen_memtables >= 4));
        pause(200);
        full.fail_site("create *.table", 1, STAYS_FULL);
    });
    let mut count = 0;
    while keyspace.stats().frozen_memtables == 0 && !hooks.was_called() {
        fill(&keyspace, count..count + 1, 1);
        count += 1;
    }
    let refused = receiver.recv_timeout(Duration::from_secs(20)).expect("it waits no more");
    assert!(refused.is_some_and(|error| error.to_string().contains("make room")));
    // A refusal was final then, also after room was made.
    assert_eq!(db.stats().read_only_reason, None);
    sim.heal();
    // An attempt that began before may end after, and a writer that waits for it is refused.
    assert!(comes_to_pass(|| keyspace.put(key(0), value(0, 2)).is_ok()));
    assert!(comes_to_pass(|| db.wait_for_compaction().is_ok()));
    assert_eq!(keyspace.get(key(0)).unwrap(), Some(value(0, 2)));
    fill(&keyspace, 0..1, 3);
    assert_eq!(keyspace.get(key(0)).unwrap(), Some(value(0, 3)));
}

/// Story: where writers do the work themselves, a conditional synced batch that was stored answered
/// that the disk is full, because the flush after it failed. Who took that for a refusal and tried
/// again got a conflict with his own write.
#[test]
fn a_write_that_is_stored_says_so_whatever_fails_after_it() {
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
        assert!(refused.to_string().contains("make room"), "{site}: {refused}");
        assert_eq!(db.stats().read_only_reason, None);
        assert_eq!((all(&keyspace).len(), keyspace.get(key(stored)).unwrap()), (stored, None));
        let crashed = again(&sim.crash_image(&Survival::None, 3));
        assert_eq!(all(&existing(&crashed, "a")).len(), stored);
    }
}

/// Work that was put off filled the disk to the brim each second for as long as nobody wrote.
#[test]
fn what_finds_no_room_is_tried_again_less_and_less_often() {
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
            // Has the store look at the clock.
            keyspace.flush().unwrap();
            pause(10);
        }
        sim.faults_fired() - before
    };
    let often = tries(60);
    assert!((3..10).contains(&often), "{often} times");
    // But for ever.
    sim.heal();
    sim.advance(Duration::from_secs(300));
    keyspace.flush().unwrap();
    assert!(comes_to_pass(|| !has_garbage(&keyspace)));
}

/// Bytes of the log files.
fn logs(sim: &Sim) -> u64 {
    let entries = sim.env().files.read_dir(PATH.as_ref()).unwrap();
    entries.iter().filter(|entry| entry.name.ends_with(".log")).map(|entry| entry.len).sum()
}

/// A spare segment that no edit could name took its room until the next open.
#[test]
fn a_spare_segment_that_is_not_named_takes_no_room() {
    let sim = Sim::new(1);
    let options = Options { log_segment_bytes: 16 << 10, ..inline(&sim.env()) };
    let db = Db::open(PATH, options).unwrap();
    let keyspace = db.keyspace("a", None).unwrap();
    fill(&keyspace, 0..1, 1);
    assert_eq!(logs(&sim), 16 << 10);
    sim.fail_site("write *.manifest", 1, FULL);
    fill(&keyspace, 1..100, 1);
    assert_eq!((sim.faults_fired(), logs(&sim)), (1, 16 << 10));
    is_whole(&sim, &db, &filled(0..100, 1));
    fill(&keyspace, 100..500, 1);
    is_whole(&sim, &db, &filled(0..500, 1));
}

/// Segments that could not be given back for want of room stayed until somebody wrote again.
#[test]
fn a_store_at_rest_gives_segments_back_once_there_is_room() {
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
    assert!(comes_to_pass(|| logs(&sim) <= 32 << 10), "{}", logs(&sim));
    is_whole(&sim, &db, &filled(0..1000, 1));
}

//! Tests of WAL segments: how they are prepared, reused and released.

use umbel::{Db, KeyspaceOptions, Options};
use umbel_env::Env;
use umbel_sim::{Fault, FaultKind, Sim, Survival};

use crate::suite::fixture::{PATH, again, all, existing, fill, filled, inline, key, tiny};

const SEGMENT_BYTES: u64 = 16 << 10;

fn options(env: &Env) -> Options {
    Options { log_segment_bytes: SEGMENT_BYTES, ..inline(env) }
}

/// Lengths of the WAL files.
fn logs(env: &Env, folder: &str) -> Vec<u64> {
    let entries = env.files.read_dir(folder.as_ref()).unwrap();
    entries.iter().filter(|entry| entry.name.ends_with(".log")).map(|entry| entry.len).collect()
}

#[test]
fn writer_waits_for_the_first_segment_only() {
    let sim = Sim::new(1);
    let db = Db::open(PATH, options(&sim.env())).unwrap();
    let keyspaces = ["a", "b"].map(|name| db.keyspace(name, tiny()).unwrap());
    for index in 0..4000 {
        fill(&keyspaces[index % 2], index..index + 1, 1);
    }
    let log = db.stats().log;
    assert_eq!((log.is_mapped, log.segments_awaited), (Some(true), 1), "{log:?}");
    assert!(log.segments_reused > 5, "{log:?}");
    let killed = sim.kill_image();
    let db = again(&killed);
    for (start, name) in ["a", "b"].iter().enumerate() {
        let entries = all(&existing(&db, name));
        let expected = filled(0..4000, 1).into_iter().skip(start).step_by(2);
        assert!(entries.into_iter().eq(expected), "{name}");
    }
}

/// Recovery stops at an open segment without records, so no such segment may precede one with
/// records.
#[test]
fn batch_longer_than_spare_segment_is_recovered() {
    let sim = Sim::new(1);
    let db = Db::open(PATH, options(&sim.env())).unwrap();
    let keyspace = db.keyspace("a", None).unwrap();
    fill(&keyspace, 0..100, 1);
    assert_eq!(logs(&sim.env(), PATH).len(), 2, "one written to, and a spare one");
    let value = vec![7; 2 * SEGMENT_BYTES as usize];
    keyspace.put("long", &value).unwrap();
    fill(&keyspace, 100..200, 1);
    assert_eq!(db.stats().log.segments_awaited, 2);
    for image in [sim.kill_image(), {
        db.sync().unwrap();
        sim.crash_image(&Survival::None, 1)
    }] {
        let keyspace = existing(&again(&image), "a");
        assert_eq!(keyspace.get("long").unwrap().as_deref(), Some(&value[..]));
        assert_eq!(keyspace.iter().count(), 201);
    }
}

#[test]
fn unmapped_segments_are_not_recycled() {
    let sim = Sim::new(1);
    sim.allow_mapping(false);
    let db = Db::open(PATH, options(&sim.env())).unwrap();
    let keyspace = db.keyspace("a", tiny()).unwrap();
    fill(&keyspace, 0..2000, 1);
    let stats = db.stats();
    assert_eq!((stats.log.is_mapped, stats.log.segments_reused), (Some(false), 0));
    assert_eq!(stats.log.segments_awaited, 1);
    assert!(stats.to_string().contains("log: written with write(2) to new files"), "{stats}");
    assert_eq!(all(&existing(&again(&sim.kill_image()), "a")), filled(0..2000, 1));
}

#[test]
fn close_removes_spare_segments() {
    let sim = Sim::new(1);
    let db = Db::open(PATH, options(&sim.env())).unwrap();
    let keyspace = db.keyspace("a", None).unwrap();
    fill(&keyspace, 0..100, 1);
    let before: u64 = logs(&sim.env(), PATH).iter().sum();
    assert_eq!(before, 2 * SEGMENT_BYTES);
    drop(keyspace);
    db.close().unwrap();
    let left = logs(&sim.env(), PATH);
    assert!(left.len() == 1 && left[0] < SEGMENT_BYTES, "{left:?}");
    assert_eq!(all(&existing(&again(&sim), "a")), filled(0..100, 1));
}

/// Story: a million keys took 64 MiB of WAL although no writes were expected soon.
#[test]
fn idle_store_keeps_a_small_spare_segment() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let env = Env::system();
    let db = Db::open(path, Options { memory_bytes: Some(1 << 30), ..Options::default() }).unwrap();
    let keyspace = db.keyspace("a", KeyspaceOptions::default()).unwrap();
    let value = [7; 1000];
    for round in 0..2 {
        for index in 0..30_000 {
            keyspace.put(key(index), value).unwrap();
        }
        keyspace.flush().unwrap();
        let ready: u64 = logs(&env, path).iter().sum();
        assert!(ready <= 4 << 20, "{ready} bytes in round {round}: {:?}", logs(&env, path));
    }
    keyspace.put("one", "more").unwrap();
    assert!(db.stats().log.spare_bytes <= 4 << 20);
    drop(keyspace);
    db.close().unwrap();
}

#[test]
fn idle_store_trims_its_unflushed_wal_segment() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let env = Env::system();
    let db = Db::open(path, Options { memory_bytes: Some(1 << 30), ..Options::default() }).unwrap();
    let keyspace = db.keyspace("a", None).unwrap();
    let value = [7; 1000];
    for index in 0..20_000 {
        keyspace.put(key(index), value).unwrap();
    }
    // Only the passing of time triggers it.
    let is_short = || logs(&env, path).iter().sum::<u64>() < (20_000 * 1100) + (5 << 20);
    for _ in 0..1000 {
        if is_short() {
            break;
        }
        let (_sender, never) = std::sync::mpsc::channel::<()>();
        let _ = never.recv_timeout(std::time::Duration::from_millis(20));
    }
    assert!(is_short(), "{:?}", logs(&env, path));
    assert_eq!(db.stats().keyspaces[0].memtable_entries, 20_000);
    keyspace.put("one", "more").unwrap();
    drop(keyspace);
    db.close().unwrap();
    let db = Db::open(path, Options::default()).unwrap();
    assert_eq!(existing(&db, "a").iter().count(), 20_001);
}

#[test]
fn full_disk_fails_segment_creation() {
    let sim = Sim::new(1);
    let db = Db::open(PATH, options(&sim.env())).unwrap();
    let keyspace = db.keyspace("a", None).unwrap();
    keyspace.put("first", "value").unwrap();
    sim.set_capacity(0);
    let mut written = 0;
    let refused = loop {
        match keyspace.put(key(written), [7; 100]) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, umbel::Error::DiskFull { .. }), "{refused}");
    assert!(written > 50, "the segment there was is filled");
    sim.clear_capacity();
    fill(&keyspace, 1000..1100, 1);
    assert_eq!(existing(&again(&sim.kill_image()), "a").iter().count(), 101 + written);
}

const FULL: Fault = Fault { kind: FaultKind::Enospc, sticky: false };

/// The state after a crash or a kill holds every synced write.
fn survives(sim: &Sim, db: &Db, count: usize) {
    db.sync().unwrap();
    let images = [Survival::None, Survival::All, Survival::Garbage(0.5)];
    let images = images.iter().map(|policy| sim.crash_image(policy, 7));
    for image in images.chain([sim.kill_image()]) {
        assert_eq!(all(&existing(&again(&image), "a")), filled(0..count, 1));
    }
}

/// Story: a store without writes refused all later writes, although its WAL was intact.
#[test]
fn full_disk_during_spare_segment_is_harmless() {
    for site in ["create *.log", "preallocate *.log", "sync *.log", "write *.manifest"] {
        let sim = Sim::new(1);
        let db = Db::open(PATH, options(&sim.env())).unwrap();
        let keyspace = db.keyspace("a", None).unwrap();
        fill(&keyspace, 0..1, 1);
        sim.fail_site(site, 1, FULL);
        fill(&keyspace, 1..100, 1);
        assert_eq!(sim.faults_fired(), 1, "{site}");
        assert_eq!(db.stats().read_only_reason, None, "{site}");
        survives(&sim, &db, 100);
        fill(&keyspace, 100..500, 1);
        survives(&sim, &db, 500);
        keyspace.flush().unwrap();
        survives(&sim, &db, 500);
    }
}

#[test]
fn full_disk_during_segment_release_is_harmless() {
    let sim = Sim::new(1);
    let db = Db::open(PATH, options(&sim.env())).unwrap();
    let keyspace = db.keyspace("a", None).unwrap();
    fill(&keyspace, 0..1000, 1);
    let before = logs(&sim.env(), PATH).len();
    // The first names the table.
    sim.fail_site("write *.manifest", 2, FULL);
    keyspace.flush().unwrap();
    assert_eq!(sim.faults_fired(), 1);
    assert_eq!(db.stats().read_only_reason, None);
    assert!(logs(&sim.env(), PATH).len() >= before, "nothing is removed that may be named");
    survives(&sim, &db, 1000);
    fill(&keyspace, 1000..1300, 1);
    survives(&sim, &db, 1300);
    keyspace.flush().unwrap();
    assert!(logs(&sim.env(), PATH).len() < before, "{:?}", logs(&sim.env(), PATH));
    survives(&sim, &db, 1300);
    drop((keyspace, db));
    assert_eq!(all(&existing(&again(&sim), "a")), filled(0..1300, 1));
}

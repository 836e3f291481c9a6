//! Tests of concurrent operations that must not disturb each other. A hook in the file system
//! interleaves them; where no hook is possible, a test tries many times.

use std::sync::mpsc;
use std::time::Duration;

use umbel::{Db, Durability, Error, KeyspaceOptions};
use umbel_sim::Sim;

use crate::suite::fixture::{
    self, PATH, again, all, existing, fill, filled, inline, threaded, tiny,
};
use crate::suite::hooked_files::hooked;

/// Story: a keyspace was dropped while others were flushed together with it. The whole flush was
/// discarded and still reported success, and its writes were not durable.
#[test]
fn drop_during_flush_keeps_other_keyspaces() {
    let sim = Sim::new(1);
    let (env, hooks) = hooked(&sim.env());
    let db = Db::open(PATH, inline(&env)).unwrap();
    let kept = db.keyspace("kept", fixture::unlogged()).unwrap();
    let dropped = db.keyspace("gone", fixture::unlogged()).unwrap();
    fill(&kept, 0..10, 1);
    fill(&dropped, 0..10, 1);
    let other = db.clone();
    hooks.before("create *.table", move || other.drop_keyspace("gone").unwrap());
    db.flush_all(&[&kept, &dropped], b"mark").unwrap();
    assert!(hooks.was_called());
    assert_eq!(kept.marker().as_deref(), Some(&b"mark"[..]));
    let crashed = again(&sim.kill_image());
    let kept = existing(&crashed, "kept");
    assert_eq!(kept.marker().as_deref(), Some(&b"mark"[..]));
    assert_eq!(all(&kept), filled(0..10, 1));
    drop(dropped);
    assert_eq!(fixture::files(&env, ".table"), 1);
}

/// Story: a checkpoint was made while a keyspace was dropped, and lacked every unflushed write.
#[test]
fn drop_during_checkpoint_keeps_checkpoint_complete() {
    let sim = Sim::new(1);
    let (env, hooks) = hooked(&sim.env());
    let db = Db::open(PATH, inline(&env)).unwrap();
    let kept = db.keyspace("kept", KeyspaceOptions::default()).unwrap();
    let dropped = db.keyspace("gone", KeyspaceOptions::default()).unwrap();
    fill(&kept, 0..10, 1);
    fill(&dropped, 0..10, 1);
    let other = db.clone();
    hooks.before("create *.table", move || other.drop_keyspace("gone").unwrap());
    db.checkpoint("/data/copy").unwrap();
    assert!(hooks.was_called());
    let copy = Db::open("/data/copy", inline(&sim.env())).unwrap();
    assert_eq!(all(&existing(&copy, "kept")), filled(0..10, 1));
}

/// Story: a keyspace was created while a checkpoint was made. The checkpoint held one half of a
/// batch to it and to an older keyspace.
#[test]
fn keyspace_created_during_checkpoint_tears_no_batch() {
    for place in ["create_dir_all *copy", "create *.table", "hard_link *.table"] {
        let sim = Sim::new(1);
        let (env, hooks) = hooked(&sim.env());
        let db = Db::open(PATH, inline(&env)).unwrap();
        let old = db.keyspace("old", KeyspaceOptions::default()).unwrap();
        fill(&old, 0..10, 1);
        let other = db.clone();
        hooks.before(place, move || {
            let new = other.keyspace("new", KeyspaceOptions::default()).unwrap();
            let old = existing(&other, "old");
            let mut batch = other.batch();
            batch.put(&old, b"both", b"1");
            batch.put(&new, b"both", b"1");
            batch.commit(Durability::Buffered).unwrap();
        });
        db.checkpoint("/data/copy").unwrap();
        assert!(hooks.was_called());
        let copy = Db::open("/data/copy", inline(&sim.env())).unwrap();
        let in_old = existing(&copy, "old").contains(b"both").unwrap();
        let new = copy.existing_keyspace("new").unwrap();
        let in_new = new.is_some_and(|new| new.contains(b"both").unwrap());
        assert_eq!(in_old, in_new, "{place}");
    }
}

/// Story: the store was closed while another thread ran a manual compaction. The directory was
/// unlocked, another process opened it, and the old compaction still created files in it.
#[test]
fn close_waits_for_manual_compaction() {
    for threads in [0, 2] {
        // Background threads may compact first, so that nothing is left for the manual compaction.
        let happened = (0..100).any(|_| close_during_manual_compaction(threads));
        assert!(happened, "{threads} threads: no manual compaction wrote a table");
    }
}

/// Closes the store during a manual compaction, and tells whether that one wrote a table.
fn close_during_manual_compaction(threads: usize) -> bool {
    let sim = Sim::new(1);
    let (env, hooks) = hooked(&sim.env());
    let db = Db::open(PATH, threaded(&env, threads)).unwrap();
    let keyspace = db.keyspace("a", KeyspaceOptions::default()).unwrap();
    fill(&keyspace, 0..500, 1);
    keyspace.flush().unwrap();
    fill(&keyspace, 0..500, 2);
    keyspace.flush().unwrap();
    let (closing, closed) = mpsc::channel();
    let other = db.clone();
    let threads_of = env.threads.clone();
    hooks.before("create *.table", move || {
        // The result of a close that comes later than the compaction has no receiver any more.
        let work = move || drop(closing.send(other.close()));
        threads_of.spawn("closing", Box::new(work)).unwrap();
        let early = closed.recv_timeout(Duration::from_millis(200));
        assert!(early.is_err(), "closed in the middle of a compaction");
    });
    let compacted = keyspace.compact(None, None);
    assert!(matches!(compacted, Ok(()) | Err(Error::Closed)), "{compacted:?}");
    let happened = hooks.was_called();
    drop((keyspace, db));
    let mut tries = 0;
    let db = loop {
        match Db::open(PATH, inline(&sim.env())) {
            Err(Error::Locked(_)) if tries < 10_000_000 => tries += 1,
            opened => break opened.unwrap(),
        }
    };
    assert_eq!(all(&existing(&db, "a")), filled(0..500, 2));
    assert!(db.verify().unwrap().damage.is_empty());
    assert_eq!(fixture::files(&env, ".table") as u64, fixture::live_tables(&db));
    happened
}

/// Keyspaces are created, dropped and flushed concurrently, over small WAL segments: afterwards
/// every segment that the manifest names exists, and so does every write.
#[test]
fn concurrent_flushes_keep_needed_wal_segments() {
    for seed in 0..6 {
        let sim = Sim::new(seed);
        let options = umbel::Options {
            log_segment_bytes: 4 << 10,
            write_buffer_total_bytes: Some(32 << 10),
            ..threaded(&sim.env(), 3)
        };
        let db = Db::open(PATH, options).unwrap();
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let db = db.clone();
                scope.spawn(move || {
                    for round in 0..6 {
                        let name = format!("{writer}-{round}");
                        let keyspace = db.keyspace(&name, tiny()).unwrap();
                        fill(&keyspace, 0..60, round);
                        if round % 3 == 1 {
                            db.drop_keyspace(&name).unwrap();
                        } else if round % 3 == 2 {
                            keyspace.flush().unwrap();
                        }
                    }
                });
            }
        });
        let crashed = again(&sim.kill_image());
        for writer in 0..4 {
            for round in [0, 2, 3, 5] {
                let keyspace = existing(&crashed, &format!("{writer}-{round}"));
                assert_eq!(all(&keyspace), filled(0..60, round), "{writer}-{round}");
            }
        }
        drop(db);
        assert_eq!(again(&sim).keyspaces().len(), 16);
    }
}

/// Story: a thread that picked a compaction read the tables just before another compaction was
/// installed, and the busy marks just after. The thread picked tables that were gone, and the store
/// became read-only with "table 45 is not in level 4". The window is so short that one run of this
/// test rarely hits it.
#[test]
fn concurrent_picks_take_no_table_twice() {
    let sim = Sim::new(1);
    let db = Db::open(PATH, threaded(&sim.env(), 4)).unwrap();
    // Every flush starts a series of small compactions.
    let options = KeyspaceOptions {
        memtable_bytes: 4 << 10,
        table_bytes: 4 << 10,
        level_bytes_base: 4 << 10,
        level_ratio: 2,
        level0_tables: 1,
        ..tiny()
    };
    let keyspace = db.keyspace("a", options).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..3 {
            let keyspace = &keyspace;
            scope.spawn(move || {
                let own = writer * 1000..writer * 1000 + 300;
                for round in 0..8 {
                    fill(keyspace, own.clone(), round);
                    let (start, end) = (fixture::key(own.start), fixture::key(own.end));
                    keyspace.compact(Some(&start), Some(&end)).unwrap();
                }
            });
        }
    });
    db.wait_for_compaction().unwrap();
    let found = all(&keyspace);
    let expected: Vec<_> =
        (0..3).flat_map(|writer| filled(writer * 1000..writer * 1000 + 300, 7)).collect();
    assert!(found == expected);
}

/// Story: a store was opened read-only and its WAL filled many memtables. A write to the store,
/// which should have failed, waited forever for a flush.
#[test]
fn write_to_full_read_only_store_fails_at_once() {
    let sim = Sim::new(1);
    let db = Db::open(PATH, inline(&sim.env())).unwrap();
    let keyspace = db.keyspace("a", KeyspaceOptions::default()).unwrap();
    fill(&keyspace, 0..1000, 1);
    db.keyspace("a", tiny()).unwrap();
    let image = sim.kill_image();
    let db = Db::open_read_only(PATH, threaded(&image.env(), 2)).unwrap();
    let keyspace = existing(&db, "a");
    assert!(keyspace.stats().frozen_memtables > 4);
    assert!(matches!(keyspace.put(b"k", b"v"), Err(Error::Invalid(_))));
    assert_eq!(all(&keyspace), filled(0..1000, 1));
}

/// Story: a writer stalled because flushes were behind, and its keyspace was dropped. A dropped
/// keyspace is not flushed, so the writer waited forever.
#[test]
fn drop_wakes_stalled_writers() {
    let sim = Sim::new(1);
    let (env, hooks) = hooked(&sim.env());
    let db = Db::open(PATH, threaded(&env, 2)).unwrap();
    let keyspace = db.keyspace("a", tiny()).unwrap();
    let (release, released) = mpsc::channel::<()>();
    hooks.before("create *.table", move || released.recv().unwrap());
    let (ended, end) = mpsc::channel();
    let writer = keyspace.clone();
    let write = move || {
        let failed = (0..).find_map(|index| writer.put(fixture::key(index), [7; 500]).err());
        ended.send(failed).unwrap();
    };
    env.threads.spawn("writer", Box::new(write)).unwrap();
    while keyspace.stats().frozen_memtables < 4 {
        std::thread::yield_now();
    }
    assert!(end.recv_timeout(Duration::from_millis(50)).is_err(), "it is stalled");
    db.drop_keyspace("a").unwrap();
    let failed = end.recv_timeout(Duration::from_secs(20)).expect("it still waits");
    assert!(matches!(failed, Some(Error::Invalid(_))), "{failed:?}");
    release.send(()).unwrap();
    db.close().unwrap();
}

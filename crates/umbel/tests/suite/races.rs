//! Two things at the same time that must not disturb each other, made to meet by a hook in the
//! file system, and where there is no place for a hook, by many tries.

use std::sync::mpsc;
use std::time::Duration;

use umbel::{Db, Durability, Error, KeyspaceOptions};
use umbel_sim::Sim;

use crate::suite::hooked::hooked;
use crate::suite::stage::{self, PATH, again, all, existing, fill, filled, inline, threaded, tiny};

/// The story: a keyspace was dropped while others were flushed together with it. The whole flush
/// was thrown away and still called a success, and what it should have made durable was not.
#[test]
fn a_drop_during_a_flush_takes_nothing_else_along() {
    let sim = Sim::new(1);
    let (env, hooks) = hooked(&sim.env());
    let db = Db::open(PATH, inline(&env)).unwrap();
    let kept = db.keyspace("kept", stage::unlogged()).unwrap();
    let gone = db.keyspace("gone", stage::unlogged()).unwrap();
    fill(&kept, 0..10, 1);
    fill(&gone, 0..10, 1);
    let other = db.clone();
    hooks.before("create *.table", move || other.drop_keyspace("gone").unwrap());
    db.flush_all(&[&kept, &gone], b"mark").unwrap();
    assert!(hooks.was_called());
    assert_eq!(kept.marker().as_deref(), Some(&b"mark"[..]));
    let crashed = again(&sim.kill_image());
    let kept = existing(&crashed, "kept");
    assert_eq!(kept.marker().as_deref(), Some(&b"mark"[..]));
    assert_eq!(all(&kept), filled(0..10, 1));
    drop(gone);
    assert_eq!(stage::files(&env, ".table"), 1);
}

/// The story: a copy was made while a keyspace was dropped, and lacked every unflushed write.
#[test]
fn a_drop_during_a_checkpoint_leaves_the_copy_whole() {
    let sim = Sim::new(1);
    let (env, hooks) = hooked(&sim.env());
    let db = Db::open(PATH, inline(&env)).unwrap();
    let kept = db.keyspace("kept", KeyspaceOptions::default()).unwrap();
    let gone = db.keyspace("gone", KeyspaceOptions::default()).unwrap();
    fill(&kept, 0..10, 1);
    fill(&gone, 0..10, 1);
    let other = db.clone();
    hooks.before("create *.table", move || other.drop_keyspace("gone").unwrap());
    db.checkpoint("/data/copy").unwrap();
    assert!(hooks.was_called());
    let copy = Db::open("/data/copy", inline(&sim.env())).unwrap();
    assert_eq!(all(&existing(&copy, "kept")), filled(0..10, 1));
}

/// The story: a keyspace appeared while a copy was made, and of a batch to it and to an older
/// keyspace the copy held one half.
#[test]
fn a_keyspace_created_during_a_checkpoint_tears_no_batch() {
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

/// The story: the store was closed while another thread compacted it by hand. The folder was let
/// go, somebody else opened it, and the old compaction went on creating files in it.
#[test]
fn closing_waits_for_a_compaction_by_hand() {
    for threads in [0, 2] {
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
            let work = move || closing.send(other.close()).unwrap();
            threads_of.spawn("closing", Box::new(work)).unwrap();
            let early = closed.recv_timeout(Duration::from_millis(200));
            assert!(early.is_err(), "closed in the middle of a compaction");
        });
        let compacted = keyspace.compact(None, None);
        assert!(matches!(compacted, Ok(()) | Err(Error::Closed)), "{compacted:?}");
        assert!(hooks.was_called());
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
        assert_eq!(stage::files(&env, ".table") as u64, stage::live_tables(&db));
    }
}

/// Keyspaces come and go and are flushed at the same time, over small log segments: afterwards
/// every log the manifest names is there, and so is every write.
#[test]
fn keyspaces_flushed_side_by_side_keep_their_logs() {
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

/// The story: whoever picked a compaction looked at the tables just before another one was
/// installed and at what is busy just after, and took tables that were gone. The store went
/// read-only with "table 45 is not in level 4". The moment is short: one run seldom meets it.
#[test]
fn compactions_picked_side_by_side_take_no_table_twice() {
    let sim = Sim::new(1);
    let db = Db::open(PATH, threaded(&sim.env(), 4)).unwrap();
    // Every flush begins a row of small compactions.
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
                    let (start, end) = (stage::key(own.start), stage::key(own.end));
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

/// The story: a store was opened read-only, its log filled many memtables, and a write to it, which
/// should have been refused, waited for ever for somebody to flush them.
#[test]
fn a_write_to_a_full_read_only_store_is_refused_at_once() {
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

/// The story: a writer was held back because flushes were behind, and its keyspace was dropped.
/// Nobody flushes what was dropped, so it waited for ever.
#[test]
fn a_drop_lets_go_of_writers_that_wait() {
    let sim = Sim::new(1);
    let (env, hooks) = hooked(&sim.env());
    let db = Db::open(PATH, threaded(&env, 2)).unwrap();
    let keyspace = db.keyspace("a", tiny()).unwrap();
    let (release, released) = mpsc::channel::<()>();
    hooks.before("create *.table", move || released.recv().unwrap());
    let (ended, end) = mpsc::channel();
    let writer = keyspace.clone();
    let write = move || {
        let failed = (0..).find_map(|index| writer.put(stage::key(index), [7; 500]).err());
        ended.send(failed).unwrap();
    };
    env.threads.spawn("writer", Box::new(write)).unwrap();
    while keyspace.stats().frozen_memtables < 4 {
        std::thread::yield_now();
    }
    assert!(end.recv_timeout(Duration::from_millis(50)).is_err(), "it is held back");
    db.drop_keyspace("a").unwrap();
    let failed = end.recv_timeout(Duration::from_secs(20)).expect("it still waits");
    assert!(matches!(failed, Some(Error::Invalid(_))), "{failed:?}");
    release.send(()).unwrap();
    db.close().unwrap();
}

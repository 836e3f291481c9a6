//! Tests that no writer waits forever for background work, and that the statistics show the stalls.

use umbel::{Db, HashKind, KeyspaceOptions, Options};
use umbel_sim::Sim;

use crate::suite::fixture::{self, PATH, all, inline, key, threaded, tiny};

/// Several writers against the tightest limits.
#[test]
fn writers_progress_under_tight_limits() {
    for threads in [1, 2, 3] {
        let sim = Sim::new(threads as u64);
        let options = Options {
            write_buffer_total_bytes: Some(16 << 10),
            log_segment_bytes: 4 << 10,
            ..threaded(&sim.env(), threads)
        };
        let db = Db::open(PATH, options).unwrap();
        let tightest = KeyspaceOptions {
            memtable_bytes: 4 << 10,
            table_bytes: 4 << 10,
            level_bytes_base: 4 << 10,
            level_ratio: 2,
            level0_tables: 1,
            ..tiny()
        };
        let spaces = ["a", "b"].map(|name| db.keyspace(name, tightest.clone()).unwrap());
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let keyspace = &spaces[writer % 2];
                scope.spawn(move || {
                    for index in 0..700 {
                        keyspace.put(key(writer * 10_000 + index % 350), [7; 100]).unwrap();
                    }
                });
            }
        });
        db.wait_for_compaction().unwrap();
        for keyspace in &spaces {
            assert_eq!(all(keyspace).len(), 700);
            assert_eq!(keyspace.stats().frozen_memtables, 0);
        }
        assert!(db.verify().unwrap().damage.is_empty());
    }
}

/// Options can be changed, up and down, while writers run.
#[test]
fn options_can_change_during_writes() {
    let sim = Sim::new(1);
    let db = Db::open(PATH, threaded(&sim.env(), 2)).unwrap();
    let keyspace = db.keyspace("a", tiny()).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let keyspace = &keyspace;
            scope.spawn(move || fixture::fill(keyspace, writer * 5000..writer * 5000 + 1500, 1));
        }
        let mut random = umbel_sim::Random::new(1);
        for _ in 0..40 {
            let options = crate::suite::option_sets::keyspace_options(&mut random);
            db.keyspace("a", KeyspaceOptions { log: true, hash: HashKind::Keyed, ..options })
                .unwrap();
        }
    });
    assert_eq!(all(&keyspace).len(), 3000);
}

#[test]
fn filters_meet_their_false_positive_rate() {
    let sim = Sim::new(1);
    let db = Db::open(PATH, inline(&sim.env())).unwrap();
    for (bits, misses) in [(5, 40_000), (10, 150_000)] {
        let options = KeyspaceOptions {
            bloom_bits: bits,
            table_bytes: 256 << 10,
            ..KeyspaceOptions::default()
        };
        let keyspace = db.keyspace(&format!("{bits} bits"), options).unwrap();
        (0..20_000).for_each(|index| keyspace.put(key(index * 10), b"value").unwrap());
        keyspace.compact(None, None).unwrap();
        for miss in 0..misses {
            let index = miss * 10 / (misses / 19_000) + 1;
            assert_eq!(
                keyspace.get([key(index), miss.to_le_bytes().to_vec()].concat()).unwrap(),
                None
            );
        }
        let stats = keyspace.stats();
        let level = stats.levels.iter().find(|level| level.tables > 0).unwrap();
        assert_eq!(stats.gets, misses as u64);
        assert_eq!(level.filter_probes, level.filter_true_negatives + level.filter_false_positives);
        assert_eq!(level.table_reads, level.filter_false_positives);
        let (measured, designed) = (level.measured_rate.unwrap(), level.designed_rate);
        assert!(level.filter_false_positives >= 1000, "{}", level.filter_false_positives);
        assert!((0.85..1.15).contains(&(measured / designed)), "{measured} against {designed}");
        assert!(stats.to_string().contains("designed"));
    }
}

#[test]
fn write_counts_sum_up() {
    let sim = Sim::new(1);
    let db = Db::open(PATH, inline(&sim.env())).unwrap();
    let keyspace = db.keyspace("a", tiny()).unwrap();
    for index in 0..1000 {
        keyspace.put(key(index), [7; 90]).unwrap();
    }
    let stats = db.stats();
    assert_eq!(stats.keyspaces[0].user_bytes_written, 100_000);
    assert_eq!((stats.commits, stats.commit_groups, stats.last_sequence), (1000, 1000, 1000));
    assert!(stats.log_bytes_written > 100_000);
    let tables: u64 = stats.keyspaces[0].levels.iter().map(|level| level.bytes_written).sum();
    let written = (tables + stats.log_bytes_written) as f64 / 100_000.0;
    assert!((stats.write_amplification - written).abs() < 1e-9);
    keyspace.compact(None, None).unwrap();
    (0..1000).for_each(|index| assert!(keyspace.contains(key(index)).unwrap()));
    let first = db.stats();
    (0..1000).for_each(|index| assert!(keyspace.contains(key(index)).unwrap()));
    let second = db.stats();
    assert_eq!(second.cache_misses, first.cache_misses, "everything fits into the cache");
    assert_eq!(second.cache_hits, first.cache_hits + 1000);
    assert!(second.cache_bytes > 0 && second.cache_bytes <= second.cache_capacity);
    assert_eq!(second.cache_evictions, 0);
}

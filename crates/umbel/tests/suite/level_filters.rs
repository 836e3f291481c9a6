//! Tests that all tables have filters of the kind, bits and probes that the options set, whether a
//! flush, a compaction or recovery writes them.

use umbel::limits::LEVELS;
use umbel::{Db, FilterKind, Keyspace, KeyspaceOptions, LevelFilter, LevelStats, Options};
use umbel_env::Access;
use umbel_filter::{FilterOptions, FilterView, HEADER_BYTES, bloom_formulas};
use umbel_sim::Sim;

use crate::suite::fixture::{PATH, again, existing, inline, key};

const KEYS: usize = 20_000;
const ABSENT: usize = 40_000;

fn options(kind: FilterKind, probes: Option<u8>) -> KeyspaceOptions {
    KeyspaceOptions {
        level_filters: Some([LevelFilter { kind, bits_per_key: 10, probes }; LEVELS]),
        level0_tables: 100,
        // Filters are kept although all gets hit.
        advisor: false,
        ..KeyspaceOptions::default()
    }
}

fn fill(keyspace: &Keyspace) {
    (0..KEYS).for_each(|index| keyspace.put(key(index), [b'v'; 10]).unwrap());
}

/// The kind, the probes and the keys of the filter of every table of the store.
fn filters(sim: &Sim) -> Vec<(FilterKind, u32, u64)> {
    let files = sim.env().files;
    let entries = files.read_dir(PATH.as_ref()).unwrap();
    let tables = entries.iter().filter(|entry| entry.name.ends_with(".table"));
    let filter = |entry: &umbel_env::DirectoryEntry| {
        let file = files.open(&std::path::Path::new(PATH).join(&entry.name), Access::Read).unwrap();
        let mut bytes = vec![0; entry.len as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        let at = bytes.windows(4).position(|bytes| bytes == b"uFLT").expect("there is a filter");
        let header = &bytes[at..at + HEADER_BYTES];
        let kind = FilterKind::from_number(header[4]).unwrap();
        let keys = u64::from_le_bytes(header[8..16].try_into().unwrap());
        let len = FilterOptions { kind, ..FilterOptions::default() }.bytes_for(keys).unwrap();
        let view = FilterView::parse(&bytes[at..at + len as usize]).unwrap();
        (view.kind().unwrap(), view.probes(), view.keys())
    };
    tables.map(filter).collect()
}

fn the_level(keyspace: &Keyspace) -> LevelStats {
    let levels = keyspace.stats().levels;
    levels.into_iter().find(|level| level.tables > 0).expect("there is a table")
}

/// All keys are found, and the rate of false positives is the theoretical one.
fn check(keyspace: &Keyspace, rate: f64) {
    assert!((0..KEYS).all(|index| keyspace.contains(key(index)).unwrap()));
    let before = the_level(keyspace);
    assert!((before.designed_rate / rate - 1.0).abs() < 0.005, "{} {rate}", before.designed_rate);
    for index in 0..ABSENT {
        let absent = [key(index % KEYS), vec![b'~', (index / KEYS) as u8]].concat();
        assert!(!keyspace.contains(absent).unwrap());
    }
    let after = the_level(keyspace);
    let passed = after.filter_false_positives - before.filter_false_positives;
    let refused = after.filter_true_negatives - before.filter_true_negatives;
    // The last key's successors probe no filter.
    assert!(refused + passed >= ABSENT as u64 - 2, "{refused} {passed}");
    let expected = rate * ABSENT as f64;
    let deviations = (passed as f64 - expected).abs() / expected.sqrt();
    assert!(deviations < 5.0, "{passed} passed, expected {expected}");
}

#[test]
fn tables_have_the_probes_of_their_level() {
    let bits = 10 * KEYS as u64;
    for (given, probes) in [(Some(6), 6), (Some(7), 7), (None, 7)] {
        let rate = bloom_formulas::rate(KEYS as u64, bits, probes);
        let sim = Sim::new(1);
        let db = Db::open(PATH, inline(&sim.env())).unwrap();
        let options = options(FilterKind::Standard, given);
        let keyspace = db.keyspace("a", options.clone()).unwrap();
        fill(&keyspace);
        keyspace.flush().unwrap();
        let built = vec![(FilterKind::Standard, probes, KEYS as u64)];
        assert_eq!(filters(&sim), built);
        check(&keyspace, rate);
        let advised = db.advice().remove(0).levels[0].plain.1;
        assert!((advised / rate - 1.0).abs() < 0.005, "the advisor counts on {advised}");
        keyspace.compact(None, None).unwrap();
        drop(keyspace);
        db.close().unwrap();
        let db = again(&sim);
        let keyspace = existing(&db, "a");
        assert_eq!(keyspace.options(), options);
        assert_eq!(filters(&sim), built, "compacted");
        check(&keyspace, rate);
        assert!(db.verify().unwrap().damage.is_empty());
    }
}

/// Filters with other numbers of probes have the same size, so the advisor cannot tell them apart
/// by size.
#[test]
fn changed_probes_apply_to_new_tables_and_advisor() {
    let sim = Sim::new(1);
    let db = Db::open(PATH, inline(&sim.env())).unwrap();
    let mut levels = Vec::new();
    for probes in [7, 5] {
        let keyspace = db.keyspace("a", options(FilterKind::Standard, Some(probes))).unwrap();
        fill(&keyspace);
        keyspace.compact(None, None).unwrap();
        assert_eq!(filters(&sim), [(FilterKind::Standard, probes.into(), KEYS as u64)]);
        let rate = bloom_formulas::rate(KEYS as u64, 10 * KEYS as u64, probes.into());
        let level = db.advice().remove(0).levels.remove(0);
        assert!((level.plain.1 / rate - 1.0).abs() < 0.005, "{} for {rate}", level.plain.1);
        levels.push((level.level, level.plain.0, level.entries));
    }
    assert_eq!(levels[0], levels[1], "they differ in probes only");
}

#[test]
fn every_kind_with_probes_accepts_them() {
    for kind in [FilterKind::Blocked512, FilterKind::Blocked256, FilterKind::Standard] {
        for probes in [1, 5, 24] {
            let sim = Sim::new(1);
            let db = Db::open(PATH, inline(&sim.env())).unwrap();
            let keyspace = db.keyspace("a", options(kind, Some(probes))).unwrap();
            fill(&keyspace);
            keyspace.flush().unwrap();
            assert_eq!(filters(&sim), [(kind, probes.into(), KEYS as u64)]);
            assert!((0..KEYS).all(|index| keyspace.contains(key(index)).unwrap()));
            let designed =
                FilterOptions { kind, probes: Some(probes.into()), ..FilterOptions::default() };
            let plan = umbel_filter::FilterPlan::of(&designed, KEYS as u64).unwrap();
            let rate = the_level(&keyspace).designed_rate;
            assert!((rate / plan.designed_rate - 1.0).abs() < 1e-9, "{rate} {plan:?}");
        }
    }
}

/// Tables that recovery writes, because the replayed writes exceed the memtable limit, have the
/// probes of their level.
#[test]
fn recovery_tables_have_the_probes_of_their_level() {
    let sim = Sim::new(1);
    let db = Db::open(PATH, inline(&sim.env())).unwrap();
    let keyspace = db.keyspace("a", options(FilterKind::Standard, Some(6))).unwrap();
    fill(&keyspace);
    assert_eq!(filters(&sim), []);
    let killed = sim.kill_image();
    let less = Options { write_buffer_total_bytes: Some(64 << 10), ..inline(&killed.env()) };
    let db = Db::open(PATH, less).unwrap();
    let recovered = filters(&killed);
    assert!(recovered.len() > 1, "{recovered:?}");
    assert!(
        recovered.iter().all(|(kind, probes, _)| (*kind, *probes) == (FilterKind::Standard, 6))
    );
    let keyspace = existing(&db, "a");
    assert!((0..KEYS).all(|index| keyspace.contains(key(index)).unwrap()));
}

#[test]
fn probes_unsupported_by_filter_kind_are_rejected() {
    let sim = Sim::new(1);
    let db = Db::open(PATH, inline(&sim.env())).unwrap();
    let refused = |kind, probes| {
        let refused = db.keyspace("a", options(kind, Some(probes)));
        let error = refused.map(|_| ()).unwrap_err();
        assert!(matches!(error, umbel::Error::Invalid(_)), "{error:?}");
        error.to_string()
    };
    let message = refused(FilterKind::Blocked512, 25);
    let expected = "level_filters has 25 probes for level 0, but a blocked-512 filter must have 1 \
                    to 24: leave them out for the best number";
    assert!(message.contains(expected), "{message}");
    let message = refused(FilterKind::Standard, 0);
    assert!(message.contains("0 probes for level 0, but a standard filter must have 1 to 255"));
    let message = refused(FilterKind::Ribbon, 6);
    assert!(
        message.contains("a ribbon filter has a fixed number of probes: leave probes out"),
        "{message}"
    );
    assert!(db.existing_keyspace("a").unwrap().is_none());
    db.keyspace("a", options(FilterKind::Standard, Some(6))).unwrap();
}

//! Checks of a whole store: contents, files, statistics.

use std::collections::BTreeSet;
use std::time::Duration;

use umbel::{ExistenceSize, Keyspace, KeyspaceStats};

use super::oracle::{Map, ModelStore, Space};

/// All entries of a keyspace, read forward.
pub fn contents(keyspace: &Keyspace) -> Map {
    let entries = keyspace.iter().map(|entry| entry.unwrap());
    entries.map(|(key, value)| (key, value.into())).collect()
}

/// Compares every keyspace with the model.
pub fn everything(model: &ModelStore) {
    for space in &model.spaces {
        let found = contents(&space.handle);
        let lost = space.map.iter().find(|(key, value)| found.get(*key) != Some(*value));
        let extra = found.keys().find(|key| !space.map.contains_key(*key));
        assert!(
            found == space.map,
            "keyspace '{}' differs: lost {:?}, extra {:?}",
            space.name,
            lost.map(|e| super::write::short(e.0)),
            extra.map(|key| super::write::short(key)),
        );
        if !model.has_threads() && space.crash_states.steps.is_empty() {
            assert_eq!(space.handle.marker(), space.marker);
        }
    }
}

/// Computes the number of entries in tables when the store was opened, from the present number and
/// the entries added and removed since. REQUIRES: no background work runs.
pub fn entries_before(stats: &KeyspaceStats) -> u64 {
    let written = stats.levels.first().map_or(0, |flushes| flushes.compaction_entries_in);
    // Level 0 drops more entries than flushes added if a compaction includes tables that existed
    // before.
    let dropped: u64 = stats.levels.iter().map(|level| level.compaction_entries_dropped).sum();
    let entries: u64 = stats.levels.iter().map(|level| level.entries).sum();
    entries + dropped - written
}

/// Checks that the statistics are consistent.
pub fn stats(model: &mut ModelStore) {
    model.note("check the numbers");
    model.db().wait_for_compaction().unwrap();
    let stats = model.db().stats();
    assert_eq!(stats.keyspaces.len(), model.spaces.len());
    assert!(stats.snapshots >= model.snapshots.len());
    assert_eq!(stats.read_only_reason, None);
    for (found, space) in stats.keyspaces.iter().zip(&model.spaces) {
        assert_eq!(found.name, space.name);
        assert!(found.gets >= space.gets, "{} of {} gets", found.gets, space.gets);
        assert_eq!(entries_before(found), space.entries_at_open, "the number of entries changed");
        for level in &found.levels {
            let (no, wrong) = (level.filter_true_negatives, level.filter_false_positives);
            assert!(no + wrong <= level.filter_probes);
            assert!(level.filter_probes <= no + level.table_reads);
            assert!(wrong <= level.table_reads);
            assert!(level.tables > 0 || level.bytes + level.entries == 0);
            assert!((0.0..=1.0).contains(&level.designed_rate), "{}", level.designed_rate);
        }
        assert_eq!(found.frozen_memtables, 0);
    }
    assert!(stats.to_string().contains("cache:"));
}

/// Calls `verify`, which reads every byte of the store, and checks its report.
pub fn verify(model: &mut ModelStore) {
    model.note("verify");
    model.db().wait_for_compaction().unwrap();
    let report = model.db().verify().unwrap();
    assert_eq!(report.damage, Vec::<String>::new());
    let stats = model.db().stats();
    let levels = || stats.keyspaces.iter().flat_map(|keyspace| &keyspace.levels);
    assert_eq!(report.tables, levels().map(|level| level.tables).sum::<u64>());
    assert_eq!(report.bytes, levels().map(|level| level.bytes).sum::<u64>());
    assert_eq!(report.entries, levels().map(|level| level.entries).sum::<u64>());
    assert_eq!((report.blobs, report.blob_bytes), (stats.blobs.files, stats.blobs.bytes));
}

/// Checks that the directory holds exactly the live files. REQUIRES: no read and no background work
/// runs.
pub fn files(model: &ModelStore) {
    let live = || {
        let stats = model.db().stats();
        let levels = stats.keyspaces.iter().flat_map(|keyspace| &keyspace.levels);
        levels.map(|level| level.tables).sum::<u64>()
    };
    let present = || {
        let entries = model.env.files.read_dir(&model.path).unwrap();
        entries.iter().filter(|entry| entry.name.ends_with(".table")).count() as u64
    };
    // The upkeep of a filter may read an earlier version for a while, which keeps its tables.
    for _ in 0..10_000 {
        if !model.has_threads() || live() == present() {
            break;
        }
        model.env.threads.pause(Duration::from_millis(1));
    }
    let (stats, tables) = (model.db().stats(), live());
    let names: BTreeSet<String> =
        model.env.files.read_dir(&model.path).unwrap().into_iter().map(|e| e.name).collect();
    let of = |kind: &str| names.iter().filter(|name| name.ends_with(kind)).count() as u64;
    assert_eq!(of(".table"), tables, "{names:?}");
    assert_eq!(of(".blob"), stats.blobs.files, "{names:?}");
    assert_eq!(of(".manifest"), 1, "{names:?}");
    assert!(names.contains("CURRENT") && names.contains("LOCK"), "{names:?}");
    // The directories of existence filters stay, empty, when a keyspace no longer has one.
    let filters = names.iter().filter(|name| name.ends_with(".existence"));
    let used = filters.clone().filter(|name| {
        let files = model.env.files.read_dir(&model.path.join(name)).unwrap();
        !files.is_empty()
    });
    let wanted = |space: &&Space| space.options.existence_filter != ExistenceSize::Off;
    let filters_max = model.spaces.iter().filter(wanted).count();
    // A thread may not have processed it yet.
    assert!(used.count() <= filters_max || model.has_threads(), "{names:?}");
    // Beside the tables: `CURRENT`, the manifest, `LOCK` and `RESERVED`.
    let known = tables + 4 + of(".log") + of(".blob") + filters.count() as u64;
    assert_eq!(names.len() as u64, known, "{names:?}");
}

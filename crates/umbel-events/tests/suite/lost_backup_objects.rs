//! Backups of whose objects some were deleted by something else, such as a rule of the bucket.
//!
//! Regression: a writer never looked at its objects again. So it went on after a deletion, without
//! an error, and none of its later states could be restored.

use std::time::Duration;

use umbel_events::{ObjectBackup, ObjectBackupOptions, RestoreTo};
use umbel_sim::ObjectDamage;

use super::object_backups::{Fixture, backup_options};
use super::support::{all, append_large};

/// A backup of several chunks with tails, full manifests and others.
fn fixture(seed: u64) -> (Fixture, ObjectBackup) {
    let fixture = Fixture::new(seed);
    let options = ObjectBackupOptions { full_manifest_interval: 7, ..backup_options() };
    let backup = fixture.store.object_backup(fixture.client(), options).expect("opened");
    for number in 0..40 {
        append_large(&fixture.store, ["a", "b"][number as usize % 2], number, 5000);
        backup.run_once().expect("backed up");
    }
    assert!(fixture.store.stats().expect("stats").chunks > 2, "several chunks");
    (fixture, backup)
}

/// Lets a run replace what is lost.
fn replace(backup: &ObjectBackup) -> usize {
    let lost = backup.find_lost().expect("listed");
    backup.run_once().expect("backed up");
    assert_eq!(backup.find_lost().expect("listed"), [], "all were replaced");
    lost.len()
}

#[test]
fn run_replaces_each_object_that_was_deleted_or_cut() {
    let (fixture, backup) = fixture(31);
    let names: Vec<String> = fixture.objects.objects().into_keys().collect();
    let (mut lost, mut unneeded) = (0, 0);
    for (index, name) in names.iter().enumerate() {
        let damage = [ObjectDamage::Missing, ObjectDamage::Cut][index % 2];
        if !fixture.objects.damage(name, damage, 10) {
            continue;
        }
        match replace(&backup) {
            0 => unneeded += 1,
            _ => lost += 1,
        }
        assert_eq!(fixture.restored(RestoreTo::Latest), all(&fixture.store), "{name} {damage:?}");
        append_large(&fixture.store, "c", index as u64, 100);
        backup.run_once().expect("backed up");
        assert_eq!(fixture.restored(RestoreTo::Latest), all(&fixture.store), "{name} {damage:?}");
    }
    assert!(lost > 5 && unneeded > 5, "{lost} {unneeded}");
}

#[test]
fn runs_rebuild_a_backup_that_was_deleted_as_a_whole() {
    let (fixture, backup) = fixture(32);
    for name in fixture.objects.objects().into_keys() {
        assert!(fixture.objects.damage(&name, ObjectDamage::Missing, 0));
    }
    assert_eq!(replace(&backup), 2, "BACKUP and a manifest, without which pieces are unknown");
    assert_eq!(fixture.restored(RestoreTo::Latest), all(&fixture.store));
    assert!(fixture.backup().run_once().expect("backed up").requests.len() > 1, "a new process");
    assert_eq!(fixture.restored(RestoreTo::Latest), all(&fixture.store));
}

/// The floor of a retention says that there were manifests.
#[test]
fn run_creates_a_manifest_after_the_loss_of_all() {
    let (fixture, backup) = fixture(36);
    fixture.objects.advance(Duration::from_secs(3600));
    fixture.retain(Duration::ZERO, false).expect("retained");
    let names: Vec<String> = fixture.objects.objects().into_keys().collect();
    assert!(names.iter().any(|name| name.starts_with("floors/")), "{names:?}");
    for name in names.iter().filter(|name| name.starts_with("manifests/")) {
        assert!(fixture.objects.damage(name, ObjectDamage::Missing, 0));
    }
    assert!(fixture.backup().find_lost().is_err(), "another process knows no state");
    assert_eq!(replace(&backup), 1);
    assert_eq!(fixture.restored(RestoreTo::Latest), all(&fixture.store));
}

/// No state needs a floor, and a prefix has none before its first retention.
#[test]
fn lost_or_cut_floor_is_no_lost_object() {
    for damage in [ObjectDamage::Missing, ObjectDamage::Cut] {
        let (fixture, backup) = fixture(39);
        fixture.objects.advance(Duration::from_secs(3600));
        fixture.retain(Duration::ZERO, false).expect("retained");
        let names: Vec<String> = fixture.objects.objects().into_keys().collect();
        let floor = names.iter().find(|name| name.starts_with("floors/")).expect("a floor");
        assert!(fixture.objects.damage(floor, damage, 10));
        assert_eq!(replace(&backup), 0, "{damage:?}");
        append_large(&fixture.store, "c", 1000, 100);
        backup.run_once().expect("backed up");
        assert_eq!(fixture.restored(RestoreTo::Latest), all(&fixture.store), "{damage:?}");
    }
}

/// The newest manifests and their pieces are gone, as after a failover of the object store. Story:
/// the full manifest that ended the gap named lost pieces, and hid the last state that could be
/// restored.
#[test]
fn gap_ends_only_with_a_state_that_can_be_restored() {
    let (fixture, backup) = fixture(37);
    let before = fixture.objects.objects();
    append_large(&fixture.store, "a", 100, 5000);
    backup.run_once().expect("backed up");
    append_large(&fixture.store, "b", 101, 5000);
    backup.run_once().expect("backed up");
    for name in fixture.objects.objects().into_keys().filter(|name| !before.contains_key(name)) {
        assert!(fixture.objects.damage(&name, ObjectDamage::Missing, 0));
    }
    let events = all(&fixture.store);
    assert_eq!(fixture.restored(RestoreTo::Latest), events[..events.len() - 2]);
    assert_eq!(backup.find_lost().expect("listed").len(), 1);
    append_large(&fixture.store, "a", 102, 5000);
    // The upload fails: the state before the gap stays the newest one.
    fixture.objects.expire_credentials(true);
    backup.run_once().expect_err("refused");
    fixture.objects.expire_credentials(false);
    assert_eq!(fixture.restored(RestoreTo::Latest), events[..events.len() - 2]);
    backup.run_once().expect("backed up");
    assert_eq!(fixture.restored(RestoreTo::Latest), all(&fixture.store));
    assert_eq!(backup.find_lost().expect("listed"), []);
}

/// Story: after the loss of the newest manifest, the full one in its place was the first that
/// counted. A retention then deleted all states of the kept time.
#[test]
fn retention_keeps_states_that_a_lost_manifest_hides() {
    let (fixture, backup) = fixture(38);
    let names: Vec<String> = fixture.objects.objects().into_keys().collect();
    let newest = names.iter().rfind(|name| name.starts_with("manifests/")).expect("a manifest");
    assert!(fixture.objects.damage(newest, ObjectDamage::Missing, 0));
    assert_eq!(replace(&backup), 1);
    let day = Duration::from_secs(86_400);
    fixture.objects.advance(day / 2);
    let before = fixture.objects.objects();
    let error = fixture.retain(day, false).expect_err("a manifest is missing").to_string();
    assert!(error.contains(newest.as_str()), "{error}");
    assert_eq!(fixture.objects.objects(), before, "nothing was deleted");
    fixture.objects.advance(day);
    let retained = fixture.retain(day, false).expect("the hidden states have expired");
    assert!(retained.deleted_manifests > 10, "{retained:?}");
    assert_eq!(fixture.restored(RestoreTo::Latest), all(&fixture.store));
}

/// A next process knows the state from the manifests, and finds lost pieces in it.
#[test]
fn next_process_replaces_lost_pieces() {
    let (fixture, backup) = fixture(33);
    drop(backup);
    for name in fixture.objects.objects().into_keys() {
        if name.starts_with("chunks/") || name.starts_with("tails/") {
            assert!(fixture.objects.damage(&name, ObjectDamage::Missing, 0));
        }
    }
    let backup = fixture.backup();
    assert!(replace(&backup) >= 3);
    assert_eq!(fixture.restored(RestoreTo::Latest), all(&fixture.store));
    drop(backup);
    let names: Vec<String> = fixture.objects.objects().into_keys().collect();
    let newest = names.iter().rfind(|name| name.starts_with("manifests/")).expect("a manifest");
    assert!(fixture.objects.damage(newest, ObjectDamage::Cut, 10));
    let backup = fixture.backup();
    assert_eq!(backup.find_lost().expect("listed").len(), 1);
    let error = backup.run_once().expect_err("its state is unknown");
    assert!(error.to_string().contains(newest.as_str()), "{error}");
}

#[test]
fn backup_of_another_store_in_the_place_of_this_one_is_an_error() {
    let (fixture, backup) = fixture(34);
    let other = Fixture::new(35);
    other.backup().run_once().expect("backed up");
    let identity = other.objects.objects().remove("BACKUP").expect("an identity");
    assert!(fixture.objects.damage("BACKUP", ObjectDamage::Missing, 0));
    let name = umbel_env::ObjectName::new("BACKUP").expect("a name");
    fixture.client().create(&name, &identity).expect("created");
    let error = backup.find_lost().expect_err("of another store");
    assert!(error.to_string().contains("another store is backed up"), "{error}");
}

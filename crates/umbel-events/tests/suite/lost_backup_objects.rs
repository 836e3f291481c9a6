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

/// Lets runs replace what is lost. A lost manifest hides lost pieces from the first search.
fn replace(backup: &ObjectBackup) -> usize {
    let first = backup.find_lost().expect("listed");
    backup.run_once().expect("backed up");
    let second = backup.find_lost().expect("listed");
    backup.run_once().expect("backed up");
    assert_eq!(backup.find_lost().expect("listed"), [], "all were replaced");
    first.len() + second.len()
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
    assert!(replace(&backup) > 3);
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

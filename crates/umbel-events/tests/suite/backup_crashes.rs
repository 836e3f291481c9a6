//! Power cuts at every step of a backup and of a restore. An interrupted backup leaves the previous
//! backup or the new one, and the next backup succeeds. An interrupted restore leaves no store or a
//! complete one, and another restore succeeds.

use umbel_events::{
    CopyOptions, Durability, ExpectedVersion, RecordedEvent, Store, StoreOptions, restore,
    verify_backup,
};
use umbel_sim::{CrashSide, Sim, Survival};

use super::support::{all, append, append_large, event, options, restored};

fn plain() -> CopyOptions<'static> {
    CopyOptions::default()
}

/// A disk with a closed store and a backup of its first events; and the events of both.
fn specimen() -> (Sim, Vec<RecordedEvent>, Vec<RecordedEvent>) {
    let sim = Sim::new(21);
    let store = Store::open("/events", options(&sim)).expect("a new store");
    (0..13).for_each(|number| append_large(&store, "a", number, 6000));
    store.backup("/backup", plain()).expect("backed up");
    let early = all(&store);
    (13..25).for_each(|number| append_large(&store, "a", number, 6000));
    append(&store, "b", 100..103);
    store.sync().expect("synced");
    let late = all(&store);
    store.close().expect("closed");
    (sim, early, late)
}

/// The calls of `work` that can change the disk, on a copy of it. `work` returns the number of its
/// first call.
fn changing_calls(sim: &Sim, work: impl Fn(&Sim) -> u64) -> Vec<u64> {
    let copy = sim.clone_disk();
    let began = work(&copy);
    copy.changing_calls().into_iter().filter(|call| *call > began).collect()
}

/// Disks after a power cut before or after the call, in several ways.
fn images(sim: &Sim, call: u64, work: impl Fn(&Sim) -> u64) -> Vec<Sim> {
    let mut left = Vec::new();
    for when in [CrashSide::Before, CrashSide::After] {
        let copy = sim.clone_disk();
        copy.crash_at(call, when);
        work(&copy);
        let units = copy.pending_units();
        left.push(copy.kill_image());
        let newest_first = (1..=4).map(Survival::Reverse);
        let policies = [Survival::None, Survival::All, Survival::any(call, units)];
        for (seed, policy) in (call * 3..).zip(policies.into_iter().chain(newest_first)) {
            left.push(copy.crash_image(&policy, seed));
        }
    }
    left
}

#[test]
fn power_cut_in_backup_leaves_old_or_new_backup() {
    let (sim, early, late) = specimen();
    for durability in [Durability::Buffered, Durability::Synced] {
        let shape = |sim: &Sim| StoreOptions { durability, ..options(sim) };
        let back_up = |sim: &Sim| {
            let Ok(store) = Store::open("/events", shape(sim)) else { return 0 };
            // Goes into the active chunk.
            let event = [event(900)];
            // Both fail after the power cut.
            let _ = store.append("z", ExpectedVersion::Any, &event);
            let began = sim.calls();
            let _ = store.backup("/backup", plain());
            began
        };
        let (mut old, mut new) = (0, 0);
        for call in changing_calls(&sim, back_up) {
            for image in images(&sim, call, back_up) {
                let checked = verify_backup(&image.env(), "/backup".as_ref(), plain());
                let checked = checked.unwrap_or_else(|error| panic!("call {call}: {error}"));
                assert!(checked.damage.is_empty(), "call {call}: {:?}", checked.damage);
                let found = restored(&image, "/backup");
                let is_new = found.len() == late.len() + 1 && found.starts_with(&late);
                assert!(is_new || found == early, "call {call}: {} events", found.len());
                *(if is_new { &mut new } else { &mut old }) += 1;
                let store = Store::open("/events", shape(&image)).expect("the store opens");
                assert!(all(&store).len() >= found.len(), "call {call}: the backup is not ahead");
                store.backup("/backup", plain()).expect("the next one");
                assert_eq!(restored(&image, "/backup"), all(&store), "call {call}");
            }
        }
        assert!(old > 50 && new > 10, "{durability:?}: {old} old, {new} new");
    }
}

#[test]
fn power_cut_in_first_backup_leaves_none_or_all() {
    let (sim, _, late) = specimen();
    let back_up = |sim: &Sim| {
        let Ok(store) = Store::open("/events", options(sim)) else { return 0 };
        let began = sim.calls();
        let _ = store.backup("/first/backup", plain());
        began
    };
    let mut unfinished = 0;
    for call in changing_calls(&sim, back_up) {
        for image in images(&sim, call, back_up) {
            match verify_backup(&image.env(), "/first/backup".as_ref(), plain()) {
                Ok(checked) => {
                    assert!(checked.damage.is_empty(), "call {call}: {:?}", checked.damage);
                    assert_eq!(restored(&image, "/first/backup"), late, "call {call}");
                }
                Err(error) => {
                    let message = error.to_string();
                    let is_expected = message.contains("is not complete")
                        || message.contains("there is no backup in");
                    assert!(is_expected, "call {call}: {message}");
                    unfinished += 1;
                }
            }
            let store = Store::open("/events", options(&image)).expect("the store opens");
            store.backup("/first/backup", plain()).expect("the next one");
            assert_eq!(restored(&image, "/first/backup"), late, "call {call}");
        }
    }
    assert!(unfinished > 50, "{unfinished}");
}

#[test]
fn power_cut_in_restore_leaves_none_or_all() {
    let (sim, early, _) = specimen();
    let work = |sim: &Sim| {
        let _ = restore(&sim.env(), "/backup".as_ref(), "/new/store".as_ref(), plain());
        0
    };
    let (mut nothing, mut everything) = (0, 0);
    for call in changing_calls(&sim, work) {
        for image in images(&sim, call, work) {
            let existing =
                StoreOptions { create_if_missing: false, ..options(&image.clone_disk()) };
            match Store::open("/new/store", existing) {
                Ok(store) => {
                    assert_eq!(all(&store), early, "call {call}");
                    everything += 1;
                }
                Err(_) => nothing += 1,
            }
            // Creating a store there does not overwrite the restored one.
            let creating = image.clone_disk();
            let has_chunks = creating.files().iter().any(|p| p.starts_with("/new/store/log"));
            if let Ok(store) = Store::open("/new/store", options(&creating)) {
                assert!(!has_chunks || all(&store) == early, "call {call}");
            }
            match restore(&image.env(), "/backup".as_ref(), "/new/store".as_ref(), plain()) {
                Ok(_) => {}
                Err(error) => {
                    let message = error.to_string();
                    assert!(
                        message.contains("holds an event store already"),
                        "call {call}: {message}"
                    );
                }
            }
            let store = Store::open("/new/store", options(&image)).expect("restored");
            assert_eq!(all(&store), early, "call {call}");
        }
    }
    assert!(nothing > 50 && everything > 5, "{nothing} and {everything}");
}

/// Omits calls that an implementation could forget; the power cuts must detect each omission.
#[test]
fn omitted_calls_fail_the_backup_oracle() {
    let (sim, early, late) = specimen();
    for pattern in ["sync *.chunk", "sync BACKUP.new", "sync_dir directory"] {
        let back_up = |sim: &Sim| {
            let Ok(store) = Store::open("/events", options(sim)) else { return 0 };
            sim.ignore_calls(pattern);
            let began = sim.calls();
            let _ = store.backup("/backup", plain());
            began
        };
        let noticed = changing_calls(&sim, back_up).into_iter().any(|call| {
            images(&sim, call, back_up).into_iter().any(|image| {
                let checked = verify_backup(&image.env(), "/backup".as_ref(), plain());
                let is_whole = checked.is_ok_and(|report| report.damage.is_empty());
                if !is_whole {
                    return true;
                }
                let found = restored(&image, "/backup");
                found != early && found != late
            })
        });
        assert!(noticed, "{pattern}: not detected");
    }
}

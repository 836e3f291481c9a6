//! A power loss at every call of a script that grows, heals, rebuilds and resizes, and a failure of
//! every call of it.

use umbel_base::Error;
use umbel_existence::{ExistenceFilter, ExistenceOptions, ExistenceSize, StepProgress};
use umbel_sim::{CrashSide, Fault, FaultKind, Sim, Survival};

use super::fixture::{assert_none_denied, denied, insert, keys, machine, open, small};
use umbel_testing::existence_script::file_damage::files;
use umbel_testing::existence_script::memory_hash_source::Keys;

/// Number of keys that the script inserts.
const KEYS: u64 = 420;

fn options() -> ExistenceOptions {
    ExistenceOptions { size: ExistenceSize::Growing { first_keys: 100 }, ..small() }
}

/// Some inserts, flushes and steps. Key `n` is at position `n + 1` of a log that is always
/// durable. The script continues after errors.
fn act(filter: &ExistenceFilter, from: u64, to: u64) {
    let mut at = from;
    while at < to {
        let next = to.min(at + 35);
        insert(filter, at..next);
        at = next;
        drop(filter.flush(at));
        for _ in 0..5 {
            drop(filter.step(&keys(0..at)));
        }
    }
}

/// The script: two crash cycles, with damage, another size and a rebuild in the second.
fn script(sim: &Sim) {
    let Ok(filter) = open(sim, options()) else { return };
    act(&filter, 0, 200);
    drop(filter.checkpoint(200));
    drop(filter);
    let options = ExistenceOptions { size: ExistenceSize::Growing { first_keys: 130 }, ..small() };
    let Ok(filter) = open(sim, options) else { return };
    insert(&filter, filter.covered().min(200)..200);
    act(&filter, 200, 300);
    filter.rebuild();
    act(&filter, 300, KEYS);
}

#[test]
fn power_loss_at_any_call_has_no_false_negative() {
    let original = machine();
    script(&original);
    let policies = [
        Survival::None,
        Survival::All,
        Survival::NamesOnly,
        Survival::DataOnly,
        Survival::NewestOnly,
        Survival::Garbage(0.5),
    ];
    let calls = original.changing_calls();
    assert!(calls.len() > 100, "{}", calls.len());
    for call in calls {
        for (number, when) in [CrashSide::Before, CrashSide::After].into_iter().enumerate() {
            let sim = machine();
            sim.crash_at(call, when);
            script(&sim);
            for seed in 0..4 {
                let random = [Survival::Random(0.5), Survival::Prefix(seed)];
                let policy = match seed {
                    0 | 1 => policies[(call as usize + number + seed as usize) % policies.len()],
                    _ => random[seed as usize % 2],
                };
                let image = sim.crash_image(&policy, seed);
                let what = format!("{when:?} call {call}, {policy:?} {seed}");
                assert_none_denied(&image, options(), KEYS, &what);
            }
        }
    }
}

#[test]
fn failing_calls_cause_no_false_negative() {
    let original = machine();
    script(&original);
    for call in 1..=original.calls() {
        for (kind, sticky) in [
            (FaultKind::Eio, false),
            (FaultKind::Enospc, false),
            (FaultKind::Emfile, false),
            (FaultKind::Eio, true),
        ] {
            let sim = machine();
            sim.fail_at(call, Fault { kind, sticky });
            script(&sim);
            sim.heal();
            let what = format!("{kind:?} at call {call}, sticky {sticky}");
            assert_none_denied(&sim.kill_image(), options(), KEYS, &what);
            let image = sim.crash_image(&Survival::Random(0.5), call);
            assert_none_denied(&image, options(), KEYS, &format!("{what}, then a power loss"));
        }
    }
}

#[test]
fn full_disk_is_reported_and_recovered_from() {
    let sim = machine();
    let filter = open(&sim, small()).unwrap();
    while filter.step(&Keys::default()).unwrap() == StepProgress::More {}
    insert(&filter, 0..100);
    filter.flush(100).unwrap();
    let used: usize =
        files(&sim).iter().map(|path| sim.read(path).len().next_multiple_of(4096)).sum();
    sim.set_capacity(used as u64);
    insert(&filter, 100..1000);
    let full = filter.flush(1000).unwrap_err();
    assert!(matches!(full, Error::DiskFull { .. }), "{full}");
    assert!(matches!(filter.checkpoint(1000).unwrap_err(), Error::DiskFull { .. }));
    assert_eq!((filter.covered(), filter.stats().lag_items), (100, 900));
    assert_eq!(denied(&filter, 0..1000), 0);
    sim.clear_capacity();
    filter.flush(1000).unwrap();
    assert_eq!((filter.covered(), filter.stats().lag_items), (1000, 0));
    drop(filter);
    let again = open(&sim.crash_image(&Survival::None, 1), small()).unwrap();
    assert_eq!(again.covered(), 1000);
    assert_eq!(denied(&again, 0..1000), 0);
}

/// Story: the published design clears its marks of dirty pages before it writes them. After a
/// failure the next checkpoint omits pages that never reached the disk.
#[test]
fn flush_after_a_failed_sync_rewrites_everything() {
    for site in ["sync *.journal", "write *.journal"] {
        let sim = machine();
        let filter = open(&sim, small()).unwrap();
        while filter.step(&Keys::default()).unwrap() == StepProgress::More {}
        insert(&filter, 0..50);
        filter.flush(50).unwrap();
        let generations = filter.stats().generations;
        sim.fail_site(site, 1, Fault { kind: FaultKind::Eio, sticky: false });
        insert(&filter, 50..100);
        filter.flush(100).unwrap_err();
        assert_eq!(filter.covered(), 50, "{site}");
        insert(&filter, 100..110);
        filter.flush(110).unwrap();
        let anew = filter.stats().generations - generations;
        assert_eq!(anew, u64::from(site.starts_with("sync")), "{site}");
        let again = open(&sim.crash_image(&Survival::None, 1), small()).unwrap();
        assert_eq!(again.covered(), 110, "{site}");
        assert_eq!(denied(&again, 0..110), 0, "{site}");
    }
}

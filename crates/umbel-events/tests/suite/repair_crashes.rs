//! Repairs that are killed, or meet a power cut or a full disk: another call completes them.

use umbel_events::{
    Error, RecordedEvent, RepairOptions, RepairReport, Store, find_unrecovered, repair,
};
use umbel_sim::{CrashSide, Sim, Survival};

use super::repair::{check, chunk, fill, repair_store, specimen};
use super::support::options;

/// A damaged store: a flip, a missing chunk, and if requested no manifest.
fn damaged(seed: u64, is_manifest_lost: bool) -> (Sim, Vec<RecordedEvent>) {
    let (sim, before) = specimen(seed);
    sim.flip(chunk(1), 20_000, 1);
    sim.remove(chunk(3));
    if is_manifest_lost {
        sim.flip("/events/CHUNKS", 30, 1);
    }
    (sim, before)
}

fn repair_again(sim: &Sim) -> Result<RepairReport, Error> {
    repair(&sim.env(), "/events".as_ref(), RepairOptions::default())
}

/// Names and bytes of everything that was moved aside.
fn set_aside(sim: &Sim) -> Vec<(String, Vec<u8>)> {
    let files = sim.files();
    let files = files.iter().filter(|path| path.starts_with("/events/damaged-1"));
    let name = |path: &std::path::PathBuf| path.file_name().map(|n| n.to_string_lossy().into());
    files.map(|path| (name(path).unwrap_or_default(), sim.read(path))).collect()
}

#[test]
fn repair_killed_at_any_call_completes_on_retry() {
    for is_manifest_lost in [false, true] {
        let (sim, before) = damaged(20, is_manifest_lost);
        let (calls, whole, original) = {
            let done = sim.clone_disk();
            let begun = done.calls();
            let report = repair_store(&done);
            let calls = done.calls() - begun;
            check(&done, &before, &report, "not killed");
            (calls, report, sim.read(chunk(1)))
        };
        assert!(calls > 40, "{calls}");
        let mut resumed = 0;
        for (call, when) in
            (1..=calls).flat_map(|c| [(c, CrashSide::Before), (c, CrashSide::After)])
        {
            let what = format!("call {call} {when:?}, manifest lost: {is_manifest_lost}");
            let killed = sim.clone_disk();
            killed.crash_at(killed.calls() + call, when);
            let _ = repair_again(&killed);
            assert!(killed.is_dead(), "{what}");
            let image = match call % 3 {
                0 => killed.kill_image(),
                _ => killed.crash_image(&Survival::any(call, killed.pending_units()), call),
            };
            let is_unmarked = !image.has("/events/REPAIR");
            let report = repair_again(&image).unwrap_or_else(|error| panic!("{what}: {error}"));
            // The report of a killed run is in its directory.
            resumed += u64::from(report.chunks.is_empty());
            // Only after a completed run has it nothing more to report.
            let is_reported = report.has_loss() || report.is_undamaged() && is_unmarked;
            assert!(is_reported, "{what}: {report:?}");
            let final_report = match report.chunks.is_empty() {
                true => whole.clone(),
                false => report,
            };
            assert_eq!(
                (&final_report.chunks, &final_report.streams),
                (&whole.chunks, &whole.streams),
                "{what}"
            );
            let kept = set_aside(&image);
            let files = image.files();
            let aside = files.iter().filter(|path| path.to_string_lossy().contains("damaged-"));
            let is_kept = aside.into_iter().any(|path| image.read(path) == original);
            assert!(is_kept, "{what}: {:?}", kept.iter().map(|k| &k.0).collect::<Vec<_>>());
            check(&image, &before, &whole, &what);
        }
        assert!(resumed > 2, "{resumed}");
    }
}

/// The effects of a power cut are no damage: an open of the store handles these effects, and a
/// repair does not change them.
#[test]
fn effects_of_power_loss_are_not_repaired() {
    let mut gaps = 0;
    for seed in 0..40 {
        let sim = Sim::new(seed);
        let store = Store::open("/events", options(&sim)).expect("a new store");
        fill(&store, 0..50 + seed);
        store.sync().expect("synced");
        fill(&store, 100..110 + seed);
        if seed % 3 == 0 {
            store.flush().expect("flushed");
        }
        fill(&store, 200..205);
        let image = sim.crash_image(&Survival::any(seed, sim.pending_units()), seed);
        let files = |sim: &Sim| -> Vec<_> {
            sim.files().iter().map(|path| (path.clone(), sim.read(path))).collect()
        };
        let before = files(&image);
        let left_out = find_unrecovered(&image.env(), "/events".as_ref()).expect("examined");
        let opened = image.clone_disk();
        let report = repair_store(&image);
        // Later pages that were written first look like damage in between. Possible events are then
        // kept aside, and the open leaves them in place.
        assert_eq!(report.is_undamaged(), left_out.is_empty(), "{seed}: {report}");
        gaps += left_out.len();
        if report.is_undamaged() {
            assert_eq!(files(&image), before, "{seed}");
        }
        for image in [image, opened] {
            let store = Store::open("/events", options(&image)).expect("opened");
            assert!(store.verify().expect("verified").damage.is_empty());
        }
    }
    assert!((1..30).contains(&gaps), "{gaps}");
}

#[test]
fn interrupted_repair_blocks_open() {
    let (sim, _) = damaged(21, false);
    let calls = {
        let done = sim.clone_disk();
        let begun = done.calls();
        repair_store(&done);
        done.calls() - begun
    };
    let mut refused = 0;
    for call in 1..=calls {
        let killed = sim.clone_disk();
        killed.crash_at(killed.calls() + call, CrashSide::After);
        let _ = repair_again(&killed);
        let image = killed.kill_image();
        if let Err(error) = Store::open("/events", options(&image))
            && error.to_string().contains("a repair of the event store")
        {
            refused += 1;
        }
    }
    assert!(refused > 5, "{refused}");
}

#[test]
fn disk_full_fails_the_repair_without_changes() {
    let (sim, before) = damaged(22, false);
    let mut refused = 0;
    for kilobytes in (0..120).step_by(3) {
        let full = sim.clone_disk();
        let held: u64 = full.files().iter().map(|path| full.read(path).len() as u64).sum();
        full.set_capacity(held + (kilobytes << 10));
        let what = format!("{kilobytes} KiB free");
        if let Err(error) = repair_again(&full) {
            let is_full = matches!(error, Error::Store(umbel_events_error)
                if matches!(umbel_events_error, umbel::Error::DiskFull { .. }));
            assert!(is_full, "{what}");
            refused += 1;
            assert!(!full.has("/events/REPAIR"), "{what}");
            let aside = full.env().files.exists("/events/damaged-1".as_ref()).expect("searched");
            assert!(!aside, "{what}: an empty folder was left");
            assert_eq!(full.read(chunk(1)), sim.read(chunk(1)), "{what}");
        }
        full.clear_capacity();
        let report = repair_again(&full).unwrap_or_else(|error| panic!("{what}: {error}"));
        if !report.is_undamaged() {
            check(&full, &before, &report, &what);
        }
    }
    assert!(refused > 5, "{refused}");
}

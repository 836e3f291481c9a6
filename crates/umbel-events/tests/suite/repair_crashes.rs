//! Repairs that are killed, meet a power cut, or a full disk: called again they end right.

use umbel_events::{Error, RecordedEvent, RepairOptions, RepairReport, Store, left_out, repair};
use umbel_sim::{Sim, Survival, When};

use super::repairs::{check, chunk, fill, fix, specimen};
use super::support::options;

/// A damaged store: a flip, a missing chunk, and where asked for no table.
fn damaged(seed: u64, is_table_lost: bool) -> (Sim, Vec<RecordedEvent>) {
    let (sim, before) = specimen(seed);
    sim.flip(chunk(1), 20_000, 1);
    sim.remove(chunk(3));
    if is_table_lost {
        sim.flip("/events/CHUNKS", 30, 1);
    }
    (sim, before)
}

fn again(sim: &Sim) -> Result<RepairReport, Error> {
    repair(&sim.env(), "/events".as_ref(), RepairOptions::default())
}

/// The names and bytes of everything that was moved aside.
fn set_aside(sim: &Sim) -> Vec<(String, Vec<u8>)> {
    let files = sim.files();
    let files = files.iter().filter(|path| path.starts_with("/events/damaged-1"));
    let name = |path: &std::path::PathBuf| path.file_name().map(|n| n.to_string_lossy().into());
    files.map(|path| (name(path).unwrap_or_default(), sim.read(path))).collect()
}

#[test]
fn killed_at_every_call_a_repair_ends_right_when_called_again() {
    for is_table_lost in [false, true] {
        let (sim, before) = damaged(20, is_table_lost);
        let (calls, whole, original) = {
            let done = sim.clone_disk();
            let begun = done.calls();
            let report = fix(&done);
            let calls = done.calls() - begun;
            check(&done, &before, &report, "not killed");
            (calls, report, sim.read(chunk(1)))
        };
        assert!(calls > 40, "{calls}");
        let mut resumed = 0;
        for (call, when) in (1..=calls).flat_map(|c| [(c, When::Before), (c, When::After)]) {
            let what = format!("call {call} {when:?}, table lost: {is_table_lost}");
            let killed = sim.clone_disk();
            killed.crash_at(killed.calls() + call, when);
            let _ = again(&killed);
            assert!(killed.is_dead(), "{what}");
            let image = match call % 3 {
                0 => killed.kill_image(),
                _ => killed.crash_image(&Survival::any(call, killed.pending_units()), call),
            };
            let is_unmarked = !image.has("/events/REPAIR");
            let report = again(&image).unwrap_or_else(|error| panic!("{what}: {error}"));
            // What a run that was killed has said is in its folder.
            resumed += u64::from(report.chunks.is_empty());
            // Only where all of it was done it has nothing more to say.
            let is_said = report.is_loss() || report.is_whole() && is_unmarked;
            assert!(is_said, "{what}: {report:?}");
            let said = match report.chunks.is_empty() {
                true => whole.clone(),
                false => report,
            };
            assert_eq!((&said.chunks, &said.streams), (&whole.chunks, &whole.streams), "{what}");
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

/// What a power cut leaves is no damage: opening brings it in order, and a repair lets it be.
#[test]
fn what_a_power_cut_leaves_is_let_be() {
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
        let left_out = left_out(&image.env(), "/events".as_ref()).expect("looked at");
        let opened = image.clone_disk();
        let report = fix(&image);
        // Later pages that were written first look like damage in between: what may be events is
        // kept aside then, and opening leaves it where it is.
        assert_eq!(report.is_whole(), left_out.is_empty(), "{seed}: {report}");
        gaps += left_out.len();
        if report.is_whole() {
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
fn between_the_two_no_store_is_opened() {
    let (sim, _) = damaged(21, false);
    let calls = {
        let done = sim.clone_disk();
        let begun = done.calls();
        fix(&done);
        done.calls() - begun
    };
    let mut refused = 0;
    for call in 1..=calls {
        let killed = sim.clone_disk();
        killed.crash_at(killed.calls() + call, When::After);
        let _ = again(&killed);
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
fn a_full_disk_is_told_and_nothing_is_changed() {
    let (sim, before) = damaged(22, false);
    let mut refused = 0;
    for kilobytes in (0..120).step_by(3) {
        let full = sim.clone_disk();
        let held: u64 = full.files().iter().map(|path| full.read(path).len() as u64).sum();
        full.set_capacity(held + (kilobytes << 10));
        let what = format!("{kilobytes} KiB free");
        if let Err(error) = again(&full) {
            let is_full = matches!(error, Error::Store(umbel_events_error)
                if matches!(umbel_events_error, umbel::Error::Full { .. }));
            assert!(is_full, "{what}");
            refused += 1;
            assert!(!full.has("/events/REPAIR"), "{what}");
            let aside = full.env().files.exists("/events/damaged-1".as_ref()).expect("looked for");
            assert!(!aside, "{what}: an empty folder was left");
            assert_eq!(full.read(chunk(1)), sim.read(chunk(1)), "{what}");
        }
        full.clear_capacity();
        let report = again(&full).unwrap_or_else(|error| panic!("{what}: {error}"));
        if !report.is_whole() {
            check(&full, &before, &report, &what);
        }
    }
    assert!(refused > 5, "{refused}");
}

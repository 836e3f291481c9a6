//! Planted bugs: histories that do not find them are worth nothing.

use umbel_base::failpoint::disable_all;

use umbel_testing::existence_script::planted_faults::{FORGOTTEN, INSIDE};
use umbel_testing::existence_script::{Plant, run};

/// Number of scripts within which every fault must be detected.
const SEEDS: u64 = 10_000;

/// The first seed whose history goes wrong, and how.
fn hunt(plant: Plant, seeds: u64) -> Option<(u64, String)> {
    (0..seeds).find_map(|seed| run(seed, plant).err().map(|problem| (seed, problem)))
}

#[test]
fn every_failpoint_is_detected() {
    let mut missed = Vec::new();
    let mut note = |name: String, found: Option<(u64, String)>| match found {
        Some((seed, problem)) => println!("{name}: seed {seed}: {problem:.160}"),
        None => missed.push(name),
    };
    for switch in INSIDE {
        switch.enable();
        note(format!("{switch:?}"), hunt(|_| (), SEEDS));
        disable_all();
    }
    for (name, plant) in FORGOTTEN {
        note(format!("forgotten: {name}"), hunt(plant, SEEDS));
    }
    assert!(missed.is_empty(), "not found in {SEEDS} histories: {missed:?}");
    // Without a bug they all end well.
    assert_eq!(hunt(|_| (), 500), None);
}

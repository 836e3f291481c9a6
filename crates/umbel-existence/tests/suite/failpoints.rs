//! Planted bugs: histories that do not find them are worth nothing.

use umbel_base::canary::turn_all_off;

use super::history::{Plant, run};
use super::plants::{FORGOTTEN, INSIDE};

/// Within so many histories every bug must be found.
const SEEDS: u64 = 10_000;

/// The first seed whose history goes wrong, and how.
fn hunt(plant: Plant, seeds: u64) -> Option<(u64, String)> {
    (0..seeds).find_map(|seed| run(seed, plant).err().map(|problem| (seed, problem)))
}

#[test]
fn every_planted_bug_is_found() {
    let mut missed = Vec::new();
    let mut note = |name: String, found: Option<(u64, String)>| match found {
        Some((seed, problem)) => println!("{name}: seed {seed}: {problem:.160}"),
        None => missed.push(name),
    };
    for switch in INSIDE {
        switch.turn_on();
        note(format!("{switch:?}"), hunt(|_| (), SEEDS));
        turn_all_off();
    }
    for (name, plant) in FORGOTTEN {
        note(format!("forgotten: {name}"), hunt(plant, SEEDS));
    }
    assert!(missed.is_empty(), "not found in {SEEDS} histories: {missed:?}");
    // Without a bug they all end well.
    assert_eq!(hunt(|_| (), 500), None);
}

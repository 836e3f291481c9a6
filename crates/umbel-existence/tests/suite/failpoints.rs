//! Active failpoints, and omitted calls: the scripts must detect each.

use umbel_base::failpoints::FailGuard;

use umbel_testing::existence_script::failpoint_list::{FAILPOINTS, FORGOTTEN};
use umbel_testing::existence_script::{Plant, run};

/// Number of scripts within which every fault must be detected.
const SEEDS: u64 = 10_000;

/// Returns the first seed whose script finds a wrong answer, and the answer.
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
    for (name, fault) in FAILPOINTS {
        let active = FailGuard::new(name, "return").expect("a valid action");
        note(format!("{name}: {fault}"), hunt(|_| (), SEEDS));
        drop(active);
    }
    for (name, plant) in FORGOTTEN {
        note(format!("forgotten: {name}"), hunt(plant, SEEDS));
    }
    assert!(missed.is_empty(), "not found in {SEEDS} histories: {missed:?}");
    // Without a fault they all end well.
    assert_eq!(hunt(|_| (), 500), None);
}

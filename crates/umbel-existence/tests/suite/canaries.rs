//! Planted bugs: histories that do not find them are worth nothing.

use umbel_base::canary::{Switch, turn_all_off};
use umbel_sim::Sim;

use super::history::{Plant, run};

/// Within so many histories every bug must be found.
const SEEDS: u64 = 10_000;

/// The first seed whose history goes wrong, and how.
fn hunt(plant: Plant, seeds: u64) -> Option<(u64, String)> {
    (0..seeds).find_map(|seed| run(seed, plant).err().map(|problem| (seed, problem)))
}

#[test]
fn every_planted_bug_is_found() {
    use Switch as S;
    let switches = [
        S::ExistenceInsertsIntoOld,
        S::ExistenceStaleFilter,
        S::ExistenceJournalBehindFilter,
        S::ExistenceForgetsFailedFlush,
        S::ExistenceCoversTooMuch,
        S::ExistenceUnreadMeansNo,
        S::ExistencePageDigestIgnored,
        S::ExistenceTrustsFirstAlone,
        S::ExistenceHealForgetsInserts,
        S::ExistenceWalkEndsEarly,
        S::IgnoredChecksum,
    ];
    let mut missed = Vec::new();
    let mut note = |name: String, found: Option<(u64, String)>| match found {
        Some((seed, problem)) => println!("{name}: seed {seed}: {problem:.160}"),
        None => missed.push(name),
    };
    for switch in switches {
        switch.turn_on();
        note(format!("{switch:?}"), hunt(|_| (), SEEDS));
        turn_all_off();
    }
    let forgotten: [(&str, Plant); 4] = [
        ("sync *.journal", |sim: &Sim| sim.ignore_calls("sync *.journal")),
        ("sync *.filter", |sim: &Sim| sim.ignore_calls("sync *.filter")),
        ("sync_dir", |sim: &Sim| sim.ignore_calls("sync_dir")),
        ("sync CHECKPOINT.new", |sim: &Sim| sim.ignore_calls("sync CHECKPOINT.new")),
    ];
    for (name, plant) in forgotten {
        note(format!("forgotten: {name}"), hunt(plant, SEEDS));
    }
    assert!(missed.is_empty(), "not found in {SEEDS} histories: {missed:?}");
    // Without a bug they all end well.
    assert_eq!(hunt(|_| (), 500), None);
}

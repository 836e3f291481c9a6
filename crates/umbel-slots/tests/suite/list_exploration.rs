//! Explores lists that lack any name at any time, while old slots are deleted.
//! `docs/explanation/replication.md` has the rule C13 that this checks.

use super::exploration::{PLANTED_WALKS, explore, from_environment, walk};
use super::explored_actions::{Bounds, SLOTS};
use super::explored_store::StoreFault;
use super::explored_world::{World, times};

/// States and random histories of a normal test run.
const STATES: usize = 5_000;
const WALKS: usize = 60;
/// Bounds of the states: a leader, a snapshot and a deletion.
const SHORT: Bounds = Bounds { proposals: 2, snapshots: 1, ticks: 3, ..SLOTS };
/// Bounds of random histories.
const LONG: Bounds = Bounds { proposals: 30, snapshots: 6, crashes: 4, ticks: 24, ..SLOTS };
/// Events of a random history.
const EVENTS: usize = 500;

fn world(bounds: Bounds) -> World {
    let mut world = World::new(bounds, times(1, 4), StoreFault::None);
    (world.store.lists_lack, world.holds_late) = (true, true);
    world
}

#[test]
fn nothing_acknowledged_is_lost_while_lists_lack_names() {
    let times = times(1, 4);
    let mut first = world(SHORT);
    first.elect(times);
    let states_max = from_environment("UMBEL_SLOT_STATES", STATES);
    assert_eq!(explore(first, times, states_max).violation, None);
    let (mut acknowledged, mut deleting) = (0, 0);
    for seed in 0..from_environment("UMBEL_SLOT_WALKS", WALKS) as u64 {
        match walk(world(LONG), times, seed, EVENTS) {
            Ok(end) => {
                acknowledged += end.acknowledged;
                let first = end.store.first.keys().find(|name| name.starts_with("slots/"));
                deleting +=
                    usize::from(first.is_some_and(|it| !end.store.objects.contains_key(it)));
            }
            Err(violation) => panic!("seed {seed}: {violation}"),
        }
    }
    assert!(acknowledged > 300, "{acknowledged} acknowledged slots show nothing");
    assert!(deleting > 20, "{deleting} histories with deletions show nothing");
}

#[test]
fn broken_announcements_of_deletions_are_found() {
    let right = times(1, 4);
    let (mut blind, mut hasty) = (world(LONG), world(LONG));
    blind.ignores_floors = true;
    hasty.collect_after(times(1, 0));
    for (name, planted) in [("floors are not read", blind), ("deletions do not wait", hasty)] {
        let mut seeds = 0..PLANTED_WALKS;
        let found = seeds.find(|seed| walk(planted.clone(), right, *seed, EVENTS).is_err());
        assert!(found.is_some(), "{name}");
    }
}

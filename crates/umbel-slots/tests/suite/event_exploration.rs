//! Explores the event stores of the nodes: appends, repetitions, closes, demotions, promotions, and
//! directories that are opened without the cluster. `docs/explanation/replication.md` has the rules
//! B that this checks, and [`EventFault`] breaks them.

use umbel_slots::SlotTimes;

use super::exploration::{PLANTED_WALKS, STATES, WALKS, explore, from_environment, walk};
use super::explored_actions::Bounds;
use super::explored_events::EventFault;
use super::explored_store::StoreFault;
use super::explored_world::{World, times};

/// Bounds after the first election: a slot of each of two leaders, and two events, or one twice.
const SHORT: Bounds = Bounds {
    proposals: 3,
    snapshots: 0,
    files: 0,
    losses: 0,
    crashes: 0,
    ticks: 0,
    collects: false,
    appends: 2,
    ends: 0,
    alone: 0,
    apart: 0,
    turns: 0,
    reads: 0,
};
/// Bounds with more states than a normal test run explores.
const WIDE: Bounds = Bounds { crashes: 1, appends: 3, ends: 1, ..SHORT };
/// Bounds of random histories.
const LONG: Bounds = Bounds {
    proposals: 60,
    snapshots: 12,
    files: 0,
    losses: 0,
    crashes: 6,
    ticks: 24,
    collects: true,
    appends: 120,
    ends: 8,
    alone: 2,
    apart: 0,
    turns: 0,
    reads: 0,
};
/// Events of a random history.
const EVENTS: usize = 800;

fn long(fault: EventFault, times: SlotTimes) -> World {
    let mut world = World::new(LONG, times, StoreFault::None);
    world.plant(fault);
    world
}

/// Explores the states after the first election. Returns whether it explored all of them.
fn explore_elected(bounds: Bounds, states_max: usize) -> bool {
    let times = times(1, 4);
    let mut world = World::new(bounds, times, StoreFault::None);
    world.elect(times);
    let explored = explore(world, times, states_max);
    if let Some(violation) = explored.violation {
        panic!("{violation}");
    }
    assert!(explored.is_complete || explored.states >= states_max);
    explored.is_complete
}

#[test]
fn acknowledged_and_visible_events_are_in_the_chain_in_all_short_histories() {
    assert!(explore_elected(SHORT, usize::MAX));
}

#[test]
fn acknowledged_and_visible_events_are_in_the_chain_in_any_order_of_events() {
    explore_elected(WIDE, from_environment("UMBEL_SLOT_STATES", STATES));
}

#[test]
fn acknowledged_and_visible_events_are_in_the_chain_in_long_histories() {
    let times = times(1, 4);
    let world = long(EventFault::None, times);
    let (mut acknowledged, mut leaders) = (0, 0);
    for seed in 0..from_environment("UMBEL_SLOT_WALKS", WALKS) as u64 {
        match walk(world.clone(), times, seed, EVENTS) {
            Ok(world) => {
                acknowledged += world.acknowledged_ids.len();
                leaders += world.epochs_with_events();
            }
            Err(violation) => panic!("seed {seed}: {violation}"),
        }
    }
    assert!(acknowledged > 1000, "{acknowledged} acknowledged events show nothing");
    assert!(leaders > 1000, "the events of {leaders} leaders show nothing");
}

#[test]
fn planted_faults_of_the_event_store_are_found() {
    let times = times(1, 4);
    for fault in EventFault::ALL {
        let world = long(fault, times);
        let mut seeds = 0..PLANTED_WALKS;
        let found = seeds.find(|seed| walk(world.clone(), times, *seed, EVENTS).is_err());
        assert!(found.is_some(), "{fault:?}");
    }
}

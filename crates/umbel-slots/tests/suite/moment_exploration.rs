//! Explores requests whose start, effect, stated time and answer are apart, and a store's clock
//! that goes back. Machines pause between any two of these moments, which the clocks of a node show
//! or not. `docs/explanation/replication.md` has the rules C3 and C22 that this checks.

use umbel_slots::SlotTimes;

use super::exploration::{PLANTED_WALKS, explore, from_environment, walk};
use super::explored_actions::{Bounds, SLOTS};
use super::explored_requests::StatedTimes;
use super::explored_store::StoreFault;
use super::explored_world::{World, times};

/// States and random histories of a normal test run.
const STATES: usize = 5_000;
const WALKS: usize = 50;
/// Bounds of the states: one slot each of two leaders, of which one request is apart.
const SHORT: Bounds = Bounds { proposals: 3, snapshots: 1, ticks: 2, apart: 2, ..SLOTS };
/// Bounds of random histories.
const LONG: Bounds =
    Bounds { proposals: 30, snapshots: 6, crashes: 4, ticks: 16, apart: 60, ..SLOTS };
/// The same, with a store's clock that goes back.
const TURNED: Bounds = Bounds { turns: 4, ..LONG };
/// Bounds that planted faults need, each for its world.
const PLANTED: Bounds = Bounds { crashes: 0, ..LONG };
const PLANTED_TURNED: Bounds = Bounds { crashes: 0, turns: 8, ..TURNED };
/// Events of a random history.
const EVENTS: usize = 300;

/// A world whose clocks show pauses or not.
fn world(bounds: Bounds, stated: StatedTimes, wall_shows: bool, times: SlotTimes) -> World {
    let mut world = World::new(bounds, times, StoreFault::None);
    (world.stated, world.wall_shows) = (stated, wall_shows);
    world.elect(times);
    world
}

/// Checks random histories.
fn check_walks(world: &World, times: SlotTimes) {
    let (mut acknowledged, mut apart) = (0, 0);
    for seed in 0..from_environment("UMBEL_SLOT_WALKS", WALKS) as u64 {
        match walk(world.clone(), times, seed, EVENTS) {
            Ok(end) => {
                acknowledged += end.acknowledged;
                apart += u64::from(world.left.apart - end.left.apart);
            }
            Err(violation) => panic!("seed {seed}: {violation}"),
        }
    }
    assert!(acknowledged > 300, "{acknowledged} acknowledged slots show nothing");
    assert!(apart > 800, "{apart} requests with moments apart show nothing");
}

#[test]
fn nothing_acknowledged_is_lost_with_any_moments_of_a_request() {
    let times = times(1, 4);
    let states_max = from_environment("UMBEL_SLOT_STATES", STATES);
    for stated in [StatedTimes::AtEffect, StatedTimes::Around] {
        let explored = explore(world(SHORT, stated, false, times), times, states_max);
        assert_eq!(explored.violation, None);
        check_walks(&world(LONG, stated, false, times), times);
    }
}

#[test]
fn nothing_acknowledged_is_lost_while_the_stores_clock_goes_back() {
    let times = times(1, 4);
    for stated in [StatedTimes::AtEffect, StatedTimes::Around] {
        check_walks(&world(TURNED, stated, true, times), times);
    }
}

/// Whether a history shows a fault.
fn is_found(world: &World, times: SlotTimes) -> bool {
    (0..PLANTED_WALKS).any(|seed| walk(world.clone(), times, seed, EVENTS).is_err())
}

#[test]
fn times_that_break_c3_are_found() {
    let times = times(1, 4);
    for stated in [StatedTimes::BeforeEffect, StatedTimes::AfterEffect] {
        assert!(is_found(&world(PLANTED, stated, false, times), times), "{stated:?}");
    }
}

/// Without C22, a pause that only the wall clock of a node shows counts as one that no clock shows.
#[test]
fn ignored_wall_clocks_are_found() {
    let times = times(1, 4);
    assert!(is_found(&world(PLANTED_TURNED, StatedTimes::AtEffect, false, times), times));
}

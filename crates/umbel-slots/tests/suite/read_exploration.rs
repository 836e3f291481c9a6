//! Explores reads that require the leader. A read has a beginning and an answer, between which
//! other leaders write and machines pause. `docs/explanation/replication.md` has the rule C4 that
//! this checks (M5), and [`ReadsFault`] breaks it.

use super::exploration::{PLANTED_WALKS, explore, from_environment, walk};
use super::explored_actions::{Bounds, SLOTS};
use super::explored_reads::ReadsFault;
use super::explored_store::StoreFault;
use super::explored_world::{World, times};

/// States and random histories of a normal test run.
const STATES: usize = 10_000;
const WALKS: usize = 60;
/// Bounds of the states: two leaders, of which each writes a slot, and a read.
const SHORT: Bounds = Bounds { proposals: 3, ticks: 1, reads: 1, collects: false, ..SLOTS };
/// Bounds of random histories.
const LONG: Bounds =
    Bounds { proposals: 40, snapshots: 4, crashes: 3, ticks: 16, reads: 40, ..SLOTS };
/// Events of a random history.
const EVENTS: usize = 400;

fn world(bounds: Bounds, fault: ReadsFault) -> World {
    let mut world = World::new(bounds, times(1, 4), StoreFault::None);
    world.plant_in_reads(fault);
    world.elect(times(1, 4));
    world
}

#[test]
fn reads_see_what_was_acknowledged_before_in_any_order_of_events() {
    let states_max = from_environment("UMBEL_SLOT_STATES", STATES);
    let explored = explore(world(SHORT, ReadsFault::None), times(1, 4), states_max);
    assert_eq!(explored.violation, None);
}

#[test]
fn reads_see_what_was_acknowledged_before_in_long_histories() {
    let (mut acknowledged, mut answered) = (0, 0);
    for seed in 0..from_environment("UMBEL_SLOT_WALKS", WALKS) as u64 {
        match walk(world(LONG, ReadsFault::None), times(1, 4), seed, EVENTS) {
            Ok(end) => {
                acknowledged += end.acknowledged;
                answered += end.answered_reads();
            }
            Err(violation) => panic!("seed {seed}: {violation}"),
        }
    }
    assert!(acknowledged > 500, "{acknowledged} acknowledged slots show nothing");
    assert!(answered > 500, "{answered} answered reads show nothing");
}

#[test]
fn planted_faults_of_reads_are_found() {
    for fault in ReadsFault::ALL {
        let world = world(LONG, fault);
        let mut seeds = 0..PLANTED_WALKS;
        let found = seeds.find(|seed| walk(world.clone(), times(1, 4), *seed, EVENTS).is_err());
        assert!(found.is_some(), "{fault:?}");
    }
}

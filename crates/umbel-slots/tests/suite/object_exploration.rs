//! Explores the objects that slots name: uploads, snapshots, files that are replaced, and their
//! collection. Followers need the files, and a snapshot can be lost.
//! `docs/explanation/replication.md` has the rules C15 and C16 that this checks (M7), and
//! [`ObjectFault`] breaks them.

use super::exploration::{PLANTED_WALKS, explore, from_environment, walk};
use super::explored_actions::{Bounds, SLOTS};
use super::explored_objects::ObjectFault;
use super::explored_store::StoreFault;
use super::explored_world::{World, times};

/// States and random histories of a normal test run.
const STATES: usize = 5_000;
const WALKS: usize = 80;
/// Bounds of the states: the upload of a file and of a snapshot.
const SHORT: Bounds = Bounds { proposals: 4, snapshots: 1, files: 1, crashes: 1, ..SLOTS };
/// Bounds of random histories.
const LONG: Bounds =
    Bounds { proposals: 90, snapshots: 12, files: 12, losses: 1, crashes: 4, ticks: 24, ..SLOTS };
/// Events of a random history.
const EVENTS: usize = 600;

fn world(bounds: Bounds, fault: ObjectFault) -> World {
    let mut world = World::new(bounds, times(1, 4), StoreFault::None);
    world.plant_in_objects(fault);
    world
}

#[test]
fn nodes_have_what_slots_name_in_any_order_of_events() {
    let times = times(1, 4);
    let mut world = world(SHORT, ObjectFault::None);
    world.elect(times);
    let states_max = from_environment("UMBEL_SLOT_STATES", STATES);
    assert_eq!(explore(world, times, states_max).violation, None);
}

#[test]
fn nodes_have_what_slots_name_in_long_histories() {
    let times = times(1, 4);
    let (mut acknowledged, mut deleted) = (0, 0);
    for seed in 0..from_environment("UMBEL_SLOT_WALKS", WALKS) as u64 {
        match walk(world(LONG, ObjectFault::None), times, seed, EVENTS) {
            Ok(end) => {
                acknowledged += end.acknowledged;
                deleted += end.deleted_files();
            }
            Err(violation) => panic!("seed {seed}: {violation}"),
        }
    }
    assert!(acknowledged > 1000, "{acknowledged} acknowledged slots show nothing");
    assert!(deleted > 20, "{deleted} deleted files show nothing");
}

/// The number of the history that shows a fault.
fn first_violation(world: &World) -> Option<u64> {
    (0..PLANTED_WALKS).find(|seed| walk(world.clone(), times(1, 4), *seed, EVENTS).is_err())
}

#[test]
fn planted_faults_of_uploads_and_collections_are_found() {
    for fault in ObjectFault::ALL {
        let found = first_violation(&world(Bounds { losses: 0, ..LONG }, fault));
        assert!(found.is_some(), "{fault:?}");
    }
    let mut hasty = world(LONG, ObjectFault::None);
    hasty.collect_after(times(1, 0));
    assert!(first_violation(&hasty).is_some(), "deletions do not wait");
}

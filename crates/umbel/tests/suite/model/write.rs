//! Operations that write.

use std::sync::Arc;

use umbel::{Batch, Durability, Error};

use super::world::{Change, World};

/// Puts a key.
pub fn put(world: &mut World) {
    let space = world.any_space();
    let (key, value) = (world.any_key(), world.random.value());
    world.note(format!("put {space} {} ({} bytes)", short(&key), value.len()));
    world.spaces[space].handle.put(&key, &value).unwrap();
    world.apply(&[(space, Change::Put(key, value.into()))], &[]);
}

/// Deletes a key, which need not be there.
pub fn delete(world: &mut World) {
    let space = world.any_space();
    let key = world.likely_key(space);
    world.note(format!("delete {space} {}", short(&key)));
    world.spaces[space].handle.delete(&key).unwrap();
    world.apply(&[(space, Change::Delete(key))], &[]);
}

/// Deletes a range, which may be empty or the wrong way round.
pub fn delete_range(world: &mut World) {
    let space = world.any_space();
    let (start, end) = any_range(world, space);
    world.note(format!("delete_range {space} {} {}", short(&start), short(&end)));
    world.spaces[space].handle.delete_range(&start, &end).unwrap();
    world.apply(&[(space, Change::DeleteRange(start, end))], &[]);
}

/// Start and end of a range: mostly a narrow one.
pub fn any_range(world: &mut World, space: usize) -> (Vec<u8>, Vec<u8>) {
    let start = world.likely_key(space);
    let mut end = world.likely_key(space);
    if world.random.percent(70) {
        let steps = world.random.below(12);
        if let Some((key, _)) = world.spaces[space].map.range(start.clone()..).nth(steps) {
            end = key.clone();
        }
    }
    (start, end)
}

/// What a batch is to do, and the markers it sets.
#[derive(Debug, Default)]
struct Plan {
    changes: Vec<(usize, Change)>,
    markers: Vec<(usize, Vec<u8>)>,
    durability: Durability,
}

/// Plans a batch over one to three keyspaces.
fn plan(world: &mut World) -> Plan {
    let count = 1 + world.random.below(3);
    let spaces: Vec<usize> = (0..count).map(|_| world.any_space()).collect();
    let mut plan = Plan::default();
    let operations = world.random.pick(&[1, 2, 3, 5, 8, 30]);
    for _ in 0..operations {
        let space = world.random.pick(&spaces);
        let change = match world.random.below(10) {
            0..7 => Change::Put(world.any_key(), world.random.value().into()),
            7..9 => Change::Delete(world.likely_key(space)),
            _ => {
                let (start, end) = any_range(world, space);
                Change::DeleteRange(start, end)
            }
        };
        plan.changes.push((space, change));
    }
    let all_logged = spaces.iter().all(|&space| world.spaces[space].options.log);
    if all_logged && world.random.percent(20) {
        plan.durability = Durability::Synced;
    }
    for &space in &spaces {
        if !world.spaces[space].options.log && world.random.percent(50) {
            world.writes += 1;
            plan.markers.push((space, format!("marker {}", world.writes).into_bytes()));
        }
    }
    plan
}

fn fill(world: &World, batch: &mut Batch, plan: &Plan) {
    for (space, change) in &plan.changes {
        let keyspace = &world.spaces[*space].handle;
        match change {
            Change::Put(key, value) => batch.put(keyspace, key, value),
            Change::Delete(key) => batch.delete(keyspace, key),
            Change::DeleteRange(start, end) => batch.delete_range(keyspace, start, end),
        }
    }
    for (space, marker) in &plan.markers {
        batch.set_marker(&world.spaces[*space].handle, marker);
    }
}

/// Commits a batch.
pub fn batch(world: &mut World) {
    let plan = plan(world);
    world.note(format!("batch of {} {:?}", plan.changes.len(), plan.durability));
    let mut batch = world.db().batch();
    fill(world, &mut batch, &plan);
    batch.commit(plan.durability).unwrap();
    world.apply(&plan.changes, &plan.markers);
}

/// Adds a condition that holds or does not, as asked for. `false` where there was nothing to say.
fn require(world: &mut World, batch: &mut Batch, holds: bool) -> bool {
    let space = world.any_space();
    let key = world.likely_key(space);
    let keyspace = world.spaces[space].handle.clone();
    let value = world.spaces[space].map.get(&key).cloned();
    match (world.random.below(3), value) {
        (0, value) => {
            // A key is unchanged since just now, and was changed since before it was put.
            let snapshot = world.db().snapshot();
            if !holds {
                let value: Arc<[u8]> = value.unwrap_or_else(|| world.random.value().into());
                keyspace.put(&key, &value).unwrap();
                world.apply(&[(space, Change::Put(key.clone(), value))], &[]);
            }
            batch.expect_unchanged(&keyspace, &key, &snapshot);
        }
        (1, value) if value.is_none() == holds => batch.expect_absent(&keyspace, &key),
        (_, Some(value)) => {
            let mut expected = value.to_vec();
            if !holds {
                expected.push(7);
            }
            batch.expect_value(&keyspace, &key, &expected);
        }
        (_, None) if !holds => batch.expect_value(&keyspace, &key, b""),
        _ => return false,
    }
    true
}

/// Commits a batch whose conditions hold.
pub fn conditional_holds(world: &mut World) {
    world.note("batch with conditions that hold");
    let mut batch = world.db().batch();
    for _ in 0..1 + world.random.below(3) {
        require(world, &mut batch, true);
    }
    let plan = plan(world);
    fill(world, &mut batch, &plan);
    batch.commit(plan.durability).unwrap();
    world.apply(&plan.changes, &plan.markers);
}

/// Commits a batch with a condition that does not hold, which must do nothing.
pub fn conditional_conflicts(world: &mut World) {
    world.note("batch with a condition that does not hold");
    let mut batch = world.db().batch();
    let conflicts = require(world, &mut batch, false);
    let plan = plan(world);
    fill(world, &mut batch, &plan);
    match batch.commit(plan.durability) {
        Err(Error::Conflict(_)) if conflicts => {}
        Ok(()) if !conflicts => world.apply(&plan.changes, &plan.markers),
        other => panic!("conflicts: {conflicts}, but the commit answered {other:?}"),
    }
}

/// A key as it is shown in a trace.
pub fn short(key: &[u8]) -> String {
    let shown = key[..key.len().min(40)].escape_ascii();
    if key.len() > 40 {
        format!("\"{shown}\"... ({} bytes)", key.len())
    } else {
        format!("\"{shown}\"")
    }
}

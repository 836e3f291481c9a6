//! Operations that write.

use std::sync::Arc;

use umbel::{Batch, Durability, Error};
use umbel_sim::Random;

use super::oracle::{Change, ModelStore};

/// Returns a value like those of applications: mostly small, occasionally empty or large, half of
/// them compressible.
fn random_value(random: &mut Random) -> Vec<u8> {
    let len = match random.below(200) {
        0..20 => 0,
        20..140 => random.below_usize(24),
        140..185 => random.below_usize(200),
        185..198 => random.below_usize(3000),
        _ => random.below_usize(40_000),
    };
    if random.percent(50) {
        return random.bytes(len);
    }
    let word = random.bytes(4);
    word.iter().copied().cycle().take(len).collect()
}

/// Puts a key.
pub fn put(model: &mut ModelStore) {
    let space = model.any_space();
    let (key, value) = (model.any_key(), random_value(&mut model.random));
    model.note(format!("put {space} {} ({} bytes)", short(&key), value.len()));
    model.spaces[space].handle.put(&key, &value).unwrap();
    model.apply(&[(space, Change::Put(key, value.into()))], &[]);
}

/// Deletes a key, which may be absent.
pub fn delete(model: &mut ModelStore) {
    let space = model.any_space();
    let key = model.likely_key(space);
    model.note(format!("delete {space} {}", short(&key)));
    model.spaces[space].handle.delete(&key).unwrap();
    model.apply(&[(space, Change::Delete(key))], &[]);
}

/// Deletes a range, which may be empty or reversed.
pub fn delete_range(model: &mut ModelStore) {
    let space = model.any_space();
    let (start, end) = any_range(model, space);
    model.note(format!("delete_range {space} {} {}", short(&start), short(&end)));
    model.spaces[space].handle.delete_range(&start, &end).unwrap();
    model.apply(&[(space, Change::DeleteRange(start, end))], &[]);
}

/// Start and end of a range: mostly a narrow one.
pub fn any_range(model: &mut ModelStore, space: usize) -> (Vec<u8>, Vec<u8>) {
    let start = model.likely_key(space);
    let mut end = model.likely_key(space);
    if model.random.percent(70) {
        let steps = model.random.below_usize(12);
        if let Some((key, _)) = model.spaces[space].map.range(start.clone()..).nth(steps) {
            end = key.clone();
        }
    }
    (start, end)
}

/// Operations of a batch, and the markers it sets.
#[derive(Debug, Default)]
struct Plan {
    changes: Vec<(usize, Change)>,
    markers: Vec<(usize, Vec<u8>)>,
    durability: Durability,
}

/// Plans a batch over one to three keyspaces.
fn plan(model: &mut ModelStore) -> Plan {
    let count = 1 + model.random.below_usize(3);
    let spaces: Vec<usize> = (0..count).map(|_| model.any_space()).collect();
    let mut plan = Plan::default();
    let operations = model.random.pick(&[1, 2, 3, 5, 8, 30]);
    for _ in 0..operations {
        let space = model.random.pick(&spaces);
        let change = match model.random.below_usize(10) {
            0..7 => Change::Put(model.any_key(), random_value(&mut model.random).into()),
            7..9 => Change::Delete(model.likely_key(space)),
            _ => {
                let (start, end) = any_range(model, space);
                Change::DeleteRange(start, end)
            }
        };
        plan.changes.push((space, change));
    }
    let all_logged = spaces.iter().all(|&space| model.spaces[space].options.log);
    if all_logged && model.random.percent(20) {
        plan.durability = Durability::Synced;
    }
    for &space in &spaces {
        if !model.spaces[space].options.log && model.random.percent(50) {
            model.writes += 1;
            plan.markers.push((space, format!("marker {}", model.writes).into_bytes()));
        }
    }
    plan
}

fn fill(model: &ModelStore, batch: &mut Batch, plan: &Plan) {
    for (space, change) in &plan.changes {
        let keyspace = &model.spaces[*space].handle;
        match change {
            Change::Put(key, value) => batch.put(keyspace, key, value),
            Change::Delete(key) => batch.delete(keyspace, key),
            Change::DeleteRange(start, end) => batch.delete_range(keyspace, start, end),
        }
    }
    for (space, marker) in &plan.markers {
        batch.set_marker(&model.spaces[*space].handle, marker);
    }
}

/// Commits a batch.
pub fn batch(model: &mut ModelStore) {
    let plan = plan(model);
    model.note(format!("batch of {} {:?}", plan.changes.len(), plan.durability));
    let mut batch = model.db().batch();
    fill(model, &mut batch, &plan);
    batch.commit(plan.durability).unwrap();
    model.apply(&plan.changes, &plan.markers);
}

/// Adds a condition that holds, or fails, as `holds` says. `false` if there is no such condition.
fn require(model: &mut ModelStore, batch: &mut Batch, holds: bool) -> bool {
    let space = model.any_space();
    let key = model.likely_key(space);
    let keyspace = model.spaces[space].handle.clone();
    let value = model.spaces[space].map.get(&key).cloned();
    match (model.random.below_usize(3), value) {
        (0, value) => {
            // A key is unchanged since this snapshot, and was changed since before its put.
            let snapshot = model.db().snapshot();
            if !holds {
                let value: Arc<[u8]> =
                    value.unwrap_or_else(|| random_value(&mut model.random).into());
                keyspace.put(&key, &value).unwrap();
                model.apply(&[(space, Change::Put(key.clone(), value))], &[]);
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
pub fn conditional_holds(model: &mut ModelStore) {
    model.note("batch with conditions that hold");
    let mut batch = model.db().batch();
    for _ in 0..1 + model.random.below_usize(3) {
        require(model, &mut batch, true);
    }
    let plan = plan(model);
    fill(model, &mut batch, &plan);
    batch.commit(plan.durability).unwrap();
    model.apply(&plan.changes, &plan.markers);
}

/// Commits a batch with a condition that does not hold, which must change nothing.
pub fn conditional_conflicts(model: &mut ModelStore) {
    model.note("batch with a condition that does not hold");
    let mut batch = model.db().batch();
    let conflicts = require(model, &mut batch, false);
    let plan = plan(model);
    fill(model, &mut batch, &plan);
    match batch.commit(plan.durability) {
        Err(Error::Conflict(_)) if conflicts => {}
        Ok(()) if !conflicts => model.apply(&plan.changes, &plan.markers),
        other => panic!("conflicts: {conflicts}, but the commit answered {other:?}"),
    }
}

/// Short form of a key for a trace.
pub fn short(key: &[u8]) -> String {
    let shown = key[..key.len().min(40)].escape_ascii();
    if key.len() > 40 {
        format!("\"{shown}\"... ({} bytes)", key.len())
    } else {
        format!("\"{shown}\"")
    }
}

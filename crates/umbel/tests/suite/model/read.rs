//! Operations that look keys up.

use super::world::{Map, World};
use super::write::short;

fn look(world: &mut World, how: &str) -> (usize, Vec<u8>, Option<Vec<u8>>) {
    let space = world.any_space();
    let key = world.likely_key(space);
    world.note(format!("{how} {space} {}", short(&key)));
    world.spaces[space].gets += 1;
    let expected = world.spaces[space].map.get(&key).map(|value| value.to_vec());
    (space, key, expected)
}

/// `get`.
pub fn get(world: &mut World) {
    let (space, key, expected) = look(world, "get");
    assert_eq!(world.spaces[space].handle.get(&key).unwrap(), expected);
}

/// `get_with`.
pub fn get_with(world: &mut World) {
    let (space, key, expected) = look(world, "get_with");
    let found = world.spaces[space].handle.get_with(&key, <[u8]>::to_vec).unwrap();
    assert_eq!(found, expected);
}

/// `get_into`, into a buffer that holds something already.
pub fn get_into(world: &mut World) {
    let (space, key, expected) = look(world, "get_into");
    let mut value = b"what was there before".to_vec();
    let found = world.spaces[space].handle.get_into(&key, &mut value).unwrap();
    assert_eq!(found, expected.is_some());
    assert_eq!(value, expected.unwrap_or_default());
}

/// `contains`.
pub fn contains(world: &mut World) {
    let (space, key, expected) = look(world, "contains");
    assert_eq!(world.spaces[space].handle.contains(&key).unwrap(), expected.is_some());
}

/// `may_contain`, which may err on one side only.
pub fn may_contain(world: &mut World) {
    let space = world.any_space();
    world.note(format!("may_contain {space}"));
    for _ in 0..20 {
        let key = world.present_key(space);
        let space = &world.spaces[space];
        if space.map.contains_key(&key) {
            assert!(space.handle.may_contain(&key), "{}", short(&key));
        }
    }
}

/// `multi_get`, with keys that come twice.
pub fn multi_get(world: &mut World) {
    let space = world.any_space();
    let count = world.random.below(12);
    world.note(format!("multi_get {space} of {count}"));
    let mut keys: Vec<Vec<u8>> = (0..count).map(|_| world.likely_key(space)).collect();
    keys.extend(keys.first().cloned());
    let space = &mut world.spaces[space];
    space.gets += keys.len() as u64;
    let found = space.handle.multi_get(&keys).unwrap();
    assert_eq!(found, expected_values(&space.map, &keys));
}

/// What `multi_get` should answer.
pub fn expected_values(map: &Map, keys: &[Vec<u8>]) -> Vec<Option<Vec<u8>>> {
    keys.iter().map(|key| map.get(key).map(|value| value.to_vec())).collect()
}

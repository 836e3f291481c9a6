//! Operations that look up keys.

use super::oracle::{Map, ModelStore};
use super::write::short;

fn pick_read(model: &mut ModelStore, how: &str) -> (usize, Vec<u8>, Option<Vec<u8>>) {
    let space = model.any_space();
    let key = model.likely_key(space);
    model.note(format!("{how} {space} {}", short(&key)));
    model.spaces[space].gets += 1;
    let expected = model.spaces[space].map.get(&key).map(|value| value.to_vec());
    (space, key, expected)
}

/// `get`.
pub fn get(model: &mut ModelStore) {
    let (space, key, expected) = pick_read(model, "get");
    assert_eq!(model.spaces[space].handle.get(&key).unwrap(), expected);
}

/// `get_with`.
pub fn get_with(model: &mut ModelStore) {
    let (space, key, expected) = pick_read(model, "get_with");
    let found = model.spaces[space].handle.get_with(&key, <[u8]>::to_vec).unwrap();
    assert_eq!(found, expected);
}

/// `get_into`, into a buffer that is not empty.
pub fn get_into(model: &mut ModelStore) {
    let (space, key, expected) = pick_read(model, "get_into");
    let mut value = b"what was there before".to_vec();
    let found = model.spaces[space].handle.get_into(&key, &mut value).unwrap();
    assert_eq!(found, expected.is_some());
    assert_eq!(value, expected.unwrap_or_default());
}

/// `contains`.
pub fn contains(model: &mut ModelStore) {
    let (space, key, expected) = pick_read(model, "contains");
    assert_eq!(model.spaces[space].handle.contains(&key).unwrap(), expected.is_some());
}

/// `may_contain`, which may only err with false positives.
pub fn may_contain(model: &mut ModelStore) {
    let space = model.any_space();
    model.note(format!("may_contain {space}"));
    for _ in 0..20 {
        let key = model.present_key(space);
        let space = &model.spaces[space];
        if space.map.contains_key(&key) {
            assert!(space.handle.may_contain(&key), "{}", short(&key));
        }
    }
}

/// `multi_get`, with duplicate keys.
pub fn multi_get(model: &mut ModelStore) {
    let space = model.any_space();
    let count = model.random.below_usize(12);
    model.note(format!("multi_get {space} of {count}"));
    let mut keys: Vec<Vec<u8>> = (0..count).map(|_| model.likely_key(space)).collect();
    keys.extend(keys.first().cloned());
    let space = &mut model.spaces[space];
    space.gets += keys.len() as u64;
    let found = space.handle.multi_get(&keys).unwrap();
    assert_eq!(found, expected_values(&space.map, &keys));
}

/// Expected results of `multi_get`.
pub fn expected_values(map: &Map, keys: &[Vec<u8>]) -> Vec<Option<Vec<u8>>> {
    keys.iter().map(|key| map.get(key).map(|value| value.to_vec())).collect()
}

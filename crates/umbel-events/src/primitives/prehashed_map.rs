//! [`ByName`]: a map from streams whose names were hashed already.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// Hashes that are keyed already are taken as they are.
#[derive(Debug, Default)]
pub struct AsIs(u64);

impl Hasher for AsIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

/// A map whose keys are hashes.
pub type ByHash<V> = HashMap<u64, V, BuildHasherDefault<AsIs>>;

/// A name with its keyed hash.
#[derive(Debug)]
struct Name {
    hash: u64,
    stream: Box<str>,
}

/// A name with its hash, owned or lent.
trait Named {
    fn parts(&self) -> (u64, &str);
}

impl Named for Name {
    fn parts(&self) -> (u64, &str) {
        (self.hash, &self.stream)
    }
}

impl Named for (u64, &str) {
    fn parts(&self) -> (u64, &str) {
        *self
    }
}

impl Hash for dyn Named + '_ {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.parts().0);
    }
}

impl PartialEq for dyn Named + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for dyn Named + '_ {}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self as &dyn Named).hash(state);
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for Name {}

impl<'a> Borrow<dyn Named + 'a> for Name {
    fn borrow(&self) -> &(dyn Named + 'a) {
        self
    }
}

/// Something for each of some streams.
#[derive(Debug)]
pub struct ByName<V> {
    map: HashMap<Name, V, BuildHasherDefault<AsIs>>,
}

impl<V> Default for ByName<V> {
    fn default() -> ByName<V> {
        ByName { map: HashMap::default() }
    }
}

impl<V> ByName<V> {
    /// What there is for the stream whose name has this hash.
    pub fn get(&self, hash: u64, stream: &str) -> Option<&V> {
        if self.map.is_empty() {
            return None;
        }
        self.map.get(&(hash, stream) as &dyn Named)
    }

    /// As [`ByName::get`], to be changed.
    pub fn get_mut(&mut self, hash: u64, stream: &str) -> Option<&mut V> {
        if self.map.is_empty() {
            return None;
        }
        self.map.get_mut(&(hash, stream) as &dyn Named)
    }

    /// There is `value` for the stream from now on.
    pub fn insert(&mut self, hash: u64, stream: &str, value: V) {
        self.map.insert(Name { hash, stream: stream.into() }, value);
    }

    /// Forgets the stream.
    pub fn remove(&mut self, hash: u64, stream: &str) {
        self.map.remove(&(hash, stream) as &dyn Named);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_one_hash_are_told_apart() {
        let mut map = ByName::default();
        map.insert(7, "a", 2);
        map.insert(7, "b", 11);
        map.insert(7, "a", 3);
        assert_eq!(
            (map.get(7, "a"), map.get(7, "b"), map.get(7, "c")),
            (Some(&3), Some(&11), None)
        );
        map.remove(7, "a");
        assert_eq!(map.get(7, "a"), None);
        assert_eq!(map.get_mut(7, "b"), Some(&mut 11));
    }
}

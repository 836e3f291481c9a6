//! [`PrehashedNameMap`]: a map keyed by stream names that are already hashed.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// Hasher whose input is already a keyed hash, which it returns unchanged.
#[derive(Debug, Default)]
pub struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
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

/// Map whose keys are hashes.
pub type PrehashedMap<V> = HashMap<u64, V, BuildHasherDefault<IdentityHasher>>;

/// Name with its keyed hash.
#[derive(Debug)]
struct HashedName {
    hash: u64,
    stream: Box<str>,
}

/// Name with its hash, owned or borrowed.
trait HashedNameKey {
    fn hash_and_name(&self) -> (u64, &str);
}

impl HashedNameKey for HashedName {
    fn hash_and_name(&self) -> (u64, &str) {
        (self.hash, &self.stream)
    }
}

impl HashedNameKey for (u64, &str) {
    fn hash_and_name(&self) -> (u64, &str) {
        *self
    }
}

impl Hash for dyn HashedNameKey + '_ {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash_and_name().0);
    }
}

impl PartialEq for dyn HashedNameKey + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.hash_and_name() == other.hash_and_name()
    }
}

impl Eq for dyn HashedNameKey + '_ {}

impl Hash for HashedName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self as &dyn HashedNameKey).hash(state);
    }
}

impl PartialEq for HashedName {
    fn eq(&self, other: &Self) -> bool {
        self.hash_and_name() == other.hash_and_name()
    }
}

impl Eq for HashedName {}

impl<'a> Borrow<dyn HashedNameKey + 'a> for HashedName {
    fn borrow(&self) -> &(dyn HashedNameKey + 'a) {
        self
    }
}

/// Map from stream names to values.
#[derive(Debug)]
pub struct PrehashedNameMap<V> {
    map: HashMap<HashedName, V, BuildHasherDefault<IdentityHasher>>,
}

impl<V> Default for PrehashedNameMap<V> {
    fn default() -> PrehashedNameMap<V> {
        PrehashedNameMap { map: HashMap::default() }
    }
}

impl<V> PrehashedNameMap<V> {
    /// Returns the value of the stream whose name has this hash.
    pub fn get(&self, hash: u64, stream: &str) -> Option<&V> {
        if self.map.is_empty() {
            return None;
        }
        self.map.get(&(hash, stream) as &dyn HashedNameKey)
    }

    /// Mutable form of [`PrehashedNameMap::get`].
    pub fn get_mut(&mut self, hash: u64, stream: &str) -> Option<&mut V> {
        if self.map.is_empty() {
            return None;
        }
        self.map.get_mut(&(hash, stream) as &dyn HashedNameKey)
    }

    /// Sets the value of the stream.
    pub fn insert(&mut self, hash: u64, stream: &str, value: V) {
        self.map.insert(HashedName { hash, stream: stream.into() }, value);
    }

    /// Removes the stream.
    pub fn remove(&mut self, hash: u64, stream: &str) {
        self.map.remove(&(hash, stream) as &dyn HashedNameKey);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_equal_hashes_are_distinct() {
        let mut map = PrehashedNameMap::default();
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

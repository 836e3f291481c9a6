//! [`ObjectVersions`]: the committed objects of a simulated store, with their earlier states.

use std::collections::BTreeMap;
use std::sync::Arc;

/// One state of a name.
#[derive(Debug, Clone)]
pub(crate) struct ObjectVersion {
    /// Moment of the change, in nanoseconds of the simulation.
    pub(crate) since_ns: u64,
    /// Bytes of the object; `None` if the name was deleted.
    pub(crate) bytes: Option<Arc<[u8]>>,
    /// Time of the creation by the store's clock.
    pub(crate) created_micros: u64,
}

/// Damage of a stored object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectDamage {
    /// One bit is flipped.
    Flip,
    /// The end is missing.
    Cut,
    /// The object is missing.
    Missing,
    /// The object has the bytes that the name had before.
    Old,
}

/// All states of all names.
#[derive(Debug, Clone, Default)]
pub(crate) struct ObjectVersions(BTreeMap<String, Vec<ObjectVersion>>);

impl ObjectVersions {
    /// Returns the state of a name at a moment, if the name had one.
    pub(crate) fn at(&self, name: &str, moment_ns: u64) -> Option<&ObjectVersion> {
        let versions = self.0.get(name)?;
        let found = versions.iter().rev().find(|version| version.since_ns <= moment_ns)?;
        found.bytes.as_ref().map(|_| found)
    }

    pub(crate) fn push(&mut self, name: &str, version: ObjectVersion) {
        self.0.entry(name.to_owned()).or_default().push(version);
    }

    /// Returns the objects of a moment, ordered by name.
    pub(crate) fn all_at(&self, moment_ns: u64) -> impl Iterator<Item = (&str, &ObjectVersion)> {
        let names = self.0.keys();
        names.filter_map(move |name| Some((name.as_str(), self.at(name, moment_ns)?)))
    }

    /// Damages an object in all its states, which then has no trace of the damage. Returns `false`
    /// if it cannot be damaged so. `position` chooses the bit or the length.
    pub(crate) fn damage(&mut self, name: &str, damage: ObjectDamage, position: u64) -> bool {
        let Some(versions) = self.0.get_mut(name) else { return false };
        let Some(last) = versions.last_mut() else { return false };
        let Some(bytes) = last.bytes.clone().filter(|bytes| !bytes.is_empty()) else {
            return false;
        };
        let at = (position % bytes.len() as u64) as usize;
        match damage {
            ObjectDamage::Flip => {
                let mut flipped = bytes.to_vec();
                flipped[at] ^= 1 << (position / 7 % 8);
                last.bytes = Some(flipped.into());
            }
            ObjectDamage::Cut => last.bytes = Some(bytes[..at].into()),
            ObjectDamage::Missing => last.bytes = None,
            ObjectDamage::Old => {
                let older = versions.iter().rev().filter_map(|version| version.bytes.clone());
                let Some(older) = older.skip(1).find(|older| *older != bytes) else { return false };
                if let Some(last) = versions.last_mut() {
                    last.bytes = Some(older);
                }
            }
        }
        true
    }
}

//! [`LostObjects`]: objects of a backup that something else deleted, such as a rule of the bucket.
//!
//! The writer of a backup knows its state and never reads an object again, so that it does not
//! notice a deletion. A check compares the list of the objects with the newest state. The next run
//! uploads what was lost, as pieces with new names, and a full manifest ends a gap.

use std::collections::{BTreeSet, HashSet};

use umbel_env::{ListedObject, ObjectName};

use crate::backup_error::{BackupError, BackupResult};
use crate::backup_identity::{BackupIdentity, identity_name};
use crate::manifest::{ManifestContents, manifest_name};
use crate::manifest_chain::ManifestChain;
use crate::object_requests::ObjectRequests;

/// Objects that the newest state of a backup needs, and that the object store lacks.
///
/// A floor is none of them: no state needs one, and a prefix has none before its first retention. A
/// list can lack a floor that a retention replaces meanwhile. A writer cannot create a lost floor
/// again either: it does not know whether manifests below its first one expired or were lost, and
/// an operator can restore lost ones. The next retention creates a floor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LostObjects {
    /// Whether the object `BACKUP` is missing.
    pub identity: bool,
    /// A manifest without which the newest state cannot be read.
    pub manifest: Option<ObjectName>,
    /// Pieces of the newest state that are missing or have another length.
    pub pieces: BTreeSet<ObjectName>,
}

impl LostObjects {
    /// Compares the object store with the newest state of a backup, whose writer has created the
    /// manifest `written`. If a manifest is lost, the writer compares the pieces of its own state.
    ///
    /// # Errors
    /// `Refused` if the prefix has the backup of another store now, and failed requests.
    pub fn find<C: ManifestContents>(
        requests: &ObjectRequests,
        identity: &BackupIdentity,
        written: u64,
    ) -> BackupResult<LostObjects> {
        let mut lost = LostObjects::default();
        match BackupIdentity::read(requests)? {
            None => lost.identity = true,
            Some(found) if found == *identity => {}
            Some(_) => return Err(identity.replaced(requests)),
        }
        // A piece that is younger than the list is looked for by its name.
        let listed = list_pieces::<C>(requests)?;
        let chain = match ManifestChain::<C>::load(requests, identity.backup) {
            Ok(Some(chain)) => chain,
            Ok(None) => {
                lost.manifest = (written > 0).then(|| manifest_name(written));
                return Ok(lost);
            }
            // All manifests are lost. A writer that knows its state can create a full one.
            Err(error) if error.is_damage() && written > 0 => {
                let name = damaged_name(requests, &error);
                lost.manifest = Some(name.unwrap_or_else(|| manifest_name(written)));
                return Ok(lost);
            }
            Err(error) => return Err(error),
        };
        let newest = chain.newest.number;
        let is_behind = newest < written || !chain.damage.is_empty();
        match chain.state(newest) {
            Ok(_) if is_behind => lost.manifest = Some(manifest_name(newest + 1)),
            Ok(state) => lost.pieces = missing_pieces::<C>(requests, &listed, [&state])?,
            Err(error) if error.is_damage() => {
                let name = damaged_name(requests, &error);
                lost.manifest = Some(name.unwrap_or_else(|| manifest_name(newest)));
            }
            Err(error) => return Err(error),
        }
        Ok(lost)
    }

    /// Whether nothing is lost.
    pub fn is_empty(&self) -> bool {
        *self == LostObjects::default()
    }

    /// Names of the objects.
    pub fn names(&self) -> Vec<ObjectName> {
        let identity = self.identity.then(identity_name);
        identity.into_iter().chain(self.manifest.clone()).chain(self.pieces.clone()).collect()
    }

    /// Adds what another check found.
    pub fn add(&mut self, other: LostObjects) {
        self.identity |= other.identity;
        self.manifest = other.manifest.or_else(|| self.manifest.take());
        self.pieces.extend(other.pieces);
    }
}

/// Returns the name of the object that an error is about.
fn damaged_name(requests: &ObjectRequests, error: &BackupError) -> Option<ObjectName> {
    let BackupError::Objects(error) = error else { return None };
    let name = error.object.strip_prefix(requests.objects.location())?;
    ObjectName::new(name.strip_prefix('/')?).ok()
}

/// Lists the pieces of a backup.
pub fn list_pieces<C: ManifestContents>(
    requests: &ObjectRequests,
) -> BackupResult<Vec<ListedObject>> {
    let mut pieces = Vec::new();
    for prefix in C::KIND.piece_prefixes() {
        pieces.extend(requests.list(prefix)?);
    }
    Ok(pieces)
}

/// Returns the pieces of the states that are missing, or have another length, in the object store.
/// The list can be older than the states.
pub fn missing_pieces<'a, C: ManifestContents>(
    requests: &ObjectRequests,
    listed: &[ListedObject],
    states: impl IntoIterator<Item = &'a C::State>,
) -> BackupResult<BTreeSet<ObjectName>>
where
    C::State: 'a,
{
    let listed: HashSet<(&str, u64)> =
        listed.iter().map(|piece| (piece.name.as_str(), piece.bytes)).collect();
    let mut missing = BTreeSet::new();
    for (file, piece) in states.into_iter().flat_map(C::pieces) {
        let (name, bytes) = (C::name(file, &piece), piece.object_bytes());
        if listed.contains(&(name.as_str(), bytes)) {
            continue;
        }
        let found = requests.read(&name, 0..1)?;
        if found.is_none_or(|found| found.object_bytes != bytes) {
            missing.insert(name);
        }
    }
    Ok(missing)
}

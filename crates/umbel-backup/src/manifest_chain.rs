//! [`ManifestChain`]: the manifests of a backup that count.
//!
//! INVARIANT: manifests have contiguous numbers, and each names the uid of the one before it. The
//! chain ends at the first missing number, whatever a list contains. Manifests below the highest
//! floor do not count: an earlier creation of such a manifest can take effect after its deletion.

use std::collections::BTreeMap;

use umbel_env::ListedObject;

use crate::backup_error::{BackupError, BackupResult};
use crate::backup_identity::{BackupIdentity, identity_name, read_floor};
use crate::manifest::{
    MANIFEST_BYTES_MAX, MANIFEST_PREFIX, Manifest, ManifestContents, manifest_name, number_of_name,
};
use crate::object_requests::ObjectRequests;

/// The manifests of a backup that count.
#[derive(Debug)]
pub struct ManifestChain<'a, C: ManifestContents> {
    requests: &'a ObjectRequests,
    /// Id of the backup.
    pub backup: [u8; 16],
    /// Manifests with smaller numbers do not count.
    pub floor: u64,
    /// Number of the first manifest that counts.
    pub first: u64,
    /// The newest manifest that can be read.
    pub newest: Manifest<C>,
    /// Damage of later manifests.
    pub damage: Vec<BackupError>,
    /// Manifests as they were listed, by number.
    pub listed: BTreeMap<u64, ListedObject>,
}

/// Reads the manifest with this number; `None` if it is missing.
pub fn read_manifest<C: ManifestContents>(
    requests: &ObjectRequests,
    backup: &[u8; 16],
    number: u64,
) -> BackupResult<Option<Manifest<C>>> {
    let name = manifest_name(number);
    let Some(bytes) = requests.read_whole(&name, MANIFEST_BYTES_MAX)? else { return Ok(None) };
    let manifest = Manifest::decode(&bytes, number);
    let manifest = manifest.map_err(|reason| requests.damaged(&name, reason))?;
    match manifest.backup == *backup {
        true => Ok(Some(manifest)),
        false => Err(requests.damaged(&name, "the manifest is that of another backup")),
    }
}

impl<'a, C: ManifestContents> ManifestChain<'a, C> {
    /// Finds the newest manifest of a backup; `None` before the first one.
    pub fn load(
        requests: &'a ObjectRequests,
        backup: [u8; 16],
    ) -> BackupResult<Option<ManifestChain<'a, C>>> {
        let floor = read_floor(requests, C::KIND, &backup)?;
        let listed: BTreeMap<_, _> = requests
            .list(MANIFEST_PREFIX)?
            .into_iter()
            .filter_map(|object| {
                Some((number_of_name(MANIFEST_PREFIX, object.name.as_str())?, object))
            })
            .filter(|(number, _)| *number >= floor)
            .collect();
        // The list is only a hint: a read of each next number decides.
        let hint = listed.last_key_value().map_or(floor, |(number, _)| *number);
        let mut number = hint;
        let mut damage = Vec::new();
        let mut newest = loop {
            match read_manifest(requests, &backup, number) {
                Ok(Some(newest)) => break newest,
                Ok(None) if listed.is_empty() && floor == 1 => return Ok(None),
                Ok(None) => damage.push(requests.damaged(
                    &manifest_name(number),
                    "the manifest is missing; restore it from a version or a copy, or back up to \
                     another prefix",
                )),
                Err(error) if error.is_damage() => damage.push(error),
                Err(error) => return Err(error),
            }
            if number == floor {
                return Err(damage.swap_remove(0));
            }
            number -= 1;
        };
        while damage.is_empty() {
            match read_manifest(requests, &backup, number + 1) {
                Ok(None) => break,
                Ok(Some(next)) if next.previous == newest.uid => {
                    (number, newest) = (number + 1, next);
                }
                Ok(Some(_)) => damage.push(requests.damaged(
                    &manifest_name(number + 1),
                    "the manifest does not follow the one before it",
                )),
                Err(error) if error.is_damage() => damage.push(error),
                Err(error) => return Err(error),
            }
        }
        let mut first = number.min(hint);
        while first > floor && listed.contains_key(&(first - 1)) {
            first -= 1;
        }
        Ok(Some(ManifestChain { requests, backup, floor, first, newest, damage, listed }))
    }

    /// Finds the backup below a prefix, for a reader of the backup.
    ///
    /// # Errors
    /// [`BackupError::Refused`] if the prefix has no backup, or no manifest yet.
    pub fn find(
        requests: &'a ObjectRequests,
    ) -> BackupResult<(BackupIdentity, ManifestChain<'a, C>)> {
        let shown = requests.objects.location();
        let Some(identity) = BackupIdentity::read(requests)? else {
            return Err(match requests.list(MANIFEST_PREFIX)?.is_empty() {
                true => BackupError::refused(format!(
                    "there is no backup in {shown}: it has no object BACKUP; check bucket and \
                     prefix"
                )),
                false => requests.damaged(
                    &identity_name(),
                    "the object is missing; restore it from a version or a copy",
                ),
            });
        };
        identity.check_kind(requests, C::KIND)?;
        match ManifestChain::load(requests, identity.backup)? {
            Some(chain) => Ok((identity, chain)),
            None => Err(BackupError::refused(format!(
                "the first backup to {shown} is not complete: wait for it, or run it again; if it \
                 was, something deleted all manifests: restore them from versions or a copy, and \
                 check the lifecycle rules of the bucket"
            ))),
        }
    }

    /// Returns the error for a missing manifest before the first one that counts, if there is one.
    pub fn gap(&self) -> Option<BackupError> {
        let cause = "the manifest is missing, so that earlier ones do not count; restore it from a \
                     version or a copy";
        (self.first > self.floor).then(|| self.damaged(self.first - 1, cause))
    }

    /// Returns the error for a damaged manifest.
    pub fn damaged(&self, number: u64, cause: &str) -> BackupError {
        self.requests.damaged(&manifest_name(number), cause)
    }

    /// Reads a manifest that counts.
    pub fn manifest(&self, number: u64) -> BackupResult<Manifest<C>> {
        if number == self.newest.number {
            return Ok(self.newest.clone());
        }
        let manifest = read_manifest(self.requests, &self.backup, number)?;
        manifest.ok_or_else(|| {
            let cause = "the manifest is missing, or retention has just deleted it; run the \
                         command again";
            self.requests.damaged(&manifest_name(number), cause)
        })
    }

    /// Returns the state of the backup after the manifest with this number.
    pub fn state(&self, number: u64) -> BackupResult<C::State> {
        Ok(self.state_with_deltas(number)?.0)
    }

    /// Returns the state after a manifest, and the number of manifests since the last full one.
    pub fn state_with_deltas(&self, number: u64) -> BackupResult<(C::State, u64)> {
        let mut later = Vec::new();
        let mut manifest = self.manifest(number)?;
        while !manifest.contents.is_full() {
            let before = manifest.number - 1;
            if before < self.first {
                let cause = "an earlier manifest on which it builds is missing; restore it from a \
                             version or a copy, or back up to another prefix";
                return Err(self.requests.damaged(&manifest_name(number), cause));
            }
            let earlier = self.manifest(before)?;
            if earlier.uid != manifest.previous {
                let cause = "the manifest does not follow the one before it";
                return Err(self.requests.damaged(&manifest_name(manifest.number), cause));
            }
            later.push(std::mem::replace(&mut manifest, earlier));
        }
        let mut state = manifest.contents.apply(None);
        let mut last = manifest.number;
        for next in later.iter().rev() {
            if state.is_none() {
                break;
            }
            state = next.contents.apply(state);
            last = next.number;
        }
        let state = state.ok_or_else(|| {
            let cause = "the manifest contradicts the one before it, or itself";
            self.requests.damaged(&manifest_name(last), cause)
        })?;
        Ok((state, later.len() as u64))
    }

    /// Returns the state of the manifest, or of the next one whose state is not damaged.
    ///
    /// # Errors
    /// The damage of the given manifest if no later one has a state.
    pub fn state_from(&self, manifest: Manifest<C>) -> BackupResult<(Manifest<C>, C::State)> {
        let first = match self.state(manifest.number) {
            Ok(state) => return Ok((manifest, state)),
            Err(error) if error.is_damage() => error,
            Err(error) => return Err(error),
        };
        for number in manifest.number + 1..=self.newest.number {
            match self.state(number) {
                Ok(state) => return Ok((self.manifest(number)?, state)),
                Err(error) if error.is_damage() => {}
                Err(error) => return Err(error),
            }
        }
        Err(first)
    }

    /// Returns the earliest manifest for which `covers` holds, if it holds for the newest one, and
    /// for each manifest after one for which it holds. A damaged manifest is passed over.
    pub fn earliest(&self, covers: impl Fn(&Manifest<C>) -> bool) -> BackupResult<Manifest<C>> {
        let (mut low, mut best) = (self.first, self.newest.clone());
        while low < best.number {
            let middle = low + (best.number - low) / 2;
            match self.readable_before(middle, low)? {
                Some(manifest) if covers(&manifest) => best = manifest,
                _ => low = middle + 1,
            }
        }
        Ok(best)
    }

    /// Returns up to which position or sequence number the manifest before this one has
    /// everything; 0 if it does not count or is damaged.
    pub fn through_before(&self, number: u64) -> BackupResult<u64> {
        let before = match number > self.first {
            true => self.readable_before(number - 1, self.first)?,
            false => None,
        };
        Ok(before.map_or(0, |before| before.contents.through()))
    }

    /// Returns the last manifest from `first` to `last` that is not damaged.
    fn readable_before(&self, last: u64, first: u64) -> BackupResult<Option<Manifest<C>>> {
        for number in (first..=last).rev() {
            match self.manifest(number) {
                Ok(manifest) => return Ok(Some(manifest)),
                Err(error) if error.is_damage() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}

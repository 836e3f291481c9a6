//! [`BackupIdentity`]: the object `BACKUP`, which binds a prefix to one copy of one store.
//!
//! FORMAT: `docs/formats/object-backup.md`.

use std::path::Path;
use std::sync::Arc;

use umbel_base::Decoder;
use umbel_base::checksum::checksum;
use umbel_base::shell_word::{directory_of_url, quote_path};
use umbel_env::{Env, ObjectName, Objects};

use crate::backup_error::{BackupError, BackupResult};
use crate::backup_kind::BackupKind;
use crate::manifest::{MANIFEST_PREFIX, number_of_name};
use crate::object_requests::{ObjectRequestOptions, ObjectRequests, SettledCreation};
use crate::server_prefix::SERVER_KV_PREFIX;

const VERSION: u8 = 1;
/// FORMAT: the first bytes of the file `BACKUP` of a backup that was made into a directory, and not
/// into an object store.
pub const DIRECTORY_BACKUP_MAGIC: [u8; 8] = *b"UmbelBak";
/// Prefix of the names of floors.
pub const FLOOR_PREFIX: &str = "floors/";
/// Prefix of the objects that the probe of the store writes.
pub const PROBE_PREFIX: &str = "probe/";

/// Identity of a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackupIdentity {
    /// Kind of the store.
    pub kind: BackupKind,
    /// Seed or id of the store, which its copies share.
    pub seed: [u8; 16],
    /// Random id of this copy of the store; zeros in a store of an earlier version.
    pub instance: [u8; 16],
    /// Random id of the backup.
    pub backup: [u8; 16],
}

/// Name of the object.
pub fn identity_name() -> ObjectName {
    ObjectName::new("BACKUP").expect("letters are a name")
}

fn sealed(mut out: Vec<u8>) -> Vec<u8> {
    let sum = checksum(0, 0, &out);
    out.extend_from_slice(&sum.to_le_bytes());
    out
}

/// Returns the bytes after magic and version.
fn opened(bytes: &[u8], magic: [u8; 8]) -> Result<&[u8], String> {
    let sum = bytes.split_last_chunk::<8>();
    let (head, sum) = sum.ok_or_else(|| String::from("the object is cut short"))?;
    let rest = head.strip_prefix(&magic).filter(|rest| !rest.is_empty());
    let rest = rest.ok_or_else(|| String::from("the object is not of a backup"))?;
    if checksum(0, 0, head) != u64::from_le_bytes(*sum) {
        return Err("the object does not match its checksum".into());
    }
    match rest[0] > VERSION {
        true => Err(format!("a newer Umbel wrote the object (format {}); use that Umbel", rest[0])),
        false => Ok(&rest[1..]),
    }
}

impl BackupIdentity {
    /// Returns the bytes of the object.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = self.kind.identity_magic().to_vec();
        out.push(VERSION);
        [self.seed, self.instance, self.backup].iter().for_each(|id| out.extend_from_slice(id));
        sealed(out)
    }

    /// Whether these bytes begin like the object.
    pub fn is_start_of(bytes: &[u8]) -> bool {
        BackupKind::ALL.into_iter().any(|kind| bytes.starts_with(&kind.identity_magic()))
    }

    /// Decodes the object.
    ///
    /// # Errors
    /// The reason why the bytes are no identity.
    pub fn decode(bytes: &[u8]) -> Result<BackupIdentity, String> {
        let is_kind = |kind: &BackupKind| bytes.starts_with(&kind.identity_magic());
        let kind = BackupKind::ALL.into_iter().find(is_kind).unwrap_or(BackupKind::Events);
        let mut decoder = Decoder::new(opened(bytes, kind.identity_magic())?);
        let mut id = || decoder.array();
        let ids = (id(), id(), id());
        let (Some(seed), Some(instance), Some(backup)) = ids else {
            return Err("the object is malformed".into());
        };
        match decoder.is_done() {
            true => Ok(BackupIdentity { kind, seed, instance, backup }),
            false => Err("the object is malformed".into()),
        }
    }

    /// Reads the identity of a prefix; `None` if the prefix has none.
    ///
    /// # Errors
    /// [`BackupError::Refused`] if the prefix is a backup that was made into a directory, damage of
    /// the object, and failed requests.
    pub fn read(requests: &ObjectRequests) -> BackupResult<Option<BackupIdentity>> {
        let name = identity_name();
        let Some(bytes) = requests.read_whole(&name, 1 << 20)? else { return Ok(None) };
        if bytes.starts_with(&DIRECTORY_BACKUP_MAGIC) {
            let shown = requests.objects.location();
            let path = directory_of_url(shown).unwrap_or_else(|| shown.to_owned());
            let path = quote_path(Path::new(&path));
            return Err(BackupError::refused(format!(
                "{shown} holds a backup that was made into a directory, not into an object store: \
                 name it as {path}, or use another prefix"
            )));
        }
        let decoded = BackupIdentity::decode(&bytes);
        decoded.map(Some).map_err(|reason| requests.damaged(&name, reason))
    }

    /// Returns the kind of store in the backup of a prefix; `None` if the prefix has no backup.
    ///
    /// # Errors
    /// Damage of the object `BACKUP`, and failed requests.
    pub fn find_kind(
        env: &Env,
        objects: Arc<dyn Objects>,
        options: ObjectRequestOptions,
    ) -> BackupResult<Option<BackupKind>> {
        let requests = ObjectRequests::new(env, objects, options);
        Ok(BackupIdentity::read(&requests)?.map(|identity| identity.kind))
    }

    /// Reads the identity of a prefix, or creates it in an empty prefix.
    ///
    /// # Errors
    /// [`BackupError::Refused`], before anything is written, if the prefix holds foreign
    /// objects or the backup of another store or of another copy of this store.
    pub fn claim(
        requests: &ObjectRequests,
        kind: BackupKind,
        seed: [u8; 16],
        instance: [u8; 16],
    ) -> BackupResult<BackupIdentity> {
        let found = match BackupIdentity::read(requests)? {
            Some(found) => found,
            None => {
                check_empty(requests, kind)?;
                let backup = requests.env.entropy.id()?;
                let identity = BackupIdentity { kind, seed, instance, backup };
                match requests.create(&identity_name(), &identity.encode())? {
                    SettledCreation::Mine => identity,
                    SettledCreation::Other(bytes) => BackupIdentity::decode(&bytes)
                        .map_err(|reason| requests.damaged(&identity_name(), reason))?,
                }
            }
        };
        found.check_kind(requests, kind)?;
        let shown = requests.objects.location();
        if found.seed != seed {
            return Err(BackupError::refused(format!(
                "{shown} holds the backup of another store; back up this store to another prefix"
            )));
        }
        // A store of an earlier version has no instance id until its first writable open.
        if found.instance != instance && found.instance != [0; 16] && instance != [0; 16] {
            return Err(BackupError::refused(format!(
                "{shown} holds the backup of another copy of this store (one of the two was \
                 restored from a backup); back up this copy to another prefix"
            )));
        }
        Ok(found)
    }

    /// Creates the object again after its loss.
    pub fn create_again(&self, requests: &ObjectRequests) -> BackupResult<()> {
        match requests.create(&identity_name(), &self.encode())? {
            SettledCreation::Mine => Ok(()),
            SettledCreation::Other(_) => Err(self.replaced(requests)),
        }
    }

    /// Returns the error for a prefix that has got the backup of another store.
    pub fn replaced(&self, requests: &ObjectRequests) -> BackupError {
        BackupError::refused(format!(
            "another store is backed up to {} now; back up this store to another prefix",
            requests.objects.location()
        ))
    }

    /// Returns an error if the backup is of another kind of store.
    pub fn check_kind(&self, requests: &ObjectRequests, kind: BackupKind) -> BackupResult<()> {
        match self.kind == kind {
            true => Ok(()),
            false => Err(BackupError::refused(format!(
                "{} holds the backup of {}, not of {}; name another prefix",
                requests.objects.location(),
                self.kind.a_store(),
                kind.a_store()
            ))),
        }
    }
}

/// Returns an error if the prefix holds objects that are neither of the probe nor of a server's
/// keys and values, whose backup can have begun first.
fn check_empty(requests: &ObjectRequests, kind: BackupKind) -> BackupResult<()> {
    let shown = requests.objects.location();
    let listed = requests.list("")?;
    let kv = format!("{SERVER_KV_PREFIX}/");
    let is_expected = |name: &str| {
        name.starts_with(PROBE_PREFIX) || (kind == BackupKind::Events && name.starts_with(&kv))
    };
    let foreign = listed.iter().find(|object| !is_expected(object.name.as_str()));
    let Some(foreign) = foreign else { return Ok(()) };
    let name = foreign.name.as_str();
    // The identity could have been created since it was read.
    if name == identity_name().as_str() {
        return Ok(());
    }
    let pieces = BackupKind::ALL.iter().flat_map(|kind| kind.piece_prefixes());
    let mut prefixes = pieces.chain([&FLOOR_PREFIX, &MANIFEST_PREFIX]);
    if prefixes.any(|prefix| name.starts_with(prefix)) {
        return Err(BackupError::refused(format!(
            "{shown} holds objects of a backup, such as {name}, but no object BACKUP; restore \
             that object from a version or a copy, or back up to another prefix"
        )));
    }
    Err(BackupError::refused(format!("{shown} holds {name}, but no backup; name an empty prefix")))
}

/// Name of the floor with this number.
pub fn floor_name(number: u64) -> ObjectName {
    ObjectName::new(format!("{FLOOR_PREFIX}{number:020}")).expect("digits are a name")
}

/// Bytes of a floor: manifests with smaller numbers do not count.
pub fn floor_bytes(kind: BackupKind, number: u64, backup: &[u8; 16]) -> Vec<u8> {
    let mut out = kind.floor_magic().to_vec();
    out.push(VERSION);
    out.extend_from_slice(&number.to_le_bytes());
    out.extend_from_slice(backup);
    sealed(out)
}

/// Returns the number of the highest floor; 1 if there is none. Floors up to `number` are not read,
/// only listed.
///
/// A list has each floor that exists from its beginning to its end. A retention deletes floors
/// below the one that it found, not below the one that it creates. So the result is below a floor
/// that was confirmed before the call only if a whole retention runs during the list.
pub fn highest_floor(
    requests: &ObjectRequests,
    kind: BackupKind,
    backup: &[u8; 16],
    number: u64,
) -> BackupResult<u64> {
    let listed = requests.list(FLOOR_PREFIX)?;
    let floors =
        listed.iter().filter_map(|floor| number_of_name(FLOOR_PREFIX, floor.name.as_str()));
    for floor in floors.collect::<Vec<_>>().into_iter().rev() {
        if floor <= number {
            return Ok(floor);
        }
        match requests.read_whole(&floor_name(floor), 1 << 20)? {
            // A retention deletes a floor only below a higher one.
            None => return Ok(floor),
            Some(bytes) if bytes == floor_bytes(kind, floor, backup) => return Ok(floor),
            // A damaged floor raises nothing.
            Some(_) => {}
        }
    }
    Ok(1)
}

/// Returns the highest floor of a backup; 1 if there is none. A damaged floor raises nothing.
pub fn read_floor(
    requests: &ObjectRequests,
    kind: BackupKind,
    backup: &[u8; 16],
) -> BackupResult<u64> {
    let listed = requests.list(FLOOR_PREFIX)?;
    let number = |name: &ObjectName| number_of_name(FLOOR_PREFIX, name.as_str());
    let numbers: Vec<u64> = listed.iter().filter_map(|object| number(&object.name)).collect();
    for number in numbers.into_iter().rev() {
        let Some(bytes) = requests.read_whole(&floor_name(number), 1 << 20)? else { continue };
        if bytes == floor_bytes(kind, number, backup) {
            return Ok(number);
        }
    }
    Ok(1)
}

/// Decodes an identity, and encodes it again. For fuzzing only.
pub fn fuzz(bytes: &[u8]) {
    if let Ok(identity) = BackupIdentity::decode(bytes) {
        assert_eq!(identity.encode(), bytes, "encoding and decoding again returns the same");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_round_trips_and_changed_bytes_are_rejected() {
        for kind in BackupKind::ALL {
            let identity =
                BackupIdentity { kind, seed: [1; 16], instance: [2; 16], backup: [3; 16] };
            let bytes = identity.encode();
            assert_eq!(BackupIdentity::decode(&bytes), Ok(identity));
            for bit in 0..bytes.len() * 8 {
                let mut changed = bytes.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                assert!(BackupIdentity::decode(&changed).is_err(), "bit {bit}");
            }
            for len in 0..bytes.len() {
                assert!(BackupIdentity::decode(&bytes[..len]).is_err(), "{len} bytes");
            }
        }
    }
}

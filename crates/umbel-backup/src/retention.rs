//! Retention of a backup in an object store: which manifests and objects are deleted.
//!
//! A retention first creates a **floor**, an object whose number is that of a full manifest.
//! Manifests below it do not count from then on. Then it deletes them, oldest first, and at last
//! every piece that is older than the floor's manifest and not in its state. By invariant 2 of the
//! crate no later manifest names such a piece.
//!
//! Times of objects can be wrong: a copy of an object, such as a manifest that an operator restored
//! from a version, is younger than its original. So the age of the floor's manifest is the larger
//! one of the list's and of the manifest's own statement. No piece of the newest state is deleted,
//! whatever its time is.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use umbel_base::shell_word::quote;
use umbel_env::{Env, ListedObject, ObjectName, Objects};

use crate::backup_error::{BackupError, BackupResult};
use crate::backup_identity::{FLOOR_PREFIX, PROBE_PREFIX, floor_bytes, floor_name};
use crate::lost_objects::{list_pieces, missing_pieces};
use crate::manifest::{MANIFEST_PREFIX, ManifestContents, number_of_name};
use crate::manifest_chain::ManifestChain;
use crate::object_requests::{ObjectRequestOptions, ObjectRequests, SettledCreation};

/// Slack for clocks of the object store's machines: a piece that is younger than the floor's
/// manifest, or older by less than this, stays.
pub const STORE_CLOCK_SLACK: Duration = Duration::from_secs(2 * 3600);

/// Options of a retention.
#[derive(Debug, Clone)]
pub struct RetentionOptions {
    /// Time into the past to which the backup can be restored, by the object store's clock.
    pub keep: Duration,
    /// Whether nothing of the backup is written or deleted.
    pub dry_run: bool,
    /// Options of the requests.
    pub requests: ObjectRequestOptions,
}

/// Result of a retention, or what it would do.
#[derive(Debug, Clone)]
pub struct RetentionOutcome<S> {
    /// Number of the first manifest that counts afterwards.
    pub first_manifest: u64,
    /// State of this manifest: the earliest one that can be restored as it was then.
    pub first_state: S,
    /// Deleted manifests.
    pub deleted_manifests: u64,
    /// Deleted pieces.
    pub deleted_pieces: u64,
    /// Bytes of the deleted objects.
    pub deleted_bytes: u64,
    /// Pieces that no manifest names and that are too young to be deleted.
    pub young_pieces: u64,
}

/// The objects of a backup as a retention sees them.
struct Survey<'a> {
    requests: &'a ObjectRequests,
    /// The store's time at the list.
    now_micros: u64,
    /// Pieces, listed before the manifests were read.
    pieces: Vec<ListedObject>,
}

/// Deletes what is not needed to restore the backup to any moment of the last `keep`, by the
/// object store's clock. The state at the beginning of that time stays, and all manifests since the
/// full one before it.
///
/// A retention can run beside a backup, and beside other retentions. After an error, the next
/// retention continues.
///
/// # Errors
/// [`BackupError::Refused`] if there is no backup or the store reports no times. Damage of a
/// manifest, or a missing piece, of what would be kept: then nothing is deleted.
pub fn retain<C: ManifestContents>(
    env: &Env,
    objects: Arc<dyn Objects>,
    options: RetentionOptions,
) -> BackupResult<RetentionOutcome<C::State>> {
    let requests = ObjectRequests::new(env, objects, options.requests.clone());
    retain_within::<C>(&requests, options.keep, options.dry_run)
}

/// Does the work of [`retain`] with these requests.
///
/// # Errors
/// The errors of [`retain`].
pub fn retain_within<C: ManifestContents>(
    requests: &ObjectRequests,
    keep: Duration,
    dry_run: bool,
) -> BackupResult<RetentionOutcome<C::State>> {
    let survey = Survey::read::<C>(requests)?;
    let (_, mut chain) = ManifestChain::<C>::find(requests)?;
    if let Some(damage) = chain.damage.pop() {
        return Err(damage);
    }
    let floor = survey.floor(&chain, keep)?;
    let newest = chain.newest.number;
    let kept = [chain.state(floor)?, chain.state(newest)?];
    for (number, state) in [(newest, &kept[1]), (floor, &kept[0])] {
        survey.check_kept::<C>(number, state)?;
    }
    let created = survey.created(&chain, floor)?;
    let (expired, young_pieces) = survey.expired::<C>(&kept, created);
    let [state, _] = kept;
    let deleted: Vec<&ListedObject> =
        chain.listed.range(..floor).map(|(_, object)| object).collect();
    let bytes = |objects: &[&ListedObject]| objects.iter().map(|object| object.bytes).sum::<u64>();
    let outcome = RetentionOutcome {
        first_manifest: floor,
        first_state: state,
        deleted_manifests: deleted.len() as u64,
        deleted_pieces: expired.len() as u64,
        deleted_bytes: bytes(&deleted) + bytes(&expired),
        young_pieces,
    };
    if dry_run {
        return Ok(outcome);
    }
    if floor > chain.floor {
        raise_floor(requests, &chain, floor)?;
    }
    // Also manifests below the earlier floor, which an interrupted retention left.
    for (number, object) in survey.listed_numbers(MANIFEST_PREFIX)? {
        if number < floor {
            requests.delete(&object)?;
        }
    }
    for piece in expired {
        requests.delete(&piece.name)?;
    }
    // A writer lists the floors meanwhile, and a list is no snapshot: it can lack the new floor. So
    // the one before stays until the next retention.
    for (number, object) in survey.listed_numbers(FLOOR_PREFIX)? {
        if number < chain.floor {
            requests.delete(&object)?;
        }
    }
    Ok(outcome)
}

/// Creates the floor, so that manifests below it never count again.
fn raise_floor<C: ManifestContents>(
    requests: &ObjectRequests,
    chain: &ManifestChain<'_, C>,
    floor: u64,
) -> BackupResult<()> {
    let name = floor_name(floor);
    match requests.create(&name, &floor_bytes(C::KIND, floor, &chain.backup))? {
        SettledCreation::Mine => Ok(()),
        SettledCreation::Other(_) => Err(requests
            .damaged(&name, "the object has other bytes than a retention writes; delete it")),
    }
}

impl<'a> Survey<'a> {
    /// Lists the pieces of a backup.
    fn read<C: ManifestContents>(requests: &'a ObjectRequests) -> BackupResult<Survey<'a>> {
        let pieces = list_pieces::<C>(requests)?;
        // One answer with a wrong time must not expire everything.
        let wall_micros = requests.env.clock.wall_micros();
        let now_micros = store_time(requests)?.min(wall_micros.saturating_add(slack_micros()));
        Ok(Survey { requests, now_micros, pieces })
    }

    /// Returns a time of the store that is not after the creation of a manifest, nor after that of
    /// a later one: the store's clock can have gone back in between.
    fn created<C: ManifestContents>(
        &self,
        chain: &ManifestChain<'_, C>,
        number: u64,
    ) -> BackupResult<u64> {
        let listed = chain.listed.get(&number);
        let created = listed.and_then(|object| object.created_micros);
        let created = created.ok_or_else(|| no_times(self.requests))?;
        let later = chain.listed.range(number..).filter_map(|(_, object)| object.created_micros);
        let created = later.fold(created, u64::min);
        Ok(match chain.manifest(number)?.store_micros {
            0 => created,
            stated => created.min(stated),
        })
    }

    /// Returns the highest full manifest from which on all kept moments can be restored.
    fn floor<C: ManifestContents>(
        &self,
        chain: &ManifestChain<'_, C>,
        keep: Duration,
    ) -> BackupResult<u64> {
        let keep_micros = u64::try_from(keep.as_micros()).unwrap_or(u64::MAX);
        let begin = self.now_micros.saturating_sub(keep_micros);
        let mut number = chain.first;
        // The state at the beginning of the time is that of the last manifest before it.
        for (listed, object) in chain.listed.range(chain.first..) {
            let Some(created) = object.created_micros else { return Err(no_times(self.requests)) };
            if created > begin {
                break;
            }
            number = *listed;
        }
        while number > chain.first && !chain.manifest(number)?.contents.is_full() {
            number -= 1;
        }
        // A lost manifest hides states of the kept time. An operator can restore it from a version.
        let first = chain.listed.get(&chain.first).and_then(|object| object.created_micros);
        let hides_kept = number == chain.first && first.is_none_or(|first| first > begin);
        match chain.gap().filter(|_| hides_kept) {
            Some(gap) => Err(gap),
            None => Ok(number),
        }
    }

    /// Returns an error if the state of a manifest, which would be kept, lacks an object.
    fn check_kept<C: ManifestContents>(&self, number: u64, state: &C::State) -> BackupResult<()> {
        let missing = missing_pieces::<C>(self.requests, &self.pieces, [state])?;
        let Some(name) = missing.first() else { return Ok(()) };
        let reason = format!(
            "manifest {number} names this object, which is missing or has another length, so \
             nothing is deleted until the manifest expires; run `umbel verify --from {}`",
            quote(self.requests.objects.location())
        );
        Err(self.requests.damaged(name, reason))
    }

    /// Returns the pieces that no manifest from the floor on names, and the number of pieces that
    /// could be such, but are too young. `kept` has the states of the floor's manifest and of the
    /// newest one.
    fn expired<C: ManifestContents>(
        &self,
        kept: &[C::State],
        created: u64,
    ) -> (Vec<&ListedObject>, u64) {
        let pieces = kept.iter().flat_map(C::pieces);
        let named: HashSet<ObjectName> =
            pieces.map(|(file, piece)| C::name(file, &piece)).collect();
        let end = created.saturating_sub(slack_micros());
        let (mut expired, mut young) = (Vec::new(), 0);
        for piece in self.pieces.iter().filter(|piece| !named.contains(&piece.name)) {
            match piece.created_micros.is_some_and(|created| created < end) {
                true => expired.push(piece),
                false => young += 1,
            }
        }
        (expired, young)
    }

    /// Returns the numbers and names of the objects below a prefix, rising.
    fn listed_numbers(&self, prefix: &str) -> BackupResult<Vec<(u64, ObjectName)>> {
        let listed = self.requests.list(prefix)?;
        let number = |object: ListedObject| {
            Some((number_of_name(prefix, object.name.as_str())?, object.name))
        };
        Ok(listed.into_iter().filter_map(number).collect())
    }
}

fn slack_micros() -> u64 {
    u64::try_from(STORE_CLOCK_SLACK.as_micros()).unwrap_or(u64::MAX)
}

/// Returns the store's time. A store whose lists have no time, such as a directory, reports it for
/// an object that is created for that, outside of the backup.
fn store_time(requests: &ObjectRequests) -> BackupResult<u64> {
    if let Some(now) = requests.store_micros() {
        return Ok(now);
    }
    let uid = u128::from_le_bytes(requests.env.entropy.id()?);
    let name = ObjectName::new(format!("{PROBE_PREFIX}{uid:032x}-time"));
    let name = name.map_err(BackupError::from)?;
    requests.create(&name, b"time")?;
    requests.delete(&name)?;
    requests.store_micros().ok_or_else(|| no_times(requests))
}

fn no_times(requests: &ObjectRequests) -> BackupError {
    BackupError::refused(format!(
        "{} does not report when its objects were created, so nothing can be deleted by age",
        requests.objects.location()
    ))
}

//! [`ChainWriter`]: the process that adds manifests to a backup.
//!
//! Of two writers of one prefix, each number of a manifest has one winner. A writer stops for good
//! when another writer takes a number after the writer's own first manifest. Before its first own
//! manifest, a writer accepts the manifest of another process: a creation of its predecessor can
//! take effect late. Then all uploads begin again, so that invariant 2 of the crate holds.
//!
//! A number is no proof by itself: a retention deletes manifests, and the numbers of another
//! writer's manifests are free again. It creates a higher floor before that. So a writer lists the
//! floors after a creation, and reports its manifests once no floor is above them. The manifest
//! before them must exist as well, or the chain that a restore finds must contain them: something
//! else can have deleted manifests and floors.

use std::collections::BTreeSet;
use std::time::Duration;

use umbel_env::ObjectName;

use crate::backup_error::{BackupError, BackupResult};
use crate::backup_identity::{BackupIdentity, highest_floor};
use crate::lost_objects::{LostObjects, list_pieces, missing_pieces};
use crate::manifest::{MANIFEST_BYTES_MAX, Manifest, ManifestContents, manifest_name};
use crate::manifest_chain::{ManifestChain, read_manifest};
use crate::object_requests::{ObjectRequests, SettledCreation};
use crate::piece::{Piece, SourceFile};

/// Manifests of predecessors that a run accepts.
pub const TAKEOVERS_MAX: usize = 16;
/// Most changes after a full manifest, whatever its length.
const DELTAS_MAX: u64 = 1024;
/// Uploaded bytes for each byte of a full manifest, except for the first one.
const BYTES_PER_FULL_BYTE: u64 = 128;

/// Time within a long run after which the manifests so far are confirmed.
const CONFIRM_INTERVAL: Duration = Duration::from_secs(10);

/// A manifest whose creation was sent, with an unknown outcome.
#[derive(Debug)]
struct Pending<C: ManifestContents> {
    manifest: Manifest<C>,
    bytes: Vec<u8>,
    state: C::State,
}

/// The newest manifest.
#[derive(Debug)]
struct Newest<S> {
    named: NamedManifest,
    state: S,
    /// Number of manifests since the last full one.
    deltas: u64,
}

/// A manifest without its contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct NamedManifest {
    number: u64,
    uid: [u8; 16],
    /// Position or sequence number up to which the backup has everything.
    through: u64,
}

impl NamedManifest {
    fn of<C: ManifestContents>(manifest: &Manifest<C>) -> NamedManifest {
        let through = manifest.contents.through();
        NamedManifest { number: manifest.number, uid: manifest.uid, through }
    }
}

/// Outcome of the creation of a manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Commit {
    /// The state is in the backup.
    Done,
    /// The state is not in the backup: a predecessor's manifest has the number, or the manifest
    /// before it is lost. The caller begins again.
    Overtaken,
}

/// Whether a restore finds the manifests of a writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// They are in the chain.
    Counts,
    /// They build on a manifest that is missing or damaged.
    IsBroken,
    /// The chain has manifests of another writer in their place.
    IsReplaced,
}

/// The process that adds manifests to a backup.
#[derive(Debug)]
pub struct ChainWriter<C: ManifestContents> {
    identity: BackupIdentity,
    id: [u8; 16],
    /// Minimum number of manifests from one full manifest to the next.
    full_manifest_interval: u64,
    /// Whether the chain must be read before the next manifest.
    needs_load: bool,
    newest: Option<Newest<C::State>>,
    /// The last manifest that counted for certain after its creation, or when it was read.
    confirmed: Option<NamedManifest>,
    /// Monotonic time of the last confirmation.
    confirmed_at: Duration,
    /// The highest floor that this writer has seen.
    floor: u64,
    pending: Option<Pending<C>>,
    /// Whether this writer created a manifest.
    has_own_manifest: bool,
    /// Whether a manifest that this writer created counted for certain.
    has_confirmed_own: bool,
    /// Reason why this writer never creates a manifest again.
    stopped: Option<String>,
    /// Objects that the object store lacks and that this writer has not replaced yet.
    lost: LostObjects,
    /// Bytes that were uploaded since the last full manifest, and the length of that one.
    since_full: (u64, u64),
    uploaded_bytes: u64,
    created_manifests: u64,
}

/// Returns an error for a manifest that could be created, but not read.
fn check_length(requests: &ObjectRequests, bytes: u64) -> BackupResult<()> {
    if bytes <= MANIFEST_BYTES_MAX {
        return Ok(());
    }
    Err(BackupError::refused(format!(
        "the manifest for {} has {bytes} bytes, more than the limit of {MANIFEST_BYTES_MAX}: the \
         store has too many files for one backup",
        requests.objects.location()
    )))
}

impl<C: ManifestContents> ChainWriter<C> {
    /// Creates a writer with a random id.
    pub fn new(
        identity: BackupIdentity,
        id: [u8; 16],
        full_manifest_interval: u64,
    ) -> ChainWriter<C> {
        ChainWriter {
            identity,
            id,
            full_manifest_interval,
            needs_load: true,
            newest: None,
            confirmed: None,
            confirmed_at: Duration::ZERO,
            floor: 1,
            pending: None,
            has_own_manifest: false,
            has_confirmed_own: false,
            stopped: None,
            lost: LostObjects::default(),
            since_full: (0, 0),
            uploaded_bytes: 0,
            created_manifests: 0,
        }
    }

    /// Random id of the backup.
    pub fn backup(&self) -> &[u8; 16] {
        &self.identity.backup
    }

    /// State of the newest manifest; `None` before the first one.
    pub fn state(&self) -> Option<&C::State> {
        self.newest.as_ref().map(|newest| &newest.state)
    }

    /// Number of the newest manifest; 0 before the first one.
    pub fn number(&self) -> u64 {
        self.newest.as_ref().map_or(0, |newest| newest.named.number)
    }

    /// Number of the last manifest that counts for certain, and the position or sequence number up
    /// to which it has everything.
    pub fn confirmed(&self) -> Option<(u64, u64)> {
        self.confirmed.map(|confirmed| (confirmed.number, confirmed.through))
    }

    /// Number of manifests that this writer created.
    pub fn created_manifests(&self) -> u64 {
        self.created_manifests
    }

    /// Bytes that this writer uploaded.
    pub fn uploaded_bytes(&self) -> u64 {
        self.uploaded_bytes
    }

    /// Adds the bytes of an uploaded object.
    pub fn add_bytes(&mut self, bytes: u64) {
        self.uploaded_bytes += bytes;
        self.since_full.0 += bytes;
    }

    /// Reason why this writer never creates a manifest again, if it has stopped.
    pub fn stopped(&self) -> Option<&str> {
        self.stopped.as_deref()
    }

    /// Returns an error if this writer has stopped.
    pub fn check_running(&self) -> BackupResult<()> {
        match &self.stopped {
            Some(reason) => Err(BackupError::refused(reason.clone())),
            None => Ok(()),
        }
    }

    /// Makes the next run replace objects that the object store lacks.
    pub fn replace_lost(&mut self, lost: LostObjects) {
        self.lost.add(lost);
    }

    /// Whether a run has to replace objects.
    pub fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Whether a piece must be uploaded again.
    pub fn is_lost(&self, file: SourceFile, piece: &Piece) -> bool {
        !self.lost.pieces.is_empty() && self.lost.pieces.contains(&C::name(file, piece))
    }

    /// Settles a creation whose outcome is unknown, and reads the newest manifest if necessary.
    /// After that, the state is that of the newest manifest.
    pub fn begin(&mut self, requests: &ObjectRequests) -> BackupResult<Commit> {
        if let Some(pending) = self.pending.take()
            && let Commit::Overtaken = self.create(requests, pending)?
        {
            self.needs_load = true;
            return Ok(Commit::Overtaken);
        }
        if self.needs_load {
            self.load(requests)?;
        }
        if self.lost.identity {
            self.identity.create_again(requests)?;
            self.lost.identity = false;
        }
        self.find_lost_pieces(requests)?;
        Ok(Commit::Done)
    }

    /// Looks for the pieces of the newest state if a manifest is lost: a search could not read that
    /// state. Lost pieces that the newest state does not name any more need no replacement.
    fn find_lost_pieces(&mut self, requests: &ObjectRequests) -> BackupResult<()> {
        let Some(newest) = self.newest.as_ref().filter(|_| !self.lost.is_empty()) else {
            return Ok(());
        };
        if self.lost.manifest.is_some() {
            let listed = list_pieces::<C>(requests)?;
            self.lost.pieces = missing_pieces::<C>(requests, &listed, [&newest.state])?;
        }
        self.lost.pieces = self.still_lost(&newest.state);
        Ok(())
    }

    /// Returns the lost pieces that a state names.
    fn still_lost(&self, state: &C::State) -> BTreeSet<ObjectName> {
        if self.lost.pieces.is_empty() {
            return BTreeSet::new();
        }
        let names = C::pieces(state).into_iter().map(|(file, piece)| C::name(file, &piece));
        names.filter(|name| self.lost.pieces.contains(name)).collect()
    }

    /// Reads the newest manifest and its state.
    fn load(&mut self, requests: &ObjectRequests) -> BackupResult<()> {
        (self.newest, self.confirmed) = (None, None);
        if let Some(mut chain) = ManifestChain::<C>::load(requests, self.identity.backup)? {
            if let Some(damage) = chain.damage.pop() {
                return Err(damage);
            }
            let (state, deltas) = chain.state_with_deltas(chain.newest.number)?;
            let named = NamedManifest::of(&chain.newest);
            // The bytes since the last full manifest are unknown: the number of manifests decides.
            self.since_full = (0, 0);
            self.newest = Some(Newest { named, state, deltas });
            self.confirmed = Some(named);
            self.floor = self.floor.max(chain.floor);
        }
        self.confirmed_at = requests.env.clock.now();
        self.needs_load = false;
        Ok(())
    }

    /// Creates the manifest of a state, unless it is the state of the newest one. REQUIRES: every
    /// object of the state is confirmed.
    ///
    /// A full manifest after a lost one hides all earlier states. So it waits until the state has
    /// no lost piece: an earlier state can still be restored.
    pub fn commit(&mut self, requests: &ObjectRequests, state: &C::State) -> BackupResult<Commit> {
        let newest = self.newest.as_ref();
        // A full manifest makes the backup independent of a lost one.
        let ends_gap = self.lost.manifest.is_some();
        if ends_gap && !self.still_lost(state).is_empty() {
            return Ok(Commit::Done);
        }
        if !ends_gap && newest.is_some_and(|newest| C::is_same(&newest.state, state)) {
            return Ok(Commit::Done);
        }
        let is_full = ends_gap
            || newest.is_none_or(|newest| {
                let is_paid = self.since_full.0 / BYTES_PER_FULL_BYTE >= self.since_full.1;
                let is_due = newest.deltas + 1 >= self.full_manifest_interval && is_paid;
                is_due || newest.deltas + 1 >= DELTAS_MAX
            });
        let before = newest.filter(|_| !is_full).map(|newest| &newest.state);
        let manifest = Manifest {
            number: self.number() + 1,
            uid: requests.env.entropy.id()?,
            previous: newest.map_or([0; 16], |newest| newest.named.uid),
            backup: self.identity.backup,
            writer: self.id,
            wall_micros: requests.env.clock.wall_micros(),
            store_micros: requests.store_micros().unwrap_or(0),
            contents: C::between(before, state),
        };
        let bytes = manifest.encode();
        check_length(requests, bytes.len() as u64)?;
        self.create(requests, Pending { manifest, bytes, state: state.clone() })
    }

    /// Creates a manifest. An unknown outcome stays pending, so that the next run sends the same
    /// bytes under the same number.
    fn create(&mut self, requests: &ObjectRequests, pending: Pending<C>) -> BackupResult<Commit> {
        let name = manifest_name(pending.manifest.number);
        let Pending { manifest, bytes, state } = match requests.create(&name, &pending.bytes) {
            Ok(SettledCreation::Mine) => pending,
            Ok(SettledCreation::Other(found)) => return self.lose(requests, pending, &found),
            Err(error) => {
                self.pending = Some(pending);
                return Err(error);
            }
        };
        let is_full = manifest.contents.is_full();
        let deltas = match (is_full, &self.newest) {
            (false, Some(newest)) => newest.deltas + 1,
            _ => 0,
        };
        self.add_bytes(bytes.len() as u64);
        if is_full {
            self.since_full = (0, bytes.len() as u64);
            self.lost.manifest = None;
        }
        self.lost.pieces = self.still_lost(&state);
        self.created_manifests += 1;
        self.has_own_manifest = true;
        self.newest = Some(Newest { named: NamedManifest::of(&manifest), state, deltas });
        let since = requests.env.clock.now().saturating_sub(self.confirmed_at);
        match since >= CONFIRM_INTERVAL && self.lost.manifest.is_none() {
            true => self.confirm(requests),
            false => Ok(Commit::Done),
        }
    }

    /// Checks that the manifests which this writer has created since the last call count, so that
    /// a restore finds them. REQUIRED before a caller reports success.
    ///
    /// If they build on a lost manifest, `Overtaken` makes the caller begin again, and its next
    /// manifest is a full one.
    pub fn confirm(&mut self, requests: &ObjectRequests) -> BackupResult<Commit> {
        if let Some(name) = &self.lost.manifest {
            let cause = "the manifest is lost, and no full one replaces it yet; the next run does";
            return Err(requests.damaged(name, cause));
        }
        let newest = self.newest.as_ref().map(|newest| newest.named);
        let Some(newest) = newest.filter(|newest| self.confirmed != Some(*newest)) else {
            return Ok(Commit::Done);
        };
        let floor = self.find_floor(requests, newest.number)?;
        let standing = match floor > newest.number {
            true => Standing::IsReplaced,
            false => self.standing(requests, newest, floor)?,
        };
        match standing {
            Standing::Counts => {
                self.confirmed = Some(newest);
                self.confirmed_at = requests.env.clock.now();
                self.has_confirmed_own = true;
                Ok(Commit::Done)
            }
            Standing::IsBroken => {
                let before = self.confirmed.take().map_or(newest.number, |before| before.number);
                self.lost.manifest = Some(manifest_name(before));
                Ok(Commit::Overtaken)
            }
            Standing::IsReplaced => self.give_up(requests, self.has_confirmed_own),
        }
    }

    /// Returns whether a restore finds the manifest `newest` of this writer, above the floor.
    fn standing(
        &self,
        requests: &ObjectRequests,
        newest: NamedManifest,
        floor: u64,
    ) -> BackupResult<Standing> {
        // Below the floor, a late creation of another writer can have the number.
        if let Some(before) = self.confirmed.filter(|before| before.number >= floor) {
            match read_manifest::<C>(requests, &self.identity.backup, before.number) {
                Ok(Some(found)) if found.uid == before.uid => return Ok(Standing::Counts),
                Ok(Some(_)) => return Ok(Standing::IsReplaced),
                Ok(None) => {}
                Err(error) if error.is_damage() => {}
                Err(error) => return Err(error),
            }
        }
        match self.standing_in_chain(requests, newest) {
            Err(error) if error.is_damage() => Ok(Standing::IsBroken),
            standing => standing,
        }
    }

    /// Returns whether the chain contains the manifest `newest` of this writer.
    ///
    /// # Errors
    /// Damage of a manifest on which it builds, and failed requests.
    fn standing_in_chain(
        &self,
        requests: &ObjectRequests,
        newest: NamedManifest,
    ) -> BackupResult<Standing> {
        let chain = ManifestChain::<C>::load(requests, self.identity.backup)?;
        let Some(chain) = chain else { return Ok(Standing::IsBroken) };
        if chain.newest.number < newest.number {
            return Ok(Standing::IsBroken);
        }
        if chain.manifest(newest.number)?.uid != newest.uid || !chain.damage.is_empty() {
            return Ok(Standing::IsReplaced);
        }
        if chain.newest.number > newest.number {
            // Another writer goes on, from this manifest or from another chain.
            let next = match chain.manifest(newest.number + 1) {
                Ok(next) => next,
                Err(error) if error.is_damage() => return Ok(Standing::IsReplaced),
                Err(error) => return Err(error),
            };
            if next.previous != newest.uid || chain.first > newest.number {
                return Ok(Standing::IsReplaced);
            }
        }
        chain.state(newest.number)?;
        Ok(Standing::Counts)
    }

    /// Decides what it means that another writer's manifests are newer.
    fn give_up(&mut self, requests: &ObjectRequests, has_own: bool) -> BackupResult<Commit> {
        if has_own {
            return Err(self.stop(requests));
        }
        self.has_own_manifest = false;
        self.needs_load = true;
        Ok(Commit::Overtaken)
    }

    /// Whether a manifest that this writer has created counts, or counted.
    fn has_counted(&mut self, requests: &ObjectRequests) -> BackupResult<bool> {
        let number = self.number();
        Ok(self.has_confirmed_own || self.find_floor(requests, number)? <= number)
    }

    /// Returns the highest floor; a floor up to `number` is not read.
    ///
    /// A list of files or of pages can lack all floors if retentions create and delete some of them
    /// meanwhile. So a list that lacks a floor which was seen before is repeated. A writer that has
    /// seen none lists once. It then reads the manifest before its own one, which a retention
    /// deletes before it deletes a floor.
    fn find_floor(&mut self, requests: &ObjectRequests, number: u64) -> BackupResult<u64> {
        let backup = self.identity.backup;
        let mut floor = highest_floor(requests, C::KIND, &backup, number)?;
        if floor < self.floor {
            floor = highest_floor(requests, C::KIND, &backup, number)?;
        }
        self.floor = self.floor.max(floor);
        Ok(floor)
    }

    /// Decides what it means that another manifest has the number.
    fn lose(
        &mut self,
        requests: &ObjectRequests,
        pending: Pending<C>,
        found: &[u8],
    ) -> BackupResult<Commit> {
        let number = pending.manifest.number;
        match Manifest::<C>::decode(found, number) {
            Err(reason) => {
                let error = requests.damaged(&manifest_name(number), reason);
                self.pending = Some(pending);
                Err(error)
            }
            Ok(_) => {
                let has_own = self.has_own_manifest && self.has_counted(requests)?;
                self.give_up(requests, has_own)
            }
        }
    }

    /// Ends this writer, since another one backs up to the prefix, and returns the error.
    pub fn stop(&mut self, requests: &ObjectRequests) -> BackupError {
        let reason = format!(
            "another server backs up to {}, so this backup has stopped for good; let one server \
             back up to the prefix, then start this server again",
            requests.objects.location()
        );
        self.stopped = Some(reason.clone());
        BackupError::refused(reason)
    }
}

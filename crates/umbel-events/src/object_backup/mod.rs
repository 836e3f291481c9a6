//! Continuous backup of an event store into an object store, and its restore.
//!
//! FORMAT: `docs/formats/object-backup.md`. The event log is uploaded in [pieces](umbel_backup): a
//! chunk that has ended as a whole, the chunk that is written as tails. A numbered
//! [manifest](object_manifest) names the pieces of a backup, and is created after all of them.
//! The invariants are those of `umbel-backup`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use umbel_backup::{
    BackupErrorKind as ObjectBackupErrorKind, BackupIdentity, BackupKind, LostObjects,
    ObjectRequestOptions, ObjectRequests, WriteTotals, WriterLoad,
};
use umbel_base::ignore_poison::IgnorePoison;
use umbel_env::{ObjectName, Objects};

use crate::object_backup::backup_writer::BackupWriter;
use crate::object_backup::object_backup_error::ObjectBackupResult;
use crate::object_backup::object_manifest::LogContents;
use crate::object_backup::object_retention::{
    RemainingCopy, RetentionReport, remaining_copies, retain_within,
};
use crate::shared_store_state::StoreInner;
use crate::types::event::Position;

pub mod backup_writer;
pub mod object_backup_error;
pub mod object_manifest;
pub mod object_restore;
pub mod object_retention;
pub mod object_verify;
pub mod piece_names;
pub mod piece_upload;
pub mod record_scan;
pub mod restore_cut;
pub mod time_search;
pub mod upload_plan;

/// Options of a backup into an object store.
#[derive(Debug, Clone)]
pub struct ObjectBackupOptions {
    /// Options of the requests.
    pub requests: ObjectRequestOptions,
    /// Minimum number of manifests from one full manifest to the next.
    pub full_manifest_interval: u64,
    /// Number of tails of less than 1 MiB of one chunk that are merged into one.
    pub small_tails_max: usize,
    /// Uploaded bytes after which a run that is not complete creates a manifest. An interrupted run
    /// loses about these bytes, and a part for each parallel request.
    pub manifest_bytes: u64,
}

impl Default for ObjectBackupOptions {
    fn default() -> ObjectBackupOptions {
        ObjectBackupOptions {
            requests: ObjectRequestOptions::default(),
            full_manifest_interval: 64,
            small_tails_max: 256,
            manifest_bytes: 16 << 20,
        }
    }
}

/// Result of one run of a backup into an object store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectBackupReport {
    /// Position of the last event in the backup; 0 without events.
    pub through: Position,
    /// Number of the newest manifest.
    pub manifest: u64,
    /// Manifests that this run created.
    pub created_manifests: u64,
    /// Pieces of the event log that this run uploaded.
    pub uploaded_objects: u64,
    /// Bytes of these pieces and manifests.
    pub uploaded_bytes: u64,
    /// Requests of this run by verb.
    pub requests: BTreeMap<&'static str, u64>,
}

/// State of a backup, for metrics. A run in progress changes `through`, `lag_bytes`,
/// `uploaded_bytes` and `requests`; its end changes the rest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectBackupState {
    /// Position of the last event in the backup; `None` before the first run that found or made a
    /// backup.
    pub through: Option<Position>,
    /// Number of the newest manifest; 0 before the first one.
    pub manifest: u64,
    /// Bytes of the event log after the last event of the backup, up to the last visible event.
    /// Without a backup, the bytes of the log up to there.
    pub lag_bytes: u64,
    /// Time of the monotonic clock when the last successful run began. Everything that was appended
    /// before is in the backup.
    pub last_success: Option<Duration>,
    /// Runs that succeeded.
    pub successes: u64,
    /// Runs that failed.
    pub failures: u64,
    /// Runs that failed since the last successful run.
    pub failures_in_row: u64,
    /// Message of the last failure, until a run succeeds.
    pub last_error: Option<String>,
    /// Reason why no later run of this [`ObjectBackup`] can succeed: another process backs up to
    /// the prefix.
    pub stopped: Option<String>,
    /// Bytes that were uploaded.
    pub uploaded_bytes: u64,
    /// Requests by verb.
    pub requests: BTreeMap<&'static str, u64>,
}

/// The appends of a store.
#[derive(Debug)]
struct Appends {
    shared: Arc<StoreInner>,
    /// Position up to which bytes were counted, and their number. A distance of positions also has
    /// the gaps between chunks: up to a chunk after a redaction, and terabytes after a restore.
    counted: Mutex<(u64, u64)>,
}

impl Appends {
    fn new(shared: &Arc<StoreInner>) -> Appends {
        let counted = Mutex::new((shared.visible.position(), 0));
        Appends { shared: Arc::clone(shared), counted }
    }
}

impl WriterLoad for Appends {
    fn totals(&self) -> WriteTotals {
        let visible = &self.shared.visible;
        let mut counted = self.counted.lock().ignore_poison();
        let (through, bytes) = *counted;
        let position = visible.position();
        if position > through {
            *counted = (position, bytes + self.shared.log.bytes_between(through, position));
        }
        WriteTotals { writes: visible.appended(), bytes: counted.1 }
    }
}

/// The backup of an open event store into a prefix of an object store.
#[derive(Debug)]
pub struct ObjectBackup {
    shared: Arc<StoreInner>,
    requests: Arc<ObjectRequests>,
    identity: BackupIdentity,
    writer: Mutex<BackupWriter>,
    /// Lost objects that the next run replaces.
    lost: Mutex<LostObjects>,
    state: Arc<Mutex<ObjectBackupState>>,
}

impl ObjectBackup {
    /// Begins or continues the backup of a store into a prefix. An empty prefix gets the object
    /// `BACKUP`, which binds it to this copy of the store.
    ///
    /// # Errors
    /// - [`Refused`](crate::ObjectBackupError::Refused), before anything is written, if the prefix
    ///   holds foreign objects, or the backup of another store or of another copy of this store.
    /// - [`Objects`](crate::ObjectBackupError::Objects) for failed requests.
    pub fn open(
        shared: &Arc<StoreInner>,
        objects: Arc<dyn Objects>,
        options: ObjectBackupOptions,
    ) -> ObjectBackupResult<ObjectBackup> {
        shared.check_open()?;
        shared.check_not_replicated("backups")?;
        let requests = ObjectRequests::new(&shared.outer_env, objects, options.requests.clone());
        requests.give_way_to(Arc::new(Appends::new(shared)));
        let (seed, instance) = {
            let manifest = shared.log.manifest.lock().ignore_poison();
            (manifest.seed, manifest.instance)
        };
        let identity = BackupIdentity::claim(&requests, BackupKind::Events, seed, instance)?;
        let id = requests.env.entropy.id()?;
        let state = Arc::default();
        let writer = BackupWriter::new(identity, id, options, Arc::clone(&state));
        Ok(ObjectBackup {
            shared: Arc::clone(shared),
            requests: Arc::new(requests),
            identity,
            writer: Mutex::new(writer),
            lost: Mutex::default(),
            state,
        })
    }

    /// Backs up everything that was appended before the call. Each manifest that the run creates is
    /// a backup of a prefix of the log, so an interrupted run keeps most of its work.
    ///
    /// # Errors
    /// [`kind`](crate::ObjectBackupError::kind) says whether a later call can succeed. Damage of a
    /// local file is an error that names the file and the offset. The log before the damage is
    /// backed up, and the log after it is not, since a backup is a prefix of the log. An earlier
    /// copy of a damaged chunk stays; other chunks that a scavenge rewrote are backed up.
    pub fn run_once(&self) -> ObjectBackupResult<ObjectBackupReport> {
        let began = self.requests.env.clock.now();
        let before = self.requests.counts();
        let mut writer = self.writer.lock().ignore_poison();
        writer.replace_lost(std::mem::take(&mut *self.lost.lock().ignore_poison()));
        let ran = writer.run(&self.shared, &self.requests);
        let counts = self.requests.counts();
        let mut state = self.state.lock().ignore_poison();
        match ran {
            Ok(mut report) => {
                let since = |(verb, count): (&&'static str, &u64)| {
                    (*verb, count - before.get(verb).copied().unwrap_or(0))
                };
                report.requests =
                    counts.iter().map(since).filter(|(_, count)| *count > 0).collect();
                state.successes += 1;
                (state.failures_in_row, state.last_error) = (0, None);
                state.last_success = Some(began);
                Ok(report)
            }
            Err(error) => {
                self.shared.damage.record_error(&error);
                if error.kind() != ObjectBackupErrorKind::Cancelled {
                    state.failures += 1;
                    state.failures_in_row += 1;
                    state.last_error = Some(error.to_string());
                }
                Err(error)
            }
        }
    }

    /// Looks for the objects of the newest state, without reading them: something else, such as a
    /// rule of the bucket, can have deleted some. The next run replaces lost ones, from which then
    /// earlier states cannot be restored any more. Returns their names.
    ///
    /// Does not wait for a run in progress.
    ///
    /// # Errors
    /// [`Refused`](crate::ObjectBackupError::Refused) if the prefix has the backup of another store
    /// now, and failed requests.
    pub fn find_lost(&self) -> ObjectBackupResult<Vec<ObjectName>> {
        let written = self.state.lock().ignore_poison().manifest;
        let found = LostObjects::find::<LogContents>(&self.requests, &self.identity, written)?;
        let names = found.names();
        self.lost.lock().ignore_poison().add(found);
        Ok(names)
    }

    /// Returns the objects of the backup that hold data which the store has removed by a scavenge
    /// or a redaction. A retention deletes them once all manifests that name them have expired.
    ///
    /// # Errors
    /// Failed requests, and damage of a manifest.
    pub fn remaining_copies(&self) -> ObjectBackupResult<Vec<RemainingCopy>> {
        let chunks = self.shared.log.chunks.all();
        let versions = chunks.iter().map(|chunk| (chunk.id, chunk.version())).collect();
        remaining_copies(&self.requests, &versions)
    }

    /// Deletes what is not needed to restore the backup to any moment of the last `keep`, by the
    /// object store's clock; see [`retain`](crate::retain).
    ///
    /// # Errors
    /// The errors of [`retain`](crate::retain).
    pub fn retain(&self, keep: Duration) -> ObjectBackupResult<RetentionReport> {
        retain_within(&self.requests, keep, false)
    }

    /// Returns the state. Does not wait for a run in progress.
    pub fn state(&self) -> ObjectBackupState {
        // Read first: the end of the backup may advance meanwhile.
        let visible = self.shared.visible.position();
        let state = self.state.lock().ignore_poison().clone();
        let through = state.through.unwrap_or_default();
        let lag_bytes = self.shared.log.bytes_between(through.0, visible);
        ObjectBackupState { lag_bytes, requests: self.requests.counts(), ..state }
    }
}

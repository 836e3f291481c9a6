//! Backup of a key-value store into an object store, and its restore.
//!
//! FORMAT: `docs/formats/kv-backup.md`. A run flushes the store and captures its state, as a
//! checkpoint does. Tables and long values never change, so each is uploaded once, as one object. A
//! numbered manifest names the files of a state and is created after all of them. The invariants
//! are those of `umbel-backup`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use umbel_backup::{
    BackupErrorKind, BackupIdentity, BackupKind, BackupResult, LostObjects, ObjectRequestOptions,
    ObjectRequests,
};
use umbel_base::Error;
use umbel_base::ignore_poison::IgnorePoison;
use umbel_env::{ObjectName, Objects};

use crate::object_backup::backup_writer::BackupWriter;
use crate::object_backup::object_retention::{RetentionReport, retain_within};
use crate::object_backup::store_contents::StoreContents;
use crate::state::store::Store;

pub mod backup_writer;
pub mod file_upload;
pub mod object_restore;
pub mod object_retention;
pub mod object_verify;
pub mod restore_target;
pub mod store_contents;

/// Options of a backup into an object store.
#[derive(Debug, Clone)]
pub struct ObjectBackupOptions {
    /// Options of the requests.
    pub requests: ObjectRequestOptions,
    /// Minimum number of manifests from one full manifest to the next.
    pub full_manifest_interval: u64,
    /// Uploaded bytes after which a run that is not complete creates a manifest. An interrupted run
    /// loses about these bytes, and a file for each parallel request.
    pub manifest_bytes: u64,
}

impl Default for ObjectBackupOptions {
    fn default() -> ObjectBackupOptions {
        ObjectBackupOptions {
            requests: ObjectRequestOptions::default(),
            full_manifest_interval: 64,
            manifest_bytes: 256 << 20,
        }
    }
}

/// Result of one run of a backup into an object store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectBackupReport {
    /// Last sequence number in the backup.
    pub last_sequence: u64,
    /// Time of the state in the backup by the wall clock, in microseconds since 1970.
    pub captured_micros: u64,
    /// Number of the newest manifest.
    pub manifest: u64,
    /// Manifests that this run created; 0 if the backup had everything.
    pub created_manifests: u64,
    /// Tables and long values that this run uploaded.
    pub uploaded_objects: u64,
    /// Bytes of these objects and manifests.
    pub uploaded_bytes: u64,
    /// Requests of this run by verb.
    pub requests: BTreeMap<&'static str, u64>,
}

/// State of a backup, for metrics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectBackupState {
    /// Last sequence number in the backup; `None` before the first run that found or made a backup.
    pub last_sequence: Option<u64>,
    /// Number of the newest manifest; 0 before the first one.
    pub manifest: u64,
    /// Bytes of the files that the last run found and that the backup lacks.
    pub missing_bytes: u64,
    /// Time of the monotonic clock when the last successful run began. Everything that was written
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
    /// Bytes that were uploaded.
    pub uploaded_bytes: u64,
    /// Requests by verb.
    pub requests: BTreeMap<&'static str, u64>,
}

/// The backup of an open store into a prefix of an object store, without the store.
#[derive(Debug)]
pub struct BackupRunner {
    requests: Arc<ObjectRequests>,
    identity: BackupIdentity,
    writer: Mutex<BackupWriter>,
    /// Lost objects that the next run replaces.
    lost: Mutex<LostObjects>,
    state: Mutex<ObjectBackupState>,
}

impl BackupRunner {
    /// Begins or continues the backup of a store into a prefix.
    pub fn open(
        store: &Store,
        objects: Arc<dyn Objects>,
        options: ObjectBackupOptions,
    ) -> BackupResult<BackupRunner> {
        store.check_writable()?;
        let requests = ObjectRequests::new(&store.outer_env, objects, options.requests.clone());
        let (store_id, instance) = {
            let manifest = store.manifest_lock()?;
            let state = manifest.state();
            let identity = state.identity.as_ref().map(|identity| identity.store_id);
            (identity, state.instance.unwrap_or_default())
        };
        let no_identity = || Error::invalid("internal: the manifest has no identity");
        let store_id = store_id.ok_or_else(no_identity)?;
        let kind = BackupKind::KeyValues;
        let identity = BackupIdentity::claim(&requests, kind, store_id, instance)?;
        let id = requests.env.entropy.id()?;
        Ok(BackupRunner {
            requests: Arc::new(requests),
            identity,
            writer: Mutex::new(BackupWriter::new(identity, id, options)),
            lost: Mutex::default(),
            state: Mutex::default(),
        })
    }

    /// Backs up everything that was written before the call.
    pub fn run_once(&self, store: &Arc<Store>) -> BackupResult<ObjectBackupReport> {
        let began = self.requests.env.clock.now();
        let mut writer = self.writer.lock().ignore_poison();
        writer.replace_lost(std::mem::take(&mut *self.lost.lock().ignore_poison()));
        let before = self.requests.counts();
        let ran = writer.run(store, &self.requests);
        let counts = self.requests.counts();
        let mut state = self.state.lock().ignore_poison();
        state.requests.clone_from(&counts);
        state.uploaded_bytes = writer.uploaded_bytes();
        // The last write can be of a kind that no table has, such as a new keyspace.
        let (number, through) = writer.confirmed().unzip();
        state.last_sequence = through.max(writer.complete_through());
        state.manifest = number.unwrap_or(0).max(state.manifest);
        state.missing_bytes = writer.missing_bytes();
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
                if error.kind() != BackupErrorKind::Cancelled {
                    state.failures += 1;
                    state.failures_in_row += 1;
                    state.last_error = Some(error.to_string());
                }
                Err(error)
            }
        }
    }

    /// Number of writes that the backup lacks; `None` before the first run that found or made a
    /// backup.
    pub fn lag(&self, store: &Store) -> Option<u64> {
        let backed = self.state.lock().ignore_poison().last_sequence?;
        Some(store.commit_lock().last_sequence.saturating_sub(backed))
    }

    /// Looks for the objects of the newest state. The next run replaces lost ones.
    pub fn find_lost(&self) -> BackupResult<Vec<ObjectName>> {
        let written = self.state.lock().ignore_poison().manifest;
        let found = LostObjects::find::<StoreContents>(&self.requests, &self.identity, written)?;
        let names = found.names();
        self.lost.lock().ignore_poison().add(found);
        Ok(names)
    }

    /// Deletes what is not needed to restore the backup to any moment of the last `keep`.
    pub fn retain(&self, keep: Duration) -> BackupResult<RetentionReport> {
        retain_within(&self.requests, keep)
    }

    /// Returns the state after the last run. Does not wait for a run in progress.
    pub fn state(&self) -> ObjectBackupState {
        self.state.lock().ignore_poison().clone()
    }
}

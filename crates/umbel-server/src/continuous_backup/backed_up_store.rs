//! [`BackedUpStore`]: a store of the server as its continuous backup sees it.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use umbel::Db;
use umbel_env::{ObjectName, Objects};
use umbel_events::{ObjectBackupOptions, ObjectBackupResult, ObjectRequestOptions, Store};

/// A store that is backed up.
pub trait BackedUpStore: Debug + Send + Sync {
    /// Names of this kind of store.
    fn names(&self) -> &'static StoreNames;

    /// Whether the store can have data that no backup has, before it was compared with one.
    fn has_data(&self) -> bool;

    /// Begins or continues the backup into these objects.
    fn begin(
        &self,
        objects: Arc<dyn Objects>,
        requests: ObjectRequestOptions,
    ) -> ObjectBackupResult<Arc<dyn StartedBackup>>;
}

/// Names of a kind of store.
#[derive(Debug, PartialEq, Eq)]
pub struct StoreNames {
    /// Field of the status in JSON.
    pub field: &'static str,
    /// Label of metrics.
    pub label: &'static str,
    /// The data, for the log.
    pub data: &'static str,
    /// Field of the lag in JSON.
    pub lag: &'static str,
    /// Name of the lag's metric.
    pub lag_metric: &'static str,
    /// Help of this metric.
    pub lag_help: &'static str,
    /// Field of the end of the backup in JSON.
    pub end: &'static str,
}

/// The backup of a store, once the object store has accepted it.
pub trait StartedBackup: Debug + Send + Sync {
    /// Backs up everything that was written before the call.
    fn run_once(&self) -> ObjectBackupResult<()>;

    /// Returns the objects that the newest state needs and that the object store lacks. The next
    /// run replaces them.
    fn find_lost(&self) -> ObjectBackupResult<Vec<ObjectName>>;

    /// Deletes what is not needed to restore the backup to any moment of the last `keep`.
    fn retain(&self, keep: Duration) -> ObjectBackupResult<DeletedObjects>;

    /// Returns how far the backup is.
    fn progress(&self) -> BackupProgress;
}

/// Objects that a retention deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeletedObjects {
    /// Manifests.
    pub manifests: u64,
    /// Other objects.
    pub objects: u64,
    /// Bytes of both.
    pub bytes: u64,
}

/// Progress of a backup.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BackupProgress {
    /// The last position or sequence number in the backup; `None` before the first run that found
    /// or made one.
    pub end: Option<u64>,
    /// Distance from there to the end of the store, in bytes of the log or in writes.
    pub lag: Option<u64>,
    /// Uploaded bytes.
    pub uploaded_bytes: u64,
    /// Requests by verb.
    pub requests: BTreeMap<&'static str, u64>,
}

/// Label of metrics of a key-value store.
pub const KV_LABEL: &str = "kv";

/// Names of an event store.
const EVENTS: StoreNames = StoreNames {
    field: "objectBackup",
    label: "events",
    data: "events",
    lag: "lagBytes",
    lag_metric: "object_backup_lag_bytes",
    lag_help: "Bytes of the event log that are not in the object backup",
    end: "position",
};
/// Names of a key-value store.
const KEY_VALUES: StoreNames = StoreNames {
    field: "kvObjectBackup",
    label: KV_LABEL,
    data: "keys and values",
    lag: "lagWrites",
    lag_metric: "kv_object_backup_lag_writes",
    lag_help: "Writes of keys and values that are not in the object backup",
    end: "sequence",
};

impl BackedUpStore for Store {
    fn names(&self) -> &'static StoreNames {
        &EVENTS
    }

    fn has_data(&self) -> bool {
        self.visible_position().0 > 0
    }

    fn begin(
        &self,
        objects: Arc<dyn Objects>,
        requests: ObjectRequestOptions,
    ) -> ObjectBackupResult<Arc<dyn StartedBackup>> {
        let options = ObjectBackupOptions { requests, ..ObjectBackupOptions::default() };
        Ok(Arc::new(EventsBackup(self.object_backup(objects, options)?)))
    }
}

/// The backup of an event store.
#[derive(Debug)]
struct EventsBackup(umbel_events::ObjectBackup);

impl StartedBackup for EventsBackup {
    fn run_once(&self) -> ObjectBackupResult<()> {
        self.0.run_once().map(|_| ())
    }

    fn find_lost(&self) -> ObjectBackupResult<Vec<ObjectName>> {
        self.0.find_lost()
    }

    fn retain(&self, keep: Duration) -> ObjectBackupResult<DeletedObjects> {
        let report = self.0.retain(keep)?;
        Ok(DeletedObjects {
            manifests: report.deleted_manifests,
            objects: report.deleted_pieces,
            bytes: report.deleted_bytes,
        })
    }

    fn progress(&self) -> BackupProgress {
        let state = self.0.state();
        BackupProgress {
            end: state.through.map(|through| through.0),
            lag: state.through.map(|_| state.lag_bytes),
            uploaded_bytes: state.uploaded_bytes,
            requests: state.requests,
        }
    }
}

impl BackedUpStore for Db {
    fn names(&self) -> &'static StoreNames {
        &KEY_VALUES
    }

    // The server's store always has a keyspace.
    fn has_data(&self) -> bool {
        true
    }

    fn begin(
        &self,
        objects: Arc<dyn Objects>,
        requests: ObjectRequestOptions,
    ) -> ObjectBackupResult<Arc<dyn StartedBackup>> {
        let options =
            umbel::ObjectBackupOptions { requests, ..umbel::ObjectBackupOptions::default() };
        Ok(Arc::new(KvBackup(self.object_backup(objects, options)?)))
    }
}

/// The backup of a key-value store.
#[derive(Debug)]
struct KvBackup(umbel::ObjectBackup);

impl StartedBackup for KvBackup {
    fn run_once(&self) -> ObjectBackupResult<()> {
        self.0.run_once()?;
        Ok(())
    }

    fn find_lost(&self) -> ObjectBackupResult<Vec<ObjectName>> {
        Ok(self.0.find_lost()?)
    }

    fn retain(&self, keep: Duration) -> ObjectBackupResult<DeletedObjects> {
        let report = self.0.retain(keep)?;
        Ok(DeletedObjects {
            manifests: report.deleted_manifests,
            objects: report.deleted_objects,
            bytes: report.deleted_bytes,
        })
    }

    fn progress(&self) -> BackupProgress {
        let (lag, state) = (self.0.lag(), self.0.state());
        BackupProgress {
            end: state.last_sequence,
            lag,
            uploaded_bytes: state.uploaded_bytes,
            requests: state.requests,
        }
    }
}

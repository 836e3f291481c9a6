//! [`ObjectBackup`]: the backup of an open store into an object store.

use std::sync::Arc;

use umbel_backup::BackupResult;
use umbel_env::Objects;

use crate::api::db_handle::DbHandle;
use crate::object_backup::{
    BackupRunner, ObjectBackupOptions, ObjectBackupReport, ObjectBackupState,
};

/// The backup of an open store into a prefix of an object store. It keeps the store open.
#[derive(Debug)]
pub struct ObjectBackup {
    handle: Arc<DbHandle>,
    runner: BackupRunner,
}

impl ObjectBackup {
    /// Begins or continues the backup of a store.
    pub(crate) fn open(
        handle: &Arc<DbHandle>,
        objects: Arc<dyn Objects>,
        options: ObjectBackupOptions,
    ) -> BackupResult<ObjectBackup> {
        let runner = BackupRunner::open(&handle.store, objects, options)?;
        Ok(ObjectBackup { handle: Arc::clone(handle), runner })
    }

    /// Backs up everything that was written before the call.
    ///
    /// The run flushes the store, and uploads the tables and long values that the backup lacks.
    /// Each is verified first, and again while it is uploaded. The store keeps them until they are
    /// uploaded. Without writes and compactions since the last run, a run makes no request.
    ///
    /// # Errors
    /// [`kind`](crate::BackupError::kind) says whether a later call can succeed. Damage of a local
    /// file that the backup lacks is an error that names the file: the backup then stays at its
    /// last state. A copy of a file that was damaged later stays.
    ///
    /// ```
    /// # fn main() -> Result<(), umbel::BackupError> {
    /// # let objects = umbel_sim::ObjectSim::new(1);
    /// # let options = umbel::Options { env: objects.env(), ..umbel::Options::default() };
    /// # let db = umbel::Db::open("/data", options)?;
    /// # let users = db.keyspace("users", None)?;
    /// let backup = db.object_backup(objects.client(1), umbel::ObjectBackupOptions::default())?;
    /// users.put(b"ada", b"1815")?;
    /// assert_eq!(backup.run_once()?.uploaded_objects, 1);
    /// assert!(backup.run_once()?.requests.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    pub fn run_once(&self) -> BackupResult<ObjectBackupReport> {
        self.runner.run_once(&self.handle.store)
    }

    /// Returns the state after the last run. Does not wait for a run in progress.
    ///
    /// ```
    /// # fn main() -> Result<(), umbel::BackupError> {
    /// # let objects = umbel_sim::ObjectSim::new(1);
    /// # let options = umbel::Options { env: objects.env(), ..umbel::Options::default() };
    /// # let db = umbel::Db::open("/data", options)?;
    /// let backup = db.object_backup(objects.client(1), umbel::ObjectBackupOptions::default())?;
    /// assert_eq!(backup.state().last_sequence, None);
    /// backup.run_once()?;
    /// assert_eq!(backup.state().successes, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn state(&self) -> ObjectBackupState {
        self.runner.state()
    }
}

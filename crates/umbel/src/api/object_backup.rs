//! [`ObjectBackup`]: the backup of an open store into an object store.

use std::sync::Arc;
use std::time::Duration;

use umbel_backup::BackupResult;
use umbel_env::{ObjectName, Objects};

use crate::api::db_handle::DbHandle;
use crate::object_backup::object_retention::RetentionReport;
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
    /// A run that finds the store as in its own last state sends no request. So it does not notice
    /// a later state of another process, which a restore then ends at.
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

    /// Number of writes that the backup lacks: the distance of the sequence numbers. `None` before
    /// the first run.
    ///
    /// ```
    /// # fn main() -> Result<(), umbel::BackupError> {
    /// # let objects = umbel_sim::ObjectSim::new(1);
    /// # let options = umbel::Options { env: objects.env(), ..umbel::Options::default() };
    /// # let db = umbel::Db::open("/data", options)?;
    /// # let users = db.keyspace("users", None)?;
    /// let backup = db.object_backup(objects.client(1), umbel::ObjectBackupOptions::default())?;
    /// backup.run_once()?;
    /// assert_eq!(backup.lag(), Some(0));
    /// users.put(b"ada", b"1815")?;
    /// assert_eq!(backup.lag(), Some(1));
    /// # Ok(())
    /// # }
    /// ```
    pub fn lag(&self) -> Option<u64> {
        self.runner.lag(&self.handle.store)
    }

    /// Looks for the objects of the newest state, without reading them: something else, such as a
    /// rule of the bucket, can have deleted some. The next run replaces lost ones, but earlier
    /// states that need them cannot be restored any more. Returns their names. Does not wait for a
    /// run in progress.
    ///
    /// # Errors
    /// [`Refused`](crate::BackupError::Refused) if the prefix has the backup of another store now,
    /// and failed requests.
    ///
    /// ```
    /// # fn main() -> Result<(), umbel::BackupError> {
    /// # let objects = umbel_sim::ObjectSim::new(1);
    /// # let options = umbel::Options { env: objects.env(), ..umbel::Options::default() };
    /// # let db = umbel::Db::open("/data", options)?;
    /// # db.keyspace("users", None)?.put(b"ada", b"1815")?;
    /// let backup = db.object_backup(objects.client(1), umbel::ObjectBackupOptions::default())?;
    /// backup.run_once()?;
    /// let table = objects.client(1).list("tables/", None, 1)?.value.objects[0].name.clone();
    /// objects.client(1).delete(&table)?;
    /// assert_eq!(backup.find_lost()?, [table]);
    /// assert_eq!(backup.run_once()?.uploaded_objects, 1);
    /// assert_eq!(backup.find_lost()?, []);
    /// # Ok(())
    /// # }
    /// ```
    pub fn find_lost(&self) -> BackupResult<Vec<ObjectName>> {
        self.runner.find_lost()
    }

    /// Deletes what is not needed to restore the backup to any moment of the last `keep`, by the
    /// object store's clock; see [`retain`](crate::retain).
    ///
    /// # Errors
    /// The errors of [`retain`](crate::retain).
    ///
    /// ```
    /// # fn main() -> Result<(), umbel::BackupError> {
    /// # let objects = umbel_sim::ObjectSim::new(1);
    /// # let options = umbel::Options { env: objects.env(), ..umbel::Options::default() };
    /// # let db = umbel::Db::open("/data", options)?;
    /// let backup = db.object_backup(objects.client(1), umbel::ObjectBackupOptions::default())?;
    /// backup.run_once()?;
    /// let report = backup.retain(std::time::Duration::from_secs(3600))?;
    /// assert_eq!(report.deleted_objects, 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn retain(&self, keep: Duration) -> BackupResult<RetentionReport> {
        self.runner.retain(keep)
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

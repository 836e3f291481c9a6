//! [`BackupWriter`]: the process that adds manifests to the backup of a key-value store.
//!
//! When another process overtakes it, all uploads begin again: see [`ChainWriter`].

use std::collections::HashMap;
use std::sync::Arc;

use umbel_backup::{
    BackupError, BackupIdentity, BackupResult, ChainWriter, Commit, LostObjects, ObjectRequests,
    SourceFile, TAKEOVERS_MAX, Task, run_parallel,
};

use crate::lifecycle::state_capture::StateCapture;
use crate::object_backup::file_upload::{FileJob, upload};
use crate::object_backup::store_contents::{
    BackedFile, BackupState, StoreContents, blob_file, files_of, has_same_contents, sort_levels,
    table_file,
};
use crate::object_backup::{ObjectBackupOptions, ObjectBackupReport};
use crate::state::store::Store;
use crate::super_version::SuperVersion;
use crate::version::LiveTable;
use crate::version::version_edit::ManifestState;

/// The process that adds manifests to the backup of a key-value store.
#[derive(Debug)]
pub struct BackupWriter {
    chain: ChainWriter<StoreContents>,
    options: ObjectBackupOptions,
    /// The last sequence number when the last complete run of this writer began.
    complete_through: Option<u64>,
    /// The one of a run whose manifest is not confirmed yet.
    unconfirmed_through: Option<u64>,
    missing_bytes: u64,
}

/// Work of one run.
struct Run<'a> {
    store: &'a Arc<Store>,
    requests: &'a Arc<ObjectRequests>,
    uploaded_objects: u64,
}

/// A captured state with the files that the backup lacks.
struct Plan {
    state: ManifestState,
    captured_micros: u64,
    jobs: Vec<FileJob>,
}

impl BackupWriter {
    /// Creates a writer with a random id.
    pub fn new(
        identity: BackupIdentity,
        id: [u8; 16],
        options: ObjectBackupOptions,
    ) -> BackupWriter {
        let chain = ChainWriter::new(identity, id, options.full_manifest_interval);
        BackupWriter {
            chain,
            options,
            complete_through: None,
            unconfirmed_through: None,
            missing_bytes: 0,
        }
    }

    /// Bytes that were uploaded.
    pub fn uploaded_bytes(&self) -> u64 {
        self.chain.uploaded_bytes()
    }

    /// Bytes of the files that the last captured state has, and the backup lacks.
    pub fn missing_bytes(&self) -> u64 {
        self.missing_bytes
    }

    /// Number of the last manifest that counts for certain, and the last sequence number of its
    /// state.
    pub fn confirmed(&self) -> Option<(u64, u64)> {
        self.chain.confirmed()
    }

    /// Makes the next run replace objects that the object store lacks.
    pub fn replace_lost(&mut self, lost: LostObjects) {
        self.chain.replace_lost(lost);
    }

    /// The last sequence number when the last complete run of this writer began.
    pub fn complete_through(&self) -> Option<u64> {
        self.complete_through
    }

    /// Backs up everything that was written before the call.
    pub fn run(
        &mut self,
        store: &Arc<Store>,
        requests: &Arc<ObjectRequests>,
    ) -> BackupResult<ObjectBackupReport> {
        self.chain.check_running()?;
        store.check_writable()?;
        let before = (self.chain.created_manifests(), self.chain.uploaded_bytes());
        let mut run = Run { store, requests, uploaded_objects: 0 };
        for _ in 0..TAKEOVERS_MAX {
            let mut attempted = self.attempt(&mut run);
            // Manifests before local damage count as well, or the backup has stopped.
            let is_local = matches!(&attempted, Err(BackupError::Store(_)));
            if is_local || matches!(attempted, Ok(Commit::Done)) {
                match self.chain.confirm(requests) {
                    Ok(Commit::Done) => {}
                    confirmed => attempted = confirmed,
                }
            }
            match attempted? {
                Commit::Done => {
                    self.complete_through =
                        self.unconfirmed_through.take().or(self.complete_through);
                    let state = self.chain.state();
                    return Ok(ObjectBackupReport {
                        last_sequence: state.map_or(0, BackupState::last_sequence),
                        captured_micros: state.map_or(0, |state| state.captured_micros),
                        manifest: self.chain.number(),
                        created_manifests: self.chain.created_manifests() - before.0,
                        uploaded_objects: run.uploaded_objects,
                        uploaded_bytes: self.chain.uploaded_bytes() - before.1,
                        requests: Default::default(),
                    });
                }
                Commit::Overtaken => {
                    (self.complete_through, self.unconfirmed_through) = (None, None);
                }
            }
        }
        Err(self.chain.stop(requests))
    }

    /// Backs up from the newest manifest on.
    fn attempt(&mut self, run: &mut Run<'_>) -> BackupResult<Commit> {
        let begun = self.chain.begin(run.requests)?;
        let through = run.store.commit_lock().last_sequence;
        let is_current = !self.chain.has_lost() && self.is_current(run.store, through)?;
        if begun == Commit::Overtaken || is_current {
            return Ok(begun);
        }
        let plan = self.plan(run)?;
        self.missing_bytes = plan.jobs.iter().map(|job| job.content.bytes).sum();
        let mut next = self.chain.state().cloned().unwrap_or_default();
        next.is_complete = false;
        let parallel = self.options.requests.parallel_requests.max(1);
        let (mut unnamed, mut done) = (0, 0);
        for batch in plan.jobs.chunks(parallel) {
            let uploaded = self.upload_batch(run, batch, &mut next, &mut unnamed);
            done += batch.len();
            let is_due = unnamed >= self.options.manifest_bytes && done < plan.jobs.len();
            // What a failed batch completed is named as well.
            if unnamed > 0 && (is_due || uploaded.is_err()) {
                if let Commit::Overtaken = self.chain.commit(run.requests, &next)? {
                    return Ok(Commit::Overtaken);
                }
                unnamed = 0;
            }
            uploaded?;
        }
        let named = files_of(&plan.state);
        next.files.retain(|file, _| named.contains_key(file));
        next.store = Some(Arc::new(plan.state));
        (next.captured_micros, next.is_complete) = (plan.captured_micros, true);
        let commit = self.chain.commit(run.requests, &next)?;
        if commit == Commit::Done {
            self.unconfirmed_through = Some(through);
        }
        Ok(commit)
    }

    /// Whether this writer's last manifest has everything up to the sequence number `through`,
    /// which is the last one now, and the files are the same.
    fn is_current(&self, store: &Store, through: u64) -> BackupResult<bool> {
        let backed = self.chain.state().and_then(|state| state.store.as_ref());
        let Some(backed) = backed.filter(|_| self.complete_through == Some(through)) else {
            return Ok(false);
        };
        let mut state = store.manifest_lock()?.state().clone();
        sort_levels(&mut state);
        Ok(has_same_contents(backed, &state))
    }

    /// Captures the store's state, and compares its files with those of the backup.
    ///
    /// # Errors
    /// [`BackupError::Refused`] if the backup has a state that this store does not continue.
    fn plan(&self, run: &Run<'_>) -> BackupResult<Plan> {
        let StateCapture { mut state, views } = StateCapture::take(run.store)?;
        let wall_micros = run.requests.env.clock.wall_micros();
        sort_levels(&mut state);
        let backed = self.chain.state();
        let location = run.requests.objects.location();
        if let Some(old) = backed.and_then(|backed| backed.store.as_ref())
            && (old.next_file_id > state.next_file_id || old.last_sequence > state.last_sequence)
        {
            return Err(diverged(location, "the backup has later writes"));
        }
        let empty = Default::default();
        let known = backed.map_or(&empty, |backed| &backed.files);
        for (file, content) in files_of(&state) {
            if known.get(&file).is_some_and(|known| known.content() != content) {
                return Err(diverged(location, &format!("it has another file {}", file.id)));
            }
        }
        let is_backed =
            |file| known.get(&file).is_some_and(|known| !self.chain.is_lost(file, &known.piece));
        let jobs = jobs(&state, &views, |file| !is_backed(file))?;
        let earlier = backed.map_or(0, |backed| backed.captured_micros);
        Ok(Plan { state, captured_micros: wall_micros.max(earlier), jobs })
    }

    /// Uploads files at the same time, and adds them to the state.
    fn upload_batch(
        &mut self,
        run: &mut Run<'_>,
        batch: &[FileJob],
        next: &mut BackupState,
        unnamed: &mut u64,
    ) -> BackupResult<()> {
        let backup = *self.chain.backup();
        let task = |job: &FileJob| {
            let (store, requests) = (Arc::clone(run.store), Arc::clone(run.requests));
            let job = job.clone();
            Box::new(move || upload(&store, &requests, &backup, &job))
                as Task<BackupResult<BackedFile>>
        };
        let tasks = batch.iter().map(task).collect();
        let parallel = self.options.requests.parallel_requests;
        let results = run_parallel(&run.requests.env, parallel, tasks);
        let mut failure = None;
        for (job, result) in batch.iter().zip(results) {
            let panicked = || Err(BackupError::refused("internal: an upload panicked"));
            match result.unwrap_or_else(panicked) {
                Ok(backed) => {
                    run.uploaded_objects += 1;
                    self.chain.add_bytes(backed.piece.object_bytes());
                    self.missing_bytes = self.missing_bytes.saturating_sub(job.content.bytes);
                    *unnamed += backed.piece.object_bytes();
                    next.files.insert(job.file, backed);
                }
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        failure.map_or(Ok(()), Err)
    }
}

/// Returns the uploads of the files of a state for which `is_missing` holds, by id.
fn jobs(
    state: &ManifestState,
    views: &[Arc<SuperVersion>],
    is_missing: impl Fn(SourceFile) -> bool,
) -> BackupResult<Vec<FileJob>> {
    let tables: HashMap<u64, &Arc<LiveTable>> = views
        .iter()
        .flat_map(|view| view.version.tables().map(|(_, table)| (table.meta.id, table)))
        .collect();
    let contents = files_of(state);
    let mut jobs = Vec::new();
    for meta in state.keyspaces.values().flat_map(|record| record.levels.iter().flatten()) {
        let blobs = meta.blobs.iter().map(|blob| (blob_file(blob.id), Some(*blob)));
        for (file, pointer) in [(table_file(meta.id), None)].into_iter().chain(blobs) {
            if !is_missing(file) {
                continue;
            }
            let found = tables.get(&meta.id).zip(contents.get(&file));
            let Some((table, content)) = found else {
                let message = format!("internal: table {} is in no version", meta.id);
                return Err(BackupError::refused(message));
            };
            let table = Arc::clone(table);
            jobs.push(FileJob { file, content: *content, table, pointer });
        }
    }
    jobs.sort_by_key(|job| job.file);
    Ok(jobs)
}

/// Returns the error for a backup that this store does not continue.
fn diverged(location: &str, what: &str) -> BackupError {
    BackupError::refused(format!(
        "{location} holds the backup of another copy of this store, or of a later state ({what}); \
         if this store was set back to an earlier state, back it up to another prefix"
    ))
}

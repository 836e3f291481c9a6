//! [`BackupWriter`]: the process that adds manifests to the backup of an event store.
//!
//! When another process overtakes it, all uploads begin again: see [`ChainWriter`].

use std::sync::{Arc, Mutex};

use umbel_backup::{
    BackupIdentity, ChainWriter, Commit, LostObjects, ObjectRequests, TAKEOVERS_MAX, run_parallel,
};
use umbel_base::damage_count::StoreError;
use umbel_base::ignore_poison::IgnorePoison;

use crate::backup::check_log_durable;
use crate::object_backup::object_backup_error::{ObjectBackupError, ObjectBackupResult};
use crate::object_backup::object_manifest::{BackupState, LogContents};
use crate::object_backup::piece_upload::{UploadOutcome, task};
use crate::object_backup::upload_plan::{PieceJob, UploadPlan};
use crate::object_backup::{ObjectBackupOptions, ObjectBackupReport, ObjectBackupState};
use crate::shared_store_state::StoreInner;
use crate::types::event::Position;

/// Plans of one run: a scavenge can replace a planned file.
const PLANS_MAX: usize = 4;

/// The process that adds manifests to the backup of an event store.
#[derive(Debug)]
pub struct BackupWriter {
    chain: ChainWriter<LogContents>,
    options: ObjectBackupOptions,
    /// State that others read while a run is in progress.
    shown: Arc<Mutex<ObjectBackupState>>,
}

/// Work of one run.
struct Run<'a> {
    shared: &'a Arc<StoreInner>,
    requests: &'a Arc<ObjectRequests>,
    report: ObjectBackupReport,
}

impl BackupWriter {
    /// Creates a writer with a random id. It keeps end and bytes of the backup in `shown`.
    pub fn new(
        identity: BackupIdentity,
        id: [u8; 16],
        options: ObjectBackupOptions,
        shown: Arc<Mutex<ObjectBackupState>>,
    ) -> BackupWriter {
        let chain = ChainWriter::new(identity, id, options.full_manifest_interval);
        BackupWriter { chain, options, shown }
    }

    /// Shows how far the backup is. Manifests that may not count are not shown.
    fn show(&self) {
        let mut shown = self.shown.lock().ignore_poison();
        let (number, through) = self.chain.confirmed().unzip();
        shown.through = through.map(Position).or(shown.through);
        shown.uploaded_bytes = self.chain.uploaded_bytes();
        shown.manifest = number.unwrap_or(0).max(shown.manifest);
        shown.stopped = self.chain.stopped().map(str::to_owned);
    }

    /// Creates the manifest of a state, and shows it.
    fn commit(&mut self, run: &Run<'_>, state: &BackupState) -> ObjectBackupResult<Commit> {
        let committed = self.chain.commit(run.requests, state);
        self.show();
        Ok(committed?)
    }

    /// Makes the next run replace objects that the object store lacks.
    pub fn replace_lost(&mut self, lost: LostObjects) {
        self.chain.replace_lost(lost);
    }

    /// Backs up everything that was appended before the call.
    pub fn run(
        &mut self,
        shared: &Arc<StoreInner>,
        requests: &Arc<ObjectRequests>,
    ) -> ObjectBackupResult<ObjectBackupReport> {
        self.chain.check_running()?;
        shared.check_open()?;
        check_log_durable(shared)?;
        let report = ObjectBackupReport {
            through: Position::START,
            manifest: 0,
            created_manifests: 0,
            uploaded_objects: 0,
            uploaded_bytes: 0,
            requests: Default::default(),
        };
        let before = (self.chain.created_manifests(), self.chain.uploaded_bytes());
        let mut run = Run { shared, requests, report };
        if !shared.read_only {
            shared.sync_log()?;
        }
        for _ in 0..TAKEOVERS_MAX {
            let mut attempted = self.attempt(&mut run);
            // Manifests before local damage count as well, or the backup has stopped.
            let is_local = matches!(&attempted, Err(ObjectBackupError::Store(_)));
            if is_local || matches!(attempted, Ok(Commit::Done)) {
                match self.chain.confirm(run.requests) {
                    Ok(Commit::Done) => {}
                    confirmed => attempted = confirmed.map_err(Into::into),
                }
            }
            self.show();
            match attempted? {
                Commit::Done => {
                    let through = self.chain.state().map_or(0, |state| state.through);
                    run.report.through = Position(through);
                    run.report.manifest = self.chain.number();
                    run.report.created_manifests = self.chain.created_manifests() - before.0;
                    run.report.uploaded_bytes = self.chain.uploaded_bytes() - before.1;
                    return Ok(run.report);
                }
                Commit::Overtaken => {}
            }
        }
        let stopped = self.chain.stop(run.requests);
        self.show();
        Err(stopped.into())
    }

    /// Backs up from the newest manifest on.
    fn attempt(&mut self, run: &mut Run<'_>) -> ObjectBackupResult<Commit> {
        let begun = self.chain.begin(run.requests);
        self.show();
        if let Commit::Overtaken = begun? {
            return Ok(Commit::Overtaken);
        }
        for _ in 0..PLANS_MAX {
            let location = run.requests.objects.location();
            let tails_max = self.options.small_tails_max;
            let plan = UploadPlan::new(run.shared, &self.chain, tails_max, location)?;
            match self.execute(run, plan)? {
                Some(commit) => return Ok(commit),
                None => continue,
            }
        }
        // Scavenges replace the chunks faster than they are uploaded; the next run continues.
        Ok(Commit::Done)
    }

    /// Uploads what the plan names. Returns `None` if a new plan is needed.
    fn execute(
        &mut self,
        run: &mut Run<'_>,
        plan: UploadPlan,
    ) -> ObjectBackupResult<Option<Commit>> {
        let mut state = match self.chain.state() {
            Some(state) => state.clone(),
            None => BackupState {
                head: plan.head.clone(),
                chunks: Vec::new(),
                through: 0,
                through_created: 0,
            },
        };
        state.head = plan.head;
        let parallel = self.options.requests.parallel_requests.max(1);
        let (mut done, mut unnamed) = (0, 0);
        for batch in plan.extensions.chunks(parallel) {
            let uploaded = self.upload_batch(run, batch, &mut state, true);
            done += batch.len();
            unnamed += batch.iter().map(|job| job.to - job.from).sum::<u64>();
            let is_complete = matches!(uploaded, Ok(true)) && done >= plan.extensions.len();
            // What a failed batch completed is named as well.
            let is_due = unnamed >= self.options.manifest_bytes || !matches!(uploaded, Ok(true));
            if is_complete || (is_due && done <= plan.separable) {
                if let Commit::Overtaken = self.commit(run, &state)? {
                    return Ok(Some(Commit::Overtaken));
                }
                unnamed = 0;
            }
            if !uploaded? {
                return Ok(None);
            }
        }
        let mut failure = None;
        let mut is_current = true;
        for batch in plan.replacements.chunks(parallel) {
            match self.upload_batch(run, batch, &mut state, false) {
                Ok(current) => is_current &= current,
                Err(ObjectBackupError::Store(error)) if error.is_store_damage() => {
                    // The earlier copy of the chunk stays.
                    failure = failure.or(Some(error));
                }
                Err(error) => return Err(error),
            }
            unnamed += batch.iter().map(|job| job.to - job.from).sum::<u64>();
            if unnamed >= self.options.manifest_bytes {
                if let Commit::Overtaken = self.commit(run, &state)? {
                    return Ok(Some(Commit::Overtaken));
                }
                unnamed = 0;
            }
        }
        if let Commit::Overtaken = self.commit(run, &state)? {
            return Ok(Some(Commit::Overtaken));
        }
        if let Some(error) = failure {
            return Err(error.into());
        }
        Ok(is_current.then_some(Commit::Done))
    }

    /// Uploads pieces at the same time, and adds them to the state in the order of the log. Returns
    /// `false` if a scavenge replaced a file. After a failure, later pieces of a log that is
    /// extended do not count.
    fn upload_batch(
        &mut self,
        run: &mut Run<'_>,
        batch: &[PieceJob],
        state: &mut BackupState,
        is_extension: bool,
    ) -> ObjectBackupResult<bool> {
        let backup = *self.chain.backup();
        let job = |job: &PieceJob| task(run.shared, run.requests, backup, job.clone());
        let tasks = batch.iter().map(job).collect();
        let parallel = self.options.requests.parallel_requests;
        let results = run_parallel(&run.requests.env, parallel, tasks);
        let (mut failure, mut is_current) = (None, true);
        for result in results {
            let panicked = || Err(ObjectBackupError::refused("internal: an upload panicked"));
            match result.unwrap_or_else(panicked) {
                Ok(UploadOutcome::Uploaded(chunk, created, bytes)) => {
                    run.report.uploaded_objects += 1;
                    self.chain.add_bytes(bytes);
                    if is_extension && (failure.is_some() || !is_current) {
                        continue;
                    }
                    if is_extension {
                        state.through_created = created.unwrap_or(state.through_created);
                    }
                    state.set_chunk(chunk);
                }
                Ok(UploadOutcome::Replaced) => is_current = false,
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        self.show();
        let last = state.chunks.last();
        let last = last.and_then(|last| Some(last.entry.start + last.entry.ended?.last_event));
        state.through = last.unwrap_or(0);
        match failure {
            Some(error) => Err(error),
            None => Ok(is_current),
        }
    }
}

//! [`BackupWriter`]: the process that adds manifests to a backup.
//!
//! Of two writers of one prefix, each number of a manifest has one winner. A writer stops for good
//! when another writer takes a number after the writer's own first manifest. Before its first own
//! manifest, a writer accepts the manifest of another process: a creation of its predecessor can
//! take effect late. Then all uploads begin again, so that invariant 2 of the module holds.

use std::sync::{Arc, Mutex};

use umbel_base::ignore_poison::IgnorePoison;

use crate::object_backup::backup_identity::BackupIdentity;
use crate::object_backup::manifest_chain::ManifestChain;
use crate::object_backup::object_backup_error::{ObjectBackupError, ObjectBackupResult};
use crate::object_backup::object_manifest::{
    BackupState, ObjectManifest, all_chunks, changes_between, manifest_name,
};
use crate::object_backup::object_requests::{ObjectRequests, SettledCreation};
use crate::object_backup::piece_upload::{UploadOutcome, is_local_damage, task};
use crate::object_backup::upload_plan::{PieceJob, UploadPlan};
use crate::object_backup::{
    ObjectBackupOptions, ObjectBackupReport, ObjectBackupState, parallel_tasks,
};
use crate::shared_store_state::StoreInner;
use crate::types::event::Position;

/// Plans of one run: a scavenge can replace a planned file.
const PLANS_MAX: usize = 4;
/// Manifests of predecessors that a run accepts.
const TAKEOVERS_MAX: usize = 16;
/// Most changes after a full manifest, whatever its length.
const DELTAS_MAX: u64 = 1024;
/// Uploaded bytes for each byte of a full manifest, except for the first one.
const BYTES_PER_FULL_BYTE: u64 = 128;

/// A manifest whose creation was sent, with an unknown outcome.
#[derive(Debug)]
struct Pending {
    manifest: ObjectManifest,
    bytes: Vec<u8>,
    state: BackupState,
}

/// The newest manifest that counts.
#[derive(Debug)]
struct Newest {
    number: u64,
    uid: [u8; 16],
    state: BackupState,
    /// Number of manifests since the last full one.
    deltas: u64,
}

/// The process that adds manifests to a backup.
#[derive(Debug)]
pub struct BackupWriter {
    identity: BackupIdentity,
    id: [u8; 16],
    options: ObjectBackupOptions,
    /// Whether the chain must be read before the next manifest.
    needs_load: bool,
    newest: Option<Newest>,
    pending: Option<Pending>,
    /// Whether this writer created a manifest.
    has_own_manifest: bool,
    /// Reason why this writer never creates a manifest again.
    stopped: Option<String>,
    /// Bytes that were uploaded since the last full manifest, and the length of that one.
    since_full: (u64, u64),
    durable: u64,
    /// State that others read while a run is in progress.
    shown: Arc<Mutex<ObjectBackupState>>,
}

/// Work of one run.
struct Run<'a> {
    shared: &'a Arc<StoreInner>,
    requests: &'a Arc<ObjectRequests>,
    report: ObjectBackupReport,
}

/// Outcome of the creation of a manifest.
enum Commit {
    Done,
    /// A predecessor's manifest has the number.
    Overtaken,
}

impl BackupWriter {
    /// Creates a writer with a random id. It keeps end and bytes of the backup in `shown`.
    pub fn new(
        identity: BackupIdentity,
        id: [u8; 16],
        options: ObjectBackupOptions,
        shown: Arc<Mutex<ObjectBackupState>>,
    ) -> BackupWriter {
        BackupWriter {
            identity,
            id,
            options,
            needs_load: true,
            newest: None,
            pending: None,
            has_own_manifest: false,
            stopped: None,
            since_full: (0, 0),
            durable: 0,
            shown,
        }
    }

    /// Sets the manifest that is the newest one.
    fn set_newest(&mut self, newest: Newest) {
        self.shown.lock().ignore_poison().through = Some(Position(newest.state.through));
        self.newest = Some(newest);
    }

    /// Bytes from the end of the backup to the end of the log at the last plan.
    pub fn lag_bytes(&self) -> u64 {
        let last = self.newest.as_ref().and_then(|newest| newest.state.chunks.last());
        let end = last.and_then(|last| Some(last.entry.start + last.entry.ended?.end));
        self.durable.saturating_sub(end.unwrap_or(0))
    }

    /// Backs up everything that was appended before the call.
    pub fn run(
        &mut self,
        shared: &Arc<StoreInner>,
        requests: &Arc<ObjectRequests>,
    ) -> ObjectBackupResult<ObjectBackupReport> {
        if let Some(reason) = &self.stopped {
            return Err(ObjectBackupError::refused(reason.clone()));
        }
        shared.check_open()?;
        let report = ObjectBackupReport {
            through: Position::START,
            manifest: 0,
            created_manifests: 0,
            uploaded_objects: 0,
            uploaded_bytes: 0,
            requests: Default::default(),
        };
        let mut run = Run { shared, requests, report };
        if !shared.read_only {
            shared.sync_log()?;
        }
        for _ in 0..TAKEOVERS_MAX {
            match self.attempt(&mut run)? {
                Commit::Done => {
                    let newest = self.newest.as_ref();
                    run.report.through = Position(newest.map_or(0, |newest| newest.state.through));
                    run.report.manifest = newest.map_or(0, |newest| newest.number);
                    return Ok(run.report);
                }
                Commit::Overtaken => self.needs_load = true,
            }
        }
        Err(self.other_writer(run.requests))
    }

    /// Backs up from the newest manifest on.
    fn attempt(&mut self, run: &mut Run<'_>) -> ObjectBackupResult<Commit> {
        if let Some(pending) = self.pending.take()
            && let Commit::Overtaken = self.create(run, pending)?
        {
            return Ok(Commit::Overtaken);
        }
        if self.needs_load {
            self.load(run.requests)?;
        }
        for _ in 0..PLANS_MAX {
            let state = self.newest.as_ref().map(|newest| &newest.state);
            let location = run.requests.objects.location();
            let tails_max = self.options.small_tails_max;
            let plan = UploadPlan::new(run.shared, state, tails_max, location)?;
            self.durable = plan.durable;
            match self.execute(run, plan)? {
                Some(commit) => return Ok(commit),
                None => continue,
            }
        }
        // Scavenges replace the chunks faster than they are uploaded; the next run continues.
        Ok(Commit::Done)
    }

    /// Reads the newest manifest and its state.
    fn load(&mut self, requests: &ObjectRequests) -> ObjectBackupResult<()> {
        self.newest = None;
        if let Some(mut chain) = ManifestChain::load(requests, self.identity.backup)? {
            if let Some(damage) = chain.damage.pop() {
                return Err(damage);
            }
            let state = chain.state(chain.newest.number)?;
            let (number, uid) = (chain.newest.number, chain.newest.uid);
            // The distance to the last full manifest is unknown, so the next one is full.
            self.set_newest(Newest { number, uid, state, deltas: DELTAS_MAX });
        }
        self.needs_load = false;
        Ok(())
    }

    /// Uploads what the plan names. Returns `None` if a new plan is needed.
    fn execute(
        &mut self,
        run: &mut Run<'_>,
        plan: UploadPlan,
    ) -> ObjectBackupResult<Option<Commit>> {
        let mut state = match &self.newest {
            Some(newest) => newest.state.clone(),
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
                Err(ObjectBackupError::Store(error)) if is_local_damage(&error) => {
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
        let backup = self.identity.backup;
        let job = |job: &PieceJob| task(run.shared, run.requests, backup, job.clone());
        let tasks = batch.iter().map(job).collect();
        let parallel = self.options.requests.parallel_requests;
        let results = parallel_tasks::run(&run.requests.env, parallel, tasks);
        let (mut failure, mut is_current) = (None, true);
        for result in results {
            let panicked = || Err(ObjectBackupError::refused("internal: an upload panicked"));
            match result.unwrap_or_else(panicked) {
                Ok(UploadOutcome::Uploaded(chunk, created, bytes)) => {
                    run.report.uploaded_objects += 1;
                    self.add_bytes(run, bytes);
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
        let last = state.chunks.last();
        let last = last.and_then(|last| Some(last.entry.start + last.entry.ended?.last_event));
        state.through = last.unwrap_or(0);
        match failure {
            Some(error) => Err(error),
            None => Ok(is_current),
        }
    }

    fn add_bytes(&mut self, run: &mut Run<'_>, bytes: u64) {
        run.report.uploaded_bytes += bytes;
        self.shown.lock().ignore_poison().uploaded_bytes += bytes;
        self.since_full.0 += bytes;
    }

    /// Creates the manifest of a state, unless it is the state of the newest one.
    fn commit(&mut self, run: &mut Run<'_>, state: &BackupState) -> ObjectBackupResult<Commit> {
        let newest = self.newest.as_ref();
        if newest.is_some_and(|newest| newest.state.chunks == state.chunks) {
            return Ok(Commit::Done);
        }
        let is_full = newest.is_none_or(|newest| {
            let is_paid = self.since_full.0 / BYTES_PER_FULL_BYTE >= self.since_full.1;
            let is_due = newest.deltas + 1 >= self.options.full_manifest_interval && is_paid;
            is_due || newest.deltas + 1 >= DELTAS_MAX
        });
        let changes = match newest.filter(|_| !is_full) {
            Some(newest) => changes_between(&newest.state, state),
            None => all_chunks(state),
        };
        let manifest = ObjectManifest {
            number: newest.map_or(0, |newest| newest.number) + 1,
            uid: run.requests.env.entropy.id()?,
            previous: newest.map_or([0; 16], |newest| newest.uid),
            backup: self.identity.backup,
            writer: self.id,
            wall_micros: run.requests.env.clock.wall_micros(),
            store_micros: run.requests.store_micros().unwrap_or(0),
            through: state.through,
            through_created: state.through_created,
            is_full,
            head: state.head.clone(),
            changes,
        };
        let bytes = manifest.encode();
        self.create(run, Pending { manifest, bytes, state: state.clone() })
    }

    /// Creates a manifest. An unknown outcome stays pending, so that the next run sends the same
    /// bytes under the same number.
    fn create(&mut self, run: &mut Run<'_>, pending: Pending) -> ObjectBackupResult<Commit> {
        let name = manifest_name(pending.manifest.number);
        let created = run.requests.create(&name, &pending.bytes);
        let Pending { manifest, bytes, state } = match created {
            Ok(SettledCreation::Mine) => pending,
            Err(error) => {
                self.pending = Some(pending);
                return Err(error);
            }
            Ok(SettledCreation::Other(found)) => {
                return self.lose(run, pending, &found);
            }
        };
        let deltas = match (manifest.is_full, &self.newest) {
            (false, Some(newest)) => newest.deltas + 1,
            _ => 0,
        };
        self.add_bytes(run, bytes.len() as u64);
        if manifest.is_full {
            self.since_full = (0, bytes.len() as u64);
        }
        run.report.created_manifests += 1;
        self.has_own_manifest = true;
        self.set_newest(Newest { number: manifest.number, uid: manifest.uid, state, deltas });
        Ok(Commit::Done)
    }

    /// Decides what it means that another manifest has the number.
    fn lose(
        &mut self,
        run: &mut Run<'_>,
        pending: Pending,
        found: &[u8],
    ) -> ObjectBackupResult<Commit> {
        let number = pending.manifest.number;
        match ObjectManifest::decode(found, number) {
            Err(reason) => {
                let error = run.requests.damaged(&manifest_name(number), reason);
                self.pending = Some(pending);
                Err(error)
            }
            Ok(_) if !self.has_own_manifest => Ok(Commit::Overtaken),
            Ok(_) => Err(self.other_writer(run.requests)),
        }
    }

    /// Ends this writer, since another one backs up to the prefix.
    fn other_writer(&mut self, requests: &ObjectRequests) -> ObjectBackupError {
        let reason = format!(
            "another server backs up to {}, so this backup has stopped for good; let one server \
             back up to the prefix, then start this server again",
            requests.objects.location()
        );
        self.stopped = Some(reason.clone());
        self.shown.lock().ignore_poison().stopped = Some(reason.clone());
        ObjectBackupError::refused(reason)
    }
}

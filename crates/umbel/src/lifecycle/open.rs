//! Open of a store: finds its files, replays the WAL and starts a new manifest.
//!
//! Before the new manifest is durable, an open removes only orphans of killed opens. No file is
//! ever removed because it did not parse. After a crash at any point of an open, the store opens
//! again.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Condvar, Mutex, OnceLock, RwLock, Weak};

use umbel_base::fail_point;
use umbel_base::{Error, Result};
use umbel_env::{Env, Lock, OpenMark, OwnershipCheckedFiles, Pin, check_path};
use umbel_log::{ExpectedEnd, LogKind, LogReader};

use crate::fs::blob_files::BlobFiles;
use crate::fs::create_dir;
use crate::fs::fatal_error::FatalError;
use crate::fs::file_cache::{self, FileCache};
use crate::fs::filenames::{self, FileKind};
use crate::fs::obsolete_files::ObsoleteFiles;
use crate::fs::retrying_files::RetryingFiles;
use crate::lifecycle::manifest_reservation;
use crate::lifecycle::recovered_wal_copy;
use crate::lifecycle::recovery;
use crate::lifecycle::recovery_flush::RecoveryFlush;
use crate::lifecycle::stale_read_check::{StaleReadCheck, read_manifest};
use crate::maintenance::advisor_job;
use crate::maintenance::existence_maintenance;
use crate::options::{OptionCaps, Options};
use crate::state::keyspace_state::KeyspaceState;
use crate::state::snapshot_list::SnapshotList;
use crate::state::store::{CommitState, SchedulerState, Store};
use crate::store_budget::StoreBudget;
use crate::thread_counters::StoreCounters;
use crate::version::current_file::CurrentFile;
use crate::version::key_hashing::KeyHashers;
use crate::version::reserved_space;
use crate::version::store_identity::Identity;
use crate::version::version_edit::{KeyspaceRecord, ManifestState};
use crate::version::{LiveTable, Manifest, StoreOwnership, TableContext, TableOwner, Version};
use crate::wal::{self, GroupSync, SegmentSize, Wal, WalOptions, WorkerSignal};

/// Opens or creates the store in `folder`.
pub fn open(folder: &Path, options: Options, read_only: bool) -> Result<Arc<Store>> {
    check_path("the store", folder)?;
    options.check()?;
    let budget = Arc::new(StoreBudget::of(&options)?);
    let outside = &options.env;
    let folder = &*outside.files.absolute(folder)?;
    create_directory(outside, folder, &options, read_only)?;
    let held = outside.fork_guarded().open_directory(folder)?;
    let ownership = Arc::new(StoreOwnership::new(Arc::clone(&held.files), folder));
    let (env, descriptors) = retrying_env(&held, &options, &ownership, read_only);
    let (lock, mut pin) = lock_directory(&env, folder, &options, read_only)?;
    if !read_only {
        ownership.note_found()?;
    }
    if read_only {
        // Uses the held files: those of `env` hold the descriptors, which hold the view.
        descriptors.set_missing_file_explainer(Arc::new(StaleReadCheck::new(&held, folder)));
    }
    let recovered = read_manifest(&env, folder, &mut pin)?;
    let listing = listing(&env, folder)?;
    let found = recovered.is_some();
    check_may_exist(folder, &options, found)?;
    let mut state = match recovered {
        Some(state) => state,
        None => check_is_new(&env, folder, &listing, &options, read_only)
            .and_then(|()| new_state(&env))?,
    };
    inspect_files(&env, folder, &listing, &mut state, found, read_only)?;
    if !read_only && state.instance.is_none() {
        state.set_instance(env.entropy.id()?);
    }
    let instance = state.instance;
    let ids = Arc::new(AtomicU64::new(state.next_file_id));
    let context = new_context(&env, folder, hashers(&state)?, descriptors, &budget, lock);
    let keyspaces = build_keyspaces(&state, &context, budget.sizes.caps)?;
    existence_maintenance::attach(&env, folder, &state, &keyspaces, read_only)?;
    let mut recovery_flush =
        RecoveryFlush::new(&env, folder, &context, (!read_only).then_some(&*ids));
    let replayed = recovery::replay(&env, folder, &mut state, &keyspaces, &mut recovery_flush)?;
    existence_maintenance::after_replay(&state, &keyspaces)?;
    let manifest = if read_only {
        None
    } else {
        state.note_opening(&*env.entropy)?;
        let flushed = (&mut recovery_flush, &*replayed.segment_ends);
        let mut manifest = write_state(&env, &listing, state, &context, &ids, flushed, &ownership)?;
        remove_orphans(&listing, &manifest, &context);
        let names = listing.iter().map(|(name, _)| &**name);
        existence_maintenance::remove_orphans(&env, folder, names, manifest.state());
        manifest.reserve_for_next();
        Some(Mutex::new(manifest))
    };
    drop(recovery_flush);
    let has_worker = options.background_threads > 0;
    let wal = Wal::new(wal_options(&env, &context, &ids, has_worker), replayed.old_segments);
    let built = EngineBuilder { folder, options, env, read_only, instance, pin };
    let replayed = (wal, replayed.last_sequence);
    let store = Arc::new(built.store(context, ids, manifest, keyspaces, replayed));
    register_table_owner(&store);
    Ok(store)
}

/// Parts of a store that is being opened, before its contents are read.
struct EngineBuilder<'a> {
    folder: &'a Path,
    options: Options,
    /// Environment whose files are relative to the store's directory, which is held open.
    env: Env,
    read_only: bool,
    instance: Option<[u8; 16]>,
    pin: Option<Box<dyn Pin>>,
}

impl EngineBuilder<'_> {
    fn store(
        self,
        context: Arc<TableContext>,
        ids: Arc<AtomicU64>,
        manifest: Option<Mutex<Manifest>>,
        keyspaces: Vec<Arc<KeyspaceState>>,
        (wal, last_sequence): (Wal, u64),
    ) -> Store {
        let folder = self.folder.to_path_buf();
        let weighing_bytes = context.budget.check_interval_bytes();
        let (files, clock) = (Arc::clone(&self.env.files), Arc::clone(&self.env.clock));
        let fatal_error = Arc::clone(&context.fatal_error);
        let group_sync = GroupSync::new(wal.tail(), files, folder.clone(), fatal_error, clock);
        Store {
            folder,
            outer_env: self.options.env.clone(),
            instance: self.instance,
            options: Arc::new(Options { env: self.env, ..self.options }),
            read_only: self.read_only,
            snapshots: SnapshotList::new(last_sequence),
            fatal_error: Arc::clone(&context.fatal_error),
            cache: Arc::clone(&context.cache),
            budget: Arc::clone(&context.budget),
            context,
            ids,
            commit_queue: Mutex::default(),
            group_sync,
            wal_signal: WorkerSignal::default(),
            wal_task_lock: Mutex::default(),
            commit: Mutex::new(CommitState {
                wal,
                last_sequence,
                scratch: Vec::new(),
                bytes_since_check: 0,
                check_interval_bytes: weighing_bytes,
                full: Vec::new(),
            }),
            manifest,
            keyspaces: RwLock::new(keyspaces),
            advisor_lock: Mutex::default(),
            memtables_full: AtomicBool::default(),
            scheduler: Mutex::new(SchedulerState::default()),
            changed: Condvar::new(),
            counters: StoreCounters::default(),
            open: OpenMark::new(),
            has_existence_thread: AtomicBool::default(),
            close_result: Mutex::default(),
            threads: Mutex::default(),
            pin: Mutex::new(self.pin),
        }
    }
}

fn check_may_exist(folder: &Path, options: &Options, found: bool) -> Result<()> {
    match found && options.error_if_exists {
        true => Err(Error::invalid(format!("there is a store in {} already", folder.display()))),
        false => Ok(()),
    }
}

/// Writes a new manifest with the whole state, and makes it current. On a full disk it frees space
/// and tries again. To free space, the open truncates WAL segments after their valid records,
/// removes manifests of earlier opens and releases the reserved space.
fn write_state(
    env: &Env,
    listing: &DirectoryListing,
    state: ManifestState,
    context: &TableContext,
    ids: &Arc<AtomicU64>,
    (recovery_flush, ends): (&mut RecoveryFlush<'_>, &[(u64, u64)]),
    ownership: &Arc<StoreOwnership>,
) -> Result<Manifest> {
    let folder = &context.folder;
    let create = |recovery_flush: &mut RecoveryFlush<'_>| {
        let (ids, poison) = (Arc::clone(ids), Arc::clone(&context.fatal_error));
        let shared = (poison, Arc::clone(ownership));
        recovery_flush.release_reservation()?;
        Manifest::create_and(env, folder, state.clone(), ids, shared, || {
            recovery_flush.keep_files()
        })
    };
    let created = match create(recovery_flush) {
        // A store that cannot be opened for lack of disk space could never free any.
        Err(Error::DiskFull { .. }) if !recovery_flush.keeps_files() => {
            let current = CurrentFile::read(&*env.files, folder)?.map(|found| found.manifest_id);
            recovery::truncate_segments(env, folder, ends)?;
            remove_manifests(listing, current, context);
            let given = reserved_space::release(env, folder);
            create(recovery_flush).inspect_err(|_| reserved_space::restore(env, folder, given))
        }
        created => created,
    };
    let mut manifest = created?;
    manifest.set_obsolete_files(&context.obsolete);
    Ok(manifest)
}

fn wal_options(
    env: &Env,
    context: &TableContext,
    ids: &Arc<AtomicU64>,
    has_worker: bool,
) -> WalOptions {
    WalOptions {
        env: env.clone(),
        folder: context.folder.clone(),
        segment_bytes: SegmentSize::of(&context.budget),
        secret: context.hashers.secret,
        ids: Arc::clone(ids),
        obsolete: Arc::clone(&context.obsolete),
        fatal_error: Arc::clone(&context.fatal_error),
        has_worker,
    }
}

fn new_context(
    env: &Env,
    folder: &Path,
    hashers: KeyHashers,
    descriptors: Arc<FileCache>,
    budget: &Arc<StoreBudget>,
    lock: Option<Box<dyn Lock>>,
) -> Arc<TableContext> {
    let (poison, files) = (Arc::new(FatalError::default()), Arc::clone(&env.files));
    let pool = Arc::clone(&descriptors);
    let obsolete = ObsoleteFiles::new(Arc::clone(&files), Arc::clone(&poison), lock);
    let (directory, kept) = (folder.to_path_buf(), Arc::clone(&obsolete));
    let blobs = BlobFiles::new(directory, files, pool, Arc::clone(&poison), kept);
    Arc::new(TableContext {
        folder: folder.to_path_buf(),
        hashers,
        cache: budget.cache(),
        fatal_error: poison,
        file_cache: descriptors,
        budget: Arc::clone(budget),
        owner: OnceLock::new(),
        openings: AtomicU64::new(1),
        retired_files: Default::default(),
        blobs,
        obsolete,
    })
}

/// Registers the store as the owner of its tables, which closes table readers when they use too
/// much memory.
fn register_table_owner(store: &Arc<Store>) {
    let weak = Arc::downgrade(store);
    if let Some(membership) = store.budget.membership() {
        membership.register(Weak::<Store>::clone(&weak), &store.fatal_error);
    }
    let keeper: Weak<dyn TableOwner> = weak;
    // Nothing else sets it.
    let _ = store.context.owner.set(keeper);
    advisor_job::advise_after_job(store);
}

/// Returns an environment that retries calls that find no free descriptor, and the cache of table
/// files. Through the environment of a writer only files of the store can be changed.
fn retrying_env(
    held: &Env,
    options: &Options,
    ownership: &Arc<StoreOwnership>,
    read_only: bool,
) -> (Env, Arc<FileCache>) {
    let share = || file_cache::open_tables_max(held.resources.open_files_max());
    let open_tables_max = options.open_tables_max.unwrap_or_else(share);
    let mut files = Arc::clone(&held.files);
    if !read_only {
        files =
            Arc::new(OwnershipCheckedFiles::new(files, Arc::<StoreOwnership>::clone(ownership)));
    }
    let pool = FileCache::new(Arc::clone(&files), open_tables_max);
    let files = RetryingFiles::new(files, Arc::clone(&pool));
    (Env { files: Arc::new(files), ..held.clone() }, pool)
}

/// Creates the store's directory if it is missing and the options allow it.
fn create_directory(env: &Env, path: &Path, options: &Options, read_only: bool) -> Result<()> {
    if env.files.exists(path)? {
        return Ok(());
    }
    if read_only || !options.create_if_missing {
        return Err(Error::invalid(format!(
            "there is no store in {}: the directory does not exist; check the path, or create the \
             store first",
            path.display()
        )));
    }
    create_dir::create(env, path)
}

/// Locks of a handle: a writer's keeps out other writers, and a reader's keeps the writer from
/// removing files that the reader needs.
type OpenLocks = (Option<Box<dyn Lock>>, Option<Box<dyn Pin>>);

/// Checks that the directory, which is held open, contains a store or is one where a store can be
/// created. Then locks the directory for a writer, or pins all versions for a reader.
fn lock_directory(env: &Env, path: &Path, options: &Options, read_only: bool) -> Result<OpenLocks> {
    if !env.files.exists(&path.join(filenames::CURRENT))? {
        // Before the lock, so that a directory without a store gets no lock file. Where there is
        // one, another process may be making the store: the check is repeated under the lock.
        match check_is_new(env, path, &listing(env, path)?, options, read_only) {
            Err(_) if env.files.exists(&path.join(filenames::LOCK))? => {}
            checked => checked?,
        }
        // The process that created the directory may have died before its name was durable.
        create_dir::create(&options.env, path)?;
    }
    let lock = path.join(filenames::LOCK);
    match read_only {
        true => Ok((None, env.files.pin(&lock, 0)?)),
        false => Ok((Some(env.lock(&lock, options.lock_wait)?), None)),
    }
}

type DirectoryListing = Vec<(String, Option<FileKind>)>;

fn listing(env: &Env, folder: &Path) -> Result<DirectoryListing> {
    let entries = env.files.read_dir(folder)?;
    let kind = |name: &str, is_directory| if is_directory { None } else { filenames::parse(name) };
    Ok(entries.into_iter().map(|e| (e.name.clone(), kind(&e.name, e.is_directory))).collect())
}

fn id_of(kind: Option<FileKind>) -> Option<u64> {
    match kind? {
        FileKind::Manifest(id)
        | FileKind::Segment(id)
        | FileKind::Table(id)
        | FileKind::Blob(id) => Some(id),
        FileKind::Current | FileKind::CurrentNew | FileKind::Lock | FileKind::Reserved => None,
    }
}

/// Returns an error unless the directory, which has no `CURRENT`, is empty or is the result of an
/// interrupted creation. An interrupted creation has not acknowledged any write.
fn check_is_new(
    env: &Env,
    folder: &Path,
    listing: &DirectoryListing,
    options: &Options,
    read_only: bool,
) -> Result<()> {
    if listing.iter().any(|(name, _)| name == filenames::RESTORING) {
        return Err(Error::invalid(format!(
            "a restore into {} did not end; run the same restore again, or remove the directory",
            folder.display()
        )));
    }
    for (name, kind) in listing {
        let path = folder.join(name);
        match kind {
            None if name == "lost+found" || filenames::parse_existence(name).is_some() => {}
            None | Some(FileKind::Reserved) => {
                return Err(Error::invalid(format!(
                    "{} is not a store: it has no CURRENT, but contains other files ('{name}'); \
                     name an empty directory or one that does not exist",
                    folder.display()
                )));
            }
            Some(FileKind::Manifest(id)) if !holds_data(env, &path, *id)? => {}
            Some(
                FileKind::Manifest(_)
                | FileKind::Segment(_)
                | FileKind::Table(_)
                | FileKind::Blob(_),
            ) => {
                let reason =
                    format!("CURRENT is missing, but '{name}' shows that there is a store");
                return Err(Error::corruption(&folder.join(filenames::CURRENT), 0, reason));
            }
            Some(FileKind::Current | FileKind::CurrentNew | FileKind::Lock) => {}
        }
    }
    if read_only || !options.create_if_missing {
        return Err(Error::invalid(format!(
            "there is no store in {}: the directory has no CURRENT; check the path, or create the \
             store first",
            folder.display()
        )));
    }
    Ok(())
}

/// Stores the first free id in `state`. Removes the orphans of killed opens if a manifest was
/// `found`, unless the open is read-only.
fn inspect_files(
    env: &Env,
    folder: &Path,
    listing: &DirectoryListing,
    state: &mut ManifestState,
    found: bool,
    read_only: bool,
) -> Result<()> {
    let first_free = first_free_id(env, folder, listing, state, read_only)?;
    let known = std::mem::replace(&mut state.next_file_id, first_free);
    if found && !read_only {
        let kinds: Vec<FileKind> = listing.iter().filter_map(|(_, kind)| *kind).collect();
        manifest_reservation::remove_orphan_reservations(env, folder, &kinds, known);
    }
    Ok(())
}

/// Returns the first id that neither the manifest nor a file in the directory uses.
fn first_free_id(
    env: &Env,
    folder: &Path,
    listing: &DirectoryListing,
    state: &ManifestState,
    read_only: bool,
) -> Result<u64> {
    let known = state.next_file_id;
    let highest = listing.iter().filter_map(|(_, kind)| id_of(*kind)).max().unwrap_or(0);
    if highest > filenames::ID_MAX / 2 {
        return Err(Error::invalid(format!(
            "{} contains a file with the number {highest}, which is too close to the limit for \
             file numbers; move it to another directory",
            folder.display()
        )));
    }
    match check_logs_are_named(env, folder, listing, state) {
        // A writer has made that segment since the manifest was read.
        Err(_) if read_only && names_more(env, folder, listing, state)? => {}
        checked => checked?,
    }
    fail_point!("recovery-reuse-file-ids", |_| Ok(known));
    Ok(known.max(highest + 1))
}

/// Returns an error if a WAL segment that the manifest does not know holds a record of a write. A
/// segment's edit is durable before its first record, so the manifest has lost its end, and the
/// segment must not be removed. A copy by recovery is an exception: the manifest names it only
/// after it is complete, and its originals stay until then.
fn check_logs_are_named(
    env: &Env,
    folder: &Path,
    listing: &DirectoryListing,
    state: &ManifestState,
) -> Result<()> {
    let secret = hashers(state)?.secret;
    for (name, kind) in listing {
        let Some(FileKind::Segment(id)) = *kind else { continue };
        if id < state.next_file_id {
            continue;
        }
        let path = folder.join(name);
        let mut reader = wal::read(env, &path, &secret, id, ExpectedEnd::Open)?;
        if let Some(record) =
            reader.next()?.filter(|record| !recovered_wal_copy::begins_copy(record))
        {
            let reason = "the log contains writes, but the manifest does not name it: the end of \
                          the manifest is lost";
            return Err(Error::corruption(&path, record.offset, reason));
        }
    }
    Ok(())
}

/// Whether the present manifest knows every WAL segment that is newer than `state`.
fn names_more(
    env: &Env,
    folder: &Path,
    listing: &DirectoryListing,
    state: &ManifestState,
) -> Result<bool> {
    let Some(now) = Manifest::read(env, folder)? else { return Ok(false) };
    let is_log = |kind: &Option<FileKind>| matches!(kind, Some(FileKind::Segment(_)));
    let logs = listing.iter().filter(|(_, kind)| is_log(kind)).filter_map(|(_, k)| id_of(*k));
    Ok(logs.filter(|id| *id >= state.next_file_id).all(|id| id < now.next_file_id))
}

/// Whether manifest `id`, in a directory without `CURRENT`, has more than the first record of a new
/// store.
fn holds_data(env: &Env, path: &Path, id: u64) -> Result<bool> {
    let mut reader = LogReader::open(env, path, LogKind::Manifest, id, ExpectedEnd::Open)?;
    let mut records = 0;
    while let Some(record) = reader.next()? {
        records += 1;
        let Ok(edits) = crate::version::version_edit::decode_record(record.payload) else {
            return Ok(true);
        };
        let mut state = ManifestState::default();
        let fits = edits.iter().try_for_each(|edit| state.apply(edit)).is_ok();
        if records > 1 || !fits || state.next_keyspace_id > 0 || !state.logs.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn new_state(env: &Env) -> Result<ManifestState> {
    let (store_id, hash_seed) = (env.entropy.id()?, env.entropy.id()?);
    let identity = Identity { store_id, hash_seed, seed_id: 1, features: 0 };
    Ok(ManifestState { identity: Some(identity), next_file_id: 1, ..ManifestState::default() })
}

fn hashers(state: &ManifestState) -> Result<KeyHashers> {
    let missing = || Error::invalid("internal: a state without an identity");
    let identity = state.identity.as_ref().ok_or_else(missing)?;
    KeyHashers::new(identity.hash_seed, identity.seed_id)
}

fn build_keyspaces(
    state: &ManifestState,
    context: &Arc<TableContext>,
    caps: OptionCaps,
) -> Result<Vec<Arc<KeyspaceState>>> {
    let build = |(&id, record): (&u32, &KeyspaceRecord)| {
        let version = build_version(record, context)?;
        let options = record.options.clone();
        let (name, keys) = (record.name.clone(), context.hashers.of(options.hash).keys);
        let core = KeyspaceState::new(id, name, options, keys, caps, version);
        if let Some(marker) = &record.marker {
            core.set_durable_marker(marker.clone());
        }
        if let Some(evidence) = &record.read_stats {
            core.advisor.restore(evidence);
        }
        Ok(Arc::new(core))
    };
    state.keyspaces.iter().map(build).collect()
}

fn build_version(record: &KeyspaceRecord, context: &Arc<TableContext>) -> Result<Version> {
    let mut added = Vec::new();
    for (level, metas) in record.levels.iter().enumerate() {
        for meta in metas {
            let (context, hash) = (Arc::clone(context), record.options.hash);
            added.push((level, Arc::new(LiveTable::new(meta.clone(), level, hash, context))));
        }
    }
    Version::default().apply(&[], &added)
}

/// Removes files that no durable manifest names, except files of long values that a replayed entry
/// references. The next open tries again to remove a file that could not be removed.
fn remove_orphans(listing: &DirectoryListing, manifest: &Manifest, context: &TableContext) {
    let state = manifest.state();
    let live_tables: std::collections::HashSet<u64> = state
        .keyspaces
        .values()
        .flat_map(|record| record.levels.iter().flatten().map(|meta| meta.id))
        .collect();
    remove_manifests(listing, Some(manifest.id()), context);
    for (name, kind) in listing {
        let orphan = match kind {
            Some(FileKind::Segment(id)) => !state.logs.contains_key(id),
            Some(FileKind::Table(id)) => !live_tables.contains(id),
            Some(FileKind::Blob(id)) => !context.blobs.is_live(*id),
            _ => false,
        };
        if orphan {
            context.obsolete.remove(&context.folder.join(name));
        }
    }
}

/// Removes the manifests that `CURRENT` does not name.
fn remove_manifests(listing: &DirectoryListing, current: Option<u64>, context: &TableContext) {
    for (name, kind) in listing {
        if matches!(kind, Some(FileKind::Manifest(id)) if Some(*id) != current) {
            context.obsolete.remove(&context.folder.join(name));
        }
    }
}

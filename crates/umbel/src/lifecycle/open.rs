//! Opening a store: find what it consists of, replay the logs, start a new manifest.
//!
//! Nothing is removed before the new manifest is durable, but for tables that an open left which
//! was killed, and nothing is ever removed because it did not parse. A crash at any point leaves a
//! folder that opens again.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Condvar, Mutex, OnceLock, RwLock, Weak};

use umbel_base::{Error, Result};
use umbel_env::{Env, Lock, OpenMark, OwnFiles, Pin, check_path};
use umbel_log::{Expectation, LogKind, LogReader};

use crate::advise;
use crate::blobs::Blobs;
use crate::budget::Budget;
use crate::counters::StoreCounters;
use crate::descriptors::{self, Descriptors};
use crate::existence_upkeep;
use crate::folder;
use crate::hashers::Hashers;
use crate::keyspace_core::KeyspaceCore;
use crate::names::{self, FileKind};
use crate::obsolete::ObsoleteFiles;
use crate::options::{Caps, Options};
use crate::patient_files::PatientFiles;
use crate::poison::Poison;
use crate::read_view::{ReadView, read_manifest};
use crate::recovery;
use crate::relog;
use crate::reserve;
use crate::reserved_space;
use crate::snapshots::Snapshots;
use crate::spill::Spill;
use crate::store::{CommitState, Store, WorkState};
use crate::version::current::Current;
use crate::version::edit::{Identity, KeyspaceRecord, State};
use crate::version::{Keeper, Manifest, Ownership, TableContext, TableFile, Version};
use crate::wal::{self, Bell, SegmentBytes, Syncer, Wal, WalOptions};

/// Opens or creates the store in `folder`.
pub fn open(folder: &Path, options: Options, read_only: bool) -> Result<Arc<Store>> {
    check_path("the store", folder)?;
    options.check()?;
    let budget = Arc::new(Budget::of(&options)?);
    let outside = &options.env;
    let folder = &*outside.files.absolute(folder)?;
    create_directory(outside, folder, &options, read_only)?;
    let held = outside.of_this_process().hold(folder)?;
    let ownership = Arc::new(Ownership::new(Arc::clone(&held.files), folder));
    let (env, descriptors) = patient_env(&held, &options, &ownership, read_only);
    let (lock, mut pin) = prepare_folder(&env, folder, &options, read_only)?;
    if !read_only {
        ownership.note_found()?;
    }
    if read_only {
        // Of the held files themselves: those of `env` hold the descriptors, which hold the view.
        descriptors.explain_missing_by(Arc::new(ReadView::begin(&held, folder)));
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
    take_stock(&env, folder, &listing, &mut state, found, read_only)?;
    if !read_only && state.instance.is_none() {
        state.set_instance(env.entropy.id()?);
    }
    let instance = state.instance;
    let ids = Arc::new(AtomicU64::new(state.next_file_id));
    let context = new_context(&env, folder, hashers(&state)?, descriptors, &budget, lock);
    let keyspaces = build_keyspaces(&state, &context, budget.sizes.caps)?;
    existence_upkeep::attach(&env, folder, &state, &keyspaces, read_only)?;
    let mut spill = Spill::new(&env, folder, &context, (!read_only).then_some(&*ids));
    let replayed = recovery::replay(&env, folder, &mut state, &keyspaces, &mut spill)?;
    existence_upkeep::after_replay(&state, &keyspaces)?;
    let manifest = if read_only {
        None
    } else {
        state.note_opening(&*env.entropy)?;
        let spilled = (&mut spill, &*replayed.ends);
        let mut manifest = write_state(&env, &listing, state, &context, &ids, spilled, &ownership)?;
        remove_orphans(&listing, &manifest, &context);
        let names = listing.iter().map(|(name, _)| &**name);
        existence_upkeep::remove_orphans(&env, folder, names, manifest.state());
        manifest.reserve_for_next();
        Some(Mutex::new(manifest))
    };
    drop(spill);
    let is_tended = options.background_threads > 0;
    let wal = Wal::new(wal_options(&env, &context, &ids, is_tended), replayed.old);
    let built = Built { folder, options, env, read_only, instance, pin };
    let replayed = (wal, replayed.last_sequence);
    let store = Arc::new(built.store(context, ids, manifest, keyspaces, replayed));
    keep_readers(&store);
    Ok(store)
}

/// What an open store consists of, but for its contents.
struct Built<'a> {
    folder: &'a Path,
    options: Options,
    /// The world, with its files held at the store's directory.
    env: Env,
    read_only: bool,
    instance: Option<[u8; 16]>,
    pin: Option<Box<dyn Pin>>,
}

impl Built<'_> {
    fn store(
        self,
        context: Arc<TableContext>,
        ids: Arc<AtomicU64>,
        manifest: Option<Mutex<Manifest>>,
        keyspaces: Vec<Arc<KeyspaceCore>>,
        (wal, last_sequence): (Wal, u64),
    ) -> Store {
        let folder = self.folder.to_path_buf();
        let weighing_bytes = context.budget.weighing_bytes();
        let syncer = Syncer::new(wal.tail(), Arc::clone(&self.env.files), folder.clone());
        Store {
            folder,
            outside: self.options.env.clone(),
            instance: self.instance,
            options: Arc::new(Options { env: self.env, ..self.options }),
            read_only: self.read_only,
            snapshots: Snapshots::new(last_sequence),
            poison: Arc::clone(&context.poison),
            cache: Arc::clone(&context.cache),
            budget: Arc::clone(&context.budget),
            context,
            put_off: Mutex::default(),
            ids,
            queue: Mutex::default(),
            syncer,
            bell: Bell::default(),
            tending: Mutex::default(),
            commit: Mutex::new(CommitState {
                wal,
                last_sequence,
                scratch: Vec::new(),
                bytes_unweighed: 0,
                weighing_bytes,
            }),
            manifest,
            keyspaces: RwLock::new(keyspaces),
            advising: Mutex::default(),
            buffers_full: AtomicBool::default(),
            work: Mutex::new(WorkState::default()),
            moved: Condvar::new(),
            counters: StoreCounters::default(),
            open: OpenMark::new(),
            tends_filters: AtomicBool::default(),
            close_outcome: Mutex::default(),
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

/// A new manifest with the whole state, which is what counts once this returns. On a full disk it
/// gets the room that the logs, which end there, do not need, that of manifests that earlier opens
/// left, and what the last handle reserved.
fn write_state(
    env: &Env,
    listing: &Listing,
    state: State,
    context: &TableContext,
    ids: &Arc<AtomicU64>,
    (spill, ends): (&mut Spill<'_>, &[(u64, u64)]),
    ownership: &Arc<Ownership>,
) -> Result<Manifest> {
    let folder = &context.folder;
    let create = |spill: &mut Spill<'_>| {
        let (ids, poison) = (Arc::clone(ids), Arc::clone(&context.poison));
        let shared = (poison, Arc::clone(ownership));
        spill.make_way()?;
        Manifest::create_and(env, folder, state.clone(), ids, shared, || spill.adopt())
    };
    let created = match create(spill) {
        // A store that cannot be opened for want of room could never make any.
        Err(Error::Full { .. }) if !spill.is_adopted() => {
            let current = Current::read(&*env.files, folder)?.map(|found| found.manifest_id);
            recovery::cut_logs(env, folder, ends)?;
            remove_manifests(listing, current, context);
            let given = reserved_space::give_up(env, folder);
            create(spill).inspect_err(|_| reserved_space::keep_again(env, folder, given))
        }
        created => created,
    };
    let mut manifest = created?;
    manifest.keep_in(&context.obsolete);
    Ok(manifest)
}

fn wal_options(
    env: &Env,
    context: &TableContext,
    ids: &Arc<AtomicU64>,
    is_tended: bool,
) -> WalOptions {
    WalOptions {
        env: env.clone(),
        folder: context.folder.clone(),
        segment_bytes: SegmentBytes::of(&context.budget),
        secret: context.hashers.secret,
        ids: Arc::clone(ids),
        obsolete: Arc::clone(&context.obsolete),
        is_tended,
    }
}

fn new_context(
    env: &Env,
    folder: &Path,
    hashers: Hashers,
    descriptors: Arc<Descriptors>,
    budget: &Arc<Budget>,
    lock: Option<Box<dyn Lock>>,
) -> Arc<TableContext> {
    let (poison, files) = (Arc::new(Poison::default()), Arc::clone(&env.files));
    let pool = Arc::clone(&descriptors);
    let obsolete = ObsoleteFiles::new(Arc::clone(&files), Arc::clone(&poison), lock);
    let (directory, kept) = (folder.to_path_buf(), Arc::clone(&obsolete));
    let blobs = Blobs::new(directory, files, pool, Arc::clone(&poison), kept);
    Arc::new(TableContext {
        folder: folder.to_path_buf(),
        hashers,
        cache: budget.cache(),
        poison,
        descriptors,
        budget: Arc::clone(budget),
        keeper: OnceLock::new(),
        openings: AtomicU64::new(1),
        held_files: Default::default(),
        blobs,
        obsolete,
    })
}

/// Has the store close readers of tables when they hold too much.
fn keep_readers(store: &Arc<Store>) {
    let weak = Arc::downgrade(store);
    if let Some(membership) = store.budget.membership() {
        membership.list(Weak::<Store>::clone(&weak), &store.poison);
    }
    let keeper: Weak<dyn Keeper> = weak;
    // Nobody else sets it.
    let _ = store.context.keeper.set(keeper);
    advise::after_work(store);
}

/// The world, patient where there is no descriptor left, and the tables' share of descriptors. A
/// writer changes its own files alone.
fn patient_env(
    held: &Env,
    options: &Options,
    ownership: &Arc<Ownership>,
    read_only: bool,
) -> (Env, Arc<Descriptors>) {
    let share = || descriptors::open_tables_max(held.resources.open_files_max());
    let most = options.open_tables_max.unwrap_or_else(share);
    let mut files = Arc::clone(&held.files);
    if !read_only {
        files = Arc::new(OwnFiles::new(files, Arc::<Ownership>::clone(ownership)));
    }
    let pool = Descriptors::new(Arc::clone(&files), most);
    let files = PatientFiles::new(files, Arc::clone(&pool));
    (Env { files: Arc::new(files), ..held.clone() }, pool)
}

/// Creates the store's directory where it is missing and may be created.
fn create_directory(env: &Env, path: &Path, options: &Options, read_only: bool) -> Result<()> {
    if env.files.exists(path)? {
        return Ok(());
    }
    if read_only || !options.create_if_missing {
        return Err(Error::invalid(format!(
            "there is no store in {}: the folder does not exist; check the path, or create the \
             store first",
            path.display()
        )));
    }
    folder::create(env, path)
}

/// What keeps other writers out, or a writer from removing what this handle reads.
type Held = (Option<Box<dyn Lock>>, Option<Box<dyn Pin>>);

/// Checks that there is a store in the held directory, or that one can be created, and locks it, or
/// pins all of it.
fn prepare_folder(env: &Env, path: &Path, options: &Options, read_only: bool) -> Result<Held> {
    if !env.files.exists(&path.join(names::CURRENT))? {
        // Before the lock, so that a folder that is no store gets no lock file. Where there is one,
        // another process may be making the store: with the lock held it is checked again.
        match check_is_new(env, path, &listing(env, path)?, options, read_only) {
            Err(_) if env.files.exists(&path.join(names::LOCK))? => {}
            checked => checked?,
        }
        // The process that created the directory may have died before its name was durable.
        folder::create(&options.env, path)?;
    }
    let lock = path.join(names::LOCK);
    match read_only {
        true => Ok((None, env.files.pin(&lock, 0)?)),
        false => Ok((Some(env.lock(&lock, options.lock_wait)?), None)),
    }
}

type Listing = Vec<(String, Option<FileKind>)>;

fn listing(env: &Env, folder: &Path) -> Result<Listing> {
    let entries = env.files.read_dir(folder)?;
    let kind = |name: &str, is_directory| if is_directory { None } else { names::parse(name) };
    Ok(entries.into_iter().map(|e| (e.name.clone(), kind(&e.name, e.is_directory))).collect())
}

fn id_of(kind: Option<FileKind>) -> Option<u64> {
    match kind? {
        FileKind::Manifest(id) | FileKind::Log(id) | FileKind::Table(id) | FileKind::Blob(id) => {
            Some(id)
        }
        FileKind::Current | FileKind::CurrentNew | FileKind::Lock | FileKind::Reserved => None,
    }
}

/// An error unless the folder, which has no `CURRENT`, is empty or was left by a creation that did
/// not come to its end. In such a folder no write was ever acknowledged.
fn check_is_new(
    env: &Env,
    folder: &Path,
    listing: &Listing,
    options: &Options,
    read_only: bool,
) -> Result<()> {
    for (name, kind) in listing {
        let path = folder.join(name);
        match kind {
            None if name == "lost+found" || names::existence_of(name).is_some() => {}
            None | Some(FileKind::Reserved) => {
                return Err(Error::invalid(format!(
                    "{} is not a store: it has no CURRENT, but holds other files ('{name}'); \
                     name an empty folder or one that does not exist",
                    folder.display()
                )));
            }
            Some(FileKind::Manifest(id)) if !holds_data(env, &path, *id)? => {}
            Some(
                FileKind::Manifest(_) | FileKind::Log(_) | FileKind::Table(_) | FileKind::Blob(_),
            ) => {
                let reason =
                    format!("CURRENT is missing, but '{name}' shows that there is a store");
                return Err(Error::corruption(&folder.join(names::CURRENT), 0, reason));
            }
            Some(FileKind::Current | FileKind::CurrentNew | FileKind::Lock) => {}
        }
    }
    if read_only || !options.create_if_missing {
        return Err(Error::invalid(format!(
            "there is no store in {}: the folder has no CURRENT; check the path, or create the \
             store first",
            folder.display()
        )));
    }
    Ok(())
}

/// Notes in `state` the id above every one that was given. Removes the files of opens that were
/// killed where a state was `found`, unless the store is only read.
fn take_stock(
    env: &Env,
    folder: &Path,
    listing: &Listing,
    state: &mut State,
    found: bool,
    read_only: bool,
) -> Result<()> {
    let first_free = first_free_id(env, folder, listing, state, read_only)?;
    let known = std::mem::replace(&mut state.next_file_id, first_free);
    if found && !read_only {
        let kinds: Vec<FileKind> = listing.iter().filter_map(|(_, kind)| *kind).collect();
        reserve::remove_left_files(env, folder, &kinds, known);
    }
    Ok(())
}

/// The id above every one that was given, where the manifest says that it was below `known`.
fn first_free_id(
    env: &Env,
    folder: &Path,
    listing: &Listing,
    state: &State,
    read_only: bool,
) -> Result<u64> {
    let known = state.next_file_id;
    let highest = listing.iter().filter_map(|(_, kind)| id_of(*kind)).max().unwrap_or(0);
    if highest > names::ID_MAX / 2 {
        return Err(Error::invalid(format!(
            "{} holds a file with the number {highest}, which no store reaches and which leaves \
             too few numbers for new files; move it away",
            folder.display()
        )));
    }
    match check_logs_are_named(env, folder, listing, state) {
        // A writer has made that log since the manifest was read.
        Err(_) if read_only && names_more(env, folder, listing, state)? => {}
        checked => checked?,
    }
    #[cfg(feature = "canary")]
    if umbel_base::canary::Switch::ReusedFileId.is_on() {
        return Ok(known);
    }
    Ok(known.max(highest + 1))
}

/// An error where a log that is newer than all the manifest knows holds a record. Its edit was
/// durable before the first record, so the manifest has lost its end, and the log is not to be
/// removed. A copy that recovery made is named only when it is whole, and its originals stay till
/// then.
fn check_logs_are_named(env: &Env, folder: &Path, listing: &Listing, state: &State) -> Result<()> {
    let secret = hashers(state)?.secret;
    for (name, kind) in listing {
        let Some(FileKind::Log(id)) = *kind else { continue };
        if id < state.next_file_id {
            continue;
        }
        let path = folder.join(name);
        let mut reader = wal::read(env, &path, &secret, id, Expectation::Open)?;
        if let Some(record) = reader.next()?.filter(|record| !relog::begins_copy(record)) {
            let reason = "the log holds writes, but the manifest does not name it: the end of the \
                          manifest is lost";
            return Err(Error::corruption(&path, record.offset, reason));
        }
    }
    Ok(())
}

/// Whether the manifest as it is now names each log that is newer than all that `state` knows.
fn names_more(env: &Env, folder: &Path, listing: &Listing, state: &State) -> Result<bool> {
    let Some(now) = Manifest::read(env, folder)? else { return Ok(false) };
    let is_log = |kind: &Option<FileKind>| matches!(kind, Some(FileKind::Log(_)));
    let logs = listing.iter().filter(|(_, kind)| is_log(kind)).filter_map(|(_, k)| id_of(*k));
    Ok(logs.filter(|id| *id >= state.next_file_id).all(|id| id < now.next_file_id))
}

/// Whether a manifest without a `CURRENT` says more than the first record of a new store.
fn holds_data(env: &Env, path: &Path, id: u64) -> Result<bool> {
    let mut reader = LogReader::open(env, path, LogKind::Manifest, id, Expectation::Open)?;
    let mut records = 0;
    while let Some(record) = reader.next()? {
        records += 1;
        let Ok(edits) = crate::version::edit::decode_record(record.payload) else {
            return Ok(true);
        };
        let mut state = State::default();
        let fits = edits.iter().try_for_each(|edit| state.apply(edit)).is_ok();
        if records > 1 || !fits || state.next_keyspace_id > 0 || !state.logs.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn new_state(env: &Env) -> Result<State> {
    let (store_id, hash_seed) = (env.entropy.id()?, env.entropy.id()?);
    let identity = Identity { store_id, hash_seed, seed_id: 1, features: 0 };
    Ok(State { identity: Some(identity), next_file_id: 1, ..State::default() })
}

fn hashers(state: &State) -> Result<Hashers> {
    let missing = || Error::invalid("internal: a state without an identity");
    let identity = state.identity.as_ref().ok_or_else(missing)?;
    Hashers::new(identity.hash_seed, identity.seed_id)
}

fn build_keyspaces(
    state: &State,
    context: &Arc<TableContext>,
    caps: Caps,
) -> Result<Vec<Arc<KeyspaceCore>>> {
    let build = |(&id, record): (&u32, &KeyspaceRecord)| {
        let version = build_version(record, context)?;
        let options = record.options.clone();
        let (name, keys) = (record.name.clone(), context.hashers.of(options.hash).keys);
        let core = KeyspaceCore::new(id, name, options, keys, caps, version);
        if let Some(marker) = &record.marker {
            core.set_durable_marker(marker.clone());
        }
        if let Some(evidence) = &record.evidence {
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
            added.push((level, Arc::new(TableFile::new(meta.clone(), level, hash, context))));
        }
    }
    Version::default().apply(&[], &added)
}

/// Removes files that no durable manifest names and, of long values, those that nothing points at
/// that was replayed either. One that stays is tried again at the next open.
fn remove_orphans(listing: &Listing, manifest: &Manifest, context: &TableContext) {
    let state = manifest.state();
    let live_tables: std::collections::HashSet<u64> = state
        .keyspaces
        .values()
        .flat_map(|record| record.levels.iter().flatten().map(|meta| meta.id))
        .collect();
    remove_manifests(listing, Some(manifest.id()), context);
    for (name, kind) in listing {
        let orphan = match kind {
            Some(FileKind::Log(id)) => !state.logs.contains_key(id),
            Some(FileKind::Table(id)) => !live_tables.contains(id),
            Some(FileKind::Blob(id)) => !context.blobs.is_held(*id),
            _ => false,
        };
        if orphan {
            context.obsolete.remove(&context.folder.join(name));
        }
    }
}

/// Removes the manifests that `CURRENT` does not name.
fn remove_manifests(listing: &Listing, current: Option<u64>, context: &TableContext) {
    for (name, kind) in listing {
        if matches!(kind, Some(FileKind::Manifest(id)) if Some(*id) != current) {
            context.obsolete.remove(&context.folder.join(name));
        }
    }
}

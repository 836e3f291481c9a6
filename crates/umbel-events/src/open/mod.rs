//! Opening a store: recovers the end of each chunk, then indexes the events that the index lacks.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

use umbel::{Durability, FlushPrecondition, Options};
use umbel_base::damage_count::DamageCount;
use umbel_base::fail_point;
use umbel_base::ignore_poison::IgnorePoison;
use umbel_env::{
    Access, AtomicFile, Env, JobThread, OpenMark, OwnershipCheckedFiles, PinnedFiles, check_path,
};
use umbel_filter::HashSecret;
use umbel_log::{ExpectedEnd, HEADER_BYTES};
use umbel_slots::LogPoint;

use crate::append::ack_callbacks::AckCallbacks;
use crate::append::append_plan;
use crate::append::appender::Appender;
use crate::append::index_commit::IndexCommit;
use crate::append::recent_event_ids::RecentEventIds;
use crate::event_log::chunk_manifest::{
    ChunkEnd, ChunkEntry, ChunkManifest, chunk_directory, chunk_path, open_error,
};
use crate::event_log::chunk_scan::{ChunkScan, scan_chunk, torn_bytes};
use crate::event_log::replica_file::{ReplicaRecord, ReplicatedLog, check_not_replica};
use crate::event_log::{ChunkWriter, EventLog};
use crate::index::Index;
use crate::index::index_batch::IndexBatch;
use crate::index::index_changes::IndexChanges;
use crate::index::index_marker::IndexMarker;
use crate::index::stream_existence::StreamExistence;
use crate::index::stream_head::StreamHead;
use crate::open::folder_kind::check_folder_kind;
use crate::open::replica_recovery::{OpenChunk, RecoveredReplica};
use crate::primitives::background_signal::BackgroundSignal;
use crate::primitives::exclusive_task::ExclusiveTask;
use crate::primitives::store_clock::{ClockEvidence, StoreClock};
use crate::scavenge::index_cleanup;
use crate::scavenge::removed_view_entries::RemovedViewEntries;
use crate::shared_store_state::StoreInner;
use crate::store_components::{StoreComponents, sync_log};
use crate::types::crash_recovery::CrashRecovery;
use crate::types::error::{Error, Result};
use crate::types::nested_store_check::check_not_nested;
use crate::types::store_options::StoreOptions;
use crate::visibility::index_gate::IndexGate;
use crate::visibility::visible_position::VisiblePosition;

pub mod accept_clock;
pub mod background_thread;
pub mod clock_confirmation;
pub mod folder_kind;
pub mod open_read_only;
pub mod repair_marker;
pub mod replica_recovery;

/// Name of the lock file, in which readers pin versions.
pub const LOCK_FILE: &str = "LOCK";
/// Suffix of the file names of chunks that are not part of the log but contain events.
const LEFT_OUT: &str = "chunk.left-out";
/// Number of events that the catch-up indexes at a time.
const CATCH_UP_EVENTS: usize = 4096;

/// Authority over the contents of a store's event log.
#[derive(Debug, Clone, Copy)]
pub enum LogAuthority {
    /// The store itself: its log has what was appended.
    Appends,
    /// Slots, which have the log up to this point, as the caller knows.
    Slots(LogPoint),
    /// The slots of this replicated log. The directory records the last applied one.
    RecordedSlots(ReplicatedLog),
}

/// Recovered event log of a store.
struct RecoveredLog {
    /// Decides how much of the log exists.
    gate: IndexGate,
    /// Work on chunks after a crash.
    work: Option<CrashRecovery>,
    /// The last applied slot of a replica.
    replica: Option<Arc<ReplicaRecord>>,
    /// The chunk of a replica that goes on.
    open_chunk: Option<OpenChunk>,
}

/// Opens the store in a folder. `authority` decides how much of its log exists.
pub fn open(
    folder: &Path,
    options: StoreOptions,
    authority: LogAuthority,
) -> Result<Arc<StoreInner>> {
    check_path("the event store", folder)?;
    options.validate()?;
    let outside = &options.env;
    let folder = &*outside.files.absolute(folder)?;
    if !check_openable(outside, folder, &options, false)? {
        create_folders(outside, folder)?;
    }
    let (env, root) = own_directory_env(outside, folder)?;
    let lock = env.lock(&folder.join(LOCK_FILE), options.lock_wait)?;
    let kept = Arc::new(PinnedFiles::new(Arc::clone(&env.files), Some(lock)));
    // Another process may have created it meanwhile.
    let exists = check_openable_locked(&env, folder, &options)?;
    repair_marker::check_no_repair(&env, folder)?;
    list_own_files(&env, folder)?;
    let mut manifest = match exists {
        true => ChunkManifest::read_for_writer(&env, folder, root)?,
        false => create(&env, folder, root, authority)?,
    };
    let start = env.clock.now();
    let recovered = recover_log(&env, folder, &mut manifest, &kept, authority)?;
    if options.accept_clock {
        clock_confirmation::confirm_clock(&env, folder, &mut manifest)?;
    }
    let mark = manifest.clock;
    let RecoveredLog { gate, work, replica, open_chunk } = recovered;
    let shape = (options.chunk_bytes, options.durability == Durability::Synced);
    let log = Arc::new(EventLog::new(&env, folder.to_path_buf(), shape, manifest, kept));
    let writer = match open_chunk {
        Some(OpenChunk { entry, end, last_event }) => {
            ChunkWriter::resume(log.resume_chunk(&entry, (end, last_event))?, last_event)
        }
        None => ChunkWriter::default(),
    };
    let parts = open_components(folder, &options, (env, log), (gate, replica))?;
    let CatchUp { next_created: last_created, events, last } = catch_up(&parts)?;
    let crash_recovery = work.map(|work| work.complete(events, start, &*parts.env.clock));
    start_clock(&parts, ClockEvidence { last_created, mark }, options.accept_clock);
    parts.log.clock.get_or_init(|| Arc::clone(parts.clock()));
    index_cleanup::remove_orphan_files(&parts)?;
    index_cleanup::finish_interrupted(&parts)?;
    let seed = parts.log.manifest.lock().ignore_poison().seed;
    let window = load_recent_ids(&parts, last, HashSecret::from_seed(seed))?;
    let shared = build_inner(parts, window, last_created, crash_recovery);
    if let Some(appender) = &mut *shared.appender.lock().ignore_poison() {
        appender.chunk_writer = writer;
    }
    if options.background_threads > 0 {
        background_thread::start(&shared)?;
    }
    Ok(shared)
}

/// Recovers the event log: its chunks, and how much of it exists.
fn recover_log(
    env: &Env,
    folder: &Path,
    manifest: &mut ChunkManifest,
    kept: &PinnedFiles,
    authority: LogAuthority,
) -> Result<RecoveredLog> {
    let gate = match authority {
        LogAuthority::Appends => IndexGate::default(),
        LogAuthority::Slots(in_slots) => IndexGate::replicated(in_slots),
        LogAuthority::RecordedSlots(log) => {
            let RecoveredReplica { record, in_slots, open_chunk } =
                replica_recovery::recover_replica(env, folder, manifest, &log)?;
            check_files(env, folder, manifest)?;
            let (gate, replica) = (IndexGate::replicated(in_slots), Some(Arc::new(record)));
            return Ok(RecoveredLog { gate, work: None, replica, open_chunk });
        }
    };
    check_not_replica(env, folder)?;
    let work = recover_chunks(env, folder, manifest, kept)?;
    if manifest.instance == [0; 16] {
        manifest.instance = env.entropy.id()?;
        manifest.write(env, folder)?;
    }
    check_files(env, folder, manifest)?;
    Ok(RecoveredLog { gate, work, replica: None, open_chunk: None })
}

/// Opens the index and the filter of stream names, which the log may be ahead of.
fn open_components(
    folder: &Path,
    options: &StoreOptions,
    (env, log): (Env, Arc<EventLog>),
    (gate, replica): (IndexGate, Option<Arc<ReplicaRecord>>),
) -> Result<StoreComponents> {
    let seed = log.manifest.lock().ignore_poison().seed;
    let failed = Arc::clone(&log.fatal_error);
    let index_options = index_options(options, &env, (&log, replica.as_ref()), &failed);
    let size = (options.existence, seed);
    let existence = StreamExistence::open(&env, &folder.join("existence"), size, &log)?;
    let index = Index::open(&folder.join("index"), index_options, false, seed);
    // The remains of an index that failed to open may hold the log for a moment.
    let index = index.inspect_err(|_| log.pinned_files.release_lock())?;
    Ok(StoreComponents {
        folder: folder.to_path_buf(),
        read_only: false,
        sync_before_ack: options.durability == Durability::Synced,
        log_quota_bytes: options.log_quota_bytes,
        log,
        index,
        existence,
        visible: VisiblePosition::new(gate),
        replica,
        background: BackgroundSignal::default(),
        damage: DamageCount::default(),
        fatal_error: failed,
        open_mark: OpenMark::new(),
        clock: OnceLock::new(),
        pin: Mutex::default(),
        env,
        outer_env: options.env.clone(),
    })
}

/// Returns the environment of the store's open directory, in which this process changes only its
/// own files. Also returns the directory's chunk manifest.
pub fn own_directory_env(outside: &Env, folder: &Path) -> Result<(Env, Arc<AtomicFile>)> {
    let held = outside.fork_guarded().open_directory(folder)?;
    let root = ChunkManifest::atomic_file(&held, folder);
    let files =
        OwnershipCheckedFiles::new(Arc::clone(&held.files), Arc::<AtomicFile>::clone(&root));
    Ok((Env { files: Arc::new(files), ..held }, root))
}

/// Lists the files that this process finds at the open, which count as its own from then on.
pub fn list_own_files(env: &Env, folder: &Path) -> Result<()> {
    env.files.create_dir_all(&chunk_directory(folder))?;
    for directory in [folder, &chunk_directory(folder)] {
        env.files.read_dir(directory)?;
    }
    Ok(())
}

/// Starts the clock of a store that knows this about the time.
pub fn start_clock(parts: &StoreComponents, known: ClockEvidence, is_confirmed: bool) {
    let clock = || Arc::new(StoreClock::new(Arc::clone(&parts.env.clock), known, is_confirmed));
    parts.clock.get_or_init(clock);
}

/// Builds the state that a store's handles share. `window` has the ids of the newest events;
/// `last_created` is the time of the last append.
pub fn build_inner(
    parts: StoreComponents,
    window: RecentEventIds,
    last_created: u64,
    crash_recovery: Option<CrashRecovery>,
) -> Arc<StoreInner> {
    let appender = Appender::new(&parts, window, last_created);
    Arc::new(StoreInner {
        components: parts,
        callbacks: AckCallbacks::default(),
        appender: Mutex::new(Some(appender)),
        index_lock: Mutex::default(),
        scavenge_task: ExclusiveTask::default(),
        scavenge_thread: JobThread::new("umbel-scavenge"),
        flush_lock: Mutex::default(),
        background_thread: Mutex::default(),
        crash_recovery,
    })
}

/// Whether the folder holds a store; an error if the store must not be opened or created.
pub fn check_openable(
    env: &Env,
    folder: &Path,
    options: &StoreOptions,
    read_only: bool,
) -> Result<bool> {
    let exists = ChunkManifest::exists(env, folder)?;
    let shown = folder.display();
    if read_only && !exists {
        check_folder_kind(env, folder)?;
        return Err(Error::invalid(format!("there is no event store in {shown}")));
    }
    if !exists {
        check_folder_kind(env, folder)?;
        check_not_nested(env, folder)?;
        check_new(env, folder, options)?;
    } else if !read_only {
        check_may_exist(folder, options)?;
    }
    Ok(exists)
}

/// Like [`check_openable`], for the directory that is already open and locked.
pub fn check_openable_locked(env: &Env, folder: &Path, options: &StoreOptions) -> Result<bool> {
    let exists = ChunkManifest::exists(env, folder)?;
    match exists {
        true => check_may_exist(folder, options)?,
        false => {
            check_folder_kind(env, folder)?;
            check_new(env, folder, options)?;
        }
    }
    Ok(exists)
}

fn check_may_exist(folder: &Path, options: &StoreOptions) -> Result<()> {
    match options.error_if_exists {
        true => Err(Error::invalid(format!(
            "{} holds an event store already; name another directory",
            folder.display()
        ))),
        false => Ok(()),
    }
}

/// Creates the folder and its parents, and makes their names durable, before a manifest exists.
/// Without this, power loss could remove the name of a store that was reported as created.
fn create_folders(env: &Env, folder: &Path) -> Result<()> {
    let mut missing = 0;
    for level in folder.ancestors() {
        if level.as_os_str().is_empty() || env.files.exists(level)? {
            break;
        }
        missing += 1;
    }
    env.files.create_dir_all(&chunk_directory(folder))?;
    for (number, parent) in folder.ancestors().filter_map(Path::parent).enumerate() {
        let synced = env.files.sync_dir(parent);
        // Existing parents may be unsynced remains of another process, or not accessible.
        if number <= missing {
            synced?;
        }
    }
    Ok(())
}

/// Returns an error where no store can be created in the folder.
fn check_new(env: &Env, folder: &Path, options: &StoreOptions) -> Result<()> {
    let shown = folder.display();
    if !options.create_if_missing {
        return Err(Error::invalid(format!(
            "there is no event store in {shown}; name the directory of an event store, or open \
             with create_if_missing"
        )));
    }
    if !env.files.exists(folder)? {
        return Ok(());
    }
    // Remains of an earlier attempt to create a store may stay.
    // Another process may be creating the store: the check is repeated under the lock.
    let own_names = [LOCK_FILE, "log", "index", "existence", "CHUNKS.new", "CHUNKS"];
    let entries = env.files.read_dir(folder)?;
    if let Some(other) = entries.iter().find(|entry| !own_names.contains(&&entry.name[..])) {
        return Err(Error::invalid(format!(
            "{shown} is not an event store: the directory holds '{}', which is not a file of an \
             event store; name an empty directory or a directory that does not exist",
            other.name
        )));
    }
    Ok(())
}

fn create(
    env: &Env,
    folder: &Path,
    root: Arc<AtomicFile>,
    authority: LogAuthority,
) -> Result<ChunkManifest> {
    let created = match authority {
        LogAuthority::RecordedSlots(log) => ChunkManifest::new(log.seed, env.entropy.id()?),
        LogAuthority::Appends | LogAuthority::Slots(_) => ChunkManifest::create(env)?,
    };
    let mut manifest = ChunkManifest { root: Some(root), ..created };
    manifest.write(env, folder)?;
    Ok(manifest)
}

fn index_options(
    options: &StoreOptions,
    env: &Env,
    (log, replica): (&Arc<EventLog>, Option<&Arc<ReplicaRecord>>),
    failed: &Arc<OnceLock<String>>,
) -> Options {
    let (log, failed, replica) = (Arc::clone(log), Arc::clone(failed), replica.cloned());
    // A table of the index may only contain events that are durable in the log, and in slots that
    // a replica has recorded.
    let before_flush = Some(FlushPrecondition::new(move || {
        sync_log(&log, &failed)?;
        replica.as_ref().map_or(Ok(()), |replica| replica.write())
    }));
    Options { before_flush, env: env.clone(), ..options.index_options() }
}

/// Finds and records the ends of the chunks that were in use when the process or the machine died.
/// Removes chunks without events. Returns the work on the chunks; `None` if no chunk was in use.
pub fn recover_chunks(
    env: &Env,
    folder: &Path,
    manifest: &mut ChunkManifest,
    kept: &PinnedFiles,
) -> Result<Option<CrashRecovery>> {
    check_no_newer_chunk(env, folder, manifest)?;
    let ends = recover_ends(env, folder, manifest.open_chunks(folder)?)?;
    if ends.is_empty() {
        return Ok(None);
    }
    let mut recovery = CrashRecovery { chunks: ends.len(), ..CrashRecovery::default() };
    let mut left = Vec::new();
    for (entry, RecoveredEnd { ended, has_records_after_end: has_more, .. }) in
        manifest.chunks.iter_mut().rev().zip(ends.iter().rev())
    {
        if *has_more {
            // Damage looks like the effect of power loss: bytes that may be events are not
            // truncated.
            left.extend((ended.last_event == 0).then_some(entry.id));
        } else {
            let file = env.files.open(&chunk_path(folder, entry.id), Access::ReadWrite)?;
            if !file.has_other_names()? {
                recovery.bytes_cut += torn_bytes(&*file, ended.file_bytes().max(HEADER_BYTES))?;
                file.set_len(ended.file_bytes().max(HEADER_BYTES))?;
                file.sync()?;
            }
        }
        entry.ended = Some(*ended);
    }
    let mut empty = manifest.remove_empty();
    empty.retain(|id| !left.contains(id));
    manifest.write(env, folder)?;
    for id in empty {
        kept.remove(&chunk_path(folder, id), manifest.previous_generation());
    }
    for id in left {
        let path = chunk_path(folder, id);
        let left_out = path.with_extension(LEFT_OUT);
        env.files.rename(&path, &left_out)?;
        recovery.files_left_out.push(left_out);
    }
    Ok(Some(recovery))
}

/// Recovered end of a chunk that was in use.
#[derive(Debug, Clone, Copy)]
pub struct RecoveredEnd {
    /// End of the valid part of the chunk.
    pub ended: ChunkEnd,
    /// Whether bytes after the end may be events.
    pub has_records_after_end: bool,
}

/// Finds the ends of chunks that the manifest lists without an end.
pub fn recover_ends(env: &Env, folder: &Path, chunks: &[ChunkEntry]) -> Result<Vec<RecoveredEnd>> {
    let mut whole = true;
    let mut ends = Vec::with_capacity(chunks.len());
    for entry in chunks {
        let read = scan_chunk(env, folder, entry, ExpectedEnd::Open)?;
        let ended = chunk_end(folder, entry, &read, whole)?;
        whole &= read.outcome.sealed;
        let has_more = read.has_records_after_end || ended.last_event < read.last_event;
        ends.push(RecoveredEnd { ended, has_records_after_end: has_more });
    }
    Ok(ends)
}

/// Returns an error where a chunk has events that the manifest does not know, so that the manifest
/// is an older copy.
pub fn check_no_newer_chunk(env: &Env, folder: &Path, manifest: &ChunkManifest) -> Result<()> {
    let (id, start) = (manifest.next_id, manifest.next_start);
    let path = chunk_path(folder, id);
    if !env.files.exists(&path)? {
        return Ok(());
    }
    let entry = ChunkEntry { id, start, capacity: 0, key: 0, ended: None, scavenged: None };
    if scan_chunk(env, folder, &entry, ExpectedEnd::Open)?.outcome.records == 0 {
        // The process or the machine died before the manifest listed the new chunk.
        return Ok(());
    }
    let reason = format!(
        "{} holds events that the chunk manifest does not know: the manifest is an older copy",
        path.display()
    );
    Err(umbel::Error::corruption(&folder.join("CHUNKS"), 0, reason).into())
}

/// Returns the end of a chunk, given its contents and whether all chunks before it were complete.
fn chunk_end(folder: &Path, entry: &ChunkEntry, scan: &ChunkScan, whole: bool) -> Result<ChunkEnd> {
    fail_point!("events-accept-events-after-gap", |_| Ok(scan.end()));
    if whole {
        return Ok(scan.end());
    }
    let outcome = scan.outcome;
    if outcome.durable_max > HEADER_BYTES {
        let path = chunk_path(folder, entry.id);
        let reason = format!(
            "events here had been made durable, but the chunk before them is torn: {} bytes of \
             the event log are lost at its end",
            entry.start
        );
        return Err(umbel::Error::corruption(&path, outcome.durable_max, reason).into());
    }
    // After a gap nothing counts: these pages reached the disk before those of the previous chunk.
    Ok(ChunkEnd::EMPTY)
}

/// Returns an error where a file is missing or shorter than the manifest says.
pub fn check_files(env: &Env, folder: &Path, manifest: &ChunkManifest) -> Result<()> {
    for entry in &manifest.chunks {
        let Some(ended) = entry.ended else { continue };
        let path = entry.path(folder);
        let opened = env.files.open(&path, Access::Read);
        let file = opened.map_err(|error| open_error(&path, error))?;
        let len = file.len()?;
        let wanted = entry.scavenged.map_or(ended.file_bytes(), |scavenged| scavenged.file_bytes);
        if len < wanted {
            let reason = format!("the file ends here, but this chunk has {wanted} bytes");
            return Err(umbel::Error::corruption(&path, len, reason).into());
        }
    }
    Ok(())
}

/// Result of [`catch_up`].
#[derive(Debug, Clone, Copy)]
pub struct CatchUp {
    /// Time that the next event gets at least.
    pub next_created: u64,
    /// Number of events that the index, or the filter of stream names, lacked.
    pub events: u64,
    /// Position of the last event that the index has; `None` without events.
    pub last: Option<u64>,
}

/// Position of the last event that the gate permits to index; `None` without events.
fn last_permitted(parts: &StoreComponents) -> Result<Option<u64>> {
    let Some(gate) = parts.visible.gate.as_replicated() else {
        return Ok(parts.log.last_position());
    };
    let in_slots = gate.in_slots().offset;
    let mut cursor = parts.log.cursor();
    let last = cursor.seek_before(in_slots)?;
    let end = match last {
        Some(last) => {
            let frame = cursor.event_at(last)?;
            frame.meta.ends_append.then_some(last + frame.bytes as u64)
        }
        None => Some(0),
    };
    if end == Some(in_slots) {
        return Ok(last);
    }
    Err(Error::invalid(format!(
        "the acknowledged slots end at position {in_slots}, where no record of the event log ends"
    )))
}

/// Indexes the events that the index lacks, as far as the gate permits.
pub fn catch_up(parts: &StoreComponents) -> Result<CatchUp> {
    let last = last_permitted(parts)?;
    let through = parts.index.durable_through()?;
    let streams_through = parts.index.streams_through()?;
    let indexed_through = streams_through.max(parts.index.views_through()?);
    if parts.existence.covered_position() != u64::MAX {
        parts.existence.truncate(&parts.log, last.unwrap_or(0))?;
    }
    check_index_lineage(parts, last.unwrap_or(0))?;
    check_index_not_ahead(parts, (streams_through, indexed_through), last.unwrap_or(0))?;
    let Some(last) = last else {
        RemovedViewEntries::new(parts).apply_before(parts, u64::MAX)?;
        let next_created = parts.log.epochs.next_created_min((0, 0));
        return Ok(CatchUp { next_created, events: 0, last: None });
    };
    let mut cursor = parts.log.cursor();
    let created = cursor.event_at(last)?.meta.created;
    let created = parts.log.epochs.next_created_min((last, created));
    // The filter may lack indexed events; a rebuilt filter reads those from the index.
    let through = match parts.existence.needs_rebuild() {
        true => through,
        false => through.min(parts.existence.covered_position()),
    };
    let commit = IndexCommit::begin(parts)?;
    if through >= last {
        commit.finish(last, std::iter::empty())?;
        return Ok(CatchUp { next_created: created, events: 0, last: Some(last) });
    }
    let mut events = 0;
    let mut next = match through {
        0 => cursor.seek(0)?,
        _ => match cursor.find_event(through)?.map(|frame| frame.next_distance()) {
            Some(step) => cursor.next_position(through, step)?,
            None => cursor.seek(through + 1)?,
        },
    };
    let mut heads: HashMap<String, StreamHead> = HashMap::new();
    let mut changes = IndexChanges::default();
    let (mut gaps, mut before) = (RemovedViewEntries::new(parts), through);
    while let Some(position) = next.filter(|next| *next <= last) {
        if gaps.has_run_before(parts, position)? {
            apply_changes(&commit, parts, &mut changes, (streams_through, before))?;
            heads.clear();
            gaps.apply_before(parts, position)?;
        }
        before = position;
        let frame = cursor.event_at(position)?;
        events += 1;
        let head = match replayed_head(&heads, frame.stream) {
            Some(head) => Some(head),
            None => parts.index.head(frame.stream)?,
        };
        let hash = parts.existence.hash(frame.stream);
        let head = append_plan::replay_event(&mut changes, head, &frame, hash);
        heads.insert(frame.stream.to_string(), head);
        let step = frame.next_distance();
        next = cursor.next_position(position, step)?;
        if changes.len() >= CATCH_UP_EVENTS || next.is_none_or(|next| next > last) {
            apply_changes(&commit, parts, &mut changes, (streams_through, position))?;
            heads.clear();
        }
    }
    gaps.apply_before(parts, u64::MAX)?;
    commit.finish(last, std::iter::empty())?;
    Ok(CatchUp { next_created: created, events, last: Some(last) })
}

/// Returns the head that the stream gets from replayed events which the index lacks.
fn replayed_head(heads: &HashMap<String, StreamHead>, stream: &str) -> Option<StreamHead> {
    fail_point!("events-forget-replayed-heads", |_| None);
    heads.get(stream).copied()
}

/// Applies changes to the index, which already has the streams up to the first position. Afterwards
/// the index has everything up to the second position.
fn apply_changes(
    commit: &IndexCommit<'_>,
    parts: &StoreComponents,
    changes: &mut IndexChanges,
    (held, position): (u64, u64),
) -> Result<()> {
    if position > held && !changes.is_empty() {
        let mut batch = IndexBatch::new(&parts.index);
        commit.commit_changes(&mut batch, changes.iter(), position)?;
    } else {
        commit.update_views_and_filter(changes.iter());
    }
    changes.clear();
    if parts.read_only {
        return check_memory(parts, position);
    }
    if parts.index.views.needs_flush() {
        parts.index.flush(&parts.log, position)?;
    }
    Ok(())
}

/// Returns an error if a reader, which cannot flush its index, has no memory for more index
/// entries.
fn check_memory(parts: &StoreComponents, position: u64) -> Result<()> {
    if !parts.index.exceeds_memory() {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the index of {} ends at position {}; indexing the events up to position {position} in \
         memory takes half of memory_bytes, but a read-only handle cannot write the index: raise \
         memory_bytes, or open the store for writing once",
        parts.folder.display(),
        parts.index.durable_through()?
    )))
}

/// Returns an error if the index was derived from another log than this one, whose last event is at
/// `last`. The other log belongs to another store or to a diverged copy. An index of another log
/// would hide existing events. [`check_index_not_ahead`] detects an index that holds more than the
/// log.
fn check_index_lineage(parts: &StoreComponents, last: u64) -> Result<()> {
    for IndexMarker { position, key } in parts.index.markers()? {
        if parts.log.is_lineage_of(position, key)?
            || (position > last && parts.log.chunk_at(position).is_none())
        {
            continue;
        }
        let reason = format!(
            "the index does not belong to this event log: it holds events up to position \
             {position} of another store, or of a diverged copy of this store; put this store's \
             index back, or move this directory away: the next open then rebuilds the index from \
             the event log"
        );
        return Err(umbel::Error::corruption(&parts.folder.join("index"), 0, reason).into());
    }
    Ok(())
}

/// Returns an error if the index holds more than the log, whose last event is at `last`. Views may
/// also cover removed events after `last`.
fn check_index_not_ahead(
    parts: &StoreComponents,
    (streams, indexed_through): (u64, u64),
    last: u64,
) -> Result<()> {
    if parts.visible.gate.as_replicated().is_some() && indexed_through > last {
        return Err(Error::invalid(format!(
            "the index holds events up to position {indexed_through}, but the acknowledged slots \
             end after {last}: a follower must apply later slots first, which it cannot yet"
        )));
    }
    if indexed_through <= last
        || (streams <= last && indexed_through <= parts.log.last_removed_run()?)
    {
        return Ok(());
    }
    let reason = format!(
        "the index holds events up to position {indexed_through}, but the event log ends at \
         {last}: the event log is an older copy or was truncated; restore the event log, or \
         remove this directory: the next open then rebuilds the index"
    );
    Err(umbel::Error::corruption(&parts.folder.join("index"), 0, reason).into())
}

/// Loads the ids of the newest events, of which the last one is at `last`.
fn load_recent_ids(
    parts: &StoreComponents,
    last: Option<u64>,
    secret: HashSecret,
) -> Result<RecentEventIds> {
    fail_point!("events-lose-recent-ids", |_| Ok(RecentEventIds::new(secret)));
    let mut window = RecentEventIds::new(secret);
    let mut newest = Vec::new();
    let mut cursor = parts.log.cursor();
    let mut next = last;
    let (mut events, mut bytes) = (0, 0);
    while let Some(position) = next {
        let frame = cursor.event_at(position)?;
        // The events and bytes after each append decide. Positions do not: unused capacities of
        // chunks lie between them.
        if frame.meta.ends_append && RecentEventIds::is_expired(events, bytes) {
            break;
        }
        events += 1;
        bytes += frame.bytes as u64;
        let place = (position, frame.bytes as u64);
        let ends_append = frame.meta.ends_append;
        let deleted =
            append_plan::deleted_stream(&frame).map(|stream| parts.existence.hash(stream));
        let stream = parts.existence.hash(frame.stream);
        newest.push((stream, frame.event.id, place, ends_append, deleted));
        let back = frame.meta.back;
        next = cursor.previous_position(position, back)?;
    }
    let mut begins = true;
    for (stream, id, place, ends_append, deleted) in newest.into_iter().rev() {
        if begins {
            window.begin_append(place.0);
        }
        window.insert(stream, id, place);
        if let Some(stream) = deleted {
            window.insert_deletion(stream, place.0);
        }
        begins = ends_append;
    }
    Ok(window)
}

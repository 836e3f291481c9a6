//! Opens a store for reading only, beside a writer of another process or without one.
//!
//! 1. The reader pins version 0 in the lock file. From then on, the writer keeps every file that a
//!    reader may know: see [`umbel_env::PinnedFiles`]. A version is the generation of a chunk
//!    manifest.
//! 2. The reader opens the index, which pins a version of its own, then reads the chunk manifest.
//!    The writer makes an event durable before the index holds the event. So the log that the
//!    reader finds has every event that the index has.
//! 3. The reader reads the chunks without an end in the manifest while the writer may append to
//!    them. The result is a prefix of the log with each event that was acknowledged before the
//!    open: see [`scan_open_ends`].
//! 4. The reader indexes in memory the events that the index lacks.
//! 5. The reader replaces the pin of version 0 by a pin of the manifest generation that it read.
//!
//! INVARIANT: a scavenge rewrites a chunk only once the index durably holds all of the chunk. So if
//! the manifest names a rewritten file, and the opened index lacks events of that chunk, the index
//! is older than the scavenge. In that case the reader indexes the chunk's events from the original
//! file, which is pinned. These events get the same numbers in views that the writer gave them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use umbel::{Durability, Options};
use umbel_base::damage_count::DamageCount;
use umbel_env::{Access, Env, OpenMark, Pin, check_path};
use umbel_filter::HashSecret;

use crate::append::recent_event_ids::RecentEventIds;
use crate::event_log::EventLog;
use crate::event_log::chunk_manifest::{ChunkEntry, ChunkManifest, chunk_path};
use crate::event_log::replica_file::check_not_replica;
use crate::index::Index;
use crate::index::stream_existence::StreamExistence;
use crate::open;
use crate::open::repair_marker;
use crate::primitives::background_signal::BackgroundSignal;
use crate::primitives::store_clock::ClockEvidence;
use crate::shared_store_state::StoreInner;
use crate::store_components::StoreComponents;
use crate::types::error::{Error, Result};
use crate::types::store_options::StoreOptions;
use crate::visibility::visible_position::VisiblePosition;

/// Maximum number of attempts to open a store that a writer changes during each attempt.
const ATTEMPTS_MAX: u32 = 12;
/// Number of times that the same damage must be found before it is reported.
const DAMAGE_REPEATS_MAX: u32 = 4;
/// Maximum pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_millis(64);

/// Location at which a writer's change can look like damage.
type DamageLocation = (PathBuf, u64);

/// Outcome of an attempt to open a store.
enum Attempt {
    /// The store is open.
    Opened(Arc<StoreInner>),
    /// A writer replaced the chunk manifest during the attempt.
    Changed,
}

/// Opens the store in a folder without changing a byte of the store.
pub fn open(folder: &Path, options: StoreOptions) -> Result<Arc<StoreInner>> {
    check_path("the event store", folder)?;
    options.validate()?;
    let outside = options.env.clone();
    let path = outside.files.absolute(folder)?;
    let (mut last, mut sightings) = (None, BTreeMap::new());
    for attempt in 0..ATTEMPTS_MAX {
        let damage = match open_once(&path, &options) {
            Ok(Attempt::Opened(shared)) => return Ok(shared),
            Ok(Attempt::Changed) => None,
            Err(error) => match damage_location(&error, &path) {
                Some(place) => Some((place, error)),
                None => return Err(error),
            },
        };
        let found =
            damage.as_ref().map(|(place, _)| (place.clone(), manifest_generation(&outside, &path)));
        if let Some((place, error)) = damage {
            let times = sightings.entry(place).or_insert(0);
            *times += 1;
            if *times >= DAMAGE_REPEATS_MAX || last == found {
                return Err(error);
            }
        }
        last = found;
        // Longer each time, and none before the second attempt.
        if attempt > 0 {
            let time = Duration::from_millis(1 << attempt.min(16));
            outside.threads.pause(time.min(PAUSE_MAX));
        }
    }
    let reason = format!(
        "a writer changed the event store during each of {ATTEMPTS_MAX} attempts to open it"
    );
    Err(umbel::Error::Stale { path, reason }.into())
}

/// Returns the generation of the chunk manifest; `None` if no manifest can be read.
fn manifest_generation(env: &Env, folder: &Path) -> Option<u64> {
    ChunkManifest::read(env, folder).ok().map(|manifest| manifest.generation)
}

/// Returns the location of possible damage in the store in `folder`. `None` for every other error.
/// Also `None` for damage of the index: opening the index retries by itself if a writer may be the
/// cause.
fn damage_location(error: &Error, folder: &Path) -> Option<DamageLocation> {
    let place = match error {
        Error::Store(umbel::Error::Corruption { file, offset, .. }) => (file.clone(), *offset),
        Error::Store(umbel::Error::Io { path, .. }) if error.is_damage() => (path.clone(), 0),
        _ => return None,
    };
    (!place.0.starts_with(folder.join("index"))).then_some(place)
}

/// Opens the store as it is now.
fn open_once(folder: &Path, options: &StoreOptions) -> Result<Attempt> {
    let outside = &options.env;
    open::check_openable(outside, folder, options, true)?;
    let env = outside.fork_guarded().open_directory(folder)?;
    repair_marker::check_no_repair(&env, folder)?;
    check_not_replica(&env, folder)?;
    let lock = folder.join(open::LOCK_FILE);
    let pin = env.files.pin(&lock, 0)?;
    let before = ChunkManifest::read(&env, folder)?;
    let index = open_index(&env, folder, options, before.seed)?;
    let mut manifest = ChunkManifest::read(&env, folder)?;
    let is_same_store = (manifest.seed, manifest.instance) == (before.seed, before.instance);
    // With or without a pin: the writer may not see it, for instance through an overlay, or after
    // the lock file was removed.
    if !is_same_store || manifest.generation != before.generation {
        return Ok(Attempt::Changed);
    }
    let growing = scan_open_ends(&env, folder, &mut manifest)?;
    open::check_files(&env, folder, &manifest)?;
    let log = Arc::new(EventLog::read_only(&env, folder, manifest.clone(), &growing));
    let pinned = manifest.generation;
    let replayed = with_original_files(&env, folder, manifest, index.durable_through()?)?;
    let seed = before.seed;
    let mut parts = StoreComponents {
        folder: folder.to_path_buf(),
        read_only: true,
        sync_before_ack: options.durability == Durability::Synced,
        log_quota_bytes: options.log_quota_bytes,
        fatal_error: Arc::clone(&log.fatal_error),
        log: Arc::new(EventLog::read_only(&env, folder, replayed, &growing)),
        index,
        existence: StreamExistence::disabled(seed),
        visible: VisiblePosition::default(),
        replica: None,
        background: BackgroundSignal::default(),
        damage: DamageCount::default(),
        open_mark: OpenMark::new(),
        clock: OnceLock::new(),
        pin: Mutex::default(),
        env,
        outer_env: outside.clone(),
    };
    let last_created = open::catch_up(&parts)?.next_created;
    open::start_clock(&parts, ClockEvidence { last_created, mark: None }, true);
    parts.log = log;
    parts.pin = Mutex::new(pin_generation(&parts.env, &lock, pin, pinned));
    let window = RecentEventIds::new(HashSecret::from_seed(seed));
    Ok(Attempt::Opened(open::build_inner(parts, window, last_created, None)))
}

/// Opens the index of the store with this seed.
fn open_index(env: &Env, folder: &Path, options: &StoreOptions, seed: [u8; 16]) -> Result<Index> {
    let index = folder.join("index");
    if !env.files.exists(&index)? {
        return Err(Error::invalid(format!(
            "the event store in {} has no index, and a read-only handle cannot build the index: \
             open the store for writing once",
            folder.display()
        )));
    }
    let options = Options { env: env.clone(), ..options.index_options() };
    Ok(Index::open(&index, options, true, seed)?)
}

/// Replaces the pin of all versions by a pin of the generation that was read, so that the writer
/// can remove older obsolete files. If the new pin fails, the old pin stays.
fn pin_generation(
    env: &Env,
    lock: &Path,
    pin: Option<Box<dyn Pin>>,
    generation: u64,
) -> Option<Box<dyn Pin>> {
    pin.as_ref()?;
    env.files.pin(lock, generation).ok().flatten().or(pin)
}

/// Sets the missing ends of chunks in `manifest`, and removes chunks without events. Returns the
/// ids of the chunks without an end, to which a writer may still append.
///
/// A writer ends a chunk before it stores an event in the next one. So if a later chunk proves that
/// the chunk before it was complete, but that chunk showed no end, the reader scans again. The
/// second scan finds the end, unless the chunk on disk is damaged. Each scan finds one more chunk
/// ended. Unless a later chunk proves an unended chunk complete, the chunks after it count as
/// empty: their events were written after the open began.
fn scan_open_ends(env: &Env, folder: &Path, manifest: &mut ChunkManifest) -> Result<Vec<u64>> {
    check_no_unlisted_chunk(env, folder, manifest)?;
    let chunks = manifest.open_chunks(folder)?;
    let growing = chunks.iter().map(|entry| entry.id).collect();
    let mut found = open::recover_ends(env, folder, chunks);
    for _ in chunks {
        if found.as_ref().err().is_some_and(Error::is_damage) {
            found = open::recover_ends(env, folder, chunks);
        }
    }
    let ends = found?;
    for (entry, end) in manifest.chunks.iter_mut().rev().zip(ends.iter().rev()) {
        entry.ended = Some(end.ended);
    }
    manifest.remove_empty();
    Ok(growing)
}

/// Returns an error where a chunk has events but no manifest lists it. The writer may have created
/// it since the manifest was read.
fn check_no_unlisted_chunk(env: &Env, folder: &Path, manifest: &ChunkManifest) -> Result<()> {
    let Err(error) = open::check_no_newer_chunk(env, folder, manifest) else { return Ok(()) };
    if error.is_damage() && ChunkManifest::read(env, folder)?.next_id > manifest.next_id {
        return Ok(());
    }
    Err(error)
}

/// Returns the manifest with the original file of each chunk that was rewritten after the index was
/// read. The index holds everything up to `through`.
fn with_original_files(
    env: &Env,
    folder: &Path,
    mut manifest: ChunkManifest,
    through: u64,
) -> Result<ChunkManifest> {
    for entry in manifest.chunks.iter_mut().filter(|entry| entry.scavenged.is_some()) {
        let last = entry.ended.map_or(0, |ended| entry.start + ended.last_event);
        // Without the file, the index was lost, and a writer is rebuilding it from the rest.
        if last > through && has_original_file(env, folder, entry)? {
            entry.scavenged = None;
        }
    }
    Ok(manifest)
}

/// Whether the chunk's original file exists in full length.
fn has_original_file(env: &Env, folder: &Path, entry: &ChunkEntry) -> Result<bool> {
    let Some(ended) = entry.ended else { return Ok(false) };
    match env.files.open(&chunk_path(folder, entry.id), Access::Read) {
        Ok(file) => Ok(file.len()? >= ended.file_bytes()),
        Err(error) if error.is_missing_file() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

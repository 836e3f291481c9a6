//! Opening a store for reading only, beside a writer of another process or without one.
//!
//! 1. The reader pins version 0 in the lock file. The writer keeps every file from then on that a
//!    reader may know: see [`umbel_env::KeptFiles`]. A version is the generation of a table of
//!    chunks.
//! 2. It opens the index, which pins a version of its own, then reads the table of chunks. The
//!    writer makes an event durable before the index holds it. So the log that the reader finds
//!    holds all that the index does.
//! 3. The chunks whose end the table does not say are read while the writer stores into them. What
//!    is read is a prefix of the log that holds each event acknowledged before: see
//!    [`read_ends`].
//! 4. The events that the index lacks are indexed in memory.
//! 5. The reader pins the generation that it read in the place of version 0.
//!
//! INVARIANT: a scavenge rewrites a chunk only once the index durably holds all of it. So where
//! the table names a file that was rewritten, and the index that was opened lacks events of that
//! chunk, the index is older than the scavenge. The events are then indexed from the file that was
//! appended to, which is pinned, and they get the numbers in views that the writer gave them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use umbel::{Durability, Options};
use umbel_env::{Access, Env, OpenMark, Pin, check_path};
use umbel_filter::HashSecret;

use crate::bell::Bell;
use crate::chunk_table::{ChunkEntry, ChunkTable, chunk_path};
use crate::error::{Error, Result};
use crate::event_log::EventLog;
use crate::existence::Existence;
use crate::id_window::IdWindow;
use crate::index::Index;
use crate::open;
use crate::options::StoreOptions;
use crate::parts::Parts;
use crate::repair_marker;
use crate::shared::Shared;
use crate::visible::Visible;

/// How often an open begins again because a writer changed the store meanwhile.
const ATTEMPTS_MAX: u32 = 12;
/// How often the same damage is found, whatever else changed, before it is reported.
const SIGHTINGS_MAX: u32 = 4;
/// The longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_millis(64);

/// Where a writer's change can look like damage.
type Place = (PathBuf, u64);

/// What came of one attempt to open a store.
enum Attempt {
    /// It is open.
    Opened(Arc<Shared>),
    /// The table of chunks was replaced meanwhile.
    Changed,
}

/// Opens the store in a folder without changing a byte of it.
pub fn open(folder: &Path, options: StoreOptions) -> Result<Arc<Shared>> {
    check_path("the event store", folder)?;
    options.check()?;
    let outside = options.env.clone();
    let path = outside.files.absolute(folder)?;
    let (mut last, mut sightings) = (None, BTreeMap::new());
    for attempt in 0..ATTEMPTS_MAX {
        let damage = match open_once(&path, &options) {
            Ok(Attempt::Opened(shared)) => return Ok(shared),
            Ok(Attempt::Changed) => None,
            Err(error) => match place_of(&error, &path) {
                Some(place) => Some((place, error)),
                None => return Err(error),
            },
        };
        let found = damage.as_ref().map(|(place, _)| (place.clone(), generation(&outside, &path)));
        if let Some((place, error)) = damage {
            let times = sightings.entry(place).or_insert(0);
            *times += 1;
            if *times >= SIGHTINGS_MAX || last == found {
                return Err(error);
            }
        }
        last = found;
        // Longer each time, and not at all before the second attempt.
        if attempt > 0 {
            let time = Duration::from_millis(1 << attempt.min(16));
            outside.threads.pause(time.min(PAUSE_MAX));
        }
    }
    let reason = format!("a writer changed it during each of {ATTEMPTS_MAX} attempts to read it");
    Err(umbel::Error::Stale { path, reason }.into())
}

/// Which table of chunks there is; `None` where none can be read.
fn generation(env: &Env, folder: &Path) -> Option<u64> {
    ChunkTable::read(env, folder).ok().map(|table| table.generation)
}

/// Where the store in `folder` seems to be damaged; `None` for every other error, and for damage of
/// the index, which was looked at again where a writer may have been the reason.
fn place_of(error: &Error, folder: &Path) -> Option<Place> {
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
    open::admit(outside, folder, options, true)?;
    let env = outside.of_this_process().hold(folder)?;
    repair_marker::check_none(&env, folder)?;
    let lock = folder.join(open::LOCK);
    let pin = env.files.pin(&lock, 0)?;
    let before = ChunkTable::read(&env, folder)?;
    let index = open_index(&env, folder, options, before.seed)?;
    let mut table = ChunkTable::read(&env, folder)?;
    let is_same_store = (table.seed, table.instance) == (before.seed, before.instance);
    // Whatever pin there is: the writer need not see it. It does not through an overlay, or where
    // the lock file was removed.
    if !is_same_store || table.generation != before.generation {
        return Ok(Attempt::Changed);
    }
    let growing = read_ends(&env, folder, &mut table)?;
    open::check_files(&env, folder, &table)?;
    let log = Arc::new(EventLog::of_reader(&env, folder, table.clone(), &growing));
    let pinned = table.generation;
    let replayed = appended_to(&env, folder, table, index.durable_through()?)?;
    let seed = before.seed;
    let mut parts = Parts {
        folder: folder.to_path_buf(),
        read_only: true,
        syncs: options.durability == Durability::Synced,
        failed: Arc::clone(&log.failed),
        log: Arc::new(EventLog::of_reader(&env, folder, replayed, &growing)),
        index,
        existence: Existence::none(seed),
        visible: Visible::default(),
        bell: Bell::default(),
        open: OpenMark::new(),
        pin: Mutex::default(),
        env,
        outside: outside.clone(),
    };
    let last_created = open::catch_up(&parts)?;
    parts.log = log;
    parts.pin = Mutex::new(pin_generation(&parts.env, &lock, pin, pinned));
    let window = IdWindow::new(HashSecret::from_seed(seed));
    Ok(Attempt::Opened(open::share(parts, window, last_created)))
}

/// Opens the index of the store with this seed.
fn open_index(env: &Env, folder: &Path, options: &StoreOptions, seed: [u8; 16]) -> Result<Index> {
    let index = folder.join("index");
    if !env.files.exists(&index)? {
        return Err(Error::invalid(format!(
            "the event store in {} has no index, and a handle that is open for reading only cannot \
             make it: open the store for writing once",
            folder.display()
        )));
    }
    let options = Options { env: env.clone(), ..options.of_index() };
    Ok(Index::open(&index, options, true, seed)?)
}

/// Pins the generation that was read in the place of all, so that the writer may remove what was
/// obsolete before. Without a second pin the first one stays.
fn pin_generation(
    env: &Env,
    lock: &Path,
    pin: Option<Box<dyn Pin>>,
    generation: u64,
) -> Option<Box<dyn Pin>> {
    pin.as_ref()?;
    env.files.pin(lock, generation).ok().flatten().or(pin)
}

/// Notes in `table` where the chunks end whose end it does not say, and leaves out those that hold
/// nothing. Returns the ids of those chunks: a writer may go on in them.
///
/// A writer ends a chunk before it stores an event into the next one. So where a later chunk proves
/// that the one before it was whole, and the reader found no end of that, it looks again: then the
/// end is there, or the damage is on the disk. Each look finds one more chunk ended. Without such a
/// proof what stands after a chunk that has not ended does not count: it came after the open began.
fn read_ends(env: &Env, folder: &Path, table: &mut ChunkTable) -> Result<Vec<u64>> {
    check_next(env, folder, table)?;
    let chunks = table.open_chunks(folder)?;
    let growing = chunks.iter().map(|entry| entry.id).collect();
    let mut found = open::find_ends(env, folder, chunks);
    for _ in chunks {
        if found.as_ref().err().is_some_and(Error::is_damage) {
            found = open::find_ends(env, folder, chunks);
        }
    }
    let ends = found?;
    for (entry, end) in table.chunks.iter_mut().rev().zip(ends.iter().rev()) {
        entry.ended = Some(end.ended);
    }
    table.take_empty();
    Ok(growing)
}

/// An error where a chunk has events that no table names. The writer may have made it since the
/// table was read.
fn check_next(env: &Env, folder: &Path, table: &ChunkTable) -> Result<()> {
    let Err(error) = open::check_next(env, folder, table) else { return Ok(()) };
    if error.is_damage() && ChunkTable::read(env, folder)?.next_id > table.next_id {
        return Ok(());
    }
    Err(error)
}

/// The table with the file that was appended to, for each chunk that was rewritten after the
/// index was read, which holds everything up to `through`.
fn appended_to(
    env: &Env,
    folder: &Path,
    mut table: ChunkTable,
    through: u64,
) -> Result<ChunkTable> {
    for entry in table.chunks.iter_mut().filter(|entry| entry.packed.is_some()) {
        let last = entry.ended.map_or(0, |ended| entry.start + ended.last_event);
        // Without the file the index was lost, and a writer is making it of what is left.
        if last > through && is_there(env, folder, entry)? {
            entry.packed = None;
        }
    }
    Ok(table)
}

/// Whether the file that was appended to is there, to its end.
fn is_there(env: &Env, folder: &Path, entry: &ChunkEntry) -> Result<bool> {
    let Some(ended) = entry.ended else { return Ok(false) };
    match env.files.open(&chunk_path(folder, entry.id), Access::Read) {
        Ok(file) => Ok(file.len()? >= ended.file_bytes()),
        Err(error) if error.is_missing_file() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

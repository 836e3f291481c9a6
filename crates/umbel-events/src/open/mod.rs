//! Opening a store: which chunks there are and where each ends, then what of them the index lacks.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

use umbel::{Durability, FlushGate, Options};
use umbel_env::{Access, Env, KeptFiles, OpenMark, OwnFiles, RootFile, check_path};
use umbel_filter::HashSecret;
use umbel_log::{Expectation, HEADER_BYTES, Sealed};

use crate::appender::Appender;
use crate::background;
use crate::bell::Bell;
use crate::callbacks::Callbacks;
use crate::changes::Changes;
use crate::chunk_read::{ChunkRead, read_chunk};
use crate::chunk_table::{ChunkEntry, ChunkTable, Ended, chunk_folder, chunk_path, unopened};
use crate::commit;
use crate::error::{Error, Result};
use crate::event_log::EventLog;
use crate::existence::Existence;
use crate::head::Head;
use crate::id_window::IdWindow;
use crate::index::Index;
use crate::index_marker::IndexMarker;
use crate::mistaken::check_mistaken;
use crate::options::StoreOptions;
use crate::parts::{Parts, sync_log};
use crate::repair_marker;
use crate::shared::Shared;
use crate::sweep;
use crate::turn::Turn;
use crate::view_gaps::ViewGaps;
use crate::visible::Visible;

/// The lock file, which readers pin versions in.
pub const LOCK: &str = "LOCK";
/// What the names of chunks end with of which nothing counts, but in which events stand.
const LEFT_OUT: &str = "chunk.left-out";
/// How many events are put into the index at a time when catching up.
const CATCH_UP_EVENTS: usize = 4096;

/// Opens the store in a folder.
pub fn open(folder: &Path, options: StoreOptions) -> Result<Arc<Shared>> {
    check_path("the event store", folder)?;
    options.check()?;
    let outside = &options.env;
    let folder = &*outside.files.absolute(folder)?;
    if !admit(outside, folder, &options, false)? {
        create_folders(outside, folder)?;
    }
    let (env, root) = own_env(outside, folder)?;
    let lock = env.lock(&folder.join(LOCK), options.lock_wait)?;
    let kept = Arc::new(KeptFiles::new(Arc::clone(&env.files), Some(lock)));
    // Another process may have created it meanwhile.
    let exists = admit_held(&env, folder, &options)?;
    repair_marker::check_none(&env, folder)?;
    list(&env, folder)?;
    let mut table = match exists {
        true => ChunkTable::read_own(&env, folder, root)?,
        false => create(&env, folder, root)?,
    };
    recover(&env, folder, &mut table, &kept)?;
    if table.instance == [0; 16] {
        table.instance = env.entropy.id()?;
        table.write(&env, folder)?;
    }
    check_files(&env, folder, &table)?;
    let seed = table.seed;
    let syncs = options.durability == Durability::Synced;
    let shape = (options.chunk_bytes, syncs);
    let log = Arc::new(EventLog::new(&env, folder.to_path_buf(), shape, table, kept));
    let failed = Arc::clone(&log.failed);
    let index_options = index_options(&options, &env, &log, &failed);
    let size = options.existence;
    let existence = Existence::open(&env, &folder.join("existence"), (size, seed), &log)?;
    let index = Index::open(&folder.join("index"), index_options, false, seed);
    // What is left of an index that failed to open may hold the log for a moment.
    let index = index.inspect_err(|_| log.kept.end())?;
    let parts = Parts {
        folder: folder.to_path_buf(),
        read_only: false,
        syncs,
        log,
        index,
        existence,
        visible: Visible::default(),
        bell: Bell::default(),
        failed,
        open: OpenMark::new(),
        pin: Mutex::default(),
        env,
        outside: options.env.clone(),
    };
    let last_created = catch_up(&parts)?;
    sweep::remove_unnamed(&parts)?;
    sweep::finish(&parts)?;
    let window = window(&parts, HashSecret::from_seed(seed))?;
    let shared = share(parts, window, last_created);
    if options.background_threads > 0 {
        background::start(&shared)?;
    }
    Ok(shared)
}

/// The world, with its files held at the store's directory, of which this process changes its own
/// alone, and the table of chunks in it.
fn own_env(outside: &Env, folder: &Path) -> Result<(Env, Arc<RootFile>)> {
    let held = outside.of_this_process().hold(folder)?;
    let root = ChunkTable::root(&held, folder);
    let files = OwnFiles::new(Arc::clone(&held.files), Arc::<RootFile>::clone(&root));
    Ok((Env { files: Arc::new(files), ..held }, root))
}

/// Lists what this process finds, which is its own from now on.
fn list(env: &Env, folder: &Path) -> Result<()> {
    env.files.create_dir_all(&chunk_folder(folder))?;
    for directory in [folder, &chunk_folder(folder)] {
        env.files.read_dir(directory)?;
    }
    Ok(())
}

/// What the handles of a store share. `window` has the ids of the newest events, the last of which
/// was appended at `last_created`.
pub fn share(parts: Parts, window: IdWindow, last_created: u64) -> Arc<Shared> {
    let appender = Appender::new(&parts, window, last_created);
    Arc::new(Shared {
        parts,
        callbacks: Callbacks::default(),
        appender: Mutex::new(Some(appender)),
        driver: Mutex::default(),
        scavenger: Turn::default(),
        flusher: Mutex::default(),
        thread: Mutex::default(),
    })
}

/// Whether there is a store in the folder; an error where it may not be opened or made.
pub fn admit(env: &Env, folder: &Path, options: &StoreOptions, read_only: bool) -> Result<bool> {
    let exists = ChunkTable::exists(env, folder)?;
    let shown = folder.display();
    if read_only && !exists {
        check_mistaken(env, folder)?;
        return Err(Error::invalid(format!("there is no event store in {shown}")));
    }
    if !exists {
        check_mistaken(env, folder)?;
        check_above(env, folder)?;
        check_new(env, folder, options)?;
    } else if !read_only {
        check_may_exist(folder, options)?;
    }
    Ok(exists)
}

/// The same of the folder that is held and locked.
fn admit_held(env: &Env, folder: &Path, options: &StoreOptions) -> Result<bool> {
    let exists = ChunkTable::exists(env, folder)?;
    match exists {
        true => check_may_exist(folder, options)?,
        false => {
            check_mistaken(env, folder)?;
            check_new(env, folder, options)?;
        }
    }
    Ok(exists)
}

fn check_may_exist(folder: &Path, options: &StoreOptions) -> Result<()> {
    match options.error_if_exists {
        true => Err(Error::invalid(format!(
            "{} holds an event store already; name another folder",
            folder.display()
        ))),
        false => Ok(()),
    }
}

/// Makes the folder with those it lies in, and the names of all of them durable: before there is a
/// table, so that nobody takes a store for made whose name a power cut can take.
fn create_folders(env: &Env, folder: &Path) -> Result<()> {
    let mut missing = 0;
    for level in folder.ancestors() {
        if level.as_os_str().is_empty() || env.files.exists(level)? {
            break;
        }
        missing += 1;
    }
    env.files.create_dir_all(&chunk_folder(folder))?;
    for (number, parent) in folder.ancestors().filter_map(Path::parent).enumerate() {
        let synced = env.files.sync_dir(parent);
        // Those above may be somebody's who died before he synced them, or nobody's to open.
        if number <= missing {
            synced?;
        }
    }
    Ok(())
}

/// An error where the folder lies in that of another store.
pub fn check_above(env: &Env, folder: &Path) -> Result<()> {
    match umbel::store_above(env, folder) {
        None => Ok(()),
        Some(store) => Err(Error::invalid(format!(
            "{} lies in the folder of the store {}, whose folders are its own; name one outside \
             of it",
            folder.display(),
            store.display()
        ))),
    }
}

/// An error where no store can be made in the folder.
fn check_new(env: &Env, folder: &Path, options: &StoreOptions) -> Result<()> {
    let shown = folder.display();
    if !options.create_if_missing {
        return Err(Error::invalid(format!(
            "there is no event store in {shown}; name the folder of one, or let it be created"
        )));
    }
    if !env.files.exists(folder)? {
        return Ok(());
    }
    // What an earlier attempt to make one left may stay.
    // Another process may be creating the store: with the lock held it is looked for again.
    let ours = [LOCK, "log", "index", "existence", "CHUNKS.new", "CHUNKS"];
    let entries = env.files.read_dir(folder)?;
    if let Some(other) = entries.iter().find(|entry| !ours.contains(&&entry.name[..])) {
        return Err(Error::invalid(format!(
            "{shown} is no event store: it holds '{}', which no event store does; name an empty \
             folder or one that does not exist",
            other.name
        )));
    }
    Ok(())
}

fn create(env: &Env, folder: &Path, root: Arc<RootFile>) -> Result<ChunkTable> {
    let mut table = ChunkTable { root: Some(root), ..ChunkTable::create(env)? };
    table.write(env, folder)?;
    Ok(table)
}

fn index_options(
    options: &StoreOptions,
    env: &Env,
    log: &Arc<EventLog>,
    failed: &Arc<OnceLock<String>>,
) -> Options {
    let (log, failed) = (Arc::clone(log), Arc::clone(failed));
    // What a table of the index speaks of has to be in the log for good.
    let before_flush = Some(FlushGate::new(move || sync_log(&log, &failed)));
    Options { before_flush, env: env.clone(), ..options.of_index() }
}

/// Finds out where the chunks end that were in use when the process or the machine died, writes
/// that down, and lets go of those that hold nothing.
fn recover(env: &Env, folder: &Path, table: &mut ChunkTable, kept: &KeptFiles) -> Result<()> {
    check_next(env, folder, table)?;
    let ends = find_ends(env, folder, table.open_chunks(folder)?)?;
    if ends.is_empty() {
        return Ok(());
    }
    let mut left = Vec::new();
    for (entry, FoundEnd { ended, has_more }) in
        table.chunks.iter_mut().rev().zip(ends.iter().rev())
    {
        if *has_more {
            // Damage looks the same as what a power cut does: what may be events is not cut off.
            left.extend((ended.last_event == 0).then_some(entry.id));
        } else {
            let file = env.files.open(&chunk_path(folder, entry.id), Access::ReadWrite)?;
            if !file.has_other_names()? {
                file.set_len(ended.file_bytes().max(HEADER_BYTES))?;
                file.sync()?;
            }
        }
        entry.ended = Some(*ended);
    }
    let mut empty = table.take_empty();
    empty.retain(|id| !left.contains(id));
    table.write(env, folder)?;
    for id in empty {
        kept.remove(&chunk_path(folder, id), table.generation_before());
    }
    for id in left {
        let path = chunk_path(folder, id);
        env.files.rename(&path, &path.with_extension(LEFT_OUT))?;
    }
    Ok(())
}

/// How a chunk ended that was in use.
#[derive(Debug, Clone, Copy)]
pub struct FoundEnd {
    /// Where what counts of it ends.
    pub ended: Ended,
    /// Whether more stands in it that may be events.
    pub has_more: bool,
}

/// Finds out where chunks end that the table does not say the end of.
pub fn find_ends(env: &Env, folder: &Path, chunks: &[ChunkEntry]) -> Result<Vec<FoundEnd>> {
    let mut whole = true;
    let mut ends = Vec::with_capacity(chunks.len());
    for entry in chunks {
        let read = read_chunk(env, folder, entry, Expectation::Open)?;
        let ended = judge(folder, entry, &read, whole)?;
        whole &= read.outcome.sealed;
        let has_more = read.has_more || ended.last_event < read.last_event;
        ends.push(FoundEnd { ended, has_more });
    }
    Ok(ends)
}

/// An error where a chunk has events that the table does not know, so that it is an older copy.
pub fn check_next(env: &Env, folder: &Path, table: &ChunkTable) -> Result<()> {
    let (id, start) = (table.next_id, table.next_start);
    let path = chunk_path(folder, id);
    if !env.files.exists(&path)? {
        return Ok(());
    }
    let entry = ChunkEntry { id, start, capacity: 0, key: 0, ended: None, packed: None };
    if read_chunk(env, folder, &entry, Expectation::Open)?.outcome.records == 0 {
        // Made and not yet in the table when the process or the machine died.
        return Ok(());
    }
    let reason = format!(
        "{} holds events that the table of chunks does not know: the table is an older copy",
        path.display()
    );
    Err(umbel::Error::corruption(&folder.join("CHUNKS"), 0, reason).into())
}

/// How a chunk ended, by what was found in it and whether all chunks before it were whole.
fn judge(
    folder: &Path,
    entry: &ChunkEntry,
    &ChunkRead { outcome, last_event, .. }: &ChunkRead,
    whole: bool,
) -> Result<Ended> {
    #[cfg(feature = "canary")]
    let whole = whole || umbel_base::canary::Switch::EventsBehindGap.is_on();
    if whole {
        let checksum = outcome.checksum;
        let sealed = outcome.sealed.then_some(Sealed { len: outcome.end, checksum });
        let end = match sealed {
            Some(sealed) => sealed.len - umbel_log::END_RECORD_BYTES,
            None => outcome.end,
        };
        return Ok(Ended { end, last_event, sealed });
    }
    if outcome.durable_max > HEADER_BYTES {
        let path = chunk_path(folder, entry.id);
        let reason = format!(
            "events here had been made durable, but the chunk before them is torn: {} bytes of \
             the event log are lost there",
            entry.start
        );
        return Err(umbel::Error::corruption(&path, outcome.durable_max, reason).into());
    }
    // Behind a gap nothing counts: these pages reached the disk before those of the chunk before.
    Ok(Ended::EMPTY)
}

/// An error where a file is missing or shorter than the table says.
pub fn check_files(env: &Env, folder: &Path, table: &ChunkTable) -> Result<()> {
    for entry in &table.chunks {
        let Some(ended) = entry.ended else { continue };
        let path = entry.path(folder);
        let opened = env.files.open(&path, Access::Read);
        let file = opened.map_err(|error| unopened(&path, error))?;
        let len = file.len()?;
        let wanted = entry.packed.map_or(ended.file_bytes(), |packed| packed.file_bytes);
        if len < wanted {
            let reason = format!("the file ends here, but this chunk has {wanted} bytes");
            return Err(umbel::Error::corruption(&path, len, reason).into());
        }
    }
    Ok(())
}

/// Puts into the index what the log has and the index lacks. Returns when the last event was
/// appended.
pub fn catch_up(parts: &Parts) -> Result<u64> {
    let through = parts.index.durable_through()?;
    let streams_through = parts.index.streams_through()?;
    let most = streams_through.max(parts.index.views_through()?);
    if parts.existence.covered() != u64::MAX {
        parts.existence.truncate(&parts.log, parts.log.last_position().unwrap_or(0))?;
    }
    let last = parts.log.last_position();
    check_history(parts, last.unwrap_or(0))?;
    check_reach(parts, (streams_through, most), last.unwrap_or(0))?;
    let Some(last) = last else {
        ViewGaps::new(parts).tell(parts, u64::MAX)?;
        return Ok(0);
    };
    let mut cursor = parts.log.cursor();
    let created = cursor.at(last)?.stamp.created;
    // The filter may lack what the index has; one that is made anew takes that from the index.
    let through = match parts.existence.is_lost() {
        true => through,
        false => through.min(parts.existence.covered()),
    };
    if through >= last {
        parts.visible.advance(last, std::iter::empty());
        return Ok(created);
    }
    let mut next = match through {
        0 => cursor.seek(0)?,
        _ => match cursor.find(through)?.map(|frame| frame.step()) {
            Some(step) => cursor.next_position(through, step)?,
            None => cursor.seek(through + 1)?,
        },
    };
    let mut heads: HashMap<String, Head> = HashMap::new();
    let mut changes = Changes::default();
    let (mut gaps, mut before) = (ViewGaps::new(parts), through);
    while let Some(position) = next {
        if gaps.is_before(parts, position)? {
            apply(parts, &mut changes, (streams_through, before))?;
            heads.clear();
            gaps.tell(parts, position)?;
        }
        before = position;
        let frame = cursor.at(position)?;
        let head = match heads.get(frame.stream) {
            Some(head) => Some(*head),
            None => parts.index.head(frame.stream)?,
        };
        let hash = parts.existence.hash(frame.stream);
        let head = commit::replay(&mut changes, head, &frame, hash);
        heads.insert(frame.stream.to_string(), head);
        let step = frame.step();
        next = cursor.next_position(position, step)?;
        if changes.len() >= CATCH_UP_EVENTS || next.is_none() {
            apply(parts, &mut changes, (streams_through, position))?;
            heads.clear();
        }
    }
    gaps.tell(parts, u64::MAX)?;
    parts.visible.advance(last, std::iter::empty());
    Ok(created)
}

/// Puts changes into the index, which holds those of streams up to the first position already, and
/// everything up to the second one then.
fn apply(parts: &Parts, changes: &mut Changes, (held, position): (u64, u64)) -> Result<()> {
    if position > held && !changes.is_empty() {
        let mut batch = parts.index.batch();
        for change in changes.iter() {
            parts.index.add(&mut batch, &change);
        }
        parts.index.commit(&mut batch, (&parts.log, position))?;
    }
    parts.insert(changes.iter());
    changes.clear();
    if parts.read_only {
        return check_memory(parts, position);
    }
    if parts.index.views.wants_flush() {
        parts.index.flush(&parts.log, position)?;
    }
    Ok(())
}

/// An error where a reader, which cannot flush its index, has no memory for more of it.
fn check_memory(parts: &Parts, position: u64) -> Result<()> {
    if !parts.index.is_too_long_for_memory() {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the index of {} lacks the events after position {}, and those up to position {position} \
         take half of memory_bytes; a handle that is open for reading only cannot write them to \
         the index: give it more memory, or open the store for writing once",
        parts.folder.display(),
        parts.index.durable_through()?
    )))
}

/// An error where the index was made of another log than this one, whose last event stands at
/// `last`: of that of another store, or of a copy of this one that went on by itself. It would deny
/// events that are there. One that holds more than the log is seen by [`check_reach`].
fn check_history(parts: &Parts, last: u64) -> Result<()> {
    for IndexMarker { position, key } in parts.index.markers()? {
        if parts.log.has_history(position, key)?
            || (position > last && parts.log.chunk_at(position).is_none())
        {
            continue;
        }
        let reason = format!(
            "the index is not of this event log: it holds events up to position {position} of \
             another store, or of a copy of this one that went on by itself; put the index of \
             this store back, or move this folder away to have the index made anew from the \
             event log"
        );
        return Err(umbel::Error::corruption(&parts.folder.join("index"), 0, reason).into());
    }
    Ok(())
}

/// An error where the index holds more than the log, whose last event stands at `last`. Where the
/// log ends with what was scavenged, the views are told of that as well.
fn check_reach(parts: &Parts, (streams, most): (u64, u64), last: u64) -> Result<()> {
    if most <= last || (streams <= last && most <= parts.log.last_gap()?) {
        return Ok(());
    }
    let reason = format!(
        "the index holds events up to position {most}, but the event log ends at {last}: the log \
         is an older copy or was cut; restore it, or remove this folder to have the index made anew"
    );
    Err(umbel::Error::corruption(&parts.folder.join("index"), 0, reason).into())
}

/// The ids of the newest events.
fn window(parts: &Parts, secret: HashSecret) -> Result<IdWindow> {
    let mut window = IdWindow::new(secret);
    let mut newest = Vec::new();
    let mut cursor = parts.log.cursor();
    let mut next = parts.log.last_position();
    #[cfg(feature = "canary")]
    if umbel_base::canary::Switch::EventsWindowLost.is_on() {
        next = None;
    }
    let (mut events, mut bytes) = (0, 0);
    while let Some(position) = next {
        let frame = cursor.at(position)?;
        // Behind each append, what came after it decides. Positions say nothing: rooms of chunks
        // that were not used lie between them.
        if frame.stamp.ends_append && IdWindow::is_past(events, bytes) {
            break;
        }
        events += 1;
        bytes += frame.bytes as u64;
        let place = (position, frame.bytes as u64);
        let ends_append = frame.stamp.ends_append;
        newest.push((parts.existence.hash(frame.stream), frame.event.id, place, ends_append));
        let back = frame.stamp.back;
        next = cursor.previous_position(position, back)?;
    }
    let mut begins = true;
    for (stream, id, place, ends_append) in newest.into_iter().rev() {
        if begins {
            window.begin(place.0);
        }
        window.insert(stream, id, place);
        begins = ends_append;
    }
    Ok(window)
}

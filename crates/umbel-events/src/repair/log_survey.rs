//! What there is of a store's event log: its table of chunks, or what the chunks tell where that
//! is damaged, and of each chunk whether it is whole. Nothing is changed.

use std::fmt;
use std::path::{Path, PathBuf};

use umbel_env::{Access, Env};
use umbel_log::{Expectation, HEADER_BYTES, RECORD_ALIGN, Sealed};

use super::report::Unplaced;
use super::salvage::Source;
use crate::chunk::FIRST_EVENT_AT;
use crate::chunk_read::{ChunkRead, read_chunk, read_chunk_file};
use crate::chunk_table::{ChunkEntry, ChunkTable, Ended, chunk_folder, unopened, version_path};
use crate::error::{Error, Result};
use crate::format::{Frame, Place};
use crate::limits::FILE_BYTES_MAX;
use crate::packed;

/// A chunk as it was found.
#[derive(Debug, Clone)]
pub struct Found {
    /// What the table says of it, or is going to say; it has ended.
    pub entry: ChunkEntry,
    /// What is wrong with it.
    pub damage: Option<String>,
    /// Whether somebody noted where it ends.
    pub is_end_known: bool,
    /// Whether its file may not be durable.
    pub is_unsynced: bool,
    /// Whether its file is whole and not that of this chunk: of another store, most likely.
    pub is_foreign: bool,
    /// Where bytes end that are not zero and stand behind the end of a chunk that nobody ended, and
    /// that no table names: what a power cut tore, or damage.
    pub torn: Option<u64>,
    /// The file that holds it, where that has another chunk's name.
    pub misnamed: Option<PathBuf>,
    /// Whether that it is this store's is not proven, but for what the index may know.
    pub is_unproven: bool,
    /// Whether nothing but a hole in the row of chunks tells of it: it may have held nothing.
    pub is_guessed: bool,
}

impl Found {
    /// One of which nothing else is known.
    pub fn new(entry: ChunkEntry, damage: Option<String>) -> Found {
        Found {
            entry,
            damage,
            is_end_known: false,
            is_unsynced: false,
            is_foreign: false,
            torn: None,
            misnamed: None,
            is_unproven: false,
            is_guessed: false,
        }
    }

    /// The file that was found.
    pub fn path(&self, folder: &Path) -> PathBuf {
        self.misnamed.clone().unwrap_or_else(|| self.entry.path(folder))
    }
}

/// The event log as it was found.
#[derive(Debug)]
pub struct Survey {
    /// Its table, whose chunks are in `chunks`.
    pub table: ChunkTable,
    /// The generation of the table on the disk; 0 where that cannot be read.
    pub generation: u64,
    /// Why the table has to be made anew.
    pub table_damage: Option<String>,
    /// Whether the table does not tell which chunks there were behind its last one.
    pub is_tail_lost: bool,
    /// Whether the store's seed is lost.
    pub is_seed_lost: bool,
    /// The chunks.
    pub chunks: Vec<Found>,
    /// Chunks of the table that hold nothing and that opening the store would leave out.
    pub left_out: Vec<ChunkEntry>,
    /// Those that nobody ended and whose files are shorter than they were made.
    pub short: Vec<ChunkEntry>,
    /// Files of the log's folder that belong to no chunk.
    pub strangers: Vec<String>,
    /// Those of them in which events can be read that may be this store's.
    pub unplaced: Vec<Unplaced>,
    /// What is wrong with the folder of the existence filter.
    pub existence_damage: Option<String>,
    /// What is wrong with a file that a chunk was made of and that is there yet.
    pub remains_damage: Option<String>,
}

/// A file with events in the folder of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkFile {
    /// The id in its name.
    pub id: u64,
    /// The version in its name.
    pub version: u64,
    /// Its name.
    pub name: String,
}

/// The files of the log's folder whose names are those of chunks, by id and version.
pub fn chunk_files(env: &Env, folder: &Path) -> Result<Vec<ChunkFile>> {
    let log = chunk_folder(folder);
    if !env.files.exists(&log)? {
        return Ok(Vec::new());
    }
    let named = |name: &str| {
        let stem = name.strip_suffix(".chunk")?;
        let (id, version) = stem.split_once('-').unwrap_or((stem, "0"));
        let (id, version) = (id.parse().ok()?, version.parse().ok()?);
        let is_name = version_path(folder, id, version).ends_with(name);
        is_name.then(|| ChunkFile { id, version, name: name.to_string() })
    };
    let entries = env.files.read_dir(&log)?;
    let files = entries.iter().filter(|entry| !entry.is_directory);
    let mut files: Vec<_> = files.filter_map(|entry| named(&entry.name)).collect();
    files.sort_unstable_by_key(|file| (file.id, file.version));
    Ok(files)
}

/// The text of an error that tells of damage; any other is the caller's.
pub fn damage_of(error: Error, folder: &Path) -> Result<String> {
    let Error::Store(umbel::Error::Corruption { file, offset, reason }) = error else {
        return Err(error);
    };
    let shown = file.strip_prefix(folder).unwrap_or(&file);
    Ok(format!("{} at byte {offset}: {reason}", shown.display()))
}

/// Looks at the table and at the chunks that it names.
pub fn survey(env: &Env, folder: &Path) -> Result<Survey> {
    let table = match ChunkTable::exists(env, folder)? {
        true => ChunkTable::read(env, folder).map_err(Error::from),
        false => Err(umbel::Error::corruption(&folder.join("CHUNKS"), 0, "it is missing").into()),
    };
    let (table, table_damage) = match table {
        Ok(table) => (table, None),
        Err(error) => {
            let damage = damage_of(error, folder)?;
            (ChunkTable::create(env)?, Some(damage))
        }
    };
    let is_seed_lost = table_damage.is_some();
    let mut survey = Survey {
        generation: table.generation,
        table_damage,
        is_tail_lost: is_seed_lost,
        is_seed_lost,
        chunks: Vec::new(),
        left_out: Vec::new(),
        short: Vec::new(),
        strangers: Vec::new(),
        unplaced: Vec::new(),
        existence_damage: existence_damage(env, folder)?,
        remains_damage: None,
        table,
    };
    survey.look_at_named(env, folder)?;
    survey.look_at_remains(env, folder)?;
    Ok(survey)
}

/// What keeps the existence filter from being made anew.
fn existence_damage(env: &Env, folder: &Path) -> Result<Option<String>> {
    let entries = env.files.read_dir(folder)?;
    let is_file = entries.iter().any(|entry| entry.name == "existence" && !entry.is_directory);
    Ok(is_file.then(|| "existence is no folder".to_string()))
}

impl Survey {
    /// Whether something has to be done about the log.
    pub fn is_damaged(&self) -> bool {
        self.table_damage.is_some() || self.chunks.iter().any(|chunk| chunk.damage.is_some())
    }

    /// The number of the whole chunk with events up to this position or further.
    pub fn whole_at(&self, position: u64) -> Option<usize> {
        self.chunks.iter().position(|found| {
            let entry = &found.entry;
            let ended = entry.ended.map_or(0, |ended| ended.last_event);
            let last = entry.packed.map_or(ended, |packed| packed.last_event);
            found.damage.is_none() && (entry.start..=entry.start + last).contains(&position)
        })
    }

    /// Looks at the files that chunks were made of. One is left by a scavenge that was killed, or
    /// by a repair whose marker was lost: opening the store asks it what the index has to forget.
    fn look_at_remains(&mut self, env: &Env, folder: &Path) -> Result<()> {
        for entry in self.chunks.iter().map(|found| found.entry) {
            let Some(packed) = entry.packed else { continue };
            let path = version_path(folder, entry.id, packed.made_of);
            if !env.files.exists(&path)? {
                continue;
            }
            let damage = remains_damage(env, folder, &entry, packed.made_of)?;
            self.remains_damage = self.remains_damage.take().or(damage);
        }
        Ok(())
    }

    /// Looks at the chunks that the table names.
    fn look_at_named(&mut self, env: &Env, folder: &Path) -> Result<()> {
        let mut is_whole = true;
        for entry in self.table.chunks.clone() {
            let Some(ended) = entry.ended else {
                self.look_at_open(env, folder, entry, &mut is_whole)?;
                continue;
            };
            let checked = match entry.packed {
                Some(_) => check_packed(env, folder, &entry),
                None => check_ended(env, folder, &entry, &ended),
            };
            let damage = checked.err().map(|error| damage_of(error, folder)).transpose()?;
            let mut found = Found::new(entry, damage);
            found.is_end_known = true;
            found.is_foreign = found.damage.is_some() && is_other(env, folder, &entry, &ended);
            self.chunks.push(found);
        }
        Ok(())
    }

    /// Looks at a chunk that may have been written when the process ended, with the rules by which
    /// it would be opened.
    fn look_at_open(
        &mut self,
        env: &Env,
        folder: &Path,
        mut entry: ChunkEntry,
        is_whole: &mut bool,
    ) -> Result<()> {
        let read = read_open(env, &entry.path(folder), &entry);
        if is_short(env, folder, &entry) {
            self.short.push(entry);
        }
        let mut found = Found { is_unsynced: true, ..Found::new(entry, None) };
        match read {
            Ok(Opened { ended, gap: Some(gap), .. }) => {
                found.damage = Some(gap.to_string());
                found.is_end_known = true;
                found.entry.ended = Some(Ended { end: gap.used_end, ..ended });
                *is_whole = true;
            }
            Ok(Opened { ended, has_durable, gap: None }) => {
                if !*is_whole && !has_durable || ended.last_event == 0 {
                    // It would be left out.
                    *is_whole &= ended.sealed.is_some();
                    self.left_out.push(entry);
                    return Ok(());
                }
                if !*is_whole && let Some(before) = self.chunks.last_mut() {
                    before.damage.get_or_insert_with(|| {
                        let id = entry.id;
                        format!(
                            "it is torn at its end, but chunk {id} holds events behind it that \
                                 had been made durable"
                        )
                    });
                }
                *is_whole = ended.sealed.is_some();
                entry.ended = Some(ended);
                found.entry = entry;
            }
            Err(error) => {
                found.damage = Some(damage_of(error, folder)?);
                found.entry.ended = Some(Ended::EMPTY);
                *is_whole = true;
            }
        }
        self.chunks.push(found);
        Ok(())
    }
}

/// What a chunk that nobody ended holds.
pub struct Opened {
    /// How it ended.
    pub ended: Ended,
    /// Whether a record of it tells that events had been made durable.
    pub has_durable: bool,
    /// What stands behind its end.
    pub gap: Option<Gap>,
}

/// Appends that look whole behind bytes that are none, in a chunk that nobody ended: of damage, or
/// of a power cut that had later pages written first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    id: u64,
    /// Where nothing valid stands.
    at: u64,
    /// How many appends stand behind.
    count: u64,
    /// The offset behind the last of them.
    pub end: u64,
    /// The offset behind everything that is not zero: it was something once.
    pub used_end: u64,
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Gap { id, at, count, .. } = self;
        let (appends, stand) =
            if *count == 1 { ("append", "stands") } else { ("appends", "stand") };
        write!(
            f,
            "log/{id:08}.chunk at byte {at}: nothing valid stands here, but {count} whole \
             {appends} {stand} behind it, which are left out when the store is opened: damage, or \
             a power cut that had later pages written first"
        )
    }
}

/// Reads a chunk that nobody ended.
pub fn read_open(env: &Env, path: &Path, entry: &ChunkEntry) -> Result<Opened> {
    let read = read_chunk_file(env, path, entry.id, Expectation::Open)?;
    let ChunkRead { outcome, last_event, has_more } = read;
    if last_event > 0 {
        check_place(env, path, entry)?;
    }
    let sealed = Sealed { len: outcome.end, checksum: outcome.checksum };
    let sealed = outcome.sealed.then_some(sealed);
    let end = match sealed {
        Some(sealed) => sealed.len - umbel_log::END_RECORD_BYTES,
        None => outcome.end.max(HEADER_BYTES),
    };
    let ended = Ended { end, last_event, sealed };
    let gap = if has_more { gap(env, path, entry, end)? } else { None };
    Ok(Opened { ended, has_durable: outcome.durable_max > HEADER_BYTES, gap })
}

/// The appends behind the end of a chunk that nobody ended.
fn gap(env: &Env, path: &Path, entry: &ChunkEntry, at: u64) -> Result<Option<Gap>> {
    let bytes = read_file(env, path)?;
    let found = Source::new(entry.id, entry.start, &bytes).unproven(at, bytes.len() as u64);
    let used_end = found.end.max(used_bytes(&bytes).next_multiple_of(RECORD_ALIGN));
    let gap = Gap { id: entry.id, at, count: found.count, end: found.end, used_end };
    Ok((found.count > 0).then_some(gap))
}

/// An error where the first event of a chunk has another position: it is that of another store.
fn check_place(env: &Env, path: &Path, entry: &ChunkEntry) -> Result<()> {
    let bytes = read_file(env, path)?;
    let first = bytes.get(FIRST_EVENT_AT as usize..).and_then(|bytes| {
        let place = Place { chunk: entry.id, offset: FIRST_EVENT_AT };
        Frame::decode(bytes, place).map(|frame| frame.stamp.position)
    });
    if first == Some(entry.start + FIRST_EVENT_AT) {
        return Ok(());
    }
    let reason = "the first event has another position: the file is of another store";
    Err(umbel::Error::corruption(path, FIRST_EVENT_AT, reason).into())
}

fn check_ended(env: &Env, folder: &Path, entry: &ChunkEntry, ended: &Ended) -> Result<()> {
    let expectation = ended.sealed.map_or(Expectation::Open, Expectation::Sealed);
    let ChunkRead { outcome, last_event, .. } = read_chunk(env, folder, entry, expectation)?;
    let end = ended.file_bytes();
    if (outcome.end, last_event) == (end, ended.last_event) {
        return check_place(env, &entry.path(folder), entry);
    }
    let reason = format!("the chunk ends here, but the table of chunks says at byte {end}");
    Err(umbel::Error::corruption(&entry.path(folder), outcome.end, reason).into())
}

/// Whether the file of a chunk that has ended was written to its end, and is not what the table
/// says.
fn is_other(env: &Env, folder: &Path, entry: &ChunkEntry, ended: &Ended) -> bool {
    if entry.packed.is_some() {
        return false;
    }
    let Ok(read) = read_chunk(env, folder, entry, Expectation::Open) else { return false };
    let outcome = read.outcome;
    let sealed = Sealed { len: outcome.end, checksum: outcome.checksum };
    outcome.sealed && ended.sealed != Some(sealed)
}

fn check_packed(env: &Env, folder: &Path, entry: &ChunkEntry) -> Result<()> {
    let Some(packed) = &entry.packed else { return Ok(()) };
    let path = entry.path(folder);
    let opened = env.files.open(&path, Access::Read);
    let file = opened.map_err(|error| unopened(&path, error))?;
    let len = file.len()?;
    if len < packed.file_bytes {
        let reason = format!("the file ends here, but has to have {} bytes", packed.file_bytes);
        return Err(umbel::Error::corruption(&path, len, reason).into());
    }
    packed::check(&*file, entry.id, packed)?;
    let range = (entry.start, entry.start + entry.capacity);
    let points = packed::read_points(&*file, entry.id, packed.version, range)?;
    packed::read_gaps(&*file, entry.id, &points, range)?;
    Ok(())
}

/// What is wrong with the file of this version that a chunk was made of.
fn remains_damage(
    env: &Env,
    folder: &Path,
    entry: &ChunkEntry,
    version: u64,
) -> Result<Option<String>> {
    let before = ChunkEntry { packed: None, ..*entry };
    let checked = match before.ended {
        Some(ended) if version == 0 => check_ended(env, folder, &before, &ended),
        _ => check_packed_remains(env, folder, entry, version),
    };
    checked.err().map(|error| damage_of(error, folder)).transpose()
}

/// An error where a packed file that no table names any more is not whole.
fn check_packed_remains(env: &Env, folder: &Path, entry: &ChunkEntry, version: u64) -> Result<()> {
    let path = version_path(folder, entry.id, version);
    let file = env.files.open(&path, Access::Read)?;
    let limit = entry.start + entry.capacity;
    let points = packed::read_points(&*file, entry.id, version, (entry.start, limit))?;
    let bytes = read_file(env, &path)?;
    let saved = Source::new(entry.id, entry.start, &bytes).packed(limit, Some(&points), None);
    match saved.lost.first() {
        None => Ok(()),
        Some(_) => Err(umbel::Error::corruption(&path, 0, "events in it are damaged").into()),
    }
}

/// Whether the file of a chunk that nobody ended is shorter than it was made.
pub fn is_short(env: &Env, folder: &Path, entry: &ChunkEntry) -> bool {
    let file = env.files.open(&entry.path(folder), Access::Read);
    file.is_ok_and(|file| file.len().is_ok_and(|len| len < entry.capacity))
}

/// How many bytes there are before the zeros at the end.
pub fn used_bytes(bytes: &[u8]) -> u64 {
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1)
}

/// All bytes of a file of the log; none where it is missing.
pub fn read_file(env: &Env, path: &Path) -> Result<Vec<u8>> {
    let file = match env.files.open(path, Access::Read) {
        Err(error) if error.is_missing_file() => return Ok(Vec::new()),
        opened => opened?,
    };
    let mut bytes = vec![0; file.len()?.min(FILE_BYTES_MAX) as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

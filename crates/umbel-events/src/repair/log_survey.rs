//! Survey of a store's event log: the chunk manifest, or what the chunks show if the manifest is
//! damaged, and whether each chunk is whole. The survey changes nothing.

use std::fmt;
use std::path::{Path, PathBuf};

use umbel_env::{Access, Env};
use umbel_log::{ExpectedEnd, HEADER_BYTES, RECORD_ALIGN, Seal};

use super::salvage::ChunkBytes;
use crate::event_log::chunk::FIRST_EVENT_OFFSET;
use crate::event_log::chunk_manifest::{
    ChunkEnd, ChunkEntry, ChunkManifest, chunk_directory, chunk_version_path, open_error,
};
use crate::event_log::chunk_scan::{ChunkScan, scan_chunk, scan_chunk_file};
use crate::event_log::event_format::{Frame, FrameLocation};
use crate::event_log::scavenged_chunk;
use crate::limits::FILE_BYTES_MAX;
use crate::repair::repair_report::UnplacedChunk;
use crate::types::error::{Error, Result};

/// Chunk in its state before the repair.
#[derive(Debug, Clone)]
pub struct FoundChunk {
    /// Present or future entry of the chunk in the manifest; the entry has an end.
    pub entry: ChunkEntry,
    /// Description of the chunk's damage; `None` if the chunk is whole.
    pub damage: Option<String>,
    /// Whether the chunk's end was recorded.
    pub is_end_known: bool,
    /// Whether the chunk's file may be not durable yet.
    pub is_unsynced: bool,
    /// Whether the file is whole but does not belong to this chunk: most likely the file belongs to
    /// another store.
    pub is_foreign: bool,
    /// End of the nonzero bytes after the end of an orphan chunk without a recorded end. These
    /// bytes are a write torn by a power cut, or damage.
    pub torn_end: Option<u64>,
    /// File that contains the chunk, if it has another chunk's name.
    pub actual_path: Option<PathBuf>,
    /// Whether nothing, except possibly the index, proves that the chunk belongs to this store.
    pub is_unproven: bool,
    /// Whether a gap in the sequence of chunks is the only evidence of this chunk, which may have
    /// been empty.
    pub is_guessed: bool,
}

impl FoundChunk {
    /// Creates a chunk of which only the given entry is known.
    pub fn new(entry: ChunkEntry, damage: Option<String>) -> FoundChunk {
        FoundChunk {
            entry,
            damage,
            is_end_known: false,
            is_unsynced: false,
            is_foreign: false,
            torn_end: None,
            actual_path: None,
            is_unproven: false,
            is_guessed: false,
        }
    }

    /// Path of the file that was found.
    pub fn path(&self, folder: &Path) -> PathBuf {
        self.actual_path.clone().unwrap_or_else(|| self.entry.path(folder))
    }
}

/// Event log in its state before the repair.
#[derive(Debug)]
pub struct LogSurvey {
    /// The log's manifest; its chunks are in `chunks` instead.
    pub manifest: ChunkManifest,
    /// Generation of the manifest on disk; 0 if it cannot be read.
    pub generation: u64,
    /// Reason why the manifest must be rebuilt.
    pub manifest_damage: Option<String>,
    /// Whether the manifest does not show which chunks followed its last one.
    pub is_tail_lost: bool,
    /// Whether the store's seed is lost.
    pub is_seed_lost: bool,
    /// The chunks.
    pub chunks: Vec<FoundChunk>,
    /// Empty chunks of the manifest, which an open of the store would skip.
    pub skipped: Vec<ChunkEntry>,
    /// Chunks without a known end whose files are shorter than their length at creation.
    pub short_files: Vec<ChunkEntry>,
    /// Files of the log's directory that belong to no chunk.
    pub unrelated_files: Vec<String>,
    /// Unrelated files with readable events that may belong to this store.
    pub unplaced: Vec<UnplacedChunk>,
    /// Damage of the existence filter's directory.
    pub existence_damage: Option<String>,
    /// Damage of an older file from which a scavenge rewrote a chunk and which still exists.
    pub replaced_file_damage: Option<String>,
}

/// File with events in the log's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkFile {
    /// Chunk id in the file name.
    pub id: u64,
    /// Version in the file name.
    pub version: u64,
    /// Name of the file.
    pub name: String,
}

/// Files of the log's directory with names of chunks, by id and version.
pub fn chunk_files(env: &Env, folder: &Path) -> Result<Vec<ChunkFile>> {
    let log = chunk_directory(folder);
    if !env.files.exists(&log)? {
        return Ok(Vec::new());
    }
    let named = |name: &str| {
        let stem = name.strip_suffix(".chunk")?;
        let (id, version) = stem.split_once('-').unwrap_or((stem, "0"));
        let (id, version) = (id.parse().ok()?, version.parse().ok()?);
        let is_name = chunk_version_path(folder, id, version).ends_with(name);
        is_name.then(|| ChunkFile { id, version, name: name.to_string() })
    };
    let entries = env.files.read_dir(&log)?;
    let files = entries.iter().filter(|entry| !entry.is_directory);
    let mut files: Vec<_> = files.filter_map(|entry| named(&entry.name)).collect();
    files.sort_unstable_by_key(|file| (file.id, file.version));
    Ok(files)
}

/// Text of an error that reports damage; any other error is returned to the caller.
pub fn damage_text(error: Error, folder: &Path) -> Result<String> {
    let Error::Store(umbel::Error::Corruption { file, offset, reason }) = error else {
        return Err(error);
    };
    let shown = file.strip_prefix(folder).unwrap_or(&file);
    Ok(format!("{} at byte {offset}: {reason}", shown.display()))
}

/// Surveys the manifest and the chunks that it names.
pub fn survey_log(env: &Env, folder: &Path) -> Result<LogSurvey> {
    let manifest = match ChunkManifest::exists(env, folder)? {
        true => ChunkManifest::read(env, folder).map_err(Error::from),
        false => {
            Err(umbel::Error::corruption(&folder.join("CHUNKS"), 0, "the file is missing").into())
        }
    };
    let (manifest, manifest_damage) = match manifest {
        Ok(manifest) => (manifest, None),
        Err(error) => {
            let damage = damage_text(error, folder)?;
            (ChunkManifest::create(env)?, Some(damage))
        }
    };
    let is_seed_lost = manifest_damage.is_some();
    let mut survey = LogSurvey {
        generation: manifest.generation,
        manifest_damage,
        is_tail_lost: is_seed_lost,
        is_seed_lost,
        chunks: Vec::new(),
        skipped: Vec::new(),
        short_files: Vec::new(),
        unrelated_files: Vec::new(),
        unplaced: Vec::new(),
        existence_damage: existence_damage(env, folder)?,
        replaced_file_damage: None,
        manifest,
    };
    survey.examine_listed_chunks(env, folder)?;
    survey.examine_replaced_files(env, folder)?;
    Ok(survey)
}

/// Reason why the existence filter cannot be rebuilt.
fn existence_damage(env: &Env, folder: &Path) -> Result<Option<String>> {
    let entries = env.files.read_dir(folder)?;
    let is_file = entries.iter().any(|entry| entry.name == "existence" && !entry.is_directory);
    Ok(is_file.then(|| "a file is in the place of the directory `existence`".to_string()))
}

impl LogSurvey {
    /// Whether the log needs a repair.
    pub fn is_damaged(&self) -> bool {
        self.manifest_damage.is_some() || self.chunks.iter().any(|chunk| chunk.damage.is_some())
    }

    /// Index of the whole chunk with events up to this position or further.
    pub fn whole_chunk_at(&self, position: u64) -> Option<usize> {
        self.chunks.iter().position(|found| {
            let entry = &found.entry;
            let ended = entry.ended.map_or(0, |ended| ended.last_event);
            let last = entry.scavenged.map_or(ended, |scavenged| scavenged.last_event);
            found.damage.is_none() && (entry.start..=entry.start + last).contains(&position)
        })
    }

    /// Examines the files from which chunks were rewritten. A replaced file remains after a killed
    /// scavenge, or after a repair whose marker was lost. An open of the store reads from the older
    /// file which entries the index must delete.
    fn examine_replaced_files(&mut self, env: &Env, folder: &Path) -> Result<()> {
        for entry in self.chunks.iter().map(|found| found.entry) {
            let Some(scavenged) = entry.scavenged else { continue };
            let path = chunk_version_path(folder, entry.id, scavenged.source_version);
            if !env.files.exists(&path)? {
                continue;
            }
            let damage = replaced_file_damage(env, folder, &entry, scavenged.source_version)?;
            self.replaced_file_damage = self.replaced_file_damage.take().or(damage);
        }
        Ok(())
    }

    /// Examines the chunks that the manifest names.
    fn examine_listed_chunks(&mut self, env: &Env, folder: &Path) -> Result<()> {
        let mut is_whole = true;
        for entry in self.manifest.chunks.clone() {
            let Some(ended) = entry.ended else {
                self.examine_unended_chunk(env, folder, entry, &mut is_whole)?;
                continue;
            };
            let checked = match entry.scavenged {
                Some(_) => check_scavenged(env, folder, &entry),
                None => check_ended(env, folder, &entry, &ended),
            };
            let damage = checked.err().map(|error| damage_text(error, folder)).transpose()?;
            let mut found = FoundChunk::new(entry, damage);
            found.is_end_known = true;
            found.is_foreign =
                found.damage.is_some() && is_foreign_file(env, folder, &entry, &ended);
            self.chunks.push(found);
        }
        Ok(())
    }

    /// Examines a chunk that may have been active when the process ended, with the same rules as an
    /// open of the store.
    fn examine_unended_chunk(
        &mut self,
        env: &Env,
        folder: &Path,
        mut entry: ChunkEntry,
        is_whole: &mut bool,
    ) -> Result<()> {
        let read = read_unended(env, &entry.path(folder), &entry);
        if is_truncated(env, folder, &entry) {
            self.short_files.push(entry);
        }
        let mut found = FoundChunk { is_unsynced: true, ..FoundChunk::new(entry, None) };
        match read {
            Ok(UnendedChunk { ended, gap: Some(gap), .. }) => {
                found.damage = Some(gap.to_string());
                found.is_end_known = true;
                found.entry.ended = Some(ChunkEnd { end: gap.used_end, ..ended });
                *is_whole = true;
            }
            Ok(UnendedChunk { ended, has_durable, gap: None }) => {
                if !*is_whole && !has_durable || ended.last_event == 0 {
                    // The open would skip it.
                    *is_whole &= ended.seal.is_some();
                    self.skipped.push(entry);
                    return Ok(());
                }
                if !*is_whole && let Some(before) = self.chunks.last_mut() {
                    before.damage.get_or_insert_with(|| {
                        let id = entry.id;
                        format!(
                            "the chunk is torn at its end, but chunk {id} after it holds events \
                             that had been made durable"
                        )
                    });
                }
                *is_whole = ended.seal.is_some();
                entry.ended = Some(ended);
                found.entry = entry;
            }
            Err(error) => {
                found.damage = Some(damage_text(error, folder)?);
                found.entry.ended = Some(ChunkEnd::EMPTY);
                *is_whole = true;
            }
        }
        self.chunks.push(found);
        Ok(())
    }
}

/// Contents of a chunk without a recorded end.
pub struct UnendedChunk {
    /// End of the chunk.
    pub ended: ChunkEnd,
    /// Whether a record in the chunk shows that events had been made durable.
    pub has_durable: bool,
    /// Appends that look whole after the chunk's end.
    pub gap: Option<AppendsAfterEnd>,
}

/// Appends that look whole after invalid bytes, in a chunk without a recorded end. The cause is
/// damage, or a power cut when later pages of the file were already written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppendsAfterEnd {
    id: u64,
    /// Offset of the first invalid byte.
    at: u64,
    /// Number of appends that look whole after the invalid bytes.
    count: u64,
    /// Offset after the last of these appends.
    pub end: u64,
    /// Offset after the last nonzero byte of the file, up to which the file was written once.
    pub used_end: u64,
}

impl fmt::Display for AppendsAfterEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AppendsAfterEnd { id, at, count, .. } = self;
        let (appends, follow, are) = match *count {
            1 => ("append", "follows", "is"),
            _ => ("appends", "follow", "are"),
        };
        write!(
            f,
            "log/{id:08}.chunk at byte {at}: nothing valid is here, but {count} whole \
             {appends} {follow}, which {are} skipped when the store is opened: damage, or a power \
             loss after which later pages were on disk and earlier pages were not"
        )
    }
}

/// Reads a chunk without a recorded end.
pub fn read_unended(env: &Env, path: &Path, entry: &ChunkEntry) -> Result<UnendedChunk> {
    let read = scan_chunk_file(env, path, entry.id, ExpectedEnd::Open)?;
    let ChunkScan { outcome, last_event, has_records_after_end: has_more } = read;
    if last_event > 0 {
        check_first_position(env, path, entry)?;
    }
    let sealed = Seal { len: outcome.end, checksum: outcome.checksum };
    let sealed = outcome.sealed.then_some(sealed);
    let end = match sealed {
        Some(sealed) => sealed.len - umbel_log::END_RECORD_BYTES,
        None => outcome.end.max(HEADER_BYTES),
    };
    let ended = ChunkEnd { end, last_event, seal: sealed };
    let gap = if has_more { find_appends_after(env, path, entry, end)? } else { None };
    Ok(UnendedChunk { ended, has_durable: outcome.durable_max > HEADER_BYTES, gap })
}

/// Finds the appends after the end of a chunk without a recorded end.
fn find_appends_after(
    env: &Env,
    path: &Path,
    entry: &ChunkEntry,
    at: u64,
) -> Result<Option<AppendsAfterEnd>> {
    let bytes = read_file(env, path)?;
    let found =
        ChunkBytes::new(entry.id, entry.start, &bytes).find_unproven(at, bytes.len() as u64);
    let used_end = found.end.max(used_bytes(&bytes).next_multiple_of(RECORD_ALIGN));
    let gap = AppendsAfterEnd { id: entry.id, at, count: found.count, end: found.end, used_end };
    Ok((found.count > 0).then_some(gap))
}

/// Returns an error if the first event of a chunk has another position than expected: the chunk
/// belongs to another store.
fn check_first_position(env: &Env, path: &Path, entry: &ChunkEntry) -> Result<()> {
    let bytes = read_file(env, path)?;
    let first = bytes.get(FIRST_EVENT_OFFSET as usize..).and_then(|bytes| {
        let place = FrameLocation { chunk: entry.id, offset: FIRST_EVENT_OFFSET };
        Frame::decode(bytes, place).map(|frame| frame.meta.position)
    });
    if first == Some(entry.start + FIRST_EVENT_OFFSET) {
        return Ok(());
    }
    let reason = "the first event has another position: the file belongs to another store";
    Err(umbel::Error::corruption(path, FIRST_EVENT_OFFSET, reason).into())
}

fn check_ended(env: &Env, folder: &Path, entry: &ChunkEntry, ended: &ChunkEnd) -> Result<()> {
    let expectation = ended.seal.map_or(ExpectedEnd::Open, ExpectedEnd::Sealed);
    let ChunkScan { outcome, last_event, .. } = scan_chunk(env, folder, entry, expectation)?;
    let end = ended.file_bytes();
    if (outcome.end, last_event) == (end, ended.last_event) {
        return check_first_position(env, &entry.path(folder), entry);
    }
    let reason = format!("the chunk ends here, but should end at byte {end} by the chunk manifest");
    Err(umbel::Error::corruption(&entry.path(folder), outcome.end, reason).into())
}

/// Whether the file of an ended chunk is written completely but does not match the manifest.
fn is_foreign_file(env: &Env, folder: &Path, entry: &ChunkEntry, ended: &ChunkEnd) -> bool {
    if entry.scavenged.is_some() {
        return false;
    }
    let Ok(read) = scan_chunk(env, folder, entry, ExpectedEnd::Open) else { return false };
    let outcome = read.outcome;
    let sealed = Seal { len: outcome.end, checksum: outcome.checksum };
    outcome.sealed && ended.seal != Some(sealed)
}

fn check_scavenged(env: &Env, folder: &Path, entry: &ChunkEntry) -> Result<()> {
    let Some(scavenged) = &entry.scavenged else { return Ok(()) };
    let path = entry.path(folder);
    let opened = env.files.open(&path, Access::Read);
    let file = opened.map_err(|error| open_error(&path, error))?;
    let len = file.len()?;
    if len < scavenged.file_bytes {
        let reason = format!("the file ends here, but must have {} bytes", scavenged.file_bytes);
        return Err(umbel::Error::corruption(&path, len, reason).into());
    }
    scavenged_chunk::verify_file(&*file, entry.id, scavenged)?;
    let range = (entry.start, entry.start + entry.capacity);
    let points = scavenged_chunk::read_position_map(&*file, entry.id, scavenged.version, range)?;
    scavenged_chunk::read_removed_events(&*file, entry.id, &points, range)?;
    Ok(())
}

/// Damage of the file of this version from which a chunk was rewritten.
fn replaced_file_damage(
    env: &Env,
    folder: &Path,
    entry: &ChunkEntry,
    version: u64,
) -> Result<Option<String>> {
    let before = ChunkEntry { scavenged: None, ..*entry };
    let checked = match before.ended {
        Some(ended) if version == 0 => check_ended(env, folder, &before, &ended),
        _ => check_replaced_scavenged(env, folder, entry, version),
    };
    checked.err().map(|error| damage_text(error, folder)).transpose()
}

/// Returns an error if an older scavenged file, which the manifest no longer names, is not whole.
fn check_replaced_scavenged(
    env: &Env,
    folder: &Path,
    entry: &ChunkEntry,
    version: u64,
) -> Result<()> {
    let path = chunk_version_path(folder, entry.id, version);
    let file = env.files.open(&path, Access::Read)?;
    let limit = entry.start + entry.capacity;
    let points =
        scavenged_chunk::read_position_map(&*file, entry.id, version, (entry.start, limit))?;
    let bytes = read_file(env, &path)?;
    let saved = ChunkBytes::new(entry.id, entry.start, &bytes).salvage_scavenged(
        limit,
        Some(&points),
        None,
    );
    match saved.lost.first() {
        None => Ok(()),
        Some(_) => Err(umbel::Error::corruption(&path, 0, "events in the file are damaged").into()),
    }
}

/// Whether the file of a chunk without a recorded end is shorter than its length at creation.
pub fn is_truncated(env: &Env, folder: &Path, entry: &ChunkEntry) -> bool {
    let file = env.files.open(&entry.path(folder), Access::Read);
    file.is_ok_and(|file| file.len().is_ok_and(|len| len < entry.capacity))
}

/// Number of bytes before the zeros at the end.
pub fn used_bytes(bytes: &[u8]) -> u64 {
    bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1)
}

/// Reads all bytes of a log file; empty if the file is missing.
pub fn read_file(env: &Env, path: &Path) -> Result<Vec<u8>> {
    let file = match env.files.open(path, Access::Read) {
        Err(error) if error.is_missing_file() => return Ok(Vec::new()),
        opened => opened?,
    };
    let mut bytes = vec![0; file.len()?.min(FILE_BYTES_MAX) as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

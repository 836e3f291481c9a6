//! Chunks whose files have the names of other chunks, because files were exchanged or renamed.
//!
//! A file's header has its chunk's id, but does not name the store. If the manifest knows the
//! chunk, the chunk's seal or checksum in the manifest decides. If the manifest does not know the
//! chunk, the streams decide: in the adjacent chunks, the revisions of most common streams must
//! continue without a gap, and no stream may contradict. So another store's chunk with the same id
//! is not accepted.

use std::collections::HashMap;
use std::path::Path;

use umbel_base::checksum::checksum;
use umbel_env::{Access, Env};
use umbel_log::ExpectedEnd;

use super::salvage::ChunkBytes;
use crate::event_log::chunk_manifest::{ChunkEnd, ChunkEntry, chunk_directory};
use crate::event_log::chunk_scan::scan_chunk_file;
use crate::event_log::clock_epochs::ClockEpochs;
use crate::event_log::scavenged_chunk;
use crate::limits::{POSITION_MAX, REVISION_MAX};
use crate::repair::inspect_orphan::{OrphanChunk, inspect_file};
use crate::repair::log_survey::{ChunkFile, FoundChunk, LogSurvey, read_file};
use crate::repair::repair_report::UnplacedChunk;
use crate::types::error::Result;
use crate::types::event::Position;

const LOG_MAGIC: &[u8; 8] = b"UmbelLog";

/// Id and version in the header of a file; `None` if the file has no such header.
fn read_header_identity(env: &Env, path: &Path) -> Option<(u64, u64)> {
    let file = env.files.open(path, Access::Read).ok()?;
    let mut header = [0; scavenged_chunk::HEADER_BYTES as usize];
    file.read_exact_at(&mut header, 0).ok()?;
    if !header.starts_with(LOG_MAGIC) {
        return scavenged_chunk::parse_header(&header);
    }
    let id = u64::from_le_bytes(*header[16..].first_chunk()?);
    let (content, sum) = header.split_last_chunk::<8>()?;
    (checksum(id, 0, content) == u64::from_le_bytes(*sum)).then_some((id, 0))
}

/// Returns the file with the id and version of its header instead of its name's, if it has a
/// header.
pub fn with_header_identity(env: &Env, folder: &Path, file: &ChunkFile) -> ChunkFile {
    let path = chunk_directory(folder).join(&file.name);
    let (id, version) = read_header_identity(env, &path).unwrap_or((file.id, file.version));
    ChunkFile { id, version, name: file.name.clone() }
}

/// Finds the files whose headers contradict their names, with the id and version in the header.
pub fn find_misnamed(env: &Env, folder: &Path, files: &[ChunkFile]) -> Vec<ChunkFile> {
    let log = chunk_directory(folder);
    let other = |file: &ChunkFile| {
        let (id, version) = read_header_identity(env, &log.join(&file.name))?;
        let is_other = (id, version) != (file.id, file.version) && id > 0;
        is_other.then(|| ChunkFile { id, version, name: file.name.clone() })
    };
    let mut others: Vec<_> = files.iter().filter_map(other).collect();
    others.sort_unstable_by_key(|file| (file.id, file.version));
    others
}

/// Description of a file that has the name of another chunk.
fn misnamed_text(name: &str, id: u64) -> String {
    format!("the chunk's file has the wrong name, log/{name}: by its header the file is chunk {id}")
}

/// Reads the chunk from the misnamed file.
pub fn use_misnamed_file(found: &mut FoundChunk, name: &str, folder: &Path) {
    let message = misnamed_text(name, found.entry.id);
    found.actual_path = Some(chunk_directory(folder).join(name));
    found.damage = Some(match found.damage.take() {
        Some(damage) => format!("{message}; {damage}"),
        None => {
            // A whole chunk ends where its own contents say.
            found.is_end_known = true;
            message
        }
    });
}

/// Finds the files of damaged chunks of the manifest among the misnamed files.
pub fn match_damaged(
    env: &Env,
    folder: &Path,
    others: &[ChunkFile],
    survey: &mut LogSurvey,
    accept_unproven: bool,
) -> Result<()> {
    if others.is_empty() {
        return Ok(());
    }
    let epochs = &survey.manifest.epochs.clone();
    let whole = survey.chunks.iter().filter(|found| found.damage.is_none());
    let neighbors: Vec<_> =
        whole.map(|found| ChunkOutline::of(env, folder, epochs, found)).collect::<Result<_>>()?;
    // A chunk whose own file is empty may be under another name.
    for entry in survey.skipped.iter().filter(|entry| others.iter().any(|o| o.id == entry.id)) {
        let entry = ChunkEntry { ended: Some(ChunkEnd::EMPTY), ..*entry };
        let damage = format!(
            "the chunk's file is empty, but another file is by its header chunk {}",
            entry.id
        );
        let at = survey.chunks.partition_point(|found| found.entry.id < entry.id);
        let found = FoundChunk { is_foreign: true, ..FoundChunk::new(entry, Some(damage)) };
        survey.chunks.insert(at, found);
    }
    for found in survey.chunks.iter_mut().filter(|found| found.damage.is_some()) {
        let entry = found.entry;
        let version = entry.scavenged.map_or(0, |scavenged| scavenged.version);
        if read_header_identity(env, &entry.path(folder)) == Some((entry.id, version))
            && !found.is_foreign
        {
            continue;
        }
        for file in others.iter().filter(|file| (file.id, file.version) == (entry.id, version)) {
            let path = chunk_directory(folder).join(&file.name);
            if matches_entry(env, &path, &entry) {
                *found = FoundChunk::new(entry, None);
                use_misnamed_file(found, &file.name, folder);
                break;
            }
            let Some(candidate) = inspect_file(env, folder, file)? else { continue };
            let outline = ChunkOutline::of(env, folder, epochs, &candidate.chunk)?;
            if candidate.chunk.entry.start != entry.start
                || !(accept_unproven || outline.is_proven(&neighbors))
            {
                continue;
            }
            let mut other = candidate.chunk;
            let ended = entry.ended.filter(|ended| ended.last_event > 0);
            other.is_end_known |= ended.is_some();
            other.entry = ChunkEntry {
                ended: ended.or(other.entry.ended),
                scavenged: entry.scavenged,
                ..entry
            };
            *found = other;
            use_misnamed_file(found, &file.name, folder);
            break;
        }
    }
    Ok(())
}

/// Whether a file matches the manifest's entry of a chunk byte for byte.
fn matches_entry(env: &Env, path: &Path, entry: &ChunkEntry) -> bool {
    if let Some(scavenged) = &entry.scavenged {
        let file = env.files.open(path, Access::Read);
        return file
            .is_ok_and(|file| scavenged_chunk::verify_file(&*file, entry.id, scavenged).is_ok());
    }
    let sealed = entry.ended.and_then(|ended| ended.seal);
    sealed.is_some_and(|sealed| {
        scan_chunk_file(env, path, entry.id, ExpectedEnd::Sealed(sealed)).is_ok()
    })
}

/// Adds the chunks in misnamed files to the candidates, which are in ascending order. Misnamed
/// files that fit nowhere are recorded.
pub fn add_renamed(
    env: &Env,
    folder: &Path,
    others: &[ChunkFile],
    candidates: &mut Vec<OrphanChunk>,
    survey: &mut LogSurvey,
    accept_unproven: bool,
) -> Result<()> {
    let epochs = &survey.manifest.epochs.clone();
    let whole = survey.chunks.iter().filter(|found| found.damage.is_none());
    let own = candidates.iter().map(|candidate| &candidate.chunk).chain(whole);
    let mut neighbors: Vec<_> =
        own.map(|found| ChunkOutline::of(env, folder, epochs, found)).collect::<Result<_>>()?;
    let mut waiting = Vec::new();
    for file in others {
        if let Some(mut candidate) =
            inspect_file(env, folder, file)?.filter(|found| found.events > 0)
        {
            candidate.chunk.actual_path = Some(chunk_directory(folder).join(&file.name));
            let outline = ChunkOutline::of(env, folder, epochs, &candidate.chunk)?;
            let is_there = |other: &ChunkOutline| {
                let is_better = !other.is_whole && other.version == outline.version;
                other.id == outline.id && (!is_better || other.contains(&outline))
            };
            if !neighbors.iter().any(is_there) {
                waiting.push((candidate, outline));
            }
        }
    }
    // If no file has its own name, the chunks that continue each other decide.
    let mut is_alone = neighbors.iter().all(|other| other.positions.is_none());
    loop {
        let rest: Vec<ChunkOutline> = match is_alone {
            true => waiting.iter().map(|(_, outline)| outline.clone()).collect(),
            false => Vec::new(),
        };
        let others = if rest.is_empty() { &neighbors } else { &rest };
        let same =
            |outline: &ChunkOutline| neighbors.iter().find(|other| other.id == outline.id).cloned();
        let among = |outline: &ChunkOutline| {
            outline.is_proven(others) && same(outline).is_none_or(|same| outline.contains(&same))
        };
        let Some(at) = waiting.iter().position(|(_, outline)| among(outline)) else { break };
        is_alone = false;
        let (candidate, outline) = waiting.remove(at);
        candidates.retain(|other| other.chunk.entry.id != outline.id);
        neighbors.retain(|other| other.id != outline.id);
        insert_orphan(candidates, candidate);
        neighbors.push(outline);
    }
    if !survey.is_seed_lost && survey.manifest_damage.is_none() && candidates.is_empty() {
        // The manifest has all chunks.
        return Ok(());
    }
    for (mut candidate, outline) in waiting {
        if outline.is_consistent(&neighbors) {
            candidate.chunk.is_unproven = !accept_unproven;
            insert_orphan(candidates, candidate);
            neighbors.push(outline);
        } else {
            survey.unplaced.push(unplaced_chunk(&candidate));
            survey.unrelated_files.push(candidate.name);
        }
    }
    Ok(())
}

/// Report entry of a file that fits nowhere.
pub fn unplaced_chunk(candidate: &OrphanChunk) -> UnplacedChunk {
    let entry = &candidate.chunk.entry;
    UnplacedChunk {
        name: candidate.name.clone(),
        id: entry.id,
        events: candidate.events as u64,
        from: Position(entry.start),
        to: Position(entry.start + candidate.used_positions),
    }
}

fn insert_orphan(candidates: &mut Vec<OrphanChunk>, candidate: OrphanChunk) {
    let id = candidate.chunk.entry.id;
    let at = candidates.partition_point(|other| other.chunk.entry.id < id);
    candidates.insert(at, candidate);
}

/// Outline of a chunk that shows which chunks are adjacent.
#[derive(Debug, Clone)]
pub struct ChunkOutline {
    id: u64,
    /// Version of the chunk's file: a file from before a scavenge would restore removed events.
    version: u64,
    /// Whether the chunk's file is undamaged.
    is_whole: bool,
    /// First and last position of the chunk's events; `None` without events.
    pub positions: Option<(u64, u64)>,
    /// Times of the first and the last event of the chunk, ordered across the clock epochs.
    pub times: (u64, u64),
    /// Time of the last event of the chunk as it is stored.
    pub last_created: u64,
    /// First and last revision of each stream in the chunk.
    pub streams: HashMap<String, (u64, u64)>,
}

impl ChunkOutline {
    /// Outlines a chunk.
    pub fn of(
        env: &Env,
        folder: &Path,
        epochs: &ClockEpochs,
        found: &FoundChunk,
    ) -> Result<ChunkOutline> {
        let entry = &found.entry;
        let bytes = read_file(env, &found.path(folder))?;
        let source = ChunkBytes::new(entry.id, entry.start, &bytes);
        let saved = match entry.scavenged {
            Some(_) => source.salvage_scavenged(POSITION_MAX, None, None),
            None => source.salvage_appended(&[], false),
        };
        let mut outline = ChunkOutline {
            id: entry.id,
            version: entry.scavenged.map_or(0, |scavenged| scavenged.version),
            is_whole: found.damage.is_none(),
            positions: None,
            times: (0, 0),
            last_created: 0,
            streams: HashMap::new(),
        };
        for frame in saved.offsets.iter().filter_map(|offset| source.frame(*offset)) {
            let stamp = frame.meta;
            outline.last_created = stamp.created;
            outline.times.1 = epochs.ordered_time(stamp.position, stamp.created);
            if outline.positions.is_none() {
                outline.times.0 = outline.times.1;
            }
            let first = outline.positions.map_or(stamp.position, |(first, _)| first);
            outline.positions = Some((first, stamp.position));
            if stamp.revision <= REVISION_MAX {
                let first = (stamp.revision, stamp.revision);
                match outline.streams.get_mut(frame.stream) {
                    Some(revisions) => revisions.1 = stamp.revision,
                    None => drop(outline.streams.insert(frame.stream.to_string(), first)),
                }
            }
        }
        Ok(outline)
    }

    /// Whether the chunk contains every event of `other`.
    fn contains(&self, other: &ChunkOutline) -> bool {
        let inside =
            |own: Option<(u64, u64)>, other_range: Option<(u64, u64)>| match (own, other_range) {
                (Some(own), Some(other_range)) => own.0 <= other_range.0 && other_range.1 <= own.1,
                (_, other_range) => other_range.is_none(),
            };
        let same = |(name, other_range): (&String, &(u64, u64))| {
            inside(self.streams.get(name).copied(), Some(*other_range))
        };
        inside(self.positions, other.positions) && other.streams.iter().all(same)
    }

    /// Revisions of the streams in common with a later chunk: the last revision in this chunk, and
    /// the first in the later chunk.
    fn common_streams<'a>(
        &'a self,
        later: &'a ChunkOutline,
    ) -> impl Iterator<Item = (u64, u64)> + 'a {
        let streams = self.streams.iter();
        streams.filter_map(|(name, (_, last))| Some((*last, later.streams.get(name)?.0)))
    }

    /// Whether no other chunk contradicts this chunk's place.
    fn is_consistent(&self, others: &[ChunkOutline]) -> bool {
        let Some(own) = self.positions else { return false };
        others.iter().all(|other| {
            let Some(other_range) = other.positions else { return true };
            let (before, later) = if self.id < other.id { (self, other) } else { (other, self) };
            let (end, start) =
                if self.id < other.id { (own.1, other_range.0) } else { (other_range.1, own.0) };
            let rises = end < start && before.times.1 <= later.times.0;
            self.id != other.id
                && rises
                && before.common_streams(later).all(|(last, first)| last < first)
        })
    }

    /// Whether most of this chunk's streams continue without a gap in the nearest earlier or later
    /// chunk that has events of the stream.
    fn is_proven(&self, others: &[ChunkOutline]) -> bool {
        let others: Vec<_> = others.iter().filter(|other| other.id != self.id).cloned().collect();
        let is_near = |other: &&ChunkOutline| other.positions.is_some();
        let before = others.iter().filter(|other| other.id < self.id).filter(is_near);
        let before = before.max_by_key(|other| other.id).map(|other| (other, self));
        let after = others.iter().filter(|other| other.id > self.id).filter(is_near);
        let after = after.min_by_key(|other| other.id).map(|other| (self, other));
        let is_continued = |(one, next): (&ChunkOutline, &ChunkOutline)| {
            let (all, joined) =
                one.common_streams(next).fold((0, 0), |(all, joined), (last, first)| {
                    (all + 1, joined + u64::from(last + 1 == first))
                });
            all > 0 && joined * 2 > all
        };
        self.is_consistent(&others)
            && (before.is_some_and(is_continued) || after.is_some_and(is_continued))
    }
}

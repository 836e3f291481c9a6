//! Inspection of log files that no manifest names.

use std::collections::HashMap;
use std::path::Path;

use umbel_base::checksum::checksum;
use umbel_env::{Access, Env};
use umbel_log::{HEADER_BYTES, RECORD_ALIGN};

use super::salvage::ChunkBytes;
use crate::event_log::chunk::FIRST_EVENT_OFFSET;
use crate::event_log::chunk_manifest::{ChunkEnd, ChunkEntry, ScavengedFile, chunk_directory};
use crate::event_log::scavenged_chunk;
use crate::limits::{FILE_BYTES_MAX, POSITION_MAX};
use crate::open::repair_marker;
use crate::repair::log_survey::{
    ChunkFile, FoundChunk, UnendedChunk, damage_text, read_file, read_unended, used_bytes,
};
use crate::types::error::Result;

/// File that may become a chunk.
pub struct OrphanChunk {
    /// The chunk.
    pub chunk: FoundChunk,
    /// Number of positions that the chunk may have had.
    pub capacity: u64,
    /// Number of positions that the chunk's events span.
    pub used_positions: u64,
    /// Number of readable events in the chunk.
    pub events: usize,
    /// Whether the chunk's true start is unknown, so that its first readable event's position
    /// serves as the start.
    pub is_start_guessed: bool,
    /// The name of the file.
    pub name: String,
}

impl OrphanChunk {
    /// Sets an earlier start of the chunk: the positions between it and the first readable event
    /// count as lost.
    pub fn set_start(&mut self, start: u64) {
        let entry = &mut self.chunk.entry;
        let more = entry.start - start;
        entry.start = start;
        let scavenged = entry.scavenged.as_mut();
        let ended = entry.ended.as_mut();
        scavenged.into_iter().for_each(|scavenged| {
            scavenged.first_event += more;
            scavenged.last_event += more;
        });
        ended.into_iter().for_each(|ended| {
            ended.end += more;
            ended.last_event += more;
        });
        self.capacity += more;
        self.used_positions += more;
    }
}

/// Returns the file with the most events among those of one chunk.
pub fn best_version(
    env: &Env,
    folder: &Path,
    versions: &[&ChunkFile],
) -> Result<Option<OrphanChunk>> {
    let mut best: Option<OrphanChunk> = None;
    for file in versions {
        let candidate = inspect_file(env, folder, file)?;
        // Of two files with the same events, the older one has everything of which the newer one
        // was made.
        let is_better =
            |best: &OrphanChunk| candidate.as_ref().is_some_and(|new| new.events > best.events);
        if best.as_ref().is_none_or(is_better) {
            best = candidate.or(best);
        }
    }
    Ok(best)
}

/// Inspects the contents of a file; `None` if the file is empty, or nothing in the file shows its
/// positions.
pub fn inspect_file(env: &Env, folder: &Path, file: &ChunkFile) -> Result<Option<OrphanChunk>> {
    let path = chunk_directory(folder).join(&file.name);
    let bytes = read_file(env, &path)?;
    if file.version > 0 {
        return inspect_scavenged(env, folder, file, &bytes);
    }
    let Some(start) = chunk_start(file.id, &bytes) else { return Ok(None) };
    let (id, capacity) = (file.id, bytes.len() as u64);
    let mut entry =
        ChunkEntry { id, start, capacity, key: 0, ended: Some(ChunkEnd::EMPTY), scavenged: None };
    let read = read_unended(env, &path, &entry);
    let source = ChunkBytes::new(id, start, &bytes);
    let (mut is_end_known, mut torn) = (false, None);
    let (damage, events, used) = match read {
        Ok(UnendedChunk { ended, gap: Some(gap), .. }) => {
            is_end_known = true;
            entry.ended = Some(ChunkEnd { end: gap.used_end, ..ended });
            (Some(gap.to_string()), count_events(&source, ended.end), gap.end)
        }
        Ok(UnendedChunk { ended, .. }) => {
            let used_end = used_bytes(&bytes).next_multiple_of(RECORD_ALIGN);
            torn = Some(used_end).filter(|end| ended.seal.is_none() && *end > ended.end);
            entry.ended = Some(ended);
            (None, count_events(&source, ended.end), ended.end)
        }
        Err(error) => {
            let saved = source.salvage_appended(&[], false);
            let last = saved.offsets.last().and_then(|at| Some((at, source.frame(*at)?)));
            let saved_end = last.map_or(FIRST_EVENT_OFFSET, |(at, frame)| at + frame.bytes as u64);
            // What only looks like an append may be one that the index knows.
            let unproven = source.find_unproven(saved_end.min(capacity), capacity);
            let used = if unproven.count > 0 { unproven.end } else { saved_end };
            (Some(damage_text(error, folder)?), saved.offsets.len(), used)
        }
    };
    let found = FoundChunk {
        is_unsynced: true,
        is_end_known,
        torn_end: torn,
        ..FoundChunk::new(entry, damage)
    };
    let (extent, name) = (capacity, file.name.clone());
    Ok(Some(OrphanChunk {
        chunk: found,
        capacity: extent,
        used_positions: used,
        events,
        is_start_guessed: false,
        name,
    }))
}

/// Number of events before `end` in a chunk that is whole.
fn count_events(source: &ChunkBytes<'_>, end: u64) -> usize {
    let (mut offset, mut events) = (FIRST_EVENT_OFFSET, 0);
    while let Some(frame) = source.frame(offset).filter(|_| offset < end) {
        offset += frame.next_distance();
        events += 1;
    }
    events
}

/// Position of the first byte of a chunk that no scavenge rewrote, from the chunk's first event. If
/// the first event is damaged, the position that most apparent events imply.
fn chunk_start(id: u64, bytes: &[u8]) -> Option<u64> {
    let source = ChunkBytes::new(id, 0, bytes);
    let start = |offset: u64| {
        let frame = source.frame(offset).filter(|frame| !frame.is_stub)?;
        frame.meta.position.checked_sub(offset)
    };
    if let Some(start) = start(FIRST_EVENT_OFFSET) {
        return Some(start);
    }
    let mut votes: HashMap<u64, usize> = HashMap::new();
    let mut offset = FIRST_EVENT_OFFSET;
    while offset < bytes.len() as u64 {
        match start(offset) {
            Some(start) => {
                *votes.entry(start).or_default() += 1;
                offset += source.frame(offset).map_or(8, |frame| frame.bytes as u64);
            }
            None => offset += 8,
        }
    }
    votes.into_iter().max_by_key(|(start, count)| (*count, *start)).map(|(start, _)| start)
}

/// Creates a whole scavenged chunk without any event.
fn empty_scavenged(file: &ChunkFile, start: u64, bytes: &[u8]) -> OrphanChunk {
    let (id, version, extent) = (file.id, file.version, FIRST_EVENT_OFFSET);
    let scavenged = ScavengedFile {
        version,
        source_version: version - 1,
        file_bytes: bytes.len() as u64,
        checksum: checksum(id, 0, bytes),
        first_event: 0,
        last_event: 0,
    };
    let (ended, scavenged) = (Some(ChunkEnd::EMPTY), Some(scavenged));
    let entry = ChunkEntry { id, start, capacity: extent, key: 0, ended, scavenged };
    let found =
        FoundChunk { is_unsynced: true, is_end_known: true, ..FoundChunk::new(entry, None) };
    let (used, name) = (extent, file.name.clone());
    OrphanChunk {
        chunk: found,
        capacity: extent,
        used_positions: used,
        events: 0,
        is_start_guessed: false,
        name,
    }
}

fn inspect_scavenged(
    env: &Env,
    folder: &Path,
    file: &ChunkFile,
    bytes: &[u8],
) -> Result<Option<OrphanChunk>> {
    let path = chunk_directory(folder).join(&file.name);
    let opened = env.files.open(&path, Access::Read)?;
    let stated = bytes.get(24..32).and_then(|start| start.first_chunk());
    let stated = stated.map_or(u64::MAX, |start| u64::from_le_bytes(*start));
    let range = (stated, POSITION_MAX);
    let read = match stated <= POSITION_MAX {
        true => scavenged_chunk::read_position_map(&*opened, file.id, file.version, range)
            .and_then(|map| {
                let removed = scavenged_chunk::read_removed_events(&*opened, file.id, &map, range)?;
                Ok((map, removed))
            }),
        false => Err(umbel::Error::corruption(&path, 24, "no chunk begins at such a position")),
    };
    let read_failed = read.is_err();
    let start = if read_failed { 0 } else { stated };
    let source = ChunkBytes::new(file.id, start, bytes);
    let map = read.as_ref().ok().map(|(map, _)| map);
    let saved = source.salvage_scavenged(POSITION_MAX, map, None);
    let (Some(first), Some(last)) = (saved.offsets.first(), saved.offsets.last()) else {
        // A killed repair leaves unpublished files that look the same.
        let is_repairing = repair_marker::exists(env, folder)?;
        let is_empty = !is_repairing
            && read.is_ok_and(|(map, removed)| {
                map.offsets().next().is_none() && !removed.runs.is_empty()
            });
        return Ok(is_empty.then(|| empty_scavenged(file, start, bytes)));
    };
    let (Some(first), Some(last)) = (source.frame(*first), source.frame(*last)) else {
        return Ok(None);
    };
    // Without the header: no event is nearer to a chunk's start.
    let start = match read.is_ok() {
        true => start,
        false => first.meta.position.saturating_sub(FIRST_EVENT_OFFSET),
    };
    let last_event = last.meta.position - start;
    let extent = last_event + last.bytes as u64;
    let scavenged = ScavengedFile {
        version: file.version,
        source_version: file.version - 1,
        file_bytes: bytes.len() as u64,
        checksum: checksum(file.id, 0, bytes),
        first_event: first.meta.position - start,
        last_event,
    };
    let ended = ChunkEnd { end: extent, last_event, seal: None };
    let (id, scavenged) = (file.id, Some(scavenged));
    let entry = ChunkEntry { id, start, capacity: extent, key: 0, ended: Some(ended), scavenged };
    let damage = match read {
        Ok(_) if saved.lost.is_empty() => None,
        Ok(_) => Some(format!("log/{}: events in the file are damaged", file.name)),
        Err(error) => Some(damage_text(error.into(), folder)?),
    };
    // If the last events are lost, their positions are unknown.
    let is_torn = saved.lost.last().is_some_and(|lost| lost.to == POSITION_MAX);
    Ok(Some(OrphanChunk {
        chunk: FoundChunk { is_unsynced: true, ..FoundChunk::new(entry, damage) },
        capacity: if is_torn { extent.max(FILE_BYTES_MAX) } else { extent },
        used_positions: extent,
        events: saved.offsets.len(),
        is_start_guessed: read_failed,
        name: file.name.clone(),
    }))
}

/// Whether a chunk has never been appended to. The chunk's header may be damaged, but must not be
/// the header of another chunk.
pub fn is_unused(id: u64, bytes: &[u8]) -> bool {
    let Some((header, rest)) = bytes.split_first_chunk::<{ HEADER_BYTES as usize }>() else {
        return false;
    };
    let mut wanted = *b"UmbelLog\x01\0\0\0\x03\0\0\0\0\0\0\0\0\0\0\0";
    wanted[16..].copy_from_slice(&id.to_le_bytes());
    let nonzero = wanted.iter().zip(header).filter(|(wanted, _)| **wanted != 0);
    let (all, right) = nonzero.fold((0, 0), |(all, right), (wanted, byte)| {
        (all + 1, right + usize::from(wanted == byte))
    });
    let (content, sum) = header.split_at(HEADER_BYTES as usize - 8);
    let other = content[16..].first_chunk().map_or(0, |id| u64::from_le_bytes(*id));
    let is_other = other != id && checksum(other, 0, content).to_le_bytes() == sum;
    let is_blank = !rest.is_empty() && rest.iter().all(|byte| *byte == 0);
    is_blank && !is_other && right * 2 >= all
}

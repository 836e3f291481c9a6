//! Chunks that no manifest names: all chunks if the manifest is damaged, the newest chunks if the
//! manifest is an older copy.
//!
//! A chunk's header has the chunk's id. A chunk's first position is known from its first event, or
//! from the header of a scavenged chunk. A chunk's capacity is known only from the next chunk; the
//! last chunk's capacity only from its file.

use std::collections::HashSet;
use std::path::Path;

use umbel_env::Env;

use crate::event_log::chunk_manifest::{ChunkEnd, ChunkEntry, ChunkManifest, chunk_version_path};
use crate::limits::{FILE_BYTES_MAX, POSITION_MAX, RESTORE_GAP_BYTES};
use crate::open::check_no_newer_chunk;
use crate::repair::foreign_chunks;
use crate::repair::inspect_orphan::{OrphanChunk, best_version, is_unused};
use crate::repair::log_survey::{ChunkFile, FoundChunk, LogSurvey, read_file};
use crate::repair::old_index_events::OldIndexEvents;
use crate::repair::renamed_chunks;
use crate::repair::stale_manifest;
use crate::types::error::{Error, Result};

/// Chunk capacities are multiples of this number of bytes.
const CAPACITY_UNIT_BYTES: u64 = 4096;

/// Adopts the chunks and chunk files that the manifest does not name.
pub fn adopt_orphans(
    env: &Env,
    folder: &Path,
    files: &[ChunkFile],
    index: Option<&OldIndexEvents>,
    survey: &mut LogSurvey,
    accept_unproven: bool,
) -> Result<()> {
    discard_foreign_manifest(env, survey)?;
    stale_manifest::discard_stale_tail(env, folder, files, index, survey)?;
    let misnamed = renamed_chunks::find_misnamed(env, folder, files);
    let misnames: HashSet<&str> = misnamed.iter().map(|file| &*file.name).collect();
    let is_named = |file: &&ChunkFile| !misnames.contains(&*file.name);
    let named: Vec<ChunkFile> = files.iter().filter(is_named).cloned().collect();
    use_other_version(env, folder, &named, survey)?;
    renamed_chunks::match_damaged(env, folder, &misnamed, survey, accept_unproven)?;
    let (is_seed_lost, next_id) = (survey.is_seed_lost, survey.manifest.next_id);
    let is_unknown = |file: &&ChunkFile| is_seed_lost || file.id >= next_id;
    let unknown: Vec<_> = named.iter().filter(is_unknown).collect();
    let mut candidates = Vec::new();
    for versions in unknown.chunk_by(|file, next| file.id == next.id) {
        candidates.extend(best_version(env, folder, versions)?);
    }
    let others: Vec<_> = misnamed.iter().filter(is_unknown).cloned().collect();
    renamed_chunks::add_renamed(env, folder, &others, &mut candidates, survey, accept_unproven)?;
    if survey.manifest_damage.is_none()
        && let Some(OrphanChunk { name, .. }) = candidates.first()
    {
        let reason = format!(
            "the chunk manifest is an older copy: log/{name} holds events that \
             the manifest does not know"
        );
        survey.manifest_damage = Some(reason);
    }
    if survey.manifest_damage.is_none() {
        return note_blocking_file(env, folder, survey);
    }
    foreign_chunks::remove_foreign(env, folder, files, index, &mut candidates, survey)?;
    let taken: HashSet<u64> = candidates.iter().map(|other| other.chunk.entry.id).collect();
    let is_taken = |id: u64| taken.contains(&id);
    let rest: Vec<_> = files.iter().filter(is_unknown).filter(|file| !is_taken(file.id)).collect();
    if is_seed_lost {
        let strange = rest.iter().map(|file| file.name.clone());
        let read: HashSet<&String> = candidates.iter().map(|candidate| &candidate.name).collect();
        survey.unrelated_files.extend(strange.filter(|name| !read.contains(name)));
        survey.unrelated_files.sort_unstable();
        survey.unrelated_files.dedup();
    }
    let ghosts = find_name_only_chunks(env, folder, &rest)?;
    assign_positions(candidates, &ghosts, survey);
    for found in &mut survey.chunks {
        if let Some(path) = found.actual_path.clone() {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            renamed_chunks::use_misnamed_file(found, &name, folder);
        }
    }
    Ok(())
}

/// Records a file that has the next chunk's name and blocks the open of the store. The file does
/// not belong to this store: the manifest could not have lost a chunk with such contents.
fn note_blocking_file(env: &Env, folder: &Path, survey: &mut LogSurvey) -> Result<()> {
    match check_no_newer_chunk(env, folder, &survey.manifest) {
        Err(Error::Store(umbel::Error::Corruption { .. })) => {
            let path = chunk_version_path(folder, survey.manifest.next_id, 0);
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            survey.unrelated_files.push(name);
            Ok(())
        }
        checked => checked,
    }
}

/// Discards a manifest that belongs to another store: all its chunks differ from the existing
/// files, although these files are whole.
fn discard_foreign_manifest(env: &Env, survey: &mut LogSurvey) -> Result<()> {
    let is_own = |found: &FoundChunk| found.damage.is_none();
    let is_other = survey.chunks.iter().any(|found| found.is_foreign);
    if !is_other || survey.chunks.iter().any(is_own) {
        return Ok(());
    }
    survey.manifest = ChunkManifest::create(env)?;
    survey.manifest.generation = survey.generation;
    survey.manifest_damage = Some(
        "the chunk manifest names other chunks than the directory has: the manifest belongs \
             to another store"
            .into(),
    );
    survey.is_seed_lost = true;
    survey.is_tail_lost = true;
    survey.chunks.clear();
    survey.replaced_file_damage = None;
    Ok(())
}

/// Chunk of which only the name of its file is left.
struct NameOnlyChunk {
    id: u64,
    /// Length of the file.
    bytes: u64,
}

/// Finds the chunks of which only the file name is left and none of the contents. A chunk to which
/// nothing was ever appended does not count.
fn find_name_only_chunks(
    env: &Env,
    folder: &Path,
    files: &[&ChunkFile],
) -> Result<Vec<NameOnlyChunk>> {
    let mut ghosts = Vec::new();
    for versions in files.chunk_by(|file, next| file.id == next.id) {
        if versions[0].id > POSITION_MAX {
            // No chunk has such an id, and none follows it.
            continue;
        }
        let (mut is_ghost, mut bytes) = (false, 0);
        for file in versions {
            let found = read_file(env, &chunk_version_path(folder, file.id, file.version))?;
            bytes = bytes.max(found.len() as u64);
            is_ghost |= file.version > 0 || !is_unused(file.id, &found);
        }
        ghosts.extend(is_ghost.then_some(NameOnlyChunk { id: versions[0].id, bytes }));
    }
    Ok(ghosts)
}

/// Uses another file of a chunk whose file in the manifest is missing: the manifest is a copy from
/// before a scavenge rewrote the chunk.
fn use_other_version(
    env: &Env,
    folder: &Path,
    files: &[ChunkFile],
    survey: &mut LogSurvey,
) -> Result<()> {
    for found in survey.chunks.iter_mut().filter(|found| found.damage.is_some()) {
        let entry = &mut found.entry;
        let own = entry.scavenged.map_or(0, |scavenged| scavenged.version);
        let others = files.iter().filter(|file| file.id == entry.id && file.version > own);
        let others: Vec<_> = others.collect();
        if others.is_empty() || env.files.exists(&entry.path(folder))? {
            continue;
        }
        let newer = best_version(env, folder, &others)?.filter(|newer| newer.events > 0);
        let Some(OrphanChunk { chunk: other, used_positions: used, name, .. }) = newer else {
            continue;
        };
        if other.entry.start != entry.start || used > entry.capacity {
            continue;
        }
        entry.scavenged = other.entry.scavenged;
        entry.ended = entry.ended.filter(|ended| ended.last_event > 0).or(other.entry.ended);
        let (damage, is_unsynced) = (other.damage, true);
        *found = FoundChunk { is_unsynced, ..FoundChunk::new(*entry, damage) };
        survey.manifest_damage.get_or_insert_with(|| {
            format!(
                "the chunk manifest is an older copy: the chunk of log/{name} was rewritten later"
            )
        });
    }
    Ok(())
}

/// Assigns each chunk the positions from its first position up to the next chunk's first position.
fn assign_positions(
    candidates: Vec<OrphanChunk>,
    ghosts: &[NameOnlyChunk],
    survey: &mut LogSurvey,
) {
    let mut used_by_last: Option<u64> = None;
    let is_ghost = |from: u64, to: u64| ghosts.iter().any(|ghost| (from..to).contains(&ghost.id));
    for mut candidate in candidates {
        if let Some(last) = survey.chunks.last().map(|last| last.entry)
            && (candidate.is_start_guessed && candidate.chunk.entry.id == last.id + 1)
            && candidate.chunk.entry.start > last.start + last.capacity
        {
            candidate.set_start(last.start + last.capacity);
        }
        let lost = renamed_chunks::unplaced_chunk(&candidate);
        let OrphanChunk { chunk: mut found, capacity: extent, used_positions: used, name, .. } =
            candidate;
        let mut last = survey.chunks.last_mut().map(|last| &mut last.entry);
        let (mut from, mut next_id) = (0, 1);
        if let Some(last) = &last {
            (from, next_id) = (last.start + last.capacity, last.id + 1);
        }
        let entry = &mut found.entry;
        if let (Some(last), Some(used)) = (&mut last, used_by_last)
            && (last.start + used..from).contains(&entry.start)
        {
            // Its file is longer than its capacity: the rest holds no event of it.
            last.capacity = entry.start - last.start;
            from = entry.start;
        }
        if entry.start < from || entry.start > POSITION_MAX - extent {
            survey.unrelated_files.push(name);
            survey.unplaced.push(lost);
            continue;
        }
        if entry.start > from && entry.id == next_id {
            // The capacity of the previous chunk reached up to here.
            if let Some(last) = last {
                last.capacity = entry.start - last.start;
            }
        } else if entry.start > from && (survey.is_tail_lost || is_ghost(next_id, entry.id)) {
            let id = next_id;
            if let (Some(last), Some(used)) = (last, used_by_last) {
                // Only the end of its events bounds its capacity.
                last.capacity = last.capacity.min(used.next_multiple_of(CAPACITY_UNIT_BYTES));
                from = last.start + last.capacity;
            }
            survey.chunks.push(missing_chunk(id, from, entry));
        }
        entry.capacity = extent.next_multiple_of(CAPACITY_UNIT_BYTES);
        survey.chunks.push(found);
        used_by_last = Some(used);
    }
    add_after_last(ghosts, &mut survey.chunks);
    note_truncated(&mut survey.chunks);
    let Some(last) = survey.chunks.last().map(|last| last.entry) else { return };
    let manifest = &mut survey.manifest;
    manifest.next_id = manifest.next_id.max(last.id + 1);
    // Chunks may have followed it.
    manifest.next_start = manifest.next_start.max(last.start + last.capacity + RESTORE_GAP_BYTES);
}

/// Creates the chunk for an id that no file has; its positions are from `start` up to the chunk
/// `next`.
fn missing_chunk(id: u64, start: u64, next: &ChunkEntry) -> FoundChunk {
    let (capacity, ended) = (next.start - start, Some(ChunkEnd::EMPTY));
    let missing = ChunkEntry { id, start, capacity, key: 0, ended, scavenged: None };
    let damage = format!(
        "no file has the chunk's id, nor the id of another chunk before chunk {}; these chunks \
         may have been empty",
        next.id
    );
    let mut missing = FoundChunk::new(missing, Some(damage));
    missing.is_guessed = true;
    // A chunk that was moved aside may have its name.
    missing.is_foreign = true;
    missing
}

/// Adds the chunks after the last one of which only the file names are left. Each added chunk may
/// have had twice the capacity of the previous one.
fn add_after_last(ghosts: &[NameOnlyChunk], chunks: &mut Vec<FoundChunk>) {
    for NameOnlyChunk { id, bytes } in ghosts {
        let last = chunks.last().map(|last| last.entry);
        if last.is_some_and(|last| last.id >= *id) {
            continue;
        }
        let start = last.map_or(0, |last| last.start + last.capacity);
        let doubled = last.map_or(0, |last| last.capacity.saturating_mul(2)).min(FILE_BYTES_MAX);
        let capacity = doubled.max(*bytes).max(1).next_multiple_of(CAPACITY_UNIT_BYTES);
        if start > POSITION_MAX - capacity {
            return;
        }
        let ended = Some(ChunkEnd::EMPTY);
        let entry = ChunkEntry { id: *id, start, capacity, key: 0, ended, scavenged: None };
        let damage = format!("the file with the chunk's name holds no event of chunk {id}");
        let found = FoundChunk { is_foreign: true, ..FoundChunk::new(entry, Some(damage)) };
        chunks.push(found);
    }
}

/// Records the chunks that were truncated, or damaged at what looks like their end. A chunk with
/// successors was sealed. Only the manifest knew where such a chunk ended.
fn note_truncated(chunks: &mut [FoundChunk]) {
    let Some((last, before)) = chunks.split_last_mut() else { return };
    if let (Some(end), Some(ended), None) = (last.torn_end, last.entry.ended, &last.damage) {
        last.damage = Some(format!(
            "log/{:08}.chunk at byte {}: nothing valid is here, but data was written",
            last.entry.id, ended.end
        ));
        last.is_end_known = true;
        last.entry.ended = Some(ChunkEnd { end, ..ended });
    }
    for found in before {
        let entry = &mut found.entry;
        let is_plain = found.is_unsynced && found.damage.is_none() && entry.scavenged.is_none();
        let Some(ended) = entry.ended.filter(|ended| is_plain && ended.seal.is_none()) else {
            continue;
        };
        found.damage = Some(format!(
            "log/{:08}.chunk at byte {}: the chunk stops here without a recorded end, although \
             chunks follow it: the file was truncated or is damaged",
            entry.id, ended.end
        ));
        found.is_end_known = true;
        entry.ended = Some(ChunkEnd { end: entry.capacity, ..ended });
    }
}

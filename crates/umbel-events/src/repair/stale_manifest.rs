//! Manifest of another copy of the store, for example of a copy that was restored from a backup and
//! diverged. The other copy's manifest knows the first chunks. The manifest's entries after the
//! divergence do not describe this copy's chunks.
//!
//! The index decides: it knows events of a file at positions where the manifest has none. The
//! manifest's chunks from that position on are discarded, and their files are examined like
//! orphans. Without an index, nothing shows whether the manifest or the file belongs to this store;
//! the report names the file.

use std::path::Path;

use umbel_env::Env;

use crate::event_log::chunk_manifest::{ChunkEntry, chunk_directory};
use crate::repair::index_ownership::count_indexed;
use crate::repair::inspect_orphan::{OrphanChunk, inspect_file};
use crate::repair::log_survey::{ChunkFile, FoundChunk, LogSurvey};
use crate::repair::old_index_events::OldIndexEvents;
use crate::repair::renamed_chunks::{unplaced_chunk, with_header_identity};
use crate::types::error::Result;

/// Discards the manifest's chunks that belong to another copy of the store. Reports the files that
/// do not match the manifest's positions if nothing shows to which store they belong.
pub fn discard_stale_tail(
    env: &Env,
    folder: &Path,
    files: &[ChunkFile],
    index: Option<&OldIndexEvents>,
    survey: &mut LogSurvey,
) -> Result<()> {
    if survey.is_seed_lost || survey.chunks.iter().all(|found| found.damage.is_none()) {
        return Ok(());
    }
    let mut elsewhere = Vec::new();
    for file in files {
        let stated = with_header_identity(env, folder, file);
        if needs_inspection(survey, stated.id)
            && let Some(candidate) = inspect_file(env, folder, &stated)?
            && (candidate.events > 0 && !candidate.is_start_guessed)
            && (is_at_other_position(survey, &candidate)
                || is_skipped_by_manifest(survey, &candidate))
        {
            elsewhere.push(candidate);
        }
    }
    let holes = position_holes(survey);
    if elsewhere.is_empty() && holes.is_empty() {
        return Ok(());
    }
    let mut denied = Vec::new();
    let known = match index {
        Some(index) => first_indexed_position(index, env, folder, &elsewhere, &holes, &mut denied)?,
        None => None,
    };
    let number = known.and_then(|(position, _)| first_contradicted(survey, position));
    if let (Some(number), Some((_, reason))) = (number, known) {
        discard_from(survey, number, reason);
        return Ok(());
    }
    for candidate in &elsewhere {
        // Files after the manifest's chunks are named when these are placed. A chunk that the
        // manifest skips is no loss if an index that would know it does not.
        let is_in_manifest = candidate.chunk.entry.id < survey.manifest.next_id;
        let is_others =
            is_skipped_by_manifest(survey, candidate) && denied.contains(&candidate.name);
        if is_in_manifest && !is_others {
            survey.unplaced.push(unplaced_chunk(candidate));
            survey.unrelated_files.push(candidate.name.clone());
        }
    }
    Ok(())
}

/// Whether a file of the chunk with this id must be inspected.
fn needs_inspection(survey: &LogSurvey, id: u64) -> bool {
    let found = survey.chunks.iter().find(|found| found.entry.id == id);
    found.is_none_or(|found| found.damage.is_some())
}

/// Whether the events of a file have other positions than the manifest says.
fn is_at_other_position(survey: &LogSurvey, candidate: &OrphanChunk) -> bool {
    let (id, start) = (candidate.chunk.entry.id, candidate.chunk.entry.start);
    match survey.chunks.iter().find(|found| found.entry.id == id) {
        Some(found) => found.entry.start != start,
        None => survey.chunks.last().is_some_and(|last| start < last.entry.start),
    }
}

/// Whether the manifest excludes the chunk of a file. Either the manifest skips the chunk, or it
/// names a scavenged file that was made from a chunk with another end. An excluded file belongs to
/// another store, or is an orphan of a scavenge, from which nothing is restored.
fn is_skipped_by_manifest(survey: &LogSurvey, candidate: &OrphanChunk) -> bool {
    let entry = &candidate.chunk.entry;
    let last_event = |entry: &ChunkEntry| entry.ended.map_or(0, |ended| ended.last_event);
    match survey.chunks.iter().find(|found| found.entry.id == entry.id) {
        Some(FoundChunk { entry: named, .. }) => {
            let is_whole = candidate.chunk.damage.is_none() && entry.scavenged.is_none();
            named.scavenged.is_some() && is_whole && last_event(named) != last_event(entry)
        }
        None => entry.id < survey.manifest.next_id,
    }
}

/// Gaps in the positions between chunks of the manifest, before a damaged one.
fn position_holes(survey: &LogSurvey) -> Vec<(u64, u64)> {
    let end = |found: &FoundChunk| found.entry.start + found.entry.capacity;
    let pairs = survey.chunks.iter().zip(survey.chunks.iter().skip(1));
    let damaged = pairs.filter(|(_, next)| next.damage.is_some());
    let holes = damaged.map(|(found, next)| (end(found), next.entry.start));
    holes.filter(|(from, to)| from < to).collect()
}

/// First position with an event that the index knows and the manifest does not, with a description.
/// Adds the names of the files whose events the index should know but does not.
fn first_indexed_position(
    index: &OldIndexEvents,
    env: &Env,
    folder: &Path,
    elsewhere: &[OrphanChunk],
    holes: &[(u64, u64)],
    denied: &mut Vec<String>,
) -> Result<Option<(u64, &'static str)>> {
    let mut first: Option<u64> = None;
    for candidate in elsewhere {
        let mut found = candidate.chunk.clone();
        found.actual_path = Some(chunk_directory(folder).join(&candidate.name));
        let (sampled, known) = count_indexed(index, env, folder, &found)?;
        denied.extend((sampled > 0 && known * 2 <= sampled).then(|| candidate.name.clone()));
        if known * 2 > sampled {
            first = Some(first.map_or(found.entry.start, |first| first.min(found.entry.start)));
        }
    }
    if let Some(first) = first {
        let reason = "the index knows events of files at positions where the manifest has none";
        return Ok(Some((first, reason)));
    }
    let furthest = index.last_indexed_position()?;
    let is_inside = holes.iter().any(|(from, to)| (*from..*to).contains(&furthest));
    Ok(is_inside.then_some((furthest, "the index knows events where the manifest has no chunk")))
}

/// Index of the first chunk of the manifest that contradicts other contents at this position.
/// `None` if all later chunks match the manifest.
fn first_contradicted(survey: &LogSurvey, position: u64) -> Option<usize> {
    let ends_after = |found: &FoundChunk| found.entry.start + found.entry.capacity > position;
    let number = survey.chunks.iter().position(ends_after)?;
    survey.chunks[number..].iter().all(|found| found.damage.is_some()).then_some(number)
}

/// Discards the manifest entries from this index on, so that their chunks are found as orphans.
fn discard_from(survey: &mut LogSurvey, number: usize, reason: &str) {
    survey.chunks.truncate(number);
    // It skips ids that this store may have.
    let id = survey.chunks.last().map_or(1, |last| last.entry.id + 1);
    survey.skipped.retain(|entry| entry.id < id);
    survey.short_files.retain(|entry| entry.id < id);
    survey.manifest.next_id = id;
    // Later epochs are those of the other copy, and possibly one that begins exactly there.
    let end = survey.chunks.last().map_or(0, |last| last.entry.start + last.entry.capacity);
    survey.manifest.epochs.truncate(end);
    survey.is_tail_lost = true;
    survey.manifest_damage =
        Some(format!("the chunk manifest belongs to another copy of this store: {reason}"));
}

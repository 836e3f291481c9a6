//! Detection of lost ends of the log, from the index, the existence filter or the length of a file.

use std::path::Path;

use umbel_env::{Env, check_path};

use crate::event_log::chunk_manifest::{ChunkEnd, ChunkEntry, ChunkManifest};
use crate::index::stream_existence::coverage_on_disk;
use crate::limits::RESTORE_GAP_BYTES;
use crate::repair::index_ownership;
use crate::repair::log_survey::{FoundChunk, LogSurvey, is_truncated, read_unended, survey_log};
use crate::repair::old_index_events::OldIndexEvents;
use crate::types::error::Result;

/// Inserts a chunk that is completely lost at the place of its id.
fn insert_lost_chunk(chunks: &mut Vec<FoundChunk>, entry: ChunkEntry, damage: String) {
    let entry = ChunkEntry { ended: Some(ChunkEnd::EMPTY), scavenged: None, ..entry };
    let at = chunks.partition_point(|found| found.entry.id < entry.id);
    chunks.insert(at, FoundChunk { is_foreign: true, ..FoundChunk::new(entry, Some(damage)) });
}

/// Records that the log lost its end if `who` knows events after the present end. An index is never
/// durable before the log is.
pub fn note_lost_tail(survey: &mut LogSurvey, furthest: u64, who: &str) {
    let damage = format!(
        "the chunk manifest ends earlier, but the {who} holds events up to position {furthest}: \
         the manifest is an older copy or was truncated"
    );
    // An index from before a scavenge knows events that the scavenge removed from the end of a
    // chunk.
    let last_event = |found: &FoundChunk| {
        let ended = found.entry.ended.map_or(0, |ended| ended.last_event);
        found.entry.start
            + found.entry.scavenged.map_or(0, |scavenged| scavenged.last_event).max(ended)
    };
    if survey.manifest_damage.is_some()
        && let Some(last) = survey.chunks.last_mut().filter(|last| is_unended(&last.entry))
        && last_event(last) < furthest
    {
        // The capacity of a chunk without a recorded end is not known either.
        let entry = &mut last.entry;
        entry.capacity = entry.capacity.max((furthest + 1 - entry.start).next_multiple_of(8));
        let (end, manifest) = (entry.capacity, &mut survey.manifest);
        entry.ended = entry.ended.map(|ended| ChunkEnd { end, ..ended });
        manifest.next_start =
            manifest.next_start.max((entry.start + end).saturating_add(RESTORE_GAP_BYTES));
        last.damage.get_or_insert(damage);
        last.is_end_known = true;
        return;
    }
    let end = survey.chunks.last().map_or(0, |last| last.entry.start + last.entry.capacity);
    let is_inside =
        |entry: &ChunkEntry| (entry.start..entry.start + entry.capacity).contains(&furthest);
    if let Some(found) = survey.chunks.iter_mut().find(|found| is_inside(&found.entry)) {
        if found.damage.is_none() && last_event(found) < furthest {
            found.damage = Some(damage);
        }
    } else if let Some(entry) = survey.skipped.iter().copied().find(is_inside) {
        insert_lost_chunk(&mut survey.chunks, entry, damage);
    } else if furthest >= end && furthest > 0 {
        let (id, manifest) = (survey.manifest.next_id, &mut survey.manifest);
        let capacity = (furthest + 1 - end).next_multiple_of(8);
        let ended = Some(ChunkEnd::EMPTY);
        let entry = ChunkEntry { id, start: end, capacity, key: 0, ended, scavenged: None };
        let damage = damage.replacen("it ends", "the event log ends", 1);
        manifest.next_id += 1;
        manifest.next_start =
            manifest.next_start.max(end + capacity).saturating_add(RESTORE_GAP_BYTES);
        survey.chunks.push(FoundChunk::new(entry, Some(damage)));
    }
}

/// Records chunks that are lost together with their manifest entries: the index knows events
/// between the positions of two chunks. Manifest entries are lost, for example, if the manifest
/// belongs to another store.
pub fn note_lost_chunks(survey: &mut LogSurvey, index: &OldIndexEvents) -> Result<()> {
    if !survey.is_damaged() {
        return Ok(());
    }
    let mut from = 0;
    let mut holes = Vec::new();
    for ChunkEntry { start, capacity, .. } in survey.chunks.iter().map(|found| found.entry) {
        holes.extend((from < start).then_some((from, start)));
        from = start + capacity;
    }
    if holes.is_empty() {
        return Ok(());
    }
    let known = index.events_without_types(&holes)?;
    for hole in holes.into_iter().rev().filter(|hole| !known.between(*hole).is_empty()) {
        let at = survey.chunks.partition_point(|found| found.entry.start < hole.0.max(1));
        let before = at.checked_sub(1).map(|last| survey.chunks[last].entry);
        let id = before.map_or(1, |before| before.id + 1);
        let damage = "no chunk has these positions, but the index knows events there".to_string();
        if survey.chunks.get(at).is_none_or(|next| id < next.entry.id) {
            let capacity = hole.1 - hole.0;
            let entry =
                ChunkEntry { id, start: hole.0, capacity, key: 0, ended: None, scavenged: None };
            insert_lost_chunk(&mut survey.chunks, entry, damage);
        } else if let Some(before) = at.checked_sub(1).and_then(|at| survey.chunks.get_mut(at)) {
            before.entry.capacity = hole.1 - before.entry.start;
            before.damage.get_or_insert(format!("after its end {damage}"));
        }
    }
    Ok(())
}

/// Records that the log lost its end if no index shows the loss, but the existence filter covers
/// events after the present end. The filter is never durable before the log is. Returns the
/// position up to which the filter is evidence.
pub fn note_filter_ahead(env: &Env, folder: &Path, survey: &mut LogSurvey) -> u64 {
    if survey.existence_damage.is_some() {
        return 0;
    }
    let seed = survey.manifest_damage.is_none().then_some(survey.manifest.seed);
    let covered = coverage_on_disk(env, &folder.join("existence"), seed);
    let (key, covered) = (covered.history, covered.position);
    let is_other = |entry: ChunkEntry| {
        let positions = entry.start..entry.start + entry.capacity;
        positions.contains(&covered) && ![0, entry.key].contains(&key)
    };
    if survey.manifest_damage.is_none() && survey.chunks.iter().any(|found| is_other(found.entry)) {
        // It covers the log of a diverged copy of the store.
        return 0;
    }
    let last = survey.chunks.last().map(|last| last.entry);
    if let Some(ChunkEntry { start, scavenged: Some(scavenged), .. }) = last
        && survey.manifest_damage.is_some()
    {
        // What followed may be lost, or a scavenge removed it.
        return if start + scavenged.last_event == covered { covered } else { 0 };
    }
    note_lost_tail(survey, covered, "existence filter");
    covered
}

/// Whether chunks may be missing after the last existing one: the manifest, which would name such
/// chunks, is damaged. Neither the index nor the existence filter, which reach up to `furthest`,
/// knows the last events.
pub fn is_end_unknown(survey: &LogSurvey, furthest: u64) -> bool {
    if survey.manifest_damage.is_none() {
        return false;
    }
    let Some(found) = survey.chunks.last() else { return furthest == 0 };
    let entry = &found.entry;
    let ended = entry.ended.unwrap_or(ChunkEnd::EMPTY);
    let last_event = entry.scavenged.map_or(ended.last_event, |scavenged| scavenged.last_event);
    furthest < entry.start + last_event.max(1)
}

/// Whether the chunk has no recorded end.
fn is_unended(entry: &ChunkEntry) -> bool {
    entry.scavenged.is_none() && entry.ended.is_none_or(|ended| ended.seal.is_none())
}

/// Description of a chunk whose file is shorter than its length at creation.
fn short_file_text(id: u64) -> String {
    format!(
        "log/{id:08}.chunk is shorter than at its creation, and no index says which events it \
         held: the file was truncated, or an open of the store was interrupted"
    )
}

/// Finds bytes that an open of the store would skip although they may have been appended. Returns a
/// sentence with file and offset for each chunk without a recorded end that has such bytes. Changes
/// nothing.
pub fn find_unrecovered(env: &Env, folder: &Path) -> Result<Vec<String>> {
    check_path("the event store", folder)?;
    let manifest = ChunkManifest::read(env, folder)?;
    let mut sentences = Vec::new();
    let mut short = Vec::new();
    for entry in manifest.chunks.iter().filter(|entry| entry.ended.is_none()) {
        // The open reports what cannot be read.
        let opened = read_unended(env, &entry.path(folder), entry).ok();
        let is_sealed = opened.as_ref().is_some_and(|opened| opened.ended.seal.is_some());
        short.extend((is_truncated(env, folder, entry) && !is_sealed).then_some(entry.id));
        sentences.extend(opened.and_then(|opened| opened.gap).map(|gap| gap.to_string()));
    }
    if !short.is_empty() {
        let index = OldIndexEvents::load(env, folder, manifest.seed)?.and_then(|index| index.ok());
        let is_explained = match index {
            Some(index) => {
                index_ownership::belongs_to_log(&index, env, folder, &mut survey_log(env, folder)?)?
            }
            None => false,
        };
        if !is_explained {
            sentences.extend(short.into_iter().map(short_file_text));
        }
    }
    Ok(sentences)
}

/// Records the chunks without a recorded end whose files are shorter than at their creation, if no
/// index shows what the chunks held. A short file was truncated, or an open was interrupted after
/// it had trimmed the unused end.
pub fn note_short_files(survey: &mut LogSurvey) {
    for entry in survey.short_files.clone() {
        let damage = short_file_text(entry.id);
        let Some(found) = survey.chunks.iter_mut().find(|found| found.entry.id == entry.id) else {
            insert_lost_chunk(&mut survey.chunks, entry, damage);
            continue;
        };
        let is_sealed = found.entry.ended.is_some_and(|ended| ended.seal.is_some());
        if found.damage.is_none() && !is_sealed {
            found.damage = Some(damage);
            found.is_end_known = true;
            let ended = found.entry.ended;
            found.entry.ended = ended.map(|ended| ChunkEnd { end: entry.capacity, ..ended });
        }
    }
}

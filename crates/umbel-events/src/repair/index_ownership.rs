//! Whether an index was built from the event log beside it. Another store's index knows other
//! events, and would deny the events of this log.

use std::collections::HashMap;
use std::path::Path;

use umbel_env::Env;
use umbel_log::RECORD_ALIGN;

use super::salvage::ChunkBytes;
use crate::event_log::chunk_manifest::ChunkEnd;
use crate::event_log::scavenged_chunk;
use crate::index::stream_head::StreamHead;
use crate::limits::{REVISION_MAX, TOMBSTONE_REVISION};
use crate::repair::log_survey::{FoundChunk, LogSurvey, read_file};
use crate::repair::old_index_events::OldIndexEvents;
use crate::types::error::Result;

/// Minimum number of streams that are looked up, if the store has that many.
const SAMPLED_STREAMS_MIN: usize = 1024;
/// Number of events of each chunk that are looked up.
const SAMPLED_EVENTS_PER_CHUNK: usize = 64;
/// If the index knows none of this many events of a chunk, the chunk belongs to another store.
pub const DENIED_EVENTS_MIN: usize = 8;

/// Whether the index was built from this event log.
///
/// The index must know most of the first readable events of some chunk, and of every chunk that
/// matches the manifest. If so, a chunk without a known end belongs to another store if the index
/// knows none of the chunk's events. If no chunk can be compared, the last events of streams
/// decide. Of the first streams whose last event lies in a whole chunk, most must have it where the
/// index says.
pub fn belongs_to_log(
    index: &OldIndexEvents,
    env: &Env,
    folder: &Path,
    survey: &mut LogSurvey,
) -> Result<bool> {
    let has_manifest = survey.manifest_damage.is_none();
    let (mut agree, mut denied) = (0, Vec::new());
    for (number, found) in survey.chunks.iter().enumerate() {
        if found.is_foreign || found.is_unproven {
            continue;
        }
        let (sampled, known) = count_indexed(index, env, folder, found)?;
        agree += usize::from(known * 2 > sampled);
        if sampled > 0 && known * 2 <= sampled {
            if has_manifest && found.damage.is_none() && !found.is_unsynced {
                return Ok(false);
            }
            denied.push((number, sampled, known));
        }
    }
    if agree == 0 {
        return Ok(denied.is_empty() && do_most_heads_match(index, env, folder, survey)?);
    }
    if !has_manifest {
        return Ok(agree > denied.len());
    }
    for (number, sampled, known) in denied {
        let found = &mut survey.chunks[number];
        if found.damage.is_none() && known == 0 && sampled >= DENIED_EVENTS_MIN {
            let reason = "the index knows none of the chunk's events: the file belongs to another \
                 store";
            found.damage = Some(reason.to_string());
            found.is_foreign = true;
            found.entry.ended = Some(ChunkEnd::EMPTY);
        }
    }
    Ok(true)
}

/// Whether most of the streams' last events are where the index says; counts only events in whole
/// chunks.
fn do_most_heads_match(
    index: &OldIndexEvents,
    env: &Env,
    folder: &Path,
    survey: &LogSurvey,
) -> Result<bool> {
    let mut heads: HashMap<usize, Vec<(String, StreamHead)>> = HashMap::new();
    let (mut count, mut after) = (0, None);
    while count < SAMPLED_STREAMS_MIN {
        let names = index.heads(after.as_deref())?;
        let Some((name, _)) = names.last() else { break };
        after = Some(name.clone());
        for (name, head) in names {
            if let Some(number) = survey.whole_chunk_at(head.last_position) {
                heads.entry(number).or_default().push((name, head));
                count += 1;
            }
        }
    }
    let mut right = 0;
    for (number, heads) in heads {
        right += count_matching_heads(env, folder, &survey.chunks[number], &heads)?;
    }
    Ok(right * 2 >= count)
}

/// Number of the first readable events of a chunk that the index should know, and the number of
/// these events that it knows.
pub fn count_indexed(
    index: &OldIndexEvents,
    env: &Env,
    folder: &Path,
    found: &FoundChunk,
) -> Result<(usize, usize)> {
    let entry = &found.entry;
    let bytes = read_file(env, &found.path(folder))?;
    let source = ChunkBytes::new(entry.id, entry.start, &bytes);
    let (mut sampled, mut known) = (0, 0);
    let mut offset = scavenged_chunk::HEADER_BYTES;
    while sampled < SAMPLED_EVENTS_PER_CHUNK && offset < bytes.len() as u64 {
        let Some(frame) = source.frame(offset) else {
            offset += RECORD_ALIGN;
            continue;
        };
        offset += frame.bytes as u64;
        let stamp = frame.meta;
        let is_its = stamp.position <= index.through && stamp.revision <= REVISION_MAX;
        if is_its && !frame.is_stub {
            sampled += 1;
            known += usize::from(index.contains(frame.stream, stamp.revision, stamp.position)?);
        }
    }
    Ok((sampled, known))
}

/// Number of these streams whose last event is where the index says; counts only events in whole
/// chunks.
fn count_matching_heads(
    env: &Env,
    folder: &Path,
    found: &FoundChunk,
    heads: &[(String, StreamHead)],
) -> Result<usize> {
    let entry = &found.entry;
    let bytes = read_file(env, &entry.path(folder))?;
    let source = ChunkBytes::new(entry.id, entry.start, &bytes);
    // In a scavenged chunk an event's offset differs from its position.
    let mut places: HashMap<u64, u64> = HashMap::new();
    let mut offset = scavenged_chunk::HEADER_BYTES;
    while let Some(frame) = source.frame(offset).filter(|_| entry.scavenged.is_some()) {
        places.insert(frame.meta.position, offset);
        offset += frame.bytes as u64;
    }
    let is_right = |(name, head): &&(String, StreamHead)| {
        let offset = match entry.scavenged {
            Some(_) => places.get(&head.last_position).copied(),
            None => head.last_position.checked_sub(entry.start),
        };
        let revision = if head.is_tombstoned { TOMBSTONE_REVISION } else { head.last_revision };
        offset.and_then(|offset| source.frame(offset)).is_some_and(|frame| {
            frame.stream == name
                && (frame.meta.revision, frame.meta.position) == (revision, head.last_position)
        })
    };
    Ok(heads.iter().filter(is_right).count())
}

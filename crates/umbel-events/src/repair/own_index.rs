//! Whether an index was made of the event log beside it: another store's knows other events, and
//! would deny those of this one.

use std::collections::HashMap;
use std::path::Path;

use umbel_env::Env;
use umbel_log::RECORD_ALIGN;

use super::old_index::OldIndex;
use super::salvage::Source;
use super::survey::{Found, Survey, read_file};
use crate::error::Result;
use crate::head::Head;
use crate::limits::{REVISION_MAX, TOMBSTONE_REVISION};
use crate::packed;

/// How many streams are asked at least, where there are as many.
const ASKED: usize = 1024;
/// How many events of each chunk are looked up.
const ASKED_OF_CHUNK: usize = 64;

/// Whether it was made of this event log: whether most of the last events of streams stand
/// where it says, as far as those chunks are whole, and whether it knows most of the events that
/// can be read. The first of its streams and of each chunk's events are asked.
pub fn is_of(index: &OldIndex, env: &Env, folder: &Path, survey: &Survey) -> Result<bool> {
    let mut heads: HashMap<usize, Vec<(String, Head)>> = HashMap::new();
    let (mut count, mut after) = (0, None);
    while count < ASKED {
        let names = index.heads(after.as_deref())?;
        let Some((name, _)) = names.last() else { break };
        after = Some(name.clone());
        for (name, head) in names {
            if let Some(number) = survey.whole_at(head.last_position) {
                heads.entry(number).or_default().push((name, head));
                count += 1;
            }
        }
    }
    let mut right = 0;
    for (number, heads) in heads {
        right += count_right(env, folder, &survey.chunks[number], &heads)?;
    }
    // What the log has is asked for, too: no stream of the index may end in a whole chunk.
    for found in survey.chunks.iter().filter(|found| !found.is_foreign && !found.is_unproven) {
        let (asked, known) = count_known(index, env, folder, found)?;
        count += asked;
        right += known;
    }
    Ok(right * 2 >= count)
}

/// How many of the first events that can be read in a chunk the index has to know, and how many it
/// does.
fn count_known(
    index: &OldIndex,
    env: &Env,
    folder: &Path,
    found: &Found,
) -> Result<(usize, usize)> {
    let entry = &found.entry;
    let bytes = read_file(env, &found.path(folder))?;
    let source = Source::new(entry.id, entry.start, &bytes);
    let (mut asked, mut known) = (0, 0);
    let mut offset = packed::HEADER_BYTES;
    while asked < ASKED_OF_CHUNK && offset < bytes.len() as u64 {
        let Some(frame) = source.frame(offset) else {
            offset += RECORD_ALIGN;
            continue;
        };
        offset += frame.bytes as u64;
        let stamp = frame.stamp;
        let is_its = stamp.position <= index.through && stamp.revision <= REVISION_MAX;
        if is_its && !frame.is_stub {
            asked += 1;
            known += usize::from(index.knows(frame.stream, stamp.revision, stamp.position)?);
        }
    }
    Ok((asked, known))
}

/// How many of these streams have their last event where the index says, in a chunk that is whole.
fn count_right(env: &Env, folder: &Path, found: &Found, heads: &[(String, Head)]) -> Result<usize> {
    let entry = &found.entry;
    let bytes = read_file(env, &entry.path(folder))?;
    let source = Source::new(entry.id, entry.start, &bytes);
    // In a packed chunk an event does not stand at its position.
    let mut places: HashMap<u64, u64> = HashMap::new();
    let mut offset = packed::HEADER_BYTES;
    while let Some(frame) = source.frame(offset).filter(|_| entry.packed.is_some()) {
        places.insert(frame.stamp.position, offset);
        offset += frame.bytes as u64;
    }
    let is_right = |(name, head): &&(String, Head)| {
        let offset = match entry.packed {
            Some(_) => places.get(&head.last_position).copied(),
            None => head.last_position.checked_sub(entry.start),
        };
        let revision = if head.is_tombstoned { TOMBSTONE_REVISION } else { head.last_revision };
        offset.and_then(|offset| source.frame(offset)).is_some_and(|frame| {
            frame.stream == name
                && (frame.stamp.revision, frame.stamp.position) == (revision, head.last_position)
        })
    };
    Ok(heads.iter().filter(is_right).count())
}

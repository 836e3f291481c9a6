//! Whether an index was made of the event log beside it: another store's knows other events, and
//! would deny those of this one.

use std::collections::HashMap;
use std::path::Path;

use umbel_env::Env;

use super::old_index::OldIndex;
use super::salvage::Source;
use super::survey::{Found, Survey, read_file};
use crate::error::Result;
use crate::head::Head;
use crate::limits::TOMBSTONE_REVISION;
use crate::packed;

/// How many streams are asked at least, where there are as many.
const ASKED: usize = 1024;

/// Whether it was made of this event log: whether most of the last events of streams stand
/// where it says, as far as those chunks are whole. The first of its streams are asked.
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
    Ok(right * 2 >= count)
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

//! Importing an event: it stands where it stood in the store it comes from, or is there already.

use std::borrow::Cow;

use crate::commit::Planned;
use crate::decide::{Known, Written};
use crate::error::{Error, Result};
use crate::event::EventId;
use crate::head::Head;
use crate::imported::ImportTask;
use crate::limits::{REVISION_MAX, TOMBSTONE_REVISION};
use crate::looking::Looking;
use crate::names::TOMBSTONE_TYPE;
use crate::parts::Parts;

use super::{Appender, Tried, answer};

impl Appender {
    /// Appends the event where its stream goes on with it.
    pub(super) fn import(&mut self, parts: &Parts, task: &ImportTask<'_>) -> Result<Tried> {
        let (stream, event) = (task.event.stream, task.event.event);
        let hash = parts.existence.hash(stream);
        let head = self.head_of(parts, stream, hash)?;
        let known = Known { head, settings: None, rests_on: 0 };
        let last = known.last();
        let there = self.revision_at(parts, task, hash, head)?;
        if let Some((revision, id, position)) = there {
            if id != event.id {
                return Err(other_event(stream, revision, id));
            }
            let was_there = answer(revision, revision, true);
            let answers = vec![super::Appended { position: Some(position), ..was_there }];
            return Ok(Tried::Done(answers, position));
        }
        known.check_usable(stream)?;
        let next = last.map_or(0, |last| last + 1);
        let first = task.event.revision.unwrap_or(next);
        if first < next {
            return Err(Error::invalid(format!(
                "stream '{}' has no event {first} any more, but goes up to {}; import into a store \
                 in which it is not written to",
                stream.escape_debug(),
                next - 1
            )));
        }
        if first > REVISION_MAX && first != TOMBSTONE_REVISION {
            return Err(Error::invalid(format!(
                "revision {first} is above {REVISION_MAX}, the highest there can be"
            )));
        }
        if first == TOMBSTONE_REVISION && event.kind != TOMBSTONE_TYPE {
            return Err(Error::invalid(format!(
                "revision {first} ends a stream for good, so the type must be '{TOMBSTONE_TYPE}', \
                 but is '{}'",
                event.kind.escape_debug()
            )));
        }
        let now = parts.env.clock.wall_micros().saturating_mul(10);
        let wanted = task.event.created.unwrap_or(now);
        let created = wanted.max(self.last_created);
        let events = [event];
        let plan = Planned { stream: Cow::Borrowed(stream), hash, head, first, events: &events };
        let Some(positions) = self.commit_at(parts, &[plan], created)? else {
            return Ok(Tried::Full);
        };
        if task.event.created.is_some() {
            task.moved.set(created - wanted);
        }
        if first != TOMBSTONE_REVISION {
            task.missing.set(first - next);
        }
        let position = positions.first().copied().unwrap_or(0);
        let answers =
            vec![super::Appended { position: Some(position), ..answer(first, first, false) }];
        Ok(Tried::Done(answers, position))
    }

    /// Revision, id and position of the event that stands where this one is to stand; where it has
    /// no revision, of the one among the newest that has its id.
    fn revision_at(
        &mut self,
        parts: &Parts,
        task: &ImportTask<'_>,
        hash: u64,
        head: Option<Head>,
    ) -> Result<Option<(u64, EventId, u64)>> {
        let Some(present) = head else { return Ok(None) };
        if task.event.revision == Some(TOMBSTONE_REVISION) {
            if !present.is_tombstoned {
                return Ok(None);
            }
            let position = present.last_position;
            let id = self.cursor.at(position)?.event.id;
            return Ok(Some((TOMBSTONE_REVISION, id, position)));
        }
        let mut looking = Looking {
            parts,
            stream: task.event.stream,
            hash,
            head,
            window: &self.window,
            queue: &self.queue,
            cursor: &mut self.cursor,
        };
        let revision = match task.event.revision {
            Some(revision) => Some(revision),
            None => looking.recent(task.event.event.id)?,
        };
        let Some(revision) = revision else { return Ok(None) };
        Ok(looking.event(revision)?.map(|(id, position)| (revision, id, position)))
    }
}

fn other_event(stream: &str, revision: u64, id: EventId) -> Error {
    let name = stream.escape_debug();
    let which = match revision {
        TOMBSTONE_REVISION => format!("stream '{name}' was tombstoned with another event"),
        _ => format!("stream '{name}' has another event with revision {revision}"),
    };
    Error::invalid(format!(
        "{which}, whose id is {id}; import into a store in which the stream is not written to"
    ))
}

//! Ending a stream: deleting it, or for good.

use std::borrow::Cow;

use crate::commit::Planned;
use crate::error::Result;
use crate::event::{Expected, NewEvent};
use crate::limits::TOMBSTONE_REVISION;
use crate::names::{self, METADATA_TYPE, TOMBSTONE_TYPE};
use crate::parts::Parts;
use crate::request::Appended;
use crate::settings::DELETED;

use super::{Appender, Tried};

impl Appender {
    pub(super) fn delete(
        &mut self,
        parts: &Parts,
        stream: &str,
        expected: Expected,
    ) -> Result<Tried> {
        let (_, known) = self.known(parts, stream, expected)?;
        known.check_usable(stream)?;
        let metadata_stream = names::metadata_stream(stream);
        let metadata = self.head(parts, &metadata_stream)?;
        let Some(last) = known.last() else { return Err(known.wrong(stream, expected)) };
        let done = |position| {
            let first = None;
            vec![Appended { first, last: Some(last), position: Some(position), was_there: false }]
        };
        if let Some(metadata) = metadata.filter(|_| known.is_deleted()) {
            if matches!(expected, Expected::Exact(revision) if revision != last) {
                return Err(known.wrong(stream, expected));
            }
            let position = metadata.last_position;
            return Ok(Tried::Done(done(position), position));
        }
        if !known.fits(expected) {
            return Err(known.wrong(stream, expected));
        }
        let data = self.metadata_with(metadata, DELETED)?;
        let events = [NewEvent::json(parts.new_id()?, METADATA_TYPE, &data)];
        let first = metadata.map_or(0, |head| head.last_revision + 1);
        let hash = parts.existence.hash(&metadata_stream);
        let stream = Cow::Borrowed(&metadata_stream[..]);
        let plan = Planned { stream, hash, head: metadata, first, events: &events };
        let Some(positions) = self.commit(parts, &[plan])? else { return Ok(Tried::Full) };
        let position = positions.first().copied().unwrap_or(0);
        Ok(Tried::Done(done(position), position))
    }

    pub(super) fn tombstone(
        &mut self,
        parts: &Parts,
        stream: &str,
        expected: Expected,
    ) -> Result<Tried> {
        let (hash, known) = self.known(parts, stream, expected)?;
        known.check_usable(stream)?;
        if !known.fits(expected) {
            return Err(known.wrong(stream, expected));
        }
        let events = [NewEvent::json(parts.new_id()?, TOMBSTONE_TYPE, b"{}")];
        let (first, head) = (TOMBSTONE_REVISION, known.head);
        let plan = Planned { stream: Cow::Borrowed(stream), hash, head, first, events: &events };
        let Some(positions) = self.commit(parts, &[plan])? else { return Ok(Tried::Full) };
        let position = positions.first().copied().unwrap_or(0);
        let answer = Appended {
            first: None,
            last: known.last(),
            position: Some(position),
            was_there: false,
        };
        Ok(Tried::Done(vec![answer], position))
    }
}

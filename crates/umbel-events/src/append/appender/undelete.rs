//! Writing what was decided, and before it the metadata of streams that come back.

use std::borrow::Cow;

use crate::commit::Planned;
use crate::error::Result;
use crate::event::NewEvent;
use crate::head::Head;
use crate::names::METADATA_TYPE;
use crate::parts::Parts;
use crate::request::Appended;
use crate::settings::with_truncate_before;

use super::{Appender, Tried};

impl Appender {
    /// Writes the plans, and before them the metadata of streams that come back.
    pub(super) fn write(
        &mut self,
        parts: &Parts,
        created: u64,
        plans: Vec<Planned<'_>>,
        undeleted: Vec<(String, u64)>,
        answers: Vec<Appended>,
    ) -> Result<Tried> {
        if undeleted.is_empty() {
            return self.write_all(parts, created, &plans, 0, answers);
        }
        let mut metadata = Vec::with_capacity(undeleted.len());
        for (stream, truncate_before) in undeleted {
            let head = self.head(parts, &stream)?;
            let data = self.metadata_with(head, truncate_before)?;
            metadata.push((stream, head, parts.new_id()?, data));
        }
        let events: Vec<_> = metadata
            .iter()
            .map(|(_, _, id, data)| NewEvent::json(*id, METADATA_TYPE, data))
            .collect();
        let before = metadata.len();
        let mut all: Vec<Planned<'_>> = Vec::with_capacity(before + plans.len());
        for ((stream, head, ..), event) in metadata.iter().zip(&events) {
            let first = head.map_or(0, |head| head.last_revision + 1);
            let (hash, head) = (parts.existence.hash(stream), *head);
            let stream = Cow::Borrowed(&stream[..]);
            let events = std::slice::from_ref(event);
            all.push(Planned { stream, hash, head, first, events });
        }
        all.extend(plans);
        self.write_all(parts, created, &all, before, answers)
    }

    /// Writes the plans, and says in the answers where those behind the first `before` stand.
    fn write_all(
        &mut self,
        parts: &Parts,
        created: u64,
        plans: &[Planned<'_>],
        before: usize,
        mut answers: Vec<Appended>,
    ) -> Result<Tried> {
        let Some(positions) = self.commit_at(parts, plans, created)? else {
            return Ok(Tried::Full);
        };
        let mut written = positions.iter().skip(before);
        for answer in answers.iter_mut().filter(|answer| answer.first.is_some()) {
            answer.position = written.next().copied();
        }
        Ok(Tried::Done(answers, positions.iter().copied().max().unwrap_or(0)))
    }

    pub(super) fn metadata_with(
        &mut self,
        head: Option<Head>,
        truncate_before: u64,
    ) -> Result<Vec<u8>> {
        let old = match head {
            Some(head) => Some(self.cursor.at(head.last_position)?.event.data.to_vec()),
            None => None,
        };
        with_truncate_before(old.as_deref(), truncate_before)
    }
}

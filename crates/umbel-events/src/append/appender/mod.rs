//! [`Appender`]: whoever holds it appends: looks at the streams, decides, and writes the log.

use std::borrow::Cow;
use std::sync::Arc;

use umbel_arena::PREFETCHES;
use umbel_existence::ExistenceReader;

use crate::ahead::Ahead;
use crate::changes::{Change, Changes};
use crate::commit::{self, Planned};
use crate::decide::{Decision, Known, decide};
use crate::error::{Error, Result};
use crate::event::Expected;
use crate::event_log::{Beginning, LogCursor, LogEnd};
use crate::format;
use crate::head::Head;
use crate::id_window::IdWindow;
use crate::imported::ImportTask;
use crate::index::IndexBatch;
use crate::limits::{POSITION_MAX, REVISION_MAX};
use crate::looking::Looking;
use crate::names;
use crate::parts::Parts;
use crate::queued::{Place, Queue, Queued};
use crate::request::{Appended, Check, Request, StreamAppend};
use crate::violation::Part;
use crate::violations::Violations;

mod ending;
mod import;
mod undeleting;

/// What the one who appends needs.
#[derive(Debug)]
pub struct Appender {
    /// Where the log is written.
    pub end: LogEnd,
    /// The ids of the newest events.
    pub window: IdWindow,
    /// Appends that are in the log and not in the index, in order.
    pub queue: Queue,
    /// When the newest event was appended.
    pub last_created: u64,
    /// Whether appends stay in the queue until somebody applies it, also where nothing is synced.
    pub gathers: bool,
    ahead: Ahead,
    existence: ExistenceReader,
    buffer: Vec<u8>,
    /// What one append changes that goes into the index at once.
    changes: Changes,
    /// Where the events of the newest append stand.
    positions: Vec<u64>,
    name: String,
    batch: IndexBatch,
    cursor: LogCursor,
}

/// What came of trying.
#[derive(Debug)]
pub enum Tried {
    /// It is in the log, or was. What it rests on can be seen once this position can.
    Done(Vec<Appended>, u64),
    /// There is no room in the chunk or in memory, and what came before it has to be in the index
    /// first.
    Full,
}

/// What is to be done.
#[derive(Debug, Clone, Copy)]
pub enum Task<'a> {
    /// To append events.
    Append(Request<'a>),
    /// To delete a stream, so that it can be created again.
    Delete(&'a str, Expected),
    /// To delete a stream for good.
    Tombstone(&'a str, Expected),
    /// To append an event of another store as it was there.
    Import(&'a ImportTask<'a>),
}

impl Appender {
    /// At the end of a log that is in the index as a whole.
    pub fn new(parts: &Parts, window: IdWindow, last_created: u64) -> Appender {
        Appender {
            end: LogEnd::default(),
            window,
            queue: Queue::default(),
            last_created,
            gathers: false,
            ahead: Ahead::default(),
            existence: parts.existence.reader(),
            buffer: Vec::new(),
            changes: Changes::default(),
            positions: Vec::new(),
            name: String::new(),
            batch: parts.index.batch(),
            cursor: parts.log.cursor(),
        }
    }

    fn head(&mut self, parts: &Parts, stream: &str) -> Result<Option<Head>> {
        self.head_of(parts, stream, parts.existence.hash(stream))
    }

    fn head_of(&mut self, parts: &Parts, stream: &str, hash: u64) -> Result<Option<Head>> {
        let ahead = self.ahead.head(&self.queue, hash, stream);
        #[cfg(feature = "canary")]
        let ahead = ahead.filter(|_| !umbel_base::canary::Switch::EventsAheadForgotten.is_on());
        if ahead.is_some() {
            return Ok(ahead);
        }
        match self.existence.may_contain(hash) {
            true => Ok(parts.head_that_may_be(stream)?),
            false => Ok(None),
        }
    }

    /// The hash of the stream's name, and what has to be known of the stream to see whether it is
    /// as expected.
    fn known(&mut self, parts: &Parts, stream: &str, expected: Expected) -> Result<(u64, Known)> {
        let hash = parts.existence.hash(stream);
        Ok((hash, self.known_of(parts, stream, hash, expected)?))
    }

    /// What has to be known of the stream whose name has this hash.
    fn known_of(
        &mut self,
        parts: &Parts,
        stream: &str,
        hash: u64,
        expected: Expected,
    ) -> Result<Known> {
        let head = self.head_of(parts, stream, hash)?;
        let rests_on = head.map_or(0, |head| head.last_position);
        let known = Known { head, settings: None, rests_on };
        if let Some(subject) = names::subject(stream) {
            if let Some(other) = self.head(parts, subject)? {
                Known { head: Some(other), ..known }.check_usable(subject)?;
            }
            return Ok(known);
        }
        if head.is_none() && expected != Expected::Exists {
            // What hides events says nothing of a stream that has none.
            return Ok(known);
        }
        let mut name = std::mem::take(&mut self.name);
        names::write_metadata_stream(stream, &mut name);
        let metadata = self.head(parts, &name);
        self.name = name;
        let Some(metadata) = metadata? else { return Ok(known) };
        let rests_on = rests_on.max(metadata.last_position);
        Ok(Known { head, settings: metadata.settings_of(head), rests_on })
    }

    /// The position of the last append in the queue, where one is about this stream, its metadata
    /// or the stream whose metadata it holds.
    pub fn last_ahead_of(&self, parts: &Parts, stream: &str) -> Option<u64> {
        let head = |name: &str| self.ahead.head(&self.queue, parts.existence.hash(name), name);
        let is_ahead = |name: &str| head(name).is_some();
        let is_concerned = is_ahead(stream)
            || is_ahead(&names::metadata_stream(stream))
            || names::subject(stream).is_some_and(is_ahead);
        self.queue.groups().next_back().filter(|_| is_concerned).map(|last| last.position)
    }

    /// Does the task as far as the log.
    pub fn try_do(&mut self, parts: &Parts, task: &Task<'_>) -> Result<Tried> {
        match task {
            Task::Append(request) => self.append(parts, request),
            Task::Delete(stream, expected) => self.delete(parts, stream, *expected),
            Task::Tombstone(stream, expected) => self.tombstone(parts, stream, *expected),
            Task::Import(task) => self.import(parts, task),
        }
    }

    /// Has the places of the appends' ids in the window fetched from memory.
    pub fn prefetch(&self, parts: &Parts, request: &Request<'_>) {
        for append in request.prefetched() {
            self.prefetch_id(append, || parts.existence.hash(append.stream));
        }
    }

    fn prefetch_id(&self, append: &StreamAppend<'_>, hash: impl FnOnce() -> u64) {
        let is_looked_for = matches!(append.expected, Expected::Any | Expected::Exists);
        if let Some(first) = append.events.first().filter(|_| PREFETCHES) {
            self.window.prefetch(hash(), first.id, is_looked_for);
        }
    }

    fn append(&mut self, parts: &Parts, request: &Request<'_>) -> Result<Tried> {
        // Before the filter is asked, whose line is still on its way.
        let created = self.created_now(parts);
        let mut answers = Vec::with_capacity(request.appends.len());
        let mut plans: Vec<Planned<'_>> = Vec::with_capacity(request.appends.len());
        let mut undeleted = Vec::new();
        let mut rests_on = 0;
        let mut first_retry = None;
        let mut violations = Violations::default();
        for (index, append) in request.appends.iter().enumerate() {
            let (stream, expected) = (append.stream, append.expected);
            let hash = parts.existence.hash(stream);
            if !self.gathers {
                self.prefetch_id(append, || hash);
            }
            let known = self.known_of(parts, stream, hash, expected)?;
            let decided = self.decide(parts, append, hash, &known);
            let part = Part::Append(index);
            let Some(decided) = violations.sift(decided, part, expected, &known)? else { continue };
            match decided {
                Decision::Append { first } => {
                    let last = first + append.events.len() as u64 - 1;
                    if last > REVISION_MAX {
                        return Err(Error::invalid("the stream has as many events as can be"));
                    }
                    if known.is_deleted() && known.head.is_some() {
                        undeleted.push((names::metadata_stream(stream), first));
                    }
                    let (head, events) = (known.head, append.events);
                    let stream = Cow::Borrowed(stream);
                    plans.push(Planned { stream, hash, head, first, events });
                    answers.push(answer(first, last, false));
                }
                Decision::Already { first, last, position } => {
                    first_retry = first_retry.or(Some((part, append, known)));
                    rests_on = rests_on.max(position);
                    let position = Some(position);
                    answers.push(Appended { position, ..answer(first, last, true) });
                }
                Decision::Nothing => {
                    let last = known.last();
                    rests_on = rests_on.max(known.rests_on);
                    answers.push(Appended { first: None, last, position: None, was_there: false });
                }
            }
        }
        if let Some((part, append, known)) = first_retry {
            if plans.is_empty() && violations.is_empty() {
                return Ok(Tried::Done(answers, rests_on));
            }
            // A part of what happens together cannot have happened.
            violations.add(part, append.stream, append.expected, &known);
        }
        rests_on = rests_on.max(self.check(parts, request.checks, &mut violations)?);
        violations.finish()?;
        if plans.is_empty() {
            return Ok(Tried::Done(answers, rests_on));
        }
        undeleted.retain(|(stream, _)| plans.iter().all(|plan| plan.stream != *stream));
        self.write(parts, created, plans, undeleted, answers)
    }

    /// Finds what is not as the checks expect, and the position that the others rest on.
    fn check(
        &mut self,
        parts: &Parts,
        checks: &[Check<'_>],
        violations: &mut Violations,
    ) -> Result<u64> {
        let mut rests_on = 0;
        for (index, Check { stream, expected }) in checks.iter().enumerate() {
            let (_, known) = self.known(parts, stream, *expected)?;
            if !known.holds(*expected) {
                violations.add(Part::Check(index), stream, *expected, &known);
            }
            rests_on = rests_on.max(known.rests_on);
        }
        Ok(rests_on)
    }

    fn decide(
        &mut self,
        parts: &Parts,
        append: &StreamAppend<'_>,
        hash: u64,
        known: &Known,
    ) -> Result<Decision> {
        let mut written = Looking {
            parts,
            stream: append.stream,
            hash,
            head: known.head,
            window: &self.window,
            queue: &self.queue,
            cursor: &mut self.cursor,
        };
        decide(append.stream, known, append.expected, append.events, &mut written)
    }

    /// Writes the plans to the log. Returns the position of the last event of each; `None` where
    /// there is no room yet, with nothing done.
    fn commit(&mut self, parts: &Parts, plans: &[Planned<'_>]) -> Result<Option<Vec<u64>>> {
        self.commit_at(parts, plans, self.created_now(parts))
    }

    /// When an event that is appended now is created, in ticks of 100 ns.
    fn created_now(&self, parts: &Parts) -> u64 {
        parts.env.clock.wall_micros().saturating_mul(10).max(self.last_created)
    }

    /// As [`Appender::commit`], with events that were created then.
    /// REQUIRES: no event was created later.
    fn commit_at(
        &mut self,
        parts: &Parts,
        plans: &[Planned<'_>],
        created: u64,
    ) -> Result<Option<Vec<u64>>> {
        if parts.index.views.is_full() {
            return Ok(None);
        }
        let payload_bytes = commit::payload_bytes(plans);
        let makes_room = plans.iter().all(Planned::makes_room);
        let is_full = self.end.is_full(payload_bytes + self.end.reserve_bytes())
            && (self.end.is_full(payload_bytes) || !makes_room);
        if is_full {
            let durable = parts.index.durable_through()?;
            // A chunk without events may be behind it: nothing would ever bring the index there.
            if durable < parts.log.last_chunk_start()
                && !(makes_room && parts.log.is_short_behind(durable))
            {
                return Ok(None);
            }
            let mut roll = || self.end.roll(&parts.log, payload_bytes, makes_room);
            match makes_room {
                true => parts.index.db().with_reserved_segment(roll)?,
                false => roll()?,
            }
            parts.bell.wants_flush();
        }
        let Some(beginning) = self.end.beginning() else { return Ok(None) };
        let position = beginning.chunk_start + beginning.place.offset;
        let end = position + payload_bytes as u64;
        if end > POSITION_MAX {
            return Err(Error::invalid("the store has as many events as can be"));
        }
        let lasts = self.write_plans(parts, plans, beginning, created)?;
        if self.end.wants_next() {
            parts.bell.wants_next();
        }
        Ok(Some(lasts))
    }

    /// Writes the plans at the end of the log and into the index, or the queue. Returns the
    /// position of the last event of each.
    fn write_plans(
        &mut self,
        parts: &Parts,
        plans: &[Planned<'_>],
        beginning: Beginning,
        created: u64,
    ) -> Result<Vec<u64>> {
        let position = beginning.chunk_start + beginning.place.offset;
        let at_once = !parts.syncs && !self.gathers && self.queue.is_empty();
        let first = self.queue.next_place();
        let changes = if at_once { &mut self.changes } else { &mut self.queue.open.changes };
        let before = changes.mark();
        self.buffer.clear();
        let made = (&mut *changes, &mut self.positions);
        let last_event = commit::encode(&mut self.buffer, made, plans, beginning, created);
        let end = position + self.buffer.len() as u64;
        let appended = self.end.append(position, &self.buffer, last_event);
        if appended.is_err() {
            changes.take_back(before);
        }
        appended?;
        self.last_created = created;
        self.window.begin(position);
        let mut written = self.positions.iter().copied();
        let mut lasts = Vec::with_capacity(plans.len());
        for plan in plans {
            let mut last = position;
            for (event, position) in plan.events.iter().zip(&mut written) {
                let bytes = format::frame_bytes(&plan.stream, event) as u64;
                self.window.insert(plan.hash, event.id, (position, bytes));
                last = position;
            }
            lasts.push(last);
        }
        let last = lasts.last().copied().unwrap_or(position);
        if self.buffer.capacity() > 1 << 20 {
            self.buffer = Vec::new();
        }
        if self.positions.capacity() > 1 << 17 {
            self.positions = Vec::new();
        }
        match at_once {
            true => self.take_on(parts, end, last)?,
            false => self.take_into_queue(parts, end, last, first)?,
        }
        Ok(lasts)
    }

    /// Puts an append into the index at once, or into the queue where that fails.
    fn take_on(&mut self, parts: &Parts, end: u64, position: u64) -> Result<()> {
        let mut changes = std::mem::take(&mut self.changes);
        let applied = self.apply(parts, changes.iter(), position);
        if applied.is_ok() {
            changes.clear();
            self.changes = changes;
        } else {
            let first = self.queue.next_place();
            self.queue.open = Queued { end, position, changes };
            self.ahead.go_on(&self.queue, first);
        }
        applied
    }

    /// Notes an append whose changes are the last in the queue.
    fn take_into_queue(
        &mut self,
        parts: &Parts,
        end: u64,
        position: u64,
        first: Place,
    ) -> Result<()> {
        let open = &mut self.queue.open;
        (open.end, open.position) = (end, position);
        self.ahead.go_on(&self.queue, first);
        match parts.syncs || self.gathers {
            true => Ok(()),
            // An earlier one could not be put into the index; all of them follow in their order.
            false => self.apply_queue(parts),
        }
    }

    fn apply<'a>(
        &mut self,
        parts: &Parts,
        changes: impl Iterator<Item = Change<'a>> + Clone,
        position: u64,
    ) -> Result<()> {
        for change in changes.clone() {
            parts.index.add(&mut self.batch, &change);
        }
        let committed = parts.index.commit(&mut self.batch, (&parts.log, position));
        if committed.is_err() {
            self.batch = parts.index.batch();
        }
        committed?;
        parts.insert(changes.clone());
        parts.visible.advance(position, changes.map(|change| change.hash));
        Ok(())
    }

    /// Puts into the index what is in the queue.
    pub fn apply_queue(&mut self, parts: &Parts) -> Result<()> {
        let queue = self.queue.take();
        let Some(last) = queue.last() else { return Ok(()) };
        let changes = queue.iter().flat_map(|queued| queued.changes.iter());
        self.apply(parts, changes, last.position)?;
        self.forget(&queue);
        self.queue.reuse(queue);
        Ok(())
    }

    /// Takes appends that are in the index out of the queue; they are the first in it.
    pub fn forget(&mut self, done: &[Arc<Queued>]) {
        self.ahead.forget(&self.queue, done);
        self.queue.forget(done.len());
    }
}

fn answer(first: u64, last: u64, was_there: bool) -> Appended {
    Appended { first: Some(first), last: Some(last), position: None, was_there }
}

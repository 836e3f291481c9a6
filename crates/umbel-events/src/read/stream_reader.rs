//! Reading: one stream by revision, everything by position.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::decide::Known;
use crate::error::{Error, Result};
use crate::event::{Direction, Position, RecordedEvent, Revision};
use crate::event_log::LogCursor;
use crate::format::Frame;
use crate::head::Head;
use crate::names;
use crate::settings::Settings;
use crate::shared::Shared;
use crate::state::StreamState;

/// How many entries of the index are fetched at a time; the first time fewer.
const PAGE: usize = 256;
const FIRST_PAGE: usize = 16;
/// Units of 100 ns in a second.
const TICKS: u64 = 10_000_000;

/// What readers know of a stream.
pub fn known(shared: &Shared, stream: &str) -> Result<Known> {
    let head = shared.head(stream)?;
    Ok(Known { head, settings: settings(shared, stream, head)?, rests_on: 0 })
}

/// What the metadata of a stream with this head says; `None` where it never had any.
pub fn settings(shared: &Shared, stream: &str, head: Option<Head>) -> Result<Option<Settings>> {
    if names::subject(stream).is_some() {
        return Ok(Some(Settings::OF_METADATA));
    }
    let metadata = shared.head(&names::metadata_stream(stream))?;
    Ok(metadata.and_then(|metadata| metadata.settings_of(head)))
}

/// Events that were appended before this moment are gone.
pub fn oldest(shared: &Shared, settings: Option<Settings>) -> u64 {
    let Some(age) = settings.and_then(|settings| settings.max_age_seconds) else { return 0 };
    let now = shared.env.clock.wall_micros().saturating_mul(10);
    now.saturating_sub(age.saturating_mul(TICKS))
}

/// Names and states of streams.
pub fn streams(
    shared: &Shared,
    prefix: &str,
    after: Option<&str>,
    most: usize,
) -> Result<Vec<(String, StreamState)>> {
    let mut found = Vec::new();
    for (name, head) in shared.index.names(prefix, after, most)? {
        let settings = settings(shared, &name, Some(head))?;
        let known = Known { head: Some(head), settings, rests_on: 0 };
        found.push((name, StreamState::of(&known)));
    }
    Ok(found)
}

/// What the next event of a stream is.
#[derive(Debug)]
pub enum Next {
    /// It can be read.
    Event(RecordedEvent),
    /// So many were stepped over as had been asked for: they have expired or were scavenged.
    SteppedOver,
    /// There is none.
    End,
}

/// The events of one stream, in order. Made by [`Store::read`](crate::Store::read).
///
/// It reads the stream as it was when reading began. After an error it ends.
#[derive(Debug)]
pub struct StreamReader {
    stream: String,
    state: Option<StreamState>,
    walk: Option<Walk>,
    failed: Option<Error>,
}

#[derive(Debug)]
struct Walk {
    shared: Arc<Shared>,
    cursor: LogCursor,
    head: Head,
    direction: Direction,
    /// Revisions that are left, both included; empty where the first is higher.
    left: (u64, u64),
    page: VecDeque<(u64, u64)>,
    page_size: usize,
    /// Events that were appended before are gone.
    oldest: u64,
}

impl StreamReader {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        stream: &str,
        from: Revision,
        direction: Direction,
    ) -> StreamReader {
        let stream = stream.to_string();
        let mut reader = StreamReader { stream, state: None, walk: None, failed: None };
        if let Err(error) = reader.begin(shared, from, direction) {
            reader.failed = Some(error);
        }
        reader
    }

    fn begin(&mut self, shared: &Arc<Shared>, from: Revision, direction: Direction) -> Result<()> {
        shared.check_open()?;
        let known = known(shared, &self.stream)?;
        let state = StreamState::of(&known);
        self.state = Some(state);
        known.check_usable(&self.stream)?;
        let (StreamState::Live { first, last }, Some(head)) = (state, known.head) else {
            return Ok(());
        };
        let left = match direction {
            Direction::Forwards => (first.max(from.0), last),
            Direction::Backwards => (first, last.min(from.0)),
        };
        let oldest = oldest(shared, known.settings);
        self.walk = Some(Walk {
            shared: Arc::clone(shared),
            cursor: shared.log.cursor(),
            head,
            direction,
            left,
            page: VecDeque::new(),
            page_size: FIRST_PAGE,
            oldest,
        });
        Ok(())
    }

    /// The event with this revision alone, or nothing where it cannot be read.
    pub(crate) fn only(shared: &Arc<Shared>, stream: &str, revision: u64) -> StreamReader {
        let from = Revision(revision);
        let mut reader = StreamReader::new(shared, stream, from, Direction::Forwards);
        if let Some(walk) = &mut reader.walk {
            walk.left.1 = walk.left.1.min(revision);
        }
        reader
    }

    /// The next event, but no more than so many that have expired are stepped over: where all of a
    /// long stream has, that takes long, and whoever serves many does something else in between.
    pub fn next_within(&mut self, most: usize) -> Result<Next> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let Some(walk) = self.walk.as_mut() else { return Ok(Next::End) };
        let next = walk.next(&self.stream, most);
        if !matches!(next, Ok(Next::Event(_) | Next::SteppedOver)) {
            self.walk = None;
        }
        next
    }

    /// What there was of the stream when reading began; `None` where that could not be found out,
    /// which the first item tells.
    pub fn state(&self) -> Option<StreamState> {
        self.state
    }
}

impl Iterator for StreamReader {
    type Item = Result<RecordedEvent>;

    fn next(&mut self) -> Option<Result<RecordedEvent>> {
        loop {
            match self.next_within(usize::MAX) {
                Ok(Next::Event(event)) => return Some(Ok(event)),
                Ok(Next::SteppedOver) => {}
                Ok(Next::End) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl Walk {
    fn next(&mut self, stream: &str, most: usize) -> Result<Next> {
        self.shared.check_process()?;
        for _ in 0..most.max(1) {
            let Some((revision, position)) = self.next_entry()? else { return Ok(Next::End) };
            // What was scavenged had been hidden before.
            let frame = self.cursor.find(position)?.filter(|frame| !frame.is_stub);
            let Some(frame) = frame else { continue };
            if frame.stream != stream || frame.stamp.revision != revision {
                let reason = format!(
                    "revision {revision} of stream '{}' is said to stand at position {position}, \
                     but another event does",
                    stream.escape_debug()
                );
                let folder = self.shared.folder.join("index");
                return Err(umbel::Error::corruption(&folder, 0, reason).into());
            }
            if frame.stamp.created >= self.oldest {
                return Ok(Next::Event(frame.to_recorded()));
            }
        }
        Ok(Next::SteppedOver)
    }

    fn next_entry(&mut self) -> Result<Option<(u64, u64)>> {
        let (first, last) = self.left;
        if first > last {
            return Ok(None);
        }
        let is_last = |revision: u64| revision == self.head.last_revision;
        let wanted = match self.direction {
            Direction::Forwards => first,
            Direction::Backwards => last,
        };
        if is_last(wanted) {
            self.step(wanted);
            return Ok(Some((wanted, self.head.last_position)));
        }
        if self.page.is_empty() {
            let until = last.min(self.head.last_revision - 1);
            let backwards = self.direction == Direction::Backwards;
            let range = (first, until);
            let page =
                self.shared.index.positions(self.head.id, range, self.page_size, backwards)?;
            self.page = page.into();
            self.page_size = PAGE;
        }
        let Some((revision, position)) = self.page.pop_front() else {
            // Nothing is left of them: what was scavenged has no entries.
            return Ok(match self.direction {
                Direction::Forwards if last == self.head.last_revision => {
                    self.left = (last, last);
                    self.step(last);
                    Some((last, self.head.last_position))
                }
                _ => None,
            });
        };
        self.step(revision);
        Ok(Some((revision, position)))
    }

    /// Takes a revision and those before it in reading order off what is left.
    fn step(&mut self, revision: u64) {
        match (self.direction, revision.checked_sub(1)) {
            (Direction::Forwards, _) => self.left.0 = revision + 1,
            (Direction::Backwards, Some(before)) => self.left.1 = before,
            (Direction::Backwards, None) => self.left = (1, 0),
        }
    }
}

/// All events of a store by position. Made by [`Store::read_all`](crate::Store::read_all).
///
/// Reading forwards it returns `None` where nothing more can be seen, and goes on later when
/// something can. After an error it ends.
#[derive(Debug)]
pub struct AllReader {
    shared: Arc<Shared>,
    cursor: LogCursor,
    direction: Direction,
    at: At,
}

#[derive(Debug, Clone, Copy)]
enum At {
    /// Nothing was read yet.
    Begin(u64),
    /// The event at this position was the last one, and the next one is so far away.
    Behind(u64, u64),
    /// The next event is at this position.
    Event(u64),
    /// Nothing more will come.
    End,
}

impl AllReader {
    pub(crate) fn new(shared: &Arc<Shared>, from: Position, direction: Direction) -> AllReader {
        let (shared, cursor) = (Arc::clone(shared), shared.log.cursor());
        AllReader { shared, cursor, direction, at: At::Begin(from.0) }
    }

    /// The next event as `look` sees it where it stands, without a copy of it.
    pub(crate) fn next_with<T>(&mut self, look: impl FnOnce(Frame<'_>) -> T) -> Option<Result<T>> {
        let read = self.shared.check_open().and_then(|()| match self.direction {
            Direction::Forwards => self.forwards(look),
            Direction::Backwards => self.backwards(look),
        });
        if read.is_err() {
            self.at = At::End;
        }
        read.transpose()
    }

    fn forwards<T>(&mut self, look: impl FnOnce(Frame<'_>) -> T) -> Result<Option<T>> {
        loop {
            let visible = self.shared.visible.position();
            let next = match self.at {
                At::Begin(position) => self.first_from(position)?,
                At::Behind(position, step) => self.cursor.next_position(position, step)?,
                At::Event(position) => Some(position),
                At::End => None,
            };
            let seen = next.filter(|position| *position <= visible);
            let Some(position) = seen else { return Ok(None) };
            let Some(frame) = self.cursor.find(position)? else {
                // It was scavenged just now.
                self.at = At::Begin(position + 1);
                continue;
            };
            self.at = At::Behind(position, frame.step());
            if !frame.is_stub {
                return Ok(Some(look(frame)));
            }
        }
    }

    /// The position of the first event at or behind `position`. Whoever goes on behind an event
    /// asks for the position behind it, where none begins: that event tells where the next one is,
    /// without the way from the beginning of its chunk.
    fn first_from(&mut self, position: u64) -> Result<Option<u64>> {
        if self.cursor.find(position).is_err()
            && let Some(before) = position.checked_sub(1)
            && let Ok(Some(frame)) = self.cursor.find(before)
        {
            let step = frame.step();
            return Ok(self.cursor.next_position(before, step)?);
        }
        Ok(self.cursor.seek(position)?)
    }

    fn backwards<T>(&mut self, look: impl FnOnce(Frame<'_>) -> T) -> Result<Option<T>> {
        loop {
            let visible = self.shared.visible.position();
            let next = match self.at {
                At::Begin(position) => self.cursor.seek_before(position.min(visible + 1))?,
                At::Event(position) => Some(position),
                At::Behind(..) | At::End => None,
            };
            self.at = At::End;
            let Some(position) = next else { return Ok(None) };
            if position > visible {
                // Looking for the end of the log finds what was appended meanwhile, too.
                self.at = At::Begin(position);
                continue;
            }
            let Some(frame) = self.cursor.find(position)? else {
                // It was scavenged just now.
                self.at = At::Begin(position);
                continue;
            };
            let (back, is_stub) = (frame.stamp.back, frame.is_stub);
            if is_stub {
                let before = self.cursor.previous_position(position, back)?;
                self.at = before.map_or(At::End, At::Event);
                continue;
            }
            let seen = look(frame);
            let before = self.cursor.previous_position(position, back)?;
            self.at = before.map_or(At::End, At::Event);
            return Ok(Some(seen));
        }
    }
}

impl Iterator for AllReader {
    type Item = Result<RecordedEvent>;

    fn next(&mut self) -> Option<Result<RecordedEvent>> {
        self.next_with(|frame| frame.to_recorded())
    }
}

//! [`ViewReader`]: reads a view, `$ce-…`, `$et-…` or `$streams`, as if it were a stream of links.

use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::Arc;

use umbel_filter::{HashKind, KeyHasher};

use crate::error::{Error, Result};
use crate::event::{Direction, EventId, Position, RecordedEvent, Revision};
use crate::event_log::LogCursor;
use crate::format::Frame;
use crate::names::LINK_TYPE;
use crate::read::{oldest, settings};
use crate::shared::Shared;
use crate::view_name::{self, ViewKind};
use crate::view_targets::Targets;

/// How many entries are fetched at a time; the first time fewer.
const PAGE: usize = 512;
const FIRST_PAGE: usize = 32;

/// What stands in a view: a link, and the event it points at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewEvent {
    /// An event of the type `$>` in the view, with the data `number@stream`. Its revision is its
    /// number in the view; position and time are those of the event it points at, and its id is
    /// always the same.
    pub link: RecordedEvent,
    /// The event; `None` where its stream does not show it: it was deleted or tombstoned, or its
    /// metadata hides the event.
    pub event: Option<RecordedEvent>,
}

/// What can be read of a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ViewState {
    /// The lowest number that can be read; higher than `last` where nothing can.
    pub first: u64,
    /// The number of the last event.
    pub last: u64,
}

/// A view by its kind and name.
#[derive(Debug, Clone)]
struct Name {
    view: String,
    kind: ViewKind,
    name: String,
}

impl Name {
    fn parse(view: &str) -> Result<Name> {
        let Some((kind, name)) = view_name::parse(view) else {
            return Err(Error::invalid(format!(
                "'{}' is no view: write $ce- and a category, $et- and a type, or $streams",
                view.escape_debug()
            )));
        };
        Ok(Name { view: view.to_string(), kind, name: name.to_string() })
    }

    /// The numbers that were given up to `through` and can be read, both included.
    fn range(&self, shared: &Shared, through: Position) -> Result<Option<(u64, u64)>> {
        let through = through.0.min(shared.visible.position());
        let numbers = shared.index.views.numbers_through(self.kind, &self.name, through)?;
        let Some(last) = numbers.checked_sub(1) else { return Ok(None) };
        let settings = settings(shared, &self.view, None)?.unwrap_or_default();
        Ok(Some((settings.first_revision(last), last)))
    }
}

/// What can be read of a view up to a position; `None` where it never had an event.
pub fn state(shared: &Shared, view: &str, through: Position) -> Result<Option<ViewState>> {
    let name = Name::parse(view)?;
    let Some((first, last)) = name.range(shared, through)? else { return Ok(None) };
    let views = &shared.index.views;
    let there = match first > last {
        true => Vec::new(),
        false => views.positions(name.kind, &name.name, first, 1, false)?,
    };
    // What was scavenged before the view was made anew has no entries.
    let first = there.first().map_or(first.max(last.saturating_add(1)), |(number, _)| *number);
    Ok(Some(ViewState { first, last }))
}

/// The events of one view, in order. Made by [`Store::read_view`](crate::Store::read_view).
///
/// It reads the view as it was when reading began. After an error it ends.
#[derive(Debug)]
pub struct ViewReader {
    walk: Option<Walk>,
    failed: Option<Error>,
}

#[derive(Debug)]
struct Walk {
    shared: Arc<Shared>,
    cursor: LogCursor,
    name: Name,
    links: KeyHasher,
    targets: Targets,
    direction: Direction,
    /// Numbers that are left, both included; empty where the first is higher.
    left: (u64, u64),
    page: VecDeque<(u64, u64)>,
    page_size: usize,
    /// Events that were appended before are gone from the view.
    oldest: u64,
}

impl ViewReader {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        view: &str,
        from: Revision,
        direction: Direction,
        through: Position,
    ) -> ViewReader {
        match Walk::begin(shared, view, from, direction, through) {
            Ok(walk) => ViewReader { walk, failed: None },
            Err(error) => ViewReader { walk: None, failed: Some(error) },
        }
    }
}

impl Iterator for ViewReader {
    type Item = Result<ViewEvent>;

    fn next(&mut self) -> Option<Result<ViewEvent>> {
        if let Some(error) = self.failed.take() {
            return Some(Err(error));
        }
        let read = self.walk.as_mut()?.next();
        if !matches!(read, Ok(Some(_))) {
            self.walk = None;
        }
        read.transpose()
    }
}

impl Walk {
    fn begin(
        shared: &Arc<Shared>,
        view: &str,
        from: Revision,
        direction: Direction,
        through: Position,
    ) -> Result<Option<Walk>> {
        let name = Name::parse(view)?;
        shared.check_open()?;
        let Some((first, last)) = name.range(shared, through)? else { return Ok(None) };
        let left = match direction {
            Direction::Forwards => (first.max(from.0), last),
            Direction::Backwards => (first, last.min(from.0)),
        };
        Ok(Some(Walk {
            cursor: shared.log.cursor(),
            links: link_hasher(shared, view)?,
            oldest: oldest(shared, settings(shared, view, None)?),
            shared: Arc::clone(shared),
            name,
            targets: Targets::default(),
            direction,
            left,
            page: VecDeque::new(),
            page_size: FIRST_PAGE,
        }))
    }

    fn next(&mut self) -> Result<Option<ViewEvent>> {
        self.shared.check_process()?;
        while let Some((number, position)) = self.next_entry()? {
            self.shared.check_open()?;
            let Some(frame) = self.cursor.find(position)? else {
                // It was scavenged; nothing but its number is left.
                continue;
            };
            let (kind, stamp) = (self.name.kind, &frame.stamp);
            if !kind.holds(&self.name.name, frame.stream, frame.event.kind, stamp.revision) {
                return Err(self.shared.index.views.malformed(kind, &self.name.name).into());
            }
            if stamp.created < self.oldest {
                continue;
            }
            let is_shown = self.targets.shows(&self.shared, &frame)?;
            let link = link(&self.name.view, &self.links, number, &frame);
            let event = (is_shown && !frame.is_stub).then(|| frame.to_recorded());
            return Ok(Some(ViewEvent { link, event }));
        }
        Ok(None)
    }

    fn next_entry(&mut self) -> Result<Option<(u64, u64)>> {
        let (first, last) = self.left;
        if first > last {
            return Ok(None);
        }
        if self.page.is_empty() {
            let (views, name) = (&self.shared.index.views, &self.name);
            let backwards = self.direction == Direction::Backwards;
            let from = if backwards { last } else { first };
            let page = views.positions(name.kind, &name.name, from, self.page_size, backwards)?;
            self.page = page.into();
            self.page_size = PAGE;
        }
        let next = self.page.pop_front().filter(|(number, _)| (first..=last).contains(number));
        let Some((number, position)) = next else {
            self.left = (1, 0);
            return Ok(None);
        };
        self.left = match (self.direction, number.checked_sub(1)) {
            (Direction::Forwards, _) => (number + 1, last),
            (Direction::Backwards, Some(before)) => (first, before),
            (Direction::Backwards, None) => (1, 0),
        };
        Ok(Some((number, position)))
    }
}

/// Makes the ids of a view's links.
fn link_hasher(shared: &Shared, view: &str) -> Result<KeyHasher> {
    let make = |seed| {
        let made = KeyHasher::new(HashKind::SipHash13, seed);
        made.map_err(|error| Error::invalid(format!("internal: {error}")))
    };
    let of_store = make(shared.index.views.links)?;
    make(two_words(&of_store, view.as_bytes()))
}

/// FORMAT: two hashes of a message, each with its number behind it.
fn two_words(hasher: &KeyHasher, message: &[u8]) -> [u8; 16] {
    let mut numbered = Vec::with_capacity(message.len() + 1);
    numbered.extend_from_slice(message);
    numbered.push(0);
    let mut word = |number: u8| {
        if let Some(last) = numbered.last_mut() {
            *last = number;
        }
        hasher.hash(&numbered)
    };
    let both = u128::from(word(0)) | u128::from(word(1)) << 64;
    both.to_le_bytes()
}

/// The link with this number in a view.
fn link(view: &str, ids: &KeyHasher, number: u64, frame: &Frame<'_>) -> RecordedEvent {
    let mut data = String::with_capacity(frame.stream.len() + 21);
    // Writing into a string cannot fail.
    let _ = write!(data, "{}@{}", frame.stamp.revision, frame.stream);
    RecordedEvent {
        stream: view.to_string(),
        revision: number,
        position: frame.stamp.position,
        id: EventId::from_hash(two_words(ids, &number.to_le_bytes())),
        kind: LINK_TYPE.to_string(),
        is_json: false,
        created: frame.stamp.created,
        data: data.into_bytes(),
        metadata: Vec::new(),
    }
}

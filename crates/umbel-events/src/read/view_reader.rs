//! [`ViewReader`]: reads a view, `$ce-…`, `$et-…` or `$streams`, like a stream of links.

use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::Arc;

use umbel_filter::{HashKind, KeyHasher};

use crate::event_log::LogCursor;
use crate::event_log::event_format::Frame;
use crate::read::created_search::ExpirySearch;
use crate::read::link_visibility::LinkVisibility;
use crate::read::read_item::ReadItem;
use crate::read::stream_reader::{StreamItem, retention_start, stream_retention};
use crate::shared_store_state::StoreInner;
use crate::types::error::{Error, Result};
use crate::types::event::{Direction, EventId, Position, RecordedEvent, Revision};
use crate::types::stream_names::LINK_TYPE;
use crate::types::view_kind::{self, ViewKind};

/// Number of entries that are fetched at a time; the first page has fewer.
const PAGE_ENTRIES: usize = 512;
const FIRST_PAGE_ENTRIES: usize = 32;

/// Entry of a view: a link, and its target event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViewEvent {
    /// Event of the type `$>` in the view, with the data `number@stream`. The link's revision is
    /// its number in the view. The link's position and time are those of the target event. The
    /// link's id is the same in every read.
    pub link: RecordedEvent,
    /// The target event; `None` if its stream was deleted or tombstoned, or if the stream's
    /// metadata hides the event.
    pub event: Option<RecordedEvent>,
}

/// Next item of a read of a view.
pub type ViewItem = ReadItem<ViewEvent>;

/// Readable range of a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ViewState {
    /// Lowest readable number; higher than `last` if nothing is readable.
    pub first: u64,
    /// Number of the last event.
    pub last: u64,
}

/// View by its kind and name.
#[derive(Debug, Clone)]
struct ViewName {
    view: String,
    kind: ViewKind,
    name: String,
}

impl ViewName {
    fn parse(view: &str) -> Result<ViewName> {
        let Some((kind, name)) = view_kind::parse(view) else {
            return Err(Error::invalid(format!(
                "'{}' is not a view: write $ce- and a category, $et- and a type, or $streams",
                view.escape_debug()
            )));
        };
        Ok(ViewName { view: view.to_string(), kind, name: name.to_string() })
    }

    /// First and last of the readable numbers that were assigned up to the position `through`, both
    /// inclusive.
    fn range(&self, shared: &StoreInner, through: Position) -> Result<Option<(u64, u64)>> {
        let through = through.0.min(shared.visible.position());
        let numbers = shared.index.views.count_through(self.kind, &self.name, through)?;
        let Some(last) = numbers.checked_sub(1) else { return Ok(None) };
        let settings = stream_retention(shared, &self.view, None)?.unwrap_or_default();
        Ok(Some((settings.first_revision(last), last)))
    }
}

/// Returns the readable range of a view up to a position; `None` if the view never had an event.
pub fn view_state(shared: &StoreInner, view: &str, through: Position) -> Result<Option<ViewState>> {
    let name = ViewName::parse(view)?;
    let Some((first, last)) = name.range(shared, through)? else { return Ok(None) };
    let views = &shared.index.views;
    let there = match first > last {
        true => Vec::new(),
        false => views.positions(name.kind, &name.name, first, 1, false)?,
    };
    // Events that were scavenged before the view was rebuilt have no entries.
    let first = there.first().map_or(first.max(last.saturating_add(1)), |(number, _)| *number);
    Ok(Some(ViewState { first, last }))
}

/// The events of one view, in order. Returned by [`Store::read_view`](crate::Store::read_view).
///
/// The reader sees the view in its state when the read began. After an error, the reader ends.
#[derive(Debug)]
pub struct ViewReader {
    view_cursor: Option<ViewCursor>,
    /// Number of entries that were read before the reader ended.
    examined: u64,
    failed: Option<Error>,
}

#[derive(Debug)]
struct ViewCursor {
    shared: Arc<StoreInner>,
    cursor: LogCursor,
    name: ViewName,
    link_ids: KeyHasher,
    visibility: LinkVisibility,
    direction: Direction,
    /// First and last of the remaining numbers, both inclusive; no numbers remain if the first is
    /// higher.
    remaining: (u64, u64),
    page: VecDeque<(u64, u64)>,
    page_size: usize,
    /// Events that were appended before this time are not in the view any more.
    retained_since: u64,
    /// Number of entries that were read.
    examined: u64,
}

impl ViewReader {
    pub(crate) fn new(
        shared: &Arc<StoreInner>,
        view: &str,
        from: Revision,
        direction: Direction,
        through: Position,
    ) -> ViewReader {
        let begun = ViewCursor::begin(shared, view, from, direction, through);
        match shared.damage.record(begun) {
            Ok(walk) => ViewReader { view_cursor: walk, examined: 0, failed: None },
            Err(error) => ViewReader { view_cursor: None, examined: 0, failed: Some(error) },
        }
    }
}

impl ViewReader {
    /// Returns the next entry, but skips at most `limit` entries of scavenged events. With this
    /// limit, a server can serve other clients in between. A binary search skips expired entries.
    pub fn next_within(&mut self, limit: usize) -> Result<ViewItem> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let Some(walk) = self.view_cursor.as_mut() else { return Ok(ViewItem::End) };
        let next = walk.next(limit);
        let next = walk.shared.damage.record(next);
        self.examined = walk.examined;
        if !matches!(next, Ok(ViewItem::Event(_) | ViewItem::Skipped)) {
            self.view_cursor = None;
        }
        next
    }

    /// Number of entries that were examined so far, probes of a search included.
    pub fn examined(&self) -> u64 {
        self.examined
    }

    /// Number before which a forward read has examined every entry; `None` at the end.
    pub(crate) fn next_number(&self) -> Option<u64> {
        self.view_cursor.as_ref().map(|walk| walk.remaining.0)
    }

    /// Like [`ViewReader::next_within`], with the link alone.
    pub(crate) fn next_link(&mut self, limit: usize) -> Result<StreamItem> {
        Ok(match self.next_within(limit)? {
            ViewItem::Event(event) => StreamItem::Event(event.link),
            ViewItem::Skipped => StreamItem::Skipped,
            ViewItem::End => StreamItem::End,
        })
    }
}

impl Iterator for ViewReader {
    type Item = Result<ViewEvent>;

    fn next(&mut self) -> Option<Result<ViewEvent>> {
        ReadItem::next_event(|limit| self.next_within(limit))
    }
}

impl ViewCursor {
    fn begin(
        shared: &Arc<StoreInner>,
        view: &str,
        from: Revision,
        direction: Direction,
        through: Position,
    ) -> Result<Option<ViewCursor>> {
        let name = ViewName::parse(view)?;
        shared.check_open()?;
        let Some((first, last)) = name.range(shared, through)? else { return Ok(None) };
        let left = match direction {
            Direction::Forwards => (first.max(from.0), last),
            Direction::Backwards => (first, last.min(from.0)),
        };
        Ok(Some(ViewCursor {
            cursor: shared.log.cursor(),
            link_ids: link_id_hasher(shared, view)?,
            retained_since: retention_start(shared, stream_retention(shared, view, None)?),
            shared: Arc::clone(shared),
            name,
            visibility: LinkVisibility::default(),
            direction,
            remaining: left,
            page: VecDeque::new(),
            page_size: FIRST_PAGE_ENTRIES,
            examined: 0,
        }))
    }

    fn next(&mut self, limit: usize) -> Result<ViewItem> {
        self.shared.check_process()?;
        for _ in 0..limit.max(1) {
            let Some((number, position)) = self.next_entry()? else { return Ok(ViewItem::End) };
            self.shared.check_open()?;
            self.examined += 1;
            let Some(frame) = self.cursor.find_event(position)? else {
                // The event was scavenged; only its number remains.
                self.skip_scavenged(position)?;
                continue;
            };
            let (kind, stamp) = (self.name.kind, frame.meta);
            if !kind.contains(&self.name.name, frame.stream, frame.event.kind, stamp.revision) {
                return Err(self.shared.index.views.corruption(kind, &self.name.name).into());
            }
            if self.shared.log.ordered_time(&stamp) < self.retained_since {
                self.skip_expired()?;
                continue;
            }
            let is_shown = self.visibility.is_visible(&self.shared, &frame)?;
            let link = make_link(&self.name.view, &self.link_ids, number, &frame);
            let event = (is_shown && !frame.is_stub).then(|| frame.to_recorded());
            return Ok(ViewItem::Event(ViewEvent { link, event }));
        }
        Ok(ViewItem::Skipped)
    }

    /// Skips the entries up to the next event that is in the log, in reading order, after the
    /// scavenged event at this position.
    fn skip_scavenged(&mut self, position: u64) -> Result<()> {
        let (kind, name) = (self.name.kind, &*self.name.name);
        let views = &self.shared.index.views;
        let edge = match self.direction {
            Direction::Forwards => self.cursor.seek(position)?,
            Direction::Backwards => self.cursor.seek_before(position)?,
        };
        let is_scavenged = |at: u64| match self.direction {
            Direction::Forwards => edge.is_none_or(|edge| at < edge),
            Direction::Backwards => edge.is_none_or(|edge| at > edge),
        };
        while self.page.front().is_some_and(|(_, at)| is_scavenged(*at)) {
            self.page.pop_front();
        }
        if !self.page.is_empty() {
            return Ok(());
        }
        let (first, last) = self.remaining;
        self.remaining = match (self.direction, edge) {
            (Direction::Forwards, Some(edge)) => {
                (first.max(views.count_through(kind, name, edge.saturating_sub(1))?), last)
            }
            (Direction::Backwards, Some(edge)) => {
                match views.count_through(kind, name, edge)?.checked_sub(1) {
                    Some(highest) => (first, last.min(highest)),
                    None => (1, 0),
                }
            }
            (_, None) => (1, 0),
        };
        Ok(())
    }

    /// Skips the expired entries after an expired one in reading order.
    fn skip_expired(&mut self) -> Result<()> {
        self.page.clear();
        let (views, name) = (&self.shared.index.views, &self.name);
        let (until, examined) = (self.remaining.1, &mut self.examined);
        let entry_at = |from| {
            *examined += 1;
            let entries = views.positions(name.kind, &name.name, from, 1, false)?;
            Ok(entries.first().copied().filter(|(number, _)| *number <= until))
        };
        let search = ExpirySearch { since: self.retained_since, until };
        self.remaining =
            search.remaining(&mut self.cursor, self.direction, self.remaining, entry_at)?;
        Ok(())
    }

    fn next_entry(&mut self) -> Result<Option<(u64, u64)>> {
        let (first, last) = self.remaining;
        if first > last {
            return Ok(None);
        }
        if self.page.is_empty() {
            let (views, name) = (&self.shared.index.views, &self.name);
            let backwards = self.direction == Direction::Backwards;
            let from = if backwards { last } else { first };
            let page = views.positions(name.kind, &name.name, from, self.page_size, backwards)?;
            self.page = page.into();
            self.page_size = PAGE_ENTRIES;
        }
        let next = self.page.pop_front().filter(|(number, _)| (first..=last).contains(number));
        let Some((number, position)) = next else {
            self.remaining = (1, 0);
            return Ok(None);
        };
        self.remaining = match (self.direction, number.checked_sub(1)) {
            (Direction::Forwards, _) => (number + 1, last),
            (Direction::Backwards, Some(before)) => (first, before),
            (Direction::Backwards, None) => (1, 0),
        };
        Ok(Some((number, position)))
    }
}

/// Creates the hasher of the ids of a view's links.
fn link_id_hasher(shared: &StoreInner, view: &str) -> Result<KeyHasher> {
    let make = |seed| {
        let made = KeyHasher::new(HashKind::SipHash13, seed);
        made.map_err(|error| Error::invalid(format!("internal: {error}")))
    };
    let of_store = make(shared.index.views.link_seed)?;
    make(hash_128(&of_store, view.as_bytes()))
}

/// FORMAT: two hashes of the message, the first with a byte 0 appended, the second with a byte 1.
fn hash_128(hasher: &KeyHasher, message: &[u8]) -> [u8; 16] {
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

/// Creates the link with this number of a view.
fn make_link(view: &str, ids: &KeyHasher, number: u64, frame: &Frame<'_>) -> RecordedEvent {
    let mut data = String::with_capacity(frame.stream.len() + 21);
    // Writes into a string cannot fail.
    let _ = write!(data, "{}@{}", frame.meta.revision, frame.stream);
    RecordedEvent {
        stream: view.to_string(),
        revision: number,
        position: frame.meta.position,
        id: EventId::from_hash(hash_128(ids, &number.to_le_bytes())),
        kind: LINK_TYPE.to_string(),
        is_json: false,
        created: frame.meta.created,
        data: data.into_bytes(),
        metadata: Vec::new(),
    }
}

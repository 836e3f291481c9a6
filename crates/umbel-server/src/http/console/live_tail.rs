//! The live tail: summaries of the events after a position, in the order of the log.
//!
//! The cursor is the position of the last examined record of the log. For a link this is the link's
//! own position, and never that of the target, which is earlier. So the tail shows no event twice,
//! and it passes links whose targets do not exist.

use std::sync::Arc;

use serde::Serialize;
use tonic::Status;
use umbel_events::{Direction, Error, EventFilter, FilteredItem, Position, RecordedEvent, Store};

use crate::auth::authorization::Caller;
use crate::event_store::event_resolution::EventResolution;
use crate::http::console::log_page::{EventSummary, as_text, log_page};
use crate::http::console::query_string::QueryString;
use crate::limits::{EXAMINED_EVENTS_MAX, LIVE_TAIL_EVENTS_MAX};
use crate::resources::outbound_quota::PageReservation;
use crate::server_context::ServerContext;

/// Bytes of events after which a part ends. The events are read one by one; only their summaries
/// stay in memory.
const READ_BYTES_MAX: usize = 16 << 20;

/// Conditions that a shown event meets.
#[derive(Debug)]
struct TailFilter {
    stream_prefix: String,
    type_prefix: String,
    shows_system: bool,
}

/// A part of the tail.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct TailPart {
    events: Vec<EventSummary>,
    /// Position after the last examined record.
    #[serde(serialize_with = "as_text")]
    next: u64,
    /// Whether no more events were visible.
    is_end: bool,
    /// Position of the last visible event.
    #[serde(serialize_with = "as_text")]
    end: u64,
    /// Number of events appended since the start.
    #[serde(serialize_with = "as_text")]
    appended: u64,
}

/// Serves the events at and after the position `from`, or the newest ones without it.
pub async fn live_tail(
    service: &Arc<ServerContext>,
    caller: &Caller,
    query: &QueryString,
    reservation: PageReservation,
) -> Result<(String, PageReservation), Status> {
    let filter = TailFilter {
        stream_prefix: query.text("stream").to_string(),
        type_prefix: query.text("type").to_string(),
        shows_system: query.choice("system", [("yes", true), ("no", false)])?.unwrap_or(false),
    };
    let from = query.number("from")?;
    let count = query.number("count")?.unwrap_or(LIVE_TAIL_EVENTS_MAX);
    let count = usize::try_from(count.min(LIVE_TAIL_EVENTS_MAX)).unwrap_or(usize::MAX);
    log_page(service, caller, reservation, move |store, resolution| {
        let candidates = filter.candidates()?;
        let (Position(end), appended) = (store.visible_position(), store.events_appended());
        let tail = LogTail { store, filter, resolution, candidates };
        let part = match from {
            Some(from) => tail.after(from, count)?,
            None => tail.newest(end + 1, count)?,
        };
        Ok(TailPart { end, appended, ..part })
    })
    .await
}

impl TailFilter {
    /// The events among which the shown ones are. The index finds events of a type or of a category
    /// without a scan of the log.
    fn candidates(&self) -> Result<Arc<EventFilter>, Error> {
        if !self.stream_prefix.is_empty() {
            EventFilter::stream_prefixes(&[&self.stream_prefix])
        } else if !self.type_prefix.is_empty() {
            EventFilter::type_prefixes(&[&self.type_prefix])
        } else if self.shows_system {
            EventFilter::stream_regex("^")
        } else {
            EventFilter::stream_regex("^[^$]")
        }
    }

    fn shows(&self, event: &RecordedEvent) -> bool {
        let is_wanted = self.shows_system
            || self.stream_prefix.starts_with('$')
            || !event.stream.starts_with('$');
        is_wanted
            && event.kind.starts_with(&self.type_prefix)
            && event.stream.starts_with(&self.stream_prefix)
    }
}

/// A read of the end of the log.
#[derive(Debug)]
struct LogTail {
    store: Store,
    filter: TailFilter,
    resolution: EventResolution,
    candidates: Arc<EventFilter>,
}

impl LogTail {
    /// The first events at and after a position. Examines a bounded number of records.
    fn after(&self, from: u64, count: usize) -> Result<TailPart, Error> {
        let mut part = TailPart { next: from, ..TailPart::default() };
        let direction = Direction::Forwards;
        let candidates = Arc::clone(&self.candidates);
        let mut reader = self.store.read_filtered(Position(from), direction, candidates);
        let mut bytes = 0;
        while part.events.len() < count && bytes < READ_BYTES_MAX {
            let left = EXAMINED_EVENTS_MAX.saturating_sub(to_usize(reader.examined()));
            if left == 0 {
                break;
            }
            let examined = match reader.next_within(left)? {
                FilteredItem::Event(event) => {
                    bytes += event.data.len() + event.metadata.len();
                    let position = event.position;
                    part.events.extend(self.summary(event)?);
                    position
                }
                FilteredItem::Examined(Position(position)) => position,
                FilteredItem::End(Position(position)) => {
                    part.is_end = true;
                    part.next = part.next.max(position + 1);
                    break;
                }
            };
            part.next = part.next.max(examined + 1);
        }
        Ok(part)
    }

    /// The newest events before a position, oldest first. The tail continues at this position.
    fn newest(&self, before: u64, count: usize) -> Result<TailPart, Error> {
        let mut part = TailPart { next: before, is_end: true, ..TailPart::default() };
        let direction = Direction::Backwards;
        let candidates = Arc::clone(&self.candidates);
        let mut reader = self.store.read_filtered(Position(before), direction, candidates);
        let mut bytes = 0;
        while part.events.len() < count && bytes < READ_BYTES_MAX {
            let left = EXAMINED_EVENTS_MAX.saturating_sub(to_usize(reader.examined()));
            if left == 0 {
                break;
            }
            match reader.next_within(left)? {
                FilteredItem::Event(event) => {
                    bytes += event.data.len() + event.metadata.len();
                    part.events.extend(self.summary(event)?);
                }
                FilteredItem::Examined(_) => {}
                FilteredItem::End(_) => break,
            }
        }
        part.events.reverse();
        Ok(part)
    }

    /// Summary of an event; `None` for an event that is not shown.
    fn summary(&self, event: RecordedEvent) -> Result<Option<EventSummary>, Error> {
        if !self.filter.shows(&event) {
            return Ok(None);
        }
        let Some(shown) = self.resolution.resolve(&self.store, event)? else { return Ok(None) };
        Ok(shown.event.map(EventSummary::from))
    }
}

fn to_usize(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

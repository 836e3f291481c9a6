//! Search for events by their id, their correlation id or the id of the event that caused them.
//!
//! No index has these ids, so a search reads the log backwards. Each request examines a bounded
//! part of the log; the page repeats the request from the returned position.

use std::sync::Arc;

use serde::Serialize;
use tonic::Status;
use umbel_events::{
    Direction, Error, EventFilter, FilteredItem, Position, RecordedEvent, Store, read_json_keys,
};

use crate::auth::authorization::Caller;
use crate::event_store::event_resolution::EventResolution;
use crate::http::console::log_page::{EventSummary, as_text, log_page};
use crate::http::console::query_string::QueryString;
use crate::limits::{LIVE_TAIL_EVENTS_MAX, SEARCH_BYTES_MAX, SEARCH_EVENTS_MAX};
use crate::resources::outbound_quota::PageReservation;
use crate::server_context::ServerContext;

/// Name of the endpoint.
pub const SEARCH: &str = "search";
/// Keys of metadata that name other events.
const METADATA_KEYS: [&str; 2] = ["$correlationId", "$causationId"];
/// Kinds of ids, in the order of [`METADATA_KEYS`], and last the event's own id.
const ID_KINDS: [(&str, usize); 3] = [("correlation", 0), ("causation", 1), ("id", 2)];

/// The events to find.
#[derive(Debug)]
struct EventSearch {
    kind: usize,
    id: String,
}

/// A part of a search.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SearchPart {
    events: Vec<EventSummary>,
    /// Position at which the next part begins.
    #[serde(serialize_with = "as_text")]
    before: u64,
    /// Whether the log has no more events.
    is_end: bool,
}

/// Serves a part of a search: matching events before the position `before`, newest first.
pub async fn search(
    service: &Arc<ServerContext>,
    caller: &Caller,
    query: &QueryString,
    reservation: PageReservation,
) -> Result<(String, PageReservation), Status> {
    let given = ID_KINDS.iter().find(|(name, _)| !query.text(name).is_empty());
    let (name, kind) = given.ok_or_else(|| {
        Status::invalid_argument("the request names no id: add id, correlation or causation")
    })?;
    let wanted = EventSearch { kind: *kind, id: query.text(name).to_string() };
    let before = query.number("before")?.unwrap_or(u64::MAX);
    log_page(service, caller, reservation, move |store, resolution| {
        wanted.read_before(&store, &resolution, before)
    })
    .await
}

impl EventSearch {
    fn read_before(
        &self,
        store: &Store,
        resolution: &EventResolution,
        before: u64,
    ) -> Result<SearchPart, Error> {
        let candidates = EventFilter::stream_regex("^")?;
        let direction = Direction::Backwards;
        let mut reader = store.read_filtered(Position(before), direction, candidates);
        let (mut events, mut next, mut is_end) = (Vec::new(), before, false);
        let mut bytes = 0;
        while (events.len() as u64) < LIVE_TAIL_EVENTS_MAX && bytes < SEARCH_BYTES_MAX {
            let examined = usize::try_from(reader.examined()).unwrap_or(usize::MAX);
            let left = SEARCH_EVENTS_MAX.saturating_sub(examined);
            if left == 0 {
                break;
            }
            match reader.next_within(left)? {
                FilteredItem::Event(event) => {
                    bytes += event.data.len() + event.metadata.len();
                    next = event.position;
                    if self.matches(&event)
                        && let Some(shown) = resolution.resolve(store, event)?
                    {
                        events.extend(shown.event.map(EventSummary::from));
                    }
                }
                FilteredItem::Examined(Position(position)) => next = position,
                FilteredItem::End(_) => {
                    is_end = true;
                    break;
                }
            }
        }
        Ok(SearchPart { events, before: next, is_end })
    }

    fn matches(&self, event: &RecordedEvent) -> bool {
        if self.kind == METADATA_KEYS.len() {
            return event.id.to_string() == self.id;
        }
        let Ok(keys) = read_json_keys(&event.metadata, METADATA_KEYS) else { return false };
        let text = keys[self.kind].and_then(|json| serde_json::from_str::<String>(json).ok());
        text.is_some_and(|text| text == self.id)
    }
}

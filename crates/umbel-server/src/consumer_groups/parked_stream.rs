//! The parked events of a consumer group: a stream of links, named as in EventStoreDB.

use serde_json::json;
use umbel_events::limits::STREAM_NAME_BYTES_MAX;
use umbel_events::{
    Direction, Error, ExpectedVersion, MetadataUpdate, NewEvent, RecordedEvent, ResolvedEvent,
    Revision, Store, StreamState,
};

use crate::consumer_groups::dispatcher::ParkRequest;
use crate::event_store::event_resolution::resolved_bytes;
use crate::limits::{PAGE_BYTES, PARK_BATCH_EVENTS_MAX};
use crate::protocol::group_key::{ALL_SOURCE, GroupKey};
use crate::system_stream;

const LINK_TYPE: &str = "$>";
/// Most bytes of a link's data: the largest revision, and the name of a metadata stream whose
/// stream has the longest name.
const TARGET_BYTES_MAX: usize = 20 + "@$$".len() + STREAM_NAME_BYTES_MAX;

/// Parks events: appends a link to each event, with the reason and time.
pub fn append_parked(
    store: &Store,
    stream: &str,
    events: &[ParkRequest],
    is_of_view: bool,
    added: u64,
) -> Result<(), Error> {
    let parked = events.iter().map(|(_, event, reason)| {
        let metadata = json!({ "added": added, "reason": &**reason }).to_string();
        (link_target(event, is_of_view), metadata)
    });
    let parked: Vec<(Vec<u8>, String)> = parked.collect();
    let links = parked.iter().map(|(target, metadata)| {
        let link = NewEvent::binary(store.new_id()?, LINK_TYPE, target);
        Ok(link.with_metadata(metadata.as_bytes()))
    });
    let links = links.collect::<Result<Vec<_>, Error>>()?;
    store.append(stream, ExpectedVersion::Any, &links).map(drop)
}

/// The data of a link to an event. If the event was read through a link, that link's data is
/// copied, since links to links are not followed. Data longer than any valid link is not copied.
fn link_target(event: &ResolvedEvent, is_of_view: bool) -> Vec<u8> {
    match (&event.link, &event.event) {
        (Some(link), _) if link.data.len() <= TARGET_BYTES_MAX => link.data.clone(),
        (None, Some(event)) if is_of_view => event.data.clone(),
        (_, Some(event)) => event_address(event),
        // The link's target does not exist: the new link points to the link itself.
        (link, None) => link.as_ref().map_or_else(Vec::new, event_address),
    }
}

fn event_address(event: &RecordedEvent) -> Vec<u8> {
    format!("{}@{}", event.revision, event.stream).into_bytes()
}

/// Reads a page of parked events, with their targets, from one revision up to another, exclusive.
pub fn read_parked(
    store: &Store,
    stream: &str,
    from: u64,
    before: u64,
) -> Result<Vec<(u64, ResolvedEvent)>, Error> {
    let mut found = Vec::new();
    let mut bytes = 0;
    for link in store.read(stream, Revision(from), Direction::Forwards).take(PARK_BATCH_EVENTS_MAX)
    {
        let link = link?;
        if link.revision >= before || bytes >= PAGE_BYTES {
            break;
        }
        let revision = link.revision;
        let event = store.resolve(link)?;
        bytes += resolved_bytes(&event);
        found.push((revision, event));
    }
    Ok(found)
}

/// Names of the stream of a group's parked events: its own, then those of its replacements. The
/// server uses the first one that is not tombstoned. The source is a stream, or `$all`.
pub fn parked_streams(source: &str, group: &str) -> Vec<String> {
    let stream = (source != ALL_SOURCE).then(|| source.to_string());
    let key = GroupKey { stream, group: group.to_string() };
    system_stream::names(&key.parked_stream()).collect()
}

/// Removes parked events before a revision. The stream keeps its other metadata.
pub fn truncate_parked(store: &Store, stream: &str, first: u64) -> Result<(), Error> {
    store.update_metadata(stream, MetadataUpdate::RaiseTruncateBefore(first))
}

/// Name of the stream with a group's parked events, its first parked revision and its next
/// revision.
pub fn parked_range(store: &Store, own: &str) -> Result<(String, (u64, u64)), Error> {
    let (stream, state) = system_stream::find_or_own(store, own)?;
    let range = match state {
        StreamState::Live { first, last } => (first.min(last + 1), last + 1),
        StreamState::Deleted { last } => (last + 1, last + 1),
        StreamState::Missing | StreamState::Tombstoned => (0, 0),
    };
    Ok((stream, range))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use umbel_events::metadata_stream;

    use super::*;
    use crate::consumer_groups::group_command::park_reason;
    use crate::test_support::test_service::TestService;

    /// Story: no limit ensured that the events parked together fit into one append.
    #[test]
    fn largest_park_fits_in_one_append() {
        let fixture = TestService::new();
        let named = RecordedEvent {
            stream: metadata_stream(&"s".repeat(STREAM_NAME_BYTES_MAX)),
            revision: u64::MAX,
            position: 0,
            id: fixture.store.new_id().unwrap(),
            kind: "Opened".to_string(),
            is_json: false,
            created: 0,
            data: Vec::new(),
            metadata: Vec::new(),
        };
        let link =
            |data: Vec<u8>| RecordedEvent { kind: LINK_TYPE.to_string(), data, ..named.clone() };
        let long = vec![b'x'; TARGET_BYTES_MAX];
        let resolved = |event, link| Arc::new(ResolvedEvent { event, link });
        // Each byte takes six in JSON.
        let reason = park_reason(&"\u{1}".repeat(5000));
        for event in [
            resolved(Some(named.clone()), None),
            resolved(None, Some(link(long.clone()))),
            resolved(None, Some(link([&long[..], b"x"].concat()))),
        ] {
            assert!(link_target(&event, false).len() <= TARGET_BYTES_MAX);
            let one = |number| {
                (
                    crate::consumer_groups::dispatcher::EventKey::Source(number),
                    event.clone(),
                    reason.clone(),
                )
            };
            let parking: Vec<ParkRequest> = (0..PARK_BATCH_EVENTS_MAX as u64).map(one).collect();
            let stream = "p".repeat(STREAM_NAME_BYTES_MAX);
            append_parked(&fixture.store, &stream, &parking, false, u64::MAX).unwrap();
        }
    }
}

//! Stored state of consumer groups: their settings, checkpoints and parked events. The streams have
//! the same names as in EventStoreDB.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use umbel_events::limits::STREAM_NAME_BYTES_MAX;
use umbel_events::{
    Direction, Error, ExpectedVersion, NewEvent, Position, RecordedEvent, ResolvedEvent, Revision,
    Store, StreamState, metadata_stream,
};

use crate::consumer_groups::dispatcher::ParkRequest;
use crate::consumer_groups::group_config::{GroupConfig, format_position, parse_position};
use crate::event_store::event_pager::resolved_bytes;
use crate::limits::{PAGE_BYTES, PARK_BATCH_EVENTS_MAX};
use crate::protocol::group_key::GroupKey;

/// The stream that lists all groups. Its last event is valid.
const CONFIG: &str = "$persistentSubscriptionConfig";
const CONFIG_TYPE: &str = "$PersistentConfig";
const CHECKPOINT_TYPE: &str = "$SubscriptionCheckpoint";
const LINK_TYPE: &str = "$>";
/// Format version of the stream's events.
const VERSION: &str = "2";
/// Number of events that such a stream retains.
const EVENTS_RETAINED: u64 = 5;
/// Most bytes of a link's data: the largest revision, and the name of a metadata stream whose
/// stream has the longest name.
const TARGET_BYTES_MAX: usize = 20 + "@$$".len() + STREAM_NAME_BYTES_MAX;
/// Most events that are examined where other writers wrote the last ones.
const EVENTS_EXAMINED_MAX: usize = 1000;

/// Every group with its settings.
pub type GroupConfigs = BTreeMap<GroupKey, GroupConfig>;

/// Whether the stream is a checkpoint stream or parked stream of a group on all events. Such groups
/// skip the events of these streams.
pub fn is_group_stream(stream: &str) -> bool {
    let name = stream.trim_start_matches("$$$").trim_start_matches('$');
    name.strip_prefix("persistentsubscription-$all::")
        .is_some_and(|name| name.ends_with("-checkpoint") || name.ends_with("-parked"))
}

/// The stored groups and the revision that lists them.
pub fn read_configs(store: &Store) -> Result<(GroupConfigs, Option<u64>), Error> {
    let mut last = None;
    for event in store.read(CONFIG, Revision::END, Direction::Backwards).take(EVENTS_EXAMINED_MAX) {
        let event = event?;
        last = last.or(Some(event.revision));
        if let Some(configs) = parse_configs(&event) {
            return Ok((configs, last));
        }
    }
    Ok((GroupConfigs::new(), last))
}

/// The groups that an event lists; `None` where it is not a valid list.
pub fn parse_configs(event: &RecordedEvent) -> Option<GroupConfigs> {
    if event.kind != CONFIG_TYPE {
        return None;
    }
    let value: Value = serde_json::from_slice(&event.data).ok()?;
    let entries = value.get("entries")?.as_array()?;
    entries.iter().map(GroupConfig::parse).collect()
}

/// Writes the list of groups after revision `last`. Returns the new revision.
pub fn write_configs(
    store: &Store,
    configs: &GroupConfigs,
    last: Option<u64>,
    updated: u64,
) -> Result<Option<u64>, Error> {
    if last.is_none() {
        limit_retention(store, CONFIG)?;
    }
    let entries: Vec<Value> = configs.iter().map(|(key, config)| config.to_json(key)).collect();
    let data = json!({ "version": VERSION, "updated": updated, "entries": entries }).to_string();
    let event = NewEvent::json(store.new_id()?, CONFIG_TYPE, data.as_bytes());
    let expected = last.map_or(ExpectedVersion::NoStream, ExpectedVersion::Exact);
    Ok(store.append(CONFIG, expected, &[event])?.last)
}

/// Sets a stream's retention to [`EVENTS_RETAINED`] events.
fn limit_retention(store: &Store, stream: &str) -> Result<(), Error> {
    let data = json!({ "$maxCount": EVENTS_RETAINED }).to_string();
    let event = NewEvent::json(store.new_id()?, "$metadata", data.as_bytes());
    store.append(&metadata_stream(stream), ExpectedVersion::Any, &[event]).map(drop)
}

/// The reason why a group cannot continue for now.
#[derive(Debug)]
pub enum GroupError {
    /// The group's source could not be read.
    Source(Error),
    /// The group's own state could not be read or written. No consumer requested that access.
    Storage(Error),
}

/// The stored checkpoint of a group; `None` without one. A checkpoint beyond the end of the group's
/// source comes from another writer. With it the group would skip all new events, so an earlier
/// checkpoint is used.
pub fn read_checkpoint(store: &Store, key: &GroupKey) -> Result<Option<u64>, Error> {
    let stream = key.checkpoint_stream();
    let mut last = None;
    for event in store.read(&stream, Revision::END, Direction::Backwards).take(EVENTS_EXAMINED_MAX)
    {
        let event = event?;
        let value = || serde_json::from_slice::<String>(&event.data).ok();
        if event.kind == CHECKPOINT_TYPE
            && let Some(position) = value().and_then(|value| parse_position(&value))
        {
            let last = match last {
                Some(last) => last,
                None => *last.insert(last_source_position(store, key)?),
            };
            if Some(position) <= last {
                return Ok(Some(position));
            }
            tracing::warn!(
                stream,
                place = position,
                "the checkpoint of a consumer group is beyond the end \
                of the events; it is ignored"
            );
        }
    }
    Ok(None)
}

/// The last revision or position of a group's source, whether or not it is readable; `None` before
/// the first event.
fn last_source_position(store: &Store, key: &GroupKey) -> Result<Option<u64>, Error> {
    let Some(name) = &key.stream else { return Ok(Some(store.visible_position().0)) };
    if key.is_of_view() {
        return Ok(store.view(name, Position::END)?.map(|view| view.last));
    }
    Ok(match store.stream_state(name)? {
        StreamState::Live { last, .. } | StreamState::Deleted { last } => Some(last),
        StreamState::Missing => None,
        // No more events follow.
        StreamState::Tombstoned => Some(u64::MAX),
    })
}

/// Writes the checkpoint.
pub fn write_checkpoint(store: &Store, key: &GroupKey, floor: u64) -> Result<(), Error> {
    let stream = key.checkpoint_stream();
    let data = json!(format_position(key, floor)).to_string();
    let event = NewEvent::json(store.new_id()?, CHECKPOINT_TYPE, data.as_bytes());
    let done = store.append(&stream, ExpectedVersion::Any, &[event])?;
    if done.first == Some(0) {
        limit_retention(store, &stream)?;
    }
    Ok(())
}

/// Parks events: appends for each a link, with the reason and time.
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

/// The data of a link to an event. Where the event came through a link, that link's data is copied,
/// since links to links are not followed. Data longer than any valid link is not copied.
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

/// A page of parked events from one revision up to before another, with their targets.
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

/// Removes parked events before a revision.
pub fn truncate_parked(store: &Store, stream: &str, first: u64) -> Result<(), Error> {
    let data = json!({ "$tb": first }).to_string();
    let event = NewEvent::json(store.new_id()?, "$metadata", data.as_bytes());
    store.append(&metadata_stream(stream), ExpectedVersion::Any, &[event]).map(drop)
}

/// Deletes the stored state of a group, except its settings.
pub fn delete_state(store: &Store, key: &GroupKey) -> Result<(), Error> {
    for stream in [key.checkpoint_stream(), key.parked_stream()] {
        match store.delete(&stream, ExpectedVersion::Any) {
            // The stream did not exist.
            Ok(_) | Err(Error::WrongExpectedVersion { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::consumer_groups::group_command::park_reason;
    use crate::test_support::test_service::TestService;

    /// Story: nothing ensured that the events parked at once fit into one append.
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

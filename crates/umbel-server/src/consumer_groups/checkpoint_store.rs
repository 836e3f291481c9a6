//! Stored settings and checkpoints of consumer groups, in streams with the same names as in
//! EventStoreDB.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use umbel_events::{
    Direction, Error, ExpectedVersion, NewEvent, Position, RecordedEvent, Revision, Store,
    StreamState, metadata_stream,
};

use crate::consumer_groups::group_config::{GroupConfig, format_position, parse_position};
use crate::protocol::group_key::GroupKey;

/// The stream that lists all groups; only its last event is valid.
const CONFIG: &str = "$persistentSubscriptionConfig";
const CONFIG_TYPE: &str = "$PersistentConfig";
const CHECKPOINT_TYPE: &str = "$SubscriptionCheckpoint";
/// Format version of the stream's events.
const VERSION: &str = "2";
/// Number of events that a checkpoint stream or the stream of groups retains.
const EVENTS_RETAINED: u64 = 5;
/// Maximum number of events that are examined, in case other writers wrote the last ones.
const EVENTS_EXAMINED_MAX: usize = 1000;

/// Every group with its settings.
pub type GroupConfigs = BTreeMap<GroupKey, GroupConfig>;

/// Whether the stream is a checkpoint stream or parked stream of a group on all events. Groups on
/// all events skip the events of these streams.
pub fn is_group_stream(stream: &str) -> bool {
    let name = stream.trim_start_matches("$$$").trim_start_matches('$');
    name.strip_prefix("persistentsubscription-$all::")
        .is_some_and(|name| name.ends_with("-checkpoint") || name.ends_with("-parked"))
}

/// The stored groups, and the revision of the event that lists them.
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

/// The groups that an event lists; `None` if the event is no valid list.
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
    /// The group's own state could not be read or written. No consumer requested this read or
    /// write.
    Storage(Error),
}

/// The stored checkpoint of a group; `None` without one. A checkpoint beyond the end of the group's
/// source comes from another writer. The group would skip all new events with such a checkpoint, so
/// an earlier one is used.
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
                "the checkpoint of a consumer group is beyond the end of its events; the server \
                 ignores the checkpoint"
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

/// Writes the checkpoint of a group.
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

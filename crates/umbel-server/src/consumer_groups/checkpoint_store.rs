//! Stored settings and checkpoints of consumer groups, in streams with the same names as in
//! EventStoreDB.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserializer, Error as _, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use umbel_events::{
    Error, ExpectedVersion, MetadataUpdate, NewEvent, Position, RecordedEvent, Store, StreamState,
    read_json_keys,
};

use crate::consumer_groups::group_config::{GroupConfig, format_position, parse_position};
use crate::protocol::group_key::GroupKey;
use crate::system_stream;

/// The stream that lists all groups; only its last event is valid.
const CONFIG: &str = "$persistentSubscriptionConfig";
const CONFIG_TYPE: &str = "$PersistentConfig";
const CHECKPOINT_TYPE: &str = "$SubscriptionCheckpoint";
/// Format version of the stream's events.
const VERSION: &str = "2";
/// Number of events that a checkpoint stream or the stream of groups retains.
const EVENTS_RETAINED: u64 = 5;
/// Attempts at a write of the list of groups while other writers append to its stream.
const WRITE_ATTEMPTS: usize = 10;

/// Every group with its settings.
pub type GroupConfigs = BTreeMap<GroupKey, GroupConfig>;

/// Whether the stream is a checkpoint stream or parked stream of a group on all events. Groups on
/// all events skip the events of these streams.
pub fn is_group_stream(stream: &str) -> bool {
    let name = stream.strip_prefix("$$").unwrap_or(stream);
    let Some(rest) = name.strip_prefix(system_stream::GROUP_PREFIX) else { return false };
    // A replacement has a number.
    let rest = rest.trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
    rest.strip_prefix("-$all::")
        .is_some_and(|name| name.ends_with("-checkpoint") || name.ends_with("-parked"))
}

/// The stored groups, and the revision of the last event of the stream that lists them.
pub fn read_configs(store: &Store) -> Result<(GroupConfigs, Option<u64>), Error> {
    let (stream, state) = system_stream::find_or_own(store, CONFIG)?;
    let last = system_stream::last_revision(state);
    if let Some(configs) = newest_configs(store, &stream, None)? {
        return Ok((configs, last));
    }
    if stream != CONFIG && last.is_none() {
        let effect = "the consumer groups are lost; create them again";
        system_stream::report_replacement(CONFIG, &stream, effect);
    } else if last.is_some() {
        tracing::warn!(
            stream,
            "no readable event of the stream is a valid list of consumer groups; the server has no \
             groups until they are created again"
        );
    }
    Ok((GroupConfigs::new(), last))
}

/// Like [`read_configs`]; `None` if the stream has no valid list.
pub fn read_valid_configs(store: &Store) -> Result<Option<(GroupConfigs, Option<u64>)>, Error> {
    let (stream, state) = system_stream::find_or_own(store, CONFIG)?;
    let configs = newest_configs(store, &stream, None)?;
    Ok(configs.map(|configs| (configs, system_stream::last_revision(state))))
}

/// The newest valid list of groups in this stream, if its revision is higher than `after`.
fn newest_configs(
    store: &Store,
    stream: &str,
    after: Option<u64>,
) -> Result<Option<GroupConfigs>, Error> {
    system_stream::newest_valid(store, stream, after, |event| Ok(parse_configs(event)))
}

/// The groups that an event lists; `None` if the event is no valid list.
pub fn parse_configs(event: &RecordedEvent) -> Option<GroupConfigs> {
    if event.kind != CONFIG_TYPE {
        return None;
    }
    let [entries] = read_json_keys(&event.data, ["entries"]).ok()?;
    let entries = serde_json::Deserializer::from_str(entries?).deserialize_seq(EntriesVisitor);
    entries.ok()
}

/// Reads the list of groups entry by entry.
struct EntriesVisitor;

impl<'de> Visitor<'de> for EntriesVisitor {
    type Value = GroupConfigs;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of groups")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<GroupConfigs, A::Error> {
        let mut configs = GroupConfigs::new();
        while let Some(entry) = entries.next_element::<&'de RawValue>()? {
            let (key, config) = GroupConfig::parse(entry.get())
                .ok_or_else(|| A::Error::custom("a group's settings are invalid"))?;
            configs.insert(key, config);
        }
        Ok(configs)
    }
}

/// Writes the list of groups after revision `last`, or after later events that are no lists.
/// Returns the new revision.
///
/// # Errors
/// `WrongExpectedVersion` if another writer wrote a list after `last`; errors of appends.
pub fn write_configs(
    store: &Store,
    configs: &GroupConfigs,
    last: Option<u64>,
    updated: u64,
) -> Result<Option<u64>, Error> {
    let entries: Vec<Value> = configs.iter().map(|(key, config)| config.to_json(key)).collect();
    let data = json!({ "version": VERSION, "updated": updated, "entries": entries }).to_string();
    let event = [NewEvent::json(store.new_id()?, CONFIG_TYPE, data.as_bytes())];
    let mut attempts = 0;
    loop {
        attempts += 1;
        let (stream, state) = system_stream::find(store, CONFIG)?;
        let current = system_stream::last_revision(state);
        if current > last && newest_configs(store, &stream, last)?.is_some() {
            let expected = last.map_or(ExpectedVersion::NoStream, ExpectedVersion::Exact);
            return Err(Error::WrongExpectedVersion { stream, expected, current, present: None });
        }
        let expected = current.map_or(ExpectedVersion::NoStream, ExpectedVersion::Exact);
        match store.append(&stream, expected, &event) {
            Ok(done) => {
                if done.first == Some(0) {
                    limit_retention(store, &stream);
                    if stream != CONFIG {
                        let effect = "keeps the consumer groups that it has in memory";
                        system_stream::report_replacement(CONFIG, &stream, effect);
                    }
                }
                return Ok(done.last);
            }
            Err(Error::WrongExpectedVersion { .. } | Error::StreamDeleted { .. })
                if attempts < WRITE_ATTEMPTS => {}
            Err(error) => return Err(error),
        }
    }
}

/// Sets a new stream's retention to [`EVENTS_RETAINED`] events, unless its metadata has one. The
/// stream is complete without it, so a failure is only reported.
fn limit_retention(store: &Store, stream: &str) {
    let limit = MetadataUpdate::DefaultMaxCount(EVENTS_RETAINED);
    if let Err(error) = store.update_metadata(stream, limit) {
        tracing::warn!(stream, %error, "the retention of a stream of the server could not be set");
    }
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
    let own = key.checkpoint_stream();
    let (stream, state) = system_stream::find_or_own(store, &own)?;
    let mut last = None;
    let found = system_stream::newest_valid(store, &stream, None, |event| {
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
        Ok(None)
    })?;
    if found.is_some() {
        return Ok(found);
    }
    // A deleted stream is what a deleted group of the same name left.
    if matches!(state, StreamState::Live { .. } | StreamState::Tombstoned) || stream != own {
        tracing::warn!(
            stream,
            "a consumer group has a checkpoint stream without a valid checkpoint; the group starts \
             where its settings say"
        );
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
    let own = key.checkpoint_stream();
    let (stream, _) = system_stream::find(store, &own)?;
    let data = json!(format_position(key, floor)).to_string();
    let event = NewEvent::json(store.new_id()?, CHECKPOINT_TYPE, data.as_bytes());
    let done = store.append(&stream, ExpectedVersion::Any, &[event])?;
    if done.first == Some(0) {
        limit_retention(store, &stream);
        if stream != own {
            system_stream::report_replacement(
                &own,
                &stream,
                "stores the group's checkpoints there",
            );
        }
    }
    Ok(())
}

/// Deletes the stored state of a group, except its settings. What is tombstoned needs no deletion.
pub fn delete_state(store: &Store, key: &GroupKey) -> Result<(), Error> {
    for own in [key.checkpoint_stream(), key.parked_stream()] {
        let stream = match system_stream::find(store, &own) {
            Ok((_, StreamState::Missing)) | Err(Error::StreamDeleted { .. }) => continue,
            found => found?.0,
        };
        match store.delete(&stream, ExpectedVersion::Any) {
            Ok(_) | Err(Error::WrongExpectedVersion { .. } | Error::StreamDeleted { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_groups_on_all_events_are_recognized() {
        for (stream, wanted) in [
            ("$persistentsubscription-$all::billing-checkpoint", true),
            ("$persistentsubscription.2-$all::billing-parked", true),
            ("$$$persistentsubscription-$all::billing-parked", true),
            ("$$$persistentsubscription.9-$all::billing-checkpoint", true),
            ("$persistentsubscription-cart::billing-checkpoint", false),
            ("$persistentsubscription-$all::billing", false),
            ("$persistentsubscriptions-$all::billing-parked", false),
        ] {
            assert_eq!(is_group_stream(stream), wanted, "{stream}");
        }
    }
}

//! Stored checkpoints of consumer groups, in streams with the same names as in EventStoreDB.

use serde_json::json;
use umbel_events::{
    Error, ExpectedVersion, MetadataUpdate, NewEvent, Position, Store, StreamState,
};

use crate::consumer_groups::group_config::{format_position, parse_position};
use crate::protocol::group_key::GroupKey;
use crate::system_stream;

const CHECKPOINT_TYPE: &str = "$SubscriptionCheckpoint";
/// Number of events that a checkpoint stream retains.
const EVENTS_RETAINED: u64 = 5;

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
    let report = |position| {
        tracing::warn!(
            stream,
            place = position,
            "the checkpoint of a consumer group is beyond the end of its events; the server \
             ignores the checkpoint"
        );
    };
    let found = newest_checkpoint(store, key, &stream, report)?;
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

/// Like [`read_checkpoint`], for statistics: logs nothing, because a client may request them again
/// and again.
pub fn peek_checkpoint(store: &Store, key: &GroupKey) -> Result<Option<u64>, Error> {
    let (stream, state) = system_stream::find_or_own(store, &key.checkpoint_stream())?;
    match state {
        StreamState::Live { .. } => newest_checkpoint(store, key, &stream, |_| ()),
        _ => Ok(None),
    }
}

/// The newest checkpoint in this stream that is not beyond the end of the group's source. Reports
/// those that are.
fn newest_checkpoint(
    store: &Store,
    key: &GroupKey,
    stream: &str,
    report: impl Fn(u64),
) -> Result<Option<u64>, Error> {
    let mut last = None;
    system_stream::newest_valid(store, stream, None, |event| {
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
            report(position);
        }
        Ok(None)
    })
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

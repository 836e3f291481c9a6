//! What is kept of groups of consumers in the store itself: which there are, how far each is, and
//! what it parked. The streams have the names that such servers give them.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use umbel_events::limits::STREAM_NAME_BYTES_MAX;
use umbel_events::{
    Direction, Error, Expected, NewEvent, Position, RecordedEvent, ResolvedEvent, Revision, Store,
    StreamState, metadata_stream,
};

use crate::consumers::Parking;
use crate::group_config::{GroupConfig, parse_place, place};
use crate::group_key::GroupKey;
use crate::limits::{PAGE_BYTES, PARKED_AT_ONCE};
use crate::reader::bytes_of;

/// The stream that says which groups there are. Its last event counts.
const CONFIG: &str = "$persistentSubscriptionConfig";
const CONFIG_TYPE: &str = "$PersistentConfig";
const CHECKPOINT_TYPE: &str = "$SubscriptionCheckpoint";
const LINK_TYPE: &str = "$>";
/// The version of what the stream says.
const VERSION: &str = "2";
/// How many events of such a stream stay.
const KEPT: u64 = 5;
/// The longest that a link has to say: the largest number, and the name of the metadata of a stream
/// with the longest one.
const TARGET_BYTES_MAX: usize = 20 + "@$$".len() + STREAM_NAME_BYTES_MAX;
/// How many events are looked at when the last ones are none of ours.
const LOOKED_AT_MAX: usize = 1000;

/// Every group, with how it works.
pub type Configs = BTreeMap<GroupKey, GroupConfig>;

/// Whether this is where groups of all events keep what they are at: they do not take that
/// themselves.
pub fn is_of_a_group(stream: &str) -> bool {
    let name = stream.trim_start_matches("$$$").trim_start_matches('$');
    name.strip_prefix("persistentsubscription-$all::")
        .is_some_and(|name| name.ends_with("-checkpoint") || name.ends_with("-parked"))
}

/// Which groups there are, and the revision that says so.
pub fn read_configs(store: &Store) -> Result<(Configs, Option<u64>), Error> {
    let mut last = None;
    for event in store.read(CONFIG, Revision::END, Direction::Backwards).take(LOOKED_AT_MAX) {
        let event = event?;
        last = last.or(Some(event.revision));
        if let Some(configs) = parse_configs(&event) {
            return Ok((configs, last));
        }
    }
    Ok((Configs::new(), last))
}

/// Which groups an event says there are; `None` where it is none of ours.
pub fn parse_configs(event: &RecordedEvent) -> Option<Configs> {
    if event.kind != CONFIG_TYPE {
        return None;
    }
    let said: Value = serde_json::from_slice(&event.data).ok()?;
    let entries = said.get("entries")?.as_array()?;
    entries.iter().map(GroupConfig::parse).collect()
}

/// Writes which groups there are, behind what was read. Returns the revision that says so.
pub fn write_configs(
    store: &Store,
    configs: &Configs,
    last: Option<u64>,
    updated: u64,
) -> Result<Option<u64>, Error> {
    if last.is_none() {
        keep_few(store, CONFIG)?;
    }
    let entries: Vec<Value> = configs.iter().map(|(key, config)| config.said(key)).collect();
    let data = json!({ "version": VERSION, "updated": updated, "entries": entries }).to_string();
    let event = NewEvent::json(store.new_id()?, CONFIG_TYPE, data.as_bytes());
    let expected = last.map_or(Expected::NoStream, Expected::Exact);
    Ok(store.append(CONFIG, expected, &[event])?.last)
}

/// Lets few events of a stream stay.
fn keep_few(store: &Store, stream: &str) -> Result<(), Error> {
    let data = json!({ "$maxCount": KEPT }).to_string();
    let event = NewEvent::json(store.new_id()?, "$metadata", data.as_bytes());
    store.append(&metadata_stream(stream), Expected::Any, &[event]).map(drop)
}

/// Why a group does not go on for now.
#[derive(Debug)]
pub enum Trouble {
    /// What it is of could not be read.
    Source(Error),
    /// What is kept of it could not be read or written. No consumer asked for that.
    Kept(Error),
}

/// Up to where all is done that a group had; `None` where nothing says so. What lies behind the end
/// of what the group is of was written by somebody else: with it the group would leave out all that
/// comes, so that what was said before counts.
pub fn read_checkpoint(store: &Store, key: &GroupKey) -> Result<Option<u64>, Error> {
    let stream = key.checkpoint_stream();
    let mut last = None;
    for event in store.read(&stream, Revision::END, Direction::Backwards).take(LOOKED_AT_MAX) {
        let event = event?;
        let said = || serde_json::from_slice::<String>(&event.data).ok();
        if event.kind == CHECKPOINT_TYPE
            && let Some(place) = said().and_then(|said| parse_place(&said))
        {
            let last = match last {
                Some(last) => last,
                None => *last.insert(last_place(store, key)?),
            };
            if Some(place) <= last {
                return Ok(Some(place));
            }
            tracing::warn!(stream, place, "a checkpoint behind the end is left out");
        }
    }
    Ok(None)
}

/// The last place of what a group is of, whether or not it can be read; `None` before the first.
fn last_place(store: &Store, key: &GroupKey) -> Result<Option<u64>, Error> {
    let Some(name) = &key.stream else { return Ok(Some(store.visible().0)) };
    if key.is_of_view() {
        return Ok(store.view(name, Position::END)?.map(|view| view.last));
    }
    Ok(match store.stream(name)? {
        StreamState::Live { last, .. } | StreamState::Deleted { last } => Some(last),
        StreamState::Missing => None,
        // Nothing comes any more.
        StreamState::Tombstoned => Some(u64::MAX),
    })
}

/// Writes up to where all is done.
pub fn write_checkpoint(store: &Store, key: &GroupKey, floor: u64) -> Result<(), Error> {
    let stream = key.checkpoint_stream();
    let data = json!(place(key, floor)).to_string();
    let event = NewEvent::json(store.new_id()?, CHECKPOINT_TYPE, data.as_bytes());
    let done = store.append(&stream, Expected::Any, &[event])?;
    if done.first == Some(0) {
        keep_few(store, &stream)?;
    }
    Ok(())
}

/// Parks events: each becomes a link, with why and when.
pub fn park(
    store: &Store,
    stream: &str,
    events: &[Parking],
    is_of_view: bool,
    added: u64,
) -> Result<(), Error> {
    let said = events.iter().map(|(_, event, reason)| {
        let metadata = json!({ "added": added, "reason": &**reason }).to_string();
        (target(event, is_of_view), metadata)
    });
    let said: Vec<(Vec<u8>, String)> = said.collect();
    let links = said.iter().map(|(target, metadata)| {
        let link = NewEvent::binary(store.new_id()?, LINK_TYPE, target);
        Ok(link.with_metadata(metadata.as_bytes()))
    });
    let links = links.collect::<Result<Vec<_>, Error>>()?;
    store.append(stream, Expected::Any, &links).map(drop)
}

/// What a link to an event says. One to a link would not be followed: it says what that one does,
/// unless somebody wrote that one longer than any that is needed.
fn target(event: &ResolvedEvent, is_of_view: bool) -> Vec<u8> {
    match (&event.link, &event.event) {
        (Some(link), _) if link.data.len() <= TARGET_BYTES_MAX => link.data.clone(),
        (None, Some(event)) if is_of_view => event.data.clone(),
        (_, Some(event)) => place_of(event),
        // It leads nowhere: the link itself is what there is.
        (link, None) => link.as_ref().map_or_else(Vec::new, place_of),
    }
}

fn place_of(event: &RecordedEvent) -> Vec<u8> {
    format!("{}@{}", event.revision, event.stream).into_bytes()
}

/// Some of what is parked, from a revision on and before another one, with what it points to.
pub fn read_parked(
    store: &Store,
    stream: &str,
    from: u64,
    before: u64,
) -> Result<Vec<(u64, ResolvedEvent)>, Error> {
    let mut found = Vec::new();
    let mut bytes = 0;
    for link in store.read(stream, Revision(from), Direction::Forwards).take(PARKED_AT_ONCE) {
        let link = link?;
        if link.revision >= before || bytes >= PAGE_BYTES {
            break;
        }
        let revision = link.revision;
        let event = store.resolve(link)?;
        bytes += bytes_of(&event);
        found.push((revision, event));
    }
    Ok(found)
}

/// Takes away what is parked before a revision.
pub fn truncate(store: &Store, stream: &str, first: u64) -> Result<(), Error> {
    let data = json!({ "$tb": first }).to_string();
    let event = NewEvent::json(store.new_id()?, "$metadata", data.as_bytes());
    store.append(&metadata_stream(stream), Expected::Any, &[event]).map(drop)
}

/// Takes away what is kept of a group beside how it works.
pub fn forget(store: &Store, key: &GroupKey) -> Result<(), Error> {
    for stream in [key.checkpoint_stream(), key.parked_stream()] {
        match store.delete(&stream, Expected::Any) {
            // There was none.
            Ok(_) | Err(Error::WrongExpected { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::group_message::reason;
    use crate::stage::Stage;

    /// Story: nothing saw to it that what is parked at once is no more than one append may have.
    #[test]
    fn the_most_that_is_parked_at_once_fits_into_one_append() {
        let stage = Stage::new();
        let named = RecordedEvent {
            stream: metadata_stream(&"s".repeat(STREAM_NAME_BYTES_MAX)),
            revision: u64::MAX,
            position: 0,
            id: stage.store.new_id().unwrap(),
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
        // Each byte of it takes six.
        let reason = reason(&"\u{1}".repeat(5000));
        for event in [
            resolved(Some(named.clone()), None),
            resolved(None, Some(link(long.clone()))),
            resolved(None, Some(link([&long[..], b"x"].concat()))),
        ] {
            assert!(target(&event, false).len() <= TARGET_BYTES_MAX);
            let one = |place| (crate::consumers::Key::Source(place), event.clone(), reason.clone());
            let parking: Vec<Parking> = (0..PARKED_AT_ONCE as u64).map(one).collect();
            let stream = "p".repeat(STREAM_NAME_BYTES_MAX);
            park(&stage.store, &stream, &parking, false, u64::MAX).unwrap();
        }
    }
}

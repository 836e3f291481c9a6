//! Stored settings of all consumer groups, in the stream that EventStoreDB uses for them.
//!
//! A list of all groups is one event, as in EventStoreDB. A list for each change would make the
//! creation of groups quadratic, so a change appends only the group that changed. The server
//! writes a list again once the changes since the last list are as long as that list.
//!
//! INVARIANT: a change is appended only directly after its list and the changes of that list, all
//! of which are readable. After events of other writers, or with a retention that would hide the
//! list, the server writes a list instead. So a reader who goes backwards finds the list.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::de::{Deserializer, Error as _, SeqAccess, Visitor};
use serde_json::json;
use serde_json::value::RawValue;
use umbel_events::limits::EVENT_BYTES_MAX;
use umbel_events::{
    Direction, Error, ExpectedVersion, MetadataUpdate, NewEvent, RecordedEvent, Revision, Store,
    StreamState, read_json_keys,
};

use crate::consumer_groups::group_config::{GroupConfig, group_name};
use crate::protocol::group_key::{ALL_SOURCE, GroupKey};
use crate::system_stream::{self, EVENTS_EXAMINED_MAX};

/// The stream with the groups.
const CONFIG: &str = "$persistentSubscriptionConfig";
/// Type of an event that lists all groups.
pub const LIST_TYPE: &str = "$PersistentConfig";
/// Type of an event with the change of one group.
pub const CHANGE_TYPE: &str = "$PersistentConfigChange";
/// Format version of the stream's events.
const VERSION: &str = "2";
/// Attempts at a write while other writers append to the stream.
const WRITE_ATTEMPTS: usize = 10;
/// Maximum bytes of a list besides its groups.
const LIST_OVERHEAD_BYTES: usize = 128;
/// Maximum number of changes after a list. A version without changes examines
/// [`EVENTS_EXAMINED_MAX`] events, and so finds the list.
const CHANGES_MAX: u64 = 900;
/// Maximum number of changes that a reader applies to a list.
const CHANGES_READ_MAX: u64 = 100_000;
/// Maximum bytes of the changes that a reader applies to a list. The server's changes are not
/// longer than their list.
const CHANGES_BYTES_READ_MAX: usize = 2 * EVENT_BYTES_MAX;
/// `$maxCount` that earlier versions set, which would hide a list after a few changes.
const FORMER_MAX_COUNT: u64 = 5;
/// Replacement of [`FORMER_MAX_COUNT`], which keeps the last two lists with their changes, also
/// after events of other writers.
const MAX_COUNT: u64 = 2 * (CHANGES_MAX + 1) + EVENTS_EXAMINED_MAX as u64;

/// Every group with its settings.
pub type GroupConfigs = BTreeMap<GroupKey, GroupConfig>;

/// A change of one group: its new settings, or `None` if it is deleted.
pub type ConfigChange = (GroupKey, Option<GroupConfig>);

/// State of the stream after the server's last read or write.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfigLog {
    /// Revision of the stream's last event.
    last: Option<u64>,
    /// Bytes that the groups take in a list.
    groups_bytes: usize,
    /// The list that the next change builds on; `None` if a list must be written first.
    base: Option<BaseList>,
}

/// A stored list, with the changes directly after it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct BaseList {
    stream: String,
    revision: u64,
    bytes: usize,
    changes: u64,
    changes_bytes: usize,
}

impl BaseList {
    /// Revision of the list's last change, or of the list. After events of other writers the
    /// stream's last revision is higher.
    fn last(&self) -> u64 {
        self.revision + self.changes
    }
}

/// The stored groups, and the state of their stream. Groups that cannot be read are lost, which is
/// logged.
pub fn read_configs(store: &Store) -> Result<(GroupConfigs, ConfigLog), Error> {
    let scan = Scan::read(store)?;
    if !scan.has_list() {
        let (stream, is_empty) = (&scan.stream, scan.changes.is_empty());
        if stream != CONFIG && scan.last.is_none() {
            let effect = "the consumer groups are lost; create them again";
            system_stream::report_replacement(CONFIG, stream, effect);
        } else if !is_empty {
            tracing::warn!(
                stream,
                "the list of consumer groups before the stream's last changes cannot be read; the \
                 server has only the groups of these changes until others are created again"
            );
        } else if scan.last.is_some() {
            tracing::warn!(
                stream,
                "no readable event of the stream is a valid list of consumer groups; the server \
                 has no groups until they are created again"
            );
        }
    }
    Ok(scan.into_groups())
}

/// Like [`read_configs`]; `None` if the stream has no valid list.
pub fn read_valid_configs(store: &Store) -> Result<Option<(GroupConfigs, ConfigLog)>, Error> {
    let scan = Scan::read(store)?;
    Ok(scan.has_list().then(|| scan.into_groups()))
}

/// The newest valid events of the stream: a list, and the changes after it.
struct Scan {
    stream: String,
    /// Revision of the stream's last event, readable or not.
    last: Option<u64>,
    /// The list, its revision, and its bytes.
    list: Option<(GroupConfigs, u64, usize)>,
    /// The newest change of each group after the list.
    changes: GroupChanges,
    changes_count: u64,
    changes_bytes: usize,
    /// Number of events after the list that are neither lists nor changes.
    others: usize,
}

type GroupChanges = BTreeMap<GroupKey, Option<GroupConfig>>;

impl Scan {
    /// Reads backwards up to the newest list. A stream that is tombstoned meanwhile has no events.
    fn read(store: &Store) -> Result<Scan, Error> {
        let (stream, state) = system_stream::find_or_own(store, CONFIG)?;
        let mut scan = Scan {
            last: system_stream::last_revision(state),
            list: None,
            changes: GroupChanges::new(),
            changes_count: 0,
            changes_bytes: 0,
            others: 0,
            stream,
        };
        for event in store.read(&scan.stream, Revision::END, Direction::Backwards) {
            match event {
                Err(Error::StreamDeleted { .. }) => break,
                event => {
                    if scan.add(&event?) {
                        break;
                    }
                }
            }
        }
        Ok(scan)
    }

    /// Adds the next older event; returns whether no further one is needed, or may be examined.
    fn add(&mut self, event: &RecordedEvent) -> bool {
        if let Some(configs) = parse_list(event) {
            self.list = Some((configs, event.revision, event.data.len()));
            return true;
        }
        let Some((key, config)) = parse_change(event) else {
            self.others += 1;
            return self.others >= EVENTS_EXAMINED_MAX;
        };
        self.changes_count += 1;
        self.changes_bytes += event.data.len();
        self.changes.entry(key).or_insert(config);
        self.changes_count >= CHANGES_READ_MAX || self.changes_bytes >= CHANGES_BYTES_READ_MAX
    }

    fn has_list(&self) -> bool {
        self.list.is_some()
    }

    fn into_groups(self) -> (GroupConfigs, ConfigLog) {
        let (mut configs, base) = match self.list {
            Some((configs, revision, bytes)) => {
                let base = BaseList {
                    stream: self.stream,
                    revision,
                    bytes,
                    changes: self.changes_count,
                    changes_bytes: self.changes_bytes,
                };
                (configs, Some(base))
            }
            None => (GroupConfigs::new(), None),
        };
        for (key, config) in self.changes {
            match config {
                Some(config) => drop(configs.insert(key, config)),
                None => drop(configs.remove(&key)),
            }
        }
        let groups_bytes = configs.iter().map(|(key, config)| group_bytes(key, config)).sum();
        (configs, ConfigLog { last: self.last, groups_bytes, base })
    }
}

/// Bytes of a group in a list, with the comma.
fn group_bytes(key: &GroupKey, config: &GroupConfig) -> usize {
    config.to_json(key).to_string().len() + 1
}

/// The groups that an event lists; `None` if the event is no valid list.
pub fn parse_list(event: &RecordedEvent) -> Option<GroupConfigs> {
    if event.kind != LIST_TYPE {
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

/// The change in an event; `None` if the event is no valid change. A change has either the entry
/// that a list would have, or the source and name of a deleted group.
pub fn parse_change(event: &RecordedEvent) -> Option<ConfigChange> {
    if event.kind != CHANGE_TYPE {
        return None;
    }
    match read_json_keys(&event.data, ["entry", "deleted"]).ok()? {
        [Some(entry), None] => {
            let (key, config) = GroupConfig::parse(entry)?;
            Some((key, Some(config)))
        }
        [None, Some(deleted)] => {
            let [stream, group] = read_json_keys(deleted.as_bytes(), ["stream", "group"]).ok()?;
            let text = |value: Option<&str>| serde_json::from_str::<String>(value?).ok();
            let stream = Some(text(stream)?).filter(|name| name != ALL_SOURCE);
            Some((GroupKey { stream, group: group_name(text(group)?).ok()? }, None))
        }
        _ => None,
    }
}

/// The data of a change.
pub fn change_json(key: &GroupKey, config: Option<&GroupConfig>, updated: u64) -> String {
    match config {
        Some(config) => {
            json!({ "version": VERSION, "updated": updated, "entry": config.to_json(key) })
        }
        None => {
            let deleted = json!({ "stream": key.source(), "group": key.group });
            json!({ "version": VERSION, "updated": updated, "deleted": deleted })
        }
    }
    .to_string()
}

/// The data of a list. Each group becomes text at once, since a tree of all groups takes many times
/// the bytes of the text.
fn list_json(configs: &GroupConfigs, log: &ConfigLog, updated: u64) -> String {
    let mut list = String::with_capacity(log.groups_bytes + LIST_OVERHEAD_BYTES);
    list.push_str(r#"{"entries":["#);
    for (index, (key, config)) in configs.iter().enumerate() {
        if index > 0 {
            list.push(',');
        }
        list.push_str(&config.to_json(key).to_string());
    }
    list.push_str(&format!(r#"],"updated":{updated},"version":"{VERSION}"}}"#));
    list
}

/// Applies a change to the groups and stores it. Nothing changes where it fails, except that the
/// stored change may have taken effect.
///
/// # Errors
/// `Invalid` if the list of all groups would be too long for an event. `WrongExpectedVersion` if
/// another writer wrote a list or a change after the last read or write. Errors of appends.
pub fn write_change(
    store: &Store,
    configs: &mut Arc<GroupConfigs>,
    log: &ConfigLog,
    (key, config): ConfigChange,
    updated: u64,
) -> Result<ConfigLog, Error> {
    let groups_bytes = changed_bytes(configs, log, &key, config.as_ref())?;
    let sized = ConfigLog { groups_bytes, ..log.clone() };
    let change = change_json(&key, config.as_ref(), updated);
    let groups = Arc::make_mut(configs);
    let replace = |groups: &mut GroupConfigs, config| match config {
        Some(config) => groups.insert(key.clone(), config),
        None => groups.remove(&key),
    };
    let old = replace(groups, config);
    let written = append(store, groups, &sized, Some(&change), updated);
    if written.is_err() {
        replace(groups, old);
    }
    written
}

/// Writes a list if changes followed the last one. A version of the server without changes then
/// finds all groups.
///
/// # Errors
/// Those of [`write_change`].
pub fn write_list(
    store: &Store,
    configs: &GroupConfigs,
    log: &ConfigLog,
    updated: u64,
) -> Result<ConfigLog, Error> {
    match &log.base {
        Some(base) if base.changes > 0 => append(store, configs, log, None, updated),
        _ => Ok(log.clone()),
    }
}

/// Bytes of the changed groups in a list.
///
/// # Errors
/// `Invalid` if the change makes the list longer than an event may be.
fn changed_bytes(
    configs: &GroupConfigs,
    log: &ConfigLog,
    key: &GroupKey,
    config: Option<&GroupConfig>,
) -> Result<usize, Error> {
    let old = configs.get(key).map_or(0, |old| group_bytes(key, old));
    let new = config.map_or(0, |config| group_bytes(key, config));
    let bytes = log.groups_bytes.saturating_sub(old) + new;
    let list_bytes = bytes + LIST_OVERHEAD_BYTES;
    if new > old && list_bytes > EVENT_BYTES_MAX {
        return Err(Error::Invalid(format!(
            "the settings of all consumer groups would have {list_bytes} bytes together; the limit \
             is {EVENT_BYTES_MAX} bytes; delete groups, or give them shorter names and filters"
        )));
    }
    Ok(bytes)
}

/// Appends a change where that is allowed, otherwise a list.
fn append(
    store: &Store,
    configs: &GroupConfigs,
    log: &ConfigLog,
    change: Option<&str>,
    updated: u64,
) -> Result<ConfigLog, Error> {
    let mut attempts = 0;
    loop {
        attempts += 1;
        let (stream, state) = system_stream::find(store, CONFIG)?;
        let current = system_stream::last_revision(state);
        if current > log.last && has_newer(store, &stream, log.last)? {
            let expected = log.last.map_or(ExpectedVersion::NoStream, ExpectedVersion::Exact);
            return Err(Error::WrongExpectedVersion { stream, expected, current, present: None });
        }
        let (list, base) = match change {
            Some(change) => match log.base_of_change(store, &stream, state, change.len())? {
                Some(base) => (None, Some(base)),
                None => (Some(list_json(configs, log, updated)), None),
            },
            None => (Some(list_json(configs, log, updated)), None),
        };
        let (kind, data) = match (&list, change) {
            (None, Some(change)) => (CHANGE_TYPE, change),
            (list, _) => (LIST_TYPE, list.as_deref().unwrap_or_default()),
        };
        let event = [NewEvent::json(store.new_id()?, kind, data.as_bytes())];
        let expected = current.map_or(ExpectedVersion::NoStream, ExpectedVersion::Exact);
        match store.append(&stream, expected, &event) {
            Ok(done) => {
                if list.is_some() {
                    after_list(store, &stream, log, done.first);
                }
                let base = base.or_else(|| BaseList::new(stream, done.last, data.len()));
                return Ok(ConfigLog { last: done.last, base, ..log.clone() });
            }
            Err(Error::WrongExpectedVersion { .. } | Error::StreamDeleted { .. })
                if attempts < WRITE_ATTEMPTS => {}
            Err(error) => return Err(error),
        }
    }
}

/// Whether another writer wrote a list or a change after this revision.
fn has_newer(store: &Store, stream: &str, after: Option<u64>) -> Result<bool, Error> {
    let is_valid = |event: &RecordedEvent| {
        let is_valid = parse_change(event).is_some() || parse_list(event).is_some();
        Ok(is_valid.then_some(()))
    };
    Ok(system_stream::newest_valid(store, stream, after, is_valid)?.is_some())
}

impl BaseList {
    fn new(stream: String, revision: Option<u64>, bytes: usize) -> Option<BaseList> {
        Some(BaseList { stream, revision: revision?, bytes, changes: 0, changes_bytes: 0 })
    }
}

impl ConfigLog {
    /// The list with a further change of this length; `None` if a list must be written instead.
    fn base_of_change(
        &self,
        store: &Store,
        stream: &str,
        state: StreamState,
        bytes: usize,
    ) -> Result<Option<BaseList>, Error> {
        let Some(base) = &self.base else { return Ok(None) };
        let (changes, changes_bytes) = (base.changes + 1, base.changes_bytes + bytes);
        let StreamState::Live { first, last } = state else { return Ok(None) };
        let is_complete = base.stream == stream && base.last() == last && first <= base.revision;
        let is_short = changes <= CHANGES_MAX && changes_bytes <= base.bytes;
        // The list and its changes, with the new one, are the last events.
        if is_complete && is_short && retains(store, stream, changes + 1)? {
            return Ok(Some(BaseList { changes, changes_bytes, ..base.clone() }));
        }
        Ok(None)
    }
}

/// Whether the stream's metadata keeps this number of its last events, whatever their age, after as
/// many events of other writers as a reader examines.
fn retains(store: &Store, stream: &str, events: u64) -> Result<bool, Error> {
    let Some(metadata) = store.metadata(stream)? else { return Ok(true) };
    Ok(match read_json_keys(&metadata.data, ["$maxCount", "$maxAge"]) {
        Ok([None, None]) => true,
        Ok([Some(count), None]) => {
            let needed = events + EVENTS_EXAMINED_MAX as u64;
            count.parse::<u64>().is_ok_and(|count| count >= needed)
        }
        _ => false,
    })
}

/// Truncates the stream before the former list, after a list at this revision was written. A reader
/// needs the former list only where it cannot parse the new one. The stream is complete without
/// that, so a failure is only reported.
fn after_list(store: &Store, stream: &str, log: &ConfigLog, revision: Option<u64>) {
    if revision == Some(0) && stream != CONFIG {
        let effect = "keeps the consumer groups that it has in memory";
        system_stream::report_replacement(CONFIG, stream, effect);
    }
    let Some(former) = log.base.as_ref().filter(|base| base.stream == stream) else { return };
    let retention = [
        MetadataUpdate::RaiseTruncateBefore(former.revision),
        // Only after older lists are truncated, so that they do not return.
        MetadataUpdate::ReplaceMaxCount { old: FORMER_MAX_COUNT, new: MAX_COUNT },
    ];
    let mut updates = retention.into_iter();
    if let Err(error) = updates.try_for_each(|update| store.update_metadata(stream, update)) {
        tracing::warn!(stream, %error, "the retention of a stream of the server could not be set");
    }
}

#[cfg(test)]
mod tests;

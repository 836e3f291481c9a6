//! [`GroupReading`]: the numbers of a consumer group for the metrics.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use umbel_events::{Direction, Error, LogBytes, Position, Revision, Source, Store, StreamState};

use crate::consumer_groups::checkpoint_store;
use crate::consumer_groups::group_config_log::GroupConfigs;
use crate::consumer_groups::parked_stream;
use crate::limits::{METRIC_GROUP_NAME_BYTES_MAX, METRIC_GROUPS_MAX};
use crate::protocol::group_key::GroupKey;

/// Units of the times of events in a microsecond.
const TICKS_PER_MICRO: u64 = 10;

/// State of a group: of the task of a running group, or as stored.
#[derive(Debug, Clone, Default)]
pub struct GroupState {
    /// Connected consumers.
    pub consumers: u64,
    /// Events in flight.
    pub in_flight: u64,
    /// Events that were read and are not processed.
    pub pending: u64,
    /// Events sent since the start of the task.
    pub sent: u64,
    /// The stored checkpoint.
    pub checkpoint: Option<u64>,
    /// The last event that was read.
    pub last_read: Option<u64>,
    /// Name of the stream of parked events.
    pub parked_stream: String,
    /// First parked revision.
    pub first_parked: u64,
    /// Number of parked events.
    pub parked: u64,
}

/// Events that a group has not processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupLag {
    /// Number of events of a stream or view.
    Events(u64),
    /// Bytes of the event log, for a group of all events.
    LogBytes(u64),
}

/// The numbers of a group.
#[derive(Debug, Clone)]
pub struct GroupReading {
    /// The group.
    pub key: GroupKey,
    /// Its state.
    pub state: GroupState,
    /// Its lag.
    pub lag: GroupLag,
    /// Revision or position of the last event of the source; `None` before the first one.
    pub source_end: Option<u64>,
    /// Time when the oldest parked event was parked, in microseconds since 1970.
    pub oldest_parked_micros: Option<u64>,
}

/// The numbers of the groups with the greatest lag.
#[derive(Debug, Default)]
pub struct GroupReadings {
    /// The groups, in the order of their keys.
    pub shown: Vec<GroupReading>,
    /// Number of all groups.
    pub total: usize,
    /// The group with the greatest lag among all groups of streams and views, and its events.
    pub largest_events: Option<(GroupKey, u64)>,
    /// The group with the greatest lag among all groups of all events, and its bytes of the log.
    pub largest_bytes: Option<(GroupKey, u64)>,
}

/// The last readings, and the stored state of groups that do not run.
#[derive(Debug, Default)]
pub struct ReadingCache {
    /// The last readings, and their monotonic time.
    pub last: Option<(Duration, Arc<GroupReadings>)>,
    /// The groups for which `stored` is valid.
    pub configs: Option<Arc<GroupConfigs>>,
    /// The stored state of groups that do not run. It changes only with the groups, or once they
    /// run.
    pub stored: HashMap<GroupKey, GroupState>,
}

/// Request for the numbers of a group.
#[derive(Debug)]
pub struct GroupRequest {
    /// The group.
    pub key: GroupKey,
    /// Position after which the group starts without a checkpoint.
    pub start_after: Option<u64>,
    /// Position through which a view is visible.
    pub through: Position,
    /// State of the group's task, or the stored state; `None` if neither is known.
    pub state: Option<GroupState>,
}

impl GroupState {
    /// Reads the stored state of a group that does not run.
    pub fn read_stored(store: &Store, key: &GroupKey) -> Result<GroupState, Error> {
        GroupState::at_checkpoint(store, key, checkpoint_store::read_checkpoint(store, key)?)
    }

    /// Returns the state of a group that does not run and has this stored checkpoint.
    pub fn at_checkpoint(
        store: &Store,
        key: &GroupKey,
        checkpoint: Option<u64>,
    ) -> Result<GroupState, Error> {
        let (parked_stream, (first_parked, next)) =
            parked_stream::parked_range(store, &key.parked_stream())?;
        let parked = next.saturating_sub(first_parked);
        let last_read = checkpoint;
        let stored = GroupState {
            checkpoint,
            last_read,
            parked_stream,
            first_parked,
            parked,
            ..GroupState::default()
        };
        Ok(stored)
    }
}

impl GroupReading {
    /// Reads the numbers of a group. Blocks. The groups of one reading share `log`.
    pub fn read(
        store: &Store,
        log: &LogBytes,
        request: &GroupRequest,
    ) -> Result<GroupReading, Error> {
        let key = request.key.clone();
        let state = match &request.state {
            Some(state) => state.clone(),
            None => GroupState::read_stored(store, &key)?,
        };
        let (source_end, lag) = end_and_lag(store, log, request, &state)?;
        let oldest_parked_micros = match state.parked {
            0 => None,
            _ => oldest_parked(store, &state)?,
        };
        Ok(GroupReading { key, state, lag, source_end, oldest_parked_micros })
    }

    /// Order of the groups that are shown: the greatest lag first.
    fn rank(&self) -> Reverse<(u64, u64)> {
        let (GroupLag::Events(lag) | GroupLag::LogBytes(lag)) = self.lag;
        Reverse((lag, self.state.parked))
    }

    fn name_bytes(&self) -> usize {
        self.key.source().len() + self.key.group.len()
    }
}

impl GroupReadings {
    /// Keeps the groups with the greatest lag, within the limits of number and bytes of names.
    pub fn select(mut groups: Vec<GroupReading>, total: usize) -> GroupReadings {
        let events = groups.iter().filter_map(|one| match one.lag {
            GroupLag::Events(events) => Some((&one.key, events)),
            GroupLag::LogBytes(_) => None,
        });
        let bytes = groups.iter().filter_map(|one| match one.lag {
            GroupLag::LogBytes(bytes) => Some((&one.key, bytes)),
            GroupLag::Events(_) => None,
        });
        let (largest_events, largest_bytes) = (largest(events), largest(bytes));
        groups.sort_by_key(GroupReading::rank);
        groups.truncate(METRIC_GROUPS_MAX);
        let mut bytes = 0;
        let fits = groups.iter().take_while(|group| {
            bytes += group.name_bytes();
            bytes <= METRIC_GROUP_NAME_BYTES_MAX
        });
        let count = fits.count();
        groups.truncate(count);
        groups.sort_by(|one, other| one.key.cmp(&other.key));
        GroupReadings { shown: groups, total, largest_events, largest_bytes }
    }
}

/// The group with the greatest lag, the first one of several; `None` if no group lags.
fn largest<'a>(lags: impl Iterator<Item = (&'a GroupKey, u64)>) -> Option<(GroupKey, u64)> {
    let found = lags.filter(|(_, lag)| *lag > 0).max_by_key(|(key, lag)| (*lag, Reverse(*key)));
    found.map(|(key, lag)| (key.clone(), lag))
}

/// The last event of a group's source, and the group's lag. Blocks.
///
/// # Errors
/// Errors of reads.
pub fn end_and_lag(
    store: &Store,
    log: &LogBytes,
    request: &GroupRequest,
    state: &GroupState,
) -> Result<(Option<u64>, GroupLag), Error> {
    let end = source_end(store, &request.key.event_source(), request.through)?;
    let read = state.last_read.or(state.checkpoint).or(request.start_after);
    let lag = match request.key.stream {
        Some(_) => GroupLag::Events(lag_events(end, read, state.pending)),
        None => {
            let [read, end] = [read, end].map(|position| Position(position.unwrap_or(0)));
            GroupLag::LogBytes(log.between(read, end))
        }
    };
    Ok((end, lag))
}

/// Events after the last one that was read, with those that were read and not processed.
fn lag_events(end: Option<u64>, read: Option<u64>, pending: u64) -> u64 {
    let unread = match (end, read) {
        (None, _) => 0,
        (Some(end), None) => end.saturating_add(1),
        (Some(end), Some(read)) => end.saturating_sub(read),
    };
    unread.saturating_add(pending)
}

/// Revision or position of the last event of a source; `None` before the first one.
fn source_end(store: &Store, source: &Source, through: Position) -> Result<Option<u64>, Error> {
    Ok(match source {
        Source::Stream(stream) => match store.stream_state(stream)? {
            StreamState::Live { last, .. } => Some(last),
            _ => None,
        },
        Source::View(view) => store.view(view, through)?.map(|view| view.last),
        Source::All | Source::Filtered(_) => {
            Some(store.visible_position().0).filter(|end| *end > 0)
        }
    })
}

fn oldest_parked(store: &Store, state: &GroupState) -> Result<Option<u64>, Error> {
    let from = Revision(state.first_parked);
    match store.read(&state.parked_stream, from, Direction::Forwards).next() {
        Some(Ok(link)) => Ok(Some(link.created / TICKS_PER_MICRO)),
        // The stream was deleted meanwhile.
        None | Some(Err(Error::StreamDeleted { .. })) => Ok(None),
        Some(Err(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(stream: Option<&str>, group: &str, lag: u64) -> GroupReading {
        let key = GroupKey { stream: stream.map(str::to_string), group: group.to_string() };
        let lag = match stream {
            Some(_) => GroupLag::Events(lag),
            None => GroupLag::LogBytes(lag),
        };
        let (state, source_end) = (GroupState::default(), Some(lag_number(lag)));
        GroupReading { key, state, lag, source_end, oldest_parked_micros: None }
    }

    fn lag_number(lag: GroupLag) -> u64 {
        let (GroupLag::Events(lag) | GroupLag::LogBytes(lag)) = lag;
        lag
    }

    #[test]
    fn groups_with_the_greatest_lag_are_shown_in_a_stable_order() {
        let groups = (0..10_000).map(|number| {
            // Neighbours in the order of names have very different lags.
            reading(Some("cart"), &format!("group-{number}"), number * 7919 % 10_000)
        });
        let readings = GroupReadings::select(groups.collect(), 10_000);
        assert_eq!((readings.shown.len(), readings.total), (METRIC_GROUPS_MAX, 10_000));
        let least = 10_000 - METRIC_GROUPS_MAX as u64;
        assert!(readings.shown.iter().all(|group| lag_number(group.lag) >= least));
        assert!(readings.shown.is_sorted_by(|one, other| one.key < other.key));
        let (key, lag) = readings.largest_events.unwrap();
        assert_eq!(lag, 9999, "{key:?}");
        assert_eq!(readings.largest_bytes, None);
    }

    /// Story: groups of all events, whose lag is in bytes, hid the lags of other groups.
    #[test]
    fn greatest_lag_is_found_for_each_unit_among_all_groups() {
        let mut groups: Vec<GroupReading> = (0..METRIC_GROUPS_MAX + 7)
            .map(|number| reading(None, &format!("all-{number:04}"), 1 << 30))
            .collect();
        groups.push(reading(Some("cart"), "billing", 7));
        groups.push(reading(Some("cart"), "idle", 0));
        let readings = GroupReadings::select(groups, METRIC_GROUPS_MAX + 9);
        let named = |found: Option<(GroupKey, u64)>| found.map(|(key, lag)| (key.group, lag));
        assert_eq!(named(readings.largest_events), Some(("billing".to_string(), 7)));
        assert_eq!(named(readings.largest_bytes), Some(("all-0000".to_string(), 1 << 30)));
        let idle = GroupReadings::select(vec![reading(Some("cart"), "idle", 0)], 1);
        assert_eq!(idle.largest_events, None);
    }

    #[test]
    fn long_names_are_limited_together() {
        let name = "n".repeat(1000);
        let groups = (0..METRIC_GROUPS_MAX as u64)
            .map(|number| reading(Some(&name), &format!("{number:04}{}", &name[..496]), number));
        let readings = GroupReadings::select(groups.collect(), METRIC_GROUPS_MAX);
        assert_eq!(readings.shown.len(), METRIC_GROUP_NAME_BYTES_MAX / 1500);
    }

    #[test]
    fn lag_counts_unread_and_unprocessed_events() {
        assert_eq!(lag_events(None, None, 0), 0);
        assert_eq!(lag_events(Some(9), None, 0), 10);
        assert_eq!(lag_events(Some(9), Some(4), 2), 7);
        assert_eq!(lag_events(Some(9), Some(12), 0), 0);
    }
}

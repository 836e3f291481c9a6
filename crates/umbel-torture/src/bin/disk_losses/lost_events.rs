//! [`LostEvents`]: the acknowledged events that a restored store lacks.

use std::path::Path;
use std::time::{Duration, Instant};

use chrono::DateTime;
use umbel_events::{Direction, Position, RecordedEvent, Store, StoreOptions};

use crate::numbered_writers::{Acknowledged, data_of, stream_of};

/// Units of 100 ns in a second.
const TICKS_PER_SECOND: u64 = 10_000_000;

/// The acknowledged events that a restored store lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LostEvents {
    /// Number of these events.
    pub count: usize,
    /// Time from the acknowledgement of the first one to the loss of the disk.
    pub time: Duration,
}

impl LostEvents {
    /// Compares a restored store with the acknowledged events.
    ///
    /// # Errors
    /// An event with other data than its writer's, and a gap or a repetition in a stream.
    pub fn compare(
        acknowledged: &[Acknowledged],
        restored: &[RecordedEvent],
        killed: Instant,
    ) -> Result<LostEvents, String> {
        let writers = acknowledged.iter().map(|event| event.writer + 1).max().unwrap_or(0);
        let mut lengths = vec![0; writers];
        for (writer, length) in lengths.iter_mut().enumerate() {
            let stream = stream_of(writer);
            for event in restored.iter().filter(|event| event.stream == stream) {
                if event.revision != *length || event.data != data_of(writer, *length) {
                    return Err(format!(
                        "{stream} has another event at revision {length} (it states revision {})",
                        event.revision
                    ));
                }
                *length += 1;
            }
        }
        let lost = acknowledged.iter().filter(|event| event.number >= lengths[event.writer]);
        let first = lost.clone().map(|event| event.at).min();
        let time = first.map(|first| killed.saturating_duration_since(first));
        Ok(LostEvents { count: lost.count(), time: time.unwrap_or_default() })
    }
}

/// All events of the store in a folder, in their order.
pub fn read_store(folder: &Path) -> Result<Vec<RecordedEvent>, String> {
    let text = |error: umbel_events::Error| format!("{}: {error}", folder.display());
    let store = Store::open(folder, StoreOptions::default()).map_err(text)?;
    let checked = store.verify().map_err(text)?;
    if let Some(damage) = checked.damage.first() {
        return Err(format!("{}: {damage}", folder.display()));
    }
    let events = store.read_all(Position::START, Direction::Forwards);
    let events = events.collect::<Result<_, _>>().map_err(text);
    store.close().map_err(text)?;
    events
}

/// A time in units of 100 ns since 1970, as RFC 3339 writes it in UTC.
pub fn rfc3339(ticks: u64) -> String {
    let (seconds, fraction) = (ticks / TICKS_PER_SECOND, ticks % TICKS_PER_SECOND);
    let time = DateTime::from_timestamp_secs(seconds as i64).unwrap_or_default();
    format!("{}.{fraction:07}Z", time.format("%Y-%m-%dT%H:%M:%S"))
}

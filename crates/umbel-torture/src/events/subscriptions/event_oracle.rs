//! [`EventOracle`]: every known event of a store, and which events may be hidden.

use std::collections::BTreeMap;

use umbel_events::{EventId, RecordedEvent};

/// Number of unacknowledged events that the log may have after the newest known one.
const UNKNOWN_EVENTS_MAX: u64 = 16;

/// A known event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppendedEvent {
    /// Id of the event.
    pub id: EventId,
    /// Stream of the event.
    pub stream: String,
    /// Revision of the event.
    pub revision: u64,
    /// Type of the event.
    pub kind: String,
    /// Whether the log had the event at the last read.
    pub is_there: bool,
}

/// Every known event of a store.
///
/// Each open reads the log. In streams with hidden events, which may be scavenged before that read,
/// the oracle also records every acknowledged append.
#[derive(Debug, Default)]
pub struct EventOracle {
    /// Known events by their positions.
    pub events: BTreeMap<u64, AppendedEvent>,
    /// Events that power cuts removed.
    lost: BTreeMap<u64, EventId>,
    /// New events must have higher positions than this.
    position_min: u64,
    /// No power cut can remove an event up to this position.
    durable: u64,
    /// First revision of each stream that was never hidden.
    hidden_below: BTreeMap<String, u64>,
    /// Smallest `$maxCount` of each stream.
    counts: BTreeMap<String, u64>,
    /// The highest revision of each stream.
    highest: BTreeMap<String, u64>,
    /// The number of the next event that is appended.
    pub next_id: u64,
}

impl EventOracle {
    /// Records an acknowledged event.
    pub fn acknowledged(&mut self, position: u64, known: AppendedEvent) -> Result<(), String> {
        self.raise(&known);
        let before = self.events.insert(position, known.clone());
        if position <= self.position_min || before.is_some() {
            let position_min = self.position_min;
            return Err(format!(
                "{known:?} was acknowledged at {position}, where {before:?} is; the last one \
                 before was at {position_min}"
            ));
        }
        Ok(())
    }

    fn raise(&mut self, known: &AppendedEvent) {
        match self.highest.get_mut(&known.stream) {
            Some(highest) => *highest = known.revision.max(*highest),
            None => {
                self.highest.insert(known.stream.clone(), known.revision);
            }
        }
    }

    /// Records that a thread is about to hide events of a stream: those below a revision, and
    /// perhaps all but the newest `count`.
    pub fn hides(&mut self, stream: &str, below: u64, count: Option<u64>) {
        let hidden = self.hidden_below.entry(stream.to_string()).or_default();
        *hidden = below.max(*hidden);
        if let Some(count) = count {
            let least = self.counts.entry(stream.to_string()).or_insert(count);
            *least = count.min(*least);
        }
    }

    /// Whether an event may have been hidden at any time.
    pub fn may_be_hidden(&self, stream: &str, revision: u64) -> bool {
        // Readers see only the last metadata event.
        let is_metadata = stream.starts_with("$$");
        let is_below = self.hidden_below.get(stream).is_some_and(|below| revision < *below);
        let is_old = || {
            let (count, highest) = (self.counts.get(stream)?, self.highest.get(stream)?);
            Some(revision + count <= highest + UNKNOWN_EVENTS_MAX)
        };
        is_metadata || is_below || is_old() == Some(true)
    }

    /// Records that everything up to this position is durable.
    pub fn made_durable(&mut self, position: u64) {
        self.durable = self.durable.max(position);
    }

    /// Records that a power cut removed an event: no new event may be at or before its position.
    /// REQUIRES: the remaining log was compared.
    pub fn lost(&mut self, position: u64, id: EventId) {
        self.lost.insert(position, id);
        self.position_min = self.position_min.max(position);
    }

    /// Compares the oracle with the whole log, whose last event is at `visible`, and adds new
    /// events. `keeps_all` says whether every known event must exist.
    pub fn compare(
        &mut self,
        log: &[RecordedEvent],
        visible: u64,
        keeps_all: bool,
    ) -> Result<(), String> {
        if visible < self.durable {
            let durable = self.durable;
            return Err(format!(
                "all up to {durable} was durable, and the last event is at {visible}"
            ));
        }
        let gone = self.events.split_off(&(visible + 1));
        if let Some((position, event)) = gone.first_key_value().filter(|_| keeps_all) {
            return Err(format!("{event:?} at {position} is lost; the last one is at {visible}"));
        }
        self.events.values_mut().for_each(|event| event.is_there = false);
        for event in log {
            self.note(event)?;
        }
        for (position, event) in &self.events {
            if !event.is_there && !self.may_be_hidden(&event.stream, event.revision) {
                return Err(format!("{event:?} at {position} is lost and was not hidden"));
            }
        }
        self.position_min = self.position_min.max(visible);
        gone.iter().for_each(|(position, event)| self.lost(*position, event.id));
        Ok(())
    }

    fn note(&mut self, event: &RecordedEvent) -> Result<(), String> {
        let RecordedEvent { stream, revision, position, id, kind, .. } = event;
        let (stream, kind) = (stream.clone(), kind.clone());
        let known = AppendedEvent { id: *id, stream, revision: *revision, kind, is_there: true };
        match self.events.get(position) {
            Some(before) if (AppendedEvent { is_there: true, ..before.clone() }) != known => {
                return Err(format!("at {position} was {before:?} and is {known:?}"));
            }
            None if *position <= self.position_min => {
                let lost = self.lost.get(position);
                return Err(format!(
                    "{known:?} came at {position}, which is not after {}; there was {lost:?}",
                    self.position_min
                ));
            }
            _ => {}
        }
        self.raise(&known);
        self.events.insert(*position, known);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(position: u64, revision: u64, stream: &str) -> RecordedEvent {
        RecordedEvent {
            stream: stream.to_string(),
            revision,
            position,
            id: super::super::event_id(position),
            kind: "Paid".to_string(),
            is_json: true,
            created: 0,
            data: Vec::new(),
            metadata: Vec::new(),
        }
    }

    #[test]
    fn missing_event_must_be_hidden_or_lost_from_the_end() {
        let all = [event(96, 0, "a"), event(104, 1, "a"), event(112, 2, "a")];
        let known = || {
            let mut oracle = EventOracle::default();
            oracle.compare(&all, 112, true).expect("nothing was known before");
            oracle
        };
        known().compare(&all, 112, true).expect("the same");
        known().compare(&all[..2], 104, true).expect_err("the last one is lost");
        known().compare(&all[..2], 104, false).expect("a power cut took it");
        known().compare(&all[1..], 112, false).expect_err("one before others is lost");
        let mut durable = known();
        durable.made_durable(104);
        durable.compare(&all[..2], 104, false).expect("this much was durable");
        durable.compare(&all[..1], 96, false).expect_err("a durable event is lost");
        let mut hidden = known();
        hidden.hides("a", 1, None);
        hidden.compare(&all[1..], 112, true).expect("it was hidden and scavenged");
        hidden.compare(&all[2..], 112, true).expect_err("this one was not hidden");
    }

    #[test]
    fn lost_positions_are_not_used_again() {
        let mut oracle = EventOracle::default();
        oracle.compare(&[event(96, 0, "a"), event(200, 1, "a")], 200, true).expect("new");
        oracle.compare(&[event(96, 0, "a")], 96, false).expect("a power cut");
        for position in [104, 200] {
            let log = [event(96, 0, "a"), event(position, 1, "a")];
            oracle.compare(&log, position, false).expect_err("it is not after the lost event");
        }
        oracle.compare(&[event(96, 0, "a"), event(208, 1, "a")], 208, true).expect("after it");
    }
}

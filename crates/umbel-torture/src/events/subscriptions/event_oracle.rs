//! [`Ledger`]: every event that a store is known to have had, and what may be hidden of it.

use std::collections::BTreeMap;

use umbel_events::{EventId, RecordedEvent};

/// How many events may have been appended beside the newest one that is known.
const UNKNOWN_EVENTS_MAX: u64 = 16;

/// An event that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// Its id.
    pub id: EventId,
    /// Its stream.
    pub stream: String,
    /// Its number there.
    pub revision: u64,
    /// Its type.
    pub kind: String,
    /// Whether the log had it when it was last read.
    pub is_there: bool,
}

/// Every event that a store is known to have had.
///
/// What the log has is known whenever the store is opened; of streams in which events are hidden,
/// and may be scavenged before that, every append is noted that was acknowledged.
#[derive(Debug, Default)]
pub struct Ledger {
    /// By their positions.
    pub events: BTreeMap<u64, Known>,
    /// What power cuts took.
    lost: BTreeMap<u64, EventId>,
    /// No event can come at a position that is not higher.
    floor: u64,
    /// No power cut can take an event up to this position.
    durable: u64,
    /// Lower revisions of a stream were hidden at some time.
    hidden_below: BTreeMap<String, u64>,
    /// Only so many events of a stream were to be seen from some time on.
    counts: BTreeMap<String, u64>,
    /// The highest revision of each stream.
    highest: BTreeMap<String, u64>,
    /// The number of the next event that is appended.
    pub next_id: u64,
}

impl Ledger {
    /// Notes an event that was acknowledged.
    pub fn acknowledged(&mut self, position: u64, known: Known) -> Result<(), String> {
        self.raise(&known);
        let before = self.events.insert(position, known.clone());
        if position <= self.floor || before.is_some() {
            let floor = self.floor;
            return Err(format!(
                "{known:?} was acknowledged at {position}, where {before:?} is; the last one \
                 before was at {floor}"
            ));
        }
        Ok(())
    }

    fn raise(&mut self, known: &Known) {
        match self.highest.get_mut(&known.stream) {
            Some(highest) => *highest = known.revision.max(*highest),
            None => {
                self.highest.insert(known.stream.clone(), known.revision);
            }
        }
    }

    /// Notes that somebody is about to hide events of a stream: those with lower revisions, and
    /// perhaps all but so many.
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
        // Of metadata only the last event can be read.
        let is_metadata = stream.starts_with("$$");
        let is_below = self.hidden_below.get(stream).is_some_and(|below| revision < *below);
        let is_old = || {
            let (count, highest) = (self.counts.get(stream)?, self.highest.get(stream)?);
            Some(revision + count <= highest + UNKNOWN_EVENTS_MAX)
        };
        is_metadata || is_below || is_old() == Some(true)
    }

    /// Notes that everything up to this position was made durable.
    pub fn made_durable(&mut self, position: u64) {
        self.durable = self.durable.max(position);
    }

    /// Notes what a power cut took: from now on nothing new may come at its position or before.
    /// REQUIRES: what is left of the log was compared.
    pub fn lost(&mut self, position: u64, id: EventId) {
        self.lost.insert(position, id);
        self.floor = self.floor.max(position);
    }

    /// Compares with all that the log has, of which the last event is at `visible`, and notes
    /// that. `keeps_all`: whether everything known has to be there.
    pub fn compare(
        &mut self,
        log: &[RecordedEvent],
        visible: u64,
        keeps_all: bool,
    ) -> Result<(), String> {
        if visible < self.durable {
            let durable = self.durable;
            return Err(format!("up to {durable} all was durable, and {visible} is the last one"));
        }
        let gone = self.events.split_off(&(visible + 1));
        if let Some((position, event)) = gone.first_key_value().filter(|_| keeps_all) {
            return Err(format!("{event:?} at {position} is gone; the last one is at {visible}"));
        }
        self.events.values_mut().for_each(|event| event.is_there = false);
        for event in log {
            self.note(event)?;
        }
        for (position, event) in &self.events {
            if !event.is_there && !self.may_be_hidden(&event.stream, event.revision) {
                return Err(format!("{event:?} at {position} is gone and was not hidden"));
            }
        }
        self.floor = self.floor.max(visible);
        gone.iter().for_each(|(position, event)| self.lost(*position, event.id));
        Ok(())
    }

    fn note(&mut self, event: &RecordedEvent) -> Result<(), String> {
        let RecordedEvent { stream, revision, position, id, kind, .. } = event;
        let (stream, kind) = (stream.clone(), kind.clone());
        let known = Known { id: *id, stream, revision: *revision, kind, is_there: true };
        match self.events.get(position) {
            Some(before) if (Known { is_there: true, ..before.clone() }) != known => {
                return Err(format!("at {position} was {before:?} and is {known:?}"));
            }
            None if *position <= self.floor => {
                let lost = self.lost.get(position);
                return Err(format!(
                    "{known:?} came at {position}, which is not behind {}; there was {lost:?}",
                    self.floor
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
            id: super::super::id(position),
            kind: "Paid".to_string(),
            is_json: true,
            created: 0,
            data: Vec::new(),
            metadata: Vec::new(),
        }
    }

    #[test]
    fn what_is_gone_has_to_be_hidden_or_lost_with_the_end() {
        let all = [event(96, 0, "a"), event(104, 1, "a"), event(112, 2, "a")];
        let known = || {
            let mut ledger = Ledger::default();
            ledger.compare(&all, 112, true).expect("nothing was known before");
            ledger
        };
        known().compare(&all, 112, true).expect("the same");
        known().compare(&all[..2], 104, true).expect_err("the last one is gone");
        known().compare(&all[..2], 104, false).expect("a power cut took it");
        known().compare(&all[1..], 112, false).expect_err("one before others is gone");
        let mut durable = known();
        durable.made_durable(104);
        durable.compare(&all[..2], 104, false).expect("this much was durable");
        durable.compare(&all[..1], 96, false).expect_err("what was durable is gone");
        let mut hidden = known();
        hidden.hides("a", 1, None);
        hidden.compare(&all[1..], 112, true).expect("it was hidden and scavenged");
        hidden.compare(&all[2..], 112, true).expect_err("this one was not hidden");
    }

    #[test]
    fn nothing_comes_where_something_was_lost_or_before() {
        let mut ledger = Ledger::default();
        ledger.compare(&[event(96, 0, "a"), event(200, 1, "a")], 200, true).expect("new");
        ledger.compare(&[event(96, 0, "a")], 96, false).expect("a power cut");
        for position in [104, 200] {
            let log = [event(96, 0, "a"), event(position, 1, "a")];
            ledger.compare(&log, position, false).expect_err("it is not behind what was lost");
        }
        ledger.compare(&[event(96, 0, "a"), event(208, 1, "a")], 208, true).expect("behind it");
    }
}

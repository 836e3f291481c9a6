//! Checks that a read of all events has every event of each writer, once and in order.

use umbel_proto::streams::read_resp::RecordedEvent;

use crate::serving::soak::soak_event::{EventInfo, event_info};
use crate::serving::soak::soak_plan::WRITERS;

/// State of the check: what the events read so far require of the next one.
#[derive(Debug)]
pub(super) struct WriterOrder {
    /// Number that each writer's next event must have, if known.
    next: Vec<Option<u64>>,
    /// Position of the last event.
    last: Option<u64>,
}

impl WriterOrder {
    /// Creates a check of a read that begins with the first event.
    pub(super) fn from_start() -> WriterOrder {
        WriterOrder { next: vec![Some(0); WRITERS], last: None }
    }

    /// Creates a check of a read that begins at any position.
    pub(super) fn from_somewhere() -> WriterOrder {
        WriterOrder { next: vec![None; WRITERS], last: None }
    }

    /// Returns the number of events of this writer that were read, if the read began with the first
    /// event.
    pub(super) fn count(&self, writer: usize) -> u64 {
        self.next.get(writer).copied().flatten().unwrap_or_default()
    }

    /// Checks the next event. Returns the event's data if it is an event of the soak.
    pub(super) fn note_event(
        &mut self,
        event: &RecordedEvent,
    ) -> Result<Option<EventInfo>, String> {
        let position = event.commit_position;
        if let Some(last) = self.last
            && position <= last
        {
            return Err(format!("the event at {position} came after the one at {last}"));
        }
        self.last = Some(position);
        let Some(info) = event_info(&event.data) else { return Ok(None) };
        let Some(next) = self.next.get_mut(info.writer) else {
            return Err(format!("an event of unknown writer {}", info.writer));
        };
        if let Some(wanted) = *next
            && info.number != wanted
        {
            let what = if info.number < wanted { "came again or late" } else { "came too early" };
            return Err(format!(
                "event {} of writer {} {what}: {wanted} was expected",
                info.number, info.writer
            ));
        }
        *next = Some(info.number + 1);
        Ok(Some(info))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serving::soak::soak_event::proposed;

    fn event(position: u64, writer: usize, number: u64) -> RecordedEvent {
        let data = proposed(writer, number).data;
        RecordedEvent { commit_position: position, data, ..RecordedEvent::default() }
    }

    fn seen(order: &mut WriterOrder, events: &[(u64, usize, u64)]) -> Result<(), String> {
        for (position, writer, number) in events {
            order.note_event(&event(*position, *writer, *number))?;
        }
        Ok(())
    }

    #[test]
    fn every_event_once_and_in_order_is_accepted() {
        let mut order = WriterOrder::from_start();
        seen(&mut order, &[(1, 0, 0), (2, 1, 0), (5, 0, 1)]).unwrap();
        let other = RecordedEvent { commit_position: 6, ..RecordedEvent::default() };
        assert_eq!(order.note_event(&other), Ok(None));
        assert_eq!((order.count(0), order.count(1), order.count(2)), (2, 1, 0));
    }

    #[test]
    fn gap_repetition_and_step_back_are_rejected() {
        let wrong = |events: &[(u64, usize, u64)]| {
            seen(&mut WriterOrder::from_start(), events).unwrap_err()
        };
        assert!(wrong(&[(1, 0, 1)]).contains("too early"));
        assert!(wrong(&[(1, 0, 0), (2, 0, 2)]).contains("too early"));
        assert!(wrong(&[(1, 0, 0), (2, 0, 0)]).contains("again"));
        assert!(wrong(&[(2, 0, 0), (1, 1, 0)]).contains("after the one at 2"));
        assert!(wrong(&[(2, 0, 0), (2, 1, 0)]).contains("after the one at 2"));
        assert!(wrong(&[(1, 999, 0)]).contains("unknown writer 999"));
    }

    #[test]
    fn from_somewhere_accepts_any_first_number() {
        let mut order = WriterOrder::from_somewhere();
        seen(&mut order, &[(8, 3, 70), (9, 3, 71), (10, 4, 2)]).unwrap();
        assert!(seen(&mut order, &[(11, 3, 73)]).is_err());
    }
}

//! Whether what comes in the order of all events is every event of each writer, once and in order.

use umbel_proto::streams::read_resp::RecordedEvent;

use super::events::{Told, told};
use super::plan::WRITERS;

/// What came until now.
#[derive(Debug)]
pub(super) struct Order {
    /// The number that each writer's next event must have, where that is known.
    next: Vec<Option<u64>>,
    /// The place of the last event.
    last: Option<u64>,
}

impl Order {
    /// From the first event on.
    pub(super) fn from_start() -> Order {
        Order { next: vec![Some(0); WRITERS], last: None }
    }

    /// From anywhere on.
    pub(super) fn from_somewhere() -> Order {
        Order { next: vec![None; WRITERS], last: None }
    }

    /// How many events of this writer came, from the start.
    pub(super) fn count(&self, writer: usize) -> u64 {
        self.next.get(writer).copied().flatten().unwrap_or_default()
    }

    /// What the next event says if it is one of the soak's; what is wrong with it.
    pub(super) fn see(&mut self, event: &RecordedEvent) -> Result<Option<Told>, String> {
        let place = event.commit_position;
        if let Some(last) = self.last
            && place <= last
        {
            return Err(format!("an event at {place} came behind one at {last}"));
        }
        self.last = Some(place);
        let Some(told) = told(&event.data) else { return Ok(None) };
        let Some(next) = self.next.get_mut(told.writer) else {
            return Err(format!("an event of writer {}, whom nobody knows", told.writer));
        };
        if let Some(wanted) = *next
            && told.number != wanted
        {
            let what = if told.number < wanted { "came again or late" } else { "came too early" };
            return Err(format!(
                "event {} of writer {} {what}: {wanted} was due",
                told.number, told.writer
            ));
        }
        *next = Some(told.number + 1);
        Ok(Some(told))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serving::soak::events::proposed;

    fn event(place: u64, writer: usize, number: u64) -> RecordedEvent {
        let data = proposed(writer, number).data;
        RecordedEvent { commit_position: place, data, ..RecordedEvent::default() }
    }

    fn seen(order: &mut Order, events: &[(u64, usize, u64)]) -> Result<(), String> {
        for (place, writer, number) in events {
            order.see(&event(*place, *writer, *number))?;
        }
        Ok(())
    }

    #[test]
    fn every_event_once_and_in_order_is_right() {
        let mut order = Order::from_start();
        seen(&mut order, &[(1, 0, 0), (2, 1, 0), (5, 0, 1)]).unwrap();
        let other = RecordedEvent { commit_position: 6, ..RecordedEvent::default() };
        assert_eq!(order.see(&other), Ok(None));
        assert_eq!((order.count(0), order.count(1), order.count(2)), (2, 1, 0));
    }

    #[test]
    fn a_gap_a_repetition_and_a_step_back_are_noticed() {
        let wrong =
            |events: &[(u64, usize, u64)]| seen(&mut Order::from_start(), events).unwrap_err();
        assert!(wrong(&[(1, 0, 1)]).contains("too early"));
        assert!(wrong(&[(1, 0, 0), (2, 0, 2)]).contains("too early"));
        assert!(wrong(&[(1, 0, 0), (2, 0, 0)]).contains("again"));
        assert!(wrong(&[(2, 0, 0), (1, 1, 0)]).contains("behind one at 2"));
        assert!(wrong(&[(2, 0, 0), (2, 1, 0)]).contains("behind one at 2"));
        assert!(wrong(&[(1, 999, 0)]).contains("nobody knows"));
    }

    #[test]
    fn from_somewhere_the_first_of_each_writer_may_be_any() {
        let mut order = Order::from_somewhere();
        seen(&mut order, &[(8, 3, 70), (9, 3, 71), (10, 4, 2)]).unwrap();
        assert!(seen(&mut order, &[(11, 3, 73)]).is_err());
    }
}

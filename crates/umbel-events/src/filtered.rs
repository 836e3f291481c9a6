//! [`FilteredReader`]: the events that pass a filter, by position.
//!
//! An event is looked at where it stands in the cursor's window; only one that passes is copied.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::event::{Direction, Position, RecordedEvent};
use crate::event_filter::{EventFilter, is_hidden};
use crate::format::Frame;
use crate::limits::FILTER_STEP_MILLIS;
use crate::read::AllReader;
use crate::shared::Shared;

/// How many types are remembered with what the filter said of them.
const KNOWN_TYPES: usize = 1024;
/// So many bytes of events are looked at before the clock is.
const CLOCK_BYTES: usize = 256 << 10;

/// What a filtered read came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The next event that passes. All before it were looked at.
    Event(RecordedEvent),
    /// Nothing passed so far. This is the position of the last event that was looked at: reading
    /// on behind it misses nothing.
    Examined(Position),
    /// No more can be seen now. All up to this position were looked at, which is no further than
    /// what can be seen; backwards, all there are. Reading forwards goes on later.
    End(Position),
}

/// The events that pass a filter, by position. Made by
/// [`Store::read_filtered`](crate::Store::read_filtered).
///
/// After an error it says the same error again: nothing is passed over.
#[derive(Debug)]
pub struct FilteredReader {
    shared: Arc<Shared>,
    filter: Arc<EventFilter>,
    answers: Answers,
    way: Way,
    direction: Direction,
    /// The position of the last event that was looked at.
    last: Option<u64>,
    examined: u64,
    failed: Option<Error>,
}

/// How the events are found that may pass.
#[derive(Debug)]
enum Way {
    /// By looking at every one.
    Scan(AllReader),
}

/// What was seen of an event.
struct Seen {
    position: u64,
    bytes: usize,
    /// Whether the filter had to think.
    has_thought: bool,
    /// A copy, where it passes.
    event: Option<RecordedEvent>,
}

impl FilteredReader {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        from: Position,
        direction: Direction,
        filter: Arc<EventFilter>,
    ) -> FilteredReader {
        FilteredReader {
            shared: Arc::clone(shared),
            filter,
            answers: Answers::default(),
            way: Way::Scan(AllReader::new(shared, from, direction)),
            direction,
            last: None,
            examined: 0,
            failed: None,
        }
    }

    /// The next event that passes, or how far it looked: at most so many events, and at least one,
    /// and not much longer than `FILTER_STEP_MILLIS`.
    ///
    /// # Errors
    /// `Runaway` where the expression takes too long on a name, and what reading meets.
    pub fn next_within(&mut self, most_examined: usize) -> Result<Step> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let step = self.look_on(most_examined.max(1));
        if let Err(error) = &step {
            self.failed = Some(error.clone());
        }
        step
    }

    /// How many events were looked at since it was made.
    pub fn examined(&self) -> u64 {
        self.examined
    }

    fn look_on(&mut self, most_examined: usize) -> Result<Step> {
        let began = self.shared.env.clock.now();
        let mut bytes = 0;
        for _ in 0..most_examined {
            // Before the next one is looked for, so that no more is called looked at than was.
            let visible = self.shared.visible.position();
            let (filter, answers) = (&*self.filter, &mut self.answers);
            let Way::Scan(all) = &mut self.way;
            let Some(seen) = all.next_with(|frame| answers.look(filter, frame)) else {
                return Ok(Step::End(self.end(visible)));
            };
            let seen = seen??;
            (self.last, self.examined) = (Some(seen.position), self.examined + 1);
            if let Some(event) = seen.event {
                return Ok(Step::Event(event));
            }
            bytes += seen.bytes;
            if seen.has_thought || bytes >= CLOCK_BYTES {
                bytes = 0;
                let limit = Duration::from_millis(FILTER_STEP_MILLIS);
                if self.shared.env.clock.now().saturating_sub(began) >= limit {
                    break;
                }
            }
        }
        Ok(Step::Examined(Position(self.last.unwrap_or(0))))
    }

    fn end(&self, visible: u64) -> Position {
        let last = self.last.unwrap_or(0);
        match self.direction {
            Direction::Forwards => Position(last.max(visible)),
            Direction::Backwards => Position(last),
        }
    }
}

/// What the filter said of names before.
#[derive(Debug, Default)]
struct Answers {
    last: Option<(String, bool)>,
    types: HashMap<Box<str>, bool>,
}

impl Answers {
    fn look(&mut self, filter: &EventFilter, frame: Frame<'_>) -> Result<Seen> {
        let (passes, has_thought) = self.ask(filter, frame.stream, frame.event.kind)?;
        Ok(Seen {
            position: frame.stamp.position,
            bytes: frame.bytes,
            has_thought,
            event: passes.then(|| frame.to_recorded()),
        })
    }

    /// Whether an event passes, and whether the filter had to think about it.
    fn ask(&mut self, filter: &EventFilter, stream: &str, kind: &str) -> Result<(bool, bool)> {
        if is_hidden(stream) {
            return Ok((false, false));
        }
        let name = filter.asks_about(stream, kind);
        if filter.is_quick() {
            return Ok((filter.takes(name)?, false));
        }
        if let Some((last, passes)) = &self.last
            && last == name
        {
            return Ok((*passes, false));
        }
        if let Some(passes) = self.types.get(name) {
            return Ok((*passes, false));
        }
        let passes = filter.takes(name)?;
        if filter.is_by_type() {
            if self.types.len() >= KNOWN_TYPES {
                self.types.clear();
            }
            self.types.insert(name.into(), passes);
        } else {
            let (last, said) = self.last.get_or_insert_default();
            last.clear();
            last.push_str(name);
            *said = passes;
        }
        Ok((passes, true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_filter_said_is_remembered_and_forgotten_again() {
        let (mut of_types, mut of_streams) = (Answers::default(), Answers::default());
        let types = EventFilter::type_regex("7$").expect("good");
        let streams = EventFilter::stream_regex("7$").expect("good");
        for turn in 0..3 {
            for number in 0..2 * KNOWN_TYPES {
                let name = number.to_string();
                let wanted = name.ends_with('7');
                let (passes, _) = of_types.ask(&types, "s", &name).expect("in time");
                let (again, has_thought) = of_types.ask(&types, "t", &name).expect("in time");
                assert_eq!((passes, again, has_thought), (wanted, wanted, false), "turn {turn}");
                let (passes, has_thought) = of_streams.ask(&streams, &name, "k").expect("in time");
                assert_eq!((passes, has_thought), (wanted, true));
                let (passes, has_thought) = of_streams.ask(&streams, &name, "l").expect("in time");
                assert_eq!((passes, has_thought), (wanted, false));
            }
            assert!(of_types.types.len() <= KNOWN_TYPES);
        }
    }
}

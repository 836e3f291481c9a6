//! [`FilteredReader`]: the events that pass a filter, by position.
//!
//! An event is looked at where it stands in the cursor's window; only one that passes is copied.
//! Where few events may pass, the views say where those are ([`filter_way`](crate::filter_way)).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::candidates::Candidates;
use crate::error::{Error, Result};
use crate::event::{Direction, Position, RecordedEvent};
use crate::event_filter::{EventFilter, is_hidden};
use crate::filter_way::{Choice, Chooser, FilterWay};
use crate::format::Frame;
use crate::limits::FILTER_STEP_MILLIS;
use crate::read::AllReader;
use crate::shared::Shared;

/// How many types are remembered with what the filter said of them.
const KNOWN_TYPES: usize = 1024;
/// So many bytes of events are looked at before the clock is.
const CLOCK_BYTES: usize = 256 << 10;
/// So many are read at least for an event that was taken out of views.
const CANDIDATE_READ_BYTES: usize = 4096;
/// So many candidates are taken out of views before it is chosen again how to go on.
const CHOICE_CANDIDATES: u64 = 16_384;

/// What a filtered read came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The next event that passes. All before it were looked at.
    Event(RecordedEvent),
    /// Nothing passed so far. This is the position of the last event that was looked at, or that
    /// the index passed over: reading on behind it misses nothing.
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
    chooser: Chooser,
    direction: Direction,
    /// Where it goes on: forwards the lowest position that was not looked at, backwards the one
    /// behind the highest.
    edge: u64,
    /// The position of the last event that was looked at, or up to which the views had none.
    last: Option<u64>,
    examined: u64,
    failed: Option<Error>,
}

/// How the events are found that may pass.
#[derive(Debug)]
enum Way {
    /// That has to be chosen.
    Open,
    /// By looking at every one, until the edge has come so far.
    Scan(AllReader, Option<u64>),
    /// By taking them out of views, as far as this position.
    Views(Box<Candidates>, u64),
}

/// What was found next.
enum Found {
    /// An event.
    Seen(Seen),
    /// What was scavenged, at this position.
    Gone(u64),
    /// No more with this way.
    Nothing,
    /// No more can be seen.
    End,
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
            way: Way::Open,
            chooser: Chooser::default(),
            direction,
            edge: from.0,
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

    /// How many events were looked at since it was made; those that the index passed over are not
    /// among them.
    pub fn examined(&self) -> u64 {
        self.examined
    }

    /// Has it find events this way, whatever that costs. For tests only.
    #[doc(hidden)]
    pub fn force(&mut self, way: FilterWay) {
        self.chooser.forced = Some(way);
        self.way = Way::Open;
    }

    /// How it finds events now; `None` before it has chosen. For tests only.
    #[doc(hidden)]
    pub fn way(&self) -> Option<FilterWay> {
        match self.way {
            Way::Open => None,
            Way::Scan(..) => Some(FilterWay::Scan),
            Way::Views(..) => Some(FilterWay::Views),
        }
    }

    fn look_on(&mut self, most_examined: usize) -> Result<Step> {
        self.shared.check_process()?;
        let began = self.shared.env.clock.now();
        let limit = Duration::from_millis(FILTER_STEP_MILLIS);
        let (until, mut bytes) = (self.examined.saturating_add(most_examined as u64), 0);
        while self.examined < until {
            // Before the next one is looked for, so that no more is called looked at than was.
            let visible = self.shared.visible.position();
            self.choose(visible)?;
            let mut has_thought = false;
            match self.find()? {
                Found::Seen(seen) => {
                    self.looked_at(seen.position);
                    self.examined += 1;
                    if let Some(event) = seen.event {
                        return Ok(Step::Event(event));
                    }
                    (bytes, has_thought) = (bytes + seen.bytes, seen.has_thought);
                }
                Found::Gone(position) => self.looked_at(position),
                Found::Nothing => continue,
                Found::End => return Ok(Step::End(self.end(visible))),
            }
            if matches!(self.way, Way::Views(..)) {
                bytes += CANDIDATE_READ_BYTES;
            }
            if has_thought || bytes >= CLOCK_BYTES {
                bytes = 0;
                if self.shared.env.clock.now().saturating_sub(began) >= limit {
                    break;
                }
            }
        }
        Ok(Step::Examined(Position(self.last.unwrap_or(0))))
    }

    /// Chooses how to go on, where that is to be chosen.
    fn choose(&mut self, visible: u64) -> Result<()> {
        let backwards = self.direction == Direction::Backwards;
        match &self.way {
            Way::Views(candidates, _) if candidates.taken() < CHOICE_CANDIDATES => return Ok(()),
            Way::Scan(_, None) => return Ok(()),
            Way::Scan(_, Some(until)) if backwards && self.edge > *until => return Ok(()),
            Way::Scan(_, Some(until)) if !backwards && self.edge < *until => return Ok(()),
            _ => {}
        }
        let range = match (self.direction, self.edge.min(visible.saturating_add(1))) {
            (Direction::Forwards, _) => (self.edge, visible),
            // Nothing lies before 0.
            (Direction::Backwards, 0) => (1, 0),
            (Direction::Backwards, edge) => (0, edge - 1),
        };
        let choice = self.chooser.choose(&self.shared, &self.filter, range, self.direction)?;
        let far = if backwards { range.0 } else { range.1 };
        self.way = match (choice, std::mem::replace(&mut self.way, Way::Open)) {
            (Choice::Views(candidates), _) => Way::Views(candidates, far),
            (Choice::Scan(bytes), way) => {
                let all = match way {
                    Way::Scan(all, _) => all,
                    _ => AllReader::new(&self.shared, Position(self.edge), self.direction),
                };
                let edge = if backwards { range.1 } else { self.edge };
                let until = bytes.map(|bytes| match backwards {
                    true => edge.saturating_sub(bytes),
                    false => edge.saturating_add(bytes),
                });
                Way::Scan(all, until)
            }
        };
        Ok(())
    }

    fn find(&mut self) -> Result<Found> {
        let (filter, answers) = (&*self.filter, &mut self.answers);
        match &mut self.way {
            Way::Open => Ok(Found::Nothing),
            Way::Scan(all, _) => match all.next_with(|frame| answers.look(filter, frame)) {
                Some(seen) => Ok(Found::Seen(seen??)),
                None => Ok(Found::End),
            },
            Way::Views(candidates, far) => {
                let far = *far;
                match candidates.next_with(|frame| answers.look(filter, frame))? {
                    Some((_, Some(seen))) => Ok(Found::Seen(seen?)),
                    Some((position, None)) => Ok(Found::Gone(position)),
                    None => self.none_up_to(far),
                }
            }
        }
    }

    /// Notes that the views have no more up to this position.
    fn none_up_to(&mut self, far: u64) -> Result<Found> {
        self.way = Way::Open;
        match self.direction {
            Direction::Forwards => self.looked_at(far),
            Direction::Backwards => {
                // The lowest there is: a place is that of an event, and of one that can be seen.
                let end = self.edge.min(self.shared.visible.position().saturating_add(1));
                let first = self.shared.log.cursor().seek(far)?;
                if let Some(first) = first.filter(|first| *first < end) {
                    self.looked_at(first);
                }
                self.edge = far;
            }
        }
        Ok(Found::Nothing)
    }

    fn looked_at(&mut self, position: u64) {
        self.last = Some(position);
        self.edge = match self.direction {
            Direction::Forwards => position.saturating_add(1),
            Direction::Backwards => position,
        };
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

//! Single requests of the state machines, with the moment of their answers.

use std::ops::Range;
use std::time::Duration;

use umbel_env::{Answer, Clock, Creation, ListPage, ObjectBytes, ObjectName, Objects};

use crate::decode_error::DecodeError;
use crate::freshness::Contact;
use crate::slot_error::{SlotError, SlotResult};

/// Maximum number of objects in a page of a list.
const PAGE_OBJECTS: usize = 1000;

/// Age up to which an earlier time of the store counts as the one before a request.
const TIME_AGE_MAX: Duration = Duration::from_secs(1);

/// An answer, with moments before and after its effect. The machine can pause between any two of
/// them, and hide it from its own clocks. An answer without a time of the store has no moments.
#[derive(Debug)]
pub struct Timed<T> {
    /// Content of the answer.
    pub value: T,
    /// Not after the effect: for later comparisons.
    pub contact: Option<Contact>,
    /// Not before the effect: for comparisons with earlier contacts.
    pub answered: Option<Contact>,
}

impl<T> Timed<T> {
    /// The answer with other contents.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Timed<U> {
        let Timed { value, contact, answered } = self;
        Timed { value: change(value), contact, answered }
    }
}

/// The moment before a request.
#[derive(Debug)]
struct RequestStart {
    node: Duration,
    wall_micros: u64,
    /// `None` if the store states its time in the answer.
    store_micros: Option<u64>,
}

impl RequestStart {
    fn new(objects: &dyn Objects, clock: &dyn Clock) -> SlotResult<RequestStart> {
        let (node, wall_micros) = (clock.now_with_suspends(), clock.wall_micros());
        let store_micros = objects.time_micros(TIME_AGE_MAX)?;
        Ok(RequestStart { node, wall_micros, store_micros })
    }

    /// Adds the moments to an answer. `after` is a time of the store that is not before the effect.
    fn timed<T>(&self, clock: &dyn Clock, value: T, after: Option<u64>) -> Timed<T> {
        let RequestStart { node, wall_micros, store_micros } = *self;
        let contact = after.map(|after| Contact {
            node,
            wall_micros,
            store_micros: store_micros.unwrap_or(after),
        });
        let (node, wall_micros) = (clock.now_with_suspends(), clock.wall_micros());
        let answered = after.map(|store_micros| Contact { node, wall_micros, store_micros });
        Timed { value, contact, answered }
    }

    /// Adds the moments to the answer of a request that changes nothing. It can be repeated, if the
    /// store cannot state its time.
    fn timed_by_store<T>(
        &self,
        objects: &dyn Objects,
        clock: &dyn Clock,
        answer: Answer<T>,
    ) -> SlotResult<Timed<T>> {
        let after = match answer.store_micros {
            Some(after) => Some(after),
            None => objects.time_micros(Duration::ZERO)?,
        };
        Ok(self.timed(clock, answer.value, after))
    }
}

/// Creates an object if its name is free.
pub fn create(
    objects: &dyn Objects,
    clock: &dyn Clock,
    name: &ObjectName,
    bytes: &[u8],
) -> SlotResult<Timed<Creation>> {
    let start = RequestStart::new(objects, clock)?;
    let answer = objects.create(name, bytes)?;
    Ok(start.timed(clock, answer.value, answer.store_micros))
}

/// Reads a whole object; `None` if there is none.
pub fn read_whole(
    objects: &dyn Objects,
    clock: &dyn Clock,
    name: &ObjectName,
    bytes_max: u64,
) -> SlotResult<Timed<Option<Vec<u8>>>> {
    let answer = read_part(objects, clock, name, 0..bytes_max)?;
    if let Some(found) = &answer.value
        && found.bytes.len() as u64 != found.object_bytes
    {
        let reason = format!("it has {} bytes, more than any", found.object_bytes);
        return Err(damaged(objects, name, reason));
    }
    Ok(answer.map(|value| value.map(|found| found.bytes)))
}

/// Reads a range of an object; `None` if there is none.
pub fn read_part(
    objects: &dyn Objects,
    clock: &dyn Clock,
    name: &ObjectName,
    range: Range<u64>,
) -> SlotResult<Timed<Option<ObjectBytes>>> {
    let start = RequestStart::new(objects, clock)?;
    let answer = objects.read(name, range)?;
    start.timed_by_store(objects, clock, answer)
}

/// Lists the next names of a prefix.
pub fn list(
    objects: &dyn Objects,
    clock: &dyn Clock,
    prefix: &str,
    after: Option<&str>,
) -> SlotResult<Timed<ListPage>> {
    let start = RequestStart::new(objects, clock)?;
    let answer = objects.list(prefix, after, PAGE_OBJECTS)?;
    start.timed_by_store(objects, clock, answer)
}

/// The error of an object that contradicts the format or the chain.
pub fn damaged(objects: &dyn Objects, name: &ObjectName, reason: String) -> SlotError {
    SlotError::Damaged { object: format!("{}/{name}", objects.location()), reason }
}

/// The error of an object whose bytes this node cannot use. The remedy is for damage: the only one
/// for an object of a newer Umbel is that Umbel.
pub fn unreadable(
    objects: &dyn Objects,
    name: &ObjectName,
    error: DecodeError,
    remedy: &str,
) -> SlotError {
    match error {
        DecodeError::Newer(_) => {
            SlotError::Refused(format!("{}/{name}: {error}", objects.location()))
        }
        DecodeError::Wrong(reason) => damaged(objects, name, format!("{reason}; {remedy}")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use umbel_env::{CreationRequest, ObjectError, ObjectResult, ObjectSource};

    use super::*;

    /// An empty directory, whose machine pauses once: its clocks do not show the pause.
    #[derive(Debug, Default)]
    struct PausingDirectory {
        time: AtomicU64,
        calls: AtomicU64,
        /// Number of the call before which the machine pauses.
        paused_call: u64,
        /// Time at which the request took effect.
        effect: AtomicU64,
    }

    const PAUSE_MICROS: u64 = 10_000_000_000;

    impl PausingDirectory {
        fn call(&self) -> u64 {
            let number = self.calls.fetch_add(1, Ordering::Relaxed);
            let pause = if number == self.paused_call { PAUSE_MICROS } else { 0 };
            self.time.fetch_add(1 + pause, Ordering::Relaxed) + 1 + pause
        }

        fn answer<T>(&self, value: T) -> ObjectResult<T> {
            self.effect.store(self.call(), Ordering::Relaxed);
            Ok(Answer { value, store_micros: None })
        }
    }

    impl Objects for PausingDirectory {
        fn location(&self) -> &str {
            "pausing:"
        }

        fn create(&self, _: &ObjectName, _: &[u8]) -> ObjectResult<Creation> {
            let created = self.answer(Creation::Created)?;
            Ok(Answer { store_micros: self.time_micros(Duration::ZERO)?, ..created })
        }

        fn create_concurrently(&self, _: &[CreationRequest]) -> Vec<ObjectResult<Creation>> {
            unreachable!("no state machine creates at the same time")
        }

        fn put(&self, _: &ObjectName, _: &dyn ObjectSource) -> ObjectResult<()> {
            unreachable!("no state machine writes")
        }

        fn read(&self, _: &ObjectName, _: Range<u64>) -> ObjectResult<Option<ObjectBytes>> {
            self.answer(None)
        }

        fn list(&self, _: &str, _: Option<&str>, _: usize) -> ObjectResult<ListPage> {
            self.answer(ListPage::default())
        }

        fn delete(&self, _: &ObjectName) -> ObjectResult<()> {
            unreachable!("its time is not used")
        }

        fn time_micros(&self, _: Duration) -> Result<Option<u64>, ObjectError> {
            Ok(Some(self.call()))
        }
    }

    /// Clocks that show neither pauses nor anything else.
    #[derive(Debug)]
    struct StandingClock;

    impl Clock for StandingClock {
        fn now(&self) -> Duration {
            Duration::from_secs(1)
        }

        fn wall_micros(&self) -> u64 {
            1_000_000
        }
    }

    /// Story: the reads and lists of a directory had no time, and the time of a creation counted
    /// for later comparisons, though it is after the effect. A pause between the two hid itself.
    #[test]
    fn moments_of_a_request_enclose_its_effect() {
        type Request = fn(&dyn Objects, &ObjectName) -> SlotResult<Timed<()>>;
        let requests: [Request; 3] = [
            |it, name| create(it, &StandingClock, name, b"x").map(|it| it.map(drop)),
            |it, name| read_whole(it, &StandingClock, name, 9).map(|it| it.map(drop)),
            |it, _| list(it, &StandingClock, "", None).map(|it| it.map(drop)),
        ];
        let name = ObjectName::new("slots/1").expect("a name");
        for (number, request) in requests.into_iter().enumerate() {
            for paused_call in 0..4 {
                let store = PausingDirectory { paused_call, ..PausingDirectory::default() };
                let timed = request(&store, &name).expect("an answer");
                let effect = store.effect.load(Ordering::Relaxed);
                let (before, after) =
                    (timed.contact.expect("a time"), timed.answered.expect("a time"));
                assert!(
                    before.store_micros <= effect && effect <= after.store_micros,
                    "request {number} with a pause before call {paused_call}"
                );
            }
        }
    }
}

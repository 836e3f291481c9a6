//! Single requests of the state machines, with the moment of their answers.

use umbel_env::{Answer, Clock, ListPage, ObjectName, Objects};

use crate::decode_error::DecodeError;
use crate::freshness::Contact;
use crate::slot_error::{SlotError, SlotResult};

/// Maximum number of objects in a page of a list.
const PAGE_OBJECTS: usize = 1000;

/// An answer, with the moment before its request and the moment after it. The moment after the
/// answer has the store's time, too; an answer without a time has no moments.
#[derive(Debug)]
pub struct Timed<T> {
    /// Content of the answer.
    pub value: T,
    /// Before the request, with the store's time in the answer: for later comparisons.
    pub contact: Option<Contact>,
    /// After the answer: for comparisons with earlier contacts.
    pub answered: Option<Contact>,
}

impl<T> Timed<T> {
    /// The answer with other contents.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Timed<U> {
        let Timed { value, contact, answered } = self;
        Timed { value: change(value), contact, answered }
    }
}

/// Adds the moments to an answer. `node` is the node's clock before the request.
pub fn timed<T>(clock: &dyn Clock, node: std::time::Duration, answer: Answer<T>) -> Timed<T> {
    let at = |node| answer.store_micros.map(|store_micros| Contact { node, store_micros });
    let (contact, answered) = (at(node), at(clock.now_with_suspends()));
    Timed { value: answer.value, contact, answered }
}

/// Reads a whole object; `None` if there is none.
pub fn read_whole(
    objects: &dyn Objects,
    clock: &dyn Clock,
    name: &ObjectName,
    bytes_max: u64,
) -> SlotResult<Timed<Option<Vec<u8>>>> {
    let before = clock.now_with_suspends();
    let answer = timed(clock, before, objects.read(name, 0..bytes_max)?);
    if let Some(found) = &answer.value
        && found.bytes.len() as u64 != found.object_bytes
    {
        let reason = format!("it has {} bytes, more than any", found.object_bytes);
        return Err(damaged(objects, name, reason));
    }
    Ok(answer.map(|value| value.map(|found| found.bytes)))
}

/// Lists the next names of a prefix.
pub fn list(
    objects: &dyn Objects,
    clock: &dyn Clock,
    prefix: &str,
    after: Option<&str>,
) -> SlotResult<Timed<ListPage>> {
    let before = clock.now_with_suspends();
    Ok(timed(clock, before, objects.list(prefix, after, PAGE_OBJECTS)?))
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

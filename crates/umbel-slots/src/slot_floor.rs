//! [`Floor`]: the announcement of a deletion, and [`FloorSearch`], which finds the newest one.
//!
//! INVARIANT: floors are contiguous, created once and never deleted. So a floor whose number is
//! missing was not created before, and no deletion beyond the floor before it was announced.
//!
//! FORMAT: `docs/formats/slots.md`.

use umbel_base::{Decoder, varint};
use umbel_env::{Clock, ObjectName, Objects};

use crate::decode_error::DecodeError;
use crate::freshness::Contact;
use crate::object_frame::{NUMBER_LIMIT, ObjectFrame};
use crate::slot_error::{SlotError, SlotResult};
use crate::slot_requests::{Timed, damaged, read_whole, unreadable};

const FRAME: ObjectFrame = ObjectFrame { magic: *b"UmbelFlr", noun: "floor", offset: 2 };
/// Prefix of the names of floors.
const FLOOR_PREFIX: &str = "floors/";
/// Remedy for a damaged floor. Without it, no node knows which slots are deleted.
const FLOOR_REMEDY: &str = "start no leader, and restore it";
/// Maximum bytes of a floor.
const FLOOR_BYTES_MAX: u64 = 1 << 10;

/// The announcement that the slots up to a number, and the snapshots before it, are deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Floor {
    /// Number of the floor; 0 before the first one.
    pub number: u64,
    /// Number of the last slot that is deleted. A snapshot has the state after it.
    pub slot: u64,
    /// Uid of this slot.
    pub uid: [u8; 16],
}

/// Name of the floor of a number.
fn floor_name(number: u64) -> ObjectName {
    ObjectName::new(format!("{FLOOR_PREFIX}{number:020}")).expect("digits are a name")
}

impl Floor {
    /// Name of the object.
    pub fn name(&self) -> ObjectName {
        floor_name(self.number)
    }

    /// Returns the bytes of the object in this replicated log.
    pub fn encode(&self, store: &[u8; 16]) -> Vec<u8> {
        let mut out = FRAME.begin();
        out.extend_from_slice(store);
        varint::put_u64(&mut out, self.number);
        varint::put_u64(&mut out, self.slot);
        out.extend_from_slice(&self.uid);
        FRAME.seal(self.number, out)
    }

    /// Decodes the floor of a number of a replicated log.
    ///
    /// # Errors
    /// The reason why the bytes are not this floor.
    pub fn decode(bytes: &[u8], store: &[u8; 16], number: u64) -> Result<Floor, DecodeError> {
        let body = FRAME.open(number, bytes)?;
        let (found, floor) = Floor::decode_body(body).ok_or_else(DecodeError::malformed)?;
        if found != *store {
            return Err(DecodeError::Wrong("it belongs to another replicated log".into()));
        }
        match floor.number == number {
            true => Ok(floor),
            false => Err(DecodeError::Wrong(format!("it states the number {}", floor.number))),
        }
    }

    fn decode_body(bytes: &[u8]) -> Option<([u8; 16], Floor)> {
        let mut decoder = Decoder::new(bytes);
        let store = decoder.array()?;
        let (number, slot, uid) = (decoder.varint()?, decoder.varint()?, decoder.array()?);
        let is_valid = [number, slot].into_iter().all(|it| (1..NUMBER_LIMIT).contains(&it));
        (is_valid && decoder.is_done()).then_some((store, Floor { number, slot, uid }))
    }
}

/// Finds the newest floor after a known one: with steps that double, and then by halves. Reads the
/// known one first, since an older copy can have replaced the objects.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FloorSearch {
    /// The newest floor that exists, as far as the search got.
    pub newest: Floor,
    /// Moment after the last answer.
    pub answered: Option<Contact>,
    /// Whether the known floor was read.
    is_confirmed: bool,
    stride: u64,
    /// Number of a missing floor, and a moment at which it was missing.
    missing: Option<(u64, Contact)>,
}

impl FloorSearch {
    /// A search after this floor.
    pub fn new(known: Floor) -> FloorSearch {
        let is_confirmed = known.number == 0;
        FloorSearch { newest: known, answered: None, is_confirmed, stride: 1, missing: None }
    }

    /// Reads a floor. Returns a moment at which the newest floor was the last one, once this is
    /// known.
    ///
    /// # Errors
    /// [`SlotError::Damaged`] if a floor cannot be read, or the known one is gone; failed requests,
    /// after which the step can be repeated.
    pub fn step(
        &mut self,
        objects: &dyn Objects,
        clock: &dyn Clock,
        store: &[u8; 16],
    ) -> SlotResult<Option<Contact>> {
        let known = self.newest.number;
        let number = match self.missing {
            _ if !self.is_confirmed => known,
            None => known.saturating_add(self.stride),
            Some((missing, _)) => known + (missing - known) / 2,
        };
        let name = floor_name(number);
        let Timed { value, contact, answered } =
            read_whole(objects, clock, &name, FLOOR_BYTES_MAX)?;
        self.answered = answered;
        match value {
            Some(bytes) => {
                let floor = Floor::decode(&bytes, store, number)
                    .map_err(|error| unreadable(objects, &name, error, FLOOR_REMEDY))?;
                if !self.is_confirmed && floor == self.newest {
                    self.is_confirmed = true;
                    return Ok(None);
                }
                if floor.slot <= self.newest.slot || !self.is_confirmed {
                    let reason = "it contradicts a floor that this node has read".into();
                    return Err(damaged(objects, &name, reason));
                }
                self.newest = floor;
                self.stride = self.stride.saturating_mul(2);
            }
            None if !self.is_confirmed => {
                let reason = "this node has read it, but the store lost it or is an older copy; \
                              check the prefix, and restore it";
                return Err(damaged(objects, &name, reason.into()));
            }
            None => self.missing = Some((number, contact.ok_or_else(|| no_time(objects))?)),
        }
        let next = self.newest.number + 1;
        Ok(self.missing.filter(|(missing, _)| *missing == next).map(|(_, contact)| contact))
    }
}

/// The error of an object store whose answers have no time.
pub fn no_time(objects: &dyn Objects) -> SlotError {
    SlotError::Refused(format!(
        "{}: the object store states no time in its answers, so this node cannot know whether its \
         state is still kept; use another store",
        objects.location()
    ))
}

/// Decodes the bytes with the correct ids and checksum. For fuzzing only.
pub fn fuzz(bytes: &[u8]) {
    let _ = Floor::decode(bytes, &[0; 16], 1);
    if let Some((store, floor)) = Floor::decode_body(bytes) {
        let object = floor.encode(&store);
        assert_eq!(FRAME.open(floor.number, &object), Ok(bytes), "a floor has other bytes");
        let again = Floor::decode(&object, &store, floor.number);
        assert_eq!(again, Ok(floor), "a floor changed in its bytes");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use umbel_sim::ObjectSim;

    use super::*;

    const STORE: [u8; 16] = [7; 16];

    fn floor(number: u64) -> Floor {
        Floor { number, slot: number * 300, uid: [9; 16] }
    }

    #[test]
    fn floors_are_decoded_as_they_were_encoded() {
        let bytes = floor(5).encode(&STORE);
        assert_eq!(floor(5).name().as_str(), "floors/00000000000000000005");
        assert_eq!(Floor::decode(&bytes, &STORE, 5), Ok(floor(5)));
        for index in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[index] ^= 1;
            Floor::decode(&changed, &STORE, 5).expect_err("changed");
            Floor::decode(&bytes[..index], &STORE, 5).expect_err("cut");
        }
        Floor::decode(&bytes, &[6; 16], 5).expect_err("of another log");
        Floor::decode(&bytes, &STORE, 6).expect_err("of another number");
    }

    #[test]
    fn search_finds_the_newest_floor_with_few_reads() {
        for count in (0..40).chain([1000]) {
            let sim = ObjectSim::new(1);
            let (objects, clock) = (sim.client(1), sim.env().clock);
            for number in 1..=count {
                objects.put(&floor(number).name(), &floor(number).encode(&STORE)).expect("a floor");
            }
            for known in [0, count / 2, count] {
                let known = if known == 0 { Floor::default() } else { floor(known) };
                let mut search = FloorSearch::new(known);
                let mut reads = 1;
                while search.step(&*objects, &*clock, &STORE).expect("an answer").is_none() {
                    reads += 1;
                }
                assert_eq!(search.newest.number, count);
                assert!(reads <= 20, "{reads} reads for {count} floors");
                assert!(known.number < count || reads <= 2);
            }
            sim.advance(Duration::from_secs(1));
        }
    }

    #[test]
    fn floor_that_goes_back_is_damage() {
        let sim = ObjectSim::new(1);
        let (objects, clock) = (sim.client(1), sim.env().clock);
        let back = Floor { number: 2, ..floor(1) };
        for floor in [floor(1), back] {
            objects.put(&floor.name(), &floor.encode(&STORE)).expect("a floor");
        }
        let mut search = FloorSearch::new(floor(1));
        assert_eq!(search.step(&*objects, &*clock, &STORE), Ok(None));
        let error = search.step(&*objects, &*clock, &STORE).expect_err("it goes back");
        assert!(matches!(error, SlotError::Damaged { .. }), "{error}");
    }
}

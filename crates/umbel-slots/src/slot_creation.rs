//! [`SlotCreation`]: a slot that is created, until it is certain whose slot has the number.

use umbel_env::{Clock, Creation, Objects};

use crate::chain::{ChainEnd, ChainState};
use crate::freshness::{Contact, SlotTimes};
use crate::slot_error::{SlotError, SlotResult};
use crate::slot_format::{Slot, slot_name};
use crate::slot_requests::{Timed, create, read_whole};
use crate::slot_settings::SLOT_BYTES_MAX;

/// A slot that is created. Every answer but *created* with a time is unknown: the number is read.
/// Missing, the same bytes are sent again, since an earlier request can still take effect. But they
/// are not sent again once a success could not be used, since the node was too slow.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SlotCreation {
    /// The slot.
    pub slot: Slot,
    /// The chain with the slot at its end.
    pub end: ChainEnd,
    bytes: Vec<u8>,
    is_unknown: bool,
    /// Moment after the first answer that the number exists.
    exists: Option<Contact>,
}

/// Result of a step of a creation.
#[derive(Debug)]
pub enum CreationStep {
    /// It is not certain yet. The next request reads the number.
    Open,
    /// It is not certain yet. The next request is the creation again.
    Missing,
    /// It is not certain, and too late: the last contact before is not fresh.
    Late,
    /// The number has this slot.
    Mine,
    /// The number has this slot of another leader.
    Other,
}

impl SlotCreation {
    /// A creation after this chain, whose settings the slot obeys. Its first request is not sent.
    ///
    /// # Errors
    /// Those of [`SlotCreation::new`].
    pub fn after(chain: &ChainState, slot: Slot) -> SlotResult<SlotCreation> {
        let number = slot.number;
        let unwritable = |reason: String| SlotError::unwritable(number, &reason);
        chain.check_next(&slot).map_err(unwritable)?;
        let creation = SlotCreation::new(chain.end, slot)?;
        let bytes = creation.bytes.len() as u64;
        chain.settings.check_slot_bytes(bytes).map_err(unwritable)?;
        Ok(creation)
    }

    /// A creation after this end of the chain, whose first request is not sent.
    ///
    /// # Errors
    /// [`SlotError::Refused`] if readers would refuse the slot. Once created, it would end the log.
    pub fn new(before: ChainEnd, slot: Slot) -> SlotResult<SlotCreation> {
        let refused = |reason: String| {
            SlotError::Refused(format!(
                "internal: slot {} cannot be written: {reason}",
                slot.number
            ))
        };
        slot.check_entries().map_err(refused)?;
        let end = before.followed_by(&slot).map_err(refused)?;
        let bytes = slot.encode();
        if bytes.len() as u64 > SLOT_BYTES_MAX {
            let count = bytes.len();
            return Err(refused(format!("it has {count} bytes, more than {SLOT_BYTES_MAX}")));
        }
        Ok(SlotCreation { slot, end, bytes, is_unknown: false, exists: None })
    }

    /// Sends the next request. At the contact `before`, the number was missing.
    ///
    /// # Errors
    /// [`SlotError::Refused`] if the store said that the number exists, and a fresh interval later
    /// that it is missing, though it cannot have been deleted; failed requests, after which the
    /// step can be repeated.
    pub fn step(
        &mut self,
        objects: &dyn Objects,
        clock: &dyn Clock,
        times: &SlotTimes,
        before: Contact,
    ) -> SlotResult<Timed<CreationStep>> {
        let name = slot_name(self.slot.number);
        if self.is_unknown {
            let read = read_whole(objects, clock, &name, SLOT_BYTES_MAX)?;
            let (contact, answered) = (read.contact, read.answered);
            let is_vanished = self.exists.is_some()
                && answered.is_some_and(|now| times.is_within(before, now, times.keep / 2));
            if read.value.is_none() && is_vanished && self.has_existed_long(times, contact) {
                let (object, fresh) = (format!("{}/{name}", objects.location()), times.fresh);
                return Err(SlotError::Refused(format!(
                    "the object store said that {object} exists, and {} s later that it is \
                     missing; remove the cache before the object store, or use another one",
                    fresh.as_secs()
                )));
            }
            return Ok(read.map(|found| match found {
                None => {
                    self.is_unknown = false;
                    let is_late = answered.is_some_and(|now| !times.is_fresh(before, now));
                    match is_late && !is_vanished {
                        true => CreationStep::Late,
                        false => CreationStep::Missing,
                    }
                }
                Some(found) if found == self.bytes => CreationStep::Mine,
                Some(_) => CreationStep::Other,
            }));
        }
        let created = create(objects, clock, &name, &self.bytes)?;
        let has_time = created.answered.is_some();
        if matches!(created.value, Creation::Exists) {
            self.exists = self.exists.or(created.answered);
        }
        Ok(created.map(|creation| match creation {
            Creation::Created if has_time => CreationStep::Mine,
            // Without a time it is no proof that the node still leads. The read has a time.
            Creation::Created | Creation::Exists | Creation::Unknown(_) => {
                self.is_unknown = true;
                CreationStep::Open
            }
        }))
    }

    /// Whether the number existed a fresh interval before this contact.
    fn has_existed_long(&self, times: &SlotTimes, contact: Option<Contact>) -> bool {
        let moments = self.exists.zip(contact);
        moments.is_some_and(|(exists, now)| times.is_past(exists, now, times.fresh))
    }
}

//! [`check_chain_end`]: whether the objects have the end of a chain, and nothing after a gap.
//!
//! A missing slot looks like the end of the chain. Without this check, a follower takes the slots
//! before a lost one for all of them, and a candidate creates another slot in the gap.

use umbel_env::{Clock, Objects};

use crate::chain::ChainEnd;
use crate::slot_error::SlotResult;
use crate::slot_format::{SLOT_PREFIX, Slot, number_of_slot, slot_name};
use crate::slot_requests::{damaged, list, read_part, read_whole, unreadable};
use crate::slot_settings::SLOT_BYTES_MAX;

/// Remedy for lost objects.
const LOST_REMEDY: &str = "the object store lost it, or has an older state; let no node lead, and \
     restore the objects";

/// State of the objects after the end of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChainCheck {
    /// There is no later slot.
    Ends,
    /// The next slot exists.
    GoesOn,
}

/// Checks that the objects have the last slot of this chain, and none after a gap. Sends at most
/// three requests.
///
/// # Errors
/// [`SlotError::Damaged`](crate::SlotError::Damaged) with the missing slot; failed requests.
pub fn check_chain_end(
    objects: &dyn Objects,
    clock: &dyn Clock,
    store: &[u8; 16],
    end: ChainEnd,
) -> SlotResult<ChainCheck> {
    confirm_slot(objects, clock, store, end)?;
    let last = slot_name(end.number);
    let page = list(objects, clock, SLOT_PREFIX, Some(last.as_str()))?.value;
    let mut names = page.objects.iter().map(|object| object.name.as_str());
    let Some(above) = names.find_map(number_of_slot) else { return Ok(ChainCheck::Ends) };
    // The leader may have created it since.
    let next = slot_name(end.number + 1);
    if read_part(objects, clock, &next, 0..1)?.value.is_some() {
        return Ok(ChainCheck::GoesOn);
    }
    Err(damaged(objects, &next, format!("it is missing, and slot {above} exists; {LOST_REMEDY}")))
}

/// Checks that the objects have the last slot of a chain that nothing was deleted from since.
///
/// # Errors
/// [`SlotError::Damaged`](crate::SlotError::Damaged) if it is missing or another one; failed
/// requests.
pub fn confirm_slot(
    objects: &dyn Objects,
    clock: &dyn Clock,
    store: &[u8; 16],
    end: ChainEnd,
) -> SlotResult<()> {
    if end.number == 0 {
        return Ok(());
    }
    let name = slot_name(end.number);
    let Some(bytes) = read_whole(objects, clock, &name, SLOT_BYTES_MAX)?.value else {
        return Err(damaged(objects, &name, format!("it is missing; {LOST_REMEDY}")));
    };
    let slot = Slot::decode(&bytes, store, end.number)
        .map_err(|error| unreadable(objects, &name, error, LOST_REMEDY))?;
    match slot.ids.uid == end.uid {
        true => Ok(()),
        false => {
            let reason = format!("this node has another slot with this number; {LOST_REMEDY}");
            Err(damaged(objects, &name, reason))
        }
    }
}

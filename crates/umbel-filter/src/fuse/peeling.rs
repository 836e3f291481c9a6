//! Finds fingerprints for all slots: removes keys one by one, each from a slot that has no other
//! key left, and then fills these slots in the opposite order.
//!
//! A slot is one word during the removal: its number of keys, in the upper five bits, and
//! the keys combined by exclusive or. So a single key can be read from its slot.
//!
//! INVARIANT: keys are roughly in ascending order of their first slots, and are removed
//! starting with the lowest slots. So only a few neighbouring segments are
//! in use at any time.

use crate::fuse::slot_layout::{KEY_BITS, SlotFinder, SlotLayout, fingerprint, key_of};

/// One key more in a slot.
const ONE: u64 = 1 << KEY_BITS;
const KEY_MASK: u64 = ONE - 1;
/// Number of slots that are searched for single keys before those are followed up.
const SEARCHED_SLOTS: usize = 4096;

/// Fingerprints of all slots for these mixed hashes. `None` where no assignment exists:
/// two keys are equal, or the shape is too tight.
///
/// The memory of `mixed` is used for the order in which keys are taken away.
pub(super) fn solve<const ARITY: usize>(shape: &SlotLayout, mixed: &mut [u64]) -> Option<Vec<u16>> {
    let places = SlotFinder::new(shape);
    let mut slots = fill_slots::<ARITY>(shape.slots, &places, mixed)?;
    if peel::<ARITY>(&places, &mut slots, mixed) < mixed.len() {
        return None;
    }
    drop(slots);
    let mut fingerprints = vec![0; shape.slots as usize];
    assign_fingerprints::<ARITY>(&places, mixed, &mut fingerprints);
    Some(fingerprints)
}

/// All keys in their slots; `None` where a slot has more than can be counted.
fn fill_slots<const ARITY: usize>(
    count: u64,
    places: &SlotFinder,
    mixed: &[u64],
) -> Option<Vec<u64>> {
    let mut slots = vec![0u64; count as usize];
    let mut overfull = false;
    for mixed in mixed {
        let key = key_of(*mixed);
        for slot in places.of::<ARITY>(key) {
            let (more, over) = slots[slot].overflowing_add(ONE);
            slots[slot] = more ^ key;
            overfull |= over;
        }
    }
    (!overfull).then_some(slots)
}

/// Takes away every key that is alone in a slot until there are none. Returns how many there were,
/// and leaves them in `order`, each with the number of its lone slot above it.
fn peel<const ARITY: usize>(places: &SlotFinder, slots: &mut [u64], order: &mut [u64]) -> usize {
    let mut taken = 0;
    let (mut lone, mut next) = (Vec::new(), Vec::new());
    for from in (0..slots.len()).step_by(SEARCHED_SLOTS) {
        let to = (from + SEARCHED_SLOTS).min(slots.len());
        let mut found = 0;
        lone.resize(lone.len().max(SEARCHED_SLOTS), 0u32);
        for (slot, value) in (from..to).zip(&slots[from..to]) {
            lone[found] = slot as u32;
            found += usize::from(value >> KEY_BITS == 1);
        }
        while found > 0 {
            let len_max = found * ARITY;
            next.resize(next.len().max(len_max), 0u32);
            let mut following = 0;
            for slot in &lone[..found] {
                let slot = *slot as usize;
                let key = slots[slot] & KEY_MASK;
                if slots[slot] >> KEY_BITS != 1 {
                    continue;
                }
                let of_key = places.of::<ARITY>(key);
                order[taken] = key | (places.number(&of_key, slot) as u64) << KEY_BITS;
                taken += 1;
                for slot in of_key {
                    let less = slots[slot].wrapping_sub(ONE) ^ key;
                    slots[slot] = less;
                    next[following] = slot as u32;
                    following += usize::from(less >> KEY_BITS == 1);
                }
            }
            std::mem::swap(&mut lone, &mut next);
            found = following;
        }
    }
    taken
}

/// Gives each key's lone slot the value that makes its slots its fingerprint. Later keys' slots are
/// settled first; none of the others of a key changes afterwards.
fn assign_fingerprints<const ARITY: usize>(
    places: &SlotFinder,
    order: &[u64],
    fingerprints: &mut [u16],
) {
    for entry in order.iter().rev() {
        let key = entry & KEY_MASK;
        let of_key = places.of::<ARITY>(key);
        // By an index, not by comparing: which of them it is cannot be predicted.
        let lone = of_key[((entry >> KEY_BITS) as usize).min(ARITY - 1)];
        let print = of_key.iter().fold(fingerprint(key) as u16, |all, at| all ^ fingerprints[*at]);
        fingerprints[lone] = print;
    }
}

//! Computes fingerprints for all slots: removes keys one by one, each from a slot without another
//! key, and then fills these slots in reverse order.
//!
//! A slot is one word during the removal: its number of keys, in the upper five bits, and
//! the keys combined by exclusive or. So a single key can be read from its slot.
//!
//! INVARIANT: keys are roughly in ascending order of their first slots, and are removed
//! starting with the lowest slots. So only a few neighbouring segments are
//! in use at any time.

use crate::fuse::slot_layout::{KEY_BITS, SlotFinder, SlotLayout, fingerprint, key_of};

/// Increment of a slot's number of keys.
const ONE: u64 = 1 << KEY_BITS;
const KEY_MASK: u64 = ONE - 1;
/// Number of slots that are searched for single keys before these keys are removed.
const SEARCHED_SLOTS: usize = 4096;

/// Computes the fingerprints of all slots for these mixed hashes. `None` if no assignment exists:
/// two keys are equal, or there are too few slots.
///
/// The memory of `mixed` is reused for the order in which keys are removed.
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

/// Adds all keys to their slots; `None` if a slot has more keys than can be counted.
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

/// Removes keys that are alone in a slot until there is no such key. Returns the number of removed
/// keys, and puts them into `order`, each with the number of its lone slot in the upper bits.
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

/// Sets each key's lone slot to the value by which the key's slots combine to its fingerprint. Keys
/// removed later are processed first, so that the other slots of a key are final.
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

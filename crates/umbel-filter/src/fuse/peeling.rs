//! Finds fingerprints for all slots: takes keys away one by one, each from a slot that no other
//! key has any more, and then settles these slots in the opposite order.
//!
//! A slot is one word while keys are taken away: how many keys it has, in the upper five bits, and
//! the keys combined by exclusive or. One key alone so can be read from its slot.
//!
//! INVARIANT: keys come in ascending order of their first slots, roughly, and are taken away
//! beginning with the lowest slots, so that at any time only a few neighbouring segments are
//! worked on.

use super::shape::{KEY_BITS, Places, Shape, fingerprint, key_of};

/// One key more in a slot.
const ONE: u64 = 1 << KEY_BITS;
const KEY_MASK: u64 = ONE - 1;
/// How many slots are searched for lone keys before what was found is followed up.
const SEARCHED: usize = 4096;

/// The fingerprints of all slots for these mixed hashes; `None` where some keys have no slot that
/// can be theirs: two are equal, or the shape is too tight for them.
///
/// The memory of `mixed` is used for the order in which keys are taken away.
pub(super) fn solve<const ARITY: usize>(shape: &Shape, mixed: &mut [u64]) -> Option<Vec<u16>> {
    let places = Places::new(shape);
    let mut slots = fill::<ARITY>(shape.slots, &places, mixed)?;
    if peel::<ARITY>(&places, &mut slots, mixed) < mixed.len() {
        return None;
    }
    drop(slots);
    let mut fingerprints = vec![0; shape.slots as usize];
    settle::<ARITY>(&places, mixed, &mut fingerprints);
    Some(fingerprints)
}

/// All keys in their slots; `None` where a slot has more than can be counted.
fn fill<const ARITY: usize>(count: u64, places: &Places, mixed: &[u64]) -> Option<Vec<u64>> {
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
fn peel<const ARITY: usize>(places: &Places, slots: &mut [u64], order: &mut [u64]) -> usize {
    let mut taken = 0;
    let (mut lone, mut next) = (Vec::new(), Vec::new());
    for from in (0..slots.len()).step_by(SEARCHED) {
        let to = (from + SEARCHED).min(slots.len());
        let mut found = 0;
        lone.resize(lone.len().max(SEARCHED), 0u32);
        for (slot, value) in (from..to).zip(&slots[from..to]) {
            lone[found] = slot as u32;
            found += usize::from(value >> KEY_BITS == 1);
        }
        while found > 0 {
            let most = found * ARITY;
            next.resize(next.len().max(most), 0u32);
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
fn settle<const ARITY: usize>(places: &Places, order: &[u64], fingerprints: &mut [u16]) {
    for entry in order.iter().rev() {
        let key = entry & KEY_MASK;
        let of_key = places.of::<ARITY>(key);
        // By an index, not by comparing: which of them it is cannot be predicted.
        let lone = of_key[((entry >> KEY_BITS) as usize).min(ARITY - 1)];
        let print = of_key.iter().fold(fingerprint(key) as u16, |all, at| all ^ fingerprints[*at]);
        fingerprints[lone] = print;
    }
}

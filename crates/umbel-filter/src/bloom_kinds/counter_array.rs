//! Kind 7, its payload: counters of 4 bits, two in a byte.
//!
//! FORMAT: counter `c` is the lower half of byte `c / 2` where `c` is even, else the upper half; a
//! half byte behind the last counter is zero. A counter that reached 15 stays there: nobody knows
//! how many keys it stands for.

/// Where counters stop counting.
pub(crate) const STUCK: u8 = 15;

/// The value of a counter; [`STUCK`] for one that is not there.
#[inline(always)]
pub(crate) fn counter(payload: &[u8], at: u64) -> u8 {
    payload.get((at / 2) as usize).map_or(STUCK, |byte| byte >> (at % 2 * 4) & 15)
}

/// Gives a counter another value, at most [`STUCK`].
#[inline(always)]
pub(crate) fn set_counter(payload: &mut [u8], at: u64, value: u8) {
    if let Some(byte) = payload.get_mut((at / 2) as usize) {
        let shift = at % 2 * 4;
        *byte = *byte & !(15 << shift) | value << shift;
    }
}

/// The sum of two counters, or as much as one can hold.
#[inline(always)]
pub(crate) fn sum(left: u8, right: u8) -> u8 {
    (left + right).min(STUCK)
}

/// How many counters are not zero.
pub(crate) fn used(payload: &[u8]) -> u64 {
    let used = |byte: &u8| u64::from(byte & 15 != 0) + u64::from(byte >> 4 != 0);
    payload.iter().map(used).sum()
}

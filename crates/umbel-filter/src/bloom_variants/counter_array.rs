//! The payload of kind 7: counters of 4 bits, two in a byte.
//!
//! FORMAT: counter `c` is the lower half of byte `c / 2` where `c` is even, else the upper half. A
//! half byte after the last counter is zero. A counter that reached 15 stays at 15, because its
//! number of keys is unknown.

/// Value at which counters saturate.
pub(crate) const SATURATED: u8 = 15;

/// The value of a counter; [`STUCK`] for an index without counter.
#[inline(always)]
pub(crate) fn counter(payload: &[u8], at: u64) -> u8 {
    payload.get((at / 2) as usize).map_or(SATURATED, |byte| byte >> (at % 2 * 4) & 15)
}

/// Sets a counter to a value of at most [`STUCK`].
#[inline(always)]
pub(crate) fn set_counter(payload: &mut [u8], at: u64, value: u8) {
    if let Some(byte) = payload.get_mut((at / 2) as usize) {
        let shift = at % 2 * 4;
        *byte = *byte & !(15 << shift) | value << shift;
    }
}

/// The sum of two counters, at most [`STUCK`].
#[inline(always)]
pub(crate) fn saturating_sum(left: u8, right: u8) -> u8 {
    (left + right).min(SATURATED)
}

/// Number of counters that are not zero.
pub(crate) fn nonzero_counters(payload: &[u8]) -> u64 {
    let used = |byte: &u8| u64::from(byte & 15 != 0) + u64::from(byte >> 4 != 0);
    payload.iter().map(used).sum()
}

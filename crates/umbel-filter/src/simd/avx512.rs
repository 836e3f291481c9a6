//! Eight lanes of 64 bits with AVX-512. Its intrinsics are safe ones in functions compiled for it.
#![forbid(unsafe_code)]

use crate::ribbon::RibbonView;
use std::arch::x86_64::{
    __m512i, _mm512_and_si512, _mm512_popcnt_epi64, _mm512_set1_epi64, _mm512_setr_epi64,
    _mm512_test_epi64_mask, _mm512_xor_si512,
};

/// Eight words.
#[inline]
#[target_feature(enable = "avx512f")]
fn load(words: &[[u8; 8]; 8]) -> __m512i {
    let [a, b, c, d, e, f, g, h] = std::array::from_fn(|word| i64::from_le_bytes(words[word]));
    _mm512_setr_epi64(a, b, c, d, e, f, g, h)
}

/// The columns of a row, all at once: a lane is a column. `None` where eight words would be more
/// than there are.
///
/// REQUIRES: no block has more than eight columns.
#[target_feature(enable = "avx512f,avx512dq,avx512vpopcntdq,avx2,bmi2,popcnt")]
pub(super) fn in_ribbon(ribbon: &RibbonView<'_>, hash: u64) -> Option<bool> {
    let Some(meeting) = ribbon.meet(hash) else {
        return Some(true);
    };
    let [first, second] = meeting.eight_words(ribbon.words())?;
    let low = _mm512_and_si512(load(first), _mm512_set1_epi64(meeting.low as i64));
    let high = _mm512_and_si512(load(second), _mm512_set1_epi64(meeting.high as i64));
    let counts = _mm512_popcnt_epi64(_mm512_xor_si512(low, high));
    let odd = u32::from(_mm512_test_epi64_mask(counts, _mm512_set1_epi64(1)));
    Some(odd & ((1 << meeting.columns) - 1) == 0)
}

//! Eight lanes of 64 bits with AVX-512. Its intrinsics are safe ones in functions compiled for it.
#![forbid(unsafe_code)]

use crate::ribbon::{Meeting, RibbonView};
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

/// Asks a ribbon filter.
///
/// REQUIRES: no block of it has more than eight columns.
#[target_feature(enable = "avx512f,avx512dq,avx512vpopcntdq,avx2,bmi2,popcnt")]
pub(super) fn in_ribbon(ribbon: &RibbonView<'_>, hash: u64) -> bool {
    meets(ribbon, ribbon.meet(hash))
}

/// Asks a ribbon filter for many hashes.
///
/// REQUIRES: no block of it has more than eight columns.
#[target_feature(enable = "avx512f,avx512dq,avx512vpopcntdq,avx2,bmi2,popcnt")]
pub(super) fn all_in_ribbon(ribbon: &RibbonView<'_>, hashes: &[u64], found: &mut [bool]) {
    ribbon.each(hashes, found, |meeting| meets(ribbon, meeting));
}

/// The answer for where a row meets the words, all columns at once: a lane is a column.
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512vpopcntdq,avx2,bmi2,popcnt")]
fn meets(ribbon: &RibbonView<'_>, meeting: Option<Meeting>) -> bool {
    let Some(meeting) = meeting else {
        return true;
    };
    let Some([first, second]) = meeting.eight_words(ribbon.words()) else {
        // The last rows of the filter: eight words would be more than there are.
        return ribbon.few_columns(&meeting);
    };
    let low = _mm512_and_si512(load(first), _mm512_set1_epi64(meeting.low as i64));
    let high = _mm512_and_si512(load(second), _mm512_set1_epi64(meeting.high as i64));
    let counts = _mm512_popcnt_epi64(_mm512_xor_si512(low, high));
    let odd = u32::from(_mm512_test_epi64_mask(counts, _mm512_set1_epi64(1)));
    odd & ((1 << meeting.columns) - 1) == 0
}

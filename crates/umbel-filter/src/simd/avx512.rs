//! Eight lanes of 64 bits with AVX-512. Its intrinsics are safe ones in functions compiled for it.
#![forbid(unsafe_code)]

use crate::simd::ByLanes;
use std::arch::x86_64::{
    __m512i, _mm512_and_si512, _mm512_popcnt_epi64, _mm512_set1_epi64, _mm512_setr_epi64,
    _mm512_test_epi64_mask, _mm512_xor_si512,
};

/// Does the work with [`odd`].
#[target_feature(enable = "avx512f,avx512dq,avx512vpopcntdq,avx2,bmi2,popcnt")]
pub(super) fn run<W: ByLanes>(work: W) -> W::Answer {
    work.run(|words, masks| odd(words, masks))
}

/// Eight words.
#[inline]
#[target_feature(enable = "avx512f")]
fn load(words: &[[u8; 8]; 8]) -> __m512i {
    let [a, b, c, d, e, f, g, h] = std::array::from_fn(|word| i64::from_le_bytes(words[word]));
    _mm512_setr_epi64(a, b, c, d, e, f, g, h)
}

/// As [`ByLanes::run`] says.
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512vpopcntdq")]
fn odd([first, second]: [&[[u8; 8]; 8]; 2], [low, high]: [u64; 2]) -> u32 {
    let low = _mm512_and_si512(load(first), _mm512_set1_epi64(low as i64));
    let high = _mm512_and_si512(load(second), _mm512_set1_epi64(high as i64));
    let counts = _mm512_popcnt_epi64(_mm512_xor_si512(low, high));
    u32::from(_mm512_test_epi64_mask(counts, _mm512_set1_epi64(1)))
}

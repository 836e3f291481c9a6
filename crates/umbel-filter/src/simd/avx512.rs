//! Eight lanes of 64 bits with AVX-512. AVX-512 intrinsics are safe in functions compiled for
//! AVX-512.
#![forbid(unsafe_code)]

use crate::simd::WideLaneCode;
#[cfg(not(miri))]
use crate::simd::{LineCode, load_line};
use std::arch::x86_64::{
    __m512i, _mm512_and_si512, _mm512_popcnt_epi64, _mm512_set1_epi64, _mm512_setr_epi64,
    _mm512_test_epi64_mask, _mm512_xor_si512,
};
#[cfg(not(miri))]
use std::arch::x86_64::{
    _mm_mulhi_epu16, _mm_set_epi64x, _mm_set1_epi16, _mm512_cvtepu16_epi64,
    _mm512_permutexvar_epi64, _mm512_rorv_epi64, _mm512_srli_epi64,
};
#[cfg(not(miri))]
use std::sync::atomic::AtomicU64;

/// Does the work with [`odd`].
#[target_feature(enable = "avx512f,avx512dq,avx512vpopcntdq,avx2,bmi2,popcnt")]
pub(super) fn run<W: WideLaneCode>(work: W) -> W::Answer {
    work.run(|words, masks| odd(words, masks))
}

/// Eight words.
#[inline]
#[target_feature(enable = "avx512f")]
fn load(words: &[[u8; 8]; 8]) -> __m512i {
    let [a, b, c, d, e, f, g, h] = std::array::from_fn(|word| i64::from_le_bytes(words[word]));
    _mm512_setr_epi64(a, b, c, d, e, f, g, h)
}

/// As [`WideLaneCode::run`] says.
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512vpopcntdq")]
fn odd([first, second]: [&[[u8; 8]; 8]; 2], [low, high]: [u64; 2]) -> u32 {
    let low = _mm512_and_si512(load(first), _mm512_set1_epi64(low as i64));
    let high = _mm512_and_si512(load(second), _mm512_set1_epi64(high as i64));
    let counts = _mm512_popcnt_epi64(_mm512_xor_si512(low, high));
    u32::from(_mm512_test_epi64_mask(counts, _mm512_set1_epi64(1)))
}

/// Does the work with [`held`].
#[cfg(not(miri))]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,bmi2,popcnt")]
pub(super) fn by_line<W: LineCode>(work: W) -> W::Answer {
    work.run(|line, mixes, bits| held(line, mixes, bits))
}

/// As [`LineCode::run`] says.
#[cfg(not(miri))]
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,bmi2,popcnt")]
fn held(line: &[AtomicU64; 8], [low, high]: [u64; 2], bits: u16) -> u8 {
    let mixes = _mm_set_epi64x(high as i64, low as i64);
    let positions = _mm512_cvtepu16_epi64(_mm_mulhi_epu16(mixes, _mm_set1_epi16(bits as i16)));
    // The instruction reads three bits of the word's number, which a position has above its low six
    // bits, and six bits of the count of a rotation.
    let words = _mm512_permutexvar_epi64(_mm512_srli_epi64::<6>(positions), load_line(line));
    _mm512_test_epi64_mask(_mm512_rorv_epi64(words, positions), _mm512_set1_epi64(1))
}

//! Prefetches of memory.

use crate::chunk::LINE_BYTES;

/// Whether the processor can prefetch; otherwise callers need not compute the address.
pub const PREFETCHES: bool = cfg!(all(target_arch = "x86_64", not(miri)));

/// Prefetches the cache line of item `at`. Does nothing if there is no such item or the processor
/// cannot prefetch.
#[inline(always)]
pub fn prefetch<T>(items: &[T], at: usize) {
    if let Some(item) = items.get(at) {
        prefetch_at(std::ptr::from_ref(item).cast());
    }
}

/// Prefetches `lines` cache lines from that of item `at` on, even past the end of `items`. Does
/// nothing if there is no such item.
#[inline(always)]
pub fn prefetch_lines<T>(items: &[T], at: usize, lines: usize) {
    if let Some(item) = items.get(at) {
        prefetch_lines_at(std::ptr::from_ref(item).cast(), lines);
    }
}

/// Prefetches the cache line at an address, which may be invalid.
#[inline(always)]
pub fn prefetch_address(address: usize) {
    prefetch_at(std::ptr::without_provenance(address));
}

/// Prefetches `lines` cache lines from an address on, which need not be readable.
#[inline(always)]
pub(crate) fn prefetch_lines_at(start: *const u8, lines: usize) {
    (0..lines).for_each(|line| prefetch_at(start.wrapping_add(LINE_BYTES * line)));
}

/// Prefetches the cache line of an address, which need not be readable.
#[inline(always)]
pub(crate) fn prefetch_at(address: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch reads nothing the program can see and never faults, whatever the address;
    // SSE, which has it, is part of every x86-64.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = address;
}

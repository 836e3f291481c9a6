//! Asks for memory before it is needed.

use crate::chunk::LINE_BYTES;

/// Whether the processor can be asked: who has to find out first what to ask for need not, else.
pub const PREFETCHES: bool = cfg!(all(target_arch = "x86_64", not(miri)));

/// Asks the processor for the cache line that holds item `at`; nothing happens where
/// there is no such item, or where the processor cannot be asked.
#[inline(always)]
pub fn prefetch<T>(items: &[T], at: usize) {
    if let Some(item) = items.get(at) {
        prefetch_at(std::ptr::from_ref(item).cast());
    }
}

/// Asks for the cache line that holds item `at` and those behind it, `lines` together, past the end
/// if need be; nothing happens where there is no such item.
#[inline(always)]
pub fn prefetch_lines<T>(items: &[T], at: usize, lines: usize) {
    if let Some(item) = items.get(at) {
        prefetch_lines_at(std::ptr::from_ref(item).cast(), lines);
    }
}

/// Asks for the cache line at an address, be there something or not.
#[inline(always)]
pub fn prefetch_address(address: usize) {
    prefetch_at(std::ptr::without_provenance(address));
}

/// Asks for as many lines from an address on, which need not be readable.
#[inline(always)]
pub(crate) fn prefetch_lines_at(start: *const u8, lines: usize) {
    (0..lines).for_each(|line| prefetch_at(start.wrapping_add(LINE_BYTES * line)));
}

/// Asks for the line that holds an address, which need not be readable.
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

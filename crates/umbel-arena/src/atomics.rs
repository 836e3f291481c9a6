//! Atomics that threads race on: the standard library's, or loom's during a search of
//! interleavings.

#[cfg(all(test, loom))]
pub(crate) use loom::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering, fence},
};
#[cfg(not(all(test, loom)))]
pub(crate) use std::sync::{
    Mutex,
    atomic::{AtomicU64, Ordering, fence},
};

/// Adds a fence in loom tests where real code relies on sequentially consistent accesses. Loom
/// treats such accesses as acquire and release, and knows their total order only from fences.
#[cfg(all(test, loom))]
pub(crate) fn order_fence() {
    loom::sync::atomic::fence(Ordering::SeqCst);
}
#[cfg(not(all(test, loom)))]
#[inline(always)]
pub(crate) fn order_fence() {}

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

/// Loom treats sequentially consistent accesses as acquire and release. It knows the total order
/// only from fences, so this adds one where real code relies on such accesses.
#[cfg(all(test, loom))]
pub(crate) fn order_fence() {
    loom::sync::atomic::fence(Ordering::SeqCst);
}
#[cfg(not(all(test, loom)))]
#[inline(always)]
pub(crate) fn order_fence() {}

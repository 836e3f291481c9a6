//! The atomics that threads race on: the standard library's, or loom's while its interleavings are
//! being searched.

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

/// Loom takes sequentially consistent accesses for acquiring and releasing ones; it knows the order
/// over all of them from fences only. So it is told by one where those accesses do it in what runs.
#[cfg(all(test, loom))]
pub(crate) fn tell_order() {
    loom::sync::atomic::fence(Ordering::SeqCst);
}
#[cfg(not(all(test, loom)))]
#[inline(always)]
pub(crate) fn tell_order() {}

//! The atomics of the node protocol: the standard library's, or loom's during a search of
//! interleavings. Also the number of slots of a node, with and without loom.

#[cfg(all(test, loom))]
pub(crate) use loom::sync::atomic::{AtomicPtr, AtomicU64, Ordering, fence};
#[cfg(not(all(test, loom)))]
pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering, fence};

/// Number of slots of a node. INVARIANT: the number is a power of two, so that a mask keeps any
/// index in range.
#[cfg(not(all(test, loom)))]
pub(crate) const WIDTH: usize = 64;
/// Number of slots of a node with loom: few, so that a handful of inserts splits nodes.
#[cfg(all(test, loom))]
pub(crate) const WIDTH: usize = 2;

/// Waits a moment until the writer has finished changing a node, which takes some fifty
/// nanoseconds. If it takes longer, the writer has lost its processor, and this thread yields its
/// own.
#[cfg(not(all(test, loom)))]
pub(crate) fn pause(tries: u32) {
    if tries < 100 {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}

/// Informs loom that this thread waits for another thread.
#[cfg(all(test, loom))]
pub(crate) fn pause(_tries: u32) {
    loom::thread::yield_now();
}

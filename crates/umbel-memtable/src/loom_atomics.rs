//! The atomics of the node protocol: the standard library's, or loom's during a search of
//! interleavings. Also the number of slots of a node in either case.

#[cfg(all(test, loom))]
pub(crate) use loom::sync::atomic::{AtomicPtr, AtomicU64, Ordering, fence};
#[cfg(not(all(test, loom)))]
pub(crate) use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering, fence};

/// Slots of a node. INVARIANT: a power of two, so that a mask keeps any index inside.
#[cfg(not(all(test, loom)))]
pub(crate) const WIDTH: usize = 64;
/// Few slots, so that a handful of inserts splits nodes.
#[cfg(all(test, loom))]
pub(crate) const WIDTH: usize = 2;

/// Waits a moment for the writer to finish with a node. The writer needs some fifty nanoseconds;
/// where it takes longer it has lost its processor, and gets ours.
#[cfg(not(all(test, loom)))]
pub(crate) fn pause(tries: u32) {
    if tries < 100 {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}

/// Informs loom that this thread waits for another.
#[cfg(all(test, loom))]
pub(crate) fn pause(_tries: u32) {
    loom::thread::yield_now();
}

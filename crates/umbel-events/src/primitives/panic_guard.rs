//! Panics in callbacks: they are the caller's, and the store survives them.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls the callback. The panic hook has reported a panic, and it does not propagate.
pub fn catch_panic(callback: impl FnOnce()) {
    // The callback owns what it uses. Only its own code can see that state half changed.
    let _ = catch_unwind(AssertUnwindSafe(callback));
}

//! Panics in callbacks: a panic is the fault of the caller's code, and the store survives the
//! panic.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls the callback. A panic is reported by the panic hook, and does not propagate.
pub fn catch_panic(callback: impl FnOnce()) {
    // The callback owns what it uses. Only its own code can see that state half changed.
    let _ = catch_unwind(AssertUnwindSafe(callback));
}

//! Panics of what is called back: they are the caller's, and nothing of the store ends with them.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls it. Where it panics, the panic was reported by then and goes no further.
pub fn caught(callback: impl FnOnce()) {
    // It takes what it uses with it, so nobody sees that half changed but who made it.
    let _ = catch_unwind(AssertUnwindSafe(callback));
}

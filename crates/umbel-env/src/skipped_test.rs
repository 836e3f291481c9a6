//! [`print_skipped`]: the report of a test that cannot run on this machine.

use std::fmt::Display;

/// Prints that a check cannot run on this machine, and the reason. `cargo xtask test` counts the
/// test as skipped, not as passed.
///
/// REQUIRES: a test calls this at most once, since each call is one skipped test.
pub fn print_skipped(check: &str, reason: impl Display) {
    println!("SKIPPED: {check}: {reason}");
}

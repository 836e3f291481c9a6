//! [`fail_point!`](crate::fail_point): places where a test makes the product go wrong.
//!
//! With the feature `failpoints`, which no released build has, the macro is that of the crate
//! `fail`. A test activates a failpoint by its name, for the whole process:
//! `fail::cfg("checksum-constant", "return")`. Without the feature the macro expands to nothing.

#[cfg(feature = "failpoints")]
pub use fail::{FailGuard, FailScenario};

/// Returns a wrong value from the function while the failpoint is active.
///
/// `fail_point!("name", |_| value)` returns `value`; `fail_point!("name", condition, |_| value)`
/// does so only if the condition holds. The name says what goes wrong, in kebab case.
/// `docs/TESTING.md` has the rules for failpoints.
#[cfg(feature = "failpoints")]
pub use fail::fail_point;

/// Expands to nothing: the feature `failpoints` is off.
#[cfg(not(feature = "failpoints"))]
#[macro_export]
macro_rules! fail_point {
    ($($arguments:tt)*) => {};
}

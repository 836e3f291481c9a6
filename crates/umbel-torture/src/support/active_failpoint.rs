//! [`ActiveFailpoint`]: a failpoint of the product that is active during a hunt.

/// Whether the program is built with failpoints.
pub const AVAILABLE: bool = cfg!(feature = "failpoints");

/// A failpoint that is active in the whole process until this value is dropped.
pub struct ActiveFailpoint {
    #[cfg(feature = "failpoints")]
    _guard: umbel_base::failpoints::FailGuard,
}

impl ActiveFailpoint {
    /// Activates the failpoint. REQUIRES: [`AVAILABLE`].
    #[cfg(feature = "failpoints")]
    pub fn activate(name: &str) -> ActiveFailpoint {
        let guard = umbel_base::failpoints::FailGuard::new(name, "return");
        ActiveFailpoint { _guard: guard.expect("`return` is an action") }
    }

    /// Activates the failpoint. REQUIRES: [`AVAILABLE`].
    #[cfg(not(feature = "failpoints"))]
    pub fn activate(name: &str) -> ActiveFailpoint {
        panic!("the failpoint {name} needs the feature failpoints");
    }
}

//! Checks of the probe, and their report.

use std::fmt;

use umbel_env::ObjectErrorKind;

/// A guarantee that the probe tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Check {
    /// A new object is created.
    Create,
    /// A second creation of a name is refused, and the first object stays.
    CreateIfAbsent,
    /// Of several creations at the same time, one succeeds.
    ConcurrentCreates,
    /// A creation with a slow body is judged at its end, not at its start.
    SlowCreate,
    /// A read that follows a confirmed creation finds the object.
    ReadAfterWrite,
    /// A read returns the bytes that were written.
    WholeBytes,
    /// A read of a range returns that range only, and the length of the object.
    Ranges,
    /// A read of an absent object reports that it is absent.
    Absence,
    /// A list that follows a confirmed creation has the object; pages and prefixes are right.
    ListAfterWrite,
    /// Confirmed creations carry the store's time, which does not go back.
    StoreTime,
    /// An object is written without a condition.
    Put,
    /// A deleted object is absent, and a second deletion succeeds.
    Delete,
}

impl Check {
    /// Every check, in the order of the probe.
    pub const ALL: [Check; 12] = [
        Check::Create,
        Check::CreateIfAbsent,
        Check::ConcurrentCreates,
        Check::SlowCreate,
        Check::ReadAfterWrite,
        Check::WholeBytes,
        Check::Ranges,
        Check::Absence,
        Check::ListAfterWrite,
        Check::StoreTime,
        Check::Put,
        Check::Delete,
    ];

    /// Returns the name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Check::Create => "create",
            Check::CreateIfAbsent => "create-if-absent",
            Check::ConcurrentCreates => "concurrent-creates",
            Check::SlowCreate => "slow-create",
            Check::ReadAfterWrite => "read-after-write",
            Check::WholeBytes => "whole-bytes",
            Check::Ranges => "ranges",
            Check::Absence => "absence",
            Check::ListAfterWrite => "list-after-write",
            Check::StoreTime => "store-time",
            Check::Put => "put",
            Check::Delete => "delete",
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Outcome of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckOutcome {
    /// The store kept the guarantee.
    Passed,
    /// The store broke the guarantee; with the observation and the remedy.
    Broken(String),
    /// The check could not be finished, since the store did not serve requests or denied a right;
    /// with the kind of the last error, and its text.
    Unfinished(ObjectErrorKind, String),
    /// The check was not begun, since no object could be created.
    NotTried,
}

/// Verdict of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeVerdict {
    /// Every check passed.
    Suitable,
    /// The store broke a guarantee, so it must not be used.
    Refused,
    /// No guarantee was broken, but a check was not finished.
    Unfinished,
}

/// Report of a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeReport {
    /// Location of the store.
    pub location: String,
    /// Outcome of each check, in the order of [`Check::ALL`].
    pub checks: Vec<(Check, CheckOutcome)>,
    /// Difference between the store's clock and the wall clock of this machine, in microseconds;
    /// positive if the store's clock is ahead. `None` if the store reported no time.
    pub clock_difference_micros: Option<i64>,
    /// Prefix of the probe's objects that could not be deleted.
    pub leftover_prefix: Option<String>,
}

impl ProbeReport {
    /// Returns the verdict on the store.
    pub fn verdict(&self) -> ProbeVerdict {
        let has = |wanted: fn(&CheckOutcome) -> bool| {
            self.checks.iter().any(|(_, outcome)| wanted(outcome))
        };
        if has(|outcome| matches!(outcome, CheckOutcome::Broken(_))) {
            return ProbeVerdict::Refused;
        }
        match has(|outcome| *outcome != CheckOutcome::Passed) {
            true => ProbeVerdict::Unfinished,
            false => ProbeVerdict::Suitable,
        }
    }

    /// Returns the checks that the store broke.
    pub fn broken(&self) -> impl Iterator<Item = (Check, &str)> {
        self.checks.iter().filter_map(|(check, outcome)| match outcome {
            CheckOutcome::Broken(reason) => Some((*check, reason.as_str())),
            _ => None,
        })
    }
}

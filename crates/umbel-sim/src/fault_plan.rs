//! Planned faults.

use std::io;

use crate::file_call_class::{Operation, matches};

/// Whether the power fails before or after a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashSide {
    /// The call has no effect.
    Before,
    /// The call has its full effect, but returns an error.
    After,
}

/// Error that the disk returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// An input or output error, which any call except a mapped store can return.
    Eio,
    /// The disk is full; calls that need space, including syncs, can return this error.
    Enospc,
    /// The disk quota is used up; the same calls as for `Enospc` can return this error.
    Edquot,
    /// Too many files are open; calls that open a file or directory can return this error.
    Emfile,
    /// Permission denied; calls that open a file or change a name can return this error.
    Eacces,
}

impl FaultKind {
    /// Returns the error with the operating system's text.
    pub(crate) fn error(self) -> io::Error {
        match self {
            FaultKind::Eio => io::Error::from_raw_os_error(5),
            FaultKind::Enospc => io::Error::from_raw_os_error(28),
            FaultKind::Edquot => io::Error::from(io::ErrorKind::QuotaExceeded),
            FaultKind::Emfile => io::Error::from_raw_os_error(24),
            FaultKind::Eacces => io::Error::from_raw_os_error(13),
        }
    }

    /// Whether this call could return the error on a real disk.
    fn fits(self, operation: Operation) -> bool {
        use Operation as O;
        let names = matches!(
            operation,
            O::CreateDir | O::Create | O::Rename | O::HardLink | O::Remove | O::Lock
        );
        let opens = matches!(operation, O::Create | O::Open | O::Lock | O::ReadDir | O::SyncDir);
        match self {
            // Where a mapped store fails the process dies, which is a crash and not an error.
            FaultKind::Eio => operation != O::Store,
            FaultKind::Enospc | FaultKind::Edquot => {
                (names && operation != O::Remove)
                    || matches!(
                        operation,
                        O::Write | O::WriteDirect | O::SetLen | O::Preallocate | O::Sync
                    )
            }
            FaultKind::Emfile => opens,
            FaultKind::Eacces => names || opens || operation == O::CheckWritable,
        }
    }
}

/// A failing call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// Error that the call returns.
    pub kind: FaultKind,
    /// Whether every later call that the fault fits fails, too. A fault that was set for a site
    /// stays at that site.
    pub sticky: bool,
}

#[derive(Debug, Clone)]
struct ArmedFault {
    trigger: FaultTrigger,
    fault: Fault,
    has_fired: bool,
}

#[derive(Debug, Clone)]
enum FaultTrigger {
    Call(u64),
    Site { pattern: String, calls_left: u64 },
}

/// A call that takes effect and reports an error.
#[derive(Debug, Clone)]
struct LostAnswer {
    pattern: String,
    calls_left: u64,
    error_number: i32,
}

/// Every fault to come.
#[derive(Debug, Clone, Default)]
pub(crate) struct FaultPlan {
    pub(crate) crash: Option<(u64, CrashSide)>,
    armed: Vec<ArmedFault>,
    ignored: Vec<String>,
    lost_answers: Vec<LostAnswer>,
    /// Number of calls that failed as planned.
    pub(crate) fired: u64,
    /// Number of calls that were ignored as planned.
    pub(crate) skipped: u64,
    /// Whether syncs report success without syncing.
    pub(crate) lies: bool,
    /// Whether bytes that a failed sync dropped vanish from the page cache, too.
    pub(crate) reverts: bool,
    /// Whether files cannot be mapped.
    pub(crate) refuses_mappings: bool,
    /// Whether files cannot be written directly.
    pub(crate) refuses_direct: bool,
    /// Whether a file cannot get a second name, as between two file systems.
    pub(crate) refuses_links: bool,
    /// Whether the files of two names cannot be exchanged.
    pub(crate) refuses_exchanges: bool,
    /// Whether no reader can pin a version.
    pub(crate) refuses_pins: bool,
    /// Maximum number of bytes that all files together may take.
    pub(crate) capacity: Option<u64>,
}

impl FaultPlan {
    pub(crate) fn fail_call(&mut self, call: u64, fault: Fault) {
        self.armed.push(ArmedFault { trigger: FaultTrigger::Call(call), fault, has_fired: false });
    }

    pub(crate) fn fail_site(&mut self, pattern: &str, nth: u64, fault: Fault) {
        let trigger = FaultTrigger::Site { pattern: pattern.to_owned(), calls_left: nth };
        self.armed.push(ArmedFault { trigger, fault, has_fired: false });
    }

    pub(crate) fn ignore(&mut self, pattern: &str) {
        self.ignored.push(pattern.to_owned());
    }

    pub(crate) fn heal(&mut self) {
        self.armed.clear();
        self.ignored.clear();
        self.lost_answers.clear();
        self.lies = false;
    }

    pub(crate) fn lose_answer(&mut self, pattern: &str, nth: u64, error_number: i32) {
        let pattern = pattern.to_owned();
        self.lost_answers.push(LostAnswer { pattern, calls_left: nth, error_number });
    }

    /// Returns the error that replaces the answer of a successful call, if there is one.
    /// REQUIRES: called once for each successful call.
    pub(crate) fn lost_answer(&mut self, operation: Operation, class: &str) -> Option<io::Error> {
        let mut found = None;
        for lost in &mut self.lost_answers {
            if lost.calls_left > 0 && matches(&lost.pattern, operation, class) {
                lost.calls_left -= 1;
                found = (lost.calls_left == 0).then_some(lost.error_number).or(found);
            }
        }
        self.fired += u64::from(found.is_some());
        found.map(io::Error::from_raw_os_error)
    }

    /// Returns the fault of this call, if it has one. REQUIRES: called once for each call.
    pub(crate) fn fault(
        &mut self,
        call: u64,
        operation: Operation,
        class: &str,
    ) -> Option<FaultKind> {
        let mut found = None;
        for armed in &mut self.armed {
            if !armed.fault.kind.fits(operation) {
                continue;
            }
            let is_due = match &mut armed.trigger {
                // The named call itself may be one that cannot fail so; a sticky fault then begins
                // with the next one that can.
                FaultTrigger::Call(number) => {
                    call == *number || (armed.fault.sticky && call > *number)
                }
                FaultTrigger::Site { pattern, calls_left } => {
                    if !matches(pattern, operation, class) {
                        continue;
                    }
                    *calls_left = calls_left.saturating_sub(1);
                    *calls_left == 0 && (armed.fault.sticky || !armed.has_fired)
                }
            };
            if is_due {
                armed.has_fired = true;
                found = found.or(Some(armed.fault.kind));
            }
        }
        self.fired += u64::from(found.is_some());
        found
    }

    /// Whether this call is to be omitted. REQUIRES: called once for each call.
    pub(crate) fn ignores(&mut self, operation: Operation, class: &str) -> bool {
        let ignores = operation.can_be_ignored()
            && self.ignored.iter().any(|pattern| matches(pattern, operation, class));
        self.skipped += u64::from(ignores);
        ignores
    }
}

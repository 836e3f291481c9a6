//! [`Probe`]: tries every guarantee of an object store that its callers rely on.
//!
//! The names of its objects begin with `probe/` and a random id. They are in one directory, which
//! stays when the probe has deleted them, since a directory store never removes directories. It
//! judges by certain answers only: a store that keeps its guarantees is never refused, whatever the
//! network does, and a store that breaks one in a tried situation is. Two guarantees cannot be
//! tried from outside: that objects are durable, and that no reader of another machine sees an
//! older state.

mod attempts;
mod check;
mod contents;
mod races;

use umbel_base::Result;
use umbel_env::{Env, Objects};

pub use check::{Check, CheckOutcome, ProbeReport, ProbeVerdict};

use attempts::{Attempts, CheckFailure, CheckResult};

/// A probe of an object store.
///
/// A whole probe sends about 330 requests, at most 64 of them at the same time, and takes some
/// seconds. If the store is not available, each check ends after some seconds of its own, in
/// addition to the timeouts of its requests.
#[derive(Debug)]
pub struct Probe<'a> {
    attempts: Attempts<'a>,
}

impl<'a> Probe<'a> {
    /// Creates a probe of a store.
    ///
    /// # Errors
    /// There are no random bytes for the id of the probe.
    pub fn new(env: &'a Env, objects: &'a dyn Objects) -> Result<Probe<'a>> {
        let id = u128::from_be_bytes(env.entropy.id()?);
        Ok(Probe { attempts: Attempts::new(env, objects, format!("probe/{id:032x}-")) })
    }

    /// Runs every check.
    pub fn run(&self) -> ProbeReport {
        let mut checks = Vec::new();
        for check in Check::ALL {
            let outcome = match checks.first() {
                Some((_, CheckOutcome::Broken(_) | CheckOutcome::Unfinished(..))) => {
                    CheckOutcome::NotTried
                }
                _ => match self.check(check) {
                    Ok(()) => CheckOutcome::Passed,
                    Err(CheckFailure::Broken(reason)) => CheckOutcome::Broken(reason),
                    Err(CheckFailure::Unfinished(kind, reason)) => {
                        CheckOutcome::Unfinished(kind, reason)
                    }
                },
            };
            checks.push((check, outcome));
        }
        ProbeReport {
            location: self.attempts.objects.location().to_owned(),
            checks,
            clock_difference_micros: self.attempts.clock_difference_micros.get(),
            leftover_prefix: self.remove_objects(),
        }
    }

    fn check(&self, check: Check) -> CheckResult<()> {
        let attempts = &self.attempts;
        match check {
            Check::Create => attempts.create("create", b"x").map(drop),
            Check::CreateIfAbsent => races::create_if_absent(attempts),
            Check::ConcurrentCreates => races::concurrent_creates(attempts),
            Check::SlowCreate => races::slow_create(attempts),
            Check::ReadAfterWrite => contents::read_after_write(attempts),
            Check::WholeBytes => contents::whole_bytes(attempts),
            Check::Ranges => contents::ranges(attempts),
            Check::Absence => contents::absence(attempts),
            Check::ListAfterWrite => contents::list_after_write(attempts),
            Check::StoreTime => match attempts.clock_fault.borrow().clone() {
                Some(fault) => attempts::broken(fault),
                None => Ok(()),
            },
            Check::Put => contents::put(attempts),
            Check::Delete => contents::delete(attempts),
        }
    }

    /// Deletes the objects of the probe. Returns their prefix if a deletion failed.
    fn remove_objects(&self) -> Option<String> {
        let mut is_complete = true;
        for name in self.attempts.names() {
            // After a failure one attempt for each object is enough.
            let deleted = match is_complete {
                true => self.attempts.delete(&name).is_ok(),
                false => self.attempts.objects.delete(&name).is_ok(),
            };
            is_complete &= deleted;
        }
        (!is_complete).then(|| self.attempts.prefix.clone())
    }
}

//! [`Violations`]: the violations of a request, as they are found.

use crate::decide::Known;
use crate::error::{Error, Result};
use crate::event::Expected;
use crate::state::StreamState;
use crate::violation::{Part, Violation};

/// The violations of a request, as they are found.
#[derive(Debug, Default)]
pub struct Violations(Vec<Violation>);

impl Violations {
    /// Whether none was found.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes one more.
    pub fn add(&mut self, part: Part, stream: &str, expected: Expected, known: &Known) {
        let (stream, state) = (stream.to_string(), StreamState::of(known));
        self.0.push(Violation { part, stream, expected, state });
    }

    /// What is left of a decision: `None` where it is a violation, which is taken then.
    pub fn sift<T>(
        &mut self,
        decided: Result<T>,
        part: Part,
        expected: Expected,
        known: &Known,
    ) -> Result<Option<T>> {
        match decided {
            Ok(decision) => Ok(Some(decision)),
            Err(Error::WrongExpected { stream, .. } | Error::Deleted { stream }) => {
                self.add(part, &stream, expected, known);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// An error where one was found.
    pub fn finish(self) -> Result<()> {
        if self.0.is_empty() { Ok(()) } else { Err(Error::NotAsExpected(self.0)) }
    }
}

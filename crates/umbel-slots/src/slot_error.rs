//! [`SlotError`]: why the replicated log cannot go on.

use std::fmt;

use umbel_env::ObjectError;

/// Result of a step.
pub type SlotResult<T> = Result<T, SlotError>;

/// Reason why the replicated log cannot go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SlotError {
    /// A request failed. The step can be repeated if the error is temporary.
    Objects(ObjectError),
    /// An object contradicts the format or the chain. The node must not serve from it.
    Damaged {
        /// Location of the object.
        object: String,
        /// The contradiction, and the remedy.
        reason: String,
    },
    /// The object store has no state of this log, or one of another log or of a newer Umbel. Or
    /// readers would refuse a slot that is to be written.
    Refused(String),
}

impl SlotError {
    /// The error of a slot that readers would refuse. Once created, it would end the log.
    pub(crate) fn unwritable(number: u64, reason: &str) -> SlotError {
        SlotError::Refused(format!("internal: slot {number} cannot be written: {reason}"))
    }

    /// Whether a repetition of the step can succeed without a change by an operator.
    pub fn is_temporary(&self) -> bool {
        matches!(self, SlotError::Objects(error) if error.is_temporary())
    }
}

impl fmt::Display for SlotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SlotError::Objects(error) => error.fmt(f),
            SlotError::Damaged { object, reason } => {
                write!(f, "{object} cannot be part of the replicated log: {reason}")
            }
            SlotError::Refused(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for SlotError {}

impl From<ObjectError> for SlotError {
    fn from(error: ObjectError) -> SlotError {
        SlotError::Objects(error)
    }
}

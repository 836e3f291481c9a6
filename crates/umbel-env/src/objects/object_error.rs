//! [`ObjectError`]: the failure of a call of an object store.

use std::fmt;

/// Failure of a call of an object store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectError {
    /// The kind, which says what the caller can do.
    pub kind: ObjectErrorKind,
    /// The failed operation, as a verb phrase: "create", "read", "list".
    pub operation: &'static str,
    /// Location of the store, with the name or the prefix of the object.
    pub object: String,
    /// The cause, and the remedy if there is one.
    pub cause: String,
}

/// Kind of an [`ObjectError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectErrorKind {
    /// The store cannot serve the request now, or its answer did not arrive: repeat the call later.
    Unavailable,
    /// The store refuses these credentials, or they lack a right: renew them, or grant the right.
    Denied,
    /// The store, or its configuration, does not allow this request: a repetition fails, too.
    Refused,
    /// The answer contradicts itself, or the store holds other bytes than those that were written:
    /// read again, or restore the object.
    Damaged,
}

impl ObjectError {
    /// Creates an error. `cause` is one sentence or more without a final full stop.
    pub fn new(
        kind: ObjectErrorKind,
        operation: &'static str,
        object: impl Into<String>,
        cause: impl Into<String>,
    ) -> ObjectError {
        ObjectError { kind, operation, object: object.into(), cause: cause.into() }
    }

    /// Whether a repetition of the call can succeed without a change by an operator.
    pub fn is_temporary(&self) -> bool {
        self.kind == ObjectErrorKind::Unavailable
    }
}

impl fmt::Display for ObjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "could not {} {}: {}", self.operation, self.object, self.cause)
    }
}

impl std::error::Error for ObjectError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_names_the_object_and_the_cause() {
        let kind = ObjectErrorKind::Denied;
        let error = ObjectError::new(kind, "create", "s3://b/p/STORE", "the credentials expired");
        assert_eq!(error.to_string(), "could not create s3://b/p/STORE: the credentials expired");
        assert!(!error.is_temporary());
    }
}

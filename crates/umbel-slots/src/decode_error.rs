//! [`DecodeError`]: why bytes are not an object of a replicated log.

use std::fmt;

/// Reason why bytes are not an object of a replicated log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecodeError {
    /// A newer Umbel wrote the object. The text names what this Umbel does not know.
    Newer(String),
    /// The bytes contradict the format, or they belong to another object.
    Wrong(String),
}

impl DecodeError {
    /// The error of bytes that cannot be divided into fields.
    pub(crate) fn malformed() -> DecodeError {
        DecodeError::Wrong("the object is malformed".into())
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Newer(what) => {
                write!(f, "a newer Umbel wrote it ({what}); use that Umbel")
            }
            DecodeError::Wrong(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for DecodeError {}

impl From<String> for DecodeError {
    fn from(reason: String) -> DecodeError {
        DecodeError::Wrong(reason)
    }
}

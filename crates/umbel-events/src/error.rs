//! The error kinds of an event store, by what the caller can do about them.

use std::fmt;
use std::io::ErrorKind;

use crate::event::{EventId, Expected};
use crate::limits::EXPRESSION_BACKTRACKS_MAX;
use crate::state::StreamState;
use crate::violation::Violation;

/// What every fallible function of this crate returns.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong. A stream that does not exist is no error for who reads it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// A stream is not at the revision that was expected: read it again, then decide anew.
    WrongExpected {
        /// The stream.
        stream: String,
        /// What was expected of it.
        expected: Expected,
        /// The revision of its last event; `None` where it has none.
        current: Option<u64>,
    },
    /// The stream was tombstoned: it can never be read or written again.
    Deleted {
        /// The stream.
        stream: String,
    },
    /// An event or an append is larger than the limits allow: make it smaller.
    TooLarge {
        /// The event, where it is one; otherwise all of the append together.
        event: Option<EventId>,
        /// Its bytes.
        bytes: u64,
        /// How many it may have.
        most: u64,
    },
    /// Streams are not as a request about several expected: read them again, then decide anew.
    /// Only [`Store::submit_checked`](crate::Store::submit_checked) tells of more than the first.
    NotAsExpected(Vec<Violation>),
    /// The request itself is wrong: change it.
    Invalid(String),
    /// A filter's expression takes too long on a name: write another one.
    Runaway {
        /// The expression.
        expression: String,
        /// The name of the stream or the type that it was asked about.
        name: String,
    },
    /// The store below could not do it.
    Store(umbel::Error),
}

impl Error {
    /// An [`Error::Invalid`].
    pub(crate) fn invalid(message: impl Into<String>) -> Error {
        Error::Invalid(message.into())
    }

    /// Whether it tells that bytes on disk are gone or not what was written. What the operating
    /// system refuses says nothing of them.
    pub(crate) fn is_damage(&self) -> bool {
        match self {
            Error::Store(umbel::Error::Corruption { .. }) => true,
            Error::Store(umbel::Error::Io { source, .. }) => matches!(
                source.kind(),
                ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::UnexpectedEof
            ),
            _ => false,
        }
    }

    /// The same error, where it tells of several streams of the first alone.
    pub(crate) fn of_first(self) -> Error {
        match self {
            Error::NotAsExpected(violations) => match violations.into_iter().next() {
                Some(first) => first.into(),
                None => Error::invalid("no stream was other than expected"),
            },
            error => error,
        }
    }

    /// The streams on whose state this error rests.
    pub(crate) fn streams(&self) -> impl Iterator<Item = &str> {
        let (one, several) = match self {
            Error::WrongExpected { stream, .. } | Error::Deleted { stream } => {
                (Some(stream), &[][..])
            }
            Error::NotAsExpected(violations) => (None, &violations[..]),
            _ => (None, &[][..]),
        };
        let several = several.iter().map(|violation| &violation.stream);
        one.into_iter().chain(several).map(String::as_str)
    }
}

impl From<Violation> for Error {
    /// The error that tells of this one alone.
    fn from(violation: Violation) -> Error {
        let Violation { stream, expected, state, .. } = violation;
        match state {
            StreamState::Tombstoned => Error::Deleted { stream },
            StreamState::Missing => Error::WrongExpected { stream, expected, current: None },
            StreamState::Live { last, .. } | StreamState::Deleted { last } => {
                Error::WrongExpected { stream, expected, current: Some(last) }
            }
        }
    }
}

impl From<umbel::Error> for Error {
    fn from(error: umbel::Error) -> Error {
        match error {
            umbel::Error::Invalid(message) => Error::Invalid(message),
            error => Error::Store(error),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Something has to be there only where it is to be deleted.
            Error::WrongExpected { stream, expected: Expected::Any, current: None } => {
                write!(f, "there is no stream '{}'; check its name", stream.escape_debug())
            }
            Error::WrongExpected { stream, expected, current } => {
                write!(f, "{expected} of stream '{}', but ", stream.escape_debug())?;
                match current {
                    Some(revision) => write!(f, "its last revision is {revision}")?,
                    None => f.write_str("it has no events")?,
                }
                f.write_str("; read the stream again and decide anew")
            }
            Error::Deleted { stream } => write!(
                f,
                "the stream '{}' was tombstoned and can never be used again; take another name",
                stream.escape_debug()
            ),
            Error::TooLarge { event: Some(id), bytes, most } => write!(
                f,
                "event {id} has {bytes} bytes of data and metadata, but may have {most}; store \
                 what is large elsewhere and let the event name it"
            ),
            Error::TooLarge { event: None, bytes, most } => {
                write!(f, "the append takes {bytes} bytes, but may take {most}; append it in parts")
            }
            Error::NotAsExpected(violations) => {
                let first = violations.first().map(|violation| Error::from(violation.clone()));
                match (violations.len(), first) {
                    (0 | 1, Some(first)) => first.fmt(f),
                    (count, Some(first)) => write!(f, "{first} ({count} streams in all)"),
                    (_, None) => f.write_str("no stream was other than expected"),
                }
            }
            Error::Invalid(message) => f.write_str(message),
            Error::Runaway { expression, name } => write!(
                f,
                "the expression '{}' takes more than {EXPRESSION_BACKTRACKS_MAX} steps back on \
                 '{}'; write it without repetitions of repetitions, or use prefixes",
                shortened(expression),
                shortened(name)
            ),
            Error::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Store(error) => Some(error),
            _ => None,
        }
    }
}

/// How many characters of a text that somebody sent are shown in a message.
const SHOWN: usize = 100;

/// A text as it is shown in a message.
pub(crate) fn shortened(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    shown
}

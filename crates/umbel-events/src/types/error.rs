//! The error kinds of an event store, by what the caller can do about them.

use std::fmt;
use std::io::ErrorKind;
use std::path::Path;

use crate::event::{EventId, Expected};
use crate::limits::EXPRESSION_BACKTRACKS_MAX;
use crate::state::StreamState;
use crate::violation::Violation;

/// The name of the folder of the index.
const INDEX: &str = "index";
/// How the names of the engine's files in it end.
const INDEX_EXTENSIONS: [&str; 4] = ["manifest", "log", "table", "blob"];

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
    /// Files of a backup are not what was written: make another backup, or take them from a copy
    /// of this one.
    Backup(umbel::Error),
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
            Error::Store(umbel::Error::Corruption { .. }) | Error::Backup(_) => true,
            Error::Store(umbel::Error::Io { source, .. }) => matches!(
                source.kind(),
                ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::UnexpectedEof
            ),
            _ => false,
        }
    }

    /// Whether it tells that a file of the index is damaged. The index can be removed: it is made
    /// of the event log.
    pub fn is_damage_of_index(&self) -> bool {
        match self {
            Error::Store(umbel::Error::Corruption { file, .. }) => index_of(file).is_some(),
            _ => false,
        }
    }

    /// The message without what to do about damage; see `umbel::Error::without_remedy`.
    pub fn without_remedy(&self) -> String {
        match self {
            Error::Store(error) | Error::Backup(error) => error.without_remedy(),
            error => error.to_string(),
        }
    }

    /// The same error, where it tells of damage as that of a backup.
    pub(crate) fn in_backup(self) -> Error {
        match self {
            Error::Store(error @ umbel::Error::Corruption { .. }) => Error::Backup(error),
            error => error,
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
            Error::Store(error @ umbel::Error::Corruption { file, .. }) => {
                write!(f, "{}; {}", error.without_remedy(), remedy(file))
            }
            Error::Store(error) => error.fmt(f),
            Error::Backup(error) => write!(
                f,
                "{}; back up the store to another folder, or take the file from another copy of \
                 this backup",
                error.without_remedy()
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Store(error) | Error::Backup(error) => Some(error),
            _ => None,
        }
    }
}

/// The folder of the index, where a file of an event store lies in it. Its names tell, as a store's
/// own folder may be called `index`, too.
fn index_of(file: &Path) -> Option<&Path> {
    let is_index = |folder: &&Path| folder.file_name().is_some_and(|name| name == INDEX);
    if is_index(&file) {
        return Some(file);
    }
    let is_of_engine = file.file_name().is_some_and(|name| name == "CURRENT")
        || file.extension().is_some_and(|end| INDEX_EXTENSIONS.iter().any(|of| end == *of));
    file.parent().filter(is_index).filter(|_| is_of_engine)
}

/// What helps where this file of an event store is damaged.
fn remedy(file: &Path) -> String {
    match index_of(file) {
        Some(folder) => format!(
            "move the folder {} away: it is rebuilt from the event log when the store is opened",
            folder.display()
        ),
        None => "restore the event store from a backup, or have `umbel repair` save what can be \
                 read"
            .to_string(),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Story: damage of the index and of a backup was answered with what helps where events are
    /// lost, and damage of a key-value store with `umbel repair`.
    #[test]
    fn damage_is_told_with_what_helps_that_file() {
        let damage = |path: &str| Error::from(umbel::Error::corruption(Path::new(path), 3, "bad"));
        let in_index = ["shop/index/CURRENT", "shop/index/000006.table", "shop/index"];
        for path in in_index {
            let said = damage(path).to_string();
            assert!(said.contains("move the folder shop/index away: it is rebuilt"), "{said}");
            assert!(!said.contains("repair") && !said.contains("backup"), "{said}");
            assert!(damage(path).is_damage_of_index());
        }
        for path in ["shop/CHUNKS", "shop/log/00000001.chunk", "index/CHUNKS"] {
            let said = damage(path).to_string();
            assert!(said.contains("from a backup, or have `umbel repair`"), "{said}");
            assert!(!damage(path).is_damage_of_index());
        }
        let said = damage("copy/log/00000001.chunk").in_backup().to_string();
        assert!(said.starts_with("corruption in copy/log/00000001.chunk at byte 3: bad; back up"));
        assert!(!said.contains("repair"), "{said}");
    }
}

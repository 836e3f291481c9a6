//! Error kinds of an event store, by what the caller can do about them.

use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use umbel_base::damage_count::StoreError;
use umbel_base::shell_word::quote_path;

use crate::limits::EXPRESSION_BACKTRACKS_MAX;
use crate::types::event::EventId;
use crate::types::expected_version::ExpectedVersion;
use crate::types::stream_state::StreamState;
use crate::types::version_conflict::{PresentEvents, VersionConflict};

/// Directory name of the index.
const INDEX_DIRECTORY: &str = "index";
/// Directory name of the chunks.
const LOG_DIRECTORY: &str = "log";
/// Extensions of the key-value store's files in the index directory.
const INDEX_EXTENSIONS: [&str; 4] = ["manifest", "log", "table", "blob"];

/// Messages of errors without a detail.
const CANCELLED: &str = "the caller cancelled the backup, the restore or the verification; run it \
                         again, and it reuses complete files";
const APPEND_AMBIGUOUS: &str = "the node stopped leading its cluster, or the store was closed, \
                                before the append was acknowledged, so it took effect or not; \
                                retry it with the same event ids";
const NOT_LEADER: &str = "the node does not lead its cluster and wrote nothing; send the request \
                          to the leader";

/// Return type of every fallible function of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Error of an event store. Reading a stream that does not exist is no error.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// A stream does not have the expected revision: read the stream again, then decide again.
    WrongExpectedVersion {
        /// The stream.
        stream: String,
        /// Expected version of the stream.
        expected: ExpectedVersion,
        /// Revision of the stream's last event; `None` without events.
        current: Option<u64>,
        /// Events of the request that are in the stream already, where they are the cause.
        present: Option<PresentEvents>,
    },
    /// The stream was tombstoned and can never be read or written again. Or the stream was deleted,
    /// and the request expects that it exists.
    StreamDeleted {
        /// The stream.
        stream: String,
    },
    /// An event or an append is larger than the limits allow: make the event or append smaller.
    TooLarge {
        /// Id of the event that is too large; `None` if the whole append is too large.
        event: Option<EventId>,
        /// Bytes of the event or append.
        bytes: u64,
        /// Maximum number of bytes of the event or append.
        max_bytes: u64,
    },
    /// An append and the metadata of the deleted streams that it creates again are larger together
    /// than the limits allow: append a small event to these streams first.
    UndeleteTooLarge {
        /// The stream whose metadata exceeds the limit, after those before it.
        stream: String,
        /// The bytes up to this metadata.
        bytes: u64,
        /// Maximum number of bytes.
        max_bytes: u64,
    },
    /// The wall clock is years ahead of the last time that the store believed, so that no event
    /// gets a time: correct the clock, or confirm it with
    /// [`StoreOptions::accept_clock`](crate::StoreOptions::accept_clock).
    ClockRejected {
        /// Directory of the store.
        directory: PathBuf,
        /// Days from the last time that the store believed to the wall clock.
        days: u64,
    },
    /// The event log would exceed its quota,
    /// [`StoreOptions::log_quota_bytes`](crate::StoreOptions::log_quota_bytes): delete or truncate
    /// streams and scavenge, or raise the quota.
    LogQuotaExceeded {
        /// Directory of the store.
        directory: PathBuf,
        /// Bytes of the refused append in the log.
        bytes: u64,
        /// Bytes of the log.
        log_bytes: u64,
        /// Maximum bytes of the log.
        quota_bytes: u64,
    },
    /// Streams do not match the expected versions of a request: read the streams again, then decide
    /// again. Only [`Store::submit_with_conflicts`](crate::Store::submit_with_conflicts) reports
    /// more than the first conflict.
    VersionConflicts(Vec<VersionConflict>),
    /// The request itself is wrong: change the request.
    Invalid(String),
    /// A filter's regular expression takes too long on a name: write another expression.
    RegexTooExpensive {
        /// The expression.
        expression: String,
        /// Name of the stream or the type that was matched.
        name: String,
    },
    /// The caller cancelled a backup, a restore or the verification of a backup by
    /// [`CopyCancellation`](crate::CopyCancellation). An earlier backup in the directory is intact,
    /// and the next backup or the same restore continues with the complete files.
    Cancelled,
    /// The node stopped leading its cluster, or the store was closed, before the append was
    /// acknowledged: retry the append with the same event ids, which finds out whether it took
    /// effect.
    AppendAmbiguous,
    /// The node does not lead its cluster, and wrote nothing: send the request to the leader.
    NotLeader,
    /// Error of the key-value store that holds the index.
    Store(umbel::Error),
    /// Files of a backup do not match what was written: make another backup, or replace the files
    /// from a copy of this backup.
    Backup(umbel::Error),
    /// Another process or handle backs up to the directory or restores from it: try again later.
    BackupInUse(PathBuf),
    /// The disk of a backup is full, read-only or failing: correct that, and back up again. The
    /// store and the previous backup are intact.
    BackupDisk(umbel::Error),
}

impl Error {
    /// Creates an [`Error::Invalid`].
    pub(crate) fn invalid(message: impl Into<String>) -> Error {
        Error::Invalid(message.into())
    }

    /// Whether the error reports that bytes on disk are missing or do not match what was written. A
    /// refusal of the operating system is no evidence of damage.
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

    /// Whether the error reports damage of a file of the index. A damaged index can be removed: the
    /// next open rebuilds it from the event log.
    pub fn is_index_damage(&self) -> bool {
        match self {
            Error::Store(umbel::Error::Corruption { file, .. }) => index_directory(file).is_some(),
            _ => false,
        }
    }

    /// Message without the advice about damage; see `umbel::Error::message_without_advice`.
    pub fn message_without_advice(&self) -> String {
        match self {
            Error::Store(error) | Error::Backup(error) => error.message_without_advice(),
            error => error.to_string(),
        }
    }

    /// Converts damage of a store into damage of a backup.
    pub(crate) fn into_backup_error(self) -> Error {
        match self {
            Error::Store(error @ umbel::Error::Corruption { .. }) => Error::Backup(error),
            error => error,
        }
    }

    /// Converts the error of a wait into that of a call that wrote nothing.
    pub(crate) fn without_append(self) -> Error {
        match self {
            Error::AppendAmbiguous => Error::NotLeader,
            error => error,
        }
    }

    /// Converts an error about several streams into the error of the first one.
    pub fn into_first_conflict(self) -> Error {
        match self {
            Error::VersionConflicts(violations) => match violations.into_iter().next() {
                Some(first) => first.into(),
                None => Error::invalid("no stream was other than expected"),
            },
            error => error,
        }
    }

    /// Returns the streams on whose state this error depends.
    pub(crate) fn streams(&self) -> impl Iterator<Item = &str> {
        let (one, several) = match self {
            Error::WrongExpectedVersion { stream, .. } | Error::StreamDeleted { stream } => {
                (Some(stream), &[][..])
            }
            Error::VersionConflicts(violations) => (None, &violations[..]),
            _ => (None, &[][..]),
        };
        let several = several.iter().map(|violation| &violation.stream);
        one.into_iter().chain(several).map(String::as_str)
    }
}

impl StoreError for Error {
    fn is_store_damage(&self) -> bool {
        matches!(self, Error::Store(error) if error.is_store_damage())
    }
}

impl From<VersionConflict> for Error {
    /// Creates the error that reports only this conflict.
    fn from(violation: VersionConflict) -> Error {
        let VersionConflict { stream, expected, state, present, .. } = violation;
        let current = match state {
            StreamState::Tombstoned => return Error::StreamDeleted { stream },
            StreamState::Deleted { .. } if expected == ExpectedVersion::Exists => {
                return Error::StreamDeleted { stream };
            }
            StreamState::Missing => None,
            StreamState::Live { last, .. } | StreamState::Deleted { last } => Some(last),
        };
        Error::WrongExpectedVersion { stream, expected, current, present }
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
            Error::WrongExpectedVersion { stream, expected, current, present } => {
                write_version_conflict(f, stream, (*expected, *current), present.as_ref())
            }
            Error::StreamDeleted { stream } => write!(
                f,
                "the stream '{}' was tombstoned and accepts no events any more, or it was deleted \
                 but expected to exist; use another name, or expect any state of a deleted stream",
                stream.escape_debug()
            ),
            Error::TooLarge { event: Some(id), bytes, max_bytes } => write!(
                f,
                "event {id} has {bytes} bytes of data and metadata, but may have at most \
                 {max_bytes}; store large data elsewhere and let the event name its place"
            ),
            Error::TooLarge { event: None, bytes, max_bytes } => write!(
                f,
                "the append takes {bytes} bytes, but may take at most {max_bytes}; append its \
                 events in parts"
            ),
            Error::UndeleteTooLarge { stream, bytes, max_bytes } => write!(
                f,
                "the append takes {bytes} bytes with the metadata of the deleted streams that it \
                 creates again, up to that of '{}', but may take {max_bytes}; append a small event \
                 to each of these streams first, in appends of their own",
                stream.escape_debug()
            ),
            Error::ClockRejected { directory, days } => write_rejected_clock(f, directory, *days),
            Error::LogQuotaExceeded { directory, bytes, log_bytes, quota_bytes } => write!(
                f,
                "the event log has {log_bytes} bytes and its quota is {quota_bytes}, so an append \
                 of {bytes} bytes is refused; delete or truncate streams and run `umbel scavenge \
                 --now --connect ADDRESS`, or without a server `umbel scavenge --now --db {}`; or \
                 raise the quota (umbel serve --log-quota)",
                quote_path(directory)
            ),
            Error::VersionConflicts(violations) => write_violations(f, violations),
            Error::Invalid(message) => f.write_str(message),
            Error::RegexTooExpensive { expression, name } => write!(
                f,
                "the expression '{}' takes more than {EXPRESSION_BACKTRACKS_MAX} backtracking \
                 steps on '{}'; write it without repetitions of repetitions, or use prefixes",
                shorten(expression),
                shorten(name)
            ),
            Error::Store(error @ umbel::Error::Corruption { file, .. }) => {
                write!(f, "{}; {}", error.message_without_advice(), advice(file))
            }
            Error::Cancelled => f.write_str(CANCELLED),
            Error::NotLeader => f.write_str(NOT_LEADER),
            Error::AppendAmbiguous => f.write_str(APPEND_AMBIGUOUS),
            Error::Store(error) => error.fmt(f),
            Error::Backup(error) => write!(
                f,
                "{}; back up the store to another directory, or take the file from another copy of \
                 this backup",
                error.message_without_advice()
            ),
            Error::BackupInUse(directory) => write_backup_in_use(f, directory),
            Error::BackupDisk(error) => write_backup_disk(f, error),
        }
    }
}

/// Writes the message about a backup that another process uses.
fn write_backup_in_use(f: &mut fmt::Formatter<'_>, directory: &Path) -> fmt::Result {
    write!(
        f,
        "another process backs up to {} or restores from it; wait until that process has finished",
        directory.display()
    )
}

/// Writes the message about the disk of a backup.
fn write_backup_disk(f: &mut fmt::Formatter<'_>, error: &umbel::Error) -> fmt::Result {
    let (umbel::Error::Io { operation, path, source }
    | umbel::Error::DiskFull { operation, path, source }) = error
    else {
        return write!(f, "{error}");
    };
    let remedy = error.disk_remedy().unwrap_or("check the disk");
    write!(
        f,
        "could not {operation} {}: {source}; this file is in the backup, not in the store: \
         {remedy}, then run the backup again, which continues with the complete files",
        path.display()
    )
}

/// Writes the message about streams without the expected versions, of which it names the first.
fn write_violations(f: &mut fmt::Formatter<'_>, violations: &[VersionConflict]) -> fmt::Result {
    match (violations.len(), violations.first().cloned().map(Error::from)) {
        (0 | 1, Some(first)) => write!(f, "{first}"),
        (count, Some(first)) => write!(f, "{first} ({count} streams in all)"),
        (_, None) => f.write_str("every stream was as expected"),
    }
}

/// Writes the message about a stream without the expected version.
fn write_version_conflict(
    f: &mut fmt::Formatter<'_>,
    stream: &str,
    (expected, current): (ExpectedVersion, Option<u64>),
    present: Option<&PresentEvents>,
) -> fmt::Result {
    let stream = stream.escape_debug();
    if let Some(present) = present {
        return write!(f, "stream '{stream}' refused the append: {present}");
    }
    match (expected, current) {
        // Only a delete requires that the stream exists.
        (ExpectedVersion::Any | ExpectedVersion::NoStream, None) => {
            write!(f, "there is no stream '{stream}'; check its name")
        }
        (_, Some(revision)) => write!(
            f,
            "{expected} of stream '{stream}', but its last revision is {revision}; read the \
             stream and decide again"
        ),
        (_, None) => write!(
            f,
            "{expected} of stream '{stream}', but it has no events; read the stream and decide \
             again"
        ),
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Store(error) | Error::Backup(error) | Error::BackupDisk(error) => Some(error),
            _ => None,
        }
    }
}

/// Returns the index directory, if the file of an event store is in it. The names of the files
/// decide, because a store's own folder may be called `index`, too.
fn index_directory(file: &Path) -> Option<&Path> {
    let is_index = |folder: &&Path| folder.file_name().is_some_and(|name| name == INDEX_DIRECTORY);
    if is_index(&file) {
        return Some(file);
    }
    let is_of_engine = file.file_name().is_some_and(|name| name == "CURRENT")
        || file.extension().is_some_and(|end| INDEX_EXTENSIONS.iter().any(|of| end == *of));
    file.parent().filter(is_index).filter(|_| is_of_engine)
}

/// Advice for damage of this file of an event store.
fn advice(file: &Path) -> String {
    match index_directory(file) {
        Some(folder) => format!(
            "move the directory {} away: the next open rebuilds the index from the event log",
            folder.display()
        ),
        None => format!(
            "restore the event store from a backup, or save the readable events with `umbel repair \
             --db {}`",
            quote_path(store_directory(file))
        ),
    }
}

/// Returns the directory of the event store of a file outside its index. The file can be the
/// directory of the chunks. A store's own directory may be called `log`, too.
fn store_directory(file: &Path) -> &Path {
    let is_log = |path: &&Path| path.file_name().is_some_and(|name| name == LOG_DIRECTORY);
    let log = match file.extension().is_some_and(|end| end == "chunk") {
        true => file.parent().filter(is_log),
        false => Some(file).filter(is_log),
    };
    let directory = log.unwrap_or(file).parent();
    directory.filter(|path| !path.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Writes that the clock is years ahead of a store, and how to correct or confirm it.
fn write_rejected_clock(f: &mut fmt::Formatter<'_>, directory: &Path, days: u64) -> fmt::Result {
    write!(
        f,
        "this machine's clock is {days} days ahead of the last time that the store believed, and \
         every later event would get such a time; correct the clock, or confirm it by opening the \
         store once with accept_clock: without a server run `umbel doctor --accept-clock --db {}`, \
         or start the server once with --accept-clock",
        quote_path(directory)
    )
}

/// Maximum number of characters of a client's text in a message.
const SHOWN_CHARS_MAX: usize = 100;

/// Shortens a text for a message.
pub(crate) fn shorten(text: &str) -> String {
    let mut shown: String =
        text.chars().take(SHOWN_CHARS_MAX).flat_map(char::escape_debug).collect();
    if text.chars().nth(SHOWN_CHARS_MAX).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_damage_of_the_store_is_store_damage() {
        let corruption = || umbel::Error::corruption(Path::new("/events/CHUNKS"), 3, "bad");
        assert!(Error::from(corruption()).is_store_damage());
        let others = [
            Error::invalid("a request"),
            Error::Backup(corruption()),
            Error::BackupDisk(corruption()),
            umbel::Error::Closed.into(),
        ];
        for error in others {
            assert!(!error.is_store_damage(), "{error}");
        }
    }

    /// Regression: damage of the index and of a backup came with the advice for lost events, and
    /// damage of a key-value store with `umbel repair`.
    #[test]
    fn damage_error_names_the_remedy_for_its_file() {
        let damage = |path: &str| Error::from(umbel::Error::corruption(Path::new(path), 3, "bad"));
        let in_index = ["shop/index/CURRENT", "shop/index/000006.table", "shop/index"];
        for path in in_index {
            let error_text = damage(path).to_string();
            assert!(
                error_text.contains("move the directory shop/index away: the next open"),
                "{error_text}"
            );
            assert!(
                !error_text.contains("repair") && !error_text.contains("backup"),
                "{error_text}"
            );
            assert!(damage(path).is_index_damage());
        }
        for path in ["shop/CHUNKS", "shop/log/00000001.chunk", "index/CHUNKS"] {
            let error_text = damage(path).to_string();
            assert!(
                error_text.contains("from a backup, or save the readable events"),
                "{error_text}"
            );
            assert!(!damage(path).is_index_damage());
        }
        // Story: the command named no store, and was refused as it was printed.
        for (path, directory) in [
            ("/my shop/CHUNKS", "'/my shop'"),
            ("/shop/log/00000001.chunk", "/shop"),
            ("/shop/log", "/shop"),
            ("/shop/log/CHUNKS", "/shop/log"),
            ("/shop/log/log/00000001-000002.chunk", "/shop/log"),
            ("/shop/REPAIR", "/shop"),
            ("log/00000001.chunk", "."),
            ("CHUNKS", "."),
        ] {
            let error_text = damage(path).to_string();
            let command = format!("with `umbel repair --db {directory}`");
            assert!(error_text.ends_with(&command), "{error_text}");
        }
        let error_text = damage("copy/log/00000001.chunk").into_backup_error().to_string();
        assert!(
            error_text.starts_with("corruption in copy/log/00000001.chunk at byte 3: bad; back up")
        );
        assert!(!error_text.contains("repair"), "{error_text}");
    }
}

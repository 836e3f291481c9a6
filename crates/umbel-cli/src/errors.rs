//! Errors of commands: one sentence for the operator, one exit code for scripts.

use std::fmt;
use std::io;
use std::path::Path;

use umbel::Error;

use crate::store_kind::{KV_DIRECTORY, is_event_store};

/// The table of exit codes that `--help` prints and `docs/reference/cli.md` repeats.
pub const EXIT_CODES: &str = "\
Exit codes:
  0  success
  1  the key, stream or selected line is absent (get, read, filter check), or removed data is left
  2  refused: an invalid flag, name, number, input line or object store, or no such store
  3  damage: bytes on disk differ from the bytes that were written
  4  refused by the operating system: I/O error, permissions, full disk; or a server failed
  5  another process has the store open, or uses the backup
  6  the event log has reached its quota: appends are refused until an operator makes space
130  stopped by Ctrl-C (lab); finished work is kept";

/// Consequence of moving the index of an event store away.
pub const INDEX_IS_REBUILT: &str = "the next open rebuilds the index from the event log";

/// Error of a command.
#[derive(Debug)]
pub enum CommandError {
    /// The key is not in the store.
    NoSuchKey(String),
    /// No line was selected, which only the exit code reports.
    NothingSelected,
    /// The request is invalid; the message says how to correct it.
    Usage(String),
    /// The command removed data, but the store still has some; the message says how to go on.
    DataLeft(String),
    /// Another process has the store open; the message says how long the command waited.
    Locked(String),
    /// The store refused the request or failed.
    Store(Error),
    /// The operating system refused something outside the store. The message ends with the system's
    /// reason.
    System(String),
    /// The event log has reached its quota; the message says how to make space.
    QuotaReached(String),
    /// Bytes on disk are not what was written; reported by code of the command, not of the store.
    Damaged(String),
    /// The operator stopped the command; the message says which results are kept.
    Stopped(String),
    /// The error was reported already; the command ends with this exit code.
    AlreadyReported(u8),
    /// The reader of the output closed it (as in `| head`), which is no failure.
    OutputClosed,
}

/// Result of every command.
pub type CommandResult<T> = Result<T, CommandError>;

impl CommandError {
    /// Returns a [`CommandError::Usage`].
    pub fn usage(sentence: impl Into<String>) -> CommandError {
        CommandError::Usage(sentence.into())
    }

    /// Returns a [`CommandError::System`]: `doing` is a verb phrase ("read", "create").
    pub fn system(doing: &str, path: &Path, source: &io::Error) -> CommandError {
        CommandError::System(format!("could not {doing} {}: {source}", path.display()))
    }

    /// Returns the error of a failed write to standard output.
    pub fn output(source: &io::Error) -> CommandError {
        if source.kind() == io::ErrorKind::BrokenPipe {
            return CommandError::OutputClosed;
        }
        CommandError::System(format!("could not write to standard output: {source}"))
    }

    /// Returns the error with a sentence before its message and with the same exit code.
    pub fn with_prefix(self, prefix: &str) -> CommandError {
        let join = |text: String| format!("{prefix}: {text}");
        match self {
            CommandError::NoSuchKey(text) => CommandError::NoSuchKey(join(text)),
            CommandError::Usage(text) => CommandError::Usage(join(text)),
            CommandError::DataLeft(text) => CommandError::DataLeft(join(text)),
            CommandError::Locked(text) => CommandError::Locked(join(text)),
            CommandError::System(text) => CommandError::System(join(text)),
            CommandError::QuotaReached(text) => CommandError::QuotaReached(join(text)),
            CommandError::Damaged(text) => CommandError::Damaged(join(text)),
            CommandError::Stopped(text) => CommandError::Stopped(join(text)),
            CommandError::Store(error) => match code_of(&error) {
                2 => CommandError::Usage(join(error.to_string())),
                3 => CommandError::Damaged(join(CommandError::Store(error).to_string())),
                4 => CommandError::System(join(error.to_string())),
                _ => CommandError::Store(error),
            },
            CommandError::NothingSelected => CommandError::NothingSelected,
            CommandError::AlreadyReported(code) => CommandError::AlreadyReported(code),
            CommandError::OutputClosed => CommandError::OutputClosed,
        }
    }

    /// Exit code of the process after this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            CommandError::NoSuchKey(_) | CommandError::DataLeft(_) => 1,
            CommandError::Usage(_) => 2,
            CommandError::Damaged(_) => 3,
            CommandError::System(_) => 4,
            CommandError::Locked(_) => 5,
            CommandError::QuotaReached(_) => 6,
            CommandError::Store(error) => code_of(error),
            CommandError::NothingSelected => 1,
            CommandError::Stopped(_) => 130,
            CommandError::AlreadyReported(code) => *code,
            CommandError::OutputClosed => 0,
        }
    }
}

fn code_of(error: &Error) -> u8 {
    match error {
        Error::Invalid(_) | Error::Conflict(_) => 2,
        Error::Corruption { .. } => 3,
        Error::Locked(_) | Error::Stale { .. } => 5,
        // Io, Full, ReadOnly, Closed, Forked, and kinds to come: the world refused.
        _ => 4,
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommandError::NoSuchKey(text)
            | CommandError::Usage(text)
            | CommandError::DataLeft(text)
            | CommandError::System(text)
            | CommandError::Locked(text)
            | CommandError::QuotaReached(text)
            | CommandError::Stopped(text)
            | CommandError::Damaged(text) => f.write_str(text),
            CommandError::Store(error) => match damage_advice(error) {
                Some(sentence) => f.write_str(&sentence),
                None => error.fmt(f),
            },
            CommandError::NothingSelected => f.write_str("no line was selected"),
            CommandError::AlreadyReported(_) => f.write_str("the error was already reported"),
            CommandError::OutputClosed => f.write_str("standard output was closed"),
        }
    }
}

/// Sentence with the remedy for damage in a subdirectory of an event store other than the event
/// log; `None` for other errors.
fn damage_advice(error: &Error) -> Option<String> {
    let Error::Corruption { file, .. } = error else { return None };
    let mut directories = file.ancestors().skip(1);
    let directory = directories.find(|directory| directory.parent().is_some_and(is_event_store))?;
    let shown = directory.display();
    let advice = match directory.file_name()?.to_str()? {
        "index" => format!("move the directory {shown} away: {INDEX_IS_REBUILT}"),
        KV_DIRECTORY => format!(
            "restore the directory {shown} from a checkpoint or another copy: backups and repairs \
             of an event store do not include keys and values"
        ),
        _ => return None,
    };
    Some(format!("{}; {advice}", error.message_without_advice()))
}

impl From<Error> for CommandError {
    fn from(error: Error) -> CommandError {
        CommandError::Store(error)
    }
}

impl From<umbel_events::Error> for CommandError {
    fn from(error: umbel_events::Error) -> CommandError {
        match error {
            // The event store names the remedy for events, the engine that for keys and values.
            umbel_events::Error::Store(Error::Corruption { .. })
            | umbel_events::Error::Backup(_) => CommandError::Damaged(error.to_string()),
            umbel_events::Error::Store(error) | umbel_events::Error::BackupDisk(error) => {
                CommandError::Store(error)
            }
            umbel_events::Error::BackupInUse(_) => {
                CommandError::Locked(format!("{error}, or wait longer with --wait=SECONDS"))
            }
            umbel_events::Error::LogQuotaExceeded { .. } => {
                CommandError::QuotaReached(error.to_string())
            }
            error => CommandError::Usage(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_kind_has_its_exit_code() {
        let path = Path::new("x");
        let full = Error::io("write", path, io::Error::from(io::ErrorKind::StorageFull));
        let cases = [
            (CommandError::NoSuchKey(String::new()), 1),
            (CommandError::DataLeft(String::new()), 1),
            (CommandError::from(Error::invalid("x")), 2),
            (CommandError::from(Error::corruption(path, 3, "x")), 3),
            (CommandError::from(full), 4),
            (CommandError::from(Error::Closed), 4),
            (CommandError::from(Error::Forked(path.to_path_buf())), 4),
            (CommandError::from(Error::Locked(path.to_path_buf())), 5),
            (CommandError::from(Error::Stale { path: path.to_path_buf(), reason: "x".into() }), 5),
            (
                CommandError::from(umbel_events::Error::LogQuotaExceeded {
                    directory: path.to_path_buf(),
                    bytes: 1,
                    log_bytes: 2,
                    quota_bytes: 3,
                }),
                6,
            ),
            (CommandError::output(&io::Error::from(io::ErrorKind::BrokenPipe)), 0),
        ];
        for (failure, code) in cases {
            assert_eq!(failure.exit_code(), code, "{failure}");
        }
    }

    #[test]
    fn prefix_keeps_exit_code() {
        let failure =
            CommandError::from(Error::corruption(Path::new("x"), 3, "bad")).with_prefix("line 7");
        assert_eq!(failure.exit_code(), 3);
        assert!(failure.to_string().starts_with("line 7: corruption in x at byte 3"));
    }
}

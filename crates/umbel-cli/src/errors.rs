//! What can go wrong, as one sentence for a person and one exit code for a program.

use std::fmt;
use std::io;
use std::path::Path;

use umbel::Error;

use crate::folders::{KV_FOLDER, is_event_store};

/// The table of exit codes that `--help` prints and `docs/cli.md` repeats.
pub const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  the key is not there (get), nor the stream (read); no line is selected (filter check)
  2  the request is wrong: a flag, a name, a number, a line of input, or no such store
  3  bytes on disk are not what was written
  4  the operating system refused: I/O, permissions, a full disk
  5  another process holds the store
130  stopped by Ctrl-C (lab), with what was done kept";

/// What becomes of the index of an event store that is moved away.
pub const INDEX_IS_REBUILT: &str = "it is rebuilt from the event log when the store is opened";

/// Why a command ends without having done what it was asked.
#[derive(Debug)]
pub enum Failure {
    /// The key is not in the store.
    NoSuchKey(String),
    /// No line was selected, which a script may want to know: nothing is said.
    NothingSelected,
    /// The request is wrong; the sentence says how to change it.
    Usage(String),
    /// Another process holds the store; the sentence says whether it was waited for.
    Locked(String),
    /// The engine refused or failed.
    Store(Error),
    /// The operating system refused something outside the store. The text ends with its reason.
    System(String),
    /// Bytes on disk are not what was written, said by somebody else than the engine.
    Damaged(String),
    /// Somebody stopped it; the text says what was kept.
    Stopped(String),
    /// What went wrong was told already, and is worth this exit code.
    Told(u8),
    /// Whoever read the output went away (`| head`): nothing is wrong.
    OutputClosed,
}

/// What every command returns.
pub type Outcome<T> = Result<T, Failure>;

impl Failure {
    /// A [`Failure::Usage`].
    pub fn usage(sentence: impl Into<String>) -> Failure {
        Failure::Usage(sentence.into())
    }

    /// A [`Failure::System`]: `doing` is a verb phrase ("read", "create").
    pub fn system(doing: &str, path: &Path, source: &io::Error) -> Failure {
        Failure::System(format!("could not {doing} {}: {source}", path.display()))
    }

    /// A failed write to standard output.
    pub fn output(source: &io::Error) -> Failure {
        if source.kind() == io::ErrorKind::BrokenPipe {
            return Failure::OutputClosed;
        }
        Failure::System(format!("could not write to standard output: {source}"))
    }

    /// The same failure with a sentence in front; the exit code stays.
    pub fn after(self, prefix: &str) -> Failure {
        let join = |text: String| format!("{prefix}: {text}");
        match self {
            Failure::NoSuchKey(text) => Failure::NoSuchKey(join(text)),
            Failure::Usage(text) => Failure::Usage(join(text)),
            Failure::Locked(text) => Failure::Locked(join(text)),
            Failure::System(text) => Failure::System(join(text)),
            Failure::Damaged(text) => Failure::Damaged(join(text)),
            Failure::Stopped(text) => Failure::Stopped(join(text)),
            Failure::Store(error) => match code_of(&error) {
                2 => Failure::Usage(join(error.to_string())),
                3 => Failure::Damaged(join(Failure::Store(error).to_string())),
                4 => Failure::System(join(error.to_string())),
                _ => Failure::Store(error),
            },
            Failure::NothingSelected => Failure::NothingSelected,
            Failure::Told(code) => Failure::Told(code),
            Failure::OutputClosed => Failure::OutputClosed,
        }
    }

    /// The process's exit code.
    pub fn exit_code(&self) -> u8 {
        match self {
            Failure::NoSuchKey(_) => 1,
            Failure::Usage(_) => 2,
            Failure::Damaged(_) => 3,
            Failure::System(_) => 4,
            Failure::Locked(_) => 5,
            Failure::Store(error) => code_of(error),
            Failure::NothingSelected => 1,
            Failure::Stopped(_) => 130,
            Failure::Told(code) => *code,
            Failure::OutputClosed => 0,
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

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::NoSuchKey(text)
            | Failure::Usage(text)
            | Failure::System(text)
            | Failure::Locked(text)
            | Failure::Stopped(text)
            | Failure::Damaged(text) => f.write_str(text),
            Failure::Store(error) => match advised(error) {
                Some(sentence) => f.write_str(&sentence),
                None => error.fmt(f),
            },
            Failure::NothingSelected => f.write_str("no line was selected"),
            Failure::Told(_) => f.write_str("it was told already"),
            Failure::OutputClosed => f.write_str("standard output was closed"),
        }
    }
}

/// What is said of damage in a folder of an event store in which there are no events, of which
/// nothing else knows that it is one.
fn advised(error: &Error) -> Option<String> {
    let Error::Corruption { file, .. } = error else { return None };
    let mut folders = file.ancestors().skip(1);
    let folder = folders.find(|folder| folder.parent().is_some_and(is_event_store))?;
    let shown = folder.display();
    let advice = match folder.file_name()?.to_str()? {
        "index" => format!("move the folder {shown} away: {INDEX_IS_REBUILT}"),
        KV_FOLDER => format!(
            "restore the folder {shown} from a checkpoint or another copy of it: backups and \
             repairs of an event store leave keys and values out"
        ),
        _ => return None,
    };
    Some(format!("{}; {advice}", error.without_remedy()))
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Store(error)
    }
}

impl From<umbel_events::Error> for Failure {
    fn from(error: umbel_events::Error) -> Failure {
        match error {
            // The event store knows what helps; the engine only what helps keys and values.
            umbel_events::Error::Store(Error::Corruption { .. })
            | umbel_events::Error::Backup(_) => Failure::Damaged(error.to_string()),
            umbel_events::Error::Store(error) => Failure::Store(error),
            error => Failure::Usage(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_code() {
        let path = Path::new("x");
        let full = Error::io("write", path, io::Error::from(io::ErrorKind::StorageFull));
        let cases = [
            (Failure::NoSuchKey(String::new()), 1),
            (Failure::from(Error::invalid("x")), 2),
            (Failure::from(Error::corruption(path, 3, "x")), 3),
            (Failure::from(full), 4),
            (Failure::from(Error::Closed), 4),
            (Failure::from(Error::Forked(path.to_path_buf())), 4),
            (Failure::from(Error::Locked(path.to_path_buf())), 5),
            (Failure::from(Error::Stale { path: path.to_path_buf(), reason: "x".into() }), 5),
            (Failure::output(&io::Error::from(io::ErrorKind::BrokenPipe)), 0),
        ];
        for (failure, code) in cases {
            assert_eq!(failure.exit_code(), code, "{failure}");
        }
    }

    #[test]
    fn a_prefix_keeps_the_code() {
        let failure = Failure::from(Error::corruption(Path::new("x"), 3, "bad")).after("line 7");
        assert_eq!(failure.exit_code(), 3);
        assert!(failure.to_string().starts_with("line 7: corruption in x at byte 3"));
    }
}

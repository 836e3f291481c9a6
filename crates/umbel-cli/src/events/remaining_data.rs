//! Data that is left after `scavenge --now` or `redact` removed it from the event log.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::errors::{CommandError, CommandResult};
use crate::global_options::StoreLimits;
use crate::io::output::Output;
use crate::text::numbers;

/// Copies of which the store knows nothing.
const OTHER_COPIES: &str = "backups, checkpoints and other copies made earlier still have the \
    removed data, and the store does not record where they are: back up into the same directory \
    again, which replaces the files of a backup, and remove other copies; a backup in an object \
    store keeps the data until its retention deletes the earlier states";
/// Maximum number of files that are printed; `--json` has all.
const PRINTED_FILES_MAX: usize = 20;

/// Files and events that still have removed data.
#[derive(Debug, Default)]
pub struct RemainingData {
    /// Hidden events with data.
    hidden_events: u64,
    /// Replaced files that a reader in another process keeps.
    kept: Vec<PathBuf>,
    /// Replaced files that have another name outside of the store.
    linked: Vec<PathBuf>,
}

impl RemainingData {
    /// Collects what a report names. A file that was removed meanwhile does not count as kept.
    pub fn new(hidden_events: u64, kept: Vec<PathBuf>, linked: Vec<PathBuf>) -> RemainingData {
        let kept = kept.into_iter().filter(|file| file.try_exists().unwrap_or(true)).collect();
        RemainingData::reported(hidden_events, kept, linked)
    }

    /// Collects what a report of another machine names.
    pub fn reported(hidden_events: u64, kept: Vec<PathBuf>, linked: Vec<PathBuf>) -> RemainingData {
        RemainingData { hidden_events, kept, linked }
    }

    /// Adds what remains to the JSON report.
    pub fn add_to_json(&self, report: &mut Value) {
        let names = |files: &[PathBuf]| {
            let names = files.iter().map(|file| file.display().to_string());
            names.collect::<Vec<_>>()
        };
        report["files_kept"] = json!(names(&self.kept));
        report["files_with_other_names"] = json!(names(&self.linked));
        report["other_copies"] = json!(OTHER_COPIES);
    }

    /// Prints what remains, and the remedies.
    pub fn print(&self, output: &mut Output) -> CommandResult<()> {
        match self.is_none_in_store() {
            true => output.line("no file of the store has the removed data any more")?,
            false => output.line("files of the store still have removed data")?,
        }
        print_files(
            output,
            "a reader in another process keeps this replaced file; end the reader, then open the \
             store once",
            &self.kept,
        )?;
        print_files(
            output,
            "a copy made of hard links still has this replaced file; remove the copy",
            &self.linked,
        )?;
        output.line(OTHER_COPIES)
    }

    /// Whether the store itself has none of the removed data.
    fn is_none_in_store(&self) -> bool {
        self.hidden_events == 0 && self.kept.is_empty()
    }

    /// Returns an error if the store itself still has removed data. `command` is the command to run
    /// again.
    pub fn check(&self, command: &str) -> CommandResult<()> {
        if self.hidden_events > 0 {
            return Err(CommandError::DataLeft(format!(
                "data of {} is left that became hidden meanwhile; run `{command}` again",
                numbers::counted(self.hidden_events, "event")
            )));
        }
        if let Some(file) = self.kept.first() {
            return Err(CommandError::DataLeft(format!(
                "readers in other processes keep {} with removed data, such as {}; end the \
                 readers, and run `{command}` again",
                numbers::counted(self.kept.len() as u64, "replaced file"),
                file.display()
            )));
        }
        Ok(())
    }
}

fn print_files(output: &mut Output, meaning: &str, files: &[PathBuf]) -> CommandResult<()> {
    for file in files.iter().take(PRINTED_FILES_MAX) {
        output.line(&format!("{}: {meaning}", file.display()))?;
    }
    match files.len().checked_sub(PRINTED_FILES_MAX) {
        Some(more @ 1..) => {
            let more = numbers::counted(more as u64, "more file");
            output.line(&format!("and {more}; --json prints all"))
        }
        _ => Ok(()),
    }
}

/// Adds to a "store in use" error how a server does the work; returns other errors unchanged.
pub fn with_server_remedy(
    failure: CommandError,
    limits: StoreLimits,
    action: &str,
) -> CommandError {
    match limits.with_lock_wait(failure) {
        CommandError::Locked(text) => {
            CommandError::Locked(format!("{text}; if the process is a server, {action}"))
        }
        failure => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_events_that_are_left_end_the_command_with_an_error() {
        let check = |hidden| RemainingData::new(hidden, vec![], vec![]).check("umbel scavenge");
        assert!(check(0).is_ok());
        let failure = check(1234).expect_err("events are left");
        assert_eq!(failure.exit_code(), 1);
        let text = failure.to_string();
        assert!(text.starts_with("data of 1,234 events is left"), "{text}");
        assert!(text.ends_with("run `umbel scavenge` again"), "{text}");
        // A file that was removed after the report does not count.
        let removed = RemainingData::new(0, vec![PathBuf::from("/no/such/file")], vec![]);
        assert!(removed.check("umbel redact").is_ok());
    }
}

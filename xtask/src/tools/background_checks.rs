//! [`BackgroundChecks`]: a command of this program that runs beside the steps of another one.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};

use crate::tools::built_programs;
use crate::tools::check_steps::StepOutcome;

/// Added to the nice value, so that tests that wait for answers have the processors first.
const NICENESS: &str = "15";

/// Priority of background checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// The priority of the other steps, for checks with time limits.
    Usual,
    /// A low one, for checks that keep processors busy.
    Low,
}

/// A running command of this program. Its output goes to a file, and is printed when it is joined.
#[derive(Debug)]
pub struct BackgroundChecks {
    child: Child,
    output: PathBuf,
}

impl BackgroundChecks {
    /// Starts `cargo xtask COMMAND`.
    pub fn start(command: &str, priority: Priority) -> io::Result<BackgroundChecks> {
        let program = std::env::current_exe()?;
        let output = built_programs::target().join(format!("xtask-{command}.txt"));
        // An earlier run that was killed may still write to its file.
        let _ = std::fs::remove_file(&output);
        let start = |mut started: Command| {
            let file = File::create(&output)?;
            started.arg(command).stdin(Stdio::null()).stderr(file.try_clone()?).stdout(file);
            started.spawn()
        };
        let mut nice = Command::new("nice");
        nice.args(["-n", NICENESS]).arg(&program);
        let child = match priority {
            Priority::Usual => start(Command::new(&program))?,
            Priority::Low => start(nice).or_else(|_| start(Command::new(&program)))?,
        };
        Ok(BackgroundChecks { child, output })
    }

    /// Waits for the command, prints its output and returns the sums of its steps.
    pub fn join(mut self) -> StepOutcome {
        let success = self.child.wait().is_ok_and(|status: ExitStatus| status.success());
        let text = match std::fs::read(&self.output) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) => {
                println!("{}: {error}", self.output.display());
                return StepOutcome::of(false);
            }
        };
        print!("{text}");
        outcome(&text, success)
    }
}

/// Returns what a report says: skipped checks by its steps, and sums by its last line.
fn outcome(report: &str, success: bool) -> StepOutcome {
    let mut outcome = StepOutcome::default();
    let skipped = report.lines().filter_map(|line| line.strip_prefix("   skipped: "));
    outcome.skipped.extend(skipped.map(str::to_string));
    outcome.read_line(report.lines().next_back().unwrap_or_default());
    outcome.settle(0, success);
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::check_steps::CheckCounts;

    #[test]
    fn sums_of_the_last_line_and_reasons_of_skips_are_taken() {
        let report = "== torture\nrot: 2 passed, 1 failed, 0 skipped\n   FAILED in 3.0 s\n   \
                      skipped: counts: no `valgrind`\n\n7 passed, 1 failed, 1 skipped\n";
        let read = outcome(report, false);
        assert_eq!(read.counts, CheckCounts { passed: 7, failed: 1 });
        assert_eq!(read.skipped, ["counts: no `valgrind`"]);
    }

    #[test]
    fn command_that_ends_without_a_report_has_failed() {
        let read = outcome("== torture\nthread main panicked\n", false);
        assert_eq!(read.counts, CheckCounts { passed: 0, failed: 1 });
    }
}

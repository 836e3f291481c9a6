//! Runs checks one after the other and reports the time, counts and skipped checks of each.

use std::io::{BufRead, BufReader};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::Violation;

/// Counts of passed and failed checks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CheckCounts {
    /// Number of checks that passed.
    pub passed: u64,
    /// Number of checks that failed.
    pub failed: u64,
}

/// Result of one step.
#[derive(Debug, Default)]
pub struct StepOutcome {
    /// Counts of the step's checks.
    pub counts: CheckCounts,
    /// Each skipped check with its reason.
    pub skipped: Vec<String>,
}

impl StepOutcome {
    /// Returns the outcome of one check that passed or failed.
    pub fn of(passed: bool) -> StepOutcome {
        let counts = CheckCounts { passed: u64::from(passed), failed: u64::from(!passed) };
        StepOutcome { counts, skipped: Vec::new() }
    }

    /// Returns the outcome of one check that was skipped.
    pub fn skip(reason: impl Into<String>) -> StepOutcome {
        StepOutcome { counts: CheckCounts::default(), skipped: vec![reason.into()] }
    }

    /// Adds the counts of another check.
    pub fn add(&mut self, other: StepOutcome) {
        self.counts.passed += other.counts.passed;
        self.counts.failed += other.counts.failed;
        self.skipped.extend(other.skipped);
    }

    /// Adds the counts of a line of a program's output.
    ///
    /// Known lines: the test harness's `test result:` and `test NAME ... ignored, REASON`, a
    /// program's own `N passed, M failed, K skipped`, and `SKIPPED: what: why`. A test prints the
    /// last of these lines if it cannot run on this machine; such a test counts as skipped, not as
    /// passed.
    pub fn read_line(&mut self, line: &str) {
        let line = line.trim();
        if let Some(rest) = line.strip_prefix("SKIPPED: ") {
            self.skipped.push(rest.to_string());
        } else if let Some(rest) = line.strip_prefix("test result:") {
            self.counts.passed += number_before(rest, " passed");
            self.counts.failed += number_before(rest, " failed");
        } else if line.starts_with("test ")
            && let Some((name, reason)) = line.split_once(" ... ignored")
        {
            let reason = reason.trim_start_matches([',', ' ']);
            let name = name.trim_start_matches("test ");
            self.skipped.push(format!("{name}: {reason}"));
        } else if line.ends_with(" skipped") && line.contains(" passed, ") {
            self.counts.passed += number_before(line, " passed");
            self.counts.failed += number_before(line, " failed");
        }
    }

    /// Turns run-time skips, which the harness counted as passed, into skips. Counts one failure
    /// for a program that failed without counting one.
    pub fn settle(&mut self, run_time_skips: u64, success: bool) {
        self.counts.passed = self.counts.passed.saturating_sub(run_time_skips);
        if !success && self.counts.failed == 0 {
            self.counts.failed = 1;
        }
    }
}

/// Returns the number before `word`, or 0.
fn number_before(text: &str, word: &str) -> u64 {
    let Some(end) = text.find(word) else { return 0 };
    let digits = text[..end].rsplit(|c: char| !c.is_ascii_digit()).next().unwrap_or("");
    digits.parse().unwrap_or(0)
}

/// Results of all steps so far.
#[derive(Debug, Default)]
pub struct CheckReport {
    counts: CheckCounts,
    skipped: Vec<String>,
    failed_steps: Vec<String>,
}

impl CheckReport {
    /// Runs a step and prints its name and its time.
    pub fn step(&mut self, name: &str, run: impl FnOnce() -> StepOutcome) {
        println!("== {name}");
        let start = now();
        let outcome = run();
        let took = start.elapsed();
        let verdict = match outcome.counts {
            CheckCounts { failed: 1.., .. } => "FAILED",
            CheckCounts { passed: 0, .. } => "skipped",
            CheckCounts { .. } => "ok",
        };
        println!("   {verdict} in {}", seconds(took));
        for reason in &outcome.skipped {
            println!("   skipped: {reason}");
        }
        if outcome.counts.failed > 0 {
            self.failed_steps.push(name.to_string());
        }
        self.counts.passed += outcome.counts.passed;
        self.counts.failed += outcome.counts.failed;
        self.skipped.extend(outcome.skipped);
    }

    /// Prints the failures and, as the last line, the sum. Returns whether nothing failed.
    pub fn finish(&self) -> bool {
        println!();
        if !self.failed_steps.is_empty() {
            println!("failed: {}", self.failed_steps.join(", "));
        }
        println!("{}", self.summary());
        self.counts.failed == 0
    }

    fn summary(&self) -> String {
        let CheckCounts { passed, failed } = self.counts;
        format!("{passed} passed, {failed} failed, {} skipped", self.skipped.len())
    }
}

/// Prints warnings, one on each line. Warnings fail no check.
pub fn report_warnings(warnings: &[Violation]) {
    for warning in warnings {
        println!("warning: {warning}");
    }
}

/// Prints violations, one on each line. Returns the outcome of one check.
pub fn report_violations(violations: &[Violation]) -> StepOutcome {
    for violation in violations {
        println!("{violation}");
    }
    StepOutcome::of(violations.is_empty())
}

/// Runs a command that passes or fails as a whole.
pub fn run(command: &mut Command) -> StepOutcome {
    match command.status() {
        Ok(status) => StepOutcome::of(status.success()),
        Err(error) => cannot_start(command, &error),
    }
}

/// Runs a command that prints counts, and prints the lines that `show` accepts.
pub fn run_counting(command: &mut Command, mut show: impl FnMut(&str) -> bool) -> StepOutcome {
    let mut outcome = StepOutcome::default();
    let mut child = match command.stdout(Stdio::piped()).spawn() {
        Ok(child) => child,
        Err(error) => return cannot_start(command, &error),
    };
    let mut run_time_skips = 0;
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).split(b'\n') {
            let Ok(line) = line else { break };
            let line = String::from_utf8_lossy(&line);
            let skips = line.trim_start().starts_with("SKIPPED: ");
            run_time_skips += u64::from(skips);
            let shown = show(&line);
            // The output of a passed test is hidden and may look like a summary line.
            if shown || skips {
                outcome.read_line(&line);
            }
            if shown {
                println!("{line}");
            }
        }
    }
    let success = child.wait().is_ok_and(|status: ExitStatus| status.success());
    outcome.settle(run_time_skips, success);
    outcome
}

fn cannot_start(command: &Command, error: &std::io::Error) -> StepOutcome {
    println!("could not start {}: {error}", command.get_program().to_string_lossy());
    StepOutcome::of(false)
}

/// Returns the running cargo, in the root of the checkout.
pub fn cargo() -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(crate::checkout::file_tree::root());
    command
}

/// Returns the present moment, for showing how long a step took.
#[expect(clippy::disallowed_methods, reason = "no test depends on how long a step took")]
pub fn now() -> Instant {
    Instant::now()
}

/// Formats a duration: `0.4 s`, `2 min 3 s`.
pub fn seconds(duration: Duration) -> String {
    let whole = duration.as_secs();
    if whole < 60 {
        return format!("{:.1} s", duration.as_secs_f64());
    }
    format!("{} min {} s", whole / 60, whole % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_of_harness_and_programs_are_counted() {
        let mut outcome = StepOutcome::default();
        for line in [
            "test a ... ok",
            "test b::c ... ignored, needs a loop device",
            "test result: FAILED. 11 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out",
            "40 passed, 3 failed, 2 skipped",
            "SKIPPED: power cut: not root",
        ] {
            outcome.read_line(line);
        }
        assert_eq!(outcome.counts, CheckCounts { passed: 51, failed: 5 });
        assert_eq!(outcome.skipped, ["b::c: needs a loop device", "power cut: not root"]);
    }

    #[test]
    fn crash_counts_as_failure_and_skip_not_as_passed() {
        let mut outcome = StepOutcome::default();
        outcome.read_line("test result: ok. 3 passed; 0 failed; 0 ignored");
        outcome.settle(1, false);
        assert_eq!(outcome.counts, CheckCounts { passed: 2, failed: 1 });
    }

    #[test]
    fn the_report_ends_with_one_line_of_sums() {
        let mut report = CheckReport::default();
        report.step("one", || StepOutcome::of(true));
        report.step("two", || StepOutcome::skip("no compiler"));
        report.step("three", || StepOutcome::of(false));
        assert_eq!(report.summary(), "1 passed, 1 failed, 1 skipped");
        assert!(!report.finish());
    }
}

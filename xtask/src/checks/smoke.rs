//! The smoke test: commands of the binary on a real store in a temporary folder. Each check
//! compares a command's exit code and output, and fails on a panic.

use std::path::Path;
use std::process::{Command, Output};

use crate::tools::built_programs;
use crate::tools::check_steps::{CheckCounts, StepOutcome};

/// One command and its expected result.
struct SmokeCheck {
    arguments: &'static [&'static str],
    code: i32,
    /// Text that standard output must contain, or standard error if the command must fail.
    expected_text: &'static str,
}

const CHECKS: [SmokeCheck; 13] = [
    SmokeCheck { arguments: &["put", "ada", "1815"], code: 0, expected_text: "" },
    SmokeCheck { arguments: &["put", "grace", "1906"], code: 0, expected_text: "" },
    SmokeCheck { arguments: &["get", "ada"], code: 0, expected_text: "1815" },
    SmokeCheck { arguments: &["get", "absent"], code: 1, expected_text: "" },
    SmokeCheck { arguments: &["scan", "--prefix", "g"], code: 0, expected_text: "grace" },
    SmokeCheck { arguments: &["delete", "ada"], code: 0, expected_text: "" },
    SmokeCheck { arguments: &["get", "ada"], code: 1, expected_text: "" },
    SmokeCheck { arguments: &["compact"], code: 0, expected_text: "" },
    SmokeCheck { arguments: &["get", "grace"], code: 0, expected_text: "1906" },
    SmokeCheck { arguments: &["verify"], code: 0, expected_text: "" },
    SmokeCheck { arguments: &["stats"], code: 0, expected_text: "" },
    SmokeCheck {
        arguments: &["get", "--no-such-flag", "ada"],
        code: 2,
        expected_text: "no-such-flag",
    },
    SmokeCheck {
        arguments: &["bench", "--benchmarks=fillseq,readrandom,readmissing", "--num=20000"],
        code: 0,
        expected_text: "readmissing",
    },
];

/// Runs every check. REQUIRES: the binary is built.
pub fn smoke() -> StepOutcome {
    let folder = std::env::temp_dir().join(format!("umbel-smoke-{}", std::process::id()));
    let mut outcome = StepOutcome::default();
    for check in &CHECKS {
        outcome.counts = add(outcome.counts, run_check(check, &folder));
    }
    // Nothing depends on whether the folder goes: its name is this process's own.
    std::fs::remove_dir_all(&folder).ok();
    outcome
}

fn add(counts: CheckCounts, complaint: Option<String>) -> CheckCounts {
    match complaint {
        None => CheckCounts { passed: counts.passed + 1, ..counts },
        Some(complaint) => {
            println!("{complaint}");
            CheckCounts { failed: counts.failed + 1, ..counts }
        }
    }
}

fn run_check(check: &SmokeCheck, folder: &Path) -> Option<String> {
    let shown = format!("umbel {}", check.arguments.join(" "));
    let mut command = Command::new(built_programs::umbel_program());
    command.args(check.arguments).env_remove("UMBEL_DB");
    if check.arguments[0] != "bench" {
        command.env("UMBEL_DB", folder);
    }
    match command.output() {
        Ok(output) => mismatch(check, &output).map(|reason| format!("`{shown}`: {reason}")),
        Err(error) => Some(format!("`{shown}` did not start: {error}")),
    }
}

fn mismatch(check: &SmokeCheck, output: &Output) -> Option<String> {
    let errors = String::from_utf8_lossy(&output.stderr);
    let answer = String::from_utf8_lossy(&output.stdout);
    if errors.contains("panicked") {
        return Some(format!("panicked: {errors}"));
    }
    if output.status.code() != Some(check.code) {
        return Some(format!("ended with {}, not {}: {errors}", output.status, check.code));
    }
    let place = if check.code == 0 { &answer } else { &errors };
    (!place.contains(check.expected_text))
        .then(|| format!("does not say `{}`: {place}", check.expected_text))
}

//! The smoke test: the binary on a real store in a temporary folder, each check one
//! command with the exit code, the output and the absence of a panic that it must have.

use std::path::Path;
use std::process::{Command, Output};

use crate::programs;
use crate::steps::{Counts, Outcome};

/// One command and what it must do.
struct Check {
    arguments: &'static [&'static str],
    code: i32,
    /// Must be part of standard output, or of standard error where the command must fail.
    says: &'static str,
}

const CHECKS: [Check; 13] = [
    Check { arguments: &["put", "ada", "1815"], code: 0, says: "" },
    Check { arguments: &["put", "grace", "1906"], code: 0, says: "" },
    Check { arguments: &["get", "ada"], code: 0, says: "1815" },
    Check { arguments: &["get", "nobody"], code: 1, says: "" },
    Check { arguments: &["scan", "--prefix", "g"], code: 0, says: "grace" },
    Check { arguments: &["delete", "ada"], code: 0, says: "" },
    Check { arguments: &["get", "ada"], code: 1, says: "" },
    Check { arguments: &["compact"], code: 0, says: "" },
    Check { arguments: &["get", "grace"], code: 0, says: "1906" },
    Check { arguments: &["verify"], code: 0, says: "" },
    Check { arguments: &["stats"], code: 0, says: "" },
    Check { arguments: &["get", "--no-such-flag", "ada"], code: 2, says: "no-such-flag" },
    Check {
        arguments: &["bench", "--benchmarks=fillseq,readrandom,readmissing", "--num=20000"],
        code: 0,
        says: "readmissing",
    },
];

/// Runs every check. REQUIRES: the binary is built.
pub fn smoke() -> Outcome {
    let folder = std::env::temp_dir().join(format!("umbel-smoke-{}", std::process::id()));
    let mut outcome = Outcome::default();
    for check in &CHECKS {
        outcome.counts = add(outcome.counts, run_check(check, &folder));
    }
    // Nothing depends on whether the folder goes: its name is this process's own.
    std::fs::remove_dir_all(&folder).ok();
    outcome
}

fn add(counts: Counts, complaint: Option<String>) -> Counts {
    match complaint {
        None => Counts { passed: counts.passed + 1, ..counts },
        Some(complaint) => {
            println!("{complaint}");
            Counts { failed: counts.failed + 1, ..counts }
        }
    }
}

fn run_check(check: &Check, folder: &Path) -> Option<String> {
    let shown = format!("umbel {}", check.arguments.join(" "));
    let mut command = Command::new(programs::umbel());
    command.args(check.arguments).env_remove("UMBEL_DB");
    if check.arguments[0] != "bench" {
        command.env("UMBEL_DB", folder);
    }
    match command.output() {
        Ok(output) => complaint(check, &output).map(|reason| format!("`{shown}`: {reason}")),
        Err(error) => Some(format!("`{shown}` did not start: {error}")),
    }
}

fn complaint(check: &Check, output: &Output) -> Option<String> {
    let errors = String::from_utf8_lossy(&output.stderr);
    let answer = String::from_utf8_lossy(&output.stdout);
    if errors.contains("panicked") {
        return Some(format!("panicked: {errors}"));
    }
    if output.status.code() != Some(check.code) {
        return Some(format!("ended with {}, not {}: {errors}", output.status, check.code));
    }
    let place = if check.code == 0 { &answer } else { &errors };
    (!place.contains(check.says)).then(|| format!("does not say `{}`: {place}", check.says))
}

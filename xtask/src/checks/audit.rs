//! Audit of the dependencies by cargo-deny with `deny.toml`: licences, sources and known
//! vulnerabilities.

use std::path::PathBuf;
use std::process::Command;

use crate::checkout::file_tree;
use crate::tools::check_steps::{StepOutcome, cargo, run};
use crate::tools::{built_programs, tool_install};

/// Version of cargo-deny that is installed if it is missing.
const CARGO_DENY: &str = "0.20.2";

/// Checks that need no network.
const OFFLINE: [&str; 3] = ["bans", "licenses", "sources"];

/// Runs every check with a newly fetched advisory database. If cargo-deny is missing, installs it
/// in the target folder.
pub fn audit() -> StepOutcome {
    let program = match program() {
        Some(program) => program,
        None => match install() {
            Ok(program) => program,
            Err(reason) => return StepOutcome::skip(format!("cargo-deny: {reason}")),
        },
    };
    let mut outcome = run(check(program.clone()).args(OFFLINE));
    let output = match check(program).arg("advisories").output() {
        Ok(output) => output,
        Err(error) => return StepOutcome::skip(format!("cargo-deny: {error}")),
    };
    let text = String::from_utf8_lossy(&output.stderr);
    outcome.add(if text.contains("failed to fetch advisory database") {
        StepOutcome::skip("known vulnerabilities: the advisory database could not be fetched")
    } else {
        print!("{text}");
        StepOutcome::of(output.status.success())
    });
    outcome
}

/// Runs the checks that need no network, if cargo-deny is installed.
pub fn offline() -> StepOutcome {
    match program() {
        Some(program) => run(check(program).args(OFFLINE)),
        None => StepOutcome::skip("cargo-deny is not installed: `cargo xtask audit` installs it"),
    }
}

fn check(program: PathBuf) -> Command {
    let mut command = Command::new(program);
    command.current_dir(file_tree::root()).args(["--log-level", "error", "check"]);
    command
}

/// Returns the path of cargo-deny: in the target folder, otherwise on the `PATH`.
fn program() -> Option<PathBuf> {
    let name = format!("cargo-deny{}", std::env::consts::EXE_SUFFIX);
    let own = tools().join("bin").join(&name);
    [own, PathBuf::from(name)].into_iter().find(|program| {
        Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
    })
}

fn tools() -> PathBuf {
    built_programs::target().join("tools")
}

fn install() -> Result<PathBuf, String> {
    let mut command = cargo();
    command.args(["install", "cargo-deny", "--locked", "--quiet", "--version", CARGO_DENY]);
    tool_install::succeeded("cargo install", command.arg("--root").arg(tools()).output())?;
    program().ok_or_else(|| "the installed cargo-deny does not run".to_string())
}

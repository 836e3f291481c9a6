//! What the dependencies are: their licences, where they come from, and known weaknesses, as
//! cargo-deny finds them and `deny.toml` allows them.

use std::path::PathBuf;
use std::process::Command;

use crate::steps::{Outcome, cargo, run};
use crate::{installed, programs, tree};

/// The version that is installed where there is none.
const CARGO_DENY: &str = "0.20.2";

/// What needs no network.
const OFFLINE: [&str; 3] = ["bans", "licenses", "sources"];

/// Everything, with a list of weaknesses that is fetched anew. Installs cargo-deny beside what is
/// built, where it is not there.
pub fn audit() -> Outcome {
    let program = match program() {
        Some(program) => program,
        None => match install() {
            Ok(program) => program,
            Err(reason) => return Outcome::skip(format!("cargo-deny: {reason}")),
        },
    };
    let mut outcome = run(check(program.clone()).args(OFFLINE));
    let output = match check(program).arg("advisories").output() {
        Ok(output) => output,
        Err(error) => return Outcome::skip(format!("cargo-deny: {error}")),
    };
    let said = String::from_utf8_lossy(&output.stderr);
    outcome.add(if said.contains("failed to fetch advisory database") {
        Outcome::skip("known weaknesses: the list of them could not be fetched")
    } else {
        print!("{said}");
        Outcome::of(output.status.success())
    });
    outcome
}

/// What needs no network, where cargo-deny is there.
pub fn offline() -> Outcome {
    match program() {
        Some(program) => run(check(program).args(OFFLINE)),
        None => Outcome::skip("cargo-deny is not installed: `cargo xtask audit` brings it"),
    }
}

fn check(program: PathBuf) -> Command {
    let mut command = Command::new(program);
    command.current_dir(tree::root()).args(["--log-level", "error", "check"]);
    command
}

/// Where cargo-deny is: beside what is built, or where programs are.
fn program() -> Option<PathBuf> {
    let name = format!("cargo-deny{}", std::env::consts::EXE_SUFFIX);
    let own = tools().join("bin").join(&name);
    [own, PathBuf::from(name)].into_iter().find(|program| {
        Command::new(program).arg("--version").output().is_ok_and(|told| told.status.success())
    })
}

fn tools() -> PathBuf {
    programs::target().join("tools")
}

fn install() -> Result<PathBuf, String> {
    let mut command = cargo();
    command.args(["install", "cargo-deny", "--locked", "--quiet", "--version", CARGO_DENY]);
    installed::succeeded("cargo install", command.arg("--root").arg(tools()).output())?;
    program().ok_or_else(|| "what was installed does not run".to_string())
}

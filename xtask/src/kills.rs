//! Kills of a server while the Python client appends, follows and consumes.

use std::process::Command;

use crate::client_programs::{PYTHON_CLIENT, script};
use crate::steps::{Outcome, run_counting};
use crate::{installed, smoke};

/// Kills a server so many times. REQUIRES: the release binary is built.
pub fn kills(rounds: u32) -> Outcome {
    let python = match installed::python("client-python", "kurrentdbclient", PYTHON_CLIENT) {
        Ok(python) => python,
        Err(reason) => return Outcome::skip(format!("kills of a server: {reason}")),
    };
    let folder = std::env::temp_dir().join(format!("umbel-kills-{}", std::process::id()));
    let mut command = Command::new(python);
    command.arg("-I").arg(script("python_kills.py")).arg(smoke::binary()).arg(&folder);
    command.arg(rounds.to_string()).env_remove("UMBEL_DB");
    let outcome = run_counting(&mut command, |_| true);
    // Nothing depends on whether the folder goes: its name is this process's own.
    std::fs::remove_dir_all(&folder).ok();
    outcome
}

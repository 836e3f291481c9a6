//! Kills of a server while the Python client appends, follows and consumes, and starts after one.

use std::process::Command;

use crate::client_programs::{PYTHON_CLIENT, script};
use crate::steps::{Outcome, run_counting};
use crate::{installed, programs};

/// Kills a server so many times. REQUIRES: the binary is built.
pub fn kills(rounds: u32) -> Outcome {
    with_client("kills", "python_kills.py", u64::from(rounds))
}

/// Kills whoever appended so many events, and starts servers on the store. REQUIRES: the release
/// binary is built.
pub fn starts(events: u64) -> Outcome {
    with_client("starts", "python_start.py", events)
}

fn with_client(what: &str, name: &str, count: u64) -> Outcome {
    let python = match installed::python("client-python", "kurrentdbclient", PYTHON_CLIENT) {
        Ok(python) => python,
        Err(reason) => return Outcome::skip(format!("{what} of a server: {reason}")),
    };
    let folder = std::env::temp_dir().join(format!("umbel-{what}-{}", std::process::id()));
    let mut command = Command::new(python);
    command.arg("-I").arg(script(name)).arg(programs::umbel()).arg(&folder);
    command.arg(count.to_string()).env_remove("UMBEL_DB");
    let outcome = run_counting(&mut command, |_| true);
    // Nothing depends on whether the folder goes: its name is this process's own.
    std::fs::remove_dir_all(&folder).ok();
    outcome
}

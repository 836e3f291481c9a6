//! Kills a server while the Python client appends, subscribes and consumes; ends the leaders of a
//! replicated log; measures starts after a kill.

use std::process::Command;

use crate::clients::client_programs::{PYTHON_CLIENT, script};
use crate::tools::check_steps::{StepOutcome, run_counting};
use crate::tools::{built_programs, tool_install};

/// Kills a server `rounds` times. REQUIRES: the binary is built.
pub fn kill_servers(rounds: u32) -> StepOutcome {
    with_client("kills", "python_kills.py", u64::from(rounds))
}

/// Ends the leader of three nodes `rounds` times. REQUIRES: the binary is built.
pub fn end_leaders(rounds: u32) -> StepOutcome {
    with_client("failovers", "python_failovers.py", u64::from(rounds))
}

/// Kills a writer after `events` events, and measures the starts of servers on the writer's store.
/// REQUIRES: the release binary is built.
pub fn time_starts(events: u64) -> StepOutcome {
    with_client("starts", "python_start_after_kill.py", events)
}

fn with_client(what: &str, name: &str, count: u64) -> StepOutcome {
    let python = match tool_install::python("client-python", "kurrentdbclient", PYTHON_CLIENT) {
        Ok(python) => python,
        Err(reason) => return StepOutcome::skip(format!("{what} of a server: {reason}")),
    };
    let folder = std::env::temp_dir().join(format!("umbel-{what}-{}", std::process::id()));
    let mut command = Command::new(python);
    command.arg("-I").arg(script(name)).arg(built_programs::umbel_program()).arg(&folder);
    command.arg(count.to_string()).env_remove("UMBEL_DB");
    let outcome = run_counting(&mut command, |_| true);
    // Nothing depends on whether the folder goes: its name is this process's own.
    std::fs::remove_dir_all(&folder).ok();
    outcome
}

//! Runs the public client libraries for event stores, unchanged, against the release binary, if
//! this machine has their languages.

use std::path::Path;

use crate::checkout::file_tree;
use crate::clients::client_programs::{
    CaseCounts, ClientLanguages, ClientProgram, PYTHON_CLIENT, Server, count, go, java, node,
    node_groups, node_sessions_and_projections, python, python_groups, python_kv, python_metrics,
    python_sessions_and_projections, rust,
};
use crate::clients::doc_transcript::transcript;
use crate::tools::check_steps::{CheckCounts, StepOutcome};
use crate::tools::tool_install;

pub mod client_programs;
pub mod console;
pub mod doc_transcript;
pub mod secure_clients;
pub mod server_kills;

/// Path of the tutorial about a new user's first events.
const FIRST_EVENTS: &str = "docs/tutorials/first-events.md";

/// The clients, each with its language, its command, and whether the fast checks run it.
const CLIENTS: [(&str, ClientProgram, bool); 5] = [
    ("Python", python, true),
    ("Node", node, true),
    ("Rust", rust, true),
    ("Java", java, false),
    ("Go", go, false),
];

/// Separate programs for the second protocol, projections, persistent subscriptions, keys and
/// values, and the metrics.
const SECONDS: [(&str, ClientProgram); 6] = [
    ("Python", python_sessions_and_projections),
    ("Python", python_groups),
    ("Python", python_kv),
    ("Prometheus", python_metrics),
    ("Node", node_sessions_and_projections),
    ("Node", node_groups),
];

/// Runs every available client. REQUIRES: the binary is built.
pub fn clients(languages: ClientLanguages) -> StepOutcome {
    let folder = std::env::temp_dir().join(format!("umbel-clients-{}", std::process::id()));
    let (mut outcome, mut sums) = (StepOutcome::default(), CaseCounts::new());
    outcome.add(run_clients(&folder, languages, true, &mut sums));
    // The second run continues from saved state, on a restarted server.
    outcome.add(run_clients(&folder, languages, false, &mut sums));
    outcome.add(secure_clients::run_secure_clients(&folder, languages, &mut sums));
    // Nothing depends on whether the folder goes: its name is this process's own.
    std::fs::remove_dir_all(&folder).ok();
    for (language, CheckCounts { passed, failed }) in sums {
        println!("   {language}: {passed} cases passed, {failed} failed");
    }
    outcome.add(first_events());
    outcome
}

/// Runs the clients against a new server. In the first run, each client saves data in a file for
/// the second run, after a restart of the server.
fn run_clients(
    folder: &Path,
    languages: ClientLanguages,
    is_first: bool,
    sums: &mut CaseCounts,
) -> StepOutcome {
    let flags = ["--insecure", "--kv"];
    let server = match Server::start(&folder.join("events"), |command| command.args(flags)) {
        Ok(server) => server,
        Err(complaint) => {
            println!("{complaint}");
            return StepOutcome::of(false);
        }
    };
    let mut outcome = StepOutcome::default();
    let is_asked = |of_few: bool| of_few || languages == ClientLanguages::All;
    for (name, client, _) in CLIENTS.into_iter().filter(|(_, _, of_few)| is_asked(*of_few)) {
        match client() {
            Ok(mut command) => {
                command.arg(&server.connection).arg(folder.join(name));
                if !is_first {
                    command.arg("again");
                }
                count(&mut outcome, sums, name, &mut command);
            }
            Err(reason) if is_first => {
                outcome.add(StepOutcome::skip(format!("the {name} client: {reason}")));
            }
            Err(_) => {}
        }
    }
    // These programs save no state.
    for (name, client) in SECONDS.into_iter().filter(|_| is_first) {
        match client() {
            Ok(mut command) => count(&mut outcome, sums, name, command.arg(&server.connection)),
            // The skipped client of this language is already counted.
            Err(_) if CLIENTS.iter().any(|(client, ..)| *client == name) => {}
            Err(reason) => outcome.add(StepOutcome::skip(format!("{name}: {reason}"))),
        }
    }
    outcome.add(server.stop());
    outcome
}

/// Checks the transcript of the tutorial about a new user's first events.
fn first_events() -> StepOutcome {
    let python = match tool_install::python("client-python", "kurrentdbclient", PYTHON_CLIENT) {
        Ok(python) => python,
        Err(reason) => {
            return StepOutcome::skip(format!("the transcript of first events: {reason}"));
        }
    };
    match std::fs::read_to_string(file_tree::root().join(FIRST_EVENTS)) {
        Ok(page) => transcript(&page, &python),
        Err(error) => {
            println!("FAILED {FIRST_EVENTS}: {error}");
            StepOutcome::of(false)
        }
    }
}

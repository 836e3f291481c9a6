//! Clients against a TLS server that authenticates users, with new authorities and certificates.

use std::path::Path;

use crate::clients::client_programs::{
    CaseCounts, ClientLanguages, ClientProgram, Server, count, go, java, node_script,
    python_script, rust,
};
use crate::tools::check_steps::StepOutcome;
use crate::tools::tool_install::succeeded;

/// The client programs, each with its language, its command, and whether the fast checks run it.
const CLIENTS: [(&str, ClientProgram, bool); 5] = [
    ("Python", || python_script("python_secure.py"), true),
    ("Node", || node_script("node_secure.cjs"), true),
    ("Rust", rust, true),
    ("Java", java, false),
    ("Go", go, false),
];

/// Runs the available clients; unavailable clients were reported before. The folder holds the
/// server's store and certificates.
pub fn run_secure_clients(
    folder: &Path,
    languages: ClientLanguages,
    sums: &mut CaseCounts,
) -> StepOutcome {
    let folder = folder.join("secure");
    let started = certificates(&folder).and_then(|()| {
        Server::start(&folder.join("events"), |command| {
            command
                .arg("--certificate-file")
                .arg(folder.join("server.crt"))
                .arg("--certificate-private-key-file")
                .arg(folder.join("server.key"))
                .arg("--trusted-root-certificates-path")
                .arg(folder.join("ca.crt"))
                .env("UMBEL_ADMIN_PASSWORD", "first")
                .env("UMBEL_OPS_PASSWORD", "second")
        })
    });
    let server = match started {
        Ok(server) => server,
        Err(complaint) => {
            println!("FAILED TLS server: {complaint}");
            return StepOutcome::of(false);
        }
    };
    // Clients verify the host name against the certificate.
    let connection = server.connection.replace("127.0.0.1", "localhost");
    let mut outcome = StepOutcome::default();
    let is_asked = |of_few: bool| of_few || languages == ClientLanguages::All;
    for (name, client, _) in CLIENTS.into_iter().filter(|(_, _, of_few)| is_asked(*of_few)) {
        if let Ok(mut command) = client() {
            let command = command.arg(&connection).arg(&folder).arg("secure");
            count(&mut outcome, sums, name, command);
        }
    }
    outcome.add(server.stop());
    outcome
}

/// Makes certificates with the Rust client, because `xtask`, which has no dependencies, cannot.
fn certificates(folder: &Path) -> Result<(), String> {
    succeeded("umbel-rust-client certificates", rust()?.arg("certificates").arg(folder).output())
}

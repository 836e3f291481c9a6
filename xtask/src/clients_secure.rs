//! Clients against a server that encrypts and asks users who they are, with authorities and
//! certificates that are made for it.

use std::path::Path;

use crate::client_programs::{Client, Server, Sums, count, node_script, python_script, rust};
use crate::installed::succeeded;
use crate::steps::Outcome;

/// What is run, by language.
const CLIENTS: [(&str, Client); 3] = [
    ("Python", || python_script("python_secure.py")),
    ("Node", || node_script("node_secure.cjs")),
    ("Rust", rust),
];

/// Runs the clients; those that cannot be had were told before. Their store and certificates lie
/// in the folder.
pub fn visit(folder: &Path, sums: &mut Sums) -> Outcome {
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
            println!("FAILED a server that encrypts: {complaint}");
            return Outcome::of(false);
        }
    };
    // Clients look for the name that the certificate has.
    let connection = server.connection.replace("127.0.0.1", "localhost");
    let mut outcome = Outcome::default();
    for (name, client) in CLIENTS {
        if let Ok(mut command) = client() {
            let command = command.arg(&connection).arg(&folder).arg("secure");
            count(&mut outcome, sums, name, command);
        }
    }
    outcome.add(server.stop());
    outcome
}

/// Has the client in Rust make them: this program has no libraries.
fn certificates(folder: &Path) -> Result<(), String> {
    succeeded("the making of certificates", rust()?.arg("certificates").arg(folder).output())
}

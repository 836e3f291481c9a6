//! Clients against a server that encrypts and asks users who they are, with authorities and
//! certificates that are made for it.

use std::path::Path;

use crate::client_programs::{
    Client, Languages, Server, Sums, count, go, java, node_script, python_script, rust,
};
use crate::installed::succeeded;
use crate::steps::Outcome;

/// What is run: its language, what runs it, and whether every change waits for it.
const CLIENTS: [(&str, Client, bool); 5] = [
    ("Python", || python_script("python_secure.py"), true),
    ("Node", || node_script("node_secure.cjs"), true),
    ("Rust", rust, true),
    ("Java", java, false),
    ("Go", go, false),
];

/// Runs the clients; those that cannot be had were told before. Their store and certificates lie
/// in the folder.
pub fn visit(folder: &Path, languages: Languages, sums: &mut Sums) -> Outcome {
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
    let is_asked = |of_few: bool| of_few || languages == Languages::All;
    for (name, client, _) in CLIENTS.into_iter().filter(|(_, _, of_few)| is_asked(*of_few)) {
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

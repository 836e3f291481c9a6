//! The clients that event stores have, from their registries and unchanged, against the release
//! binary: those whose language this machine has.

use std::path::Path;

use crate::client_programs::{
    Client, Languages, PYTHON_CLIENT, Server, Sums, count, go, java, node, node_groups,
    node_second, python, python_groups, python_kv, python_second, rust,
};
use crate::steps::{Counts, Outcome};
use crate::transcript::transcript;
use crate::{clients_secure, installed, tree};

/// A newcomer's first events.
const FIRST_EVENTS: &str = "docs/first-events.md";

/// A client: its language, what runs it, and whether every change waits for it.
const CLIENTS: [(&str, Client, bool); 5] = [
    ("Python", python, true),
    ("Node", node, true),
    ("Rust", rust, true),
    ("Java", java, false),
    ("Go", go, false),
];

/// Calls of the second protocol, of projections, of groups, and of keys and values, where a client
/// has them apart.
const SECONDS: [(&str, Client); 5] = [
    ("Python", python_second),
    ("Python", python_groups),
    ("Python", python_kv),
    ("Node", node_second),
    ("Node", node_groups),
];

/// Runs every client that there is. REQUIRES: the binary is built.
pub fn clients(languages: Languages) -> Outcome {
    let folder = std::env::temp_dir().join(format!("umbel-clients-{}", std::process::id()));
    let (mut outcome, mut sums) = (Outcome::default(), Sums::new());
    outcome.add(visit(&folder, languages, true, &mut sums));
    // What was kept is gone on with at a server that was started again.
    outcome.add(visit(&folder, languages, false, &mut sums));
    outcome.add(clients_secure::visit(&folder, languages, &mut sums));
    // Nothing depends on whether the folder goes: its name is this process's own.
    std::fs::remove_dir_all(&folder).ok();
    for (language, Counts { passed, failed }) in sums {
        println!("   {language}: {passed} cases passed, {failed} failed");
    }
    outcome.add(first_events());
    outcome
}

/// Runs the clients against a server that is started for them. The first time each keeps in a file
/// what it needs to go on the second time.
fn visit(folder: &Path, languages: Languages, is_first: bool, sums: &mut Sums) -> Outcome {
    let flags = ["--insecure", "--kv"];
    let server = match Server::start(&folder.join("events"), |command| command.args(flags)) {
        Ok(server) => server,
        Err(complaint) => {
            println!("{complaint}");
            return Outcome::of(false);
        }
    };
    let mut outcome = Outcome::default();
    let is_asked = |of_few: bool| of_few || languages == Languages::All;
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
                outcome.add(Outcome::skip(format!("the {name} client: {reason}")));
            }
            Err(_) => {}
        }
    }
    // These keep nothing to go on with.
    for (name, client) in SECONDS.into_iter().filter(|_| is_first) {
        if let Ok(mut command) = client() {
            count(&mut outcome, sums, name, command.arg(&server.connection));
        }
    }
    outcome.add(server.stop());
    outcome
}

/// The transcript of a newcomer's first events.
fn first_events() -> Outcome {
    let python = match installed::python("client-python", "kurrentdbclient", PYTHON_CLIENT) {
        Ok(python) => python,
        Err(reason) => return Outcome::skip(format!("the transcript of first events: {reason}")),
    };
    match std::fs::read_to_string(tree::root().join(FIRST_EVENTS)) {
        Ok(page) => transcript(&page, &python),
        Err(error) => {
            println!("FAILED {FIRST_EVENTS}: {error}");
            Outcome::of(false)
        }
    }
}

//! The clients that event stores have, from their registries and unchanged, against the release
//! binary: those whose language this machine has.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::installed;
use crate::steps::{Outcome, cargo, run_counting};
use crate::transcript::transcript;
use crate::{smoke, tree};

/// The clients' versions.
const PYTHON_CLIENT: &str = "1.3.5";
const NODE_CLIENT: &str = "1.3.1";

/// A newcomer's first events.
const FIRST_EVENTS: &str = "docs/first-events.md";

/// Runs every client that there is. REQUIRES: the release binary is built.
pub fn clients() -> Outcome {
    let folder = std::env::temp_dir().join(format!("umbel-clients-{}", std::process::id()));
    let mut outcome = Outcome::default();
    outcome.add(visit(&folder, true));
    // What was kept is gone on with at a server that was started again.
    outcome.add(visit(&folder, false));
    // Nothing depends on whether the folder goes: its name is this process's own.
    std::fs::remove_dir_all(&folder).ok();
    outcome.add(first_events());
    outcome
}

/// Runs the clients against a server that is started for them. The first time each keeps in a file
/// what it needs to go on the second time.
fn visit(folder: &Path, is_first: bool) -> Outcome {
    let server = match Server::start(&folder.join("events")) {
        Ok(server) => server,
        Err(complaint) => {
            println!("{complaint}");
            return Outcome::of(false);
        }
    };
    let mut outcome = Outcome::default();
    for (name, client) in [("Python", python as Client), ("Node", node), ("Rust", rust)] {
        match client() {
            Ok(mut command) => {
                command.arg(&server.connection).arg(folder.join(name));
                if !is_first {
                    command.arg("again");
                }
                outcome.add(run_counting(&mut command, |_| true));
            }
            Err(reason) if is_first => {
                outcome.add(Outcome::skip(format!("the {name} client: {reason}")));
            }
            Err(_) => {}
        }
    }
    // Calls of the second protocol, of projections and of groups keep nothing to go on with.
    let seconds =
        [python_second as Client, python_groups, node_second].into_iter().filter(|_| is_first);
    for mut command in seconds.filter_map(|client| client().ok()) {
        outcome.add(run_counting(command.arg(&server.connection), |_| true));
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

/// What runs a client, or why it cannot be had.
type Client = fn() -> Result<Command, String>;

/// The server that the clients talk to.
struct Server {
    process: Child,
    connection: String,
}

impl Server {
    fn start(folder: &Path) -> Result<Server, String> {
        let mut process = Command::new(smoke::binary())
            .arg("--db")
            .arg(folder)
            .args(["serve", "--insecure", "--listen", "127.0.0.1:0"])
            .env_remove("UMBEL_DB")
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("`umbel serve` did not start: {error}"))?;
        let mut connection = String::new();
        if let Some(stdout) = process.stdout.take() {
            // What cannot be read is empty, and complained of below.
            BufReader::new(stdout).read_line(&mut connection).ok();
        }
        let connection = connection.trim().to_string();
        if connection.is_empty() {
            process.kill().ok();
            return Err(format!("`umbel serve` ended: {:?}", process.wait()));
        }
        Ok(Server { process, connection })
    }

    /// Whoever stops it as the system does finds it ending by itself, without an error.
    fn stop(mut self) -> Outcome {
        if !cfg!(unix) {
            self.process.kill().ok();
            self.process.wait().ok();
            return Outcome::default();
        }
        Command::new("kill").arg(self.process.id().to_string()).status().ok();
        let ended = self.process.wait();
        let is_good = ended.as_ref().is_ok_and(std::process::ExitStatus::success);
        println!("{} `umbel serve` ends when it is told to", if is_good { "ok" } else { "FAILED" });
        Outcome::of(is_good)
    }
}

fn script(name: &str) -> PathBuf {
    tree::root().join("xtask").join("clients").join(name)
}

fn python() -> Result<Command, String> {
    python_script("python_client.py")
}

/// Several streams at once, and projections.
fn python_second() -> Result<Command, String> {
    python_script("python_second.py")
}

/// Persistent subscriptions.
fn python_groups() -> Result<Command, String> {
    python_script("python_groups.py")
}

fn python_script(name: &str) -> Result<Command, String> {
    let python = installed::python("client-python", "kurrentdbclient", PYTHON_CLIENT)?;
    let mut command = Command::new(python);
    command.arg("-I").arg(script(name));
    Ok(command)
}

fn node() -> Result<Command, String> {
    node_script("node_client.cjs")
}

/// Several streams at once, and projections.
fn node_second() -> Result<Command, String> {
    node_script("node_second.cjs")
}

fn node_script(name: &str) -> Result<Command, String> {
    let package = "@kurrent/kurrentdb-client";
    let modules = installed::node_modules("client-node", package, NODE_CLIENT)?;
    let mut command = Command::new("node");
    command.arg(script(name)).env("NODE_PATH", modules);
    Ok(command)
}

/// The client that is built from its crate, beside the workspace, so that its many dependencies
/// are nobody else's.
fn rust() -> Result<Command, String> {
    let manifest = script("rust").join("Cargo.toml");
    let mut fetch = cargo();
    fetch.args(["fetch", "--quiet", "--locked", "--manifest-path"]).arg(&manifest);
    installed::succeeded("cargo fetch of the Rust client", fetch.output())?;
    let mut command = cargo();
    command.args(["run", "--quiet", "--locked", "--manifest-path"]).arg(manifest);
    command.arg("--target-dir").arg(smoke::target().join("client-rust")).arg("--");
    Ok(command)
}

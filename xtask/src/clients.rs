//! The clients that event stores have, from their registries and unchanged, against the release
//! binary: those whose language this machine has.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::installed;
use crate::steps::{Counts, Outcome, cargo, run_counting};
use crate::transcript::transcript;
use crate::{smoke, tree};

/// The clients' versions.
const PYTHON_CLIENT: &str = "1.3.5";
const NODE_CLIENT: &str = "1.3.1";
/// Those in Java and Go are in their `pom.xml` and `go.mod`, that in Rust in its `Cargo.toml`.
const JAVA_MAIN: &str = "umbel.Clients";

/// A newcomer's first events.
const FIRST_EVENTS: &str = "docs/first-events.md";

/// Which clients are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Languages {
    /// Those that every change waits for.
    Few,
    /// Those in Java and Go as well, which are built by their own tools.
    All,
}

/// A client: its language, what runs it, and whether every change waits for it.
const CLIENTS: [(&str, Client, bool); 5] = [
    ("Python", python, true),
    ("Node", node, true),
    ("Rust", rust, true),
    ("Java", java, false),
    ("Go", go, false),
];

/// Calls of the second protocol, of projections and of groups, where a client has them apart.
const SECONDS: [(&str, Client); 4] = [
    ("Python", python_second),
    ("Python", python_groups),
    ("Node", node_second),
    ("Node", node_groups),
];

/// How many cases passed and failed, by language.
type Sums = BTreeMap<&'static str, Counts>;

/// Runs every client that there is. REQUIRES: the release binary is built.
pub fn clients(languages: Languages) -> Outcome {
    let folder = std::env::temp_dir().join(format!("umbel-clients-{}", std::process::id()));
    let (mut outcome, mut sums) = (Outcome::default(), Sums::new());
    outcome.add(visit(&folder, languages, true, &mut sums));
    // What was kept is gone on with at a server that was started again.
    outcome.add(visit(&folder, languages, false, &mut sums));
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
    let server = match Server::start(&folder.join("events")) {
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
    // Calls of the second protocol, of projections and of groups keep nothing to go on with.
    for (name, client) in SECONDS.into_iter().filter(|_| is_first) {
        if let Ok(mut command) = client() {
            count(&mut outcome, sums, name, command.arg(&server.connection));
        }
    }
    outcome.add(server.stop());
    outcome
}

fn count(outcome: &mut Outcome, sums: &mut Sums, name: &'static str, command: &mut Command) {
    let counted = run_counting(command, |_| true);
    let sum = sums.entry(name).or_default();
    sum.passed += counted.counts.passed;
    sum.failed += counted.counts.failed;
    outcome.add(counted);
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

/// Persistent subscriptions.
fn node_groups() -> Result<Command, String> {
    node_script("node_groups.cjs")
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

/// The client in Java: Maven brings it and compiles the cases, Java runs them.
fn java() -> Result<Command, String> {
    let folder = smoke::target().join("client-java");
    let built = Command::new(if cfg!(windows) { "mvn.cmd" } else { "mvn" })
        .args(["--batch-mode", "--quiet", "--file"])
        .arg(script("java").join("pom.xml"))
        .arg(format!("-Dbuild.folder={}", folder.display()))
        .arg("process-classes")
        .output();
    installed::succeeded("mvn process-classes", built)?;
    let mut command = Command::new("java");
    let classes = [folder.join("classes"), folder.join("lib").join("*")];
    let classes = std::env::join_paths(classes).map_err(|error| error.to_string())?;
    command.arg("-cp").arg(classes).arg(JAVA_MAIN);
    Ok(command)
}

/// The client in Go: its module is fetched by Go, and the cases are built beside it.
fn go() -> Result<Command, String> {
    let program = smoke::target().join("client-go");
    let built = Command::new("go")
        .args(["build", "-mod=readonly", "-o"])
        .arg(&program)
        .arg(".")
        .current_dir(script("go"))
        .output();
    installed::succeeded("go build of the Go client", built)?;
    Ok(Command::new(program))
}

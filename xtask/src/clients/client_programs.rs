//! What runs the clients, the server they talk to, and how their cases are counted.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::installed;
use crate::steps::{Counts, Outcome, cargo, run_counting};
use crate::{programs, tree};

/// The clients' versions.
pub const PYTHON_CLIENT: &str = "1.3.5";
const NODE_CLIENT: &str = "1.3.1";
/// Those in Java and Go are in their `pom.xml` and `go.mod`, that in Rust in its `Cargo.toml`.
const JAVA_MAIN: &str = "umbel.Clients";

/// Which clients are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Languages {
    /// Those that every change waits for.
    Few,
    /// Those in Java and Go as well, which are built by their own tools.
    All,
}

/// How many cases passed and failed, by language.
pub type Sums = BTreeMap<&'static str, Counts>;

/// Runs a client and counts its cases.
pub fn count(outcome: &mut Outcome, sums: &mut Sums, name: &'static str, command: &mut Command) {
    let counted = run_counting(command, |_| true);
    let sum = sums.entry(name).or_default();
    sum.passed += counted.counts.passed;
    sum.failed += counted.counts.failed;
    outcome.add(counted);
}

/// What runs a client, or why it cannot be had.
pub type Client = fn() -> Result<Command, String>;

/// The server that the clients talk to.
pub struct Server {
    process: Child,
    /// What clients connect with.
    pub connection: String,
}

impl Server {
    /// Starts one on the store in this folder, as a command with more flags or variables says.
    pub fn start(
        folder: &Path,
        say: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Result<Server, String> {
        let mut command = Command::new(programs::umbel());
        command.arg("--db").arg(folder).args(["serve", "--listen", "127.0.0.1:0"]);
        let mut process = say(&mut command)
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
    pub fn stop(mut self) -> Outcome {
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

/// Where a client lies.
pub fn script(name: &str) -> PathBuf {
    tree::root().join("xtask").join("clients").join(name)
}

/// The client in Python.
pub fn python() -> Result<Command, String> {
    python_script("python_client.py")
}

/// Several streams at once, and projections.
pub fn python_second() -> Result<Command, String> {
    python_script("python_second.py")
}

/// Persistent subscriptions.
pub fn python_groups() -> Result<Command, String> {
    python_script("python_groups.py")
}

/// Keys and values, with nothing of the client but the gRPC that it brings along.
pub fn python_kv() -> Result<Command, String> {
    python_script("python_kv.py")
}

/// A script for the client in Python.
pub fn python_script(name: &str) -> Result<Command, String> {
    let python = installed::python("client-python", "kurrentdbclient", PYTHON_CLIENT)?;
    let mut command = Command::new(python);
    command.arg("-I").arg(script(name));
    Ok(command)
}

/// The client in Node.
pub fn node() -> Result<Command, String> {
    node_script("node_client.cjs")
}

/// Several streams at once, and projections.
pub fn node_second() -> Result<Command, String> {
    node_script("node_second.cjs")
}

/// Persistent subscriptions.
pub fn node_groups() -> Result<Command, String> {
    node_script("node_groups.cjs")
}

/// A script for the client in Node.
pub fn node_script(name: &str) -> Result<Command, String> {
    let package = "@kurrent/kurrentdb-client";
    let modules = installed::node_modules("client-node", package, NODE_CLIENT)?;
    let mut command = Command::new("node");
    command.arg(script(name)).env("NODE_PATH", modules);
    Ok(command)
}

/// The client that is built from its crate, beside the workspace, so that its many dependencies
/// are nobody else's.
pub fn rust() -> Result<Command, String> {
    let manifest = script("rust").join("Cargo.toml");
    let mut fetch = cargo();
    fetch.args(["fetch", "--quiet", "--locked", "--manifest-path"]).arg(&manifest);
    installed::succeeded("cargo fetch of the Rust client", fetch.output())?;
    let mut command = cargo();
    command.args(["run", "--quiet", "--locked", "--manifest-path"]).arg(manifest);
    command.arg("--target-dir").arg(programs::target().join("client-rust")).arg("--");
    Ok(command)
}

/// The client in Java: Maven brings it and compiles the cases, Java runs them.
pub fn java() -> Result<Command, String> {
    let folder = programs::target().join("client-java");
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
pub fn go() -> Result<Command, String> {
    let program = programs::target().join("client-go");
    let built = Command::new("go")
        .args(["build", "-mod=readonly", "-o"])
        .arg(&program)
        .arg(".")
        .current_dir(script("go"))
        .output();
    installed::succeeded("go build of the Go client", built)?;
    Ok(Command::new(program))
}

//! Commands that run the client programs, the server to which the programs connect, and counts of
//! their cases.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::checkout::file_tree;
use crate::tools::built_programs;
use crate::tools::check_steps::{CheckCounts, StepOutcome, cargo, run_counting};
use crate::tools::tool_install::{self, NodePackage};

/// Version of the Python client.
pub const PYTHON_CLIENT: &str = "1.3.5";
/// Version of the Python package with the parsers of Prometheus's formats.
const PROMETHEUS_CLIENT: &str = "0.26.0";
const NODE_CLIENT: &str = "1.3.1";
/// Main class of the Java program. The versions of the Java, Go and Rust clients are in `pom.xml`,
/// `go.mod` and `Cargo.toml`.
const JAVA_MAIN: &str = "umbel.Clients";

/// Set of clients to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientLanguages {
    /// The clients of the fast checks.
    Few,
    /// All clients, including those in Java and Go, which need their own build tools.
    All,
}

/// Counts of passed and failed cases, by language.
pub type CaseCounts = BTreeMap<&'static str, CheckCounts>;

/// Runs a client program and counts its cases.
pub fn count(
    outcome: &mut StepOutcome,
    sums: &mut CaseCounts,
    name: &'static str,
    command: &mut Command,
) {
    let counted = run_counting(command, |_| true);
    let sum = sums.entry(name).or_default();
    sum.passed += counted.counts.passed;
    sum.failed += counted.counts.failed;
    outcome.add(counted);
}

/// Builds the command that runs a client, or returns why it is not available.
pub type ClientProgram = fn() -> Result<Command, String>;

/// The server that the clients connect to.
pub struct Server {
    process: Child,
    /// Connection string for the clients.
    pub connection: String,
}

impl Server {
    /// Starts a server on the store in this folder, with further flags and variables of a command.
    pub fn start(
        folder: &Path,
        say: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Result<Server, String> {
        Server::start_at(0, folder, say)
    }

    /// Starts a server like [`Server::start`] at this port; 0 is any free port.
    pub fn start_at(
        port: u16,
        folder: &Path,
        say: impl FnOnce(&mut Command) -> &mut Command,
    ) -> Result<Server, String> {
        let mut command = Command::new(built_programs::umbel_program());
        command.arg("--db").arg(folder).args(["serve", "--listen", &format!("127.0.0.1:{port}")]);
        // Flags of `say` override the variable. Kills of the process need no fsync.
        command.env("UMBEL_DURABILITY", "buffered");
        let mut process = say(&mut command)
            .env_remove("UMBEL_DB")
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("`umbel serve` did not start: {error}"))?;
        let mut connection = String::new();
        if let Some(stdout) = process.stdout.take() {
            // A failed read leaves the line empty, which is reported below.
            BufReader::new(stdout).read_line(&mut connection).ok();
        }
        let connection = connection.trim().to_string();
        if connection.is_empty() {
            process.kill().ok();
            return Err(format!("`umbel serve` ended: {:?}", process.wait()));
        }
        Ok(Server { process, connection })
    }

    /// Process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Waits until the server ends by itself.
    pub fn wait(mut self) {
        // A server that cannot be waited for has ended.
        let _ = self.process.wait();
    }

    /// Port of the connection string.
    pub fn port(&self) -> Option<u16> {
        let (_, rest) = self.connection.split_once("127.0.0.1:")?;
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..digits].parse().ok()
    }

    /// Sends SIGTERM. Fails unless the server then ends by itself, without an error.
    pub fn stop(mut self) -> StepOutcome {
        if !cfg!(unix) {
            self.process.kill().ok();
            self.process.wait().ok();
            return StepOutcome::default();
        }
        Command::new("kill").arg(self.process.id().to_string()).status().ok();
        let ended = self.process.wait();
        let is_good = ended.as_ref().is_ok_and(std::process::ExitStatus::success);
        println!("{} `umbel serve` ends on SIGTERM", if is_good { "ok" } else { "FAILED" });
        StepOutcome::of(is_good)
    }
}

/// Returns the path of a client program.
pub fn script(name: &str) -> PathBuf {
    file_tree::root().join("xtask").join("clients").join(name)
}

/// Returns the command of the Python client.
pub fn python() -> Result<Command, String> {
    python_script("python_client.py")
}

/// Returns the Python program for multi-stream appends and projections.
pub fn python_sessions_and_projections() -> Result<Command, String> {
    python_script("python_sessions_and_projections.py")
}

/// Returns the Python program for persistent subscriptions.
pub fn python_groups() -> Result<Command, String> {
    python_script("python_groups.py")
}

/// Returns the Python program for keys and values; the program uses only gRPC and no client
/// library.
pub fn python_kv() -> Result<Command, String> {
    python_script("python_kv.py")
}

/// Returns the Python program that parses the metrics; it needs no client of event stores.
pub fn python_metrics() -> Result<Command, String> {
    let package = "prometheus_client";
    let mut command =
        Command::new(tool_install::python("metrics-parsers", package, PROMETHEUS_CLIENT)?);
    command.arg("-I").arg(script("python_metrics.py"));
    Ok(command)
}

/// Returns the command that runs a Python program with the client installed.
pub fn python_script(name: &str) -> Result<Command, String> {
    let python = tool_install::python("client-python", "kurrentdbclient", PYTHON_CLIENT)?;
    let mut command = Command::new(python);
    command.arg("-I").arg(script(name));
    Ok(command)
}

/// Returns the command of the Node client.
pub fn node() -> Result<Command, String> {
    node_script("node_client.cjs")
}

/// Returns the Node program for multi-stream appends and projections.
pub fn node_sessions_and_projections() -> Result<Command, String> {
    node_script("node_sessions_and_projections.cjs")
}

/// Returns the Node program for persistent subscriptions.
pub fn node_groups() -> Result<Command, String> {
    node_script("node_groups.cjs")
}

/// Returns the command that runs a Node program with the client installed.
pub fn node_script(name: &str) -> Result<Command, String> {
    let client = "@kurrent/kurrentdb-client";
    let package = NodePackage { name: client, module: client, version: NODE_CLIENT };
    let modules = tool_install::node_modules("client-node", &package)?;
    let mut command = Command::new("node");
    command.arg(script(name)).env("NODE_PATH", modules);
    Ok(command)
}

/// Builds the Rust client from its crate outside the workspace, so that no other package gets its
/// many dependencies.
pub fn rust() -> Result<Command, String> {
    let manifest = script("rust").join("Cargo.toml");
    let mut fetch = cargo();
    fetch.args(["fetch", "--quiet", "--locked", "--manifest-path"]).arg(&manifest);
    tool_install::succeeded("cargo fetch of the Rust client", fetch.output())?;
    let mut command = cargo();
    command.args(["run", "--quiet", "--locked", "--manifest-path"]).arg(manifest);
    command.arg("--target-dir").arg(built_programs::target().join("client-rust")).arg("--");
    Ok(command)
}

/// Compiles the Java cases with Maven, which downloads the client, and returns the command.
pub fn java() -> Result<Command, String> {
    let folder = built_programs::target().join("client-java");
    let built = Command::new(if cfg!(windows) { "mvn.cmd" } else { "mvn" })
        .args(["--batch-mode", "--quiet", "--file"])
        .arg(script("java").join("pom.xml"))
        .arg(format!("-Dbuild.folder={}", folder.display()))
        .arg("process-classes")
        .output();
    tool_install::succeeded("mvn process-classes", built)?;
    let mut command = Command::new("java");
    let classes = [folder.join("classes"), folder.join("lib").join("*")];
    let classes = std::env::join_paths(classes).map_err(|error| error.to_string())?;
    command.arg("-cp").arg(classes).arg(JAVA_MAIN);
    Ok(command)
}

/// Downloads the Go module, builds the Go cases and returns the command.
pub fn go() -> Result<Command, String> {
    let program = built_programs::target().join("client-go");
    let built = Command::new("go")
        .args(["build", "-mod=readonly", "-o"])
        .arg(&program)
        .arg(".")
        .current_dir(script("go"))
        .output();
    tool_install::succeeded("go build of the Go client", built)?;
    Ok(Command::new(program))
}

//! The suite of the Rust client, whose crate contains its tests. They start servers through the
//! crate `testcontainers`, in whose place `xtask/suites/testcontainers` starts `umbel serve`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::checkout::file_tree;
use crate::clients::client_programs::Server;
use crate::suites::SuiteRun;
use crate::suites::published_sources::{replace_folder, suite_folder};
use crate::suites::test_certificates;
use crate::suites::test_results::{TestResults, Verdict, read_step_output};
use crate::tools::built_programs;
use crate::tools::tool_install;

/// Version of the crate, which the client program of `xtask/clients/rust` uses too.
const VERSION: &str = "1.2.0";
/// The dependency in the published manifest that is replaced.
const CONTAINERS: &str = "[dev-dependencies.testcontainers]\nversion = \"0.23\"";
/// Endpoints of the cluster in the sources of the tests.
const CLUSTER: &str = "localhost:2111,localhost:2112,localhost:2113";
/// Longest time of a test, in seconds.
const TEST_SECONDS: &str = "300";

/// Whether the tests encrypt, which their compilation decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encryption {
    Insecure,
    Secure,
}

/// Tests of the crate. Each needs a process of its own, and starts its own server.
const TESTS: [(Encryption, &str); 15] = [
    (Encryption::Insecure, "single_node_streams"),
    (Encryption::Insecure, "single_node_persistent_subscriptions"),
    (Encryption::Insecure, "single_node_projections"),
    (Encryption::Insecure, "single_node_operations"),
    (Encryption::Insecure, "single_node_discover_error"),
    (Encryption::Insecure, "single_node_auto_resub_on_connection_drop"),
    (Encryption::Secure, "single_node_streams"),
    (Encryption::Secure, "single_node_persistent_subscriptions"),
    (Encryption::Secure, "single_node_operations"),
    (Encryption::Secure, "plugin_usercertificates"),
    (Encryption::Secure, "root_certificates"),
    (Encryption::Secure, "cluster_streams"),
    (Encryption::Secure, "cluster_persistent_subscriptions"),
    (Encryption::Secure, "cluster_projections"),
    (Encryption::Secure, "cluster_operations"),
];

/// Runs the suite. A server of one node stands in place of the cluster.
pub fn run_rust_suite() -> SuiteRun {
    let folder = suite_folder("rust");
    let published = match published_crate() {
        Ok(published) => published,
        Err(reason) => return SuiteRun::Unavailable(reason),
    };
    let source = folder.join("source");
    let certificates = source.join("certs");
    let prepared = replace_folder(&published, &source, &edit).and_then(|()| {
        std::fs::remove_file(source.join("Cargo.lock")).ok();
        test_certificates::create(&certificates)
    });
    if let Err(reason) = prepared {
        return SuiteRun::Unavailable(reason);
    }
    let stores = std::env::temp_dir().join(format!("umbel-suite-rust-{}", std::process::id()));
    let run = run_tests(&folder, &source, &stores);
    // Nothing depends on whether the folder goes: its name is this process's own.
    std::fs::remove_dir_all(&stores).ok();
    run.map_or_else(SuiteRun::Broken, SuiteRun::Ran)
}

/// Downloads the crate with the dependencies of the client program; returns the crate's folder.
fn published_crate() -> Result<PathBuf, String> {
    let manifest = file_tree::root().join("xtask/clients/rust/Cargo.toml");
    let mut command = Command::new("cargo");
    command.args(["metadata", "--locked", "--format-version", "1", "--manifest-path"]);
    let output = command.arg(manifest).output();
    let answer = output.as_ref().map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let answer = answer.unwrap_or_default();
    tool_install::succeeded("cargo metadata", output)?;
    crate_folder(&answer).ok_or_else(|| format!("`cargo metadata` names no kurrentdb {VERSION}"))
}

/// Returns the folder of the client's crate in the output of `cargo metadata`.
fn crate_folder(metadata: &str) -> Option<PathBuf> {
    let ending = format!("/kurrentdb-{VERSION}/Cargo.toml\"");
    let end = metadata.find(&ending)? + ending.len() - "/Cargo.toml\"".len();
    let start = metadata[..end].rfind('"')? + 1;
    Some(PathBuf::from(&metadata[start..end]))
}

/// Returns the text of a changed file: the manifest, and the test with the cluster's endpoints.
fn edit(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    if name != "Cargo.toml" && name != "integration.rs" {
        return None;
    }
    let text = std::fs::read_to_string(path).ok()?;
    if name == "integration.rs" {
        let endpoint = "localhost:{}?tlsVerifyCert=false&nodePreference=leader";
        let literal =
            format!("\"esdb://admin:changeit@{CLUSTER}?tlsVerifyCert=false&nodePreference=leader");
        let formatted = format!(
            "format!(\"esdb://admin:changeit@{endpoint}&maxdiscoverattempts=50&defaultDeadline=60000\", \
             std::env::var(\"UMBEL_SUITE_CLUSTER_PORT\")?)"
        );
        let begin = text.find(&literal)?;
        let end = begin + 1 + text[begin + 1..].find('"')? + 1;
        return Some(format!("{}{formatted}{}", &text[..begin], &text[end..]));
    }
    let stand_in = file_tree::root().join("xtask/suites/testcontainers");
    let replaced = format!("[dev-dependencies.testcontainers]\npath = {stand_in:?}");
    Some(format!("{}\n[workspace]\n", text.replace(CONTAINERS, &replaced)))
}

fn run_tests(folder: &Path, source: &Path, stores: &Path) -> Result<TestResults, String> {
    let cluster = Server::start(&stores.join("cluster"), |command| {
        test_certificates::add_flags(command, &source.join("certs"))
            .env("UMBEL_ADMIN_PASSWORD", "changeit")
            .env("UMBEL_OPS_PASSWORD", "changeit")
    })?;
    let port = cluster.port().ok_or("the server printed no port")?.to_string();
    let mut results = TestResults::default();
    for (encryption, test) in TESTS {
        let kind = if encryption == Encryption::Secure { "secure" } else { "insecure" };
        let log = folder.join(format!("{kind}-{test}.log"));
        println!("   {test}, {kind}, output in {}", log.display());
        let file = std::fs::File::create(&log).map_err(|it| format!("{}: {it}", log.display()))?;
        // Ends tests that wait for ever.
        let mut command = Command::new("timeout");
        command.args([TEST_SECONDS, "cargo", "test", "--test", "integration", test, "--"]);
        command.args(["--exact", "--nocapture", "--test-threads=1"]).current_dir(source);
        command.env("CARGO_TARGET_DIR", folder.join("target")).env("NO_COLOR", "1");
        command.env("UMBEL_SUITE_PROGRAM", built_programs::umbel_program());
        command.env("UMBEL_SUITE_STORES", stores).env("UMBEL_SUITE_CLUSTER_PORT", &port);
        command.env_remove("SECURE").stderr(Stdio::null());
        if encryption == Encryption::Secure {
            command.env("SECURE", "true");
        }
        let run = command.stdout(file).status();
        run.map_err(|error| format!("`cargo test` did not start: {error}"))?;
        let output = std::fs::read(&log).map_err(|it| format!("{}: {it}", log.display()))?;
        let found = read_step_output(test, &String::from_utf8_lossy(&output));
        results.add_all(&format!("{kind}:"), found);
    }
    // A test of the cluster shuts this server down.
    cluster.stop();
    let reason = "its projections are programs in JavaScript, as those of the insecure run";
    results.add("secure:single_node_projections", Verdict::Skipped(reason.to_string()));
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_the_crate_is_read() {
        let metadata = "{\"manifest_path\":\"/r/kurrentdb-macros-0.0.1/Cargo.toml\"},\
                        {\"manifest_path\":\"/r/src/kurrentdb-1.2.0/Cargo.toml\"}";
        assert_eq!(crate_folder(metadata), Some(PathBuf::from("/r/src/kurrentdb-1.2.0")));
        assert_eq!(crate_folder("{}"), None);
    }
}

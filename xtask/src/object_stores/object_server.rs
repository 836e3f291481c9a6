//! [`ObjectServer`]: a program that serves an object store for checks.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::checkout::file_tree;
use crate::tools::tool_install::{self, PythonPackage};

/// moto, which answers as Amazon's S3 does, with signatures and policies checked.
const MOTO: PythonPackage<'_> =
    PythonPackage { name: "moto", extras: "[s3,server]", module: "moto", version: "5.2.5" };

/// Variables of tests, and the settings of a server that they have.
const TEST_VARIABLES: [(&str, &str); 6] = [
    ("UMBEL_TEST_S3", "endpoint"),
    ("UMBEL_TEST_S3_BUCKET", "bucket"),
    ("UMBEL_TEST_S3_ID", "id"),
    ("UMBEL_TEST_S3_SECRET", "secret"),
    ("UMBEL_TEST_S3_READER_ID", "reader_id"),
    ("UMBEL_TEST_S3_READER_SECRET", "reader_secret"),
];

/// A running server, which ends when this value is dropped.
#[derive(Debug)]
pub struct ObjectServer {
    process: Child,
    settings: BTreeMap<String, String>,
}

impl ObjectServer {
    /// Version of moto.
    pub const MOTO_VERSION: &'static str = MOTO.version;

    /// Starts moto. The error says what is missing.
    pub fn moto() -> Result<ObjectServer, String> {
        ObjectServer::moto_with(false)
    }

    /// Starts moto, with or without the conditions of creations.
    pub fn moto_with(ignores_conditions: bool) -> Result<ObjectServer, String> {
        let script = file_tree::root().join("xtask/object_servers/moto_server.py");
        let mut command = Command::new(ObjectServer::moto_python()?);
        command.arg("-I").arg(script);
        command.args(ignores_conditions.then_some("--ignore-conditions"));
        ObjectServer::start(&mut command)
    }

    /// Returns a Python with moto, and with Amazon's client.
    pub fn moto_python() -> Result<PathBuf, String> {
        tool_install::python_package("moto", &MOTO)
    }

    /// Returns a setting that the server printed.
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str)
    }

    /// Starts a program that prints a line of settings, and ends with its standard input.
    fn start(command: &mut Command) -> Result<ObjectServer, String> {
        let process =
            without_cloud_variables(command).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let process = process.map_err(|error| format!("the server did not start: {error}"))?;
        let mut server = ObjectServer { process, settings: BTreeMap::new() };
        let mut line = String::new();
        if let Some(stdout) = server.process.stdout.take() {
            // A failed read leaves the line empty, which is reported below.
            BufReader::new(stdout).read_line(&mut line).ok();
        }
        let settings = line.trim().split('\t').filter_map(|setting| setting.split_once('='));
        server.settings =
            settings.map(|(name, value)| (name.to_string(), value.to_string())).collect();
        if !server.settings.contains_key("endpoint") {
            return Err("the server ended before it took requests".into());
        }
        Ok(server)
    }

    /// Variables with which tests use this server.
    pub fn test_variables(&self) -> Vec<(&'static str, String)> {
        let found = |(name, key): (&'static str, &str)| {
            self.settings.get(key).map(|value| (name, value.clone()))
        };
        TEST_VARIABLES.into_iter().filter_map(found).collect()
    }
}

impl Drop for ObjectServer {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        // A server that has ended already is the aim.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// Removes credentials and endpoints of this machine's user, which have no place in a test.
pub fn without_cloud_variables(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os() {
        if ["AWS_", "AZURE_", "GOOGLE_"].iter().any(|p| name.to_string_lossy().starts_with(p)) {
            command.env_remove(name);
        }
    }
    command
}

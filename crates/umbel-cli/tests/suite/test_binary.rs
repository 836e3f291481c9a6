//! Test fixture: a directory, and the binary that runs on it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;
use umbel_env::skipped_test::print_skipped;

/// Directory of one test, with the store in `store` and temporary directories in `tmp`.
pub struct Fixture {
    directory: TempDir,
}

impl Fixture {
    /// Creates an empty directory.
    pub fn new() -> Fixture {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("tmp")).unwrap();
        Fixture { directory }
    }

    /// Creates a directory whose store has these entries.
    pub fn with(entries: &[(&str, &str)]) -> Fixture {
        let fixture = Fixture::new();
        let lines: String =
            entries.iter().map(|(key, value)| format!("{key}\t{value}\n")).collect();
        fixture.feed(&["import", "--format=tsv"], lines.as_bytes()).succeeds();
        fixture
    }

    /// A path in the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The store's directory.
    pub fn store(&self) -> PathBuf {
        self.path("store")
    }

    /// Returns the names in the directory `tmp`, where commands create temporary directories.
    pub fn temporary(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.path("tmp")).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    /// Returns a command that runs the binary without `--db`.
    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_umbel"));
        command.env_remove("UMBEL_DB").env("TMPDIR", self.path("tmp"));
        command.stdin(Stdio::null());
        command
    }

    /// Runs the binary without `--db`.
    pub fn bare<A: AsRef<OsStr>>(&self, arguments: &[A]) -> Run {
        Run::of(self.command().args(arguments))
    }

    /// Runs the binary on the store.
    pub fn run<A: AsRef<OsStr>>(&self, arguments: &[A]) -> Run {
        Run::of(self.command().arg("--db").arg(self.store()).args(arguments))
    }

    /// Runs the binary on the store with a file size limit of `blocks` times 512 bytes.
    pub fn run_limited<A: AsRef<OsStr>>(&self, blocks: u32, arguments: &[A]) -> Run {
        let script = format!("ulimit -f {blocks} && exec \"$0\" \"$@\"");
        let program = self.command();
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(script).arg(program.get_program());
        command.arg("--db").arg(self.store()).args(arguments).stdin(Stdio::null());
        Run::of(command.env_remove("UMBEL_DB").env("TMPDIR", self.path("tmp")))
    }

    /// Appends an event and kills the process, so that the store is not closed.
    pub fn append_and_kill(&self, event: &str) {
        let mut command = self.command();
        command.arg("--db").arg(self.store()).arg("append");
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        writeln!(process.stdin.as_mut().unwrap(), "{event}").unwrap();
        let mut acknowledged = String::new();
        BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut acknowledged).unwrap();
        assert!(!acknowledged.is_empty());
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// Runs the binary on the store and gives it `input` to read.
    pub fn feed<A: AsRef<OsStr>>(&self, arguments: &[A], input: &[u8]) -> Run {
        let mut command = self.command();
        command.arg("--db").arg(self.store()).args(arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        std::thread::scope(|scope| {
            // In another thread, because the output may fill its pipe first. A command that rejects
            // its input closes the pipe.
            scope.spawn(move || drop(stdin.write_all(input)));
            Run::from_output(child.wait_with_output().unwrap())
        })
    }
}

/// Exit code and output of a run of the binary.
#[derive(Debug)]
pub struct Run {
    /// The exit code.
    pub code: i32,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: String,
}

impl Run {
    /// Runs a command to its end.
    pub fn of(command: &mut Command) -> Run {
        Run::from_output(command.output().unwrap())
    }

    /// Run of a process that has ended.
    pub fn from_output(output: Output) -> Run {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!stderr.contains("panicked"), "{stderr}");
        let code = output.status.code().expect("the binary ended by itself");
        Run { code, stdout: output.stdout, stderr }
    }

    /// Standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8(self.stdout.clone()).unwrap()
    }

    /// Standard output as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Asserts exit code 0 and returns standard output.
    pub fn succeeds(self) -> Run {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }

    /// Asserts that the run succeeded and wrote exactly this text.
    pub fn writes(self, stdout: &str) {
        let run = self.succeeds();
        assert_eq!(run.text(), stdout);
        assert_eq!(run.stderr, "");
    }

    /// The sentence about the failure: it follows `umbel: `, or time and level in the log of a
    /// server.
    pub fn sentence(&self) -> &str {
        let logged = || {
            let (time, sentence) = self.stderr.split_once(" ERROR ")?;
            is_time(time).then_some(sentence)
        };
        let sentence = self.stderr.strip_prefix("umbel: ").or_else(logged);
        sentence.unwrap_or_else(|| panic!("no sentence: {}", self.stderr))
    }

    /// Asserts an exit code, and one sentence on standard error that contains all these parts.
    pub fn fails(self, code: i32, parts: &[&str]) -> Run {
        assert_eq!(self.code, code, "{self:?}");
        assert_eq!(self.stderr.lines().count(), 1, "one line, not: {}", self.stderr);
        assert!(!self.sentence().trim().is_empty(), "{}", self.stderr);
        for part in parts {
            assert!(self.stderr.contains(part), "`{part}` is not in: {}", self.stderr);
        }
        self
    }
}

/// Whether a text is the UTC time at the begin of a line of a server's log.
pub fn is_time(text: &str) -> bool {
    text.ends_with('Z') && chrono::DateTime::parse_from_rfc3339(text).is_ok()
}

/// Returns a file of the store with this extension.
pub fn file_of(store: &Path, extension: &str) -> PathBuf {
    let mut files: Vec<PathBuf> = std::fs::read_dir(store)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension() == Some(OsStr::new(extension)))
        .collect();
    files.sort();
    files.pop().unwrap_or_else(|| panic!("{} has no .{extension} file", store.display()))
}

/// Opens a device that is always full. Without one the test counts as skipped.
pub fn full_device() -> Option<File> {
    let opened = File::options().write(true).open("/dev/full");
    if let Err(error) = &opened {
        print_skipped("full standard output", format!("/dev/full cannot be opened: {error}"));
    }
    opened.ok()
}

/// Lines for `umbel append`: one event for each number, in three streams.
pub fn numbered_events(numbers: Range<u64>) -> String {
    let line = |number: u64| {
        let stream = number % 3;
        format!("{{\"stream\":\"s-{stream}\",\"type\":\"Counted\",\"data\":{number}}}\n")
    };
    numbers.map(line).collect()
}

/// Waits up to thirty seconds until a condition that another process brings about is true.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let (_sender, never) = std::sync::mpsc::channel::<()>();
    for _ in 0..600 {
        if condition() {
            return;
        }
        let _ = never.recv_timeout(std::time::Duration::from_millis(50));
    }
    panic!("timeout after thirty seconds: {what}");
}

//! Long-running work outside the test command: torture, comparison with rivals, fuzzing.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::checkout::file_tree;
use crate::tools::built_programs::{self, target};
use crate::tools::check_steps::{StepOutcome, cargo, run, seconds};

/// Flags that make the compiler count edges and comparisons for libFuzzer. `-Z` needs
/// `RUSTC_BOOTSTRAP=1` on the stable compiler.
const FUZZ_FLAGS: [&str; 9] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cdebug-assertions",
    "-Ccodegen-units=1",
    "--cfg=fuzzing",
    "-Zsanitizer=address",
];

/// Default running time of each fuzz target.
const FUZZ_SECONDS: u64 = 30;

/// Features of the rivals that need a C library, the header that proves its presence, and the
/// Debian package that contains it.
const RIVAL_LIBRARIES: [(&str, &str, &str); 2] =
    [("rocksdb", "rocksdb/c.h", "librocksdb-dev"), ("leveldb", "leveldb/c.h", "libleveldb-dev")];

/// Path of the committed report of the full campaigns; the JSON file is beside it.
const TORTURE_REPORT: &str = "docs/lab/torture.md";

/// Tests of the server that activate failpoints of the whole process, so they run alone. These are
/// the tests of consumer groups, of requests to the event store, and of requests about keys and
/// values.
const SERVER_FAILPOINT_TESTS: [&str; 7] =
    ["test", "-p", "umbel-server", "--features", "failpoints", "--lib", "failpoint"];
const SERVER_FAILPOINT_TESTS_MIN: u64 = 3;

/// Builds `umbel-torture` with its failpoints and runs it. Without arguments, runs every campaign
/// in full, including those of the server's tests, and writes the committed report. Returns whether
/// every promise held.
pub fn torture(arguments: &[String]) -> bool {
    if arguments.is_empty() {
        let counts = run(cargo().args(SERVER_FAILPOINT_TESTS)).counts;
        if counts.failed > 0 || counts.passed < SERVER_FAILPOINT_TESTS_MIN {
            eprintln!("the server's tests do not detect every failpoint");
            return false;
        }
    }
    let command = ["run", "--release", "-p", "umbel-torture", "--features", "failpoints", "--"];
    run(cargo().args(command).args(torture_arguments(arguments))).counts.failed == 0
}

fn torture_arguments(arguments: &[String]) -> Vec<String> {
    if arguments.is_empty() {
        return ["--report", TORTURE_REPORT].map(str::to_string).to_vec();
    }
    arguments.to_vec()
}

/// Builds and runs the comparison with other engines, without engines whose library or compiler is
/// missing. Returns whether it succeeded.
pub fn rivals(arguments: &[String]) -> bool {
    run_rivals("umbel-rivals", &engine_features(), arguments)
}

/// Builds and runs the comparison of the disk space that engines free after deletes. Returns
/// whether it succeeded.
pub fn deletions(arguments: &[String]) -> bool {
    run_rivals("deletions", &engine_features(), arguments)
}

/// Builds and runs the comparison of engines as queues and time series. Returns whether the
/// comparison succeeded.
pub fn queues(arguments: &[String]) -> bool {
    run_rivals("queues", &engine_features(), arguments)
}

/// Returns the features of the engines whose library or compiler is installed, and prints the
/// missing ones.
fn engine_features() -> String {
    let mut features = Vec::new();
    for (feature, header, package) in RIVAL_LIBRARIES {
        if has_header(header) {
            features.push(feature);
        } else {
            eprintln!("without {feature}: on Debian `apt-get install {package}` installs it");
        }
    }
    if program_runs("go", "version") {
        features.push("pebble");
    } else {
        eprintln!("without pebble: it is written in Go, and there is no `go` on the PATH");
    }
    features.join(",")
}

/// Builds and runs the comparison with filters of other crates. Returns whether it succeeded.
pub fn filters(arguments: &[String]) -> bool {
    run_rivals("filters", "filters", arguments)
}

/// Builds the command line and runs the comparison of its server with a bare server. Returns
/// whether it succeeded.
pub fn serving(arguments: &[String]) -> bool {
    if run(cargo().args(["build", "--release", "-p", "umbel-cli"])).counts.failed != 0 {
        return false;
    }
    let binary = built_programs::umbel_program().display().to_string();
    let umbel = ["--umbel".to_string(), binary];
    run_rivals("serving", "serving", &[&umbel[..], arguments].concat())
}

/// Builds the command line and measures an honest client of its server beside hostile clients,
/// readers of hidden events, and bare fsyncs. Returns whether it succeeded.
pub fn attackers(arguments: &[String]) -> bool {
    run_beside_server("attackers", "attackers", arguments)
}

/// Builds the command line and measures what is lost with the disk of its server, which backs up
/// continuously. Returns whether it succeeded.
pub fn disk_losses(arguments: &[String]) -> bool {
    run_beside_server("disk_losses", "disk-losses", arguments)
}

/// Builds the command line and runs a program of `umbel-torture` against it, with this folder for
/// stores. Returns whether it succeeded.
fn run_beside_server(binary: &str, folder: &str, arguments: &[String]) -> bool {
    if run(cargo().args(["build", "--release", "-p", "umbel-cli"])).counts.failed != 0 {
        return false;
    }
    let mut command = cargo();
    command.args(["run", "--release", "-p", "umbel-torture", "--bin", binary, "--", "--umbel"]);
    command.arg(built_programs::umbel_program()).arg("--directory").arg(target().join(folder));
    run(command.args(arguments)).counts.failed == 0
}

fn run_rivals(binary: &str, features: &str, arguments: &[String]) -> bool {
    let manifest = file_tree::root().join("crates/umbel-rivals/Cargo.toml");
    if !manifest.exists() {
        eprintln!("this checkout has no crates/umbel-rivals");
        return false;
    }
    let mut command = cargo();
    command.args(["run", "--release", "--locked", "--manifest-path"]).arg(manifest);
    command.args(["--features", features, "--bin", binary]);
    // A target folder of its own, so that its dependencies are not built for the other packages.
    command.env("CARGO_TARGET_DIR", target().join("rivals"));
    run(command.arg("--").args(arguments)).counts.failed == 0
}

fn has_header(header: &str) -> bool {
    let search = std::env::var_os("CPATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&search).collect();
    folders
        .extend(["/usr/include", "/usr/local/include", "/opt/homebrew/include"].map(PathBuf::from));
    folders.iter().any(|folder| folder.join(header).exists())
}

/// Arguments of `cargo xtask fuzz`.
#[derive(Debug, PartialEq, Eq)]
struct FuzzRequest {
    target: Option<String>,
    seconds: u64,
}

impl FuzzRequest {
    fn parse(arguments: &[String]) -> Result<FuzzRequest, String> {
        let mut request = FuzzRequest { target: None, seconds: FUZZ_SECONDS };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            if argument == "--seconds" {
                let number = rest.next().and_then(|number| number.parse().ok());
                request.seconds = number.ok_or("--seconds needs a whole number")?;
            } else if argument.starts_with('-') || request.target.is_some() {
                return Err(format!("`{argument}`: use `cargo xtask fuzz [TARGET] [--seconds N]`"));
            } else {
                request.target = Some(argument.clone());
            }
        }
        Ok(request)
    }
}

/// Fuzzes one target or all of them, each for the given time. Returns whether no target failed.
pub fn fuzz(arguments: &[String]) -> bool {
    let folder = file_tree::root().join("fuzz");
    let request = match FuzzRequest::parse(arguments) {
        Ok(request) => request,
        Err(message) => {
            eprintln!("{message}");
            return false;
        }
    };
    let known = fuzz_targets(&folder);
    let targets: Vec<String> = match &request.target {
        Some(name) if known.contains(name) => vec![name.clone()],
        Some(name) => {
            eprintln!("there is no fuzz target `{name}`; there are: {}", known.join(", "));
            return false;
        }
        None => known,
    };
    if !compiles_cpp() {
        println!("skipped: fuzzing: libFuzzer is C++ and there is no `c++` on this machine");
        return true;
    }
    let mut passed = true;
    for name in &targets {
        println!("== fuzz {name} for {}", seconds(std::time::Duration::from_secs(request.seconds)));
        passed &= fuzz_one(&folder, name, request.seconds);
    }
    println!("{}", if passed { "no target found anything" } else { "see fuzz/artifacts" });
    passed
}

/// Checks that each fuzz target compiles: the targets are outside the workspace.
pub fn check_fuzz_targets() -> StepOutcome {
    if !compiles_cpp() {
        return StepOutcome::skip("fuzz targets: libFuzzer is C++ and there is no `c++` here");
    }
    let mut command = cargo();
    command.args(["check", "--quiet", "--locked", "--bins", "--manifest-path"]);
    command.arg(file_tree::root().join("fuzz").join("Cargo.toml"));
    // In the workspace's target folder, dependencies of the same version are checked once.
    run(command.arg("--target-dir").arg(target()))
}

fn fuzz_targets(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder.join("fuzz_targets")) else { return Vec::new() };
    let mut names: Vec<String> = entries
        .filter_map(|entry| {
            let name = entry.ok()?.file_name().to_string_lossy().into_owned();
            Some(name.strip_suffix(".rs")?.to_string())
        })
        .collect();
    names.sort();
    names
}

fn compiles_cpp() -> bool {
    program_runs(std::env::var_os("CXX").unwrap_or_else(|| "c++".into()), "--version")
}

/// Whether `program` exists and succeeds with this argument.
fn program_runs(program: impl AsRef<OsStr>, argument: &str) -> bool {
    let mut command = Command::new(program);
    let status = command.arg(argument).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

fn fuzz_one(folder: &Path, name: &str, seconds: u64) -> bool {
    let corpus = folder.join("corpus").join(name);
    let artifacts = folder.join("artifacts").join(name);
    for wanted in [&corpus, &artifacts] {
        if let Err(error) = std::fs::create_dir_all(wanted) {
            eprintln!("could not create {}: {error}", wanted.display());
            return false;
        }
    }
    let Some(host) = host() else {
        eprintln!("`rustc -vV` prints no host platform");
        return false;
    };
    let mut command = cargo();
    // With an explicit target the flags do not reach build scripts.
    command.args(["run", "--release", "--target", &host, "--manifest-path"]);
    command.arg(folder.join("Cargo.toml")).args(["--bin", name, "--"]);
    command.arg(corpus);
    let seeds = folder.join("seeds").join(name);
    if seeds.is_dir() {
        command.arg(seeds);
    }
    command.arg(format!("-artifact_prefix={}/", artifacts.display()));
    command.arg(format!("-max_total_time={seconds}"));
    command.args(["-timeout=5", "-rss_limit_mb=2048", "-malloc_limit_mb=512"]);
    command.args(["-print_final_stats=1", "-verbosity=0", "-print_funcs=0"]);
    command.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", FUZZ_FLAGS.join(" "));
    command.env("CARGO_TARGET_DIR", target().join("fuzz"));
    run(&mut command).counts.failed == 0
}

fn host() -> Option<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("-vV").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().find_map(|line| line.strip_prefix("host: ")).map(str::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torture_without_arguments_runs_all_with_report() {
        assert_eq!(torture_arguments(&[]), ["--report", "docs/lab/torture.md"]);
        let small = ["--small".to_string()];
        assert_eq!(torture_arguments(&small), ["--small"]);
    }

    #[test]
    fn absent_program_is_not_available() {
        assert!(program_runs("rustc", "--version"));
        assert!(!program_runs("rustc", "--no-such-flag"));
        assert!(!program_runs("no-such-program", "--version"));
    }

    #[test]
    fn fuzz_arguments_are_parsed() {
        let parse = |words: &[&str]| {
            FuzzRequest::parse(&words.iter().map(|word| (*word).to_string()).collect::<Vec<_>>())
        };
        let all = FuzzRequest { target: None, seconds: FUZZ_SECONDS };
        assert_eq!(parse(&[]), Ok(all));
        let one = FuzzRequest { target: Some("log".to_string()), seconds: 5 };
        assert_eq!(parse(&["log", "--seconds", "5"]), Ok(one));
        assert!(parse(&["--seconds", "many"]).is_err());
        assert!(parse(&["--fast"]).is_err());
    }
}

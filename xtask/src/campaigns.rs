//! Long work that a change does not wait for: torture, the comparison with rivals, fuzzing.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::programs::{self, target};
use crate::steps::{Outcome, cargo, run, seconds};
use crate::tree;

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

/// How long each fuzz target runs unless told otherwise.
const FUZZ_SECONDS: u64 = 30;

/// Features of the rivals that need a C library: the header that shows that it is there, and the
/// Debian package that brings it.
const RIVAL_LIBRARIES: [(&str, &str, &str); 2] =
    [("rocksdb", "rocksdb/c.h", "librocksdb-dev"), ("leveldb", "leveldb/c.h", "libleveldb-dev")];

/// Where the report of the full campaigns is committed; the JSON lies beside it.
const TORTURE_REPORT: &str = "docs/lab/torture.md";

/// Builds `umbel-torture` with the bugs that the canaries switch on, and runs it: without arguments
/// every campaign in full, with the report that is committed. Whether no promise was broken.
pub fn torture(arguments: &[String]) -> bool {
    let command = ["run", "--release", "-p", "umbel-torture", "--features", "canary", "--"];
    run(cargo().args(command).args(torture_arguments(arguments))).counts.failed == 0
}

fn torture_arguments(arguments: &[String]) -> Vec<String> {
    if arguments.is_empty() {
        return ["--report", TORTURE_REPORT].map(str::to_string).to_vec();
    }
    arguments.to_vec()
}

/// Builds and runs the comparison with other engines, without those whose library or compiler is
/// missing. Whether it succeeded.
pub fn rivals(arguments: &[String]) -> bool {
    let mut features = Vec::new();
    for (feature, header, package) in RIVAL_LIBRARIES {
        if has_header(header) {
            features.push(feature);
        } else {
            eprintln!("without {feature}: on Debian `apt-get install {package}` brings it");
        }
    }
    if answers("go", "version") {
        features.push("pebble");
    } else {
        eprintln!("without pebble: it is written in Go, and there is no `go` on the PATH");
    }
    run_rivals("umbel-rivals", &features.join(","), arguments)
}

/// Builds and runs the comparison of filters with those of other crates. Whether it succeeded.
pub fn filters(arguments: &[String]) -> bool {
    run_rivals("filters", "filters", arguments)
}

/// Builds the command line, and runs the comparison of its server with a bare one. Whether it
/// succeeded.
pub fn serving(arguments: &[String]) -> bool {
    if run(cargo().args(["build", "--release", "-p", "umbel-cli"])).counts.failed != 0 {
        return false;
    }
    let binary = programs::umbel().display().to_string();
    let umbel = ["--umbel".to_string(), binary];
    run_rivals("serving", "serving", &[&umbel[..], arguments].concat())
}

fn run_rivals(binary: &str, features: &str, arguments: &[String]) -> bool {
    let manifest = tree::root().join("crates/umbel-rivals/Cargo.toml");
    if !manifest.exists() {
        eprintln!("there is no crates/umbel-rivals in this checkout");
        return false;
    }
    let mut command = cargo();
    command.args(["run", "--release", "--locked", "--manifest-path"]).arg(manifest);
    command.args(["--features", features, "--bin", binary]);
    // Its own folder: its dependencies would otherwise be built into everybody's.
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

/// What `cargo xtask fuzz` was asked for.
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

/// Fuzzes one target or all of them, each for a while. Whether none found anything.
pub fn fuzz(arguments: &[String]) -> bool {
    let folder = tree::root().join("fuzz");
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

/// Whether every fuzz target compiles: what they call changes, and they are outside the workspace.
pub fn check_fuzz_targets() -> Outcome {
    if !compiles_cpp() {
        return Outcome::skip("fuzz targets: libFuzzer is C++ and there is no `c++` here");
    }
    let mut command = cargo();
    command.args(["check", "--quiet", "--locked", "--bins", "--manifest-path"]);
    command.arg(tree::root().join("fuzz").join("Cargo.toml"));
    // With the workspace's own folder, what both depend on in the same version is checked once.
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
    answers(std::env::var_os("CXX").unwrap_or_else(|| "c++".into()), "--version")
}

/// Whether there is a program of this name that does well when it is asked this.
fn answers(program: impl AsRef<OsStr>, question: &str) -> bool {
    let mut command = Command::new(program);
    let status = command.arg(question).stdout(Stdio::null()).stderr(Stdio::null()).status();
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
        eprintln!("`rustc -vV` does not say what platform this is");
        return false;
    };
    let mut command = cargo();
    // With an explicit platform the flags do not reach build scripts.
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
    fn torture_without_arguments_is_everything_with_the_report() {
        assert_eq!(torture_arguments(&[]), ["--report", "docs/lab/torture.md"]);
        let small = ["--small".to_string()];
        assert_eq!(torture_arguments(&small), ["--small"]);
    }

    #[test]
    fn a_program_that_is_not_there_answers_nothing() {
        assert!(answers("rustc", "--version"));
        assert!(!answers("rustc", "--no-such-flag"));
        assert!(!answers("no-such-program", "--version"));
    }

    #[test]
    fn reads_what_to_fuzz() {
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

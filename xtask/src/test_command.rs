//! `cargo xtask test`: everything that decides whether a change is good, in one command.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use crate::client_programs::Languages;
use crate::steps::{Outcome, Report, cargo, report_violations, run, run_counting};
use crate::{
    Tree, audit, campaigns, clients, console, instructions, kills, packaging, parquet, programs,
    smoke, tree,
};

/// The embedded engine has fewer third-party crates than this.
const DEPENDENCIES_END: usize = 15;

/// The hashes besides the keyed one are behind features that nothing in the workspace asks for.
const EVERY_HASH: [&str; 4] = ["-p", "umbel-filter", "--features", "all-hashes"];

/// Runs every check. Whether nothing failed.
pub fn test(fast: bool) -> bool {
    let mut report = Report::default();
    report.step("format", || component("fmt", "rustfmt", &mut format_check()));
    report.step("tidy", || rules(crate::tidy));
    report.step("floors", || rules(crate::floors));
    report.step("dependencies", dependencies);
    report.step("clippy", || component("clippy", "clippy", &mut clippy(&["--workspace"])));
    report
        .step("clippy with every hash", || component("clippy", "clippy", &mut clippy(&EVERY_HASH)));
    report.step("clippy for other processors", other_processors);
    report.step("fuzz targets compile", campaigns::check_fuzz_targets);
    if fast {
        report.step("documentation", || Outcome::skip("documentation: left out by --fast"));
    } else {
        report.step("documentation", || run(&mut documentation()));
    }
    report.step("tests", || unit_tests(&["--workspace"]));
    report.step("tests of the filters with every hash", || unit_tests(&EVERY_HASH));
    if fast {
        report.step("programs", || {
            Outcome::skip("smoke test, clients, torture, instructions: left out by --fast")
        });
        return report.finish();
    }
    programs::take_those_of_tests();
    report.step(SMOKE, smoke::smoke);
    report.step("Parquet filters, exchanged with DuckDB", parquet::exchange);
    report.step(CLIENTS, || clients::clients(Languages::Few));
    report.step(KILLS, || kills::kills(FEW_KILLS));
    report.step(CONSOLE, || console::console(None));
    report.step("packaging", packaging::packaging);
    report.step(AUDIT, audit::offline);
    report.step("torture, the small seeded part", small_torture);
    if release_build(&mut report, &COUNTED) {
        report.step(INSTRUCTIONS, || instructions::instructions(false));
    }
    report.finish()
}

/// The filters have code for some processors and must do without on all others: each target that is
/// installed is checked, nothing is linked.
fn other_processors() -> Outcome {
    let mut all = Outcome::default();
    for target in ["aarch64-unknown-linux-gnu", "i686-unknown-linux-gnu", "i686-unknown-linux-musl"]
    {
        let print = ["--print", "target-libdir", "--target", target];
        let folder = Command::new("rustc").args(print).output().ok();
        let folder =
            folder.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_string());
        all.add(if folder.is_some_and(|folder| std::path::Path::new(&folder).is_dir()) {
            let mut command = cargo();
            command.args(["clippy", "--quiet", "-p", "umbel-filter", "--lib", "--target", target]);
            component("clippy", "clippy", command.args(["--", "-D", "warnings"]))
        } else {
            Outcome::skip(format!(
                "{target}: not installed (`rustup target add {target}` brings it)"
            ))
        });
    }
    all
}

/// Runs the smoke test alone. Whether nothing failed.
pub fn smoke_alone() -> bool {
    let mut report = Report::default();
    if release_build(&mut report, &CLI) {
        report.step(SMOKE, smoke::smoke);
    }
    report.finish()
}

/// Runs the clients of event stores alone. Whether nothing failed.
pub fn clients_alone() -> bool {
    let mut report = Report::default();
    if release_build(&mut report, &CLI) {
        report.step(CLIENTS, || clients::clients(Languages::All));
    }
    report.finish()
}

/// Looks at the dependencies alone, with the newest list of weaknesses. Whether nothing failed.
pub fn audit_alone() -> bool {
    let mut report = Report::default();
    report.step(AUDIT, audit::audit);
    report.finish()
}

/// Kills a server so many times, alone. Whether nothing failed.
pub fn kills_alone(rounds: u32) -> bool {
    let mut report = Report::default();
    if release_build(&mut report, &CLI) {
        report.step(KILLS, || kills::kills(rounds));
    }
    report.finish()
}

/// Starts a server on the store of whoever was killed after so many events, alone. Whether nothing
/// failed.
pub fn starts_alone(events: u64) -> bool {
    let mut report = Report::default();
    if release_build(&mut report, &CLI) {
        report.step(STARTS, || kills::starts(events));
    }
    report.finish()
}

/// Uses the console in a browser and puts pictures of it into the documents. Whether nothing
/// failed.
pub fn console_alone() -> bool {
    let mut report = Report::default();
    if release_build(&mut report, &CLI) {
        let pictures = tree::root().join("docs").join("console");
        report.step(CONSOLE, || console::console(Some(&pictures)));
    }
    report.finish()
}

/// Counts the instructions of the hot operations alone. Whether nothing failed.
pub fn instructions_alone(write: bool) -> bool {
    let mut report = Report::default();
    if release_build(&mut report, &COUNTED) {
        report.step(INSTRUCTIONS, || instructions::instructions(write));
    }
    report.finish()
}

/// The program whose instructions are counted, with the features that the packages with programs
/// have together: so it was built when the baseline was counted.
const COUNTED: [&str; 8] =
    ["-p", "umbel-cli", "-p", "umbel-torture", "-p", "umbel-lab", "--bin", "hot"];
const CLI: [&str; 2] = ["-p", "umbel-cli"];
const INSTRUCTIONS: &str = "instructions of the hot operations";
const CLIENTS: &str = "clients of event stores";
const CONSOLE: &str = "the console in a browser";
const AUDIT: &str = "dependencies";
const KILLS: &str = "kills of a server that clients use";
const STARTS: &str = "starts after a kill";
/// How many the test command takes.
const FEW_KILLS: u32 = 5;
const SMOKE: &str = "smoke test of the binary";

fn release_build(report: &mut Report, what: &[&str]) -> bool {
    let mut built = false;
    report.step("release build", || {
        let outcome = run(cargo().args(["build", "--release"]).args(what));
        built = outcome.counts.failed == 0;
        outcome
    });
    built
}

fn rules(check: fn(&Tree) -> Vec<crate::Violation>) -> Outcome {
    match Tree::read(&tree::root()) {
        Ok(tree) => report_violations(&check(&tree)),
        Err(error) => {
            println!("could not read the checkout: {error}");
            Outcome::of(false)
        }
    }
}

/// Runs a cargo command that may not be installed.
fn component(subcommand: &str, name: &str, command: &mut Command) -> Outcome {
    let probe = cargo()
        .args([subcommand, "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !probe.is_ok_and(|status| status.success()) {
        return Outcome::skip(format!(
            "{name}: not installed (`rustup component add {name}` brings it)"
        ));
    }
    run(command)
}

/// Whoever embeds the engine takes its dependencies along: they are counted.
fn dependencies() -> Outcome {
    let mut command = cargo();
    command.args(["tree", "-p", "umbel", "-e", "normal", "--prefix", "none"]);
    let output = match command.output() {
        Ok(output) if output.status.success() => output,
        _ => return Outcome::skip("dependencies: `cargo tree` did not succeed"),
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let names: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| !name.starts_with("umbel"))
        .collect();
    let count = names.len();
    println!("   {count} third-party crates in the embedded engine, fewer than {DEPENDENCIES_END}");
    if count >= DEPENDENCIES_END {
        println!("   {}", names.into_iter().collect::<Vec<_>>().join(" "));
    }
    Outcome::of(count < DEPENDENCIES_END)
}

fn format_check() -> Command {
    let mut command = cargo();
    command.args(["fmt", "--all", "--", "--check"]);
    command
}

fn clippy(packages: &[&str]) -> Command {
    let mut command = cargo();
    command.args(["clippy", "--quiet", "--all-targets"]).args(packages);
    command.args(["--", "-D", "warnings"]);
    command
}

fn documentation() -> Command {
    let mut command = cargo();
    // The library and the binary are both called `umbel`: only the library has pages.
    command
        .args(["doc", "--quiet", "--workspace", "--no-deps", "--lib"])
        .env("RUSTDOCFLAGS", "-D warnings");
    command
}

/// Output of tests that passed is hidden; it is asked for because it names what was skipped.
fn unit_tests(packages: &[&str]) -> Outcome {
    let mut hidden = false;
    run_counting(
        cargo().args(["test", "--no-fail-fast"]).args(packages).args(["--", "--show-output"]),
        |line| {
            match line.trim() {
                "successes:" => hidden = true,
                "failures:" => hidden = false,
                _ => {}
            }
            let is_result = line.starts_with("test result:");
            hidden &= !is_result;
            let is_noise = line.starts_with("running ") || line.trim_end().ends_with("... ok");
            !hidden && !is_noise && !line.trim().is_empty()
        },
    )
}

fn small_torture() -> Outcome {
    let mut command = Command::new(programs::checked("umbel-torture"));
    run_counting(command.arg("--small").current_dir(tree::root()), |_| true)
}

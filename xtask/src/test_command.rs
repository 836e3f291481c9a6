//! `cargo xtask test`: every check that a change must pass, in one command.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use crate::checkout::file_tree;
use crate::checks::{audit, instruction_counts, packaging, parquet_exchange, smoke};
use crate::clients::client_programs::ClientLanguages;
use crate::clients::{console, server_kills};
use crate::object_stores::object_server::ObjectServer;
use crate::object_stores::throughput::{self, ThroughputOptions};
use crate::tools::background_checks::{BackgroundChecks, Priority};
use crate::tools::built_programs;
use crate::tools::check_steps::{
    CheckReport, StepOutcome, cargo, report_violations, report_warnings, run, run_counting,
};
use crate::{Tree, campaigns, clients, suites};

/// Exclusive limit for the third-party crates of the embedded engine.
const DEPENDENCIES_END: usize = 15;

/// Variable with which the tests of the filters require every hash. `umbel-cli` enables all hashes,
/// so each build of the whole workspace has them.
const EVERY_HASH: &str = "UMBEL_EVERY_HASH";

/// Runs every check. Returns whether none failed.
pub fn test(fast: bool) -> bool {
    let mut report = CheckReport::default();
    report.step("format", || component("fmt", "rustfmt", &mut format_check()));
    report.step("tidy", || rules(crate::tidy));
    report.step("floors", || rules(crate::layers));
    report.step("dependencies", dependencies);
    report.step("clippy", || component("clippy", "clippy", &mut clippy()));
    report.step("clippy for other processors", other_processors);
    report.step("fuzz targets compile", campaigns::check_fuzz_targets);
    if fast {
        report.step("documentation", || StepOutcome::skip("documentation: left out by --fast"));
    } else {
        report.step("documentation", || run(&mut documentation()));
    }
    let start_busy = || BackgroundChecks::start(BUSY_CHECKS, Priority::Low);
    let busy = (build_tests(&mut report) && !fast).then(start_busy);
    report.step("tests", tests);
    let Some(busy) = busy else {
        let why = if fast { "left out by --fast" } else { "the tests do not compile" };
        report.step("programs", || {
            StepOutcome::skip(format!("smoke test, clients, torture, instructions: {why}"))
        });
        return report.finish();
    };
    // Both wait for most of their time.
    let console = BackgroundChecks::start(CONSOLE_CHECKS, Priority::Usual);
    report.step(SMOKE, smoke::smoke);
    report.step("Parquet filters, exchanged with DuckDB", parquet_exchange::exchange);
    report.step(CLIENTS, || clients::clients(ClientLanguages::Few));
    report.step(KILLS, || server_kills::kill_servers(KILLS_PER_TEST));
    report.step(FAILOVERS, || server_kills::end_leaders(FAILOVERS_PER_TEST));
    report.step("packaging", packaging::packaging);
    report.step(AUDIT, audit::offline);
    report.step("checks beside the clients: the console", || join(CONSOLE_CHECKS, console));
    report.step("torture, the small part with time limits", || small_torture("timed"));
    report.step("checks beside the tests: torture, instructions", || join(BUSY_CHECKS, busy));
    report.finish()
}

/// Waits for checks that run beside other steps, and returns their sums.
fn join(command: &str, checks: std::io::Result<BackgroundChecks>) -> StepOutcome {
    match checks {
        Ok(checks) => checks.join(),
        Err(error) => {
            println!("could not start `cargo xtask {command}`: {error}");
            StepOutcome::of(false)
        }
    }
}

/// Tests the console of the test build in a browser, beside other steps of the test command.
/// Returns whether nothing failed.
pub fn console_checks() -> bool {
    built_programs::use_test_build();
    let mut report = CheckReport::default();
    report.step(CONSOLE, || console::console(None));
    report.finish()
}

/// Runs those checks of the test command that keep processors busy and have no time limits. Returns
/// whether none failed.
pub fn busy_checks() -> bool {
    let mut report = CheckReport::default();
    if !build_tests(&mut report) {
        return report.finish();
    }
    report.step("torture, the small part without time limits", || small_torture("untimed"));
    if release_build(&mut report, &COUNTED) {
        report.step(INSTRUCTIONS, || instruction_counts::instructions(false));
    }
    report.finish()
}

/// Checks that the filters' code for other processors compiles for each installed target, without
/// linking.
fn other_processors() -> StepOutcome {
    let mut all = StepOutcome::default();
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
            StepOutcome::skip(format!(
                "{target}: not installed (`rustup target add {target}` installs it)"
            ))
        });
    }
    all
}

/// Runs the smoke test alone. Returns whether it passed.
pub fn smoke_alone() -> bool {
    let mut report = CheckReport::default();
    if release_build(&mut report, &CLI) {
        report.step(SMOKE, smoke::smoke);
    }
    report.finish()
}

/// Runs the clients of event stores alone. Returns whether none failed.
pub fn clients_alone() -> bool {
    let mut report = CheckReport::default();
    if release_build(&mut report, &CLI) {
        report.step(CLIENTS, || clients::clients(ClientLanguages::All));
    }
    report.finish()
}

/// Runs the published suites of all clients, or of one. Returns whether none failed.
pub fn suites_alone(client: Option<&str>) -> bool {
    let mut report = CheckReport::default();
    if release_build(&mut report, &CLI) {
        for suite in suites::SUITES.iter().filter(|suite| client.is_none_or(|c| c == suite.client))
        {
            report.step(&format!("published suite of {}", suite.client), || suite.run());
        }
    }
    report.finish()
}

/// Audits the dependencies alone, with the newest advisory database. Returns whether nothing
/// failed.
pub fn audit_alone() -> bool {
    let mut report = CheckReport::default();
    report.step(AUDIT, audit::audit);
    report.finish()
}

/// Kills a server `rounds` times, alone. Returns whether nothing failed.
pub fn kills_alone(rounds: u32) -> bool {
    let mut report = CheckReport::default();
    if release_build(&mut report, &CLI) {
        report.step(KILLS, || server_kills::kill_servers(rounds));
    }
    report.finish()
}

/// Ends the leader of a replicated log `rounds` times, alone. Returns whether nothing failed.
pub fn failovers_alone(rounds: u32) -> bool {
    let mut report = CheckReport::default();
    if release_build(&mut report, &CLI) {
        report.step(FAILOVERS, || server_kills::end_leaders(rounds));
    }
    report.finish()
}

/// Starts a server on the store of a writer killed after `events` events, alone. Returns whether
/// nothing failed.
pub fn starts_alone(events: u64) -> bool {
    let mut report = CheckReport::default();
    if release_build(&mut report, &CLI) {
        report.step(STARTS, || server_kills::time_starts(events));
    }
    report.finish()
}

/// Measures the throughput of backups into an object store, alone. Returns whether nothing failed.
pub fn throughput_alone(options: &ThroughputOptions) -> bool {
    let mut report = CheckReport::default();
    if release_build(&mut report, &CLI) {
        throughput::measure(&mut report, options);
    }
    report.finish()
}

/// Tests the console in a browser and writes screenshots into the documents. Returns whether
/// nothing failed.
pub fn console_alone() -> bool {
    let mut report = CheckReport::default();
    if release_build(&mut report, &CLI) {
        let pictures = file_tree::root().join("docs").join("console");
        report.step(CONSOLE, || console::console(Some(&pictures)));
    }
    report.finish()
}

/// Counts the instructions of the hot operations alone. Returns whether nothing failed.
pub fn instructions_alone(write: bool) -> bool {
    let mut report = CheckReport::default();
    if release_build(&mut report, &COUNTED) {
        report.step(INSTRUCTIONS, || instruction_counts::instructions(write));
    }
    report.finish()
}

/// Arguments that build the counted program.
const COUNTED: [&str; 2] = ["-p", "umbel-keygen"];
const CLI: [&str; 2] = ["-p", "umbel-cli"];
const INSTRUCTIONS: &str = "instructions of the hot operations";
const CLIENTS: &str = "clients of event stores";
const CONSOLE: &str = "the console in a browser";
const AUDIT: &str = "dependencies";
const KILLS: &str = "kills of a server that clients use";
const STARTS: &str = "starts after a kill";
/// Number of kills in the test command.
const KILLS_PER_TEST: u32 = 5;
const FAILOVERS: &str = "failovers of a replicated log that clients use";
/// Number of failovers in the test command: one after a kill, and one after a stop.
const FAILOVERS_PER_TEST: u32 = 2;
/// Command of [`busy_checks`].
const BUSY_CHECKS: &str = "busy-checks";
/// Command of [`console_checks`].
const CONSOLE_CHECKS: &str = "console-checks";
const SMOKE: &str = "smoke test of the binary";

/// Builds the tests, and makes all later checks use their build. Returns whether that succeeded.
fn build_tests(report: &mut CheckReport) -> bool {
    built_programs::use_test_build();
    build(report, "build of the tests", &["test", "--workspace", "--tests", "--no-run"])
}

fn release_build(report: &mut CheckReport, what: &[&str]) -> bool {
    build(report, "release build", &[&["build", "--release"], what].concat())
}

/// Runs a build as a step. Returns whether it succeeded.
fn build(report: &mut CheckReport, name: &str, arguments: &[&str]) -> bool {
    let mut built = false;
    report.step(name, || {
        let outcome = run(cargo().args(arguments));
        built = outcome.counts.failed == 0;
        outcome
    });
    built
}

fn rules(check: fn(&Tree) -> Vec<crate::Violation>) -> StepOutcome {
    match Tree::read(&file_tree::root()) {
        Ok(tree) => {
            report_warnings(&crate::warnings(&tree));
            report_violations(&check(&tree))
        }
        Err(error) => {
            println!("could not read the checkout: {error}");
            StepOutcome::of(false)
        }
    }
}

/// Runs a cargo command that may be not installed.
fn component(subcommand: &str, name: &str, command: &mut Command) -> StepOutcome {
    let probe = cargo()
        .args([subcommand, "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !probe.is_ok_and(|status| status.success()) {
        return StepOutcome::skip(format!(
            "{name}: not installed (`rustup component add {name}` installs it)"
        ));
    }
    run(command)
}

/// Counts the dependencies of the embedded engine, which every user's program gets.
fn dependencies() -> StepOutcome {
    let mut command = cargo();
    command.args(["tree", "-p", "umbel", "-e", "normal", "--prefix", "none"]);
    let output = match command.output() {
        Ok(output) if output.status.success() => output,
        _ => return StepOutcome::skip("dependencies: `cargo tree` did not succeed"),
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
    StepOutcome::of(count < DEPENDENCIES_END)
}

fn format_check() -> Command {
    let mut command = cargo();
    command.args(["fmt", "--all", "--", "--check"]);
    command
}

fn clippy() -> Command {
    let mut command = cargo();
    command.args(["clippy", "--quiet", "--all-targets", "--workspace", "--", "-D", "warnings"]);
    command
}

fn documentation() -> Command {
    let mut command = cargo();
    // The library and the binary share the name `umbel`: only the library has pages.
    command
        .args(["doc", "--quiet", "--workspace", "--no-deps", "--lib"])
        .env("RUSTDOCFLAGS", "-D warnings");
    command
}

/// Runs the tests of the workspace, beside a server of an object store for those that need one.
fn tests() -> StepOutcome {
    let server = ObjectServer::moto();
    if let Err(reason) = &server {
        println!("   no tests against moto: {reason}");
    }
    let variables = server.as_ref().map_or_else(|_| Vec::new(), ObjectServer::test_variables);
    let mut outcome = run_tests("--tests", &variables);
    outcome.add(run_tests("--doc", &variables));
    outcome
}

/// Runs tests of one kind. Examples are not built: clippy checks that they compile.
fn run_tests(kind: &str, variables: &[(&str, String)]) -> StepOutcome {
    let mut hidden = false;
    let mut command = cargo();
    // The hidden output of passed tests names skips.
    command.args(["test", "--no-fail-fast", "--workspace", kind, "--", "--show-output"]);
    command.env(EVERY_HASH, "1");
    for (name, value) in variables {
        command.env(name, value);
    }
    run_counting(&mut command, |line| {
        match line.trim() {
            "successes:" => hidden = true,
            "failures:" => hidden = false,
            _ => {}
        }
        let is_result = line.starts_with("test result:");
        hidden &= !is_result;
        let is_noise = line.starts_with("running ") || line.trim_end().ends_with("... ok");
        !hidden && !is_noise && !line.trim().is_empty()
    })
}

fn small_torture(part: &str) -> StepOutcome {
    let mut command = Command::new(built_programs::checked_program("umbel-torture"));
    run_counting(command.args(["--small", "--part", part]).current_dir(file_tree::root()), |_| true)
}

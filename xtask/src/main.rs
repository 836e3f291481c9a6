//! Program behind `cargo xtask COMMAND`, whose usage is in [`USAGE`].
#![forbid(unsafe_code)]

use std::process::ExitCode;

use xtask::checkout::file_tree;
use xtask::object_stores::campaign;
use xtask::object_stores::campaign_options::CampaignOptions;
use xtask::object_stores::throughput::ThroughputOptions;
use xtask::tools::check_steps::{report_violations, report_warnings};
use xtask::{Tree, Violation, campaigns, docs_book, test_command};

const USAGE: &str = "\
cargo xtask test [--fast]                  every check that a change must pass
cargo xtask busy-checks                    the part of `test` that runs beside its other steps
cargo xtask console-checks                 the part of `test` that runs beside its clients
cargo xtask tidy                           the rules for sources and documents
cargo xtask floors                         the rules for crates and modules
cargo xtask smoke                          the smoke test of the release binary
cargo xtask clients                        clients of event stores against the release binary
cargo xtask suites [--client NAME]         published suites of clients against the release binary
cargo xtask docs                           the documents as a book in target/book
cargo xtask audit                          licences, sources and vulnerabilities of dependencies
cargo xtask kills [ROUNDS]                 kill -9 of a server that clients use, 200 times
cargo xtask failovers [ROUNDS]             kill -9 and stop of the leader that clients use, 20 times
cargo xtask starts [EVENTS]                start time of a server after kill -9, 10 million events
cargo xtask console                        the console in Chromium; pictures go to docs/console
cargo xtask objects [--small] [--store NAME]...
                                           backups into object stores that are killed
cargo xtask objects --throughput [--gigabytes N] [--rounds N] [--append-pairs N] [--report FILE]
                                           time of backups and restores beside plain transfers
cargo xtask torture [ARGUMENTS]            crash, fault, bit-rot and model campaigns
cargo xtask rivals [ARGUMENTS]             comparison with other engines
cargo xtask queues [ARGUMENTS]             engines as queues and time series
cargo xtask deletions [ARGUMENTS]          disk space that engines free after deletes
cargo xtask filters [ARGUMENTS]            comparison with filters of other crates
cargo xtask serving [ARGUMENTS]            comparison of the server with a bare server
cargo xtask attackers [ARGUMENTS]          an honest client of the server beside hostile ones
cargo xtask disk-losses [ARGUMENTS]        what is lost with the disk of a server that backs up
cargo xtask instructions [--write]         hot operations, counted against the baseline
cargo xtask fuzz [TARGET] [--seconds N]    fuzz one decoder or all of them";

/// The exit code for a command that does not exist or has a wrong argument.
const WRONG_USE: u8 = 2;

/// Default number of kills of a server.
const KILLS_DEFAULT: u32 = 200;
/// Default number of failovers of a replicated log.
const FAILOVERS_DEFAULT: u32 = 20;
/// Default number of events that a writer appends before it is killed and a server starts.
const EVENTS_DEFAULT: u64 = 10_000_000;

/// Runs a check with this number of rounds or events, or with the default one. Returns whether it
/// passed.
fn run_rounds(command: &str, rounds: Option<u32>) -> bool {
    match command {
        "kills" => test_command::kills_alone(rounds.unwrap_or(KILLS_DEFAULT)),
        "failovers" => test_command::failovers_alone(rounds.unwrap_or(FAILOVERS_DEFAULT)),
        _ => test_command::starts_alone(rounds.map_or(EVENTS_DEFAULT, u64::from)),
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((command, rest)) = arguments.split_first() else {
        eprintln!("{USAGE}");
        return ExitCode::from(WRONG_USE);
    };
    let rest_words: Vec<&str> = rest.iter().map(String::as_str).collect();
    let passed = match (command.as_str(), rest_words.as_slice()) {
        ("test", []) => test_command::test(false),
        ("test", ["--fast"]) => test_command::test(true),
        ("busy-checks", []) => test_command::busy_checks(),
        ("console-checks", []) => test_command::console_checks(),
        ("tidy", []) => run_rules(xtask::tidy),
        ("floors", []) => run_rules(xtask::layers),
        ("smoke", []) => test_command::smoke_alone(),
        ("clients", []) => test_command::clients_alone(),
        ("suites", []) => test_command::suites_alone(None),
        ("suites", ["--client", name]) if xtask::suites::has_suite(name) => {
            test_command::suites_alone(Some(name))
        }
        ("console", []) => test_command::console_alone(),
        ("docs", []) => docs_book::build(),
        ("audit", []) => test_command::audit_alone(),
        ("kills" | "failovers" | "starts", []) => run_rounds(command, None),
        ("kills" | "failovers" | "starts", [rounds]) if rounds.parse::<u32>().is_ok() => {
            run_rounds(command, rounds.parse().ok())
        }
        ("objects", ["--throughput", options @ ..]) => return run_throughput(options),
        ("objects", options) => return run_objects(options),
        ("instructions", []) => test_command::instructions_alone(false),
        ("instructions", ["--write"]) => test_command::instructions_alone(true),
        ("torture", _) => campaigns::torture(rest),
        ("rivals", _) => campaigns::rivals(rest),
        ("queues", _) => campaigns::queues(rest),
        ("deletions", _) => campaigns::deletions(rest),
        ("filters", _) => campaigns::filters(rest),
        ("serving", _) => campaigns::serving(rest),
        ("attackers", _) => campaigns::attackers(rest),
        ("disk-losses", _) => campaigns::disk_losses(rest),
        ("fuzz", _) => campaigns::fuzz(rest),
        ("help" | "--help" | "-h", _) => {
            println!("{USAGE}");
            true
        }
        (
            "test" | "busy-checks" | "console-checks" | "tidy" | "floors" | "smoke" | "clients"
            | "suites" | "console" | "kills" | "failovers" | "starts" | "audit" | "docs"
            | "instructions",
            [first, ..],
        ) => {
            return refuse_argument(command, first);
        }
        _ => {
            eprintln!(
                "unknown command `{command}`; the commands are test, busy-checks, console- \
                 checks, tidy, floors, smoke, clients, suites, console, docs, kills, failovers, \
                 starts, audit, instructions, objects, torture, rivals, queues, deletions, \
                 filters, serving, attackers, disk-losses and fuzz"
            );
            return ExitCode::from(WRONG_USE);
        }
    };
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run_objects(arguments: &[&str]) -> ExitCode {
    match CampaignOptions::parse(arguments) {
        Ok(options) if campaign::run(&options) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(reason) => {
            eprintln!("`objects`: {reason}");
            ExitCode::from(WRONG_USE)
        }
    }
}

fn run_throughput(arguments: &[&str]) -> ExitCode {
    match ThroughputOptions::parse(arguments) {
        Ok(options) if test_command::throughput_alone(&options) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(reason) => {
            eprintln!("`objects`: {reason}");
            ExitCode::from(WRONG_USE)
        }
    }
}

fn refuse_argument(command: &str, argument: &str) -> ExitCode {
    let known = match command {
        "test" => "--fast or no argument",
        "suites" => "--client python, go, rust, node or java, or no argument",
        "instructions" => "--write or no argument",
        _ => "nothing",
    };
    eprintln!("`{command}`: unknown argument `{argument}`; use {known}");
    ExitCode::from(WRONG_USE)
}

fn run_rules(check: fn(&Tree) -> Vec<Violation>) -> bool {
    let tree = match Tree::read(&file_tree::root()) {
        Ok(tree) => tree,
        Err(error) => {
            eprintln!("could not read the checkout: {error}");
            return false;
        }
    };
    report_warnings(&xtask::warnings(&tree));
    let violations = check(&tree);
    report_violations(&violations);
    println!("{} violations", violations.len());
    violations.is_empty()
}

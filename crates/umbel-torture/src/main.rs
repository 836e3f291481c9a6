//! `umbel-torture`: crashes, failing calls, rot and kills against the engine, as a program.
//!
//! Everything but what is said to run on a real disk is a function of the commit and the seed.
#![forbid(unsafe_code)]

mod advisor;
mod answers;
mod big_open;
mod calls;
mod canaries;
mod check;
mod crash;
mod differ;
mod directories;
mod entries;
mod existence;
mod faults;
mod filters;
mod first_open;
mod histories;
mod histories_server;
mod history;
mod kill;
mod lab;
mod look;
mod memory;
mod model;
mod planted;
mod random;
mod replay;
mod report;
mod rot;
mod runner;
mod scratch;
mod script;
mod scripts;
mod subscribers;
mod watch;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;

use crate::crash::Depth;
use crate::report::{Outcome, Tally};

/// Crashes, failing calls, rot and kills against the engine.
#[derive(Debug, Parser)]
#[command(name = "umbel-torture", version)]
struct Arguments {
    /// The seeded part that the test command runs, in minutes.
    #[arg(long)]
    small: bool,
    /// Decides everything that is chosen.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Which campaigns; all where none is named, but the small part leaves out model, big-open and
    /// memory.
    #[arg(long, num_args = 1.., value_parser = NAMES)]
    campaign: Vec<String>,
    /// How many scripts made from the seed are added to the named ones.
    #[arg(long, default_value_t = 20)]
    random_scripts: u64,
    /// How many scripts the directories campaign takes.
    #[arg(long)]
    scripts: Option<u64>,
    /// How many times the kill campaign kills.
    #[arg(long)]
    rounds: Option<u64>,
    /// How many keys the filters, advisor, big-open and memory campaigns take.
    #[arg(long)]
    keys: Option<u64>,
    /// The budgets of the memory campaign, in MiB.
    #[arg(long, num_args = 1..)]
    mebibytes: Vec<u64>,
    /// How many seeds the model campaign takes.
    #[arg(long, default_value_t = answers::SEEDS)]
    seeds: u64,
    /// Where the stores on a real disk lie; beside the program unless said.
    #[arg(long)]
    scratch: Option<PathBuf>,
    /// Writes the report to this file, and as JSON beside it.
    #[arg(long)]
    report: Option<PathBuf>,
    /// Does once more what a violation says.
    #[arg(long)]
    replay: Option<String>,
}

const NAMES: [&str; 23] = [
    "crash",
    "first-open",
    "faults",
    "rot",
    "kill",
    "canaries",
    "filters",
    "advisor",
    "big-open",
    "memory",
    "model",
    "existence",
    "existence-planted",
    "histories",
    "histories-planted",
    "histories-server",
    "histories-server-planted",
    "subscribers",
    "subscribers-planted",
    "calls",
    "calls-planted",
    "directories",
    "directories-planted",
];

/// What the small part leaves out: they say something only when they are large.
const LARGE: [&str; 3] = ["big-open", "memory", "model"];

fn main() -> ExitCode {
    // The processes to be killed are this program too. They are started before anything else is
    // looked at, so that what a kill falls into is mostly the engine.
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.split_first() {
        Some((first, rest)) if first == kill::CHILD => std::process::exit(kill::run(rest)),
        Some((first, rest)) if first == big_open::CHILD => std::process::exit(big_open::run(rest)),
        Some((first, rest)) if first == memory::CHILD => std::process::exit(memory::run(rest)),
        _ => {}
    }
    let arguments = Arguments::parse();
    check::quiet_panics();
    let place = arguments.scratch.clone().unwrap_or_else(scratch::default_place);
    if let Some(what) = &arguments.replay {
        return report_end(replay::replay(what, &place));
    }
    campaigns(&arguments, &place)
}

fn report_end(ended: Result<(), String>) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("{text}");
            ExitCode::FAILURE
        }
    }
}

fn campaigns(arguments: &Arguments, place: &Path) -> ExitCode {
    let begun = lab::Begun::now(place);
    let mut outcomes = Vec::new();
    for name in NAMES {
        let is_named = arguments.campaign.iter().any(|wanted| wanted == name);
        let is_left_out = arguments.small && LARGE.contains(&name);
        if !is_named && (!arguments.campaign.is_empty() || is_left_out) {
            continue;
        }
        let outcome = run(name, arguments, place);
        println!("{}", outcome.text("umbel-torture"));
        outcomes.push(outcome);
    }
    if let Some(path) = &arguments.report
        && let Err(text) = lab::write(path, &outcomes, &begun, arguments.seed, arguments.small)
    {
        eprintln!("{text}");
        return ExitCode::FAILURE;
    }
    let sum = |count: fn(&Outcome) -> u64| outcomes.iter().map(count).sum::<u64>();
    let failed = sum(|outcome| outcome.failed);
    let skipped = sum(|outcome| outcome.skipped.len() as u64);
    println!("{} passed, {failed} failed, {skipped} skipped", sum(|outcome| outcome.passed));
    let violations = sum(|outcome| outcome.violation_count);
    if failed + violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(name: &str, arguments: &Arguments, place: &Path) -> Outcome {
    let (seed, small) = (arguments.seed, arguments.small);
    let tally: Tally = match name {
        "crash" => {
            let depth = if small { Depth::SMALL } else { Depth::FULL };
            let mut scripts = scripts::all();
            let added = 0..arguments.random_scripts;
            scripts.extend(added.map(|n| scripts::random(seed * 10_000 + n)));
            crash::campaign(&scripts, seed, depth)
        }
        "first-open" => first_open::campaign(seed, small),
        "faults" => {
            let mut scripts: Vec<_> =
                faults::SCRIPTS.iter().filter_map(|name| scripts::named(name)).collect();
            scripts.push(faults::filling());
            faults::campaign(&scripts, seed, if small { 40 } else { 1 })
        }
        "rot" => rot::campaign(seed, small),
        "kill" => {
            let rounds = if small { kill::ROUNDS_SMALL } else { kill::ROUNDS };
            kill::campaign(place, seed, arguments.rounds.unwrap_or(rounds))
        }
        "canaries" => canaries::campaign(seed, small),
        "filters" => {
            let keys = if small { filters::KEYS_SMALL } else { filters::KEYS };
            filters::campaign(place, seed, arguments.keys.unwrap_or(keys))
        }
        "advisor" => {
            let keys = if small { advisor::KEYS_SMALL } else { advisor::KEYS };
            advisor::campaign(place, seed, arguments.keys.unwrap_or(keys))
        }
        "big-open" => big_open::campaign(place, seed, arguments.keys.unwrap_or(big_open::KEYS)),
        "memory" => {
            let named = &arguments.mebibytes;
            let budgets = if named.is_empty() { &memory::MEBIBYTES[..] } else { named };
            memory::campaign(place, seed, arguments.keys.unwrap_or(memory::KEYS), budgets)
        }
        "existence" => {
            let seeds = if small { existence::SEEDS_SMALL } else { existence::SEEDS };
            existence::campaign(seed, seeds)
        }
        "existence-planted" => existence::planted(seed, existence::SEEDS_PLANTED),
        "directories" => {
            let scripts = if small { directories::SCRIPTS_SMALL } else { directories::SCRIPTS };
            directories::CAMPAIGN.run(seed, arguments.scripts.unwrap_or(scripts))
        }
        "directories-planted" => directories::CAMPAIGN.planted(seed, history::SEEDS_PLANTED),
        _ => run_history(name, arguments),
    };
    tally.end()
}

/// The campaigns of the event store, of its server, and of answers.
fn run_history(name: &str, arguments: &Arguments) -> Tally {
    let (seed, small) = (arguments.seed, arguments.small);
    match name {
        "histories" => {
            let seeds = if small { history::SEEDS_SMALL } else { history::SEEDS };
            histories::CAMPAIGN.run(seed, seeds)
        }
        "histories-planted" => histories::CAMPAIGN.planted(seed, history::SEEDS_PLANTED),
        "histories-server" => {
            let seeds = if small { history::SEEDS_SMALL } else { history::SEEDS };
            histories_server::CAMPAIGN.run(seed, seeds)
        }
        "histories-server-planted" => {
            histories_server::CAMPAIGN.planted(seed, history::SEEDS_PLANTED)
        }
        "subscribers" => {
            let seeds = if small { history::SEEDS_SMALL } else { history::SEEDS };
            subscribers::CAMPAIGN.run(seed, seeds)
        }
        "subscribers-planted" => subscribers::CAMPAIGN.planted(seed, history::SEEDS_PLANTED),
        "calls" => {
            let seeds = if small { history::SEEDS_SMALL } else { history::SEEDS };
            calls::CAMPAIGN.run(seed, seeds)
        }
        "calls-planted" => calls::CAMPAIGN.planted(seed, history::SEEDS_PLANTED),
        _ => answers::campaign(arguments.seeds, answers::OPERATIONS),
    }
}

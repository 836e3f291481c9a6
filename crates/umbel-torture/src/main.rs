//! `umbel-torture`: crashes, failing calls, rot and kills against the engine, as a program.
//!
//! Everything but what is said to run on a real disk is a function of the commit and the seed.
#![forbid(unsafe_code)]

mod big_open;
mod canaries;
mod check;
mod crash;
mod differ;
mod faults;
mod filters;
mod first_open;
mod kill;
mod lab;
mod look;
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
mod watch;

use std::path::PathBuf;
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
    /// Which campaigns: crash, first-open, faults, rot, kill, canaries, filters, big-open; all
    /// where none is named.
    #[arg(long, num_args = 1.., value_parser = NAMES)]
    campaign: Vec<String>,
    /// How many scripts made from the seed are added to the named ones.
    #[arg(long)]
    random_scripts: Option<u64>,
    /// Writes the report to this file, and as JSON beside it.
    #[arg(long)]
    report: Option<PathBuf>,
    /// Does once more what a violation says.
    #[arg(long)]
    replay: Option<String>,
    #[arg(long, hide = true)]
    kill_child: Option<PathBuf>,
    #[arg(long, hide = true, value_delimiter = ',')]
    counts: Vec<u64>,
    #[arg(long, hide = true)]
    big_child: Option<PathBuf>,
    #[arg(long, hide = true, default_value_t = big_open::KEYS)]
    keys: u64,
}

const NAMES: [&str; 8] =
    ["crash", "first-open", "faults", "rot", "kill", "canaries", "filters", "big-open"];

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let child = match (&arguments.kill_child, &arguments.big_child) {
        (Some(folder), _) => Some(kill::child(folder, arguments.seed, &arguments.counts)),
        (_, Some(folder)) => Some(big_open::child(folder, arguments.keys)),
        _ => None,
    };
    if let Some(ended) = child {
        return report_end(ended);
    }
    check::quiet_panics();
    if let Some(what) = &arguments.replay {
        return report_end(replay::replay(what));
    }
    campaigns(&arguments)
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

fn campaigns(arguments: &Arguments) -> ExitCode {
    let mut outcomes = Vec::new();
    for name in NAMES {
        let is_named = arguments.campaign.iter().any(|wanted| wanted == name);
        let is_left_out = arguments.small && name == "big-open";
        if !is_named && (!arguments.campaign.is_empty() || is_left_out) {
            continue;
        }
        let outcome = run(name, arguments);
        println!("{}", outcome.text("umbel-torture"));
        outcomes.push(outcome);
    }
    if let Some(path) = &arguments.report
        && let Err(text) = lab::write(path, &outcomes, arguments.seed, arguments.small)
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

fn run(name: &str, arguments: &Arguments) -> Outcome {
    let (seed, small) = (arguments.seed, arguments.small);
    let tally: Tally = match name {
        "crash" => {
            let depth = if small { Depth::SMALL } else { Depth::FULL };
            let added = arguments.random_scripts.unwrap_or(if small { 20 } else { 100 });
            let mut scripts = scripts::all();
            scripts.extend((0..added).map(|n| scripts::random(seed * 10_000 + n)));
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
        "kill" => kill::campaign(seed, if small { 30 } else { 500 }),
        "canaries" => canaries::campaign(seed, small),
        "filters" => filters::campaign(if small { 100_000 } else { 10_000_000 }),
        _ => big_open::campaign(arguments.keys),
    };
    tally.end()
}

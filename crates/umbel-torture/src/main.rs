//! `umbel-torture`: crashes, failing calls, rot and kills against the engine, as a program.
//!
//! Every campaign except those on a real disk is a function of the commit and the seed.
#![forbid(unsafe_code)]

mod directories;
mod events;
mod existence_filter;
mod kv;
mod replay_violation;
mod server;
mod simulation;
mod support;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;

use crate::kv::crash::Depth;
use crate::support::campaign_tally::{CampaignResult, CampaignTally};

/// Crashes, failing calls, rot and kills against the engine.
#[derive(Debug, Parser)]
#[command(name = "umbel-torture", version)]
struct Arguments {
    /// Run the seeded part of the test command, in minutes
    #[arg(long)]
    small: bool,
    /// Seed of all choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Campaigns to run; all by default, but the small part leaves out model, big-open and memory
    #[arg(long, num_args = 1.., value_parser = NAMES)]
    campaign: Vec<String>,
    /// Part of these campaigns
    #[arg(long)]
    part: Option<Part>,
    /// Number of random scripts besides the named ones
    #[arg(long, default_value_t = 20)]
    random_scripts: u64,
    /// Number of scripts of the directories campaign
    #[arg(long)]
    scripts: Option<u64>,
    /// Number of kills of the kill campaign
    #[arg(long)]
    rounds: Option<u64>,
    /// Number of keys of the filters, advisor, big-open and memory campaigns
    #[arg(long)]
    keys: Option<u64>,
    /// Budgets of the memory campaign, in MiB
    #[arg(long, num_args = 1..)]
    mebibytes: Vec<u64>,
    /// Number of seeds of the model campaign
    #[arg(long, default_value_t = crate::kv::random_model::SEEDS)]
    seeds: u64,
    /// Folder for stores on a real disk; by default beside the program
    #[arg(long)]
    scratch: Option<PathBuf>,
    /// Write the report to this file, and as JSON beside it
    #[arg(long)]
    report: Option<PathBuf>,
    /// Replay a violation
    #[arg(long)]
    replay: Option<String>,
}

const NAMES: [&str; 23] = [
    "crash",
    "first-open",
    "faults",
    "rot",
    "kill",
    "fault-detection",
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

/// Campaigns that the small part leaves out, because they need a large size.
const LARGE: [&str; 3] = ["big-open", "memory", "model"];

/// Campaigns whose processes, servers or clients must answer within a time limit.
const TIMED: [&str; 9] = [
    "kill",
    "histories",
    "histories-planted",
    "histories-server",
    "histories-server-planted",
    "subscribers",
    "subscribers-planted",
    "calls",
    "calls-planted",
];

/// A part of the campaigns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Campaigns that may be slowed by other work
    Untimed,
    /// Campaigns with time limits
    Timed,
}

impl Part {
    fn has(self, campaign: &str) -> bool {
        TIMED.contains(&campaign) == (self == Part::Timed)
    }
}

fn main() -> ExitCode {
    // The processes to be killed run this program too. They start before anything else, so that
    // most kills hit the engine.
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.split_first() {
        Some((first, rest)) if first == kv::kill::CHILD => std::process::exit(kv::kill::run(rest)),
        Some((first, rest)) if first == kv::open_time::CHILD => {
            std::process::exit(kv::open_time::run(rest))
        }
        Some((first, rest)) if first == kv::memory_budget::CHILD => {
            std::process::exit(kv::memory_budget::run(rest))
        }
        _ => {}
    }
    let arguments = Arguments::parse();
    simulation::crash_image_check::quiet_panics();
    let place =
        arguments.scratch.clone().unwrap_or_else(support::scratch_directory::default_parent);
    if let Some(what) = &arguments.replay {
        return exit_code(replay_violation::replay(what, &place));
    }
    campaigns(&arguments, &place)
}

fn exit_code(ended: Result<(), String>) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("{text}");
            ExitCode::FAILURE
        }
    }
}

fn campaigns(arguments: &Arguments, place: &Path) -> ExitCode {
    let begun = support::report_files::RunEnvironment::detect(place);
    let mut outcomes = Vec::new();
    for name in NAMES {
        let is_named = arguments.campaign.iter().any(|wanted| wanted == name);
        let is_left_out = arguments.small && LARGE.contains(&name);
        let is_in_part = arguments.part.is_none_or(|part| part.has(name));
        if !is_in_part || !is_named && (!arguments.campaign.is_empty() || is_left_out) {
            continue;
        }
        let outcome = run(name, arguments, place);
        println!("{}", outcome.text("umbel-torture"));
        outcomes.push(outcome);
    }
    if let Some(path) = &arguments.report
        && let Err(text) =
            support::report_files::write(path, &outcomes, &begun, arguments.seed, arguments.small)
    {
        eprintln!("{text}");
        return ExitCode::FAILURE;
    }
    let sum = |count: fn(&CampaignResult) -> u64| outcomes.iter().map(count).sum::<u64>();
    let failed = sum(|outcome| outcome.failed);
    let skipped = sum(|outcome| outcome.skipped.len() as u64);
    println!("{} passed, {failed} failed, {skipped} skipped", sum(|outcome| outcome.passed));
    let violations = sum(|outcome| outcome.violation_count);
    if failed + violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(name: &str, arguments: &Arguments, place: &Path) -> CampaignResult {
    let (seed, small) = (arguments.seed, arguments.small);
    let tally: CampaignTally = match name {
        "crash" => {
            let depth = if small { Depth::SMALL } else { Depth::FULL };
            let mut scripts = simulation::scripts::all();
            let added = 0..arguments.random_scripts;
            scripts.extend(added.map(|n| simulation::scripts::random(seed * 10_000 + n)));
            kv::crash::campaign(&scripts, seed, depth)
        }
        "first-open" => kv::first_open_crashes::campaign(seed, small),
        "faults" => {
            let mut scripts: Vec<_> = kv::fault_campaign::FAULT_SCRIPTS
                .iter()
                .filter_map(|name| simulation::scripts::named(name))
                .collect();
            scripts.push(kv::fault_campaign::full_disk_script());
            kv::fault_campaign::campaign(&scripts, seed, if small { 120 } else { 1 })
        }
        "rot" => kv::bit_rot::campaign(seed, small),
        "kill" => {
            let rounds = if small { kv::kill::ROUNDS_SMALL } else { kv::kill::ROUNDS };
            kv::kill::campaign(place, seed, arguments.rounds.unwrap_or(rounds))
        }
        "fault-detection" => kv::planted_fault_campaign::campaign(seed, small),
        "filters" => {
            let keys = if small { kv::filter_rates::KEYS_SMALL } else { kv::filter_rates::KEYS };
            kv::filter_rates::campaign(place, seed, arguments.keys.unwrap_or(keys))
        }
        "advisor" => {
            let keys = if small { kv::advisor::KEYS_SMALL } else { kv::advisor::KEYS };
            kv::advisor::campaign(place, seed, arguments.keys.unwrap_or(keys))
        }
        "big-open" => {
            kv::open_time::campaign(place, seed, arguments.keys.unwrap_or(kv::open_time::KEYS))
        }
        "memory" => {
            let named = &arguments.mebibytes;
            let budgets = if named.is_empty() { &kv::memory_budget::MEBIBYTES[..] } else { named };
            kv::memory_budget::campaign(
                place,
                seed,
                arguments.keys.unwrap_or(kv::memory_budget::KEYS),
                budgets,
            )
        }
        "existence" => {
            let seeds = if small { existence_filter::SEEDS_SMALL } else { existence_filter::SEEDS };
            existence_filter::campaign(seed, seeds)
        }
        "existence-planted" => existence_filter::hunt_faults(seed, existence_filter::SEEDS_PLANTED),
        "directories" => {
            let scripts = if small { directories::SCRIPTS_SMALL } else { directories::SCRIPTS };
            directories::CAMPAIGN.run(seed, arguments.scripts.unwrap_or(scripts))
        }
        "directories-planted" => {
            directories::CAMPAIGN.hunt_faults(seed, support::seeded_campaign::SEEDS_PLANTED)
        }
        _ => run_history(name, arguments),
    };
    tally.end()
}

/// Runs a campaign against the event store, its server, or directories.
fn run_history(name: &str, arguments: &Arguments) -> CampaignTally {
    let (seed, small) = (arguments.seed, arguments.small);
    match name {
        "histories" => {
            let seeds = if small {
                support::seeded_campaign::SEEDS_SMALL
            } else {
                support::seeded_campaign::SEEDS
            };
            events::concurrent_appends::CAMPAIGN.run(seed, seeds)
        }
        "histories-planted" => events::concurrent_appends::CAMPAIGN
            .hunt_faults(seed, support::seeded_campaign::SEEDS_PLANTED),
        "histories-server" => {
            let seeds = if small {
                support::seeded_campaign::SEEDS_SMALL
            } else {
                support::seeded_campaign::SEEDS
            };
            server::concurrent_clients::CAMPAIGN.run(seed, seeds)
        }
        "histories-server-planted" => server::concurrent_clients::CAMPAIGN
            .hunt_faults(seed, support::seeded_campaign::SEEDS_PLANTED),
        "subscribers" => {
            let seeds = if small {
                support::seeded_campaign::SEEDS_SMALL
            } else {
                support::seeded_campaign::SEEDS
            };
            events::subscriptions::CAMPAIGN.run(seed, seeds)
        }
        "subscribers-planted" => events::subscriptions::CAMPAIGN
            .hunt_faults(seed, support::seeded_campaign::SEEDS_PLANTED),
        "calls" => {
            let seeds = if small {
                support::seeded_campaign::SEEDS_SMALL
            } else {
                support::seeded_campaign::SEEDS
            };
            server::calls::CAMPAIGN.run(seed, seeds)
        }
        "calls-planted" => {
            server::calls::CAMPAIGN.hunt_faults(seed, support::seeded_campaign::SEEDS_PLANTED)
        }
        _ => kv::random_model::campaign(arguments.seeds, kv::random_model::OPERATIONS),
    }
}

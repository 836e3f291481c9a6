//! Binary `serving`; `serving_arguments` describes its usage.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use serde_json::Value;
use umbel_lab::engine::Result;
use umbel_lab::measure::machine::{Machine, loads};
use umbel_rivals::serving::bare_server;
use umbel_rivals::serving::serving_arguments::ServingArguments;
use umbel_rivals::serving::serving_report::{self, ServingHeading};
use umbel_rivals::serving::serving_run::run;
use umbel_rivals::serving::soak;

fn main() -> ExitCode {
    let arguments = ServingArguments::parse();
    let done = match (arguments.bare, arguments.soak) {
        (true, _) => bare_server::serve(arguments.sync.as_deref()).map(|()| true),
        (_, Some(minutes)) => soak(&arguments, minutes),
        _ => compare(&arguments).map(|()| true),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn compare(arguments: &ServingArguments) -> Result<()> {
    let machine = Machine::detect(&arguments.dir);
    let loads_before = loads();
    let results = run(arguments, &mut |what| eprintln!("{what}"))?;
    let heading =
        ServingHeading { arguments, machine: &machine, loads_before, loads_after: loads() };
    let page = serving_report::markdown(&heading, &results);
    publish(&heading, "serving", page, &serving_report::json(&heading, &results))
}

/// Runs the soak. Returns whether the server passed.
fn soak(arguments: &ServingArguments, minutes: u64) -> Result<bool> {
    let machine = Machine::detect(&arguments.dir);
    let loads_before = loads();
    let outcome = soak::run(arguments, minutes, &mut |what| eprintln!("{what}"))?;
    let heading =
        ServingHeading { arguments, machine: &machine, loads_before, loads_after: loads() };
    let page = soak::soak_report::markdown(&heading, &outcome);
    publish(&heading, "soak", page, &soak::soak_report::json(&heading, &outcome))?;
    Ok(outcome.passed())
}

/// Prints the report, and writes its page and figures to the folder of the results if one is given.
fn publish(heading: &ServingHeading<'_>, name: &str, page: String, figures: &Value) -> Result<()> {
    println!("{page}");
    let Some(out) = &heading.arguments.out else { return Ok(()) };
    std::fs::create_dir_all(out)?;
    let label = heading.arguments.label.as_ref().map_or(String::new(), |label| format!("-{label}"));
    let name = format!("{name}-{}{label}", heading.machine.date);
    std::fs::write(out.join(format!("{name}.md")), page)?;
    let text = serde_json::to_string_pretty(figures)?;
    Ok(std::fs::write(out.join(format!("{name}.json")), text + "\n")?)
}

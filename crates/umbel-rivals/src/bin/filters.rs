//! Binary `filters`; `filter_arguments` describes its usage.
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use umbel_lab::engine::Result;
use umbel_lab::measure::machine::{Machine, loads};
use umbel_rivals::filters::filter_arguments::FilterArguments;
use umbel_rivals::filters::filter_report::{self, FilterHeading};
use umbel_rivals::filters::filter_run::run;

fn main() -> ExitCode {
    let arguments = FilterArguments::parse();
    match compare(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn compare(arguments: &FilterArguments) -> Result<()> {
    let machine = Machine::detect(Path::new("."));
    let loads_before = loads();
    let places = run(arguments, &mut |what| eprintln!("{what}"))?;
    let heading =
        FilterHeading { arguments, machine: &machine, loads_before, loads_after: loads() };
    let page = filter_report::markdown(&heading, &places);
    println!("{page}");
    let Some(out) = &arguments.out else { return Ok(()) };
    std::fs::create_dir_all(out)?;
    let label = arguments.label.clone().unwrap_or_else(|| arguments.num.to_string());
    let name = format!("filters-{}-{label}", machine.date);
    std::fs::write(out.join(format!("{name}.md")), page)?;
    let text = serde_json::to_string_pretty(&filter_report::json(&heading, &places))?;
    Ok(std::fs::write(out.join(format!("{name}.json")), text + "\n")?)
}

//! `deletions`: see the usage in `deletion_arguments`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use umbel_lab::engine::Result;
use umbel_lab::measure::machine::Machine;
use umbel_rivals::deletions::deletion_arguments::DeletionArguments;
use umbel_rivals::deletions::{deletion_report, deletion_run};

fn main() -> ExitCode {
    let arguments = DeletionArguments::parse();
    match compare(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn compare(arguments: &DeletionArguments) -> Result<()> {
    let stores = arguments.stores.clone().unwrap_or_else(std::env::temp_dir);
    let stores = stores.join(format!("umbel-deletions-{}", std::process::id()));
    std::fs::create_dir_all(&stores)?;
    let machine = Machine::detect(&stores);
    let rows = deletion_run::run(arguments, &stores, &mut |what| eprintln!("{what}"));
    std::fs::remove_dir_all(&stores)?;
    let page = deletion_report::markdown(arguments, &machine, &rows?);
    println!("{page}");
    let Some(out) = &arguments.out else { return Ok(()) };
    std::fs::create_dir_all(out)?;
    Ok(std::fs::write(out.join(format!("deletions-{}.md", machine.date)), page)?)
}

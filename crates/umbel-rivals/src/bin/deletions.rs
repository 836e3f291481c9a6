//! `deletions`: see the usage in `deletion_arguments`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use umbel_rivals::deletions::deletion_arguments::DeletionArguments;
use umbel_rivals::deletions::{deletion_report, deletion_run};
use umbel_rivals::engine_runs;

fn main() -> ExitCode {
    let arguments = DeletionArguments::parse();
    engine_runs::print_report("deletions", &arguments.runs, |stores, machine| {
        let rows = deletion_run::run(&arguments, stores)?;
        Ok(deletion_report::markdown(&arguments, machine, &rows))
    })
}

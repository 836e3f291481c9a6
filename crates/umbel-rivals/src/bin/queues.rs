//! `queues`: see the usage in `queue_arguments`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use umbel_rivals::engine_runs;
use umbel_rivals::queues::queue_arguments::QueueArguments;
use umbel_rivals::queues::{queue_report, queue_run};

fn main() -> ExitCode {
    let arguments = QueueArguments::parse();
    engine_runs::print_report("queues", &arguments.runs, |stores, machine| {
        let rows = queue_run::run(&arguments, stores)?;
        Ok(queue_report::markdown(&arguments, machine, &rows))
    })
}

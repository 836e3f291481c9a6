//! `queues`: see the usage in `queue_arguments`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use umbel_rivals::engine_runs;
use umbel_rivals::queues::queue_arguments::QueueArguments;
use umbel_rivals::queues::{queue_report, queue_run};

fn main() -> ExitCode {
    let arguments = QueueArguments::parse();
    let (stores, out) = (arguments.stores.as_deref(), arguments.out.as_deref());
    engine_runs::print_report("queues", stores, out, |stores, machine| {
        let rows = queue_run::run(&arguments, stores)?;
        Ok(queue_report::markdown(&arguments, machine, &rows))
    })
}

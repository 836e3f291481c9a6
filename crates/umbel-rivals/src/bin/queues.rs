//! Binary `queues`; `queue_arguments` describes its usage.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use umbel_lab::engine::Result;
use umbel_lab::measure::machine::Machine;
use umbel_rivals::queues::queue_arguments::QueueArguments;
use umbel_rivals::queues::{queue_report, queue_run};

fn main() -> ExitCode {
    let arguments = QueueArguments::parse();
    match compare(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn compare(arguments: &QueueArguments) -> Result<()> {
    let stores = arguments.stores.clone().unwrap_or_else(std::env::temp_dir);
    let stores = stores.join(format!("umbel-queues-{}", std::process::id()));
    std::fs::create_dir_all(&stores)?;
    let machine = Machine::detect(&stores);
    let rows = queue_run::run(arguments, &stores, &mut |what| eprintln!("{what}"));
    std::fs::remove_dir_all(&stores)?;
    let page = queue_report::markdown(arguments, &machine, &rows?);
    println!("{page}");
    let Some(out) = &arguments.out else { return Ok(()) };
    std::fs::create_dir_all(out)?;
    Ok(std::fs::write(out.join(format!("queues-{}.md", machine.date)), page)?)
}

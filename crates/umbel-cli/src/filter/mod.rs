//! `umbel filter`: commands for filters in files, without a store.

mod bench_filters;
mod build_filter;
mod check_filter;
mod fill_chart;
mod filter_args;
mod filter_file;
mod filter_kind;
mod inspect_filter;
mod line_batches;
mod size_filter;

pub use filter_args::FilterCommand;

use crate::errors::CommandResult;

/// Runs a command of `umbel filter`.
pub fn run(command: &FilterCommand, json: bool) -> CommandResult<()> {
    match command {
        FilterCommand::Size(args) => size_filter::run(args, json),
        FilterCommand::Build(args) => build_filter::run(args, json),
        FilterCommand::Check(args) => check_filter::run(args),
        FilterCommand::Inspect(args) => inspect_filter::run(args, json),
        FilterCommand::Bench(args) => bench_filters::run(args, json),
    }
}

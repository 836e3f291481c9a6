//! `umbel filter`: filters by themselves, without a store.

mod args;
mod bench;
mod build;
mod check;
mod file;
mod inspect;
mod kind;
mod lines;
mod picture;
mod size;

pub use args::FilterCommand;

use crate::errors::Outcome;

/// Does what was asked.
pub fn run(command: &FilterCommand, json: bool) -> Outcome<()> {
    match command {
        FilterCommand::Size(args) => size::run(args, json),
        FilterCommand::Build(args) => build::run(args, json),
        FilterCommand::Check(args) => check::run(args),
        FilterCommand::Inspect(args) => inspect::run(args, json),
        FilterCommand::Bench(args) => bench::run(args, json),
    }
}

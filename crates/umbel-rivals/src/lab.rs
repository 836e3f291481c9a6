//! `umbel-rivals lab …`: the experiments of the lab, with every engine of this build.

use std::process::ExitCode;

use clap::Parser;
use umbel_env::Env;
use umbel_lab::command_line::{LabCommand, LabEnvironment, execute};
use umbel_lab::lab_error::LabError;
use umbel_lab::runner::stop_signal;

use crate::engines;

/// Runs the experiments of `umbel lab` with rivals: --engine NAME, or --engine all.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask rivals lab")]
struct CommandLine {
    /// Experiment to run
    #[command(subcommand)]
    command: LabCommand,
}

/// Runs a command line; `words` are those after `lab`.
pub fn run(words: &[String]) -> ExitCode {
    let line = CommandLine::parse_from(std::iter::once("lab".to_string()).chain(words.to_vec()));
    let (env, stop) = (Env::system(), stop_signal::listen());
    // The null engine has no answers to compare.
    let engines: Vec<_> = engines::ALL.into_iter().filter(|engine| engine.name != "none").collect();
    let around = LabEnvironment {
        env: &env,
        engines: &engines,
        stop: &stop,
        json: false,
        shares_processors: false,
    };
    let done = execute(&line.command, &around, &mut std::io::stdout().lock());
    done.map_or_else(
        |error| {
            eprintln!("{error}");
            // Exit codes are those of `umbel`.
            ExitCode::from(match error {
                LabError::Usage(_) => 2,
                LabError::Damaged(_) => 3,
                LabError::System(_) | LabError::Failed(_) => 4,
                LabError::Stopped(_) => 130,
            })
        },
        |()| ExitCode::SUCCESS,
    )
}

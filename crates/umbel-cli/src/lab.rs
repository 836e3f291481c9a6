//! `umbel lab`: experiments on filter settings, run with this binary's own engine.

use std::io;

use umbel::Env;
use umbel_lab::command_line::{LabCommand, LabEnvironment, execute};
use umbel_lab::engine::built_in_engines;
use umbel_lab::lab_error::LabError;
use umbel_lab::runner::stop_signal;

use crate::errors::{CommandError, CommandResult};

/// Runs a command of `umbel lab`.
pub fn run(command: &LabCommand, json: bool) -> CommandResult<()> {
    let (env, stop) = (Env::system(), stop_signal::listen());
    let around = LabEnvironment {
        env: &env,
        engines: &built_in_engines::BUILT_IN,
        stop: &stop,
        json,
        shares_processors: false,
    };
    execute(command, &around, &mut io::stdout().lock()).map_err(|error| match error {
        LabError::Usage(text) => CommandError::Usage(text),
        LabError::Damaged(text) => CommandError::Damaged(text),
        LabError::System(text) | LabError::Failed(text) => CommandError::System(text),
        LabError::Stopped(text) => CommandError::Stopped(text),
    })
}

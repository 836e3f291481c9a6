//! `umbel lab`: experiments, with the engine that is built in.

use std::io;

use umbel::Env;
use umbel_lab::command::{LabCommand, Surroundings, execute};
use umbel_lab::lab_error::LabError;
use umbel_lab::{engines, signals};

use crate::errors::{Failure, Outcome};

/// Does what was asked.
pub fn run(command: &LabCommand, json: bool) -> Outcome<()> {
    let (env, stop) = (Env::system(), signals::listen());
    let around = Surroundings { env: &env, engines: &engines::OURS, stop: &stop, json };
    execute(command, &around, &mut io::stdout().lock()).map_err(|error| match error {
        LabError::Usage(text) => Failure::Usage(text),
        LabError::Damaged(text) => Failure::Damaged(text),
        LabError::System(text) | LabError::Failed(text) => Failure::System(text),
        LabError::Stopped(text) => Failure::Stopped(text),
    })
}

//! `umbel completions` and `umbel man`: files for shells and for `man`, generated from the
//! definition of the command line.

use std::path::Path;

use clap::Command;
use clap_complete::Shell;

use crate::errors::{CommandError, CommandResult};
use crate::io::output::Output;

/// Prints the completion script of a shell.
pub fn completions(command: &mut Command, shell: Shell) -> CommandResult<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, command, "umbel", &mut script);
    let mut output = Output::new();
    output.bytes(&script)?;
    output.flush()
}

/// Prints the manual page, or writes the pages of all commands to a directory.
pub fn man(command: Command, directory: Option<&Path>) -> CommandResult<()> {
    let Some(directory) = directory else {
        let mut page = Vec::new();
        let rendered = clap_mangen::Man::new(command).render(&mut page);
        rendered.map_err(|error| CommandError::output(&error))?;
        let mut output = Output::new();
        output.bytes(&page)?;
        return output.flush();
    };
    let failed = |error| CommandError::system("write manual pages to", directory, &error);
    std::fs::create_dir_all(directory).map_err(failed)?;
    clap_mangen::generate_to(command, directory).map_err(failed)
}

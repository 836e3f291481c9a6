//! The binary `umbel`: reads the command line, runs one command, and turns what went wrong into
//! one sentence on standard error and an exit code. It is a library for the fuzz targets alone.
#![forbid(unsafe_code)]

mod args;
mod bench;
mod commands;
mod complaint;
mod errors;
mod events;
#[cfg(unix)]
mod file_size_signal;
mod filter;
mod folders;
pub mod fuzz;
mod input;
mod lab;
mod limits;
mod lines;
mod nearest;
mod number;
mod output;
mod progress;
mod statistics;
mod store;
mod text;

use std::path::Path;
use std::process::ExitCode;

use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches};

use crate::args::{Command, CommandLine};
use crate::commands::{
    advise, checkpoint, compact, delete, get, import, inspect, put, scan, stats, verify,
};
use crate::errors::{Failure, Outcome};
use crate::events::delete::Deletion;
use crate::events::serve_options::Source;
use crate::folders::is_event_store;
use crate::limits::memory_named;
use crate::output::{Output, note};
use crate::store::Store;

const WELCOME: &str = "\
umbel: a store for keys and values in which asking for what is not there costs almost nothing

Three commands to try:
  umbel bench                          see what it does on this machine, in about a minute
  umbel --db words import FILE         store every line of a file, its number as the value
  umbel --db words get KEY             and ask for one

`umbel --help` lists the rest.";

/// All of the binary.
pub fn main() -> ExitCode {
    #[cfg(unix)]
    file_size_signal::ignore();
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let failure = memory_named(failure, "--memory");
            match &failure {
                Failure::OutputClosed | Failure::NothingSelected | Failure::Told(_) => {}
                Failure::Usage(text) => {
                    note(&format!("umbel: {}", complaint::as_typed(text, std::env::args_os())));
                }
                failure => note(&format!("umbel: {failure}")),
            }
            ExitCode::from(failure.exit_code())
        }
    }
}

fn run() -> Outcome<()> {
    let command = CommandLine::command()
        .mut_subcommand("bench", bench::flags::with_db_bench_spellings)
        .subcommand_required(false);
    let matches = match command.try_get_matches() {
        Ok(matches) => matches,
        Err(error) => return complaint::answer(&error),
    };
    if let Some(("bench", flags)) = matches.subcommand() {
        bench::note_left_aside(flags);
    }
    let mut line = match CommandLine::from_arg_matches(&matches) {
        Ok(line) => line,
        Err(error) => return complaint::answer(&error),
    };
    line.is_db_by_variable = matches.value_source("db") == Some(ValueSource::EnvVariable);
    dispatch(&line).map_err(|failure| line.limits.waited(failure))
}

/// The folder of `--db` or `UMBEL_DB`. An empty variable is one that is not set; an empty flag is
/// a script's mistake, for which no benchmark may take another folder.
fn named_folder(line: &CommandLine) -> Outcome<Option<&Path>> {
    match line.db.as_deref() {
        Some(folder) if folder.as_os_str().is_empty() => {
            if std::env::var_os("UMBEL_DB").is_some_and(|folder| folder.is_empty()) {
                return Ok(None);
            }
            Err(Failure::usage("--db is empty; which store? Name its folder with --db DIR"))
        }
        folder => Ok(folder),
    }
}

fn dispatch(line: &CommandLine) -> Outcome<()> {
    let Some(command) = &line.command else {
        let mut output = Output::new();
        output.line(WELCOME)?;
        return output.flush();
    };
    let db = named_folder(line)?;
    let limits = line.limits;
    let store = || Store::named(db, limits);
    let json = line.json;
    match command {
        Command::Bench(flags) => bench::run(flags, db, json, limits),
        Command::Import(args) => import::run(&store()?, args, json),
        Command::Get(args) => get::run(&store()?, args, json),
        Command::Put(args) => put::run(&store()?, args),
        Command::Delete(args) => match &args.stream {
            Some(stream) => {
                let expected = args.expected.as_deref();
                let (tombstone, sync) = (args.tombstone, args.sync);
                let deletion = Deletion { stream, expected, tombstone, sync };
                events::delete::run(db, deletion, limits)
            }
            None => delete::run(&store()?, args),
        },
        Command::Scan(args) => scan::run(&store()?, args, json),
        Command::Stats => stats::run(&store()?, json),
        Command::Advise => advise::run(&store()?, json),
        Command::Verify if db.is_some_and(is_event_store) => events::verify::run(db, json, limits),
        Command::Verify if db.is_some_and(events::backup::is_backup) => {
            events::backup::verify(db, json, limits)
        }
        Command::Verify => verify::run(&store()?, json),
        Command::Inspect(args) => inspect::run(db, args, json, limits),
        Command::Compact(args) => compact::run(&store()?, args, json),
        Command::Checkpoint(args) => checkpoint::run(&store()?, args, json),
        Command::Append(args) => events::append::run(db, args, limits),
        Command::Read(args) => events::read::run(db, args, limits),
        Command::Streams(args) => events::streams::run(db, args, json, limits),
        Command::Scavenge(args) => events::scavenge::run(db, args, json, limits),
        Command::Metadata(args) => events::metadata::run(db, args, limits),
        Command::Backup(args) => events::backup::run(db, args, json, limits),
        Command::Restore(args) => events::backup::restore(db, args, json, limits),
        Command::Repair(args) => events::repair::run(db, args, json, limits),
        Command::ImportEvents(args) => events::import::run(db, args, json, limits),
        Command::Serve(args) => {
            let source = match line.is_db_by_variable {
                true => Source::Variable("UMBEL_DB".to_string()),
                false => Source::Flag("db".to_string()),
            };
            events::serve::run(db.map(|folder| (folder, source)), args, json, limits)
        }
        Command::Subscribe(args) => events::subscribe::run(args),
        Command::Doctor(args) => events::doctor::run(args, json),
        Command::Filter(command) => filter::run(command, json),
        Command::Lab(command) => lab::run(command, json),
        Command::RemoveBenchFolder { name } => bench::folder::remove_when_left(name),
    }
}

//! Binary `umbel`: parses the command line, runs one command, and reports an error as one sentence
//! on standard error and an exit code. The binary's code is a library only for the fuzz targets.
#![forbid(unsafe_code)]

mod backup_url;
mod bench;
mod command_groups;
mod command_line;
mod completions_man;
mod errors;
mod events;
mod filter;
mod global_options;
mod io;
mod kv;
mod lab;
mod object_backup_outcome;
mod object_backups;
mod object_store;
mod open_kv_store;
mod replicated_log;
mod stats_json;
mod store_kind;
mod text;
mod usage_error;

pub mod fuzz_entry_points;

use std::path::Path;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory, FromArgMatches};

use crate::command_line::{Command, CommandLine};
use crate::errors::{CommandError, CommandResult};
use crate::events::delete_stream::DeleteRequest;
use crate::events::event_args::VerifyArgs;
use crate::global_options::with_memory_flag;
use crate::io::output::{Output, note};
use crate::kv::{
    advise, checkpoint, compact, delete, get, import, inspect, put, scan, stats, verify_store,
};
use crate::open_kv_store::StoreLocation;
use crate::store_kind::is_event_store;

const WELCOME: &str = "\
umbel: key-value store and event store with fast lookups of absent keys

Four commands to try:
  umbel serve --insecure               serve an event store in ./umbel-data, without TLS and users
  umbel bench                          benchmark this machine, in about a minute
  umbel --db words import FILE         import the lines of a file, with line numbers as values
  umbel --db words get KEY             print the value of a key

`umbel --help` lists all commands.";

/// Runs the binary.
pub fn main() -> ExitCode {
    #[cfg(unix)]
    io::file_size_signal::ignore();
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let failure = with_memory_flag(failure, "--memory");
            match &failure {
                CommandError::OutputClosed
                | CommandError::NothingSelected
                | CommandError::AlreadyReported(_) => {}
                failure => note(&format!("umbel: {}", usage_error::failure_sentence(failure))),
            }
            ExitCode::from(failure.exit_code())
        }
    }
}

fn run() -> CommandResult<()> {
    // Only the help needs the groups of commands.
    let parsed = parser().try_get_matches().or_else(|error| match shows_help(&error) {
        true => help_parser().try_get_matches(),
        false => Err(error),
    });
    let matches = match parsed {
        Ok(matches) => matches,
        Err(error) => return usage_error::handle_clap_error(error),
    };
    if let Some((name, flags)) = matches.subcommand() {
        if name == "bench" {
            bench::warn_ignored_flags(flags);
        }
        warn_unused_options(name, &matches);
    }
    let line = match CommandLine::from_arg_matches(&matches) {
        Ok(line) => line,
        Err(error) => return usage_error::handle_clap_error(error),
    };
    dispatch(&line, &matches).map_err(|failure| line.limits.with_lock_wait(failure))
}

fn shows_help(error: &clap::Error) -> bool {
    let kinds = [ErrorKind::DisplayHelp, ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand];
    kinds.contains(&error.kind())
}

fn parser() -> clap::Command {
    command_line::with_negative_numbers(CommandLine::command())
        .mut_subcommand("bench", bench::bench_flags::with_db_bench_spellings)
        .subcommand_required(false)
}

/// The command line as the help and the manual pages show it.
fn help_parser() -> clap::Command {
    command_groups::grouped(parser())
}

/// Warns of given global options that have no effect on the command.
fn warn_unused_options(command: &str, matches: &ArgMatches) {
    // Scripts name the store of all their commands, as the variable `UMBEL_DB` does.
    let unused = command_groups::unused_options(command);
    for option in unused.into_iter().filter(|option| *option != "db") {
        if matches.value_source(option) == Some(ValueSource::CommandLine) {
            note(&format!(
                "umbel: warning: --{} has no effect on `{command}`; a later release refuses it",
                option.replace('_', "-")
            ));
        }
    }
}

/// Directory of `--db` or `UMBEL_DB`. An empty variable counts as unset; an empty `--db` is an
/// error, so that no benchmark runs in another directory than intended.
fn db_directory(line: &CommandLine) -> CommandResult<Option<&Path>> {
    match line.db.as_deref() {
        Some(directory) if directory.as_os_str().is_empty() => {
            if std::env::var_os("UMBEL_DB").is_some_and(|directory| directory.is_empty()) {
                return Ok(None);
            }
            Err(CommandError::usage("--db is empty; name the directory of the store with --db DIR"))
        }
        directory => Ok(directory),
    }
}

fn dispatch(line: &CommandLine, matches: &ArgMatches) -> CommandResult<()> {
    let Some(command) = &line.command else {
        let mut output = Output::new();
        output.line(WELCOME)?;
        return output.flush();
    };
    let db = db_directory(line)?;
    let limits = line.limits;
    let store = || StoreLocation::at_directory(db, limits);
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
                let connect = args.connect.as_deref();
                let deletion = DeleteRequest { stream, expected, tombstone, sync, connect };
                events::delete_stream::run(db, deletion, json, limits)
            }
            None => delete::run(&store()?, args, json),
        },
        Command::Scan(args) => scan::run(&store()?, args, json),
        Command::Stats => stats::run(&store()?, json),
        Command::Advise => advise::run(&store()?, json),
        Command::Verify(VerifyArgs { from: Some(url) }) => object_backups::verify(url, json),
        Command::Verify(_) if db.is_some_and(is_event_store) => {
            events::verify_events::run(db, json, limits)
        }
        Command::Verify(_) if db.is_some_and(events::backup::is_backup) => {
            events::backup::verify(db, json, limits)
        }
        Command::Verify(_) => verify_store::run(&store()?, json),
        Command::Inspect(args) => inspect::run(db, args, json, limits),
        Command::Compact(args) => compact::run(&store()?, args, json),
        Command::Checkpoint(args) => checkpoint::run(&store()?, args, json),
        Command::Append(args) => events::append::run(db, args, limits),
        Command::Read(args) => events::read_events::run(db, args, limits),
        Command::Streams(args) => events::list_streams::run(db, args, json, limits),
        Command::Scavenge(args) => events::scavenge::run(db, args, json, limits),
        Command::Redact(args) => events::redact::run(db, args, json, limits),
        Command::Metadata(args) => events::stream_metadata::run(db, args, limits),
        Command::Backup(args) => object_backups::back_up(db, args, json, limits),
        Command::Restore(args) => object_backups::restore(db, args, json, limits),
        Command::Repair(args) => events::repair::run(db, args, json, limits),
        Command::ImportEvents(args) => events::import_events::run(db, args, json, limits),
        Command::Serve(args) => {
            let flags = matches.subcommand_matches("serve").unwrap_or(matches);
            events::serve::run(args, flags, json)
        }
        Command::Subscribe(args) => events::subscribe::run(args),
        Command::Doctor(args) if args.accept_clock => events::accept_clock::run(db, json, limits),
        Command::Doctor(args) => events::doctor::run(args, json),
        Command::Promote(args) => events::promote::run(args, json),
        Command::User(command) => events::users::run(command, json),
        Command::Group(command) => events::groups::run(command, json),
        Command::Store(command) => object_store::run(command, json),
        Command::Filter(command) => filter::run(command, json),
        Command::Lab(command) => lab::run(command, json),
        Command::Completions { shell } => completions_man::completions(&mut help_parser(), *shell),
        Command::Man { output } => completions_man::man(help_parser(), output.as_deref()),
        Command::RemoveBenchFolder { name } => {
            io::temporary_directory::remove_after_parent_exit(name)
        }
    }
}

//! Command line of `umbel`. The flags of `bench` are in `bench::bench_flags`, those of event
//! stores in `events::event_args`, those of filters in `filter::filter_args`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Arg, Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use umbel_lab::command_line::LabCommand;

use crate::bench::bench_flags::BenchFlags;
use crate::errors::EXIT_CODES;
use crate::events::event_args::{
    AppendArgs, BackupArgs, DoctorArgs, ImportEventsArgs, MetadataArgs, PromoteArgs, ReadArgs,
    RedactArgs, RepairArgs, RestoreArgs, ScavengeArgs, StreamsArgs, SubscribeArgs, VerifyArgs,
};
use crate::events::groups::group_args::GroupCommand;
use crate::events::serve::serve_args::ServeArgs;
use crate::events::users::user_args::UserCommand;
use crate::filter::FilterCommand;
use crate::global_options::StoreLimits;
use crate::object_store::StoreCommand;
use crate::text::numbers::integer_parser;

/// Version of the package and commit of the build.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), env!("UMBEL_COMMIT"));
const ABOUT: &str = "Key-value store and event store with fast lookups of absent keys";

/// Parsed command line.
#[derive(Debug, Parser)]
#[command(
    name = "umbel",
    version = VERSION,
    about = ABOUT,
    after_help = EXIT_CODES,
    max_term_width = 100
)]
pub struct CommandLine {
    /// Directory of the store
    #[arg(long, global = true, env = "UMBEL_DB", value_name = "DIR",
        value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub db: Option<PathBuf>,
    /// Resource limits of the store.
    #[command(flatten)]
    pub limits: StoreLimits,
    /// Print JSON for programs (scan: one object per line)
    #[arg(long, global = true)]
    pub json: bool,
    /// Command to run.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// Commands of `umbel`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run benchmarks, with the names, flags and output lines of db_bench
    Bench(Box<BenchFlags>),
    /// Import keys and values from a file or pipe
    Import(ImportArgs),
    /// Print the value of a key; exit code 1 if the key is absent
    Get(GetArgs),
    /// Set the value of a key
    Put(PutArgs),
    /// Delete a key, if present, or a stream of an event store
    Delete(DeleteArgs),
    /// Print entries in key order, one `key TAB value` per line
    Scan(ScanArgs),
    /// Print statistics: levels, filters, block cache, write amplification
    Stats,
    /// Print which filters are in memory, why, and the effect of more or less memory
    Advise,
    /// Read the whole store and report damage; exit code 3 if the store is damaged
    Verify(VerifyArgs),
    /// Print the levels of each keyspace, or a summary of one file
    Inspect(InspectArgs),
    /// Compact a keyspace, which frees the space of deleted and overwritten entries
    Compact(CompactArgs),
    /// Create a checkpoint: a consistent copy in a new directory, by hard links
    Checkpoint(CheckpointArgs),
    /// Free the space of deleted, truncated and expired events of an event store
    Scavenge(ScavengeArgs),
    /// Remove data and metadata of single events; their ids, types and revisions stay
    Redact(RedactArgs),
    /// Append events to an event store, from JSON lines; prints each acknowledged event
    Append(AppendArgs),
    /// Print the events of a stream, or of all streams, as JSON lines
    Read(ReadArgs),
    /// List the streams, categories or event types of an event store
    Streams(StreamsArgs),
    /// Print or change the metadata of a stream
    Metadata(MetadataArgs),
    /// Back up a store; later backups copy only new data. Into a directory: event stores only
    Backup(BackupArgs),
    /// Restore a store from a backup, into an empty or missing directory
    Restore(RestoreArgs),
    /// Repair a damaged event store and report lost events; exit code 3 if events are lost
    Repair(RepairArgs),
    /// Import events of another event store with their ids, times and revisions
    ImportEvents(ImportEventsArgs),
    /// Run a server for an event store, for KurrentDB and EventStoreDB clients
    Serve(Box<ServeArgs>),
    /// Make a running node the leader of its replicated log; an earlier leader is fenced
    Promote(PromoteArgs),
    /// Subscribe to the events of a server and print them as JSON lines
    Subscribe(SubscribeArgs),
    /// Check a running server from outside, as a client; or accept the clock for a store
    Doctor(DoctorArgs),
    /// List, add, change and delete the users of a server; change passwords
    #[command(subcommand)]
    User(UserCommand),
    /// List, create, change and delete consumer groups of a server; replay parked events
    #[command(subcommand)]
    Group(GroupCommand),
    /// Check an object store, or create a replicated log in it
    #[command(subcommand)]
    Store(StoreCommand),
    /// Size, build, check, inspect and benchmark filters, without a store
    #[command(subcommand)]
    Filter(FilterCommand),
    /// Run experiments on filter settings and report the results
    #[command(subcommand)]
    Lab(LabCommand),
    /// Print the completion script of a shell
    Completions {
        /// Shell that reads the script
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Print the manual page, or write the pages of all commands
    Man {
        /// Directory to write `umbel.1` and a page for each command to [default: standard output]
        #[arg(long, value_name = "DIR")]
        output: Option<PathBuf>,
    },
    /// Removes the temporary directory of a benchmark after its parent process has ended.
    #[command(hide = true, name = "remove-bench-folder")]
    RemoveBenchFolder {
        /// Name of the directory inside the temporary directory.
        name: String,
    },
}

/// Returns the command line whose options take negative numbers, so that the parser of a value says
/// which numbers are valid. Otherwise `-1` is an unknown flag, with a tip that does not work.
pub fn with_negative_numbers(command: clap::Command) -> clap::Command {
    let takes_value =
        |option: &Arg| option.get_long().is_some() && option.get_action().takes_values();
    let command = command.mut_args(|argument| match takes_value(&argument) {
        true => argument.allow_negative_numbers(true),
        false => argument,
    });
    command.mut_subcommands(with_negative_numbers)
}

/// Keyspace of a command.
#[derive(Debug, Args)]
pub struct KeyspaceArgs {
    /// Name of the keyspace
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub keyspace: String,
}

/// Input formats of `import`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ImportFormat {
    /// Each line is a key, its line number the value
    Lines,
    /// Key, tab, value
    Tsv,
    /// Two columns, quoted as in RFC 4180
    Csv,
    /// Lines with {"key": ..., "value": ...}, as `scan --json` prints entries
    Jsonl,
}

/// Arguments of `import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// Input file [default: -, standard input]
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    #[command(flatten)]
    pub keyspace: KeyspaceArgs,
    /// Format of the input
    #[arg(long, value_enum, default_value_t = ImportFormat::Lines)]
    pub format: ImportFormat,
    /// Decode keys and values from hex; only for the formats lines, tsv and csv
    #[arg(long)]
    pub hex: bool,
    /// Skip the first line of a csv, which has column names
    #[arg(long)]
    pub header: bool,
    /// Skip and count damaged lines instead of stopping at the first damaged line
    #[arg(long)]
    pub skip_bad: bool,
    /// Sync after every batch of 1000 entries instead of once at the end
    #[arg(long)]
    pub sync: bool,
}

/// Arguments of `get`.
#[derive(Debug, Args)]
pub struct GetArgs {
    /// Key
    pub key: OsString,
    #[command(flatten)]
    pub keyspace: KeyspaceArgs,
    /// Read the key and print the value as hex
    #[arg(long)]
    pub hex: bool,
    /// Print only the bytes of the value: no line break, no escapes on a terminal
    #[arg(long, conflicts_with = "hex")]
    pub raw: bool,
}

/// Arguments of `put`.
#[derive(Debug, Args)]
pub struct PutArgs {
    /// Key
    pub key: OsString,
    /// Value
    #[arg(required_unless_present = "file")]
    pub value: Option<OsString>,
    /// Read the value from a file; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "value")]
    pub file: Option<PathBuf>,
    #[command(flatten)]
    pub keyspace: KeyspaceArgs,
    /// Read key and value as hex, except a value from --file
    #[arg(long)]
    pub hex: bool,
    /// Sync the write before returning, so that it survives power loss
    #[arg(long)]
    pub sync: bool,
}

/// Arguments of `delete`.
#[derive(Debug, Args)]
pub struct DeleteArgs {
    /// Key
    #[arg(required_unless_present = "stream", conflicts_with = "stream")]
    pub key: Option<OsString>,
    /// Delete a stream of an event store instead; the next append creates it again
    #[arg(long, value_name = "NAME")]
    pub stream: Option<String>,
    /// Delete the stream permanently, with a stream tombstone
    #[arg(long, requires = "stream")]
    pub tombstone: bool,
    /// Expected revision of the stream: any, no-stream, exists, or the revision of its last event
    /// [default: any]
    #[arg(long, value_name = "EXPECTED", requires = "stream")]
    pub expected: Option<String>,
    #[command(flatten)]
    pub keyspace: KeyspaceArgs,
    /// Read the key as hex
    #[arg(long)]
    pub hex: bool,
    /// Sync the delete before returning, so that it survives power loss
    #[arg(long)]
    pub sync: bool,
    /// With --stream: delete at this running server: http://HOST:PORT, or a connection string
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["key", "sync"])]
    pub connect: Option<String>,
}

/// Arguments of `scan`.
#[derive(Debug, Args)]
pub struct ScanArgs {
    #[command(flatten)]
    pub keyspace: KeyspaceArgs,
    /// Print only keys with this prefix
    #[arg(long, value_name = "P")]
    pub prefix: Option<OsString>,
    /// First key of the range
    #[arg(long, value_name = "A")]
    pub from: Option<OsString>,
    /// End of the range, exclusive
    #[arg(long, value_name = "B")]
    pub to: Option<OsString>,
    /// Maximum number of entries
    #[arg(long, value_name = "N", value_parser = integer_parser(0, u64::MAX),
        allow_negative_numbers = true)]
    pub limit: Option<u64>,
    /// Print in descending key order
    #[arg(long)]
    pub reverse: bool,
    /// Print keys without values
    #[arg(long)]
    pub keys_only: bool,
    /// Read bounds and print entries as hex
    #[arg(long)]
    pub hex: bool,
    /// Print the bytes of keys and values without escapes
    #[arg(long, conflicts_with = "hex")]
    pub raw: bool,
}

/// Arguments of `inspect`.
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// Table, log, manifest or blob file [default: the store]
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// Arguments of `compact`.
#[derive(Debug, Args)]
pub struct CompactArgs {
    #[command(flatten)]
    pub keyspace: KeyspaceArgs,
    /// First key of the range
    #[arg(long, value_name = "A")]
    pub from: Option<OsString>,
    /// End of the range, exclusive
    #[arg(long, value_name = "B")]
    pub to: Option<OsString>,
    /// Read bounds as hex
    #[arg(long)]
    pub hex: bool,
}

/// Arguments of `checkpoint`.
#[derive(Debug, Args)]
pub struct CheckpointArgs {
    /// Directory to create; it must not exist
    #[arg(value_name = "DIR")]
    pub target: PathBuf,
}

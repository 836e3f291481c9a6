//! The command line: every command and flag but those of `bench`, which live in `bench::flags`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use umbel_lab::command::LabCommand;

use crate::bench::flags::BenchFlags;
use crate::errors::EXIT_CODES;
use crate::events::args::{
    AppendArgs, BackupArgs, DoctorArgs, ImportEventsArgs, MetadataArgs, ReadArgs, RepairArgs,
    RestoreArgs, ScavengeArgs, ServeArgs, StreamsArgs, SubscribeArgs,
};
use crate::filter::FilterCommand;
use crate::limits::Limits;
use crate::number::counts;

const ABOUT: &str =
    "A store for keys and values in which asking for what is not there costs almost nothing";

/// The command line of `umbel`.
#[derive(Debug, Parser)]
#[command(
    name = "umbel",
    version,
    about = ABOUT,
    after_help = EXIT_CODES,
    max_term_width = 100
)]
pub struct CommandLine {
    /// The folder of the store
    #[arg(long, global = true, env = "UMBEL_DB", value_name = "DIR",
        value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub db: Option<PathBuf>,
    /// Whether it is `UMBEL_DB` that says so, which the parser does not tell by itself.
    #[arg(skip)]
    pub is_db_by_variable: bool,
    /// What the store may take of the machine.
    #[command(flatten)]
    pub limits: Limits,
    /// Write JSON for programs (scan: one object per line)
    #[arg(long, global = true)]
    pub json: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Measure this machine: db_bench's benchmarks, flags and output lines
    Bench(Box<BenchFlags>),
    /// Read a file or a pipe into the store
    Import(ImportArgs),
    /// Write a key's value to standard output; exit code 1 when there is none
    Get(GetArgs),
    /// Store a value under a key
    Put(PutArgs),
    /// Remove a key, one that is not there is fine; or a stream of an event store
    Delete(DeleteArgs),
    /// List keys and values in key order, one `key TAB value` a line
    Scan(ScanArgs),
    /// Say what the store did and holds: levels, filters, cache, write amplification
    Stats,
    /// Say which filters are kept in memory, why, and what other memory would bring
    Advise,
    /// Read every byte of the store and check it
    Verify,
    /// Show the levels of each keyspace, or what one file of a store holds
    Inspect(InspectArgs),
    /// Rewrite a keyspace so that nothing deleted or overwritten takes space
    Compact(CompactArgs),
    /// Copy the store as it is now into a new folder, by hard links
    Checkpoint(CheckpointArgs),
    /// Give back the space of an event store's deleted, truncated and too old events
    Scavenge(ScavengeArgs),
    /// Append events to an event store: JSON lines in, one out as each is acknowledged
    Append(AppendArgs),
    /// Write the events of a stream, or of an event store, as JSON lines
    Read(ReadArgs),
    /// List the streams of an event store
    Streams(StreamsArgs),
    /// Show or change the metadata of a stream of an event store
    Metadata(MetadataArgs),
    /// Copy an event store into a backup; again, only what is new
    Backup(BackupArgs),
    /// Make an event store, in an empty or missing folder, out of a backup
    Restore(RestoreArgs),
    /// Save what can be read of a damaged event store, and say what is lost
    Repair(RepairArgs),
    /// Append events of another event store with the ids, times and revisions they had
    ImportEvents(ImportEventsArgs),
    /// Serve an event store to the clients that event stores have
    Serve(Box<ServeArgs>),
    /// Follow the events of a server as they come, as JSON lines
    Subscribe(SubscribeArgs),
    /// Look at a running server from outside, as its clients see it
    Doctor(DoctorArgs),
    /// Filters by themselves, without a store: size, build, check, inspect, bench
    #[command(subcommand)]
    Filter(FilterCommand),
    /// Experiments that answer what a filter setting is worth, and their report
    #[command(subcommand)]
    Lab(LabCommand),
    /// Removes a benchmark's temporary folder once its parent process is gone.
    #[command(hide = true, name = "remove-bench-folder")]
    RemoveBenchFolder {
        /// The folder's name, without the temporary folder it lies in.
        name: String,
    },
}

/// Which keyspace a command works on.
#[derive(Debug, Args)]
pub struct KeyspaceArgs {
    /// The keyspace
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub keyspace: String,
}

/// The formats that `import` reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ImportFormat {
    /// The line is the key, its number the value
    Lines,
    /// Key, tab, value
    Tsv,
    /// Two columns, quoted as RFC 4180 says
    Csv,
    /// {"key": ..., "value": ...} on each line, as `scan --json` writes them
    Jsonl,
}

/// Arguments of `import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// The file; `-` or nothing is standard input
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    #[command(flatten)]
    pub keyspace: KeyspaceArgs,
    /// How the input is written
    #[arg(long, value_enum, default_value_t = ImportFormat::Lines)]
    pub format: ImportFormat,
    /// Keys and values of lines, tsv and csv are written in hex
    #[arg(long)]
    pub hex: bool,
    /// The first line of a csv names the columns
    #[arg(long)]
    pub header: bool,
    /// Leave damaged lines aside and count them, instead of stopping at the first
    #[arg(long)]
    pub skip_bad: bool,
    /// Sync every batch, so that what was imported survives power loss at any moment
    #[arg(long)]
    pub sync: bool,
}

/// Arguments of `get`.
#[derive(Debug, Args)]
pub struct GetArgs {
    /// The key
    pub key: OsString,
    #[command(flatten)]
    pub keyspace: KeyspaceArgs,
    /// The key is given and the value is written in hex
    #[arg(long)]
    pub hex: bool,
    /// Write the value's bytes and nothing else: no line break, no escapes on a terminal
    #[arg(long, conflicts_with = "hex")]
    pub raw: bool,
}

/// Arguments of `put`.
#[derive(Debug, Args)]
pub struct PutArgs {
    /// The key
    pub key: OsString,
    /// The value
    #[arg(required_unless_present = "file")]
    pub value: Option<OsString>,
    /// Take the value from a file instead; `-` is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "value")]
    pub file: Option<PathBuf>,
    #[command(flatten)]
    pub keyspace: KeyspaceArgs,
    /// Key and value are given in hex (a value from --file is not)
    #[arg(long)]
    pub hex: bool,
    /// Return once the write survives power loss
    #[arg(long)]
    pub sync: bool,
}

/// Arguments of `delete`.
#[derive(Debug, Args)]
pub struct DeleteArgs {
    /// The key
    #[arg(required_unless_present = "stream", conflicts_with = "stream")]
    pub key: Option<OsString>,
    /// In an event store: the stream. The next append creates it again
    #[arg(long, value_name = "NAME")]
    pub stream: Option<String>,
    /// Delete the stream for good
    #[arg(long, requires = "stream")]
    pub tombstone: bool,
    /// What is expected of the stream: any, no-stream, exists, or the revision of its last event
    #[arg(long, value_name = "WHAT", requires = "stream")]
    pub expected: Option<String>,
    #[command(flatten)]
    pub keyspace: KeyspaceArgs,
    /// The key is given in hex
    #[arg(long)]
    pub hex: bool,
    /// Return once the delete survives power loss
    #[arg(long)]
    pub sync: bool,
}

/// Arguments of `scan`.
#[derive(Debug, Args)]
pub struct ScanArgs {
    #[command(flatten)]
    pub keyspace: KeyspaceArgs,
    /// Only keys that begin with this
    #[arg(long, value_name = "P")]
    pub prefix: Option<OsString>,
    /// Only keys from this one on
    #[arg(long, value_name = "A")]
    pub from: Option<OsString>,
    /// Only keys before this one
    #[arg(long, value_name = "B")]
    pub to: Option<OsString>,
    /// At most so many entries
    #[arg(long, value_name = "N", value_parser = counts(0, u64::MAX),
        allow_negative_numbers = true)]
    pub limit: Option<u64>,
    /// From the last key to the first
    #[arg(long)]
    pub reverse: bool,
    /// Leave the values out
    #[arg(long)]
    pub keys_only: bool,
    /// Bounds are given and entries are written in hex
    #[arg(long)]
    pub hex: bool,
    /// Write keys and values as they are, without escapes
    #[arg(long, conflicts_with = "hex")]
    pub raw: bool,
}

/// Arguments of `inspect`.
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// A .table, .log or .manifest file; without it the store is shown
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// Arguments of `compact`.
#[derive(Debug, Args)]
pub struct CompactArgs {
    #[command(flatten)]
    pub keyspace: KeyspaceArgs,
    /// Only keys from this one on
    #[arg(long, value_name = "A")]
    pub from: Option<OsString>,
    /// Only keys before this one
    #[arg(long, value_name = "B")]
    pub to: Option<OsString>,
    /// Bounds are given in hex
    #[arg(long)]
    pub hex: bool,
}

/// Arguments of `checkpoint`.
#[derive(Debug, Args)]
pub struct CheckpointArgs {
    /// The new folder; it must not exist yet
    #[arg(value_name = "DIR")]
    pub target: PathBuf,
}

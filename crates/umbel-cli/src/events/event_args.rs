//! Arguments of the commands for event stores.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args};
use umbel_events::ExpectedVersion;

use crate::errors::CommandResult;
use crate::events::client::connection_string::ConnectionString;
use crate::events::timestamps::{parse_age, parse_time};
use crate::text::numbers::integer_parser;

/// Server of a command that works as a client.
#[derive(Debug, Args)]
pub struct ServerArgs {
    /// Server: http://HOST:PORT, or a connection string such as
    /// kurrentdb://USER@HOST:PORT?tlsCaFile=FILE
    #[arg(long, value_name = "ADDRESS", default_value = "http://127.0.0.1:2113")]
    pub connect: String,
}

impl ServerArgs {
    /// Parses the address. A user without a password gets the one of `UMBEL_PASSWORD`, or on a
    /// terminal the one that the operator enters.
    ///
    /// # Errors
    /// The address names no server, or the user has no password.
    pub fn address(&self) -> CommandResult<ConnectionString> {
        ConnectionString::parse("--connect", &self.connect)
    }
}

/// Arguments of `append`.
#[derive(Debug, Args)]
pub struct AppendArgs {
    /// File of JSON lines [default: -, standard input]
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Stream for input lines that have no "stream"
    #[arg(long, value_name = "NAME")]
    pub stream: Option<String>,
    /// Event type for input lines that have no "type"
    #[arg(long = "type", value_name = "TYPE")]
    pub kind: Option<String>,
    /// Expected revision for input lines that have no "expected": any, no-stream, exists, or the
    /// revision of the last event
    #[arg(long, value_name = "EXPECTED", default_value = "any", value_parser = parse_expected)]
    pub expected: ExpectedVersion,
    /// Skip and count damaged lines instead of stopping at the first
    #[arg(long)]
    pub skip_bad: bool,
    /// Acknowledge an append after fsync
    #[arg(long)]
    pub sync: bool,
    /// Append at this running server, which decides when to sync: http://HOST:PORT, or a connection
    /// string
    #[arg(long, value_name = "ADDRESS", conflicts_with = "sync")]
    pub connect: Option<String>,
}

/// Arguments of `read`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true).args(["stream", "all"]))]
pub struct ReadArgs {
    /// Stream or view to read; views are $ce-CATEGORY, $et-TYPE and $streams
    #[arg(long, value_name = "NAME")]
    pub stream: Option<String>,
    /// Print the events that links point at instead of the links
    #[arg(long, conflicts_with = "all")]
    pub resolve_links: bool,
    /// Read the events of all streams
    #[arg(long)]
    pub all: bool,
    /// First revision to read, or with --all first position [default: the first event, with
    /// --backwards the last event]
    #[arg(long, value_name = "NUMBER", value_parser = integer_parser(0, u64::MAX),
        allow_negative_numbers = true)]
    pub from: Option<u64>,
    /// Read in descending order, newest event first
    #[arg(long)]
    pub backwards: bool,
    /// Maximum number of events
    #[arg(long, value_name = "EVENTS", value_parser = integer_parser(0, u64::MAX),
        allow_negative_numbers = true)]
    pub count: Option<u64>,
    #[command(flatten)]
    pub filter: FilterArgs,
    /// Read at this running server: http://HOST:PORT, or a connection string
    #[arg(long, value_name = "ADDRESS")]
    pub connect: Option<String>,
}

/// Arguments of `subscribe`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true).args(["stream", "all"]))]
pub struct SubscribeArgs {
    /// Server: http://HOST:PORT or a connection string; with USER:PASSWORD@ before the host if the
    /// server has users
    #[arg(long, value_name = "ADDRESS")]
    pub connect: String,
    /// Stream to subscribe to; it need not exist yet
    #[arg(long, value_name = "NAME")]
    pub stream: Option<String>,
    /// Subscribe to the events of all streams
    #[arg(long)]
    pub all: bool,
    /// Start after this revision, or with --all after this position [default: the first event]
    #[arg(long, value_name = "NUMBER", value_parser = integer_parser(0, u64::MAX),
        allow_negative_numbers = true)]
    pub from: Option<u64>,
    /// Exit after the last existing event instead of waiting for new ones
    #[arg(long)]
    pub until_caught_up: bool,
    #[command(flatten)]
    pub filter: FilterArgs,
}

/// Arguments of `promote`.
#[derive(Debug, Args)]
pub struct PromoteArgs {
    /// The node.
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Server: http://HOST:PORT or a connection string
    #[arg(long, value_name = "ADDRESS", default_value = "http://127.0.0.1:2113")]
    pub connect: String,
    /// Also append an event to the stream `umbel-doctor`, read it and delete the stream
    #[arg(long)]
    pub write: bool,
    /// Accept this machine's clock for the event store in --db, which no process may have open; if
    /// the clock is behind the last event, times restart from the clock
    #[arg(long, conflicts_with_all = ["connect", "write"])]
    pub accept_clock: bool,
}

/// Filter of events.
#[derive(Debug, Args)]
#[group(id = "filter", multiple = false)]
pub struct FilterArgs {
    /// With --all: only streams with this name prefix; can be given several times
    #[arg(long, value_name = "TEXT", conflicts_with = "stream")]
    pub stream_prefix: Vec<String>,
    /// With --all: only event types with this prefix; can be given several times
    #[arg(long, value_name = "TEXT", conflicts_with = "stream")]
    pub type_prefix: Vec<String>,
    /// With --all: only streams whose names match this regular expression
    #[arg(long, value_name = "REGEX", conflicts_with = "stream")]
    pub stream_regex: Option<String>,
    /// With --all: only event types that match this regular expression
    #[arg(long, value_name = "REGEX", conflicts_with = "stream")]
    pub type_regex: Option<String>,
}

/// Arguments of `scavenge`.
#[derive(Debug, Args)]
pub struct ScavengeArgs {
    /// Maximum bytes per second, like 20MiB, reads and writes together [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = parse_scavenge_rate,
        allow_negative_numbers = true)]
    pub throttle: Option<u64>,
    /// Share of time that the scavenge runs, in percent; it pauses for the remaining time [default:
    /// 100; with --connect 25]
    #[arg(long, value_name = "PERCENT", value_parser = integer_parser(1, 100))]
    pub busy: Option<u64>,
    /// Rewrite a chunk only if at least this share of its bytes is dead, in percent [default: 0;
    /// with --schedule 30]
    #[arg(long, value_name = "PERCENT", value_parser = integer_parser(0, 100))]
    pub threshold: Option<u64>,
    /// Start with the oldest chunk instead of continuing an interrupted scavenge
    #[arg(long)]
    pub from_start: bool,
    /// Remove the data of all events hidden so far, also of the newest ones, and report what still
    /// has removed data; exit code 1 if the store does
    #[arg(long)]
    pub now: bool,
    /// Let this running server scavenge its store, and wait for the outcome
    #[arg(long, value_name = "ADDRESS", conflicts_with = "from_start")]
    pub connect: Option<String>,
    /// Let the server of --connect scavenge at the times of this cron expression in UTC, such as
    /// "0 3 * * *", with --busy and --threshold; `none` ends this
    #[arg(
        long,
        value_name = "CRON",
        requires = "connect",
        conflicts_with_all = ["now", "throttle"],
        group = "auto_scavenge"
    )]
    pub schedule: Option<String>,
    /// Pause the schedule of the server of --connect, and stop a scavenge that it started
    #[arg(long, requires = "connect", conflicts_with_all = ["now", "busy", "threshold", "throttle"],
        group = "auto_scavenge")]
    pub pause: bool,
    /// End a pause; a scavenge that the pause stopped continues
    #[arg(long, requires = "connect", conflicts_with_all = ["now", "busy", "threshold", "throttle"],
        group = "auto_scavenge")]
    pub resume: bool,
    /// Print schedule, settings and next time of the server of --connect
    #[arg(long, requires = "connect", conflicts_with_all = ["now", "busy", "threshold", "throttle"],
        group = "auto_scavenge")]
    pub status: bool,
    /// List the last 100 scavenges of the server of --connect with their outcomes, newest first
    #[arg(long, requires = "connect", conflicts_with_all = ["now", "busy", "threshold", "throttle"],
        group = "auto_scavenge")]
    pub history: bool,
}

/// Arguments of `redact`.
#[derive(Debug, Args)]
pub struct RedactArgs {
    /// Events whose data and metadata to remove, at most 1,000; the last `@` separates stream and
    /// revision
    #[arg(required = true, value_name = "STREAM@REVISION", value_parser = parse_place)]
    pub events: Vec<(String, u64)>,
    /// Reason for the audit events in the stream $redactions, at most 4,096 bytes
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub reason: String,
    /// Redact the events of this running server, as a user of $ops: http://HOST:PORT, or a
    /// connection string
    #[arg(long, value_name = "ADDRESS")]
    pub connect: Option<String>,
}

/// Arguments of `streams`.
#[derive(Debug, Args)]
pub struct StreamsArgs {
    /// List only names with this prefix
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub prefix: String,
    /// Also list streams whose names begin with `$`
    #[arg(long)]
    pub system: bool,
    /// List categories with their numbers of events; a category is the part of a stream name before
    /// the first hyphen
    #[arg(long, conflicts_with = "system")]
    pub categories: bool,
    /// List event types with their numbers of events
    #[arg(long, conflicts_with_all = ["system", "categories"])]
    pub types: bool,
    /// List those of this running server: http://HOST:PORT, or a connection string
    #[arg(long, value_name = "ADDRESS")]
    pub connect: Option<String>,
}

/// Arguments of `backup`.
#[derive(Debug, Args)]
pub struct BackupArgs {
    /// Backup directory: empty, missing, or with an earlier backup of this store; or the URL of an
    /// object store, like file:///mnt/share/backups or s3://bucket/prefix
    #[arg(long, value_name = "DIR|URL",
        required_unless_present_any = ["connect", "history"])]
    pub to: Option<PathBuf>,
    /// After a backup to an object store, delete what only states older than this need, like 30d
    #[arg(long, value_name = "AGE", value_parser = parse_age, conflicts_with = "connect")]
    pub keep: Option<Duration>,
    /// With --keep: print what would be deleted, and delete nothing
    #[arg(long, requires = "keep")]
    pub dry_run: bool,
    /// Let this running server back up into its own backup directory, and wait for the outcome
    #[arg(long, value_name = "ADDRESS", conflicts_with = "to")]
    pub connect: Option<String>,
    /// Maximum bytes per second, like 20MiB [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = parse_copy_rate,
        allow_negative_numbers = true)]
    pub throttle: Option<u64>,
    /// List the last 100 backups of the server of --connect with their outcomes, newest first
    #[arg(long, requires = "connect", conflicts_with = "throttle")]
    pub history: bool,
}

/// Arguments of `verify`.
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// Instead of the store, check the backup in this object store without a restore
    #[arg(long, value_name = "URL")]
    pub from: Option<String>,
}

/// Arguments of `repair`.
#[derive(Debug, Args)]
pub struct RepairArgs {
    /// Report damage and losses without changing anything
    #[arg(long)]
    pub dry_run: bool,
    /// Also keep appends that look complete but may be part of the data of another event
    #[arg(long)]
    pub accept_unproven: bool,
}

/// Arguments of `restore`.
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// Directory of the backup, or the URL of an object store
    #[arg(long, value_name = "DIR|URL")]
    pub from: PathBuf,
    /// From an object store: restore the appends of an event store up to this position
    #[arg(long, value_name = "POSITION", value_parser = integer_parser(0, u64::MAX),
        allow_negative_numbers = true, conflicts_with = "to_time")]
    pub to_position: Option<u64>,
    /// From an object store: restore the appends up to this time of RFC 3339, such as
    /// 2026-11-29T08:30:00Z, and keys and values as the last run up to it found them
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub to_time: Option<u64>,
    /// Maximum bytes per second, like 20MiB [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = parse_copy_rate,
        allow_negative_numbers = true)]
    pub throttle: Option<u64>,
}

/// Arguments of `import-events`.
#[derive(Debug, Args)]
pub struct ImportEventsArgs {
    /// File of JSON lines, as `umbel read --all` prints them [default: -, standard input]
    #[arg(value_name = "FILE", conflicts_with = "from")]
    pub file: Option<PathBuf>,
    /// Import from a KurrentDB, EventStoreDB or Umbel server: esdb://USER:PASSWORD@HOST:PORT
    #[arg(long, value_name = "ADDRESS")]
    pub from: Option<String>,
    /// With --from: also import system streams (`$...`), except views and statistics
    #[arg(long, requires = "from")]
    pub system: bool,
    /// Skip and count events that cannot be imported instead of stopping at the first such event
    #[arg(long)]
    pub skip_bad: bool,
    /// Sync every 1,000 events instead of once at the end
    #[arg(long)]
    pub sync: bool,
}

/// Arguments of `metadata`.
#[derive(Debug, Args)]
pub struct MetadataArgs {
    /// Stream whose metadata is printed or changed
    #[arg(long, value_name = "NAME")]
    pub stream: String,
    /// Set the keys of this JSON object; other keys stay unchanged
    #[arg(long, value_name = "JSON")]
    pub set: Option<String>,
    /// Keep only this number of the newest events ($maxCount)
    #[arg(long, value_name = "EVENTS", value_parser = integer_parser(0, u64::MAX),
        allow_negative_numbers = true)]
    pub max_count: Option<u64>,
    /// Hide events older than this many seconds ($maxAge)
    #[arg(long, value_name = "SECONDS", value_parser = integer_parser(0, u64::MAX),
        allow_negative_numbers = true)]
    pub max_age: Option<u64>,
    /// Hide events before this revision ($tb)
    #[arg(long, value_name = "REVISION", value_parser = integer_parser(0, u64::MAX),
        allow_negative_numbers = true)]
    pub truncate_before: Option<u64>,
    /// Remove a key; can be given several times
    #[arg(long, value_name = "KEY")]
    pub clear: Vec<String>,
    /// Show or change the metadata at this running server: http://HOST:PORT, or a connection string
    #[arg(long, value_name = "ADDRESS")]
    pub connect: Option<String>,
}

/// Plain numbers below this one were MiB per second for `scavenge`, and others bytes per second for
/// `backup` and `restore`. Either command refuses the plain numbers of the other one.
const PLAIN_RATE_SPLIT: u64 = 64 << 10;

/// Parses a rate of `scavenge`: bytes with a unit, or a plain number of MiB.
fn parse_scavenge_rate(text: &str) -> Result<u64, String> {
    let bytes = integer_parser(1, u64::MAX)(text)?;
    match ends_with_digit(text) {
        false => Ok(bytes),
        true if bytes < PLAIN_RATE_SPLIT => Ok(bytes << 20),
        true => Err(format!("must have a unit, such as {}kB", bytes.div_ceil(1000))),
    }
}

/// Parses a rate of `backup` and `restore`: bytes with a unit, or a large plain number of bytes.
pub fn parse_copy_rate(text: &str) -> Result<u64, String> {
    let bytes = integer_parser(1, u64::MAX)(text)?;
    match ends_with_digit(text) && bytes < PLAIN_RATE_SPLIT {
        true => Err(format!("must have a unit, such as {bytes}MiB")),
        false => Ok(bytes),
    }
}

fn ends_with_digit(text: &str) -> bool {
    text.trim_end().ends_with(|last: char| last.is_ascii_digit() || last == '_')
}

/// Parses `STREAM@REVISION`.
fn parse_place(text: &str) -> Result<(String, u64), String> {
    let place = umbel_events::parse_event_place(text).map_err(|error| error.to_string())?;
    Ok((place.0.to_string(), place.1))
}

/// Parses the value of `--expected`.
pub fn parse_expected(text: &str) -> Result<ExpectedVersion, String> {
    match text {
        "any" => Ok(ExpectedVersion::Any),
        "no-stream" => Ok(ExpectedVersion::NoStream),
        "exists" => Ok(ExpectedVersion::Exists),
        number => number.parse().map(ExpectedVersion::Exact).map_err(|_| {
            "write any, no-stream, exists, or the revision of the last event".to_string()
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Story: `--throttle 20` was 20 MiB a second for `scavenge` and 20 bytes for `backup`.
    #[test]
    fn a_rate_has_one_meaning_in_all_commands() {
        for text in ["20MiB", "20_480KiB", "20Mi"] {
            assert_eq!(parse_scavenge_rate(text), Ok(20 << 20), "{text}");
            assert_eq!(parse_copy_rate(text), Ok(20 << 20), "{text}");
        }
        assert_eq!(parse_scavenge_rate("20"), Ok(20 << 20), "the earlier form");
        assert_eq!(parse_copy_rate("20971520"), Ok(20 << 20), "the earlier form");
        assert_eq!(parse_copy_rate("20").unwrap_err(), "must have a unit, such as 20MiB");
        let refused = parse_scavenge_rate("20971520").unwrap_err();
        assert_eq!(refused, "must have a unit, such as 20972kB");
        for text in ["0", "-1", "0MiB"] {
            let is_refused = |rate: Result<u64, String>| rate.unwrap_err().starts_with("must be 1");
            assert!(is_refused(parse_scavenge_rate(text)) && is_refused(parse_copy_rate(text)));
        }
    }
}

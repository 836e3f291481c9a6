//! Flags of the commands for an event store.

use std::path::PathBuf;

use clap::{ArgGroup, Args};
use umbel_events::Expected;

use crate::number::counts;

/// Arguments of `append`.
#[derive(Debug, Args)]
pub struct AppendArgs {
    /// A file of JSON lines; `-` or nothing is standard input
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// The stream of lines that name none
    #[arg(long, value_name = "NAME")]
    pub stream: Option<String>,
    /// The type of lines that name none
    #[arg(long = "type", value_name = "TYPE")]
    pub kind: Option<String>,
    /// What is expected of the streams of lines that say nothing: any, no-stream, exists, or the
    /// revision of the last event
    #[arg(long, value_name = "WHAT", default_value = "any", value_parser = expected)]
    pub expected: Expected,
    /// Leave damaged lines aside and count them, instead of stopping at the first
    #[arg(long)]
    pub skip_bad: bool,
    /// Acknowledge an event once it survives power loss
    #[arg(long)]
    pub sync: bool,
}

/// Arguments of `read`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true).args(["stream", "all"]))]
pub struct ReadArgs {
    /// The stream to read, or a view: $ce- and a category, $et- and a type, or $streams
    #[arg(long, value_name = "NAME")]
    pub stream: Option<String>,
    /// Of a view, print the events that its links point at; others as they are
    #[arg(long, conflicts_with = "all")]
    pub resolve_links: bool,
    /// Read the events of all streams
    #[arg(long)]
    pub all: bool,
    /// Begin with this revision, or with --all at this position [default: the first, or with
    /// --backwards the last]
    #[arg(long, value_name = "NUMBER")]
    pub from: Option<u64>,
    /// Read from newer events to older ones
    #[arg(long)]
    pub backwards: bool,
    /// Read so many events at most
    #[arg(long, value_name = "EVENTS")]
    pub count: Option<u64>,
    #[command(flatten)]
    pub filter: FilterArgs,
}

/// Arguments of `subscribe`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true).args(["stream", "all"]))]
pub struct SubscribeArgs {
    /// The server: http://HOST:PORT, or what it says that clients connect with, with USER:PASSWORD@
    /// before the host where it asks who one is
    #[arg(long, value_name = "ADDRESS")]
    pub connect: String,
    /// The stream to follow; it may come only later
    #[arg(long, value_name = "NAME")]
    pub stream: Option<String>,
    /// Follow the events of all streams
    #[arg(long)]
    pub all: bool,
    /// Begin behind this revision, or with --all behind this position [default: the first event]
    #[arg(long, value_name = "NUMBER")]
    pub from: Option<u64>,
    /// End once there is nothing more, instead of waiting for what comes
    #[arg(long)]
    pub until_caught_up: bool,
    #[command(flatten)]
    pub filter: FilterArgs,
}

/// Arguments of `doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// The server: http://HOST:PORT, or what its clients connect with
    #[arg(long, value_name = "ADDRESS", default_value = "http://127.0.0.1:2113")]
    pub connect: String,
    /// Append an event to the stream `umbel-doctor`, read it again and delete the stream
    #[arg(long)]
    pub write: bool,
}

/// Which of all events pass.
#[derive(Debug, Args)]
#[group(id = "filter", multiple = false)]
pub struct FilterArgs {
    /// With --all: only of streams whose names begin so; can be given several times
    #[arg(long, value_name = "TEXT", conflicts_with = "stream")]
    pub stream_prefix: Vec<String>,
    /// With --all: only of types that begin so; can be given several times
    #[arg(long, value_name = "TEXT", conflicts_with = "stream")]
    pub type_prefix: Vec<String>,
    /// With --all: only of streams whose names match a regular expression
    #[arg(long, value_name = "REGEX", conflicts_with = "stream")]
    pub stream_regex: Option<String>,
    /// With --all: only of types that match a regular expression
    #[arg(long, value_name = "REGEX", conflicts_with = "stream")]
    pub type_regex: Option<String>,
}

/// Arguments of `scavenge`.
#[derive(Debug, Args)]
pub struct ScavengeArgs {
    /// Read and write so many MiB of the log a second at most, both together
    #[arg(long, value_name = "MiB/s", value_parser = counts(1, 1 << 20))]
    pub throttle: Option<u64>,
    /// How much of its time it works, in percent; the rest it leaves to others
    #[arg(long, value_name = "PERCENT", default_value = "100",
        value_parser = counts(1, 100))]
    pub busy: u64,
    /// Begin with the oldest chunk also where an earlier scavenge did not end
    #[arg(long)]
    pub from_start: bool,
}

/// Arguments of `streams`.
#[derive(Debug, Args)]
pub struct StreamsArgs {
    /// Streams whose names begin so
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub prefix: String,
    /// Streams of metadata and others whose names begin with `$`, too
    #[arg(long)]
    pub system: bool,
    /// List categories instead, what stands before the hyphen in names of streams, with the number
    /// of events in each
    #[arg(long, conflicts_with = "system")]
    pub categories: bool,
    /// List types of events instead, with the number of events of each
    #[arg(long, conflicts_with_all = ["system", "categories"])]
    pub types: bool,
}

/// Arguments of `serve`. What a file and the environment may say as well is text until
/// [`ServeConfig`](super::serve_config::ServeConfig) reads all of it.
#[derive(Debug, Default, Args)]
pub struct ServeArgs {
    /// Serve in clear and without users: whoever reaches the port may read and write
    #[arg(long)]
    pub insecure: bool,
    /// The server's certificate and those between it and an authority that clients know, as PEM
    #[arg(long, value_name = "FILE")]
    pub certificate_file: Option<String>,
    /// The private key of the certificate, as PEM
    #[arg(long, value_name = "FILE")]
    pub certificate_private_key_file: Option<String>,
    /// Certificates of authorities, as PEM, a file or a folder of files: whoever shows one of
    /// theirs is the user whose name is in it
    #[arg(long, value_name = "PATH")]
    pub trusted_root_certificates_path: Option<String>,
    /// Ask users who they are, but do not encrypt: for a server behind one that does
    #[arg(long)]
    pub disable_tls: bool,
    /// Where to listen; port 0 takes any that is free [default: 127.0.0.1:2113]
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Option<String>,
    /// Under which name and port clients are told to come back [default: the one they came by]
    #[arg(long, value_name = "HOST:PORT")]
    pub advertise: Option<String>,
    /// The folder for backups that are asked for while it runs: empty, missing, or with an earlier
    /// backup of this store
    #[arg(long, value_name = "DIR")]
    pub backup_dir: Option<String>,
    /// Answer an append once it survives power loss
    #[arg(long)]
    pub sync: bool,
    /// Serve keys and values, too: they lie in the folder `kv` of the store
    #[arg(long)]
    pub kv: bool,
    /// Bytes of memory for everything the store of keys and values keeps, like 64MiB
    /// [default: 256MiB]
    #[arg(long, value_name = "BYTES")]
    pub kv_memory: Option<String>,
    /// Bytes of the filter that knows which streams cannot be there; 0 for none, or `growing`
    /// [default: growing]
    #[arg(long, value_name = "BYTES")]
    pub stream_existence_filter_size: Option<String>,
    /// How many seconds an append may take from its first part to its last [default: 30]
    #[arg(long, value_name = "SECONDS")]
    pub append_time: Option<String>,
    /// The form of what is told on standard error: text, or json for one object a line
    /// [default: text]
    #[arg(long, value_name = "FORM")]
    pub log_format: Option<String>,
    /// How much is told: error, warn, info (calls that fail, too) or debug (every call)
    /// [default: info]
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<String>,
    /// A call whose answer begins after more milliseconds than these is told as slow; 0 for every
    /// call [default: 1000]
    #[arg(long, value_name = "MILLISECONDS")]
    pub log_slow_milliseconds: Option<String>,
    /// A file of these options, as `name = value` lines; the environment and flags win over it
    #[arg(long, value_name = "FILE", env = "UMBEL_CONFIG")]
    pub config: Option<PathBuf>,
    /// Print every option, its value and where that comes from, and do not serve
    #[arg(long)]
    pub print_config: bool,
    /// KurrentDB's name for the address of --listen.
    #[arg(long, hide = true)]
    pub node_ip: Option<String>,
    /// KurrentDB's name for the port of --listen.
    #[arg(long, hide = true)]
    pub node_port: Option<String>,
    /// KurrentDB's name for the host of --advertise.
    #[arg(long, hide = true)]
    pub advertise_host_to_client_as: Option<String>,
    /// KurrentDB's name for the port of --advertise.
    #[arg(long, hide = true)]
    pub advertise_node_port_to_client_as: Option<String>,
}

/// Arguments of `backup`.
#[derive(Debug, Args)]
pub struct BackupArgs {
    /// Where to: an empty or missing folder, or one with an earlier backup of this store
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,
    /// Copy at most so many bytes a second (10MiB)
    #[arg(long, value_name = "BYTES", value_parser = counts(1, u64::MAX),
        allow_negative_numbers = true)]
    pub throttle: Option<u64>,
}

/// Arguments of `repair`.
#[derive(Debug, Args)]
pub struct RepairArgs {
    /// Say what is damaged and what would be lost, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Take appends along that look whole, but could be the content of another event
    #[arg(long)]
    pub accept_unproven: bool,
}

/// Arguments of `restore`.
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// The folder of the backup
    #[arg(long, value_name = "DIR")]
    pub from: PathBuf,
    /// Read and copy at most so many bytes a second (10MiB)
    #[arg(long, value_name = "BYTES", value_parser = counts(1, u64::MAX),
        allow_negative_numbers = true)]
    pub throttle: Option<u64>,
}

/// Arguments of `import-events`.
#[derive(Debug, Args)]
pub struct ImportEventsArgs {
    /// A file of JSON lines, as `umbel read --all` writes them; `-` or nothing is standard input
    #[arg(value_name = "FILE", conflicts_with = "from")]
    pub file: Option<PathBuf>,
    /// Read a KurrentDB, EventStoreDB or Umbel server instead: esdb://USER:PASSWORD@HOST:PORT
    #[arg(long, value_name = "ADDRESS")]
    pub from: Option<String>,
    /// With --from: streams of the server's own (`$...`), too, but for views and statistics
    #[arg(long, requires = "from")]
    pub system: bool,
    /// Leave aside what cannot be imported and count it, instead of stopping at the first
    #[arg(long)]
    pub skip_bad: bool,
    /// Sync what was imported every 1,000 events, and not only at the end
    #[arg(long)]
    pub sync: bool,
}

/// Arguments of `metadata`.
#[derive(Debug, Args)]
pub struct MetadataArgs {
    /// The stream whose metadata it is
    #[arg(long, value_name = "NAME")]
    pub stream: String,
    /// Set these keys; others stay as they are
    #[arg(long, value_name = "JSON")]
    pub set: Option<String>,
    /// Only so many of the newest events stay ($maxCount)
    #[arg(long, value_name = "EVENTS")]
    pub max_count: Option<u64>,
    /// Events older than this are gone ($maxAge)
    #[arg(long, value_name = "SECONDS")]
    pub max_age: Option<u64>,
    /// Events with lower revisions are gone ($tb)
    #[arg(long, value_name = "REVISION")]
    pub truncate_before: Option<u64>,
    /// Take a key out; may be given several times
    #[arg(long, value_name = "KEY")]
    pub clear: Vec<String>,
}

/// What `--expected` says.
pub fn expected(text: &str) -> Result<Expected, String> {
    match text {
        "any" => Ok(Expected::Any),
        "no-stream" => Ok(Expected::NoStream),
        "exists" => Ok(Expected::Exists),
        number => number.parse().map(Expected::Exact).map_err(|_| {
            "write any, no-stream, exists, or the revision of the last event".to_string()
        }),
    }
}

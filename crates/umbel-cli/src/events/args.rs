//! Flags of the commands for an event store.

use std::path::PathBuf;

use clap::{ArgGroup, Args};
use umbel_events::Expected;

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
    /// The stream to read
    #[arg(long, value_name = "NAME")]
    pub stream: Option<String>,
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
}

/// Arguments of `serve`. What a file and the environment may say as well is text until
/// [`ServeConfig`](super::serve_config::ServeConfig) reads all of it.
#[derive(Debug, Default, Args)]
pub struct ServeArgs {
    /// Serve in clear and without users: whoever reaches the port may read and write
    #[arg(long)]
    pub insecure: bool,
    /// Where to listen; port 0 takes any that is free [default: 127.0.0.1:2113]
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Option<String>,
    /// Under which name and port clients are told to come back [default: the one they came by]
    #[arg(long, value_name = "HOST:PORT")]
    pub advertise: Option<String>,
    /// Answer an append once it survives power loss
    #[arg(long)]
    pub sync: bool,
    /// Bytes of the filter that knows which streams cannot be there; 0 for none, or `growing`
    /// [default: growing]
    #[arg(long, value_name = "BYTES")]
    pub stream_existence_filter_size: Option<String>,
    /// How many seconds an append may take from its first part to its last [default: 30]
    #[arg(long, value_name = "SECONDS")]
    pub append_time: Option<String>,
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

//! Arguments of `umbel serve`, with the parsers of their values.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::TypedValueParser;
use clap::{ArgAction, Args};
use tracing::Level;
use umbel::Durability;
use umbel_events::limits::CHUNK_BYTES_MIN;
use umbel_events::{ExistenceSize, StoreOptions};
use umbel_server::{CollectorEndpoint, PASSWORD_BYTES_MAX, ScavengeSchedule, Secret};
use umbel_slots::NodeClaim;

use crate::events::event_args::parse_copy_rate;
use crate::events::serve::kurrent_options::IgnoredOptions;
use crate::events::serve::otlp_flags::{self, SignalList};
use crate::events::serve::server_log::{self, LogFormat};
use crate::events::timestamps::parse_age;
use crate::replicated_log::parse_log_id;
use crate::text::numbers::{integer_parser, parse_switch};

/// Maximum size of an existence filter of fixed size.
const FILTER_BYTES_MAX: u64 = 1 << 40;
/// Maximum pause between two runs of a continuous backup.
const BACKUP_INTERVAL_SECONDS_MAX: u64 = 24 * 3600;

/// Arguments of `serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Options of the server.
    #[command(flatten)]
    pub options: ServeOptions,
    /// TOML file of these options, as `name = value` lines; environment and flags override it
    #[arg(long, value_name = "FILE", env = "UMBEL_CONFIG")]
    pub config: Option<PathBuf>,
    /// Print every option with its value and source, and exit
    #[arg(long)]
    pub print_config: bool,
}

/// Options of a server that are flags of `serve` only. Config file and environment use the same
/// option names.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct ServeOptions {
    /// Serve without TLS and without users: every client that reaches the port can read and write
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true,
        default_value = "false", default_missing_value = "true", hide_default_value = true,
        value_name = "BOOL", value_parser = parse_switch)]
    pub insecure: bool,
    /// PEM file with the server certificate and its intermediate certificates
    #[arg(long, value_name = "FILE", value_parser = parse_path)]
    pub certificate_file: Option<PathBuf>,
    /// PEM file with the private key of the certificate
    #[arg(long, value_name = "FILE", value_parser = parse_path)]
    pub certificate_private_key_file: Option<PathBuf>,
    /// PEM file, or directory of PEM files, with CA certificates for user certificates; a client
    /// with a user certificate acts as the user whom the certificate names
    #[arg(long, value_name = "PATH", value_parser = parse_path)]
    pub trusted_root_certificates_path: Option<PathBuf>,
    /// Authenticate users but serve without TLS, for use behind a TLS proxy
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true,
        default_value = "false", default_missing_value = "true", hide_default_value = true,
        value_name = "BOOL", value_parser = parse_switch)]
    pub disable_tls: bool,
    /// IP address and port to listen on; port 0 is any free port
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:2113",
        value_parser = parse_address)]
    pub listen: SocketAddr,
    /// Host and port that the server advertises for reconnects [default: the address that the
    /// client used]
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_host_and_port)]
    pub advertise: Option<(String, u16)>,
    /// Directory for backups that the running server makes: empty, missing, or with an earlier
    /// backup of this store
    #[arg(long, value_name = "DIR", value_parser = parse_path)]
    pub backup_dir: Option<PathBuf>,
    /// Object store into which the running server backs up all events, like
    /// file:///mnt/share/backups; each store needs a prefix of its own
    #[arg(long, value_name = "URL", value_parser = parse_url)]
    pub backup_to: Option<String>,
    /// Pause between two runs of the backup of --backup-to, like 10s or 5m
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_interval)]
    pub backup_interval: Duration,
    /// In the object store of --backup-to, delete what only states older than this need, like 30d
    /// [default: keep all states]
    #[arg(long, value_name = "AGE", value_parser = parse_keep)]
    pub backup_keep: Option<Duration>,
    /// Maximum bytes per second of the backup of --backup-to, like 20MiB [default: no limit, but 4
    /// MiB per processor or twice the appended bytes while many events are appended]
    #[arg(long, value_name = "BYTES", value_parser = parse_copy_rate)]
    pub backup_throttle: Option<u64>,
    /// Object store with the replicated log of this node, which `umbel store init` created, like
    /// s3://bucket/prefix; needs --node
    #[arg(long, value_name = "URL", value_parser = parse_url)]
    pub store: Option<String>,
    /// Name of this node, which no other node of the log of --store has
    #[arg(long, value_name = "NAME", value_parser = parse_node)]
    pub node: Option<String>,
    /// Id of the log of --store, with which an empty directory joins a log that has events
    #[arg(long, value_name = "ID", value_parser = parse_log_id)]
    pub join: Option<String>,
    /// Only follow the log of --store; lead only after `umbel promote`
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true,
        default_value = "false", default_missing_value = "true", hide_default_value = true,
        value_name = "BOOL", value_parser = parse_switch)]
    pub read_only_replica: bool,
    /// Cron expression in UTC of automatic scavenges, such as "0 3 * * *", until a client sets
    /// another schedule
    #[arg(long, value_name = "CRON", value_parser = parse_schedule)]
    pub scavenge_schedule: Option<ScavengeSchedule>,
    /// Bytes of the event log, like 100GiB, from which appends are refused; deletes and scavenges
    /// remain possible [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = integer_parser(CHUNK_BYTES_MIN, 1 << 60))]
    pub log_quota: Option<u64>,
    /// Acknowledge appends and writes after fsync (synced: they survive power loss) or before it
    /// (buffered: they survive only the death of the process)
    #[arg(long, value_name = "LEVEL", default_value = "synced", value_parser = parse_durability)]
    pub durability: Durability,
    /// Earlier name of `--durability synced`.
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true,
        default_missing_value = "true", value_parser = parse_switch)]
    pub sync: Option<bool>,
    /// Use a temporary directory, which is removed when the process ends, in place of --db; the
    /// durability is buffered unless named
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true,
        default_value = "false", default_missing_value = "true", hide_default_value = true,
        value_name = "BOOL", value_parser = parse_switch)]
    pub mem_db: bool,
    /// Accept a wall clock that the store does not believe, or that is behind the last event; use
    /// it once, not at every start
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true,
        default_value = "false", default_missing_value = "true", hide_default_value = true,
        value_name = "BOOL", value_parser = parse_switch)]
    pub accept_clock: bool,
    /// Also serve a key-value store, in the subdirectory `kv` of the store
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true,
        default_value = "false", default_missing_value = "true", hide_default_value = true,
        value_name = "BOOL", value_parser = parse_switch)]
    pub kv: bool,
    /// Memory budget of the key-value store, like 64MiB
    #[arg(long, value_name = "BYTES", default_value = "256MiB",
        value_parser = integer_parser(1, 1 << 50))]
    pub kv_memory: u64,
    /// Size of the existence filter of streams: `growing`, bytes like 64MiB, or 0 for none
    #[arg(long, value_name = "BYTES", default_value = "growing", value_parser = parse_filter_size)]
    pub stream_existence_filter_size: ExistenceSize,
    /// Maximum seconds from the first to the last message of a multi-part append
    #[arg(long, value_name = "SECONDS", default_value = "30",
        value_parser = integer_parser(1, 3600).map(Duration::from_secs))]
    pub append_time: Duration,
    /// Log format on standard error: text, or json with one object per line
    #[arg(long, value_name = "FORM", default_value = "text", value_parser = LogFormat::parse)]
    pub log_format: LogFormat,
    /// Log level: error, warn, info (includes failed calls) or debug (every call)
    #[arg(long, value_name = "LEVEL", default_value = "info",
        value_parser = server_log::parse_level)]
    pub log_level: Level,
    /// Log calls whose response starts after more than this number of milliseconds; 0 logs every
    /// call
    #[arg(long, value_name = "MILLISECONDS", default_value = "1000",
        value_parser = integer_parser(0, 3_600_000).map(Duration::from_millis))]
    pub log_slow_milliseconds: Duration,
    /// Measure the processor time of each poll of a task, for the metric umbel_worker_busy_seconds;
    /// it costs some percent
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true,
        default_value = "false", default_missing_value = "true", hide_default_value = true,
        value_name = "BOOL", value_parser = parse_switch)]
    pub measure_workers: bool,
    /// Export metrics, logs and spans to an OpenTelemetry collector at this address, such as
    /// http://localhost:4318 (OTLP over HTTP)
    #[arg(long, value_name = "URL", value_parser = otlp_flags::parse_endpoint)]
    pub otlp_endpoint: Option<CollectorEndpoint>,
    /// Signals to export
    #[arg(long, value_name = "SIGNALS", default_value = "metrics,logs,traces",
        value_parser = SignalList::parse)]
    pub otlp_signals: SignalList,
    /// Share of calls that are recorded as spans, from 0 to 1; the trace of a client decides for
    /// its calls
    #[arg(long, value_name = "RATIO", default_value = "0.01",
        value_parser = otlp_flags::parse_ratio)]
    pub trace_sample_ratio: f64,
    /// KurrentDB name for the address of --listen.
    #[arg(long, hide = true, value_parser = parse_ip)]
    pub node_ip: Option<IpAddr>,
    /// KurrentDB name for the port of --listen.
    #[arg(long, hide = true, value_parser = parse_port)]
    pub node_port: Option<u16>,
    /// KurrentDB name for the host of --advertise.
    #[arg(long, hide = true, value_parser = parse_host)]
    pub advertise_host_to_client_as: Option<String>,
    /// KurrentDB name for the port of --advertise.
    #[arg(long, hide = true, value_parser = parse_port)]
    pub advertise_node_port_to_client_as: Option<u16>,
    /// Options of KurrentDB without effect.
    #[command(flatten)]
    pub ignored: IgnoredOptions,
}

impl ServeOptions {
    /// Combines options in parts, such as `node_ip`, into the options that they belong to, and
    /// replaces earlier names.
    ///
    /// # Errors
    /// The advertised address has a port and no host.
    pub fn join_parts(&mut self) -> Result<(), String> {
        if let Some(is_synced) = self.sync.take() {
            self.durability = if is_synced { Durability::Synced } else { Durability::Buffered };
        }
        let ip = self.node_ip.take().unwrap_or(self.listen.ip());
        self.listen = SocketAddr::new(ip, self.node_port.take().unwrap_or(self.listen.port()));
        let (host, port) = self.advertise.take().unzip();
        let host = self.advertise_host_to_client_as.take().or(host);
        let port = self.advertise_node_port_to_client_as.take().or(port);
        self.advertise = match (host, port) {
            (Some(host), port) => Some((host, port.unwrap_or(self.listen.port()))),
            (None, None) => None,
            (None, Some(_)) => {
                return Err("the advertised address has a port but no host; name both with \
                            --advertise HOST:PORT"
                    .to_string());
            }
        };
        Ok(())
    }
}

/// Name of a durability.
pub fn durability_name(durability: Durability) -> &'static str {
    match durability {
        Durability::Synced => "synced",
        Durability::Buffered => "buffered",
    }
}

fn parse_durability(text: &str) -> Result<Durability, String> {
    [Durability::Synced, Durability::Buffered]
        .into_iter()
        .find(|level| text.eq_ignore_ascii_case(durability_name(*level)))
        .ok_or_else(|| "must be synced or buffered".to_string())
}

/// Parses a path that is not empty.
pub fn parse_path(text: &str) -> Result<PathBuf, String> {
    match text.is_empty() {
        true => Err("must name a file or a directory".to_string()),
        false => Ok(PathBuf::from(text)),
    }
}

/// Parses a password; an error if a user cannot have it or type it.
pub fn parse_password(text: &str) -> Result<Secret, String> {
    let bytes = text.len();
    if bytes == 0 || bytes > PASSWORD_BYTES_MAX {
        return Err(format!("has {bytes} bytes, but must have 1 to {PASSWORD_BYTES_MAX}"));
    }
    // The last line break of a file comes along easily, and no browser can send it.
    if text.contains(char::is_control) {
        return Err("contains a line break or another control character, which users cannot type"
            .to_string());
    }
    Ok(Secret::new(text))
}

fn parse_url(text: &str) -> Result<String, String> {
    match text.contains("://") {
        true => Ok(text.to_string()),
        false => {
            Err("must be the URL of an object store, like file:///mnt/share/backups".to_string())
        }
    }
}

fn parse_node(text: &str) -> Result<String, String> {
    NodeClaim::name(text).map(|_| text.to_string())
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let is_allowed = |time: &Duration| (1..=BACKUP_INTERVAL_SECONDS_MAX).contains(&time.as_secs());
    let time = parse_age(text).ok().filter(is_allowed);
    time.ok_or_else(|| "must be 1s to 24h, like 10s or 5m".to_string())
}

fn parse_keep(text: &str) -> Result<Duration, String> {
    parse_age(text).map_err(|_| "must be an age, like 36h or 30d".to_string())
}

fn parse_schedule(text: &str) -> Result<ScavengeSchedule, String> {
    text.parse()
}

fn parse_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "must be an address and a port, like 127.0.0.1:2113; names such as localhost are not \
         resolved"
            .to_string()
    })
}

fn parse_ip(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| {
        "must be an address, like 127.0.0.1; names such as localhost are not resolved".to_string()
    })
}

fn parse_port(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| "must be a port, 0 to 65535".to_string())
}

fn parse_host_and_port(text: &str) -> Result<(String, u16), String> {
    let parts = text.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    match parts {
        Some((host, port)) if port > 0 => Ok((parse_host(host)?, port)),
        _ => Err("must be a name or an address, a colon and a port".to_string()),
    }
}

/// Parses a name, or an address with or without brackets; returns it without them.
fn parse_host(host: &str) -> Result<String, String> {
    let bare = match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(inner) => inner,
        None => host,
    };
    let is_of_name = |letter: char| letter.is_alphanumeric() || matches!(letter, '-' | '.' | '_');
    let is_name = !bare.is_empty() && bare.chars().all(is_of_name) && bare == host;
    if is_name || bare.parse::<IpAddr>().is_ok() {
        return Ok(bare.to_string());
    }
    Err("must be a name or an address".to_string())
}

fn parse_filter_size(text: &str) -> Result<ExistenceSize, String> {
    if text.eq_ignore_ascii_case("growing") {
        return Ok(StoreOptions::default().existence);
    }
    match integer_parser(0, FILTER_BYTES_MAX)(text) {
        Ok(0) => Ok(ExistenceSize::Off),
        Ok(bytes) if bytes >= 4096 => Ok(ExistenceSize::Fixed { bytes }),
        _ => Err(format!("must be growing, 0 for no filter, or 4096 to {FILTER_BYTES_MAX} bytes")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_port_is_added_to_host() {
        let read = |text| parse_host_and_port(text).ok();
        assert_eq!(read("store.example:2113"), Some(("store.example".to_string(), 2113)));
        assert_eq!(read("[::1]:2113"), Some(("::1".to_string(), 2113)));
        for wrong in ["store.example", ":2113", "store:65536", ""] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}

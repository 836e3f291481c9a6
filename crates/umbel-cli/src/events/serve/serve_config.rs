//! [`ServeConfig`]: options of `umbel serve` from all sources. The parser of the command line also
//! parses the merged values.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::error::ContextKind;
use clap::{ArgMatches, CommandFactory, FromArgMatches, Parser};
use serde_json::{Map, Value, json};
use umbel::{Durability, Options};
use umbel_events::{ExistenceSize, StoreOptions};
use umbel_objects::location;
use umbel_server::Secret;

use crate::errors::{CommandError, CommandResult};
use crate::events::serve::option_sources::{OptionSources, OptionValue};
use crate::events::serve::otlp_options::OtlpOptions;
use crate::events::serve::serve_args::{ServeOptions, durability_name, parse_password, parse_path};
use crate::global_options::{StoreLimits, with_memory_flag};
use crate::io::output::Output;

/// Configuration of a server.
#[derive(Debug, Clone, PartialEq, Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
pub struct ServeConfig {
    /// Directory of the store.
    #[arg(long, default_value = "umbel-data", value_parser = parse_path)]
    pub db: PathBuf,
    /// Limits of the stores.
    #[command(flatten)]
    pub limits: StoreLimits,
    /// Password of `admin` at the first start. Passwords are not flags of `serve`: other users of a
    /// machine see flags.
    #[arg(long, alias = "default-admin-password", value_parser = parse_password)]
    pub admin_password: Option<Secret>,
    /// Password of `ops` at the first start.
    #[arg(long, alias = "default-ops-password", value_parser = parse_password)]
    pub ops_password: Option<Secret>,
    /// Options of the export to OpenTelemetry that are no flags.
    #[command(flatten)]
    pub otlp: OtlpOptions,
    /// Options that are flags of `serve` only.
    #[command(flatten)]
    pub options: ServeOptions,
}

/// Reason why a node of a replicated log makes no backups.
const NO_BACKUPS: &str = "a replicated log cannot be backed up yet, and its object store has all \
                          events";

/// Printed option: name, value and source.
type PrintedOption = (&'static str, Value, String);

impl ServeConfig {
    /// Merges the sources of all options and parses the values.
    ///
    /// # Errors
    /// The errors of [`OptionSources::merge`], and invalid values, each with its source.
    pub fn read(
        file: Option<(&Path, &str)>,
        variables: impl Iterator<Item = (OsString, OsString)>,
        flags: Option<&ArgMatches>,
    ) -> CommandResult<(ServeConfig, OptionSources)> {
        let command = Self::command();
        let mut sources = OptionSources::merge(&command, file, variables, flags)?;
        let parsed = command.try_get_matches_from(sources.to_flags());
        let config = parsed.and_then(|matches| Self::from_arg_matches(&matches));
        let mut config = config.map_err(|error| value_error(&sources, &error))?;
        config.options.join_parts().map_err(CommandError::Usage)?;
        if config.options.mem_db && sources.source("durability") == "default" {
            // Nothing survives the process, so nothing is worth an fsync.
            config.options.durability = Durability::Buffered;
        }
        config.check_memory(&sources)?;
        config.check_backup(&sources)?;
        config.check_replication(&mut sources)?;
        Ok((config, sources))
    }

    /// Returns the options of the event store.
    pub fn store_options(&self) -> StoreOptions {
        StoreOptions {
            durability: self.options.durability,
            existence: self.options.stream_existence_filter_size,
            accept_clock: self.options.accept_clock,
            log_quota_bytes: self.options.log_quota,
            ..self.limits.to_event_store()
        }
    }

    /// Returns the options of the key-value store.
    pub fn kv_options(&self) -> Options {
        let options = self.limits.apply_to(Options::default());
        Options { memory_bytes: Some(self.options.kv_memory), ..options }
    }

    /// Returns an error, with the source of the memory limit, if a store would refuse its options.
    fn check_memory(&self, sources: &OptionSources) -> CommandResult<()> {
        let kv = if self.options.kv { self.kv_options().check() } else { Ok(()) };
        let stores = [
            ("memory", self.store_options().validate().map_err(CommandError::from)),
            ("kv-memory", kv.map_err(CommandError::from)),
        ];
        for (name, checked) in stores {
            let name = sources.get(name).map_or(name, |value| &value.place);
            checked.map_err(|failure| with_memory_flag(failure, name))?;
        }
        Ok(())
    }

    /// Returns an error, with the source of the option, if an option of the continuous backup is
    /// set without an object store.
    fn check_backup(&self, sources: &OptionSources) -> CommandResult<()> {
        if self.options.backup_to.is_some() {
            return Ok(());
        }
        // The interval has a default, which a printed configuration contains.
        let names = ["backup-keep", "backup-throttle"];
        match names.into_iter().find_map(|name| sources.get(name)) {
            Some(OptionValue { place, .. }) => Err(CommandError::Usage(format!(
                "{place} has no effect without an object store; name one with --backup-to URL, or \
                 remove {place}"
            ))),
            None => Ok(()),
        }
    }

    /// Returns an error, with the source of the option, if an option contradicts the replicated log
    /// of `store`, or has no effect without one.
    fn check_replication(&self, sources: &mut OptionSources) -> CommandResult<()> {
        let options = &self.options;
        if options.store.is_none() {
            return check_without_log(options.read_only_replica, sources);
        }
        let place = |name: &str| match sources.get(name) {
            Some(value) => value.place.clone(),
            None => format!("--{name}"),
        };
        if options.node.is_none() {
            return Err(CommandError::Usage(format!(
                "{} needs a name of this node, which no other node of the log has; give it one \
                 with --node NAME",
                place("store")
            )));
        }
        let unsupported = [
            ("mem-db", options.mem_db, "the directory of a node must outlive its process"),
            (
                "durability",
                options.durability == Durability::Buffered,
                "a node acknowledges an append once it is on disk and in a slot",
            ),
            ("kv", options.kv, "keys and values are not replicated"),
            ("backup-dir", options.backup_dir.is_some(), NO_BACKUPS),
            ("backup-to", options.backup_to.is_some(), NO_BACKUPS),
            (
                "scavenge-schedule",
                options.scavenge_schedule.is_some(),
                "a replicated log cannot be scavenged yet",
            ),
            ("accept-clock", options.accept_clock, "a node cannot begin a clock epoch yet"),
        ];
        if let Some((name, _, reason)) = unsupported.into_iter().find(|(_, is_set, _)| *is_set) {
            let (place, store) = (place(name), place("store"));
            return Err(CommandError::Usage(format!(
                "{place} contradicts {store}: {reason}; remove {place}"
            )));
        }
        if options.listen.ip().is_unspecified() && options.advertise.is_none() {
            return Err(CommandError::Usage(format!(
                "{} is no address that clients of other nodes can reach, and the leader states its \
                 address in the log; name one with --advertise HOST:PORT",
                place("listen")
            )));
        }
        Ok(())
    }

    /// Writes every option with its value and source, as a config file or as JSON.
    pub fn print(&self, sources: &OptionSources, as_json: bool) -> CommandResult<()> {
        let mut output = Output::new();
        if as_json {
            let object = self.lines(sources).into_iter().map(|(name, value, from)| {
                (name.to_string(), json!({ "value": value, "from": from }))
            });
            output.json(&Value::Object(object.collect::<Map<_, _>>()))?;
            return output.flush();
        }
        output.line(self.to_toml(sources).trim_end())?;
        output.flush()
    }

    /// Returns every option with its value and source, as a config file.
    pub fn to_toml(&self, sources: &OptionSources) -> String {
        let mut text = String::new();
        for (name, value, from) in self.lines(sources) {
            // A comment ends with its line, whatever a file is called.
            let from = from.replace(char::is_control, "?");
            let line = match value {
                Value::Null => format!("# {name} is not set"),
                _ if is_secret(name) => format!("# {name} is set by {from}"),
                value => format!("{:<44} # {from}", format!("{name} = {}", as_toml(&value))),
            };
            text.push_str(&line);
            text.push('\n');
        }
        text
    }

    fn otlp_lines(&self) -> [(&'static str, Value); 12] {
        let (options, otlp) = (&self.options, &self.otlp);
        let endpoint = options.otlp_endpoint.as_ref().map(ToString::to_string);
        [
            ("otlp-endpoint", json!(endpoint)),
            ("otlp-signals", json!(options.otlp_signals.names())),
            ("otlp-protocol", json!(otlp.otlp_protocol)),
            ("otlp-headers", json!(otlp.otlp_headers.as_ref().map(|_| "(not shown)"))),
            ("otlp-timeout", json!(otlp.otlp_timeout.as_millis() as u64)),
            ("otlp-certificate", json!(otlp.otlp_certificate)),
            ("otlp-service-name", json!(otlp.otlp_service_name)),
            ("otlp-resource-attributes", json!(otlp.otlp_resource_attributes)),
            ("otlp-metric-interval", json!(otlp.otlp_metric_interval.as_millis() as u64)),
            ("otlp-disabled", json!(otlp.otlp_disabled)),
            ("trace-sampler", json!(otlp.trace_sampler)),
            ("trace-sample-ratio", json!(options.trace_sample_ratio)),
        ]
    }

    fn lines(&self, sources: &OptionSources) -> Vec<PrintedOption> {
        let (options, limits) = (&self.options, self.limits);
        let advertise = options.advertise.as_ref().map(|(host, port)| match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        });
        let existence = match options.stream_existence_filter_size {
            ExistenceSize::Off => json!(0),
            ExistenceSize::Fixed { bytes } => json!(bytes),
            ExistenceSize::Growing { .. } => json!("growing"),
        };
        let password = |secret: &Option<Secret>| json!(secret.as_ref().map(|_| "(not shown)"));
        let level = options.log_level.as_str().to_ascii_lowercase();
        let schedule = options.scavenge_schedule.as_ref().map(ToString::to_string);
        let mut values = vec![
            ("db", json!(self.db)),
            ("insecure", json!(options.insecure)),
            ("certificate-file", json!(options.certificate_file)),
            ("certificate-private-key-file", json!(options.certificate_private_key_file)),
            ("trusted-root-certificates-path", json!(options.trusted_root_certificates_path)),
            ("disable-tls", json!(options.disable_tls)),
            ("admin-password", password(&self.admin_password)),
            ("ops-password", password(&self.ops_password)),
            ("listen", json!(options.listen)),
            ("advertise", json!(advertise)),
            ("backup-dir", json!(options.backup_dir)),
            ("backup-to", json!(options.backup_to.as_deref().map(location))),
            ("backup-interval", json!(age(options.backup_interval))),
            ("backup-keep", json!(options.backup_keep.map(age))),
            ("backup-throttle", json!(options.backup_throttle)),
            ("store", json!(options.store.as_deref().map(location))),
            ("node", json!(options.node)),
            ("join", json!(options.join)),
            ("read-only-replica", json!(options.read_only_replica)),
            ("scavenge-schedule", json!(schedule)),
            ("log-quota", json!(options.log_quota)),
            ("durability", json!(durability_name(options.durability))),
            ("accept-clock", json!(options.accept_clock)),
            ("mem-db", json!(options.mem_db)),
            ("memory", json!(limits.memory)),
            ("open-tables", json!(limits.open_tables)),
            ("wait", json!(limits.wait)),
            ("kv", json!(options.kv)),
            ("kv-memory", json!(options.kv_memory)),
            ("stream-existence-filter-size", existence),
            ("append-time", json!(options.append_time.as_secs())),
            ("log-format", json!(options.log_format.name())),
            ("log-level", json!(level)),
            ("log-slow-milliseconds", json!(options.log_slow_milliseconds.as_millis() as u64)),
            ("measure-workers", json!(options.measure_workers)),
        ];
        values.extend(self.otlp_lines());
        let lines = values.into_iter();
        lines.map(|(name, value)| (name, value, sources.source(name))).collect()
    }
}

/// Returns an error for an option of a replicated log without one. KurrentDB's name of a replica is
/// accepted, as its other options are.
fn check_without_log(is_replica: bool, sources: &mut OptionSources) -> CommandResult<()> {
    if let Some(value) = ["node", "join"].into_iter().find_map(|name| sources.get(name)) {
        let place = &value.place;
        return Err(CommandError::Usage(format!(
            "{place} has no effect without a replicated log; name its object store with --store \
             URL, or remove {place}"
        )));
    }
    let place = sources.get("read-only-replica").map(|value| value.place.clone());
    if let Some(place) = place.filter(|_| is_replica) {
        if place.starts_with("--") {
            return Err(CommandError::Usage(format!(
                "{place} has no effect without a replicated log, and the server would accept \
                 writes; name its object store with --store URL, or remove {place}"
            )));
        }
        sources.add_notice(format!(
            "{place} has no effect without --store URL: the server is a single node, which leads"
        ));
    }
    Ok(())
}

/// Formats an age so that its parser reads it again.
fn age(time: Duration) -> String {
    format!("{}s", time.as_secs())
}

/// Whether the value of an option is not shown.
fn is_secret(name: &str) -> bool {
    name.ends_with("password") || name == "otlp-headers"
}

/// Formats a value for TOML: like JSON, except for one control character that JSON does not escape.
fn as_toml(value: &Value) -> String {
    value.to_string().replace('\u{7f}', "\\u007f")
}

/// The sentence about a value that its parser rejects, with the source of the value.
fn value_error(sources: &OptionSources, error: &clap::Error) -> CommandError {
    let argument = error.get(ContextKind::InvalidArg).map(ToString::to_string).unwrap_or_default();
    let name = argument.trim_start_matches('-').split([' ', '[', '=']).next().unwrap_or_default();
    let reason = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    CommandError::Usage(match sources.get(name) {
        // A password is not shown.
        Some(OptionValue { place, .. }) if name.ends_with("password") => {
            format!("{place}: the password of {} {reason}", name.trim_end_matches("-password"))
        }
        Some(OptionValue { place, .. }) if is_secret(name) => format!("{place} {reason}"),
        Some(OptionValue { place, text, .. }) => {
            let text = if text.is_empty() { "empty" } else { text };
            let link = if reason.starts_with("must ") { ", but " } else { ": " };
            format!("{place} is {text}{link}{reason}")
        }
        None => format!("the options of the server: {name} {reason}"),
    })
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use clap::{Args, Command};
    use umbel_server::{Config, PASSWORD_BYTES_MAX};

    use super::*;
    use crate::events::serve::serve_args::ServeArgs;

    fn read(flags: &[&str], variables: &[(&str, &str)]) -> Result<ServeConfig, String> {
        let command = ServeArgs::augment_args(Command::new("serve").no_binary_name(true));
        let flags = command.try_get_matches_from(flags).unwrap();
        let owned = variables.iter().map(|(name, value)| (name.into(), value.into()));
        let owned: Vec<(OsString, OsString)> = owned.collect();
        let read = ServeConfig::read(None, owned.into_iter(), Some(&flags));
        read.map(|(config, _)| config).map_err(|failure| failure.to_string())
    }

    #[test]
    fn options_without_sources_have_defaults() {
        let config = read(&[], &[]).unwrap();
        assert_eq!(config.options.listen, SocketAddr::from(([127, 0, 0, 1], 2113)));
        assert_eq!(config.db, PathBuf::from("umbel-data"));
        assert!(
            !config.options.insecure
                && config.options.durability == Durability::Synced
                && config.options.advertise.is_none()
        );
        assert!(!config.options.kv && config.options.kv_memory == 256 << 20);
        assert_eq!(config.options.append_time, Config::default().partial_append_time);
        assert_eq!(config.options.stream_existence_filter_size, StoreOptions::default().existence);
        assert_eq!(config.options.log_slow_milliseconds, Config::default().slow_call_time);
    }

    #[test]
    fn earlier_name_of_durability_works_in_every_source() {
        let level = |flags: &[&str], variables: &[(&str, &str)]| {
            read(flags, variables).map(|config| config.options.durability)
        };
        let (synced, buffered) = (Ok(Durability::Synced), Ok(Durability::Buffered));
        assert_eq!(level(&["--sync"], &[]), synced);
        assert_eq!(level(&["--durability", "Buffered"], &[]), buffered);
        assert_eq!(level(&[], &[("UMBEL_SYNC", "false")]), buffered);
        assert_eq!(level(&["--durability=synced"], &[("UMBEL_SYNC", "0")]), synced);
        assert_eq!(level(&["--sync"], &[("UMBEL_DURABILITY", "buffered")]), synced);
        assert_eq!(level(&["--mem-db"], &[]), buffered);
        assert_eq!(level(&[], &[("EVENTSTORE_MEM_DB", "True")]), buffered);
        assert_eq!(level(&["--mem-db", "--durability=synced"], &[]), synced);
        let both = level(&["--sync", "--durability=buffered"], &[]).expect_err("contradiction");
        assert!(both.contains("keep one"), "{both}");
        let wrong = level(&[], &[("UMBEL_DURABILITY", "now")]).expect_err("no level");
        assert!(wrong.contains("must be synced or buffered"), "{wrong}");
    }

    #[test]
    fn option_parts_combine_with_whole_option() {
        let variables = [
            ("KURRENTDB_NODE_IP", "0.0.0.0"),
            ("KURRENTDB_INSECURE", "true"),
            ("KURRENTDB_ADVERTISE_HOST_TO_CLIENT_AS", "store.example"),
            ("KURRENTDB_STREAM_EXISTENCE_FILTER_SIZE", "256000000"),
            ("UMBEL_NODE_PORT", "7"),
        ];
        let config = read(&[], &variables).unwrap();
        assert_eq!(config.options.listen.to_string(), "0.0.0.0:7");
        assert_eq!(config.options.advertise, Some(("store.example".to_string(), 7)));
        assert_eq!(
            config.options.stream_existence_filter_size,
            ExistenceSize::Fixed { bytes: 256_000_000 }
        );
        assert!(config.options.insecure);
        let config = read(&["--listen", "[::1]:9"], &variables).unwrap();
        assert_eq!(config.options.listen.to_string(), "[::1]:9");
    }

    #[test]
    fn invalid_value_is_reported_with_its_source() {
        let cases = [
            ("UMBEL_LISTEN", "here", "UMBEL_LISTEN is here, but must be an address"),
            ("UMBEL_NODE_PORT", "65536", "must be a port"),
            ("UMBEL_ADVERTISE", ":2113", "must be a name or an address"),
            ("UMBEL_ADVERTISE", "http://store:2113", "must be a name or an address"),
            ("UMBEL_ADVERTISE", "a store:2113", "must be a name or an address"),
            ("UMBEL_ADVERTISE", "[store]:2113", "must be a name or an address"),
            ("UMBEL_ADVERTISE", "store:0", "a colon and a port"),
            ("UMBEL_ADVERTISE_HOST_TO_CLIENT_AS", "a/b", "must be a name or an address"),
            ("UMBEL_BACKUP_DIR", "", "UMBEL_BACKUP_DIR is empty, but must name a file or a dir"),
            ("UMBEL_LISTEN", "", "UMBEL_LISTEN is empty, but must be an address"),
            ("UMBEL_BACKUP_TO", "/mnt/b", "UMBEL_BACKUP_TO is /mnt/b, but must be the URL of an"),
            ("UMBEL_BACKUP_INTERVAL", "0s", "UMBEL_BACKUP_INTERVAL is 0s, but must be 1s to 24h"),
            ("UMBEL_BACKUP_INTERVAL", "10", "must be 1s to 24h, like 10s"),
            ("UMBEL_BACKUP_INTERVAL", "25h", "must be 1s to 24h"),
            ("UMBEL_BACKUP_KEEP", "long", "UMBEL_BACKUP_KEEP is long, but must be an age"),
            ("UMBEL_BACKUP_THROTTLE", "20", "must have a unit, such as 20MiB"),
            ("UMBEL_NODE", "a", "UMBEL_NODE has no effect without a replicated log"),
            ("UMBEL_NODE", "a/b", "UMBEL_NODE is a/b, but must have 1 to 64 letters"),
            ("UMBEL_JOIN", "7", "UMBEL_JOIN is 7, but must be the id that `umbel store init`"),
            ("UMBEL_STORE", "/mnt/a", "UMBEL_STORE is /mnt/a, but must be the URL of an object"),
            ("UMBEL_STORE", "file:///a", "UMBEL_STORE needs a name of this node"),
            ("UMBEL_BACKUP_KEEP", "30d", "UMBEL_BACKUP_KEEP has no effect without an object store"),
            ("UMBEL_BACKUP_THROTTLE", "1MiB", "name one with --backup-to URL"),
            ("UMBEL_ADMIN_PASSWORD", "", "the password of admin has 0 bytes, but must have 1 to"),
            ("UMBEL_OPS_PASSWORD", "kept\n", "UMBEL_OPS_PASSWORD: the password of ops contains"),
            ("UMBEL_ADVERTISE_NODE_PORT_TO_CLIENT_AS", "1", "no host"),
            ("UMBEL_SYNC", "maybe", "neither true (on, 1) nor false (off, 0)"),
            ("UMBEL_APPEND_TIME", "0", "must be 1 to 3600"),
            ("UMBEL_KV", "perhaps", "neither true (on, 1) nor false (off, 0)"),
            ("UMBEL_KV_MEMORY", "much", "UMBEL_KV_MEMORY is much"),
            ("UMBEL_LOG_FORMAT", "xml", "must be text or json"),
            ("UMBEL_LOG_LEVEL", "loud", "must be error, warn, info or debug"),
            ("UMBEL_LOG_SLOW_MILLISECONDS", "3600001", "must be 0 to 3600000"),
            ("UMBEL_STREAM_EXISTENCE_FILTER_SIZE", "5", "must be growing, 0 for no filter"),
            ("UMBEL_OTLP_ENDPOINT", "collector:4318", "such as http://localhost:4318"),
            (
                "OTEL_EXPORTER_OTLP_ENDPOINT",
                "collector",
                "OTEL_EXPORTER_OTLP_ENDPOINT is collector",
            ),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "grpc, but must be http/protobuf"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "kept", "OTEL_EXPORTER_OTLP_HEADERS must be pairs"),
            ("OTEL_TRACES_SAMPLER", "jaeger_remote", "must be always_on"),
            ("OTEL_TRACES_SAMPLER_ARG", "2", "must be a number from 0 to 1"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "1", "must be 100 to 3600000"),
            ("OTEL_RESOURCE_ATTRIBUTES", "a", "must be pairs such as name=value"),
            ("OTEL_SDK_DISABLED", "maybe", "neither true (on, 1) nor false (off, 0)"),
            ("UMBEL_OTLP_SIGNALS", "spans", "must be some of metrics, logs and traces"),
        ];
        for (variable, text, why) in cases {
            let error = read(&[], &[(variable, text)]).expect_err("refused");
            assert!(error.contains(why), "{error}");
            assert!(!error.contains("kept"), "a password is not shown: {error}");
        }
        let long = "x".repeat(PASSWORD_BYTES_MAX + 1);
        let error = read(&[], &[("UMBEL_ADMIN_PASSWORD", &long)]);
        assert!(error.expect_err("refused").contains("has 1025 bytes"));
    }
}

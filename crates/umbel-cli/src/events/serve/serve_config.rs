//! [`ServeConfig`]: configuration of `umbel serve`, parsed from [`OptionLayers`].

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tracing::Level;
use umbel::{Durability, Options};
use umbel_events::{ExistenceSize, StoreOptions};
use umbel_server::{Config, PASSWORD_BYTES_MAX, Secret};

use crate::errors::{CommandError, CommandResult};
use crate::events::serve::option_sources::{OptionLayers, OptionValue, option_text};
use crate::events::serve::server_log::{self, LogFormat};
use crate::global_options::with_memory_flag;
use crate::io::output::Output;
use crate::text::numbers::{integer_parser, parse_switch};

/// Bytes of the filter of streams, as far as its size is fixed.
const FILTER_BYTES_MAX: u64 = 1 << 40;
/// The longest that the parts of one append may take, in seconds.
const APPEND_TIME_MAX: u64 = 3600;
/// The longest that a call may take before it is logged as slow, in milliseconds.
const LOG_SLOW_MAX: u64 = 3_600_000;

/// Bytes of memory for the store of keys and values by default.
const KV_MEMORY_DEFAULT: u64 = 256 << 20;

/// The directory of the store by default.
const DIRECTORY_DEFAULT: &str = "umbel-data";

/// Configuration of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServeConfig {
    /// The directory of the store.
    pub db: PathBuf,
    /// Whether to serve in clear, and without authentication.
    pub insecure: bool,
    /// The file of the certificate,
    pub certificate: Option<PathBuf>,
    /// that of its private key,
    pub key: Option<PathBuf>,
    /// and that or the directory of the authorities whose users are believed.
    pub authorities: Option<PathBuf>,
    /// Whether to authenticate users without encryption.
    pub disable_tls: bool,
    /// The password of `admin` at the first start,
    pub admin_password: Option<Secret>,
    /// and that of `ops`.
    pub ops_password: Option<Secret>,
    /// Address to listen at.
    pub listen: SocketAddr,
    /// Address under which clients are to reconnect.
    pub advertise: Option<(String, u16)>,
    /// Directory of backups that the running server makes.
    pub backup_dir: Option<PathBuf>,
    /// Whether an append is answered once it survives power loss.
    pub sync: bool,
    /// Bytes of memory for the store.
    pub memory: Option<u64>,
    /// Whether keys and values are served,
    pub kv: bool,
    /// and bytes of memory for their store.
    pub kv_memory: u64,
    /// Size of the filter of streams.
    pub existence: ExistenceSize,
    /// Time that an append may take from its first part to its last.
    pub append_time: Duration,
    /// The form of the log,
    pub log_format: LogFormat,
    /// the log level,
    pub log_level: Level,
    /// and after what time without an answer a call is logged as slow.
    pub log_slow: Duration,
}

/// Printed option: name, value and source.
type PrintedOption = (&'static str, Value, String);

impl ServeConfig {
    /// Parses all options; an option without a value has its default.
    ///
    /// # Errors
    /// A value that an option cannot have, with its source.
    pub fn read(levels: &OptionLayers) -> CommandResult<ServeConfig> {
        let plain = Config::default();
        let switch = |name: &str| -> CommandResult<bool> {
            Ok(read_option(levels, &[name], parse_switch)?.unwrap_or_default())
        };
        let number =
            |name: &str, min: u64, max: u64| read_option(levels, &[name], integer_parser(min, max));
        let path = |name: &str| {
            read_option(levels, &[name], |text| match text.is_empty() {
                true => Err("must name a file or a directory".to_string()),
                false => Ok(PathBuf::from(text)),
            })
        };
        let address = |text: &str| {
            let wrong = "must be an address and a port, like 127.0.0.1:2113";
            text.parse::<SocketAddr>().map_err(|_| wrong.to_string())
        };
        let ip = read_option_part(levels, ("node-ip", "listen"), ip_address, |text| {
            Ok(address(text)?.ip())
        })?;
        let port = read_option_part(levels, ("node-port", "listen"), port, |text| {
            Ok(address(text)?.port())
        })?;
        let listen =
            SocketAddr::new(ip.unwrap_or(plain.listen.ip()), port.unwrap_or(plain.listen.port()));
        let existence = read_option(levels, &["stream-existence-filter-size"], filter_size)?;
        let config = ServeConfig {
            db: path("db")?.unwrap_or_else(|| DIRECTORY_DEFAULT.into()),
            insecure: switch("insecure")?,
            certificate: path("certificate-file")?,
            key: path("certificate-private-key-file")?,
            authorities: path("trusted-root-certificates-path")?,
            disable_tls: switch("disable-tls")?,
            admin_password: password(levels, ["admin-password", "default-admin-password"])?,
            ops_password: password(levels, ["ops-password", "default-ops-password"])?,
            listen,
            advertise: advertise(levels, listen.port())?,
            backup_dir: path("backup-dir")?,
            sync: switch("sync")?,
            memory: number("memory", 1, 1 << 50)?,
            kv: switch("kv")?,
            kv_memory: number("kv-memory", 1, 1 << 50)?.unwrap_or(KV_MEMORY_DEFAULT),
            existence: existence.unwrap_or(StoreOptions::default().existence),
            append_time: number("append-time", 1, APPEND_TIME_MAX)?
                .map_or(plain.partial_append_time, Duration::from_secs),
            log_format: read_option(levels, &["log-format"], LogFormat::parse)?
                .unwrap_or(LogFormat::Text),
            log_level: read_option(levels, &["log-level"], server_log::parse_level)?
                .unwrap_or(Level::INFO),
            log_slow: number("log-slow-milliseconds", 0, LOG_SLOW_MAX)?
                .map_or(plain.slow_call_time, Duration::from_millis),
        };
        config.check_memory(levels)?;
        Ok(config)
    }

    /// With what the store of events is opened.
    pub fn store_options(&self) -> StoreOptions {
        StoreOptions {
            durability: if self.sync { Durability::Synced } else { Durability::Buffered },
            memory_bytes: self.memory,
            existence: self.existence,
            ..StoreOptions::default()
        }
    }

    /// With what that of keys and values is.
    pub fn kv_options(&self) -> Options {
        Options { memory_bytes: Some(self.kv_memory), ..Options::default() }
    }

    /// An error where a store would refuse its options, with the source of the memory limit.
    fn check_memory(&self, levels: &OptionLayers) -> CommandResult<()> {
        let kv = if self.kv { self.kv_options().check() } else { Ok(()) };
        let stores = [
            ("memory", self.store_options().validate().map_err(CommandError::from)),
            ("kv-memory", kv.map_err(CommandError::from)),
        ];
        for (name, checked) in stores {
            let given = levels.last_value(&[name])?;
            let name = given.map_or_else(|| name.to_string(), option_text);
            checked.map_err(|failure| with_memory_flag(failure, &name))?;
        }
        Ok(())
    }

    /// Writes every option with its value and source, as a file of options or as JSON.
    pub fn print(&self, levels: &OptionLayers, as_json: bool) -> CommandResult<()> {
        let mut output = Output::new();
        if as_json {
            let object = self.lines(levels)?.into_iter().map(|(name, value, from)| {
                (name.to_string(), json!({ "value": value, "from": from }))
            });
            output.json(&Value::Object(object.collect::<Map<_, _>>()))?;
            return output.flush();
        }
        output.line(self.to_toml(levels)?.trim_end())?;
        output.flush()
    }

    /// Every option with its value and source, as a file of options.
    pub fn to_toml(&self, levels: &OptionLayers) -> CommandResult<String> {
        let mut text = String::new();
        for (name, value, from) in self.lines(levels)? {
            // A comment ends with its line, whatever a file is called.
            let from = from.replace(char::is_control, "?");
            let line = match value {
                Value::Null => format!("# {name} is not set"),
                _ if name.ends_with("password") => format!("# {name} is set by {from}"),
                value => format!("{:<44} # {from}", format!("{name} = {}", as_toml(&value))),
            };
            text.push_str(&line);
            text.push('\n');
        }
        Ok(text)
    }

    fn lines(&self, levels: &OptionLayers) -> CommandResult<Vec<PrintedOption>> {
        let from = |names: &[&str]| -> CommandResult<String> {
            let given = levels.last_value(names)?;
            Ok(given.map_or("default".to_string(), |given| given.source.to_string()))
        };
        let host_and_port = |(host, port): &(String, u16)| match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        };
        let existence = match self.existence {
            ExistenceSize::Off => json!(0),
            ExistenceSize::Fixed { bytes } => json!(bytes),
            ExistenceSize::Growing { .. } => json!("growing"),
        };
        let joined = |whole: &str, parts: [&str; 2]| -> CommandResult<String> {
            let (first, second) = (from(&[parts[0], whole])?, from(&[parts[1], whole])?);
            Ok(if first == second { first } else { format!("{first} and {second}") })
        };
        let advertised = ["advertise-host-to-client-as", "advertise-node-port-to-client-as"];
        let line = |name: &'static str, value: Value| -> CommandResult<PrintedOption> {
            Ok((name, value, from(&[name])?))
        };
        let password = |name, other, secret: &Option<Secret>| -> CommandResult<PrintedOption> {
            Ok((name, masked_password(secret.as_ref()), from(&[name, other])?))
        };
        Ok(vec![
            line("db", json!(self.db))?,
            line("insecure", json!(self.insecure))?,
            line("certificate-file", json!(self.certificate))?,
            line("certificate-private-key-file", json!(self.key))?,
            line("trusted-root-certificates-path", json!(self.authorities))?,
            line("disable-tls", json!(self.disable_tls))?,
            password("admin-password", "default-admin-password", &self.admin_password)?,
            password("ops-password", "default-ops-password", &self.ops_password)?,
            ("listen", json!(self.listen), joined("listen", ["node-ip", "node-port"])?),
            (
                "advertise",
                json!(self.advertise.as_ref().map(host_and_port)),
                joined("advertise", advertised)?,
            ),
            line("backup-dir", json!(self.backup_dir))?,
            line("sync", json!(self.sync))?,
            line("memory", json!(self.memory))?,
            line("kv", json!(self.kv))?,
            line("kv-memory", json!(self.kv_memory))?,
            line("stream-existence-filter-size", existence)?,
            line("append-time", json!(self.append_time.as_secs()))?,
            line("log-format", json!(self.log_format.name()))?,
            line("log-level", json!(self.log_level.as_str().to_ascii_lowercase()))?,
            line("log-slow-milliseconds", json!(self.log_slow.as_millis() as u64))?,
        ])
    }
}

/// A value as TOML has it: as JSON, but for one control character that JSON leaves as it is.
fn as_toml(value: &Value) -> String {
    value.to_string().replace('\u{7f}', "\\u007f")
}

/// That a password is set, not which.
fn masked_password(secret: Option<&Secret>) -> Value {
    secret.map_or(Value::Null, |_| json!("(not shown)"))
}

/// Parses the value of one of these options from its last source.
fn read_option<T>(
    levels: &OptionLayers,
    names: &[&str],
    parse: impl Fn(&str) -> Result<T, String>,
) -> CommandResult<Option<T>> {
    let Some(given) = levels.last_value(names)? else { return Ok(None) };
    parse(&given.text).map(Some).map_err(|why| option_error(given, &why))
}

/// Parses an option that is part of another option, from the last source of either.
fn read_option_part<T>(
    levels: &OptionLayers,
    (part, whole): (&str, &str),
    parse_part: impl Fn(&str) -> Result<T, String>,
    parse_whole: impl Fn(&str) -> Result<T, String>,
) -> CommandResult<Option<T>> {
    let Some(given) = levels.last_value(&[part, whole])? else { return Ok(None) };
    let parsed =
        if given.name == part { parse_part(&given.text) } else { parse_whole(&given.text) };
    parsed.map(Some).map_err(|why| option_error(given, &why))
}

fn option_error(given: &OptionValue, why: &str) -> CommandError {
    let link = if why.starts_with("must ") { ", but " } else { ": " };
    let text = if given.text.is_empty() { "empty" } else { &given.text };
    CommandError::usage(format!("{} is {text}{link}{why}", option_text(given)))
}

/// A password that a user can have and type. It is not shown, whatever is wrong with it.
fn password(levels: &OptionLayers, names: [&str; 2]) -> CommandResult<Option<Secret>> {
    let Some(given) = levels.last_value(&names)? else { return Ok(None) };
    let bytes = given.text.len();
    let wrong = match () {
        () if bytes == 0 || bytes > PASSWORD_BYTES_MAX => {
            format!("has {bytes} bytes, but must have 1 to {PASSWORD_BYTES_MAX}")
        }
        // A file's last line break comes along easily, and no browser could say it.
        () if given.text.contains(char::is_control) => {
            "contains a line break or another control character, which users cannot type".into()
        }
        () => return Ok(Some(Secret::new(&*given.text))),
    };
    let whose = if names[0].starts_with("admin") { "admin" } else { "ops" };
    Err(CommandError::usage(format!("{}: the password of {whose} {wrong}", option_text(given))))
}

fn ip_address(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| "must be an address, like 127.0.0.1".to_string())
}

fn port(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| "must be a port, 0 to 65535".to_string())
}

fn host_and_port(text: &str) -> Result<(String, u16), String> {
    let parts = text.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    match parts {
        Some((host, port)) if port > 0 => Ok((without_brackets(host)?, port)),
        _ => Err("must be a name or an address, a colon and a port".to_string()),
    }
}

/// A name, or an address without its brackets.
fn without_brackets(host: &str) -> Result<String, String> {
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

fn advertise(levels: &OptionLayers, listening: u16) -> CommandResult<Option<(String, u16)>> {
    let whole_host = |text: &str| Ok(host_and_port(text)?.0);
    let whole_port = |text: &str| Ok(host_and_port(text)?.1);
    let name = read_option_part(
        levels,
        ("advertise-host-to-client-as", "advertise"),
        without_brackets,
        whole_host,
    )?;
    let names = ("advertise-node-port-to-client-as", "advertise");
    let number = read_option_part(levels, names, port, whole_port)?;
    match (name, number) {
        (Some(name), number) => Ok(Some((name, number.unwrap_or(listening)))),
        (None, None) => Ok(None),
        (None, Some(_)) => Err(CommandError::usage(
            "the advertised address has a port but no host; name both with --advertise HOST:PORT",
        )),
    }
}

fn filter_size(text: &str) -> Result<ExistenceSize, String> {
    if text.eq_ignore_ascii_case("growing") {
        return Ok(StoreOptions::default().existence);
    }
    let wrong = format!("must be growing, 0 for none, or 4096 to {FILTER_BYTES_MAX} bytes");
    match integer_parser(0, FILTER_BYTES_MAX)(text) {
        Ok(0) => Ok(ExistenceSize::Off),
        Ok(bytes) if bytes >= 4096 => Ok(ExistenceSize::Fixed { bytes }),
        _ => Err(wrong),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::events::event_args::ServeArgs;

    fn read(args: &ServeArgs, variables: &[(&str, &str)]) -> Result<ServeConfig, String> {
        let owned = variables.iter().map(|(name, value)| (name.into(), value.into()));
        let owned: Vec<(OsString, OsString)> = owned.collect();
        let levels = OptionLayers::collect(args, None, None, owned.into_iter());
        levels.and_then(|levels| ServeConfig::read(&levels)).map_err(|failure| failure.to_string())
    }

    #[test]
    fn options_without_sources_have_defaults() {
        let config = read(&ServeArgs::default(), &[]).unwrap();
        assert_eq!(config.listen, SocketAddr::from(([127, 0, 0, 1], 2113)));
        assert_eq!(config.db, PathBuf::from("umbel-data"));
        assert!(!config.insecure && !config.sync && config.advertise.is_none());
        assert!(!config.kv && config.kv_memory == 256 << 20);
        assert_eq!(config.append_time, Config::default().partial_append_time);
        assert_eq!(config.existence, StoreOptions::default().existence);
        assert_eq!(config.log_slow, Config::default().slow_call_time);
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
        let config = read(&ServeArgs::default(), &variables).unwrap();
        assert_eq!(config.listen.to_string(), "0.0.0.0:7");
        assert_eq!(config.advertise, Some(("store.example".to_string(), 7)));
        assert_eq!(config.existence, ExistenceSize::Fixed { bytes: 256_000_000 });
        assert!(config.insecure);
        let listen = Some("[::1]:9".to_string());
        let config = read(&ServeArgs { listen, ..ServeArgs::default() }, &variables).unwrap();
        assert_eq!(config.listen.to_string(), "[::1]:9");
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
            ("UMBEL_STREAM_EXISTENCE_FILTER_SIZE", "5", "must be growing, 0 for none"),
        ];
        for (variable, text, why) in cases {
            let error = read(&ServeArgs::default(), &[(variable, text)]).expect_err("refused");
            assert!(error.contains(why), "{error}");
            assert!(!error.contains("kept"), "a password is not shown: {error}");
        }
        let long = "x".repeat(PASSWORD_BYTES_MAX + 1);
        let error = read(&ServeArgs::default(), &[("UMBEL_ADMIN_PASSWORD", &long)]);
        assert!(error.expect_err("refused").contains("has 1025 bytes"));
    }

    #[test]
    fn default_port_is_added_to_host() {
        let read = |text| host_and_port(text).ok();
        assert_eq!(read("store.example:2113"), Some(("store.example".to_string(), 2113)));
        assert_eq!(read("[::1]:2113"), Some(("::1".to_string(), 2113)));
        for wrong in ["store.example", ":2113", "store:65536", ""] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}

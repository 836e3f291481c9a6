//! [`ServeConfig`]: what `umbel serve` runs with, read of [`Levels`] of text.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tracing::Level;
use umbel::{Durability, Options};
use umbel_events::{Size, StoreOptions};
use umbel_server::{Config, PASSWORD_BYTES_MAX, Secret};

use super::serve_log::{self, LogFormat};
use super::serve_options::{Given, Levels, shown};
use crate::errors::{Failure, Outcome};
use crate::limits::memory_named;
use crate::number::{counts, parse_switch};
use crate::output::Output;

/// Bytes of the filter of streams, as far as its size is fixed.
const FILTER_BYTES_MAX: u64 = 1 << 40;
/// The longest that the parts of one append may take, in seconds.
const APPEND_TIME_MAX: u64 = 3600;
/// The longest that a call may take before it is told as slow, in milliseconds.
const LOG_SLOW_MAX: u64 = 3_600_000;

/// Bytes of memory for the store of keys and values where nobody names any.
const KV_MEMORY: u64 = 256 << 20;

/// The folder of the store where nobody names one.
const FOLDER: &str = "umbel-data";

/// What a server runs with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServeConfig {
    /// The folder of the store.
    pub db: PathBuf,
    /// Whether to serve in clear, and to ask nobody who he is.
    pub insecure: bool,
    /// The file of the certificate,
    pub certificate: Option<PathBuf>,
    /// that of its private key,
    pub key: Option<PathBuf>,
    /// and that or the folder of the authorities whose users are believed.
    pub authorities: Option<PathBuf>,
    /// Whether to ask users who they are, in clear.
    pub disable_tls: bool,
    /// The password of `admin` at the first start,
    pub admin_password: Option<Secret>,
    /// and that of `ops`.
    pub ops_password: Option<Secret>,
    /// Where to listen.
    pub listen: SocketAddr,
    /// Where clients are told to come back.
    pub advertise: Option<(String, u16)>,
    /// The folder for backups that are asked for while it runs.
    pub backup_dir: Option<PathBuf>,
    /// Whether an append is answered once it survives power loss.
    pub sync: bool,
    /// Bytes of memory for the store.
    pub memory: Option<u64>,
    /// Whether keys and values are served,
    pub kv: bool,
    /// and bytes of memory for their store.
    pub kv_memory: u64,
    /// How large the filter of streams is.
    pub existence: Size,
    /// How long an append may take from its first part to its last.
    pub append_time: Duration,
    /// The form of the log,
    pub log_format: LogFormat,
    /// how much is told,
    pub log_level: Level,
    /// and after what time without an answer a call is told as slow.
    pub log_slow: Duration,
}

/// One line of what is printed: an option, its value, and who said so.
type Line = (&'static str, Value, String);

impl ServeConfig {
    /// Reads what is said of each option; what nobody speaks of has its default.
    ///
    /// # Errors
    /// A value that an option cannot have, with who said it.
    pub fn read(levels: &Levels) -> Outcome<ServeConfig> {
        let plain = Config::default();
        let switch = |name: &str| -> Outcome<bool> {
            Ok(one(levels, &[name], parse_switch)?.unwrap_or_default())
        };
        let number = |name: &str, least: u64, most: u64| one(levels, &[name], counts(least, most));
        let path = |name: &str| {
            one(levels, &[name], |text| match text.is_empty() {
                true => Err("must name a file or a folder".to_string()),
                false => Ok(PathBuf::from(text)),
            })
        };
        let address = |text: &str| {
            let wrong = "must be an address and a port, like 127.0.0.1:2113";
            text.parse::<SocketAddr>().map_err(|_| wrong.to_string())
        };
        let ip = one_of(levels, ("node-ip", "listen"), ip_address, |text| Ok(address(text)?.ip()))?;
        let port = one_of(levels, ("node-port", "listen"), port, |text| Ok(address(text)?.port()))?;
        let listen =
            SocketAddr::new(ip.unwrap_or(plain.listen.ip()), port.unwrap_or(plain.listen.port()));
        let existence = one(levels, &["stream-existence-filter-size"], filter_size)?;
        let config = ServeConfig {
            db: path("db")?.unwrap_or_else(|| FOLDER.into()),
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
            kv_memory: number("kv-memory", 1, 1 << 50)?.unwrap_or(KV_MEMORY),
            existence: existence.unwrap_or(StoreOptions::default().existence),
            append_time: number("append-time", 1, APPEND_TIME_MAX)?
                .map_or(plain.parts_time, Duration::from_secs),
            log_format: one(levels, &["log-format"], LogFormat::parse)?.unwrap_or(LogFormat::Text),
            log_level: one(levels, &["log-level"], serve_log::level)?.unwrap_or(Level::INFO),
            log_slow: number("log-slow-milliseconds", 0, LOG_SLOW_MAX)?
                .map_or(plain.slow_time, Duration::from_millis),
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

    /// An error where a store would refuse its options, with who gave the memory.
    fn check_memory(&self, levels: &Levels) -> Outcome<()> {
        let kv = if self.kv { self.kv_options().check() } else { Ok(()) };
        let stores = [
            ("memory", self.store_options().check().map_err(Failure::from)),
            ("kv-memory", kv.map_err(Failure::from)),
        ];
        for (name, checked) in stores {
            let given = levels.last(&[name])?;
            let name = given.map_or_else(|| name.to_string(), shown);
            checked.map_err(|failure| memory_named(failure, &name))?;
        }
        Ok(())
    }

    /// Writes every option with its value and who said so, as a file of options or as JSON.
    pub fn print(&self, levels: &Levels, as_json: bool) -> Outcome<()> {
        let mut output = Output::new();
        if as_json {
            let object = self.lines(levels)?.into_iter().map(|(name, value, from)| {
                (name.to_string(), json!({ "value": value, "from": from }))
            });
            output.json(&Value::Object(object.collect::<Map<_, _>>()))?;
            return output.flush();
        }
        output.line(self.printed(levels)?.trim_end())?;
        output.flush()
    }

    /// Every option with its value and who said so, as a file of options.
    pub fn printed(&self, levels: &Levels) -> Outcome<String> {
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

    fn lines(&self, levels: &Levels) -> Outcome<Vec<Line>> {
        let from = |names: &[&str]| -> Outcome<String> {
            let given = levels.last(names)?;
            Ok(given.map_or("default".to_string(), |given| given.source.to_string()))
        };
        let host_and_port = |(host, port): &(String, u16)| match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        };
        let existence = match self.existence {
            Size::Off => json!(0),
            Size::Fixed { bytes } => json!(bytes),
            Size::Growing { .. } => json!("growing"),
        };
        let joined = |whole: &str, parts: [&str; 2]| -> Outcome<String> {
            let (first, second) = (from(&[parts[0], whole])?, from(&[parts[1], whole])?);
            Ok(if first == second { first } else { format!("{first} and {second}") })
        };
        let advertised = ["advertise-host-to-client-as", "advertise-node-port-to-client-as"];
        let line = |name: &'static str, value: Value| -> Outcome<Line> {
            Ok((name, value, from(&[name])?))
        };
        let password = |name, other, secret: &Option<Secret>| -> Outcome<Line> {
            Ok((name, hidden(secret.as_ref()), from(&[name, other])?))
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
fn hidden(secret: Option<&Secret>) -> Value {
    secret.map_or(Value::Null, |_| json!("(not shown)"))
}

/// What the last level says of one of these options, read by `parse`.
fn one<T>(
    levels: &Levels,
    names: &[&str],
    parse: impl Fn(&str) -> Result<T, String>,
) -> Outcome<Option<T>> {
    let Some(given) = levels.last(names)? else { return Ok(None) };
    parse(&given.text).map(Some).map_err(|why| refused(given, &why))
}

/// What the last level says of a part, or of the whole that has the part.
fn one_of<T>(
    levels: &Levels,
    (part, whole): (&str, &str),
    parse_part: impl Fn(&str) -> Result<T, String>,
    parse_whole: impl Fn(&str) -> Result<T, String>,
) -> Outcome<Option<T>> {
    let Some(given) = levels.last(&[part, whole])? else { return Ok(None) };
    let parsed =
        if given.name == part { parse_part(&given.text) } else { parse_whole(&given.text) };
    parsed.map(Some).map_err(|why| refused(given, &why))
}

fn refused(given: &Given, why: &str) -> Failure {
    let link = if why.starts_with("must ") { ", but " } else { ": " };
    let text = if given.text.is_empty() { "empty" } else { &given.text };
    Failure::usage(format!("{} is {text}{link}{why}", shown(given)))
}

/// A password that somebody can have and say. It is not shown, whatever is wrong with it.
fn password(levels: &Levels, names: [&str; 2]) -> Outcome<Option<Secret>> {
    let Some(given) = levels.last(&names)? else { return Ok(None) };
    let bytes = given.text.len();
    let wrong = match () {
        () if bytes == 0 || bytes > PASSWORD_BYTES_MAX => {
            format!("has {bytes} bytes, but must have 1 to {PASSWORD_BYTES_MAX}")
        }
        // A file's last line break comes along easily, and no browser could say it.
        () if given.text.contains(char::is_control) => {
            "has a line break or another control character in it, which nobody can type".into()
        }
        () => return Ok(Some(Secret::new(&*given.text))),
    };
    let whose = if names[0].starts_with("admin") { "admin" } else { "ops" };
    Err(Failure::usage(format!("{}: the password of {whose} {wrong}", shown(given))))
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
        Some((host, port)) if port > 0 => Ok((bare(host)?, port)),
        _ => Err("must be a name or an address, a colon and a port".to_string()),
    }
}

/// A name, or an address without its brackets.
fn bare(host: &str) -> Result<String, String> {
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

fn advertise(levels: &Levels, listening: u16) -> Outcome<Option<(String, u16)>> {
    let whole_host = |text: &str| Ok(host_and_port(text)?.0);
    let whole_port = |text: &str| Ok(host_and_port(text)?.1);
    let name = one_of(levels, ("advertise-host-to-client-as", "advertise"), bare, whole_host)?;
    let names = ("advertise-node-port-to-client-as", "advertise");
    let number = one_of(levels, names, port, whole_port)?;
    match (name, number) {
        (Some(name), number) => Ok(Some((name, number.unwrap_or(listening)))),
        (None, None) => Ok(None),
        (None, Some(_)) => Err(Failure::usage(
            "clients are told a port to come back to and no host; give the host, too, with \
             --advertise HOST:PORT",
        )),
    }
}

fn filter_size(text: &str) -> Result<Size, String> {
    if text.eq_ignore_ascii_case("growing") {
        return Ok(StoreOptions::default().existence);
    }
    let wrong = format!("must be growing, 0 for none, or 4096 to {FILTER_BYTES_MAX} bytes");
    match counts(0, FILTER_BYTES_MAX)(text) {
        Ok(0) => Ok(Size::Off),
        Ok(bytes) if bytes >= 4096 => Ok(Size::Fixed { bytes }),
        _ => Err(wrong),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::events::args::ServeArgs;

    fn read(args: &ServeArgs, variables: &[(&str, &str)]) -> Result<ServeConfig, String> {
        let owned = variables.iter().map(|(name, value)| (name.into(), value.into()));
        let owned: Vec<(OsString, OsString)> = owned.collect();
        let levels = Levels::collect(args, None, None, owned.into_iter());
        levels.and_then(|levels| ServeConfig::read(&levels)).map_err(|failure| failure.to_string())
    }

    #[test]
    fn nobody_says_anything_and_all_is_as_it_always_was() {
        let config = read(&ServeArgs::default(), &[]).unwrap();
        assert_eq!(config.listen, SocketAddr::from(([127, 0, 0, 1], 2113)));
        assert_eq!(config.db, PathBuf::from("umbel-data"));
        assert!(!config.insecure && !config.sync && config.advertise.is_none());
        assert!(!config.kv && config.kv_memory == 256 << 20);
        assert_eq!(config.append_time, Config::default().parts_time);
        assert_eq!(config.existence, StoreOptions::default().existence);
        assert_eq!(config.log_slow, Config::default().slow_time);
    }

    #[test]
    fn parts_and_wholes_go_together() {
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
        assert_eq!(config.existence, Size::Fixed { bytes: 256_000_000 });
        assert!(config.insecure);
        let listen = Some("[::1]:9".to_string());
        let config = read(&ServeArgs { listen, ..ServeArgs::default() }, &variables).unwrap();
        assert_eq!(config.listen.to_string(), "[::1]:9");
    }

    #[test]
    fn a_value_that_cannot_be_is_told_with_who_said_it() {
        let cases = [
            ("UMBEL_LISTEN", "here", "UMBEL_LISTEN is here, but must be an address"),
            ("UMBEL_NODE_PORT", "65536", "must be a port"),
            ("UMBEL_ADVERTISE", ":2113", "must be a name or an address"),
            ("UMBEL_ADVERTISE", "http://store:2113", "must be a name or an address"),
            ("UMBEL_ADVERTISE", "a store:2113", "must be a name or an address"),
            ("UMBEL_ADVERTISE", "[store]:2113", "must be a name or an address"),
            ("UMBEL_ADVERTISE", "store:0", "a colon and a port"),
            ("UMBEL_ADVERTISE_HOST_TO_CLIENT_AS", "a/b", "must be a name or an address"),
            ("UMBEL_BACKUP_DIR", "", "UMBEL_BACKUP_DIR is empty, but must name a file or a folder"),
            ("UMBEL_LISTEN", "", "UMBEL_LISTEN is empty, but must be an address"),
            ("UMBEL_ADMIN_PASSWORD", "", "the password of admin has 0 bytes, but must have 1 to"),
            ("UMBEL_OPS_PASSWORD", "kept\n", "UMBEL_OPS_PASSWORD: the password of ops has a line"),
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
            let said = read(&ServeArgs::default(), &[(variable, text)]).expect_err("refused");
            assert!(said.contains(why), "{said}");
            assert!(!said.contains("kept"), "a password is not shown: {said}");
        }
        let long = "x".repeat(PASSWORD_BYTES_MAX + 1);
        let said = read(&ServeArgs::default(), &[("UMBEL_ADMIN_PASSWORD", &long)]);
        assert!(said.expect_err("refused").contains("has 1025 bytes"));
    }

    #[test]
    fn hosts_have_ports() {
        let read = |text| host_and_port(text).ok();
        assert_eq!(read("store.example:2113"), Some(("store.example".to_string(), 2113)));
        assert_eq!(read("[::1]:2113"), Some(("::1".to_string(), 2113)));
        for wrong in ["store.example", ":2113", "store:65536", ""] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}

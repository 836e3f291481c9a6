//! Options of `umbel serve` as text: their names, and their values from the config file, the
//! environment and flags.

use std::ffi::OsString;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use crate::errors::{CommandError, CommandResult};
use crate::events::event_args::ServeArgs;
use crate::text::suggestion::nearest;

/// The longest file of options.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Variables of the environment that begin so are ours.
const ENV_PREFIX: &str = "UMBEL_";
/// Variables that begin so are KurrentDB's; those with a meaning here are taken.
const KURRENT_ENV_PREFIX: &str = "KURRENTDB_";

/// The names of all options. KurrentDB's mean the same there; those that have parts of another
/// option come after it.
pub const OPTION_NAMES: [&str; 26] = [
    "db",
    "insecure",
    "certificate-file",
    "certificate-private-key-file",
    "trusted-root-certificates-path",
    "disable-tls",
    "admin-password",
    "ops-password",
    "default-admin-password",
    "default-ops-password",
    "listen",
    "node-ip",
    "node-port",
    "advertise",
    "advertise-host-to-client-as",
    "advertise-node-port-to-client-as",
    "backup-dir",
    "sync",
    "memory",
    "kv",
    "kv-memory",
    "stream-existence-filter-size",
    "append-time",
    "log-format",
    "log-level",
    "log-slow-milliseconds",
];
/// Options that KurrentDB has not.
const UMBEL_ONLY_OPTIONS: [&str; 13] = [
    "admin-password",
    "ops-password",
    "listen",
    "advertise",
    "backup-dir",
    "sync",
    "memory",
    "kv",
    "kv-memory",
    "append-time",
    "log-format",
    "log-level",
    "log-slow-milliseconds",
];

/// Source of an option's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OptionSource {
    /// A file.
    File(PathBuf),
    /// A variable of the environment.
    Variable(String),
    /// A flag.
    Flag(String),
}

impl fmt::Display for OptionSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OptionSource::File(path) => write!(f, "{}", path.display()),
            OptionSource::Variable(name) => f.write_str(name),
            OptionSource::Flag(name) => write!(f, "--{name}"),
        }
    }
}

/// A value that a source gives to an option.
#[derive(Clone, PartialEq, Eq)]
pub struct OptionValue {
    /// The option.
    pub name: &'static str,
    /// Its value.
    pub text: String,
    /// Source of the value.
    pub source: OptionSource,
}

impl fmt::Debug for OptionValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The value may be a password.
        write!(f, "{} by {}", self.name, self.source)
    }
}

/// Options by source: config file, KurrentDB variables, Umbel variables, flags. The last source
/// that sets an option wins.
#[derive(Debug, Default)]
pub struct OptionLayers {
    levels: Vec<Vec<OptionValue>>,
}

impl OptionLayers {
    /// Reads the file, where one is named, and takes the variables and the flags.
    ///
    /// # Errors
    /// A file that cannot be read or is no TOML, a name that no option has, an option that is
    /// given twice in one place.
    pub fn collect(
        args: &ServeArgs,
        db: Option<(&Path, OptionSource)>,
        memory: Option<u64>,
        variables: impl Iterator<Item = (OsString, OsString)>,
    ) -> CommandResult<OptionLayers> {
        let text = args.config.as_deref().map(read_options_file).transpose()?;
        let named = args.config.as_deref().zip(text.as_deref());
        let db = db.map(|(directory, source)| {
            let text = directory.to_string_lossy().into_owned();
            OptionValue { name: "db", text, source }
        });
        let flags = db.into_iter().chain(parse_flags(args, memory)).collect();
        OptionLayers::from_texts(named, variables, flags)
    }

    /// Options of a config file with this name and text, these variables and these flags.
    ///
    /// # Errors
    /// As [`OptionLayers::collect`].
    pub fn from_texts(
        named: Option<(&Path, &str)>,
        variables: impl Iterator<Item = (OsString, OsString)>,
        flags: Vec<OptionValue>,
    ) -> CommandResult<OptionLayers> {
        let mut levels = Vec::new();
        if let Some((path, text)) = named {
            levels.push(parse_file(path, text)?);
        }
        let (kurrent, ours) = parse_environment(variables)?;
        levels.extend([kurrent, ours, flags]);
        Ok(OptionLayers { levels })
    }

    /// Value of one of these options in the last source that sets one of them.
    ///
    /// # Errors
    /// One source sets several of them.
    pub fn last_value(&self, names: &[&str]) -> CommandResult<Option<&OptionValue>> {
        for level in self.levels.iter().rev() {
            let mut matching = level.iter().filter(|given| names.contains(&given.name));
            let Some(first) = matching.next() else { continue };
            if let Some(other) = matching.next() {
                return Err(CommandError::usage(format!(
                    "{} and {} set the same option; keep one of them",
                    option_text(first),
                    option_text(other)
                )));
            }
            return Ok(Some(first));
        }
        Ok(None)
    }
}

/// An option with the source of its value.
pub fn option_text(given: &OptionValue) -> String {
    match &given.source {
        OptionSource::File(path) => format!("`{}` in {}", given.name, path.display()),
        source => source.to_string(),
    }
}

/// The option of this name, in whatever form it is written: `node-port`, `node_port`, `NodePort`.
fn option_name(written: &str) -> Option<&'static str> {
    let name = kebab(written);
    OPTION_NAMES.into_iter().find(|known| *known == name)
}

fn kebab(written: &str) -> String {
    let mut name = String::new();
    let mut was_small = false;
    for letter in written.chars() {
        if letter.is_ascii_uppercase() && was_small {
            name.push('-');
        }
        was_small = letter.is_ascii_lowercase() || letter.is_ascii_digit();
        name.push(if letter == '_' { '-' } else { letter.to_ascii_lowercase() });
    }
    name
}

fn unknown_option(written: &str, place: &str) -> CommandError {
    let meant = nearest(&kebab(written), OPTION_NAMES.into_iter());
    let meant = meant.map_or(String::new(), |name| format!("; did you mean `{name}`?"));
    CommandError::usage(format!(
        "{place} is not an option of `umbel serve`{meant} (`umbel serve --help` lists them)"
    ))
}

/// The text of a file of options.
fn read_options_file(path: &Path) -> CommandResult<String> {
    let unreadable = |error| CommandError::system("read", path, &error);
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    let shown = path.display();
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(CommandError::usage(format!(
            "{shown} has more than {FILE_BYTES_MAX} bytes and is not a config file"
        )));
    }
    String::from_utf8(bytes).map_err(|error| {
        let line = 1 + error.as_bytes()[..error.utf8_error().valid_up_to()]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count();
        CommandError::usage(format!("line {line} of {shown} is not UTF-8; write the file as UTF-8"))
    })
}

fn parse_file(path: &Path, text: &str) -> CommandResult<Vec<OptionValue>> {
    let table: Table = text.parse().map_err(|error| toml_error(path, text, &error))?;
    let mut level: Vec<OptionValue> = Vec::new();
    for (key, value) in table {
        let place = format!("`{key}` in {}", path.display());
        let name = option_name(&key).ok_or_else(|| unknown_option(&key, &place))?;
        let text = match value {
            Value::String(text) => text,
            Value::Integer(number) => number.to_string(),
            Value::Boolean(switch) => switch.to_string(),
            other => {
                return Err(CommandError::usage(format!(
                    "{place} is {}, but must be text, a whole number, true or false",
                    other.type_str()
                )));
            }
        };
        if level.iter().any(|given| given.name == name) {
            return Err(CommandError::usage(format!(
                "{place} is set twice, in two spellings; keep one"
            )));
        }
        level.push(OptionValue { name, text, source: OptionSource::File(path.to_path_buf()) });
    }
    Ok(level)
}

fn toml_error(path: &Path, text: &str, error: &toml::de::Error) -> CommandError {
    let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
    let looks_like_yaml =
        |line: &str| line.starts_with("---") || (line.contains(':') && !line.contains(['=', '{']));
    let is_yaml = text.lines().nth(line - 1).is_some_and(looks_like_yaml);
    let hint = match is_yaml {
        true => "; it looks like YAML: write `node-port = 2113` for `NodePort: 2113`",
        false => "",
    };
    let message = error.message().replace('\n', ", ");
    CommandError::usage(format!("line {line} of {} is not TOML: {message}{hint}", path.display()))
}

/// Options of KurrentDB variables and of Umbel variables.
fn parse_environment(
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> CommandResult<(Vec<OptionValue>, Vec<OptionValue>)> {
    let (mut kurrent, mut ours) = (Vec::new(), Vec::new());
    for (variable, value) in variables {
        let Some(variable) = variable.to_str() else { continue };
        let is_ours = variable.starts_with(ENV_PREFIX);
        let prefix = if is_ours { ENV_PREFIX } else { KURRENT_ENV_PREFIX };
        // The directory of the store is read where all commands read it.
        let Some(written) = variable.strip_prefix(prefix).filter(|_| variable != "UMBEL_DB") else {
            continue;
        };
        let name = match option_name(written) {
            Some(name) if is_ours || !UMBEL_ONLY_OPTIONS.contains(&name) => name,
            // What only looks like one of ours is a mistake; others may belong to other programs.
            None if is_ours && nearest(&kebab(written), OPTION_NAMES.into_iter()).is_some() => {
                return Err(unknown_option(written, &format!("the variable {variable}")));
            }
            _ => continue,
        };
        let Some(text) = value.to_str().map(str::to_string) else {
            return Err(CommandError::usage(format!("the variable {variable} is not UTF-8")));
        };
        let source = OptionSource::Variable(variable.to_string());
        let level = if is_ours { &mut ours } else { &mut kurrent };
        level.push(OptionValue { name, text, source });
    }
    Ok((kurrent, ours))
}

fn parse_flags(args: &ServeArgs, memory: Option<u64>) -> impl Iterator<Item = OptionValue> {
    let switch = |on: bool| on.then(|| "true".to_string());
    let flags = [
        ("insecure", switch(args.insecure)),
        ("certificate-file", args.certificate_file.clone()),
        ("certificate-private-key-file", args.certificate_private_key_file.clone()),
        ("trusted-root-certificates-path", args.trusted_root_certificates_path.clone()),
        ("disable-tls", switch(args.disable_tls)),
        ("listen", args.listen.clone()),
        ("node-ip", args.node_ip.clone()),
        ("node-port", args.node_port.clone()),
        ("advertise", args.advertise.clone()),
        ("advertise-host-to-client-as", args.advertise_host_to_client_as.clone()),
        ("advertise-node-port-to-client-as", args.advertise_node_port_to_client_as.clone()),
        ("backup-dir", args.backup_dir.clone()),
        ("sync", switch(args.sync)),
        ("memory", memory.map(|bytes| bytes.to_string())),
        ("kv", switch(args.kv)),
        ("kv-memory", args.kv_memory.clone()),
        ("stream-existence-filter-size", args.stream_existence_filter_size.clone()),
        ("append-time", args.append_time.clone()),
        ("log-format", args.log_format.clone()),
        ("log-level", args.log_level.clone()),
        ("log-slow-milliseconds", args.log_slow_milliseconds.clone()),
    ];
    flags.into_iter().filter_map(|(name, text)| {
        Some(OptionValue { name, text: text?, source: OptionSource::Flag(name.to_string()) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names_and_values(level: &[OptionValue]) -> Vec<(&str, &str)> {
        level.iter().map(|given| (given.name, &given.text[..])).collect()
    }

    #[test]
    fn config_file_accepts_every_option_spelling() {
        let text = "# ours\ninsecure = true\nNodePort = 2114\nappend_time = \"5\"\n";
        let level = parse_file(Path::new("a.toml"), text).unwrap();
        let mut found = names_and_values(&level);
        found.sort_unstable();
        assert_eq!(found, [("append-time", "5"), ("insecure", "true"), ("node-port", "2114")]);
    }

    #[test]
    fn invalid_config_file_is_reported_with_place() {
        let cases = [
            ("lisetn = \"a\"", "did you mean `listen`?"),
            ("whatever = 1", "is not an option"),
            ("insecure = true\nInsecure = true", "twice, in two spellings"),
            ("listen = [1]", "is array, but must be text"),
            ("insecure = true\nsync = maybe", "line 2 of a.toml is not TOML"),
            ("NodePort: 2113", "looks like YAML"),
            ("---\nInsecure: true", "looks like YAML"),
        ];
        for (text, why) in cases {
            let message = parse_file(Path::new("a.toml"), text).expect_err("refused").to_string();
            assert!(message.contains(why) && message.contains("a.toml"), "{text}: {message}");
        }
    }

    /// A file in another encoding was a failure of the system, and one without end took all memory.
    #[test]
    fn binary_config_file_is_rejected() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.toml");
        let refused = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            let failure = read_options_file(&path).expect_err("refused");
            assert_eq!(failure.exit_code(), 2);
            failure.to_string()
        };
        assert!(refused(b"insecure = true\nlisten = \"\xff\"").contains("line 2 of"));
        assert!(refused(&vec![b'#'; 1 + FILE_BYTES_MAX as usize]).contains("not a config file"));
        std::fs::write(&path, b"\xef\xbb\xbfsync = true\r\nappend-time = 5\r\n").unwrap();
        let level = parse_file(&path, &read_options_file(&path).unwrap()).unwrap();
        assert_eq!(level.len(), 2, "a mark of the order of bytes and Windows' ends of lines");
    }

    #[test]
    fn relevant_environment_variables_are_parsed() {
        let variables = [
            ("UMBEL_LISTEN", "0.0.0.0:1"),
            ("UMBEL_DB", "elsewhere"),
            ("UMBEL_TEST_TOLD", "x"),
            ("KURRENTDB_NODE_PORT", "2"),
            ("KURRENTDB_CLUSTER_SIZE", "3"),
            ("KURRENTDB_LISTEN", "4"),
            ("PATH", "/bin"),
        ];
        let parsed = |variables: &[(&str, &str)]| {
            let owned = variables.iter().map(|(name, value)| (name.into(), value.into()));
            parse_environment(owned.collect::<Vec<(OsString, OsString)>>().into_iter())
        };
        let (kurrent, ours) = parsed(&variables).unwrap();
        assert_eq!(names_and_values(&kurrent), [("node-port", "2")]);
        assert_eq!(names_and_values(&ours), [("listen", "0.0.0.0:1")]);
        let refused = parsed(&[("UMBEL_LISTN", "x")]).expect_err("nearly an option").to_string();
        assert!(refused.contains("UMBEL_LISTN") && refused.contains("`listen`"), "{refused}");
    }

    #[test]
    fn later_option_source_wins_and_duplicates_are_rejected() {
        let given = |name, text: &str| OptionValue {
            name,
            text: text.to_string(),
            source: OptionSource::Variable(text.to_string()),
        };
        let levels = OptionLayers {
            levels: vec![
                vec![given("listen", "low"), given("sync", "true")],
                vec![given("node-port", "high")],
            ],
        };
        let last = |names: &[&str]| levels.last_value(names).unwrap().map(|given| &given.text[..]);
        assert_eq!(last(&["node-port", "listen"]), Some("high"));
        assert_eq!(last(&["node-ip", "listen"]), Some("low"));
        assert_eq!(last(&["insecure"]), None);
        let twice =
            OptionLayers { levels: vec![vec![given("listen", "a"), given("node-port", "b")]] };
        let message = twice.last_value(&["node-port", "listen"]).expect_err("both").to_string();
        assert!(message.contains("keep one"), "{message}");
    }
}

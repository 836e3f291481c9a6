//! Values of the options of `umbel serve` as text: from the config file, the environment and
//! flags.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::Read;
use std::path::Path;

use clap::parser::ValueSource;
use clap::{ArgMatches, Command};
use toml::{Table, Value};

use crate::errors::{CommandError, CommandResult};
use crate::events::serve::kurrent_options;
use crate::text::suggestion::nearest;

/// Variables of all commands, or of other commands: no options of the server.
const VARIABLES_OF_COMMANDS: [&str; 3] = ["UMBEL_DB", "UMBEL_PASSWORD", "UMBEL_NEW_PASSWORD"];

/// Maximum length of a config file.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Prefix of Umbel's environment variables.
const ENV_PREFIX: &str = "UMBEL_";
/// Prefixes of KurrentDB's environment variables; the earlier prefix yields to the later one.
const KURRENT_ENV_PREFIXES: [&str; 2] = ["EVENTSTORE_", "KURRENTDB_"];
/// Variables of OpenTelemetry's specification, and the options that they set.
const OTEL_VARIABLES: [(&str, &str); 11] = [
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "otlp-endpoint"),
    ("OTEL_EXPORTER_OTLP_PROTOCOL", "otlp-protocol"),
    ("OTEL_EXPORTER_OTLP_HEADERS", "otlp-headers"),
    ("OTEL_EXPORTER_OTLP_TIMEOUT", "otlp-timeout"),
    ("OTEL_EXPORTER_OTLP_CERTIFICATE", "otlp-certificate"),
    ("OTEL_SERVICE_NAME", "otlp-service-name"),
    ("OTEL_RESOURCE_ATTRIBUTES", "otlp-resource-attributes"),
    ("OTEL_TRACES_SAMPLER", "trace-sampler"),
    ("OTEL_TRACES_SAMPLER_ARG", "trace-sample-ratio"),
    ("OTEL_METRIC_EXPORT_INTERVAL", "otlp-metric-interval"),
    ("OTEL_SDK_DISABLED", "otlp-disabled"),
];
/// Prefix of those variables.
pub const OTEL_PREFIX: &str = "OTEL_";
/// Options that have the same meaning in KurrentDB.
const KURRENT_OPTIONS: [&str; 16] = [
    "db",
    "mem-db",
    "log-level",
    "insecure",
    "certificate-file",
    "certificate-private-key-file",
    "trusted-root-certificates-path",
    "disable-tls",
    "default-admin-password",
    "default-ops-password",
    "node-ip",
    "node-port",
    "advertise-host-to-client-as",
    "advertise-node-port-to-client-as",
    "stream-existence-filter-size",
    "read-only-replica",
];
/// Options that can be set in parts or by an earlier name, with these names.
const PARTS: [(&str, &[&str]); 3] = [
    ("listen", &["node-ip", "node-port"]),
    ("advertise", &["advertise-host-to-client-as", "advertise-node-port-to-client-as"]),
    ("durability", &["sync"]),
];

/// A value that a source gives to an option.
#[derive(Clone, PartialEq, Eq)]
pub struct OptionValue {
    /// Value as text.
    pub text: String,
    /// Source of the value: config file, environment variable or flag.
    pub source: String,
    /// Name of the option in the source.
    pub place: String,
}

impl fmt::Debug for OptionValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The value may be a password.
        write!(f, "{} by {}", self.place, self.source)
    }
}

/// Values that one source sets, by the names of their options.
type Layer = BTreeMap<String, OptionValue>;

/// Merged values of all sources by the names of their options. An option replaces the parts of
/// itself that earlier sources set; within one source or later, a part overrides the option.
#[derive(Debug)]
pub struct OptionSources {
    /// Names and aliases of all options, each with the option's name.
    names: BTreeMap<String, String>,
    values: Layer,
    /// Notices about given options: earlier names, options without effect.
    notices: Vec<String>,
}

impl OptionSources {
    /// Merges the sources of the options of `command`: a config file, variables of KurrentDB,
    /// variables of Umbel, flags. The last of these sources that sets an option wins.
    ///
    /// # Errors
    /// The file is not TOML, an option name is unknown, or one source sets an option twice.
    pub fn merge(
        command: &Command,
        file: Option<(&Path, &str)>,
        variables: impl Iterator<Item = (OsString, OsString)>,
        flags: Option<&ArgMatches>,
    ) -> CommandResult<OptionSources> {
        let mut sources = OptionSources::with_names(command);
        let file = file.map(|(path, text)| sources.parse_file(path, text)).transpose()?;
        let variables: Vec<_> = variables.collect();
        sources.notice_variables(&variables);
        let (kurrent, ours) = sources.parse_environment(variables.into_iter())?;
        let flags = flags.map(|flags| sources.parse_flags(flags)).transpose()?;
        for layer in [file, Some(kurrent), Some(ours), flags].into_iter().flatten() {
            sources.push_layer(layer);
        }
        sources.notice_values();
        Ok(sources)
    }

    /// Notices about the given options, one line each, for the log.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// Adds a notice about an option that has no effect here.
    pub fn add_notice(&mut self, notice: String) {
        self.notices.push(notice);
    }

    /// Adds a notice for each of KurrentDB's variables that has no effect. Values are not shown:
    /// they may be passwords.
    fn notice_variables(&mut self, variables: &[(OsString, OsString)]) {
        for variable in variables.iter().filter_map(|(name, _)| name.to_str()) {
            let prefixes = KURRENT_ENV_PREFIXES.iter();
            let Some(written) = prefixes.filter_map(|p| variable.strip_prefix(p)).next() else {
                continue;
            };
            let name = kebab(written);
            if !KURRENT_OPTIONS.contains(&&*name) {
                let effect = kurrent_options::effect(&name).unwrap_or(kurrent_options::UNKNOWN);
                self.notices.push(format!("{variable} has no effect: {effect}"));
            }
        }
    }

    /// Removes the options without effect from the values, and adds a notice for each of them and
    /// for each earlier name.
    fn notice_values(&mut self) {
        let notices = &mut self.notices;
        self.values.retain(|name, value| match kurrent_options::effect(name) {
            Some(effect) => {
                notices.push(format!("{} has no effect: {effect}", value.place));
                false
            }
            None => true,
        });
        if let Some(value) = self.values.get("sync") {
            notices.push(format!(
                "{} is an earlier name: use durability, which is synced by default, or buffered",
                value.place
            ));
        }
    }

    fn with_names(command: &Command) -> OptionSources {
        let mut names = BTreeMap::new();
        for argument in command.get_arguments() {
            let Some(name) = argument.get_long() else { continue };
            let aliases = argument.get_all_aliases().unwrap_or_default();
            let all = aliases.into_iter().chain([name]);
            names.extend(all.map(|written| (written.to_string(), name.to_string())));
        }
        OptionSources { names, values: Layer::new(), notices: Vec::new() }
    }

    fn push_layer(&mut self, layer: Layer) {
        for (name, value) in layer {
            for part in parts_of(&name) {
                self.values.remove(*part);
            }
            self.values.insert(name, value);
        }
    }

    /// Value of an option, if a source sets it.
    pub fn get(&self, name: &str) -> Option<&OptionValue> {
        self.values.get(name)
    }

    /// Returns the merged values as flags.
    pub fn to_flags(&self) -> impl Iterator<Item = String> {
        self.values.iter().map(|(name, value)| format!("--{name}={}", value.text))
    }

    /// Source of an option, or sources of its parts.
    pub fn source(&self, name: &str) -> String {
        let whole = self.values.get(name).map_or("default", |value| &value.source);
        let of_part = |part: &&str| self.values.get(*part).map_or(whole, |value| &value.source);
        let mut sources: Vec<&str> = parts_of(name).iter().map(of_part).collect();
        sources.dedup();
        if sources.is_empty() { whole.to_string() } else { sources.join(" and ") }
    }

    fn name(&self, written: &str) -> Option<&str> {
        self.names.get(&kebab(written)).map(String::as_str)
    }

    fn nearest_name(&self, written: &str) -> Option<&str> {
        nearest(&kebab(written), self.names.keys().map(String::as_str))
    }

    fn unknown_option(&self, written: &str, place: &str) -> CommandError {
        let meant = self.nearest_name(written);
        let meant = meant.map_or(String::new(), |name| format!("; did you mean `{name}`?"));
        CommandError::usage(format!(
            "{place} is not an option of `umbel serve`{meant} (`umbel serve --help` lists all \
             options)"
        ))
    }

    fn parse_file(&self, path: &Path, text: &str) -> CommandResult<Layer> {
        let table: Table = text.parse().map_err(|error| toml_error(path, text, &error))?;
        let (source, mut layer) = (path.display().to_string(), Layer::new());
        for (key, value) in table {
            let place = format!("`{key}` in {source}");
            let name = self.name(&key).ok_or_else(|| self.unknown_option(&key, &place))?;
            let text = match value {
                Value::String(text) => text,
                Value::Integer(number) => number.to_string(),
                Value::Float(number) => number.to_string(),
                Value::Boolean(switch) => switch.to_string(),
                other => {
                    return Err(CommandError::usage(format!(
                        "{place} is {}, but must be text, a number, true or false",
                        other.type_str()
                    )));
                }
            };
            insert(&mut layer, name, OptionValue { text, source: source.clone(), place })?;
        }
        Ok(layer)
    }

    /// Returns the options in the environment variables of others, KurrentDB and OpenTelemetry, and
    /// in Umbel's.
    fn parse_environment(
        &self,
        variables: impl Iterator<Item = (OsString, OsString)>,
    ) -> CommandResult<(Layer, Layer)> {
        let [mut older, mut kurrent, mut otel, mut ours] = [(); 4].map(|()| Layer::new());
        for (variable, value) in variables {
            let Some(variable) = variable.to_str() else { continue };
            if let Some((_, name)) = OTEL_VARIABLES.iter().find(|(otel, _)| *otel == variable) {
                // An empty variable counts as unset, by OpenTelemetry's specification.
                if !value.is_empty() {
                    let value = variable_value(variable, &value)?;
                    insert(&mut otel, name, value)?;
                }
                continue;
            }
            let is_ours = variable.starts_with(ENV_PREFIX);
            let is_older = variable.starts_with(KURRENT_ENV_PREFIXES[0]);
            let (prefix, layer) = match (is_ours, is_older) {
                (true, _) => (ENV_PREFIX, &mut ours),
                (false, true) => (KURRENT_ENV_PREFIXES[0], &mut older),
                (false, false) => (KURRENT_ENV_PREFIXES[1], &mut kurrent),
            };
            if VARIABLES_OF_COMMANDS.contains(&variable) {
                continue;
            }
            let Some(written) = variable.strip_prefix(prefix) else { continue };
            let name = match self.name(written) {
                Some(name) if is_ours || KURRENT_OPTIONS.contains(&&*kebab(written)) => name,
                // A near miss is a mistake; other variables may belong to other programs.
                None if is_ours && self.nearest_name(written).is_some() => {
                    return Err(self.unknown_option(written, &format!("the variable {variable}")));
                }
                _ => continue,
            };
            insert(layer, name, variable_value(variable, &value)?)?;
        }
        older.retain(|name, _| !kurrent.keys().any(|other| overlap(name, other)));
        kurrent.append(&mut older);
        // No option has names of both.
        kurrent.append(&mut otel);
        Ok((kurrent, ours))
    }

    fn parse_flags(&self, flags: &ArgMatches) -> CommandResult<Layer> {
        let mut layer = Layer::new();
        for id in flags.ids() {
            let name = id.as_str().replace('_', "-");
            let text = flags.get_raw(id.as_str()).and_then(|mut values| values.next());
            let (Some(name), Some(text)) = (self.name(&name), text) else { continue };
            let source = match flags.value_source(id.as_str()) {
                Some(ValueSource::CommandLine) => format!("--{name}"),
                // An empty variable counts as unset.
                Some(ValueSource::EnvVariable) if !text.is_empty() => {
                    format!("{ENV_PREFIX}{}", id.as_str().to_ascii_uppercase())
                }
                _ => continue,
            };
            let (text, place) = (text.to_string_lossy().into_owned(), source.clone());
            insert(&mut layer, name, OptionValue { text, source, place })?;
        }
        Ok(layer)
    }
}

/// The value of an environment variable.
fn variable_value(variable: &str, value: &OsStr) -> CommandResult<OptionValue> {
    let Some(text) = value.to_str().map(str::to_string) else {
        return Err(CommandError::usage(format!("the variable {variable} is not UTF-8")));
    };
    Ok(OptionValue { text, source: variable.to_string(), place: variable.to_string() })
}

/// Names of the parts of an option.
fn parts_of(name: &str) -> &'static [&'static str] {
    PARTS.iter().find(|(whole, _)| *whole == name).map_or(&[], |(_, parts)| parts)
}

/// Whether two options are the same, or one is a part of the other.
fn overlap(one: &str, other: &str) -> bool {
    one == other || parts_of(one).contains(&other) || parts_of(other).contains(&one)
}

/// Adds a value to a source; an error if the source already sets the option or a part of it.
fn insert(layer: &mut Layer, name: &str, value: OptionValue) -> CommandResult<()> {
    if let Some((_, other)) = layer.iter().find(|(other, _)| overlap(other, name)) {
        return Err(CommandError::usage(format!(
            "{} and {} set the same option; keep one of them",
            other.place, value.place
        )));
    }
    layer.insert(name.to_string(), value);
    Ok(())
}

/// Converts an option name in any spelling (`node-port`, `node_port`, `NodePort`) to the spelling
/// of flags.
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

/// Reads the text of a config file.
///
/// # Errors
/// The file cannot be read, is longer than 1 MiB, or is not UTF-8.
pub fn read_options_file(path: &Path) -> CommandResult<String> {
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

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::events::serve::serve_config::ServeConfig;

    /// Returns sources of the server's options, without values.
    fn sources() -> OptionSources {
        OptionSources::with_names(&ServeConfig::command())
    }

    fn names_and_values(layer: &Layer) -> Vec<(&str, &str)> {
        layer.iter().map(|(name, value)| (&name[..], &value.text[..])).collect()
    }

    #[test]
    fn config_file_accepts_every_option_spelling() {
        let text = "# ours\ninsecure = true\nNodePort = 2114\nappend_time = \"5\"\n";
        let layer = sources().parse_file(Path::new("a.toml"), text).unwrap();
        assert_eq!(
            names_and_values(&layer),
            [("append-time", "5"), ("insecure", "true"), ("node-port", "2114")]
        );
    }

    #[test]
    fn invalid_config_file_is_reported_with_place() {
        let cases = [
            ("lisetn = \"a\"", "did you mean `listen`?"),
            ("whatever = 1", "is not an option"),
            ("insecure = true\nInsecure = true", "`Insecure` in a.toml and `insecure` in a.toml"),
            ("listen = 'a'\nNodePort = 1", "set the same option; keep one"),
            ("listen = [1]", "is array, but must be text"),
            ("insecure = true\nsync = maybe", "line 2 of a.toml is not TOML"),
            ("NodePort: 2113", "looks like YAML"),
            ("---\nInsecure: true", "looks like YAML"),
        ];
        for (text, why) in cases {
            let message = sources().parse_file(Path::new("a.toml"), text);
            let message = message.expect_err("refused").to_string();
            assert!(message.contains(why) && message.contains("a.toml"), "{text}: {message}");
        }
    }

    /// Regression: a config file in another encoding was reported as a failure of the system, and
    /// an endless file took all memory.
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
        let layer = sources().parse_file(&path, &read_options_file(&path).unwrap()).unwrap();
        assert_eq!(layer.len(), 2, "a mark of the order of bytes and Windows' ends of lines");
    }

    #[test]
    fn relevant_environment_variables_are_parsed() {
        let variables = [
            ("UMBEL_LISTEN", "0.0.0.0:1"),
            ("UMBEL_DB", "elsewhere"),
            // Story: the variable of scripts was refused as a mistake for `ops-password`.
            ("UMBEL_PASSWORD", "secret"),
            ("UMBEL_NEW_PASSWORD", "secret"),
            ("UMBEL_TEST_TOLD", "x"),
            ("KURRENTDB_NODE_PORT", "2"),
            ("KURRENTDB_CLUSTER_SIZE", "3"),
            ("KURRENTDB_LISTEN", "4"),
            ("PATH", "/bin"),
        ];
        let parsed = |variables: &[(&str, &str)]| {
            let owned = variables.iter().map(|(name, value)| (name.into(), value.into()));
            let owned: Vec<(OsString, OsString)> = owned.collect();
            sources().parse_environment(owned.into_iter())
        };
        let (kurrent, ours) = parsed(&variables).unwrap();
        assert_eq!(names_and_values(&kurrent), [("node-port", "2")]);
        assert_eq!(names_and_values(&ours), [("listen", "0.0.0.0:1")]);
        let refused = parsed(&[("UMBEL_LISTN", "x")]).expect_err("nearly an option").to_string();
        assert!(refused.contains("UMBEL_LISTN") && refused.contains("`listen`"), "{refused}");
    }

    #[test]
    fn options_of_kurrentdb_without_effect_become_notices() {
        let command = ServeConfig::command();
        let variables = [
            ("KURRENTDB_CLUSTER_SIZE", "1"),
            ("EVENTSTORE_RUN_PROJECTIONS", "All"),
            ("EVENTSTORE_NODE_PORT", "7"),
            ("KURRENTDB_NODE_PORT", "8"),
            ("KURRENTDB_CERTIFICATE_PASSWORD", "kept"),
            ("KURRENTDB_SOMETHING_ELSE", "x"),
        ];
        let owned = variables.map(|(name, value)| (name.into(), value.into())).into_iter();
        let text = "StartStandardProjections = true\nsync = false\n";
        let file = Some((Path::new("a.toml"), text));
        let merged = OptionSources::merge(&command, file, owned, None).unwrap();
        let values: Vec<String> = merged.to_flags().collect();
        assert_eq!(values, ["--node-port=8", "--sync=false"]);
        let notices = merged.notices();
        let parts = [
            "KURRENTDB_CLUSTER_SIZE has no effect: ",
            "EVENTSTORE_RUN_PROJECTIONS has no effect: the built-in projections",
            "KURRENTDB_CERTIFICATE_PASSWORD has no effect: ",
            "KURRENTDB_SOMETHING_ELSE has no effect: Umbel has no such option",
            "`StartStandardProjections` in a.toml has no effect: the built-in",
            "`sync` in a.toml is an earlier name",
        ];
        assert_eq!(notices.len(), parts.len(), "{notices:?}");
        for (notice, part) in notices.iter().zip(parts) {
            assert!(notice.starts_with(part), "{notice}");
        }
        assert!(!notices.concat().contains("kept"), "a password is not shown");
    }

    #[test]
    fn later_option_source_wins_and_duplicates_are_rejected() {
        let given = |name: &str, text: &str| {
            let (text, source) = (text.to_string(), text.to_string());
            (name.to_string(), OptionValue { text, place: source.clone(), source })
        };
        let mut merged = sources();
        merged.push_layer(Layer::from([given("listen", "low"), given("sync", "true")]));
        merged.push_layer(Layer::from([given("node-port", "high")]));
        assert_eq!(merged.get("node-port").map(|value| &value.text[..]), Some("high"));
        assert_eq!(merged.source("listen"), "low and high");
        assert_eq!(merged.get("insecure"), None);
        merged.push_layer(Layer::from([given("listen", "highest")]));
        assert_eq!(merged.get("node-port"), None);
        assert_eq!(merged.source("listen"), "highest");
        let variables = [("UMBEL_LISTEN", "a"), ("UMBEL_NODE_PORT", "b")];
        let owned = variables.map(|(name, value)| (name.into(), value.into())).into_iter();
        let message = sources().parse_environment(owned).expect_err("both").to_string();
        assert!(message.contains("UMBEL_LISTEN and UMBEL_NODE_PORT"), "{message}");
        assert!(message.contains("keep one"), "{message}");
    }
}

//! The options of `umbel serve` as text: their names, and what a file, the environment and flags
//! say of them.

use std::ffi::OsString;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::args::ServeArgs;
use crate::errors::{Failure, Outcome};
use crate::nearest::nearest;

/// The longest file of options.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Variables of the environment that begin so are ours.
const OURS: &str = "UMBEL_";
/// Variables that begin so are KurrentDB's; those with a meaning here are taken.
const KURRENT: &str = "KURRENTDB_";

/// The names of all options. KurrentDB's mean the same there; those that have parts of another
/// option come behind it.
pub const NAMES: [&str; 26] = [
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
const NOT_KURRENT: [&str; 13] = [
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

/// Who says something of an option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A file.
    File(PathBuf),
    /// A variable of the environment.
    Variable(String),
    /// A flag.
    Flag(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::File(path) => write!(f, "{}", path.display()),
            Source::Variable(name) => f.write_str(name),
            Source::Flag(name) => write!(f, "--{name}"),
        }
    }
}

/// What somebody says of an option.
#[derive(Clone, PartialEq, Eq)]
pub struct Given {
    /// The option.
    pub name: &'static str,
    /// Its value.
    pub text: String,
    /// Who says so.
    pub source: Source,
}

impl fmt::Debug for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The value may be a password.
        write!(f, "{} by {}", self.name, self.source)
    }
}

/// What is said of all options: the file first, then KurrentDB's variables, ours, the flags. Of
/// two levels the later one wins.
#[derive(Debug, Default)]
pub struct Levels {
    levels: Vec<Vec<Given>>,
}

impl Levels {
    /// Reads the file, where one is named, and takes the variables and the flags.
    ///
    /// # Errors
    /// A file that cannot be read or is no TOML, a name that no option has, an option that is
    /// given twice in one place.
    pub fn collect(
        args: &ServeArgs,
        db: Option<(&Path, Source)>,
        memory: Option<u64>,
        variables: impl Iterator<Item = (OsString, OsString)>,
    ) -> Outcome<Levels> {
        let text = args.config.as_deref().map(contents).transpose()?;
        let named = args.config.as_deref().zip(text.as_deref());
        let db = db.map(|(folder, source)| {
            let text = folder.to_string_lossy().into_owned();
            Given { name: "db", text, source }
        });
        let flags = db.into_iter().chain(flags(args, memory)).collect();
        Levels::of(named, variables, flags)
    }

    /// What a file of this name with this text, these variables and these flags say.
    ///
    /// # Errors
    /// As [`Levels::collect`].
    pub fn of(
        named: Option<(&Path, &str)>,
        variables: impl Iterator<Item = (OsString, OsString)>,
        flags: Vec<Given>,
    ) -> Outcome<Levels> {
        let mut levels = Vec::new();
        if let Some((path, text)) = named {
            levels.push(file(path, text)?);
        }
        let (kurrent, ours) = environment(variables)?;
        levels.extend([kurrent, ours, flags]);
        Ok(Levels { levels })
    }

    /// What the last level that says anything of one of these options says, the first of them that
    /// it knows.
    ///
    /// # Errors
    /// One level speaks of several of them that contradict each other.
    pub fn last(&self, names: &[&str]) -> Outcome<Option<&Given>> {
        for level in self.levels.iter().rev() {
            let mut said = level.iter().filter(|given| names.contains(&given.name));
            let Some(first) = said.next() else { continue };
            if let Some(other) = said.next() {
                return Err(Failure::usage(format!(
                    "{} and {} both say the same thing; keep one of them",
                    shown(first),
                    shown(other)
                )));
            }
            return Ok(Some(first));
        }
        Ok(None)
    }
}

/// An option with who speaks of it.
pub fn shown(given: &Given) -> String {
    match &given.source {
        Source::File(path) => format!("`{}` in {}", given.name, path.display()),
        source => source.to_string(),
    }
}

/// The option of this name, in whatever form it is written: `node-port`, `node_port`, `NodePort`.
fn known(written: &str) -> Option<&'static str> {
    let name = kebab(written);
    NAMES.into_iter().find(|known| *known == name)
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

fn unknown(written: &str, place: &str) -> Failure {
    let meant = nearest(&kebab(written), NAMES.into_iter());
    let meant = meant.map_or(String::new(), |name| format!("; did you mean `{name}`?"));
    Failure::usage(format!(
        "{place} names no option of `umbel serve`{meant} (`umbel serve --help` lists them)"
    ))
}

/// The text of a file of options.
fn contents(path: &Path) -> Outcome<String> {
    let unreadable = |error| Failure::system("read", path, &error);
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    let shown = path.display();
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(Failure::usage(format!(
            "{shown} has more than {FILE_BYTES_MAX} bytes: this is no file of options"
        )));
    }
    String::from_utf8(bytes).map_err(|error| {
        let line = 1 + error.as_bytes()[..error.utf8_error().valid_up_to()]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count();
        Failure::usage(format!("line {line} of {shown} is not UTF-8; write the file as UTF-8"))
    })
}

fn file(path: &Path, text: &str) -> Outcome<Vec<Given>> {
    let table: Table = text.parse().map_err(|error| malformed(path, text, &error))?;
    let mut level: Vec<Given> = Vec::new();
    for (key, value) in table {
        let place = format!("`{key}` in {}", path.display());
        let name = known(&key).ok_or_else(|| unknown(&key, &place))?;
        let text = match value {
            Value::String(text) => text,
            Value::Integer(number) => number.to_string(),
            Value::Boolean(switch) => switch.to_string(),
            other => {
                return Err(Failure::usage(format!(
                    "{place} is {}, but must be text, a whole number, true or false",
                    other.type_str()
                )));
            }
        };
        if level.iter().any(|given| given.name == name) {
            return Err(Failure::usage(format!("{place} is there twice, in two spellings")));
        }
        level.push(Given { name, text, source: Source::File(path.to_path_buf()) });
    }
    Ok(level)
}

fn malformed(path: &Path, text: &str, error: &toml::de::Error) -> Failure {
    let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
    let looks_like_yaml =
        |line: &str| line.starts_with("---") || (line.contains(':') && !line.contains(['=', '{']));
    let is_yaml = text.lines().nth(line - 1).is_some_and(looks_like_yaml);
    let hint = match is_yaml {
        true => "; it looks like YAML: write `node-port = 2113` for `NodePort: 2113`",
        false => "",
    };
    let message = error.message().replace('\n', ", ");
    Failure::usage(format!("line {line} of {} is no TOML: {message}{hint}", path.display()))
}

/// What KurrentDB's and our variables say.
fn environment(
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> Outcome<(Vec<Given>, Vec<Given>)> {
    let (mut kurrent, mut ours) = (Vec::new(), Vec::new());
    for (variable, value) in variables {
        let Some(variable) = variable.to_str() else { continue };
        let is_ours = variable.starts_with(OURS);
        let prefix = if is_ours { OURS } else { KURRENT };
        // The folder of the store is read where all commands read it.
        let Some(written) = variable.strip_prefix(prefix).filter(|_| variable != "UMBEL_DB") else {
            continue;
        };
        let name = match known(written) {
            Some(name) if is_ours || !NOT_KURRENT.contains(&name) => name,
            // What only looks like one of ours is a mistake; others may be somebody else's.
            None if is_ours && nearest(&kebab(written), NAMES.into_iter()).is_some() => {
                return Err(unknown(written, &format!("the variable {variable}")));
            }
            _ => continue,
        };
        let Some(text) = value.to_str().map(str::to_string) else {
            return Err(Failure::usage(format!("the variable {variable} is not UTF-8")));
        };
        let source = Source::Variable(variable.to_string());
        let level = if is_ours { &mut ours } else { &mut kurrent };
        level.push(Given { name, text, source });
    }
    Ok((kurrent, ours))
}

fn flags(args: &ServeArgs, memory: Option<u64>) -> impl Iterator<Item = Given> {
    let switch = |on: bool| on.then(|| "true".to_string());
    let said = [
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
    said.into_iter().filter_map(|(name, text)| {
        Some(Given { name, text: text?, source: Source::Flag(name.to_string()) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(level: &[Given]) -> Vec<(&str, &str)> {
        level.iter().map(|given| (given.name, &given.text[..])).collect()
    }

    #[test]
    fn a_file_names_options_in_every_spelling() {
        let text = "# ours\ninsecure = true\nNodePort = 2114\nappend_time = \"5\"\n";
        let level = file(Path::new("a.toml"), text).unwrap();
        let mut found = said(&level);
        found.sort_unstable();
        assert_eq!(found, [("append-time", "5"), ("insecure", "true"), ("node-port", "2114")]);
    }

    #[test]
    fn what_a_file_should_not_say_is_told_with_its_place() {
        let cases = [
            ("lisetn = \"a\"", "did you mean `listen`?"),
            ("whatever = 1", "names no option"),
            ("insecure = true\nInsecure = true", "twice, in two spellings"),
            ("listen = [1]", "is array, but must be text"),
            ("insecure = true\nsync = maybe", "line 2 of a.toml is no TOML"),
            ("NodePort: 2113", "looks like YAML"),
            ("---\nInsecure: true", "looks like YAML"),
        ];
        for (text, why) in cases {
            let said = file(Path::new("a.toml"), text).expect_err("refused").to_string();
            assert!(said.contains(why) && said.contains("a.toml"), "{text}: {said}");
        }
    }

    /// A file in another encoding was a failure of the system, and one without end took all memory.
    #[test]
    fn what_is_no_text_is_no_file_of_options() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.toml");
        let refused = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            let failure = contents(&path).expect_err("refused");
            assert_eq!(failure.exit_code(), 2);
            failure.to_string()
        };
        assert!(refused(b"insecure = true\nlisten = \"\xff\"").contains("line 2 of"));
        assert!(refused(&vec![b'#'; 1 + FILE_BYTES_MAX as usize]).contains("no file of options"));
        std::fs::write(&path, b"\xef\xbb\xbfsync = true\r\nappend-time = 5\r\n").unwrap();
        let level = file(&path, &contents(&path).unwrap()).unwrap();
        assert_eq!(level.len(), 2, "a mark of the order of bytes and Windows' ends of lines");
    }

    #[test]
    fn variables_are_taken_where_they_mean_something() {
        let variables = [
            ("UMBEL_LISTEN", "0.0.0.0:1"),
            ("UMBEL_DB", "elsewhere"),
            ("UMBEL_TEST_TOLD", "x"),
            ("KURRENTDB_NODE_PORT", "2"),
            ("KURRENTDB_CLUSTER_SIZE", "3"),
            ("KURRENTDB_LISTEN", "4"),
            ("PATH", "/bin"),
        ];
        let taken = |variables: &[(&str, &str)]| {
            let owned = variables.iter().map(|(name, value)| (name.into(), value.into()));
            environment(owned.collect::<Vec<(OsString, OsString)>>().into_iter())
        };
        let (kurrent, ours) = taken(&variables).unwrap();
        assert_eq!(said(&kurrent), [("node-port", "2")]);
        assert_eq!(said(&ours), [("listen", "0.0.0.0:1")]);
        let refused = taken(&[("UMBEL_LISTN", "x")]).expect_err("nearly an option").to_string();
        assert!(refused.contains("UMBEL_LISTN") && refused.contains("`listen`"), "{refused}");
    }

    #[test]
    fn the_later_level_wins_and_one_level_does_not_say_a_thing_twice() {
        let given = |name, text: &str| Given {
            name,
            text: text.to_string(),
            source: Source::Variable(text.to_string()),
        };
        let levels = Levels {
            levels: vec![
                vec![given("listen", "low"), given("sync", "true")],
                vec![given("node-port", "high")],
            ],
        };
        let last = |names: &[&str]| levels.last(names).unwrap().map(|given| &given.text[..]);
        assert_eq!(last(&["node-port", "listen"]), Some("high"));
        assert_eq!(last(&["node-ip", "listen"]), Some("low"));
        assert_eq!(last(&["insecure"]), None);
        let twice = Levels { levels: vec![vec![given("listen", "a"), given("node-port", "b")]] };
        let said = twice.last(&["node-port", "listen"]).expect_err("both").to_string();
        assert!(said.contains("keep one"), "{said}");
    }
}

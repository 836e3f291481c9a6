//! Errors of the command line parser: its messages, each reduced to one sentence.

use std::ffi::OsString;

use clap::Error;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::errors::{CommandError, CommandResult};
use crate::text::escaping::printable_line;

/// Flags that callers write before a command, with their value as the next argument.
const FLAGS_BEFORE_COMMAND: [&str; 4] = ["--connect", "--db", "--memory", "--open-tables"];
/// Names of the commands.
const COMMANDS: [&str; 33] = [
    "bench",
    "import",
    "get",
    "put",
    "delete",
    "scan",
    "stats",
    "advise",
    "verify",
    "inspect",
    "compact",
    "checkpoint",
    "scavenge",
    "redact",
    "append",
    "read",
    "streams",
    "metadata",
    "backup",
    "restore",
    "repair",
    "import-events",
    "serve",
    "promote",
    "subscribe",
    "doctor",
    "user",
    "group",
    "store",
    "filter",
    "lab",
    "completions",
    "man",
];
/// Filters of `read` and `subscribe`.
const FILTERS: [&str; 4] = ["--stream-prefix", "--stream-regex", "--type-prefix", "--type-regex"];

/// Prints help and version; every other error becomes a [`CommandError::Usage`].
pub fn handle_clap_error(error: Error) -> CommandResult<()> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            error.print().map_err(|error| CommandError::output(&error))
        }
        // The command lacks its subcommand.
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let code = CommandError::usage("").exit_code();
            error.print().map_err(|error| CommandError::output(&error))?;
            Err(CommandError::AlreadyReported(code))
        }
        _ => Err(CommandError::Usage(error_sentence(error, std::env::args_os()))),
    }
}

/// Returns the parser's message as one sentence, without the usage line.
pub fn error_sentence(mut error: Error, arguments: impl Iterator<Item = OsString>) -> String {
    // A value has the same sentence whether a flag, a variable or a file sets it.
    if error.kind() == ErrorKind::ValueValidation {
        return invalid_value(&error);
    }
    let arguments: Vec<OsString> = arguments.collect();
    // Before a command, the usage is `umbel [OPTIONS] [COMMAND]`, or begins with a flag.
    let command = parsed_command(&error).filter(|command| !command.starts_with(['[', '<', '-']));
    let command = command.or_else(|| named_command(&arguments)).unwrap_or_default();
    if let Some(tip) = unknown_argument(&error).and_then(|name| argument_tip(&name, &command)) {
        error.remove(ContextKind::SuggestedArg);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    if is_filter_without_all(&error, &arguments) {
        let tip = "a filter is for the events of all streams: write '--all'";
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    if is_key_at_server(&error, &arguments) {
        let tip = "a server deletes streams, not keys: write '--stream NAME'";
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    if let Some(seconds) = detached_wait(arguments.into_iter()) {
        let tip = format!("to wait up to {seconds} s for the store, write '--wait={seconds}'");
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let is_kept = |paragraph: &&str| {
        !paragraph.starts_with("Usage:") && !paragraph.starts_with("For more information")
    };
    let one_line = |paragraph: &str| {
        paragraph.lines().map(str::trim).collect::<Vec<_>>().join(" ").trim().to_string()
    };
    let parts: Vec<String> = text.split("\n\n").filter(is_kept).map(one_line).collect();
    if parts.len() > 1 { parts.join("; ") } else { format!("{}; see --help", parts.join("")) }
}

/// Returns the argument that a command does not have, without its value, if that is the error.
fn unknown_argument(error: &Error) -> Option<String> {
    let argument = error.get(ContextKind::InvalidArg).map(ToString::to_string);
    let argument = argument.filter(|_| error.kind() == ErrorKind::UnknownArgument)?;
    argument.split(['=', ' ']).next().map(str::to_string)
}

/// Returns the command whose arguments the parser read, from the line `Usage: umbel COMMAND`.
/// Another word with the name of a command can be the value of a flag.
fn parsed_command(error: &Error) -> Option<String> {
    let usage = error.get(ContextKind::Usage)?.to_string();
    usage.split_whitespace().nth(2).map(str::to_string)
}

/// Returns the first argument that is the name of a command and not the value of a flag.
fn named_command(arguments: &[OsString]) -> Option<String> {
    let mut words = arguments.iter().skip(1).filter_map(|argument| argument.to_str());
    while let Some(word) = words.next() {
        if FLAGS_BEFORE_COMMAND.contains(&word) {
            // The next word is the value.
            words.next();
        } else if COMMANDS.contains(&word) {
            return Some(word.to_string());
        }
    }
    None
}

/// Returns what to write instead of an argument that the command does not have.
fn argument_tip(name: &str, command: &str) -> Option<&'static str> {
    match name {
        "--connect" => connect_tip(command),
        name => filter_tip(name, command),
    }
}

/// Returns the filter that a caller means. The parser would suggest the flag with the most similar
/// name, which has another meaning.
fn filter_tip(name: &str, command: &str) -> Option<&'static str> {
    Some(match (command, name) {
        ("streams", "--type-prefix") => "to list event types, write '--types --prefix TEXT'",
        ("streams", "--stream-prefix") => "to list streams, write '--prefix TEXT'",
        ("streams", "--category-prefix") => {
            "to list categories, write '--categories --prefix TEXT'"
        }
        ("read" | "subscribe", "--prefix" | "--regex") => {
            "with '--all', filter by '--stream-prefix TEXT', '--type-prefix TEXT', '--stream-regex \
             REGEX' or '--type-regex REGEX'"
        }
        ("read" | "subscribe", "--type" | "--types") => {
            "with '--all', filter by '--type-prefix TEXT' or '--type-regex REGEX'"
        }
        ("read" | "subscribe", "--streams") => {
            "write '--stream NAME', or '--all' with '--stream-prefix TEXT' or '--stream-regex \
             REGEX'"
        }
        _ => return None,
    })
}

/// Whether the error is that a command with a filter has neither a stream nor `--all`.
fn is_filter_without_all(error: &Error, arguments: &[OsString]) -> bool {
    let missing = error.get(ContextKind::InvalidArg).map(ToString::to_string);
    let is_filter = |argument: &OsString| {
        let word = argument.to_str().unwrap_or_default();
        FILTERS.iter().any(|flag| word.starts_with(flag))
    };
    error.kind() == ErrorKind::MissingRequiredArgument
        && missing.is_some_and(|missing| missing.contains("--all"))
        && arguments.iter().any(is_filter)
}

/// Whether the error is that `umbel delete --connect` has a key, or lacks one, instead of a stream.
fn is_key_at_server(error: &Error, arguments: &[OsString]) -> bool {
    let kinds = [ErrorKind::MissingRequiredArgument, ErrorKind::ArgumentConflict];
    let contexts = [ContextKind::InvalidArg, ContextKind::PriorArg];
    let names_key = |kind| error.get(kind).is_some_and(|name| name.to_string().contains("KEY"));
    let is_connect = |argument: &OsString| {
        argument.to_str().is_some_and(|word| word.split('=').next() == Some("--connect"))
    };
    kinds.contains(&error.kind())
        && contexts.into_iter().any(names_key)
        && arguments.iter().any(is_connect)
}

/// Returns what a caller can do at a running server instead of the command without `--connect`. A
/// shell takes the commands as they are printed.
fn connect_tip(command: &str) -> Option<&'static str> {
    Some(match command {
        "get" | "put" | "scan" | "import" => {
            "a running server has keys and values only over gRPC, as umbel.kv.v1.KeyValue; stop \
             the server to use this command"
        }
        "import-events" | "repair" | "restore" | "verify" | "stats" | "advise" | "inspect"
        | "compact" | "checkpoint" => {
            "this command works on the directory of --db and needs no server; stop a server that \
             has the directory open"
        }
        "serve" => "'serve' is the server; its address is set with --listen",
        _ => return None,
    })
}

/// Returns a number that follows `--wait` as a separate argument, although it must follow `=`.
fn detached_wait(arguments: impl Iterator<Item = OsString>) -> Option<u64> {
    let mut arguments = arguments.skip_while(|argument| argument != "--wait").skip(1);
    arguments.next()?.to_str()?.parse().ok()
}

/// Returns the sentence about a value that its parser rejects; the reason names the valid values.
fn invalid_value(error: &Error) -> String {
    let text = |kind| error.get(kind).map(ToString::to_string).unwrap_or_default();
    let (argument, value) = (text(ContextKind::InvalidArg), text(ContextKind::InvalidValue));
    let reason = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
    if !reason.starts_with("must ") {
        return format!("`{argument}` cannot be `{value}`: {reason}");
    }
    let flag = argument.split_whitespace().next().unwrap_or_default();
    let value = if value.is_empty() { "empty" } else { &value };
    format!("{flag} is {value}, but {reason}")
}

/// Returns the sentence about a failure of this process's command. A text of a server or a store in
/// it does not act on a terminal.
pub fn failure_sentence(failure: &CommandError) -> String {
    printable_line(&match failure {
        CommandError::Usage(text) => with_typed_flags(text, std::env::args_os()),
        failure => failure.to_string(),
    })
}

/// Returns the sentence with the flags' names as the user typed them: `--write-buffer-size`, not
/// `--write_buffer_size`.
pub fn with_typed_flags(sentence: &str, arguments: impl IntoIterator<Item = OsString>) -> String {
    let mut sentence = sentence.to_string();
    for argument in arguments {
        let Some(text) = argument.to_str().filter(|text| text.starts_with("--")) else { continue };
        let typed = text.split('=').next().unwrap_or(text);
        let name = typed[2..].replace('-', "_");
        let name = match name.as_str() {
            "target_file_size_base" => "max_file_size",
            "compression_type" => "compression",
            name => name,
        };
        let known = format!("--{name}");
        let Some(at) = sentence.find(&known) else { continue };
        let is_longer = |letter: char| letter.is_ascii_alphanumeric() || "_-".contains(letter);
        if !name.is_empty() && !sentence[at + known.len()..].starts_with(is_longer) {
            sentence.replace_range(at..at + known.len(), typed);
        }
    }
    sentence
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::command_line::CommandLine;

    /// Story: a server's reason changed the direction of the line in a terminal.
    #[test]
    fn failures_are_lines_that_do_not_act_on_a_terminal() {
        let text = "the server says: a\u{202e}b\nc".to_string();
        let shown = r"the server says: a\u202eb\u000ac";
        assert_eq!(failure_sentence(&CommandError::System(text.clone())), shown);
        assert_eq!(failure_sentence(&CommandError::Usage(text)), shown);
    }

    #[test]
    fn names_of_commands_are_complete() {
        let command_line = CommandLine::command();
        let shown = command_line.get_subcommands().filter(|command| !command.is_hide_set());
        let names: Vec<&str> = shown.map(clap::Command::get_name).collect();
        assert_eq!(names, COMMANDS);
    }

    #[test]
    fn errors_spell_flags_as_typed() {
        let typed = |sentence, arguments: &[&str]| {
            with_typed_flags(sentence, arguments.iter().map(|argument| OsString::from(*argument)))
        };
        let sentence = "--write_buffer_size is 1, but must be 4096";
        let message = typed(sentence, &["bench", "--num", "--write-buffer-size=1"]);
        assert_eq!(message, "--write-buffer-size is 1, but must be 4096");
        assert_eq!(typed(sentence, &["--write_buffer_size", "1", "--write"]), sentence);
        let message = typed("--max_file_size is 1", &["--target-file-size-base=1"]);
        assert_eq!(message, "--target-file-size-base is 1");
        assert_eq!(typed("--", &["--", "--="]), "--");
    }

    /// Story: `umbel read --connect ADDRESS` gave the tip to write `-- --connect`.
    #[test]
    fn commands_without_connect_name_the_one_that_works_at_a_server() {
        let sentence = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let error = CommandLine::try_parse_from(&words);
            error_sentence(error.expect_err("unknown"), words.into_iter())
        };
        for (line, tip) in [
            ("umbel put a b --connect x", "umbel.kv.v1.KeyValue"),
            ("umbel repair --connect x", "stop a server"),
            ("umbel serve --connect x", "--listen"),
            // Regression: a flag before the command got no tip.
            ("umbel --connect x get a", "umbel.kv.v1.KeyValue"),
            ("umbel --connect=get repair", "stop a server"),
            ("umbel --db get --connect put verify", "stop a server"),
        ] {
            let sentence = sentence(line);
            assert!(sentence.contains(tip) && !sentence.contains("-- --connect"), "{sentence}");
            assert!(sentence.contains("'--connect'"), "{sentence}");
        }
        // Regression: the value of a flag counted as the command.
        let sentence = sentence("umbel --db get repair --connect x");
        assert!(sentence.contains("stop a server"), "{sentence}");
    }

    /// Story: `umbel delete --connect ADDRESS` required a key, which it refuses with `--connect`.
    #[test]
    fn delete_at_a_server_asks_for_a_stream() {
        for line in ["umbel delete --connect x", "umbel delete a --connect=x"] {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let error = CommandLine::try_parse_from(&words);
            let sentence = error_sentence(error.expect_err("no stream"), words.into_iter());
            assert!(sentence.contains("write '--stream NAME'"), "{line}: {sentence}");
            assert_eq!(sentence.lines().count(), 1, "{sentence}");
        }
    }

    /// Story: `umbel streams --type-prefix A` got the tip to write `--types`, which takes no value,
    /// and `umbel read --all --prefix a` the tip to write `--type-prefix`.
    #[test]
    fn filters_of_other_commands_get_a_tip() {
        let sentence = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let error = CommandLine::try_parse_from(&words);
            error_sentence(error.expect_err("unknown"), words.into_iter())
        };
        for (line, tip) in [
            ("umbel streams --type-prefix A", "tip: to list event types, write '--types --prefix"),
            ("umbel streams --type-prefix=A", "write '--types --prefix TEXT'"),
            ("umbel streams --stream-prefix A", "tip: to list streams, write '--prefix TEXT'"),
            ("umbel read --all --prefix a", "'--stream-prefix TEXT', '--type-prefix TEXT'"),
            ("umbel read --all --type A", "by '--type-prefix TEXT' or '--type-regex REGEX'"),
            ("umbel subscribe --connect x --all --regex a", "'--type-regex REGEX'"),
            ("umbel read --type-prefix A", "tip: a filter is for the events of all streams"),
        ] {
            let sentence = sentence(line);
            assert!(sentence.contains(tip), "{line}: {sentence}");
            assert!(!sentence.contains("similar"), "{line}: {sentence}");
            assert_eq!(sentence.lines().count(), 1, "{sentence}");
        }
        // Regression: the value of a flag counted as the command.
        let scan = sentence("umbel --db streams scan --type-prefix a");
        assert!(!scan.contains("--types"), "{scan}");
        // The flags of the command itself keep the suggestion of the parser.
        assert!(sentence("umbel streams --prefx a").contains("'--prefix'"));
    }

    #[test]
    fn seconds_after_wait_get_a_tip() {
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        let detached = |line: &[&str]| detached_wait(words(line).into_iter());
        assert_eq!(detached(&["umbel", "--wait", "5", "put"]), Some(5));
        assert_eq!(detached(&["umbel", "--wait=5", "put"]), None);
        assert_eq!(detached(&["umbel", "put", "--wait"]), None);
        let error = clap::Command::new("umbel").try_get_matches_from(["umbel", "5"]);
        let line = words(&["umbel", "--wait", "5"]).into_iter();
        let sentence = error_sentence(error.expect_err("unknown"), line);
        assert_eq!(sentence.lines().count(), 1, "{sentence}");
        assert!(sentence.contains("'5' found; tip: to wait up to 5 s"), "{sentence}");
    }
}

//! Groups of commands in `umbel --help`, and the global options that each command reads.

use clap::{Arg, Command};

/// Command names by subject, in the order of the help.
const GROUPS: [(&str, &[&str]); 4] = [
    (
        "Key-value store",
        &[
            "get",
            "put",
            "delete",
            "scan",
            "import",
            "stats",
            "advise",
            "inspect",
            "verify",
            "compact",
            "checkpoint",
            "bench",
        ],
    ),
    (
        "Event store",
        &[
            "append",
            "read",
            "streams",
            "metadata",
            "scavenge",
            "redact",
            "backup",
            "restore",
            "repair",
            "import-events",
        ],
    ),
    ("Server", &["serve", "promote", "subscribe", "doctor", "user", "group", "store"]),
    ("Filters, lab and shell", &["filter", "lab", "completions", "man"]),
];
/// Ids of the global options that affect a store.
const STORE_OPTIONS: [&str; 4] = ["db", "memory", "open_tables", "wait"];
/// Commands without a store, which ignore the store options.
const WITHOUT_STORE: [&str; 9] =
    ["promote", "subscribe", "user", "group", "store", "filter", "lab", "completions", "man"];
/// Commands that ignore `--json`, because their output has only one form.
const WITHOUT_JSON: [&str; 7] =
    ["put", "append", "read", "metadata", "subscribe", "completions", "man"];

/// Returns the command line with its commands in groups. The help of a command lacks the options
/// that have no effect on it, and says where an option needs another one.
pub fn grouped(mut command: Command) -> Command {
    let global: Vec<Arg> =
        command.get_arguments().filter(|it| it.is_global_set()).cloned().collect();
    for name in subcommand_names(&command) {
        let unused = unused_options(&name);
        // A subcommand with an option of this name does not take the visible one of its parent.
        let hidden = global.iter().filter(|option| unused.iter().any(|id| option.get_id() == id));
        let hidden: Vec<Arg> = hidden.map(|option| option.clone().hide(true)).collect();
        command = command.mut_subcommand(&name, |subcommand| subcommand.args(hidden));
    }
    // The deletion of a key prints nothing.
    let json = global.iter().find(|option| option.get_id() == "json").cloned();
    let json = json.map(|option| option.help("With --stream: print JSON for programs"));
    command = command.mut_subcommand("delete", |subcommand| subcommand.args(json));
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n{}\n\
         Options:\n{{options}}{{after-help}}",
        command_list(&command)
    );
    command.help_template(template)
}

fn subcommand_names(command: &Command) -> Vec<String> {
    command.get_subcommands().map(|subcommand| subcommand.get_name().to_string()).collect()
}

/// Returns the ids of the global options that have no effect on a command.
pub fn unused_options(command: &str) -> Vec<&'static str> {
    let mut unused = Vec::new();
    if WITHOUT_STORE.contains(&command) {
        unused.extend(STORE_OPTIONS);
    }
    // They check or rewrite files without a memory budget.
    if matches!(command, "restore" | "repair" | "doctor") {
        unused.extend(["memory", "open_tables"]);
    }
    if WITHOUT_JSON.contains(&command) {
        unused.push("json");
    }
    unused
}

/// Returns the list of commands in the help: for each group a heading and its commands.
fn command_list(command: &Command) -> String {
    let names = GROUPS.iter().flat_map(|(_, names)| *names);
    let width = names.map(|name| name.len()).max().unwrap_or_default();
    let mut list = String::new();
    for (heading, names) in GROUPS {
        list.push_str(&format!("\n{heading}:\n"));
        for name in names {
            let found = command.find_subcommand(name);
            let about = found.and_then(Command::get_about).map(ToString::to_string);
            list.push_str(&format!("  {name:<width$}  {}\n", about.unwrap_or_default()));
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use clap::parser::ValueSource;

    use super::*;
    use crate::command_line::CommandLine;

    #[test]
    fn every_command_is_in_one_group() {
        let command = CommandLine::command();
        let shown = command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set());
        let mut shown: Vec<&str> = shown.map(Command::get_name).collect();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        shown.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(shown, grouped);
    }

    #[test]
    fn help_of_a_command_has_its_options_only() {
        let help = |name: &str| {
            let parsed =
                grouped(CommandLine::command()).try_get_matches_from(["umbel", name, "--help"]);
            parsed.expect_err("the help").to_string()
        };
        assert!(help("scan").contains("--memory") && help("get").contains("--json"));
        assert!(!help("put").contains("--json") && help("put").contains("--db"));
        // Story: `umbel delete KEY --json` warned that `--json` has no effect, and its help had it.
        let delete = help("delete");
        let json = delete.lines().find(|line| line.contains("--json"));
        assert!(json.is_some_and(|line| line.contains("With --stream")), "{delete}");
        assert_eq!(delete.matches("--json").count(), 1, "{delete}");
        let doctor = help("doctor");
        assert!(!doctor.contains("--memory") && doctor.contains("--db"), "{doctor}");
        assert!(doctor.contains("--json") && doctor.contains("--wait"), "{doctor}");
        let subscribe = help("subscribe");
        assert!(!subscribe.contains("--memory") && !subscribe.contains("--db"), "{subscribe}");
        assert!(!help("repair").contains("--open-tables") && help("repair").contains("--wait"));
        assert!(
            help("serve").contains("--open-tables") && help("append").contains("--open-tables")
        );
    }

    #[test]
    fn options_without_effect_are_parsed() {
        let parse = |words: &[&str]| grouped(CommandLine::command()).try_get_matches_from(words);
        let given = parse(&["umbel", "doctor", "--memory", "64MiB"]).expect("parsed");
        assert_eq!(given.value_source("memory"), Some(ValueSource::CommandLine));
        let without = parse(&["umbel", "--json", "doctor"]).expect("parsed");
        assert_eq!(without.value_source("memory"), None);
        let (_, doctor) = without.subcommand().expect("doctor");
        assert!(doctor.get_flag("json"));
    }
}

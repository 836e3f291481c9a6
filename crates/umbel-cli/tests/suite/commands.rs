//! Every command on a small store, as a person would try it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use rustix::process::Signal;
use serde_json::json;

use super::repairs::{CHUNK, corrupt_byte, events};
use super::serve::Serving;
use super::test_binary::{Fixture, Run, file_of, wait_until};

const FRUIT: [(&str, &str); 4] =
    [("apple", "1"), ("apricot", "2"), ("banana", "3"), ("cherry", "4")];

#[test]
fn no_arguments_print_example_commands() {
    let run = Fixture::new().bare::<&str>(&[]).succeeds();
    let text = run.text();
    assert!(text.contains("Four commands to try:"), "{text}");
    assert!(text.contains("umbel serve --insecure "), "{text}");
    assert!(text.lines().count() < 15, "{text}");
    assert_eq!(run.stderr, "");
}

#[test]
fn help_and_version_exit_with_0() {
    let fixture = Fixture::new();
    let help = fixture.bare(&["--help"]).succeeds().text();
    for part in ["Exit codes:", "another process has the store open", "UMBEL_DB", "checkpoint"] {
        assert!(help.contains(part), "{part}: {help}");
    }
    assert!(!help.contains("remove-bench-folder"), "{help}");
    let version = fixture.bare(&["--version"]).succeeds().text();
    assert!(version.starts_with("umbel "), "{version}");
    let help = fixture.bare(&["bench", "--help"]).succeeds().text();
    for part in ["--bloom_bits", "--write_buffer_size", "readmissing", "Examples:"] {
        assert!(help.contains(part), "{part}: {help}");
    }
}

#[test]
fn put_value_is_returned_until_deleted() {
    let fixture = Fixture::new();
    fixture.run(&["put", "ada", "1815"]).writes("");
    fixture.run(&["put", "--sync", "grace", "1906"]).writes("");
    fixture.run(&["get", "ada"]).writes("1815\n");
    fixture.run(&["get", "--raw", "grace"]).writes("1906");
    fixture.run(&["delete", "ada", "--sync"]).writes("");
    fixture.run(&["delete", "never"]).writes("");
    let gone = fixture.run(&["get", "ada"]).fails(1, &["there is no key `ada`", "`default`"]);
    assert_eq!(gone.stdout, b"");
    fixture.run(&["get", "grace"]).writes("1906\n");
}

/// Story: the name of a keyspace changed the direction of the text in a terminal.
#[test]
fn names_of_keyspaces_do_not_act_on_a_terminal() {
    let fixture = Fixture::new();
    fixture.run(&["put", "--keyspace", "a\u{202e}b", "ada", "1815"]).writes("");
    for command in ["stats", "inspect", "advise"] {
        let text = fixture.run(&[command]).succeeds().text();
        assert!(text.contains("keyspace") && text.is_ascii(), "{command}: {text}");
    }
    let gone = fixture.run(&["get", "--keyspace", "a\u{202e}b", "grace"]).fails(1, &["`grace`"]);
    assert!(gone.stderr.is_ascii(), "{gone:?}");
}

#[test]
fn db_flag_overrides_environment() {
    let fixture = Fixture::with(&FRUIT);
    let output = fixture.command().args(["get", "apple"]).env("UMBEL_DB", fixture.store()).output();
    assert_eq!(output.unwrap().stdout, b"1\n");
    let mut command = fixture.command();
    command.args(["get", "apple", "--db"]).arg(fixture.store()).env("UMBEL_DB", "/nowhere");
    assert_eq!(command.output().unwrap().stdout, b"1\n");
    fixture.bare(&["get", "apple"]).fails(2, &["--db DIR", "UMBEL_DB"]);
    // An empty variable is one that is not set.
    let output = fixture.command().args(["get", "apple"]).env("UMBEL_DB", "").output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(
        error.starts_with("umbel: no store is named; name its directory with --db DIR"),
        "{error}"
    );
    let mut command = fixture.command();
    command.args(["get", "apple", "--db"]).arg(fixture.store()).env("UMBEL_DB", "");
    assert_eq!(command.output().unwrap().stdout, b"1\n");
    fixture.bare(&["get", "apple", "--db="]).fails(2, &["--db is empty", "--db DIR"]);
}

#[test]
fn binary_keys_and_values_round_trip() {
    let fixture = Fixture::new();
    let key = OsStr::from_bytes(b"k\xff\t");
    fixture.run(&[OsStr::new("put"), key, OsStr::from_bytes(b"v\x01\xfe")]).writes("");
    let raw = fixture.run(&[OsStr::new("get"), key, OsStr::new("--raw")]).succeeds();
    assert_eq!(raw.stdout, b"v\x01\xfe");
    fixture.run(&["get", "--hex", "6bFF09"]).writes("7601fe\n");
    fixture.run(&["put", "--hex", "00", ""]).writes("");
    fixture.run(&["scan"]).writes("\\x00\t\nk\\xff\\t\tv\\x01\\xfe\n");
    fixture.run(&["scan", "--hex"]).writes("00\t\n6bff09\t7601fe\n");
    let raw = fixture.run(&["scan", "--raw", "--prefix=k"]).succeeds();
    assert_eq!(raw.stdout, b"k\xff\t\tv\x01\xfe\n");
    fixture.run(&["get", "--hex", "6b0"]).fails(2, &["3 hex digits", "--hex"]);
    fixture.run(&["get", "--hex", "zz"]).fails(2, &["`zz`, which is not hex"]);
}

#[test]
fn value_is_read_from_file_or_pipe() {
    let fixture = Fixture::new();
    let file = fixture.path("value");
    std::fs::write(&file, b"a\nb\0").unwrap();
    let path = file.to_str().unwrap();
    fixture.run(&["put", "file", "--file", path]).writes("");
    fixture.feed(&["put", "pipe", "--file", "-"], b"from a pipe").writes("");
    assert_eq!(fixture.run(&["get", "file", "--raw"]).succeeds().stdout, b"a\nb\0");
    fixture.run(&["get", "pipe"]).writes("from a pipe\n");
    fixture.run(&["put", "none", "--file", "/nowhere/x"]).fails(4, &["could not read /nowhere/x"]);
    fixture.run(&["put", "none"]).fails(2, &["were not provided: <VALUE>"]);
}

#[test]
fn scan_respects_bounds_in_both_directions() {
    let fixture = Fixture::with(&FRUIT);
    let all = "apple\t1\napricot\t2\nbanana\t3\ncherry\t4\n";
    fixture.run(&["scan"]).writes(all);
    fixture.run(&["scan", "--prefix", "ap"]).writes("apple\t1\napricot\t2\n");
    fixture.run(&["scan", "--from", "apricot", "--to", "cherry"]).writes("apricot\t2\nbanana\t3\n");
    fixture.run(&["scan", "--prefix=ap", "--from=apr"]).writes("apricot\t2\n");
    fixture.run(&["scan", "--prefix=ap", "--from=b"]).writes("");
    fixture.run(&["scan", "--to=b", "--limit=1"]).writes("apple\t1\n");
    fixture.run(&["scan", "--limit=0"]).writes("");
    fixture.run(&["scan", "--reverse", "--limit=2"]).writes("cherry\t4\nbanana\t3\n");
    fixture.run(&["scan", "--reverse", "--prefix=ap", "--keys-only"]).writes("apricot\napple\n");
    fixture.run(&["scan", "--from=b", "--to=a"]).fails(2, &["--from `b` is greater than --to `a`"]);
}

/// Runs a command whose output no process reads.
fn unread(fixture: &Fixture, arguments: &[&str]) -> Run {
    let mut command = fixture.command();
    command.arg("--db").arg(fixture.store()).args(arguments);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    Run::from_output(child.wait_with_output().unwrap())
}

#[test]
fn closed_output_pipe_is_not_an_error() {
    let fixture = Fixture::new();
    let lines: String = (0..20_000).map(|number| format!("key {number}\n")).collect();
    fixture.feed(&["import"], lines.as_bytes()).succeeds();
    unread(&fixture, &["scan"]).writes("");
    let fixture = Fixture::new();
    fixture.feed(&["append"], &events(60)).succeeds();
    let serving = Serving::start(&fixture, &[]);
    for arguments in [&["streams"][..], &["streams", "--types"], &["read", "--all"], &["verify"]] {
        unread(&fixture, arguments).writes("");
    }
    for arguments in [&["streams"][..], &["streams", "--categories"], &["read", "--all"]] {
        let connect = ["--connect", serving.address()];
        unread(&fixture, &[arguments, &connect].concat()).writes("");
    }
    assert_eq!(serving.stop(Signal::INT).0, Some(0));
}

/// Story: `umbel verify | head -1` of a damaged store ended with exit code 0.
#[test]
fn verdict_does_not_depend_on_the_reader_of_the_output() {
    let fixture = Fixture::new();
    fixture.feed(&["append"], &events(60)).succeeds();
    corrupt_byte(&fixture, CHUNK, 1520);
    unread(&fixture, &["verify"]).fails(3, &["is damaged in"]);
    unread(&fixture, &["repair", "--dry-run"]).fails(3, &["would be lost"]);
    let unreachable = ["doctor", "--connect", "http://127.0.0.1:1"];
    unread(&fixture, &unreachable).fails(4, &["1 of 1 check"]);
}

#[test]
fn every_command_writes_json() {
    let fixture = Fixture::with(&FRUIT[..2]);
    let got = fixture.run(&["get", "apple", "--json"]).succeeds();
    assert_eq!(got.json(), json!({"found": true, "key": "apple", "value": "1"}));
    let none = fixture.run(&["--json", "get", "fig"]).fails(1, &["no key `fig`"]);
    assert_eq!(none.json(), json!({"found": false, "key": "fig"}));
    fixture
        .run(&["scan", "--json"])
        .writes("{\"key\":\"apple\",\"value\":\"1\"}\n{\"key\":\"apricot\",\"value\":\"2\"}\n");
    let stats = fixture.run(&["stats", "--json"]).succeeds().json();
    assert_eq!(stats["keyspaces"][0]["name"], "default");
    assert!(stats["keyspaces"][0]["levels"][0]["filter_probes"].is_u64(), "{stats}");
    let verify = fixture.run(&["verify", "--json"]).succeeds().json();
    assert_eq!(verify["whole"], true);
    let compact = fixture.run(&["compact", "--json"]).succeeds().json();
    assert_eq!(compact["keyspace"], "default");
    assert_eq!(compact["tables"], 1, "{compact}");
    let inspect = fixture.run(&["inspect", "--json"]).succeeds().json();
    let levels = inspect["keyspaces"][0]["levels"].as_array().unwrap();
    assert_eq!(levels.iter().filter_map(|level| level["entries"].as_u64()).sum::<u64>(), 2);
}

#[test]
fn keyspaces_are_independent() {
    let fixture = Fixture::with(&FRUIT[..1]);
    fixture.run(&["put", "apple", "red", "--keyspace", "colours"]).writes("");
    fixture.run(&["get", "apple"]).writes("1\n");
    fixture.run(&["get", "apple", "--keyspace=colours"]).writes("red\n");
    fixture
        .run(&["get", "apple", "--keyspace=colors"])
        .fails(2, &["no keyspace `colors`", "`default`, `colours`"]);
    fixture.run(&["delete", "apple", "--keyspace=tastes"]).fails(2, &["no keyspace `tastes`"]);
}

#[test]
fn compact_verify_and_inspect_agree_on_entries() {
    let fixture = Fixture::with(&FRUIT);
    fixture.run(&["delete", "banana"]).writes("");
    let verify = fixture.run(&["verify"]).succeeds().text();
    assert!(verify.contains("and 5 entries in the log"), "{verify}");
    assert_eq!(fixture.run(&["verify", "--json"]).succeeds().json()["log_entries"], 5);
    for (from, to) in [("z", "a"), ("a", "a")] {
        let message = format!("--from `{from}` is not before --to `{to}`");
        fixture
            .run(&["compact", "--from", from, "--to", to])
            .fails(2, &[&message, "exchange them"]);
    }
    let compact = fixture.run(&["compact"]).succeeds().text();
    assert!(compact.starts_with("compacted `default` in "), "{compact}");
    let verify = fixture.run(&["verify"]).succeeds().text();
    assert!(verify.contains("is undamaged: 1 tables, 3 entries, "), "{verify}");
    let stats = fixture.run(&["stats"]).succeeds().text();
    assert!(stats.contains("default"), "{stats}");
    let inspect = fixture.run(&["inspect"]).succeeds().text();
    assert!(inspect.contains("keyspace `default`: 0 entries in memory"), "{inspect}");
    let table = file_of(&fixture.store(), "table");
    let text = fixture.bare(&["inspect", table.to_str().unwrap()]).succeeds().text();
    assert!(text.contains("smallest key           apple"), "{text}");
    let facts = fixture.bare(&["inspect", "--json", table.to_str().unwrap()]).succeeds().json();
    assert_eq!((&facts["entries"], &facts["deletes"]), (&json!(3), &json!(0)));
    let manifest = file_of(&fixture.store(), "manifest");
    let facts = fixture.bare(&["inspect", "--json", manifest.to_str().unwrap()]).succeeds().json();
    assert_eq!(facts["kind"], "manifest");
    assert!(facts["records"].as_u64().unwrap() > 0, "{facts}");
}

#[test]
fn long_value_is_stored_inspected_and_verified() {
    let fixture = Fixture::with(&FRUIT);
    let value = vec![b'x'; (1 << 20) + 1];
    fixture.feed(&["put", "long", "--file", "-"], &value).writes("");
    let got = fixture.run(&["get", "long"]).succeeds().text();
    assert_eq!(got.trim_end().len(), value.len());
    let inspect = fixture.run(&["inspect"]).succeeds().text();
    assert!(inspect.contains(", 1 long values (1.0 MiB)\n"), "{inspect}");
    let verify = fixture.run(&["verify"]).succeeds().text();
    assert!(verify.contains(" 1 long values, "), "{verify}");
    let stats = fixture.run(&["stats", "--json"]).succeeds().json();
    assert_eq!((&stats["blobs"]["files"], &stats["keyspaces"][0]["blobs"]), (&json!(1), &json!(1)));
    let blob = file_of(&fixture.store(), "blob");
    let facts = fixture.bare(&["inspect", "--json", blob.to_str().unwrap()]).succeeds().json();
    assert_eq!((&facts["kind"], &facts["value_bytes"]), (&json!("blob"), &json!(value.len())));
    let mut bytes = std::fs::read(&blob).unwrap();
    bytes[1000] ^= 1;
    std::fs::write(&blob, bytes).unwrap();
    fixture.run(&["verify"]).fails(3, &["is damaged in 1 of"]);
    fixture.run(&["get", "long"]).fails(3, &["blob"]);
}

#[test]
fn checkpoint_is_an_independent_store() {
    let fixture = Fixture::with(&FRUIT);
    let copy = fixture.path("copy");
    let text = fixture.run(&["checkpoint", copy.to_str().unwrap()]).succeeds().text();
    assert!(text.contains("copy"), "{text}");
    fixture.run(&["put", "apple", "changed"]).writes("");
    let mut command = fixture.command();
    command.args(["get", "apple", "--db"]).arg(&copy);
    assert_eq!(command.output().unwrap().stdout, b"1\n");
    fixture.run(&["get", "apple"]).writes("changed\n");
    fixture.run(&["checkpoint", copy.to_str().unwrap()]).fails(2, &["copy"]);
}

#[test]
fn stats_and_advise_report_existence_filters() {
    let fixture = Fixture::with(&FRUIT);
    let stats = fixture.run(&["stats"]).succeeds().text();
    assert!(stats.contains("existence filter: off\n"), "{stats}");
    let stats = fixture.run(&["stats", "--json"]).succeeds().json();
    let of = |stats: &serde_json::Value| {
        let all = stats["keyspaces"].as_array().unwrap();
        let is_default =
            |one: &&serde_json::Value| one["name"] == "default" || one["keyspace"] == "default";
        all.iter().find(is_default).unwrap().clone()
    };
    assert_eq!(of(&stats)["existence_filter"], "off");
    assert!(of(&stats)["existence"].is_null(), "{stats}");
    let advice = fixture.run(&["advise"]).succeeds().text();
    assert!(advice.contains("It has no existence filter.\n"), "{advice}");

    let fixture = Fixture::new();
    let store = fixture.store();
    let bench = |extra: &[&str]| {
        let flags = ["bench", "--num=3000", "--existence_filter=grow", "--db"];
        let all = [&flags[..], &[store.to_str().unwrap()], extra].concat();
        fixture.bare(&all).succeeds();
    };
    bench(&["--benchmarks=fillseq"]);
    wait_until("the filter is made", || {
        bench(&["--benchmarks=readmissing", "--use_existing_db", "--reads=300000"]);
        of(&fixture.run(&["stats", "--json"]).succeeds().json())["existence"]["state"] == "ready"
    });
    let stats = of(&fixture.run(&["stats", "--json"]).succeeds().json());
    assert_eq!(
        (&stats["existence_filter"], &stats["existence_is_asked"]),
        (&json!("grow"), &json!(false))
    );
    let existence = &stats["existence"];
    let items = existence["items"].as_u64().unwrap();
    assert!((2950..=6100).contains(&items), "{existence}");
    assert_eq!(existence["designed_items"], json!(1 << 20));
    assert!(existence["memory_bytes"].as_u64().unwrap() > 1 << 20, "{existence}");
    assert!(existence["designed_rate"].as_f64().unwrap() > 0.001, "{existence}");
    assert!(existence["covered"].as_u64().unwrap() >= 3000, "{existence}");
    assert!(existence["measured_rate"].is_null() && existence["lost"].is_null(), "{existence}");
    let text = fixture.run(&["stats"]).succeeds().text();
    let expected =
        format!("existence filter (grows): ready, as its files say, {items} keys of 1048576");
    assert!(text.contains(&expected), "{text}");
    let advice = fixture.run(&["advise"]).succeeds().text();
    assert!(advice.contains("Its existence filter is ready: "), "{advice}");
    let advice = fixture.run(&["advise", "--json"]).succeeds().json();
    assert_eq!(of(&advice)["existence"]["items"], json!(items));
}

#[test]
fn manual_lists_every_command_flag_and_exit_code() {
    let fixture = Fixture::new();
    let manual = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/cli.md");
    let manual = std::fs::read_to_string(manual).unwrap();
    let help = fixture.bare(&["--help"]).succeeds().text();
    let in_part = |title: &str| {
        let part = help.split(title).nth(1).unwrap().split("\n\n").next().unwrap();
        part.lines().filter_map(|line| line.split_whitespace().next()).collect::<Vec<_>>()
    };
    let groups = ["Key-value store", "Event store", "Server", "Filters, lab and shell"];
    let commands = groups.iter().flat_map(|group| in_part(&format!("\n{group}:\n")));
    let commands: Vec<&str> = commands.collect();
    assert!(commands.len() > 25, "{commands:?}");
    for command in &commands {
        assert!(manual.contains(command), "docs/reference/cli.md does not name `{command}`");
        let help = fixture.bare(&[command, "--help"]).succeeds().text();
        let flags = help.split_whitespace().filter(|word| word.starts_with("--"));
        for flag in flags {
            let flag = flag.trim_end_matches(|letter: char| !letter.is_ascii_alphanumeric());
            let flag = flag.split(['=', '[']).next().unwrap();
            let is_named = manual.contains(flag) || ["--help", "--version"].contains(&flag);
            assert!(is_named, "docs/reference/cli.md does not name `{command} {flag}`");
        }
    }
    for line in help.split("Exit codes:\n").nth(1).unwrap().lines() {
        let (code, meaning) = line.trim().split_once("  ").unwrap();
        let row = manual.lines().find(|line| line.starts_with(&format!("| {code} |"))).unwrap();
        let words = |text: &str| text.replace(['`', '(', ')'], "");
        assert!(words(row).contains(&words(meaning)), "{row} does not say: {meaning}");
    }
}

#[test]
fn flags_bound_memory_and_open_tables() {
    let fixture = Fixture::with(&FRUIT);
    let stats = fixture.run(&["--memory=8MiB", "--open-tables=4", "--json", "stats"]);
    let stats = stats.succeeds().json();
    assert_eq!(stats["memory"]["budget_bytes"], json!(8 << 20));
    assert_eq!(stats["descriptors"]["open_tables_max"], json!(4));
    let expected = "the least that works is 6291456";
    fixture.run(&["get", "apple", "--memory", "1MiB"]).fails(2, &[expected]);
    fixture.run(&["get", "apple", "--memory", "much"]).fails(2, &["--memory", "`much`"]);
    fixture.run(&["stats", "--open-tables=3"]).fails(2, &["--open-tables", "must be 4 to"]);
}

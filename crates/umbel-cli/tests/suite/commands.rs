//! Every command on a small store, as a person would try it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use serde_json::json;

use super::harness::{Ground, file_of, wait_until};

const FRUIT: [(&str, &str); 4] =
    [("apple", "1"), ("apricot", "2"), ("banana", "3"), ("cherry", "4")];

#[test]
fn nothing_at_all_shows_three_commands_to_try() {
    let run = Ground::new().bare::<&str>(&[]).succeeds();
    let text = run.text();
    assert!(text.contains("Three commands to try:"), "{text}");
    assert!(text.lines().count() < 15, "{text}");
    assert_eq!(run.stderr, "");
}

#[test]
fn help_and_version_are_answers_and_no_errors() {
    let ground = Ground::new();
    let help = ground.bare(&["--help"]).succeeds().text();
    for part in ["Exit codes:", "another process holds the store", "UMBEL_DB", "checkpoint"] {
        assert!(help.contains(part), "{part}: {help}");
    }
    assert!(!help.contains("remove-bench-folder"), "{help}");
    let version = ground.bare(&["--version"]).succeeds().text();
    assert!(version.starts_with("umbel "), "{version}");
    let help = ground.bare(&["bench", "--help"]).succeeds().text();
    for part in ["--bloom_bits", "--write_buffer_size", "readmissing", "Examples:"] {
        assert!(help.contains(part), "{part}: {help}");
    }
}

#[test]
fn what_is_put_is_got_until_it_is_deleted() {
    let ground = Ground::new();
    ground.run(&["put", "ada", "1815"]).writes("");
    ground.run(&["put", "--sync", "grace", "1906"]).writes("");
    ground.run(&["get", "ada"]).writes("1815\n");
    ground.run(&["get", "--raw", "grace"]).writes("1906");
    ground.run(&["delete", "ada", "--sync"]).writes("");
    ground.run(&["delete", "never"]).writes("");
    let gone = ground.run(&["get", "ada"]).fails(1, &["there is no key `ada`", "`default`"]);
    assert_eq!(gone.stdout, b"");
    ground.run(&["get", "grace"]).writes("1906\n");
}

#[test]
fn the_store_is_named_by_flag_or_environment_and_the_flag_wins() {
    let ground = Ground::with(&FRUIT);
    let output = ground.command().args(["get", "apple"]).env("UMBEL_DB", ground.store()).output();
    assert_eq!(output.unwrap().stdout, b"1\n");
    let mut command = ground.command();
    command.args(["get", "apple", "--db"]).arg(ground.store()).env("UMBEL_DB", "/nowhere");
    assert_eq!(command.output().unwrap().stdout, b"1\n");
    ground.bare(&["get", "apple"]).fails(2, &["--db DIR", "UMBEL_DB"]);
    // An empty variable is one that is not set.
    let output = ground.command().args(["get", "apple"]).env("UMBEL_DB", "").output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.starts_with("umbel: which store? Name its folder with --db DIR"), "{error}");
    let mut command = ground.command();
    command.args(["get", "apple", "--db"]).arg(ground.store()).env("UMBEL_DB", "");
    assert_eq!(command.output().unwrap().stdout, b"1\n");
    ground.bare(&["get", "apple", "--db="]).fails(2, &["--db is empty", "--db DIR"]);
}

#[test]
fn binary_keys_and_values_come_back_byte_for_byte() {
    let ground = Ground::new();
    let key = OsStr::from_bytes(b"k\xff\t");
    ground.run(&[OsStr::new("put"), key, OsStr::from_bytes(b"v\x01\xfe")]).writes("");
    let raw = ground.run(&[OsStr::new("get"), key, OsStr::new("--raw")]).succeeds();
    assert_eq!(raw.stdout, b"v\x01\xfe");
    ground.run(&["get", "--hex", "6bFF09"]).writes("7601fe\n");
    ground.run(&["put", "--hex", "00", ""]).writes("");
    ground.run(&["scan"]).writes("\\x00\t\nk\\xff\\t\tv\\x01\\xfe\n");
    ground.run(&["scan", "--hex"]).writes("00\t\n6bff09\t7601fe\n");
    let raw = ground.run(&["scan", "--raw", "--prefix=k"]).succeeds();
    assert_eq!(raw.stdout, b"k\xff\t\tv\x01\xfe\n");
    ground.run(&["get", "--hex", "6b0"]).fails(2, &["3 hex digits", "--hex"]);
    ground.run(&["get", "--hex", "zz"]).fails(2, &["`zz`, which is not hex"]);
}

#[test]
fn a_value_can_come_from_a_file_or_a_pipe() {
    let ground = Ground::new();
    let file = ground.path("value");
    std::fs::write(&file, b"a\nb\0").unwrap();
    let path = file.to_str().unwrap();
    ground.run(&["put", "file", "--file", path]).writes("");
    ground.feed(&["put", "pipe", "--file", "-"], b"from a pipe").writes("");
    assert_eq!(ground.run(&["get", "file", "--raw"]).succeeds().stdout, b"a\nb\0");
    ground.run(&["get", "pipe"]).writes("from a pipe\n");
    ground.run(&["put", "none", "--file", "/nowhere/x"]).fails(4, &["could not read /nowhere/x"]);
    ground.run(&["put", "none"]).fails(2, &["is missing"]);
}

#[test]
fn scan_keeps_to_its_bounds_both_ways() {
    let ground = Ground::with(&FRUIT);
    let all = "apple\t1\napricot\t2\nbanana\t3\ncherry\t4\n";
    ground.run(&["scan"]).writes(all);
    ground.run(&["scan", "--prefix", "ap"]).writes("apple\t1\napricot\t2\n");
    ground.run(&["scan", "--from", "apricot", "--to", "cherry"]).writes("apricot\t2\nbanana\t3\n");
    ground.run(&["scan", "--prefix=ap", "--from=apr"]).writes("apricot\t2\n");
    ground.run(&["scan", "--prefix=ap", "--from=b"]).writes("");
    ground.run(&["scan", "--to=b", "--limit=1"]).writes("apple\t1\n");
    ground.run(&["scan", "--limit=0"]).writes("");
    ground.run(&["scan", "--reverse", "--limit=2"]).writes("cherry\t4\nbanana\t3\n");
    ground.run(&["scan", "--reverse", "--prefix=ap", "--keys-only"]).writes("apricot\napple\n");
    ground.run(&["scan", "--from=b", "--to=a"]).fails(2, &["--from `b` is greater than --to `a`"]);
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let ground = Ground::new();
    let lines: String = (0..20_000).map(|number| format!("key {number}\n")).collect();
    ground.feed(&["import"], lines.as_bytes()).succeeds();
    let mut command = ground.command();
    command.arg("scan").arg("--db").arg(ground.store());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(output.stderr, b"");
}

#[test]
fn json_is_there_for_programs() {
    let ground = Ground::with(&FRUIT[..2]);
    let got = ground.run(&["get", "apple", "--json"]).succeeds();
    assert_eq!(got.json(), json!({"found": true, "key": "apple", "value": "1"}));
    let none = ground.run(&["--json", "get", "fig"]).fails(1, &["no key `fig`"]);
    assert_eq!(none.json(), json!({"found": false, "key": "fig"}));
    ground
        .run(&["scan", "--json"])
        .writes("{\"key\":\"apple\",\"value\":\"1\"}\n{\"key\":\"apricot\",\"value\":\"2\"}\n");
    let stats = ground.run(&["stats", "--json"]).succeeds().json();
    assert_eq!(stats["keyspaces"][0]["name"], "default");
    assert!(stats["keyspaces"][0]["levels"][0]["filter_probes"].is_u64(), "{stats}");
    let verify = ground.run(&["verify", "--json"]).succeeds().json();
    assert_eq!(verify["whole"], true);
    let compact = ground.run(&["compact", "--json"]).succeeds().json();
    assert_eq!(compact["keyspace"], "default");
    assert_eq!(compact["tables"], 1, "{compact}");
    let inspect = ground.run(&["inspect", "--json"]).succeeds().json();
    let levels = inspect["keyspaces"][0]["levels"].as_array().unwrap();
    assert_eq!(levels.iter().filter_map(|level| level["entries"].as_u64()).sum::<u64>(), 2);
}

#[test]
fn keyspaces_are_apart() {
    let ground = Ground::with(&FRUIT[..1]);
    ground.run(&["put", "apple", "red", "--keyspace", "colours"]).writes("");
    ground.run(&["get", "apple"]).writes("1\n");
    ground.run(&["get", "apple", "--keyspace=colours"]).writes("red\n");
    ground
        .run(&["get", "apple", "--keyspace=colors"])
        .fails(2, &["no keyspace `colors`", "`default`, `colours`"]);
    ground.run(&["delete", "apple", "--keyspace=tastes"]).fails(2, &["no keyspace `tastes`"]);
}

#[test]
fn compaction_verification_and_inspection_see_the_same_entries() {
    let ground = Ground::with(&FRUIT);
    ground.run(&["delete", "banana"]).writes("");
    let verify = ground.run(&["verify"]).succeeds().text();
    assert!(verify.contains("and 5 entries in the log"), "{verify}");
    assert_eq!(ground.run(&["verify", "--json"]).succeeds().json()["log_entries"], 5);
    for (from, to) in [("z", "a"), ("a", "a")] {
        let said = format!("--from `{from}` is not before --to `{to}`");
        ground.run(&["compact", "--from", from, "--to", to]).fails(2, &[&said, "exchange them"]);
    }
    let compact = ground.run(&["compact"]).succeeds().text();
    assert!(compact.starts_with("compacted `default` in "), "{compact}");
    let verify = ground.run(&["verify"]).succeeds().text();
    assert!(verify.contains("is whole: 1 tables, 3 entries, "), "{verify}");
    let stats = ground.run(&["stats"]).succeeds().text();
    assert!(stats.contains("default"), "{stats}");
    let inspect = ground.run(&["inspect"]).succeeds().text();
    assert!(inspect.contains("keyspace `default`: 0 entries in memory"), "{inspect}");
    let table = file_of(&ground.store(), "table");
    let text = ground.bare(&["inspect", table.to_str().unwrap()]).succeeds().text();
    assert!(text.contains("smallest key           apple"), "{text}");
    let facts = ground.bare(&["inspect", "--json", table.to_str().unwrap()]).succeeds().json();
    assert_eq!((&facts["entries"], &facts["deletes"]), (&json!(3), &json!(0)));
    let manifest = file_of(&ground.store(), "manifest");
    let facts = ground.bare(&["inspect", "--json", manifest.to_str().unwrap()]).succeeds().json();
    assert_eq!(facts["kind"], "manifest");
    assert!(facts["records"].as_u64().unwrap() > 0, "{facts}");
}

#[test]
fn a_long_value_is_stored_shown_and_verified() {
    let ground = Ground::with(&FRUIT);
    let value = vec![b'x'; (1 << 20) + 1];
    ground.feed(&["put", "long", "--file", "-"], &value).writes("");
    let got = ground.run(&["get", "long"]).succeeds().text();
    assert_eq!(got.trim_end().len(), value.len());
    let inspect = ground.run(&["inspect"]).succeeds().text();
    assert!(inspect.contains(", 1 long values (1.0 MB)\n"), "{inspect}");
    let verify = ground.run(&["verify"]).succeeds().text();
    assert!(verify.contains(" 1 long values, "), "{verify}");
    let stats = ground.run(&["stats", "--json"]).succeeds().json();
    assert_eq!((&stats["blobs"]["files"], &stats["keyspaces"][0]["blobs"]), (&json!(1), &json!(1)));
    let blob = file_of(&ground.store(), "blob");
    let facts = ground.bare(&["inspect", "--json", blob.to_str().unwrap()]).succeeds().json();
    assert_eq!((&facts["kind"], &facts["value_bytes"]), (&json!("blob"), &json!(value.len())));
    let mut bytes = std::fs::read(&blob).unwrap();
    bytes[1000] ^= 1;
    std::fs::write(&blob, bytes).unwrap();
    ground.run(&["verify"]).fails(3, &["is damaged in 1 of"]);
    ground.run(&["get", "long"]).fails(3, &["blob"]);
}

#[test]
fn a_checkpoint_is_a_store_of_its_own() {
    let ground = Ground::with(&FRUIT);
    let copy = ground.path("copy");
    let text = ground.run(&["checkpoint", copy.to_str().unwrap()]).succeeds().text();
    assert!(text.contains("copy"), "{text}");
    ground.run(&["put", "apple", "changed"]).writes("");
    let mut command = ground.command();
    command.args(["get", "apple", "--db"]).arg(&copy);
    assert_eq!(command.output().unwrap().stdout, b"1\n");
    ground.run(&["get", "apple"]).writes("changed\n");
    ground.run(&["checkpoint", copy.to_str().unwrap()]).fails(2, &["copy"]);
}

#[test]
fn stats_and_advise_tell_of_existence_filters() {
    let ground = Ground::with(&FRUIT);
    let stats = ground.run(&["stats"]).succeeds().text();
    assert!(stats.contains("existence filter: off\n"), "{stats}");
    let stats = ground.run(&["stats", "--json"]).succeeds().json();
    let of = |stats: &serde_json::Value| {
        let all = stats["keyspaces"].as_array().unwrap();
        let is_default =
            |one: &&serde_json::Value| one["name"] == "default" || one["keyspace"] == "default";
        all.iter().find(is_default).unwrap().clone()
    };
    assert_eq!(of(&stats)["existence_filter"], "off");
    assert!(of(&stats)["existence"].is_null(), "{stats}");
    let advice = ground.run(&["advise"]).succeeds().text();
    assert!(advice.contains("It has no existence filter.\n"), "{advice}");

    let ground = Ground::new();
    let store = ground.store();
    let bench = |extra: &[&str]| {
        let flags = ["bench", "--num=3000", "--existence_filter=grow", "--db"];
        let all = [&flags[..], &[store.to_str().unwrap()], extra].concat();
        ground.bare(&all).succeeds();
    };
    bench(&["--benchmarks=fillseq"]);
    wait_until("the filter is made", || {
        bench(&["--benchmarks=readmissing", "--use_existing_db", "--reads=300000"]);
        of(&ground.run(&["stats", "--json"]).succeeds().json())["existence"]["state"] == "ready"
    });
    let stats = of(&ground.run(&["stats", "--json"]).succeeds().json());
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
    let text = ground.run(&["stats"]).succeeds().text();
    let told =
        format!("existence filter (grows): ready, as its files say, {items} keys of 1048576");
    assert!(text.contains(&told), "{text}");
    let advice = ground.run(&["advise"]).succeeds().text();
    assert!(advice.contains("Its existence filter is ready: "), "{advice}");
    let advice = ground.run(&["advise", "--json"]).succeeds().json();
    assert_eq!(of(&advice)["existence"]["items"], json!(items));
}

#[test]
fn the_manual_names_every_command_flag_and_exit_code() {
    let ground = Ground::new();
    let manual = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md");
    let manual = std::fs::read_to_string(manual).unwrap();
    let help = ground.bare(&["--help"]).succeeds().text();
    let in_part = |title: &str| {
        let part = help.split(title).nth(1).unwrap().split("\n\n").next().unwrap();
        part.lines().filter_map(|line| line.split_whitespace().next()).collect::<Vec<_>>()
    };
    let commands = in_part("Commands:\n");
    assert!(commands.len() > 10, "{commands:?}");
    for command in commands.iter().filter(|command| **command != "help") {
        assert!(manual.contains(command), "docs/cli.md does not name `{command}`");
        let help = ground.bare(&[command, "--help"]).succeeds().text();
        let flags = help.split_whitespace().filter(|word| word.starts_with("--"));
        for flag in flags {
            let flag = flag.trim_end_matches(|letter: char| !letter.is_ascii_alphanumeric());
            let flag = flag.split(['=', '[']).next().unwrap();
            let is_named = manual.contains(flag) || ["--help", "--version"].contains(&flag);
            assert!(is_named, "docs/cli.md does not name `{command} {flag}`");
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
fn memory_and_open_tables_are_bounded_by_flags() {
    let ground = Ground::with(&FRUIT);
    let stats = ground.run(&["--memory=8MiB", "--open-tables=4", "--json", "stats"]);
    let stats = stats.succeeds().json();
    assert_eq!(stats["memory"]["budget_bytes"], json!(8 << 20));
    assert_eq!(stats["descriptors"]["open_tables_max"], json!(4));
    let least = "the least that works is 6291456";
    ground.run(&["get", "apple", "--memory", "1MiB"]).fails(2, &[least]);
    ground.run(&["get", "apple", "--memory", "much"]).fails(2, &["--memory", "`much`"]);
    ground.run(&["stats", "--open-tables=3"]).fails(2, &["--open-tables", "must be 4 to"]);
}

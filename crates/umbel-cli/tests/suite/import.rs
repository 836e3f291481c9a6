//! `umbel import`: what every format takes, and what it says of what it cannot take.

use std::collections::BTreeMap;

use super::harness::Ground;

#[test]
fn lines_are_keys_and_their_numbers_values() {
    let ground = Ground::new();
    let run = ground.feed(&["import"], b"b\na\n\nb\n\xff\xfe").succeeds();
    assert!(run.text().starts_with("5 lines read, 5 keys written, "), "{}", run.text());
    ground.run(&["scan"]).writes("\t3\na\t2\nb\t4\n\\xff\\xfe\t5\n");
}

#[test]
fn a_file_of_many_lines_is_all_there() {
    let ground = Ground::new();
    let mut expected = BTreeMap::new();
    let mut text = String::new();
    for number in 1..=30_000u64 {
        let key = format!("usr/share/{}/{number}", number.wrapping_mul(2_654_435_761) % 977);
        text.push_str(&key);
        text.push('\n');
        expected.insert(key, number);
    }
    let file = ground.path("paths");
    std::fs::write(&file, &text).unwrap();
    let run = ground.run(&["import", "--json", file.to_str().unwrap()]).succeeds();
    assert_eq!(run.json()["lines_read"], 30_000);
    assert_eq!(run.json()["keys_written"], 30_000);
    let scanned = ground.run(&["scan"]).succeeds().text();
    let lines: String = expected.iter().map(|(key, line)| format!("{key}\t{line}\n")).collect();
    assert!(scanned == lines, "the scan is not the sorted file");
    ground.run(&["get", "usr/share/0/nothing"]).fails(1, &["no key"]);
}

#[test]
fn tsv_and_hex_are_read() {
    let ground = Ground::new();
    ground.feed(&["import", "--format=tsv", "-"], b"a\t1\nb\t2\t3\n").succeeds();
    ground.feed(&["import", "--format=tsv", "--hex"], b"ff\t00\n").succeeds();
    ground.run(&["scan"]).writes("a\t1\nb\t2\\t3\n\\xff\t\\x00\n");
    ground
        .feed(&["import", "--format=tsv"], b"x\t1\ny\nz\t3\n")
        .fails(2, &["standard input, line 2: there is no tab", "1 keys from the lines before"]);
    ground.run(&["get", "x"]).writes("1\n");
    ground.run(&["get", "z"]).fails(1, &[]);
}

#[test]
fn csv_means_what_its_writer_meant() {
    let ground = Ground::new();
    let text = b"name,year\r\n\"Lovelace, Ada\",1815\r\n\"a \"\"b\"\"\",\"two\nlines\"\r\n";
    let run = ground.feed(&["import", "--format=csv", "--header"], text).succeeds();
    assert!(run.text().starts_with("4 lines read, 2 keys written"), "{}", run.text());
    ground.run(&["scan"]).writes("Lovelace, Ada\t1815\na \"b\"\ttwo\\nlines\n");
}

#[test]
fn a_damaged_csv_line_is_named_with_what_to_do() {
    let ground = Ground::new();
    let file = ground.path("people.csv");
    std::fs::write(&file, "a,1\nb,2\nc,\"3\nd,4\n").unwrap();
    let path = file.to_str().unwrap();
    let parts = [
        "people.csv, line 3: a quote is opened and never closed",
        "2 keys from the lines before it were imported",
        "fix the line and import again, or pass --skip-bad",
    ];
    ground.run(&["import", "--format=csv", path]).fails(2, &parts);
    ground.run(&["scan"]).writes("a\t1\nb\t2\n");
    std::fs::write(&file, "a,1\nb\nc,3,4\nd,\"4\"x\ne,5\n").unwrap();
    let run = ground.run(&["import", "--format=csv", "--skip-bad", path]).succeeds();
    let skipped = "5 lines read, 2 keys written, 3 damaged lines left aside";
    assert!(run.text().starts_with(skipped), "{}", run.text());
    assert!(run.stderr.contains("line 4: there is text behind a closing quote"), "{}", run.stderr);
    ground.run(&["get", "e"]).writes("5\n");
}

#[test]
fn what_scan_writes_as_json_is_imported_again() {
    let ground = Ground::new();
    let lines =
        b"{\"key\":\"tab\\t\",\"value\":\"1\"}\n{\"key_hex\":\"ff00\",\"value_hex\":\"fe\"}\n";
    ground.feed(&["import", "--format=jsonl"], lines).succeeds();
    let scanned = ground.run(&["scan", "--json"]).succeeds().stdout;
    let other = Ground::new();
    other.feed(&["import", "--format=jsonl"], &scanned).succeeds();
    assert_eq!(other.run(&["scan", "--json"]).succeeds().stdout, scanned);
    ground
        .feed(&["import", "--format=jsonl"], b"{\"key\":\"a\",\"value\":1}\n")
        .fails(2, &["line 1: its \"value\" is no string"]);
}

#[test]
fn a_key_over_the_limit_names_its_line() {
    let ground = Ground::new();
    let mut text = b"short\n".to_vec();
    text.extend(vec![b'x'; 64 * 1024 + 1]);
    text.extend(b"\nlast\n");
    ground
        .feed(&["import"], &text)
        .fails(2, &["line 2", "more than 65536 bytes", "1 keys from the lines before"]);
    let run = ground.feed(&["import", "--skip-bad", "--sync"], &text).succeeds();
    let counts = "3 lines read, 2 keys written, 1 damaged lines left aside";
    assert!(run.text().starts_with(counts), "{}", run.text());
    ground.run(&["scan"]).writes("last\t3\nshort\t1\n");
}

#[test]
fn an_input_that_cannot_be_read_is_said() {
    let ground = Ground::new();
    ground.run(&["import", "/nowhere/words"]).fails(4, &["could not read /nowhere/words"]);
    ground.run(&["import", "/"]).fails(2, &["/ is a folder"]);
    assert!(!ground.store().exists(), "nothing was imported, so no store was made");
    ground.run(&["import", "--format=xml", "x"]).fails(2, &["`xml`", "lines, tsv, csv, jsonl"]);
}

#[test]
fn an_import_into_a_keyspace_stays_there() {
    let ground = Ground::new();
    ground.feed(&["import", "--keyspace", "words"], b"a\n").succeeds();
    ground.run(&["scan", "--keyspace=words"]).writes("a\t1\n");
    ground.run(&["scan"]).fails(2, &["no keyspace `default`; it has `words`"]);
}

#[test]
fn one_open_quote_costs_one_line_of_a_csv() {
    let ground = Ground::new();
    let mut text = String::from("a,1\nb,\"2\n");
    let rest: String = (0..5000).map(|number| format!("key {number},value\n")).collect();
    text.push_str(&rest);
    let import = ["import", "--format=csv"];
    let parts = ["line 2: a quote is opened and never closed", "1 keys from the lines before"];
    ground.feed(&import, text.as_bytes()).fails(2, &parts);
    let run = ground.feed(&["import", "--format=csv", "--skip-bad"], text.as_bytes()).succeeds();
    let counts = "5,002 lines read, 5,001 keys written, 1 damaged lines left aside";
    assert!(run.text().starts_with(counts), "{}", run.text());
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
    assert!(run.stderr.contains("line 2: a quote is opened and never closed; left aside"));
    ground.run(&["get", "key 4999"]).writes("value\n");
    ground.run(&["get", "b"]).fails(1, &[]);
}

#[test]
fn skip_bad_counts_every_damaged_line_and_names_ten() {
    let ground = Ground::new();
    let text: String = (0..40).map(|line| ["good\t1\n", "bad\n"][line % 2]).collect();
    let run = ground.feed(&["import", "--format=tsv", "--skip-bad", "--json"], text.as_bytes());
    let run = run.succeeds();
    assert_eq!(run.json()["lines_read"], 40);
    assert_eq!(run.json()["lines_skipped"], 20);
    assert_eq!(run.json()["keys_written"], 20);
    let named: Vec<&str> = run.stderr.lines().collect();
    assert_eq!(named.len(), 10, "{}", run.stderr);
    assert!(named[9].contains("standard input, line 20: there is no tab"), "{}", named[9]);
    let text = b"{\"key\":\"a\",\"value\":\"1\"}\n{\n{\"key\":\"b\",\"value\":\"2\"}\n";
    let run = ground.feed(&["import", "--format=jsonl", "--skip-bad"], text).succeeds();
    assert!(run.text().starts_with("3 lines read, 2 keys written, 1 damaged"), "{}", run.text());
    let run = ground.feed(&["import", "--hex", "--skip-bad"], b"6b\n6\n").succeeds();
    assert!(run.stderr.contains("line 2: the key has 1 hex digits"), "{}", run.stderr);
}

#[test]
fn line_ends_from_windows_are_kept_and_said() {
    let ground = Ground::new();
    let run = ground.feed(&["import"], b"a\r\nb\r\n").succeeds();
    assert!(run.stderr.starts_with("umbel: note: 2 lines of standard input end with a carriage"));
    assert!(run.stderr.contains("last byte of the key; `tr -d '\\r'`"), "{}", run.stderr);
    ground.run(&["scan"]).writes("a\\r\t1\nb\\r\t2\n");
    let run = ground.feed(&["import", "--format=tsv"], b"a\t1\r\n").succeeds();
    assert!(run.stderr.contains("last byte of the value"), "{}", run.stderr);
    let other = Ground::new();
    let run = other.feed(&["import", "--format=csv"], b"a,1\r\n\"b\",\"2\"\r\n").succeeds();
    assert_eq!(run.stderr, "");
    let run = other.feed(&["import", "--format=jsonl"], b"{\"key\":\"c\",\"value\":\"3\"}\r\n");
    assert_eq!(run.succeeds().stderr, "");
    other.run(&["scan"]).writes("a\t1\nb\t2\nc\t3\n");
}

#[test]
fn a_long_line_is_a_value_or_a_damaged_line() {
    let ground = Ground::new();
    let long = "x".repeat(70 << 10);
    let text = format!("k\t{long}\n{long}\t1\n\nlast\t3\n");
    let run = ground.feed(&["import", "--format=tsv", "--skip-bad"], text.as_bytes()).succeeds();
    let counts = "4 lines read, 2 keys written, 2 damaged lines left aside";
    assert!(run.text().starts_with(counts), "{}", run.text());
    let said = "line 2: the key has 71680 bytes, but may have 65536 at most; left aside";
    assert!(run.stderr.contains(said), "{}", run.stderr);
    ground.run(&["get", "k"]).writes(&format!("{long}\n"));
}

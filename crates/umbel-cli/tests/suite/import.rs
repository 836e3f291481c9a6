//! `umbel import`: every format, and its errors.

use std::collections::BTreeMap;

use super::test_binary::Fixture;

#[test]
fn lines_are_keys_and_their_numbers_values() {
    let fixture = Fixture::new();
    let run = fixture.feed(&["import"], b"b\na\n\nb\n\xff\xfe").succeeds();
    assert!(run.text().starts_with("5 lines read, 5 keys written, "), "{}", run.text());
    fixture.run(&["scan"]).writes("\t3\na\t2\nb\t4\n\\xff\\xfe\t5\n");
}

#[test]
fn import_of_many_lines_keeps_every_line() {
    let fixture = Fixture::new();
    let mut expected = BTreeMap::new();
    let mut text = String::new();
    for number in 1..=30_000u64 {
        let key = format!("usr/share/{}/{number}", number.wrapping_mul(2_654_435_761) % 977);
        text.push_str(&key);
        text.push('\n');
        expected.insert(key, number);
    }
    let file = fixture.path("paths");
    std::fs::write(&file, &text).unwrap();
    let run = fixture.run(&["import", "--json", file.to_str().unwrap()]).succeeds();
    assert_eq!(run.json()["lines_read"], 30_000);
    assert_eq!(run.json()["keys_written"], 30_000);
    let scanned = fixture.run(&["scan"]).succeeds().text();
    let lines: String = expected.iter().map(|(key, line)| format!("{key}\t{line}\n")).collect();
    assert!(scanned == lines, "the scan is not the sorted file");
    fixture.run(&["get", "usr/share/0/nothing"]).fails(1, &["no key"]);
}

#[test]
fn tsv_and_hex_are_read() {
    let fixture = Fixture::new();
    fixture.feed(&["import", "--format=tsv", "-"], b"a\t1\nb\t2\t3\n").succeeds();
    fixture.feed(&["import", "--format=tsv", "--hex"], b"ff\t00\n").succeeds();
    fixture.run(&["scan"]).writes("a\t1\nb\t2\\t3\n\\xff\t\\x00\n");
    fixture
        .feed(&["import", "--format=tsv"], b"x\t1\ny\nz\t3\n")
        .fails(2, &["standard input, line 2: there is no tab", "1 keys from the lines before"]);
    fixture.run(&["get", "x"]).writes("1\n");
    fixture.run(&["get", "z"]).fails(1, &[]);
}

#[test]
fn csv_quoting_round_trips() {
    let fixture = Fixture::new();
    let text = b"name,year\r\n\"Lovelace, Ada\",1815\r\n\"a \"\"b\"\"\",\"two\nlines\"\r\n";
    let run = fixture.feed(&["import", "--format=csv", "--header"], text).succeeds();
    assert!(run.text().starts_with("4 lines read, 2 keys written"), "{}", run.text());
    fixture.run(&["scan"]).writes("Lovelace, Ada\t1815\na \"b\"\ttwo\\nlines\n");
}

#[test]
fn damaged_csv_line_is_reported_with_remedy() {
    let fixture = Fixture::new();
    let file = fixture.path("people.csv");
    std::fs::write(&file, "a,1\nb,2\nc,\"3\nd,4\n").unwrap();
    let path = file.to_str().unwrap();
    let parts = [
        "people.csv, line 3: a quote is opened and never closed",
        "2 keys from the lines before it were imported",
        "fix the line and import again, or pass --skip-bad",
    ];
    fixture.run(&["import", "--format=csv", path]).fails(2, &parts);
    fixture.run(&["scan"]).writes("a\t1\nb\t2\n");
    std::fs::write(&file, "a,1\nb\nc,3,4\nd,\"4\"x\ne,5\n").unwrap();
    let run = fixture.run(&["import", "--format=csv", "--skip-bad", path]).succeeds();
    let skipped = "5 lines read, 2 keys written, 3 damaged lines skipped";
    assert!(run.text().starts_with(skipped), "{}", run.text());
    assert!(run.stderr.contains("line 4: there is text after a closing quote"), "{}", run.stderr);
    fixture.run(&["get", "e"]).writes("5\n");
}

#[test]
fn scan_json_output_can_be_imported() {
    let fixture = Fixture::new();
    let lines =
        b"{\"key\":\"tab\\t\",\"value\":\"1\"}\n{\"key_hex\":\"ff00\",\"value_hex\":\"fe\"}\n";
    fixture.feed(&["import", "--format=jsonl"], lines).succeeds();
    let scanned = fixture.run(&["scan", "--json"]).succeeds().stdout;
    let other = Fixture::new();
    other.feed(&["import", "--format=jsonl"], &scanned).succeeds();
    assert_eq!(other.run(&["scan", "--json"]).succeeds().stdout, scanned);
    fixture
        .feed(&["import", "--format=jsonl"], b"{\"key\":\"a\",\"value\":1}\n")
        .fails(2, &["line 1: the value of \"value\" is not a string"]);
}

#[test]
fn oversized_key_is_reported_with_line() {
    let fixture = Fixture::new();
    let mut text = b"short\n".to_vec();
    text.extend(vec![b'x'; 64 * 1024 + 1]);
    text.extend(b"\nlast\n");
    fixture
        .feed(&["import"], &text)
        .fails(2, &["line 2", "more than 65536 bytes", "1 keys from the lines before"]);
    let run = fixture.feed(&["import", "--skip-bad", "--sync"], &text).succeeds();
    let counts = "3 lines read, 2 keys written, 1 damaged line skipped";
    assert!(run.text().starts_with(counts), "{}", run.text());
    fixture.run(&["scan"]).writes("last\t3\nshort\t1\n");
}

#[test]
fn unreadable_input_is_reported() {
    let fixture = Fixture::new();
    fixture.run(&["import", "/nowhere/words"]).fails(4, &["could not read /nowhere/words"]);
    fixture.run(&["import", "/"]).fails(2, &["/ is a directory"]);
    assert!(!fixture.store().exists(), "nothing was imported, so no store was made");
    fixture.run(&["import", "--format=xml", "x"]).fails(2, &["'xml'", "lines, tsv, csv, jsonl"]);
}

#[test]
fn import_writes_only_the_named_keyspace() {
    let fixture = Fixture::new();
    fixture.feed(&["import", "--keyspace", "words"], b"a\n").succeeds();
    fixture.run(&["scan", "--keyspace=words"]).writes("a\t1\n");
    fixture.run(&["scan"]).fails(2, &["no keyspace `default`; its keyspaces are `words`"]);
}

#[test]
fn csv_import_skips_only_the_line_with_unclosed_quote() {
    let fixture = Fixture::new();
    let mut text = String::from("a,1\nb,\"2\n");
    let rest: String = (0..5000).map(|number| format!("key {number},value\n")).collect();
    text.push_str(&rest);
    let import = ["import", "--format=csv"];
    let parts = ["line 2: a quote is opened and never closed", "1 keys from the lines before"];
    fixture.feed(&import, text.as_bytes()).fails(2, &parts);
    let run = fixture.feed(&["import", "--format=csv", "--skip-bad"], text.as_bytes()).succeeds();
    let counts = "5,002 lines read, 5,001 keys written, 1 damaged line skipped";
    assert!(run.text().starts_with(counts), "{}", run.text());
    assert_eq!(run.stderr.lines().count(), 1, "{}", run.stderr);
    assert!(run.stderr.contains("line 2: a quote is opened and never closed; skipped"));
    fixture.run(&["get", "key 4999"]).writes("value\n");
    fixture.run(&["get", "b"]).fails(1, &[]);
}

#[test]
fn skip_bad_counts_every_damaged_line_and_names_ten() {
    let fixture = Fixture::new();
    let text: String = (0..40).map(|line| ["good\t1\n", "bad\n"][line % 2]).collect();
    let run = fixture.feed(&["import", "--format=tsv", "--skip-bad", "--json"], text.as_bytes());
    let run = run.succeeds();
    assert_eq!(run.json()["lines_read"], 40);
    assert_eq!(run.json()["lines_skipped"], 20);
    assert_eq!(run.json()["keys_written"], 20);
    let named: Vec<&str> = run.stderr.lines().collect();
    assert_eq!(named.len(), 10, "{}", run.stderr);
    assert!(named[9].contains("standard input, line 20: there is no tab"), "{}", named[9]);
    let text = b"{\"key\":\"a\",\"value\":\"1\"}\n{\n{\"key\":\"b\",\"value\":\"2\"}\n";
    let run = fixture.feed(&["import", "--format=jsonl", "--skip-bad"], text).succeeds();
    assert!(run.text().starts_with("3 lines read, 2 keys written, 1 damaged"), "{}", run.text());
    let run = fixture.feed(&["import", "--hex", "--skip-bad"], b"6b\n6\n").succeeds();
    assert!(run.stderr.contains("line 2: the key has 1 hex digits"), "{}", run.stderr);
}

#[test]
fn carriage_returns_are_kept_and_reported() {
    let fixture = Fixture::new();
    let run = fixture.feed(&["import"], b"a\r\nb\r\n").succeeds();
    assert!(run.stderr.starts_with("umbel: note: 2 lines of standard input end with a carriage"));
    assert!(run.stderr.contains("last byte of the key; `tr -d '\\r'`"), "{}", run.stderr);
    fixture.run(&["scan"]).writes("a\\r\t1\nb\\r\t2\n");
    let run = fixture.feed(&["import", "--format=tsv"], b"a\t1\r\n").succeeds();
    assert!(run.stderr.contains("last byte of the value"), "{}", run.stderr);
    let other = Fixture::new();
    let run = other.feed(&["import", "--format=csv"], b"a,1\r\n\"b\",\"2\"\r\n").succeeds();
    assert_eq!(run.stderr, "");
    let run = other.feed(&["import", "--format=jsonl"], b"{\"key\":\"c\",\"value\":\"3\"}\r\n");
    assert_eq!(run.succeeds().stderr, "");
    other.run(&["scan"]).writes("a\t1\nb\t2\nc\t3\n");
}

#[test]
fn long_line_is_a_value_or_reported_as_damaged() {
    let fixture = Fixture::new();
    let long = "x".repeat(70 << 10);
    let text = format!("k\t{long}\n{long}\t1\n\nlast\t3\n");
    let run = fixture.feed(&["import", "--format=tsv", "--skip-bad"], text.as_bytes()).succeeds();
    let counts = "4 lines read, 2 keys written, 2 damaged lines skipped";
    assert!(run.text().starts_with(counts), "{}", run.text());
    let message = "line 2: the key has 71680 bytes, but may have 65536 at most; skipped";
    assert!(run.stderr.contains(message), "{}", run.stderr);
    fixture.run(&["get", "k"]).writes(&format!("{long}\n"));
}

//! `umbel import-events`: JSON lines and the events of a server, with their ids, times and
//! revisions.

use rustix::process::Signal;
use serde_json::{Value, json};

use super::serve::Serving;
use super::test_binary::{Fixture, Run};

/// Lines with every kind of event that a store can hold.
const LINES: &str = concat!(
    r#"{"stream":"cart-1","type":"Opened","data":{"by": "ada"},"metadata":[1, 2.50]}"#,
    "\n",
    r#"{"stream":"cart-1","type":"Raw","data_hex":"00ff","metadata_hex":"0a"}"#,
    "\n",
    r#"{"stream":"cart-2","type":"Odd","data_hex":"7b0a7d","json":true}"#,
    "\n",
    r#"{"stream":"cart-2","type":"Empty","data_hex":""}"#,
    "\n",
    r#"{"stream":"$$cart-2","type":"$metadata","data":{"$maxCount":7}}"#,
    "\n",
    r#"{"stream":"käse","type":"Opened","data":"x"}"#,
    "\n",
);

/// A store with these events, one stream deleted and one tombstoned.
fn source() -> Fixture {
    let fixture = Fixture::new();
    fixture.feed(&["append"], LINES.as_bytes()).succeeds();
    fixture.run(&["delete", "--stream", "käse"]).succeeds();
    fixture.feed(&["append"], r#"{"stream":"käse","type":"t","data":2}"#.as_bytes()).succeeds();
    fixture.run(&["delete", "--stream", "cart-1", "--tombstone"]).succeeds();
    fixture
}

/// Events of a `read`, without positions.
fn events(run: Run) -> Vec<Value> {
    let text = run.succeeds().text();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines
        .map(|mut line: Value| {
            line.as_object_mut().unwrap().remove("position").unwrap();
            line
        })
        .collect()
}

#[test]
fn read_output_is_imported_exactly_once() {
    let source = source();
    let read = source.run(&["read", "--all"]).succeeds();
    assert!(read.text().contains(r#""data_hex":"7b0a7d","json":true"#), "{}", read.text());
    let target = Fixture::new();
    let message = target.feed(&["import-events"], read.text().as_bytes()).succeeds().text();
    assert_eq!(message, "10 events imported\n");
    let all_events = || target.run(&["read", "--all"]);
    assert_eq!(events(all_events()), events(source.run(&["read", "--all"])));
    let message =
        target.feed(&["import-events", "--sync"], read.text().as_bytes()).succeeds().text();
    assert_eq!(message, "0 events imported; 10 skipped as already present\n");
    for store in [&source, &target] {
        let listed = store.run(&["streams", "--system"]).succeeds().text();
        assert!(
            listed.contains("cart-1\ttombstoned") && listed.contains("käse\t1 to 1"),
            "{listed}"
        );
    }
    let file = target.path("lines");
    std::fs::write(&file, read.text()).unwrap();
    let report = target.run(&["import-events", "--json", file.to_str().unwrap()]).succeeds().json();
    assert_eq!((&report["events"], &report["were_there"]), (&json!(0), &json!(10)));
    assert!(target.run(&["verify"]).succeeds().text().contains("is undamaged"));
}

#[test]
fn invalid_event_lines_are_reported_and_skippable() {
    let first =
        r#"{"stream":"a","type":"t","data":1,"revision":0,"created":"2020-01-01T00:00:00Z"}"#;
    let last =
        r#"{"stream":"a","type":"t","data":2,"revision":1,"created":"2019-01-01T00:00:00Z"}"#;
    for (line, why) in [
        ("{", "is not an event"),
        (r#"{"type":"t","data":1}"#, "has no \"stream\"; add it;"),
        (r#"{"stream":"a","type":"t","data":1,"revision":-1}"#, "\"revision\" is -1"),
        (r#"{"stream":"a","type":"t","data":1,"created":"today"}"#, "\"created\" is \"today\""),
        (r#"{"stream":"a","type":"t","data":1,"created":5}"#, "\"created\" is 5"),
        (r#"{"stream":"a","type":"t","data":1,"created":"2999-01-01T00:00:00Z"}"#, "in the future"),
        (r#"{"stream":"a","type":"t","data":1,"expected":"any"}"#, "has \"expected\""),
        (r#"{"stream":"a","type":"t","data":1,"json":false}"#, "\"json\":false"),
        (r#"{"stream":"a","type":"t","data":1,"revision":0}"#, "another event with revision 0"),
        (r#"{"stream":"$ce-a","type":"t","data":1}"#, "a view"),
        (
            r#"{"stream":"b","type":"t","data":1,"revision":9223372036854775807}"#,
            "must be '$streamDeleted'",
        ),
        (r#"{"stream":"a","type":"","data":1}"#, "type has 0 bytes"),
    ] {
        let fixture = Fixture::new();
        let input = format!("{first}\n{line}\n{last}\n");
        let stopped = fixture.feed(&["import-events"], input.as_bytes());
        stopped.fails(2, &["standard input, line 2", why, "--skip-bad"]);
        assert_eq!(events(fixture.run(&["read", "--all"])).len(), 1, "{line}");
        let run = fixture.feed(&["import-events", "--skip-bad"], input.as_bytes()).succeeds();
        assert!(run.stderr.contains("line 2") && run.stderr.contains(why), "{}", run.stderr);
        // The first line has no id, so it is another event.
        let message = run.text();
        assert!(message.contains("1 event imported; 2 invalid events skipped"), "{message}");
        assert!(message.contains("1 times moved by up to 31536000.0 s"), "{message}");
    }
}

#[test]
fn server_events_are_imported_exactly_once() {
    let source = source();
    let wanted = events(source.run(&["read", "--all"]));
    let serving = Serving::start(&source, &[]);
    let address = format!("esdb://admin:changeit@{}?tls=false", serving.address());
    let target = Fixture::new();
    let message = target.run(&["import-events", "--from", &address]).succeeds().text();
    assert_eq!(message, "10 events imported\n");
    assert_eq!(events(target.run(&["read", "--all"])), wanted);
    let message = target.run(&["import-events", "--from", &address, "--system"]).succeeds().text();
    assert_eq!(message, "0 events imported; 10 skipped as already present\n");
    assert_eq!(serving.stop(Signal::TERM).0, Some(0));
    let gone = target.run(&["import-events", "--from", &address]);
    gone.fails(4, &["could not reach a server at 127.0.0.1"]);
    let other = Fixture::new();
    let refused = other.run(&["import-events", "--from", "esdb://ops:x@localhost:x"]);
    refused.fails(2, &["--from is esdb://ops:...@localhost:x", "no host and port"]);
    assert!(!other.store().exists(), "no store is made for a wrong address");
    other.run(&["import-events", "--from", &address, "file"]).fails(2, &["--from"]);
    other.run(&["import-events", "--system"]).fails(2, &["--from"]);
}

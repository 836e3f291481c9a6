//! `umbel group`: consumer groups of a server.

use rustix::process::Signal;
use serde_json::{Value, json};

use super::serve::Serving;
use super::test_binary::{Fixture, Run};

/// Runs `umbel group` with a server.
fn group(fixture: &Fixture, serving: &Serving, arguments: &[&str]) -> Run {
    let mut command = fixture.command();
    Run::of(command.arg("group").args(arguments).args(["--connect", serving.address()]))
}

#[test]
fn groups_are_created_changed_and_deleted() {
    let fixture = Fixture::new();
    let serving = Serving::start(&fixture, &[]);
    let run = |arguments: &[&str]| group(&fixture, &serving, arguments);
    let info = |source: &str, name: &str| -> Value {
        run(&["info", source, name, "--json"]).succeeds().json()
    };
    run(&["create", "cart-1", "billing"]).writes("cart-1::billing: created\n");
    let default = info("cart-1", "billing");
    assert_eq!((&default["start_from"], &default["max_retries"]), (&"-1".into(), &10.into()));
    // Story: the exit code was that of a failed operating system.
    run(&["create", "cart-1", "billing"]).fails(2, &["the server says", "exists"]);
    let invalid = ["create", "cart-1", "x", "--history-buffer", "10", "--read-batch", "20"];
    run(&invalid).fails(2, &["must be larger than the read batch"]);
    let filtered = ["create", "$all", "audit", "--from", "start", "--stream-prefix", "cart-"];
    run(&filtered).writes("$all::audit: created\n");
    run(&["create", "cart-1", "x", "--stream-prefix", "a"]).fails(2, &["only for a group of all"]);
    run(&["create", "$all", "x", "--type-regex", "("]).fails(2, &[]);
    run(&["create", "$all", "x", "--from", "soon"]).fails(2, &["write start, end"]);
    let settings = ["--from", "7", "--max-retries", "3", "--strategy", "pinned"];
    let times = ["--resolve-links", "true", "--message-timeout-milliseconds", "1500"];
    let update = [&["update", "cart-1", "billing"][..], &settings, &times].concat();
    run(&update).writes("cart-1::billing: updated\n");
    run(&["update", "cart-1", "billing", "--live-buffer", "9"]).succeeds();
    let updated = info("cart-1", "billing");
    for (name, value) in [
        ("start_from", Value::from("7")),
        ("max_retries", 3.into()),
        ("strategy", "Pinned".into()),
        ("resolve_links", true.into()),
        ("message_timeout_milliseconds", 1500.into()),
        ("live_buffer", 9.into()),
        ("read_batch", 20.into()),
        ("parked", 0.into()),
        ("checkpoint", Value::Null),
    ] {
        assert_eq!(updated[name], value, "{name}: {updated}");
    }
    let text = run(&["info", "cart-1", "billing"]).succeeds().text();
    assert!(text.contains("max retries                    3\n"), "{text}");
    let listed = run(&["list"]).succeeds().text();
    assert_eq!(listed.lines().count(), 2, "{listed}");
    let line = "$all\taudit\tconsumers 0\tin flight 0\tparked 0\tcheckpoint none\n";
    run(&["list", "$all"]).writes(line);
    run(&["delete", "cart-1", "billing"]).writes("cart-1::billing: deleted\n");
    for missing in ["info", "delete", "replay", "parked"] {
        run(&[missing, "cart-1", "billing"]).fails(2, &["the server says"]);
    }
    let missing = ["update", "cart-1", "billing", "--max-retries", "3"];
    run(&missing).fails(2, &["the server says"]);
    run(&["replay", "$all", "audit", "--json"]).succeeds();
    run(&["parked", "$all", "audit"]).writes("");
    assert_eq!(serving.stop(Signal::INT).0, Some(0));
}

/// Story: no command showed with which filter a group had been created. An update without a setting
/// was called a change, and disconnected the consumers.
#[test]
fn filter_of_a_group_is_shown_and_kept_by_updates() {
    let fixture = Fixture::new();
    let serving = Serving::start(&fixture, &[]);
    let run = |arguments: &[&str]| group(&fixture, &serving, arguments);
    let filter = |name: &str| -> Value {
        run(&["info", "$all", name, "--json"]).succeeds().json()["filter"].take()
    };
    let shown = |name: &str| run(&["info", "$all", name]).succeeds().text();
    let prefixes = ["--stream-prefix", "cart-", "--stream-prefix", "a\u{202e}b"];
    run(&[&["create", "$all", "audit"][..], &prefixes].concat()).succeeds();
    run(&["create", "$all", "opened", "--type-regex", "^Opened"]).succeeds();
    run(&["create", "$all", "whole"]).succeeds();
    let update = run(&["update", "$all", "audit"]);
    update.fails(2, &["would disconnect the consumers", "--max-retries"]);
    for _ in 0..2 {
        assert_eq!(filter("audit"), json!({ "stream_prefix": ["cart-", "a\u{202e}b"] }));
        assert_eq!(filter("opened"), json!({ "type_regex": "^Opened" }));
        assert_eq!(filter("whole"), Value::Null);
        for name in ["audit", "opened", "whole"] {
            run(&["update", "$all", name, "--max-retries", "3"]).succeeds();
        }
    }
    let by_prefix = "filter by stream prefix        cart-\n\
                     filter by stream prefix        a\\xe2\\x80\\xaeb\n";
    let by_regex = "filter by type regex           ^Opened\n";
    for (name, line) in [
        ("audit", by_prefix),
        ("opened", by_regex),
        ("whole", "filter                         none\n"),
    ] {
        assert!(shown(name).contains(line), "{}", shown(name));
    }
    assert_eq!(serving.stop(Signal::INT).0, Some(0));
}

/// Story: the printed events had neither the time of their parking nor the reason.
#[test]
fn parked_events_are_printed_with_time_and_reason() {
    let fixture = Fixture::new();
    let event = r#"{"stream":"cart-1","type":"Opened","data":{"n":1}}"#;
    fixture.feed(&["append"], event.as_bytes()).succeeds();
    // A consumer parks an event as a link.
    let link = r#"{"stream":"$persistentsubscription-cart-1::billing-parked","type":"$>",
        "data_hex":"3040636172742d31","metadata":{"added":1764489600000007,"reason":"no stock"}}"#;
    let link = link.replace('\n', "");
    fixture.feed(&["append"], link.as_bytes()).succeeds();
    let serving = Serving::start(&fixture, &[]);
    let run = |arguments: &[&str]| group(&fixture, &serving, arguments);
    run(&["create", "$all", "other"]).succeeds();
    run(&["create", "cart-1", "billing"]).succeeds();
    // The creation removes the parked events of an earlier group with the same name.
    run(&["parked", "cart-1", "billing"]).writes("");
    assert_eq!(serving.stop(Signal::INT).0, Some(0));
    fixture.feed(&["append"], link.as_bytes()).succeeds();
    let serving = Serving::start(&fixture, &[]);
    let parked = group(&fixture, &serving, &["parked", "cart-1", "billing"]).succeeds();
    let shown = parked.json();
    assert_eq!((&shown["stream"], &shown["data"]["n"]), (&"cart-1".into(), &1.into()));
    assert_eq!(shown["parked"], "2025-11-30T08:00:00.0000070Z");
    assert_eq!(shown["parked_reason"], "no stock");
    let as_json = group(&fixture, &serving, &["parked", "cart-1", "billing", "--json"]);
    as_json.writes(&parked.text());
    assert_eq!(serving.stop(Signal::INT).0, Some(0));
    // Output lines are valid input lines.
    fixture.feed(&["append"], &parked.stdout).succeeds();
}

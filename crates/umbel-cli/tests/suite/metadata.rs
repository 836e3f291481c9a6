//! `umbel metadata`: prints and changes the metadata of a stream.

use super::test_binary::Fixture;

fn with_events() -> Fixture {
    let fixture = Fixture::new();
    let line = r#"{"stream":"a","type":"t","data":1}"#;
    fixture.feed(&["append"], format!("{line}\n").repeat(5).as_bytes()).succeeds();
    fixture
}

#[test]
fn metadata_changes_apply_per_key() {
    let fixture = with_events();
    let metadata = |flags: &[&str]| {
        fixture.run(&[&["metadata", "--stream", "a"], flags].concat()).succeeds().text()
    };
    assert_eq!(metadata(&[]), "{}\n");
    let own = r#"{"owner":{"big": 12345678901234567890123, "x":1.50}}"#;
    assert_eq!(metadata(&["--set", own]), format!("{own}\n"), "kept as it is written");
    let both = r#"{"$maxCount":3,"owner":{"big": 12345678901234567890123, "x":1.50}}"#;
    assert_eq!(metadata(&["--max-count=3"]), format!("{both}\n"));
    assert_eq!(metadata(&[]), format!("{both}\n"));
    fixture.run(&["streams"]).writes("a\t2 to 4\n");
    assert_eq!(
        metadata(&["--truncate-before=4", "--clear=max-count", "--clear=owner"]),
        "{\"$tb\":4}\n"
    );
    fixture.run(&["streams"]).writes("a\t4 to 4\n");
    // A change without effect writes nothing.
    assert_eq!(metadata(&["--truncate-before=4", "--clear=none"]), "{\"$tb\":4}\n");
    let history = fixture.run(&["read", "--all"]).succeeds().text();
    assert_eq!(history.lines().filter(|line| line.contains("$metadata")).count(), 3);
    assert_eq!(metadata(&["--clear=$tb", "--max-age=3600"]), "{\"$maxAge\":3600}\n");
    fixture.run(&["streams"]).writes("a\t0 to 4\n");
    let ahead = fixture.run(&["metadata", "--stream", "later", "--max-count=1"]).succeeds().text();
    assert_eq!(ahead, "{\"$maxCount\":1}\n", "of a stream that has no events yet");
}

/// A change that ends the deletion of a stream shows none of its old events.
#[test]
fn deleted_events_stay_hidden_without_tb() {
    let fixture = with_events();
    fixture.run(&["delete", "--stream", "a"]).succeeds();
    let metadata = |flags: &[&str]| {
        fixture.run(&[&["metadata", "--stream", "a"], flags].concat()).succeeds().text()
    };
    assert_eq!(metadata(&["--max-age=60"]), "{\"$maxAge\":60,\"$tb\":9223372036854775807}\n");
    assert_eq!(metadata(&["--clear=$tb"]), "{\"$maxAge\":60,\"$tb\":5}\n", "as the store has it");
    assert_eq!(metadata(&["--clear=max-age", "--truncate-before=3"]), "{\"$tb\":3}\n");
    fixture.run(&["streams"]).writes("a\t3 to 4\n");
}

#[test]
fn invalid_and_conflicting_metadata_is_rejected() {
    let fixture = with_events();
    fixture.run(&["delete", "--stream", "gone", "--tombstone"]).succeeds();
    for (flags, parts) in [
        (&["--stream=a", "--max-count=0"][..], &["$maxCount", "from 1 to"][..]),
        (&["--stream=a", "--max-age=0"], &["$maxAge", "from 1 to"]),
        (&["--stream=a", "--max-age=1h"], &["--max-age"]),
        (&["--stream=a", "--set", "[1]"], &["--set is not a JSON object"]),
        (&["--stream=a", "--set", "{"], &["--set is not a JSON object"]),
        (&["--stream=a", "--set", r#"{"$tb":-1}"#], &["$tb", "from 0 to"]),
        (&["--stream=a", "--set", r#"{"$tb":1,"a":2,"$tb":3}"#], &["--set has the key $tb twice"]),
        (&["--stream=a", "--set", r#"{"$acl":7}"#], &["$acl", "an object"]),
        (
            &["--stream=a", "--max-count=2", "--set", r#"{"$maxCount":3}"#],
            &["--max-count and --set"],
        ),
        (&["--stream=a", "--max-count=2", "--clear=$maxCount"], &["set and cleared"]),
        (&["--stream=$$a"], &["holds the metadata of another"]),
        (&["--stream=gone", "--max-count=2"], &["was tombstoned"]),
        (&[], &["--stream"]),
    ] {
        fixture.run(&[&["metadata"], flags].concat()).fails(2, parts);
    }
    assert_eq!(fixture.run(&["metadata", "--stream=a"]).succeeds().text(), "{}\n");
    let odd = r#"{"stream":"$$odd","type":"$metadata","data_hex":"00","revision":0}"#;
    fixture.feed(&["import-events"], odd.as_bytes()).succeeds();
    let refused = fixture.run(&["metadata", "--stream=odd", "--max-count=2"]);
    refused.fails(2, &["is not a JSON object", "umbel append --stream '$$odd'"]);
}

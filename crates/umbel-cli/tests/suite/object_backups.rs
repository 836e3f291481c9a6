//! `umbel backup --to URL`, `umbel restore --from URL` and `umbel verify --from URL`.

use std::fs;
use std::ops::Range;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::test_binary::{Fixture, Run, numbered_events};

/// A store, and an empty object store in a directory.
struct BackedUp {
    fixture: Fixture,
    url: String,
}

impl BackedUp {
    fn new() -> BackedUp {
        let fixture = Fixture::new();
        let directory = fixture.path("objects");
        fs::create_dir(&directory).unwrap();
        let url = format!("file://{}", directory.display());
        BackedUp { fixture, url }
    }

    fn append(&self, numbers: Range<u64>) {
        self.fixture.feed(&["append"], numbered_events(numbers).as_bytes()).succeeds();
    }

    fn back_up(&self) -> Value {
        self.fixture.run(&["backup", "--to", &self.url, "--json"]).succeeds().json()
    }

    fn restore(&self, target: &str, end: &[&str]) -> Run {
        let target = self.fixture.path(target);
        let restore = ["restore", "--from", &self.url, "--db", target.to_str().unwrap()];
        self.fixture.bare(&[&restore, end].concat())
    }

    fn read_all(&self, store: &str) -> String {
        let store = self.fixture.path(store);
        self.fixture.bare(&["--db", store.to_str().unwrap(), "read", "--all"]).succeeds().text()
    }

    /// Files of the objects whose names begin with `prefix`.
    fn objects(&self, prefix: &str) -> Vec<PathBuf> {
        let mut open = vec![self.fixture.path("objects").join(prefix)];
        let mut found = Vec::new();
        while let Some(path) = open.pop() {
            match path.is_dir() {
                true => open.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path())),
                false => found.push(path),
            }
        }
        found.sort();
        found
    }
}

/// Story: `backup --to DIR` of a key-value store wanted another store, and `verify --from DIR`
/// for a base of the URL.
#[test]
fn directories_in_place_of_object_stores_are_explained() {
    let fixture = Fixture::new();
    fixture.run(&["put", "a", "1"]).succeeds();
    let copy = fixture.path("copy");
    let parts = ["holds a key-value store", "--to file:///DIR", "umbel checkpoint"];
    fixture.run(&["backup", "--to", copy.to_str().unwrap()]).fails(2, &parts);
    assert!(!copy.exists());
    let store = fixture.store().display().to_string();
    let parts = ["is a directory", "umbel verify --db"];
    fixture.bare(&["verify", "--from", &store]).fails(2, &parts);
}

/// Story: the directory of an object store, named as a path, was called corrupt, with the advice to
/// remove its file BACKUP; and `--to s3:/shop` made a directory of that name.
#[test]
fn urls_and_directories_of_backups_are_told_apart() {
    let backed_up = BackedUp::new();
    backed_up.append(0..10);
    backed_up.back_up();
    let fixture = &backed_up.fixture;
    let (objects, copy) = (fixture.path("objects"), fixture.path("copy"));
    let (objects, copy) = (objects.to_str().unwrap(), copy.to_str().unwrap());
    let target = fixture.path("target");
    let restore =
        |from: &str| fixture.bare(&["restore", "--from", from, "--db", target.to_str().unwrap()]);
    restore(objects).fails(2, &["holds a backup of an object store", &backed_up.url]);
    fixture.bare(&["verify", "--db", objects]).fails(2, &["by its URL", &backed_up.url]);
    // Story: `verify --db` advised to write `--from`, and `verify --from` to write `--db`.
    let command = format!("`umbel verify --from {}`", backed_up.url);
    for flag in ["--db", "--from"] {
        fixture.bare(&["verify", flag, objects]).fails(2, &["by its URL", &command]);
    }
    fixture.run(&["backup", "--to", objects]).fails(2, &["by its URL", &backed_up.url]);
    fixture.run(&["backup", "--to", copy]).succeeds();
    let url = format!("file://{copy}");
    let parts = ["made into a directory", &format!("name it as {copy}")];
    restore(&url).fails(2, &parts);
    fixture.bare(&["verify", "--from", &url]).fails(2, &parts);
    fixture.run(&["backup", "--to", &url]).fails(2, &parts);
    fixture.run(&["backup", "--to", "s3:/shop"]).fails(2, &["write s3://shop"]);
    restore("file:/shop").fails(2, &["write file:///shop"]);
    fixture.run(&["backup", "--to", copy]).succeeds();
    restore(copy).succeeds();
    assert_eq!(backed_up.read_all("target"), backed_up.read_all("store"));
}

/// Story: the printed path had the percent-encoding of the URL, a printed URL had spaces, and no
/// path was quoted for the shell.
#[test]
fn advice_about_directories_with_spaces_can_be_pasted() {
    let fixture = Fixture::new();
    fixture.feed(&["append"], numbered_events(0..3).as_bytes()).succeeds();
    let url_of = |directory: &str| format!("file://{}", directory.replace(' ', "%20"));
    let (copy, objects) = (fixture.path("my share"), fixture.path("my objects"));
    let (copy, objects) = (copy.to_str().unwrap(), objects.to_str().unwrap());
    fixture.run(&["backup", "--to", copy]).succeeds();
    let advice = format!("name it as '{copy}', or");
    fixture.bare(&["verify", "--from", &url_of(copy)]).fails(2, &[advice.as_str()]);
    fs::create_dir(objects).unwrap();
    let url = url_of(objects);
    fixture.run(&["backup", "--to", &url]).succeeds();
    let advice = format!("by its URL, `umbel verify --from {url}`");
    for option in ["--db", "--from"] {
        fixture.bare(&["verify", option, objects]).fails(2, &[advice.as_str()]);
    }
    fixture.run(&["backup", "--to", "s3:/my shop"]).fails(2, &["write 's3://my shop', or"]);
}

#[test]
fn backups_into_an_object_store_restore_every_event() {
    let backed_up = BackedUp::new();
    backed_up.append(0..500);
    let first = backed_up.fixture.run(&["backup", "--to", &backed_up.url]).succeeds().text();
    assert!(first.contains("all events up to position"), "{first}");
    backed_up.append(500..510);
    let second = backed_up.back_up();
    assert_eq!(second["manifest"], json!(2), "{second}");
    assert!(second["uploaded_bytes"].as_u64() < Some(5_000), "{second}");
    let third = backed_up.back_up();
    assert_eq!((&third["manifest"], &third["uploaded_bytes"]), (&json!(2), &json!(0)));
    let verify = ["verify", "--from", &backed_up.url];
    let report = backed_up.fixture.bare(&verify).succeeds().text();
    assert!(report.contains("is undamaged") && report.contains("can be restored"), "{report}");
    let message = backed_up.restore("restored", &[]).succeeds().text();
    assert!(message.contains("all events up to position"), "{message}");
    assert_eq!(backed_up.read_all("restored"), backed_up.read_all("store"));
    backed_up.restore("restored", &[]).fails(2, &["holds an event store already"]);
}

#[test]
fn restores_end_at_a_position_or_a_time() {
    let backed_up = BackedUp::new();
    backed_up.append(0..100);
    backed_up.back_up();
    backed_up.append(100..200);
    backed_up.back_up();
    let all = backed_up.read_all("store");
    let lines: Vec<&str> = all.lines().collect();
    let event: Value = serde_json::from_str(lines[149]).unwrap();
    let next: Value = serde_json::from_str(lines[150]).unwrap();
    // `append` writes many lines at once; an append is restored as a whole or not at all.
    let position = event["position"].to_string();
    let report = backed_up.restore("to-position", &["--to-position", &position, "--json"]);
    let restored = report.succeeds().json()["position"].as_u64().unwrap();
    assert!(restored <= event["position"].as_u64().unwrap());
    let text = backed_up.read_all("to-position");
    assert!(all.starts_with(&text) && text.lines().count() >= 100, "{}", text.lines().count());
    let last: Value = serde_json::from_str(lines[99]).unwrap();
    let time = last["created"].as_str().unwrap();
    assert_ne!(next["created"], last["created"]);
    // Story: a script took the empty store for a success.
    let first: Value = serde_json::from_str(lines[0]).unwrap();
    let created = first["created"].as_str().unwrap();
    let named = ["first append ends at position ", created, "so the store would be empty"];
    backed_up.restore("early", &["--to-time", "2020-01-01T00:00:00Z"]).fails(2, &named);
    backed_up.restore("early", &["--to-position", "1"]).fails(2, &named);
    assert!(!backed_up.fixture.path("early").exists());
    backed_up.restore("early", &["--to-time", time]).succeeds();
    let cut = backed_up.restore("cut", &["--to-position", &(restored + 1).to_string()]).succeeds();
    assert!(cut.stderr.contains("before the requested position"), "{}", cut.stderr);
    backed_up.restore("to-time", &["--to-time", time]).succeeds();
    assert_eq!(backed_up.read_all("to-time"), lines[..100].join("\n") + "\n");
    let late = backed_up.restore("late", &["--to-position", "99999999"]).succeeds();
    assert!(late.stderr.contains("the backup ends before"), "{}", late.stderr);
    backed_up.restore("bad", &["--to-time", "yesterday"]).fails(2, &["is no time since 1970"]);
    backed_up
        .restore("bad", &["--to-time", time, "--to-position", "1"])
        .fails(2, &["cannot be used with"]);
}

/// Story: the keys of Wednesday could not be restored, since the first event was of Friday.
#[test]
fn keys_from_before_the_first_event_are_restored() {
    let backed_up = BackedUp::new();
    let fixture = &backed_up.fixture;
    fixture.feed(&["append"], b"").succeeds();
    let run = |store: &str, words: &[&str]| {
        let kv = fixture.path(store).join("kv");
        fixture.bare(&[&["--db", kv.to_str().unwrap()][..], words].concat()).succeeds()
    };
    run("store", &["put", "ada", "1815"]);
    backed_up.back_up();
    let verify = ["verify", "--from", &backed_up.url, "--json"];
    let verified = fixture.bare(&verify).succeeds().json();
    let time = verified["kv"]["restorable"][0]["first_time"].as_str().unwrap();
    run("store", &["put", "ada", "1816"]);
    backed_up.append(0..10);
    backed_up.back_up();
    let early = backed_up.restore("early", &["--to-time", time]).succeeds();
    assert!(early.stderr.contains("so the store is empty"), "{early:?}");
    assert_eq!(run("early", &["get", "ada"]).text(), "1815\n");
    assert_eq!(backed_up.read_all("early"), "");
    // Before both began, nothing is written.
    let before_both = ["--to-time", "2020-01-01T00:00:00Z"];
    let parts = ["so the store would be empty", "name a later end"];
    backed_up.restore("before", &before_both).fails(2, &parts);
    assert!(!fixture.path("before").exists());
    // Without keys and values, an empty store is no success.
    fs::remove_dir_all(fixture.path("objects/kv")).unwrap();
    backed_up.restore("none", &["--to-time", time]).fails(2, &["so the store would be empty"]);
}

/// Story: the printed restore of keys and values had the time of which they have no state, so that
/// it failed as the first one.
#[test]
fn printed_restore_of_later_keys_works() {
    let backed_up = BackedUp::new();
    let fixture = &backed_up.fixture;
    backed_up.append(0..10);
    backed_up.back_up();
    let last = backed_up.read_all("store");
    let last: Value = serde_json::from_str(last.lines().last().unwrap()).unwrap();
    let kv = fixture.path("store/kv");
    let put = ["put", "ada", "1815", "--db", kv.to_str().unwrap()];
    fixture.bare(&put).succeeds();
    backed_up.back_up();
    let refused = backed_up.restore("copy", &["--to-time", last["created"].as_str().unwrap()]);
    assert_eq!(refused.code, 2, "{refused:?}");
    let why = "has no state of that time or before; its first state is of ";
    assert!(refused.stderr.contains(why), "{refused:?}");
    assert_eq!(backed_up.read_all("copy").lines().count(), 10);
    let printed = refused.stderr.split('`').nth(1).unwrap();
    let words: Vec<&str> = printed.split(' ').skip(1).collect();
    fixture.bare(&words).succeeds();
    let kv = fixture.path("copy/kv");
    let get = ["get", "ada", "--db", kv.to_str().unwrap()];
    assert_eq!(fixture.bare(&get).succeeds().text(), "1815\n");
}

#[test]
fn damaged_and_missing_objects_are_named() {
    let backed_up = BackedUp::new();
    backed_up.append(0..300);
    backed_up.back_up();
    let piece = backed_up.objects("chunks").pop().unwrap();
    let mut bytes = fs::read(&piece).unwrap();
    bytes[300] ^= 1;
    fs::remove_file(&piece).unwrap();
    fs::write(&piece, &bytes).unwrap();
    let name = piece.file_name().unwrap().to_str().unwrap();
    let verify = ["verify", "--from", &backed_up.url];
    let run = backed_up.fixture.bare(&verify);
    assert!(run.text().contains(name), "{}", run.text());
    run.fails(3, &["is damaged in 1 place"]);
    backed_up.restore("restored", &[]).fails(3, &[name]);
    fs::remove_file(&piece).unwrap();
    backed_up.restore("restored", &[]).fails(3, &[name]);
    bytes[300] ^= 1;
    fs::write(&piece, &bytes).unwrap();
    backed_up.restore("restored", &[]).succeeds();
    assert_eq!(backed_up.read_all("restored"), backed_up.read_all("store"));
}

/// Story: a rule of the bucket deleted a piece. `backup` went on without a word, and no later state
/// could be restored.
#[test]
fn next_backup_uploads_deleted_objects_again() {
    let backed_up = BackedUp::new();
    backed_up.append(0..300);
    backed_up.back_up();
    backed_up.objects("chunks").iter().for_each(|piece| fs::remove_file(piece).unwrap());
    backed_up.restore("restored", &[]).fails(3, &["missing"]);
    let run = backed_up.fixture.run(&["backup", "--to", &backed_up.url]).succeeds();
    assert!(run.stderr.contains("had been deleted by something else, such as "), "{run:?}");
    let again = backed_up.fixture.run(&["backup", "--to", &backed_up.url]).succeeds();
    assert_eq!(again.stderr, "");
    backed_up.restore("again", &[]).succeeds();
    assert_eq!(backed_up.read_all("again"), backed_up.read_all("store"));
}

/// Story: after the loss of one manifest, a restore to an earlier state said that the backup has
/// none of that time, with the exit code of wrong arguments.
#[test]
fn missing_manifest_is_named_by_a_restore_to_an_earlier_state() {
    let backed_up = BackedUp::new();
    let put = |value: &str| backed_up.fixture.run(&["put", "ada", value]).succeeds();
    put("1815");
    let first = backed_up.back_up();
    for value in ["1816", "1817", "1818"] {
        put(value);
        backed_up.back_up();
    }
    let lost = backed_up.objects("manifests").swap_remove(1);
    fs::remove_file(&lost).unwrap();
    let name = lost.file_name().unwrap().to_str().unwrap();
    let time = first["time"].as_str().unwrap();
    backed_up.restore("early", &["--to-time", time]).fails(3, &[name, "is missing"]);
}

#[test]
fn prefixes_of_others_are_refused() {
    let backed_up = BackedUp::new();
    backed_up.append(0..10);
    backed_up.back_up();
    let other = BackedUp::new();
    other.append(0..10);
    other
        .fixture
        .run(&["backup", "--to", &backed_up.url])
        .fails(2, &["holds the backup of another store"]);
    fs::write(other.fixture.path("objects").join("notes.txt"), "mine").unwrap();
    other
        .fixture
        .run(&["backup", "--to", &other.url])
        .fails(2, &["notes.txt", "name an empty prefix"]);
    assert!(other.objects("").len() == 1);
    backed_up.restore("copy", &[]).succeeds();
    let copy = backed_up.fixture.path("copy");
    backed_up
        .fixture
        .bare(&["--db", copy.to_str().unwrap(), "backup", "--to", &backed_up.url])
        .fails(2, &["another copy of this store"]);
    other.restore("none", &[]).fails(2, &["no backup"]);
}

#[test]
fn retention_deletes_only_what_no_kept_state_needs() {
    let backed_up = BackedUp::new();
    backed_up.append(0..100);
    backed_up.back_up();
    backed_up.append(100..200);
    let arguments = ["backup", "--to", &backed_up.url, "--keep", "30d", "--json"];
    let report = backed_up.fixture.run(&arguments).succeeds().json();
    assert_eq!(report["retention"]["deleted_manifests"], json!(0), "{report}");
    let before = backed_up.objects("");
    let dry = ["backup", "--to", &backed_up.url, "--keep=0s", "--dry-run"];
    let text = backed_up.fixture.run(&dry).succeeds().text();
    assert!(text.contains("would be deleted"), "{text}");
    assert_eq!(backed_up.objects(""), before);
    backed_up.fixture.run(&["backup", "--to", &backed_up.url, "--keep=0s"]).succeeds();
    backed_up.restore("restored", &[]).succeeds();
    assert_eq!(backed_up.read_all("restored"), backed_up.read_all("store"));
    let directory = backed_up.fixture.path("directory");
    let directory = directory.to_str().unwrap();
    let run = |words: &[&str]| backed_up.fixture.run(words);
    run(&["backup", "--to", directory, "--keep", "30d"]).fails(2, &["--keep", "only one state"]);
    run(&["backup", "--to", directory, "--dry-run"]).fails(2, &["--keep"]);
    run(&["backup", "--to", &backed_up.url, "--keep", "30"]).fails(2, &["is no age", "30d"]);
}

/// Entries of the key-value store in a directory.
fn scan(backed_up: &BackedUp, store: &str) -> String {
    let store = backed_up.fixture.path(store);
    backed_up.fixture.bare(&["--db", store.to_str().unwrap(), "scan"]).succeeds().text()
}

#[test]
fn key_value_stores_are_recognized_and_restored_to_a_run() {
    let backed_up = BackedUp::new();
    let put = |key: &str, value: &str| backed_up.fixture.run(&["put", key, value]).succeeds();
    put("ada", "1815");
    let first = backed_up.fixture.run(&["backup", "--to", &backed_up.url]).succeeds().text();
    assert!(first.contains("all writes up to") && first.contains("1 object"), "{first}");
    let early = scan(&backed_up, "store");
    let idle = backed_up.back_up();
    assert_eq!((&idle["manifest"], &idle["uploaded_bytes"]), (&json!(1), &json!(0)));
    put("grace", "1906");
    put("long", &"x".repeat(1000));
    let second = backed_up.back_up();
    assert_eq!((&second["manifest"], second["requests"]["write"].as_u64()), (&json!(2), Some(1)));
    let verify = ["verify", "--from", &backed_up.url];
    let report = backed_up.fixture.bare(&verify).succeeds().text();
    assert!(report.contains("is undamaged") && report.contains("states of"), "{report}");
    let json = backed_up.fixture.bare(&[&verify[..], &["--json"]].concat()).succeeds().json();
    assert_eq!((&json["objects"], &json["newest_manifest"]), (&json!(2), &json!(2)));
    let message = backed_up.restore("restored", &[]).succeeds().text();
    assert!(message.contains("all writes up to") && message.contains("2 files"), "{message}");
    assert_eq!(scan(&backed_up, "restored"), scan(&backed_up, "store"));
    backed_up.restore("restored", &[]).fails(2, &["holds a key-value store already"]);
    let time = json["restorable"][0]["first_time"].as_str().unwrap();
    backed_up.restore("early", &["--to-time", time]).succeeds();
    assert_eq!(scan(&backed_up, "early"), early);
    let older = ["--to-time", "2020-01-01T00:00:00Z"];
    backed_up.restore("older", &older).fails(2, &["no state of that time or before"]);
    backed_up.restore("position", &["--to-position", "1"]).fails(2, &["has no positions"]);
    let keep = ["backup", "--to", &backed_up.url, "--keep", "30d", "--dry-run"];
    let kept = backed_up.fixture.run(&keep).succeeds().text();
    assert!(kept.contains("would be deleted: 0 manifests"), "{kept}");
    let copy = backed_up.fixture.path("restored");
    let other = ["--db", copy.to_str().unwrap(), "backup", "--to", &backed_up.url];
    backed_up.fixture.bare(&other).fails(2, &["holds the backup of another copy of this store"]);
}

#[test]
fn backups_of_one_kind_of_store_refuse_the_other_kind() {
    let backed_up = BackedUp::new();
    backed_up.append(0..10);
    backed_up.back_up();
    let other = backed_up.fixture.path("values");
    let other = other.to_str().unwrap();
    backed_up.fixture.bare(&["--db", other, "put", "ada", "1815"]).succeeds();
    let to = ["--db", other, "backup", "--to", &backed_up.url];
    let kinds = ["holds the backup of an event store, not of a key-value store"];
    backed_up.fixture.bare(&to).fails(2, &kinds);
}

#[test]
fn damaged_object_of_a_key_value_backup_is_named() {
    let backed_up = BackedUp::new();
    backed_up.fixture.run(&["put", "ada", "1815"]).succeeds();
    backed_up.back_up();
    let table = backed_up.objects("tables").pop().unwrap();
    let mut bytes = fs::read(&table).unwrap();
    bytes[20] ^= 1;
    fs::remove_file(&table).unwrap();
    fs::write(&table, &bytes).unwrap();
    let name = table.file_name().unwrap().to_str().unwrap();
    let run = backed_up.fixture.bare(&["verify", "--from", &backed_up.url]);
    assert!(run.text().contains(name), "{}", run.text());
    run.fails(3, &["is damaged in 1 place"]);
    backed_up.restore("restored", &[]).fails(3, &[name]);
    let restored = backed_up.fixture.path("restored");
    let opened = backed_up.fixture.bare(&["--db", restored.to_str().unwrap(), "put", "a", "b"]);
    opened.fails(2, &["the restore of a backup into", "was interrupted"]);
}

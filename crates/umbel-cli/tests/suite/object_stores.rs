//! `umbel store probe` on directories.

use std::fs;

use serde_json::json;

use super::test_binary::Fixture;

#[test]
fn probe_of_a_directory_passes_and_cleans_up() {
    let fixture = Fixture::new();
    let directory = fixture.path("objects of all");
    fs::create_dir(&directory).unwrap();
    let url = format!("file://{}", directory.display()).replace(' ', "%20");
    let text = fixture.bare(&["store", "probe", &url]).succeeds().text();
    assert_eq!(text.lines().count(), 12, "{text}");
    assert!(text.lines().all(|line| line.starts_with("ok ")), "{text}");
    assert!(text.contains("concurrent-creates") && text.contains("slow-create"), "{text}");
    let report = fixture.bare(&["store", "probe", &url, "--json"]).succeeds().json();
    assert_eq!(report["verdict"], "suitable");
    assert_eq!(report["store"], json!(url));
    assert_eq!(report["checks"][0], json!({"check": "create", "outcome": "ok", "reason": null}));
    assert!(report["clock_difference_seconds"].as_f64().unwrap().abs() < 60.0);
    assert_eq!(report["leftover_prefix"], json!(null));
    let mut open = vec![directory];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            assert!(path.is_dir(), "{} is left", path.display());
            open.push(path);
        }
    }
}

#[test]
fn probe_refuses_a_store_that_cannot_create() {
    let fixture = Fixture::new();
    let directory = fixture.path("objects");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("probe"), "a file in the way").unwrap();
    let url = format!("file://{}", directory.display());
    let run = fixture.bare(&["store", "probe", &url]);
    let text = run.text();
    assert!(text.starts_with("broken      create: could not create file:///"), "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("skip ")).count(), 11, "{text}");
    run.fails(2, &["must not be used as an object store: it breaks create"]);
    let run = fixture.bare(&["store", "probe", &url, "--json"]);
    assert_eq!(run.json()["verdict"], "refused");
    run.fails(2, &["it breaks create"]);
}

/// A store that is full, or not available, is not judged.
#[test]
fn probe_of_a_full_store_is_unfinished() {
    let fixture = Fixture::new();
    let directory = fixture.path("objects");
    fs::create_dir(&directory).unwrap();
    let url = format!("file://{}", directory.display());
    let run = fixture.run_limited(0, &["store", "probe", &url]);
    let text = run.text();
    assert!(text.starts_with("unfinished  create: ") && text.contains("ulimit -f"), "{text}");
    run.fails(4, &["was not finished: create", "repeat it"]);
}

#[test]
fn url_that_names_no_store_is_refused() {
    let fixture = Fixture::new();
    let missing = format!("file://{}", fixture.path("missing").display());
    fixture.bare(&["store", "probe", &missing]).fails(2, &["is missing; mount its file system"]);
    assert!(!fixture.path("missing").exists());
    for (url, reason) in [
        ("http://bucket/prefix", "no store with the scheme \"http\""),
        ("s3://id:hidden@bucket/prefix", "write s3://BUCKET/PREFIX"),
        ("s3://bucket/prefix?colour=red", "the options are ca-file, proxy, endpoint"),
        ("/mnt/share", "write for example file:///mnt/share/backups"),
        ("file:relative", "the path must be absolute"),
        ("", "is not the URL of an object store"),
    ] {
        fixture.bare(&["store", "probe", url]).fails(2, &[reason]);
    }
    fixture.bare(&["store", "probe"]).fails(2, &["<URL>"]);
    assert!(fixture.bare(&["store", "--help"]).succeeds().text().contains("probe"));
}

#[test]
fn init_creates_one_log_in_a_prefix() {
    let fixture = Fixture::new();
    let directory = fixture.path("objects");
    fs::create_dir(&directory).unwrap();
    let url = format!("file://{}", directory.display());
    let text = fixture.bare(&["store", "init", &url]).succeeds().text();
    let first = text.lines().next().unwrap();
    let (id, place) = first.strip_prefix("created the replicated log ").unwrap().split_at(32);
    assert!(id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{text}");
    assert_eq!(place, format!(" in {url}"));
    for command in [
        format!("serve --insecure --store {url} --node a"),
        format!("serve --insecure --store {url} --node b --join {id}"),
    ] {
        assert!(text.contains(&command), "{text}");
    }
    let taken = format!("has the replicated log {id} already; join it with");
    fixture.bare(&["store", "init", &url]).fails(2, &[&taken, "choose an empty prefix"]);
    // The same id finishes a creation, whether it was interrupted or not.
    let again = fixture.bare(&["store", "init", &url, "--id", id, "--json"]).succeeds().json();
    assert_eq!(again, json!({ "store": url, "log": id, "created": false }));
    let other = "0".repeat(32);
    fixture.bare(&["store", "init", &url, "--id", &other]).fails(2, &[id, "already"]);
    fixture.bare(&["store", "init", &url, "--id", "7"]).fails(2, &["32 hexadecimal digits"]);
}

#[test]
fn init_refuses_prefixes_and_stores_that_it_cannot_use() {
    let fixture = Fixture::new();
    let directory = fixture.path("objects");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("notes.txt"), "not ours").unwrap();
    let url = format!("file://{}", directory.display());
    let parts = ["is not empty: it has notes.txt", "choose an empty prefix"];
    fixture.bare(&["store", "init", &url]).fails(2, &parts);
    assert!(!directory.join("STORE").exists());
    let blocked = fixture.path("blocked");
    fs::create_dir(&blocked).unwrap();
    fs::write(blocked.join("probe"), "a file in the way").unwrap();
    let url = format!("file://{}", blocked.display());
    fixture.bare(&["store", "init", &url]).fails(2, &["must not be used as an object store"]);
    let missing = format!("file://{}", fixture.path("missing").display());
    fixture.bare(&["store", "init", &missing]).fails(2, &["is missing; mount its file system"]);
}

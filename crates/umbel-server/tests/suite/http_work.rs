//! Tests of scavenges and backups, which operators start over the HTTP API.

use serde_json::{Value, json};
use umbel_events::{ExpectedVersion, NewEvent};
use umbel_server::Config;

use super::http_client::{JSON, authorization, get, post, send, wait_for};
use super::test_server::{TestServer, with_users};

#[test]
fn scavenge_is_found_by_its_id() {
    let server = TestServer::new();
    let address = server.address();
    assert_eq!(get(address, "/admin/scavenge/current").is(200), json!({}));
    assert_eq!(get(address, "/admin/scavenge/last").is(200)["scavengeResult"], "Unknown");
    for _ in 0..2 {
        let started = post(address, "/admin/scavenge?threads=1&startFromChunk=0", &json!({}));
        assert!(started.head.contains("location: /admin/scavenge/"), "{started:?}");
        let started = started.is(200);
        let path = started["scavengeLink"].as_str().unwrap();
        let ended = wait_for(|| {
            Some(get(address, path).is(200)).filter(|it| it["scavengeResult"] != "InProgress")
        });
        assert_eq!((&ended["scavengeResult"], &ended["error"]), (&json!("Success"), &Value::Null));
        assert_eq!(ended["scavengeId"], started["scavengeId"]);
        assert_eq!(get(address, "/admin/scavenge/last").is(200), ended);
        let stopped = send(address, "DELETE", path, &[], b"").is(200);
        assert_eq!(stopped["scavengeId"], started["scavengeId"], "as the call of clients does");
    }
    for missing in ["/admin/scavenge/7", "/admin/scavenge/current"] {
        assert_eq!(send(address, "DELETE", missing, &[], b"").is(404)["error"], "NotFound");
    }
    assert_eq!(get(address, "/admin/scavenge/7").is(404)["success"], false);
    for wrong in
        ["threads=0", "threads=x", "throttlePercent=0", "throttlePercent=101", "removeAll=1"]
    {
        let answer = post(address, &format!("/admin/scavenge?{wrong}"), &json!({}));
        let name = wrong.split('=').next().unwrap();
        let message = answer.is(400)["message"].as_str().unwrap().to_string();
        assert!(message.contains(name), "{message}");
    }
}

/// Regression: the only backup of a running server that a program could start was an address of the
/// console, which did not report the outcome of one backup.
#[test]
fn backup_is_found_by_its_id() {
    let target = tempfile::tempdir().unwrap();
    let directory = target.path().join("copy");
    let config = Config { backup_directory: Some(directory.clone()), ..Config::default() };
    let server = TestServer::with(config);
    let address = server.address();
    // Story: the message was about "this id", but the request names none.
    let none = get(address, "/admin/backup/last").is(404);
    assert_eq!(none["message"], "the history has no backup yet");
    let event = NewEvent::json(server.store.new_id().unwrap(), "Opened", b"{}");
    let appended = server.store.append("cart", ExpectedVersion::Any, &[event]).unwrap();
    let mut last = appended.position.unwrap();
    for number in 1..=2 {
        let started = post(address, "/admin/backup", &json!({}));
        assert!(started.head.contains("location: /admin/backup/"), "{started:?}");
        let started = started.is(202);
        let path = started["backupLink"].as_str().unwrap();
        let ended = wait_for(|| {
            Some(get(address, path).is(200)).filter(|it| it["backupResult"] != "InProgress")
        });
        assert_eq!((&ended["backupResult"], &ended["number"]), (&json!("Success"), &number.into()));
        let through: u64 = ended["through"].as_str().unwrap().parse().unwrap();
        assert!(through > last && through <= server.store.visible_position().0, "{ended}");
        last = through;
        assert_eq!(ended["directory"], directory.to_str().unwrap());
        assert_eq!(get(address, "/admin/backup/last").is(200), ended);
    }
    let earlier = get(address, "/admin/backup/last").is(200)["backupId"].clone();
    std::fs::remove_dir_all(&directory).unwrap();
    std::fs::write(&directory, "no directory").unwrap();
    let started = post(address, "/admin/backup", &json!({})).is(202);
    let path = started["backupLink"].as_str().unwrap();
    let failed = wait_for(|| {
        Some(get(address, path).is(200)).filter(|it| it["backupResult"] != "InProgress")
    });
    assert_eq!(failed["backupResult"], "Errored");
    assert!(failed["error"].as_str().unwrap().contains("copy"), "{failed}");
    let path = format!("/admin/backup/{}", earlier.as_str().unwrap());
    assert_eq!(get(address, &path).is(200)["backupResult"], "Success", "an earlier outcome stays");
    let without = TestServer::new();
    let refused = post(without.address(), "/admin/backup", &json!({})).is(409);
    assert!(refused["message"].as_str().unwrap().contains("--backup-dir"), "{refused}");
}

/// The members and states are those of KurrentDB's documentation.
#[test]
fn auto_scavenge_is_configured_paused_and_resumed() {
    let mut server = TestServer::with_users();
    let ops = authorization("ops:second");
    let ask = |address, method: &str, path: &str, value: &Value| {
        let body = if *value == Value::Null { String::new() } else { value.to_string() };
        let path = format!("/auto-scavenge/{path}");
        send(address, method, &path, &[JSON, &ops], body.as_bytes())
    };
    let address = server.address();
    assert_eq!(ask(address, "GET", "enabled", &Value::Null).is(200), json!({ "enabled": true }));
    let status = |address| ask(address, "GET", "status", &Value::Null).is(200);
    let fresh = status(address);
    assert_eq!((&fresh["state"], &fresh["schedule"]), (&json!("NotConfigured"), &Value::Null));
    assert_eq!((&fresh["thresholdPercent"], &fresh["nextScavenge"]), (&json!(30), &Value::Null));
    let change = json!({ "schedule": "0 3 1 1 *", "thresholdPercent": 0, "throttlePercent": 100 });
    let changed = ask(address, "POST", "configure", &change).is(200);
    assert_eq!((&changed["state"], &changed["schedule"]), (&json!("Waiting"), &"0 3 1 1 *".into()));
    assert!(changed["nextScavenge"].as_str().unwrap().ends_with("-01-01T03:00:00.000Z"));
    let until = changed["timeUntilNextCycle"].as_str().unwrap();
    assert!(until.matches(':').count() == 2, "{until}");
    for (wrong, named) in [
        (json!({ "schedule": "0 3 30 2 *" }), "schedule is"),
        (json!({ "schedule": "daily" }), "five fields"),
        (json!({ "thresholdPercent": 101 }), "thresholdPercent is 101"),
        (json!({ "throttlePercent": 0 }), "throttlePercent is 0"),
        (json!({ "threshold": 1 }), "threshold"),
        (json!([]), "object"),
    ] {
        let refused = ask(address, "POST", "configure", &wrong).is(400);
        assert!(refused["message"].as_str().unwrap().contains(named), "{refused}");
    }
    assert_eq!(ask(address, "POST", "pause", &Value::Null).is(200)["state"], "Paused");
    server.restart();
    let address = server.address();
    let paused = status(address);
    assert_eq!((&paused["state"], &paused["throttlePercent"]), (&json!("Paused"), &100.into()));
    assert_eq!(paused["timeUntilNextCycle"], Value::Null);
    assert_eq!(ask(address, "POST", "resume", &Value::Null).is(200)["state"], "Waiting");
    let foreign = [JSON, &ops, "origin: http://evil.example"];
    assert_eq!(send(address, "POST", "/auto-scavenge/pause", &foreign, b"").status, 403);
}

/// Regression: the outcomes of scavenges and backups were lost with the process.
#[test]
fn history_has_who_and_outcome_across_restarts() {
    let target = tempfile::tempdir().unwrap();
    let config = Config { backup_directory: Some(target.path().join("b")), ..with_users() };
    let mut server = TestServer::with(config);
    let ops = authorization("ops:second");
    let history = |address, kind: &str| {
        let path = format!("/admin/{kind}/history");
        let mut value = send(address, "GET", &path, &[&ops], b"").is(200);
        value[format!("{kind}s")].take()
    };
    let metrics = |address| {
        let answer = send(address, "GET", "/metrics", &[&ops], b"");
        let text = answer.text().to_string();
        let successes = text.lines().filter(|line| line.starts_with("umbel_last_successful_"));
        (successes.map(str::to_string).collect::<Vec<_>>(), text)
    };
    let address = server.address();
    assert!(metrics(address).0.is_empty(), "there was no success yet");
    for kind in ["scavenge", "backup"] {
        assert_eq!(history(address, kind), json!([]));
        let started = send(address, "POST", &format!("/admin/{kind}"), &[JSON, &ops], b"").json();
        let id = started[format!("{kind}Id")].clone();
        let ended = wait_for(|| {
            let newest = history(address, kind)[0].take();
            Some(newest).filter(|newest| newest[format!("{kind}Result")] == "Success")
        });
        assert_eq!((&ended[format!("{kind}Id")], &ended["user"]), (&id, &json!("ops")));
        assert_eq!((&ended["error"], &ended["scheduled"]), (&Value::Null, &Value::Null));
        assert!(ended["started"].as_str() <= ended["ended"].as_str() && ended["ended"].is_string());
    }
    let before = (history(address, "scavenge"), history(address, "backup"), metrics(address).0);
    assert_eq!(before.2.len(), 2, "{:?}", before.2);
    let (_, text) = metrics(address);
    assert!(text.contains("umbel_scavenges_total{outcome=\"Success\"} 1"), "{text}");
    assert!(text.contains("umbel_backups_total{outcome=\"Errored\"} 0"), "{text}");
    server.restart();
    let address = server.address();
    let after = (history(address, "scavenge"), history(address, "backup"), metrics(address).0);
    assert_eq!(after, before);
    for (kind, works) in [("scavenge", before.0), ("backup", before.1)] {
        let id = works[0][format!("{kind}Id")].as_str().unwrap();
        let shown = send(address, "GET", &format!("/admin/{kind}/{id}"), &[&ops], b"").is(200);
        assert_eq!(shown[format!("{kind}Result")], "Success");
    }
}

/// A scavenge that the stop of the server ends is recorded, and the next one continues.
#[test]
fn scavenge_at_the_stop_of_the_server_is_recorded_as_interrupted() {
    let mut server = TestServer::new();
    let data = vec![b'x'; 1 << 20];
    for _ in 0..80 {
        let event = NewEvent::binary(server.store.new_id().unwrap(), "Happened", &data);
        server.store.append("old", ExpectedVersion::Any, &[event]).unwrap();
    }
    server.store.delete("old", ExpectedVersion::Any).unwrap();
    let address = server.address();
    let started = post(address, "/admin/scavenge?throttlePercent=1", &json!({})).is(200);
    server.restart();
    let address = server.address();
    let history = get(address, "/admin/scavenge/history").is(200)["scavenges"].take();
    let own = history.as_array().unwrap().iter();
    let own: Vec<_> = own.filter(|it| it["scavengeId"] == started["scavengeId"]).collect();
    assert_eq!((own.len(), &own[0]["scavengeResult"]), (1, &json!("Interrupted")), "{history}");
    assert!(own[0]["error"].as_str().unwrap().contains("the server stopped"), "{history}");
}

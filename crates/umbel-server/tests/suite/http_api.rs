//! Tests of the HTTP API for operators and scripts.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};
use umbel_events::{ExpectedVersion, NewEvent};
use umbel_server::Config;

use super::http_client::{HttpAnswer, authorization, send};
use super::test_server::{TestServer, with_users};

const JSON: &str = "content-type: application/json";
const EVENTS: &str = "content-type: application/vnd.kurrent.events+json";

fn get(address: SocketAddr, path: &str) -> HttpAnswer {
    send(address, "GET", path, &[], b"")
}

fn post(address: SocketAddr, path: &str, value: &Value) -> HttpAnswer {
    send(address, "POST", path, &[JSON], value.to_string().as_bytes())
}

/// Waits until a value that the server changes in the background is true.
pub fn wait_for(mut found: impl FnMut() -> Option<Value>) -> Value {
    let (_sender, never) = std::sync::mpsc::channel::<()>();
    for _ in 0..600 {
        if let Some(value) = found() {
            return value;
        }
        let _ = never.recv_timeout(Duration::from_millis(20));
    }
    panic!("timeout");
}

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

/// Story: an operator misspelled `removeAll`. The scavenge succeeded, and the data of the deleted
/// stream was still in the files.
#[test]
fn unknown_query_parameters_of_changes_are_refused() {
    let server = TestServer::new();
    let address = server.address();
    let append =
        |path: &str| send(address, "POST", path, &[JSON, "kurrent-eventtype: T"], b"{}").status;
    assert_eq!(append("/streams/cart"), 201);
    for (method, path, named) in [
        ("POST", "/admin/scavenge?removeall=true", "removeall is no query parameter of POST"),
        ("POST", "/admin/scavenge?removeall=true", "the parameters are removeAll, threads"),
        ("POST", "/admin/scavenge?threads=1&throttlepercent=5", "throttlepercent"),
        ("POST", "/admin/scavenge?removeAll", "removeAll has no value"),
        ("POST", "/admin/scavenge?removeAll=", "removeAll has no value"),
        ("POST", "/admin/scavenge?removeAll=false&removeAll=true", "given twice"),
        ("POST", "/admin/backup?bytesPersecond=70000", "the parameters are bytesPerSecond"),
        ("POST", "/subscriptions/cart/g/replayParked?stopat=1", "the parameters are stopAt"),
        ("DELETE", "/streams/cart?hardDelete=true", "it has none"),
        ("PUT", "/subscriptions/cart/g?startFrom=1", "it has none"),
    ] {
        let answer = send(address, method, path, &[JSON], b"{}").is(400);
        let message = answer["message"].as_str().unwrap();
        assert!(message.contains(named), "{path}: {message}");
    }
    assert_eq!(append("/streams/cart?expected=0"), 400);
    assert_eq!(get(address, "/admin/scavenge/last").is(200)["scavengeResult"], "Unknown");
    assert_eq!(get(address, "/streams/cart/0?embd=none").status, 200, "a read is not refused");
    let started = post(address, "/admin/scavenge?removeAll=true&", &json!({}));
    assert_eq!(started.status, 200, "{started:?}");
}

/// Story: `removeAll` in the body of a scavenge had no effect, and the scavenge succeeded.
#[test]
fn body_of_a_change_that_reads_none_is_refused() {
    let server = TestServer::new();
    let address = server.address();
    let event = send(address, "POST", "/streams/cart", &[JSON, "kurrent-eventtype: T"], b"{}");
    assert_eq!(event.status, 201);
    for (method, path) in [
        ("POST", "/admin/scavenge"),
        ("POST", "/admin/backup"),
        ("DELETE", "/admin/scavenge/current"),
        ("POST", "/subscriptions/cart/g/replayParked"),
        ("DELETE", "/streams/cart"),
    ] {
        for body in ["{\"removeAll\": true}", "garbage", "{}{}", "[]", "nulls", "n ull"] {
            let answer = send(address, method, path, &[JSON], body.as_bytes()).is(400);
            let message = answer["message"].as_str().unwrap();
            assert!(message.contains("takes no body"), "{method} {path} {body}: {message}");
        }
    }
    assert_eq!(get(address, "/admin/scavenge/last").is(200)["scavengeResult"], "Unknown");
    assert_eq!(get(address, "/streams/cart/0").status, 200, "the stream was not deleted");
    for body in ["", "{}", " { }\n", "null"] {
        let path = "/admin/scavenge?thresholdPercent=100";
        wait_for(|| {
            let answer = send(address, "POST", path, &[], body.as_bytes());
            (answer.status != 409).then(|| answer.is(200))
        });
    }
    assert_eq!(send(address, "DELETE", "/streams/cart", &[], b"{}").status, 204);
}

/// Story: an append to `/streams/100%` made a stream `100%`, and `/streams/%ff` had no route.
#[test]
fn invalid_percent_encoding_of_a_path_is_refused() {
    let server = TestServer::new();
    let address = server.address();
    for path in ["/streams/100%", "/streams/a%zzb", "/streams/%f", "/streams/%ff", "/users/%c3%28"]
    {
        for (method, body) in [("GET", &b""[..]), ("POST", &b"{}"[..])] {
            let answer = send(address, method, path, &[JSON, "kurrent-eventtype: T"], body);
            assert_eq!(answer.status, 400, "{method} {path}: {answer:?}");
        }
    }
    let append = send(address, "POST", "/streams/100%25", &[JSON, "kurrent-eventtype: T"], b"{}");
    assert_eq!(append.status, 201);
    assert_eq!(get(address, "/streams/100%25/0").status, 200);
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

#[test]
fn users_are_managed() {
    let server = TestServer::with_users();
    let address = server.address();
    let ask = |user: &str, method: &str, path: &str, value: &Value| {
        let body = if *value == Value::Null { String::new() } else { value.to_string() };
        send(address, method, path, &[JSON, &authorization(user)], body.as_bytes())
    };
    let admin = "admin:first";
    let fields = json!({ "loginName": "a b/é", "fullName": "A", "groups": ["g"], "password": "x" });
    let created = ask(admin, "POST", "/users", &fields);
    assert!(created.head.contains("location: /users/a%20b%2f%c3%a9"), "{created:?}");
    let done = json!({ "loginName": "a b/é", "success": true, "error": "Success" });
    assert_eq!(created.is(201), done);
    assert_eq!(ask(admin, "POST", "/users", &fields).is(409)["error"], "Conflict");
    let path = "/users/a%20b%2F%C3%A9";
    let shown = ask("a b/é:x", "GET", "/users/$current", &Value::Null).is(200);
    assert_eq!((&shown["data"]["fullName"], &shown["success"]), (&json!("A"), &true.into()));
    assert_eq!(ask("a b/é:x", "GET", path, &Value::Null).is(200), shown);
    let update = json!({ "fullName": "B", "groups": [] });
    assert_eq!(ask(admin, "PUT", path, &update).is(200), done);
    let change = json!({ "currentPassword": "x", "newPassword": "y" });
    let command = |name: &str| format!("{path}/command/{name}");
    assert_eq!(ask("a b/é:x", "POST", &command("change-password"), &change).is(200), done);
    assert_eq!(ask("a b/é:x", "POST", &command("change-password"), &change).status, 401);
    let reset = json!({ "newPassword": "z" });
    assert_eq!(ask(admin, "POST", &command("reset-password"), &reset).is(200), done);
    assert_eq!(ask(admin, "POST", &command("disable"), &Value::Null).is(200), done);
    assert_eq!(ask("a b/é:z", "GET", path, &Value::Null).status, 401);
    assert_eq!(ask(admin, "POST", &command("enable"), &Value::Null).is(200), done);
    let shown = ask("a b/é:z", "GET", path, &Value::Null).is(200)["data"].clone();
    assert_eq!((&shown["fullName"], &shown["groups"]), (&json!("B"), &json!([])));
    let listed = ask(admin, "GET", "/users/", &Value::Null).is(200);
    let names = listed["data"].as_array().unwrap().iter().map(|user| user["loginName"].clone());
    assert_eq!(names.collect::<Value>(), json!(["a b/é", "admin", "ops"]));
    let rest = ask(admin, "GET", "/users?after=admin", &Value::Null).is(200);
    assert_eq!((&rest["data"][0]["loginName"], &rest["next"]), (&json!("ops"), &Value::Null));
    assert_eq!(ask(admin, "DELETE", path, &Value::Null).is(200), done);
    assert_eq!(ask(admin, "GET", path, &Value::Null).is(404)["error"], "NotFound");
    for wrong in [json!({ "loginName": "b" }), json!({ "password": 7 }), json!([]), json!("x")] {
        assert_eq!(ask(admin, "POST", "/users", &wrong).is(400)["error"], "BadRequest");
    }
    let typo = json!({ "loginName": "b", "password": "x", "group": ["$admins"] });
    let refused = ask(admin, "POST", "/users", &typo).is(400)["message"].clone();
    assert!(refused.as_str().unwrap().contains("group"), "{refused}");
}

#[test]
fn groups_are_managed() {
    let server = TestServer::new();
    let address = server.address();
    let put = |path: &str, value: Value| {
        send(address, "PUT", path, &[JSON], value.to_string().as_bytes())
    };
    let path = "/subscriptions/cart-1/bill%2Fing";
    let settings = json!({ "startPosition": "9007199254740993", "maxRetryCount": 3 });
    let created = put(path, settings.clone());
    assert!(created.head.contains("location: /subscriptions/cart%2d1/bill%2fing"), "{created:?}");
    assert_eq!(created.is(201), json!({ "result": "Success", "reason": "" }));
    assert_eq!(put(path, settings).is(409)["error"], "Conflict");
    let shown = get(address, &format!("{path}/info")).is(200);
    assert_eq!(
        (&shown["eventStreamId"], &shown["groupName"]),
        (&json!("cart-1"), &json!("bill/ing"))
    );
    let config = &shown["config"];
    assert_eq!(config["startPosition"], "9007199254740993");
    assert_eq!(config["startFrom"].as_u64(), Some((1 << 53) + 1), "to the last digit");
    assert_eq!((&config["maxRetryCount"], &config["bufferSize"]), (&3.into(), &500.into()));
    // What the server reports can be sent back.
    assert_eq!(post(address, path, config).is(200)["result"], "Success");
    assert_eq!(&get(address, &format!("{path}/info")).is(200)["config"], config);
    let update = json!({ "namedConsumerStrategy": "Pinned", "startPosition": "-1" });
    assert_eq!(post(address, path, &update).is(200)["result"], "Success");
    let config = get(address, &format!("{path}/info")).is(200)["config"].clone();
    assert_eq!(
        (&config["namedConsumerStrategy"], &config["maxRetryCount"]),
        (&json!("Pinned"), &10.into())
    );
    let all = "/subscriptions/%24all/audit";
    assert_eq!(put(all, json!({ "startPosition": "C:7/P:7" })).status, 201);
    assert_eq!(get(address, &format!("{all}/info")).is(200)["config"]["startPosition"], "C:7/P:7");
    assert_eq!(get(address, "/subscriptions").is(200).as_array().unwrap().len(), 2);
    assert_eq!(get(address, "/subscriptions/$all").is(200)[0]["groupName"], "audit");
    let page = get(address, "/subscriptions?offset=1&count=1").is(200);
    assert_eq!((&page["total"], page["subscriptions"].as_array().unwrap().len()), (&2.into(), 1));
    assert_eq!(
        page["links"][2],
        json!({ "href": "/subscriptions?offset=0&count=1", "rel": "previous" })
    );
    for (wrong, word) in [
        (json!({ "bufferSize": 1 }), "history buffer"),
        (json!({ "maxRetries": 1 }), "maxRetries"),
        (json!({ "startPosition": "soon" }), "startPosition"),
        (json!({ "namedConsumerStrategy": "Best" }), "Best"),
    ] {
        let refused = put("/subscriptions/cart-1/x", wrong).is(400)["message"].clone();
        assert!(refused.as_str().unwrap().contains(word), "{refused}");
    }
    assert_eq!(get(address, "/subscriptions?count=0").status, 400);
    let replay = format!("{path}/replayParked?stopAt=3");
    assert_eq!(post(address, &replay, &json!({})).is(200)["result"], "Success");
    assert_eq!(post(address, "/subscriptions/restart", &json!({})).is(200), "Restarting");
    assert_eq!(send(address, "DELETE", path, &[], b"").is(200)["result"], "Success");
    for method in ["DELETE", "POST"] {
        assert_eq!(send(address, method, path, &[JSON], b"{}").is(404)["error"], "NotFound");
    }
    // Story: the message was about a group without a name.
    let none = get(address, "/subscriptions/cart-1").is(404);
    assert_eq!(none["message"], "Stream cart-1 has no subscription group.");
    assert_eq!(get(address, &format!("{path}/info")).status, 404);
}

#[test]
fn events_are_appended_and_read() {
    let server = TestServer::new();
    let address = server.address();
    let one = r#"{"n": 18446744073709551615, "f": 1.10}"#;
    let id = "fbf4a1a1-b4a3-4dfe-a01f-ec52c34e16e4";
    let headers = [JSON, "kurrent-eventtype: Opened", &format!("ES-EventId: {id}")];
    let appended = send(address, "POST", "/streams/cart-1", &headers, one.as_bytes());
    assert!(appended.head.contains("location: /streams/cart%2d1/0"), "{appended:?}");
    let first = appended.is(201);
    assert_eq!(first["lastEventNumber"], 0);
    // The same event again, as after a lost response.
    let again = send(address, "POST", "/streams/cart-1", &headers, one.as_bytes()).is(201);
    assert_eq!(again["lastEventNumber"], 0);
    let list = r#"[{"eventType":"Added","data":{"n":9007199254740993},"metadata":{"by":"ada"}},
        {"eventId":"0d0c9cb1-02ef-4ba5-89c0-1b8ec4bd2c1e","eventType":"Closed"}]"#;
    let with_version = [EVENTS, "kurrent-expectedversion: 0"];
    let appended = send(address, "POST", "/streams/cart-1", &with_version, list.as_bytes()).is(201);
    assert_eq!(appended["lastEventNumber"], 2);
    let octets = ["content-type: application/octet-stream", "ES-EventType: Raw"];
    send(address, "POST", "/streams/cart-1", &octets, b"\x00\xff").is(201);

    let page = get(address, "/streams/cart-1").is(200);
    let entries = page["entries"].as_array().unwrap();
    assert_eq!((entries.len(), &page["headOfStream"]), (4, &true.into()));
    assert_eq!(entries[3]["data"], one, "byte for byte");
    assert_eq!((&entries[3]["eventId"], &entries[3]["isJson"]), (&json!(id), &true.into()));
    assert_eq!(
        (&entries[0]["dataBase64"], &entries[0]["eventNumber"]),
        (&json!("AP8="), &3.into())
    );
    assert_eq!(
        (&entries[2]["metaData"], &entries[2]["data"]),
        (&json!(r#"{"by":"ada"}"#), &json!(r#"{"n":9007199254740993}"#))
    );
    let content = get(address, "/streams/cart-1/0/forward/2?embed=content");
    assert!(content.text().contains(&format!(r#""data":{one}"#)), "{}", content.text());
    let none = get(address, "/streams/cart-1/0/forward/2?embed=none").is(200);
    assert_eq!(
        (&none["entries"][0]["title"], &none["entries"][0]["data"]),
        (&json!("0@cart-1"), &Value::Null)
    );

    let event = get(address, "/streams/cart-1/0");
    assert_eq!((event.status, event.text()), (200, one));
    assert!(event.head.contains("content-type: application/json"), "{}", event.head);
    let raw =
        send(address, "GET", "/streams/cart-1/head", &["accept: application/octet-stream"], b"");
    assert_eq!((raw.status, &raw.body[..]), (200, &b"\x00\xff"[..]));
    assert!(raw.head.contains("x-content-type-options: nosniff"), "{}", raw.head);
    assert_eq!(
        get(address, "/streams/cart-1/1?embed=content").is(200)["content"]["metadata"]["by"],
        "ada"
    );
    assert_eq!(get(address, "/streams/cart-1/4").is(404)["error"], "NotFound");
    assert_eq!(get(address, "/streams/$all/0").status, 400);
    let head = send(address, "HEAD", "/streams/cart-1", &[], b"");
    assert!(head.status == 200 && head.body.is_empty(), "{head:?}");
    let by_id = "/streams/cart-2/incoming/7e7b9d3c-8a8c-4f2e-9d3a-0f3a1f1e7a11";
    send(address, "POST", by_id, &[JSON, "es-eventtype: Opened"], b"{}").is(201);
    let entry = get(address, "/streams/cart-2/0?embed=rich").is(200);
    assert_eq!(entry["eventId"], "7e7b9d3c-8a8c-4f2e-9d3a-0f3a1f1e7a11");
}

/// Follows links of a relation from a page to the end. Returns titles of the entries.
fn follow(address: SocketAddr, start: &str, relation: &str) -> Vec<String> {
    let mut titles = Vec::new();
    let mut path = start.to_string();
    for _ in 0..100 {
        let page = get(address, &path).is(200);
        let entries = page["entries"].as_array().unwrap();
        titles.extend(entries.iter().map(|entry| entry["title"].as_str().unwrap().to_string()));
        let links = page["links"].as_array().unwrap();
        let next = links.iter().find(|link| link["relation"] == relation);
        let Some(next) = next.filter(|_| !entries.is_empty()) else { return titles };
        path = next["uri"].as_str().unwrap().to_string();
    }
    panic!("the links have no end")
}

#[test]
fn links_lead_through_streams_views_and_all_events() {
    let server = TestServer::new();
    let address = server.address();
    for number in 0..7 {
        let event = NewEvent::json(server.store.new_id().unwrap(), "Opened", b"{}");
        let stream = format!("cart-{}", number % 2);
        server.store.append(&stream, ExpectedVersion::Any, &[event]).unwrap();
    }
    let titles = |numbers: &[u64], stream: &str| -> Vec<String> {
        numbers.iter().map(|number| format!("{number}@{stream}")).collect()
    };
    let newest = follow(address, "/streams/cart-0/head/backward/2", "next");
    assert_eq!(newest, titles(&[3, 2, 1, 0], "cart-0"));
    let oldest = follow(address, "/streams/cart-0/0/forward/3", "previous");
    let mut sorted = oldest.clone();
    sorted.sort();
    assert_eq!((oldest.len(), sorted), (4, titles(&[0, 1, 2, 3], "cart-0")));
    let all = follow(address, "/streams/$all/head/backward/3", "next");
    let forwards = follow(address, "/streams/%24all/0/forward/3", "previous");
    assert_eq!(all.iter().filter(|title| title.contains("@cart-")).count(), 7);
    let mut reversed = forwards.clone();
    reversed.reverse();
    assert_eq!(all, reversed);
    let view = get(address, "/streams/$ce-cart/0/forward/10").is(200);
    assert_eq!(view["entries"].as_array().unwrap().len(), 7);
    assert_eq!(view["entries"][6]["streamId"], "cart-0", "links are resolved");
    assert_eq!(view["entries"][6]["positionEventNumber"], 6);
    let unresolved = ["es-resolvelinktos: false"];
    let links = send(address, "GET", "/streams/$ce-cart/0/forward/1", &unresolved, b"").is(200);
    assert_eq!(links["entries"][0]["streamId"], "$ce-cart");
    // A page at the head is empty, and its link polls for newer events.
    let polled = get(address, "/streams/cart-0/4/forward/5").is(200);
    assert_eq!(polled["entries"], json!([]));
    let previous =
        polled["links"].as_array().unwrap().iter().find(|it| it["relation"] == "previous");
    assert_eq!(previous.unwrap()["uri"], "/streams/cart%2D0/4/forward/5");
    // KurrentDB's form of a position.
    let position = server.store.visible_position().0;
    let pair = format!("/streams/$all/{position:016x}{position:016x}/forward/1");
    assert_eq!(get(address, &pair).is(200)["entries"].as_array().unwrap().len(), 1);
}

#[test]
fn refused_stream_requests_name_the_remedy() {
    let server = TestServer::new();
    let address = server.address();
    let append =
        |headers: &[&str], body: &[u8]| send(address, "POST", "/streams/cart", headers, body);
    let typed = "kurrent-eventtype: Opened";
    for (headers, body, status, word) in [
        (&[JSON][..], &b"{}"[..], 400, "Kurrent-EventType"),
        (&[JSON, typed], b"{", 400, "JSON"),
        (&[JSON, typed, "es-eventid: 7"], b"{}", 400, "7"),
        (&[JSON, typed, "es-expectedversion: x"], b"{}", 400, "Kurrent-ExpectedVersion"),
        (&[typed], b"{}", 415, "application/json"),
        (&["content-type: text/xml", typed], b"{}", 415, "text/xml"),
        (&[EVENTS], b"{}", 400, "list of events"),
        (&[EVENTS], b"[]", 400, "no events"),
        (&[EVENTS], br#"[{"data":1}]"#, 400, "eventType"),
        (&[EVENTS], br#"[{"eventType":"a","date":1}]"#, 400, "date"),
        (&[EVENTS], br#"[{"eventType":"a","eventId":"b"}]"#, 400, "b"),
        (&[EVENTS, typed], br#"[{"eventType":"a"}]"#, 400, "its own eventType"),
    ] {
        let refused = append(headers, body).is(status);
        let message = refused["message"].as_str().unwrap();
        assert!(message.contains(word), "{message}");
    }
    append(&[JSON, typed], b"{}").is(201);
    let conflict = append(&[JSON, typed, "es-expectedversion: 7"], b"{}");
    for header in ["kurrent-currentversion: 0", "es-currentversion: 0"] {
        assert!(conflict.head.contains(header), "{}", conflict.head);
    }
    assert_eq!(conflict.is(409)["currentVersion"], 0);
    let conflict = append(&[JSON, typed, "es-expectedversion: -1"], b"{}").is(409);
    assert!(conflict["message"].as_str().unwrap().starts_with("Wrong expected"), "{conflict}");
    for accept in [
        "application/atom+xml",
        "application/vnd.kurrent.atom+json",
        "application/vnd.eventstore.atom+json; charset=utf-8",
        "text/html, application/xml",
    ] {
        let header = format!("accept: {accept}");
        let refused = send(address, "GET", "/streams/cart", &[&header], b"").is(406);
        assert!(refused["message"].as_str().unwrap().contains("application/json"), "{refused}");
    }
    let browser = ["accept: text/html,application/xhtml+xml,*/*;q=0.8"];
    assert_eq!(send(address, "GET", "/streams/cart", &browser, b"").status, 200);
    for wrong in [
        "/streams/cart/x/forward/1",
        "/streams/cart/0/up/1",
        "/streams/cart/0/forward/0",
        "/streams/cart/0/forward/5000",
        "/streams/cart?embed=all",
        "/streams/$all/-1/forward/1",
    ] {
        assert_eq!(get(address, wrong).is(400)["error"], "BadRequest", "{wrong}");
    }
    assert_eq!(get(address, "/streams/none").is(404)["error"], "NotFound");
    server.store.tombstone("cart", ExpectedVersion::Any).unwrap();
    assert_eq!(get(address, "/streams/cart").is(410)["error"], "StreamDeleted");
    assert_eq!(append(&[JSON, typed], b"{}").is(410)["error"], "StreamDeleted");
    assert_eq!(get(address, "/admin/nothing").is(404)["error"], "NotFound");
    let method = send(address, "PATCH", "/users/ada", &[], b"");
    assert!(method.head.contains("allow: get, head, put, delete"), "{method:?}");
    assert_eq!(method.is(405)["error"], "MethodNotAllowed");
}

/// Story: a stream could be appended to and read over HTTP, but not deleted.
#[test]
fn streams_are_deleted_and_tombstoned() {
    let server = TestServer::new();
    let address = server.address();
    let append = || {
        let headers = [JSON, "kurrent-eventtype: Opened"];
        send(address, "POST", "/streams/a%2Fb", &headers, b"{}").is(201)["lastEventNumber"].clone()
    };
    let delete = |headers: &[&str]| send(address, "DELETE", "/streams/a%2Fb", headers, b"");
    assert_eq!(delete(&[]).is(404)["error"], "NotFound");
    assert_eq!(append(), 0);
    for wrong in ["kurrent-harddelete: yes", "es-expectedversion: x"] {
        let refused = delete(&[wrong]).is(400);
        let name = if wrong.contains("hard") { "Kurrent-HardDelete" } else { "ExpectedVersion" };
        assert!(refused["message"].as_str().unwrap().contains(name), "{refused}");
    }
    let conflict = delete(&["ES-ExpectedVersion: 7"]);
    assert!(conflict.head.contains("es-currentversion: 0"), "{}", conflict.head);
    assert_eq!(conflict.is(409)["currentVersion"], 0);
    let deleted = delete(&["ES-ExpectedVersion: 0", "ES-HardDelete: false"]);
    assert_eq!((deleted.status, deleted.text()), (204, ""), "{deleted:?}");
    assert_eq!(get(address, "/streams/a%2Fb").status, 404);
    assert_eq!(delete(&[]).status, 204, "a deleted stream stays deleted");
    assert_eq!(append(), 1, "the next append continues the revisions");
    assert_eq!(delete(&["Kurrent-HardDelete: True"]).status, 204);
    assert_eq!(get(address, "/streams/a%2Fb").is(410)["error"], "StreamDeleted");
    assert_eq!(delete(&[]).is(410)["error"], "StreamDeleted");
    for name in ["$all", "$ce-cart", "$$a"] {
        let path = format!("/streams/{name}");
        assert_eq!(send(address, "DELETE", &path, &[], b"").is(400)["error"], "BadRequest");
    }
    let other_site = ["origin: http://evil.example"];
    assert_eq!(delete(&other_site).is(403)["error"], "AccessDenied");
}

/// Story: a delete of a missing stream that expected no stream was 409, since the last revision was
/// -1 (no stream). One that expected a deleted stream to exist was 410, as for a tombstoned stream.
#[test]
fn streams_that_do_not_exist_are_not_deleted() {
    let server = TestServer::new();
    let address = server.address();
    let delete = |stream: &str, headers: &[&str]| {
        send(address, "DELETE", &format!("/streams/{stream}"), headers, b"")
    };
    for expected in ["-2", "-1", "-4"] {
        let missing = delete("none", &[&format!("kurrent-expectedversion: {expected}")]);
        assert!(missing.head.contains("kurrent-currentversion: -1"), "{}", missing.head);
        let missing = missing.is(404);
        assert_eq!(
            (&missing["error"], &missing["currentVersion"]),
            (&json!("NotFound"), &json!(-1))
        );
    }
    let conflict = delete("none", &["kurrent-expectedversion: 3"]).is(409);
    assert_eq!(conflict["currentVersion"], -1);
    let hard = "kurrent-harddelete: true";
    delete("none", &[hard, "kurrent-expectedversion: -4"]).is(404);
    delete("none", &[hard, "kurrent-expectedversion: 3"]).is(409);
    assert_eq!(get(address, "/streams/none").status, 404, "nothing was tombstoned");
    assert_eq!(delete("none", &[hard]).status, 204, "a tombstone needs no stream");
    assert_eq!(delete("none", &["kurrent-expectedversion: -4"]).is(410)["error"], "StreamDeleted");
    for _ in 0..2 {
        let event = NewEvent::json(server.store.new_id().unwrap(), "Opened", b"{}");
        server.store.append("gone", ExpectedVersion::Any, &[event]).unwrap();
    }
    let conflict = delete("gone", &["kurrent-expectedversion: -1"]).is(409);
    assert_eq!(conflict["currentVersion"], 1);
    assert_eq!(delete("gone", &["kurrent-expectedversion: -4"]).status, 204);
    for headers in [&["kurrent-expectedversion: -4"][..], &["es-expectedversion: -4", hard]] {
        let deleted = delete("gone", headers).is(404);
        assert_eq!(deleted["currentVersion"], 1, "{deleted}");
    }
    for expected in ["-2", "-1"] {
        let header = format!("kurrent-expectedversion: {expected}");
        assert_eq!(delete("gone", &[&header]).status, 204, "a deleted stream stays deleted");
    }
}

/// Story: of two headers about the kind of a delete, the first one applied.
#[test]
fn headers_with_different_values_are_refused() {
    let server = TestServer::new();
    let address = server.address();
    let event = NewEvent::json(server.store.new_id().unwrap(), "Opened", b"{}");
    server.store.append("cart", ExpectedVersion::Any, &[event]).unwrap();
    let delete = |headers: &[&str]| send(address, "DELETE", "/streams/cart", headers, b"");
    for headers in [
        ["kurrent-harddelete: false", "kurrent-harddelete: true"],
        ["kurrent-harddelete: false", "es-harddelete: true"],
        ["es-expectedversion: 0", "kurrent-expectedversion: -2"],
    ] {
        let refused = delete(&headers).is(400);
        assert!(refused["message"].as_str().unwrap().contains("different values"), "{refused}");
    }
    let types = [JSON, "kurrent-eventtype: Opened", "es-eventtype: Closed"];
    send(address, "POST", "/streams/cart", &types, b"{}").is(400);
    // Story: the first media type decided, and an id in the path hid another one in the header.
    let octets = "content-type: application/octet-stream";
    let types = [JSON, octets, "kurrent-eventtype: Opened"];
    let refused = send(address, "POST", "/streams/cart", &types, b"{}").is(400);
    assert!(refused["message"].as_str().unwrap().contains("different values"), "{refused}");
    let (id, other) = (
        "3f2504e0-4f89-41d3-9a0c-0305e82c3301",
        "kurrent-eventid: 3f2504e0-4f89-41d3-9a0c-0305e82c3302",
    );
    let path = format!("/streams/cart/incoming/{id}");
    let head = [JSON, "kurrent-eventtype: Opened", other];
    let refused = send(address, "POST", &path, &head, b"{}").is(400);
    assert!(refused["message"].as_str().unwrap().contains("different ids"), "{refused}");
    let equal = ["kurrent-harddelete: false", "es-harddelete: false"];
    assert_eq!(delete(&equal).status, 204);
}

/// The deletes over HTTP have the permissions of the calls of clients.
#[test]
fn delete_over_http_needs_the_right_of_the_stream() {
    let server = TestServer::with_users();
    let address = server.address();
    let (admin, ada) = (authorization("admin:first"), authorization("ada:secret"));
    let fields = json!({ "loginName": "ada", "password": "secret" }).to_string();
    send(address, "POST", "/users", &[JSON, &admin], fields.as_bytes()).is(201);
    let metadata = br#"{"$acl":{"$d":"ops"}}"#;
    let event = NewEvent::json(server.store.new_id().unwrap(), "$metadata", metadata);
    server.store.append("$$guarded", ExpectedVersion::Any, &[event]).unwrap();
    for stream in ["guarded", "$scavenges-x"] {
        let event = NewEvent::json(server.store.new_id().unwrap(), "Opened", b"{}");
        server.store.append(stream, ExpectedVersion::Any, &[event]).unwrap();
    }
    let ops = authorization("ops:second");
    let delete = |stream: &str, user: &[&str]| {
        for hard in ["false", "true"] {
            let header = format!("kurrent-harddelete: {hard}");
            let headers = [user, &[&*header]].concat();
            let answer = send(address, "DELETE", &format!("/streams/{stream}"), &headers, b"");
            if answer.status != 204 {
                return answer.status;
            }
        }
        204
    };
    assert_eq!(delete("guarded", &[]), 401);
    assert_eq!(delete("guarded", &[&ada]), 403);
    assert_eq!(delete("$scavenges-x", &[&ops]), 403);
    assert_eq!(delete("guarded", &[&ops]), 204);
    assert_eq!(delete("$scavenges-x", &[&admin]), 204);
}

#[test]
fn hostile_bodies_are_refused() {
    let server = TestServer::new();
    let address = server.address();
    let long = vec![b' '; 70_000];
    let put = send(address, "PUT", "/subscriptions/a/b", &[JSON], &long);
    assert_eq!(put.is(413)["error"], "TooLarge");
    let typed = "kurrent-eventtype: Opened";
    let event = format!("\"{}\"", "x".repeat(9 << 20));
    let refused = send(address, "POST", "/streams/a", &[JSON, typed], event.as_bytes());
    assert!((400..500).contains(&refused.status), "{refused:?}");
    let many = format!("[{}1]", "1,".repeat(1 << 20));
    send(address, "POST", "/streams/a", &[EVENTS], many.as_bytes()).is(400);
    let deep = "[".repeat(100_000);
    for (kind, headers) in [("one", &[JSON, typed][..]), ("list", &[EVENTS])] {
        let refused = send(address, "POST", "/streams/a", headers, deep.as_bytes());
        assert_eq!(refused.status, 400, "{kind}");
    }
    // Errors repeat only the beginning of a long text.
    let text = "x".repeat(60_000);
    for body in [
        format!("\"{text}\""),
        format!("{{\"{text}\":1}}"),
        format!("[\"{text}\"]"),
        format!("[{{\"{text}\":1}}]"),
    ] {
        let refused = send(address, "POST", "/streams/a", &[EVENTS], body.as_bytes());
        assert!(refused.status == 400 && refused.body.len() < 1000, "{}", refused.body.len());
        let refused = send(address, "PUT", "/subscriptions/a/b", &[JSON], body.as_bytes());
        assert!(refused.status == 400 && refused.body.len() < 1000, "{}", refused.body.len());
    }
    // Half a body: nothing is appended.
    let mut stream = TcpStream::connect(address).unwrap();
    let fields = format!("host: {address}\r\n{JSON}\r\n{typed}\r\ncontent-length: 9\r\n");
    let head = format!("POST /streams/a HTTP/1.1\r\n{fields}\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(b"{}").unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(!answer.contains("201"), "{answer}");
    assert_eq!(get(address, "/streams/a").status, 404);
}

/// A page of another site could otherwise use a password that the browser has for the console.
#[test]
fn pages_of_other_sites_make_no_changes() {
    let server = TestServer::new();
    let address = server.address();
    let own = format!("origin: http://{address}");
    let shutdown = |headers: &[&str]| send(address, "POST", "/admin/scavenge", headers, b"");
    for refused in [
        &["origin: http://evil.example"][..],
        &["origin: null"],
        &["sec-fetch-site: cross-site"],
        &["sec-fetch-site: same-site"],
        &["host: evil.example"],
    ] {
        assert_eq!(shutdown(refused).is(403)["error"], "AccessDenied", "{refused:?}");
    }
    assert_eq!(shutdown(&[&own, "sec-fetch-site: same-origin"]).status, 200);
    assert_eq!(send(address, "GET", "/streams/a", &["host: evil.example"], b"").status, 403);
    // A preflight request of a browser is not granted.
    let preflight = send(address, "OPTIONS", "/streams/a", &["origin: http://evil.example"], b"");
    assert!(preflight.status == 405 && !preflight.head.contains("access-control"), "{preflight:?}");
}

/// The least role that each route requires: 0 anonymous, 1 a user, 2 `$ops`, 3 `$admins`.
const ROLES: [(&str, &str, &str, u8); 49] = [
    ("GET", "/health/live", "/health/live", 0),
    ("GET", "/health/ready", "/health/ready", 0),
    ("GET", "/ping", "/ping", 0),
    ("GET", "/info", "/info", 0),
    ("GET", "/gossip", "/gossip", 0),
    ("GET", "/openapi.json", "/openapi.json", 0),
    ("GET", "/stats", "/stats", 1),
    ("GET", "/metrics", "/metrics", 1),
    ("POST", "/admin/scavenge", "/admin/scavenge", 2),
    ("GET", "/admin/scavenge/current", "/admin/scavenge/current", 2),
    ("GET", "/admin/scavenge/last", "/admin/scavenge/last", 2),
    ("GET", "/admin/scavenge/history", "/admin/scavenge/history", 2),
    ("GET", "/admin/scavenge/{scavengeId}", "/admin/scavenge/7", 2),
    ("DELETE", "/admin/scavenge/{scavengeId}", "/admin/scavenge/7", 2),
    ("POST", "/admin/backup", "/admin/backup", 2),
    ("GET", "/admin/backup/history", "/admin/backup/history", 2),
    ("GET", "/admin/backup/{backupId}", "/admin/backup/7", 2),
    ("DELETE", "/admin/backup/{backupId}", "/admin/backup/7", 2),
    ("GET", "/auto-scavenge/enabled", "/auto-scavenge/enabled", 1),
    ("GET", "/auto-scavenge/status", "/auto-scavenge/status", 1),
    ("POST", "/auto-scavenge/configure", "/auto-scavenge/configure", 2),
    ("POST", "/auto-scavenge/pause", "/auto-scavenge/pause", 2),
    ("POST", "/auto-scavenge/resume", "/auto-scavenge/resume", 2),
    ("POST", "/admin/shutdown", "/admin/shutdown", 2),
    ("POST", "/admin/reloadconfig", "/admin/reloadconfig", 2),
    ("GET", "/users", "/users", 3),
    ("POST", "/users", "/users", 3),
    ("GET", "/users/$current", "/users/$current", 1),
    ("GET", "/users/{login}", "/users/eve", 3),
    ("PUT", "/users/{login}", "/users/eve", 3),
    ("DELETE", "/users/{login}", "/users/eve", 3),
    ("POST", "/users/{login}/command/enable", "/users/eve/command/enable", 3),
    ("POST", "/users/{login}/command/disable", "/users/eve/command/disable", 3),
    ("POST", "/users/{login}/command/reset-password", "/users/eve/command/reset-password", 3),
    ("POST", "/users/{login}/command/change-password", "/users/ada/command/change-password", 1),
    ("GET", "/subscriptions", "/subscriptions", 1),
    ("GET", "/subscriptions/{stream}", "/subscriptions/open", 1),
    ("GET", "/subscriptions/{stream}/{group}/info", "/subscriptions/open/g/info", 1),
    ("PUT", "/subscriptions/{stream}/{group}", "/subscriptions/open/g", 2),
    ("POST", "/subscriptions/{stream}/{group}", "/subscriptions/open/g", 2),
    (
        "POST",
        "/subscriptions/{stream}/{group}/replayParked",
        "/subscriptions/open/g/replayParked",
        2,
    ),
    ("DELETE", "/subscriptions/{stream}/{group}", "/subscriptions/open/g", 2),
    ("POST", "/subscriptions/restart", "/subscriptions/restart", 2),
    ("GET", "/streams/{stream}", "/streams/open", 1),
    ("GET", "/streams/{stream}/{event}", "/streams/open/0", 1),
    ("GET", "/streams/{stream}/{event}/{direction}/{count}", "/streams/$all/0/forward/1", 3),
    ("POST", "/streams/{stream}", "/streams/open", 1),
    (
        "POST",
        "/streams/{stream}/incoming/{eventId}",
        "/streams/$settings/incoming/7e7b9d3c-8a8c-4f2e-9d3a-0f3a1f1e7a11",
        3,
    ),
    ("DELETE", "/streams/{stream}", "/streams/open", 1),
];

#[test]
fn every_route_has_its_permission() {
    let server = TestServer::with(with_users());
    let address = server.address();
    let admin = authorization("admin:first");
    for login in ["ada", "eve"] {
        let fields = json!({ "loginName": login, "password": "secret" }).to_string();
        send(address, "POST", "/users", &[JSON, &admin], fields.as_bytes()).is(201);
    }
    let callers = [None, Some("ada:secret"), Some("ops:second"), Some("admin:first")];
    for (method, route, path, least) in ROLES {
        for (role, caller) in callers.iter().enumerate() {
            let authorized = caller.map(authorization);
            let mut headers = vec![JSON, "kurrent-eventtype: $settings"];
            headers.extend(authorized.as_deref());
            let answer = send(address, method, path, &headers, b"{}");
            let is_denied = matches!(answer.status, 401 | 403);
            let what = format!("{method} {route} as {caller:?}: {}", answer.status);
            assert_eq!(is_denied, role < least.into(), "{what}");
            assert!(answer.status < 500 || answer.status == 501, "{what}");
            let wanted = if caller.is_none() { 401 } else { 403 };
            if is_denied {
                // Story: both said "Access Denied", and the tip of the command line named $ops for
                // what only $admins may do.
                let reason = match (caller.is_none(), least) {
                    (true, _) => "authentication required",
                    (false, 2) => "requires a user in $ops or $admins",
                    (false, _) => "$admins",
                };
                assert!(answer.text().contains(reason), "{what}: {}", answer.text());
            }
            assert!(!is_denied || answer.status == wanted, "{what}");
            if is_denied && route != "/stats" && route != "/metrics" {
                assert_eq!(answer.json()["success"], false, "{what}");
            }
        }
    }
    // A wrong password is refused even where the role would be enough.
    let wrong = authorization("admin:guessed");
    let refused = send(address, "GET", "/users", &[&wrong], b"");
    assert!(refused.head.contains("www-authenticate: basic"), "{refused:?}");
    assert_eq!(refused.is(401)["error"], "Unauthorized");
}

/// Every route of the document has a row above, and every row a route.
#[test]
fn document_has_the_routes_with_permissions() {
    let server = TestServer::new();
    let document = get(server.address(), "/openapi.json").is(200);
    let mut routes: Vec<(String, String)> = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        let methods = methods.as_object().unwrap().keys();
        routes.extend(methods.map(|method| (method.to_ascii_uppercase(), path.clone())));
    }
    let mut rows: Vec<(String, String)> =
        ROLES.iter().map(|row| (row.0.to_string(), row.1.to_string())).collect();
    routes.sort();
    rows.sort();
    assert_eq!(routes, rows);
    for (method, _, path, _) in ROLES {
        let answer = send(server.address(), method, path, &[JSON], b"{}");
        let is_missing = answer.status == 404 && answer.text().contains("no route has this path");
        assert!(!is_missing && answer.status != 405, "{method} {path}");
    }
}

/// Story: an operator who appended over HTTP and in the console saw neither appends nor calls in
/// the metrics.
#[test]
fn appends_over_http_and_in_the_console_are_in_the_metrics() {
    let server = TestServer::new();
    let address = server.address();
    let kind = ["content-type: application/json", "Kurrent-EventType: t"];
    send(address, "POST", "/streams/s", &kind, b"{}").is(201);
    let id = "/streams/s/incoming/01234567-89ab-4cde-8f01-23456789abcd";
    send(address, "POST", id, &kind, b"{}").is(201);
    let expected = [kind[0], kind[1], "Kurrent-ExpectedVersion: 7"];
    send(address, "POST", "/streams/s", &expected, b"{}").is(409);
    let fields = json!({
        "stream": "s", "expected": "any", "type": "t", "data": "{}", "metadata": "", "isJson": true
    });
    let ours = [kind[0], "x-umbel-console: 1"];
    let append = "/console/api/append";
    send(address, "POST", append, &ours, fields.to_string().as_bytes()).is(200);
    send(address, "POST", append, &ours, b"{").is(400);
    assert_eq!(get(address, "/streams/s/0").status, 200);
    assert_eq!(get(address, "/streams/none/0").status, 404);
    let (incoming, console) =
        ("POST /streams/{stream}/incoming/{eventId}", "POST /console/api/append");
    let wanted = [
        ("append", "POST /streams/{stream}", "Ok"),
        ("append", "POST /streams/{stream}", "FailedPrecondition"),
        ("append", incoming, "Ok"),
        ("append", console, "Ok"),
        ("append", console, "InvalidArgument"),
        ("call", "POST /streams/{stream}", "Ok"),
        ("call", incoming, "Ok"),
        ("call", console, "InvalidArgument"),
        ("call", "GET /streams/{stream}/{event}", "Ok"),
        ("call", "GET /streams/{stream}/{event}", "NotFound"),
    ];
    let is_counted = |text: &str, (metric, call, code): &(&str, &str, &str)| {
        let labels = format!("{{call=\"{call}\",code=\"{code}\"}}");
        text.contains(&format!("umbel_{metric}_seconds_count{labels} 1\n"))
    };
    // A response's end is recorded after its last byte is passed on.
    let text = wait_for(|| {
        let text = get(address, "/metrics").text().to_string();
        wanted.iter().all(|it| is_counted(&text, it)).then(|| json!(text))
    });
    let text = text.as_str().unwrap();
    assert!(text.contains("umbel_events_appended_total 3\n"), "{text}");
    assert!(!text.contains("call=\"GET /metrics"), "pages are no calls");
}

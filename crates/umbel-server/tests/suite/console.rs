//! Tests of the console's pages and API: permissions, origins and hostile requests.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use serde_json::{Value, json};
use tonic::body::Body;
use tonic::client::GrpcService;
use umbel_events::{Direction, ExpectedVersion, NewEvent, Revision};
use umbel_server::Config;

use super::test_server::TestServer;
use umbel_testing::server_connection::Connection;

/// A response over HTTP/1.1: status, head and body.
#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{self:?}"))
    }
}

fn ask(address: SocketAddr, method: &str, path: &str, headers: &[&str], body: &str) -> Answer {
    let mut stream = TcpStream::connect(address).unwrap();
    let has_host = headers.iter().any(|header| header.starts_with("host:"));
    let host = if has_host { String::new() } else { format!("host: {address}\r\n") };
    let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    let length = body.len();
    let head = format!("{host}{headers}connection: close\r\ncontent-length: {length}\r\n");
    // Sent at once, even if not all of it is read: a refusal may precede the body.
    let request = format!("{method} {path} HTTP/1.1\r\n{head}\r\n{body}");
    let _ = stream.write_all(request.as_bytes());
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head: head.to_ascii_lowercase(), body: body.to_string() }
}

fn get(address: SocketAddr, path: &str) -> Answer {
    ask(address, "GET", path, &[], "")
}

const OURS: [&str; 2] = ["content-type: application/json", "x-umbel-console: 1"];

fn change(address: SocketAddr, name: &str, fields: &Value) -> Answer {
    ask(address, "POST", &format!("/console/api/{name}"), &OURS, &fields.to_string())
}

fn authorized(user: &str) -> String {
    format!("authorization: Basic {}", STANDARD.encode(user))
}

#[test]
fn pages_have_security_headers() {
    let server = TestServer::new();
    let address = server.address();
    for (path, kind) in [
        ("/console/", "text/html"),
        ("/console/console.css", "text/css"),
        ("/console/console.js", "text/javascript"),
        ("/console/api/overview", "application/json"),
    ] {
        let answer = get(address, path);
        assert_eq!(answer.status, 200, "{path}");
        for wanted in [
            &format!("content-type: {kind}")[..],
            "content-security-policy: default-src 'none'; script-src 'self';",
            "x-content-type-options: nosniff",
            "x-frame-options: deny",
            "referrer-policy: no-referrer",
        ] {
            assert!(answer.head.contains(wanted), "{path}: {wanted} is not in {}", answer.head);
        }
    }
    for path in ["/", "/console"] {
        let answer = get(address, path);
        assert!(answer.status == 303 && answer.head.contains("location: /console/"), "{answer:?}");
    }
    for path in ["/console/nothing", "/console/api/nothing", "/console/../etc/passwd"] {
        assert_eq!(get(address, path).status, 404, "{path}");
    }
    assert_eq!(ask(address, "DELETE", "/console/", &[], "").status, 405);
    assert_eq!(ask(address, "POST", "/console/api/overview", &OURS, "{}").status, 405);
    assert_eq!(get(address, "/console/api/append").status, 405);
}

/// Without this check, a page of another site could make a browser append, with the user's password
/// added by the browser.
#[test]
fn cross_origin_changes_are_rejected() {
    let server = TestServer::new();
    let address = server.address();
    let fields = json!({ "stream": "cart", "type": "Opened", "data": "{}" }).to_string();
    let post = |headers: &[&str]| ask(address, "POST", "/console/api/append", headers, &fields);
    let own = format!("origin: http://{address}");
    for refused in [
        &["content-type: application/json"][..],
        &["x-umbel-console: 1"],
        &["content-type: text/plain", "x-umbel-console: 1"],
        &["content-type: application/jsonx", "x-umbel-console: 1"],
        &["content-type: application/json-patch+json", "x-umbel-console: 1"],
        &[OURS[0], OURS[1], "origin: http://evil.example"],
        &[OURS[0], OURS[1], "origin: null"],
        &[OURS[0], OURS[1], &format!("origin: ftp://{address}")],
        &[OURS[0], OURS[1], "sec-fetch-site: cross-site"],
        &[OURS[0], OURS[1], "sec-fetch-site: same-site"],
    ] {
        assert_eq!(post(refused).status, 403, "{refused:?}");
    }
    assert_eq!(post(&[OURS[0], OURS[1], &own, "sec-fetch-site: same-origin"]).status, 200);
    let with_more = ["content-type: Application/JSON ; charset=utf-8", "x-umbel-console: 1"];
    assert_eq!(post(&with_more).status, 200);
    assert_eq!(get(address, "/console/api/stream?stream=cart").json()["state"]["last"], "1");
}

/// Story: a browser uses HTTP/2 if the server uses TLS, and in HTTP/2 the authority is no header.
/// So every change by a page was refused as cross-origin. A response to HEAD had a body, which
/// breaks the HTTP/2 stream.
#[test]
fn pages_make_changes_over_http2() {
    TestServer::new().run(async |_, server| {
        let address = server.address();
        let mut connection = Connection::to(address).await.unwrap();
        let mut ask = async |method: &str, path: &str, origin: String, fields: &Value| {
            let request = Request::builder()
                .method(method)
                .uri(format!("http://{address}{path}"))
                .header("content-type", "application/json")
                .header("x-umbel-console", "1")
                .header("origin", origin)
                .body(Body::new(Full::new(fields.to_string().into())));
            let answer = GrpcService::call(&mut connection, request.unwrap()).await.unwrap();
            let status = answer.status().as_u16();
            (status, answer.into_body().collect().await.unwrap().to_bytes().len())
        };
        let fields = json!({ "stream": "cart", "type": "Opened", "data": "{}" });
        let own = || format!("http://{address}");
        let append = "/console/api/append";
        assert_eq!(ask("POST", append, own(), &fields).await.0, 200);
        assert_eq!(ask("POST", append, "http://evil.example".to_string(), &fields).await.0, 403);
        for path in ["/console/", "/console/api/overview", "/stats", "/nothing"] {
            assert_eq!(ask("HEAD", path, own(), &json!({})).await.1, 0, "{path}");
            assert!(ask("GET", path, own(), &json!({})).await.1 > 0, "{path}");
        }
    });
}

/// If a foreign name resolves to this server, a page under that name has the same origin as the
/// console.
#[test]
fn foreign_host_is_rejected_without_authentication() {
    let config = Config { advertise: Some(("Store.example".to_string(), 7)), ..Config::default() };
    let server = TestServer::with(config);
    let status = |host: &str| {
        ask(server.address(), "GET", "/console/api/overview", &[&format!("host: {host}")], "")
            .status
    };
    // A browser sends names in lower case, whatever the option says.
    for allowed in
        ["localhost:1", "127.0.0.1", "[::1]:2113", "store.example", "STORE.example", "a.localhost"]
    {
        assert_eq!(status(allowed), 200, "{allowed}");
    }
    for refused in ["evil.example", "evil.example:2113", "localhost.evil.example"] {
        assert_eq!(status(refused), 403, "{refused}");
    }
    // A browser sends no password of another site.
    let server = TestServer::with_users();
    let headers = ["host: evil.example", &authorized("admin:first")];
    assert_eq!(ask(server.address(), "GET", "/console/", &headers, "").status, 200);
}

#[test]
fn console_requires_the_same_permissions_as_calls() {
    let server = TestServer::with_users();
    let address = server.address();
    let as_user = |user: &str, method: &str, path: &str, body: &str| {
        let authorization = authorized(user);
        ask(address, method, path, &[OURS[0], OURS[1], &authorization], body).status
    };
    for path in ["/console/", "/console/console.js", "/console/api/overview"] {
        let refused = get(address, path);
        assert!(
            refused.status == 401 && refused.head.contains("www-authenticate: basic"),
            "{path}"
        );
        assert_eq!(as_user("ops:wrong", "GET", path, ""), 401);
        assert_eq!(as_user("ops:second", "GET", path, ""), 200);
    }
    let user = json!({ "do": "create", "login": "ada", "password": "x" }).to_string();
    for (method, path, body, least) in [
        ("GET", "/console/api/all", "", "admin"),
        ("GET", "/console/api/tail", "", "admin"),
        ("GET", "/console/api/users", "", "admin"),
        ("POST", "/console/api/user", &user[..], "admin"),
        ("POST", "/console/api/scavenge", "{}", "ops"),
    ] {
        let of_ops = as_user("ops:second", method, path, body);
        assert_eq!(of_ops != 403, least == "ops", "{path}: {of_ops}");
        assert_eq!(as_user("admin:first", method, path, body), 200, "{path}");
    }
    // Ada exists now, and may read streams that permit it.
    let store = server.store.clone();
    let append = |stream: &str, data: &[u8]| {
        let event = NewEvent::json(store.new_id().unwrap(), "$metadata", data);
        store.append(stream, ExpectedVersion::Any, &[event]).unwrap();
    };
    append("$$hidden", br#"{"$acl":{"$r":["ops"],"$w":["ops"]}}"#);
    append("hidden", b"{}");
    append("open", b"{}");
    assert_eq!(as_user("ada:x", "GET", "/console/api/stream?stream=open", ""), 200);
    assert_eq!(as_user("ada:x", "GET", "/console/api/stream?stream=hidden", ""), 403);
    let fields = json!({ "stream": "hidden", "type": "T", "data": "{}" }).to_string();
    assert_eq!(as_user("ada:x", "POST", "/console/api/append", &fields), 403);
    assert_eq!(as_user("ada:x", "POST", "/console/api/replay", "{}"), 403);
}

/// Story: every user saw the names and states of all streams, which reveal the accounts and the
/// sales.
#[test]
fn stream_list_shows_only_readable_streams() {
    let server = TestServer::with_users();
    let listed = |user: &str, query: &str| {
        let path = format!("/console/api/streams?{query}");
        let answer = ask(server.address(), "GET", &path, &[&authorized(user)], "").json();
        let names = answer["streams"].as_array().unwrap().iter();
        let names: Vec<String> = names.map(|it| it["name"].as_str().unwrap().to_string()).collect();
        (names, answer["isWhole"] == true, answer["isCut"] == true)
    };
    let fields = json!({ "do": "create", "login": "ada", "password": "x" }).to_string();
    let headers = [OURS[0], OURS[1], &authorized("admin:first")];
    assert_eq!(ask(server.address(), "POST", "/console/api/user", &headers, &fields).status, 200);
    let append = |stream: &str, data: &[u8]| {
        let event = NewEvent::json(server.store.new_id().unwrap(), "$metadata", data);
        server.store.append(stream, ExpectedVersion::Any, &[event]).unwrap();
    };
    for number in 0..500 {
        let hidden = format!("deal-{number:03}");
        append(&format!("$${hidden}"), br#"{"$acl":{"$r":["ops"],"$mr":["ops"]}}"#);
        append(&hidden, b"{}");
        append(&format!("drop-{number:03}"), b"{}");
    }
    assert_eq!(listed("ada:x", "prefix=$user"), (vec![], true, false));
    assert_eq!(listed("ada:x", "prefix=deal"), (vec![], true, false));
    assert_eq!(listed("ada:x", "prefix=$$deal"), (vec![], true, false));
    assert!(listed("admin:first", "prefix=$user").0.len() > 2);
    assert_eq!(listed("ops:second", "prefix=deal").0.len(), 200);
    // Hidden names do not shorten a page.
    let (names, is_whole, is_cut) = listed("ada:x", "prefix=d");
    assert_eq!((names.len(), &*names[199], is_whole, is_cut), (200, "drop-199", false, false));
    let (names, is_whole, _) = listed("ada:x", "prefix=d&after=drop-399");
    assert_eq!((names.len(), &*names[99], is_whole), (100, "drop-499", true));
}

#[test]
fn appended_events_are_shown_with_any_content() {
    let server = TestServer::new();
    let address = server.address();
    let name = "<img src=x onerror=alert(1)> ü \" '";
    let fields = json!({
        "stream": name, "type": "</script>", "data": "{\"n\":1}", "metadata": "{\"a\":[]}",
        "expected": "none",
    });
    let done = change(address, "append", &fields);
    assert_eq!((done.status, &done.json()["revision"]), (200, &json!("0")));
    let again = change(address, "append", &fields);
    assert_eq!(again.status, 409, "it is there now: {again:?}");
    let large = vec![b'x'; 200_000];
    for data in [&[0xff, 0xfe, 0][..], &large, "é".repeat(40_000).as_bytes()] {
        let event = NewEvent::binary(server.store.new_id().unwrap(), "Odd", data);
        server.store.append(name, ExpectedVersion::Any, &[event]).unwrap();
    }
    let coded: String = name.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let path = format!("/console/api/stream?stream={coded}&direction=forwards");
    let shown = get(address, &path).json();
    let events = shown["events"].as_array().unwrap();
    assert_eq!(events.len(), 4);
    let data = |at: usize| events[at]["event"]["data"].clone();
    assert_eq!(data(0), json!({ "text": "{\"n\":1}", "bytes": 7 }));
    assert_eq!(data(1), json!({ "base64": "//4A", "bytes": 3, "isCut": false }));
    assert_eq!((&data(2)["bytes"], &data(2)["isCut"]), (&json!(200_000), &json!(true)));
    assert!(data(2)["text"].as_str().unwrap().len() <= 65_536);
    assert_eq!(data(3)["isCut"], true);
    let listed = get(address, "/console/api/streams?prefix=%3Cimg").json();
    assert_eq!(listed["streams"][0]["name"], name);
    for (wrong, why) in [
        (json!({}), "no stream"),
        (json!({ "stream": "a", "type": "T" }), "no data"),
        (json!({ "stream": "a", "type": "T", "data": "{" }), "the data is not valid JSON"),
        (json!({ "stream": "a", "type": "T", "data": "1", "metadata": "x" }), "metadata is not"),
        (json!({ "stream": "a", "type": "T", "data": "1", "expected": "soon" }), "expected must"),
        (json!({ "stream": "$all", "type": "T", "data": "1" }), "$all"),
        (json!([1, 2]), "no stream"),
        (json!({ "stream": 7, "type": "T", "data": "1" }), "stream must be a string"),
        (json!({ "stream": "a", "type": "T", "data": "1", "expected": [] }), "expected must be"),
        (json!({ "stream": "a", "type": "T", "data": "1", "metadata": {} }), "metadata must be"),
        (json!({ "stream": "a", "type": "T", "data": "1", "isJson": "no" }), "isJson must be"),
    ] {
        let refused = change(address, "append", &wrong);
        assert!(refused.status == 400 && refused.body.contains(why), "{why}: {refused:?}");
    }
    let broken = ask(address, "POST", "/console/api/append", &OURS, "{");
    assert!(broken.status == 400 && broken.body.contains("not valid JSON"), "{broken:?}");
    let long = "x".repeat(2 << 20);
    let refused = ask(address, "POST", "/console/api/append", &OURS, &long);
    assert_eq!(refused.status, 400, "{}", refused.head);
}

/// Story: the live page continued after the position of a link's target, so old events came again.
/// A link without a target ended the page, and a link in a system stream was shown.
#[test]
fn live_tail_continues_after_the_log_position_of_each_record() {
    let server = TestServer::new();
    let address = server.address();
    let tail = |query: &str| get(address, &format!("/console/api/tail?{query}")).json();
    let append = |stream: &str, kind: &str, data: &str| {
        let event = NewEvent::json(server.store.new_id().unwrap(), kind, data.as_bytes());
        server.store.append(stream, ExpectedVersion::Any, &[event]).unwrap().position.unwrap()
    };
    let first = append("cart-1", "Opened", "{}");
    let start = tail("count=20");
    assert_eq!((&start["isEnd"], &start["end"]), (&json!(true), &json!(first.to_string())));
    assert_eq!(start["next"], json!((first + 1).to_string()));
    for target in ["0@cart-1", "9@nothing", "no link"] {
        append("links", "$>", target);
        append("$hidden", "$>", target);
    }
    server.store.tombstone("cart-1", ExpectedVersion::Any).unwrap();
    let last = append("cart-2", "Closed", "{}");
    let (mut next, mut shown) = (start["next"].clone(), Vec::new());
    loop {
        let part = tail(&format!("count=2&from={}", next.as_str().unwrap()));
        shown.extend(part["events"].as_array().unwrap().clone());
        next = part["next"].clone();
        if part["isEnd"] == true {
            assert_eq!(part["end"], json!(last.to_string()));
            break;
        }
    }
    assert_eq!(next, json!((last + 1).to_string()));
    let columns = |key: &str| shown.iter().map(|event| event[key].clone()).collect::<Vec<_>>();
    assert_eq!(columns("stream"), ["links", "links", "links", "cart-1", "cart-2"]);
    assert_eq!(columns("revision")[3], "9223372036854775807");
    let none = Value::Null;
    assert_eq!(
        columns("linksTo")[..4],
        [json!("0@cart-1"), "9@nothing".into(), "no link".into(), none]
    );
    // Filters, and a cursor at the end.
    let next = start["next"].as_str().unwrap();
    let count =
        |query: &str| tail(&format!("{query}&from={next}"))["events"].as_array().unwrap().len();
    assert_eq!((count("system=yes"), count("stream=cart-"), count("type=Clo")), (8, 2, 1));
    assert_eq!((count("stream=cart-&type=Clo"), count("stream=$hid"), count("count=0")), (1, 3, 0));
    assert_eq!(
        get(address, "/console/api/stream?stream=cart-1").json()["state"]["is"],
        "tombstoned"
    );
    let refused = get(address, "/console/api/tail?system=maybe");
    assert!(refused.status == 400 && refused.body.contains("must be yes or no"), "{refused:?}");
}

/// Story: invalid parameters were misread: a missing name as the empty stream name, an unknown
/// direction as backwards, invalid UTF-8 as other letters.
#[test]
fn invalid_query_parameters_are_rejected() {
    let server = TestServer::new();
    let address = server.address();
    for (path, why) in [
        ("stream?stream=a&from=x", "from is x, but must be a number"),
        ("stream?stream=a&count=-1", "count is -1"),
        ("stream?stream=a&direction=sideways", "direction is sideways"),
        ("all?direction=Forwards", "must be forwards or backwards"),
        ("views?kind=colour", "must be category or type"),
        ("stream", "names no stream"),
        ("stream?stream=", "names no stream"),
        ("stream?name=a", "names no stream"),
        ("stream?stream=%ff", "not UTF-8"),
        ("streams?prefix=caf%e9", "not UTF-8"),
    ] {
        let refused = get(address, &format!("/console/api/{path}"));
        assert!(refused.status == 400 && refused.body.contains(why), "{path}: {refused:?}");
    }
    for path in ["stream?stream=a&direction=backwards", "all?direction=", "views?kind=type"] {
        assert_eq!(get(address, &format!("/console/api/{path}")).status, 200, "{path}");
    }
    for (user, why) in [
        (json!({ "groups": "$admins" }), "groups must be a list of strings"),
        (json!({ "groups": ["$ops", 7] }), "groups must be a list of strings"),
        (json!({ "password": 7 }), "password must be a string"),
    ] {
        let mut fields = json!({ "do": "create", "login": "ada", "password": "x" });
        fields.as_object_mut().unwrap().extend(user.as_object().unwrap().clone());
        let refused = change(address, "user", &fields);
        assert!(refused.status == 400 && refused.body.contains(why), "{why}: {refused:?}");
    }
}

/// Story: with `"expected": 7` an event was appended at any revision. `"metadata": {}` was ignored,
/// and `"groups": "readers"` created a user without groups.
#[test]
fn json_field_of_the_wrong_type_is_rejected() {
    let server = TestServer::new();
    let address = server.address();
    let event = |name: &str, value: Value| {
        let mut fields = json!({ "stream": "cart", "type": "T", "data": "1" });
        fields[name] = value;
        change(address, "append", &fields)
    };
    assert_eq!(event("expected", json!(7)).status, 409, "the stream is not there");
    assert_eq!(event("expected", Value::Null).status, 200);
    assert_eq!(event("expected", json!(0)).status, 200);
    for (name, value) in [
        ("expected", json!(-1)),
        ("expected", json!([0])),
        ("metadata", json!({ "a": 1 })),
        ("isJson", json!("false")),
        ("type", json!(7)),
        ("stream", json!(["cart"])),
    ] {
        let refused = event(name, value);
        assert!(refused.status == 400 && refused.body.contains("must be"), "{name}: {refused:?}");
    }
    assert_eq!(get(address, "/console/api/streams").json()["streams"][0]["last"], "1");
    for groups in [json!("readers"), json!(["readers", 7])] {
        let fields = json!({ "do": "create", "login": "ada", "password": "x", "groups": groups });
        let refused = change(address, "user", &fields);
        assert!(refused.status == 400 && refused.body.contains("a list of strings"), "{refused:?}");
    }
    assert_eq!(get(address, "/console/api/users").json()["users"], json!([]));
}

#[test]
fn backup_goes_only_to_the_configured_directory() {
    let without_backups = TestServer::new();
    let refused = change(without_backups.address(), "backup", &json!({}));
    assert!(refused.status == 409 && refused.body.contains("--backup-dir"), "{refused:?}");
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("copy");
    let server =
        TestServer::with(Config { backup_directory: Some(target.clone()), ..Config::default() });
    let address = server.address();
    let event = NewEvent::json(server.store.new_id().unwrap(), "Opened", b"{}");
    let done = server.store.append("cart", ExpectedVersion::Any, &[event]).unwrap();
    for _ in 0..2 {
        assert_eq!(change(address, "backup", &json!({})).status, 200);
        let backup = loop {
            let backup = get(address, "/console/api/overview").json()["backup"].clone();
            if backup["isRunning"] == false {
                break backup;
            }
        };
        assert_eq!(backup["error"], Value::Null, "{backup}");
        assert_eq!(backup["through"], json!(done.position.unwrap().to_string()));
    }
    let env = umbel_env::Env::system();
    umbel_events::verify_backup(&env, &target, umbel_events::CopyOptions::default()).unwrap();
    assert_eq!(change(address, "scavenge", &json!({})).status, 200);
    let scavenge = loop {
        let scavenge = get(address, "/console/api/overview").json()["scavenge"].clone();
        if scavenge["isDone"] == true {
            break scavenge;
        }
    };
    assert!(scavenge["id"].is_string());
}

/// Text in the events to remove.
const MARKER: &str = "Qx7vLw2pRz9kTm4s";

/// Names of the files in this directory that have the marker.
fn marked_files(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
        if entry.path().is_dir() {
            found.extend(marked_files(&entry.path()));
            continue;
        }
        let bytes = std::fs::read(entry.path()).unwrap();
        if bytes.windows(MARKER.len()).any(|part| part == MARKER.as_bytes()) {
            found.push(entry.path().display().to_string());
        }
    }
    found
}

fn append_marked(server: &TestServer, stream: &str) {
    let data = format!("\"{MARKER}\"");
    let event = NewEvent::json(server.store.new_id().unwrap(), "Opened", data.as_bytes());
    server.store.append(stream, ExpectedVersion::Any, &[event]).unwrap();
}

#[test]
fn scavenge_that_removes_all_reports_what_has_the_data() {
    let server = TestServer::new();
    let (address, directory) = (server.address(), server.store.path().to_path_buf());
    append_marked(&server, "gone");
    server.store.delete("gone", ExpectedVersion::Any).unwrap();
    let scavenge = |fields: Value| {
        assert!(change(address, "scavenge", &fields).json()["started"].is_string());
        loop {
            let scavenge = get(address, "/console/api/overview").json()["scavenge"].clone();
            if scavenge["isDone"] == true {
                break scavenge;
            }
        }
    };
    let plain = scavenge(json!({}));
    assert_eq!((&plain["removesAll"], &plain["hiddenEventsLeft"]), (&json!(false), &Value::Null));
    assert_ne!(marked_files(&directory), Vec::<String>::new());
    let removal = scavenge(json!({ "removeAll": true }));
    assert_eq!((&removal["removesAll"], &removal["hiddenEventsLeft"]), (&json!(true), &json!(0)));
    assert_eq!((&removal["filesKept"], &removal["filesWithOtherNames"]), (&json!([]), &json!([])));
    assert_eq!(marked_files(&directory), Vec::<String>::new());
    let refused = change(address, "scavenge", &json!({ "removeAll": "yes" }));
    assert!(refused.status == 400 && refused.body.contains("true or false"), "{refused:?}");
}

#[test]
fn operator_redacts_events_with_an_audit_event() {
    let server = TestServer::with_users();
    let (address, directory) = (server.address(), server.store.path().to_path_buf());
    append_marked(&server, "a@b");
    let post = |user: &str, fields: &str| {
        let headers = [OURS[0], OURS[1], &authorized(user)];
        ask(address, "POST", "/console/api/redact", &headers, fields)
    };
    let fields = json!({ "events": ["a@b@0"], "reason": "erasure request 17" }).to_string();
    assert_eq!(get(address, "/console/api/redact").status, 401);
    let ada = json!({ "do": "create", "login": "ada", "password": "x" }).to_string();
    let headers = [OURS[0], OURS[1], &authorized("admin:first")];
    assert_eq!(ask(address, "POST", "/console/api/user", &headers, &ada).status, 200);
    assert_eq!(post("ada:x", &fields).status, 403);
    assert_ne!(marked_files(&directory), Vec::<String>::new());
    let many = json!({ "events": vec!["a@b@0"; 1001] }).to_string();
    let long = json!({ "events": ["a@b@0"], "reason": "x".repeat(5000) }).to_string();
    let large = json!({ "events": ["a@b@0"], "reason": "x".repeat(256 << 10) }).to_string();
    for (wrong, why) in [
        ("{", "the request is invalid"),
        ("[]", "the request is invalid"),
        ("{}", "missing field `events`"),
        (r#"{"events":[]}"#, "the list of events is empty"),
        (r#"{"events":"a@b@0"}"#, "expected a list of at most 1000 strings"),
        (r#"{"events":[7]}"#, "expected a string"),
        (r#"{"events":["a@b@0"],"why":"x"}"#, "unknown field `why`"),
        (r#"{"events":["a"]}"#, "has no @"),
        (r#"{"events":["a@b@-1"]}"#, "has no revision"),
        (r#"{"events":["a@b@1"]}"#, "no event with revision 1"),
        (r#"{"events":["$users@0"]}"#, "system stream"),
        (&many, "more than 1000"),
        (&long, "5000 bytes"),
        (&large, "longer than 262144 bytes"),
    ] {
        let refused = post("ops:second", wrong);
        assert!(refused.status == 400 && refused.body.contains(why), "{why}: {refused:?}");
    }
    let done = post("ops:second", &fields);
    assert_eq!((done.status, &done.json()["eventsRedacted"]), (200, &json!(1)), "{done:?}");
    assert_eq!(done.json()["filesKept"], json!([]));
    assert_eq!(marked_files(&directory), Vec::<String>::new());
    let audit = server.store.read("$redactions", Revision::START, Direction::Forwards);
    let audit: Vec<_> = audit.map(|event| event.unwrap().data).collect();
    let audit: Value = serde_json::from_slice(&audit[0]).unwrap();
    assert_eq!((&audit["stream"], &audit["revision"]), (&json!("a@b"), &json!(0)));
    assert_eq!((&audit["user"], &audit["reason"]), (&json!("ops"), &json!("erasure request 17")));
    assert_eq!(post("ops:second", &fields).json()["eventsWithoutData"], 1);
}

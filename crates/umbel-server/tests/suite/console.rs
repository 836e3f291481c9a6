//! Tests of the console's pages and API: permissions, origins and hostile requests.

use std::io::{ErrorKind, Read, Write};
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
        ("GET", "/console/api/search?id=x", "", "admin"),
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
    assert_eq!(as_user("ada:x", "POST", "/console/api/change-group", "{}"), 403);
    for (stream, status) in [("open", 200), ("hidden", 403)] {
        let path = format!("/console/api/download?stream={stream}&revision=0");
        assert_eq!(as_user("ada:x", "GET", &path, ""), status, "{stream}");
    }
    for path in ["overview", "history", "groups", "levels", "advice", "views"] {
        let path = format!("/console/api/{path}");
        assert_eq!((get(address, &path).status, as_user("ada:x", "GET", &path, "")), (401, 200));
    }
}

/// Story: the page Users of an ordinary user said that the response was not from the server. The
/// function `isOwnLine` of the pages knows a refusal by these headers and its only line.
#[test]
fn refusals_in_text_are_lines_that_the_pages_show() {
    let server = TestServer::with_users();
    let ops = authorized("ops:second");
    let (anonymous, known): (&[&str], &[&str]) = (&[], &[&ops]);
    for (method, path, headers, status, reason) in [
        ("GET", "users", known, 403, "Access Denied: the call requires a user in $admins"),
        ("GET", "users", anonymous, 401, "authentication required"),
        ("POST", "scavenge", known, 403, "only the console's own pages can make changes"),
        ("GET", "scavenge", known, 405, "this HTTP method is not allowed"),
    ] {
        let path = format!("/console/api/{path}");
        let refused = ask(server.address(), method, &path, headers, "");
        let line = refused.body.trim();
        assert!(refused.status == status && line.starts_with(reason), "{path}: {refused:?}");
        for header in ["content-type: text/plain; charset=utf-8", "cache-control: no-store"] {
            assert!(refused.head.contains(header), "{header}: {refused:?}");
        }
        assert!(line.len() <= 500 && !line.contains(['<', '\n']), "{line}");
    }
}

/// Statuses of a request by an anonymous caller, a user, an operator and an administrator.
type Statuses = [u16; 4];

#[test]
fn each_endpoint_has_its_permissions() {
    const ALL: Statuses = [401, 200, 200, 200];
    const OPERATORS: Statuses = [401, 403, 200, 200];
    const ADMINS: Statuses = [401, 403, 403, 200];
    let server = TestServer::with_users();
    let address = server.address();
    let send = |caller: Option<&str>, method: &str, path: &str, body: &str| {
        let login = caller.map(authorized);
        let headers = [Some(OURS[0]), Some(OURS[1]), login.as_deref()];
        let headers: Vec<&str> = headers.into_iter().flatten().collect();
        ask(address, method, path, &headers, body).status
    };
    let admin = |name: &str, body: Value| {
        let path = format!("/console/api/{name}");
        assert_eq!(send(Some("admin:first"), "POST", &path, &body.to_string()), 200, "{body}");
    };
    admin("user", json!({ "do": "create", "login": "ada", "password": "x" }));
    admin("change-group", json!({ "do": "create", "source": "open", "group": "g" }));
    let append = |stream: &str, data: &[u8]| {
        let event = NewEvent::json(server.store.new_id().unwrap(), "$metadata", data);
        server.store.append(stream, ExpectedVersion::Any, &[event]).unwrap();
    };
    append("$$hidden", br#"{"$acl":{"$r":["$ops"],"$w":["$ops"]}}"#);
    ["hidden", "open"].iter().for_each(|stream| append(stream, b"{}"));
    let callers = [None, Some("ada:x"), Some("ops:second"), Some("admin:first")];
    let to = |stream: &str| json!({ "stream": stream, "type": "T", "data": "{}" }).to_string();
    let (to_open, to_hidden, get, post) = (to("open"), to("hidden"), "GET", "POST");
    for (method, name, body, wanted) in [
        (get, "overview", "", ALL),
        (get, "history", "", ALL),
        (get, "streams", "", ALL),
        (get, "views", "", ALL),
        (get, "groups", "", ALL),
        (get, "group?source=open&group=g", "", ALL),
        (get, "levels", "", ALL),
        (get, "advice", "", ALL),
        (get, "stream?stream=open", "", ALL),
        (get, "stream?stream=hidden", "", OPERATORS),
        (get, "stream?stream=$users", "", ADMINS),
        (get, "download?stream=open&revision=0", "", ALL),
        (get, "download?stream=hidden&revision=0", "", OPERATORS),
        (get, "all", "", ADMINS),
        (get, "tail", "", ADMINS),
        (get, "search?id=x", "", ADMINS),
        (get, "users", "", ADMINS),
        (get, "work", "", ALL),
        (post, "append", &to_open, ALL),
        (post, "append", &to_hidden, OPERATORS),
        (post, "replay", r#"{"source":"open","group":"g"}"#, OPERATORS),
        // Statuses above 400 and below 500, but 401 and 403, say that the caller was admitted.
        (post, "change-group", "{}", [401, 403, 400, 400]),
        (post, "stop-scavenge", "{}", [401, 403, 400, 400]),
        (post, "redact", "{}", [401, 403, 400, 400]),
        (post, "backup", "{}", [401, 403, 409, 409]),
        (post, "stop-backup", "{}", [401, 403, 400, 400]),
        (post, "scavenge", "{}", OPERATORS),
        (post, "auto-scavenge", "{}", OPERATORS),
        (post, "user", "{}", [401, 403, 403, 400]),
        (post, "password", "{}", [401, 400, 400, 400]),
        (post, "nothing", "{}", [401, 403, 403, 404]),
    ] {
        let path = format!("/console/api/{name}");
        let statuses = callers.map(|caller| send(caller, method, &path, body));
        assert_eq!(statuses, wanted, "{name} {body}");
    }
    for file in ["", "console.css", "console.js", "live.js", "page.js", "uplot.js"] {
        let path = format!("/console/{file}");
        assert_eq!(callers.map(|caller| send(caller, get, &path, "")), ALL, "{path}");
    }
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
    // A list of all streams ended at 10,000 hidden system streams.
    for number in 0..10_000 {
        append(&format!("$$a-{number}"), br#"{"$acl":{"$mr":["ops"]}}"#);
    }
    append("#1", b"{}");
    let first = "drop-000".to_string();
    assert_eq!(listed("ada:x", "count=2&after=%23"), (vec!["#1".into()], false, true));
    assert_eq!(listed("ada:x", "count=2&system=no"), (vec!["#1".into(), first], false, false));
    let all = listed("ops:second", "system=no&prefix=$");
    assert_eq!(all, (vec![], true, false), "system streams are not wanted");
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

#[test]
fn whole_data_of_an_event_can_be_downloaded() {
    let server = TestServer::new();
    let address = server.address();
    let mut large = vec![b'x'; (8 << 20) - 1024];
    large.extend([0xff, 0xfe]);
    let id = || server.store.new_id().unwrap();
    let events = [NewEvent::binary(id(), "Odd", &large), NewEvent::json(id(), "$>", b"0@big")];
    server.store.append("big", ExpectedVersion::Any, &events[..1]).unwrap();
    server.store.append("\"lin\r\nk/ü", ExpectedVersion::Any, &events[1..]).unwrap();
    let download = |query: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        let path = format!("/console/api/download?{query}");
        let request =
            format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
        let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
        (head, answer.split_off(end + 4))
    };
    for (query, name) in [
        ("stream=big&revision=0", "big-0.bin"),
        ("stream=%22lin%0D%0Ak%2F%C3%BC&revision=0", "_lin__k__-0.bin"),
    ] {
        let (head, body) = download(query);
        assert!(body == large, "{query}: {} bytes, {head}", body.len());
        assert!(head.contains("content-type: application/octet-stream"), "{head}");
        let wanted = format!("content-disposition: attachment; filename=\"{name}\"");
        assert!(head.contains(&wanted), "{head}");
    }
    assert_eq!(download("stream=big&revision=0&part=metadata").1, b"");
    for (query, status) in [
        ("stream=big&revision=1", 404),
        ("stream=none&revision=0", 404),
        ("stream=big", 400),
        ("stream=big&revision=0&part=all", 400),
        ("revision=0", 400),
    ] {
        assert_eq!(
            get(address, &format!("/console/api/download?{query}")).status,
            status,
            "{query}"
        );
    }
}

#[test]
fn events_are_found_by_their_ids() {
    let server = TestServer::new();
    let address = server.address();
    let mut cause = String::new();
    for number in 0..40_000_u64 {
        let metadata = match number {
            7 | 39_999 => format!("{{\"$correlationId\":\"c-1\",\"$causationId\":\"{cause}\"}}"),
            8 => "not JSON".to_string(),
            _ => String::new(),
        };
        let id = server.store.new_id().unwrap();
        if number == 3 {
            cause = id.to_string();
        }
        let event = NewEvent {
            id,
            kind: "Counted",
            is_json: true,
            data: b"{}",
            metadata: metadata.as_bytes(),
        };
        server.store.append(&format!("s-{}", number % 3), ExpectedVersion::Any, &[event]).unwrap();
    }
    let search = |query: &str| {
        let (mut before, mut found, mut requests) = (String::new(), Vec::new(), 0);
        loop {
            let part = get(address, &format!("/console/api/search?{query}&before={before}")).json();
            found.extend(part["events"].as_array().unwrap().clone());
            requests += 1;
            if part["isEnd"] == true {
                break (found, requests);
            }
            before = part["before"].as_str().unwrap().to_string();
        }
    };
    let places = |found: &[Value]| -> Vec<(Value, Value)> {
        found.iter().map(|event| (event["stream"].clone(), event["revision"].clone())).collect()
    };
    let both = vec![(json!("s-0"), json!("13333")), (json!("s-1"), json!("2"))];
    let (found, requests) = search("correlation=c-1");
    assert_eq!((places(&found), requests), (both.clone(), 2), "the search is bounded");
    assert_eq!(places(&search(&format!("causation={cause}")).0), both);
    assert_eq!(places(&search(&format!("id={cause}")).0), [(json!("s-0"), json!("1"))]);
    assert_eq!(search("id=none").0, Vec::<Value>::new());
    assert_eq!(get(address, "/console/api/search").status, 400);
}

#[test]
fn groups_are_created_changed_listed_with_their_lag_and_deleted() {
    let server = TestServer::new();
    let address = server.address();
    let post = |fields: Value| change(address, "change-group", &fields);
    let event = NewEvent::json(server.store.new_id().unwrap(), "Opened", b"{}");
    server.store.append("cart-1", ExpectedVersion::Any, &[event]).unwrap();
    let start = json!({ "startFrom": "start", "maxRetryCount": 3 });
    for (source, group) in [("cart-1", "a/b::ü"), ("$ce-cart", "view"), ("$all", "all")] {
        let fields = json!({ "do": "create", "source": source, "group": group, "settings": start });
        assert_eq!(post(fields.clone()).status, 200, "{group}");
        assert_eq!(post(fields).status, 409, "{group} exists");
    }
    let listed = get(address, "/console/api/groups").json();
    assert_eq!((&listed["total"], &listed["isWhole"]), (&json!(3), &json!(true)));
    let groups = listed["groups"].as_array().unwrap();
    let of = |group: &str| groups.iter().find(|one| one["group"] == group).unwrap();
    assert_eq!((&of("a/b::ü")["lagEvents"], &of("view")["lagEvents"]), (&json!("1"), &json!("1")));
    assert!(of("all")["lagEvents"].is_null() && of("all")["lagBytes"].as_u64().is_some());
    assert_eq!(listed["largestLagEvents"]["lag"], "1");
    assert_eq!(listed["largestLagEvents"]["source"], "$ce-cart", "the first one by name");
    assert_eq!(listed["largestLagBytes"]["group"], "all");
    assert_eq!(get(address, "/console/api/groups?search=cart").json()["found"], 2);
    assert_eq!(
        get(address, "/console/api/groups?skip=2").json()["groups"].as_array().unwrap().len(),
        1
    );
    let settings = json!({ "startFrom": "end", "consumerStrategy": "Pinned", "readBatchSize": 30 });
    let update = json!({ "do": "update", "source": "$all", "group": "all", "settings": settings });
    assert_eq!(post(update).status, 200);
    let shown = get(address, "/console/api/group?source=$all&group=all").json()["settings"].clone();
    assert_eq!(
        (&shown["consumerStrategy"], &shown["readBatchSize"]),
        (&json!("Pinned"), &json!(30))
    );
    for (wrong, why) in [
        (json!({ "do": "create", "source": "", "group": "g" }), "names no stream"),
        (json!({ "do": "create", "source": "s", "group": "" }), "names no group"),
        (json!({ "do": "make", "source": "s", "group": "g" }), "not an action on groups"),
        (json!({ "do": "create", "source": "s" }), "missing field `group`"),
        (json!({ "do": "create", "source": "s", "group": "g", "x": 1 }), "unknown field"),
        (
            json!({ "do": "create", "source": "s", "group": "g",
                "settings": { "startFrom": "x" } }),
            "starts from x",
        ),
        (
            json!({ "do": "create", "source": "$all", "group": "g",
                "settings": { "filterBy": "type", "filterRegex": "(" } }),
            "(",
        ),
        (
            json!({ "do": "create", "source": "s", "group": "g",
                "settings": { "liveBufferSize": -1 } }),
            "live buffer size is -1",
        ),
    ] {
        let refused = post(wrong);
        assert!(
            (400..500).contains(&refused.status) && refused.body.contains(why),
            "{why}: {refused:?}"
        );
    }
    let delete = json!({ "do": "delete", "source": "cart-1", "group": "a/b::ü" });
    assert_eq!((post(delete.clone()).status, post(delete).status), (200, 404));
    assert_eq!(get(address, "/console/api/groups").json()["total"], 2);
}

/// Story: the page of a view offered to append an event, which no view accepts.
#[test]
fn page_of_a_view_says_that_it_is_one() {
    let server = TestServer::new();
    let page = |name: &str| get(server.address(), &format!("/console/api/stream?stream={name}"));
    for (name, is_view) in [("cart-1", false), ("$ce-cart", true)] {
        assert_eq!(page(name).json()["isView"], is_view, "{name}");
    }
}

/// Story: neither the page of a group nor `info` of the HTTP API showed the filter.
#[test]
fn filter_of_a_group_is_shown_and_kept_by_updates() {
    let server = TestServer::new();
    let address = server.address();
    let send = |what: &str, settings: &Value| {
        let group = json!({ "do": what, "source": "$all", "group": "g", "settings": settings });
        assert_eq!(change(address, "change-group", &group).status, 200, "{what}");
    };
    let filter = json!({ "by": "stream", "regex": "^cart-", "prefixes": [] });
    send("create", &json!({ "filterBy": "stream", "filterRegex": "^cart-" }));
    for _ in 0..2 {
        let page = get(address, "/console/api/group?source=$all&group=g").json();
        assert_eq!(page["filter"], filter);
        let info = get(address, "/subscriptions/%24all/g/info").json();
        assert_eq!(info["filter"], filter);
        send("update", &json!({ "maxRetryCount": 3 }));
    }
    let stream = json!({ "do": "create", "source": "cart-1", "group": "g" });
    assert_eq!(change(address, "change-group", &stream).status, 200);
    for path in ["/console/api/group?source=cart-1&group=g", "/subscriptions/cart-1/g/info"] {
        let shown = get(address, path).json();
        assert_eq!(shown.get("filter"), Some(&Value::Null), "{path}");
    }
}

#[test]
fn users_change_their_own_passwords_with_the_current_one() {
    let server = TestServer::with_users();
    let post = |user: &str, name: &str, fields: Value| {
        let headers = [OURS[0], OURS[1], &authorized(user)];
        let path = format!("/console/api/{name}");
        ask(server.address(), "POST", &path, &headers, &fields.to_string()).status
    };
    let ada = json!({ "do": "create", "login": "ada", "password": "x" });
    assert_eq!(post("admin:first", "user", ada), 200);
    let wrong = json!({ "currentPassword": "y", "password": "z" });
    assert_eq!(post("ada:x", "password", wrong), 403);
    assert_eq!(post("ada:x", "password", json!({ "password": "z" })), 400);
    let own = json!({ "currentPassword": "x", "password": "z" });
    assert_eq!(post("ada:x", "password", own.clone()), 200);
    assert_eq!(
        (post("ada:x", "password", own.clone()), post("ada:z", "password", own)),
        (401, 403)
    );
    let reset = json!({ "do": "reset-password", "login": "ada", "password": "w" });
    assert_eq!(
        (post("ada:z", "user", reset.clone()), post("admin:first", "user", reset)),
        (403, 200)
    );
    let update = json!({ "do": "update", "login": "ada", "fullName": "Ada L", "groups": ["$ops"] });
    assert_eq!(post("admin:first", "user", update), 200);
    let headers = [&*authorized("admin:first")];
    let found = ask(server.address(), "GET", "/console/api/users?login=ada", &headers, "").json();
    assert_eq!(
        (&found["users"][0]["fullName"], &found["users"][1]),
        (&json!("Ada L"), &Value::Null)
    );
    // A server without users has no passwords to change.
    let open = TestServer::new();
    let fields = json!({ "currentPassword": "", "password": "z" });
    assert_eq!(change(open.address(), "password", &fields).status, 409);
}

#[test]
fn history_has_samples_and_the_overview_has_the_state() {
    let server = TestServer::new();
    let address = server.address();
    let history = get(address, "/console/api/history?minutes=15").json();
    assert_eq!(history["seconds"], 5);
    for name in ["eventsAppended", "eventsRead", "appendP50", "appendP999", "diskAvailable"] {
        assert!(history["series"][name].is_array(), "{name}: {history}");
    }
    assert_eq!(get(address, "/console/api/history?minutes=99999").json()["seconds"], 60);
    assert_eq!(get(address, "/console/api/history?minutes=x").status, 400);
    let overview = get(address, "/console/api/overview").json();
    assert!(overview["disk"]["availableBytes"].as_u64().unwrap() > 0, "{overview}");
    assert!(overview["process"]["startedMicros"].as_u64().unwrap() > 0, "{overview}");
    assert_eq!(overview["failure"], Value::Null);
}

#[test]
fn streams_are_found_by_a_part_of_their_names() {
    let server = TestServer::new();
    for number in 0..300 {
        let event = NewEvent::json(server.store.new_id().unwrap(), "T", b"{}");
        server.store.append(&format!("cart-{number}"), ExpectedVersion::Any, &[event]).unwrap();
    }
    let listed = |query: &str| {
        let found = get(server.address(), &format!("/console/api/streams?{query}")).json();
        let streams = found["streams"].as_array().unwrap();
        let names: Vec<_> = streams.iter().map(|one| one["name"].clone()).collect();
        (names, found["isWhole"] == true, found["lastExamined"].clone())
    };
    assert_eq!(listed("contains=t-299").0, ["cart-299"]);
    assert_eq!(listed("contains=99").0, ["cart-199", "cart-299", "cart-99"]);
    assert_eq!(listed("contains=99&prefix=cart-2").0, ["cart-299"]);
    assert_eq!(listed("contains=nothing").0.len(), 0);
    let (names, is_whole, last) = listed("contains=cart");
    assert_eq!((names.len(), is_whole), (200, false));
    let rest = listed(&format!("contains=cart&after={}", last.as_str().unwrap()));
    assert_eq!((rest.0.len(), rest.1), (100, true));
    let all = listed("count=9999");
    assert_eq!((all.0.len(), all.1), (300, true));
    assert_eq!(listed("count=1&prefix=cart-2").0, ["cart-2"]);
    let found = get(server.address(), "/console/api/streams?prefix=cart-299").json();
    let stream = json!({ "name": "cart-299", "state": "live", "first": "0", "last": "0" });
    assert_eq!(found["streams"], json!([stream]));
    let views = get(server.address(), "/console/api/views?kind=type&count=0").json();
    assert_eq!((&views["views"][0]["name"], &views["isWhole"]), (&"T".into(), &false.into()));
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
        ("streams?count=x", "count is x"),
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
        let through: u64 = backup["through"].as_str().unwrap().parse().unwrap();
        assert!(through >= done.position.unwrap(), "{backup}");
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
        // The open store may remove a file after it was listed, such as a table of its index.
        let bytes = match std::fs::read(entry.path()) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            read => read.unwrap(),
        };
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

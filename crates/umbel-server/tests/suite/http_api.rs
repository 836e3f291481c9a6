//! Tests of the HTTP API for operators and scripts: requests, permissions, users and groups.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use super::http_client::{EVENTS, JSON, authorization, get, post, send, wait_for};
use super::test_server::{TestServer, with_users};

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
const ROLES: [(&str, &str, &str, u8); 50] = [
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
    ("POST", "/admin/promote", "/admin/promote", 2),
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

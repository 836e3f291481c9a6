//! Tests of streams over the HTTP API: appends, reads, links and deletes.

use std::net::SocketAddr;

use serde_json::{Value, json};
use umbel_events::{ExpectedVersion, NewEvent};

use super::http_client::{EVENTS, JSON, authorization, get, send};
use super::test_server::TestServer;

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

//! The S3 backend against answers of a server that the test writes.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use umbel_env::{Creation, CreationRequest, Env, ObjectErrorKind, ObjectName, Objects};
use umbel_objects::{Variables, open_with};

use super::stand_in::{DATE_MICROS, StandIn, answer, error};

/// Starts a server that sends the same answer to each request, and then closes the connection. An
/// empty answer is a cut connection.
fn server(answer: &str) -> (Arc<dyn Objects>, Arc<StandIn>) {
    let answer = answer.to_owned();
    let server = StandIn::start(move |_| answer.clone());
    (open(&server.endpoint()), server)
}

fn open(endpoint: &str) -> Arc<dyn Objects> {
    let variables = Variables::new([
        ("AWS_ENDPOINT_URL", endpoint),
        ("AWS_ACCESS_KEY_ID", "id"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
    ]);
    open_with(&Env::system(), "s3://bucket/some/prefix", &variables).unwrap()
}

fn name(text: &str) -> ObjectName {
    ObjectName::new(text).unwrap()
}

#[test]
fn creation_is_conditional_signed_and_has_the_time_of_the_store() {
    let (store, received) = server(&answer("200 OK", "ETag: \"x\"\r\n", ""));
    assert_eq!(store.location(), "s3://bucket/some/prefix");
    let created = store.create(&name("slots/1"), b"bytes").unwrap();
    assert_eq!((created.value, created.store_micros), (Creation::Created, Some(DATE_MICROS)));
    let received = received.requests();
    assert_eq!(received.len(), 1);
    assert_eq!(received[0].body, b"bytes");
    let head = &received[0].head;
    assert!(head.starts_with("put /bucket/some/prefix/slots/1 http/1.1"), "{head}");
    assert!(head.contains("if-none-match: *") && head.contains("aws4-hmac-sha256"), "{head}");
}

#[test]
fn each_answer_of_a_creation_has_its_outcome_and_is_sent_once() {
    let exists = [error("412 Precondition Failed", "PreconditionFailed")];
    let unknown = [
        error("409 Conflict", "ConditionalRequestConflict"),
        error("500 Internal Server Error", "InternalError"),
        error("503 Service Unavailable", "SlowDown"),
        error("429 Too Many Requests", "SlowDown"),
        String::new(),
        "HTTP/1.1 200 OK\r\nContent-Le".into(),
        "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ncut".into(),
        "no http at all\r\n\r\n".into(),
    ];
    let refused = [
        (error("403 Forbidden", "AccessDenied"), ObjectErrorKind::Denied, "s ahead of that"),
        (error("400 Bad Request", "ExpiredToken"), ObjectErrorKind::Denied, "s ahead of that"),
        (
            error("403 Forbidden", "RequestTimeTooSkewed"),
            ObjectErrorKind::Denied,
            "s ahead of that",
        ),
        (error("404 Not Found", "NoSuchBucket"), ObjectErrorKind::Refused, "create the bucket"),
        (error("501 Not Implemented", "NotImplemented"), ObjectErrorKind::Refused, "condition"),
        (error("301 Moved Permanently", ""), ObjectErrorKind::Refused, "AWS_REGION"),
    ];
    for text in &exists {
        let (store, received) = server(text);
        assert_eq!(store.create(&name("a"), b"x").unwrap().value, Creation::Exists);
        assert_eq!(received.requests().len(), 1);
    }
    for text in &unknown {
        let (store, received) = server(text);
        let outcome = store.create(&name("a"), b"x").unwrap().value;
        assert!(matches!(&outcome, Creation::Unknown(_)), "{text:?}: {outcome:?}");
        assert_eq!(received.requests().len(), 1, "{text:?}");
    }
    for (text, kind, words) in &refused {
        let (store, received) = server(text);
        let error = store.create(&name("a"), b"x").unwrap_err();
        assert_eq!(error.kind, *kind, "{text}: {error}");
        assert!(error.to_string().contains(words), "{error}");
        assert!(error.object == "s3://bucket/some/prefix/a", "{error}");
        assert!(!format!("{error:?}").contains("secret"), "{error:?}");
        assert_eq!(received.requests().len(), 1, "{text:?}");
    }
}

/// A request that never left has no effect.
#[test]
fn store_that_cannot_be_reached_has_no_effect() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let store = open(&endpoint);
    let error = store.create(&name("a"), b"x").unwrap_err();
    assert!(error.is_temporary() && error.cause.contains("refused"), "{error}");
    assert!(store.read(&name("a"), 0..9).unwrap_err().is_temporary());
    assert!(store.list("", None, 9).unwrap_err().is_temporary());
    assert!(store.delete(&name("a")).unwrap_err().is_temporary());
}

#[test]
fn slow_bodies_wait_and_overlap() {
    let (store, received) = server(&answer("200 OK", "ETag: \"x\"\r\n", ""));
    let request = |text: &str, millis| CreationRequest {
        name: name(text),
        bytes: b"0123456789".to_vec(),
        body_delay: Duration::from_millis(millis),
    };
    let clock = Env::system().clock;
    let requests = [request("slow", 400), request("slower", 500), request("fast", 0)];
    let outcomes = store.create_concurrently(&requests);
    let elapsed = clock.now();
    assert!((400..900).contains(&(elapsed.as_millis() as u64)), "{elapsed:?}");
    assert!(outcomes.iter().all(|o| o.as_ref().unwrap().value == Creation::Created));
    let received = received.requests();
    assert!(received[0].head.contains("/fast"), "{received:?}");
    assert!(received.iter().all(|request| request.body == b"0123456789"));
}

#[test]
fn reads_check_what_the_store_sends() {
    let part = |range: &str, body: &str| {
        let headers = format!(
            "Content-Range: bytes {range}\r\nETag: \"x\"\r\n\
             Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
        );
        answer("206 Partial Content", &headers, body)
    };
    let (store, received) = server(&part("2-4/10", "cde"));
    let found = store.read(&name("a"), 2..5).unwrap().value.unwrap();
    assert_eq!((found.bytes.as_slice(), found.object_bytes), (&b"cde"[..], 10));
    assert!(received.requests()[0].head.contains("range: bytes=2-4"));
    let (store, _) = server(&error("404 Not Found", "NoSuchKey"));
    assert_eq!(store.read(&name("a"), 0..9).unwrap().value, None);
    let (store, _) = server(&error("404 Not Found", "NoSuchBucket"));
    assert_eq!(store.read(&name("a"), 0..9).unwrap_err().kind, ObjectErrorKind::Refused);
    let past = "HTTP/1.1 416 Range Not Satisfiable\r\nContent-Range: bytes */10\r\n\
                Content-Length: 0\r\nConnection: close\r\n\r\n";
    let (store, _) = server(past);
    let found = store.read(&name("a"), 10..20).unwrap().value.unwrap();
    assert_eq!((found.bytes.len(), found.object_bytes), (0, 10));
    // A store that ignores ranges, one that sends too much, and one that sends other bytes.
    let whole = answer(
        "200 OK",
        "ETag: \"x\"\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
        "0123456789",
    );
    for wrong in [whole, part("2-4/10", "cdef"), part("3-5/10", "def"), part("2-3/10", "cd")] {
        let (store, _) = server(&wrong);
        let error = store.read(&name("a"), 2..5).unwrap_err();
        assert_eq!(error.kind, ObjectErrorKind::Damaged, "{wrong}: {error}");
    }
    let cut = part("2-4/10", "cde").replace("Content-Length: 3", "Content-Length: 4");
    let (store, _) = server(&cut);
    assert!(store.read(&name("a"), 2..5).unwrap_err().is_temporary());
}

/// One failure in hundreds of parts had all parts sent again, so large objects never got through a
/// store that refuses some requests.
#[test]
fn part_that_fails_is_repeated_without_the_other_parts() {
    let failures = AtomicU64::new(2);
    let received = StandIn::start(move |request| {
        let line = request.head.lines().next().unwrap_or_default().to_owned();
        let xml = |text: &str| answer("200 OK", "", text);
        if line.starts_with("post") && line.contains("uploads") {
            let id = "<UploadId>7</UploadId>";
            return xml(&format!(
                "<InitiateMultipartUploadResult>{id}</InitiateMultipartUploadResult>"
            ));
        }
        if line.starts_with("post") {
            let tag = "<ETag>\"all\"</ETag>";
            return xml(&format!(
                "<CompleteMultipartUploadResult>{tag}</CompleteMultipartUploadResult>"
            ));
        }
        let is_second = line.contains("partnumber=2");
        let left = failures.load(Ordering::Relaxed);
        if is_second && left > 0 {
            failures.store(left - 1, Ordering::Relaxed);
            return error("503 Service Unavailable", "SlowDown");
        }
        answer("200 OK", "ETag: \"part\"\r\n", "")
    });
    let bytes = vec![7; 17 << 20];
    open(&received.endpoint()).put(&name("chunks/1"), &bytes).unwrap();
    let sent = |number: &str| {
        let requests = received.requests();
        let parts = requests.iter().filter(|request| request.head.contains(number));
        parts.map(|request| request.body.len()).collect::<Vec<_>>()
    };
    assert_eq!(sent("partnumber=1&"), [8 << 20]);
    assert_eq!(sent("partnumber=2&"), [8 << 20; 3]);
    assert_eq!(sent("partnumber=3&"), [1 << 20]);
}

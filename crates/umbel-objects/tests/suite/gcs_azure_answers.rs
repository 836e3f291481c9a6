//! Google Cloud Storage and Azure against answers that the tests write.

use std::fs;
use std::sync::Arc;

use umbel_env::{Creation, Env, ObjectErrorKind, ObjectName, Objects};
use umbel_objects::{Variables, open_with};

use super::stand_in::{DATE_MICROS, StandIn, answer, error};

fn name(text: &str) -> ObjectName {
    ObjectName::new(text).unwrap()
}

fn open(url: &str, variables: &[(&str, &str)]) -> Arc<dyn Objects> {
    let variables = Variables::new(variables.iter().copied());
    open_with(&Env::system(), url, &variables).unwrap_or_else(|error| panic!("{error}"))
}

fn open_gcs(server: &StandIn) -> Arc<dyn Objects> {
    let endpoint = server.endpoint();
    open("gs://b/p", &[("GOOGLE_BASE_URL", &endpoint), ("GOOGLE_BEARER_TOKEN", "token")])
}

fn open_azure(server: &StandIn) -> Arc<dyn Objects> {
    let text = format!("AccountName=acct;AccountKey=a2V5;BlobEndpoint={}/acct", server.endpoint());
    open("az://c/p", &[("AZURE_STORAGE_CONNECTION_STRING", &text)])
}

fn repeating(text: &str) -> Arc<StandIn> {
    let text = text.to_owned();
    StandIn::start(move |_| text.clone())
}

/// The answer to a write in all protocols.
fn written() -> String {
    answer("201 Created", "ETag: \"x\"\r\nx-goog-generation: 1\r\n", "")
}

#[test]
fn creations_are_conditional_and_have_the_time_of_the_store() {
    let server = repeating(&written());
    for (store, line, condition, authorization) in [
        (
            open_gcs(&server),
            "put /b/p%2fslots%2f1 http/1.1",
            "x-goog-if-generation-match: 0",
            "authorization: bearer token",
        ),
        (
            open_azure(&server),
            "put /acct/c/p/slots/1 http/1.1",
            "if-none-match: *",
            "authorization: sharedkey acct:",
        ),
    ] {
        let created = store.create(&name("slots/1"), b"bytes").unwrap();
        assert_eq!((created.value, created.store_micros), (Creation::Created, Some(DATE_MICROS)));
        let request = server.requests().pop().unwrap();
        for expected in [line, condition, authorization] {
            assert!(request.head.contains(expected), "{expected}: {}", request.head);
        }
        assert_eq!(request.body, b"bytes");
    }
}

#[test]
fn each_answer_of_a_creation_has_its_outcome_and_is_sent_once() {
    type Open = fn(&StandIn) -> Arc<dyn Objects>;
    let open: [Open; 2] = [open_gcs, open_azure];
    let [gcs, azure] = open;
    for (open, answer) in [
        (gcs, error("412 Precondition Failed", "PreconditionFailed")),
        (azure, error("409 Conflict", "BlobAlreadyExists")),
        (azure, error("412 Precondition Failed", "ConditionNotMet")),
    ] {
        let server = repeating(&answer);
        let outcome = open(&server).create(&name("a"), b"x").unwrap().value;
        assert_eq!(outcome, Creation::Exists, "{answer}");
        assert_eq!(server.requests().len(), 1);
    }
    for (open, answer) in [
        (azure, error("409 Conflict", "ContainerBeingDeleted")),
        (azure, error("503 Service Unavailable", "ServerBusy")),
        (azure, String::new()),
        (gcs, error("409 Conflict", "Conflict")),
        (gcs, error("429 Too Many Requests", "SlowDown")),
        (gcs, String::new()),
    ] {
        let server = repeating(&answer);
        let outcome = open(&server).create(&name("a"), b"x").unwrap().value;
        assert!(matches!(outcome, Creation::Unknown(_)), "{answer}: {outcome:?}");
        assert_eq!(server.requests().len(), 1);
    }
    for (open, answer, kind, remedy) in [
        (
            azure,
            error("404 Not Found", "ContainerNotFound"),
            ObjectErrorKind::Refused,
            "create the container",
        ),
        (azure, error("403 Forbidden", "AuthenticationFailed"), ObjectErrorKind::Denied, "clock"),
        (
            gcs,
            error("404 Not Found", "NoSuchBucket"),
            ObjectErrorKind::Refused,
            "create the bucket",
        ),
        (gcs, error("403 Forbidden", "AccessDenied"), ObjectErrorKind::Denied, "clock"),
    ] {
        let server = repeating(&answer);
        let error = open(&server).create(&name("a"), b"x").unwrap_err();
        assert_eq!(error.kind, kind, "{error}");
        assert!(error.cause.contains(remedy), "{error}");
    }
}

/// Azurite answers a range that begins at the end of an object with a part without bytes. The probe
/// refused it as a store that breaks ranges.
#[test]
fn part_without_bytes_at_the_end_is_an_empty_range() {
    let part = |range: &str, body: &str| {
        let headers = "ETag: \"x\"\r\nLast-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
        answer("206 Partial Content", &format!("{headers}Content-Range: bytes {range}\r\n"), body)
    };
    let store = open_azure(&repeating(&part("10-9/10", "")));
    let found = store.read(&name("a"), 10..20).unwrap().value.unwrap();
    assert_eq!((found.bytes.len(), found.object_bytes), (0, 10));
    // Parts that contradict the range, or the length of the object.
    for wrong in [part("10-9/30", ""), part("10-9/*", ""), part("0-4/30", "01234")] {
        let store = open_azure(&repeating(&wrong));
        let error = store.read(&name("a"), 10..20).unwrap_err();
        assert_eq!(error.kind, ObjectErrorKind::Damaged, "{wrong}: {error}");
    }
}

/// Azurite begins each list at the first name. The page of the caller begins after its last one.
#[test]
fn lists_skip_pages_before_their_begin() {
    let page = |names: &[&str], marker: &str| {
        let blob = |name: &&str| {
            format!(
                "<Blob><Name>p/{name}</Name><Properties>\
                 <Last-Modified>Sun, 06 Nov 1994 08:49:37 GMT</Last-Modified>\
                 <Content-Length>1</Content-Length><Content-Type>x</Content-Type>\
                 <Etag>x</Etag></Properties></Blob>"
            )
        };
        let blobs: String = names.iter().map(blob).collect();
        let body = format!(
            "<?xml version=\"1.0\" encoding=\"utf-8\"?><EnumerationResults><Blobs>{blobs}</Blobs>\
             <NextMarker>{marker}</NextMarker></EnumerationResults>"
        );
        answer("200 OK", "Content-Type: application/xml\r\n", &body)
    };
    let pages = [page(&["a", "b"], "m1"), page(&["c", "d"], "m2"), page(&["e"], "")];
    let server = StandIn::start(move |request| {
        let at = ["marker=m1", "marker=m2"].iter().position(|m| request.head.contains(m));
        pages[at.map_or(0, |at| at + 1)].clone()
    });
    let store = open_azure(&server);
    let list = |after| {
        let page = store.list("", after, 2).unwrap().value;
        let names: Vec<String> = page.objects.iter().map(|o| o.name.to_string()).collect();
        (names, page.next_after)
    };
    let named = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    assert_eq!(list(None), (named(&["a", "b"]), Some("b".into())));
    assert_eq!(list(Some("b")), (named(&["c", "d"]), Some("d".into())));
    assert_eq!(list(Some("c")), (named(&["d"]), Some("d".into())));
    assert_eq!(list(Some("d")), (named(&["e"]), None));
    assert_eq!(list(Some("e")), (named(&[]), None));
}

#[test]
fn missing_credentials_name_the_places() {
    let server = repeating(&written());
    let endpoint = server.endpoint();
    let metadata = repeating(&answer("404 Not Found", "", ""));
    let place = metadata.endpoint();
    let azure = open(
        "az://c?account=acct",
        &[("AZURE_STORAGE_ENDPOINT", &endpoint), ("IDENTITY_ENDPOINT", &place)],
    );
    let error = azure.read(&name("a"), 0..9).map(|_| ()).unwrap_err();
    assert_eq!(error.kind, ObjectErrorKind::Denied);
    assert!(error.cause.contains("AZURE_STORAGE_ACCOUNT_KEY"), "{error}");
    assert!(server.requests().is_empty());
    let opened = open_with(&Env::system(), "az://c", &Variables::default());
    let error = opened.expect_err("no account").to_string();
    assert!(error.contains("AZURE_STORAGE_ACCOUNT_NAME"), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key.json");
    fs::write(&file, r#"{"type":"external_account"}"#).unwrap();
    let variables = Variables::new([("GOOGLE_APPLICATION_CREDENTIALS", file.to_str().unwrap())]);
    let opened = open_with(&Env::system(), "gs://b", &variables);
    let error = opened.expect_err("unknown credentials").to_string();
    assert!(error.contains("external_account"), "{error}");
}

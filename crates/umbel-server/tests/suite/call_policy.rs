//! Tests of the call policy: repeats every call with its permission, so that a changed row is
//! noticed.

use std::io::{Read, Write};
use std::net::TcpStream;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::stream;
use tonic::Code;

use super::client::Client;
use super::test_server::TestServer;
use super::users::create;

/// Least permission that a call requires; each permission includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Least {
    Anonymous,
    User,
    Operator,
    Admin,
}

use Least::{Admin, Anonymous, Operator, User};

const CALLS: &[(&str, &[(&str, Least)])] = &[
    (
        "event_store.client.streams.Streams",
        &[
            ("Read", User),
            ("Append", User),
            ("BatchAppend", User),
            ("Delete", User),
            ("Tombstone", User),
        ],
    ),
    (
        "kurrentdb.protocol.v2.streams.StreamsService",
        &[("AppendSession", User), ("AppendRecords", User)],
    ),
    (
        "event_store.client.persistent_subscriptions.PersistentSubscriptions",
        &[
            ("Create", Operator),
            ("Update", Operator),
            ("Delete", Operator),
            ("Read", User),
            ("GetInfo", User),
            ("ReplayParked", Operator),
            ("TruncateParked", Operator),
            ("List", User),
            ("RestartSubsystem", Operator),
        ],
    ),
    (
        "event_store.client.projections.Projections",
        &[
            ("Create", Operator),
            ("Update", Operator),
            ("Delete", Operator),
            ("Statistics", User),
            ("Disable", Operator),
            ("Enable", Operator),
            ("Reset", Operator),
            ("State", User),
            ("Result", User),
            ("RestartSubsystem", Operator),
        ],
    ),
    (
        "event_store.client.operations.Operations",
        &[
            ("StartScavenge", Operator),
            ("StopScavenge", Operator),
            ("Shutdown", Operator),
            ("MergeIndexes", Operator),
            ("ResignNode", Operator),
            ("SetNodePriority", Operator),
            ("RestartPersistentSubscriptions", Operator),
        ],
    ),
    (
        "event_store.client.users.Users",
        &[
            ("Create", Admin),
            ("Update", Admin),
            ("Delete", Admin),
            ("Disable", Admin),
            ("Enable", Admin),
            ("ResetPassword", Admin),
            ("ChangePassword", User),
            ("Details", User),
        ],
    ),
    ("event_store.client.monitoring.Monitoring", &[("Stats", User)]),
    ("event_store.client.server_features.ServerFeatures", &[("GetSupportedMethods", Anonymous)]),
    ("event_store.client.gossip.Gossip", &[("Read", Anonymous)]),
    (
        "umbel.kv.v1.KeyValue",
        &[
            ("Get", Operator),
            ("MultiGet", Operator),
            ("Put", Operator),
            ("Delete", Operator),
            ("Batch", Operator),
            ("Scan", Operator),
            ("Watch", Operator),
            ("ListKeyspaces", Operator),
            ("CreateKeyspace", Operator),
            ("DropKeyspace", Operator),
            ("NoSuchCall", Admin),
        ],
    ),
    ("grpc.reflection.v1.ServerReflection", &[("ServerReflectionInfo", User)]),
    ("grpc.reflection.v1alpha.ServerReflection", &[("ServerReflectionInfo", User)]),
    ("event_store.client.streams.Streams", &[("NoSuchCall", Admin)]),
    ("no.such.Service", &[("NoSuchCall", Admin)]),
];

/// Calls a method with an empty message, and returns the status.
async fn code(client: &Client, service: &str, method: &str) -> Code {
    let answers = client.streaming::<(), (), _>(service, method, stream::iter([()])).await;
    let ended = match answers {
        Ok(mut answers) => answers.message().await.map(drop),
        Err(status) => Err(status),
    };
    ended.err().map_or(Code::Ok, |status| status.code())
}

/// Clients with exactly these permissions.
fn callers(client: &Client) -> [(Least, Client); 4] {
    [
        (Anonymous, client.clone()),
        (User, client.with_user("ada", "third")),
        (Operator, client.with_user("ops", "second")),
        (Admin, client.with_user("admin", "first")),
    ]
}

#[test]
fn each_call_is_denied_only_to_unauthorized_users() {
    TestServer::with_users().run(async |client, _| {
        let admin = client.with_user("admin", "first");
        create(&admin, "ada", "third", &[]).await.unwrap();
        for (service, calls) in CALLS {
            for (method, least) in *calls {
                for (caller, client) in callers(&client) {
                    let code = code(&client, service, method).await;
                    // Each user may read its own details; without a name the call means all users.
                    let is_of_all = *method == "Details" && (User..Admin).contains(&caller);
                    let is_refused = code == Code::PermissionDenied;
                    let wanted = caller < *least || is_of_all;
                    assert_eq!(is_refused, wanted, "{service}/{method} by {caller:?}: {code:?}");
                    assert_ne!(code, Code::Unauthenticated, "{service}/{method} by {caller:?}");
                }
            }
        }
    });
}

/// Invalid credentials fail every call except public endpoints.
#[test]
fn invalid_credentials_fail_every_call() {
    TestServer::with_users().run(async |client, _| {
        for (login, password) in [("admin", "second"), ("unknown", "first"), ("", ""), ("$ops", "")]
        {
            let wrong = client.with_user(login, password);
            for (service, calls) in CALLS {
                for (method, least) in *calls {
                    let code = code(&wrong, service, method).await;
                    let is_refused = code == Code::Unauthenticated;
                    assert_eq!(is_refused, *least > Anonymous, "{service}/{method}: {code:?}");
                }
            }
        }
    });
}

#[test]
fn malformed_authorization_header_is_rejected() {
    TestServer::with_users().run(async |client, _| {
        let coded = |text: &[u8]| format!("Basic {}", STANDARD.encode(text));
        let long = format!("admin:{}", "x".repeat(2000));
        for header in [
            "Basic".to_string(),
            "Basic !!!!".to_string(),
            "Bearer abc".to_string(),
            String::new(),
            coded(b"admin"),
            coded(b"\xff:first"),
            coded(long.as_bytes()),
        ] {
            let odd = client.with_authorization(&header);
            let code = code(&odd, "event_store.client.monitoring.Monitoring", "Stats").await;
            assert_eq!(code, Code::Unauthenticated, "{header}");
        }
        for header in [coded(b"admin:first"), coded(b"admin:first").replace("Basic", "bAsIC")] {
            let right = client.with_authorization(&header);
            let code = code(&right, "event_store.client.operations.Operations", "MergeIndexes");
            assert_eq!(code.await, Code::Ok, "{header}");
        }
    });
}

/// Status line and head of the response to a request for this page.
fn page(server: &TestServer, path: &str, authorization: &str) -> String {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: a\r\n{authorization}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn pages_about_the_store_require_a_user() {
    let server = TestServer::with_users();
    let user = format!("Authorization: Basic {}\r\n", STANDARD.encode("ops:second"));
    let wrong = format!("Authorization: Basic {}\r\n", STANDARD.encode("ops:third"));
    for path in ["/stats", "/metrics"] {
        for refused in ["", &wrong] {
            let answer = page(&server, path, refused);
            assert!(answer.starts_with("HTTP/1.1 401 "), "{path}: {answer}");
            assert!(answer.contains("www-authenticate: Basic realm="), "{path}: {answer}");
        }
        assert!(page(&server, path, &user).starts_with("HTTP/1.1 200 "), "{path}");
    }
    for path in ["/health/live", "/health/ready", "/ping", "/info", "/gossip"] {
        let answer = page(&server, path, "");
        assert!(answer.starts_with("HTTP/1.1 20"), "{path}: {answer}");
    }
}

/// Story: for a mistyped path, a user got the error that the call requires an administrator.
#[test]
fn unserved_pages_are_not_found_for_every_user() {
    let server = TestServer::with_users();
    let header = |user: &str| format!("Authorization: Basic {}\r\n", STANDARD.encode(user));
    let user = header("ops:second");
    for path in ["/nothing", "/strems/a", "//streams/a", "/streams", "/streams//a", "/users/a/b"] {
        for refused in ["", &header("ops:third")] {
            let answer = page(&server, path, refused);
            assert!(answer.starts_with("HTTP/1.1 401 "), "{path}: {answer}");
        }
        let answer = page(&server, path, &user);
        assert!(answer.starts_with("HTTP/1.1 404 "), "{path}: {answer}");
    }
    let answer = page(&server, "/strems/a", &user);
    for named in ["/health/live, ", "/metrics, /console/, /admin, ", "/streams, /openapi.json and"]
    {
        assert!(answer.contains(named), "{named}: {answer}");
    }
    let answer = page(&server, "/users", &user);
    assert!(answer.starts_with("HTTP/1.1 403 "), "a served path has its permission: {answer}");
}

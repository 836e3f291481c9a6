//! Tests of server features, gossip, plain HTTP endpoints, and unknown paths.

use std::io::{Read, Write};
use std::net::TcpStream;

use tonic::Code;
use umbel_events::{Store, StoreOptions};
use umbel_proto::gossip::{self, ClusterInfo, VNodeState};
use umbel_proto::server_features::{self, SupportedMethods};
use umbel_proto::streams::DeleteReq;
use umbel_server::{Config, Server, StartError};

use super::test_server::TestServer;

/// Status line and body of the response to a request over HTTP/1.1.
fn http(server: &TestServer, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    (head.lines().next().unwrap_or_default().to_string(), body.to_string())
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
}

#[test]
fn health_and_ping_share_the_port() {
    let server = TestServer::new();
    assert_eq!(http(&server, &get("/health/live")).0, "HTTP/1.1 204 No Content");
    let (status, body) = http(&server, &get("/ping"));
    assert_eq!(status, "HTTP/1.1 200 OK");
    assert_eq!(body, r#"{"text":"Ping request successfully handled"}"#);
    assert_eq!(http(&server, &get("/streams")).0, "HTTP/1.1 404 Not Found");
    let call = "/event_store.client.streams.Streams/Read";
    assert_eq!(http(&server, &get(call)).0, "HTTP/1.1 415 Unsupported Media Type");
    let wrong = http(&server, "\x16\x03\x01 this is no HTTP\r\n\r\n");
    assert!(!wrong.0.contains("200"), "{wrong:?}");
    assert_eq!(http(&server, &get("/health/live")).0, "HTTP/1.1 204 No Content");
}

#[test]
fn server_features_are_reported() {
    TestServer::new().run(async |client, _| {
        let service = server_features::SERVICE;
        let answer: SupportedMethods =
            client.unary(service, "GetSupportedMethods", ()).await.unwrap();
        assert_eq!(answer.event_store_server_version, "26.1.0");
        let batch =
            answer.methods.iter().find(|method| method.method_name == "batchappend").unwrap();
        assert_eq!(batch.service_name, "event_store.client.streams.streams");
        assert_eq!(batch.features, ["deadline_duration"]);
        let of = |service: &str| -> Vec<&str> {
            let all = answer.methods.iter().filter(|method| method.service_name == service);
            all.map(|method| &*method.method_name).collect()
        };
        let second = of("kurrentdb.protocol.v2.streams.streamsservice");
        assert_eq!(second, ["appendsession", "appendrecords"]);
        assert_eq!(of("event_store.client.projections.projections").len(), 10);
        let create = answer.methods.iter().find(|method| method.method_name == "create").unwrap();
        assert_eq!(create.features, ["track_emitted_streams"]);
    });
}

#[test]
fn gossip_shows_one_leader_at_the_client_address() {
    TestServer::new().run(async |client, server| {
        let answer: ClusterInfo = client.unary(gossip::SERVICE, "Read", ()).await.unwrap();
        let [member] = &answer.members[..] else { panic!("{answer:?}") };
        assert_eq!(member.state(), VNodeState::Leader);
        assert!(member.is_alive && member.instance_id.is_some());
        let endpoint = member.http_end_point.clone().unwrap();
        let address = server.address();
        assert_eq!(
            (endpoint.address, endpoint.port),
            ("127.0.0.1".into(), u32::from(address.port()))
        );
    });
    let advertise = Some(("store.example".to_string(), 7));
    TestServer::with(Config { advertise, ..Config::default() }).run(async |client, _| {
        let answer: ClusterInfo = client.unary(gossip::SERVICE, "Read", ()).await.unwrap();
        let endpoint = answer.members[0].http_end_point.clone().unwrap();
        assert_eq!((endpoint.address.as_str(), endpoint.port), ("store.example", 7));
    });
}

/// Story: the Rust client decodes every field of a member, and failed with a missing field.
#[test]
fn gossip_page_has_every_field_that_clients_decode() {
    let server = TestServer::new();
    let (status, body) = http(&server, &get("/gossip"));
    assert_eq!(status, "HTTP/1.1 200 OK");
    let page: serde_json::Value = serde_json::from_str(&body).unwrap();
    let member = &page["members"][0];
    for name in ["internalTcpIp", "externalTcpIp", "httpEndPointIp", "state"] {
        assert!(member[name].is_string(), "{name}: {member}");
    }
    let numbers = [
        "internalTcpPort",
        "internalSecureTcpPort",
        "externalSecureTcpPort",
        "httpEndPointPort",
        "lastCommitPosition",
        "writerCheckpoint",
        "chaserCheckpoint",
        "epochPosition",
        "epochNumber",
        "nodePriority",
    ];
    for name in numbers {
        assert!(member[name].is_u64(), "{name}: {member}");
    }
    for name in ["instanceId", "epochId"] {
        let id = member[name].as_str().unwrap();
        id.parse::<umbel_events::EventId>().expect("an identifier");
    }
    let time = member["timeStamp"].as_str().unwrap();
    assert!(time.starts_with("20") && time.ends_with('Z') && &time[10..11] == "T", "{time}");
    assert_eq!(page["serverPort"], u64::from(server.address().port()));
}

#[test]
fn unserved_calls_are_unimplemented() {
    TestServer::new().run(async |client, _| {
        let cases = [
            ("event_store.client.users.Users", "NoSuchCall"),
            ("event_store.client.streams.Streams", "NoSuchCall"),
            ("no.such.Service", "Read"),
        ];
        for (service, method) in cases {
            let status = client.unary::<(), ()>(service, method, ()).await.expect_err("not served");
            assert_eq!(status.code(), Code::Unimplemented);
            assert!(status.message().contains(method), "{status:?}");
        }
    });
}

#[test]
fn malformed_message_is_rejected_and_connection_survives() {
    TestServer::new().run(async |client, _| {
        let service = "event_store.client.streams.Streams";
        // The message starts with a text field where options are expected.
        let wrong = umbel_proto::shared::BadRequest { message: "no options".to_string() };
        let status = client.unary::<_, ()>(service, "Delete", wrong).await.unwrap_err();
        assert_ne!(status.code(), Code::Ok);
        let empty = DeleteReq { options: None };
        let status = client.unary::<_, ()>(service, "Delete", empty).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
    });
}

#[test]
fn empty_backup_directory_fails_the_start() {
    let listen = ([127, 0, 0, 1], 0).into();
    let config = Config { listen, backup_directory: Some("".into()), ..Config::default() };
    let answer = Server::prepare(&config).expect_err("refused").to_string();
    assert!(answer.contains("the path of the backup is empty"), "{answer}");
}

#[test]
fn url_as_backup_directory_fails_the_start() {
    let listen = ([127, 0, 0, 1], 0).into();
    let backup_directory = Some("s3://bucket/shop".into());
    let config = Config { listen, backup_directory, ..Config::default() };
    let refused = Server::prepare(&config).expect_err("refused");
    assert!(matches!(refused, StartError::ObjectBackup(_)), "{refused:?}");
    assert!(refused.to_string().contains("--backup-to"), "{refused}");
}

#[test]
fn two_servers_do_not_share_a_port() {
    let server = TestServer::new();
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path().join("events"), StoreOptions::default()).unwrap();
    let config = Config { listen: server.address(), ..Config::default() };
    match Server::start(store, config) {
        Err(error @ StartError::AddressInUse(_)) => {
            assert!(error.to_string().contains("another process listens"), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

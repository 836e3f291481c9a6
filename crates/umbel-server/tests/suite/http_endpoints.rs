//! What else is on the port: features, gossip, plain HTTP, and what is not there.

use std::io::{Read, Write};
use std::net::TcpStream;

use tonic::Code;
use umbel_events::{Store, StoreOptions};
use umbel_proto::gossip::{self, ClusterInfo, VNodeState};
use umbel_proto::server_features::{self, SupportedMethods};
use umbel_proto::streams::DeleteReq;
use umbel_server::{Config, Server, StartError};

use super::ground::Ground;

/// The status line and the body of the answer to a request over HTTP/1.1.
fn http(ground: &Ground, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(ground.address()).unwrap();
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
fn whoever_watches_over_it_is_answered_over_the_same_port() {
    let ground = Ground::new();
    assert_eq!(http(&ground, &get("/health/live")).0, "HTTP/1.1 204 No Content");
    let (status, body) = http(&ground, &get("/ping"));
    assert_eq!(status, "HTTP/1.1 200 OK");
    assert_eq!(body, r#"{"text":"Ping request successfully handled"}"#);
    assert_eq!(http(&ground, &get("/streams")).0, "HTTP/1.1 404 Not Found");
    let call = "/event_store.client.streams.Streams/Read";
    assert_eq!(http(&ground, &get(call)).0, "HTTP/1.1 415 Unsupported Media Type");
    let wrong = http(&ground, "\x16\x03\x01 this is no HTTP\r\n\r\n");
    assert!(!wrong.0.contains("200"), "{wrong:?}");
    assert_eq!(http(&ground, &get("/health/live")).0, "HTTP/1.1 204 No Content");
}

#[test]
fn the_server_says_what_it_can_do() {
    Ground::new().run(async |client, _| {
        let service = server_features::SERVICE;
        let said: SupportedMethods =
            client.unary(service, "GetSupportedMethods", ()).await.unwrap();
        assert_eq!(said.event_store_server_version, "26.1.0");
        let batch = said.methods.iter().find(|method| method.method_name == "batchappend").unwrap();
        assert_eq!(batch.service_name, "event_store.client.streams.streams");
        assert_eq!(batch.features, ["deadline_duration"]);
        let of = |service: &str| -> Vec<&str> {
            let all = said.methods.iter().filter(|method| method.service_name == service);
            all.map(|method| &*method.method_name).collect()
        };
        let second = of("kurrentdb.protocol.v2.streams.streamsservice");
        assert_eq!(second, ["appendsession", "appendrecords"]);
        assert_eq!(of("event_store.client.projections.projections").len(), 10);
        let create = said.methods.iter().find(|method| method.method_name == "create").unwrap();
        assert_eq!(create.features, ["track_emitted_streams"]);
    });
}

#[test]
fn the_one_node_leads_and_is_where_the_client_found_it() {
    Ground::new().run(async |client, ground| {
        let said: ClusterInfo = client.unary(gossip::SERVICE, "Read", ()).await.unwrap();
        let [member] = &said.members[..] else { panic!("{said:?}") };
        assert_eq!(member.state(), VNodeState::Leader);
        assert!(member.is_alive && member.instance_id.is_some());
        let place = member.http_end_point.clone().unwrap();
        let address = ground.address();
        assert_eq!((place.address, place.port), ("127.0.0.1".into(), u32::from(address.port())));
    });
    let advertise = Some(("store.example".to_string(), 7));
    Ground::with(Config { advertise, ..Config::default() }).run(async |client, _| {
        let said: ClusterInfo = client.unary(gossip::SERVICE, "Read", ()).await.unwrap();
        let place = said.members[0].http_end_point.clone().unwrap();
        assert_eq!((place.address.as_str(), place.port), ("store.example", 7));
    });
}

#[test]
fn calls_that_are_not_served_are_told_so() {
    Ground::new().run(async |client, _| {
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
fn a_message_that_is_none_is_refused_and_the_connection_goes_on() {
    Ground::new().run(async |client, _| {
        let service = "event_store.client.streams.Streams";
        // A text where options are expected, as every message of it begins.
        let wrong = umbel_proto::shared::BadRequest { message: "no options".to_string() };
        let status = client.unary::<_, ()>(service, "Delete", wrong).await.unwrap_err();
        assert_ne!(status.code(), Code::Ok);
        let empty = DeleteReq { options: None };
        let status = client.unary::<_, ()>(service, "Delete", empty).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
    });
}

#[test]
fn an_empty_folder_of_backups_is_refused_at_the_start() {
    let listen = ([127, 0, 0, 1], 0).into();
    let config = Config { listen, backup: Some("".into()), ..Config::default() };
    let said = Server::prepare(&config).expect_err("refused").to_string();
    assert!(said.contains("the path of the backup is empty"), "{said}");
}

#[test]
fn two_servers_do_not_share_a_port() {
    let ground = Ground::new();
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path().join("events"), StoreOptions::default()).unwrap();
    let config = Config { listen: ground.address(), ..Config::default() };
    match Server::start(store, config) {
        Err(error @ StartError::AddressInUse(_)) => {
            assert!(error.to_string().contains("another process listens"), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

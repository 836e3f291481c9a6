//! Tests of the calls for operators.

use tonic::Code;
use umbel_env::Env;
use umbel_events::{ExpectedVersion, NewEvent, Store, StoreOptions};
use umbel_proto::operations::{
    ScavengeResp, ScavengeResult, SetNodePriorityReq, StartScavengeOptions, StartScavengeReq,
    StopScavengeOptions, StopScavengeReq,
};
use umbel_server::{Config, Server};

use super::client::{Client, fact};
use super::test_server::{TestServer, run};

/// The service, repeated here so that a changed name is noticed.
const SERVICE: &str = "event_store.client.operations.Operations";

#[test]
fn cluster_operations_are_accepted_or_unimplemented() {
    TestServer::new().run(async |client, _| {
        let merged: Result<(), _> = client.unary(SERVICE, "MergeIndexes", ()).await;
        merged.unwrap();
        let priority = SetNodePriorityReq { priority: 7 };
        let set: Result<(), _> = client.unary(SERVICE, "SetNodePriority", priority).await;
        set.unwrap();
        let restarted: Result<(), _> =
            client.unary(SERVICE, "RestartPersistentSubscriptions", ()).await;
        restarted.unwrap();
        let resigned: Result<(), _> = client.unary(SERVICE, "ResignNode", ()).await;
        resigned.unwrap();
        for method in ["Shutdown", "Other"] {
            let status = client.unary::<(), ()>(SERVICE, method, ()).await.unwrap_err();
            assert_eq!(status.code(), Code::Unimplemented, "{method}");
            assert!(status.message().len() > 20, "{status:?}");
        }
    });
}

#[test]
fn invalid_scavenge_is_rejected() {
    TestServer::new().run(async |client, _| {
        let start = |thread_count, start_from_chunk| {
            let options =
                Some(StartScavengeOptions { thread_count, start_from_chunk, remove_all: false });
            client.unary::<_, ScavengeResp>(SERVICE, "StartScavenge", StartScavengeReq { options })
        };
        for (threads, chunk) in [(0, 0), (-1, 0), (1, -1)] {
            let status = start(threads, chunk).await.unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
        }
        let nothing = StartScavengeReq { options: None };
        let status = client.unary::<_, ScavengeResp>(SERVICE, "StartScavenge", nothing).await;
        assert_eq!(status.unwrap_err().code(), Code::InvalidArgument);
        let options = Some(StopScavengeOptions { scavenge_id: "none".to_string() });
        let request = StopScavengeReq { options };
        let status = client.unary::<_, ScavengeResp>(SERVICE, "StopScavenge", request).await;
        let status = status.unwrap_err();
        assert_eq!(status.code(), Code::NotFound);
        assert_eq!(fact(&status, "exception"), "scavenge-not-found");
        assert_eq!(fact(&status, "scavenge-id"), "none");
    });
}

#[test]
fn scavenge_starts_and_completes() {
    TestServer::new().run(async |client, server| {
        let store = server.store.clone();
        let data = vec![b' '; 50_000];
        for _ in 0..200 {
            let event = NewEvent::json(store.new_id().unwrap(), "Opened", &data);
            store.append("gone", ExpectedVersion::Any, &[event]).unwrap();
        }
        store.delete("gone", ExpectedVersion::Any).unwrap();
        let options = Some(StartScavengeOptions { thread_count: 1, ..Default::default() });
        let request = StartScavengeReq { options };
        let begun: ScavengeResp = client.unary(SERVICE, "StartScavenge", request).await.unwrap();
        assert_eq!(begun.scavenge_result(), ScavengeResult::Started);
        assert!(!begun.scavenge_id.is_empty());
        while store.stats().unwrap().scavenged_chunks == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    });
}

#[test]
fn scavenge_that_removes_all_removes_the_newest_events() {
    TestServer::new().run(async |client, server| {
        let store = server.store.clone();
        let event = NewEvent::json(store.new_id().unwrap(), "Opened", b"{}");
        store.append("gone", ExpectedVersion::Any, &[event]).unwrap();
        store.delete("gone", ExpectedVersion::Any).unwrap();
        let options =
            StartScavengeOptions { thread_count: 1, remove_all: true, ..Default::default() };
        let request = StartScavengeReq { options: Some(options) };
        let begun: ScavengeResp = client.unary(SERVICE, "StartScavenge", request).await.unwrap();
        assert_eq!(begun.scavenge_result(), ScavengeResult::Started);
        // Without the option, the newest chunk stays as it is.
        while store.stats().unwrap().scavenged_chunks == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    });
}

/// Story: a client that stopped its scavenge just after the end got `NOT_FOUND`.
#[test]
fn stop_of_a_scavenge_that_ended_is_answered() {
    TestServer::new().run(async |client, _| {
        let options = Some(StartScavengeOptions { thread_count: 1, ..Default::default() });
        let start = StartScavengeReq { options };
        let stop = |scavenge_id: &str| {
            let options = Some(StopScavengeOptions { scavenge_id: scavenge_id.to_string() });
            client.unary::<_, ScavengeResp>(SERVICE, "StopScavenge", StopScavengeReq { options })
        };
        let first: ScavengeResp = client.unary(SERVICE, "StartScavenge", start).await.unwrap();
        let second = loop {
            let begun: ScavengeResp = client.unary(SERVICE, "StartScavenge", start).await.unwrap();
            if begun.scavenge_id != first.scavenge_id {
                break begun.scavenge_id;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        };
        for _ in 0..20 {
            let stopped = stop(&second).await.unwrap();
            assert_eq!(stopped.scavenge_result(), ScavengeResult::Stopped);
            assert_eq!(stopped.scavenge_id, second);
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        assert_eq!(stop(&first.scavenge_id).await.unwrap_err().code(), Code::NotFound);
    });
}

#[test]
fn shutdown_call_stops_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path().join("events"), StoreOptions::default()).unwrap();
    let config = Config { listen: "127.0.0.1:0".parse().unwrap(), ..Config::default() };
    let running = Server::start(store, config).unwrap();
    let (address, interrupts) = (running.address(), running.interrupts().unwrap());
    let threads = Env::system().threads;
    let waiting = threads.spawn("waiting", Box::new(move || interrupts.wait())).unwrap();
    run(async {
        let client = Client::connect(address).await;
        let request: Result<(), _> = client.unary(SERVICE, "Shutdown", ()).await;
        request.unwrap();
    });
    waiting.join();
    running.shutdown();
    assert!(std::net::TcpStream::connect(address).is_err(), "the server no longer listens");
}

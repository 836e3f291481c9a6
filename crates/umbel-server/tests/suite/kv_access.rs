//! Tests of permissions for key-value calls, of their loss during a call, and of shutdown.

use std::time::Duration;

use tonic::Code;
use umbel_proto::kv::*;
use umbel_server::limits::OPERATOR_KEYSPACES_MAX;
use umbel_server::{Config, KvConfig};

use super::client::Client;
use super::kv_client::{Kv, changes, event};
use super::monitoring::{http_request, metric};
use super::test_server::{TestServer, with_users};
use super::users::{change, create};

#[test]
fn kv_calls_require_an_operator() {
    TestServer::with_kv_and(with_users()).run(async |client, _| {
        let admin = client.with_user("admin", "first");
        create(&admin, "ada", "third", &[]).await.unwrap();
        let ops = Kv::new(&client.with_user("ops", "second"));
        ops.put(b"key", b"value").await.unwrap();
        assert_eq!(Kv::new(&admin).get(b"key").await.unwrap().unwrap(), b"value");
        for client in [client.clone(), client.with_user("ada", "third")] {
            let kv = Kv::new(&client);
            let refused = [
                kv.get(b"key").await.unwrap_err(),
                kv.put(b"key", b"other").await.unwrap_err(),
                kv.scan(ScanRequest::default()).await.unwrap_err(),
                kv.watch(WatchRequest::default()).await.unwrap_err(),
            ];
            assert!(refused.iter().all(|status| status.code() == Code::PermissionDenied));
        }
        let wrong = Kv::new(&client.with_user("ops", "third"));
        assert_eq!(wrong.get(b"key").await.unwrap_err().code(), Code::Unauthenticated);
    });
}

/// Story: a user in `$ops` could create all keyspaces of a store, and no call dropped one.
#[test]
fn keyspaces_can_be_dropped_and_operators_cannot_create_all() {
    TestServer::with_kv_and(with_users()).run(async |client, server| {
        let admin = Kv::new(&client.with_user("admin", "first"));
        let ops = Kv::new(&client.with_user("ops", "second"));
        let db = server.kv.clone().unwrap();
        for number in db.keyspaces().len()..OPERATOR_KEYSPACES_MAX - 1 {
            db.keyspace(&format!("k{number}"), None).unwrap();
        }
        assert!(ops.create("last").await.unwrap());
        let refused = ops.create("more").await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
        assert!(!ops.create("last").await.unwrap(), "it exists");
        assert!(admin.create("more").await.unwrap());
        assert_eq!(ops.create("further").await.unwrap_err().code(), Code::ResourceExhausted);
        let more = ops.of("more");
        more.put(b"key", b"value").await.unwrap();
        let mut watch = more.watch(WatchRequest::default()).await.unwrap();
        assert!(matches!(event(&mut watch).await.unwrap(), WatchEvent::Started(_)));
        assert!(ops.drop("more").await.unwrap() && ops.drop("last").await.unwrap());
        assert!(!ops.drop("more").await.unwrap(), "it is dropped");
        let ended = event(&mut watch).await.unwrap_err();
        assert!(ended.code() == Code::NotFound && ended.message().contains("dropped"), "{ended:?}");
        for refused in [more.get(b"key").await.err(), more.put(b"key", b"v").await.err()] {
            assert_eq!(refused.unwrap().code(), Code::NotFound);
        }
        assert!(ops.create("more").await.unwrap());
        assert_eq!(more.get(b"key").await.unwrap(), None, "the new keyspace is empty");
        for name in ["", "default"] {
            let status = admin.drop(name).await.unwrap_err();
            assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}");
        }
        create(&client.with_user("admin", "first"), "ada", "third", &[]).await.unwrap();
        let ada = Kv::new(&client.with_user("ada", "third"));
        assert_eq!(ada.drop("k1").await.unwrap_err().code(), Code::PermissionDenied);
    });
}

#[test]
fn watch_and_scan_end_with_their_user() {
    TestServer::with_kv_and(with_users()).run(async |client, _| {
        let admin = client.with_user("admin", "first");
        create(&admin, "ada", "third", &["$ops"]).await.unwrap();
        let (kv, ada) = (Kv::new(&admin), Kv::new(&client.with_user("ada", "third")));
        for number in 0..8 {
            kv.put(format!("key{number}").as_bytes(), &vec![b'v'; 1 << 20]).await.unwrap();
        }
        let mut watch = ada.watch(WatchRequest::default()).await.unwrap();
        assert!(matches!(event(&mut watch).await.unwrap(), WatchEvent::Started(_)));
        let mut scan = ada.begin_scan(ScanRequest::default()).await.unwrap();
        scan.message().await.unwrap().unwrap();
        kv.put(b"a", b"1").await.unwrap();
        assert_eq!(changes(&mut watch).await.changes.len(), 1);
        change(&admin, "Disable", "ada").await.unwrap();
        kv.put(b"a", b"2").await.unwrap();
        assert_eq!(event(&mut watch).await.unwrap_err().code(), Code::Unauthenticated);
        let ended = loop {
            match scan.message().await {
                Ok(page) => assert!(page.is_some(), "it must not come to its end"),
                Err(status) => break status,
            }
        };
        assert_eq!(ended.code(), Code::Unauthenticated);
    });
}

#[test]
fn server_stop_ends_watches_as_unavailable() {
    TestServer::with_kv().run(async |client, server| {
        let kv = Kv::new(&client);
        let mut watch = kv.watch(WatchRequest::default()).await.unwrap();
        assert!(matches!(event(&mut watch).await.unwrap(), WatchEvent::Started(_)));
        let stopped = server.stop();
        assert_eq!(event(&mut watch).await.unwrap_err().code(), Code::Unavailable);
        stopped.await.unwrap();
    });
}

#[test]
fn metrics_count_the_store_and_its_watches() {
    TestServer::with_kv().run(async |client, server| {
        let kv = Kv::new(&client);
        let last = kv.put(b"key", b"value").await.unwrap();
        let mut watch = kv.watch(WatchRequest::default()).await.unwrap();
        assert!(matches!(event(&mut watch).await.unwrap(), WatchEvent::Started(_)));
        let address = server.address();
        let request = tokio::task::spawn_blocking(move || http_request(address, "GET", "/metrics"));
        let (_, text) = request.await.unwrap();
        let value = |name: &str| metric(&text, name, &[]);
        assert_eq!(value("umbel_kv_last_sequence"), last as f64);
        assert_eq!((value("umbel_kv_watches"), value("umbel_kv_read_only")), (1.0, 0.0));
        assert_eq!(value("umbel_kv_watches_evicted_total"), 0.0);
    });
}

#[test]
fn a_watch_ends_at_its_deadline() {
    TestServer::with_kv().run(async |client, _| {
        let kv = Kv::new(&client);
        let mut request = client.request(futures_util::stream::iter([WatchRequest::default()]));
        request.set_timeout(Duration::from_millis(200));
        let mut watch = kv.begin(request).await.unwrap();
        assert!(matches!(event(&mut watch).await.unwrap(), WatchEvent::Started(_)));
        assert_eq!(event(&mut watch).await.unwrap_err().code(), Code::DeadlineExceeded);
    });
}

/// A scan keeps old versions of entries in the store, so it must end even if its client reads
/// nothing.
#[test]
fn expired_scan_says_where_to_resume_and_frees_its_snapshot() {
    let directory = tempfile::tempdir().unwrap();
    let db = umbel::Db::open(directory.path().join("kv"), umbel::Options::default()).unwrap();
    let scan_time = Duration::from_millis(300);
    let kv = Some(KvConfig { scan_time, ..KvConfig::new(db.clone()) });
    TestServer::with(Config { kv, ..Config::default() }).run(async |client, server| {
        let kv = Kv::new(&client);
        for number in 0..40 {
            kv.put(format!("key{number:02}").as_bytes(), &vec![b'v'; 1 << 20]).await.unwrap();
        }
        let other = Kv::new(&Client::connect(server.address()).await.0);
        let mut scan = other.begin_scan(ScanRequest::default()).await.unwrap();
        let first = scan.message().await.unwrap().unwrap();
        assert_eq!(first.entries.len(), 1);
        let mut attempts = 0;
        while db.stats().readers.snapshots > 0 {
            attempts += 1;
            assert!(attempts < 200, "the state is kept for ever");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let mut keys = 1;
        let ended = loop {
            match scan.message().await {
                Ok(page) => keys += page.expect("it must not come to its end").entries.len(),
                Err(status) => break status,
            }
        };
        assert!(keys < 40, "{keys}");
        assert_eq!(ended.code(), Code::Aborted);
        assert!(ended.message().contains("continue with a new scan after"), "{ended:?}");
    });
}

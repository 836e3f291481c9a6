//! Who may use keys and values, until when, and what a server that stops says.

use std::time::Duration;

use tonic::Code;
use umbel_proto::kv::*;
use umbel_server::{Config, KeyValues};

use super::client::Client;
use super::ground::{Ground, with_users};
use super::kv_client::{Kv, changes, event};
use super::users::{change, create};
use super::watching::{asked, metric};

#[test]
fn keys_and_values_are_for_those_who_look_after_the_server() {
    Ground::with_kv_and(with_users()).run(async |client, _| {
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

#[test]
fn a_watch_and_a_scan_end_when_their_user_does() {
    Ground::with_kv_and(with_users()).run(async |client, _| {
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
fn who_waits_when_the_server_stops_is_told_to_come_back() {
    Ground::with_kv().run(async |client, ground| {
        let kv = Kv::new(&client);
        let mut watch = kv.watch(WatchRequest::default()).await.unwrap();
        assert!(matches!(event(&mut watch).await.unwrap(), WatchEvent::Started(_)));
        let stopped = ground.stop();
        assert_eq!(event(&mut watch).await.unwrap_err().code(), Code::Unavailable);
        stopped.await.unwrap();
    });
}

#[test]
fn the_metrics_tell_of_the_store_and_of_who_watches() {
    Ground::with_kv().run(async |client, ground| {
        let kv = Kv::new(&client);
        let last = kv.put(b"key", b"value").await.unwrap();
        let mut watch = kv.watch(WatchRequest::default()).await.unwrap();
        assert!(matches!(event(&mut watch).await.unwrap(), WatchEvent::Started(_)));
        let address = ground.address();
        let asked = tokio::task::spawn_blocking(move || asked(address, "GET", "/metrics"));
        let (_, text) = asked.await.unwrap();
        let value = |name: &str| metric(&text, name, &[]);
        assert_eq!(value("umbel_kv_sequence"), last as f64);
        assert_eq!((value("umbel_kv_watches"), value("umbel_kv_read_only")), (1.0, 0.0));
        assert_eq!(value("umbel_kv_watches_let_go_total"), 0.0);
    });
}

#[test]
fn a_watch_ends_at_its_deadline() {
    Ground::with_kv().run(async |client, _| {
        let kv = Kv::new(&client);
        let mut request = client.request(futures_util::stream::iter([WatchRequest::default()]));
        request.set_timeout(Duration::from_millis(200));
        let mut watch = kv.begin(request).await.unwrap();
        assert!(matches!(event(&mut watch).await.unwrap(), WatchEvent::Started(_)));
        assert_eq!(event(&mut watch).await.unwrap_err().code(), Code::DeadlineExceeded);
    });
}

/// What a scan shows is kept in the store, and somebody may take nothing of it for ever.
#[test]
fn a_scan_that_takes_too_long_is_told_where_to_go_on_and_keeps_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let db = umbel::Db::open(folder.path().join("kv"), umbel::Options::default()).unwrap();
    let scan_time = Duration::from_millis(300);
    let kv = Some(KeyValues { scan_time, ..KeyValues::new(db.clone()) });
    Ground::with(Config { kv, ..Config::default() }).run(async |client, ground| {
        let kv = Kv::new(&client);
        for number in 0..40 {
            kv.put(format!("key{number:02}").as_bytes(), &vec![b'v'; 1 << 20]).await.unwrap();
        }
        let other = Kv::new(&Client::connect(ground.address()).await);
        let mut scan = other.begin_scan(ScanRequest::default()).await.unwrap();
        let first = scan.message().await.unwrap().unwrap();
        assert_eq!(first.entries.len(), 1);
        let mut looked = 0;
        while db.stats().readers.snapshots > 0 {
            looked += 1;
            assert!(looked < 200, "the state is kept for ever");
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
        assert!(ended.message().contains("scan on from behind"), "{ended:?}");
    });
}

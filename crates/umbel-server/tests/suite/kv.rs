//! Tests of the key-value calls: their effects and refusals.

use tonic::Code;
use umbel_proto::kv::*;

use super::kv_client::{Kv, changes, condition, delete_of, delete_range_of, event, put_of};
use super::test_server::TestServer;

const KEY_BYTES_MAX: usize = 65_536;
const VALUE_BYTES_MAX: usize = 8 << 20;

#[test]
fn put_and_delete_are_visible_to_get() {
    TestServer::with_kv().run(async |client, _| {
        let kv = Kv::new(&client);
        assert_eq!(kv.get(b"ada").await.unwrap(), None);
        let first = kv.put(b"ada", b"1815").await.unwrap();
        assert_eq!(kv.get(b"ada").await.unwrap().unwrap(), b"1815");
        let second = kv.put(b"ada", b"").await.unwrap();
        assert_eq!(kv.get(b"ada").await.unwrap().unwrap(), b"", "an empty value is one");
        let third = kv.delete(b"ada").await.unwrap();
        assert_eq!(kv.get(b"ada").await.unwrap(), None);
        let fourth = kv.delete(b"never").await.unwrap();
        assert!(first < second && second < third && third < fourth);
        let bytes: Vec<u8> = (0..=255).collect();
        kv.put(&bytes, &bytes).await.unwrap();
        assert_eq!(kv.get(&bytes).await.unwrap().unwrap(), bytes);
    });
}

#[test]
fn multi_get_reads_one_snapshot() {
    TestServer::with_kv().run(async |client, _| {
        let kv = Kv::new(&client);
        let sequence = kv.batch(vec![put_of("", "a", "1"), put_of("", "c", "3")], vec![]).await;
        let keys = ["a", "b", "c", "a"].map(|key| key.as_bytes().to_vec()).to_vec();
        let request = MultiGetRequest { keyspace: String::new(), keys };
        let answer: MultiGetResponse = kv.call("MultiGet", request).await.unwrap();
        assert_eq!(answer.sequence, sequence.unwrap());
        let values: Vec<Option<&[u8]>> =
            answer.values.iter().map(|found| found.value.as_deref()).collect();
        assert_eq!(values, [Some(&b"1"[..]), None, Some(b"3"), Some(b"1")]);
    });
}

#[test]
fn keyspaces_are_separate_and_must_be_created() {
    TestServer::with_kv().run(async |client, _| {
        let kv = Kv::new(&client);
        let users = kv.of("users");
        let missing = users.put(b"ada", b"1").await.unwrap_err();
        assert_eq!(missing.code(), Code::NotFound);
        assert!(missing.message().contains("'users'; CreateKeyspace"), "{missing:?}");
        assert!(kv.create("users").await.unwrap());
        assert!(!kv.create("users").await.unwrap());
        users.put(b"ada", b"1").await.unwrap();
        assert_eq!(kv.get(b"ada").await.unwrap(), None);
        assert_eq!(kv.of("default").get(b"ada").await.unwrap(), None);
        let names: ListKeyspacesResponse = kv.call("ListKeyspaces", ()).await.unwrap();
        assert_eq!(names.names, ["default", "users"]);
        // Of many concurrent calls one creates it.
        let request = (0..20).map(|_| kv.create("together"));
        let made = futures_util::future::join_all(request).await;
        assert_eq!(made.into_iter().filter(|made| *made.as_ref().unwrap()).count(), 1);
        for name in ["a\nb".to_string(), "x".repeat(256)] {
            assert_eq!(kv.create(&name).await.unwrap_err().code(), Code::InvalidArgument);
        }
    });
}

#[test]
fn batch_is_atomic() {
    TestServer::with_kv().run(async |client, _| {
        let kv = Kv::new(&client);
        kv.create("users").await.unwrap();
        let operations = vec![
            put_of("", "a1", "1"),
            put_of("", "a2", "2"),
            put_of("users", "ada", "1815"),
            delete_of("", "a1"),
            put_of("", "a3", "3"),
        ];
        kv.batch(operations, vec![]).await.unwrap();
        let all = || ScanRequest::default();
        assert_eq!(kv.keys(all()).await, ["a2", "a3"]);
        assert_eq!(kv.of("users").get(b"ada").await.unwrap().unwrap(), b"1815");
        kv.batch(vec![delete_range_of("", "a", "a3"), put_of("", "a1", "4")], vec![])
            .await
            .unwrap();
        assert_eq!(kv.keys(all()).await, ["a1", "a3"]);
        let wrong = vec![put_of("", "z", "1"), put_of("nowhere", "z", "1")];
        assert_eq!(kv.batch(wrong, vec![]).await.unwrap_err().code(), Code::NotFound);
        assert_eq!(kv.get(b"z").await.unwrap(), None);
    });
}

#[test]
fn failed_condition_changes_nothing() {
    TestServer::with_kv().run(async |client, _| {
        let kv = Kv::new(&client);
        let put = |value: &str| vec![put_of("", "lock", value)];
        kv.batch(put("ada"), vec![condition("lock", None)]).await.unwrap();
        let refused = kv.batch(put("bob"), vec![condition("lock", None)]).await.unwrap_err();
        assert_eq!(refused.code(), Code::Aborted);
        assert!(refused.message().contains("key lock of keyspace 'default'"), "{refused:?}");
        assert_eq!(kv.get(b"lock").await.unwrap().unwrap(), b"ada");
        let wrong = kv.batch(put("bob"), vec![condition("lock", Some("eve"))]).await.unwrap_err();
        assert_eq!(wrong.code(), Code::Aborted);
        kv.batch(put("bob"), vec![condition("lock", Some("ada"))]).await.unwrap();
        assert_eq!(kv.get(b"lock").await.unwrap().unwrap(), b"bob");
    });
}

#[test]
fn scan_obeys_its_bounds() {
    TestServer::with_kv().run(async |client, _| {
        let kv = Kv::new(&client);
        for key in ["a", "b", "ba", "bb", "c"] {
            kv.put(key.as_bytes(), b"value").await.unwrap();
        }
        let scan = || ScanRequest::default();
        let bytes = |text: &str| text.as_bytes().to_vec();
        assert_eq!(kv.keys(scan()).await, ["a", "b", "ba", "bb", "c"]);
        assert_eq!(kv.keys(ScanRequest { prefix: bytes("b"), ..scan() }).await, ["b", "ba", "bb"]);
        let within = ScanRequest { start: bytes("b"), end: bytes("bb"), ..scan() };
        assert_eq!(kv.keys(within.clone()).await, ["b", "ba"]);
        assert_eq!(kv.keys(ScanRequest { reverse: true, ..within }).await, ["ba", "b"]);
        let both = ScanRequest { prefix: bytes("b"), start: bytes("b\0"), ..scan() };
        assert_eq!(kv.keys(both.clone()).await, ["ba", "bb"]);
        assert_eq!(kv.keys(ScanRequest { limit: 1, reverse: true, ..both }).await, ["bb"]);
        assert_eq!(kv.keys(ScanRequest { limit: 2, ..scan() }).await, ["a", "b"]);
        let none = ScanRequest { start: bytes("z"), end: bytes("a"), ..scan() };
        assert!(kv.keys(none).await.is_empty());
        let keys_only = ScanRequest { keys_only: true, limit: 1, ..scan() };
        assert_eq!(kv.scan(keys_only).await.unwrap().1, [("a".to_string(), String::new())]);
        let fine = kv.scan(ScanRequest { limit: 1, ..scan() }).await.unwrap().1;
        assert_eq!(fine, [("a".to_string(), "value".to_string())]);
    });
}

/// A scan over many pages, in both directions, while all of its keys change.
#[test]
fn long_scan_reads_one_snapshot() {
    TestServer::with_kv().run(async |client, _| {
        let kv = Kv::new(&client);
        let key = |number: u32| format!("key{number:05}");
        for numbers in [0..5000, 5000..10_000] {
            let puts = numbers.map(|number| put_of("", &key(number), &"v".repeat(300))).collect();
            kv.batch(puts, vec![]).await.unwrap();
        }
        let expected: Vec<String> = (0..10_000).map(key).collect();
        for reverse in [false, true] {
            let scan = ScanRequest { reverse, ..ScanRequest::default() };
            let mut answers = kv.begin_scan(scan).await.unwrap();
            let first = answers.message().await.unwrap().unwrap();
            let sequence = first.sequence;
            kv.batch(vec![delete_range_of("", "key", "kez")], vec![]).await.unwrap();
            kv.put(b"key00000x", b"new").await.unwrap();
            let (mut keys, mut messages) = (Vec::new(), 1);
            keys.extend(first.entries.iter().map(|entry| super::kv_client::shown(entry).0));
            while let Some(answer) = answers.message().await.unwrap() {
                assert_eq!(answer.sequence, sequence);
                assert!(answer.entries.iter().all(|entry| entry.value.len() == 300));
                keys.extend(answer.entries.iter().map(|entry| super::kv_client::shown(entry).0));
                messages += 1;
            }
            assert!(messages > 2, "{messages}");
            if reverse {
                keys.reverse();
            }
            assert_eq!(keys, expected);
            let puts = (0..10_000).map(|number| put_of("", &key(number), &"v".repeat(300)));
            kv.delete(b"key00000x").await.unwrap();
            kv.batch(puts.collect(), vec![]).await.unwrap();
        }
    });
}

#[test]
fn invalid_request_is_rejected_with_a_reason() {
    TestServer::with_kv().run(async |client, _| {
        let kv = Kv::new(&client);
        let long = vec![b'k'; KEY_BYTES_MAX + 1];
        let large = vec![b'v'; VALUE_BYTES_MAX + 1];
        let many = vec![b"k".to_vec(); 1001];
        let many = MultiGetRequest { keyspace: String::new(), keys: many };
        let scan = ScanRequest { prefix: long.clone(), ..ScanRequest::default() };
        let watch = WatchRequest { prefix: long.clone(), ..WatchRequest::default() };
        let cases = [
            (kv.get(b"").await.unwrap_err(), "the key is empty"),
            (kv.put(b"", b"v").await.unwrap_err(), "the key is empty"),
            (kv.delete(b"").await.unwrap_err(), "the key is empty"),
            (kv.get(&long).await.unwrap_err(), "the key has 65537 bytes; the limit is 65536"),
            (kv.put(&long, b"").await.unwrap_err(), "the key has 65537 bytes"),
            (kv.put(b"k", &large).await.unwrap_err(), "the value has 8388609 bytes"),
            (kv.put(b"k", &vec![0; 18 << 20]).await.unwrap_err(), "a value may have 8388608"),
            (kv.batch(vec![], vec![]).await.unwrap_err(), "no operations"),
            (kv.call::<_, ()>("MultiGet", many).await.unwrap_err(), "there are 1001 keys"),
            (kv.scan(scan).await.unwrap_err(), "the prefix has 65537 bytes"),
            (kv.watch(watch).await.unwrap_err(), "the prefix has 65537 bytes"),
        ];
        for (status, why) in cases {
            assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
            assert!(status.message().contains(why), "{status:?}");
        }
        // The longest key and the largest value allowed.
        let (key, value) = (&long[1..], &large[1..]);
        kv.put(key, value).await.unwrap();
        assert_eq!(kv.get(key).await.unwrap().unwrap(), value);
        let scan = ScanRequest { keys_only: true, ..ScanRequest::default() };
        assert_eq!(kv.keys(scan).await[0].len(), KEY_BYTES_MAX);
        let two = MultiGetRequest { keyspace: String::new(), keys: vec![key.to_vec(); 2] };
        let refused = kv.call::<_, ()>("MultiGet", two).await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted);
        assert!(refused.message().contains("fewer keys"), "{refused:?}");
    });
}

/// A process that opens the store directly can write values too large for the network.
#[test]
fn oversized_value_is_reported() {
    let mut server = TestServer::with_kv();
    let keyspace = server.kv.as_ref().unwrap().keyspace("default", None).unwrap();
    keyspace.put(b"huge", vec![7; VALUE_BYTES_MAX + 1]).unwrap();
    keyspace.put(b"small", b"1").unwrap();
    server.run(async |client, _| {
        let kv = Kv::new(&client);
        let of_get = kv.get(b"huge").await.unwrap_err();
        let of_scan = kv.scan(ScanRequest::default()).await.unwrap_err();
        for status in [of_get, of_scan] {
            assert_eq!(status.code(), Code::FailedPrecondition);
            assert!(status.message().contains("key huge has 8388609 bytes"), "{status:?}");
        }
        let keys_only = ScanRequest { keys_only: true, ..ScanRequest::default() };
        assert_eq!(kv.keys(keys_only).await, ["huge", "small"]);
        assert_eq!(kv.get(b"small").await.unwrap().unwrap(), b"1");
    });
}

#[test]
fn server_without_kv_reports_the_option() {
    TestServer::new().run(async |client, _| {
        let kv = Kv::new(&client);
        let status = kv.get(b"key").await.unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented);
        assert!(status.message().contains("--kv"), "{status:?}");
        let status = kv.call::<(), ()>("NoSuchCall", ()).await.unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented);
    });
    TestServer::with_kv().run(async |client, _| {
        let status = Kv::new(&client).call::<(), ()>("NoSuchCall", ()).await.unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented);
        assert!(status.message().contains("NoSuchCall"), "{status:?}");
    });
}

#[test]
fn watch_reports_changes_from_its_start() {
    TestServer::with_kv().run(async |client, _| {
        let kv = Kv::new(&client);
        kv.create("users").await.unwrap();
        let before = kv.put(b"cart-1", b"old").await.unwrap();
        let prefix = b"cart-".to_vec();
        let mut watch = kv.watch(WatchRequest { prefix, ..WatchRequest::default() }).await.unwrap();
        let started = event(&mut watch).await.unwrap();
        assert_eq!(started, WatchEvent::Started(Started { sequence: before }));
        kv.put(b"user-1", b"unseen").await.unwrap();
        kv.of("users").put(b"cart-9", b"unseen").await.unwrap();
        let put = kv.put(b"cart-1", b"new").await.unwrap();
        let operations = vec![
            put_of("", "cart-2", "two"),
            put_of("users", "cart-2", "unseen"),
            delete_of("", "cart-1"),
            delete_range_of("", "a", "z"),
        ];
        let batch = kv.batch(operations, vec![]).await.unwrap();
        let update = changes(&mut watch).await;
        assert_eq!((update.sequence, update.changes.len()), (put, 1));
        let update = changes(&mut watch).await;
        assert_eq!((update.sequence, update.changes.len()), (batch, 3));
        assert_eq!(update.changes[1].kind, Some(ChangeKind::Delete("cart-1".into())));
    });
}

#[test]
fn watch_with_entries_sends_existing_entries_first() {
    TestServer::with_kv().run(async |client, _| {
        let kv = Kv::new(&client);
        kv.put(b"a", b"1").await.unwrap();
        let last = kv.put(b"b", b"2").await.unwrap();
        let request = WatchRequest { with_entries: true, ..WatchRequest::default() };
        let keys_only = WatchRequest { keys_only: true, ..request.clone() };
        for (request, wanted) in [(request, ["1", "2", "3"]), (keys_only, ["", "", ""])] {
            let mut watch = kv.watch(request).await.unwrap();
            let WatchEvent::Entries(entries) = event(&mut watch).await.unwrap() else {
                panic!("entries come first");
            };
            let values: Vec<&[u8]> = entries.entries.iter().map(|entry| &entry.value[..]).collect();
            assert_eq!(values, [wanted[0].as_bytes(), wanted[1].as_bytes()]);
            assert!(matches!(event(&mut watch).await.unwrap(), WatchEvent::Started(s)
                if s.sequence >= last));
            kv.put(b"c", b"3").await.unwrap();
            let update = changes(&mut watch).await;
            let Some(ChangeKind::Put(put)) = &update.changes[0].kind else { panic!("{update:?}") };
            assert_eq!((&put.key[..], &put.value[..]), (&b"c"[..], wanted[2].as_bytes()));
            kv.delete(b"c").await.unwrap();
        }
    });
}

/// Of two clients one reads nothing and is evicted, while the other receives every write.
#[test]
fn slow_watch_is_evicted_without_blocking_others() {
    TestServer::with_kv().run(async |client, server| {
        let kv = Kv::new(&client);
        let other = Kv::new(&super::client::Client::connect(server.address()).await.0);
        let mut slow = other.watch(WatchRequest::default()).await.unwrap();
        let mut quick = kv.watch(WatchRequest::default()).await.unwrap();
        assert!(matches!(event(&mut quick).await.unwrap(), WatchEvent::Started(_)));
        let value = vec![b'v'; 1 << 20];
        let mut last = 0;
        for _ in 0..40 {
            last = kv.put(b"key", &value).await.unwrap();
            assert_eq!(changes(&mut quick).await.sequence, last);
        }
        assert!(matches!(event(&mut slow).await.unwrap(), WatchEvent::Started(_)));
        let mut update = 0;
        let status = loop {
            match event(&mut slow).await {
                Ok(_) => update += 1,
                Err(status) => break status,
            }
        };
        assert!(update < 40, "{update}");
        assert_eq!(status.code(), Code::Aborted);
        assert!(status.message().contains("watch again and then scan"), "{status:?}");
        let mut again = other.watch(WatchRequest::default()).await.unwrap();
        let started = event(&mut again).await.unwrap();
        assert_eq!(started, WatchEvent::Started(Started { sequence: last }));
    });
}

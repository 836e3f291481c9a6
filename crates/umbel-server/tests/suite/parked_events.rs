//! Tests of parked events: unlimited reasons, very long links, and failed writes.

use std::time::Duration;

use tokio::time::Instant;
use tonic::Code;
use umbel_events::{Direction, ExpectedVersion, NewEvent, Revision};
use umbel_proto::persistent::{
    CheckpointAfter, Nack, NackAction, ReadReq, ReadReqContent, Settings,
};
use umbel_proto::shared::Uuid;

use super::client::{ANY, events, id};
use super::http_client::send;
use super::persistent_subscriptions::{Consumer, create, delete, of_stream, settings, until};
use super::test_server::TestServer;

const PARKED: &str = "$persistentsubscription-cart::group-parked";

fn park(consumer: &Consumer, ids: Vec<Uuid>, reason: &str) {
    let (action, reason) = (NackAction::Park.into(), reason.to_string());
    let nack = Nack { id: Vec::new(), ids, action, reason };
    consumer.sender.send(ReadReq { content: Some(ReadReqContent::Nack(nack)) }).unwrap();
}

/// Story: the reason for parking had no limit. The reason was kept and written once per event of
/// the nack, so that a consumer could use up all memory.
#[test]
fn long_park_reason_is_truncated() {
    TestServer::new().run(async |client, server| {
        client.append("cart", ANY, &events(0..3)).await.unwrap();
        create(&client, of_stream("cart", settings())).await.unwrap();
        let mut consumer = Consumer::of(&client, "cart", 10).await;
        for wanted in 0..3 {
            assert_eq!(consumer.number().await, (wanted, 0));
        }
        let short = "s".repeat(1024);
        park(&consumer, vec![id(0), id(1)], &"é".repeat(4 << 20));
        park(&consumer, vec![id(2)], &short);
        until(&client, "cart", |info| info.parked_message_count == 3).await;
        let parked = server.store.read(PARKED, Revision(0), Direction::Forwards);
        let reasons = parked.map(|event| {
            let metadata: serde_json::Value =
                serde_json::from_slice(&event.unwrap().metadata).unwrap();
            metadata["reason"].as_str().unwrap().to_string()
        });
        let cut = format!("{}…", "é".repeat(510));
        assert_eq!(reasons.collect::<Vec<_>>(), [cut.clone(), cut, short]);
    });
}

/// Story: a message of 17 MiB could name a million events. Sixty-four such messages were queued for
/// each group, and no quota counted them.
#[test]
fn ack_of_more_events_than_in_flight_is_rejected() {
    TestServer::new().run(async |client, _| {
        client.append("cart", ANY, &events(0..1)).await.unwrap();
        create(&client, of_stream("cart", settings())).await.unwrap();
        let mut consumer = Consumer::of(&client, "cart", 10).await;
        consumer.number().await;
        consumer.ack(vec![id(7); 10_000]);
        park(&consumer, vec![id(7); 10_001], "no");
        let status = consumer.end().await;
        assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
        assert_eq!(status.message(), "the message names 10001 events; the limit is 10000");
        // Events in flight go to the next consumer.
        let mut consumer = Consumer::of(&client, "cart", 10).await;
        assert_eq!(consumer.number().await, (0, 1));
    });
}

/// Story: a parked link was written unchanged. Any client can write a link of 8 MiB; with the
/// reason added, the store refuses the event. Each failed park dropped all consumers of the group,
/// once a second, for ever.
#[test]
fn oversized_links_are_parked() {
    TestServer::new().run(async |client, server| {
        client.append("other", ANY, &events(7..8)).await.unwrap();
        let long = "x".repeat(8 << 20);
        let leads = format!("{}0@other", "0".repeat(2000));
        for data in [&leads[..], "0@other", "0@none", &long, &long] {
            let link = NewEvent::binary(server.store.new_id().unwrap(), "$>", data.as_bytes());
            server.store.append("cart", ExpectedVersion::Any, &[link]).unwrap();
        }
        // A group that resolves links leaves out those that lead to no event.
        let resolved = ["0@other", "0@other"];
        let unresolved = ["0@cart", "1@cart", "2@cart", "3@cart", "4@cart"];
        for (resolve_links, wanted) in [(true, &resolved[..]), (false, &unresolved)] {
            let settings = Settings { resolve_links, ..settings() };
            create(&client, of_stream("cart", settings)).await.unwrap();
            let mut consumer = Consumer::of(&client, "cart", 10).await;
            let mut ids = Vec::new();
            for _ in wanted {
                let next = consumer.next().await;
                assert!(next.event.is_some() && next.link.is_some() == resolve_links);
                ids.push(next.link.or(next.event).unwrap().id.unwrap());
            }
            consumer.is_quiet().await;
            park(&consumer, ids, "no");
            until(&client, "cart", |info| info.parked_message_count == wanted.len() as i64).await;
            let parked = server.store.read(PARKED, Revision(0), Direction::Forwards);
            let links = parked.map(|event| String::from_utf8(event.unwrap().data).unwrap());
            assert_eq!(links.collect::<Vec<_>>(), wanted);
            delete(&client, "cart").await.unwrap();
        }
    });
}

/// Story: if the server could not write parked events, consumers got misleading errors: an invalid
/// append, or a deleted stream unknown to them.
#[test]
fn failed_park_is_a_server_error_and_retried() {
    TestServer::new().run(async |client, server| {
        client.append("cart", ANY, &events(0..2)).await.unwrap();
        // A due checkpoint does not make the retry earlier.
        let checkpoint_after = Some(CheckpointAfter::CheckpointAfterMs(100));
        let rare = Settings { checkpoint_after, max_checkpoint_count: 0, ..settings() };
        create(&client, of_stream("cart", rare)).await.unwrap();
        let replacements = (2..10).map(|number| PARKED.replacen('-', &format!(".{number}-"), 1));
        for stream in std::iter::once(PARKED.to_string()).chain(replacements) {
            server.store.tombstone(&stream, ExpectedVersion::Any).unwrap();
        }
        let mut consumer = Consumer::of(&client, "cart", 10).await;
        consumer.number().await;
        consumer.number().await;
        consumer.ack(vec![id(0)]);
        park(&consumer, vec![id(1)], "no");
        let begun = Instant::now();
        for _ in 0..3 {
            let status = consumer.end().await;
            assert_eq!(status.code(), Code::Internal, "{status:?}");
            assert!(status.message().contains("cannot store its progress"), "{status:?}");
            consumer = Consumer::of(&client, "cart", 10).await;
        }
        assert!(begun.elapsed() > Duration::from_secs(1), "{:?}", begun.elapsed());
    });
}

/// Story: after an administrator had tombstoned a stream of parked events, the console and the
/// `parkedMessageUri` of the API still named that stream, which has no events any more.
#[test]
fn parked_events_are_found_in_the_replaced_stream() {
    TestServer::new().run(async |client, server| {
        client.append("cart", ANY, &events(0..1)).await.unwrap();
        create(&client, of_stream("cart", settings())).await.unwrap();
        server.store.tombstone(PARKED, ExpectedVersion::Any).unwrap();
        let replaced = PARKED.replacen('-', ".2-", 1);
        let mut consumer = Consumer::of(&client, "cart", 10).await;
        consumer.number().await;
        park(&consumer, vec![id(0)], "no");
        until(&client, "cart", |info| info.parked_message_count == 1).await;
        let address = server.address();
        let check = move || {
            let get = |path: &str| send(address, "GET", path, &[], b"").is(200);
            for path in ["/subscriptions/cart/group/info", "/subscriptions/cart"] {
                let mut found = get(path);
                if let Some(list) = found.as_array() {
                    found = list[0].clone();
                }
                let uri = found["parkedMessageUri"].as_str().unwrap().to_string();
                assert!(uri.contains("persistentsubscription%2E2%2Dcart"), "{uri}");
                assert!(get(&uri).is_object(), "a page of events");
            }
            let group = get("/console/api/group?source=cart&group=group");
            assert_eq!(group["parkedStream"], replaced);
        };
        tokio::task::spawn_blocking(check).await.unwrap();
    });
}

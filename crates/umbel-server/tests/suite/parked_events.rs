//! What groups of consumers put aside: reasons without end, links without end, and what cannot be
//! written.

use std::time::Duration;

use tokio::time::Instant;
use tonic::Code;
use umbel_events::{Direction, Expected, NewEvent, Revision};
use umbel_proto::persistent::{CheckpointAfter, Nack, NackAction, ReadReq, Said, Settings};
use umbel_proto::shared::Uuid;

use super::client::{ANY, events, id};
use super::ground::Ground;
use super::persistent::{Consumer, create, of_stream, settings, until};

const PARKED: &str = "$persistentsubscription-cart::group-parked";

fn park(consumer: &Consumer, ids: Vec<Uuid>, reason: &str) {
    let (action, reason) = (NackAction::Park.into(), reason.to_string());
    let nack = Nack { id: Vec::new(), ids, action, reason };
    consumer.says.send(ReadReq { content: Some(Said::Nack(nack)) }).unwrap();
}

/// Story: the reason for parking had no limit. It was held as often as the answer named events, and
/// written as often: who read a stream could take all memory there was.
#[test]
fn a_long_reason_is_cut() {
    Ground::new().run(async |client, ground| {
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
        let parked = ground.store.read(PARKED, Revision(0), Direction::Forwards);
        let reasons = parked.map(|event| {
            let said: serde_json::Value = serde_json::from_slice(&event.unwrap().metadata).unwrap();
            said["reason"].as_str().unwrap().to_string()
        });
        let cut = format!("{}…", "é".repeat(510));
        assert_eq!(reasons.collect::<Vec<_>>(), [cut.clone(), cut, short]);
    });
}

/// Story: a message of 17 MiB could name a million events. Sixty-four of them waited for each
/// group, and nothing counted them.
#[test]
fn a_consumer_names_no_more_events_than_can_be_on_the_way() {
    Ground::new().run(async |client, _| {
        client.append("cart", ANY, &events(0..1)).await.unwrap();
        create(&client, of_stream("cart", settings())).await.unwrap();
        let mut consumer = Consumer::of(&client, "cart", 10).await;
        consumer.number().await;
        consumer.ack(vec![id(7); 10_000]);
        park(&consumer, vec![id(7); 10_001], "no");
        let told = consumer.end().await;
        assert_eq!(told.code(), Code::InvalidArgument, "{told:?}");
        assert_eq!(told.message(), "the message names 10001 events; name 10000 at most in one");
        // What was on the way comes to the next.
        let mut consumer = Consumer::of(&client, "cart", 10).await;
        assert_eq!(consumer.number().await, (0, 1));
    });
}

/// Story: a link that is parked was written as it is. Anybody can write one of 8 MiB: with
/// the reason that is no event that the store takes. All consumers were
/// dropped each second, for ever.
#[test]
fn links_without_end_are_parked() {
    Ground::new().run(async |client, ground| {
        client.append("other", ANY, &events(7..8)).await.unwrap();
        let long = "x".repeat(8 << 20);
        let leads = format!("{}0@other", "0".repeat(2000));
        for data in [&leads[..], "0@other", "0@none", &long, &long] {
            let link = NewEvent::binary(ground.store.new_id().unwrap(), "$>", data.as_bytes());
            ground.store.append("cart", Expected::Any, &[link]).unwrap();
        }
        let resolving = Settings { resolve_links: true, ..settings() };
        create(&client, of_stream("cart", resolving)).await.unwrap();
        let mut consumer = Consumer::of(&client, "cart", 10).await;
        let mut ids = Vec::new();
        for leads in [true, true, false, false, false] {
            let next = consumer.next().await;
            assert_eq!(next.event.is_some(), leads);
            ids.push(next.link.unwrap().id.unwrap());
        }
        park(&consumer, ids, "no");
        until(&client, "cart", |info| info.parked_message_count == 5).await;
        let parked = ground.store.read(PARKED, Revision(0), Direction::Forwards);
        let said = parked.map(|event| String::from_utf8(event.unwrap().data).unwrap());
        let wanted = ["0@other", "0@other", "0@none", "3@cart", "4@cart"];
        assert_eq!(said.collect::<Vec<_>>(), wanted);
    });
}

/// Story: consumers were told that what they had appended was wrong, or that a stream was deleted
/// which they do not know, where the server could not write what they parked.
#[test]
fn what_cannot_be_parked_is_the_servers_failure_and_tried_again_at_leisure() {
    Ground::new().run(async |client, ground| {
        client.append("cart", ANY, &events(0..2)).await.unwrap();
        // That a checkpoint is due is no reason to try again sooner.
        let checkpoint_after = Some(CheckpointAfter::Millis(100));
        let rare = Settings { checkpoint_after, max_checkpoint_count: 0, ..settings() };
        create(&client, of_stream("cart", rare)).await.unwrap();
        ground.store.tombstone(PARKED, Expected::Any).unwrap();
        let mut consumer = Consumer::of(&client, "cart", 10).await;
        consumer.number().await;
        consumer.number().await;
        consumer.ack(vec![id(0)]);
        park(&consumer, vec![id(1)], "no");
        let begun = Instant::now();
        for _ in 0..3 {
            let told = consumer.end().await;
            assert_eq!(told.code(), Code::Internal, "{told:?}");
            assert!(told.message().contains("cannot keep what became of its events"), "{told:?}");
            consumer = Consumer::of(&client, "cart", 10).await;
        }
        assert!(begun.elapsed() > Duration::from_secs(1), "{:?}", begun.elapsed());
    });
}

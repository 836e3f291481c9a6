//! Tests of events that a group passes without a delivery: links that lead to no event, and events
//! that do not pass the filter.

use std::time::Duration;

use umbel_events::{Direction, ExpectedVersion, NewEvent, Position, Revision, Store};
use umbel_proto::persistent::{
    Nack, NackAction, ReadReq, ReadReqContent, ReadStreamOption, Settings, StopAt, SubscriptionInfo,
};

use super::client::{ANY, Client, events, id, number};
use super::persistent_subscriptions::{
    Consumer, by_stream, create, of_all, of_stream, replay, settings, until,
};
use super::test_server::TestServer;

fn resolving() -> Settings {
    Settings { resolve_links: true, ..settings() }
}

/// Takes the next event with a number, acknowledges it, and returns its number. An event without a
/// number was delivered before its stream was deleted.
async fn take(consumer: &mut Consumer) -> u64 {
    loop {
        let next = consumer.next().await;
        let event = next.event.as_ref().expect("the link leads to an event");
        let taken = (*event.data != *b"{}").then(|| number(event));
        consumer.ack(vec![next.link.or(next.event).unwrap().id.unwrap()]);
        if let Some(taken) = taken {
            return taken;
        }
    }
}

/// Deletes or tombstones streams of the category `cart` with an event each.
fn append_and_delete(store: &Store, streams: std::ops::Range<u64>) {
    for number in streams {
        let stream = format!("cart-{number}");
        let event = NewEvent::json(store.new_id().unwrap(), "Happened", b"{}");
        store.append(&stream, ExpectedVersion::Any, &[event]).unwrap();
        match number % 2 {
            0 => store.delete(&stream, ExpectedVersion::Any).unwrap(),
            _ => store.tombstone(&stream, ExpectedVersion::Any).unwrap(),
        };
    }
}

/// Story: a group over a category with 300 deleted streams in front delivered nothing for minutes.
/// It sent bare links, which clients drop without an ack, until each had been retried and parked.
#[test]
fn group_leaves_out_links_that_lead_to_no_event() {
    TestServer::new().run(async |client, server| {
        append_and_delete(&server.store, 0..300);
        let small = Settings { history_buffer_size: 21, ..resolving() };
        create(&client, of_stream("$ce-cart", small)).await.unwrap();
        let mut consumer = Consumer::of(&client, "$ce-cart", 10).await;
        // The checkpoint passes them, although nothing was delivered.
        let last = || server.store.view("$ce-cart", Position::END).unwrap().unwrap().last;
        let reached = async |last: u64| {
            let is_so =
                |info: &SubscriptionInfo| info.last_checkpointed_event_position == last.to_string();
            until(&client, "$ce-cart", is_so).await;
        };
        reached(last()).await;
        consumer.is_quiet().await;
        client.append("cart-live", ANY, &events(0..2)).await.unwrap();
        append_and_delete(&server.store, 300..310);
        client.append("cart-live", ANY, &events(2..3)).await.unwrap();
        for wanted in 0..3 {
            assert_eq!(take(&mut consumer).await, wanted);
        }
        reached(last()).await;
        consumer.is_quiet().await;
        drop(consumer);
        server.stop().await.unwrap();
        let client = server.serve_again().await;
        let mut consumer = Consumer::of(&client, "$ce-cart", 10).await;
        consumer.is_quiet().await;
    });
}

/// Without resolved links, a group delivers the links themselves, as before.
#[test]
fn group_without_resolved_links_delivers_links_to_deleted_streams() {
    TestServer::new().run(async |client, server| {
        append_and_delete(&server.store, 0..3);
        create(&client, of_stream("$ce-cart", settings())).await.unwrap();
        let mut consumer = Consumer::of(&client, "$ce-cart", 10).await;
        for _ in 0..3 {
            assert_eq!(consumer.next().await.event.unwrap().metadata["type"], "$>");
        }
    });
}

async fn park_two(client: &Client, source: &str) -> Consumer {
    let mut consumer = Consumer::of(client, source, 10).await;
    for _ in 0..2 {
        let next = consumer.next().await;
        let original = next.link.or(next.event).unwrap();
        let nack = Nack {
            id: Vec::new(),
            ids: vec![original.id.unwrap()],
            action: NackAction::Park.into(),
            reason: "because".to_string(),
        };
        let content = Some(ReadReqContent::Nack(nack));
        consumer.sender.send(ReadReq { content }).unwrap();
    }
    until(client, source, |info| info.parked_message_count == 2).await;
    consumer
}

/// Story: a parked event whose source was gone came in each replay, and was parked again, for ever.
#[test]
fn replay_leaves_out_parked_events_whose_source_is_gone() {
    for (source, resolve_links) in [("cart-1", false), ("$ce-cart", true), ("$ce-cart", false)] {
        TestServer::new().run(async |client, server| {
            client.append("cart-1", ANY, &events(0..2)).await.unwrap();
            let settings = Settings { resolve_links, ..settings() };
            create(&client, of_stream(source, settings)).await.unwrap();
            let mut consumer = park_two(&client, source).await;
            server.store.delete("cart-1", ExpectedVersion::Any).unwrap();
            replay(&client, source, StopAt::NoLimit(())).await;
            until(&client, source, |info| info.parked_message_count == 0).await;
            consumer.is_quiet().await;
            // What is parked later is replayed.
            client.append("cart-1", ANY, &events(2..4)).await.unwrap();
            drop(consumer);
            let mut consumer = park_two(&client, source).await;
            replay(&client, source, StopAt::NoLimit(())).await;
            for wanted in 2..4 {
                assert_eq!(take(&mut consumer).await, wanted, "{source}");
            }
            until(&client, source, |info| info.parked_message_count == 0).await;
        });
    }
}

/// Story: a filtered group that finds little stored no checkpoint, and examined everything again
/// after each restart.
#[test]
fn filtered_group_stores_a_checkpoint_past_skipped_events() {
    const CHECKPOINTS: &str = "$persistentsubscription-$all::group-checkpoint";
    TestServer::new().run(async |client, server| {
        let store = server.store.clone();
        let append_others = || {
            for _ in 0..6 {
                let event = NewEvent::binary(store.new_id().unwrap(), "Other", &[7; 1 << 20]);
                store.append("other", ExpectedVersion::Any, &[event]).unwrap();
            }
        };
        let checkpoints = || {
            let read = store.read(CHECKPOINTS, Revision(0), Direction::Forwards);
            read.map(|event| String::from_utf8(event.unwrap().data).unwrap()).collect::<Vec<_>>()
        };
        create(&client, of_all(by_stream("^cart", &[]))).await.unwrap();
        let mut consumer = Consumer::join(&client, ReadStreamOption::All(()), 10).await.unwrap();
        append_others();
        while checkpoints().is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // A checkpoint causes no further checkpoint.
        tokio::time::sleep(Duration::from_millis(200)).await;
        let written = checkpoints();
        let position = written[0].split(['C', ':', '/']).find_map(|part| part.parse::<u64>().ok());
        assert!(position.unwrap() >= 4 << 20, "{written:?}");
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(checkpoints(), written);
        drop(consumer);
        server.stop().await.unwrap();
        let client = server.serve_again().await;
        consumer = Consumer::join(&client, ReadStreamOption::All(()), 10).await.unwrap();
        client.append("cart-1", ANY, &events(0..1)).await.unwrap();
        assert_eq!(consumer.number().await, (0, 0));
        consumer.ack(vec![id(0)]);
    });
}

//! Tests of consumer groups whose own streams were deleted, tombstoned, truncated or written to by
//! others: the group continues, and its state recovers.

use tonic::{Code, Status};
use umbel_events::{ExpectedVersion, NewEvent, Store, metadata_stream};
use umbel_proto::persistent::{
    GroupOrigin, NackAction, ReplayParkedOptions, ReplayParkedReq, ReplayStreamOption, StopAt,
};
use umbel_proto::streams::read_req::RevisionOption;

use super::client::{ANY, Client, events, id, name};
use super::persistent_subscriptions::{
    Consumer, SERVICE, create, delete, info, of_stream, replay, settings, until,
};
use super::test_server::TestServer;

const CONFIG: &str = "$persistentSubscriptionConfig";
const CHECKPOINT: &str = "$persistentsubscription-cart::group-checkpoint";
const PARKED: &str = "$persistentsubscription-cart::group-parked";

/// Damage of a stream of the server by another writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Harm {
    Deleted,
    Tombstoned,
    Truncated,
    Junk,
    Recreated,
}

const HARMS: [Harm; 5] =
    [Harm::Deleted, Harm::Tombstoned, Harm::Truncated, Harm::Junk, Harm::Recreated];

fn put(store: &Store, stream: &str, kind: &str, data: &str) {
    let event = NewEvent::json(store.new_id().unwrap(), kind, data.as_bytes());
    store.append(stream, ExpectedVersion::Any, &[event]).unwrap();
}

fn harm(store: &Store, stream: &str, harm: Harm) {
    match harm {
        Harm::Deleted => drop(store.delete(stream, ExpectedVersion::Any).map(|_| ())),
        Harm::Tombstoned => drop(store.tombstone(stream, ExpectedVersion::Any).map(|_| ())),
        Harm::Truncated => put(store, &metadata_stream(stream), "$metadata", r#"{"$tb":1}"#),
        Harm::Junk => put(store, stream, "Other", "[junk"),
        Harm::Recreated => {
            store.delete(stream, ExpectedVersion::Any).unwrap();
            put(store, stream, "Other", "[junk");
        }
    }
}

async fn exists(client: &Client, stream: &str) {
    assert_eq!(info(client, stream).await.event_source, stream);
}

/// Deletes the group and creates it again; it starts from the beginning.
async fn create_again(client: &Client, number_of_events: u64) {
    delete(client, "cart").await.unwrap();
    create(client, of_stream("cart", settings())).await.unwrap();
    let mut consumer = Consumer::of(client, "cart", 100).await;
    for wanted in 0..number_of_events {
        assert_eq!(consumer.number().await, (wanted, 0));
    }
    assert_eq!(info(client, "cart").await.parked_message_count, 0);
}

/// Restarts the server. The group delivers nothing again, and can be deleted and created again.
async fn check_after_restart(server: &mut TestServer) {
    server.stop().await.unwrap();
    let client = server.serve_again().await;
    let mut consumer = Consumer::of(&client, "cart", 10).await;
    consumer.is_quiet().await;
    drop(consumer);
    create_again(&client, 2).await;
}

/// Story: a tombstoned parked stream cut off all consumers once a second, for ever, and kept the
/// group's name from being created again; a deleted one kept its count.
#[test]
fn group_continues_in_every_state_of_its_parked_stream() {
    for what in HARMS {
        TestServer::new().run(async |client, server| {
            client.append("cart", ANY, &events(0..2)).await.unwrap();
            create(&client, of_stream("cart", settings())).await.unwrap();
            let mut consumer = Consumer::of(&client, "cart", 10).await;
            consumer.number().await;
            consumer.number().await;
            consumer.nack(0, NackAction::Park);
            until(&client, "cart", |info| info.parked_message_count == 1).await;
            harm(&server.store, PARKED, what);
            let before = match what {
                Harm::Deleted | Harm::Tombstoned | Harm::Truncated => 0,
                Harm::Recreated => 1,
                Harm::Junk => 2,
            };
            until(&client, "cart", |info| info.parked_message_count == before).await;
            consumer.nack(1, NackAction::Park);
            until(&client, "cart", |info| info.parked_message_count == before + 1).await;
            replay(&client, "cart", StopAt::NoLimit(())).await;
            let mut last = None;
            for _ in 0..=before {
                let next = consumer.next().await;
                let sent = next.link.clone().or(next.event.clone()).unwrap().id.unwrap();
                consumer.ack(vec![sent]);
                last = next.event;
            }
            assert_eq!(last.unwrap().id, Some(id(1)), "{what:?}");
            until(&client, "cart", |info| info.parked_message_count == 0).await;
            until(&client, "cart", |info| info.last_checkpointed_event_position == "1").await;
            consumer.is_quiet().await;
            check_after_restart(server).await;
        });
    }
}

/// A tombstone while replayed events are in flight: what is parked afterwards is not mistaken for
/// them.
#[test]
fn events_parked_after_a_tombstone_are_replayed_whole() {
    TestServer::new().run(async |client, server| {
        client.append("cart", ANY, &events(0..4)).await.unwrap();
        create(&client, of_stream("cart", settings())).await.unwrap();
        let mut consumer = Consumer::of(&client, "cart", 10).await;
        for number in 0..4 {
            consumer.number().await;
            if number < 2 {
                consumer.nack(number, NackAction::Park);
            }
        }
        until(&client, "cart", |info| info.parked_message_count == 2).await;
        replay(&client, "cart", StopAt::NoLimit(())).await;
        let old = [consumer.next().await, consumer.next().await];
        server.store.tombstone(PARKED, ExpectedVersion::Any).unwrap();
        for number in 2..4 {
            consumer.nack(number, NackAction::Park);
        }
        until(&client, "cart", |info| info.parked_message_count == 2).await;
        for event in old {
            consumer.ack(vec![event.link.unwrap().id.unwrap()]);
        }
        assert_eq!(info(&client, "cart").await.parked_message_count, 2);
        replay(&client, "cart", StopAt::NoLimit(())).await;
        for number in 2..4 {
            let next = consumer.next().await;
            assert_eq!(next.event.unwrap().id, Some(id(number)));
            consumer.ack(vec![next.link.unwrap().id.unwrap()]);
        }
        until(&client, "cart", |info| info.parked_message_count == 0).await;
    });
}

#[test]
fn group_continues_in_every_state_of_its_checkpoint_stream() {
    for what in HARMS {
        TestServer::new().run(async |client, server| {
            client.append("cart", ANY, &events(0..2)).await.unwrap();
            create(&client, of_stream("cart", settings())).await.unwrap();
            let mut consumer = Consumer::of(&client, "cart", 10).await;
            consumer.number().await;
            consumer.ack(vec![id(0)]);
            until(&client, "cart", |info| info.last_checkpointed_event_position == "0").await;
            harm(&server.store, CHECKPOINT, what);
            consumer.number().await;
            consumer.ack(vec![id(1)]);
            until(&client, "cart", |info| info.last_checkpointed_event_position == "1").await;
            check_after_restart(server).await;
        });
    }
}

/// Story: after a tombstone or truncation of the stream that lists the groups, no group could be
/// created any more. A failed create had replaced its metadata, which brought deleted lists back.
#[test]
fn groups_are_kept_and_created_in_every_state_of_their_list() {
    for what in HARMS {
        for is_restarted_first in [false, true] {
            TestServer::new().run(async |mut client, server| {
                client.append("cart", ANY, &events(0..1)).await.unwrap();
                create(&client, of_stream("cart", settings())).await.unwrap();
                let own = r#"{"$acl":{"$r":["ada"]},"$maxCount":5,"color":"red"}"#;
                put(&server.store, &metadata_stream(CONFIG), "$metadata", own);
                harm(&server.store, CONFIG, what);
                if is_restarted_first {
                    server.stop().await.unwrap();
                    client = server.serve_again().await;
                    let again = create(&client, of_stream("cart", settings())).await;
                    assert_eq!(again.is_err(), what == Harm::Junk, "{what:?}: {again:?}");
                }
                exists(&client, "cart").await;
                create(&client, of_stream("till", settings())).await.unwrap();
                server.stop().await.unwrap();
                let client = server.serve_again().await;
                exists(&client, "cart").await;
                exists(&client, "till").await;
                create_again(&client, 1).await;
                if !matches!(what, Harm::Tombstoned | Harm::Truncated) {
                    let metadata = server.store.metadata(CONFIG).unwrap().unwrap();
                    let metadata = String::from_utf8(metadata.data).unwrap();
                    assert!(metadata.contains(r#""color":"red""#), "{what:?}: {metadata}");
                    assert!(metadata.contains(r#""$acl":{"$r":["ada"]}"#), "{what:?}: {metadata}");
                }
            });
        }
    }
}

/// Story: after park, replay and ack the metadata of the parked stream had only `$tb`, and a first
/// checkpoint replaced the metadata of its stream.
#[test]
fn metadata_of_group_streams_keeps_the_keys_of_others() {
    TestServer::new().run(async |client, server| {
        let own = r#"{"$acl":{"$r":["ada"]},"$maxAge":3600,"color":"red"}"#;
        for stream in [PARKED, CHECKPOINT, CONFIG] {
            put(&server.store, &metadata_stream(stream), "$metadata", own);
        }
        client.append("cart", ANY, &events(0..2)).await.unwrap();
        create(&client, of_stream("cart", settings())).await.unwrap();
        // The create deleted what a former group of this name left.
        for stream in [PARKED, CHECKPOINT] {
            put(&server.store, &metadata_stream(stream), "$metadata", own);
        }
        let mut consumer = Consumer::of(&client, "cart", 10).await;
        consumer.number().await;
        consumer.number().await;
        consumer.nack(0, NackAction::Park);
        consumer.ack(vec![id(1)]);
        until(&client, "cart", |info| info.parked_message_count == 1).await;
        replay(&client, "cart", StopAt::NoLimit(())).await;
        let link = consumer.next().await.link.unwrap();
        consumer.ack(vec![link.id.unwrap()]);
        until(&client, "cart", |info| info.parked_message_count == 0).await;
        until(&client, "cart", |info| info.last_checkpointed_event_position == "1").await;
        for (stream, added) in [
            (PARKED, r#""$tb":1,"#),
            (CHECKPOINT, r#""$maxCount":5,"#),
            // A truncation follows once a second list is written.
            (CONFIG, ""),
        ] {
            let metadata = server.store.metadata(stream).unwrap().unwrap();
            let metadata = String::from_utf8(metadata.data).unwrap();
            let tb = metadata.replace(r#""$tb":0,"#, "");
            let wanted = own.replace(r#""color""#, &format!(r#"{added}"color""#));
            assert_eq!(tb, wanted, "{stream}");
        }
    });
}

async fn truncate(client: &Client, stream: &str, stop: StopAt) -> Result<(), Status> {
    let options = ReplayParkedOptions {
        group_name: "group".to_string(),
        stream_option: Some(ReplayStreamOption::StreamIdentifier(name(stream))),
        stop_at_option: Some(stop),
    };
    let request = ReplayParkedReq { options: Some(options) };
    client.unary::<_, ()>(SERVICE, "TruncateParked", request).await
}

#[test]
fn parked_events_are_truncated_without_a_replay() {
    TestServer::new().run(async |client, server| {
        client.append("cart", ANY, &events(0..5)).await.unwrap();
        let missing = truncate(&client, "cart", StopAt::NoLimit(())).await.unwrap_err();
        assert_eq!(missing.code(), Code::NotFound, "{missing:?}");
        let text = "Subscription group group on stream cart does not exist.";
        assert_eq!(missing.message(), text);
        create(&client, of_stream("cart", settings())).await.unwrap();
        let mut consumer = Consumer::of(&client, "cart", 10).await;
        for number in 0..5 {
            assert_eq!(consumer.number().await, (number, 0));
            consumer.nack(number, NackAction::Park);
        }
        until(&client, "cart", |info| info.parked_message_count == 5).await;
        let negative = truncate(&client, "cart", StopAt::StopAt(-1)).await.unwrap_err();
        assert_eq!(negative.code(), Code::InvalidArgument);
        truncate(&client, "cart", StopAt::StopAt(0)).await.unwrap();
        assert_eq!(info(&client, "cart").await.parked_message_count, 5);
        truncate(&client, "cart", StopAt::StopAt(2)).await.unwrap();
        assert_eq!(info(&client, "cart").await.parked_message_count, 3);
        // Of a replay in progress, one event is with the consumer and the others stay parked.
        replay(&client, "cart", StopAt::StopAt(3)).await;
        let next = consumer.next().await;
        assert_eq!(next.event.unwrap().id, Some(id(2)));
        truncate(&client, "cart", StopAt::NoLimit(())).await.unwrap();
        assert_eq!(info(&client, "cart").await.parked_message_count, 0);
        consumer.ack(vec![next.link.unwrap().id.unwrap()]);
        replay(&client, "cart", StopAt::NoLimit(())).await;
        consumer.is_quiet().await;
        assert_eq!(info(&client, "cart").await.parked_message_count, 0);
        client.append("cart", ANY, &events(5..6)).await.unwrap();
        assert_eq!(consumer.number().await, (5, 0));
        consumer.nack(5, NackAction::Park);
        until(&client, "cart", |info| info.parked_message_count == 1).await;
        server.stop().await.unwrap();
        let client = server.serve_again().await;
        assert_eq!(info(&client, "cart").await.parked_message_count, 1);
        let mut consumer = Consumer::of(&client, "cart", 10).await;
        replay(&client, "cart", StopAt::NoLimit(())).await;
        assert_eq!(consumer.next().await.event.unwrap().id, Some(id(5)));
    });
}

/// Story: the last known event was the last one that the group had read. An operator could not see
/// from it how far the group was behind.
#[test]
fn last_known_event_is_the_last_one_of_the_source() {
    TestServer::new().run(async |client, server| {
        client.append("cart", ANY, &events(0..5)).await.unwrap();
        for start in
            [RevisionOption::Start(()), RevisionOption::Revision(3), RevisionOption::End(())]
        {
            let mut request = of_stream("cart", settings());
            let options = request.options.as_mut().unwrap();
            let Some(GroupOrigin::Stream(origin)) = &mut options.stream_option else { panic!() };
            origin.revision_option = Some(start);
            create(&client, request).await.unwrap();
            let group_info = info(&client, "cart").await;
            assert_eq!(group_info.last_known_event_position, "4", "{start:?}");
            assert_eq!(group_info.last_checkpointed_event_position, "", "{start:?}");
            delete(&client, "cart").await.unwrap();
        }
        let none = of_stream("empty", settings());
        create(&client, none).await.unwrap();
        assert_eq!(info(&client, "empty").await.last_known_event_position, "");
        create(&client, of_stream("cart", settings())).await.unwrap();
        let mut consumer = Consumer::of(&client, "cart", 1).await;
        consumer.number().await;
        consumer.ack(vec![id(0)]);
        until(&client, "cart", |info| info.last_checkpointed_event_position == "0").await;
        drop(consumer);
        server.stop().await.unwrap();
        let client = server.serve_again().await;
        let known = info(&client, "cart").await.last_known_event_position;
        assert_eq!(known, "4", "the group has read one event");
    });
}

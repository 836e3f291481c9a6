//! Tests of invalid and conflicting names of consumer groups, and of invalid checkpoints.

use tonic::Code;
use umbel_events::{ExpectedVersion, NewEvent};

use super::client::{ANY, events, fact};
use super::persistent_subscriptions::{Consumer, create, info, of_stream, settings};
use super::test_server::TestServer;

/// Story: a group's streams are named after its stream and itself, joined by `::`, which both names
/// may contain. Two groups with the same joined name shared one state: events processed by the
/// first were skipped for the second.
#[test]
fn group_with_a_colliding_joined_name_is_rejected() {
    TestServer::new().run(async |client, _| {
        let of = |stream: &str, group: &str| {
            let mut request = of_stream(stream, settings());
            request.options.as_mut().unwrap().group_name = group.to_string();
            request
        };
        create(&client, of("orders", "eu::mail")).await.unwrap();
        let status = create(&client, of("orders::eu", "mail")).await.unwrap_err();
        assert_eq!(fact(&status, "exception"), "persistent-subscription-failed");
        let reason = fact(&status, "reason");
        assert!(
            reason.contains("the state streams of group 'eu::mail' on stream 'orders'"),
            "{reason}"
        );
        create(&client, of("orders::eu", "post")).await.unwrap();
        let status = create(&client, of(&"s".repeat(1000), "mail")).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        let message = status.message();
        assert!(message.contains("1004 bytes together; the limit is 987"), "{message}");
        create(&client, of(&"s".repeat(983), "mail")).await.unwrap();
    });
}

/// Story: a client appended a checkpoint beyond the end of all streams. This checkpoint stopped the
/// group for good, without an error.
#[test]
fn checkpoint_beyond_the_end_is_ignored() {
    TestServer::new().run(async |client, server| {
        client.append("cart", ANY, &events(0..3)).await.unwrap();
        let keep = |group: &str, position: &str| {
            let data = format!("\"{position}\"");
            let id = server.store.new_id().unwrap();
            let event = NewEvent::json(id, "$SubscriptionCheckpoint", data.as_bytes());
            let stream = format!("$persistentsubscription-{group}-checkpoint");
            server.store.append(&stream, ExpectedVersion::Any, &[event]).unwrap();
        };
        create(&client, of_stream("cart", settings())).await.unwrap();
        for position in ["0", "3", "18446744073709551615", "C:9/P:9"] {
            keep("cart::group", position);
        }
        let mut consumer = Consumer::of(&client, "cart", 10).await;
        assert_eq!(consumer.number().await.0, 1, "the checkpoint before it applies");
        create(&client, of_stream("$ce-shop", settings())).await.unwrap();
        keep("$ce-shop::group", "1");
        client.append("shop-1", ANY, &events(10..11)).await.unwrap();
        let mut of_view = Consumer::of(&client, "$ce-shop", 10).await;
        assert_eq!(of_view.next().await.event.unwrap().stream_revision, 0, "or nothing was");
        // A deleted stream continues after its end, and so does the group.
        client.append("gone", ANY, &events(20..23)).await.unwrap();
        create(&client, of_stream("gone", settings())).await.unwrap();
        keep("gone::group", "2");
        server.store.delete("gone", ExpectedVersion::Any).unwrap();
        let mut of_gone = Consumer::of(&client, "gone", 10).await;
        client.append("gone", ANY, &events(23..24)).await.unwrap();
        assert_eq!(of_gone.number().await.0, 23);
        let group_info = info(&client, "gone").await;
        assert_eq!(
            (group_info.total_items, &*group_info.last_checkpointed_event_position),
            (1, "2")
        );
    });
}

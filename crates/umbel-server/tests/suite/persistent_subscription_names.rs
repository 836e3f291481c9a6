//! Names of groups of consumers that cannot be, or not beside others; checkpoints that cannot be.

use tonic::Code;
use umbel_events::{Expected, NewEvent};

use super::client::{ANY, events, fact};
use super::ground::Ground;
use super::persistent::{Consumer, create, info, of_stream, settings};

/// The story: a group's streams are named after its stream and itself, with `::` in between, which
/// both may have in them. Two groups of one name together kept one state: what the one had done
/// was left out for the other.
#[test]
fn groups_whose_names_join_to_one_are_not_made_beside_each_other() {
    Ground::new().run(async |client, _| {
        let of = |stream: &str, group: &str| {
            let mut asked = of_stream(stream, settings());
            asked.options.as_mut().unwrap().group_name = group.to_string();
            asked
        };
        create(&client, of("orders", "eu::mail")).await.unwrap();
        let status = create(&client, of("orders::eu", "mail")).await.unwrap_err();
        assert_eq!(fact(&status, "exception"), "persistent-subscription-failed");
        let reason = fact(&status, "reason");
        assert!(reason.contains("where group 'eu::mail' on stream 'orders' does"), "{reason}");
        create(&client, of("orders::eu", "post")).await.unwrap();
        let status = create(&client, of(&"s".repeat(1000), "mail")).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        let said = status.message();
        assert!(said.contains("1004 bytes together; at most 987 are taken"), "{said}");
        create(&client, of(&"s".repeat(983), "mail")).await.unwrap();
    });
}

/// Story: a checkpoint that somebody had appended by hand behind the end of all streams stopped the
/// group for good, and nothing said why.
#[test]
fn a_checkpoint_behind_the_end_stops_no_group() {
    Ground::new().run(async |client, ground| {
        client.append("cart", ANY, &events(0..3)).await.unwrap();
        let keep = |group: &str, place: &str| {
            let data = format!("\"{place}\"");
            let id = ground.store.new_id().unwrap();
            let event = NewEvent::json(id, "$SubscriptionCheckpoint", data.as_bytes());
            let stream = format!("$persistentsubscription-{group}-checkpoint");
            ground.store.append(&stream, Expected::Any, &[event]).unwrap();
        };
        create(&client, of_stream("cart", settings())).await.unwrap();
        for place in ["0", "3", "18446744073709551615", "C:9/P:9"] {
            keep("cart::group", place);
        }
        let mut consumer = Consumer::of(&client, "cart", 10).await;
        assert_eq!(consumer.number().await.0, 1, "what was said before counts");
        create(&client, of_stream("$ce-shop", settings())).await.unwrap();
        keep("$ce-shop::group", "1");
        client.append("shop-1", ANY, &events(10..11)).await.unwrap();
        let mut of_view = Consumer::of(&client, "$ce-shop", 10).await;
        assert_eq!(of_view.next().await.event.unwrap().stream_revision, 0, "or nothing was");
        // A stream that was deleted goes on behind its end, and so does the group.
        client.append("gone", ANY, &events(20..23)).await.unwrap();
        create(&client, of_stream("gone", settings())).await.unwrap();
        keep("gone::group", "2");
        ground.store.delete("gone", Expected::Any).unwrap();
        let mut of_gone = Consumer::of(&client, "gone", 10).await;
        client.append("gone", ANY, &events(23..24)).await.unwrap();
        assert_eq!(of_gone.number().await.0, 23);
        let told = info(&client, "gone").await;
        assert_eq!((told.total_items, &*told.last_checkpointed_event_position), (1, "2"));
    });
}

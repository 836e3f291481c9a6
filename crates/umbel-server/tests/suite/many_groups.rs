//! Tests of a server with its maximum of consumer groups, most of which no consumer uses.

use tonic::Code;
use umbel_events::{Direction, ExpectedVersion, NewEvent, Revision, Store};
use umbel_proto::persistent::{
    ListOption, ListOptions, ListReq, ListResp, NackAction, SubscriptionInfo,
};
use umbel_server::limits::GROUPS_MAX;

use super::client::{ANY, Client, events, id};
use super::http_client::send;
use super::persistent_subscriptions::{
    Consumer, SERVICE, create, delete, info, of_stream, settings, until,
};
use super::test_server::TestServer;

const CONFIG: &str = "$persistentSubscriptionConfig";

async fn list(client: &Client) -> Vec<SubscriptionInfo> {
    let options = Some(ListOptions { list_option: Some(ListOption::ListAllSubscriptions(())) });
    let listed: ListResp = client.unary(SERVICE, "List", ListReq { options }).await.unwrap();
    listed.subscriptions
}

/// Stores a list of groups as an earlier version of the server does.
fn store_groups(store: &Store, count: usize) {
    let entry = |number: usize| {
        format!(
            r#"{{"stream":"order-{number}","group":"group","resolveLinkTos":false,
            "extraStatistics":false,"startFrom":0,"after":null,"filter":null,
            "messageTimeout":30000,"maxRetryCount":2,"checkPointAfter":0,"minCheckPointCount":1,
            "maxCheckPointCount":1,"maxSubscriberCount":0,"liveBufferSize":500,
            "readBatchSize":20,"historyBufferSize":500,"namedConsumerStrategy":"RoundRobin"}}"#
        )
    };
    let entries: Vec<String> = (0..count).map(entry).collect();
    let list = format!(r#"{{"version":"2","updated":1,"entries":[{}]}}"#, entries.join(","));
    let event = NewEvent::json(store.new_id().unwrap(), "$PersistentConfig", list.as_bytes());
    store.append(CONFIG, ExpectedVersion::NoStream, &[event]).unwrap();
}

/// Story: a list of groups started the task of every group, and each task stayed.
#[test]
fn statistics_of_unused_groups_start_no_task() {
    TestServer::new().run(async |mut client, server| {
        store_groups(&server.store, 300);
        client.append("order-7", ANY, &events(0..3)).await.unwrap();
        let mut consumer = Consumer::of(&client, "order-7", 10).await;
        for _ in 0..3 {
            consumer.number().await;
        }
        consumer.ack(vec![id(0)]);
        consumer.nack(1, NackAction::Park);
        until(&client, "order-7", |info| {
            info.last_checkpointed_event_position == "1" && info.parked_message_count == 1
        })
        .await;
        drop(consumer);
        server.stop().await.unwrap();
        client = server.serve_again().await;
        let before = server.tasks();
        let listed = list(&client).await;
        assert_eq!(listed.len(), 300);
        let first = info(&client, "order-7").await;
        let page = send(server.address(), "GET", "/console/api/groups?search=er-7", &[], b"");
        let page = page.is(200);
        assert_eq!((&page["found"], &page["total"]), (&11.into(), &300.into()));
        assert!(server.tasks() <= before + 4, "{} tasks after {before}", server.tasks());
        // The task of the group reports the same.
        let _consumer = Consumer::of(&client, "order-7", 1).await;
        let running = info(&client, "order-7").await;
        let stored = listed.iter().find(|info| info.event_source == "order-7").unwrap();
        assert_eq!(stored, &first);
        assert_eq!(stored.last_checkpointed_event_position, "1");
        assert_eq!(running.last_checkpointed_event_position, "1");
        assert_eq!((stored.parked_message_count, running.parked_message_count), (1, 1));
        assert_eq!(running.connections.len(), 1);
        let connected =
            list(&client).await.iter().map(|info| info.connections.len()).sum::<usize>();
        assert_eq!(connected, 1);
    });
}

#[test]
fn the_last_group_of_the_limit_is_created_and_listed() {
    TestServer::new().run(async |mut client, server| {
        store_groups(&server.store, GROUPS_MAX - 1);
        create(&client, of_stream("cart", settings())).await.unwrap();
        let full = create(&client, of_stream("till", settings())).await.unwrap_err();
        assert_eq!(full.code(), Code::Internal);
        assert!(full.message().contains("The server has 10000 groups"), "{full:?}");
        delete(&client, "order-5000").await.unwrap();
        create(&client, of_stream("till", settings())).await.unwrap();
        let newest = server.store.read(CONFIG, Revision::END, Direction::Backwards).next();
        let newest = newest.unwrap().unwrap();
        assert_eq!(newest.kind, "$PersistentConfigChange", "a change writes only what changed");
        assert!(newest.data.len() < 1000);
        assert_eq!(list(&client).await.len(), GROUPS_MAX);
        server.stop().await.unwrap();
        // A stop writes the list, which an earlier version can read.
        let newest = server.store.read(CONFIG, Revision::END, Direction::Backwards).next();
        assert_eq!(newest.unwrap().unwrap().kind, "$PersistentConfig");
        client = server.serve_again().await;
        let listed = list(&client).await;
        assert_eq!(listed.len(), GROUPS_MAX);
        let has = |stream: &str| listed.iter().any(|info| info.event_source == stream);
        assert_eq!((has("cart"), has("till"), has("order-5000")), (true, true, false));
        let address = server.address();
        let get = |path: &str| send(address, "GET", path, &[], b"").is(200);
        assert_eq!(get("/subscriptions").as_array().unwrap().len(), GROUPS_MAX);
        let page = get("/subscriptions?offset=9990&count=100");
        assert_eq!(page["subscriptions"].as_array().unwrap().len(), 10);
        assert_eq!(page["total"], GROUPS_MAX);
    });
}

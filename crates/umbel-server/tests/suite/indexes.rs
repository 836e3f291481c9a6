//! Tests of indexes, `$idx-ce-CATEGORY` and `$idx-et-TYPE`, which clients read as the only stream
//! prefix of a filter on all events.

use tonic::Code;
use umbel_events::{ExpectedVersion, ImportedEvent, NewEvent, Store};
use umbel_proto::read_options::{filtered, prefixes, regex};
use umbel_proto::streams::read_req::{AllOption, Filter, Options, RevisionOption};
use umbel_proto::streams::read_resp::Content;

use super::client::{
    ANY, backwards, events, fact, id, number, of_all, of_stream, recorded, subscription,
};
use super::persistent_subscriptions::{
    Consumer, by_stream, create, of_all as group_of_all, of_stream as group_of_stream, settings,
};
use super::test_server::TestServer;
use super::users;
use umbel_proto::persistent::ReadStreamOption;

const START: AllOption = AllOption::Start(());
const END: AllOption = AllOption::End(());
const CARTS: &str = "$idx-ce-cart";
const COUNTED: &str = "$idx-et-Counted";

fn put(store: &Store, stream: &str, kind: &str, data: &str) {
    let event = NewEvent::json(store.new_id().unwrap(), kind, data.as_bytes());
    store.append(stream, ExpectedVersion::Any, &[event]).unwrap();
}

fn index(name: &str, options: Options) -> Options {
    filtered(Filter::StreamIdentifier(prefixes(&[name])), 1, options)
}

/// Numbers of the events of a read, which has no links.
fn numbers(contents: Vec<Content>) -> Vec<u64> {
    let number = |content| match content {
        Content::Event(read) => {
            assert!(read.link.is_none(), "{read:?}");
            number(&read.event.unwrap())
        }
        other => panic!("{other:?}"),
    };
    contents.into_iter().map(number).collect()
}

/// A store with events 0 to 9 of carts, in streams of which some are deleted, truncated or expired.
/// Only events 5 to 9 can be read from their streams.
fn fill(store: &Store) {
    let mut import = store.import().unwrap();
    for number in ["0", "1"] {
        let event = NewEvent::json(store.new_id().unwrap(), "Counted", number.as_bytes());
        let stream = "cart-expired";
        import.add(&ImportedEvent { stream, revision: None, created: Some(1), event }).unwrap();
    }
    import.finish().unwrap();
    put(store, "$$cart-expired", "$metadata", r#"{"$maxAge":60}"#);
    put(store, "cart-deleted", "Counted", "2");
    store.delete("cart-deleted", ExpectedVersion::Any).unwrap();
    put(store, "cart-ended", "Counted", "3");
    store.tombstone("cart-ended", ExpectedVersion::Any).unwrap();
    put(store, "cart-cut", "Counted", "4");
    put(store, "order-1", "Opened", "100");
    put(store, "cart-cut", "Counted", "5");
    put(store, "$$cart-cut", "$metadata", r#"{"$tb":1}"#);
    put(store, "carts-1", "CountedAgain", "101");
    for number in 6..10 {
        put(store, &format!("cart-{}", number % 2), "Counted", &number.to_string());
    }
}

/// Story: indexes silently gave nothing, while documents and clients of version 26 read them.
#[test]
fn index_returns_its_readable_events_in_log_order() {
    TestServer::new().run(async |client, server| {
        fill(&server.store);
        for name in [CARTS, COUNTED] {
            let read = client.read(index(name, of_all(START))).await.unwrap();
            assert_eq!(numbers(read), [5, 6, 7, 8, 9], "{name}");
            let read = client.read(index(name, backwards(of_all(END)))).await.unwrap();
            assert_eq!(numbers(read), [9, 8, 7, 6, 5], "{name}");
            assert!(client.read(index("$idx-ce-none", of_all(START))).await.unwrap().is_empty());
        }
    });
}

#[test]
fn subscription_to_an_index_gets_existing_and_new_events() {
    TestServer::new().run(async |client, server| {
        fill(&server.store);
        for (name, new) in [(CARTS, 10), (COUNTED, 11)] {
            let options = subscription(index(name, of_all(START)));
            let mut answers = client.subscribe(options).await.unwrap();
            let mut found = Vec::new();
            while found.last() != Some(&new) {
                match answers.message().await.unwrap().unwrap().content.unwrap() {
                    Content::CaughtUp(_) => {
                        put(&server.store, "order-1", "Opened", "102");
                        put(&server.store, "cart-1", "Counted", &new.to_string());
                    }
                    content @ Content::Event(_) => found.push(number(&recorded(content))),
                    _ => {}
                }
            }
            assert_eq!(found[..5], [5, 6, 7, 8, 9], "{name}");
        }
    });
}

#[test]
fn group_of_an_index_delivers_its_events() {
    TestServer::new().run(async |client, server| {
        fill(&server.store);
        create(&client, group_of_all(by_stream("", &[CARTS]))).await.unwrap();
        let mut consumer = Consumer::join(&client, ReadStreamOption::All(()), 10).await.unwrap();
        for wanted in 5..10 {
            let event = consumer.next().await;
            assert!(event.link.is_none());
            let event = event.event.unwrap();
            assert_eq!(number(&event), wanted);
            consumer.ack(vec![event.id.unwrap()]);
        }
        client.append("cart-7", ANY, &events(10..11)).await.unwrap();
        assert_eq!(consumer.number().await, (10, 0));
        consumer.ack(vec![id(10)]);
        consumer.is_quiet().await;
    });
}

#[test]
fn index_leaves_out_streams_that_the_user_may_not_read() {
    TestServer::with_users().run(async |client, server| {
        for number in 6..10 {
            put(&server.store, &format!("cart-{}", number % 2), "Counted", &number.to_string());
        }
        let admin = client.with_user("admin", "first");
        users::create(&admin, "eve", "secret", &[]).await.unwrap();
        put(&server.store, "$$cart-1", "$metadata", r#"{"$acl":{"$r":["ada"]}}"#);
        put(&server.store, "$$$all", "$metadata", r#"{"$acl":{"$r":["eve"]}}"#);
        let eve = client.with_user("eve", "secret");
        let carts = || index(CARTS, of_all(START));
        assert_eq!(numbers(eve.read(carts()).await.unwrap()), [6, 8]);
        assert_eq!(numbers(admin.read(carts()).await.unwrap()), [6, 7, 8, 9]);
        let created = index("$idx-et-$UserCreated", of_all(START));
        assert!(eve.read(created.clone()).await.unwrap().is_empty(), "names of users");
        assert_eq!(admin.read(created).await.unwrap().len(), 3);
    });
}

#[test]
fn other_indexes_are_refused_by_name_and_none_accepts_appends() {
    TestServer::new().run(async |client, _| {
        for name in ["$idx-all", "$idx-own", "$idx-ce-", "$idx-et-", "$idx-"] {
            let of_stream = of_stream(name, RevisionOption::Start(()));
            let group = create(&client, group_of_all(by_stream("", &[name]))).await;
            for refused in [
                client.read(index(name, of_all(START))).await.map(drop),
                client.read(subscription(index(name, of_all(START)))).await.map(drop),
                client.read(of_stream.clone()).await.map(drop),
                client.read(subscription(of_stream)).await.map(drop),
                group,
                create(&client, group_of_stream(name, settings())).await,
            ] {
                let status = refused.unwrap_err();
                assert_eq!(status.code(), Code::NotFound, "{status:?}");
                assert_eq!(fact(&status, "exception"), "index-not-found");
                assert_eq!(fact(&status, "index-name"), name);
                assert!(status.message().contains(&format!("'{name}'")), "{status:?}");
            }
        }
        let two = Filter::StreamIdentifier(prefixes(&["cart-", CARTS]));
        let expression = Filter::StreamIdentifier(regex(r"^\$idx-ce-cart"));
        for refused in [
            client.read(filtered(two, 1, of_all(START))).await.map(drop),
            client.read(filtered(expression, 1, of_all(START))).await.map(drop),
            client.read(of_stream(CARTS, RevisionOption::Start(()))).await.map(drop),
            create(&client, group_of_stream(CARTS, settings())).await,
            client.append(CARTS, ANY, &events(0..1)).await.map(drop),
            client.append("$idx-own", ANY, &events(0..1)).await.map(drop),
            client.append("$$$idx-ce-cart", ANY, &events(0..1)).await.map(drop),
            client.delete("Delete", CARTS, ANY).await.map(drop),
            client.delete("Tombstone", CARTS, ANY).await.map(drop),
        ] {
            let status = refused.unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
            assert!(status.message().contains("$idx-"), "{status:?}");
        }
    });
}

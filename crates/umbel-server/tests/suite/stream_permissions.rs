//! Tests of stream permissions (ACLs), through every call that checks them.

use std::time::Duration;

use futures_util::stream;
use tonic::{Code, Status, Streaming};
use umbel_events::{ExpectedVersion, NewEvent, Store};
use umbel_proto::persistent::Settings;
use umbel_proto::streams::batch_append_req::Options as BatchOptions;
use umbel_proto::streams::batch_append_resp::Outcome;
use umbel_proto::streams::read_req::{AllOption, RevisionOption};
use umbel_proto::streams::read_resp::{Content, ReadEvent};
use umbel_proto::streams::{BatchAppendReq, ReadResp};

use super::client::{ANY, Client, events, id, name, of_all, of_stream, recorded, subscription};
use super::persistent_subscriptions::{self as group, Consumer, settings};
use super::test_server::TestServer;
use super::users::{change, create};
use super::v2_client::{of, part, record, records, session};

const START: RevisionOption = RevisionOption::Start(());
/// Users, each of which has one permission: read, write, delete, read metadata, write metadata, or
/// nothing.
const USERS: [&str; 6] = ["reader", "writer", "deleter", "knower", "ruler", "eve"];
const RIGHTS: [&str; 5] = ["$r", "$w", "$d", "$mr", "$mw"];

fn append(store: &Store, stream: &str, kind: &str, data: &str) {
    let event = NewEvent::json(store.new_id().unwrap(), kind, data.as_bytes());
    store.append(stream, ExpectedVersion::Any, &[event]).unwrap();
}

/// Sets the ACL of a stream.
fn rule(store: &Store, stream: &str, acl: &str) {
    let data = format!(r#"{{"$acl":{acl}}}"#);
    append(store, &format!("$${stream}"), "$metadata", &data);
}

/// Creates users, each of which has one permission on these streams.
async fn create_users_and_streams(client: &Client, server: &TestServer, streams: &[&str]) {
    let admin = client.with_user("admin", "first");
    for user in USERS {
        create(&admin, user, "secret", &[]).await.unwrap();
    }
    let may = RIGHTS.iter().zip(USERS).map(|(right, user)| format!(r#""{right}":["{user}"]"#));
    let acl = format!("{{{}}}", may.collect::<Vec<_>>().join(","));
    for stream in streams {
        rule(&server.store, stream, &acl);
        append(&server.store, stream, "Said", "0");
    }
}

/// Whether access was denied; no other failure is allowed.
fn is_refused<T: std::fmt::Debug>(outcome: Result<T, Status>) -> bool {
    match outcome {
        Ok(_) => false,
        Err(status) => {
            assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
            true
        }
    }
}

async fn batch(client: &Client, stream: &str) -> bool {
    let options = BatchOptions {
        stream_identifier: Some(name(stream)),
        expected_stream_position: Some(ANY.into()),
        deadline_option: None,
    };
    let part = BatchAppendReq {
        correlation_id: Some(id(1)),
        options: Some(options),
        proposed_messages: events(1..2),
        is_final: true,
    };
    let mut answers = client.batches(stream::iter([part])).await.unwrap();
    match answers.message().await.unwrap().unwrap().result.unwrap() {
        Outcome::Success(_) => false,
        Outcome::Error(status) => {
            let detail = &status.details[0];
            assert_eq!(status.code, Code::PermissionDenied as i32, "{detail:?}");
            assert!(detail.type_url.ends_with("AccessDenied"), "{detail:?}");
            true
        }
    }
}

async fn subscribe(client: &Client, stream: &str) -> bool {
    let request = subscription(of_stream(stream, START));
    match client.subscribe(request).await {
        Err(status) => is_refused::<()>(Err(status)),
        Ok(mut answers) => is_refused(answers.message().await),
    }
}

/// Every call that reads, writes or deletes, by every user.
#[test]
fn each_permission_allows_only_its_calls() {
    TestServer::with_users().run(async |client, server| {
        create_users_and_streams(&client, server, &["cart"]).await;
        // The metadata writer comes last, because it changes permissions.
        for user in ["eve", "reader", "writer", "deleter", "knower", "ruler"] {
            let user_client = client.with_user(user, "secret");
            let may = |right: &str| user == right;
            assert_eq!(
                is_refused(user_client.read(of_stream("cart", START)).await),
                !may("reader")
            );
            assert_eq!(subscribe(&user_client, "cart").await, !may("reader"), "{user}");
            assert_eq!(
                is_refused(user_client.append("cart", ANY, &events(0..1)).await),
                !may("writer")
            );
            assert_eq!(batch(&user_client, "cart").await, !may("writer"), "{user}");
            let sent = records(&user_client, vec![of("cart", 3)], &[]).await;
            assert_eq!(is_refused(sent), !may("writer"), "{user}");
            assert_eq!(
                is_refused(user_client.read(of_stream("$$cart", START)).await),
                !may("knower")
            );
            // A user that may write metadata could grant itself every permission.
            let mut acl_events = events(7..8);
            acl_events[0].data = br#"{"$acl":{"$r":["ruler"]}}"#.to_vec().into();
            assert_eq!(
                is_refused(user_client.append("$$cart", ANY, &acl_events).await),
                !may("ruler")
            );
            if may("ruler") {
                assert!(!is_refused(user_client.read(of_stream("cart", START)).await), "{user}");
                let reader = client.with_user("reader", "secret");
                assert!(is_refused(reader.read(of_stream("cart", START)).await));
            }
        }
    });
}

#[test]
fn stream_delete_requires_its_permission() {
    TestServer::with_users().run(async |client, server| {
        create_users_and_streams(&client, server, &["soft", "hard"]).await;
        for user in ["reader", "writer", "knower", "eve", "deleter"] {
            let user_client = client.with_user(user, "secret");
            let is_permitted = user == "deleter";
            assert_eq!(
                is_refused(user_client.delete("Tombstone", "hard", ANY).await),
                !is_permitted,
                "{user}"
            );
            assert_eq!(
                is_refused(user_client.delete("Delete", "soft", ANY).await),
                !is_permitted,
                "{user}"
            );
        }
        assert!(is_refused(client.delete("Delete", "other", ANY).await), "an unknown user");
    });
}

/// Without write permission for one of several streams the whole append is refused.
#[test]
fn multi_stream_append_is_rejected_as_a_whole() {
    TestServer::with_users().run(async |client, server| {
        create_users_and_streams(&client, server, &["cart"]).await;
        let eve = client.with_user("eve", "secret");
        let sent = vec![of("mine", 1), of("cart", 2)];
        assert!(is_refused(records(&eve, sent, &[]).await));
        let mine = eve.read(of_stream("mine", START)).await.unwrap();
        assert!(matches!(mine[..], [Content::StreamNotFound(_)]), "nothing was written: {mine:?}");
        // A check of a stream's state requires read permission.
        let checked = records(&eve, vec![of("mine", 1)], &[("cart", 0)]).await;
        assert!(is_refused(checked));
        let admin = client.with_user("admin", "first");
        records(&admin, vec![of("mine", 1), of("cart", 2)], &[]).await.unwrap();
    });
}

fn text(name: &[u8]) -> String {
    String::from_utf8(name.to_vec()).unwrap()
}

/// Streams of the events and of the links that were read.
fn visible_events(read: Vec<Content>) -> Vec<(Option<String>, Option<String>)> {
    let of = |event: umbel_proto::streams::read_resp::RecordedEvent| {
        text(&event.stream_identifier.unwrap().stream_name)
    };
    let event = |content| match content {
        Content::Event(ReadEvent { event, link, .. }) => Some((event.map(of), link.map(of))),
        _ => None,
    };
    read.into_iter().filter_map(event).collect()
}

#[test]
fn views_and_links_obey_the_acl_of_their_targets() {
    TestServer::with_users().run(async |client, server| {
        create_users_and_streams(&client, server, &["cart-1"]).await;
        append(&server.store, "cart-2", "Said", "0");
        let view = |resolves| {
            let mut request = of_stream("$ce-cart", START);
            request.resolve_links = resolves;
            request
        };
        for (user, sees) in [("reader", true), ("eve", false)] {
            let user_client = client.with_user(user, "secret");
            let read = visible_events(user_client.read(view(true)).await.unwrap());
            let streams: Vec<Option<&str>> =
                read.iter().map(|(event, _)| event.as_deref()).collect();
            assert_eq!(streams, [sees.then_some("cart-1"), Some("cart-2")], "{user}");
            assert!(read.iter().all(|(_, link)| link.as_deref() == Some("$ce-cart")), "{read:?}");
            let mut answers = user_client.subscribe(subscription(view(true))).await.unwrap();
            assert!(matches!(next(&mut answers).await, Content::Confirmation(_)));
            let first = visible_events(vec![next(&mut answers).await]);
            assert_eq!(first[0].0.is_some(), sees, "{user}");
        }
    });
}

/// Story: every user could read the names of all users in `$et-$UserCreated`.
#[test]
fn views_show_no_names_of_system_streams_that_the_reader_may_not_read() {
    TestServer::with_users().run(async |client, server| {
        create_users_and_streams(&client, server, &[]).await;
        append(&server.store, "cart-2", "Said", "0");
        append(&server.store, "$secret-name", "Said", "0");
        append(&server.store, "$open-name", "Said", "0");
        rule(&server.store, "$open-name", r#"{"$r":"$all"}"#);
        let (admin, eve) = (client.with_user("admin", "first"), client.with_user("eve", "secret"));
        for view in ["$et-$UserCreated", "$et-$metadata"] {
            assert!(is_refused(eve.read(of_stream(view, START)).await), "{view}");
            assert!(!is_refused(admin.read(of_stream(view, START)).await), "{view}");
        }
        for resolve_links in [false, true] {
            let mut view = of_stream("$et-Said", START);
            view.resolve_links = resolve_links;
            let count = async |client: &Client| client.read(view.clone()).await.unwrap().len();
            assert_eq!((count(&admin).await, count(&eve).await), (3, 2));
            let mut answers = eve.subscribe(subscription(view.clone())).await.unwrap();
            let mut seen = Vec::new();
            loop {
                match next(&mut answers).await {
                    Content::Event(event) => {
                        let link = event.link.or(event.event).unwrap();
                        seen.push(text(&link.data));
                    }
                    Content::CaughtUp(_) => break,
                    _ => {}
                }
            }
            assert_eq!(seen, ["0@cart-2", "0@$open-name"]);
        }
        for resolve_links in [false, true] {
            let settings = Settings { resolve_links, ..settings() };
            let stream = "$et-Said";
            group::create(&admin, group::of_stream(stream, settings)).await.unwrap();
            let mut consumer = Consumer::of(&eve, stream, 10).await;
            for target in ["0@cart-2", "", "0@$open-name"] {
                let next = consumer.next().await;
                let original = next.link.or(next.event).unwrap();
                assert_eq!(text(&original.data), target, "{resolve_links}");
            }
            group::delete(&admin, stream).await.unwrap();
        }
        rule(&server.store, "$et-$UserCreated", r#"{"$r":"eve"}"#);
        assert!(!is_refused(eve.read(of_stream("$et-$UserCreated", START)).await));
    });
}

async fn next(answers: &mut Streaming<ReadResp>) -> Content {
    answers.message().await.unwrap().unwrap().content.unwrap()
}

#[test]
fn reading_all_requires_permission_and_omits_hidden_streams() {
    TestServer::with_users().run(async |client, server| {
        create_users_and_streams(&client, server, &["cart"]).await;
        append(&server.store, "open", "Said", "1");
        let eve = client.with_user("eve", "secret");
        let all = || of_all(AllOption::Start(()));
        assert!(is_refused(eve.read(all()).await));
        assert!(is_refused(client.read(all()).await));
        let settings = r#"{"$systemStreamAcl":{"$r":["eve"]}}"#;
        append(&server.store, "$settings", "$settings", settings);
        let read = eve.read(all()).await.unwrap();
        let streams: Vec<String> =
            visible_events(read).into_iter().filter_map(|(event, _)| event).collect();
        assert!(streams.contains(&"open".to_string()), "{streams:?}");
        assert!(!streams.iter().any(|name| name == "cart" || name.starts_with("$user")));
        let mut answers = eve.subscribe(subscription(all())).await.unwrap();
        loop {
            match next(&mut answers).await {
                Content::Event(event) => {
                    let of = event.event.unwrap().stream_identifier.unwrap();
                    let of = text(&of.stream_name);
                    assert!(of != "cart" && !of.starts_with("$user"), "{of}");
                }
                Content::CaughtUp(_) => break,
                _ => {}
            }
        }
        // New events are checked as well.
        append(&server.store, "cart", "Said", "2");
        append(&server.store, "open", "Said", "3");
        let event = recorded(next(&mut answers).await);
        assert_eq!(event.stream_identifier.unwrap().stream_name, "open");
    });
}

/// Story: a subscription did not end when the user lost the permission.
#[test]
fn subscription_ends_when_its_permission_is_revoked() {
    TestServer::with_users().run(async |client, server| {
        create_users_and_streams(&client, server, &["cart", "order"]).await;
        let admin = client.with_user("admin", "first");
        let reader = client.with_user("reader", "secret");
        let follow = async |stream: &str| {
            let request = subscription(of_stream(stream, START));
            let mut answers = reader.subscribe(request).await.unwrap();
            while !matches!(next(&mut answers).await, Content::CaughtUp(_)) {}
            answers
        };
        let (mut cart, mut order) = (follow("cart").await, follow("order").await);
        rule(&server.store, "cart", r#"{"$r":["eve"]}"#);
        append(&server.store, "cart", "Said", "1");
        append(&server.store, "order", "Said", "1");
        let ended = cart.message().await.unwrap_err();
        assert_eq!(ended.code(), Code::PermissionDenied, "{ended:?}");
        assert!(matches!(next(&mut order).await, Content::Event(_)), "the other goes on");
        change(&admin, "Disable", "reader").await.unwrap();
        append(&server.store, "order", "Said", "2");
        let ended = order.message().await.unwrap_err();
        assert_eq!(ended.code(), Code::Unauthenticated, "{ended:?}");
    });
}

/// An acknowledged ACL is in effect: no call that begins after the acknowledgment uses the old ACL.
#[test]
fn acl_takes_effect_once_acknowledged() {
    TestServer::with_users().run(async |client, server| {
        create_users_and_streams(&client, server, &[]).await;
        let admin = client.with_user("admin", "first");
        let eve = client.with_user("eve", "secret");
        for round in 0..200 {
            let stream = format!("s-{}", round % 3);
            let is_open = round % 2 == 0;
            let acl = if is_open { r#"{"$acl":{}}"# } else { r#"{"$acl":{"$w":[]}}"# };
            let mut acl_events = events(round..round + 1);
            acl_events[0].data = acl.as_bytes().to_vec().into();
            admin.append(&format!("$${stream}"), ANY, &acl_events).await.unwrap();
            let refused = is_refused(eve.append(&stream, ANY, &events(0..1)).await);
            assert_eq!(refused, !is_open, "round {round}");
        }
    });
}

#[test]
fn session_requires_permission_for_each_stream() {
    TestServer::with_users().run(async |client, server| {
        create_users_and_streams(&client, server, &["cart"]).await;
        let part = |stream: &str| part(stream, None, vec![record(1)]);
        for (user, refused) in [("writer", false), ("eve", true)] {
            let user_client = client.with_user(user, "secret");
            let parts = vec![part("mine"), part("cart")];
            let done = session(&user_client, server.address(), parts).await;
            assert_eq!(is_refused(done), refused, "{user}");
        }
    });
}

/// Wrong passwords wait for verification and use memory: clients without a valid password must not
/// lock out those with one.
#[test]
fn wrong_passwords_do_not_lock_out_valid_users() {
    TestServer::with_users().run(async |client, _| {
        let admin = client.with_user("admin", "first");
        admin.append("mine", ANY, &events(0..1)).await.unwrap();
        let guesses: Vec<_> = (0..400)
            .map(|number| {
                let guess = client.with_user("admin", &format!("guess {number}"));
                tokio::spawn(async move { guess.append("mine", ANY, &events(1..2)).await })
            })
            .collect();
        let answered = tokio::time::timeout(Duration::from_secs(20), async {
            for number in 2..50 {
                admin.append("mine", ANY, &events(number..number + 1)).await.unwrap();
            }
        });
        answered.await.expect("who is known is not kept waiting");
        for guess in guesses {
            let code = guess.await.unwrap().unwrap_err().code();
            assert!(matches!(code, Code::Unauthenticated | Code::Unavailable), "{code:?}");
        }
    });
}

/// Story: one connection with 400 calls of wrong passwords kept every user from logging in who had
/// not logged in before.
#[test]
fn guesses_of_one_connection_do_not_keep_new_users_from_logging_in() {
    TestServer::with_users().run(async |client, server| {
        let admin = client.with_user("admin", "first");
        let logins: Vec<String> = (0..10).map(|number| format!("user-{number}")).collect();
        for login in &logins {
            create(&admin, login, "secret", &[]).await.unwrap();
        }
        let attacker = Client::connect(server.address()).await;
        let guesses: Vec<_> = (0..400)
            .map(|number| {
                let attacker = attacker.clone();
                tokio::spawn(async move {
                    for round in 0.. {
                        let guess = attacker.with_user("admin", &format!("{number} {round}"));
                        let refused = guess.append("mine", ANY, &events(1..2)).await.unwrap_err();
                        if refused.code() == Code::Unavailable {
                            tokio::time::sleep(Duration::from_millis(20)).await;
                        }
                    }
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(300)).await;
        for login in &logins {
            let honest = Client::connect(server.address()).await.with_user(login, "secret");
            let begun = tokio::time::Instant::now();
            honest.append(login, ANY, &events(0..1)).await.unwrap();
            assert!(begun.elapsed() < Duration::from_secs(5), "{login}: {:?}", begun.elapsed());
        }
        guesses.iter().for_each(tokio::task::JoinHandle::abort);
    });
}

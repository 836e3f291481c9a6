//! What streams say about who may read, write and delete them, through every call that does.

use std::time::Duration;

use futures_util::stream;
use tonic::{Code, Status, Streaming};
use umbel_events::{Expected, NewEvent, Store};
use umbel_proto::streams::batch_append_req::Options as BatchOptions;
use umbel_proto::streams::batch_append_resp::Outcome;
use umbel_proto::streams::read_req::{AllOption, RevisionOption};
use umbel_proto::streams::read_resp::{Content, ReadEvent};
use umbel_proto::streams::{BatchAppendReq, ReadResp};

use super::client::{ANY, Client, events, id, name, of_all, of_stream, recorded, subscription};
use super::ground::Ground;
use super::second::{of, part, record, records, session};
use super::users::{change, create};

const START: RevisionOption = RevisionOption::Start(());
/// Who reads, writes, deletes, reads metadata, writes it; and somebody who may none of it.
const USERS: [&str; 6] = ["reader", "writer", "deleter", "knower", "ruler", "eve"];
const RIGHTS: [&str; 5] = ["$r", "$w", "$d", "$mr", "$mw"];

fn append(store: &Store, stream: &str, kind: &str, data: &str) {
    let event = NewEvent::json(store.new_id().unwrap(), kind, data.as_bytes());
    store.append(stream, Expected::Any, &[event]).unwrap();
}

/// Says who may do what with a stream.
fn rule(store: &Store, stream: &str, acl: &str) {
    let data = format!(r#"{{"$acl":{acl}}}"#);
    append(store, &format!("$${stream}"), "$metadata", &data);
}

/// A server with users, of whom each may do one thing with streams named so.
async fn prepared(client: &Client, ground: &Ground, streams: &[&str]) {
    let admin = client.with_user("admin", "first");
    for user in USERS {
        create(&admin, user, "secret", &[]).await.unwrap();
    }
    let may = RIGHTS.iter().zip(USERS).map(|(right, user)| format!(r#""{right}":["{user}"]"#));
    let acl = format!("{{{}}}", may.collect::<Vec<_>>().join(","));
    for stream in streams {
        rule(&ground.store, stream, &acl);
        append(&ground.store, stream, "Said", "0");
    }
}

/// Whether it was refused; it must not have failed otherwise.
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
        expected_stream_position: Some(ANY),
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
            let detail = status.details.unwrap();
            assert_eq!(status.code, Code::PermissionDenied as i32, "{detail:?}");
            assert!(detail.type_url.ends_with("AccessDenied"), "{detail:?}");
            true
        }
    }
}

async fn subscribe(client: &Client, stream: &str) -> bool {
    let asked = subscription(of_stream(stream, START));
    match client.subscribe(asked).await {
        Err(status) => is_refused::<()>(Err(status)),
        Ok(mut answers) => is_refused(answers.message().await),
    }
}

/// Every call that reads, writes or deletes, by everybody.
#[test]
fn each_right_lets_through_its_calls_and_no_others() {
    Ground::with_users().run(async |client, ground| {
        prepared(&client, ground, &["cart"]).await;
        // The ruler comes last: he changes who may.
        for user in ["eve", "reader", "writer", "deleter", "knower", "ruler"] {
            let who = client.with_user(user, "secret");
            let may = |right: &str| user == right;
            assert_eq!(is_refused(who.read(of_stream("cart", START)).await), !may("reader"));
            assert_eq!(subscribe(&who, "cart").await, !may("reader"), "{user}");
            assert_eq!(is_refused(who.append("cart", ANY, &events(0..1)).await), !may("writer"));
            assert_eq!(batch(&who, "cart").await, !may("writer"), "{user}");
            let sent = records(&who, vec![of("cart", 3)], &[]).await;
            assert_eq!(is_refused(sent), !may("writer"), "{user}");
            assert_eq!(is_refused(who.read(of_stream("$$cart", START)).await), !may("knower"));
            // Whoever may change what is said of a stream could say that he may everything.
            let mut said = events(7..8);
            said[0].data = br#"{"$acl":{"$r":["ruler"]}}"#.to_vec().into();
            assert_eq!(is_refused(who.append("$$cart", ANY, &said).await), !may("ruler"));
            if may("ruler") {
                assert!(!is_refused(who.read(of_stream("cart", START)).await), "{user}");
                let reader = client.with_user("reader", "secret");
                assert!(is_refused(reader.read(of_stream("cart", START)).await));
            }
        }
    });
}

#[test]
fn streams_are_deleted_by_who_may() {
    Ground::with_users().run(async |client, ground| {
        prepared(&client, ground, &["soft", "hard"]).await;
        for user in ["reader", "writer", "knower", "eve", "deleter"] {
            let who = client.with_user(user, "secret");
            let is_let = user == "deleter";
            assert_eq!(is_refused(who.delete("Tombstone", "hard", ANY).await), !is_let, "{user}");
            assert_eq!(is_refused(who.delete("Delete", "soft", ANY).await), !is_let, "{user}");
        }
        assert!(is_refused(client.delete("Delete", "other", ANY).await), "nobody in particular");
    });
}

/// One stream among several that he may not write refuses the whole.
#[test]
fn what_is_appended_together_is_refused_together() {
    Ground::with_users().run(async |client, ground| {
        prepared(&client, ground, &["cart"]).await;
        let eve = client.with_user("eve", "secret");
        let sent = vec![of("mine", 1), of("cart", 2)];
        assert!(is_refused(records(&eve, sent, &[]).await));
        let mine = eve.read(of_stream("mine", START)).await.unwrap();
        assert!(matches!(mine[..], [Content::StreamNotFound(_)]), "nothing was written: {mine:?}");
        // To check the state of a stream is to read it.
        let checked = records(&eve, vec![of("mine", 1)], &[("cart", 0)]).await;
        assert!(is_refused(checked));
        let admin = client.with_user("admin", "first");
        records(&admin, vec![of("mine", 1), of("cart", 2)], &[]).await.unwrap();
    });
}

fn text(name: &[u8]) -> String {
    String::from_utf8(name.to_vec()).unwrap()
}

/// The streams of the events and of the links that were read.
fn seen(read: Vec<Content>) -> Vec<(Option<String>, Option<String>)> {
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
fn views_and_links_show_no_more_than_the_streams_do() {
    Ground::with_users().run(async |client, ground| {
        prepared(&client, ground, &["cart-1"]).await;
        append(&ground.store, "cart-2", "Said", "0");
        let view = |resolves| {
            let mut asked = of_stream("$ce-cart", START);
            asked.resolve_links = resolves;
            asked
        };
        for (user, sees) in [("reader", true), ("eve", false)] {
            let who = client.with_user(user, "secret");
            let read = seen(who.read(view(true)).await.unwrap());
            let streams: Vec<Option<&str>> =
                read.iter().map(|(event, _)| event.as_deref()).collect();
            assert_eq!(streams, [sees.then_some("cart-1"), Some("cart-2")], "{user}");
            assert!(read.iter().all(|(_, link)| link.as_deref() == Some("$ce-cart")), "{read:?}");
            let mut answers = who.subscribe(subscription(view(true))).await.unwrap();
            assert!(matches!(next(&mut answers).await, Content::Confirmation(_)));
            let first = seen(vec![next(&mut answers).await]);
            assert_eq!(first[0].0.is_some(), sees, "{user}");
        }
    });
}

async fn next(answers: &mut Streaming<ReadResp>) -> Content {
    answers.message().await.unwrap().unwrap().content.unwrap()
}

#[test]
fn all_events_are_for_administrators_or_for_whom_settings_let_in_without_what_is_hidden() {
    Ground::with_users().run(async |client, ground| {
        prepared(&client, ground, &["cart"]).await;
        append(&ground.store, "open", "Said", "1");
        let eve = client.with_user("eve", "secret");
        let all = || of_all(AllOption::Start(()));
        assert!(is_refused(eve.read(all()).await));
        assert!(is_refused(client.read(all()).await));
        let settings = r#"{"$systemStreamAcl":{"$r":["eve"]}}"#;
        append(&ground.store, "$settings", "$settings", settings);
        let read = eve.read(all()).await.unwrap();
        let streams: Vec<String> = seen(read).into_iter().filter_map(|(event, _)| event).collect();
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
        // What comes later is looked at as well.
        append(&ground.store, "cart", "Said", "2");
        append(&ground.store, "open", "Said", "3");
        let event = recorded(next(&mut answers).await);
        assert_eq!(event.stream_identifier.unwrap().stream_name, "open");
    });
}

/// A subscription went on for ever for whoever was let in when it began.
#[test]
fn a_subscription_ends_when_its_right_or_its_user_does() {
    Ground::with_users().run(async |client, ground| {
        prepared(&client, ground, &["cart", "order"]).await;
        let admin = client.with_user("admin", "first");
        let reader = client.with_user("reader", "secret");
        let follow = async |stream: &str| {
            let asked = subscription(of_stream(stream, START));
            let mut answers = reader.subscribe(asked).await.unwrap();
            while !matches!(next(&mut answers).await, Content::CaughtUp(_)) {}
            answers
        };
        let (mut cart, mut order) = (follow("cart").await, follow("order").await);
        rule(&ground.store, "cart", r#"{"$r":["eve"]}"#);
        append(&ground.store, "cart", "Said", "1");
        append(&ground.store, "order", "Said", "1");
        let ended = cart.message().await.unwrap_err();
        assert_eq!(ended.code(), Code::PermissionDenied, "{ended:?}");
        assert!(matches!(next(&mut order).await, Content::Event(_)), "the other goes on");
        change(&admin, "Disable", "reader").await.unwrap();
        append(&ground.store, "order", "Said", "2");
        let ended = order.message().await.unwrap_err();
        assert_eq!(ended.code(), Code::Unauthenticated, "{ended:?}");
    });
}

/// What is acknowledged counts: no call that begins after it is judged by what was said before.
#[test]
fn a_rule_counts_from_when_it_is_acknowledged() {
    Ground::with_users().run(async |client, ground| {
        prepared(&client, ground, &[]).await;
        let admin = client.with_user("admin", "first");
        let eve = client.with_user("eve", "secret");
        for round in 0..200 {
            let stream = format!("s-{}", round % 3);
            let is_open = round % 2 == 0;
            let acl = if is_open { r#"{"$acl":{}}"# } else { r#"{"$acl":{"$w":[]}}"# };
            let mut said = events(round..round + 1);
            said[0].data = acl.as_bytes().to_vec().into();
            admin.append(&format!("$${stream}"), ANY, &said).await.unwrap();
            let refused = is_refused(eve.append(&stream, ANY, &events(0..1)).await);
            assert_eq!(refused, !is_open, "round {round}");
        }
    });
}

#[test]
fn a_session_asks_for_each_stream() {
    Ground::with_users().run(async |client, ground| {
        prepared(&client, ground, &["cart"]).await;
        let part = |stream: &str| part(stream, None, vec![record(1)]);
        for (user, refused) in [("writer", false), ("eve", true)] {
            let who = client.with_user(user, "secret");
            let parts = vec![part("mine"), part("cart")];
            let done = session(&who, ground.address(), parts).await;
            assert_eq!(is_refused(done), refused, "{user}");
        }
    });
}

/// Wrong passwords wait for their turn and take memory: whoever knows none is not to keep out who
/// does.
#[test]
fn many_wrong_passwords_do_not_shut_out_who_is_known() {
    Ground::with_users().run(async |client, _| {
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

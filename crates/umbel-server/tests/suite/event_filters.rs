//! Tests of filters over the network: reads, subscriptions with checkpoints, links, and hostile
//! expressions.

use std::time::Duration;

use tonic::{Code, Request, Status, Streaming};
use umbel_events::{ExpectedVersion, NewEvent, Store};
use umbel_proto::read_options::{filtered, prefixes, regex, resolving_links};
use umbel_proto::streams::read_req::{AllOption, Filter, Options, RevisionOption};
use umbel_proto::streams::read_resp::{Content, ReadEvent};
use umbel_proto::streams::{ReadReq, ReadResp};

use super::client::{
    ANY, Client, at_most, at_position, backwards, events, number, numbers, of_all, of_stream,
    recorded, subscription,
};
use super::test_server::TestServer;

const START: AllOption = AllOption::Start(());
const END: AllOption = AllOption::End(());

fn by_stream(prefix: &str) -> Filter {
    Filter::StreamIdentifier(prefixes(&[prefix]))
}

fn by_type(expression: &str) -> Filter {
    Filter::EventType(regex(expression))
}

/// Appends events with these numbers to the streams in turn.
async fn fill(client: &Client, streams: &[&str], all: std::ops::Range<u64>) {
    for number in all {
        let stream = streams[number as usize % streams.len()];
        client.append(stream, ANY, &events(number..number + 1)).await.unwrap();
    }
}

fn put(store: &Store, stream: &str, kind: &str, data: &[u8]) -> u64 {
    let event = NewEvent::json(store.new_id().unwrap(), kind, data);
    store.append(stream, ExpectedVersion::Any, &[event]).unwrap().position.unwrap()
}

/// Short form of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Received {
    Event(u64),
    Checkpoint(u64),
    CaughtUp,
}

async fn next(answers: &mut Streaming<ReadResp>) -> Received {
    match answers.message().await.unwrap().unwrap().content.unwrap() {
        Content::Checkpoint(checkpoint) => {
            assert_eq!(checkpoint.commit_position, checkpoint.prepare_position);
            assert!(checkpoint.timestamp.is_some());
            Received::Checkpoint(checkpoint.commit_position)
        }
        Content::CaughtUp(_) => Received::CaughtUp,
        content => Received::Event(number(&recorded(content))),
    }
}

/// Opens a subscription; the first response confirms it.
async fn open(client: &Client, options: Options) -> Streaming<ReadResp> {
    let mut answers = client.subscribe(subscription(options)).await.unwrap();
    let first = answers.message().await.unwrap().unwrap().content.unwrap();
    assert!(matches!(first, Content::Confirmation(_)), "{first:?}");
    answers
}

/// Returns the responses until the subscription has caught up.
async fn until_caught_up(answers: &mut Streaming<ReadResp>) -> Vec<Received> {
    let mut received = Vec::new();
    while received.last() != Some(&Received::CaughtUp) {
        received.push(next(answers).await);
    }
    received
}

fn events_of(received: &[Received]) -> Vec<u64> {
    let number = |received: &Received| match received {
        Received::Event(number) => Some(*number),
        _ => None,
    };
    received.iter().filter_map(number).collect()
}

fn checkpoints_of(received: &[Received]) -> Vec<u64> {
    let position = |received: &Received| match received {
        Received::Checkpoint(position) => Some(*position),
        _ => None,
    };
    received.iter().filter_map(position).collect()
}

#[test]
fn filtered_read_returns_matches_in_both_directions() {
    TestServer::new().run(async |client, server| {
        fill(&client, &["cart-1", "order-1", "cart-2"], 0..30).await;
        put(&server.store, "$epoch-information", "Counted", b"1000");
        put(&server.store, "$persistentsubscription-$all::g-checkpoint", "Counted", b"1001");
        let carts: Vec<u64> = (0..30).filter(|n| n % 3 != 1).collect();
        let read = async |options| numbers(client.read(options).await.unwrap());
        for filter in [
            by_stream("cart-"),
            Filter::StreamIdentifier(regex("^cart-")),
            Filter::StreamIdentifier(regex(r"(?<!order)-\d+$")),
        ] {
            let of = |options| filtered(filter.clone(), 5, options);
            assert_eq!(read(of(of_all(START))).await, carts, "{filter:?}");
            let back: Vec<u64> = carts.iter().rev().copied().collect();
            assert_eq!(read(of(backwards(of_all(END)))).await, back, "{filter:?}");
            assert_eq!(read(of(at_most(3, of_all(START)))).await, carts[..3]);
            assert_eq!(read(of(at_most(3, backwards(of_all(END))))).await, back[..3]);
        }
        let all = client.read(of_all(START)).await.unwrap();
        assert_eq!(all.len(), 32);
        let tenth = recorded(all[10].clone()).commit_position;
        let from_there = filtered(by_type("^Counted$"), 5, of_all(at_position(tenth)));
        assert_eq!(read(from_there).await, (10..30).collect::<Vec<_>>());
        let before = filtered(by_type("^Counted$"), 5, backwards(of_all(at_position(tenth))));
        assert_eq!(read(before).await, (0..10).rev().collect::<Vec<_>>());
        let never = read(filtered(by_type("^Never"), 5, of_all(START))).await;
        assert!(never.is_empty());
        let by_default = by_type(r"^(?!(\$.+$|PersistentConfig\d+$|Result$))");
        assert_eq!(read(filtered(by_default, 30, of_all(START))).await.len(), 30);
    });
}

#[test]
fn filtered_subscription_resumes_at_its_checkpoint() {
    TestServer::new().run(async |client, server| {
        fill(&client, &["cart", "other", "other", "other"], 0..200).await;
        let carts: Vec<u64> = (0..200).step_by(4).collect();
        let all = client.read(of_all(START)).await.unwrap();
        let positions: Vec<u64> =
            all.into_iter().map(|event| recorded(event).commit_position).collect();
        let mut answers = open(&client, filtered(by_stream("cart"), 20, of_all(START))).await;
        let received = until_caught_up(&mut answers).await;
        assert_eq!(events_of(&received), carts);
        // One after every 20 examined events, one when it has caught up.
        let mut wanted: Vec<u64> = (1..=10).map(|n| positions[20 * n - 1]).collect();
        wanted.push(positions[199]);
        assert_eq!(checkpoints_of(&received), wanted);
        assert_eq!(received[received.len() - 2], Received::Checkpoint(positions[199]));
        for (index, item) in received.iter().enumerate() {
            let Received::Checkpoint(position) = item else { continue };
            let before = events_of(&received[..index]).len();
            let options = filtered(by_stream("cart"), 20, of_all(at_position(*position)));
            let rest = until_caught_up(&mut open(&client, options).await).await;
            assert_eq!(events_of(&rest), carts[before..], "from {position}");
        }
        drop(answers);
        let last = *checkpoints_of(&received).last().unwrap();
        server.stop().await.unwrap();
        put(&server.store, "other", "Counted", b"200");
        let fifth = put(&server.store, "cart", "Counted", b"201");
        let again = server.serve_again().await;
        let options = filtered(by_stream("cart"), 20, of_all(at_position(last)));
        let received = until_caught_up(&mut open(&again, options).await).await;
        assert_eq!(
            received,
            [Received::Event(201), Received::Checkpoint(fifth), Received::CaughtUp]
        );
    });
}

#[test]
fn checkpoints_are_sent_without_matching_events() {
    TestServer::new().run(async |client, server| {
        let mut answers = open(&client, filtered(by_type("^Never"), 32, of_all(START))).await;
        assert_eq!(
            until_caught_up(&mut answers).await,
            [Received::Checkpoint(0), Received::CaughtUp]
        );
        let mut checkpoint = 0;
        for turn in 0..3 {
            let mut last = 0;
            for _ in 0..3 {
                last = put(&server.store, "other", "Counted", b"0");
            }
            // Far fewer than 32 events were examined, and no more are appended.
            while checkpoint < last {
                match next(&mut answers).await {
                    Received::Checkpoint(position) => {
                        assert!(position > checkpoint && position <= last, "turn {turn}");
                        checkpoint = position;
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        let mut last = 0;
        for _ in 0..100 {
            last = put(&server.store, "other", "Counted", b"0");
        }
        let mut received = Vec::new();
        while checkpoint < last {
            received.push(next(&mut answers).await);
            checkpoint = *checkpoints_of(&received).last().unwrap();
        }
        assert!(received.len() >= 3, "one for each 32 at least: {received:?}");
        put(&server.store, "other", "Never mind", b"7");
        assert_eq!(next(&mut answers).await, Received::Event(7));
    });
}

#[test]
fn checkpoints_are_sent_when_views_skip_events() {
    TestServer::new().run(async |client, server| {
        let large = format!("\"{}\"", "x".repeat(1000));
        let mut last = 0;
        for number in 0..1200 {
            last = match number % 100 {
                50 => put(&server.store, "other", "Rare", number.to_string().as_bytes()),
                _ => put(&server.store, "other", "Common", large.as_bytes()),
            };
        }
        let rare: Vec<u64> = (50..1200).step_by(100).collect();
        let of = |start| filtered(by_type("^Rare"), 5, of_all(start));
        let received = until_caught_up(&mut open(&client, of(START)).await).await;
        assert_eq!(events_of(&received), rare);
        // One after every five examined events, one when it has caught up.
        assert!((3..12).contains(&checkpoints_of(&received).len()), "{received:?}");
        assert_eq!(
            received[received.len() - 2..],
            [Received::Checkpoint(last), Received::CaughtUp]
        );
        for (index, item) in received.iter().enumerate() {
            let Received::Checkpoint(position) = item else { continue };
            let before = events_of(&received[..index]).len();
            let rest = until_caught_up(&mut open(&client, of(at_position(*position))).await).await;
            assert_eq!(events_of(&rest), rare[before..], "from {position}");
        }
    });
}

#[test]
fn filtered_catch_up_to_live_delivers_each_event_once() {
    TestServer::new().run(async |client, server| {
        let store = server.store.clone();
        let write = |numbers: std::ops::Range<u64>| {
            let store = store.clone();
            tokio::task::spawn_blocking(move || {
                for number in numbers {
                    let stream = ["cart", "other"][number as usize % 2];
                    put(&store, stream, "Counted", number.to_string().as_bytes());
                }
            })
        };
        write(0..2000).await.unwrap();
        let mut answers = open(&client, filtered(by_stream("cart"), 7, of_all(START))).await;
        let writer = write(2000..6000);
        let (mut seen, mut checkpoint, mut caught_up) = (Vec::new(), 0, 0);
        while seen.len() < 3000 {
            match next(&mut answers).await {
                Received::Event(number) => seen.push(number),
                Received::Checkpoint(position) => {
                    assert!(position >= checkpoint, "checkpoints rise");
                    checkpoint = position;
                }
                Received::CaughtUp => caught_up += 1,
            }
        }
        writer.await.unwrap();
        assert_eq!(seen, (0..6000).step_by(2).collect::<Vec<_>>());
        assert!(caught_up <= 1);
    });
}

fn refused(outcome: Result<Vec<Content>, Status>) -> Status {
    let status = outcome.expect_err("refused");
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    status
}

#[test]
fn invalid_expression_is_rejected_with_a_reason() {
    TestServer::new().run(async |client, _| {
        fill(&client, &["a"], 0..3).await;
        let long = "x".repeat(1 << 19);
        for (expression, reason) in [
            ("a(b", "broken at character"),
            (r"\h", "not a known escape"),
            ("(?<a-b>x)", "balancing"),
            (long.as_str(), "524288 bytes"),
            ("((((?=a)){1000}){1000}){1000}", "look-arounds"),
            (r"(\w{60}){60}", "cannot be used"),
            (r"\p{Nonsense}", "cannot be used"),
        ] {
            let options = filtered(by_type(expression), 32, of_all(START));
            let status = refused(client.read(options.clone()).await);
            assert!(status.message().contains(reason), "{status:?}");
            let status = client.subscribe(subscription(options)).await.unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument);
        }
        let neither = filtered(Filter::EventType(regex("")), 32, of_all(START));
        refused(client.read(neither).await);
        refused(client.read(filtered(by_type("a"), 0, of_all(START))).await);
        let of_one = of_stream("a", RevisionOption::Start(()));
        refused(client.read(filtered(by_type("a"), 32, of_one)).await);
        assert_eq!(numbers(client.read(of_all(START)).await.unwrap()), [0, 1, 2]);
    });
}

#[test]
fn runaway_expression_ends_only_its_own_call() {
    TestServer::new().run(async |client, server| {
        fill(&client, &["a"], 0..3).await;
        let mut other = open(&client, of_all(START)).await;
        assert_eq!(events_of(&until_caught_up(&mut other).await), [0, 1, 2]);
        let name = "a".repeat(1000);
        put(&server.store, &name, "Counted", b"3");
        let runaway = Filter::StreamIdentifier(regex(r"(a*)*\1b"));
        let options = filtered(runaway, 32, of_all(START));
        let status = refused(client.read(options.clone()).await);
        assert!(status.message().contains("backtracking steps"), "{status:?}");
        let mut answers = open(&client, options).await;
        let status = answers.message().await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert_eq!(next(&mut other).await, Received::Event(3));
        fill(&client, &["a"], 4..5).await;
        assert_eq!(next(&mut other).await, Received::Event(4));
    });
}

/// The regular expression scans every name from each of its letters; matching all names takes half
/// a second.
#[test]
fn heavy_filter_ends_at_its_deadline_without_blocking_reads() {
    TestServer::new().run(async |client, server| {
        for number in 0..3000 {
            let stream = format!("{}-{number}", "ab".repeat(45));
            put(&server.store, &stream, "Counted", number.to_string().as_bytes());
        }
        let heavy = Filter::StreamIdentifier(regex(r"((?!z).)*(?=x)"));
        let options = Some(filtered(heavy, 1000, of_all(START)));
        let mut request = Request::new(ReadReq { options });
        request.set_timeout(Duration::from_millis(100));
        // The headers follow the first event, and there is none.
        let heavy = tokio::spawn({
            let client = client.clone();
            async move { client.open(request).await.map(drop) }
        });
        let quick = client.read(at_most(1, of_all(START))).await.unwrap();
        assert_eq!(numbers(quick), [0]);
        assert!(!heavy.is_finished(), "the other read was done first");
        let status = heavy.await.unwrap().unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
    });
}

/// Event, link and position of a response.
fn parts(content: Content) -> (Option<u64>, Option<u64>, ReadEvent) {
    let Content::Event(event) = content else { panic!("{content:?}") };
    let revision = |event: &Option<_>| {
        event.as_ref().map(|e: &umbel_proto::streams::read_resp::RecordedEvent| e.stream_revision)
    };
    (revision(&event.event), revision(&event.link), event)
}

#[test]
fn links_are_resolved_on_request() {
    TestServer::new().run(async |client, server| {
        fill(&client, &["cart"], 0..3).await;
        for data in ["2@cart", "9@cart", "0@nowhere", "nonsense"] {
            put(&server.store, "links", "$>", data.as_bytes());
        }
        let of_links = of_stream("links", RevisionOption::Start(()));
        let as_they_are = client.read(of_links.clone()).await.unwrap();
        assert_eq!(as_they_are.len(), 4);
        for (number, content) in (0..).zip(as_they_are) {
            let (event, link, _) = parts(content);
            assert_eq!((event, link), (Some(number), None));
        }
        let wanted = [(Some(2), Some(0)), (None, Some(1)), (None, Some(2)), (None, Some(3))];
        let only_links = filtered(Filter::EventType(prefixes(&["$>"])), 2, of_all(START));
        for options in [of_links, only_links, of_all(START)] {
            let is_all = client.read(options.clone()).await.unwrap().len() > 4;
            let skipped = if is_all { 3 } else { 0 };
            let read = client.read(resolving_links(options.clone())).await.unwrap();
            for (content, wanted) in read.into_iter().skip(skipped).zip(wanted) {
                let (event, link, answer) = parts(content);
                assert_eq!((event, link), wanted);
                let link_commit = answer.link.unwrap().commit_position;
                let position = answer.position.unwrap();
                let link_position =
                    umbel_proto::streams::read_resp::EventPosition::CommitPosition(link_commit);
                assert_eq!(position, link_position, "the position is that of the link");
            }
            let mut answers =
                client.subscribe(subscription(resolving_links(options))).await.unwrap();
            let mut seen = Vec::new();
            while seen.len() < skipped + 4 {
                if let content @ Content::Event(_) =
                    answers.message().await.unwrap().unwrap().content.unwrap()
                {
                    let (event, link, _) = parts(content);
                    seen.push((event, link));
                }
            }
            assert_eq!(seen[skipped..], wanted);
        }
    });
}

/// Link targets are much larger than links. A checkpoint must not be sent before the links that
/// were read before it.
#[test]
fn checkpoint_follows_all_earlier_events() {
    TestServer::new().run(async |client, server| {
        let large = vec![b'"'; 700_000];
        put(&server.store, "large", "Large", &large);
        for _ in 0..40 {
            put(&server.store, "links", "$>", b"0@large");
        }
        let of_links = filtered(by_stream("links"), 1000, of_all(START));
        let mut answers = client.subscribe(subscription(resolving_links(of_links))).await.unwrap();
        let (mut links, mut checkpoints) = (0, Vec::new());
        loop {
            match answers.message().await.unwrap().unwrap().content.unwrap() {
                Content::Event(event) => {
                    links += 1;
                    let position = event.link.unwrap().commit_position;
                    assert!(checkpoints.iter().all(|(at, _)| *at < position), "{checkpoints:?}");
                }
                Content::Checkpoint(at) => checkpoints.push((at.commit_position, links)),
                Content::CaughtUp(_) => break,
                _ => {}
            }
            tokio::time::sleep(Duration::from_millis(60)).await;
        }
        assert_eq!(links, 40);
        assert_eq!(checkpoints.len(), 1, "{checkpoints:?}");
    });
}

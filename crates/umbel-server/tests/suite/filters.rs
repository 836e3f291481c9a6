//! Filters over the wire: reads, subscriptions with their checkpoints, links, hostile expressions.

use std::time::Duration;

use tonic::{Code, Request, Status, Streaming};
use umbel_events::{Expected, NewEvent, Store};
use umbel_proto::reading::{filtered, prefixes, regex, resolving_links};
use umbel_proto::streams::read_req::{AllOption, Filter, Options, RevisionOption};
use umbel_proto::streams::read_resp::{Content, ReadEvent};
use umbel_proto::streams::{ReadReq, ReadResp};

use super::client::{
    ANY, Client, at, at_most, backwards, events, number, numbers, of_all, of_stream, recorded,
    subscription,
};
use super::ground::Ground;

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
    store.append(stream, Expected::Any, &[event]).unwrap().position.unwrap()
}

/// What came, in few words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Came {
    Event(u64),
    Checkpoint(u64),
    CaughtUp,
}

async fn next(answers: &mut Streaming<ReadResp>) -> Came {
    match answers.message().await.unwrap().unwrap().content.unwrap() {
        Content::Checkpoint(checkpoint) => {
            assert_eq!(checkpoint.commit_position, checkpoint.prepare_position);
            assert!(checkpoint.timestamp.is_some());
            Came::Checkpoint(checkpoint.commit_position)
        }
        Content::CaughtUp(_) => Came::CaughtUp,
        content => Came::Event(number(&recorded(content))),
    }
}

/// Opens a subscription; the first answer confirms it.
async fn open(client: &Client, options: Options) -> Streaming<ReadResp> {
    let mut answers = client.subscribe(subscription(options)).await.unwrap();
    let first = answers.message().await.unwrap().unwrap().content.unwrap();
    assert!(matches!(first, Content::Confirmation(_)), "{first:?}");
    answers
}

/// What comes until it has caught up.
async fn until_caught_up(answers: &mut Streaming<ReadResp>) -> Vec<Came> {
    let mut came = Vec::new();
    while came.last() != Some(&Came::CaughtUp) {
        came.push(next(answers).await);
    }
    came
}

fn events_of(came: &[Came]) -> Vec<u64> {
    let number = |came: &Came| match came {
        Came::Event(number) => Some(*number),
        _ => None,
    };
    came.iter().filter_map(number).collect()
}

fn checkpoints_of(came: &[Came]) -> Vec<u64> {
    let position = |came: &Came| match came {
        Came::Checkpoint(position) => Some(*position),
        _ => None,
    };
    came.iter().filter_map(position).collect()
}

#[test]
fn a_filtered_read_answers_what_passes_both_ways() {
    Ground::new().run(async |client, ground| {
        fill(&client, &["cart-1", "order-1", "cart-2"], 0..30).await;
        put(&ground.store, "$epoch-information", "Counted", b"1000");
        put(&ground.store, "$persistentsubscription-$all::g-checkpoint", "Counted", b"1001");
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
        let from_there = filtered(by_type("^Counted$"), 5, of_all(at(tenth)));
        assert_eq!(read(from_there).await, (10..30).collect::<Vec<_>>());
        let before = filtered(by_type("^Counted$"), 5, backwards(of_all(at(tenth))));
        assert_eq!(read(before).await, (0..10).rev().collect::<Vec<_>>());
        let never = read(filtered(by_type("^Never"), 5, of_all(START))).await;
        assert!(never.is_empty());
        let by_default = by_type(r"^(?!(\$.+$|PersistentConfig\d+$|Result$))");
        assert_eq!(read(filtered(by_default, 30, of_all(START))).await.len(), 30);
    });
}

#[test]
fn a_filtered_subscription_says_how_far_it_is_and_goes_on_there_after_a_restart() {
    Ground::new().run(async |client, ground| {
        fill(&client, &["cart", "other", "other", "other"], 0..200).await;
        let carts: Vec<u64> = (0..200).step_by(4).collect();
        let all = client.read(of_all(START)).await.unwrap();
        let positions: Vec<u64> =
            all.into_iter().map(|event| recorded(event).commit_position).collect();
        let mut answers = open(&client, filtered(by_stream("cart"), 20, of_all(START))).await;
        let came = until_caught_up(&mut answers).await;
        assert_eq!(events_of(&came), carts);
        // One after each 20 that were looked at, one when it has caught up.
        let mut wanted: Vec<u64> = (1..=10).map(|n| positions[20 * n - 1]).collect();
        wanted.push(positions[199]);
        assert_eq!(checkpoints_of(&came), wanted);
        assert_eq!(came[came.len() - 2], Came::Checkpoint(positions[199]));
        for (index, came_then) in came.iter().enumerate() {
            let Came::Checkpoint(position) = came_then else { continue };
            let before = events_of(&came[..index]).len();
            let options = filtered(by_stream("cart"), 20, of_all(at(*position)));
            let rest = until_caught_up(&mut open(&client, options).await).await;
            assert_eq!(events_of(&rest), carts[before..], "from {position}");
        }
        drop(answers);
        let last = *checkpoints_of(&came).last().unwrap();
        ground.stop().await.unwrap();
        put(&ground.store, "other", "Counted", b"200");
        let fifth = put(&ground.store, "cart", "Counted", b"201");
        let again = ground.serve_again().await;
        let options = filtered(by_stream("cart"), 20, of_all(at(last)));
        let came = until_caught_up(&mut open(&again, options).await).await;
        assert_eq!(came, [Came::Event(201), Came::Checkpoint(fifth), Came::CaughtUp]);
    });
}

#[test]
fn a_checkpoint_comes_although_nothing_passes_and_when_it_is_quiet() {
    Ground::new().run(async |client, ground| {
        let mut answers = open(&client, filtered(by_type("^Never"), 32, of_all(START))).await;
        assert_eq!(until_caught_up(&mut answers).await, [Came::Checkpoint(0), Came::CaughtUp]);
        let mut told = 0;
        for turn in 0..3 {
            let mut last = 0;
            for _ in 0..3 {
                last = put(&ground.store, "other", "Counted", b"0");
            }
            // Far fewer than 32 were looked at, and nobody appends any more.
            while told < last {
                match next(&mut answers).await {
                    Came::Checkpoint(position) => {
                        assert!(position > told && position <= last, "turn {turn}");
                        told = position;
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        let mut last = 0;
        for _ in 0..100 {
            last = put(&ground.store, "other", "Counted", b"0");
        }
        let mut came = Vec::new();
        while told < last {
            came.push(next(&mut answers).await);
            told = *checkpoints_of(&came).last().unwrap();
        }
        assert!(came.len() >= 3, "one for each 32 at least: {came:?}");
        put(&ground.store, "other", "Never mind", b"7");
        assert_eq!(next(&mut answers).await, Came::Event(7));
    });
}

#[test]
fn a_checkpoint_comes_where_views_pass_over_what_does_not_pass() {
    Ground::new().run(async |client, ground| {
        let large = format!("\"{}\"", "x".repeat(1000));
        let mut last = 0;
        for number in 0..1200 {
            last = match number % 100 {
                50 => put(&ground.store, "other", "Rare", number.to_string().as_bytes()),
                _ => put(&ground.store, "other", "Common", large.as_bytes()),
            };
        }
        let rare: Vec<u64> = (50..1200).step_by(100).collect();
        let of = |start| filtered(by_type("^Rare"), 5, of_all(start));
        let came = until_caught_up(&mut open(&client, of(START)).await).await;
        assert_eq!(events_of(&came), rare);
        // One after each five that were looked at, one when it has caught up.
        assert!((3..12).contains(&checkpoints_of(&came).len()), "{came:?}");
        assert_eq!(came[came.len() - 2..], [Came::Checkpoint(last), Came::CaughtUp]);
        for (index, came_then) in came.iter().enumerate() {
            let Came::Checkpoint(position) = came_then else { continue };
            let before = events_of(&came[..index]).len();
            let rest = until_caught_up(&mut open(&client, of(at(*position))).await).await;
            assert_eq!(events_of(&rest), rare[before..], "from {position}");
        }
    });
}

#[test]
fn nothing_is_lost_or_repeated_between_catching_up_and_live_behind_a_filter() {
    Ground::new().run(async |client, ground| {
        let store = ground.store.clone();
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
        let (mut seen, mut told, mut caught_up) = (Vec::new(), 0, 0);
        while seen.len() < 3000 {
            match next(&mut answers).await {
                Came::Event(number) => seen.push(number),
                Came::Checkpoint(position) => {
                    assert!(position >= told, "checkpoints rise");
                    told = position;
                }
                Came::CaughtUp => caught_up += 1,
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
fn an_expression_that_cannot_be_used_is_refused_with_its_reason() {
    Ground::new().run(async |client, _| {
        fill(&client, &["a"], 0..3).await;
        let long = "x".repeat(1 << 19);
        for (expression, said) in [
            ("a(b", "broken at character"),
            (r"\h", "stands for nothing"),
            ("(?<a-b>x)", "balance"),
            (long.as_str(), "524288 bytes"),
            ("((((?=a)){1000}){1000}){1000}", "looks around"),
            (r"(\w{60}){60}", "cannot be used"),
            (r"\p{Nonsense}", "cannot be used"),
        ] {
            let options = filtered(by_type(expression), 32, of_all(START));
            let status = refused(client.read(options.clone()).await);
            assert!(status.message().contains(said), "{status:?}");
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
fn a_runaway_expression_ends_its_own_call_and_nobody_elses() {
    Ground::new().run(async |client, ground| {
        fill(&client, &["a"], 0..3).await;
        let mut other = open(&client, of_all(START)).await;
        assert_eq!(events_of(&until_caught_up(&mut other).await), [0, 1, 2]);
        let name = "a".repeat(1000);
        put(&ground.store, &name, "Counted", b"3");
        let runaway = Filter::StreamIdentifier(regex(r"(a*)*\1b"));
        let options = filtered(runaway, 32, of_all(START));
        let status = refused(client.read(options.clone()).await);
        assert!(status.message().contains("steps back"), "{status:?}");
        let mut answers = open(&client, options).await;
        let status = answers.message().await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert_eq!(next(&mut other).await, Came::Event(3));
        fill(&client, &["a"], 4..5).await;
        assert_eq!(next(&mut other).await, Came::Event(4));
    });
}

/// The expression looks at every name from every letter on, and takes all of them half a second.
#[test]
fn a_heavy_filter_ends_at_its_deadline_and_lets_others_read() {
    Ground::new().run(async |client, ground| {
        for number in 0..3000 {
            let stream = format!("{}-{number}", "ab".repeat(45));
            put(&ground.store, &stream, "Counted", number.to_string().as_bytes());
        }
        let heavy = Filter::StreamIdentifier(regex(r"((?!z).)*(?=x)"));
        let options = Some(filtered(heavy, 1000, of_all(START)));
        let mut request = Request::new(ReadReq { options });
        request.set_timeout(Duration::from_millis(100));
        let mut open = client.open(request).await.unwrap();
        let quick = client.read(at_most(1, of_all(START))).await.unwrap();
        assert_eq!(numbers(quick), [0]);
        let status = open.message().await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
    });
}

/// The event, the link, and the place that an answer has.
fn parts(content: Content) -> (Option<u64>, Option<u64>, ReadEvent) {
    let Content::Event(event) = content else { panic!("{content:?}") };
    let revision = |event: &Option<_>| {
        event.as_ref().map(|e: &umbel_proto::streams::read_resp::RecordedEvent| e.stream_revision)
    };
    (revision(&event.event), revision(&event.link), event)
}

#[test]
fn links_are_resolved_where_that_is_asked_for() {
    Ground::new().run(async |client, ground| {
        fill(&client, &["cart"], 0..3).await;
        for data in ["2@cart", "9@cart", "0@nowhere", "nonsense"] {
            put(&ground.store, "links", "$>", data.as_bytes());
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
                let place = answer.link.unwrap().commit_position;
                let position = answer.position.unwrap();
                let said = umbel_proto::streams::read_resp::EventPosition::CommitPosition(place);
                assert_eq!(position, said, "the place is that of the link");
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

/// What links point to is much more than they are: a place behind links that were taken and not
/// answered yet must not be told before them.
#[test]
fn no_checkpoint_comes_before_what_lies_in_front_of_it() {
    Ground::new().run(async |client, ground| {
        let large = vec![b'"'; 700_000];
        put(&ground.store, "large", "Large", &large);
        for _ in 0..40 {
            put(&ground.store, "links", "$>", b"0@large");
        }
        let of_links = filtered(by_stream("links"), 1000, of_all(START));
        let mut answers = client.subscribe(subscription(resolving_links(of_links))).await.unwrap();
        let (mut links, mut checkpoints) = (0, Vec::new());
        loop {
            match answers.message().await.unwrap().unwrap().content.unwrap() {
                Content::Event(event) => {
                    links += 1;
                    let place = event.link.unwrap().commit_position;
                    assert!(checkpoints.iter().all(|(at, _)| *at < place), "{checkpoints:?}");
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

//! Subscriptions: catching up, going on live, ending.

use std::time::Duration;

use prost_types::Timestamp;
use tonic::{Code, Request, Streaming};
use umbel_events::{Expected, NewEvent, Store};
use umbel_proto::shared::AllStreamPosition;
use umbel_proto::streams::read_req::{AllOption, Options, RevisionOption};
use umbel_proto::streams::read_resp::{Content, Progress};
use umbel_proto::streams::{ReadReq, ReadResp};

use super::client::{
    ANY, Client, at, backwards, event, events, fact, number, of_all, of_stream, recorded,
    subscription,
};
use super::ground::Ground;

const START: RevisionOption = RevisionOption::Start(());
const END: RevisionOption = RevisionOption::End(());

async fn next(answers: &mut Streaming<ReadResp>) -> Content {
    answers.message().await.unwrap().unwrap().content.unwrap()
}

/// Opens a subscription; the first answer confirms it.
async fn confirmed(client: &Client, options: Options) -> Streaming<ReadResp> {
    let mut answers = client.subscribe(subscription(options)).await.unwrap();
    match next(&mut answers).await {
        Content::Confirmation(confirmation) => assert_eq!(confirmation.subscription_id.len(), 36),
        other => panic!("{other:?}"),
    }
    answers
}

/// The numbers of so many events, and after how many of them the subscription had caught up.
async fn take(answers: &mut Streaming<ReadResp>, count: usize) -> (Vec<u64>, Vec<usize>) {
    let (mut numbers, mut caught_up) = (Vec::new(), Vec::new());
    while numbers.len() < count {
        match next(answers).await {
            Content::CaughtUp(_) => caught_up.push(numbers.len()),
            content => numbers.push(number(&recorded(content))),
        }
    }
    (numbers, caught_up)
}

async fn caught_up(answers: &mut Streaming<ReadResp>) -> Progress {
    match next(answers).await {
        Content::CaughtUp(progress) => progress,
        other => panic!("{other:?}"),
    }
}

/// Appends the events with these numbers to a stream, or to seven in turn, on a thread of its own.
fn write(
    store: &Store,
    numbers: std::ops::Range<u64>,
    streams: u64,
) -> tokio::task::JoinHandle<()> {
    let store = store.clone();
    tokio::task::spawn_blocking(move || {
        for number in numbers {
            let data = number.to_string();
            let id = store.new_id().unwrap();
            let event = NewEvent::json(id, "Counted", data.as_bytes());
            let stream = format!("cart-{}", number % streams);
            store.append(&stream, Expected::Any, &[event]).unwrap();
        }
    })
}

#[test]
fn nothing_is_lost_or_repeated_between_catching_up_and_live() {
    Ground::new().run(async |client, ground| {
        write(&ground.store, 0..3000, 1).await.unwrap();
        let mut of_one = confirmed(&client, of_stream("cart-0", START)).await;
        let mut of_every = confirmed(&client, of_all(AllOption::Start(()))).await;
        let writer = write(&ground.store, 3000..9000, 1);
        for answers in [&mut of_one, &mut of_every] {
            let (numbers, caught_up) = take(answers, 9000).await;
            assert_eq!(numbers, (0..9000).collect::<Vec<_>>());
            assert!(caught_up.len() <= 1, "{caught_up:?}");
        }
        writer.await.unwrap();
    });
}

#[test]
fn a_subscriber_that_takes_its_time_loses_nothing_and_holds_nobody_up() {
    Ground::new().run(async |client, ground| {
        let slow = confirmed(&client, of_all(AllOption::Start(()))).await;
        write(&ground.store, 0..20_000, 7).await.unwrap();
        let mut quick = confirmed(&client, of_all(AllOption::Start(()))).await;
        assert_eq!(take(&mut quick, 20_000).await.0, (0..20_000).collect::<Vec<_>>());
        let mut slow = slow;
        assert_eq!(take(&mut slow, 20_000).await.0, (0..20_000).collect::<Vec<_>>());
    });
}

#[test]
fn a_subscription_begins_behind_what_it_names() {
    Ground::new().run(async |client, _| {
        client.append("cart", ANY, &events(0..5)).await.unwrap();
        let read = client.read(of_all(AllOption::Start(()))).await.unwrap();
        let third = recorded(read[2].clone()).commit_position;
        let last = recorded(read[4].clone()).commit_position;
        let cases = [
            (of_stream("cart", RevisionOption::Revision(2)), vec![3, 4, 9]),
            (of_stream("cart", RevisionOption::Revision(4)), vec![9]),
            (of_stream("cart", END), vec![9]),
            (of_all(at(third)), vec![3, 4, 9]),
            (of_all(at(last)), vec![9]),
            (of_all(AllOption::End(())), vec![9]),
        ];
        let mut open = Vec::new();
        for (options, wanted) in cases {
            let mut answers = confirmed(&client, options).await;
            let (numbers, _) = take(&mut answers, wanted.len() - 1).await;
            caught_up(&mut answers).await;
            open.push((answers, numbers, wanted));
        }
        client.append("cart", ANY, &[event(9)]).await.unwrap();
        for (mut answers, mut numbers, wanted) in open {
            numbers.extend(take(&mut answers, 1).await.0);
            assert_eq!(numbers, wanted);
        }
        let behind = client.subscribe(subscription(of_all(at(1 << 60)))).await;
        assert_eq!(behind.unwrap_err().code(), Code::InvalidArgument);
    });
}

#[test]
fn caught_up_says_how_far() {
    Ground::new().run(async |client, _| {
        let empty = caught_up(&mut confirmed(&client, of_all(AllOption::Start(()))).await).await;
        // The Go client takes a message without either for a null pointer.
        let start = Some(AllStreamPosition { commit_position: 0, prepare_position: 0 });
        assert_eq!((empty.position, empty.stream_revision), (start, None));
        let empty = caught_up(&mut confirmed(&client, of_stream("cart", START)).await).await;
        assert_eq!((empty.position, empty.stream_revision), (None, Some(-1)));
        client.append("cart", ANY, &events(0..3)).await.unwrap();
        let of_one = caught_up(&mut confirmed(&client, of_stream("cart", END)).await).await;
        assert_eq!(of_one.stream_revision, Some(2));
        let of_every = caught_up(&mut confirmed(&client, of_all(AllOption::End(()))).await).await;
        let read = client.read(of_stream("cart", END)).await.unwrap();
        assert_eq!(read, []);
        let read = client.read(backwards(of_stream("cart", END))).await.unwrap();
        let last = recorded(read[0].clone()).commit_position;
        assert_eq!(of_every.position.unwrap().commit_position, last);
        assert!(matches!(of_every.timestamp, Some(Timestamp { seconds: 1_700_000_000.., .. })));
    });
}

#[test]
fn a_stream_that_comes_or_comes_back_is_followed() {
    Ground::new().run(async |client, _| {
        let mut answers = confirmed(&client, of_stream("cart", START)).await;
        client.append("cart", ANY, &events(0..2)).await.unwrap();
        assert_eq!(take(&mut answers, 2).await.0, [0, 1]);
        client.delete("Delete", "cart", ANY).await.unwrap();
        client.append("cart", ANY, &events(2..4)).await.unwrap();
        assert_eq!(take(&mut answers, 2).await.0, [2, 3]);
        client.delete("Tombstone", "cart", ANY).await.unwrap();
        let status = answers.message().await.unwrap_err();
        assert_eq!(fact(&status, "exception"), "stream-deleted");
        let mut again = client.subscribe(subscription(of_stream("cart", START))).await.unwrap();
        assert!(matches!(next(&mut again).await, Content::Confirmation(_)));
        let status = again.message().await.unwrap_err();
        assert_eq!(fact(&status, "exception"), "stream-deleted");
    });
}

#[test]
fn the_server_stops_although_somebody_listens() {
    let mut ground = Ground::new();
    ground.run(async |client, ground| {
        let mut answers = confirmed(&client, of_stream("cart", START)).await;
        caught_up(&mut answers).await;
        let stopped = ground.stop();
        let status = answers.message().await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
        assert!(status.message().starts_with("Server Is Not Ready"), "{status:?}");
        let patience = Duration::from_secs(4);
        tokio::time::timeout(patience, stopped).await.expect("stops at once").unwrap();
        assert!(tokio::net::TcpStream::connect(ground.address()).await.is_err());
    });
    ground.store.append("cart", Expected::Any, &[]).expect("the store is the caller's");
}

#[test]
fn a_subscription_ends_at_its_deadline() {
    Ground::new().run(async |client, _| {
        let options = Some(subscription(of_all(AllOption::Start(()))));
        let mut request = Request::new(ReadReq { options });
        request.set_timeout(Duration::from_millis(300));
        let mut answers = client.open(request).await.unwrap();
        assert!(matches!(next(&mut answers).await, Content::Confirmation(_)));
        caught_up(&mut answers).await;
        let status = answers.message().await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded);
    });
}

#[test]
fn a_subscription_goes_forwards() {
    Ground::new().run(async |client, _| {
        let options = subscription(backwards(of_stream("cart", END)));
        let status = client.subscribe(options).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
    });
}

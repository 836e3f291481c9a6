//! Tests of subscriptions: catching up, live events, end.

use std::time::Duration;

use prost_types::Timestamp;
use tonic::{Code, Request, Streaming};
use umbel_env::Env;
use umbel_events::{CopyOptions, ExpectedVersion, NewEvent, Store, StoreOptions};
use umbel_proto::shared::AllStreamPosition;
use umbel_proto::streams::read_req::{AllOption, Options, RevisionOption};
use umbel_proto::streams::read_resp::{Content, Progress};
use umbel_proto::streams::{ReadReq, ReadResp};
use umbel_server::Config;

use super::client::{
    ANY, Client, at_position, backwards, event, events, fact, number, of_all, of_stream, recorded,
    subscription,
};
use super::test_server::TestServer;

const START: RevisionOption = RevisionOption::Start(());
const END: RevisionOption = RevisionOption::End(());

async fn next(answers: &mut Streaming<ReadResp>) -> Content {
    answers.message().await.unwrap().unwrap().content.unwrap()
}

/// Opens a subscription; the first response confirms it.
async fn confirmed(client: &Client, options: Options) -> Streaming<ReadResp> {
    let mut answers = client.subscribe(subscription(options)).await.unwrap();
    match next(&mut answers).await {
        Content::Confirmation(confirmation) => assert_eq!(confirmation.subscription_id.len(), 36),
        other => panic!("{other:?}"),
    }
    answers
}

/// Returns the numbers of the next `count` events, and the counts at which the subscription caught
/// up.
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

/// Appends events with these numbers to a stream, or to seven in turn, on its own thread.
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
            store.append(&stream, ExpectedVersion::Any, &[event]).unwrap();
        }
    })
}

#[test]
fn catch_up_to_live_delivers_each_event_once() {
    TestServer::new().run(async |client, server| {
        write(&server.store, 0..3000, 1).await.unwrap();
        let mut of_one = confirmed(&client, of_stream("cart-0", START)).await;
        let mut of_every = confirmed(&client, of_all(AllOption::Start(()))).await;
        let writer = write(&server.store, 3000..9000, 1);
        for answers in [&mut of_one, &mut of_every] {
            let (numbers, caught_up) = take(answers, 9000).await;
            assert_eq!(numbers, (0..9000).collect::<Vec<_>>());
            assert!(caught_up.len() <= 1, "{caught_up:?}");
        }
        writer.await.unwrap();
    });
}

#[test]
fn slow_subscriber_loses_nothing_and_blocks_no_writer() {
    TestServer::new().run(async |client, server| {
        let slow = confirmed(&client, of_all(AllOption::Start(()))).await;
        write(&server.store, 0..20_000, 7).await.unwrap();
        let mut quick = confirmed(&client, of_all(AllOption::Start(()))).await;
        assert_eq!(take(&mut quick, 20_000).await.0, (0..20_000).collect::<Vec<_>>());
        let mut slow = slow;
        assert_eq!(take(&mut slow, 20_000).await.0, (0..20_000).collect::<Vec<_>>());
    });
}

#[test]
fn subscription_starts_after_its_position() {
    TestServer::new().run(async |client, _| {
        client.append("cart", ANY, &events(0..5)).await.unwrap();
        let read = client.read(of_all(AllOption::Start(()))).await.unwrap();
        let third = recorded(read[2].clone()).commit_position;
        let last = recorded(read[4].clone()).commit_position;
        let cases = [
            (of_stream("cart", RevisionOption::Revision(2)), vec![3, 4, 9]),
            (of_stream("cart", RevisionOption::Revision(4)), vec![9]),
            (of_stream("cart", END), vec![9]),
            (of_all(at_position(third)), vec![3, 4, 9]),
            (of_all(at_position(last)), vec![9]),
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
        let beyond_end = client.subscribe(subscription(of_all(at_position(1 << 60)))).await;
        assert_eq!(beyond_end.unwrap_err().code(), Code::InvalidArgument);
    });
}

#[test]
fn caught_up_message_has_a_position() {
    TestServer::new().run(async |client, _| {
        let empty = caught_up(&mut confirmed(&client, of_all(AllOption::Start(()))).await).await;
        // The Go client reads a message without either as a null pointer.
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
fn created_or_recreated_stream_is_followed() {
    TestServer::new().run(async |client, _| {
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
fn server_stops_with_open_subscriptions() {
    let mut server = TestServer::new();
    server.run(async |client, server| {
        let mut answers = confirmed(&client, of_stream("cart", START)).await;
        caught_up(&mut answers).await;
        let stopped = server.stop();
        let status = answers.message().await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable);
        assert!(status.message().starts_with("Server Is Not Ready"), "{status:?}");
        let stop_timeout = Duration::from_secs(4);
        tokio::time::timeout(stop_timeout, stopped).await.expect("stops at once").unwrap();
        assert!(tokio::net::TcpStream::connect(server.address()).await.is_err());
    });
    server.store.append("cart", ExpectedVersion::Any, &[]).expect("the store is the caller's");
}

#[test]
fn a_subscription_ends_at_its_deadline() {
    TestServer::new().run(async |client, _| {
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
fn backwards_subscription_is_rejected() {
    TestServer::new().run(async |client, _| {
        let options = subscription(backwards(of_stream("cart", END)));
        let status = client.subscribe(options).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
    });
}

/// Story: after a restore, a subscriber that had read more events than the backup has was refused
/// with `INVALID_ARGUMENT` until an append.
#[test]
fn subscriber_behind_the_end_of_a_restored_backup_continues() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let store = Store::open(path("original"), StoreOptions::default()).unwrap();
    let append = |number: u64| {
        let id = store.new_id().unwrap();
        let data = number.to_string();
        let event = NewEvent::json(id, "Counted", data.as_bytes());
        store.append("cart", ExpectedVersion::Any, &[event]).unwrap();
        store.visible_position().0
    };
    append(0);
    store.backup(path("backup"), CopyOptions::default()).unwrap();
    let lost = append(1);
    store.close().unwrap();
    let env = Env::system();
    let options = CopyOptions::default();
    umbel_events::restore(&env, &path("backup"), &path("events"), options).unwrap();
    TestServer::of(directory, Config::default()).run(async |client, _| {
        let beyond_gap = client.subscribe(subscription(of_all(at_position(1 << 60)))).await;
        assert_eq!(beyond_gap.unwrap_err().code(), Code::InvalidArgument);
        let read = client.read(of_all(at_position(lost))).await.unwrap();
        assert!(read.is_empty(), "{read:?}");
        let mut answers = confirmed(&client, of_all(at_position(lost))).await;
        caught_up(&mut answers).await;
        client.append("cart", ANY, &[event(2)]).await.unwrap();
        assert_eq!(take(&mut answers, 1).await.0, [2]);
        let mut answers = confirmed(&client, of_all(at_position(lost))).await;
        assert_eq!(take(&mut answers, 1).await.0, [2]);
    });
}

//! Tests of persistent subscriptions: creation, delivery, parking, restarts.

use std::time::Duration;

use futures_util::stream;
use tokio::sync::mpsc;
use tonic::{Code, Status, Streaming};
use umbel_proto::persistent::*;
use umbel_proto::shared::Uuid;
use umbel_proto::streams::read_req::{
    Expression, Filter, FilterOptions, RevisionOption, StreamOptions, UuidForm, UuidOption, Window,
};
use umbel_proto::streams::read_resp::RecordedEvent;

use super::client::{ANY, Client, events, fact, id, name, number};
use super::test_server::TestServer;

/// The service, repeated here so that a changed name is noticed.
pub const SERVICE: &str = "event_store.client.persistent_subscriptions.PersistentSubscriptions";

pub fn settings() -> Settings {
    Settings {
        message_timeout: Some(MessageTimeout::MessageTimeoutMs(30_000)),
        max_retry_count: 2,
        checkpoint_after: Some(CheckpointAfter::CheckpointAfterMs(0)),
        min_checkpoint_count: 1,
        max_checkpoint_count: 1,
        live_buffer_size: 500,
        read_batch_size: 20,
        history_buffer_size: 500,
        consumer_strategy: "RoundRobin".to_string(),
        ..Settings::default()
    }
}

pub fn of_stream(stream: &str, settings: Settings) -> CreateReq {
    let origin = StreamOptions {
        stream_identifier: Some(name(stream)),
        revision_option: Some(RevisionOption::Start(())),
    };
    CreateReq {
        options: Some(CreateOptions {
            stream_identifier: Some(name(stream)),
            group_name: "group".to_string(),
            settings: Some(settings),
            stream_option: Some(GroupOrigin::Stream(origin)),
        }),
    }
}

pub fn of_all(filter: GroupFilter) -> CreateReq {
    let origin =
        GroupAllOptions { all_option: Some(GroupStart::Start(())), filter_option: Some(filter) };
    let mut request = of_stream("", settings());
    if let Some(options) = &mut request.options {
        options.stream_identifier = None;
        options.stream_option = Some(GroupOrigin::All(origin));
    }
    request
}

pub fn by_stream(regex: &str, prefixes: &[&str]) -> GroupFilter {
    let prefix = prefixes.iter().map(|prefix| prefix.to_string()).collect();
    let expression = Expression { regex: regex.to_string(), prefix };
    GroupFilter::Filter(FilterOptions {
        filter: Some(Filter::StreamIdentifier(expression)),
        // As clients in Java and Go encode it.
        window: Some(Window::Max(32)),
        checkpoint_interval_multiplier: 0,
    })
}

pub async fn create(client: &Client, request: CreateReq) -> Result<(), Status> {
    client.unary(SERVICE, "Create", request).await
}

pub async fn delete(client: &Client, stream: &str) -> Result<(), Status> {
    let stream_option = Some(DeleteStreamOption::StreamIdentifier(name(stream)));
    let options = Some(DeleteOptions { stream_option, group_name: "group".to_string() });
    client.unary(SERVICE, "Delete", DeleteReq { options }).await
}

pub async fn info(client: &Client, stream: &str) -> SubscriptionInfo {
    let stream_option = Some(GetInfoStreamOption::StreamIdentifier(name(stream)));
    let options = Some(GetInfoOptions { stream_option, group_name: "group".to_string() });
    let request = GetInfoReq { options };
    let answer: GetInfoResp = client.unary(SERVICE, "GetInfo", request).await.unwrap();
    answer.subscription_info.unwrap()
}

pub async fn replay(client: &Client, stream: &str, stop: StopAt) {
    let options = ReplayParkedOptions {
        group_name: "group".to_string(),
        stream_option: Some(ReplayStreamOption::StreamIdentifier(name(stream))),
        stop_at_option: Some(stop),
    };
    let request = ReplayParkedReq { options: Some(options) };
    client.unary::<_, ()>(SERVICE, "ReplayParked", request).await.unwrap();
}

/// A consumer of the group.
#[derive(Debug)]
pub struct Consumer {
    pub sender: mpsc::UnboundedSender<ReadReq>,
    answers: Streaming<ReadResp>,
}

impl Consumer {
    pub async fn join(
        client: &Client,
        of: ReadStreamOption,
        buffer_size: i32,
    ) -> Result<Consumer, Status> {
        let options = ReadOptions {
            stream_option: Some(of),
            group_name: "group".to_string(),
            buffer_size,
            uuid_option: Some(UuidOption { content: Some(UuidForm::Structured(())) }),
        };
        let (sender, mut requests) = mpsc::unbounded_channel();
        sender.send(ReadReq { content: Some(ReadReqContent::Options(options)) }).unwrap();
        let requests = stream::poll_fn(move |context| requests.poll_recv(context));
        let mut request = client.request(requests);
        request.metadata_mut().insert("connection-name", "billing".parse().unwrap());
        let answers = client.streaming_of(SERVICE, "Read", request).await?;
        let mut consumer = Consumer { sender, answers };
        match consumer.answers.message().await?.unwrap().content {
            Some(ReadRespContent::SubscriptionConfirmation(group_info)) => {
                assert!(group_info.subscription_id.ends_with("::group"))
            }
            other => panic!("{other:?}"),
        }
        Ok(consumer)
    }

    pub async fn of(client: &Client, stream: &str, buffer_size: i32) -> Consumer {
        Consumer::join(client, ReadStreamOption::StreamIdentifier(name(stream)), buffer_size)
            .await
            .unwrap()
    }

    pub async fn next(&mut self) -> ReadRespEvent {
        match self.answers.message().await.unwrap().unwrap().content {
            Some(ReadRespContent::Event(event)) => event,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the number of the next event and its retry count.
    pub async fn number(&mut self) -> (u64, i32) {
        let next = self.next().await;
        let Some(RetryCount::RetryCount(times)) = next.count else { panic!("{next:?}") };
        (number(&next.event.unwrap()), times)
    }

    pub fn ack(&self, ids: Vec<Uuid>) {
        let ack = Ack { id: Vec::new(), ids };
        self.sender.send(ReadReq { content: Some(ReadReqContent::Ack(ack)) }).unwrap();
    }

    pub fn nack(&self, number: u64, action: NackAction) {
        let reason = "because".to_string();
        let nack = Nack { id: Vec::new(), ids: vec![id(number)], action: action.into(), reason };
        self.sender.send(ReadReq { content: Some(ReadReqContent::Nack(nack)) }).unwrap();
    }

    /// Checks that no event arrives for a while.
    pub async fn is_quiet(&mut self) {
        let next = tokio::time::timeout(Duration::from_millis(200), self.answers.message()).await;
        assert!(next.is_err(), "{next:?}");
    }

    /// Final status of the call.
    pub async fn end(mut self) -> Status {
        loop {
            match self.answers.message().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("it ended without a status"),
                Err(status) => return status,
            }
        }
    }
}

/// Polls the group's info until it satisfies the predicate.
pub async fn until(client: &Client, stream: &str, is_so: impl Fn(&SubscriptionInfo) -> bool) {
    while !is_so(&info(client, stream).await) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[test]
fn only_unacked_events_are_resent_after_restart() {
    TestServer::new().run(async |client, server| {
        client.append("cart", ANY, &events(0..5)).await.unwrap();
        create(&client, of_stream("cart", settings())).await.unwrap();
        let mut consumer = Consumer::of(&client, "cart", 10).await;
        for wanted in 0..5 {
            assert_eq!(consumer.number().await, (wanted, 0));
        }
        client.append("cart", ANY, &events(5..6)).await.unwrap();
        assert_eq!(consumer.number().await, (5, 0));
        // The one in the middle is not acked: the checkpoint stays before it.
        consumer.ack(vec![id(0), id(1), id(3), id(4), id(77)]);
        until(&client, "cart", |info| info.last_checkpointed_event_position == "1").await;
        let group_info = info(&client, "cart").await;
        assert_eq!((group_info.total_in_flight_messages, group_info.connections.len()), (2, 1));
        assert_eq!(
            (group_info.event_source.as_str(), group_info.status.as_str()),
            ("cart", "Live")
        );
        assert_eq!(group_info.last_known_event_position, "5");
        server.stop().await.unwrap();
        let client = server.serve_again().await;
        let mut consumer = Consumer::of(&client, "cart", 10).await;
        for wanted in 2..6 {
            assert_eq!(consumer.number().await.0, wanted);
        }
        consumer.ack((2..6).map(id).collect());
        until(&client, "cart", |info| info.last_checkpointed_event_position == "5").await;
        consumer.is_quiet().await;
    });
}

#[test]
fn events_of_a_lost_consumer_go_to_others() {
    TestServer::new().run(async |client, _| {
        client.append("cart", ANY, &events(0..9)).await.unwrap();
        create(&client, of_stream("cart", settings())).await.unwrap();
        let mut consumers = Vec::new();
        for _ in 0..3 {
            consumers.push(Consumer::of(&client, "cart", 3).await);
        }
        let mut seen = Vec::new();
        let mut left = consumers.pop().unwrap();
        // The first got three at once, the others the rest.
        let group_info = info(&client, "cart").await;
        assert_eq!(group_info.connections.len(), 3);
        let mut lost = Vec::new();
        for _ in 0..3 {
            lost.push(left.number().await.0);
        }
        for consumer in &mut consumers {
            for _ in 0..3 {
                let (number, times) = consumer.number().await;
                assert_eq!(times, 0);
                seen.push(number);
                consumer.ack(vec![id(number)]);
            }
        }
        drop(left);
        let mut again = Vec::new();
        while again.len() < 3 {
            let [one, two] = &mut consumers[..] else { panic!() };
            let (number, times, index) = tokio::select! {
                next = one.number() => (next.0, next.1, 0),
                next = two.number() => (next.0, next.1, 1),
            };
            assert_eq!(times, 1);
            consumers[index].ack(vec![id(number)]);
            again.push(number);
        }
        again.sort_unstable();
        assert_eq!(again, lost);
        seen.extend(again);
        seen.sort_unstable();
        assert_eq!(seen, (0..9).collect::<Vec<_>>());
        until(&client, "cart", |info| info.last_checkpointed_event_position == "8").await;
    });
}

#[test]
fn events_are_retried_parked_and_replayed() {
    TestServer::new().run(async |client, server| {
        client.append("cart", ANY, &events(0..4)).await.unwrap();
        create(&client, of_stream("cart", settings())).await.unwrap();
        let mut consumer = Consumer::of(&client, "cart", 10).await;
        for wanted in 0..4 {
            assert_eq!(consumer.number().await, (wanted, 0));
        }
        consumer.nack(0, NackAction::Skip);
        consumer.nack(1, NackAction::Park);
        // It is retried twice, then parked.
        for times in 1..=2 {
            consumer.nack(2, NackAction::Retry);
            assert_eq!(consumer.number().await, (2, times));
        }
        consumer.nack(2, NackAction::Retry);
        consumer.ack(vec![id(3)]);
        until(&client, "cart", |info| info.parked_message_count == 2).await;
        until(&client, "cart", |info| info.last_checkpointed_event_position == "3").await;
        consumer.is_quiet().await;
        // Parked events survive a restart, and can be replayed one by one.
        server.stop().await.unwrap();
        let client = server.serve_again().await;
        assert_eq!(info(&client, "cart").await.parked_message_count, 2);
        let mut consumer = Consumer::of(&client, "cart", 10).await;
        replay(&client, "cart", StopAt::StopAt(1)).await;
        let next = consumer.next().await;
        assert_eq!(number(next.event.as_ref().unwrap()), 1);
        let link: RecordedEvent = next.link.unwrap();
        assert_eq!((&link.data[..], link.metadata["type"].as_str()), (&b"1@cart"[..], "$>"));
        let metadata: serde_json::Value = serde_json::from_slice(&link.custom_metadata).unwrap();
        assert_eq!(metadata["reason"], "because");
        consumer.is_quiet().await;
        // Until it is acked it stays parked, in case of a crash.
        assert_eq!(info(&client, "cart").await.parked_message_count, 2);
        consumer.ack(vec![link.id.unwrap()]);
        until(&client, "cart", |info| info.parked_message_count == 1).await;
        replay(&client, "cart", StopAt::NoLimit(())).await;
        let next = consumer.next().await;
        assert_eq!(number(next.event.as_ref().unwrap()), 2);
        consumer.ack(vec![next.link.unwrap().id.unwrap()]);
        until(&client, "cart", |info| info.parked_message_count == 0).await;
    });
}

#[test]
fn info_names_connections_and_measures_acknowledgements() {
    TestServer::new().run(async |client, _| {
        client.append("cart", ANY, &events(0..5)).await.unwrap();
        for extra_statistics in [false, true] {
            let stream = if extra_statistics { "cart" } else { "other" };
            client.append("other", ANY, &events(0..5)).await.unwrap();
            let request = of_stream(stream, Settings { extra_statistics, ..settings() });
            create(&client, request).await.unwrap();
            let mut consumer = Consumer::of(&client, stream, 10).await;
            let connection = info(&client, stream).await.connections.remove(0);
            assert_eq!(connection.connection_name, "billing");
            assert!(connection.observed_measurements.is_empty(), "nothing was acknowledged");
            for wanted in 0..5 {
                assert_eq!(consumer.number().await, (wanted, 0));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
            consumer.ack((0..5).map(id).collect());
            until(&client, stream, |info| info.total_in_flight_messages == 0).await;
            let measured = info(&client, stream).await.connections.remove(0).observed_measurements;
            assert_eq!(measured.len(), if extra_statistics { 14 } else { 0 });
            assert!(measured.iter().all(|one| one.value >= 20), "{measured:?}");
        }
    });
}

#[test]
fn unacked_events_are_resent_after_the_timeout() {
    TestServer::new().run(async |client, _| {
        client.append("cart", ANY, &events(0..1)).await.unwrap();
        let message_timeout = Some(MessageTimeout::MessageTimeoutMs(50));
        let request = of_stream("cart", Settings { message_timeout, ..settings() });
        create(&client, request).await.unwrap();
        let mut consumer = Consumer::of(&client, "cart", 10).await;
        for times in 0..=2 {
            assert_eq!(consumer.number().await, (0, times));
        }
        until(&client, "cart", |info| info.parked_message_count == 1).await;
    });
}

#[test]
fn groups_on_all_and_views_apply_filters_and_links() {
    TestServer::new().run(async |client, _| {
        client.append("cart-1", ANY, &events(0..3)).await.unwrap();
        // A group with an invalid filter was created all the same.
        let broken = create(&client, of_all(by_stream("(", &[]))).await.unwrap_err();
        assert!(broken.message().contains("broken at character 2"), "{broken}");
        create(&client, of_all(by_stream("", &["cart"]))).await.unwrap();
        let mut consumer = Consumer::join(&client, ReadStreamOption::All(()), 10).await.unwrap();
        for wanted in 0..3 {
            assert_eq!(consumer.number().await, (wanted, 0));
            consumer.ack(vec![id(wanted)]);
        }
        consumer.is_quiet().await;
        let resolving = Settings { resolve_links: true, ..settings() };
        create(&client, of_stream("$ce-cart", resolving)).await.unwrap();
        let mut of_view = Consumer::of(&client, "$ce-cart", 10).await;
        for wanted in 0..3 {
            let next = of_view.next().await;
            assert_eq!(number(&next.event.unwrap()), wanted);
            of_view.ack(vec![next.link.unwrap().id.unwrap()]);
        }
        until(&client, "$ce-cart", |info| info.last_checkpointed_event_position == "2").await;
        consumer.is_quiet().await;
    });
}

#[test]
fn group_on_all_skips_its_own_checkpoints() {
    TestServer::new().run(async |client, server| {
        client.append("cart", ANY, &events(0..3)).await.unwrap();
        create(&client, of_all(GroupFilter::NoFilter(()))).await.unwrap();
        let mut consumer = Consumer::join(&client, ReadStreamOption::All(()), 100).await.unwrap();
        let quiet = Duration::from_millis(300);
        while let Ok(next) = tokio::time::timeout(quiet, consumer.next()).await {
            consumer.ack(vec![next.event.unwrap().id.unwrap()]);
        }
        let before = server.store.visible_position();
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(server.store.visible_position(), before);
    });
}

#[test]
fn deleted_or_updated_group_drops_its_consumers() {
    TestServer::new().run(async |client, _| {
        create(&client, of_stream("cart", settings())).await.unwrap();
        let consumer = Consumer::of(&client, "cart", 10).await;
        let settings_max = Settings { max_subscriber_count: 1, ..settings() };
        let request = of_stream("cart", settings_max);
        client.unary::<_, ()>(SERVICE, "Update", request).await.unwrap();
        let status = consumer.end().await;
        assert_eq!(status.code(), Code::Cancelled);
        assert_eq!(fact(&status, "exception"), "persistent-subscription-dropped");
        let consumer = Consumer::of(&client, "cart", 10).await;
        let second =
            Consumer::join(&client, ReadStreamOption::StreamIdentifier(name("cart")), 10).await;
        let status = second.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert_eq!(fact(&status, "exception"), "maximum-subscribers-reached");
        assert!(status.message().starts_with("Maximum subscriptions reached"));
        delete(&client, "cart").await.unwrap();
        let status = consumer.end().await;
        assert_eq!(fact(&status, "exception"), "persistent-subscription-dropped");
        assert_eq!(fact(&status, "group-name"), "group");
        let status = delete(&client, "cart").await.unwrap_err();
        assert_eq!(status.code(), Code::NotFound);
        assert_eq!(fact(&status, "exception"), "persistent-subscription-does-not-exist");
    });
}

#[test]
fn recreated_group_starts_from_its_settings() {
    TestServer::new().run(async |client, _| {
        client.append("cart", ANY, &events(0..2)).await.unwrap();
        for _ in 0..2 {
            create(&client, of_stream("cart", settings())).await.unwrap();
            let mut consumer = Consumer::of(&client, "cart", 10).await;
            assert_eq!(consumer.number().await, (0, 0));
            assert_eq!(consumer.number().await, (1, 0));
            consumer.ack(vec![id(0), id(1)]);
            until(&client, "cart", |info| info.last_checkpointed_event_position == "1").await;
            delete(&client, "cart").await.unwrap();
        }
    });
}

#[test]
fn invalid_group_requests_are_rejected() {
    TestServer::new().run(async |client, _| {
        let joined = Consumer::join(&client, ReadStreamOption::All(()), 10).await.unwrap_err();
        assert_eq!(joined.code(), Code::NotFound);
        assert_eq!(fact(&joined, "stream-name"), "$all");
        create(&client, of_stream("cart", settings())).await.unwrap();
        let status = create(&client, of_stream("cart", settings())).await.unwrap_err();
        assert_eq!(status.code(), Code::AlreadyExists);
        assert_eq!(fact(&status, "exception"), "persistent-subscription-exists");
        let consumer_strategy = "Dice".to_string();
        let odd = of_stream("other", Settings { consumer_strategy, ..settings() });
        let status = create(&client, odd).await.unwrap_err();
        assert_eq!(status.code(), Code::Internal);
        assert_eq!(fact(&status, "exception"), "persistent-subscription-failed");
        assert_eq!(fact(&status, "reason"), "Consumer strategy Dice does not exist.");
        let none = client.unary::<_, ()>(SERVICE, "Update", of_stream("none", settings())).await;
        assert_eq!(none.unwrap_err().code(), Code::NotFound);
        let ack = ReadReq { content: Some(ReadReqContent::Ack(Ack::default())) };
        let refused: Result<Streaming<ReadResp>, _> =
            client.streaming(SERVICE, "Read", stream::iter([ack])).await;
        assert_eq!(refused.unwrap_err().code(), Code::InvalidArgument);
        let list = |option| {
            let options = Some(ListOptions { list_option: Some(option) });
            client.unary::<_, ListResp>(SERVICE, "List", ListReq { options })
        };
        let all = list(ListOption::ListAllSubscriptions(())).await.unwrap();
        assert_eq!(all.subscriptions.len(), 1);
        let of =
            |stream| ListStream { stream_option: Some(ListStreamOption::Stream(name(stream))) };
        assert_eq!(list(ListOption::ListForStream(of("cart"))).await.unwrap(), all);
        let status = list(ListOption::ListForStream(of("none"))).await.unwrap_err();
        assert_eq!(status.code(), Code::NotFound);
        let restarted: Result<(), _> = client.unary(SERVICE, "RestartSubsystem", ()).await;
        restarted.unwrap();
    });
}

/// A consumer needs the same permissions as a reader, also after it has connected.
#[test]
fn consumer_requires_read_permission_throughout() {
    TestServer::with_users().run(async |client, _| {
        let admin = client.with_user("admin", "first");
        let operator = client.with_user("ops", "second");
        super::users::create(&admin, "ada", "third", &[]).await.unwrap();
        let ada = client.with_user("ada", "third");
        let rule = async |number: u64, stream: &str, acl: &str| {
            let mut acl_events = events(number..number + 1);
            acl_events[0].data = format!(r#"{{"$acl":{acl}}}"#).into_bytes().into();
            admin.append(&format!("$${stream}"), ANY, &acl_events).await.unwrap();
        };
        rule(100, "cart-1", r#"{"$r":["ops"]}"#).await;
        for (number, stream) in [(1, "cart-1"), (2, "cart-2")] {
            admin.append(stream, ANY, &events(number..number + 1)).await.unwrap();
        }
        let refused = create(&ada, of_stream("cart-2", settings())).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied);
        let resolving = Settings { resolve_links: true, ..settings() };
        create(&operator, of_stream("$ce-cart", resolving)).await.unwrap();
        create(&operator, of_stream("cart-1", settings())).await.unwrap();
        create(&operator, of_stream("cart-2", settings())).await.unwrap();
        create(&admin, of_all(GroupFilter::NoFilter(()))).await.unwrap();
        // A stream that the user may not read, and all events.
        for of in [ReadStreamOption::StreamIdentifier(name("cart-1")), ReadStreamOption::All(())] {
            let refused = Consumer::join(&ada, of, 10).await.unwrap_err();
            assert_eq!(refused.code(), Code::PermissionDenied);
        }
        Consumer::join(&admin, ReadStreamOption::All(()), 10).await.unwrap();
        // Links to streams that the user may not read stay unresolved.
        let mut of_view = Consumer::of(&ada, "$ce-cart", 10).await;
        let (hidden, shown) = (of_view.next().await, of_view.next().await);
        assert!(hidden.event.is_none() && hidden.link.is_some(), "{hidden:?}");
        assert_eq!(number(&shown.event.unwrap()), 2);
        assert_eq!(info(&ada, "$ce-cart").await.connections[0].username, "ada");
        // A revoked permission ends the call.
        let mut consumer = Consumer::of(&ada, "cart-2", 10).await;
        assert_eq!(consumer.number().await.0, 2);
        rule(101, "cart-2", r#"{"$r":["ops"]}"#).await;
        admin.append("cart-2", ANY, &events(3..4)).await.unwrap();
        assert_eq!(consumer.end().await.code(), Code::PermissionDenied);
        let mut other = Consumer::of(&operator, "cart-2", 10).await;
        assert_eq!(other.number().await.0, 2, "its unacknowledged events go to the next consumer");
        assert_eq!(other.number().await.0, 3);
    });
}

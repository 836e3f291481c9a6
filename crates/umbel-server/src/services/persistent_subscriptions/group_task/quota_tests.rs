//! Tests of groups that share little quota. The clock advances only when all tasks are idle.

use std::time::Duration;

use umbel_events::{EventId, ExpectedVersion, NewEvent};
use umbel_proto::persistent::{CreateOptions, GroupOrigin, MessageTimeout, Settings};
use umbel_proto::streams::read_req::{RevisionOption, StreamOptions, UuidForm};

use super::*;
use crate::consumer_groups::dispatcher::NackDecision;
use crate::consumer_groups::group_command::{ConsumerRequest, ConsumerResponse};
use crate::limits::{GROUP_IDLE_TIME, GROUP_STALLED_TIME, PAGE_BYTES_MAX};
use crate::resources::connection_registry::{Connection, ConnectionRegistry};
use crate::resources::group_quota::GroupQuota;
use crate::test_support::test_service::{TestService, run_paused};

/// Number of events of each stream, and bytes of each event.
const EVENTS: u64 = 4;
const EVENT_BYTES: usize = 3 << 20;

/// Creates a service whose groups share quota for `pages` pages.
fn fixture_with_quota(pages: usize) -> TestService {
    let mut fixture = TestService::new();
    let service = Arc::get_mut(&mut fixture.service).expect("the context is not shared yet");
    service.group_quota = Arc::new(GroupQuota::new(pages * PAGE_BYTES_MAX));
    fixture
}

/// A running group and its consumer.
struct ServedGroup {
    messages: mpsc::Sender<GroupCommand>,
    id: ConsumerId,
    answers: mpsc::Receiver<ConsumerResponse>,
}

impl ServedGroup {
    /// Creates a group of a stream of large events, with one consumer that has capacity for all of
    /// them at once.
    async fn new(fixture: &TestService, name: &str, peer: Option<Arc<Connection>>) -> ServedGroup {
        for number in 0..EVENTS {
            let mut data = vec![b' '; EVENT_BYTES];
            data[0] = b'0' + number as u8;
            let event = NewEvent::json(fixture.store.new_id().unwrap(), "Large", &data);
            fixture.store.append(name, ExpectedVersion::Any, &[event]).unwrap();
        }
        let origin = StreamOptions {
            stream_identifier: Some(name.into()),
            revision_option: Some(RevisionOption::Start(())),
        };
        let options = CreateOptions {
            stream_identifier: None,
            group_name: "group".to_string(),
            settings: Some(Settings {
                // Events in flight never time out.
                message_timeout: Some(MessageTimeout::MessageTimeoutMs(0)),
                max_retry_count: 9,
                read_batch_size: 1,
                history_buffer_size: 100,
                consumer_strategy: "RoundRobin".to_string(),
                ..Settings::default()
            }),
            stream_option: Some(GroupOrigin::Stream(origin)),
        };
        let (key, config) = GroupConfig::from_request(Some(options)).unwrap();
        let group = GroupTask::open(Arc::clone(&fixture.service), key, config).await.unwrap();
        let (messages, commands) = mpsc::channel(8);
        tokio::spawn(group.run(commands));
        let (sender, answers) = mpsc::channel(EVENTS as usize + 2);
        let (answer, joined) = oneshot::channel();
        let (capacity, username) = (EVENTS as usize, String::new());
        let form = UuidForm::Structured(());
        let joining = ConsumerRequest {
            capacity,
            form,
            username,
            connection_name: String::new(),
            responses: sender,
            connection: peer,
        };
        messages.send(GroupCommand::Connect(joining, answer)).await.unwrap();
        let id = joined.await.unwrap().unwrap();
        ServedGroup { messages, id, answers }
    }

    /// Returns the next event: its revision, its id and its retry count.
    async fn next(&mut self) -> (u64, EventId, i32) {
        match self.answers.recv().await.unwrap().unwrap().content {
            Some(ReadRespContent::Event(ReadRespEvent { event: Some(event), count, .. })) => {
                let Some(RetryCount::RetryCount(times)) = count else { panic!("{count:?}") };
                (event.stream_revision, proto_convert::event_id(event.id.as_ref()).unwrap(), times)
            }
            other => panic!("{other:?}"),
        }
    }

    async fn send(&self, message: GroupCommand) {
        self.messages.send(message).await.unwrap();
    }
}

/// Story: each group may hold 16 MiB, so a thousand groups could hold 16 GiB. All groups share a
/// smaller quota, and a group without quota waits. Consumers that still process events do not block
/// other groups.
#[test]
fn in_flight_events_do_not_block_the_quota_of_other_groups() {
    run_paused(async {
        let fixture = fixture_with_quota(1);
        let quota = Arc::clone(&fixture.service.group_quota);
        let begun = Instant::now();
        let mut tasks = Vec::new();
        for number in 0..4 {
            let mut group = ServedGroup::new(&fixture, &format!("s-{number}"), None).await;
            let quota = Arc::clone(&quota);
            tasks.push(tokio::spawn(async move {
                let mut ids = Vec::new();
                for revision in 0..EVENTS {
                    let (is, id, times) = group.next().await;
                    assert_eq!((is, times), (revision, 0));
                    assert!(quota.bytes() <= PAGE_BYTES_MAX);
                    ids.push(id);
                }
                (group, ids)
            }));
        }
        let mut groups = Vec::new();
        for task in tasks {
            groups.push(task.await.unwrap());
        }
        assert!(begun.elapsed() >= GROUP_IDLE_TIME, "some groups waited");
        // Evicted events come again unchanged, and are processed once.
        for (group, ids) in &groups {
            group.send(GroupCommand::Nack(group.id, ids[1..3].to_vec(), NackDecision::Retry)).await;
        }
        let mut tasks = Vec::new();
        for (mut group, ids) in groups {
            tasks.push(tokio::spawn(async move {
                for (revision, id) in [(1, ids[1]), (2, ids[2])] {
                    assert_eq!(group.next().await, (revision, id, 1));
                }
                group.send(GroupCommand::Ack(group.id, ids)).await;
                let (answer, receiver) = oneshot::channel();
                group.send(GroupCommand::Info(answer)).await;
                let (receiver, _) = receiver.await.unwrap();
                assert_eq!((receiver.total_in_flight_messages, receiver.read_buffer_count), (0, 0));
                group
            }));
        }
        let mut groups = Vec::new();
        for task in tasks {
            groups.push(task.await.unwrap());
        }
        // They may still check for more events.
        tokio::time::sleep(Duration::from_secs(100)).await;
        assert_eq!((quota.bytes(), groups.len()), (0, 4));
    });
}

/// Data that a consumer does not take stays in memory, even if its events are evicted. So such data
/// counts until the connection ends. A group without consumers holds no quota that other groups
/// need.
#[test]
fn stalled_consumer_is_disconnected_when_groups_wait() {
    run_paused(async {
        let (fixture, registry) = (fixture_with_quota(3), Arc::new(ConnectionRegistry::default()));
        let quota = Arc::clone(&fixture.service.group_quota);
        let slot = registry.register(None);
        let stuck = ServedGroup::new(&fixture, "stuck", Some(Arc::clone(&slot.connection))).await;
        tokio::time::sleep(2 * GROUP_STALLED_TIME).await;
        assert!(!slot.connection.is_closing(), "no group waits");
        let mut rest = quota.new_share();
        assert!(rest.try_reserve_page());
        let begun = Instant::now();
        let mut other = ServedGroup::new(&fixture, "other", None).await;
        let first = tokio::spawn(async move { (other.next().await, other) });
        slot.connection.closed().await;
        assert!(begun.elapsed() >= GROUP_STALLED_TIME, "{:?}", begun.elapsed());
        assert!(!first.is_finished() && quota.bytes() <= 3 * PAGE_BYTES_MAX);
        // Its connection ends, and with it the call.
        let ServedGroup { messages, id, answers } = stuck;
        drop(answers);
        messages.send(GroupCommand::Disconnect(id)).await.unwrap();
        let ((revision, ..), mut other) = first.await.unwrap();
        assert_eq!(revision, 0);
        for revision in 1..EVENTS {
            assert_eq!(other.next().await.0, revision);
        }
        rest.cancel();
        // The group checks for more events.
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(quota.bytes() <= EVENTS as usize * EVENT_BYTES + (1 << 20), "{}", quota.bytes());
    });
}

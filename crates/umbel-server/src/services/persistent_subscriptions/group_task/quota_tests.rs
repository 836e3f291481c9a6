//! Groups that share little room. The clock goes on only when nothing else does.

use std::time::Duration;

use umbel_events::{EventId, Expected, NewEvent};
use umbel_proto::persistent::{CreateOptions, GroupOrigin, MessageTimeout, Settings};
use umbel_proto::streams::read_req::{RevisionOption, StreamOptions, UuidForm};

use super::*;
use crate::consumers::Action;
use crate::group_message::{Answer, Joining};
use crate::group_room::GroupRoom;
use crate::limits::{GROUP_IDLE_TIME, GROUP_UNTAKEN_TIME, UNREAD_PAGE_BYTES};
use crate::peers::{Peer, Peers};
use crate::stage::{Stage, run};

/// Events of each stream, and the bytes of one.
const EVENTS: u64 = 4;
const EVENT_BYTES: usize = 3 << 20;

/// A stage on which all groups have room for so many pages.
fn narrow(pages: usize) -> Stage {
    let mut stage = Stage::new();
    let service = Arc::get_mut(&mut stage.service).expect("nobody shares it yet");
    service.group_room = Arc::new(GroupRoom::new(pages * UNREAD_PAGE_BYTES));
    stage
}

/// A group that is served, and whoever consumes of it.
struct Served {
    messages: mpsc::Sender<Message>,
    id: ConsumerId,
    answers: mpsc::Receiver<Answer>,
}

impl Served {
    /// A group of a stream of large events, with one consumer that may have all of them at once.
    async fn new(stage: &Stage, name: &str, peer: Option<Arc<Peer>>) -> Served {
        for number in 0..EVENTS {
            let mut data = vec![b' '; EVENT_BYTES];
            data[0] = b'0' + number as u8;
            let event = NewEvent::json(stage.store.new_id().unwrap(), "Large", &data);
            stage.store.append(name, Expected::Any, &[event]).unwrap();
        }
        let origin = StreamOptions {
            stream_identifier: Some(name.into()),
            revision_option: Some(RevisionOption::Start(())),
        };
        let options = CreateOptions {
            stream_identifier: None,
            group_name: "group".to_string(),
            settings: Some(Settings {
                // What is not done stays with whoever has it.
                message_timeout: Some(MessageTimeout::Millis(0)),
                max_retry_count: 9,
                read_batch_size: 1,
                history_buffer_size: 100,
                consumer_strategy: "RoundRobin".to_string(),
                ..Settings::default()
            }),
            stream_option: Some(GroupOrigin::Stream(origin)),
        };
        let (key, config) = GroupConfig::read(Some(options)).unwrap();
        let group = Group::open(Arc::clone(&stage.service), key, config).await.unwrap();
        let (messages, asked) = mpsc::channel(8);
        tokio::spawn(group.run(asked));
        let (sender, answers) = mpsc::channel(EVENTS as usize + 2);
        let (answer, joined) = oneshot::channel();
        let (room, username) = (EVENTS as usize, String::new());
        let form = UuidForm::Structured(());
        let joining = Joining { room, form, username, answers: sender, peer };
        messages.send(Message::Connect(joining, answer)).await.unwrap();
        let id = joined.await.unwrap().unwrap();
        Served { messages, id, answers }
    }

    /// The next event: its revision, its id and how often it was sent before.
    async fn next(&mut self) -> (u64, EventId, i32) {
        match self.answers.recv().await.unwrap().unwrap().content {
            Some(Sent::Event(SentEvent { event: Some(event), count, .. })) => {
                let Some(RetryCount::Times(times)) = count else { panic!("{count:?}") };
                (event.stream_revision, convert::event_id(event.id.as_ref()).unwrap(), times)
            }
            other => panic!("{other:?}"),
        }
    }

    async fn says(&self, message: Message) {
        self.messages.send(message).await.unwrap();
    }
}

/// Each group may hold 16 MiB: a thousand of them could hold 16 GiB. They share less now, and who
/// finds no room waits; consumers who work on what they have do not keep it from the others.
#[test]
fn groups_share_their_room_and_what_is_worked_on_keeps_nobody_waiting() {
    run(async {
        let stage = narrow(1);
        let room = Arc::clone(&stage.service.group_room);
        let begun = Instant::now();
        let mut tasks = Vec::new();
        for number in 0..4 {
            let mut group = Served::new(&stage, &format!("s-{number}"), None).await;
            let room = Arc::clone(&room);
            tasks.push(tokio::spawn(async move {
                let mut ids = Vec::new();
                for revision in 0..EVENTS {
                    let (is, id, times) = group.next().await;
                    assert_eq!((is, times), (revision, 0));
                    assert!(room.bytes() <= UNREAD_PAGE_BYTES);
                    ids.push(id);
                }
                (group, ids)
            }));
        }
        let mut groups = Vec::new();
        for task in tasks {
            groups.push(task.await.unwrap());
        }
        assert!(begun.elapsed() >= GROUP_IDLE_TIME, "somebody had to wait");
        // What was let go of is what it was: it comes again, and is done once.
        for (group, ids) in &groups {
            group.says(Message::Nack(group.id, ids[1..3].to_vec(), Action::Retry)).await;
        }
        let mut tasks = Vec::new();
        for (mut group, ids) in groups {
            tasks.push(tokio::spawn(async move {
                for (revision, id) in [(1, ids[1]), (2, ids[2])] {
                    assert_eq!(group.next().await, (revision, id, 1));
                }
                group.says(Message::Ack(group.id, ids)).await;
                let (answer, told) = oneshot::channel();
                group.says(Message::Info(answer)).await;
                let told = told.await.unwrap();
                assert_eq!((told.total_in_flight_messages, told.read_buffer_count), (0, 0));
                group
            }));
        }
        let mut groups = Vec::new();
        for task in tasks {
            groups.push(task.await.unwrap());
        }
        // They may still look whether there is more.
        tokio::time::sleep(Duration::from_secs(100)).await;
        assert_eq!((room.bytes(), groups.len()), (0, 4));
    });
}

/// What a consumer does not take is in memory whoever lets go of it, so that it counts until its
/// connection ends; a group whose consumers are gone keeps nothing that others need.
#[test]
fn who_takes_nothing_ends_where_others_wait_and_who_is_gone_leaves_nothing() {
    run(async {
        let (stage, peers) = (narrow(3), Arc::new(Peers::default()));
        let room = Arc::clone(&stage.service.group_room);
        let place = peers.place(None);
        let stuck = Served::new(&stage, "stuck", Some(Arc::clone(&place.peer))).await;
        tokio::time::sleep(2 * GROUP_UNTAKEN_TIME).await;
        assert!(!place.peer.is_ending(), "nobody waits");
        let mut rest = room.part();
        assert!(rest.has_page());
        let begun = Instant::now();
        let mut other = Served::new(&stage, "other", None).await;
        let first = tokio::spawn(async move { (other.next().await, other) });
        place.peer.ended().await;
        assert!(begun.elapsed() >= GROUP_UNTAKEN_TIME, "{:?}", begun.elapsed());
        assert!(!first.is_finished() && room.bytes() <= 3 * UNREAD_PAGE_BYTES);
        // Its connection ends, and with it the call.
        let Served { messages, id, answers } = stuck;
        drop(answers);
        messages.send(Message::Disconnect(id)).await.unwrap();
        let ((revision, ..), mut other) = first.await.unwrap();
        assert_eq!(revision, 0);
        for revision in 1..EVENTS {
            assert_eq!(other.next().await.0, revision);
        }
        rest.leave();
        // It looks whether there is more.
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(room.bytes() <= EVENTS as usize * EVENT_BYTES + (1 << 20), "{}", room.bytes());
    });
}

//! Tests of the assignment of events to consumers.

use std::time::Duration;

use umbel_proto::persistent::{
    CreateOptions, GroupOrigin, MessageTimeout, NamedStrategy, Settings,
};
use umbel_proto::streams::read_req::StreamOptions;

use super::*;

fn config(strategy: &str, max_retry_count: i32) -> GroupConfig {
    let stream = StreamOptions { stream_identifier: Some("s".into()), revision_option: None };
    let settings = Settings {
        message_timeout: Some(MessageTimeout::MessageTimeoutMs(1000)),
        max_retry_count,
        read_batch_size: 1,
        history_buffer_size: 10,
        named_consumer_strategy: NamedStrategy::RoundRobin.into(),
        consumer_strategy: strategy.to_string(),
        ..Settings::default()
    };
    let options = CreateOptions {
        stream_identifier: None,
        group_name: "group".to_string(),
        settings: Some(settings),
        stream_option: Some(GroupOrigin::Stream(stream)),
    };
    GroupConfig::from_request(Some(options)).unwrap().1
}

fn id(position: u64) -> EventId {
    EventId(u128::from(position).to_be_bytes())
}

fn event(position: u64, stream: &str, metadata: &str) -> ResolvedEvent {
    let event = RecordedEvent {
        stream: stream.to_string(),
        revision: position,
        position,
        id: id(position),
        kind: "Counted".to_string(),
        is_json: true,
        created: 0,
        data: Vec::new(),
        metadata: metadata.as_bytes().to_vec(),
    };
    ResolvedEvent { event: Some(event), link: None }
}

fn with_events(strategy: &str, count: u64) -> Dispatcher {
    let mut group = Dispatcher::new(&config(strategy, 1), None);
    (0..count)
        .for_each(|position| group.offer(EventKey::Source(position), event(position, "s", "{}")));
    group
}

/// The deliveries that are due now.
fn sent(group: &mut Dispatcher, now: Instant) -> Vec<(ConsumerId, u64)> {
    std::iter::from_fn(|| group.next_delivery(now))
        .map(|sending| (sending.consumer, link_or_event(&sending.event).unwrap().revision))
        .collect()
}

#[test]
fn strategies_fill_one_consumer_or_take_turns() {
    let now = Instant::now();
    for (strategy, wanted) in [
        ("DispatchToSingle", [(1, 0), (1, 1), (1, 2), (2, 3), (2, 4)]),
        ("RoundRobin", [(1, 0), (2, 1), (1, 2), (2, 3), (1, 4)]),
    ] {
        let mut group = with_events(strategy, 9);
        assert_eq!((group.connect(3), group.connect(2)), (1, 2));
        assert_eq!(sent(&mut group, now), wanted, "{strategy}");
        group.ack(2, &[id(wanted[4].1), id(wanted[3].1), id(77)]);
        assert!(!sent(&mut group, now).is_empty(), "there is buffer space again");
        assert_eq!(group.consumers().values().map(ConsumerState::in_flight).sum::<usize>(), 5);
    }
}

#[test]
fn pinned_stream_stays_with_its_consumer_while_in_flight() {
    let now = Instant::now();
    for (strategy, by_stream) in [("Pinned", true), ("PinnedByCorrelation", false)] {
        let mut group = Dispatcher::new(&config(strategy, 1), None);
        group.connect(1000);
        let mut position = 0;
        let mut owners: HashMap<u64, ConsumerId> = HashMap::new();
        for round in 0..4 {
            for number in 0..50 {
                let (stream, metadata) = match by_stream {
                    true => (format!("s-{number}"), "{}".to_string()),
                    false => ("s".to_string(), format!(r#"{{"$correlationId":"{number}"}}"#)),
                };
                group.offer(EventKey::Source(position), event(position, &stream, &metadata));
                position += 1;
            }
            for (consumer, revision) in sent(&mut group, now) {
                let owner = *owners.entry(revision % 50).or_insert(consumer);
                assert_eq!(owner, consumer, "{strategy}, round {round}");
            }
            // A new consumer takes no pins that other consumers have in flight.
            group.connect(1000);
        }
        // Once all events are acknowledged, each consumer has a share.
        for position in 0..position {
            let owner = owners[&(position % 50)];
            group.ack(owner, &[id(position)]);
        }
        for number in 0..50 {
            let metadata = format!(r#"{{"$correlationId":"{number}"}}"#);
            group.offer(
                EventKey::Source(position),
                event(position, &format!("s-{number}"), &metadata),
            );
            position += 1;
        }
        let mut shares: HashMap<ConsumerId, usize> = HashMap::new();
        sent(&mut group, now).iter().for_each(|(id, _)| *shares.entry(*id).or_default() += 1);
        assert_eq!((shares.len(), shares.values().sum::<usize>()), (5, 50), "{shares:?}");
    }
}

#[test]
fn checkpoint_never_passes_an_unfinished_event() {
    let mut group = with_events("RoundRobin", 5);
    let consumer = group.connect(10);
    sent(&mut group, Instant::now());
    assert_eq!(group.completed_through(), None);
    group.ack(consumer, &[id(0), id(2)]);
    assert_eq!(group.completed_through(), Some(0));
    group.nack(consumer, &[id(1)], &NackDecision::Park("no".into()));
    assert_eq!(group.completed_through(), Some(0), "it is not parked before that is written");
    let parking = group.events_to_park(10);
    assert_eq!((parking.len(), parking[0].0), (1, EventKey::Source(1)));
    group.finish(EventKey::Source(1));
    assert_eq!(group.completed_through(), Some(2));
    group.ack(consumer, &[id(3), id(4)]);
    assert_eq!((group.completed_through(), group.tracked(), group.completed), (Some(4), (0, 0), 5));
    assert!(group.pinned_in_flight.is_empty() && group.waiting.is_empty());
}

/// Story: each event that one nack named had its own copy of the reason, of up to 16 MB. The
/// reasons of 150 events took 2.4 GB.
#[test]
fn events_of_one_nack_share_their_park_reason() {
    let mut group = with_events("RoundRobin", 3);
    let consumer = group.connect(10);
    sent(&mut group, Instant::now());
    let reason: Arc<str> = "no".into();
    group.nack(consumer, &[id(0), id(1), id(2)], &NackDecision::Park(Arc::clone(&reason)));
    let parking = group.events_to_park(10);
    assert_eq!(parking.len(), 3);
    assert!(parking.iter().all(|(.., shared)| Arc::ptr_eq(shared, &reason)), "{parking:?}");
}

#[test]
fn timed_out_event_is_resent_first_and_late_ack_ignored() {
    let now = Instant::now();
    let mut group = with_events("RoundRobin", 3);
    let consumer = group.connect(2);
    assert_eq!(sent(&mut group, now), [(1, 0), (1, 1)]);
    let late = now + Duration::from_secs(1);
    assert_eq!(group.next_timeout(), Some(late));
    group.expire_timeouts(late);
    group.ack(consumer, &[id(0)]);
    assert_eq!(sent(&mut group, late), [(1, 0), (1, 1)], "before what is newer");
    // The first deadlines have passed and no longer matter.
    group.expire_timeouts(late);
    assert_eq!(group.event_counts(), (1, 0, 2));
    group.expire_timeouts(late + Duration::from_secs(1));
    let reasons: Vec<_> =
        group.events_to_park(10).into_iter().map(|parking| parking.2.to_string()).collect();
    assert_eq!(reasons, ["Reached retry count of 1"; 2]);
}

#[test]
fn events_of_a_lost_consumer_are_resent_first() {
    let now = Instant::now();
    let mut group = with_events("DispatchToSingle", 4);
    for _ in 0..5 {
        let consumer = group.connect(2);
        assert_eq!(sent(&mut group, now), [(consumer, 0), (consumer, 1)]);
        group.disconnect(consumer);
    }
    assert!(group.events_to_park(10).is_empty() && group.consumers().is_empty());
    assert_eq!(group.event_counts(), (2, 2, 0));
}

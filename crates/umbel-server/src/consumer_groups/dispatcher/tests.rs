//! Tests of which consumer gets which event.

use std::time::Duration;

use umbel_proto::persistent::{
    CreateOptions, GroupOrigin, MessageTimeout, NamedStrategy, Settings,
};
use umbel_proto::streams::read_req::StreamOptions;

use super::*;

fn config(strategy: &str, max_retry_count: i32) -> GroupConfig {
    let stream = StreamOptions { stream_identifier: Some("s".into()), revision_option: None };
    let settings = Settings {
        message_timeout: Some(MessageTimeout::Millis(1000)),
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
    GroupConfig::read(Some(options)).unwrap().1
}

fn id(place: u64) -> EventId {
    EventId(u128::from(place).to_be_bytes())
}

fn event(place: u64, stream: &str, metadata: &str) -> ResolvedEvent {
    let event = RecordedEvent {
        stream: stream.to_string(),
        revision: place,
        position: place,
        id: id(place),
        kind: "Counted".to_string(),
        is_json: true,
        created: 0,
        data: Vec::new(),
        metadata: metadata.as_bytes().to_vec(),
    };
    ResolvedEvent { event: Some(event), link: None }
}

fn with_events(strategy: &str, count: u64) -> Consumers {
    let mut group = Consumers::new(&config(strategy, 1), None);
    (0..count).for_each(|place| group.offer(Key::Source(place), event(place, "s", "{}")));
    group
}

/// Who is sent which event now.
fn sent(group: &mut Consumers, now: Instant) -> Vec<(ConsumerId, u64)> {
    std::iter::from_fn(|| group.next(now))
        .map(|sending| (sending.consumer, original(&sending.event).unwrap().revision))
        .collect()
}

#[test]
fn one_consumer_gets_all_until_it_is_full_or_each_gets_some_in_turn() {
    let now = Instant::now();
    for (strategy, wanted) in [
        ("DispatchToSingle", [(1, 0), (1, 1), (1, 2), (2, 3), (2, 4)]),
        ("RoundRobin", [(1, 0), (2, 1), (1, 2), (2, 3), (1, 4)]),
    ] {
        let mut group = with_events(strategy, 9);
        assert_eq!((group.connect(3), group.connect(2)), (1, 2));
        assert_eq!(sent(&mut group, now), wanted, "{strategy}");
        group.ack(2, &[id(wanted[4].1), id(wanted[3].1), id(77)]);
        assert!(!sent(&mut group, now).is_empty(), "there is room again");
        assert_eq!(group.consumers().values().map(Consumer::in_flight).sum::<usize>(), 5);
    }
}

#[test]
fn the_events_of_a_stream_stay_with_one_consumer_while_some_are_on_the_way() {
    let now = Instant::now();
    for (strategy, by_stream) in [("Pinned", true), ("PinnedByCorrelation", false)] {
        let mut group = Consumers::new(&config(strategy, 1), None);
        group.connect(1000);
        let mut place = 0;
        let mut owners: HashMap<u64, ConsumerId> = HashMap::new();
        for round in 0..4 {
            for number in 0..50 {
                let (stream, metadata) = match by_stream {
                    true => (format!("s-{number}"), "{}".to_string()),
                    false => ("s".to_string(), format!(r#"{{"$correlationId":"{number}"}}"#)),
                };
                group.offer(Key::Source(place), event(place, &stream, &metadata));
                place += 1;
            }
            for (consumer, revision) in sent(&mut group, now) {
                let owner = *owners.entry(revision % 50).or_insert(consumer);
                assert_eq!(owner, consumer, "{strategy}, round {round}");
            }
            // Who comes takes nothing that others have begun.
            group.connect(1000);
        }
        // Once all is done, each has a share.
        for place in 0..place {
            let owner = owners[&(place % 50)];
            group.ack(owner, &[id(place)]);
        }
        for number in 0..50 {
            let metadata = format!(r#"{{"$correlationId":"{number}"}}"#);
            group.offer(Key::Source(place), event(place, &format!("s-{number}"), &metadata));
            place += 1;
        }
        let mut shares: HashMap<ConsumerId, usize> = HashMap::new();
        sent(&mut group, now).iter().for_each(|(id, _)| *shares.entry(*id).or_default() += 1);
        assert_eq!((shares.len(), shares.values().sum::<usize>()), (5, 50), "{shares:?}");
    }
}

#[test]
fn nothing_that_is_not_done_lies_before_the_floor() {
    let mut group = with_events("RoundRobin", 5);
    let consumer = group.connect(10);
    sent(&mut group, Instant::now());
    assert_eq!(group.floor(), None);
    group.ack(consumer, &[id(0), id(2)]);
    assert_eq!(group.floor(), Some(0));
    group.nack(consumer, &[id(1)], &Action::Park("no".into()));
    assert_eq!(group.floor(), Some(0), "it is not parked before that is written");
    let parking = group.to_park(10);
    assert_eq!((parking.len(), parking[0].0), (1, Key::Source(1)));
    group.finish(Key::Source(1));
    assert_eq!(group.floor(), Some(2));
    group.ack(consumer, &[id(3), id(4)]);
    assert_eq!((group.floor(), group.held(), group.done), (Some(4), (0, 0), 5));
    assert!(group.pinned.is_empty() && group.waiting.is_empty());
}

/// Story: each of the events that one answer named had a copy of its reason, of up to 16 MB: 150 of
/// them took 2.4 GB.
#[test]
fn events_that_are_parked_together_share_their_reason() {
    let mut group = with_events("RoundRobin", 3);
    let consumer = group.connect(10);
    sent(&mut group, Instant::now());
    let reason: Arc<str> = "no".into();
    group.nack(consumer, &[id(0), id(1), id(2)], &Action::Park(Arc::clone(&reason)));
    let parking = group.to_park(10);
    assert_eq!(parking.len(), 3);
    assert!(parking.iter().all(|(.., shared)| Arc::ptr_eq(shared, &reason)), "{parking:?}");
}

#[test]
fn what_is_late_comes_again_first_and_a_late_answer_to_it_is_left_out() {
    let now = Instant::now();
    let mut group = with_events("RoundRobin", 3);
    let consumer = group.connect(2);
    assert_eq!(sent(&mut group, now), [(1, 0), (1, 1)]);
    let late = now + Duration::from_secs(1);
    assert_eq!(group.due(), Some(late));
    group.tick(late);
    group.ack(consumer, &[id(0)]);
    assert_eq!(sent(&mut group, late), [(1, 0), (1, 1)], "before what is newer");
    // The moments of the first time are over and mean nothing now.
    group.tick(late);
    assert_eq!(group.counts(), (1, 0, 2));
    group.tick(late + Duration::from_secs(1));
    let reasons: Vec<_> =
        group.to_park(10).into_iter().map(|parking| parking.2.to_string()).collect();
    assert_eq!(reasons, ["Reached retry count of 1"; 2]);
}

#[test]
fn what_a_consumer_leaves_comes_first_however_often_it_was_sent() {
    let now = Instant::now();
    let mut group = with_events("DispatchToSingle", 4);
    for _ in 0..5 {
        let consumer = group.connect(2);
        assert_eq!(sent(&mut group, now), [(consumer, 0), (consumer, 1)]);
        group.disconnect(consumer);
    }
    assert!(group.to_park(10).is_empty() && group.consumers().is_empty());
    assert_eq!(group.counts(), (2, 2, 0));
}

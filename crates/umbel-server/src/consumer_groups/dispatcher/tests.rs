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

fn ack(group: &mut Dispatcher, consumer: ConsumerId, ids: &[EventId]) {
    ids.iter().for_each(|id| group.ack(consumer, id));
}

fn nack(group: &mut Dispatcher, consumer: ConsumerId, ids: &[EventId], action: &NackDecision) {
    ids.iter().for_each(|id| group.nack(consumer, id, action));
}

fn expire_timeouts(group: &mut Dispatcher, now: Instant) {
    while group.expire_timeout(now) {}
}

fn disconnect(group: &mut Dispatcher, consumer: ConsumerId) {
    for key in group.disconnect(consumer) {
        group.reassign(key);
    }
}

/// Takes the deliveries that are due now.
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
        ack(&mut group, 2, &[id(wanted[4].1), id(wanted[3].1), id(77)]);
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
            ack(&mut group, owner, &[id(position)]);
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
    ack(&mut group, consumer, &[id(0), id(2)]);
    assert_eq!(group.completed_through(), Some(0));
    nack(&mut group, consumer, &[id(1)], &NackDecision::Park("no".into()));
    assert_eq!(group.completed_through(), Some(0), "it is not parked before that is written");
    let parking = group.events_to_park(10);
    assert_eq!((parking.len(), parking[0].0), (1, EventKey::Source(1)));
    group.finish(EventKey::Source(1));
    assert_eq!(group.completed_through(), Some(2));
    ack(&mut group, consumer, &[id(3), id(4)]);
    assert_eq!((group.completed_through(), group.tracked(), group.completed), (Some(4), (0, 0), 5));
    assert!(group.timeouts.is_empty() && group.waiting.is_empty());
}

/// Story: each event that a nack named had its own copy of the nack's reason, of up to 16 MB. The
/// reasons of 150 events took 2.4 GB.
#[test]
fn events_of_one_nack_share_their_park_reason() {
    let mut group = with_events("RoundRobin", 3);
    let consumer = group.connect(10);
    sent(&mut group, Instant::now());
    let reason: Arc<str> = "no".into();
    nack(&mut group, consumer, &[id(0), id(1), id(2)], &NackDecision::Park(Arc::clone(&reason)));
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
    expire_timeouts(&mut group, late);
    ack(&mut group, consumer, &[id(0)]);
    assert_eq!(sent(&mut group, late), [(1, 0), (1, 1)], "before what is newer");
    // The first deadlines have passed and no longer matter.
    expire_timeouts(&mut group, late);
    assert_eq!(group.event_counts(), (1, 0, 2));
    expire_timeouts(&mut group, late + Duration::from_secs(1));
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
        disconnect(&mut group, consumer);
    }
    assert!(group.events_to_park(10).is_empty() && group.consumers().is_empty());
    assert_eq!(group.event_counts(), (2, 2, 0));
}

/// Story: a delivery searched all waiting events for one whose consumer had capacity. With
/// 10,000 events that waited for a busy consumer, each delivery to another looked at all of them.
#[test]
fn delivery_does_not_search_events_of_busy_consumers() {
    let (now, count) = (Instant::now(), 10_000);
    let mut group = Dispatcher::new(&config("Pinned", 1), None);
    let busy = group.connect(1);
    for position in 0..count {
        let event = event(position, &format!("s-{position}"), "{}");
        group.offer(EventKey::Source(position), event);
    }
    assert_eq!(sent(&mut group, now), [(busy, 0)]);
    let other = group.connect(1);
    let changes = |group: &Dispatcher| group.pinned.as_ref().unwrap().head_changes;
    let (mut delivered, mut position, before) = (0, count, changes(&group));
    while delivered < count {
        for (consumer, revision) in sent(&mut group, now) {
            assert_eq!(consumer, other);
            ack(&mut group, other, &[id(revision)]);
            delivered += 1;
        }
        group.offer(EventKey::Source(position), event(position, &format!("t-{position}"), "{}"));
        position += 1;
    }
    let changed = changes(&group) - before;
    assert!(changed <= 3 * position as usize, "{changed} changes for {position} events");
}

/// Story: timeouts under a second resent events that a client acknowledged 0.2 s later.
#[test]
fn timeouts_are_checked_once_a_second() {
    let now = Instant::now();
    let mut group = with_events("RoundRobin", 3);
    group.message_timeout = Some(Duration::from_millis(100));
    let consumer = group.connect(2);
    let at = |millis: u64| now + Duration::from_millis(millis);
    assert_eq!(sent(&mut group, now), [(1, 0), (1, 1)]);
    expire_timeouts(&mut group, at(999));
    ack(&mut group, consumer, &[id(0)]);
    assert_eq!(sent(&mut group, at(950)), [(1, 2)]);
    assert_eq!(group.next_timeout(), Some(at(1000)));
    expire_timeouts(&mut group, at(1000));
    assert_eq!(sent(&mut group, at(1000)), [(1, 1)], "the other event was sent 50 ms before");
    assert_eq!(group.next_timeout(), Some(at(2000)));
}

/// Story: timeouts of acknowledged events stayed behind that of an event whose delivery took long.
#[test]
fn timeouts_are_those_of_events_in_flight() {
    let mut now = Instant::now();
    let mut group = with_events("RoundRobin", 5000);
    let consumer = group.connect(2);
    assert_eq!(sent(&mut group, now), [(consumer, 0), (consumer, 1)]);
    for position in 1..4000 {
        ack(&mut group, consumer, &[id(position)]);
        now += Duration::from_micros(1);
        assert_eq!(sent(&mut group, now), [(consumer, position + 1)]);
        assert_eq!(group.timeouts.len(), 2, "of the two events in flight");
    }
    disconnect(&mut group, consumer);
    assert!(group.timeouts.is_empty() && group.next_timeout().is_none());
}

/// The next delivery by a search of all waiting events.
fn searched_delivery(group: &Dispatcher) -> Option<(EventKey, ConsumerId)> {
    let mut owners = HashMap::new();
    for held in group.events.values() {
        if let DeliveryState::InFlight(id) = held.state {
            owners.insert(held.pin_hash, id);
        }
    }
    group.waiting.iter().find_map(|key| {
        let pin = group.events[key].pin_hash;
        let highest = || group.consumers.keys().copied().max_by_key(|id| hash((pin, *id)));
        let id = owners.get(&pin).copied().or_else(highest)?;
        group.consumers.get(&id).filter(|consumer| has_capacity(consumer)).map(|_| (*key, id))
    })
}

#[test]
fn pinned_deliveries_match_a_search() {
    let (now, mut seed) = (Instant::now(), 11_u64);
    let mut next = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (seed >> 33) % below
    };
    let mut group = Dispatcher::new(&config("Pinned", 3), None);
    let mut position = 0;
    for step in 0..30_000 {
        let ids: Vec<ConsumerId> = group.consumers.keys().copied().collect();
        let any = ids.get(next(ids.len().max(1) as u64) as usize).copied().unwrap_or(0);
        let in_flight = |group: &Dispatcher, choice: u64| {
            let ids: Vec<EventId> = group.consumers.get(&any)?.in_flight.keys().copied().collect();
            ids.get(choice as usize % ids.len().max(1)).copied()
        };
        match next(100) {
            0 if ids.len() < 8 => drop(group.connect(1 + next(4) as usize)),
            1 if !ids.is_empty() => disconnect(&mut group, any),
            2..30 if group.events.len() < 60 => {
                let stream = format!("s-{}", next(12));
                group.offer(EventKey::Source(position), event(position, &stream, "{}"));
                position += 1;
            }
            30..55 => {
                if let Some(id) = in_flight(&group, next(60)) {
                    ack(&mut group, any, &[id]);
                }
            }
            55..65 => {
                if let Some(id) = in_flight(&group, next(60)) {
                    nack(&mut group, any, &[id], &NackDecision::Retry);
                }
            }
            65 => group.evict(true, |id| id % 2 == 0),
            66..70 => {
                let evicted: Vec<EventKey> = group.evicted.iter().copied().collect();
                for key in evicted {
                    let EventKey::Source(position) = key else { continue };
                    let stream = format!("evicted-{}", next(3));
                    group.offer(key, event(position, &stream, "{}"));
                }
            }
            70 => {
                let parked = group.events_to_park(10);
                parked.into_iter().for_each(|(key, ..)| group.finish(key));
            }
            _ => {
                let expected = searched_delivery(&group);
                let delivery = group.next_delivery(now);
                let delivered = delivery.map(|sent| {
                    let revision = link_or_event(&sent.event).unwrap().revision;
                    (EventKey::Source(revision), sent.consumer)
                });
                assert_eq!(delivered, expected, "step {step}");
            }
        }
        let to_park = group
            .evicted
            .iter()
            .filter(|key| matches!(group.events[*key].state, DeliveryState::Parking(_)));
        assert_eq!(to_park.count(), group.evicted_to_park, "step {step}");
    }
    assert!(position > 1000, "{position}");
    let ids: Vec<ConsumerId> = group.consumers.keys().copied().collect();
    ids.into_iter().for_each(|id| disconnect(&mut group, id));
    let keys: Vec<EventKey> = group.events.keys().copied().collect();
    keys.into_iter().for_each(|key| group.finish(key));
    assert!(group.pinned.as_ref().unwrap().is_empty());
    assert!(group.free.is_empty() && group.timeouts.is_empty());
}

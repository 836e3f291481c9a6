//! Subscriptions through the interface: where they begin, when they are live, and that waiting
//! threads are woken.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use umbel_env::Env;
use umbel_events::{
    Error, EventFilter, ExpectedVersion, NewEvent, Position, Source, Store, Subscription,
    SubscriptionBatch, SubscriptionStart,
};

use super::support::{append, id, store};

/// Upper bound of a wait, which is exceeded only after a missed call.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

fn numbers(batch: &SubscriptionBatch) -> Vec<u64> {
    let number = |id: [u8; 16]| u64::from_le_bytes(id[..8].try_into().expect("eight bytes"));
    batch.events.iter().map(|event| number(event.id.0)).collect()
}

/// The existing events, in batches of this size.
fn drain(subscription: &mut Subscription, limit: usize) -> Vec<u64> {
    let mut all = Vec::new();
    loop {
        let batch = subscription.try_next_batch(limit, limit).expect("readable");
        assert!(batch.events.len() <= limit);
        all.extend(numbers(&batch));
        if batch.is_caught_up {
            return all;
        }
    }
}

/// A store with twelve events: those with even numbers in the stream `a`, the others in `b`.
fn two_streams() -> (Store, Vec<u64>) {
    let store = store();
    for number in 0..12 {
        append(&store, ["a", "b"][number as usize % 2], number..number + 1);
    }
    let all = store.read_all(Position::START, umbel_events::Direction::Forwards);
    let positions = all.map(|event| event.expect("readable").position).collect();
    (store, positions)
}

fn only_b() -> Source {
    Source::Filtered(EventFilter::stream_prefixes(&["b"]).expect("good"))
}

#[test]
fn subscription_starts_after_its_checkpoint() {
    let (store, positions) = two_streams();
    let a = || Source::Stream("a".into());
    let all: Vec<u64> = (0..12).collect();
    let of_b: Vec<u64> = (0..6).map(|n| 2 * n + 1).collect();
    let of_a: Vec<u64> = (0..6).map(|n| 2 * n).collect();
    let cases = [
        (a(), SubscriptionStart::Start, of_a.clone()),
        (a(), SubscriptionStart::After(0), of_a[1..].to_vec()),
        (a(), SubscriptionStart::After(5), vec![]),
        (a(), SubscriptionStart::End, vec![]),
        (Source::All, SubscriptionStart::Start, all.clone()),
        (Source::All, SubscriptionStart::After(positions[3]), all[4..].to_vec()),
        (Source::All, SubscriptionStart::After(positions[3] - 1), all[3..].to_vec()),
        (Source::All, SubscriptionStart::End, vec![]),
        (only_b(), SubscriptionStart::Start, of_b.clone()),
        (only_b(), SubscriptionStart::After(positions[3]), of_b[2..].to_vec()),
        (only_b(), SubscriptionStart::After(positions[4]), of_b[2..].to_vec()),
        (only_b(), SubscriptionStart::End, vec![]),
    ];
    for limit in [1, 2, 5, 100] {
        for (what, since, wanted) in cases.clone() {
            let mut subscription = store.subscribe(what.clone(), since).expect("subscribed");
            assert_eq!(drain(&mut subscription, limit), wanted, "{what:?} {since:?} by {limit}");
        }
    }
    let mut open: Vec<_> = cases
        .map(|(what, since, _)| {
            let mut subscription = store.subscribe(what.clone(), since).expect("subscribed");
            drain(&mut subscription, 3);
            (what, subscription)
        })
        .into();
    append(&store, "a", 20..22);
    append(&store, "b", 22..24);
    for (what, subscription) in &mut open {
        let wanted: &[u64] = match what {
            Source::Stream(_) => &[20, 21],
            Source::All => &[20, 21, 22, 23],
            Source::Filtered(_) => &[22, 23],
            Source::View(view) => panic!("{view} is followed elsewhere"),
        };
        assert_eq!(drain(subscription, 3), wanted, "{what:?}");
    }
}

#[test]
fn checkpoint_is_the_last_scanned_event_and_resumable() {
    let (store, positions) = two_streams();
    for examined in 1..12 {
        let mut first = store.subscribe(only_b(), SubscriptionStart::Start).expect("subscribed");
        let (mut seen, mut at) = (Vec::new(), None);
        let mut looked_at = 0;
        while looked_at < examined {
            let batch = first.try_next_batch(100, examined - looked_at).expect("readable");
            looked_at += batch.examined as usize;
            seen.extend(numbers(&batch));
            at = batch.checkpoint;
        }
        let at = at.expect("events were scanned").0;
        assert_eq!((looked_at, at), (examined, positions[examined - 1]));
        let mut second =
            store.subscribe(only_b(), SubscriptionStart::After(at)).expect("subscribed");
        seen.extend(drain(&mut second, 2));
        assert_eq!(seen, (0..6).map(|n| 2 * n + 1).collect::<Vec<_>>(), "{examined}");
    }
    let mut of_nothing = store
        .subscribe(
            Source::Filtered(EventFilter::type_prefixes(&["Nothing"]).expect("good")),
            SubscriptionStart::Start,
        )
        .expect("subscribed");
    let batch = of_nothing.try_next_batch(10, 1000).expect("readable");
    assert!(batch.is_caught_up && batch.events.is_empty());
    assert_eq!(batch.checkpoint, Some(store.visible_position()));
    assert_eq!(batch.examined, 12);
    append(&store, "a", 20..21);
    let batch = of_nothing.try_next_batch(10, 1000).expect("readable");
    assert_eq!(batch.checkpoint, Some(store.visible_position()), "also if no event passes");
}

#[test]
fn empty_store_has_no_checkpoint_and_future_start_is_kept() {
    let store = store();
    for what in [Source::All, only_b(), Source::Stream("a".into())] {
        for since in [SubscriptionStart::Start, SubscriptionStart::End] {
            let mut subscription = store.subscribe(what.clone(), since).expect("subscribed");
            let batch = subscription.try_next_batch(10, 10).expect("readable");
            assert_eq!(
                batch,
                SubscriptionBatch { is_caught_up: true, ..SubscriptionBatch::default() },
                "{what:?}"
            );
        }
    }
    append(&store, "b", 0..1);
    let ahead = store.visible_position().0 + 1000;
    let mut subscription =
        store.subscribe(only_b(), SubscriptionStart::After(ahead)).expect("subscribed");
    let batch = subscription.try_next_batch(10, 10).expect("readable");
    assert_eq!((batch.checkpoint, batch.events.len()), (Some(Position(ahead)), 0));
}

#[test]
fn subscriber_is_live_once_then_woken_by_appends() {
    for what in [Source::All, only_b(), Source::Stream("b".into())] {
        let store = store();
        append(&store, "b", 0..3);
        let mut subscription =
            store.subscribe(what.clone(), SubscriptionStart::Start).expect("subscribed");
        let mut seen = Vec::new();
        let mut caught_up = 0;
        while caught_up == 0 {
            let batch = subscription.next_batch(2, WAIT_TIMEOUT).expect("readable");
            seen.extend(numbers(&batch));
            caught_up += usize::from(batch.is_caught_up);
        }
        assert_eq!(seen, [0, 1, 2], "{what:?}");
        let nothing = subscription.next_batch(2, Duration::from_millis(1)).expect("readable");
        assert!(nothing.events.is_empty() && nothing.is_caught_up);
        let writing = store.clone();
        let work = move || {
            append(&writing, "other", 10..11);
            append(&writing, "b", 3..4);
        };
        let thread = Env::system().threads.spawn("write", Box::new(work)).expect("a thread");
        let mut live = Vec::new();
        while !live.contains(&3) {
            live.extend(numbers(&subscription.next_batch(10, WAIT_TIMEOUT).expect("readable")));
        }
        assert!(thread.join());
        live.retain(|number| *number != 10);
        assert_eq!(live, [3], "{what:?}");
    }
}

/// Counts the wake-ups of a task.
#[derive(Default)]
struct WakeCounter(AtomicUsize);

impl Wake for WakeCounter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn task_is_woken_once_for_events_after_a_batch() {
    for (source, by_others) in [
        (Source::named("a"), 0),
        (Source::named("$ce-a"), 1),
        (Source::All, 1),
        (Source::all(Some(EventFilter::stream_prefixes(&["a"]).expect("good"))), 1),
    ] {
        let store = store();
        let counter = Arc::new(WakeCounter::default());
        let waker = Waker::from(Arc::clone(&counter));
        let mut context = Context::from_waker(&waker);
        let since = SubscriptionStart::End;
        let mut subscription = store.subscribe(source.clone(), since).expect("subscribed");
        let batch = subscription.try_next_batch(10, 10).expect("readable");
        assert!(batch.is_caught_up && batch.events.is_empty(), "{source:?}");
        let wakeup = Arc::clone(subscription.wakeup());
        assert!(wakeup.poll_wait(&mut context).is_pending());
        append(&store, "other", 0..1);
        append(&store, "other", 1..2);
        assert_eq!(counter.0.load(Ordering::SeqCst), by_others, "{source:?}");
        subscription.try_next_batch(10, 10).expect("readable");
        assert!(wakeup.poll_wait(&mut context).is_pending(), "a batch was read after the wake-up");
        append(&store, "a", 2..3);
        append(&store, "a", 3..4);
        assert!(wakeup.poll_wait(&mut context).is_ready());
        assert_eq!(counter.0.load(Ordering::SeqCst), by_others + 1, "{source:?}");
        if !matches!(source, Source::View(_)) {
            let batch = subscription.try_next_batch(10, 10).expect("readable");
            assert_eq!(numbers(&batch), [2, 3], "{source:?}");
        }
        store.close().expect("closed");
        assert!(wakeup.poll_wait(&mut context).is_ready(), "the end wakes, too");
    }
}

#[test]
fn close_ends_the_wait_and_tombstone_ends_the_subscription() {
    let store = store();
    append(&store, "a", 0..1);
    let a = || Source::Stream("a".into());
    let mut ended = store.subscribe(a(), SubscriptionStart::Start).expect("subscribed");
    assert_eq!(drain(&mut ended, 10), [0]);
    store.tombstone("a", ExpectedVersion::Any).expect("ended");
    for _ in 0..2 {
        assert!(
            matches!(ended.try_next_batch(10, 10), Err(Error::StreamDeleted { .. })),
            "each time"
        );
    }
    assert!(matches!(
        store.subscribe(a(), SubscriptionStart::End),
        Err(Error::StreamDeleted { .. })
    ));
    let mut waiting = store.subscribe(Source::All, SubscriptionStart::End).expect("subscribed");
    waiting.next_batch(10, WAIT_TIMEOUT).expect("caught up");
    let is_closing = Arc::new(AtomicBool::new(false));
    let closing = Arc::clone(&is_closing);
    let work = move || {
        closing.store(true, Ordering::SeqCst);
        store.close().expect("closed");
    };
    let thread = Env::system().threads.spawn("close", Box::new(work)).expect("a thread");
    let failed = loop {
        if let Err(error) = waiting.next_batch(10, WAIT_TIMEOUT) {
            break error;
        }
    };
    assert!(is_closing.load(Ordering::SeqCst), "{failed}");
    assert!(thread.join());
}

#[test]
fn batch_size_is_bounded_in_bytes() {
    let store = store();
    let large = vec![b'x'; 600_000];
    for number in 0..6 {
        let event = NewEvent::binary(id(number), "Large", &large);
        store.append("b", ExpectedVersion::Any, &[event]).expect("appended");
    }
    for what in [Source::All, only_b(), Source::Stream("b".into())] {
        let mut subscription =
            store.subscribe(what.clone(), SubscriptionStart::Start).expect("subscribed");
        let batch = subscription.try_next_batch(100, 100).expect("readable");
        assert_eq!(numbers(&batch), [0, 1], "{what:?}");
        assert_eq!(drain(&mut subscription, 100), [2, 3, 4, 5], "{what:?}");
    }
}

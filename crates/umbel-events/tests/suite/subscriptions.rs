//! Subscriptions through the interface: where they begin, when they have caught up, and that who
//! waits is woken.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use umbel_env::Env;
use umbel_events::{
    Batch, Error, EventFilter, Expected, NewEvent, Position, Since, Store, Subscribed, Subscription,
};

use super::support::{append, id, store};

/// Nothing here takes longer, unless somebody is forgotten.
const PATIENCE: Duration = Duration::from_secs(60);

fn numbers(batch: &Batch) -> Vec<u64> {
    let number = |id: [u8; 16]| u64::from_le_bytes(id[..8].try_into().expect("eight bytes"));
    batch.events.iter().map(|event| number(event.id.0)).collect()
}

/// What is there now, in batches of this size.
fn drain(subscription: &mut Subscription, most: usize) -> Vec<u64> {
    let mut all = Vec::new();
    loop {
        let batch = subscription.take(most, most).expect("readable");
        assert!(batch.events.len() <= most);
        all.extend(numbers(&batch));
        if batch.is_caught_up {
            return all;
        }
    }
}

/// Twelve events: those with even numbers in `a`, the others in `b`.
fn two_streams() -> (Store, Vec<u64>) {
    let store = store();
    for number in 0..12 {
        append(&store, ["a", "b"][number as usize % 2], number..number + 1);
    }
    let all = store.read_all(Position::START, umbel_events::Direction::Forwards);
    let positions = all.map(|event| event.expect("readable").position).collect();
    (store, positions)
}

fn only_b() -> Subscribed {
    Subscribed::Filtered(EventFilter::stream_prefixes(&["b"]).expect("good"))
}

#[test]
fn a_subscription_begins_behind_what_it_names_and_goes_on() {
    let (store, positions) = two_streams();
    let a = || Subscribed::Stream("a".to_string());
    let all: Vec<u64> = (0..12).collect();
    let of_b: Vec<u64> = (0..6).map(|n| 2 * n + 1).collect();
    let of_a: Vec<u64> = (0..6).map(|n| 2 * n).collect();
    let cases = [
        (a(), Since::Start, of_a.clone()),
        (a(), Since::After(0), of_a[1..].to_vec()),
        (a(), Since::After(5), vec![]),
        (a(), Since::End, vec![]),
        (Subscribed::All, Since::Start, all.clone()),
        (Subscribed::All, Since::After(positions[3]), all[4..].to_vec()),
        (Subscribed::All, Since::After(positions[3] - 1), all[3..].to_vec()),
        (Subscribed::All, Since::End, vec![]),
        (only_b(), Since::Start, of_b.clone()),
        (only_b(), Since::After(positions[3]), of_b[2..].to_vec()),
        (only_b(), Since::After(positions[4]), of_b[2..].to_vec()),
        (only_b(), Since::End, vec![]),
    ];
    for most in [1, 2, 5, 100] {
        for (what, since, wanted) in cases.clone() {
            let mut subscription = store.subscribe(what.clone(), since).expect("subscribed");
            assert_eq!(drain(&mut subscription, most), wanted, "{what:?} {since:?} by {most}");
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
            Subscribed::Stream(_) => &[20, 21],
            Subscribed::All => &[20, 21, 22, 23],
            Subscribed::Filtered(_) => &[22, 23],
            Subscribed::View(view) => panic!("{view} is followed elsewhere"),
        };
        assert_eq!(drain(subscription, 3), wanted, "{what:?}");
    }
}

#[test]
fn a_checkpoint_is_the_last_event_looked_at_and_can_be_begun_behind() {
    let (store, positions) = two_streams();
    for examined in 1..12 {
        let mut first = store.subscribe(only_b(), Since::Start).expect("subscribed");
        let (mut seen, mut at) = (Vec::new(), None);
        let mut looked_at = 0;
        while looked_at < examined {
            let batch = first.take(100, examined - looked_at).expect("readable");
            looked_at += batch.examined as usize;
            seen.extend(numbers(&batch));
            at = batch.checkpoint;
        }
        let at = at.expect("something was looked at").0;
        assert_eq!((looked_at, at), (examined, positions[examined - 1]));
        let mut second = store.subscribe(only_b(), Since::After(at)).expect("subscribed");
        seen.extend(drain(&mut second, 2));
        assert_eq!(seen, (0..6).map(|n| 2 * n + 1).collect::<Vec<_>>(), "{examined}");
    }
    let mut of_nothing = store
        .subscribe(
            Subscribed::Filtered(EventFilter::type_prefixes(&["Nothing"]).expect("good")),
            Since::Start,
        )
        .expect("subscribed");
    let batch = of_nothing.take(10, 1000).expect("readable");
    assert!(batch.is_caught_up && batch.events.is_empty());
    assert_eq!(batch.checkpoint, Some(store.visible()));
    assert_eq!(batch.examined, 12);
    append(&store, "a", 20..21);
    let batch = of_nothing.take(10, 1000).expect("readable");
    assert_eq!(batch.checkpoint, Some(store.visible()), "also where nothing passes");
}

#[test]
fn nothing_there_has_no_checkpoint_and_a_place_ahead_of_all_is_kept() {
    let store = store();
    for what in [Subscribed::All, only_b(), Subscribed::Stream("a".to_string())] {
        for since in [Since::Start, Since::End] {
            let mut subscription = store.subscribe(what.clone(), since).expect("subscribed");
            let batch = subscription.take(10, 10).expect("readable");
            assert_eq!(batch, Batch { is_caught_up: true, ..Batch::default() }, "{what:?}");
        }
    }
    append(&store, "b", 0..1);
    let ahead = store.visible().0 + 1000;
    let mut subscription = store.subscribe(only_b(), Since::After(ahead)).expect("subscribed");
    let batch = subscription.take(10, 10).expect("readable");
    assert_eq!((batch.checkpoint, batch.events.len()), (Some(Position(ahead)), 0));
}

#[test]
fn who_waits_is_told_once_that_he_has_caught_up_and_then_woken_by_what_comes() {
    for what in [Subscribed::All, only_b(), Subscribed::Stream("b".to_string())] {
        let store = store();
        append(&store, "b", 0..3);
        let mut subscription = store.subscribe(what.clone(), Since::Start).expect("subscribed");
        let mut seen = Vec::new();
        let mut caught_up = 0;
        while caught_up == 0 {
            let batch = subscription.next_batch(2, PATIENCE).expect("readable");
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
            live.extend(numbers(&subscription.next_batch(10, PATIENCE).expect("readable")));
        }
        assert!(thread.join());
        live.retain(|number| *number != 10);
        assert_eq!(live, [3], "{what:?}");
    }
}

#[test]
fn closing_the_store_ends_the_wait_and_a_tombstone_the_subscription() {
    let store = store();
    append(&store, "a", 0..1);
    let a = || Subscribed::Stream("a".to_string());
    let mut ended = store.subscribe(a(), Since::Start).expect("subscribed");
    assert_eq!(drain(&mut ended, 10), [0]);
    store.tombstone("a", Expected::Any).expect("ended");
    for _ in 0..2 {
        assert!(matches!(ended.take(10, 10), Err(Error::Deleted { .. })), "each time");
    }
    assert!(matches!(store.subscribe(a(), Since::End), Err(Error::Deleted { .. })));
    let mut waiting = store.subscribe(Subscribed::All, Since::End).expect("subscribed");
    waiting.next_batch(10, PATIENCE).expect("caught up");
    let is_closing = Arc::new(AtomicBool::new(false));
    let closing = Arc::clone(&is_closing);
    let work = move || {
        closing.store(true, Ordering::SeqCst);
        store.close().expect("closed");
    };
    let thread = Env::system().threads.spawn("close", Box::new(work)).expect("a thread");
    let failed = loop {
        if let Err(error) = waiting.next_batch(10, PATIENCE) {
            break error;
        }
    };
    assert!(is_closing.load(Ordering::SeqCst), "{failed}");
    assert!(thread.join());
}

#[test]
fn a_batch_has_a_bound_in_bytes() {
    let store = store();
    let large = vec![b'x'; 600_000];
    for number in 0..6 {
        let event = NewEvent::binary(id(number), "Large", &large);
        store.append("b", Expected::Any, &[event]).expect("appended");
    }
    for what in [Subscribed::All, only_b(), Subscribed::Stream("b".to_string())] {
        let mut subscription = store.subscribe(what.clone(), Since::Start).expect("subscribed");
        let batch = subscription.take(100, 100).expect("readable");
        assert_eq!(numbers(&batch), [0, 1], "{what:?}");
        assert_eq!(drain(&mut subscription, 100), [2, 3, 4, 5], "{what:?}");
    }
}

//! Clock epochs: after a wrong clock, an operator confirms the right one, and times restart.

use std::collections::HashMap;
use std::time::Duration;

use umbel_env::Env;
use umbel_events::{
    ClockOutcome, CopyOptions, Direction, Error, ExpectedVersion, ImportedEvent, NewEvent,
    Position, RepairOptions, Revision, ScavengeOptions, Store, StoreOptions, accept_clock, repair,
    restore,
};
use umbel_sim::{CrashSide, Sim, Survival};

use super::clock_jumps::{DAY, Fixture, YEAR, append, times};
use super::support::{all, append_large, event, id, options};

const TICKS: u64 = 10_000_000;

/// A closed store with an event of year 50, and two of year 60 by a wrong clock, which is right
/// again.
fn misdated() -> Fixture {
    let fixture = Fixture::new(50 * YEAR);
    let store = fixture.open(false);
    append(&store, 1).expect("appended");
    store.close().expect("closed");
    fixture.set(60 * YEAR);
    let store = fixture.open(true);
    append(&store, 2).expect("appended");
    append(&store, 3).expect("appended");
    store.close().expect("closed");
    fixture.set(50 * YEAR + DAY);
    fixture
}

fn accept_in(env: &Env) -> Result<ClockOutcome, Error> {
    Ok(accept_clock(env, "/events".as_ref(), Duration::ZERO)?.outcome)
}

fn accept(fixture: &Fixture) -> Result<ClockOutcome, Error> {
    accept_in(&fixture.env())
}

/// Numbers of the events of a stream that readers see, in both directions.
fn visible(store: &Store, stream: &str) -> Vec<u64> {
    let read = |from, direction| {
        let events = store.read(stream, from, direction);
        events.map(|event| event.expect("read").revision).collect::<Vec<_>>()
    };
    let forwards = read(Revision::START, Direction::Forwards);
    let mut backwards = read(Revision::END, Direction::Backwards);
    backwards.reverse();
    assert_eq!(forwards, backwards);
    forwards
}

fn set_max_age(store: &Store, stream: &str, seconds: u64, number: u64) {
    let metadata = format!("{{\"$maxAge\":{seconds}}}");
    let event = [NewEvent::json(id(number), "$metadata", metadata.as_bytes())];
    let name = format!("$${stream}");
    store.append(&name, ExpectedVersion::Any, &event).expect("the metadata");
}

/// Story: events that a wrong clock had stamped ten years ahead kept every later event at that
/// time, and nothing expired for ten years.
#[test]
fn accepted_clock_restarts_the_times_of_events() {
    let fixture = misdated();
    let store = fixture.open(false);
    append(&store, 4).expect("appended");
    let stats = store.stats().expect("statistics");
    assert_eq!(stats.clock_behind.as_secs(), 10 * YEAR - DAY);
    assert_eq!((stats.clock_epoch, stats.clock_epoch_start), (1, None));
    store.close().expect("closed");
    assert_eq!(accept(&fixture).expect("accepted"), ClockOutcome::NewEpoch(2));
    let store = fixture.open(false);
    append(&store, 5).expect("appended");
    fixture.pass(DAY);
    append(&store, 6).expect("appended");
    let days = [0, 3650, 3650, 3650, 1, 2];
    assert_eq!(times(&store), days.map(|day| 50 * YEAR + day * DAY));
    let stats = store.stats().expect("statistics");
    assert!(stats.clock_behind.is_zero() && stats.clock_rejected.is_zero());
    let start = stats.clock_epoch_start.expect("a second epoch").as_secs();
    assert_eq!((stats.clock_epoch, start), (2, 50 * YEAR + DAY));
}

/// The misdated events count as appended when the new epoch began.
#[test]
fn misdated_events_expire_from_the_start_of_the_new_epoch() {
    let fixture = misdated();
    assert_eq!(accept(&fixture).expect("accepted"), ClockOutcome::NewEpoch(2));
    let store = fixture.open(false);
    append(&store, 4).expect("appended");
    fixture.pass(DAY);
    append(&store, 5).expect("appended");
    set_max_age(&store, "a", DAY, 90);
    assert_eq!(visible(&store, "a"), [1, 2, 3, 4]);
    fixture.pass(1);
    assert_eq!(visible(&store, "a"), [4]);
    fixture.pass(DAY);
    assert_eq!(visible(&store, "a"), [] as [u64; 0]);
    // A clock that is set back is believed.
    fixture.set(50 * YEAR + 2 * DAY);
    assert_eq!(visible(&store, "a"), [1, 2, 3, 4]);
    fixture.pass(1);
    let all = ScavengeOptions { removes_all: true, ..ScavengeOptions::default() };
    store.scavenge(&all).expect("scavenged");
    assert_eq!(visible(&store, "a"), [4]);
    store.close().expect("closed");
    let store = fixture.open(false);
    assert_eq!(
        (store.stats().expect("statistics").clock_epoch, visible(&store, "a")),
        (2, vec![4])
    );
}

/// Every place where a store is copied or rebuilt keeps the epochs.
#[test]
fn index_rebuild_backup_and_repair_keep_the_epochs() {
    let fixture = misdated();
    let older = fixture.sim.read("/events/CHUNKS");
    accept(&fixture).expect("accepted");
    let store = fixture.open(false);
    append(&store, 4).expect("appended");
    store.backup("/backup", CopyOptions::default()).expect("backed up");
    let before = all(&store);
    store.close().expect("closed");
    let epoch = |fixture: &Fixture, path: &str| {
        let options = StoreOptions { env: fixture.env(), ..options(&fixture.sim) };
        let store = Store::open(path, options).expect("opened");
        assert_eq!(all(&store), before, "{path}");
        store.append("z", ExpectedVersion::Any, &[event(70)]).expect("appended");
        let last = all(&store).last().expect("an event").created;
        assert_eq!(last, (50 * YEAR + DAY) * TICKS, "{path}");
        store.stats().expect("statistics").clock_epoch
    };
    let rebuilt = fixture.with_disk(fixture.sim.clone_disk());
    let index = rebuilt.sim.files().into_iter().filter(|path| path.starts_with("/events/index"));
    index.collect::<Vec<_>>().iter().for_each(|path| rebuilt.sim.remove(path));
    assert_eq!(epoch(&rebuilt, "/events"), 2);
    let copy = fixture.with_disk(fixture.sim.clone_disk());
    restore(&copy.env(), "/backup".as_ref(), "/restored".as_ref(), CopyOptions::default())
        .expect("restored");
    assert_eq!(epoch(&copy, "/restored"), 2);
    // A manifest that is kept, and one that is lost.
    for damage in ["/events/log/00000002.chunk", "/events/CHUNKS"] {
        let damaged = fixture.with_disk(fixture.sim.clone_disk());
        damaged.sim.flip(damage, 30, 1);
        let report = repair(&damaged.env(), "/events".as_ref(), RepairOptions::default());
        let report = report.expect("repaired");
        assert!(!report.is_undamaged(), "{damage}");
        assert_eq!(epoch(&damaged, "/events"), 2, "{damage}");
    }
    // An older copy of the manifest, which lacks the epoch.
    let stale = fixture.with_disk(fixture.sim.clone_disk());
    stale.sim.replace("/events/CHUNKS", &older);
    let report = repair(&stale.env(), "/events".as_ref(), RepairOptions::default());
    assert!(report.expect("repaired").manifest.is_some(), "the manifest was older");
    assert_eq!(epoch(&stale, "/events"), 2);
}

/// A second confirmation of a store that agrees with the clock writes nothing.
#[test]
fn clock_of_a_healthy_store_is_accepted_without_a_change() {
    let fixture = misdated();
    accept(&fixture).expect("accepted");
    let files = |fixture: &Fixture| -> HashMap<_, _> {
        let paths = fixture.sim.files().into_iter().filter(|path| !path.ends_with("LOCK"));
        paths.map(|path| (path.clone(), fixture.sim.read(path))).collect()
    };
    let before = files(&fixture);
    assert_eq!(accept(&fixture).expect("accepted"), ClockOutcome::Unchanged);
    assert!(files(&fixture) == before, "nothing was written");
    let store = fixture.open(true);
    append(&store, 4).expect("appended");
    assert_eq!(store.stats().expect("statistics").clock_epoch, 2);
    let refused = accept(&fixture).expect_err("the store is open");
    assert!(matches!(refused, Error::Store(umbel::Error::Locked(_))), "{refused}");
    store.close().expect("closed");
    // A clock before the last event, then the right one: an epoch without events is replaced.
    fixture.set(20 * YEAR);
    assert_eq!(accept(&fixture).expect("accepted"), ClockOutcome::NewEpoch(3));
    fixture.set(50 * YEAR + DAY);
    assert_eq!(accept(&fixture).expect("accepted"), ClockOutcome::Believed);
    let store = fixture.open(false);
    append(&store, 5).expect("appended");
    store.close().expect("closed");
    fixture.set(0);
    let refused = accept(&fixture).expect_err("a clock before 1970");
    assert!(refused.to_string().contains("before 1970"), "{refused}");
}

#[test]
fn clock_years_ahead_is_accepted_without_an_epoch() {
    let fixture = Fixture::new(50 * YEAR);
    let store = fixture.open(false);
    append(&store, 1).expect("appended");
    store.close().expect("closed");
    fixture.set(60 * YEAR);
    assert_eq!(accept(&fixture).expect("accepted"), ClockOutcome::Believed);
    let store = fixture.open(false);
    append(&store, 2).expect("the clock was confirmed");
    assert_eq!(store.stats().expect("statistics").clock_epoch, 1);
    let missing = accept_clock(&fixture.env(), "/other".as_ref(), Duration::ZERO);
    assert!(matches!(missing, Err(Error::Invalid(_))), "{missing:?}");
    assert!(!fixture.sim.has("/other"), "nothing is created");
}

/// Disks after a power cut or a kill before or after a call.
fn images(sim: &Sim, call: u64, work: impl Fn(&Sim)) -> Vec<Sim> {
    let mut left = Vec::new();
    for when in [CrashSide::Before, CrashSide::After] {
        let copy = sim.clone_disk();
        copy.crash_at(copy.calls() + call, when);
        work(&copy);
        left.push(copy.kill_image());
        let policies = [Survival::None, Survival::All, Survival::any(call, copy.pending_units())];
        for (seed, policy) in (call * 3..).zip(policies) {
            left.push(copy.crash_image(&policy, seed));
        }
    }
    left
}

#[test]
fn power_cut_in_a_confirmation_leaves_the_old_or_the_new_epoch() {
    let fixture = misdated();
    // A store that was not closed, too: its recovery is part of the confirmation.
    let open = fixture.open(false);
    append(&open, 4).expect("appended");
    open.sync().expect("synced");
    let killed = fixture.sim.kill_image();
    open.close().expect("closed");
    for sim in [killed, fixture.sim.clone_disk()] {
        let done = fixture.with_disk(sim.clone_disk());
        let begun = done.sim.calls();
        accept(&done).expect("accepted");
        let calls = done.sim.calls() - begun;
        let (mut old, mut new) = (0, 0);
        for call in 1..=calls {
            let work = |copy: &Sim| drop(accept_in(&fixture.env_of(copy)));
            for image in images(&sim, call, work) {
                let fixture = fixture.with_disk(image);
                let store = fixture.open(false);
                let epoch = store.stats().expect("statistics").clock_epoch;
                *(if epoch == 2 { &mut new } else { &mut old }) += 1;
                assert_eq!(all(&store).len(), 4, "call {call}");
                assert!(store.verify().expect("verified").damage.is_empty(), "call {call}");
                store.close().expect("closed");
                let again = accept(&fixture).expect("accepted");
                let wanted = match epoch {
                    2 => ClockOutcome::Unchanged,
                    _ => ClockOutcome::NewEpoch(2),
                };
                assert_eq!(again, wanted, "call {call}");
                let store = fixture.open(false);
                append(&store, 5).expect("appended");
                assert_eq!(times(&store).last(), Some(&(50 * YEAR + DAY)), "call {call}");
            }
        }
        assert!(old > 10 && new > 3, "{old} old, {new} new");
    }
}

/// Reads under `$maxAge` agree with a model over many epochs, in streams and views.
#[test]
fn expiry_across_epochs_agrees_with_a_model() {
    for seed in 1..=12u64 {
        let fixture = Fixture::new(50 * YEAR);
        let mut random = seed;
        let mut next = move |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
            (random >> 33) % below
        };
        // For each event its stream and time; and for each epoch the number of events before it,
        // and its start.
        let mut events: Vec<(u64, u64)> = Vec::new();
        let mut epochs: Vec<(usize, u64)> = Vec::new();
        let mut number = 1;
        for _ in 0..6 {
            let store = fixture.open(true);
            for _ in 0..next(40) {
                let stream = next(3);
                let moved = fixture.seconds() + next(100);
                fixture.set(moved);
                append_large(&store, &format!("s-{stream}"), number, next(4000) as usize);
                number += 1;
                events.push((stream, moved));
            }
            store.close().expect("closed");
            let moved = (fixture.seconds() + next(6000)).saturating_sub(3000);
            fixture.set(moved);
            let last = events.last().map_or(0, |(_, created)| *created);
            if last > moved + 300 {
                assert!(matches!(accept(&fixture), Ok(ClockOutcome::NewEpoch(_))), "seed {seed}");
                epochs.push((events.len(), moved));
            }
        }
        check_model(&fixture, &events, &epochs, seed);
    }
}

fn check_model(fixture: &Fixture, events: &[(u64, u64)], epochs: &[(usize, u64)], seed: u64) {
    let time = |at: usize| {
        let later = epochs.iter().filter(|(count, _)| *count > at).map(|(_, start)| *start);
        later.fold(events[at].1, u64::min)
    };
    fixture.set(60 * YEAR);
    let store = fixture.open(true);
    let ordered: Vec<u64> = (0..events.len()).map(time).collect();
    assert!(ordered.is_sorted(), "seed {seed}");
    for (step, oldest) in ordered.iter().step_by(7).flat_map(|t| [*t, t + 1]).enumerate() {
        for name in ["s-0", "s-1", "s-2", "$ce-s"] {
            set_max_age(&store, name, 60 * YEAR - oldest, 1_000_000 + step as u64);
        }
        for stream in 0..3 {
            let of_stream = (0..events.len()).filter(|at| events[*at].0 == stream);
            let wanted: Vec<u64> = (0..)
                .zip(of_stream)
                .filter(|(_, at)| time(*at) >= oldest)
                .map(|(n, _)| n)
                .collect();
            assert_eq!(visible(&store, &format!("s-{stream}")), wanted, "seed {seed}");
        }
        let (view, from) = ("$ce-s", Revision::START);
        let entries = store.read_view(view, from, Direction::Forwards, Position::END);
        let entries: Vec<u64> = entries.map(|entry| entry.expect("read").link.revision).collect();
        let wanted = (0..events.len()).filter(|at| time(*at) >= oldest);
        assert_eq!(entries, wanted.map(|at| at as u64).collect::<Vec<_>>(), "seed {seed}");
    }
}

#[test]
fn imported_events_are_not_earlier_than_the_epoch() {
    let fixture = misdated();
    accept(&fixture).expect("accepted");
    let store = fixture.open(false);
    let mut import = store.import().expect("an import");
    let created = Some(40 * YEAR * TICKS);
    let imported = ImportedEvent { stream: "b", revision: None, created, event: event(8) };
    import.add(&imported).expect("imported");
    let report = import.finish().expect("imported");
    assert_eq!((report.adjusted_times, times(&store)[3]), (1, 50 * YEAR + DAY));
}

/// Story: the stubs of a chunk of which nothing could be read had the time 0. A read of a view with
/// `$maxAge` took an event before them for expired, and left it out.
#[test]
fn repaired_lost_chunk_hides_no_event_that_has_not_expired() {
    let fixture = Fixture::new(50 * YEAR);
    let store = fixture.open(false);
    append_large(&store, "s-0", 1, 1000);
    fixture.pass(10);
    append_large(&store, "s-1", 2, 1000);
    append_large(&store, "s-2", 3, 1000);
    store.close().expect("closed");
    let store = fixture.open(false);
    (10..30).for_each(|number| append_large(&store, &format!("s-{number}"), number, 1000));
    store.close().expect("closed");
    let store = fixture.open(false);
    append_large(&store, "s-3", 90, 1000);
    set_max_age(&store, "$ce-s", 5, 91);
    store.close().expect("closed");
    fixture.sim.remove("/events/log/00000002.chunk");
    repair(&fixture.env(), "/events".as_ref(), RepairOptions::default()).expect("repaired");
    let store = fixture.open(false);
    let (view, from) = ("$ce-s", Revision::START);
    let entries = store.read_view(view, from, Direction::Forwards, Position::END);
    let streams = entries.filter_map(|entry| entry.expect("read").event).map(|event| event.stream);
    assert_eq!(streams.collect::<Vec<_>>(), ["s-1", "s-2", "s-3"]);
}

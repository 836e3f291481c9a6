//! Going on in the next chunk, with each call failing that the disk may refuse: that one alone, or
//! that one and all behind it. And what the chunks cost that are not filled.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use umbel_env::{Access, Env};
use umbel_events::{Direction, Durability, Expected, NewEvent, Revision, Store, StoreOptions};
use umbel_sim::{Fault, FaultKind, Sim, Survival, When};

use super::support::{append_large, id, options, outline};

/// Nobody waits longer for an answer; it takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(60);
/// As many events as three chunks hold.
const EVENTS: u64 = 60;

/// Appends until everything is there, or until the world has ended and what was refused is refused
/// once more. Opens the store again where it says so. Returns how many were acknowledged.
fn fill(sim: &Sim, settings: &dyn Fn() -> StoreOptions) -> u64 {
    // One call fails at most, where not all do.
    let open =
        || Store::open("/events", settings()).or_else(|_| Store::open("/events", settings()));
    let data = vec![7; 3000];
    let (mut number, mut refusals) = (0, 0);
    let Ok(mut store) = open() else { return 0 };
    while number < EVENTS && refusals < 2 {
        let event = NewEvent::binary(id(number), "Large", &data);
        match store.append("a", Expected::Any, &[event]) {
            Ok(_) => number += 1,
            Err(_) if sim.is_dead() => refusals += 1,
            Err(error) if error.to_string().contains("open it again") => {
                drop(store);
                store = open().expect("opened again");
            }
            // Tried again at once.
            Err(_) => {}
        }
    }
    // What it says of a failure is not asked here.
    let _ = store.close();
    number
}

/// As [`fill`], in a thread, so that one which never ends is noticed.
fn fill_in_time(sim: &Arc<Sim>, durability: Durability) -> Option<u64> {
    let (sender, ended) = mpsc::channel();
    let disk = Arc::clone(sim);
    let filling = move || {
        let settings = || StoreOptions { durability, ..options(&disk) };
        let _ = sender.send(fill(&disk, &settings));
    };
    let thread = Env::system().threads.spawn("fill", Box::new(filling)).expect("a thread");
    let ended = ended.recv_timeout(PATIENCE);
    (ended != Err(mpsc::RecvTimeoutError::Timeout) && thread.join()).then(|| ended.ok()).flatten()
}

/// The end of a chunk could not be written while the log went on in the next one. That one was
/// there, empty, and what came before it was said to be missing from the index for ever: the next
/// append never ended.
#[test]
fn a_failed_call_at_the_end_of_a_chunk_does_not_hold_up_the_next_append() {
    for durability in [Durability::Buffered, Durability::Synced] {
        let probe = Arc::new(Sim::new(1));
        assert_eq!(fill_in_time(&probe, durability), Some(EVENTS));
        let calls = probe.calls();
        let mut fired = 0;
        for (call, all_behind) in (1..calls).flat_map(|call| [(call, false), (call, true)]) {
            let what = format!("{durability:?}, call {call} of {calls}, all behind: {all_behind}");
            let sim = Arc::new(Sim::new(1));
            match all_behind {
                true => sim.crash_at(call, When::Before),
                false => sim.fail_at(call, Fault { kind: FaultKind::Eio, sticky: false }),
            }
            let acknowledged = fill_in_time(&sim, durability);
            let acknowledged = acknowledged.unwrap_or_else(|| panic!("it did not end: {what}"));
            fired += sim.faults_fired();
            let sim =
                if all_behind { sim.crash_image(&Survival::All, 1) } else { sim.clone_disk() };
            let store = Store::open("/events", StoreOptions { durability, ..options(&sim) });
            let store = store.unwrap_or_else(|error| panic!("{error}: {what}"));
            let read = outline(store.read("a", Revision::START, Direction::Forwards));
            assert!(read.len() as u64 >= acknowledged, "{} of {acknowledged}: {what}", read.len());
            assert!(read.iter().map(|(_, id)| *id).eq((0..read.len() as u64).map(id)), "{what}");
            assert!(store.verify().expect("verified").damage.is_empty(), "{what}");
        }
        assert!(fired > calls / 2, "{fired} of {calls}");
    }
}

/// Whoever appends with one process for each event opens the store as often. Each of them left a
/// chunk with all the room it was made with, soon 32 MiB: thirty such appends took a gigabyte.
#[test]
fn a_chunk_takes_no_more_room_than_it_needs_once_the_store_is_closed() {
    let sim = Sim::new(1);
    let settings = || StoreOptions { chunk_bytes: 32 << 20, ..options(&sim) };
    for number in 0..6 {
        let store = Store::open("/events", settings()).expect("opened");
        append_large(&store, "a", number, 3000);
        store.close().expect("closed");
    }
    let files = sim.env().files;
    let chunks = files.read_dir("/events/log".as_ref()).expect("read");
    let lengths: Vec<u64> = chunks
        .iter()
        .map(|chunk| {
            let path = std::path::Path::new("/events/log").join(&chunk.name);
            files.open(&path, Access::Read).expect("opened").len().expect("known")
        })
        .collect();
    assert_eq!(lengths.len(), 6);
    assert!(lengths.iter().all(|bytes| *bytes < 4000), "{lengths:?}");
    let store = Store::open("/events", settings()).expect("opened");
    let read = outline(store.read("a", Revision::START, Direction::Forwards));
    assert!(read.into_iter().eq((0..6).map(|number| (number, id(number)))));
    assert!(store.verify().expect("verified").damage.is_empty());
}

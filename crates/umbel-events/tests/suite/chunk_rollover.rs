//! Continuing in the next chunk while the disk refuses a call: each possible call alone, or the
//! call and all later ones. Also the disk space of chunks that are not filled.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use umbel_env::{Access, Env};
use umbel_events::{
    Direction, Durability, ExpectedVersion, NewEvent, Revision, Store, StoreOptions,
};
use umbel_sim::{CrashSide, Fault, FaultKind, Sim, Survival};

use super::support::{append_large, id, options, outline};

/// Upper bound of a wait for a result, which takes milliseconds.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);
/// Number of events that three chunks hold.
const EVENTS: u64 = 60;

/// Appends until all events are in the store, or until the disk stops and a refused append is
/// refused once more. Opens the store again when an error message advises that. Returns the number
/// of acknowledged events.
fn fill(sim: &Sim, settings: &dyn Fn() -> StoreOptions) -> u64 {
    // At most one call fails, unless all do.
    let open =
        || Store::open("/events", settings()).or_else(|_| Store::open("/events", settings()));
    let data = vec![7; 3000];
    let (mut number, mut refusals) = (0, 0);
    let Ok(mut store) = open() else { return 0 };
    while number < EVENTS && refusals < 2 {
        let event = NewEvent::binary(id(number), "Large", &data);
        match store.append("a", ExpectedVersion::Any, &[event]) {
            Ok(_) => number += 1,
            Err(_) if sim.is_dead() => refusals += 1,
            Err(error) if error.to_string().contains("open it again") => {
                drop(store);
                store = open().expect("opened again");
            }
            // Retried at once.
            Err(_) => {}
        }
    }
    // The result after a failure does not matter here.
    let _ = store.close();
    number
}

/// Runs [`fill`] in a thread, so that an endless call is noticed.
fn fill_in_time(sim: &Arc<Sim>, durability: Durability) -> Option<u64> {
    let (sender, ended) = mpsc::channel();
    let disk = Arc::clone(sim);
    let filling = move || {
        let settings = || StoreOptions { durability, ..options(&disk) };
        let _ = sender.send(fill(&disk, &settings));
    };
    let thread = Env::system().threads.spawn("fill", Box::new(filling)).expect("a thread");
    let ended = ended.recv_timeout(WAIT_TIMEOUT);
    (ended != Err(mpsc::RecvTimeoutError::Timeout) && thread.join()).then(|| ended.ok()).flatten()
}

/// Regression: the end of a chunk could not be written while the log continued in the next chunk.
/// The next chunk existed and was empty, and the events before it counted as missing from the index
/// forever: the next append never ended.
#[test]
fn failed_rollover_does_not_block_the_next_append() {
    for durability in [Durability::Buffered, Durability::Synced] {
        let probe = Arc::new(Sim::new(1));
        assert_eq!(fill_in_time(&probe, durability), Some(EVENTS));
        let calls = probe.calls();
        let mut fired = 0;
        for (call, is_kill) in (1..calls).flat_map(|call| [(call, false), (call, true)]) {
            let what = format!("{durability:?}, call {call} of {calls}, killed: {is_kill}");
            let sim = Arc::new(Sim::new(1));
            match is_kill {
                true => sim.crash_at(call, CrashSide::Before),
                false => sim.fail_at(call, Fault { kind: FaultKind::Eio, sticky: false }),
            }
            let acknowledged = fill_in_time(&sim, durability);
            let acknowledged = acknowledged.unwrap_or_else(|| panic!("it did not end: {what}"));
            fired += sim.faults_fired();
            let sim = if is_kill { sim.crash_image(&Survival::All, 1) } else { sim.clone_disk() };
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

/// Regression: a program that starts one process per event opens the store for every event. Each
/// process left a chunk with all its preallocated space, soon 32 MiB: thirty such appends took a
/// gigabyte.
#[test]
fn close_frees_unused_chunk_space() {
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

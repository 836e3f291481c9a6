//! The directory backend on the crash disk: power loss, failing calls, lost answers.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use umbel_env::{Creation, ObjectErrorKind, ObjectName, Objects};
use umbel_objects::DirectoryObjects;
use umbel_sim::{CrashSide, Fault, FaultKind, Sim, Survival};

const ROOT: &str = "/objects";

fn name(text: &str) -> ObjectName {
    ObjectName::new(text).unwrap()
}

/// A machine with an empty directory of objects.
fn machine(seed: u64) -> Sim {
    let sim = Sim::new(seed);
    let files = sim.env().files;
    files.create_dir_all(Path::new(ROOT)).unwrap();
    files.sync_dir(Path::new("/")).unwrap();
    sim
}

fn open(sim: &Sim) -> DirectoryObjects {
    DirectoryObjects::open(&sim.env(), Path::new(ROOT)).unwrap()
}

fn read(store: &DirectoryObjects, text: &str) -> Option<Vec<u8>> {
    let found = store.read(&name(text), 0..1 << 30).unwrap().value;
    found.map(|found| found.bytes)
}

/// The promises of a run to its caller.
#[derive(Debug, Default, PartialEq, Eq)]
struct Promises {
    /// Objects that must exist.
    created: BTreeMap<&'static str, Vec<u8>>,
    /// Names that may or may not be those of these objects.
    unknown: BTreeMap<&'static str, Vec<u8>>,
    /// Names that no object may have.
    absent: Vec<&'static str>,
}

/// Objects of the script, some in directories that do not exist yet.
const OBJECTS: [(&str, usize); 5] =
    [("STORE", 40), ("slots/1", 3000), ("slots/2", 0), ("a/b/c/d", 9000), ("chunks/1-x", 700_000)];

fn run(store: &DirectoryObjects) -> Promises {
    let mut promises = Promises::default();
    for (index, (text, len)) in OBJECTS.into_iter().enumerate() {
        let bytes = vec![index as u8 + 1; len];
        let outcome = match text.starts_with("chunks") {
            true => match store.put(&name(text), &bytes) {
                Ok(_) => Ok(Creation::Created),
                Err(error) => Ok(Creation::Unknown(error)),
            },
            false => store.create(&name(text), &bytes).map(|answer| answer.value),
        };
        match outcome {
            Ok(Creation::Created) => drop(promises.created.insert(text, bytes)),
            Ok(Creation::Unknown(_)) => drop(promises.unknown.insert(text, bytes)),
            Ok(Creation::Exists) => panic!("{text} was new"),
            Err(_) => promises.absent.push(text),
        }
    }
    let deleted = "slots/1";
    if let Some(bytes) = promises.created.remove(deleted) {
        match store.delete(&name(deleted)) {
            Ok(_) => promises.absent.push(deleted),
            Err(_) => drop(promises.unknown.insert(deleted, bytes)),
        }
    }
    promises
}

fn broken(store: &DirectoryObjects, promises: &Promises) -> Option<String> {
    for (text, bytes) in &promises.created {
        if read(store, text).as_ref() != Some(bytes) {
            return Some(format!("{text} is lost or damaged"));
        }
    }
    for (text, bytes) in &promises.unknown {
        if read(store, text).is_some_and(|found| found != *bytes) {
            return Some(format!("{text} is a part of an object"));
        }
    }
    let found = promises.absent.iter().find(|text| read(store, text).is_some());
    found.map(|text| format!("{text} exists"))
}

/// Cuts the power before and after each call that changes the disk. Returns the first promise that
/// an image breaks, and the number of images.
fn cut_everywhere(ignored: &[&str]) -> (Option<String>, u64) {
    let prepared = |sim: &Sim| ignored.iter().for_each(|pattern| sim.ignore_calls(pattern));
    let sim = machine(1);
    prepared(&sim);
    run(&open(&sim));
    let mut images = 0;
    for call in sim.changing_calls() {
        for side in [CrashSide::Before, CrashSide::After] {
            let sim = machine(1);
            prepared(&sim);
            sim.crash_at(call, side);
            let Ok(store) = DirectoryObjects::open(&sim.env(), Path::new(ROOT)) else { continue };
            let promises = run(&store);
            for seed in 0..12 {
                let policy = match seed {
                    0 => Survival::None,
                    1 => Survival::All,
                    2 => Survival::NamesOnly,
                    seed => Survival::any(seed, sim.pending_units()),
                };
                let image = sim.crash_image(&policy, seed);
                images += 1;
                if let Some(reason) = broken(&open(&image), &promises) {
                    return (Some(format!("call {call} {side:?} {policy:?}: {reason}")), images);
                }
            }
        }
    }
    (None, images)
}

#[test]
fn confirmed_objects_survive_a_power_loss_and_others_are_whole() {
    let (reason, images) = cut_everywhere(&[]);
    assert_eq!(reason, None);
    assert!(images > 1000, "{images}");
}

/// Without a sync the test above must find a lost or partial object.
#[test]
fn a_forgotten_sync_is_found() {
    for ignored in ["sync", "sync_dir"] {
        let (reason, _) = cut_everywhere(&[ignored]);
        assert!(reason.is_some(), "{ignored} is never needed");
    }
}

/// A writer that dies between the link and the sync of the directory leaves a name that a power
/// loss can remove. Another process that reads the object, or is refused its name, relies on it.
#[test]
fn an_object_that_was_read_or_found_survives_a_power_loss() {
    for reads in [true, false] {
        let sim = machine(2);
        let writer = open(&sim);
        assert_eq!(writer.create(&name("slots/0"), b"x").unwrap().value, Creation::Created);
        sim.fail_site("sync_dir", 1, Fault { kind: FaultKind::Eio, sticky: false });
        let outcome = writer.create(&name("slots/1"), b"first").unwrap().value;
        assert!(matches!(outcome, Creation::Unknown(_)), "{outcome:?}");
        assert!(read(&open(&sim.crash_image(&Survival::None, 1)), "slots/1").is_none());
        let other = open(&sim);
        if reads {
            assert_eq!(read(&other, "slots/1").unwrap(), b"first");
        } else {
            let outcome = other.create(&name("slots/1"), b"second").unwrap().value;
            assert_eq!(outcome, Creation::Exists);
        }
        let image = open(&sim.crash_image(&Survival::None, 1));
        assert_eq!(read(&image, "slots/1").as_deref(), Some(&b"first"[..]), "reads: {reads}");
    }
}

#[test]
fn each_failing_call_gives_a_true_outcome() {
    let sim = machine(3);
    run(&open(&sim));
    let calls = sim.calls();
    let mut outcomes = [0, 0, 0];
    for kind in [FaultKind::Eio, FaultKind::Enospc, FaultKind::Emfile, FaultKind::Eacces] {
        for sticky in [false, true] {
            for call in 1..=calls {
                let sim = machine(3);
                sim.fail_at(call, Fault { kind, sticky });
                let Ok(store) = DirectoryObjects::open(&sim.env(), Path::new(ROOT)) else {
                    continue;
                };
                let promises = run(&store);
                outcomes[0] += promises.created.len();
                outcomes[1] += promises.unknown.len();
                outcomes[2] += promises.absent.len();
                sim.heal();
                let later = broken(&open(&sim), &promises);
                assert_eq!(later, None, "{kind:?} {sticky} at {call}: {:?}", sim.site_of(call));
                let image = sim.crash_image(&Survival::None, 1);
                let later = broken(&open(&image), &promises);
                assert_eq!(later, None, "power: {kind:?} {sticky} at {call}");
            }
        }
    }
    assert!(outcomes.iter().all(|count| *count > 100), "{outcomes:?}");
}

/// A network file system repeats a link whose answer was lost, and reports that the name exists.
#[test]
fn link_without_an_answer_counts_as_done() {
    for error_number in [17, 5] {
        let sim = machine(4);
        let store = open(&sim);
        sim.lose_answer("hard_link", 1, error_number);
        let outcome = store.create(&name("slots/1"), b"x").unwrap().value;
        assert_eq!(outcome, Creation::Created, "{error_number}");
        assert_eq!(sim.faults_fired(), 1);
        let image = sim.crash_image(&Survival::None, 1);
        assert_eq!(read(&open(&image), "slots/1").as_deref(), Some(&b"x"[..]));
    }
}

/// Without an answer of the server, a link can take effect later. A full disk is an answer.
#[test]
fn link_that_fails_without_an_answer_is_unknown() {
    for (kind, is_certain) in [(FaultKind::Eio, false), (FaultKind::Enospc, true)] {
        let sim = machine(8);
        let store = open(&sim);
        sim.fail_site("hard_link", 1, Fault { kind, sticky: false });
        let outcome = store.create(&name("slots/1"), b"x");
        assert_eq!(outcome.is_err(), is_certain, "{outcome:?}");
        let is_unknown = outcome.is_ok_and(|o| matches!(o.value, Creation::Unknown(_)));
        assert_eq!(is_unknown, !is_certain);
        assert_eq!(read(&store, "slots/1"), None);
    }
}

/// Story: a creation stated the time at which its bytes were written. A machine paused before the
/// link. Its own clock and the stated time both hid the pause, within which the name could have
/// been used and deleted.
#[test]
fn time_of_a_creation_is_not_before_its_link() {
    let pause = Duration::from_secs(3 * 3600);
    let (mut before_link, mut after_link) = (0, 0);
    for call in 1.. {
        let sim = machine(9);
        let store = open(&sim);
        let first = store.create(&name("slots/1"), b"x").unwrap().store_micros.unwrap();
        let is_linked = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&is_linked);
        sim.schedule_before_call(sim.calls() + call, move |sim| {
            let exists = sim.env().files.exists(Path::new("/objects/slots/2")).unwrap();
            seen.store(exists, Ordering::Relaxed);
            sim.advance(pause);
        });
        let second = store.create(&name("slots/2"), b"x").unwrap();
        if sim.clear_scheduled() > 0 {
            break;
        }
        assert_eq!(second.value, Creation::Created);
        if is_linked.load(Ordering::Relaxed) {
            after_link += 1;
            continue;
        }
        before_link += 1;
        let passed = second.store_micros.unwrap() - first;
        assert!(passed >= pause.as_micros() as u64, "call {call}: {passed} µs");
    }
    assert!(before_link > 3 && after_link > 1, "{before_link} before, {after_link} after");
}

#[test]
fn file_system_without_links_is_refused() {
    let sim = machine(5);
    sim.allow_links(false);
    let error = open(&sim).create(&name("slots/1"), b"x").unwrap_err();
    assert_eq!(error.kind, ObjectErrorKind::Refused);
    assert!(error.to_string().contains("has no hard links"), "{error}");
    assert!(sim.env().files.read_dir(Path::new("/objects/.temporary")).unwrap().is_empty());
}

#[test]
fn full_disk_is_temporary_and_says_so() {
    let sim = machine(6);
    sim.set_capacity(100_000);
    let store = open(&sim);
    let error = store.create(&name("slots/1"), &[1; 200_000]).unwrap_err();
    assert!(error.is_temporary() && error.to_string().contains("free space"), "{error}");
    assert_eq!(store.create(&name("slots/1"), &[1; 90_000]).unwrap().value, Creation::Created);
}

#[test]
fn temporary_files_of_dead_writers_are_removed_after_an_hour() {
    let sim = machine(7);
    let store = open(&sim);
    sim.fail_site("remove", 1, Fault { kind: FaultKind::Eio, sticky: true });
    store.create(&name("slots/1"), b"x").unwrap();
    sim.heal();
    let left =
        |sim: &Sim| sim.env().files.read_dir(Path::new("/objects/.temporary")).unwrap().len();
    // That of the object, and that of the time.
    assert_eq!(left(&sim), 2);
    let sim = sim.kill_image();
    sim.advance(Duration::from_secs(3500));
    open(&sim).create(&name("slots/2"), b"x").unwrap();
    assert_eq!(left(&sim), 2, "their writer can be alive");
    sim.advance(Duration::from_secs(200));
    let names = |store: &DirectoryObjects| store.list("", None, 9).unwrap().value.objects.len();
    let store = open(&sim);
    assert_eq!(names(&store), 2);
    store.create(&name("slots/3"), b"x").unwrap();
    assert_eq!((left(&sim), names(&store)), (0, 3));
    assert_eq!(read(&store, "slots/1").as_deref(), Some(&b"x"[..]));
}

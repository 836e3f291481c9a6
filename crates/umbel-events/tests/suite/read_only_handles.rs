//! Read-only handles beside a writer. Each handle sees every event acknowledged before its open, no
//! handle reports false damage, and the writer is never blocked.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use umbel_env::{Access, Env};
use umbel_events::{
    CopyOptions, Direction, Durability, Error, ExpectedVersion, NewEvent, Position, Result,
    Revision, Store, StoreOptions,
};
use umbel_sim::{Mount, Sim};

use super::file_system_hooks::{FileCall, with_hook};
use super::scavenge::{all, append_each, set_metadata};
use super::support::{id, options};

const PATH: &str = "/events";
const MOUNTED: &str = "/mounted";
/// Number of readable events of the stream "kept", as its metadata says.
const KEPT: u64 = 40;

fn with_env(sim: &Sim, env: Env) -> StoreOptions {
    StoreOptions { env, create_if_missing: false, ..options(sim) }
}

/// Writer that changes every kind of file.
pub struct Writer {
    settings: StoreOptions,
    path: std::path::PathBuf,
    store: Mutex<Option<Store>>,
    round: AtomicU64,
}

impl Writer {
    pub fn open(path: &Path, settings: StoreOptions, round: u64) -> Result<Writer> {
        let store = Store::open(path, settings.clone())?;
        if round == 1 {
            let keeps = format!("{{\"$maxCount\":{KEPT}}}");
            set_metadata(&store, "kept-1", 1 << 40, &keeps);
            set_metadata(&store, "short-1", 2 << 40, r#"{"$maxCount":1}"#);
        }
        let (store, round) = (Mutex::new(Some(store)), AtomicU64::new(round));
        Ok(Writer { settings, path: path.to_path_buf(), store, round })
    }

    fn new(sim: &Sim) -> Writer {
        Writer::open(Path::new(PATH), options(sim), 1).expect("a new store")
    }

    /// Newest round whose events were acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.round.load(Ordering::SeqCst) - 1
    }

    /// Makes one step: appends, and sometimes a flush, a scavenge or a new process life.
    pub fn step(&self) {
        let mut guard = self.store.lock().expect("no step panicked");
        let store = guard.as_ref().expect("it is open");
        let round = self.round.load(Ordering::SeqCst);
        let data = [&round.to_le_bytes()[..], &vec![round as u8; 3000]].concat();
        for (number, stream) in [(2 * round, "kept-1"), (2 * round + 1, "short-1")] {
            let event = NewEvent::binary(id(number), "Stepped", &data);
            store.append(stream, ExpectedVersion::Any, &[event]).expect("appended");
        }
        self.round.store(round + 1, Ordering::SeqCst);
        match round % 12 {
            4 => store.flush().expect("flushed"),
            9 => drop(store.scavenge(&all()).expect("scavenged")),
            11 => {
                guard.take().expect("it is open").close().expect("closed");
                *guard = Some(Store::open(&self.path, self.settings.clone()).expect("opened"));
            }
            _ => {}
        }
    }

    fn stats(&self) -> umbel_events::Stats {
        let guard = self.store.lock().expect("no step panicked");
        guard.as_ref().expect("it is open").stats().expect("stats")
    }

    /// Ends the process life like `kill -9`.
    fn kill(&self) {
        std::mem::forget(self.store.lock().expect("no step panicked").take());
    }
}

/// Numbers of the rounds whose events a stream shows.
fn rounds(store: &Store, stream: &str) -> Result<Vec<u64>> {
    let events = store.read(stream, Revision::START, Direction::Forwards);
    let round = |event: umbel_events::RecordedEvent| {
        let round = u64::from_le_bytes(*event.data.first_chunk().expect("eight bytes"));
        assert_eq!(event.data[8..], vec![round as u8; 3000], "{stream}: round {round}");
        assert_eq!(event.revision, round - 1, "{stream}");
        round
    };
    events.map(|event| event.map(round)).collect()
}

/// Checks that a handle sees one prefix of the log that is not older than `acknowledged`, with a
/// correct index. Returns the last round in the prefix.
pub fn check(store: &Store, acknowledged: u64) -> Result<u64> {
    let report = store.verify()?;
    assert!(report.damage.is_empty(), "{:?}", report.damage);
    assert_eq!(report.index.damage, Vec::<String>::new());
    let kept = rounds(store, "kept-1")?;
    let newest = kept.last().copied().unwrap_or(0);
    assert!(newest >= acknowledged, "sees {newest}, but {acknowledged} had been acknowledged");
    let wanted: Vec<u64> = (newest.saturating_sub(KEPT - 1).max(1)..=newest).collect();
    assert_eq!(kept, wanted);
    let short = rounds(store, "short-1")?;
    // An event of this stream follows that of the other.
    let is_prefix = short == [newest] || newest > 0 && short == [newest - 1];
    assert!(is_prefix || short.is_empty() && newest <= 1, "{short:?} beside {newest}");
    let mut last = None;
    for event in store.read_all(Position::START, Direction::Forwards) {
        last = Some(event?);
    }
    let seen = last.map(|event| event.position);
    assert_eq!(seen, Some(store.visible_position().0).filter(|position| *position > 0));
    // Views count scavenged events, too.
    for (view, count) in [("$ce-kept", newest), ("$ce-short", short.first().copied().unwrap_or(0))]
    {
        let last = store.view(view, Position::END)?.map_or(0, |state| state.last + 1);
        assert_eq!(last, count, "{view}");
    }
    let links = store.read_view("$ce-kept", Revision::START, Direction::Forwards, Position::END);
    let mut shown = Vec::new();
    for link in links {
        let link = link?;
        if let Some(event) = link.event {
            assert_eq!(link.link.revision, event.revision, "an event of one stream has its number");
            shown.push(event.revision + 1);
        }
    }
    assert!(shown.ends_with(&wanted), "{shown:?}");
    Ok(newest)
}

/// A store with scavenged chunks, and one with an active chunk, on a disk that can be copied.
fn prepared() -> Sim {
    let sim = Sim::new(1);
    let writer = Writer::new(&sim);
    (0..70).for_each(|_| writer.step());
    let store = writer.store.lock().expect("no step panicked").take().expect("it is open");
    assert!(store.stats().expect("stats").scavenged_chunks > 2);
    store.close().expect("closed");
    sim
}

/// Whether readers of the event store pin versions in this file.
fn is_lock(path: &Path) -> bool {
    [PATH, MOUNTED].iter().any(|store| path == Path::new(store).join("LOCK"))
}

/// Opens and checks a store while a writer makes all its steps before one call, for one call in
/// `every`. Calls `opened` after each open, and returns the number of calls.
fn with_steps_before_calls(
    (mount, every, has_pins): (Option<Mount>, usize, bool),
    settings: impl Fn(&Sim) -> StoreOptions,
    mut opened: impl FnMut(u64, Result<u64>),
) -> u64 {
    let base = prepared();
    for at in (0..).step_by(every) {
        let sim = base.clone_disk();
        let writer = Arc::new(Writer::open(Path::new(PATH), settings(&sim), 71).expect("opened"));
        // So the index lacks events, and a chunk is almost full.
        (0..at % 11).for_each(|_| writer.step());
        if let Some(mount) = mount {
            sim.make_dir(MOUNTED);
            sim.mount(PATH, MOUNTED, mount);
        }
        let (calls, steps) = (Arc::new(AtomicU64::new(0)), Arc::clone(&writer));
        let (counted, pins) = (Arc::clone(&calls), Arc::new(AtomicU64::new(0)));
        let pinned = Arc::clone(&pins);
        let env = with_hook(sim.env(), move |_, path| {
            pinned.fetch_add(u64::from(is_lock(path)), Ordering::Relaxed);
            if counted.fetch_add(1, Ordering::Relaxed) == at as u64 {
                (0..13).for_each(|_| steps.step());
            }
        });
        let acknowledged = writer.acknowledged();
        let path = if mount.is_some() { MOUNTED } else { PATH };
        let store = Store::open_read_only(path, with_env(&sim, env));
        opened(at as u64, store.and_then(|store| check(&store, acknowledged)));
        let pins = pins.load(Ordering::Relaxed);
        assert!(pins >= 2 || !has_pins, "before call {at}: {pins} pins");
        if calls.load(Ordering::Relaxed) <= at as u64 {
            return at as u64;
        }
    }
    0
}

/// Regression: a read-only open of an event store took the exclusive lock. Beside a writer, and
/// through a read-only mount, such an open was refused. In this test the writer appends, flushes,
/// scavenges and starts a new process life before each call of a read-only open. The writer does
/// the same before each call of `verify` and of the later reads.
#[test]
fn read_only_open_succeeds_beside_any_writer_step() {
    for mount in [None, Some(Mount::ReadOnly), Some(Mount::WithoutPermission)] {
        let (durability, every) = match mount {
            None => (Durability::Synced, 1),
            Some(_) => (Durability::Buffered, 5),
        };
        let settings = |sim: &Sim| StoreOptions { durability, ..options(sim) };
        let calls = with_steps_before_calls((mount, every, true), settings, |at, found| {
            found.unwrap_or_else(|error| panic!("{mount:?}, before call {at}: {error}"));
        });
        assert!(calls > 60, "the reader made {calls} calls");
    }
}

/// A read-only open succeeds beside a writer that makes a step before every call, so that no two
/// calls of the reader see the same files.
#[test]
fn continuous_writer_does_not_block_readers() {
    for durability in [Durability::Buffered, Durability::Synced] {
        let sim = prepared();
        let settings = StoreOptions { durability, ..options(&sim) };
        let writer = Arc::new(Writer::open(Path::new(PATH), settings, 71).expect("opened"));
        for open in 0..6 {
            let steps = Arc::clone(&writer);
            let calls = AtomicU64::new(0);
            // Not before all of them in a long open: the log would grow faster than it is read.
            let env = with_hook(sim.env(), move |moment, _| {
                let calls = calls.fetch_add(1, Ordering::Relaxed);
                if calls < 80 || matches!(moment, FileCall::Reading(_)) && calls.is_multiple_of(16)
                {
                    steps.step();
                }
            });
            let acknowledged = writer.acknowledged();
            let store = Store::open_read_only(PATH, with_env(&sim, env))
                .unwrap_or_else(|error| panic!("open {open}: {error}"));
            check(&store, acknowledged).unwrap_or_else(|error| panic!("open {open}: {error}"));
            assert!(writer.acknowledged() > acknowledged + 20, "the writer went on meanwhile");
        }
    }
}

/// If no pin is available, the writer may remove files that the reader needs. The reader's error
/// then advises to open the store again, and does not report damage.
#[test]
fn reader_without_pin_gets_reopen_error() {
    let (mut stale, mut whole) = (0, 0);
    let settings = |sim: &Sim| {
        sim.allow_pins(false);
        options(sim)
    };
    with_steps_before_calls((None, 3, false), settings, |at, found| match found {
        Ok(_) => whole += 1,
        Err(Error::Store(umbel::Error::Stale { .. })) => stale += 1,
        Err(error) => panic!("before call {at}: {error}"),
    });
    assert!(stale > 0, "the writer removed what a reader needed");
    assert!(whole > 20, "an open retries and succeeds: {whole} and {stale}");
}

/// Files that a reader pins stay on disk, even if the writer's process is replaced, and are removed
/// once no reader needs them. A reader that opens later pins no files that were obsolete before.
#[test]
fn obsolete_chunks_are_removed_after_the_last_reader() {
    let sim = prepared();
    let writer = Writer::open(Path::new(PATH), options(&sim), 71).expect("opened");
    let first = Store::open_read_only(PATH, with_env(&sim, sim.env())).expect("opened");
    (0..30).for_each(|_| writer.step());
    let stats = writer.stats();
    assert!(stats.pinned_files > 2 && stats.pinned_file_bytes > 0, "{stats:?}");
    let files = sim.env().files.read_dir(Path::new("/events/log")).expect("listed").len();
    let again = writer.store.lock().expect("no step panicked").take().expect("it is open");
    again.close().expect("closed");
    *writer.store.lock().expect("no step panicked") =
        Some(Store::open(PATH, options(&sim)).expect("opened"));
    check(&first, 70).expect("it reads what it opened");
    let second = Store::open_read_only(PATH, with_env(&sim, sim.env())).expect("opened");
    assert!(writer.stats().pinned_files > 2, "the manifest lists them after a restart");
    writer.step();
    drop(first);
    assert_eq!(writer.stats().pinned_files, 0, "the second reader knows none of them");
    check(&second, writer.acknowledged() - 1).expect("it reads what it opened");
    assert!(sim.env().files.read_dir(Path::new("/events/log")).expect("listed").len() < files);
}

/// Damage is found beside a writer, too: in an ended chunk, and in the active one.
#[test]
fn damage_is_detected_beside_a_writer() {
    let sim = prepared();
    let writer = Writer::open(Path::new(PATH), options(&sim), 71).expect("opened");
    (0..5).for_each(|_| writer.step());
    let entries = sim.env().files.read_dir(Path::new("/events/log")).expect("listed");
    let names: Vec<_> = entries.iter().map(|entry| entry.name.clone()).collect();
    assert!(names.len() > 3, "{names:?}");
    for name in &names {
        let disk = sim.clone_disk();
        let path = Path::new("/events/log").join(name);
        let store = Store::open_read_only(PATH, with_env(&disk, disk.env())).expect("opened");
        let file = disk.env().files.open(&path, Access::ReadWrite).expect("opened");
        if file.len().expect("a length") < 400 {
            // Only the list of removed events is left of this chunk.
            continue;
        }
        let mut bytes = [0; 64];
        file.read_exact_at(&mut bytes, 300).expect("read");
        if bytes == [0; 64] {
            // The prepared next chunk.
            continue;
        }
        file.write_all_at(&bytes.map(|byte| !byte), 300).expect("written");
        let report = store.verify().expect("verified");
        assert!(!report.damage.is_empty(), "{name}");
        if Some(name) == names.last() {
            // Nothing distinguishes these bytes from a tail that a kill tore.
            continue;
        }
        let again = Store::open_read_only(PATH, with_env(&disk, disk.env()));
        let is_found = again.map(|store| !store.verify().expect("verified").damage.is_empty());
        assert!(is_found.unwrap_or(true), "{name}");
    }
    let name = names.iter().find(|name| name.contains('-')).expect("a scavenged chunk");
    let disk = sim.clone_disk();
    disk.remove_tree(Path::new("/events/log").join(name));
    let missing = Store::open_read_only(PATH, with_env(&disk, disk.env()));
    let message = missing.expect_err("a file that the manifest names is missing").to_string();
    assert!(message.contains("missing"), "{message}");
}

/// Regression: a scavenge removed a run of events that began within the reader's index and ended
/// after it. The list of removed events has one position for a run. So the reader's views lacked
/// the numbers of the run's events after the end of the index.
#[test]
fn scavenge_after_index_open_keeps_view_numbers() {
    for at in 0.. {
        let sim = Sim::new(9);
        let writer = Store::open(PATH, options(&sim)).expect("a new store");
        append_each(&writer, "gone-1", 0..5, 1000);
        writer.flush().expect("flushed");
        append_each(&writer, "gone-1", 5..10, 1000);
        let (calls, steps) = (Arc::new(AtomicU64::new(0)), writer.clone());
        let counted = Arc::clone(&calls);
        let env = with_hook(sim.env(), move |_, _| {
            if counted.fetch_add(1, Ordering::Relaxed) == at {
                append_each(&steps, "gone-1", 10..20, 1000);
                steps.delete("gone-1", ExpectedVersion::Any).expect("deleted");
                append_each(&steps, "stays-1", 1000..1080, 1000);
                steps.flush().expect("flushed");
                let report = steps.scavenge(&all()).expect("scavenged");
                assert!(report.events_removed >= 19, "{report:?}");
            }
        });
        let reader = Store::open_read_only(PATH, with_env(&sim, env)).expect("opened");
        for view in ["$ce-gone", "$ce-stays", "$et-Happened", "$streams"] {
            let last = |store: &Store| {
                store.view(view, reader.visible_position()).expect("a view").map(|state| state.last)
            };
            assert_eq!(last(&reader), last(&writer), "{view}, before call {at}");
        }
        assert!(reader.verify().expect("verified").damage.is_empty(), "before call {at}");
        if calls.load(Ordering::Relaxed) <= at {
            return assert!(at > 40, "the reader made {at} calls");
        }
    }
}

/// The next chunk is prepared before the active one is full. A reader read the active chunk before
/// its end, then the next one, whose records prove that the previous one was durable to its end.
/// This state looks like damage but is not: the reader reads both chunks again without a new open.
#[test]
fn chunk_that_ends_during_tail_read_is_read_again() {
    for at in 0.. {
        let sim = Sim::new(10);
        let settings =
            StoreOptions { durability: Durability::Synced, background_threads: 1, ..options(&sim) };
        let writer = Store::open(PATH, settings).expect("a new store");
        append_each(&writer, "a", 0..1, 1000);
        let manifest = sim.read("/events/CHUNKS");
        append_each(&writer, "a", 1..40, 1000);
        while sim.read("/events/CHUNKS") == manifest {
            std::thread::yield_now();
        }
        let (calls, steps) = (Arc::new(AtomicU64::new(0)), writer.clone());
        let (counted, pins) = (Arc::clone(&calls), Arc::new(AtomicU64::new(0)));
        let pinned = Arc::clone(&pins);
        let env = with_hook(sim.env(), move |_, path| {
            pinned.fetch_add(u64::from(is_lock(path)), Ordering::Relaxed);
            if counted.fetch_add(1, Ordering::Relaxed) == at {
                append_each(&steps, "a", 40..80, 1000);
            }
        });
        let reader = Store::open_read_only(PATH, with_env(&sim, env)).expect("opened");
        let count = reader.read("a", Revision::START, Direction::Forwards).count();
        assert!(count >= 40, "before call {at}: {count}");
        assert!(reader.verify().expect("verified").damage.is_empty(), "before call {at}");
        assert_eq!(pins.load(Ordering::Relaxed), 2, "before call {at}");
        if calls.load(Ordering::Relaxed) <= at {
            return assert!(at > 40, "the reader made {at} calls");
        }
    }
}

/// Several read-only handles at once, a writer that opens beside them, and a killed writer whose
/// store was not closed. The readers use the same path, a read-only mount, and a user without write
/// access. No byte is changed.
#[test]
fn readers_and_writers_do_not_exclude_each_other() {
    let sim = prepared();
    let writer = Writer::open(Path::new(PATH), options(&sim), 71).expect("opened");
    (0..7).for_each(|_| writer.step());
    let handles: Vec<Store> = (0..4)
        .map(|_| Store::open_read_only(PATH, with_env(&sim, sim.env())).expect("opened"))
        .collect();
    let second = Store::open(PATH, options(&sim)).expect_err("one writer");
    assert!(matches!(second, Error::Store(umbel::Error::Locked(_))), "{second}");
    drop(writer);
    let writer =
        Writer::open(Path::new(PATH), options(&sim), 78).expect("readers exclude no other");
    for store in &handles {
        assert_eq!(check(store, 77).expect("read"), 77);
    }
    (0..5).for_each(|_| writer.step());
    writer.kill();
    for mount in [None, Some(Mount::ReadOnly), Some(Mount::WithoutPermission)] {
        let image = sim.kill_image();
        let path = match mount {
            None => PATH,
            Some(mount) => {
                image.make_dir(MOUNTED);
                image.mount(PATH, MOUNTED, mount);
                MOUNTED
            }
        };
        let bytes = |image: &Sim| -> Vec<_> {
            image.files().into_iter().map(|path| (path.clone(), image.read(path))).collect()
        };
        let before = bytes(&image);
        let store = Store::open_read_only(path, with_env(&image, image.env())).expect("killed");
        assert_eq!(check(&store, 82).expect("read"), 82);
        assert!(store.append("kept-1", ExpectedVersion::Any, &[]).is_err());
        store.close().expect("closed");
        assert!(bytes(&image) == before, "some file changed");
    }
}

/// Regression: a backup through a read-only handle could hold events that a power cut removes from
/// the store.
#[test]
fn read_only_backup_excludes_unsynced_events() {
    let sim = prepared();
    let closed = Store::open_read_only(PATH, with_env(&sim, sim.env())).expect("opened");
    closed.backup("/backup", CopyOptions::default()).expect("a closed store is durable");
    let writer = Writer::open(Path::new(PATH), options(&sim), 71).expect("opened");
    // After a new process life, which ends the first step.
    (0..2).for_each(|_| writer.step());
    let reader_handle = Store::open_read_only(PATH, with_env(&sim, sim.env())).expect("opened");
    let refused = reader_handle.backup("/other", CopyOptions::default()).expect_err("not durable");
    assert!(refused.to_string().contains("let the writer make the backup"), "{refused}");
    let objects = umbel_sim::ObjectSim::new(1);
    let backup = |store: &Store| {
        let options = super::object_backups::backup_options();
        store.object_backup(objects.client(1), options).expect("opened").run_once()
    };
    let refused = backup(&reader_handle).expect_err("not durable");
    assert!(refused.to_string().contains("let the writer make the backup"), "{refused}");
    backup(&closed).expect("a closed store is durable");
}

/// A reader cannot write what it indexes to disk. So the reader's memory bounds the events that the
/// index may lack, and the error names the remedy. A store without its index needs a writer.
#[test]
fn unindexed_tail_over_memory_budget_is_rejected() {
    let sim = Sim::new(8);
    let large =
        StoreOptions { chunk_bytes: 32 << 20, memory_bytes: Some(256 << 20), ..options(&sim) };
    let store = Store::open(PATH, large.clone()).expect("a new store");
    for first in (0..100_000).step_by(500) {
        super::support::append(&store, &format!("many-{first}"), first..first + 500);
    }
    let through = store.stats().expect("stats").indexed_through;
    std::mem::forget(store);
    let image = sim.kill_image();
    let small = StoreOptions { memory_bytes: Some(8 << 20), ..with_env(&image, image.env()) };
    let refused = Store::open_read_only(PATH, small.clone()).expect_err("too much");
    assert!(matches!(refused, Error::Invalid(_)), "{refused:?}");
    let message = refused.to_string();
    assert!(message.contains(&format!("ends at position {through}")), "{message}");
    assert!(
        message.contains("raise memory_bytes, or open the store for writing once"),
        "{message}"
    );
    let large = StoreOptions { memory_bytes: Some(256 << 20), ..small.clone() };
    let store = Store::open_read_only(PATH, large).expect("enough memory");
    assert_eq!(store.read_all(Position::START, Direction::Forwards).count(), 100_000);
    assert!(store.verify().expect("verified").damage.is_empty());
    drop(store);
    Store::open(PATH, small.clone()).expect("a writer can").close().expect("closed");
    Store::open_read_only(PATH, small.clone()).expect("now a reader can");
    image.remove_tree("/events/index");
    let refused = Store::open_read_only(PATH, small).expect_err("no index").to_string();
    assert!(refused.contains("has no index") && refused.contains("for writing once"), "{refused}");
}

//! A chunk that ends while the log is being synced.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use umbel_base::Result;
use umbel_env::{Env, JoinHandle, Threads};
use umbel_events::{Direction, Durability, Expected, NewEvent, Revision, Store, StoreOptions};
use umbel_sim::{Sim, Survival};

use super::hooks::{Moment, hooked};
use super::support::{id, options, outline};

/// Nobody waits longer for another; in good order nobody waits long.
const PATIENCE: Duration = Duration::from_secs(120);
/// The name of the store's thread.
const BACKGROUND: &str = "umbel-events";

/// How far the two threads have come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Step {
    /// The first chunk is written; the store's thread does nothing yet.
    #[default]
    Filling,
    /// It does what it was asked for meanwhile.
    Preparing,
    /// Somebody will end it.
    Full,
    /// He is about to write its end; somebody else may sync.
    Ending,
    /// That one has synced the chunk without its end.
    Synced,
    /// The end is written, and an event to the next chunk about to be.
    Ended,
}

#[derive(Debug, Default)]
struct State {
    chunks: Vec<PathBuf>,
    step: Step,
}

/// Holds each thread until the other has come far enough.
#[derive(Debug, Default)]
struct Stage {
    state: Mutex<State>,
    changed: Condvar,
}

impl Stage {
    fn wait(&self, has_come: impl Fn(&State) -> bool) -> bool {
        let state = self.state.lock().expect("a lock");
        let waited = self.changed.wait_timeout_while(state, PATIENCE, |state| !has_come(state));
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    fn reach(&self, step: Step) {
        self.state.lock().expect("a lock").step = step;
        self.changed.notify_all();
    }

    fn told(&self, moment: Moment, path: &Path) {
        if path.extension().is_none_or(|extension| extension != "chunk") {
            return;
        }
        let mut state = self.state.lock().expect("a lock");
        if moment == Moment::Created {
            state.chunks.push(path.to_path_buf());
            self.changed.notify_all();
        }
        let index = state.chunks.iter().position(|chunk| chunk == path);
        let step = state.step;
        drop(state);
        match (moment, index, step) {
            (Moment::Writing, Some(0), Step::Full) => {
                self.reach(Step::Ending);
                self.wait(|state| state.step >= Step::Synced);
            }
            (Moment::Synced, Some(0), Step::Ending) => {
                self.reach(Step::Synced);
                self.wait(|state| state.step >= Step::Ended);
            }
            (Moment::Writing, Some(1), Step::Synced) => self.reach(Step::Ended),
            _ => {}
        }
    }
}

/// Threads of which the store's begins its work once the first chunk is filled. All it is asked for
/// until then it does in one round; otherwise load would say when it flushes the index, and with
/// that syncs the log.
#[derive(Debug)]
struct Held {
    threads: Arc<dyn Threads>,
    stage: Arc<Stage>,
}

impl Threads for Held {
    fn spawn(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> Result<Box<dyn JoinHandle>> {
        if name != BACKGROUND {
            return self.threads.spawn(name, work);
        }
        let stage = Arc::clone(&self.stage);
        let held = move || {
            stage.wait(|state| state.step >= Step::Preparing);
            work();
        };
        self.threads.spawn(name, Box::new(held))
    }

    fn parallelism(&self) -> usize {
        self.threads.parallelism()
    }
}

/// Waits until the index is durable up to what can be seen. Says whether that came.
fn is_flushed(store: &Store) -> bool {
    let clock = Env::system().clock;
    let until = clock.now() + PATIENCE;
    loop {
        let stats = store.stats().expect("open");
        if stats.indexed_through >= stats.position {
            return true;
        }
        if clock.now() >= until {
            return false;
        }
        store.wait_beyond(store.visible(), Duration::from_millis(1));
    }
}

/// A chunk ended after its bytes had been synced and before that sync looked whether it had ended:
/// it was taken for durable with its end, which no sync ever covered. A power cut then took the
/// end, and with it everything behind: the store refused to open, or events were gone.
#[test]
fn a_chunk_that_ends_during_a_sync_keeps_its_end() {
    let (sim, stage) = (Sim::new(1), Arc::new(Stage::default()));
    let told = Arc::clone(&stage);
    let env = hooked(sim.env(), move |moment, path| told.told(moment, path));
    let threads = Held { threads: Arc::clone(&env.threads), stage: Arc::clone(&stage) };
    let settings = StoreOptions {
        // What is synced by itself is held in memory until then, ends of chunks too.
        durability: Durability::Buffered,
        background_threads: 1,
        env: Env { threads: Arc::new(threads), ..env },
        ..options(&sim)
    };
    let store = Store::open("/events", settings).expect("a new store");
    let data = vec![7; 5000];
    let event = |number| NewEvent::binary(id(number), "Large", &data);
    for number in 0..8 {
        store.append("a", Expected::Any, &[event(number)]).expect("appended");
    }
    stage.reach(Step::Preparing);
    assert!(stage.wait(|state| state.chunks.len() == 2), "the next chunk is made ready ahead");
    assert!(is_flushed(&store), "the index is flushed behind that");
    // Nobody syncs the log unasked now. It is in the first chunk and not durable, so that a sync
    // has something to do there.
    store.append("a", Expected::Any, &[event(8)]).expect("appended");
    stage.reach(Step::Full);
    let rolling = store.clone();
    let roll = move || {
        let events = [NewEvent::binary(id(9), "Larger", &[8; 24_000])];
        rolling.append("a", Expected::Any, &events).expect("acknowledged");
    };
    let thread = Env::system().threads.spawn("roll", Box::new(roll)).expect("a thread");
    assert!(stage.wait(|state| state.step >= Step::Ending), "the chunk ends");
    store.sync().expect("synced");
    assert!(thread.join());
    assert!(stage.wait(|state| state.step == Step::Ended), "the sync met the end");
    store.sync().expect("everything is durable");
    let survived = sim.crash_image(&Survival::None, 1);
    let store = Store::open("/events", options(&survived)).expect("the store opens");
    let read = outline(store.read("a", Revision::START, Direction::Forwards));
    assert!(read.iter().map(|(_, id)| *id).eq((0..10).map(id)), "{} of 10 events", read.len());
    assert!(store.verify().expect("verified").damage.is_empty());
}

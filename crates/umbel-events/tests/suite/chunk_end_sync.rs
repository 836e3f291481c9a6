//! Tests of a chunk that ends while the log is being synced.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use umbel_base::ignore_poison::IgnorePoison;

use umbel_base::Result;
use umbel_env::{Env, JoinHandle, Threads};
use umbel_events::{
    Direction, Durability, ExpectedVersion, NewEvent, Revision, Store, StoreOptions,
};
use umbel_sim::{Sim, Survival};

use super::file_system_hooks::{FileCall, with_hook};
use super::support::{id, options, outline};

/// Upper bound of a wait; without an error no thread waits long.
const WAIT_TIMEOUT: Duration = Duration::from_secs(120);
/// Name of the background thread.
const BACKGROUND: &str = "umbel-events";

/// Progress of the two threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Step {
    /// The first chunk is being filled; the background thread does nothing yet.
    #[default]
    Filling,
    /// The background thread does the work that was requested during the fill.
    Preparing,
    /// A writer will end the first chunk.
    Full,
    /// The writer is about to write the chunk's end; the other thread can sync now.
    Ending,
    /// The other thread has synced the chunk without its end.
    Synced,
    /// The writer has written the chunk's end, and is about to write an event to the next chunk.
    Ended,
}

#[derive(Debug, Default)]
struct State {
    chunks: Vec<PathBuf>,
    step: Step,
}

/// Pauses each thread until the other has made enough progress.
#[derive(Debug, Default)]
struct StepSync {
    state: Mutex<State>,
    changed: Condvar,
}

impl StepSync {
    fn wait(&self, is_reached: impl Fn(&State) -> bool) -> bool {
        let state = self.state.lock().expect("a lock");
        let waited =
            self.changed.wait_timeout_while(state, WAIT_TIMEOUT, |state| !is_reached(state));
        !waited.ignore_poison().1.timed_out()
    }

    fn reach(&self, step: Step) {
        self.state.lock().expect("a lock").step = step;
        self.changed.notify_all();
    }

    fn on_call(&self, moment: FileCall, path: &Path) {
        if path.extension().is_none_or(|extension| extension != "chunk") {
            return;
        }
        let mut state = self.state.lock().expect("a lock");
        if moment == FileCall::Created {
            state.chunks.push(path.to_path_buf());
            self.changed.notify_all();
        }
        let index = state.chunks.iter().position(|chunk| chunk == path);
        let step = state.step;
        drop(state);
        match (moment, index, step) {
            (FileCall::Writing, Some(0), Step::Full) => {
                self.reach(Step::Ending);
                self.wait(|state| state.step >= Step::Synced);
            }
            (FileCall::Synced, Some(0), Step::Ending) => {
                self.reach(Step::Synced);
                self.wait(|state| state.step >= Step::Ended);
            }
            (FileCall::Writing, Some(1), Step::Synced) => self.reach(Step::Ended),
            _ => {}
        }
    }
}

/// Threads of a store whose background thread begins its work once the first chunk is filled. The
/// background thread does all requests until then in one round. Without this, the machine's load
/// would decide when the background thread flushes the index, which syncs the log.
#[derive(Debug)]
struct PausedThreads {
    threads: Arc<dyn Threads>,
    steps: Arc<StepSync>,
}

impl Threads for PausedThreads {
    fn spawn(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> Result<Box<dyn JoinHandle>> {
        if name != BACKGROUND {
            return self.threads.spawn(name, work);
        }
        let steps = Arc::clone(&self.steps);
        let held = move || {
            steps.wait(|state| state.step >= Step::Preparing);
            work();
        };
        self.threads.spawn(name, Box::new(held))
    }

    fn parallelism(&self) -> usize {
        self.threads.parallelism()
    }
}

/// Waits until the index is durable up to the visible position. Returns whether it became durable
/// in time.
fn is_flushed(store: &Store) -> bool {
    let clock = Env::system().clock;
    let until = clock.now() + WAIT_TIMEOUT;
    loop {
        let stats = store.stats().expect("open");
        if stats.indexed_through >= stats.position {
            return true;
        }
        if clock.now() >= until {
            return false;
        }
        store.wait_past(store.visible_position(), Duration::from_millis(1));
    }
}

/// Regression: a chunk ended after its bytes had been synced and before the syncing thread checked
/// whether the chunk had ended. The chunk was assumed durable with its end, which no sync ever
/// covered. A power cut could then remove the end and everything after it: the store refused to
/// open, or events were lost.
#[test]
fn chunk_end_written_during_sync_becomes_durable() {
    let (sim, steps) = (Sim::new(1), Arc::new(StepSync::default()));
    let hook_steps = Arc::clone(&steps);
    let env = with_hook(sim.env(), move |moment, path| hook_steps.on_call(moment, path));
    let threads = PausedThreads { threads: Arc::clone(&env.threads), steps: Arc::clone(&steps) };
    let settings = StoreOptions {
        // With synced appends the log is kept in memory until the sync, including ends of chunks.
        durability: Durability::Buffered,
        background_threads: 1,
        env: Env { threads: Arc::new(threads), ..env },
        ..options(&sim)
    };
    let store = Store::open("/events", settings).expect("a new store");
    let data = vec![7; 5000];
    let event = |number| NewEvent::binary(id(number), "Large", &data);
    for number in 0..8 {
        store.append("a", ExpectedVersion::Any, &[event(number)]).expect("appended");
    }
    steps.reach(Step::Preparing);
    assert!(steps.wait(|state| state.chunks.len() == 2), "the next chunk is made ready ahead");
    assert!(is_flushed(&store), "the index is flushed after that");
    // From here on no thread syncs the log without a request. The first chunk has unsynced bytes,
    // so a sync has work there.
    store.append("a", ExpectedVersion::Any, &[event(8)]).expect("appended");
    steps.reach(Step::Full);
    let rolling = store.clone();
    let roll = move || {
        let events = [NewEvent::binary(id(9), "Larger", &[8; 24_000])];
        rolling.append("a", ExpectedVersion::Any, &events).expect("acknowledged");
    };
    let thread = Env::system().threads.spawn("roll", Box::new(roll)).expect("a thread");
    assert!(steps.wait(|state| state.step >= Step::Ending), "the chunk ends");
    store.sync().expect("synced");
    assert!(thread.join());
    assert!(steps.wait(|state| state.step == Step::Ended), "the sync met the end");
    store.sync().expect("everything is durable");
    let survived = sim.crash_image(&Survival::None, 1);
    let store = Store::open("/events", options(&survived)).expect("the store opens");
    let read = outline(store.read("a", Revision::START, Direction::Forwards));
    assert!(read.iter().map(|(_, id)| *id).eq((0..10).map(id)), "{} of 10 events", read.len());
    assert!(store.verify().expect("verified").damage.is_empty());
}

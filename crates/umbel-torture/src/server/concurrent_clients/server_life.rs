//! One life of a server: many clients append, some read and follow, until the power fails, the
//! process is killed or the server is stopped.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use umbel_server::Running;
use umbel_sim::Sim;

use super::client::Client;
use super::known::{Attempt, Ending, FOLLOWED, Fate, Id, Known, Told};
use super::stand::{Manner, PATIENCE, Stand};
use super::{append, follow};
use crate::random::{Random, join};

const APPENDERS: u64 = 8;
/// Appenders that share a connection.
const SHARING: u64 = 2;

/// What happens in a life.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// How the store is opened.
    pub manner: Manner,
    /// Whether streams are deleted.
    pub deletes: bool,
    /// After how many milliseconds the server is stopped as its operator would.
    pub stops: Option<u64>,
    /// Decides what the clients do.
    pub seed: u64,
}

/// What the clients of a life share.
#[derive(Debug)]
pub struct Stage {
    sim: Sim,
    is_stopping: AtomicBool,
    next_id: AtomicU64,
    /// Whether streams are deleted.
    pub deletes: bool,
    notes: Mutex<Notes>,
}

/// What the clients of a life note.
#[derive(Debug, Default)]
pub struct Notes {
    /// Appends.
    pub attempts: Vec<Attempt>,
    /// Deletions.
    pub endings: Vec<Ending>,
    /// What was seen.
    pub seen: Vec<(u64, Id)>,
    /// What the subscription to all was told in this life,
    pub all: Vec<Told>,
    /// and that to a stream.
    pub stream: Vec<Told>,
    /// The last revisions that were acknowledged.
    pub acknowledged: BTreeMap<String, u64>,
    /// How many events each stream can have at most.
    pub sent: BTreeMap<String, u64>,
    /// Revisions that refusals named.
    pub named: Vec<(String, u64)>,
    wrong: Option<String>,
}

impl Stage {
    fn new(sim: &Sim, plan: &Plan, known: &Known) -> Stage {
        let acknowledged = known.last.clone();
        let sent = known.last.iter().map(|(name, last)| (name.clone(), last + 1)).collect();
        Stage {
            sim: sim.clone(),
            is_stopping: AtomicBool::new(false),
            next_id: AtomicU64::new(known.next_id),
            deletes: plan.deletes,
            notes: Mutex::new(Notes { acknowledged, sent, ..Notes::default() }),
        }
    }

    /// What was noted.
    pub fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something was wrong.
    pub fn wrong(&self, text: String) {
        self.notes().wrong.get_or_insert(text);
    }

    /// A call failed, which is wrong unless the world ends.
    pub fn failed(&self, text: String) {
        if !self.is_ending() {
            self.wrong(format!("a call failed for no reason: {text}"));
        }
    }

    /// Whether the power was lost or the server is being stopped.
    pub fn is_ending(&self) -> bool {
        self.sim.is_dead() || self.is_stopping.load(Ordering::SeqCst)
    }

    /// The first of so many new ids.
    pub fn new_ids(&self, count: u64) -> Vec<Id> {
        let first = self.next_id.fetch_add(count, Ordering::SeqCst);
        (first..first + count).map(|number| Id::from(number) << 64 | 0x8000).collect()
    }
}

/// Lives until everybody is done or the world has ended. `true` where the store was closed.
pub fn live(sim: &Sim, plan: &Plan, known: &mut Known) -> Result<bool, String> {
    let Some(Stand { store, running, clients }) = Stand::start(sim, plan.manner)? else {
        return Ok(false);
    };
    let stage = Arc::new(Stage::new(sim, plan, known));
    let ended = clients.block_on(scene(&stage, running, plan, known));
    drop(clients);
    // What is written from here on is not promised to anybody, unless closing is.
    let running = match ended {
        Ok(running) => running,
        Err(text) => {
            stage.wrong(text);
            None
        }
    };
    let closes = running.is_none() && !sim.is_dead();
    if !closes {
        sim.crash_now();
    }
    drop(running);
    let closed = store.close();
    note(&stage, known)?;
    match closed {
        Ok(()) if closes => Ok(true),
        Err(error) if closes && !sim.is_dead() => Err(format!("closing: {error}")),
        _ => Ok(false),
    }
}

/// Adds what was noted to what is known.
fn note(stage: &Stage, known: &mut Known) -> Result<(), String> {
    let mut notes = stage.notes();
    known.next_id = stage.next_id.load(Ordering::SeqCst);
    known.attempts.append(&mut notes.attempts);
    known.endings.append(&mut notes.endings);
    known.followed_all.append(&mut notes.all);
    known.followed_stream.append(&mut notes.stream);
    known.named.append(&mut notes.named);
    for (position, id) in std::mem::take(&mut notes.seen) {
        known.see(position, id)?;
    }
    notes.wrong.take().map_or(Ok(()), Err)
}

/// Everybody does what they do. The server is given back where it was not stopped.
async fn scene(
    stage: &Arc<Stage>,
    running: Running,
    plan: &Plan,
    known: &Known,
) -> Result<Option<Running>, String> {
    let address = running.address();
    let mut random = Random::new(plan.seed);
    let (mut appenders, mut readers) = (JoinSet::new(), JoinSet::new());
    follow::spawn(&mut readers, stage, connect(address).await?, known, &mut random);
    for number in 0..APPENDERS / SHARING {
        let client = connect(address).await?;
        for number in (0..SHARING).map(|which| number * SHARING + which) {
            let (stage, client) = (Arc::clone(stage), client.clone());
            let random = Random::new(join(plan.seed, number));
            appenders.spawn(append::append(stage, client, number, random));
        }
    }
    if stage.deletes {
        let random = Random::new(join(plan.seed, APPENDERS));
        appenders.spawn(append::delete(Arc::clone(stage), connect(address).await?, random));
    }
    let mut running = Some(running);
    if let Some(after) = plan.stops {
        sleep(Duration::from_millis(after)).await;
        stage.is_stopping.store(true, Ordering::SeqCst);
        if let Some(running) = running.take() {
            let stopped = tokio::task::spawn_blocking(move || running.shutdown()).await;
            stopped.map_err(|error| format!("stopping: {error}"))?;
        }
    }
    let ended = async { while appenders.join_next().await.is_some() {} };
    if tokio::time::timeout(PATIENCE * 2, ended).await.is_err() {
        stage.wrong("an append was never answered".to_string());
    }
    catch_up(stage).await;
    readers.shutdown().await;
    Ok(running)
}

async fn connect(address: SocketAddr) -> Result<Client, String> {
    Client::to(address).await
}

/// Waits until those who follow were told everything that was acknowledged.
async fn catch_up(stage: &Stage) {
    let due = Instant::now() + PATIENCE;
    while !stage.is_ending() && is_behind(&stage.notes()) {
        if Instant::now() > due {
            stage.wrong("a subscription was not told what was acknowledged".to_string());
            return;
        }
        sleep(Duration::from_millis(1)).await;
    }
}

/// Whether something was acknowledged that a subscription was not told yet.
fn is_behind(notes: &Notes) -> bool {
    let newest = |attempt: &Attempt| match attempt.fate {
        Fate::Acknowledged(_, position) => Some(position),
        Fate::Refused | Fate::Unknown => None,
    };
    let all = notes.attempts.iter().filter_map(newest).max();
    let followed = notes.attempts.iter().filter(|attempt| attempt.batch.stream == FOLLOWED);
    let stream = followed.filter_map(newest).max();
    let told = |list: &[Told]| list.last().map(|event| event.position);
    all > told(&notes.all) || stream > told(&notes.stream)
}

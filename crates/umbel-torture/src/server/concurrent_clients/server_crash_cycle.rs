//! One crash cycle (life) of a server: some clients append, others read and subscribe, until the
//! power fails, the process is killed or the server is stopped.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use umbel_server::Running;
use umbel_sim::{Random, Sim};

use crate::server::concurrent_clients::checked_client::Client;
use crate::server::concurrent_clients::client_oracle::{
    ClientAttempt, ClientFate, ClientOracle, ReceivedEvent, SUBSCRIBED_STREAM,
};
use crate::server::concurrent_clients::server_cycle_state::{ClientNotes, ServerCycle};
use crate::server::concurrent_clients::test_server::{SERVER_TIMEOUT, StoreMode, TestServer};
use crate::server::concurrent_clients::{append_clients, reader_clients};
use crate::support::derived_seed::derive_seed;

const APPENDERS: u64 = 8;
/// Number of appenders that share a connection.
const CLIENTS_PER_CONNECTION: u64 = 2;

/// Plan of a crash cycle.
#[derive(Debug, Clone, Copy)]
pub struct ServerCyclePlan {
    /// Options of the store.
    pub mode: StoreMode,
    /// Whether streams are deleted.
    pub deletes: bool,
    /// Time until the operator stops the server, in milliseconds.
    pub stops: Option<u64>,
    /// Seed of the clients.
    pub seed: u64,
}

/// Runs clients until all are done or the crash has happened. Returns `true` if the store was
/// closed.
pub fn run_life(
    sim: &Sim,
    plan: &ServerCyclePlan,
    known: &mut ClientOracle,
) -> Result<bool, String> {
    let Some(TestServer { store, running, clients }) = TestServer::start(sim, plan.mode)? else {
        return Ok(false);
    };
    let life = Arc::new(ServerCycle::new(sim, plan.deletes, known));
    let ended = clients.block_on(run_clients(&life, running, plan, known));
    drop(clients);
    // Later writes may be lost, unless the store closes.
    let running = match ended {
        Ok(running) => running,
        Err(text) => {
            life.wrong(text);
            None
        }
    };
    let closes = running.is_none() && !sim.is_dead();
    if !closes {
        sim.crash_now();
    }
    drop(running);
    let closed = store.close();
    add_notes(&life, known)?;
    match closed {
        Ok(()) if closes => Ok(true),
        Err(error) if closes && !sim.is_dead() => Err(format!("closing: {error}")),
        _ => Ok(false),
    }
}

/// Adds the clients' notes to the oracle.
fn add_notes(life: &ServerCycle, known: &mut ClientOracle) -> Result<(), String> {
    let mut notes = life.notes();
    known.next_id = life.next_id.load(Ordering::SeqCst);
    known.attempts.append(&mut notes.attempts);
    known.deletions.append(&mut notes.deletions);
    known.subscribed_all.append(&mut notes.all);
    known.subscribed_stream.append(&mut notes.stream);
    known.named.append(&mut notes.named);
    for (position, id) in std::mem::take(&mut notes.seen) {
        known.note_seen(position, id)?;
    }
    notes.wrong.take().map_or(Ok(()), Err)
}

/// Runs all clients. Returns the server unless it was stopped.
async fn run_clients(
    life: &Arc<ServerCycle>,
    running: Running,
    plan: &ServerCyclePlan,
    known: &ClientOracle,
) -> Result<Option<Running>, String> {
    let address = running.address();
    let mut random = Random::new(plan.seed);
    let (mut appenders, mut readers) = (JoinSet::new(), JoinSet::new());
    reader_clients::spawn(&mut readers, life, connect(address).await?, known, &mut random);
    for number in 0..APPENDERS / CLIENTS_PER_CONNECTION {
        let client = connect(address).await?;
        for number in
            (0..CLIENTS_PER_CONNECTION).map(|which| number * CLIENTS_PER_CONNECTION + which)
        {
            let (life, client) = (Arc::clone(life), client.clone());
            let random = Random::new(derive_seed(plan.seed, number));
            appenders.spawn(append_clients::append(life, client, number, random));
        }
    }
    if life.deletes {
        let random = Random::new(derive_seed(plan.seed, APPENDERS));
        appenders.spawn(append_clients::delete(Arc::clone(life), connect(address).await?, random));
    }
    let mut running = Some(running);
    if let Some(after) = plan.stops {
        sleep(Duration::from_millis(after)).await;
        life.is_stopping.store(true, Ordering::SeqCst);
        if let Some(running) = running.take() {
            let stopped = tokio::task::spawn_blocking(move || running.shutdown()).await;
            stopped.map_err(|error| format!("stopping: {error}"))?;
        }
    }
    let ended = async { while appenders.join_next().await.is_some() {} };
    if tokio::time::timeout(SERVER_TIMEOUT * 2, ended).await.is_err() {
        life.wrong("an append was never answered".to_string());
    }
    catch_up(life).await;
    readers.shutdown().await;
    Ok(running)
}

async fn connect(address: SocketAddr) -> Result<Client, String> {
    Client::to(address).await
}

/// Waits until subscribers received all acknowledged events.
async fn catch_up(life: &ServerCycle) {
    let due = Instant::now() + SERVER_TIMEOUT;
    while !life.is_ending() && is_behind(&life.notes()) {
        if Instant::now() > due {
            life.wrong("a subscription did not deliver the acknowledged events".to_string());
            return;
        }
        sleep(Duration::from_millis(1)).await;
    }
}

/// Whether a subscription has not received an acknowledged event.
fn is_behind(notes: &ClientNotes) -> bool {
    let newest = |attempt: &ClientAttempt| match attempt.fate {
        ClientFate::Acknowledged(_, position) => Some(position),
        ClientFate::Refused | ClientFate::Unknown => None,
    };
    let all = notes.attempts.iter().filter_map(newest).max();
    let followed =
        notes.attempts.iter().filter(|attempt| attempt.batch.stream == SUBSCRIBED_STREAM);
    let stream = followed.filter_map(newest).max();
    let last_position = |list: &[ReceivedEvent]| list.last().map(|event| event.position);
    all > last_position(&notes.all) || stream > last_position(&notes.stream)
}

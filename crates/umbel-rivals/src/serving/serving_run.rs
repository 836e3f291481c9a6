//! Does all work on both servers, in turns, and measures the times.

use std::collections::BTreeMap;
use std::time::Duration;

use umbel_lab::engine::Result;

use crate::kv::kv_results::Spread;
use crate::serving::load_client::{prepare, run_work};
use crate::serving::load_kinds::{Work, all};
use crate::serving::server_process::{ServerKind, ServerProcess, processor_time};
use crate::serving::serving_arguments::ServingArguments;

/// Repetition of some work at one server.
#[derive(Debug, Clone)]
pub struct WorkSample {
    /// Events a second.
    pub rate: f64,
    /// p50, p99 and p99.9 of the calls, in milliseconds.
    pub times_ms: [f64; 3],
    /// Processor time of the server for each event, in microseconds.
    pub server_us: Option<f64>,
    /// Processor time of the clients for each event, in microseconds.
    pub client_us: Option<f64>,
}

/// One kind of work, with the samples of both servers for each round.
#[derive(Debug, Clone)]
pub struct WorkRow {
    /// The work.
    pub work: Work,
    /// Samples of Umbel.
    pub umbel: Vec<WorkSample>,
    /// Samples of the bare server.
    pub bare: Vec<WorkSample>,
}

impl WorkRow {
    /// Umbel's rate as a fraction of the bare server's rate, over the rounds.
    pub fn share(&self) -> Option<Spread> {
        let rounds = self.umbel.iter().zip(&self.bare);
        Spread::of(rounds.map(|(umbel, bare)| umbel.rate / bare.rate))
    }
}

/// Does all work; `say` gets the progress.
///
/// # Errors
/// A server did not start, or a call failed.
pub fn run(arguments: &ServingArguments, say: &mut dyn FnMut(&str)) -> Result<Vec<WorkRow>> {
    let chosen = |work: &Work| {
        let name = work.name();
        arguments.work.is_empty() || arguments.work.iter().any(|part| name.contains(part.as_str()))
    };
    let work = all(arguments.subscribers).into_iter().filter(chosen);
    let mut rows: Vec<WorkRow> =
        work.map(|work| WorkRow { work, umbel: Vec::new(), bare: Vec::new() }).collect();
    let runtime = tokio::runtime::Runtime::new()?;
    let mut servers = BTreeMap::new();
    for synced in [false, true] {
        if !rows.iter().any(|row| row.work.synced == synced) {
            continue;
        }
        for kind in [ServerKind::Umbel, ServerKind::Bare] {
            let folder = format!("umbel-serving-{}-{}-{synced}", std::process::id(), kind.name());
            let folder = arguments.dir.join(folder);
            let running = ServerProcess::start(kind, &arguments.umbel, &folder, synced)?;
            if !synced {
                runtime.block_on(prepare(running.address))?;
            }
            servers.insert((kind, synced), running);
        }
    }
    let time = Duration::from_secs(arguments.seconds);
    let mut tag = 0;
    for round in 0..arguments.rounds {
        for row in &mut rows {
            let Work { clients, synced, .. } = row.work;
            say(&format!("round {}: {}, {clients}", round + 1, row.work.name()));
            let mut order = [ServerKind::Umbel, ServerKind::Bare];
            if round % 2 == 1 {
                order.reverse();
            }
            for kind in order {
                tag += 1;
                let running = servers.get(&(kind, synced)).ok_or("the server was not started")?;
                let sample = runtime.block_on(sample(row.work, running, tag, time))?;
                match kind {
                    ServerKind::Umbel => row.umbel.push(sample),
                    ServerKind::Bare => row.bare.push(sample),
                }
            }
        }
    }
    Ok(rows)
}

async fn sample(
    work: Work,
    running: &ServerProcess,
    tag: u64,
    time: Duration,
) -> Result<WorkSample> {
    let before = (running.processor_time(), processor_time("self"));
    let mut done = run_work(work, running.address, tag, time).await?;
    let after = (running.processor_time(), processor_time("self"));
    done.times_us.sort_unstable();
    let at = |part: f64| {
        let place = (part * done.times_us.len() as f64).ceil() as usize;
        let time = done.times_us.get(place.saturating_sub(1)).copied();
        f64::from(time.unwrap_or_default()) / 1000.0
    };
    let each = |after: Option<Duration>, before: Option<Duration>| {
        Some(after?.saturating_sub(before?).as_secs_f64() * 1e6 / done.events as f64)
    };
    Ok(WorkSample {
        rate: done.events as f64 / done.time.as_secs_f64(),
        times_ms: [at(0.5), at(0.99), at(0.999)],
        server_us: each(after.0, before.0),
        client_us: each(after.1, before.1),
    })
}

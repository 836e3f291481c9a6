//! Does all work at both servers, by turns, and takes the times.

use std::collections::BTreeMap;
use std::time::Duration;

use umbel_lab::engine::Result;

use super::arguments::Arguments;
use super::client::{perform, prepare};
use super::process::{Running, Which, processor_time};
use super::work::{Work, all};
use crate::record::Spread;

/// One repetition of a piece of work at one server.
#[derive(Debug, Clone)]
pub struct Sample {
    /// Events each second.
    pub rate: f64,
    /// Milliseconds of half of the calls, of 99 of a hundred, of 999 of a thousand.
    pub times_ms: [f64; 3],
    /// Microseconds of the server's processors for each event.
    pub server_us: Option<f64>,
    /// And of the clients'.
    pub client_us: Option<f64>,
}

/// A piece of work, and what both did, by rounds.
#[derive(Debug, Clone)]
pub struct Row {
    /// The work.
    pub work: Work,
    /// Umbel's.
    pub umbel: Vec<Sample>,
    /// The bare server's.
    pub bare: Vec<Sample>,
}

impl Row {
    /// Umbel's share of the bare server's rate: of each round.
    pub fn share(&self) -> Option<Spread> {
        let rounds = self.umbel.iter().zip(&self.bare);
        Spread::of(rounds.map(|(umbel, bare)| umbel.rate / bare.rate))
    }
}

/// All of it; `say` hears what is being done.
///
/// # Errors
/// A server did not start, or a call was answered with something else than success.
pub fn run(arguments: &Arguments, say: &mut dyn FnMut(&str)) -> Result<Vec<Row>> {
    let chosen = |work: &Work| {
        let name = work.name();
        arguments.work.is_empty() || arguments.work.iter().any(|part| name.contains(part.as_str()))
    };
    let work = all(arguments.subscribers).into_iter().filter(chosen);
    let mut rows: Vec<Row> =
        work.map(|work| Row { work, umbel: Vec::new(), bare: Vec::new() }).collect();
    let runtime = tokio::runtime::Runtime::new()?;
    let mut servers = BTreeMap::new();
    for synced in [false, true] {
        if !rows.iter().any(|row| row.work.synced == synced) {
            continue;
        }
        for which in [Which::Umbel, Which::Bare] {
            let folder = format!("umbel-serving-{}-{}-{synced}", std::process::id(), which.name());
            let folder = arguments.dir.join(folder);
            let running = Running::start(which, &arguments.umbel, &folder, synced)?;
            if !synced {
                runtime.block_on(prepare(running.address))?;
            }
            servers.insert((which, synced), running);
        }
    }
    let time = Duration::from_secs(arguments.seconds);
    let mut tag = 0;
    for round in 0..arguments.rounds {
        for row in &mut rows {
            let Work { clients, synced, .. } = row.work;
            say(&format!("round {}: {}, {clients}", round + 1, row.work.name()));
            let mut order = [Which::Umbel, Which::Bare];
            if round % 2 == 1 {
                order.reverse();
            }
            for which in order {
                tag += 1;
                let running = servers.get(&(which, synced)).ok_or("it was started")?;
                let sample = runtime.block_on(sample(row.work, running, tag, time))?;
                match which {
                    Which::Umbel => row.umbel.push(sample),
                    Which::Bare => row.bare.push(sample),
                }
            }
        }
    }
    Ok(rows)
}

async fn sample(work: Work, running: &Running, tag: u64, time: Duration) -> Result<Sample> {
    let before = (running.processor_time(), processor_time("self"));
    let mut done = perform(work, running.address, tag, time).await?;
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
    Ok(Sample {
        rate: done.events as f64 / done.time.as_secs_f64(),
        times_ms: [at(0.5), at(0.99), at(0.999)],
        server_us: each(after.0, before.0),
        client_us: each(after.1, before.1),
    })
}

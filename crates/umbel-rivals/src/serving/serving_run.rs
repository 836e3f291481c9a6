//! Does all work on both servers, in turns, and measures the times.

use std::collections::BTreeMap;
use std::time::Duration;

use umbel_lab::engine::Result;

use crate::kv::kv_results::Spread;
use crate::serving::load_client::{prepare, run_work};
use crate::serving::load_kinds::{Work, all};
use crate::serving::server_observers::{
    Collector, ObserverCounts, ObserverKind, Observers, TRACE_SAMPLE_RATIO,
};
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
    /// Samples of the server that Umbel is compared with.
    pub rival: Vec<WorkSample>,
}

impl WorkRow {
    /// Umbel's rate as a fraction of the other server's rate, over the rounds.
    pub fn share(&self) -> Option<Spread> {
        Spread::of(self.shares())
    }

    fn shares(&self) -> impl Iterator<Item = f64> {
        self.umbel.iter().zip(&self.rival).map(|(umbel, rival)| umbel.rate / rival.rate)
    }
}

/// Geometric mean of the shares of all rounds and rows, with the bounds between which it is with a
/// probability of 95 %.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OverallShare {
    /// The mean.
    pub mean: f64,
    /// Lower bound.
    pub least: f64,
    /// Upper bound.
    pub most: f64,
    /// Number of shares.
    pub shares: usize,
}

impl OverallShare {
    /// Computes the mean; `None` of fewer than two shares. The logarithms of the shares count as
    /// independent and normally distributed.
    fn of(shares: impl Iterator<Item = f64>) -> Option<OverallShare> {
        let logarithms: Vec<f64> = shares.map(f64::ln).collect();
        let count = logarithms.len() as f64;
        let mean = logarithms.iter().sum::<f64>() / count;
        let squares = logarithms.iter().map(|one| (one - mean).powi(2)).sum::<f64>();
        let error = (squares / (count - 1.0) / count).sqrt() * 1.96;
        (logarithms.len() > 1).then(|| OverallShare {
            mean: mean.exp(),
            least: (mean - error).exp(),
            most: (mean + error).exp(),
            shares: logarithms.len(),
        })
    }
}

/// Results of a comparison.
#[derive(Debug)]
pub struct ServingResults {
    /// One row for each kind of work.
    pub rows: Vec<WorkRow>,
    /// Counts of the observers, if the server was observed.
    pub observed: Option<ObserverCounts>,
}

impl ServingResults {
    /// The share of Umbel over all rounds and rows.
    pub fn overall_share(&self) -> Option<OverallShare> {
        OverallShare::of(self.rows.iter().flat_map(WorkRow::shares))
    }
}

/// Does all work; `say` gets the progress.
///
/// # Errors
/// A server did not start, or a call failed.
pub fn run(arguments: &ServingArguments, say: &mut dyn FnMut(&str)) -> Result<ServingResults> {
    let chosen = |work: &Work| {
        let name = work.name();
        arguments.work.is_empty() || arguments.work.iter().any(|part| name.contains(part.as_str()))
    };
    let work = all(arguments.subscribers).into_iter().filter(chosen);
    let mut rows: Vec<WorkRow> =
        work.map(|work| WorkRow { work, umbel: Vec::new(), rival: Vec::new() }).collect();
    let runtime = tokio::runtime::Runtime::new()?;
    let collector = match arguments.has_observer(ObserverKind::Telemetry) {
        true => Some(runtime.block_on(Collector::start())?),
        false => None,
    };
    let kinds = [ServerKind::Umbel, arguments.rival()];
    let mut servers = BTreeMap::new();
    for synced in [false, true] {
        if !rows.iter().any(|row| row.work.synced == synced) {
            continue;
        }
        for kind in kinds {
            let running = start(arguments, kind, synced, collector.as_ref())?;
            if !synced {
                runtime.block_on(prepare(running.address))?;
            }
            servers.insert((kind, synced), running);
        }
    }
    let time = Duration::from_secs(arguments.seconds);
    let (mut observed, mut observed_time) = (ObserverCounts::default(), Duration::ZERO);
    let mut tag = 0;
    for round in 0..arguments.rounds {
        for row in &mut rows {
            let Work { clients, synced, .. } = row.work;
            say(&format!("round {}: {}, {clients}", round + 1, row.work.name()));
            let mut order = kinds;
            if round % 2 == 1 {
                order.reverse();
            }
            for kind in order {
                tag += 1;
                let running = servers.get(&(kind, synced)).ok_or("the server was not started")?;
                let observes = arguments.observed && kind == ServerKind::Umbel;
                let has = |kind| arguments.has_observer(kind);
                let start = || Observers::start(&runtime, running.address, observed_time, has);
                let observers = observes.then(start);
                let sample = runtime.block_on(sample(row.work, running, tag, time))?;
                if let Some(observers) = observers {
                    observed.add(observers.end()?);
                    observed_time += time;
                }
                match kind {
                    ServerKind::Umbel => row.umbel.push(sample),
                    ServerKind::Bare | ServerKind::Baseline => row.rival.push(sample),
                }
            }
        }
    }
    observed.traces = collector.map_or(0, |collector| collector.traces());
    Ok(ServingResults { rows, observed: arguments.observed.then_some(observed) })
}

/// Starts one of the two servers.
fn start(
    arguments: &ServingArguments,
    kind: ServerKind,
    synced: bool,
    collector: Option<&Collector>,
) -> Result<ServerProcess> {
    let folder = format!("umbel-serving-{}-{}-{synced}", std::process::id(), kind.name());
    let folder = arguments.dir.join(folder);
    let words = match collector {
        Some(collector) if kind == ServerKind::Umbel => vec![
            "--otlp-endpoint".to_owned(),
            format!("http://{}", collector.address),
            "--trace-sample-ratio".to_owned(),
            TRACE_SAMPLE_RATIO.to_owned(),
        ],
        _ => Vec::new(),
    };
    let other = arguments.against.as_ref().filter(|_| kind == ServerKind::Baseline);
    let binary = other.unwrap_or(&arguments.umbel);
    ServerProcess::start(kind, binary, &folder, synced, &words)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overall_share_is_a_geometric_mean_with_bounds() {
        let share = OverallShare::of([0.5, 2.0].into_iter()).unwrap();
        assert!((share.mean - 1.0).abs() < 1e-9 && share.shares == 2);
        assert!((share.least * share.most - 1.0).abs() < 1e-9 && share.least < 0.5);
        let same = OverallShare::of([0.9; 4].into_iter()).unwrap();
        assert!((same.least - 0.9).abs() < 1e-9 && (same.most - 0.9).abs() < 1e-9);
        assert_eq!(OverallShare::of([1.0].into_iter()), None);
    }
}

//! `umbel filter bench`: benchmarks every kind of filter in alternating rounds, and prints medians.

use std::hint::black_box;
use std::time::Duration;

use clap::ValueEnum;
use serde_json::{Value, json};
use umbel::Env;
use umbel_filter::{Filter, FilterBuilder, FilterOptions, FilterSize};

use crate::errors::{CommandError, CommandResult};
use crate::filter::filter_args::BenchArgs;
use crate::filter::filter_kind::FilterKindName;
use crate::filter::size_filter::rate_text;
use crate::io::output::Output;
use crate::io::progress::{Progress, Unit};
use crate::text::numbers::grouped;

/// Minimum number of hashes that are probed in each round.
const QUERIES: u64 = 2_000_000;
/// Number of hashes that are probed at once.
const BATCH: usize = 1024;

/// Times of one filter kind, in nanoseconds per key.
#[derive(Debug, Default)]
struct KindTimes {
    build: Vec<f64>,
    miss: Vec<f64>,
    hit: Vec<f64>,
    miss_batch: Vec<f64>,
    hit_batch: Vec<f64>,
}

/// One kind of filter that is benchmarked.
struct Candidate {
    kind: FilterKindName,
    options: FilterOptions,
    bits: f64,
    designed: f64,
    measured: f64,
    times: KindTimes,
}

/// Builds and probes a filter of each kind, round by round.
pub fn run(args: &BenchArgs, json: bool) -> CommandResult<()> {
    let kinds = if args.kind.is_empty() {
        FilterKindName::value_variants().to_vec()
    } else {
        args.kind.clone()
    };
    let size = FilterSize::BitsPerKey(args.bits_per_key);
    let mut candidates: Vec<Candidate> = kinds
        .into_iter()
        .map(|kind| {
            let options =
                FilterOptions { kind: kind.to_library_kind(), size, ..Default::default() };
            Candidate {
                kind,
                options,
                bits: 0.0,
                designed: 0.0,
                measured: 0.0,
                times: KindTimes::default(),
            }
        })
        .collect();
    let clock = Env::system().clock;
    let steps = args.rounds * candidates.len() as u64;
    let mut progress = Progress::new("filter bench", Unit::Operations, Some(steps), &clock);
    let mut hits: Vec<u64> = Vec::new();
    hits.try_reserve_exact(args.keys as usize).map_err(|_| {
        CommandError::System(format!(
            "not enough memory for {} keys; pass fewer with --keys",
            args.keys
        ))
    })?;
    hits.extend((0..args.keys).map(hash_of_number));
    let misses: Vec<u64> = (0..QUERIES).map(|at| hash_of_number(at + (1 << 50))).collect();
    for round in 0..args.rounds {
        for (index, candidate) in candidates.iter_mut().enumerate() {
            let since = || clock.now();
            candidate.round(&hits, &misses, &since)?;
            progress.set(round * steps / args.rounds + index as u64, || {
                candidate.kind.name().to_string()
            });
        }
    }
    progress.finish();
    report(args, &mut candidates, json)
}

/// Returns a pseudo-random number for an index, which serves as the hash of a key.
fn hash_of_number(at: u64) -> u64 {
    let mixed = at.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

impl Candidate {
    fn round(
        &mut self,
        hits: &[u64],
        misses: &[u64],
        now: &dyn Fn() -> Duration,
    ) -> CommandResult<()> {
        let refused = |error: umbel_filter::BuildError| CommandError::usage(error.to_string());
        let mut builder = FilterBuilder::new(self.options).map_err(refused)?;
        let start = now();
        hits.iter().for_each(|hash| builder.add(*hash));
        let bytes = builder.finish().map_err(refused)?;
        self.times.build.push(nanos(now() - start, hits.len()));
        let filter =
            Filter::decode(&bytes).map_err(|error| CommandError::usage(error.to_string()))?;
        self.bits = (bytes.len() - umbel_filter::HEADER_BYTES) as f64 * 8.0 / hits.len() as f64;
        self.designed = filter.view().designed_rate();
        let (miss, passed) = single(&filter, misses, now);
        self.times.miss.push(miss);
        self.measured = passed as f64 / misses.len() as f64;
        self.times.hit.push(single(&filter, hits, now).0);
        self.times.miss_batch.push(batched(&filter, misses, now));
        self.times.hit_batch.push(batched(&filter, hits, now));
        Ok(())
    }
}

fn nanos(elapsed: Duration, count: usize) -> f64 {
    elapsed.as_nanos() as f64 / count as f64
}

fn single(filter: &Filter, hashes: &[u64], now: &dyn Fn() -> Duration) -> (f64, usize) {
    let view = filter.view();
    let start = now();
    let passed = hashes.iter().filter(|hash| view.contains(**hash)).count();
    let elapsed = now() - start;
    (nanos(elapsed, hashes.len()), black_box(passed))
}

fn batched(filter: &Filter, hashes: &[u64], now: &dyn Fn() -> Duration) -> f64 {
    let view = filter.view();
    let mut found = [false; BATCH];
    let start = now();
    for hashes in hashes.chunks(BATCH) {
        view.contains_batch(hashes, &mut found[..hashes.len()]);
        black_box(&found);
    }
    nanos(now() - start, hashes.len())
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn report(args: &BenchArgs, candidates: &mut [Candidate], json: bool) -> CommandResult<()> {
    let mut output = Output::new();
    let mut rows = Vec::new();
    if !json {
        output.line(&format!(
            "{} keys, medians of {} rounds, nanoseconds per key, without hashing",
            grouped(args.keys),
            args.rounds
        ))?;
        output.line(&format!(
            "{:<12} {:>9} {:>10} {:>10} {:>7} {:>7} {:>7} {:>11} {:>11}",
            "kind",
            "bits/key",
            "designed",
            "measured",
            "build",
            "miss",
            "hit",
            "miss batch",
            "hit batch"
        ))?;
    }
    for candidate in candidates {
        let times = &mut candidate.times;
        let [build, miss, hit, miss_batch, hit_batch] = [
            median(&mut times.build),
            median(&mut times.miss),
            median(&mut times.hit),
            median(&mut times.miss_batch),
            median(&mut times.hit_batch),
        ];
        if json {
            rows.push(json!({
                "kind": candidate.kind.name(),
                "bits_per_key": candidate.bits,
                "designed_rate": candidate.designed,
                "measured_rate": candidate.measured,
                "build_ns": build,
                "miss_ns": miss,
                "hit_ns": hit,
                "miss_batch_ns": miss_batch,
                "hit_batch_ns": hit_batch,
            }));
            continue;
        }
        output.line(&format!(
            "{:<12} {:>9.2} {:>10} {:>10} {build:>7.1} {miss:>7.1} {hit:>7.1} {miss_batch:>11.1} \
             {hit_batch:>11.1}",
            candidate.kind.name(),
            candidate.bits,
            rate_text(candidate.designed),
            rate_text(candidate.measured)
        ))?;
    }
    if json {
        let keys = args.keys;
        let rows: Vec<Value> = rows;
        output.json(&json!({ "keys": keys, "rounds": args.rounds, "kinds": rows }))?;
    }
    output.flush()
}

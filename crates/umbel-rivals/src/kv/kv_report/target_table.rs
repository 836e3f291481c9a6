//! Table of the targets: each row shows the shape of keys with the worst figure, and whether it
//! meets the target.

use std::fmt::Write as _;

use umbel_keygen::keys::KeyShape;
use umbel_lab::measure::Sample;

use crate::engines;
use crate::kv::kv_report::markdown_table::{Table, figure};
use crate::kv::kv_results::{KvResults, OURS, Spread};
use crate::kv::phase::Phase;

/// Whether a figure should be below or above its bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bound {
    AtMost,
    AtLeast,
}

/// Row of the table of targets.
struct Target {
    work: &'static str,
    bound: Bound,
    reach: f64,
    aim: Option<f64>,
    /// Computes the figure on one shape of keys, and the engine with which Umbel is compared.
    figure: fn(&KvResults) -> Option<(f64, String)>,
}

const fn at_most(
    work: &'static str,
    reach: f64,
    aim: f64,
    figure: fn(&KvResults) -> Option<(f64, String)>,
) -> Target {
    Target { work, bound: Bound::AtMost, reach, aim: Some(aim), figure }
}

const fn at_least(
    work: &'static str,
    reach: f64,
    aim: Option<f64>,
    figure: fn(&KvResults) -> Option<(f64, String)>,
) -> Target {
    Target { work, bound: Bound::AtLeast, reach, aim, figure }
}

/// Rows, in the order of the specification.
const TARGETS: [Target; 17] = [
    at_most("get, hit", 0.7, 0.5, |r| lmdb(r, Phase::GetHit, Phase::GetHit)),
    at_most("get, hot 10 k", 0.6, 0.35, |r| lmdb(r, Phase::GetHot, Phase::GetHot)),
    at_most("get, half hits, half misses", 0.5, 0.3, |r| lmdb(r, Phase::GetHalf, Phase::GetHalf)),
    at_most("get, missing", 0.25, 0.12, best_lsm_missing),
    at_most("multi_get of 32, per key, hits", 0.25, 0.12, |r| {
        lmdb(r, Phase::MultiHit, Phase::GetHit)
    }),
    at_most("multi_get of 32, half", 0.25, 0.12, |r| lmdb(r, Phase::MultiHalf, Phase::GetHalf)),
    at_most("multi_get of 32, missing", 0.25, 0.12, |r| {
        lmdb(r, Phase::MultiMissing, Phase::GetMissing)
    }),
    at_most("seek + 10, kept cursor", 0.9, 0.5, |r| lmdb(r, Phase::SeekKept, Phase::SeekKept)),
    at_most("scan, per entry", 0.9, 0.4, |r| lmdb(r, Phase::Scan, Phase::Scan)),
    at_least("random fill, settled and synced", 2.0, Some(4.0), |r| {
        rate(r, Phase::FillRandom, "leveldb")
    }),
    at_least("sequential fill, settled and synced", 2.5, Some(4.0), |r| {
        rate(r, Phase::FillSequential, "leveldb")
    }),
    at_least("synced puts, 1 thread", 0.9, None, |r| {
        let (rate, _) = rate(r, Phase::SyncedOne, "none")?;
        Some((rate, "bare fsyncs".to_string()))
    }),
    at_least("synced puts, 8 threads", 1.0, Some(1.5), best_synced_eight),
    at_most("write amplification, log included", 5.0, 4.0, |r| {
        let written = r.written_bytes(OURS)? as f64 / r.user_bytes.max(1) as f64;
        Some((written, "bytes of keys and values".to_string()))
    }),
    at_most("space, uncompressed", 1.15, 1.1, |r| {
        let taken = r.participant(OURS)?.disk_bytes? as f64 / r.user_bytes.max(1) as f64;
        Some((taken, "live bytes".to_string()))
    }),
    at_least("reads beside a writer at full rate", 0.6, None, |r| {
        Some((concurrent_share(r, OURS)?.median, "alone".to_string()))
    }),
    at_most("p99.99 at half rate beside it, ms", f64::INFINITY, 1.0, |r| {
        let paced = r.counting(OURS, Phase::ReadWhileWritingPaced);
        let times = paced.filter_map(|record| record.sample.latency);
        let spread = Spread::of(times.map(|latency| latency.p9999_ns as f64 / 1e6))?;
        Some((spread.median, "no bound but the aim".to_string()))
    }),
];

fn lmdb(results: &KvResults, ours: Phase, theirs: Phase) -> Option<(f64, String)> {
    let spread = results.ratio((ours, 0), ("lmdb", theirs), Sample::wall)?;
    let name = if ours == theirs { "lmdb".to_string() } else { "lmdb's get".to_string() };
    Some((spread.median, name))
}

/// Returns Umbel's rate as a multiple of another engine's.
fn rate(results: &KvResults, phase: Phase, other: &str) -> Option<(f64, String)> {
    let spread = results.ratio((phase, 0), (other, phase), Sample::wall)?;
    Some((1.0 / spread.median, other.to_string()))
}

/// Returns the other engine that Umbel compares worst with, and the time of Umbel as a fraction of
/// that engine's time.
fn hardest_engine(results: &KvResults, phase: Phase, lsm_only: bool) -> Option<(f64, String)> {
    let others = engines::ALL
        .into_iter()
        .filter(|engine| engine.name != OURS && engine.name != "none" && (engine.lsm || !lsm_only));
    let ratios = others.filter_map(|engine| {
        let spread = results.ratio((phase, 0), (engine.name, phase), Sample::wall)?;
        Some((spread.median, engine.name.to_string()))
    });
    ratios.max_by(|a, b| a.0.total_cmp(&b.0))
}

fn best_lsm_missing(results: &KvResults) -> Option<(f64, String)> {
    let (ratio, name) = hardest_engine(results, Phase::GetMissing, true)?;
    Some((ratio, format!("{name}, the best LSM")))
}

fn best_synced_eight(results: &KvResults) -> Option<(f64, String)> {
    let (ratio, name) = hardest_engine(results, Phase::SyncedEight, false)?;
    Some((1.0 / ratio, format!("{name}, the best rival")))
}

/// Rate of a reader beside a writer as a fraction of its rate alone, over the rounds.
pub fn concurrent_share(results: &KvResults, engine: &str) -> Option<Spread> {
    let read_path = results.best_read_path(engine, Phase::ReadAlone);
    Spread::of(results.of(engine, read_path, Phase::ReadAlone).filter_map(|alone| {
        let mut same = results.of(engine, read_path, Phase::ReadWhileWriting);
        let concurrent = same.find(|record| record.round == alone.round)?;
        Some(concurrent.sample.rate() / alone.sample.rate())
    }))
}

impl Target {
    /// Returns the worst figure over all shapes.
    fn worst(&self, done: &[(KeyShape, KvResults)]) -> Option<(f64, String, KeyShape)> {
        let figures = done.iter().filter_map(|(shape, results)| {
            let (figure, compared_with) = (self.figure)(results)?;
            Some((figure, compared_with, *shape))
        });
        match self.bound {
            Bound::AtMost => figures.max_by(|a, b| a.0.total_cmp(&b.0)),
            Bound::AtLeast => figures.min_by(|a, b| a.0.total_cmp(&b.0)),
        }
    }

    fn within(&self, figure: f64, bound: f64) -> bool {
        match self.bound {
            Bound::AtMost => figure <= bound,
            Bound::AtLeast => figure >= bound,
        }
    }

    fn verdict(&self, figure: f64) -> &'static str {
        let aim = self.aim.is_some_and(|aim| self.within(figure, aim));
        match (aim, self.within(figure, self.reach)) {
            (true, _) => "reached, and the aim",
            (false, true) if self.reach.is_infinite() => "aim not reached",
            (false, true) => "reached",
            (false, false) => "**not reached**",
        }
    }
}

/// Returns the table of targets with worst figures and verdicts.
pub fn table(done: &[(KeyShape, KvResults)]) -> String {
    let heads = ["compared with", "to reach", "aim", "worst", "on keys", "verdict"];
    let mut table = Table::new("work", heads);
    for target in &TARGETS {
        let sign = if target.bound == Bound::AtMost { "≤" } else { "≥" };
        let bound = |bound: f64| match bound.is_finite() {
            true => format!("{sign} {}", figure(bound)),
            false => "–".to_string(),
        };
        let (reach, aim) = (bound(target.reach), target.aim.map_or("–".to_string(), bound));
        let cells = match target.worst(done) {
            Some((worst, compared_with, shape)) => {
                let verdict = target.verdict(worst).to_string();
                [compared_with, reach, aim, figure(worst), shape.to_string(), verdict]
            }
            None => {
                let nothing = || "–".to_string();
                [nothing(), reach, aim, nothing(), nothing(), "not measured".to_string()]
            }
        };
        table.row(target.work, cells);
    }
    table.text()
}

/// Returns Umbel's time as a fraction of each other engine's, on the worst shape of keys.
pub fn worst_ratios(done: &[(KeyShape, KvResults)]) -> String {
    let phases = || Phase::READS.into_iter().chain(Phase::WRITES);
    let others: Vec<&str> = engines::ALL.iter().map(|engine| engine.name).collect();
    let others = others.into_iter().filter(|name| {
        let measured = |(_, r): &(KeyShape, KvResults)| r.records.iter().any(|x| x.engine == *name);
        *name != OURS && *name != "none" && done.iter().any(measured)
    });
    let others: Vec<&str> = others.collect();
    let mut table = Table::new("umbel's time /", others.iter().copied());
    for phase in phases() {
        let cells = others.iter().map(|other| {
            let ratios = done.iter().filter_map(|(shape, results)| {
                let spread = results.ratio((phase, 0), (other, phase), Sample::wall)?;
                Some((spread.median, shape))
            });
            let worst = ratios.max_by(|a, b| a.0.total_cmp(&b.0));
            worst.map_or("–".to_string(), |(ratio, shape)| {
                let mut text = figure(ratio);
                if done.len() > 1 {
                    let _ = write!(text, " {shape}");
                }
                text
            })
        });
        table.row(phase.name(), cells.collect::<Vec<_>>());
    }
    table.text()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::kv_results::PhaseRecord;

    fn results(ours_ns: u64, theirs_ns: u64) -> KvResults {
        let record = |engine, wall_ns| PhaseRecord {
            engine,
            read_path: 0,
            phase: Phase::GetHit,
            round: 0,
            sample: Sample { operations: 1, wall_ns, ..Sample::default() },
            load: None,
        };
        let records = vec![record(OURS, ours_ns), record("lmdb", theirs_ns)];
        KvResults { records, ..KvResults::default() }
    }

    #[test]
    fn the_worst_shape_decides() {
        let done = [(KeyShape::Random, results(40, 100)), (KeyShape::Url, results(90, 100))];
        let hit = &TARGETS[0];
        let (worst, _, shape) = hit.worst(&done).unwrap();
        assert_eq!((worst, shape), (0.9, KeyShape::Url));
        assert_eq!(hit.verdict(worst), "**not reached**");
        assert_eq!(hit.verdict(0.7), "reached");
        assert_eq!(hit.verdict(0.5), "reached, and the aim");
        assert!(table(&done).contains("**not reached**"));
        assert!(table(&done).contains("not measured"));
        assert!(worst_ratios(&done).contains("0.90 url"));
    }

    #[test]
    fn rates_below_the_target_fail() {
        let fill = &TARGETS[9];
        assert_eq!(fill.verdict(1.99), "**not reached**");
        assert_eq!(fill.verdict(2.0), "reached");
        assert_eq!(fill.verdict(4.0), "reached, and the aim");
    }
}

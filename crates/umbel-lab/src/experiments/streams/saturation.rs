//! `saturation`: the article's last run, with a filter that is too small, and one that grows.

use umbel_events::{ExistenceStats, Size};
use umbel_existence::rate;

use super::say;
use super::stream_article::{self as article, BYTES, Filling, RATE, Sum};
use crate::engine::Result;
use crate::experiment::{Experiment, Figure, How, Needs, Seed, Subject, Subjects, named};
use crate::lab::{Lab, Place};
use crate::outcome::{Better, Outcome, Scale};
use crate::recorder::Recorder;
use crate::streams::absent;

/// Of streams that are not there, those for which the index is asked.
const LET_THROUGH: Figure =
    Figure { name: "let through", unit: "%", better: Better::Lower, plot: true };
/// The same by theory, where the filter has a fixed size; otherwise as it was designed.
const THEORY: Figure =
    Figure { name: "by theory or design", unit: "%", better: Better::Lower, plot: false };
/// Of these two.
const OVER: Figure = Figure {
    name: "let through over theory or design",
    unit: "ratio",
    better: Better::Neither,
    plot: false,
};
/// While the last streams before the place were created, growing included.
const MEANWHILE: Figure =
    Figure { name: "let through meanwhile", unit: "%", better: Better::Lower, plot: false };

const FIXED: &str = "fixed filter";
const NONE: &str = "no filter";
const GROWING: &str = "growing filter";
const LOADS: [u64; 4] = [1, 2, 4, 8];
const GROWN: [u64; 7] = [1, 2, 5, 10, 20, 50, 100];
/// What the growing filter may let through, of what it was designed for.
const OVER_MOST: f64 = 1.2;
/// How near to theory the fixed one has to be.
const THEORY_SHARE: f64 = 0.1;

/// The definition.
pub const EXPERIMENT: Experiment = Experiment {
    name: "saturation",
    title: "What happens when a filter of a fixed size is full?",
    asks: "With up to eight times the streams it was made for: how does a fixed filter degrade, \
           and a growing one not?",
    hypothesis: "A filter that fills up lets more and more through, as theory says, until it is as \
                 if there were none. It never gets worse than that. One that grows lets through \
                 what it was designed for, whatever its first size was.",
    source: article::source("saturation, with a filter of 1 MB"),
    axis: "streams over the design, or over the first size",
    figures: &[LET_THROUGH, THEORY, OVER, MEANWHILE, RATE, BYTES],
    seeds: &[Seed {
        series: "the article, no filter",
        beside: NONE,
        figure: "new streams",
        unit: "thousand per second",
        points: &[("1 x", 45.0), ("2 x", 15.0)],
    }],
    how: How {
        settings,
        needs: |scale| Needs {
            disk_bytes: article::streams(scale) * 600,
            memory_bytes: scale.choose(512 << 20, 4 << 30),
        },
        rounds: |scale| scale.choose(3, 5),
        several_engines: false,
        warms_up: false,
        takes_data: false,
        wants: article::wants_events,
    },
    subjects,
    meaning,
};

/// Bytes of the filter of a fixed size.
fn fixed_bytes(scale: Scale) -> u64 {
    scale.choose(32 << 10, 1 << 20)
}

/// How many streams it is made for: eight of its bits for each.
fn design(scale: Scale) -> u64 {
    fixed_bytes(scale) / 64 * 60
}

/// For how many the growing one is made at first.
fn first_keys(scale: Scale) -> u64 {
    scale.choose(1 << 13, 1 << 16)
}

/// How many streams that are not there are asked for at each place.
fn questions(scale: Scale) -> u64 {
    scale.choose(100_000, 400_000)
}

fn settings(scale: Scale) -> Vec<(String, String)> {
    let (most, grown) = (LOADS[LOADS.len() - 1], GROWN[GROWN.len() - 1]);
    let said = [
        ("store", "umbel's event store, streams of one event of 100 bytes, buffered".to_string()),
        ("memory", article::memory_in_words(scale)),
        (
            "fixed filter",
            format!(
                "{} KiB, made for {} streams at eight bits for each; up to {most} times as many",
                fixed_bytes(scale) >> 10,
                design(scale)
            ),
        ),
        (
            "growing filter",
            format!("made for {} streams at first; up to {grown} times as many", first_keys(scale)),
        ),
        (
            "let through",
            format!(
                "of {} streams that are not there, asked for at each place, as the store counts",
                questions(scale)
            ),
        ),
        (
            "rate",
            "of the last quarter of the design (of the streams so far, where it grows) before each \
             place"
                .to_string(),
        ),
    ];
    named(said)
}

fn subjects(lab: &Lab<'_>) -> Result<Subjects> {
    let scale = lab.scale;
    let run = |series, existence, unit, loads: &'static [u64]| -> Box<dyn Subject> {
        Box::new(Loads { place: lab.place(), scale, series, existence, unit, loads })
    };
    let first_keys = first_keys(scale);
    Ok(vec![
        run(FIXED, Size::Fixed { bytes: fixed_bytes(scale) }, design(scale), &LOADS),
        run(NONE, Size::Off, design(scale), &LOADS),
        run(GROWING, Size::Growing { first_keys }, first_keys, &GROWN),
    ])
}

struct Loads {
    place: Place,
    scale: Scale,
    series: &'static str,
    existence: Size,
    unit: u64,
    loads: &'static [u64],
}

impl Subject for Loads {
    fn name(&self) -> String {
        self.series.to_string()
    }

    fn measure(&mut self, recorder: &mut Recorder<'_>) -> Result<()> {
        let folder = self.place.folder("events")?;
        let mut filling = Filling::new(&folder, self.existence, article::memory_bytes(self.scale))?;
        let mut done = 0;
        for load in self.loads {
            let x = format!("{load} x");
            recorder.next(&x)?;
            let until = load * self.unit;
            let timed = match self.series {
                GROWING => (until - done) / 4,
                _ => self.unit / 4,
            };
            self.create(&mut filling, until - timed - done, recorder)?;
            let before = filling.existence()?;
            let sum = self.create(&mut filling, timed, recorder)?;
            done = until;
            let after = filling.existence()?;
            recorder.record(self.series, &x, RATE.name, sum.thousands(), &sum);
            if !after.is_on {
                continue;
            }
            let let_through = self.ask(&filling, &after)?;
            let expected = expected(&after, until, self.series == GROWING);
            let mut record = |figure: Figure, value: f64| {
                recorder.record(self.series, &x, figure.name, value, Vec::new());
            };
            record(LET_THROUGH, let_through * 100.0);
            record(THEORY, expected * 100.0);
            record(OVER, let_through / expected);
            record(MEANWHILE, between(&before, &after) * 100.0);
            record(BYTES, after.memory_bytes as f64 / f64::from(1 << 20));
        }
        Ok(filling.store.close()?)
    }
}

impl Loads {
    fn create(&self, filling: &mut Filling, count: u64, recorder: &Recorder<'_>) -> Result<Sum> {
        const SPAN: u64 = 100_000;
        let mut sum = Sum::default();
        for start in (0..count).step_by(SPAN as usize) {
            sum.add(&filling.go_on(&self.place, SPAN.min(count - start), recorder)?);
        }
        Ok(sum)
    }

    /// Asks for streams that are not there.
    fn ask(&self, filling: &Filling, before: &ExistenceStats) -> Result<f64> {
        let asked = absent(0..questions(self.scale));
        for at in 0..asked.count() {
            if filling.store.stream(asked.name(at))? != umbel_events::StreamState::Missing {
                return Err(format!("{} was never created and is there", asked.name(at)).into());
            }
        }
        Ok(between(before, &filling.existence()?))
    }
}

/// The share that was let through of what was asked between two moments.
fn between(before: &ExistenceStats, after: &ExistenceStats) -> f64 {
    let vain = (after.in_vain - before.in_vain) as f64;
    vain / ((after.denied - before.denied) as f64 + vain)
}

/// What a filter with so many streams should let through; of one that grows, what it is designed
/// for.
fn expected(stats: &ExistenceStats, streams: u64, grows: bool) -> f64 {
    if grows {
        return stats.designed_rate;
    }
    let lines = stats.memory_bytes / 64;
    // The filter does not say how many bits a name sets, but what it lets through by design.
    let designed = |probes: &u32| rate(stats.designed_items, lines, *probes);
    let off = |probes: &u32| (designed(probes) - stats.designed_rate).abs();
    let probes = (1..=8).min_by(|a, b| off(a).total_cmp(&off(b))).unwrap_or(1);
    rate(streams, lines, probes)
}

fn meaning(outcome: &Outcome) -> Vec<String> {
    let over = |series: &str, load: u64| {
        outcome.spread(series, &format!("{load} x"), OVER.name).map(|spread| spread.median)
    };
    let mut said = Vec::new();
    let fixed: Vec<f64> = LOADS.iter().filter_map(|load| over(FIXED, *load)).collect();
    if let Some(farthest) = fixed.iter().map(|ratio| (ratio - 1.0).abs()).reduce(f64::max) {
        let within = if farthest <= THEORY_SHARE { "within" } else { "not within" };
        said.push(format!(
            "The fixed filter lets {} through at its design, {} at twice, {} at four times and {} \
             at eight times as many streams. From theory it is off by {:.1} % at most, {within} \
             the tenth that is wanted.",
            say::figure(outcome, FIXED, "1 x", LET_THROUGH.name),
            say::figure(outcome, FIXED, "2 x", LET_THROUGH.name),
            say::figure(outcome, FIXED, "4 x", LET_THROUGH.name),
            say::figure(outcome, FIXED, "8 x", LET_THROUGH.name),
            farthest * 100.0,
        ));
    }
    for load in LOADS {
        let x = format!("{load} x");
        let of = |series: &str| outcome.spread(series, &x, RATE.name);
        if let (Some(with), Some(without)) = (of(FIXED), of(NONE)) {
            let alike =
                if with.equals(&without) { ", which is equal within the spread" } else { "" };
            said.push(format!(
                "At {x} new streams come at {:.2} times the rate without a filter{alike}.",
                with.median / without.median
            ));
        }
    }
    let grown = GROWN.iter().filter_map(|load| Some((*load, over(GROWING, *load)?)));
    if let Some((load, most)) = grown.max_by(|a, b| a.1.total_cmp(&b.1)) {
        let within = if most <= OVER_MOST { "within" } else { "over" };
        said.push(format!(
            "The growing filter lets through {most:.2} times what it is designed for at most (at \
             {load} times its first size), {within} the {OVER_MOST} that are wanted. Where it is \
             less than one, it has just grown and has room."
        ));
    }
    said.push(
        "The article's curve sinks from the rate with a filter to that without one, and not below. \
         What sinks it is the share of questions that a full filter lets through. A filter that \
         grows is designed for as many streams as there are at any moment, so that there is \
         nothing to choose and nothing to rebuild at a restart with another size."
            .to_string(),
    );
    said
}

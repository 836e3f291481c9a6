//! `saturation`: the article's last run, with a filter that is too small and with a growing filter.

use umbel_events::{ExistenceSize, ExistenceStats};
use umbel_existence::false_positive_rate;

use super::new_stream_runs::{self as article, BYTES, MeasurementSum, RATE, StreamFill};
use crate::engine::Result;
use crate::experiment::lab_context::{LabContext, MeasureContext};
use crate::experiment::{
    Experiment, ExperimentOptions, Figure, PublishedSeries, ResourceNeeds, Subject, Subjects,
    owned_settings,
};
use crate::experiments::result_text;
use crate::results::outcome::{Better, Outcome, Scale};
use crate::results::sample_recorder::Recorder;
use crate::workload::stream_batch::absent;

/// Share of lookups of absent streams that search the index.
const FALSE_POSITIVE_SHARE: Figure =
    Figure { name: "let through", unit: "%", better: Better::Lower, plot: true };
/// Expected share: by theory for a fixed size, by design for a growing filter.
const THEORY: Figure =
    Figure { name: "by theory or design", unit: "%", better: Better::Lower, plot: false };
/// Ratio of the measured to the expected share.
const RATIO_TO_DESIGN: Figure = Figure {
    name: "let through over theory or design",
    unit: "ratio",
    better: Better::Neither,
    plot: false,
};
/// Share of lookups that search the index while the last streams before the place are created,
/// growth included.
const MEANWHILE: Figure =
    Figure { name: "let through meanwhile", unit: "%", better: Better::Lower, plot: false };

const FIXED: &str = "fixed filter";
const NONE: &str = "no filter";
const GROWING: &str = "growing filter";
const LOADS: [u64; 4] = [1, 2, 4, 8];
const GROWN: [u64; 7] = [1, 2, 5, 10, 20, 50, 100];
/// Largest ratio to the design that the growing filter may have.
const RATIO_TO_DESIGN_MAX: f64 = 1.2;
/// Largest deviation from theory that the fixed filter may have.
const THEORY_SHARE: f64 = 0.1;

/// The definition.
pub const EXPERIMENT: Experiment = Experiment {
    name: "saturation",
    title: "What happens when a filter of a fixed size is full?",
    question: "With up to eight times the streams it was made for: how does a fixed filter \
           degrade, and a growing one not?",
    hypothesis: "A filter that fills up lets more and more through, as theory says, until it is as \
                 if there were none. It never gets worse than that. One that grows lets through \
                 what it was designed for, whatever its first size was.",
    source: article::source("saturation, with a filter of 1 MB"),
    axis: "streams over the design, or over the first size",
    figures: &[FALSE_POSITIVE_SHARE, THEORY, RATIO_TO_DESIGN, MEANWHILE, RATE, BYTES],
    seeds: &[PublishedSeries {
        series: "the article, no filter",
        beside: NONE,
        figure: "new streams",
        unit: "thousand per second",
        points: &[("1 x", 45.0), ("2 x", 15.0)],
    }],
    options: ExperimentOptions {
        settings,
        needs: |scale| ResourceNeeds {
            disk_bytes: article::streams(scale) * 600,
            memory_bytes: scale.choose(512 << 20, 4 << 30),
        },
        rounds: |scale| scale.choose(3, 5),
        several_engines: false,
        warms_up: false,
        takes_data: false,
        unsupported: article::wants_events,
    },
    subjects,
    meaning,
};

/// Returns the bytes of the fixed-size filter.
fn fixed_bytes(scale: Scale) -> u64 {
    scale.choose(32 << 10, 1 << 20)
}

/// Returns the number of streams for which the fixed filter is made, at eight bits each.
fn design(scale: Scale) -> u64 {
    fixed_bytes(scale) / 64 * 60
}

/// Returns the number of streams for which the growing filter is first made.
fn first_keys(scale: Scale) -> u64 {
    scale.choose(1 << 13, 1 << 16)
}

/// Returns the number of absent streams that are looked up at each place.
fn probe_count(scale: Scale) -> u64 {
    scale.choose(100_000, 400_000)
}

fn settings(scale: Scale) -> Vec<(String, String)> {
    let (load_max, grown) = (LOADS[LOADS.len() - 1], GROWN[GROWN.len() - 1]);
    let rows = [
        ("store", "umbel's event store, streams of one event of 100 bytes, buffered".to_string()),
        ("memory", article::memory_in_words(scale)),
        (
            "fixed filter",
            format!(
                "{} KiB, made for {} streams at eight bits each; up to {load_max} times as many",
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
                "of {} absent streams, looked up at each place, as the store counts",
                probe_count(scale)
            ),
        ),
        (
            "rate",
            "of the last quarter of the design (of the streams so far, where it grows) before each \
             place"
                .to_string(),
        ),
    ];
    owned_settings(rows)
}

fn subjects(lab: &LabContext<'_>) -> Result<Subjects> {
    let scale = lab.scale;
    let run = |series, existence, unit, loads: &'static [u64]| -> Box<dyn Subject> {
        Box::new(SaturationCase {
            place: lab.measure_context(),
            scale,
            series,
            existence,
            unit,
            loads,
        })
    };
    let first_keys = first_keys(scale);
    Ok(vec![
        run(FIXED, ExistenceSize::Fixed { bytes: fixed_bytes(scale) }, design(scale), &LOADS),
        run(NONE, ExistenceSize::Off, design(scale), &LOADS),
        run(GROWING, ExistenceSize::Growing { first_keys }, first_keys, &GROWN),
    ])
}

struct SaturationCase {
    place: MeasureContext,
    scale: Scale,
    series: &'static str,
    existence: ExistenceSize,
    unit: u64,
    loads: &'static [u64],
}

impl Subject for SaturationCase {
    fn name(&self) -> String {
        self.series.to_string()
    }

    fn measure(&mut self, recorder: &mut Recorder<'_>) -> Result<()> {
        let folder = self.place.folder("events")?;
        let mut filling =
            StreamFill::new(&folder, self.existence, article::memory_bytes(self.scale))?;
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
            let let_through = self.probe_absent_streams(&filling, &after)?;
            let expected = expected(&after, until, self.series == GROWING);
            let mut record = |figure: Figure, value: f64| {
                recorder.record(self.series, &x, figure.name, value, Vec::new());
            };
            record(FALSE_POSITIVE_SHARE, let_through * 100.0);
            record(THEORY, expected * 100.0);
            record(RATIO_TO_DESIGN, let_through / expected);
            record(MEANWHILE, share_between(&before, &after) * 100.0);
            record(BYTES, after.memory_bytes as f64 / f64::from(1 << 20));
        }
        Ok(filling.store.close()?)
    }
}

impl SaturationCase {
    fn create(
        &self,
        filling: &mut StreamFill,
        count: u64,
        recorder: &Recorder<'_>,
    ) -> Result<MeasurementSum> {
        const SPAN: u64 = 100_000;
        let mut sum = MeasurementSum::default();
        for start in (0..count).step_by(SPAN as usize) {
            sum.add(&filling.create_streams(&self.place, SPAN.min(count - start), recorder)?);
        }
        Ok(sum)
    }

    /// Looks up absent streams.
    fn probe_absent_streams(&self, filling: &StreamFill, before: &ExistenceStats) -> Result<f64> {
        let missing = absent(0..probe_count(self.scale));
        for at in 0..missing.count() {
            if filling.store.stream_state(missing.name(at))? != umbel_events::StreamState::Missing {
                return Err(format!("{} was never created but exists", missing.name(at)).into());
            }
        }
        Ok(share_between(before, &filling.existence()?))
    }
}

/// Returns the share of positive probes between two moments.
fn share_between(before: &ExistenceStats, after: &ExistenceStats) -> f64 {
    let vain = (after.false_positives - before.false_positives) as f64;
    vain / ((after.denied - before.denied) as f64 + vain)
}

/// Returns the share that a filter with the given number of streams should pass; for a growing
/// filter its designed rate.
fn expected(stats: &ExistenceStats, streams: u64, grows: bool) -> f64 {
    if grows {
        return stats.designed_rate;
    }
    let lines = stats.memory_bytes / 64;
    // The filter reports its designed rate, not its bits per name.
    let designed = |probes: &u32| false_positive_rate(stats.designed_items, lines, *probes);
    let off = |probes: &u32| (designed(probes) - stats.designed_rate).abs();
    let probes = (1..=8).min_by(|a, b| off(a).total_cmp(&off(b))).unwrap_or(1);
    false_positive_rate(streams, lines, probes)
}

fn meaning(outcome: &Outcome) -> Vec<String> {
    let over = |series: &str, load: u64| {
        outcome
            .spread(series, &format!("{load} x"), RATIO_TO_DESIGN.name)
            .map(|spread| spread.median)
    };
    let mut paragraphs = Vec::new();
    let fixed: Vec<f64> = LOADS.iter().filter_map(|load| over(FIXED, *load)).collect();
    if let Some(farthest) = fixed.iter().map(|ratio| (ratio - 1.0).abs()).reduce(f64::max) {
        let within = if farthest <= THEORY_SHARE { "within" } else { "not within" };
        paragraphs.push(format!(
            "The fixed filter lets {} through at its design, {} at twice, {} at four times and {} \
             at eight times as many streams. From theory it is off by {:.1} % at most, {within} \
             the tenth that is wanted.",
            result_text::figure_text(outcome, FIXED, "1 x", FALSE_POSITIVE_SHARE.name),
            result_text::figure_text(outcome, FIXED, "2 x", FALSE_POSITIVE_SHARE.name),
            result_text::figure_text(outcome, FIXED, "4 x", FALSE_POSITIVE_SHARE.name),
            result_text::figure_text(outcome, FIXED, "8 x", FALSE_POSITIVE_SHARE.name),
            farthest * 100.0,
        ));
    }
    for load in LOADS {
        let x = format!("{load} x");
        let of = |series: &str| outcome.spread(series, &x, RATE.name);
        if let (Some(with), Some(without)) = (of(FIXED), of(NONE)) {
            let alike =
                if with.equals(&without) { ", which is equal within the spread" } else { "" };
            paragraphs.push(format!(
                "At {x} new streams come at {:.2} times the rate without a filter{alike}.",
                with.median / without.median
            ));
        }
    }
    let grown = GROWN.iter().filter_map(|load| Some((*load, over(GROWING, *load)?)));
    if let Some((load, ratio_max)) = grown.max_by(|a, b| a.1.total_cmp(&b.1)) {
        let within = if ratio_max <= RATIO_TO_DESIGN_MAX { "within" } else { "over" };
        paragraphs.push(format!(
            "The growing filter lets through {ratio_max:.2} times what it is designed for at most \
             (at {load} times its first size), {within} the {RATIO_TO_DESIGN_MAX} that are wanted. \
             Where it is less than one, it has just grown and has free space."
        ));
    }
    paragraphs.push(
        "The article's curve sinks from the rate with a filter to that without one, and not below. \
         What sinks it is the share of probes that a full filter lets through. A filter that \
         grows is designed for as many streams as there are at any moment, so that there is \
         nothing to choose and nothing to rebuild at a restart with another size."
            .to_string(),
    );
    paragraphs
}

//! `new-streams`: ten million new streams, as in the article.

use umbel_events::{ExistenceSize, StoreOptions};

use super::new_stream_runs::{
    self as article, BYTES, INDEX_LOOKUPS, MeasurementSum, PARTS, PROCESSOR, RATE, StreamFill,
    UNTIL_CLOSED, fixed_bytes, millions, streams,
};
use super::synced_streams::{self, SyncedStreams};
use crate::engine::umbel_engine::ENGINE;
use crate::engine::{ReadDigest, Result};
use crate::experiment::lab_context::{LabContext, MeasureContext};
use crate::experiment::{
    Experiment, ExperimentOptions, Figure, PublishedSeries, ResourceNeeds, Subject, Subjects,
    owned_settings,
};
use crate::experiments::result_text;
use crate::experiments::streams::lookup_then_put::{self, LookupThenPut};
use crate::measure::now;
use crate::results::outcome::{Better, Outcome, Scale, Spread};
use crate::results::sample_recorder::Recorder;

/// Rate over short spans, for the comparison of a filter with none.
const SHORT: Figure = Figure {
    name: "new streams, short spans",
    unit: "thousand per second",
    better: Better::Higher,
    plot: true,
};

const GROWING: &str = "event store, growing filter";
const FIXED: &str = "event store, fixed filter";
const NONE: &str = "event store, no filter";
/// The series without a filter once more, as a measure of noise.
const AGAIN: &str = "event store, no filter, again";
/// Ratio below which a series counts as slower than without a filter.
const RATIO_LEAST: f64 = 0.97;

/// The definition.
pub const EXPERIMENT: Experiment = Experiment {
    name: "new-streams",
    title: "How many new streams can be created in a second?",
    question: "One new stream after the other: what does it cost to learn of each that it is new?",
    hypothesis: "To append the first event of a stream one has to know that there is none. Without \
                 a filter every look goes through the index, the more tables it has the longer; a \
                 filter that holds all names answers at once, and costs less than it saves from \
                 the first stream on.",
    source: article::source("without and with a filter of 15 MB"),
    axis: "streams so far",
    figures: &[
        RATE,
        UNTIL_CLOSED,
        SHORT,
        PROCESSOR,
        INDEX_LOOKUPS,
        BYTES,
        synced_streams::SYNCED,
        synced_streams::BARE,
    ],
    seeds: &[
        PublishedSeries {
            series: "the article, no filter",
            beside: NONE,
            figure: "new streams",
            unit: "thousand per second",
            points: &[("1.00 M", 45.0), ("2.00 M", 15.0)],
        },
        PublishedSeries {
            series: "the article, 15 MB",
            beside: FIXED,
            figure: "new streams",
            unit: "thousand per second",
            points: &[("1.00 M", 50.0), ("10.00 M", 50.0)],
        },
    ],
    options: ExperimentOptions {
        settings,
        needs: |scale| ResourceNeeds {
            disk_bytes: streams(scale) * 600,
            memory_bytes: scale.choose(512 << 20, 4 << 30),
        },
        rounds: |scale| scale.choose(3, 5),
        several_engines: true,
        warms_up: true,
        takes_data: false,
        unsupported: |_| None,
    },
    subjects,
    meaning,
};

/// Returns the number of streams in a short span.
fn span(scale: Scale) -> u64 {
    scale.choose(30_000, 100_000)
}

fn settings(scale: Scale) -> Vec<(String, String)> {
    let (count, fixed) = (streams(scale), fixed_bytes(scale) as f64 / 1e6);
    let rows = [
        ("streams", format!("{count}, each new, `customer-` and a number, in no order")),
        (
            "for each",
            "one event of 100 bytes with an id of its own, appended alone and acknowledged before \
             the next; without an expected revision, so that the window of ids is probed too"
                .to_string(),
        ),
        ("durability", "buffered, but for the series that says synced".to_string()),
        ("memory", article::memory_in_words(scale)),
        (
            "clock",
            format!(
                "names and ids of {} streams at a time are made before it is started; until closed \
                 is everything, their making included",
                span(scale)
            ),
        ),
        ("short spans", format!("{} streams, for the comparison with no filter", span(scale))),
        ("fixed filter", format!("{fixed:.1} MB, as the article's 15 MB for ten million")),
        (
            "look, then put",
            "a key-value store with a lookup of the name, then a put of name and event, in one \
             thread, with the filters that it has"
                .to_string(),
        ),
        (
            "published filter",
            format!(
                "{fixed:.1} MB before umbel as a key-value store without filters of its own: six \
                 probes over all bits, lines with checksums, pages of 8 KiB that are written in \
                 place every 30 s and at the end"
            ),
        ),
        ("synced", synced_streams::in_words(scale)),
    ];
    owned_settings(rows)
}

fn subjects(lab: &LabContext<'_>) -> Result<Subjects> {
    let scale = lab.scale;
    let event_store = |series: &'static str, existence: ExistenceSize| -> Box<dyn Subject> {
        Box::new(NewStreamsCase { place: lab.measure_context(), scale, series, existence })
    };
    let look = |engine, published| -> Box<dyn Subject> {
        Box::new(LookupThenPut { place: lab.measure_context(), scale, engine, published })
    };
    let mut all = vec![
        event_store(GROWING, StoreOptions::default().existence),
        event_store(NONE, ExistenceSize::Off),
        event_store(FIXED, ExistenceSize::Fixed { bytes: fixed_bytes(scale) }),
        event_store(AGAIN, ExistenceSize::Off),
        look(ENGINE, true),
    ];
    all.extend(lab.engines.iter().map(|engine| look(*engine, false)));
    all.push(Box::new(SyncedStreams { place: lab.measure_context(), scale }));
    Ok(all)
}

struct NewStreamsCase {
    place: MeasureContext,
    scale: Scale,
    series: &'static str,
    existence: ExistenceSize,
}

impl Subject for NewStreamsCase {
    fn name(&self) -> String {
        self.series.to_string()
    }

    fn measure(&mut self, recorder: &mut Recorder<'_>) -> Result<()> {
        let (streams, span) = (streams(self.scale), span(self.scale));
        let folder = self.place.folder("events")?;
        let began = now();
        let mut filling =
            StreamFill::new(&folder, self.existence, article::memory_bytes(self.scale))?;
        let mut before = filling.existence()?;
        for part in 1..=PARTS {
            let until = streams / PARTS * part;
            recorder.next(&format!("{until} streams"))?;
            let mut sum = MeasurementSum::default();
            for spans in 1..=streams / PARTS / span {
                let timed = filling.create_streams(&self.place, span, recorder)?;
                sum.add(&timed);
                if self.series != FIXED {
                    let x = millions(until - streams / PARTS + spans * span);
                    let rate = timed.sample.rate() / 1e3;
                    recorder.record(self.series, &x, SHORT.name, rate, &timed);
                }
            }
            let x = millions(until);
            let after = filling.existence()?;
            recorder.record(self.series, &x, RATE.name, sum.thousands(), &sum);
            let mut record = |figure: Figure, value: f64| {
                recorder.record(self.series, &x, figure.name, value, sum.flags.clone());
            };
            record(PROCESSOR, sum.processor_us());
            if after.is_on {
                let vain = (after.false_positives - before.false_positives) as f64;
                let absent = (after.denied - before.denied) as f64 + vain;
                record(INDEX_LOOKUPS, vain * 100.0 / absent);
                record(BYTES, after.memory_bytes as f64 / f64::from(1 << 20));
            }
            before = after;
        }
        recorder.next("closing")?;
        let store = filling.store;
        let none = &crate::engine::Counters::default;
        let closed = self.place.timed_with_counters(
            crate::measure::sanity_checks::Expectations::WRITES,
            none,
            1,
            |_| {
                store.close()?;
                Ok(ReadDigest::default())
            },
        )?;
        let rate = streams as f64 / began.elapsed().as_secs_f64() / 1e3;
        recorder.record(self.series, &millions(streams), UNTIL_CLOSED.name, rate, closed.flags);
        Ok(())
    }
}

fn meaning(outcome: &Outcome) -> Vec<String> {
    let of_rate = |point: &&crate::results::outcome::Point| point.figure == RATE.name;
    let mut places: Vec<&str> = Vec::new();
    let mut all: Vec<&str> = Vec::new();
    for point in outcome.points.iter().filter(of_rate) {
        if !places.contains(&point.x.as_str()) {
            places.push(&point.x);
        }
        if !all.contains(&point.series.as_str()) {
            all.push(&point.series);
        }
    }
    let (Some(first), Some(last)) = (places.first(), places.last()) else { return Vec::new() };
    let mut paragraphs = Vec::new();
    for series in &all {
        paragraphs.push(format!(
            "{series}: {} at {first}, {} at {last} ({}); {} until closed.",
            result_text::figure_text(outcome, series, first, RATE.name),
            result_text::figure_text(outcome, series, last, RATE.name),
            result_text::comparison_text(outcome, series, last, first, RATE.name),
            result_text::figure_text(outcome, series, last, UNTIL_CLOSED.name),
        ));
    }
    paragraphs.extend(compare_with_none(outcome, GROWING));
    paragraphs.extend(compare_with_none(outcome, AGAIN));
    paragraphs.extend(synced_streams::meaning(outcome));
    paragraphs.push(format!(
        "The article's store fell from 45 to 15 thousand a second once its index was no longer in \
         memory, and a filter of 15 MB kept it at 50 thousand. Its filter has a fixed size that \
         has to be chosen before one knows how many streams there will be; a growing one need not \
         be. “{}” is that filter, reimplemented, before a key-value store: it shows what the \
         probe costs, without revisions, ids and an event log.",
        lookup_then_put::PUBLISHED,
    ));
    paragraphs
}

/// Compares a series with the one without a filter, span by span.
fn compare_with_none(outcome: &Outcome, series: &str) -> Option<String> {
    let spread = |series: &str, x: &str| outcome.spread(series, x, SHORT.name);
    let ratio = |x: &str| {
        let (with, without): (Spread, Spread) = (spread(series, x)?, spread(NONE, x)?);
        Some(with.median / without.median)
    };
    let ratios: Vec<(&str, f64)> =
        outcome.places().into_iter().filter_map(|x| Some((x, ratio(x)?))).collect();
    let (x, least) = ratios.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let below = ratios.iter().filter(|(_, ratio)| *ratio < RATIO_LEAST).count();
    let mut sorted: Vec<f64> = ratios.iter().map(|(_, ratio)| *ratio).collect();
    sorted.sort_by(f64::total_cmp);
    let what = match series {
        AGAIN => "Without a filter once more, as a measure of chance,",
        _ => "With the growing filter",
    };
    Some(format!(
        "{what} each of {} short spans takes, by medians, {:.2} times the rate of none at least \
         (at {x}), {:.2} in the middle and {:.2} at most; {below} of them are below {RATIO_LEAST}.",
        ratios.len(),
        least,
        sorted[sorted.len() / 2],
        sorted[sorted.len() - 1],
    ))
}

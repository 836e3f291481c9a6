//! `existence`: compares the filter alone with the published design, and measures the event store
//! after a kill.

use crate::experiment::{
    ArticleSource, Experiment, ExperimentOptions, ResourceNeeds, Subject, owned_settings,
};
use crate::experiments::existence::first_append_after_kill::{BEHIND, OpenAfterKill, READY};
use crate::experiments::existence::open_time::{LARGE, OPEN, OpenTime, PUBLISHED_LARGE, VERIFIED};
use crate::experiments::existence::probe_cost::{
    EQUAL, FALSE_POSITIVES, GROWING, HIT, MISS, PUBLISHED, ProbeCost,
};
use crate::experiments::existence::written_bytes::{DEVICE, WRITTEN, WrittenBytes};
use crate::experiments::result_text;
use crate::experiments::streams::new_stream_runs as article;
use crate::results::outcome::{Outcome, Scale};

pub mod first_append_after_kill;
pub mod open_time;
pub mod probe_cost;
pub mod written_bytes;

/// The definition.
pub const EXPERIMENT: Experiment = Experiment {
    name: "existence",
    title: "A filter for every stream: probed, written, opened, killed",
    question: "Beside the published design: what do a probe, ten thousand new streams and an open \
           cost?",
    hypothesis: "Six probes anywhere in memory are six lines to fetch, one line is one. Six bits \
                 anywhere dirty nearly all pages with ten thousand names, a journal writes the \
                 names. Reading and verifying all takes longer the larger it is, reading what \
                 changed last does not. And after a kill nothing keeps an append waiting.",
    source: ArticleSource {
        name: "Bloom filters in EventStoreDB",
        part: "notes on implementation, and what its code does",
    },
    axis: "where",
    figures: &[MISS, HIT, FALSE_POSITIVES, WRITTEN, DEVICE, OPEN, VERIFIED, READY, BEHIND],
    seeds: &[],
    options: ExperimentOptions {
        settings: |scale| {
            let alike = "the published design is reimplemented from its text: one array, six \
                         probes, lines of 60 bytes and a checksum of 4, pages of 8 KiB";
            let rows = [
                ("beside", alike.to_string()),
                ("asking", probe_cost::in_words(scale)),
                ("writing", written_bytes::in_words(scale)),
                ("opening", open_time::in_words(scale)),
                ("after kill -9", first_append_after_kill::in_words(scale)),
            ];
            owned_settings(rows)
        },
        needs,
        rounds: |scale| scale.choose(3, 5),
        several_engines: false,
        warms_up: false,
        takes_data: false,
        unsupported: article::wants_events,
    },
    subjects: |lab| {
        let (place, scale) = (|| lab.measure_context(), lab.scale);
        let subjects: Vec<Box<dyn Subject>> = vec![
            Box::new(ProbeCost::new(place(), scale)),
            Box::new(WrittenBytes::new(place(), scale)),
            Box::new(OpenTime::new(place(), scale)),
            Box::new(OpenAfterKill { place: place(), scale }),
        ];
        Ok(subjects)
    },
    meaning,
};

fn needs(scale: Scale) -> ResourceNeeds {
    ResourceNeeds {
        disk_bytes: first_append_after_kill::streams(scale) * 600 + (1 << 30),
        memory_bytes: scale.choose(512 << 20, 4 << 30),
    }
}

/// Formats a ratio; a missing one is unknown.
fn in_words(ratio: Option<f64>, digits: usize) -> String {
    ratio.map_or_else(|| "an unknown number of".to_string(), |ratio| format!("{ratio:.digits$}"))
}

fn meaning(outcome: &Outcome) -> Vec<String> {
    let median = |series: &str, x: &str, figure: &str| {
        outcome.spread(series, x, figure).map(|spread| spread.median)
    };
    let times_of = |beside: &str, series: &str, x: &str, figure: &str| {
        let (theirs, ours) = (median(beside, x, figure)?, median(series, x, figure)?);
        Some(theirs / ours)
    };
    let times = |series: &str, x: &str, figure: &str| times_of(PUBLISHED, series, x, figure);
    let places = |figure: &str| {
        let mut places: Vec<&str> = Vec::new();
        for point in outcome.points.iter().filter(|point| point.figure == figure) {
            if !places.contains(&point.x.as_str()) {
                places.push(&point.x);
            }
        }
        places
    };
    let mut paragraphs = Vec::new();
    for x in places(MISS.name) {
        let of = |series: &str| in_words(times(series, x, MISS.name), 2);
        paragraphs.push(format!(
            "With {x} an absent name takes {} by the published design, which is {} \
             times one probe of ours through the shared call, {} times one by a reader and \
             {} times one of a batch. It lets {} through, ours {}.",
            result_text::figure_text(outcome, PUBLISHED, x, MISS.name),
            of(probe_cost::SHARED),
            of(probe_cost::READER),
            of(probe_cost::BATCHED),
            result_text::figure_text(outcome, PUBLISHED, x, FALSE_POSITIVES.name),
            result_text::figure_text(outcome, probe_cost::SHARED, x, FALSE_POSITIVES.name),
        ));
    }
    for x in places(WRITTEN.name) {
        let ours = |series: &str| {
            let times = times(series, x, WRITTEN.name);
            times.map_or_else(String::new, |times| {
                let bytes = result_text::figure_text(outcome, series, x, WRITTEN.name);
                format!("; {series}, {bytes}, {times:.1} times less")
            })
        };
        paragraphs.push(format!(
            "{x}: ten thousand new streams have {} written by the published design{}{}.",
            result_text::figure_text(outcome, PUBLISHED, x, WRITTEN.name),
            ours(EQUAL),
            ours(GROWING),
        ));
    }
    for x in places(OPEN.name) {
        let of = |series: &str| result_text::figure_text(outcome, series, x, OPEN.name);
        let by = |series: &str| in_words(times(series, x, OPEN.name), 1);
        paragraphs.push(format!(
            "{x}: the published design denies its first name after {}, ours of equal size after \
             {} ({} times as fast) and the growing one after {} ({} times); all of ours is read \
             and verified after {} and {}. In the large size it is {} and {} ({} times).",
            of(PUBLISHED),
            of(EQUAL),
            by(EQUAL),
            of(GROWING),
            by(GROWING),
            result_text::figure_text(outcome, EQUAL, x, VERIFIED.name),
            result_text::figure_text(outcome, GROWING, x, VERIFIED.name),
            of(PUBLISHED_LARGE),
            of(LARGE),
            in_words(times_of(PUBLISHED_LARGE, LARGE, x, OPEN.name), 1),
        ));
    }
    paragraphs.extend(places(READY.name).into_iter().map(|x| after_a_kill(outcome, x)));
    paragraphs
}

fn after_a_kill(outcome: &Outcome, x: &str) -> String {
    let of = |figure: &str| {
        result_text::figure_text(outcome, first_append_after_kill::SERIES, x, figure)
    };
    format!(
        "{x}, with {} of the log not yet in the index: the store is opened and has answered an \
         append to a stream that was there and one to a new one after {}.",
        of(BEHIND.name),
        of(READY.name),
    )
}

//! `existence`: the filter alone beside the published design, and the event store after a kill.

use super::after_kill::{self, AfterKill, BEHIND, READY};
use super::existence_asking::{self, Asking, EQUAL, GROWING, HIT, LET_THROUGH, MISS, PUBLISHED};
use super::existence_opening::{self, LARGE, OPEN, Opening, PUBLISHED_LARGE, VERIFIED};
use super::existence_writing::{self, DEVICE, WRITTEN, Writing};
use super::{say, stream_article as article};
use crate::experiment::{Experiment, How, Needs, Source, Subject, named};
use crate::outcome::{Outcome, Scale};

/// The definition.
pub const EXPERIMENT: Experiment = Experiment {
    name: "existence",
    title: "A filter for every stream: asked, written, opened, killed",
    asks: "Beside the published design: what do a question, ten thousand new streams and an open \
           cost?",
    hypothesis: "Six probes anywhere in memory are six lines to fetch, one line is one. Six bits \
                 anywhere dirty nearly all pages with ten thousand names, a journal writes the \
                 names. Reading and verifying all takes longer the larger it is, reading what \
                 changed last does not. And after a kill nothing keeps an append waiting.",
    source: Source {
        name: "Bloom filters in EventStoreDB",
        part: "notes on implementation, and what its code does",
    },
    axis: "where",
    figures: &[MISS, HIT, LET_THROUGH, WRITTEN, DEVICE, OPEN, VERIFIED, READY, BEHIND],
    seeds: &[],
    how: How {
        settings: |scale| {
            let alike = "the published design is made anew from its description: one array, six \
                         probes, lines of 60 bytes and a checksum of 4, pages of 8 KiB";
            let said = [
                ("beside", alike.to_string()),
                ("asking", existence_asking::in_words(scale)),
                ("writing", existence_writing::in_words(scale)),
                ("opening", existence_opening::in_words(scale)),
                ("after kill -9", after_kill::in_words(scale)),
            ];
            named(said)
        },
        needs,
        rounds: |scale| scale.choose(3, 5),
        several_engines: false,
        warms_up: false,
        takes_data: false,
        wants: article::wants_events,
    },
    subjects: |lab| {
        let (place, scale) = (|| lab.place(), lab.scale);
        let subjects: Vec<Box<dyn Subject>> = vec![
            Box::new(Asking::new(place(), scale)),
            Box::new(Writing::new(place(), scale)),
            Box::new(Opening::new(place(), scale)),
            Box::new(AfterKill { place: place(), scale }),
        ];
        Ok(subjects)
    },
    meaning,
};

fn needs(scale: Scale) -> Needs {
    Needs {
        disk_bytes: after_kill::streams(scale) * 600 + (1 << 30),
        memory_bytes: scale.choose(512 << 20, 4 << 30),
    }
}

/// A ratio, or that there is none.
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
    let mut said = Vec::new();
    for x in places(MISS.name) {
        let of = |series: &str| in_words(times(series, x, MISS.name), 2);
        said.push(format!(
            "With {x} a name that is not there takes {} by the published design, which is {} \
             times one question to ours through the shared call, {} times one by a reader and \
             {} times one of a batch. It lets {} through, ours {}.",
            say::figure(outcome, PUBLISHED, x, MISS.name),
            of(existence_asking::SHARED),
            of(existence_asking::READER),
            of(existence_asking::BATCHED),
            say::figure(outcome, PUBLISHED, x, LET_THROUGH.name),
            say::figure(outcome, existence_asking::SHARED, x, LET_THROUGH.name),
        ));
    }
    for x in places(WRITTEN.name) {
        let ours = |series: &str| {
            let times = times(series, x, WRITTEN.name);
            times.map_or_else(String::new, |times| {
                let bytes = say::figure(outcome, series, x, WRITTEN.name);
                format!("; {series}, {bytes}, {times:.1} times less")
            })
        };
        said.push(format!(
            "{x}: ten thousand new streams have {} written by the published design{}{}.",
            say::figure(outcome, PUBLISHED, x, WRITTEN.name),
            ours(EQUAL),
            ours(GROWING),
        ));
    }
    for x in places(OPEN.name) {
        let of = |series: &str| say::figure(outcome, series, x, OPEN.name);
        let by = |series: &str| in_words(times(series, x, OPEN.name), 1);
        said.push(format!(
            "{x}: the published design denies its first name after {}, ours of equal size after \
             {} ({} times as fast) and the growing one after {} ({} times); all of ours is read \
             and verified after {} and {}. In the large size it is {} and {} ({} times).",
            of(PUBLISHED),
            of(EQUAL),
            by(EQUAL),
            of(GROWING),
            by(GROWING),
            say::figure(outcome, EQUAL, x, VERIFIED.name),
            say::figure(outcome, GROWING, x, VERIFIED.name),
            of(PUBLISHED_LARGE),
            of(LARGE),
            in_words(times_of(PUBLISHED_LARGE, LARGE, x, OPEN.name), 1),
        ));
    }
    said.extend(places(READY.name).into_iter().map(|x| after_a_kill(outcome, x)));
    said
}

fn after_a_kill(outcome: &Outcome, x: &str) -> String {
    let of = |figure: &str| say::figure(outcome, after_kill::SERIES, x, figure);
    format!(
        "{x}, with {} of the log not yet in the index: the store is opened and has answered an \
         append to a stream that was there and one to a new one after {}.",
        of(BEHIND.name),
        of(READY.name),
    )
}

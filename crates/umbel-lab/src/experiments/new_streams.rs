//! `new-streams`: the article's question, ten million new streams.

use super::say;
use super::stream_article::{self as article, Filter};
use crate::experiment::{Experiment, Seed};
use crate::outcome::Outcome;

/// The definition.
pub const EXPERIMENT: Experiment = Experiment {
    name: "new-streams",
    title: "How many new streams can be created in a second?",
    asks: "One new stream after the other: what does it cost to learn of each that it is new?",
    hypothesis: "To put the first event of a stream one has to know that there is none. Without a \
                 filter every look goes through all tables, the more the more there are; a filter \
                 that holds all names answers at once.",
    source: article::source("without and with a filter of 15 MB"),
    axis: "streams so far",
    figures: article::FIGURES,
    seeds: &[
        Seed {
            series: "the article, no filter",
            beside: "no filter",
            figure: "new streams",
            unit: "thousand per second",
            points: &[("1.00 M", 45.0), ("2.00 M", 15.0)],
        },
        Seed {
            series: "the article, 15 MB",
            beside: "fixed filter",
            figure: "new streams",
            unit: "thousand per second",
            points: &[("1.00 M", 50.0), ("10.00 M", 50.0)],
        },
    ],
    how: article::HOW,
    subjects: |lab| {
        let filters = [Filter::None, Filter::OfTables, Filter::Fixed, Filter::Growing];
        article::runs(lab, &filters)
    },
    meaning,
};

fn meaning(outcome: &Outcome) -> Vec<String> {
    let places = outcome.places();
    let (Some(first), Some(last)) = (places.first(), places.last()) else { return Vec::new() };
    let mut said = Vec::new();
    for series in outcome.series() {
        let rate = |x: &str| say::figure(outcome, series, x, "new streams");
        said.push(format!(
            "{series}: {} at {first}, {} at {last} ({}).",
            rate(first),
            rate(last),
            say::beside(outcome, series, last, first, "new streams"),
        ));
    }
    said.push(
        "The article's store fell from 45 to 15 thousand a second once its index was no longer in \
         memory, and a filter of 15 MB kept it at 50 thousand. Its filter has a fixed size and has \
         to be chosen before one knows how many streams there will be; a growing one need not be, \
         and the filters of the tables grow by themselves. The figures here are those of a \
         key-value store that is asked and then put to; the event store's own come with it."
            .to_string(),
    );
    said
}

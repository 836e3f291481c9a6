//! `saturation`: the article's last run, with a filter that is too small.

use super::say;
use super::stream_article::{self as article, Filter};
use crate::experiment::{Experiment, How, Seed};
use crate::outcome::Outcome;

/// The definition.
pub const EXPERIMENT: Experiment = Experiment {
    name: "saturation",
    title: "What happens when a filter of a fixed size is full?",
    asks: "With a fifteenth of the memory it should have: how does a fixed filter degrade, and a \
           growing one not?",
    hypothesis: "A filter that fills up lets more and more through, until it is as if there were \
                 none. It never gets worse than that.",
    source: article::source("saturation, with a filter of 1 MB"),
    axis: "streams so far",
    figures: article::FIGURES,
    seeds: &[Seed {
        series: "the article, no filter",
        beside: "no filter",
        figure: "new streams",
        unit: "thousand per second",
        points: &[("1.00 M", 45.0), ("2.00 M", 15.0)],
    }],
    how: How { several_engines: false, ..article::HOW },
    subjects: |lab| article::runs(lab, &[Filter::None, Filter::Small, Filter::Growing]),
    meaning,
};

fn meaning(outcome: &Outcome) -> Vec<String> {
    let places = outcome.places();
    let (Some(first), Some(last)) = (places.first(), places.last()) else { return Vec::new() };
    let of = |series: &str, x: &str, figure: &str| say::figure(outcome, series, x, figure);
    vec![
        format!(
            "The small filter asks the store in vain for {} up to {first} and for {} at {last}; \
             the growing one for {} at {last}.",
            of("small fixed filter", first, "asked in vain"),
            of("small fixed filter", last, "asked in vain"),
            of("growing filter", last, "asked in vain"),
        ),
        format!(
            "At {last} the rates are {} without a filter, {} with the small one and {} with the \
             growing one, which takes {} of memory by then.",
            of("no filter", last, "new streams"),
            of("small fixed filter", last, "new streams"),
            of("growing filter", last, "new streams"),
            of("growing filter", last, "existence filter"),
        ),
        "The article's curve sinks from the rate with a filter to that without one, and not below. \
         What sinks it is the share of questions that a full filter lets through. A filter that \
         grows is designed for as many streams as there are at any moment, so that there is \
         nothing to choose and nothing to rebuild at a restart with another size."
            .to_string(),
    ]
}

//! `more-bits-same-hashes`: the article's fifth experiment.

use super::leveldb_article::{self as article, FilterSetting};
use crate::experiment::{Experiment, ExperimentOptions, PublishedSeries};
use crate::experiments::filters::db_bench_store::FIGURES;
use crate::experiments::result_text;
use crate::results::outcome::Outcome;

const SETTINGS: [FilterSetting; 2] =
    [FilterSetting::hashes("10", 10, 6), FilterSetting::hashes("30", 30, 6)];

/// The definition.
pub const EXPERIMENT: Experiment = Experiment {
    name: "more-bits-same-hashes",
    title: "More bits, as many hashes",
    question: "With 6 hashes: are 30 bits per key better than 10?",
    hypothesis: "What a filter costs is its hashes, and what it brings is its bits: more bits with \
                 the same hashes should be better on the whole.",
    source: article::source("hypothesis 5"),
    axis: "bits per key, 6 hashes",
    figures: FIGURES,
    seeds: &[PublishedSeries {
        series: "theory",
        beside: "",
        figure: "false positives",
        unit: "%",
        points: &[("10", 0.844), ("30", 0.0035)],
    }],
    options: ExperimentOptions { unsupported: article::wants_hashes, ..article::HOW },
    subjects: |lab| article::stores(lab, &SETTINGS),
    meaning,
};

fn meaning(outcome: &Outcome) -> Vec<String> {
    let series = outcome.series().first().copied().unwrap_or_default();
    let beside = |figure: &str| result_text::comparison_text(outcome, series, "30", "10", figure);
    vec![
        format!(
            "30 bits beside 10: fillrandom {}, until settled {}, readrandom {}, readmissing {}, \
             false reads {}.",
            beside("fillrandom"),
            beside("fill, settled"),
            beside("readrandom"),
            beside("readmissing"),
            beside("false reads"),
        ),
        "The article found reads a little faster and writes slower. The sixth part of the bits \
         being set instead of half, most absent keys are refused by the first bit that is looked \
         at, and almost none pass; the price is three times the memory for filters."
            .to_string(),
    ]
}

//! `bits-and-hashes`: the article's fourth experiment.

use super::leveldb_article::{self as article, FilterSetting};
use crate::experiment::{Experiment, ExperimentOptions, PublishedSeries};
use crate::experiments::filters::db_bench_store::FIGURES;
use crate::experiments::result_text;
use crate::results::outcome::Outcome;

const SETTINGS: [FilterSetting; 3] = [
    FilterSetting::hashes("9/6", 9, 6),
    FilterSetting::hashes("10/6", 10, 6),
    FilterSetting::hashes("12/8", 12, 8),
];

/// The definition.
pub const EXPERIMENT: Experiment = Experiment {
    name: "bits-and-hashes",
    title: "Bits for which the number of hashes comes out even",
    question: "Are 9 bits with 6 hashes or 12 with 8, near the optimum, better than 10 with 6?",
    hypothesis: "The best number of hashes is 6.2 for 9 bits and 8.3 for 12: cut down to 6 and 8 \
                 they lose less than 6.9 cut down to 6, and should do better.",
    source: article::source("hypothesis 4"),
    axis: "bits/hashes",
    figures: FIGURES,
    seeds: &[PublishedSeries {
        series: "theory",
        beside: "",
        figure: "false positives",
        unit: "%",
        points: &[("9/6", 1.327), ("10/6", 0.844), ("12/8", 0.314)],
    }],
    options: ExperimentOptions { unsupported: article::wants_hashes, ..article::HOW },
    subjects: |lab| article::stores(lab, &SETTINGS),
    meaning,
};

fn meaning(outcome: &Outcome) -> Vec<String> {
    let series = outcome.series().first().copied().unwrap_or_default();
    let row = |x: &str| {
        let beside = |figure| result_text::comparison_text(outcome, series, x, "10/6", figure);
        format!(
            "{x} beside 10/6: fillrandom {}, readrandom {}, readmissing {}, false reads {}.",
            beside("fillrandom"),
            beside("readrandom"),
            beside("readmissing"),
            beside("false reads"),
        )
    };
    vec![
        row("9/6"),
        row("12/8"),
        "The article found 10 bits best and concludes that its question was wrong: the optimum of \
         the hashes is the best number for given bits, and says nothing against more bits. So it \
         is: the rate falls with the bits, by about 0.62 for each, and a number of hashes that is \
         cut down costs a few hundredths of it."
            .to_string(),
    ]
}

//! `read-missing`: the article's sixth experiment, on a finer scale.

use super::leveldb_article::{self as article, FilterSetting};
use crate::experiment::{Experiment, Figure, PublishedSeries};
use crate::experiments::filters::db_bench_store::{
    FALSE_POSITIVES, FALSE_READS, FILTERS, READMISSING,
};
use crate::experiments::result_text;
use crate::results::outcome::Outcome;

const FIGURES: &[Figure] = &[READMISSING, FALSE_READS, FALSE_POSITIVES, FILTERS];

const SETTINGS: [FilterSetting; 12] = [
    FilterSetting::bits("-1", -1),
    FilterSetting::bits("1", 1),
    FilterSetting::bits("2", 2),
    FilterSetting::bits("4", 4),
    FilterSetting::bits("6", 6),
    FilterSetting::bits("8", 8),
    FilterSetting::bits("10", 10),
    FilterSetting::bits("12", 12),
    FilterSetting::bits("16", 16),
    FilterSetting::bits("20", 20),
    FilterSetting::bits("100", 100),
    FilterSetting::bits("1000", 1000),
];

/// The definition.
pub const EXPERIMENT: Experiment = Experiment {
    name: "read-missing",
    title: "Missing keys alone",
    question: "With lookups of missing keys only: how much does each bit bring?",
    hypothesis: "False positives happen only where a key is not there, so that the effect of bits \
                 is greatest here, and more bits go on helping.",
    source: article::source("hypothesis 6"),
    axis: "bits per key",
    figures: FIGURES,
    seeds: &[PublishedSeries {
        series: "theory, one filter",
        beside: "",
        figure: "false positives",
        unit: "%",
        points: &[
            ("1", 63.2),
            ("2", 39.3),
            ("4", 14.7),
            ("6", 5.61),
            ("8", 2.16),
            ("10", 0.819),
            ("12", 0.314),
            ("16", 0.0459),
            ("20", 0.0067),
        ],
    }],
    options: article::HOW,
    subjects: |lab| match lab.data {
        Some(data) if data.missing.is_empty() => {
            Err(format!("{} has no `get` of a key that was never put", data.name).into())
        }
        _ => article::stores(lab, &SETTINGS),
    },
    meaning,
};

fn meaning(outcome: &Outcome) -> Vec<String> {
    let mut paragraphs = Vec::new();
    for series in outcome.series() {
        let of = |x: &str| result_text::figure_text(outcome, series, x, "readmissing");
        let searched = |x: &str| result_text::number_format(outcome, series, x, "false reads");
        let prefix = if series.is_empty() { String::new() } else { format!("{series}: ") };
        paragraphs.push(format!(
            "{prefix}A missing key takes {} without filters, {} with 4 bits, {} with 10 and {} \
             with 20; least at {}. A hundred missing keys cause {} useless table searches \
             without, {} with 4 bits and {} with 10.",
            of("-1"),
            of("4"),
            of("10"),
            of("20"),
            result_text::smallest_text(outcome, series, "readmissing"),
            searched("-1"),
            searched("4"),
            searched("10"),
        ));
    }
    paragraphs.push(
        "The article saw a jump as soon as there was any filter, and a further gain with every \
         bit. In theory each further bit takes away four tenths of the false reads that are left, \
         so that the first ten bring nearly all there is, and time can only follow as far as false \
         reads are what it is spent on. Filters in cache lines let a little more through than the \
         textbook's, whose rate stands beside the measured one."
            .to_string(),
    );
    paragraphs
        .extend(article::engines_that_cut_bits(outcome, &SETTINGS.map(|setting| setting.bits)));
    paragraphs
}

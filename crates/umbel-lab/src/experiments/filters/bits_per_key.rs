//! `bits-per-key`: the article's first experiment, and its sixth.

use super::leveldb_article::{self as article, FilterSetting};
use crate::experiment::{Experiment, PublishedSeries};
use crate::experiments::filters::db_bench_store::FIGURES;
use crate::experiments::result_text;
use crate::number_format::short;
use crate::results::outcome::Outcome;

const SETTINGS: [FilterSetting; 9] = [
    FilterSetting::bits("-1", -1),
    FilterSetting::bits("0", 0),
    FilterSetting::bits("1", 1),
    FilterSetting::bits("5", 5),
    FilterSetting::bits("10", 10),
    FilterSetting::bits("30", 30),
    FilterSetting::bits("50", 50),
    FilterSetting::bits("100", 100),
    FilterSetting::bits("1000", 1000),
];

/// The definition.
pub const EXPERIMENT: Experiment = Experiment {
    name: "bits-per-key",
    title: "What do the bits of a filter cost, and what do they bring?",
    question: "What do 1 to 1000 bits per key cost and bring, and where is the optimum?",
    hypothesis: "Larger filters let fewer absent keys through, but have to be written and read. \
                 The optimum is at the 10 bits per key that LevelDB takes by default.",
    source: article::source("hypotheses 1 and 6"),
    axis: "bits per key",
    figures: FIGURES,
    seeds: &[
        PublishedSeries {
            series: "the article, LevelDB",
            beside: "",
            figure: "fillrandom",
            unit: "µs per put",
            points: &[
                ("-1", 4.327),
                ("0", 4.389),
                ("1", 4.472),
                ("5", 4.475),
                ("10", 4.486),
                ("30", 4.729),
                ("50", 5.292),
                ("100", 5.382),
                ("1000", 7.781),
            ],
        },
        PublishedSeries {
            series: "the article, LevelDB",
            beside: "",
            figure: "readrandom",
            unit: "µs per get",
            points: &[
                ("-1", 3.20),
                ("0", 2.84),
                ("1", 2.81),
                ("5", 2.78),
                ("10", 2.41),
                ("30", 2.97),
                ("50", 3.40),
                ("100", 3.56),
                ("1000", 5.69),
            ],
        },
    ],
    options: article::HOW,
    subjects: |lab| article::stores(lab, &SETTINGS),
    meaning,
};

fn meaning(outcome: &Outcome) -> Vec<String> {
    let mut paragraphs = Vec::new();
    for series in outcome.series() {
        let of = |x: &str, figure: &str| result_text::figure_text(outcome, series, x, figure);
        let beside = |x: &str, base: &str, figure: &str| {
            result_text::comparison_text(outcome, series, x, base, figure)
        };
        let prefix = if series.is_empty() { String::new() } else { format!("{series}: ") };
        paragraphs.push(format!(
            "{prefix}A missing key takes {} without filters and {} with 10 bits ({}); it takes \
             least at {}.",
            of("-1", "readmissing"),
            of("10", "readmissing"),
            beside("10", "-1", "readmissing"),
            result_text::smallest_text(outcome, series, "readmissing"),
        ));
        paragraphs.push(format!(
            "{prefix}A random key takes {} without and {} with 10 bits ({}); least at {}. Filling \
             takes {} without, {} with 10 and {} with 1000 bits, until nothing is left to do in \
             the background {} and {} of that without.",
            of("-1", "readrandom"),
            of("10", "readrandom"),
            beside("10", "-1", "readrandom"),
            result_text::smallest_text(outcome, series, "readrandom"),
            of("-1", "fillrandom"),
            of("10", "fillrandom"),
            of("1000", "fillrandom"),
            beside("10", "-1", "fill, settled"),
            beside("1000", "-1", "fill, settled"),
        ));
        let number = |x| result_text::number_format(outcome, series, x, "false positives");
        let filters = |x| outcome.spread(series, x, "filters").map(|spread| short(spread.median));
        if let Some((ten, thousand)) = filters("10").zip(filters("1000")) {
            paragraphs.push(format!(
                "{prefix}The filters take {ten} MiB at 10 bits and {thousand} MiB at 1000. Of a \
                 hundred probes for absent keys {} pass at 5 bits, {} at 10 and {} at 30.",
                number("5"),
                number("10"),
                number("30"),
            ));
        }
    }
    let series = outcome.series().first().copied().unwrap_or_default();
    paragraphs.push(format!(
        "The article found its optimum for random reads at 10 bits, 0.75 of the time without \
         filters, and at 1000 bits 1.78 of it for reads and 1.80 for writes, since LevelDB reads a \
         filter of each table it asks through its cache. Where filters are in memory and \
         a key takes one cache line of one, more bits cost memory first of all: measured here, \
         1000 bits are, beside no filters, for random reads {}, and until a fill has settled {}.",
        result_text::comparison_text(outcome, series, "1000", "-1", "readrandom"),
        result_text::comparison_text(outcome, series, "1000", "-1", "fill, settled"),
    ));
    paragraphs
        .extend(article::engines_that_cut_bits(outcome, &SETTINGS.map(|setting| setting.bits)));
    paragraphs
}

//! `value-size`: the article's second experiment.

use super::leveldb_article::{self as article, FilterSetting};
use crate::experiment::{Experiment, ExperimentOptions, PublishedSeries};
use crate::experiments::filters::db_bench_store::FIGURES;
use crate::number_format::ratio;
use crate::results::outcome::Outcome;

const fn setting(
    series: &'static str,
    value_bytes: usize,
    x: &'static str,
    bits: i32,
) -> FilterSetting {
    FilterSetting { series, value_bytes, ..FilterSetting::bits(x, bits) }
}

const SETTINGS: [FilterSetting; 4] = [
    setting("128 bytes", 128, "-1", -1),
    setting("128 bytes", 128, "10", 10),
    setting("1280 bytes", 1280, "-1", -1),
    setting("1280 bytes", 1280, "10", 10),
];

/// The definition.
pub const EXPERIMENT: Experiment = Experiment {
    name: "value-size",
    title: "Does the size of values change what a filter costs?",
    question: "With values of 128 and of 1280 bytes: is what a filter costs and brings the same?",
    hypothesis: "The size of a filter follows from keys and bits alone, so that its cost does not \
                 depend on how long the values are.",
    source: article::source("hypothesis 2"),
    axis: "bits per key",
    figures: FIGURES,
    seeds: &[
        // The article gives changes in percent; the points are percent of the time without filter.
        PublishedSeries {
            series: "the article, 128 bytes",
            beside: "128 bytes",
            figure: "fillrandom",
            unit: "% of the time without",
            points: &[("-1", 100.0), ("10", 107.5)],
        },
        PublishedSeries {
            series: "the article, 1280 bytes",
            beside: "1280 bytes",
            figure: "fillrandom",
            unit: "% of the time without",
            points: &[("-1", 100.0), ("10", 108.7)],
        },
        PublishedSeries {
            series: "the article, 128 bytes",
            beside: "128 bytes",
            figure: "readrandom",
            unit: "% of the time without",
            points: &[("-1", 100.0), ("10", 93.5)],
        },
        PublishedSeries {
            series: "the article, 1280 bytes",
            beside: "1280 bytes",
            figure: "readrandom",
            unit: "% of the time without",
            points: &[("-1", 100.0), ("10", 91.3)],
        },
    ],
    options: ExperimentOptions { takes_data: false, ..article::HOW },
    subjects: |lab| article::stores(lab, &SETTINGS),
    meaning,
};

fn meaning(outcome: &Outcome) -> Vec<String> {
    let mut paragraphs = Vec::new();
    for series in outcome.series() {
        let share = |figure: &str| {
            let of = |x| outcome.spread(series, x, figure);
            match of("10").zip(of("-1")) {
                Some((with, without)) if with.equals(&without) => {
                    "equal within the spread".to_string()
                }
                Some((with, without)) => {
                    format!("{} of the time without", ratio(with.median, without.median))
                }
                None => "no sound figure".to_string(),
            }
        };
        paragraphs.push(format!(
            "Values of {series}, with 10 bits: fillrandom {}, until settled {}, readrandom {}, \
             readmissing {}.",
            share("fillrandom"),
            share("fill, settled"),
            share("readrandom"),
            share("readmissing"),
        ));
    }
    paragraphs.push(
        "The article (writes 7 % slower and reads 7 % faster at 128 bytes, 8 % and 9.5 % at 1280) \
         explains the difference by the number of filters: a table of a certain size holds fewer \
         keys, so that there are more and smaller filters. With a memtable of a fixed size \
         that holds for any store of this kind: longer values make more tables, and a missing key \
         is kept from more of them, so that filters bring more the longer the values are."
            .to_string(),
    );
    paragraphs
}

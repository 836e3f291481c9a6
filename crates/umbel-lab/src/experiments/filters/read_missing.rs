//! `read-missing`: the article's sixth experiment, on a finer scale.

use super::leveldb_article::{self as article, Setting};
use super::say;
use crate::experiment::{Experiment, Figure, Seed};
use crate::outcome::Outcome;
use crate::store_case::{FALSE_POSITIVES, FALSE_READS, FILTERS, READMISSING};

const FIGURES: &[Figure] = &[READMISSING, FALSE_READS, FALSE_POSITIVES, FILTERS];

const SETTINGS: [Setting; 12] = [
    Setting::bits("-1", -1),
    Setting::bits("1", 1),
    Setting::bits("2", 2),
    Setting::bits("4", 4),
    Setting::bits("6", 6),
    Setting::bits("8", 8),
    Setting::bits("10", 10),
    Setting::bits("12", 12),
    Setting::bits("16", 16),
    Setting::bits("20", 20),
    Setting::bits("100", 100),
    Setting::bits("1000", 1000),
];

/// The definition.
pub const EXPERIMENT: Experiment = Experiment {
    name: "read-missing",
    title: "Missing keys alone",
    asks: "Where only missing keys are asked for: how much does each bit bring?",
    hypothesis: "False positives happen only where a key is not there, so that the effect of bits \
                 is greatest here, and more bits go on helping.",
    source: article::source("hypothesis 6"),
    axis: "bits per key",
    figures: FIGURES,
    seeds: &[Seed {
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
    how: article::HOW,
    subjects: |lab| match lab.data {
        Some(data) if data.missing.is_empty() => {
            Err(format!("{} asks for no key that was never put", data.name).into())
        }
        _ => article::stores(lab, &SETTINGS),
    },
    meaning,
};

fn meaning(outcome: &Outcome) -> Vec<String> {
    let mut said = Vec::new();
    for series in outcome.series() {
        let of = |x: &str| say::figure(outcome, series, x, "readmissing");
        let searched = |x: &str| say::number(outcome, series, x, "false reads");
        let who = if series.is_empty() { String::new() } else { format!("{series}: ") };
        said.push(format!(
            "{who}A missing key takes {} without filters, {} with 4 bits, {} with 10 and {} with \
             20; least at {}. Of tables a hundred missing keys search in vain {} without, {} \
             with 4 bits and {} with 10.",
            of("-1"),
            of("4"),
            of("10"),
            of("20"),
            say::least_in_words(outcome, series, "readmissing"),
            searched("-1"),
            searched("4"),
            searched("10"),
        ));
    }
    said.push(
        "The article saw a jump as soon as there was any filter, and a further gain with every \
         bit. In theory each further bit takes away four tenths of the false reads that are left, \
         so that the first ten bring nearly all there is, and time can only follow as far as false \
         reads are what it is spent on. Filters in cache lines let a little more through than the \
         textbook's, whose rate stands beside the measured one."
            .to_string(),
    );
    said.extend(article::cut_bits(outcome, &SETTINGS.map(|setting| setting.bits)));
    said
}

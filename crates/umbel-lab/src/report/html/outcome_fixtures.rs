//! Outcomes that the report's tests share.

use crate::experiment::{ArticleSource, Experiment, Figure, PublishedSeries};
use crate::experiments::ALL;
use crate::measure::machine::Machine;
use crate::results::outcome::{
    Better, EngineNote, FigureNote, Outcome, Repetition, Scale, VERSION,
};

/// An experiment with one figure.
pub const EXPERIMENT: Experiment = Experiment {
    name: "sample",
    title: "A sample",
    question: "What does it ask?",
    hypothesis: "More is less.",
    source: ArticleSource { name: "An article", part: "its second part" },
    axis: "bits",
    figures: &[Figure { name: "reads", unit: "µs", better: Better::Lower, plot: true }],
    seeds: &[],
    meaning: |outcome| vec![format!("{} points were measured.", outcome.points.len())],
    ..*ALL[0]
};

/// [`EXPERIMENT`] with a published series.
pub const SEEDED: Experiment = Experiment {
    seeds: &[PublishedSeries {
        series: "series 0 of an article",
        beside: "series 0",
        figure: "reads",
        unit: "ms",
        points: &[("0", 90.0), ("10", 30.0), ("20", 12.0), ("40", 11.0)],
    }],
    ..EXPERIMENT
};

/// Returns an outcome of one figure in µs. Each value stands for three repetitions around it; if it
/// is not a number they are flagged.
pub fn outcome(figure: &str, series: &[(&str, &[(&str, f64)])]) -> Outcome {
    let figure_note =
        FigureNote { name: figure.to_string(), unit: "µs".to_string(), better: Better::Lower };
    let mut outcome = Outcome {
        umbel_lab: VERSION,
        experiment: "sample".to_string(),
        scale: Scale::Small,
        engines: vec![EngineNote {
            name: "umbel".to_string(),
            version: "0.1.0".to_string(),
            settings: "as they are".to_string(),
            recommended: vec!["https://example.org/settings".to_string()],
            bloom_bits_max: None,
        }],
        machine: Machine {
            date: "2026-11-22".to_string(),
            processor: "A processor".to_string(),
            threads: 2,
            memory_mib: Some(24_111),
            kernel: "Linux 6.1".to_string(),
            file_system: "ext4".to_string(),
            commit: "0123456789abcdef".to_string(),
            binary: "fedcba9876543210".to_string(),
        },
        started: "2026-11-22T17:05:00Z".to_string(),
        seconds: 200.0,
        rounds: 3,
        order: None,
        settings: vec![("Keys".to_string(), "1,000,000".to_string())],
        axis: "bits".to_string(),
        figures: vec![figure_note],
        points: Vec::new(),
    };
    for (name, points) in series {
        for (place, value) in *points {
            for (round, factor) in (0..).zip([1.0, 0.99, 1.01]) {
                let (value, flags) = match value.is_nan() {
                    true => (666.0, vec!["the clock jumped & fell".to_string()]),
                    false => (value * factor, Vec::new()),
                };
                outcome.add(name, place, figure, Repetition { round, value, flags, cost: None });
            }
        }
    }
    outcome
}

/// Returns an outcome of the given number of series at the given number of places.
pub fn grid(series: usize, places: usize) -> Outcome {
    let places: Vec<String> = (0..places).map(|place| (place * 10).to_string()).collect();
    let value = |series: usize, place: usize| 100.0 * (series + 1) as f64 / (place + 1) as f64;
    let names: Vec<String> = (0..series).map(|at| format!("series {at}")).collect();
    let points: Vec<Vec<(&str, f64)>> = (0..series)
        .map(|at| {
            let places = places.iter().enumerate();
            places.map(|(place, name)| (name.as_str(), value(at, place))).collect()
        })
        .collect();
    let lines: Vec<(&str, &[(&str, f64)])> = names
        .iter()
        .zip(&points)
        .map(|(name, points)| (name.as_str(), points.as_slice()))
        .collect();
    outcome("reads", &lines)
}

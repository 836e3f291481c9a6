//! Outcome of a run of an experiment: the content of a result file.
//!
//! FORMAT: `docs/formats/lab-result.md` describes the JSON of these types.

use serde::{Deserialize, Serialize};

use crate::measure::machine::Machine;

/// Version of the format of result files.
pub const VERSION: u32 = 2;
/// Oldest version that is read, whose files have no costs and no order.
pub const VERSION_OLDEST: u32 = 1;
/// Figures whose medians differ by less than this share of the smaller one count as equal: no
/// machine has less noise between two runs.
pub const NOISE_FLOOR: f64 = 0.03;
/// Number of repetitions from which two equal subjects are rarely called different: with four each,
/// once in 35 comparisons.
pub const INTERVAL_COUNT_MIN: usize = 4;
/// Noise floor for fewer repetitions.
pub const NOISE_FLOOR_FEW: f64 = 0.1;

/// Scale of the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// All experiments within minutes: enough to see directions.
    Small,
    /// As large as in the articles, or larger.
    Full,
}

impl Scale {
    /// Returns one of two values.
    pub fn choose<T>(self, small: T, full: T) -> T {
        match self {
            Scale::Small => small,
            Scale::Full => full,
        }
    }

    /// Returns its name.
    pub fn name(self) -> &'static str {
        self.choose("small", "full")
    }
}

/// Better direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Smaller values are better.
    Lower,
    /// Larger values are better.
    Higher,
    /// Neither: the figure only explains other figures.
    Neither,
}

/// Figure that was measured at each point.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FigureNote {
    /// The figure's name, such as `readrandom`.
    pub name: String,
    /// The figure's unit.
    pub unit: String,
    /// Better direction.
    pub better: Better,
}

/// Cost of the work in which a value was measured, without its untimed parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// Number of operations.
    pub operations: u64,
    /// Wall time in nanoseconds.
    pub wall_ns: u64,
    /// Processor time of the calling thread, user and system, in nanoseconds.
    pub thread_ns: u64,
    /// Processor time of all threads of the program, user and system, in nanoseconds.
    pub process_ns: u64,
}

/// Order in which subjects were measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// Subjects that were measured in each round.
    pub subjects: Vec<String>,
    /// For each round, the indexes of the subjects above, in the order of their turns.
    pub rounds: Vec<Vec<usize>>,
}

/// One repetition of one figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Repetition {
    /// The round of the repetition, from 0.
    pub round: u32,
    /// Measured value, in the figure's unit.
    pub value: f64,
    /// Reasons why the repetition does not count, a sentence each; empty if it counts.
    pub flags: Vec<String>,
    /// Cost of the work, if the value was measured in timed work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
}

/// All repetitions of one figure at one point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// The point's line of the plot, such as an engine, a hash or a setting.
    pub series: String,
    /// The point's place on the line, such as a number of bits.
    pub x: String,
    /// The name of the figure.
    pub figure: String,
    /// The repetitions, in the order of their rounds.
    pub repetitions: Vec<Repetition>,
}

/// Median and ends of the counted repetitions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The least.
    pub low: f64,
    /// The greatest.
    pub high: f64,
    /// Their number.
    pub count: usize,
    /// Confidence interval of the median, with a confidence of some 94 % or more: two order
    /// statistics, for few values the minimum and the maximum.
    pub interval: (f64, f64),
}

impl Spread {
    /// Creates the spread of these values; `None` if there are none.
    pub fn of(mut values: Vec<f64>) -> Option<Spread> {
        values.sort_by(f64::total_cmp);
        let (low, high, count) = (*values.first()?, *values.last()?, values.len());
        let (below, above) = (values[(count - 1) / 2], values[count / 2]);
        let outside = outside_of_interval(count);
        let interval = (values[outside], values[count - 1 - outside]);
        Some(Spread { median: f64::midpoint(below, above), low, high, count, interval })
    }

    /// Divides all values by a number above 0.
    pub fn divided_by(&self, whole: f64) -> Spread {
        let [median, low, high] = [self.median, self.low, self.high].map(|value| value / whole);
        let interval = (self.interval.0 / whole, self.interval.1 / whole);
        Spread { median, low, high, interval, ..*self }
    }

    /// Creates the spread of a single value.
    pub fn single(value: f64) -> Spread {
        let interval = (value, value);
        Spread { median: value, low: value, high: value, count: 1, interval }
    }

    /// Whether two spreads are statistically equal: the intervals of their medians overlap, or the
    /// medians differ by less than [`NOISE_FLOOR`], or [`NOISE_FLOOR_FEW`] if one has few
    /// repetitions.
    pub fn equals(&self, other: &Spread) -> bool {
        let (a, b) = (self.median.abs(), other.median.abs());
        let meet = self.interval.0 <= other.interval.1 && other.interval.0 <= self.interval.1;
        let is_few = self.count.min(other.count) < INTERVAL_COUNT_MIN;
        let floor = if is_few { NOISE_FLOOR_FEW } else { NOISE_FLOOR };
        meet || (self.median - other.median).abs() <= a.min(b) * floor
    }
}

/// Returns the number of sorted values to leave out at each end, so that the others contain the
/// median with a confidence of 93.75 %, that of the ends of five: the sign test.
fn outside_of_interval(count: usize) -> usize {
    let mut outside = 0;
    // Twice the probability that at most `outside` of them are on one side of the median.
    let (mut chance, mut term) = (0.0, 2.0f64.powi(1 - count.min(1000) as i32));
    while outside < count / 2 {
        chance += term;
        if chance > 0.0625 {
            break;
        }
        term *= (count - outside) as f64 / (outside + 1) as f64;
        outside += 1;
    }
    outside.saturating_sub(1)
}

impl Point {
    /// Returns the spread of the counted repetitions; `None` if none counts.
    pub fn spread(&self) -> Option<Spread> {
        let counting = self.repetitions.iter().filter(|repetition| repetition.flags.is_empty());
        Spread::of(counting.map(|repetition| repetition.value).collect())
    }

    /// Returns the number of repetitions that do not count.
    pub fn flagged_count(&self) -> usize {
        self.repetitions.iter().filter(|repetition| !repetition.flags.is_empty()).count()
    }
}

/// Engine that took part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineNote {
    /// The engine's name.
    pub name: String,
    /// The version that the engine reports.
    pub version: String,
    /// The engine's settings, in words.
    pub settings: String,
    /// Sources in which its makers or users recommend these settings.
    pub recommended: Vec<String>,
    /// Maximum number of bits per key of the engine's filters, for any setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bloom_bits_max: Option<i32>,
}

/// Outcome of a run of one experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outcome {
    /// The version of the format, [`VERSION`].
    pub umbel_lab: u32,
    /// The experiment.
    pub experiment: String,
    /// Scale of the measurement.
    pub scale: Scale,
    /// The engines that took part.
    pub engines: Vec<EngineNote>,
    /// The machine.
    pub machine: Machine,
    /// Start time, `2026-11-22T17:05:00Z`.
    pub started: String,
    /// Duration of the run, in seconds.
    pub seconds: f64,
    /// Requested number of rounds; there are more if repetitions did not count.
    pub rounds: u32,
    /// Order of the turns; `None` in results of version 1, which had the same order in every round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<Order>,
    /// Settings that are the same for all points, as names and values.
    pub settings: Vec<(String, String)>,
    /// Property in which the points of a series differ, such as `bits per key`.
    pub axis: String,
    /// The figures.
    pub figures: Vec<FigureNote>,
    /// The points, in the order in which they were first measured.
    pub points: Vec<Point>,
}

impl Outcome {
    /// Returns the point with these names.
    pub fn point(&self, series: &str, x: &str, figure: &str) -> Option<&Point> {
        let is_it = |p: &&Point| p.series == series && p.x == x && p.figure == figure;
        self.points.iter().find(is_it)
    }

    /// Returns the spread at the point with these names.
    pub fn spread(&self, series: &str, x: &str, figure: &str) -> Option<Spread> {
        self.point(series, x, figure)?.spread()
    }

    /// Returns the series, in the order in which they were first measured.
    pub fn series(&self) -> Vec<&str> {
        distinct(self.points.iter().map(|point| point.series.as_str()))
    }

    /// Returns the places along the series, in the order in which they were first measured.
    pub fn places(&self) -> Vec<&str> {
        distinct(self.points.iter().map(|point| point.x.as_str()))
    }

    /// Adds a repetition.
    pub fn add(&mut self, series: &str, x: &str, figure: &str, repetition: Repetition) {
        let is_it = |p: &&mut Point| p.series == series && p.x == x && p.figure == figure;
        match self.points.iter_mut().find(is_it) {
            Some(point) => point.repetitions.push(repetition),
            None => self.points.push(Point {
                series: series.to_string(),
                x: x.to_string(),
                figure: figure.to_string(),
                repetitions: vec![repetition],
            }),
        }
    }

    /// Returns the number of repetitions that do not count.
    pub fn flagged_count(&self) -> usize {
        self.points.iter().map(Point::flagged_count).sum()
    }
}

fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = Vec::new();
    for name in names {
        if !seen.contains(&name) {
            seen.push(name);
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flagged_repetitions_never_count() {
        let repetition = |value, flag: &str| Repetition {
            round: 0,
            value,
            flags: if flag.is_empty() { vec![] } else { vec![flag.to_string()] },
            cost: None,
        };
        let mut point = Point {
            series: String::new(),
            x: String::new(),
            figure: String::new(),
            repetitions: vec![repetition(3.0, ""), repetition(900.0, "the clock jumped")],
        };
        let of = |values: &[f64]| Spread::of(values.to_vec());
        assert_eq!(point.spread(), of(&[3.0]));
        point.repetitions.push(repetition(5.0, ""));
        assert_eq!(point.spread(), of(&[3.0, 5.0]));
        assert_eq!(point.flagged_count(), 1);
        point.repetitions.retain(|repetition| !repetition.flags.is_empty());
        assert_eq!(point.spread(), None);
    }

    #[test]
    fn figures_whose_intervals_meet_are_equal() {
        let of = |values: &[f64]| Spread::of(values.to_vec()).expect("some values");
        assert!(of(&[1.0, 2.0, 3.0, 3.0]).equals(&of(&[2.9, 4.0, 5.0, 5.0])));
        assert!(!of(&[1.0, 2.0, 3.0, 3.0]).equals(&of(&[3.5, 4.0, 5.0, 5.0])));
        assert!(of(&[100.0; 4]).equals(&of(&[102.9; 4])));
        assert!(!of(&[100.0; 4]).equals(&of(&[104.0; 4])));
        assert!(of(&[100.0]).equals(&of(&[109.0])), "one repetition says little");
        assert!(!of(&[100.0]).equals(&of(&[112.0])));
        assert!(of(&[0.0]).equals(&of(&[0.0])));
    }

    #[test]
    fn one_outlier_among_many_does_not_make_figures_equal() {
        let of = |values: Vec<f64>| Spread::of(values).expect("some values");
        let mut values = vec![100.0; 8];
        values.push(210.0);
        assert!(!of(values).equals(&of(vec![200.0; 9])));
    }

    #[test]
    fn intervals_follow_the_sign_test() {
        let outside: Vec<usize> = [1, 2, 4, 5, 6, 7, 8, 9, 12, 20].map(outside_of_interval).into();
        assert_eq!(outside, [0, 0, 0, 0, 0, 0, 0, 1, 2, 5]);
    }
}

//! What a run of an experiment found: the content of a result file.
//!
//! FORMAT: `docs/formats/lab-result.md` describes the JSON that these types become.

use serde::{Deserialize, Serialize};

use crate::machine::Machine;

/// The version of the format of result files.
pub const VERSION: u32 = 2;
/// The oldest version that is read: it has no costs and no order.
pub const VERSION_OLDEST: u32 = 1;
/// Figures that differ by less than this share of the smaller one are never called different: no
/// machine is quieter than that from one run to the next.
pub const NOISE_FLOOR: f64 = 0.03;
/// From so many repetitions on the chance that two that are the same are called different is small:
/// of four each, one in 35.
pub const ENOUGH: usize = 4;
/// The share where one has fewer.
pub const FEW_FLOOR: f64 = 0.1;

/// How much is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// All experiments within minutes: enough to see directions.
    Small,
    /// As large as the articles had it, or larger.
    Full,
}

impl Scale {
    /// One of two values.
    pub fn choose<T>(self, small: T, full: T) -> T {
        match self {
            Scale::Small => small,
            Scale::Full => full,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.choose("small", "full")
    }
}

/// Which way is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Less.
    Lower,
    /// More.
    Higher,
    /// Neither: it only explains other figures.
    Neither,
}

/// What was measured at each point.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FigureNote {
    /// Its name, such as `readrandom`.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// Which way is better.
    pub better: Better,
}

/// What the work took in which something was measured: what was made meanwhile is in none of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// How many operations it was.
    pub operations: u64,
    /// Nanoseconds on the wall.
    pub wall_ns: u64,
    /// Nanoseconds of a processor, user and system, of the thread that asked.
    pub thread_ns: u64,
    /// The same of all threads of the program.
    pub process_ns: u64,
}

/// In which order subjects were measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// Who was measured in each round.
    pub subjects: Vec<String>,
    /// For each round, their places in the list above in the order in which they had their turns.
    pub rounds: Vec<Vec<usize>>,
}

/// One repetition of one figure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Repetition {
    /// Which round it belongs to, from 0.
    pub round: u32,
    /// What was measured, in the figure's unit.
    pub value: f64,
    /// Why it counts for nothing, a sentence for each reason; empty where it counts.
    pub flags: Vec<String>,
    /// What the work took that the value was measured in, where it was measured in some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Cost>,
}

/// All repetitions of one figure at one point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Point {
    /// Which line of the plot it is on, such as an engine, a hash or a setting.
    pub series: String,
    /// Where on that line, such as a number of bits.
    pub x: String,
    /// The name of the figure.
    pub figure: String,
    /// The repetitions, in the order of their rounds.
    pub repetitions: Vec<Repetition>,
}

/// The middle and the ends of the repetitions that count.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The least.
    pub low: f64,
    /// The greatest.
    pub high: f64,
    /// How many there are.
    pub count: usize,
    /// Between these the median of many more would lie, with some 94 % or more certainty: order
    /// statistics, the least and the greatest where there are few.
    pub interval: (f64, f64),
}

impl Spread {
    /// Of these values; `None` where there are none.
    pub fn of(mut values: Vec<f64>) -> Option<Spread> {
        values.sort_by(f64::total_cmp);
        let (low, high, count) = (*values.first()?, *values.last()?, values.len());
        let (below, above) = (values[(count - 1) / 2], values[count / 2]);
        let outside = outside_of_interval(count);
        let interval = (values[outside], values[count - 1 - outside]);
        Some(Spread { median: f64::midpoint(below, above), low, high, count, interval })
    }

    /// Everything divided by a number above 0.
    pub fn divided_by(&self, whole: f64) -> Spread {
        let [median, low, high] = [self.median, self.low, self.high].map(|value| value / whole);
        let interval = (self.interval.0 / whole, self.interval.1 / whole);
        Spread { median, low, high, interval, ..*self }
    }

    /// A value that stands alone.
    pub fn single(value: f64) -> Spread {
        let interval = (value, value);
        Spread { median: value, low: value, high: value, count: 1, interval }
    }

    /// Whether the two cannot be told apart: the intervals of their medians meet, or the medians
    /// differ by less than [`NOISE_FLOOR`], or [`FEW_FLOOR`] where one has few repetitions.
    pub fn equals(&self, other: &Spread) -> bool {
        let (a, b) = (self.median.abs(), other.median.abs());
        let meet = self.interval.0 <= other.interval.1 && other.interval.0 <= self.interval.1;
        let is_few = self.count.min(other.count) < ENOUGH;
        let floor = if is_few { FEW_FLOOR } else { NOISE_FLOOR };
        meet || (self.median - other.median).abs() <= a.min(b) * floor
    }
}

/// How many of so many sorted values may be left out at each end so that the others hold the median
/// with a certainty of 93.75 %, that of the ends of five: the sign test.
fn outside_of_interval(count: usize) -> usize {
    let mut outside = 0;
    // The chance that no more than `outside` of them lie on one side of the median, twice.
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
    /// The spread of the repetitions that count; `None` where none does.
    pub fn spread(&self) -> Option<Spread> {
        let counting = self.repetitions.iter().filter(|repetition| repetition.flags.is_empty());
        Spread::of(counting.map(|repetition| repetition.value).collect())
    }

    /// How many repetitions count for nothing.
    pub fn flagged(&self) -> usize {
        self.repetitions.iter().filter(|repetition| !repetition.flags.is_empty()).count()
    }
}

/// Who was measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EngineNote {
    /// Its name.
    pub name: String,
    /// Its version, as it says itself.
    pub version: String,
    /// Its settings, in words.
    pub settings: String,
    /// Where its makers or users recommend these settings.
    pub recommended: Vec<String>,
    /// The most bits per key that its filters have, whatever more they are told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bloom_bits_max: Option<i32>,
}

/// What a run of one experiment found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outcome {
    /// The version of the format, [`VERSION`].
    pub umbel_lab: u32,
    /// The experiment.
    pub experiment: String,
    /// How much was measured.
    pub scale: Scale,
    /// The engines that took part.
    pub engines: Vec<EngineNote>,
    /// Where it was measured.
    pub machine: Machine,
    /// When it began, `2026-11-22T17:05:00Z`.
    pub started: String,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// How many rounds were asked for; there are more where repetitions did not count.
    pub rounds: u32,
    /// Who had his turn when; `None` in results of version 1, in which it was the same order in
    /// every round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<Order>,
    /// What was the same for all points, as names and values.
    pub settings: Vec<(String, String)>,
    /// What the points differ in along a series, such as `bits per key`.
    pub axis: String,
    /// What was measured.
    pub figures: Vec<FigureNote>,
    /// The points, in the order in which they were first reached.
    pub points: Vec<Point>,
}

impl Outcome {
    /// The point of these names.
    pub fn point(&self, series: &str, x: &str, figure: &str) -> Option<&Point> {
        let is_it = |p: &&Point| p.series == series && p.x == x && p.figure == figure;
        self.points.iter().find(is_it)
    }

    /// The spread at the point of these names.
    pub fn spread(&self, series: &str, x: &str, figure: &str) -> Option<Spread> {
        self.point(series, x, figure)?.spread()
    }

    /// The series, in the order in which they were first reached.
    pub fn series(&self) -> Vec<&str> {
        distinct(self.points.iter().map(|point| point.series.as_str()))
    }

    /// The places along the series, in the order in which they were first reached.
    pub fn places(&self) -> Vec<&str> {
        distinct(self.points.iter().map(|point| point.x.as_str()))
    }

    /// Takes a repetition in.
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

    /// How many repetitions count for nothing.
    pub fn flagged(&self) -> usize {
        self.points.iter().map(Point::flagged).sum()
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
        assert_eq!(point.flagged(), 1);
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
    fn intervals_leave_out_what_the_sign_test_allows() {
        let outside: Vec<usize> = [1, 2, 4, 5, 6, 7, 8, 9, 12, 20].map(outside_of_interval).into();
        assert_eq!(outside, [0, 0, 0, 0, 0, 0, 0, 1, 2, 5]);
    }
}

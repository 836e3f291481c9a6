//! Converts values to positions along an axis of a plot.

use crate::report::html::number_labels::tick;

/// Ratio of the greatest value to the least one from which the axis is logarithmic.
const LOG_FROM: f64 = 50.0;
/// Share of a logarithmic axis that is reserved for values of 0, which have no logarithm.
const ZERO_SHARE: f64 = 0.08;
/// Approximate number of steps of an axis.
const STEPS: f64 = 6.0;
/// Up to this many powers of ten, each 1, 2 and 5 times a power has a tick.
const FEW_POWERS: f64 = 3.2;
/// Larger values are drawn at this value, so that differences stay finite.
const LARGEST: f64 = 1e300;
/// Smaller values above 0 are drawn at this value, because smaller floats are inexact.
const SMALLEST: f64 = 1e-300;

/// An axis from its low end, 0, to its high end, 1.
#[derive(Debug, Clone, PartialEq)]
pub struct AxisScale {
    kind: ScaleKind,
    low: f64,
    high: f64,
    /// The round values along the axis, with their labels.
    pub ticks: Vec<(f64, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScaleKind {
    Linear,
    Log { zero: bool },
}

impl AxisScale {
    /// Creates an axis that covers all of these values, and also 0 unless the axis is logarithmic.
    pub fn covering(values: impl Iterator<Item = f64>) -> AxisScale {
        let values: Vec<f64> = values.map(|value| value.clamp(-LARGEST, LARGEST)).collect();
        let least = values.iter().copied().fold(0.0, f64::min);
        let greatest = values.iter().copied().fold(0.0, f64::max);
        let positive = values.iter().copied().filter(|value| *value > 0.0);
        let least_positive = positive.fold(f64::INFINITY, f64::min).max(SMALLEST);
        if least >= 0.0 && greatest / least_positive > LOG_FROM {
            return AxisScale::log(least_positive, greatest, values.contains(&0.0));
        }
        AxisScale::linear(least, greatest)
    }

    /// Whether the axis is logarithmic.
    pub fn is_log(&self) -> bool {
        self.kind != ScaleKind::Linear
    }

    /// Returns the position of a value.
    pub fn share(&self, value: f64) -> f64 {
        let value = value.clamp(-LARGEST, LARGEST);
        let share = match self.kind {
            ScaleKind::Linear => (value - self.low) / (self.high - self.low),
            ScaleKind::Log { .. } if value <= 0.0 => 0.0,
            ScaleKind::Log { zero } => {
                let value = value.max(SMALLEST);
                let kept = if zero { ZERO_SHARE } else { 0.0 };
                let logs = [value, self.low, self.high].map(f64::log10);
                kept + (1.0 - kept) * (logs[0] - logs[1]) / (logs[2] - logs[1])
            }
        };
        share.clamp(0.0, 1.0)
    }

    fn linear(least: f64, greatest: f64) -> AxisScale {
        let span = greatest - least;
        let step = if span > SMALLEST { round_up(span / STEPS) } else { 1.0 };
        let first = (least / step).floor();
        let last = (greatest / step).ceil().max(first + 1.0);
        let count = (last - first) as u32;
        let values = (0..=count).map(|at| (first + f64::from(at)) * step);
        let ticks = values.map(|value| (value, tick(value))).collect();
        AxisScale { kind: ScaleKind::Linear, low: first * step, high: last * step, ticks }
    }

    fn log(least: f64, greatest: f64, zero: bool) -> AxisScale {
        let (low, high) = (round_down(least), round_up(greatest));
        let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
        let few = high.log10() - low.log10() <= FEW_POWERS;
        let between: &[f64] = if few { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let every = ((last - first) / 8 + 1) as usize;
        let powers = (first..=last).step_by(every);
        let values =
            powers.flat_map(|power| between.iter().map(move |of| of * power_of_ten(power)));
        // Powers of ten are not exact, so the ends are widened a little.
        let (from, to) = (low * (1.0 - 1e-9), high * (1.0 + 1e-9));
        let values = values.filter(|value| (from..=to).contains(value));
        let zero_tick = zero.then(|| (0.0, tick(0.0)));
        let ticks = zero_tick.into_iter().chain(values.map(|value| (value, tick(value))));
        AxisScale { kind: ScaleKind::Log { zero }, low, high, ticks: ticks.collect() }
    }
}

fn power_of_ten(power: i32) -> f64 {
    format!("1e{power}").parse().unwrap_or(f64::MIN_POSITIVE)
}

/// Returns the least number of 1, 2 or 5 times a power of ten that is not less.
fn round_up(value: f64) -> f64 {
    let power = power_of_ten(value.log10().floor() as i32);
    let factors = [1.0, 2.0, 5.0, 10.0].into_iter();
    factors.map(|factor| factor * power).find(|round| *round >= value).unwrap_or(value)
}

/// Returns the greatest number of 1, 2 or 5 times a power of ten that is not greater.
fn round_down(value: f64) -> f64 {
    let power = power_of_ten(value.log10().floor() as i32);
    let factors = [5.0, 2.0, 1.0].into_iter();
    factors.map(|factor| factor * power).find(|round| *round <= value).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(scale: &AxisScale) -> Vec<&str> {
        scale.ticks.iter().map(|(_, text)| text.as_str()).collect()
    }

    #[test]
    fn an_axis_begins_at_zero() {
        let scale = AxisScale::covering([3.0, 9.5, 7.0].into_iter());
        assert_eq!(texts(&scale), ["0", "2", "4", "6", "8", "10"]);
        assert_eq!((scale.share(0.0), scale.share(5.0), scale.share(10.0)), (0.0, 0.5, 1.0));
        assert!(!scale.is_log());
    }

    #[test]
    fn axis_is_logarithmic_above_a_factor_of_fifty() {
        assert!(!AxisScale::covering([1.0, 50.0].into_iter()).is_log());
        let scale = AxisScale::covering([1.0, 51.0].into_iter());
        assert!(scale.is_log());
        assert_eq!(texts(&scale), ["1", "2", "5", "10", "20", "50", "100"]);
        assert!((scale.share(10.0) - 0.5).abs() < 1e-9);
        assert!(!AxisScale::covering([-1.0, 1.0, 51.0].into_iter()).is_log());
    }

    #[test]
    fn logarithmic_axis_shows_zero_apart() {
        let scale = AxisScale::covering([0.0, 1.0, 100_000.0].into_iter());
        assert_eq!(texts(&scale), ["0", "1", "10", "100", "1,000", "10,000", "100,000"]);
        assert_eq!((scale.share(0.0), scale.share(1.0)), (0.0, ZERO_SHARE));
    }

    #[test]
    fn extreme_values_have_an_axis() {
        let cases: [&[f64]; 10] = [
            &[],
            &[0.0],
            &[0.0, 0.0],
            &[-5.0, -1.0],
            &[-3.0, 4.0],
            &[5e-324, 1e308],
            &[5e-324],
            &[-1e308, 1e308],
            &[0.07],
            &[1e-7, 1e12, 0.0],
        ];
        for values in cases {
            let scale = AxisScale::covering(values.iter().copied());
            assert!((2..=15).contains(&scale.ticks.len()), "{values:?}: {scale:?}");
            let mut tick_shares = scale.ticks.iter().map(|(value, _)| scale.share(*value));
            assert!(tick_shares.all(|share| (0.0..=1.0).contains(&share)), "{scale:?}");
            for value in values {
                assert!((0.0..=1.0).contains(&scale.share(*value)), "{value:e} on {scale:?}");
            }
        }
    }
}

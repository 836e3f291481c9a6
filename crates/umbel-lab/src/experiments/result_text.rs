//! Sentences about figures.

use crate::number_format::{ratio, short};
use crate::results::outcome::{Outcome, Spread};

/// Returns a figure with its unit, or a text for a missing one.
pub fn figure_text(outcome: &Outcome, series: &str, x: &str, figure: &str) -> String {
    let unit = outcome.figures.iter().find(|note| note.name == figure);
    let unit = unit.map_or("", |note| note.unit.as_str());
    match outcome.spread(series, x, figure) {
        Some(spread) => format!("{} {unit}", short(spread.median)),
        None => "no sound figure".to_string(),
    }
}

/// Returns the number of a figure alone, for a sentence that has the unit.
pub fn number_format(outcome: &Outcome, series: &str, x: &str, figure: &str) -> String {
    let spread = outcome.spread(series, x, figure);
    spread.map_or_else(|| "no sound figure".to_string(), |spread| short(spread.median))
}

/// Compares the figure at `x` with that at `base`: `equal within the spread`, or `0.62 of it`.
pub fn comparison_text(
    outcome: &Outcome,
    series: &str,
    x: &str,
    base: &str,
    figure: &str,
) -> String {
    let of = |place| outcome.spread(series, place, figure);
    match of(x).zip(of(base)) {
        Some((there, here)) if there.equals(&here) => "equal within the spread".to_string(),
        Some((there, here)) => format!("{} of it", ratio(there.median, here.median)),
        None => "no sound figure".to_string(),
    }
}

/// Returns the place of a series with the smallest figure, and all places that are statistically
/// equal to that place.
pub fn smallest(outcome: &Outcome, series: &str, figure: &str) -> Option<(String, Vec<String>)> {
    let at = |x: &str| outcome.spread(series, x, figure);
    let places = outcome.places().into_iter().filter_map(|x| Some((x, at(x)?)));
    let places: Vec<(&str, Spread)> = places.collect();
    let (best, least) = places.iter().min_by(|a, b| a.1.median.total_cmp(&b.1.median))?;
    let alike = places.iter().filter(|(x, spread)| x != best && spread.equals(least));
    Some(((*best).to_string(), alike.map(|(x, _)| (*x).to_string()).collect()))
}

/// Returns the best places as text, such as `10 (5, 30 equal within the spread)`.
pub fn smallest_text(outcome: &Outcome, series: &str, figure: &str) -> String {
    match smallest(outcome, series, figure) {
        None => "nowhere that is sound".to_string(),
        Some((best, alike)) if alike.is_empty() => best,
        Some((best, alike)) => format!("{best} ({} equal within the spread)", alike.join(", ")),
    }
}

//! Content of a plot, independent of its layout.

use crate::number_format::short;
use crate::report::html::figure_comparison::{ArticleSeries, Cell, Comparison, SeriesRow};
use crate::report::html::number_labels::{range, times};
use crate::results::outcome::{Better, FigureNote, Spread};

/// Content of a plot.
pub struct Plot {
    /// Title of the plot.
    pub title: String,
    /// Description of the plot, for readers who cannot see it.
    pub description: String,
    /// Caption with reading instructions.
    pub caption: String,
    /// Label of the axis of values.
    pub value_axis: String,
    /// Label of the axis of places.
    pub place_axis: String,
    /// The places.
    pub places: Vec<String>,
    /// The lines, or the bars if there is one place.
    pub series: Vec<PlotSeries>,
    /// Whether values are ratios.
    pub of_ratios: bool,
}

/// One line of a plot, or one of its bars.
pub struct PlotSeries {
    /// Name of the series.
    pub name: String,
    /// Style of the series.
    pub style: SeriesStyle,
    /// Point of the series at each place.
    pub points: Vec<PlotPoint>,
}

/// Style of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeriesStyle {
    /// One of our series, with its number from 0: solid, in a colour of its own.
    Ours(usize),
    /// A published series, with the number of our series beside it: dashed and grey.
    Article(usize),
}

/// Point of a series at one place.
pub enum PlotPoint {
    /// Not measured.
    Missing,
    /// All repetitions were flagged.
    Unsound,
    /// A value.
    Mark(PlotMark),
}

/// Value that is drawn.
pub struct PlotMark {
    /// Median and ends.
    pub spread: Spread,
    /// Text that appears on hover.
    pub hint: String,
}

impl Plot {
    /// Creates the plot of a figure. With published values, all values become ratios.
    pub fn of(comparison: &Comparison<'_>, axis: &str) -> Plot {
        let of_ratios = comparison.has_articles();
        let figure = comparison.figure;
        let places: Vec<String> = comparison.places.iter().map(ToString::to_string).collect();
        let mut tracks = Vec::new();
        let draw = PlotBuilder { of_ratios, unit: &figure.unit, places: &places };
        for (at, line) in comparison.lines.iter().enumerate() {
            tracks.push(draw.ours(at, line));
            let beside = |article: &&ArticleSeries<'_>| article.beside == Some(at);
            let articles = comparison.articles.iter().filter(|_| of_ratios).filter(beside);
            tracks.extend(articles.map(|article| draw.article(at, article)));
        }
        let alone = comparison.articles.iter().filter(|article| article.beside.is_none());
        let first = comparison.lines.len();
        let alone = alone.filter(|_| of_ratios).enumerate();
        tracks.extend(alone.map(|(at, article)| draw.article(first + at, article)));
        let base = base_of(comparison);
        let described: Vec<String> = tracks.iter().map(|track| draw.description(track)).collect();
        Plot {
            title: title(figure),
            description: described.join(" "),
            caption: caption(comparison, &base),
            value_axis: if of_ratios { format!("ratio to {base}") } else { figure.unit.clone() },
            place_axis: axis.to_string(),
            places,
            series: tracks,
            of_ratios,
        }
    }

    /// Returns the smallest and largest value of all marks.
    pub fn values(&self) -> impl Iterator<Item = f64> {
        let marks = self.series.iter().flat_map(PlotSeries::marks);
        marks.flat_map(|(_, mark)| [mark.spread.low, mark.spread.high])
    }

    /// Formats a value in the plot.
    pub fn value_text(&self, value: f64) -> String {
        if self.of_ratios { times(value) } else { short(value) }
    }
}

impl PlotSeries {
    /// Returns the marks, with their places counted from 0.
    pub fn marks(&self) -> impl DoubleEndedIterator<Item = (usize, &PlotMark)> {
        self.points.iter().enumerate().filter_map(|(place, spot)| match spot {
            PlotPoint::Mark(mark) => Some((place, mark)),
            PlotPoint::Missing | PlotPoint::Unsound => None,
        })
    }

    /// Returns the places at which all repetitions were flagged, counted from 0.
    pub fn unsound(&self) -> impl Iterator<Item = usize> {
        let spots = self.points.iter().enumerate();
        spots.filter(|(_, spot)| matches!(spot, PlotPoint::Unsound)).map(|(place, _)| place)
    }

    /// Returns the name of the series, with the reason if no point of it is drawn.
    pub fn label(&self) -> String {
        let why = match (self.marks().next(), self.unsound().next()) {
            (Some(_), _) => "",
            (None, Some(_)) => " (not sound)",
            (None, None) => " (no ratio)",
        };
        format!("{}{why}", self.name)
    }
}

/// Returns the name of a figure with its unit and better direction.
pub fn title(figure: &FigureNote) -> String {
    let parts = [figure.unit.as_str(), better(figure.better)];
    let parts = parts.into_iter().filter(|part| !part.is_empty());
    [figure.name.as_str()].into_iter().chain(parts).collect::<Vec<&str>>().join(", ")
}

/// Returns the better direction in words, or an empty text.
pub fn better(better: Better) -> &'static str {
    match better {
        Better::Lower => "lower is better",
        Better::Higher => "higher is better",
        Better::Neither => "",
    }
}

fn base_of(comparison: &Comparison<'_>) -> String {
    let unnamed = if comparison.compares_series() { "the first series" } else { "the first place" };
    comparison.base_name().map_or_else(|| unnamed.to_string(), |name| format!("“{name}”"))
}

fn caption(comparison: &Comparison<'_>, base: &str) -> String {
    let ranges = "Medians, with bars from the lowest to the highest repetition that counts.";
    if !comparison.has_articles() {
        return ranges.to_string();
    }
    let what = match comparison.compares_series() {
        true => format!("Everything is a ratio to {base}"),
        false => format!("Every series is a ratio to its own figure at {base}"),
    };
    format!(
        "{what}: ours solid, what was published dashed and grey, for other machines and \
         engines have other absolute figures. {ranges}"
    )
}

struct PlotBuilder<'a> {
    of_ratios: bool,
    unit: &'a str,
    places: &'a [String],
}

impl PlotBuilder<'_> {
    fn ours(&self, at: usize, line: &SeriesRow<'_>) -> PlotSeries {
        let spot = |(cell, place): (&Cell<'_>, &String)| {
            let Some(absolute) = cell.spread else {
                return if cell.is_unsound() { PlotPoint::Unsound } else { PlotPoint::Missing };
            };
            let drawn = if self.of_ratios { cell.ratio } else { Some(absolute) };
            let hint = format!(
                "{}, {place}: {} {} ({})",
                line.name,
                short(absolute.median),
                self.unit,
                range(absolute.low, absolute.high)
            );
            drawn.map_or(PlotPoint::Missing, |spread| PlotPoint::Mark(PlotMark { spread, hint }))
        };
        PlotSeries {
            name: line.name.to_string(),
            style: SeriesStyle::Ours(at),
            points: line.cells.iter().zip(self.places).map(spot).collect(),
        }
    }

    fn article(&self, beside: usize, article: &ArticleSeries<'_>) -> PlotSeries {
        let seed = article.seed;
        let spots = article.cells.iter().zip(self.places).map(|(cell, place)| {
            let (Some(value), Some(ratio)) = (cell.value, cell.ratio) else {
                return PlotPoint::Missing;
            };
            let spread = Spread::single(ratio);
            let value = short(value);
            let hint = format!("{}, {place}: {value} {}", seed.series, seed.unit);
            PlotPoint::Mark(PlotMark { spread, hint })
        });
        PlotSeries {
            name: seed.series.to_string(),
            style: SeriesStyle::Article(beside),
            points: spots.collect(),
        }
    }

    fn description(&self, track: &PlotSeries) -> String {
        let describe = |(place, mark): (usize, &PlotMark)| {
            let value = mark.spread.median;
            let text = if self.of_ratios { times(value) } else { short(value) };
            format!("{text} at {}", self.places[place])
        };
        match (track.marks().next(), track.marks().next_back()) {
            (Some(first), Some(last)) if first.0 != last.0 => {
                format!("{}: from {} to {}.", track.name, describe(first), describe(last))
            }
            (Some(only), _) => format!("{}: {}.", track.name, describe(only)),
            _ => format!("{}: nothing.", track.label()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::PublishedSeries;
    use crate::report::html::outcome_fixtures;

    const SEEDS: [PublishedSeries; 1] = [PublishedSeries {
        series: "a store",
        beside: "ours",
        figure: "reads",
        unit: "ms",
        points: &[("0", 80.0), ("20", 20.0)],
    }];

    #[test]
    fn published_figures_turn_the_plot_into_ratios() {
        let points = [("0", 20.0), ("10", f64::NAN), ("20", 10.0)];
        let outcome = outcome_fixtures::outcome("reads", &[("ours", &points)]);
        let plot = |seeds| {
            let compared = Comparison::of(&outcome, &outcome.figures[0], seeds).unwrap();
            Plot::of(&compared, "bits")
        };
        let absolute = plot(&[]);
        assert_eq!((absolute.value_axis.as_str(), absolute.series.len()), ("µs", 1));
        assert!(absolute.values().any(|value| value > 20.0));
        assert!(absolute.series[0].unsound().eq([1]));

        let ratios = plot(&SEEDS);
        assert_eq!((ratios.value_axis.as_str(), ratios.series.len()), ("ratio to “0”", 2));
        assert_eq!(ratios.series[1].style, SeriesStyle::Article(0));
        let (_, last) = ratios.series[1].marks().next_back().unwrap();
        assert_eq!((last.spread.median, last.hint.as_str()), (0.25, "a store, 20: 20.0 ms"));
        assert!(ratios.caption.contains("its own figure at “0”"));
        let described =
            ["ours: from 1.00× at 0 to 0.500× at 20.", "a store: from 1.00× at 0 to 0.250× at 20."];
        assert_eq!(ratios.description, described.join(" "));
    }

    #[test]
    fn track_without_marks_states_the_reason() {
        let outcome =
            outcome_fixtures::outcome("reads", &[("ours", &[("0", f64::NAN), ("1", f64::NAN)])]);
        let compared = Comparison::of(&outcome, &outcome.figures[0], &[]).unwrap();
        let plot = Plot::of(&compared, "bits");
        assert_eq!(plot.series[0].label(), "ours (not sound)");
        assert_eq!(plot.values().count(), 0);
    }
}

//! What a plot shows, before anybody knows where on the paper.

use crate::number::short;
use crate::outcome::{Better, FigureNote, Spread};
use crate::report::comparison::{Article, Cell, Comparison, Line};
use crate::report::tick::{range, times};

/// What a plot shows.
pub struct Plot {
    /// What its title says.
    pub title: String,
    /// What it shows, for those who cannot see it.
    pub description: String,
    /// How it is to be read.
    pub caption: String,
    /// What stands beside the axis of values.
    pub value_axis: String,
    /// What stands beside the axis of places.
    pub place_axis: String,
    /// The places.
    pub places: Vec<String>,
    /// The lines, or the bars where there is one place.
    pub tracks: Vec<Track>,
    /// Whether values are ratios.
    pub of_ratios: bool,
}

/// One line of a plot, or one of its bars.
pub struct Track {
    /// Its name.
    pub name: String,
    /// What it looks like.
    pub look: Look,
    /// What is drawn at each place.
    pub spots: Vec<Spot>,
}

/// What a track looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// One of our series, counted from 0: solid, in its colour.
    Ours(usize),
    /// An article's, beside this one of ours: dashed and grey.
    Article(usize),
}

/// What a track has at one place.
pub enum Spot {
    /// Nothing: it was not measured.
    Missing,
    /// All repetitions were flagged.
    Unsound,
    /// A value.
    Mark(Mark),
}

/// A value that is drawn.
pub struct Mark {
    /// The middle and the ends.
    pub spread: Spread,
    /// What is said about it where the reader points at it.
    pub hint: String,
}

impl Plot {
    /// Of a figure. Where an article has it too, everything becomes a ratio.
    pub fn of(comparison: &Comparison<'_>, axis: &str) -> Plot {
        let of_ratios = comparison.has_articles();
        let figure = comparison.figure;
        let places: Vec<String> = comparison.places.iter().map(ToString::to_string).collect();
        let mut tracks = Vec::new();
        let draw = Draw { of_ratios, unit: &figure.unit, places: &places };
        for (at, line) in comparison.lines.iter().enumerate() {
            tracks.push(draw.ours(at, line));
            let beside = |article: &&Article<'_>| article.beside == Some(at);
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
            tracks,
            of_ratios,
        }
    }

    /// The ends of everything that is drawn.
    pub fn values(&self) -> impl Iterator<Item = f64> {
        let marks = self.tracks.iter().flat_map(Track::marks);
        marks.flat_map(|(_, mark)| [mark.spread.low, mark.spread.high])
    }

    /// A value as a text in the plot.
    pub fn value_text(&self, value: f64) -> String {
        if self.of_ratios { times(value) } else { short(value) }
    }
}

impl Track {
    /// What is drawn, with its place counted from 0.
    pub fn marks(&self) -> impl DoubleEndedIterator<Item = (usize, &Mark)> {
        self.spots.iter().enumerate().filter_map(|(place, spot)| match spot {
            Spot::Mark(mark) => Some((place, mark)),
            Spot::Missing | Spot::Unsound => None,
        })
    }

    /// Where all repetitions were flagged, counted from 0.
    pub fn unsound(&self) -> impl Iterator<Item = usize> {
        let spots = self.spots.iter().enumerate();
        spots.filter(|(_, spot)| matches!(spot, Spot::Unsound)).map(|(place, _)| place)
    }

    /// Its name, and why nothing of it is to be seen where that is so.
    pub fn label(&self) -> String {
        let why = match (self.marks().next(), self.unsound().next()) {
            (Some(_), _) => "",
            (None, Some(_)) => " (not sound)",
            (None, None) => " (no ratio)",
        };
        format!("{}{why}", self.name)
    }
}

/// The name of a figure with its unit and what is better.
pub fn title(figure: &FigureNote) -> String {
    let parts = [figure.unit.as_str(), better(figure.better)];
    let parts = parts.into_iter().filter(|part| !part.is_empty());
    [figure.name.as_str()].into_iter().chain(parts).collect::<Vec<&str>>().join(", ")
}

/// Which way is better, in words; empty where neither is.
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

struct Draw<'a> {
    of_ratios: bool,
    unit: &'a str,
    places: &'a [String],
}

impl Draw<'_> {
    fn ours(&self, at: usize, line: &Line<'_>) -> Track {
        let spot = |(cell, place): (&Cell<'_>, &String)| {
            let Some(absolute) = cell.spread else {
                return if cell.is_unsound() { Spot::Unsound } else { Spot::Missing };
            };
            let drawn = if self.of_ratios { cell.ratio } else { Some(absolute) };
            let hint = format!(
                "{}, {place}: {} {} ({})",
                line.name,
                short(absolute.median),
                self.unit,
                range(absolute.low, absolute.high)
            );
            drawn.map_or(Spot::Missing, |spread| Spot::Mark(Mark { spread, hint }))
        };
        Track {
            name: line.name.to_string(),
            look: Look::Ours(at),
            spots: line.cells.iter().zip(self.places).map(spot).collect(),
        }
    }

    fn article(&self, beside: usize, article: &Article<'_>) -> Track {
        let seed = article.seed;
        let spots = article.cells.iter().zip(self.places).map(|(cell, place)| {
            let (Some(value), Some(ratio)) = (cell.value, cell.ratio) else { return Spot::Missing };
            let spread = Spread::single(ratio);
            let value = short(value);
            let hint = format!("{}, {place}: {value} {}", seed.series, seed.unit);
            Spot::Mark(Mark { spread, hint })
        });
        Track { name: seed.series.to_string(), look: Look::Article(beside), spots: spots.collect() }
    }

    fn description(&self, track: &Track) -> String {
        let said = |(place, mark): (usize, &Mark)| {
            let value = mark.spread.median;
            let text = if self.of_ratios { times(value) } else { short(value) };
            format!("{text} at {}", self.places[place])
        };
        match (track.marks().next(), track.marks().next_back()) {
            (Some(first), Some(last)) if first.0 != last.0 => {
                format!("{}: from {} to {}.", track.name, said(first), said(last))
            }
            (Some(only), _) => format!("{}: {}.", track.name, said(only)),
            _ => format!("{}: nothing.", track.label()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Seed;
    use crate::report::sample;

    const SEEDS: [Seed; 1] = [Seed {
        series: "a store",
        beside: "ours",
        figure: "reads",
        unit: "ms",
        points: &[("0", 80.0), ("20", 20.0)],
    }];

    #[test]
    fn articles_turn_everything_into_ratios() {
        let points = [("0", 20.0), ("10", f64::NAN), ("20", 10.0)];
        let outcome = sample::outcome("reads", &[("ours", &points)]);
        let plot = |seeds| {
            let compared = Comparison::of(&outcome, &outcome.figures[0], seeds).unwrap();
            Plot::of(&compared, "bits")
        };
        let absolute = plot(&[]);
        assert_eq!((absolute.value_axis.as_str(), absolute.tracks.len()), ("µs", 1));
        assert!(absolute.values().any(|value| value > 20.0));
        assert!(absolute.tracks[0].unsound().eq([1]));

        let ratios = plot(&SEEDS);
        assert_eq!((ratios.value_axis.as_str(), ratios.tracks.len()), ("ratio to “0”", 2));
        assert_eq!(ratios.tracks[1].look, Look::Article(0));
        let (_, last) = ratios.tracks[1].marks().next_back().unwrap();
        assert_eq!((last.spread.median, last.hint.as_str()), (0.25, "a store, 20: 20.0 ms"));
        assert!(ratios.caption.contains("its own figure at “0”"));
        let described =
            ["ours: from 1.00× at 0 to 0.500× at 20.", "a store: from 1.00× at 0 to 0.250× at 20."];
        assert_eq!(ratios.description, described.join(" "));
    }

    #[test]
    fn a_track_without_marks_says_why() {
        let outcome = sample::outcome("reads", &[("ours", &[("0", f64::NAN), ("1", f64::NAN)])]);
        let compared = Comparison::of(&outcome, &outcome.figures[0], &[]).unwrap();
        let plot = Plot::of(&compared, "bits");
        assert_eq!(plot.tracks[0].label(), "ours (not sound)");
        assert_eq!(plot.values().count(), 0);
    }
}

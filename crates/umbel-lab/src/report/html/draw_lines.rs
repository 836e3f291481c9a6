//! Draws a plot as lines over evenly spaced places.

use maud::{Markup, html};

use crate::report::html::axis_scale::AxisScale;
use crate::report::html::label_layout;
use crate::report::html::plot_model::{Plot, PlotPoint, PlotSeries, SeriesStyle};
use crate::report::html::plot_style::{self, PlotFormat};

/// Least height of the line area on a wide page and on a narrow one.
const HEIGHTS: [f64; 2] = [280.0, 230.0];
/// Distance between labels or rows of the legend.
const ROW: f64 = 18.0;
/// Largest width of a label beside a line.
const LABEL_MAX: f64 = 220.0;
/// Largest width of a place name below the axis.
const PLACE_MAX: f64 = 130.0;
/// Least width of a place.
const SLOT_MIN: f64 = 20.0;
/// Share of a slot over which marks of different series are spread, so that their bars do not
/// overlap, and the largest distance between two of them.
const DODGE: (f64, f64) = (0.5, 5.0);
/// Angle of place names that are too wide, in degrees.
const TURN: f64 = 40.0;

/// Layout of the parts.
struct LineLayout<'a> {
    plot: &'a Plot,
    paper: PlotFormat,
    scale: AxisScale,
    left: f64,
    top: f64,
    width: f64,
    height: f64,
    turned: bool,
    /// Height below the area, for places and the name of their axis.
    foot: f64,
    /// Width right of the area, for labels.
    margin: f64,
}

/// Returns the plot as an `svg` element; `id` is unique in the page.
pub fn svg(plot: &Plot, paper: PlotFormat, id: &str) -> Markup {
    let area = LineLayout::new(plot, paper);
    let (keys, key_rows) = if paper.wide { (html! {}, 0) } else { area.legend() };
    let whole = (area.left + area.width + area.margin, area.bottom() + area.foot);
    let height = whole.1 + key_rows as f64 * ROW + 6.0;
    let (title, described) = (format!("{id}-title"), format!("{id}-about"));
    html! {
        svg class={ "plot " (paper.class()) } role="img" aria-labelledby=(title)
            aria-describedby=(described) style=(paper.style(whole.0))
            viewBox={ "0 0 " (plot_style::at(whole.0)) " " (plot_style::at(height)) } {
            title id=(title) { (plot.title) " by " (plot.place_axis) }
            desc id=(described) { (plot.description) }
            (area.axes())
            @for (at, track) in area.order() { (area.track(at, track)) }
            @if paper.wide { (area.labels()) }
            (keys)
        }
    }
}

impl<'a> LineLayout<'a> {
    fn new(plot: &'a Plot, paper: PlotFormat) -> LineLayout<'a> {
        let scale = AxisScale::covering(plot.values());
        let ticks = scale.ticks.iter().map(|(_, text)| text.as_str());
        let mut left = label_layout::widest(ticks, paper.text) + 14.0;
        let names: Vec<String> = plot.series.iter().map(PlotSeries::label).collect();
        let names = label_layout::widest(names.iter().map(String::as_str), paper.text);
        let margin = if paper.wide { names.min(LABEL_MAX) + 36.0 } else { 10.0 };
        let slots = plot.places.len().max(1) as f64;
        let place = label_layout::widest(plot.places.iter().map(String::as_str), paper.text);
        let turned = place > (paper.width - left - margin) / slots - 1.0;
        if turned {
            left = left.max(overhang(plot, paper));
        }
        let width = (paper.width - left - margin).max(slots * SLOT_MIN);
        let foot = match turned {
            true => place.min(PLACE_MAX) * TURN.to_radians().sin() + paper.text + 34.0,
            false => 44.0,
        };
        let height =
            if paper.wide { HEIGHTS[0].max(plot.series.len() as f64 * ROW) } else { HEIGHTS[1] };
        LineLayout { plot, paper, scale, left, top: 30.0, width, height, turned, foot, margin }
    }

    fn right(&self) -> f64 {
        self.left + self.width
    }

    fn bottom(&self) -> f64 {
        self.top + self.height
    }

    fn y(&self, value: f64) -> f64 {
        self.bottom() - self.scale.share(value) * self.height
    }

    /// Returns the middle of a place, or the position of a series' mark there.
    fn x(&self, place: usize, track: Option<usize>) -> f64 {
        let slot = self.width / self.plot.places.len().max(1) as f64;
        let tracks = self.plot.series.len() as f64;
        let spacing = (slot * DODGE.0 / tracks).min(DODGE.1);
        let aside = track.map_or(0.0, |at| (at as f64 - (tracks - 1.0) / 2.0) * spacing);
        self.left + (place as f64 + 0.5) * slot + aside
    }

    /// Returns the series in drawing order: articles first, so that ours are on top.
    fn order(&self) -> impl Iterator<Item = (usize, &'a PlotSeries)> {
        let tracks = || self.plot.series.iter().enumerate();
        let ours = |track: &PlotSeries| matches!(track.style, SeriesStyle::Ours(_));
        tracks()
            .filter(move |(_, track)| !ours(track))
            .chain(tracks().filter(move |(_, t)| ours(t)))
    }

    fn axes(&self) -> Markup {
        let below = self.paper.text * 0.35;
        let log = if self.scale.is_log() { ", log scale" } else { "" };
        let line_of = |value: f64| match value {
            0.0 => "axis",
            1.0 if self.plot.of_ratios => "grid one",
            _ => "grid",
        };
        let across = |y: f64, class| plot_style::line(class, (self.left, y), (self.right(), y));
        html! {
            (plot_style::text("unit", 2.0, 14.0, "start",
                &format!("{}{log}", self.plot.value_axis)))
            @for (value, text) in &self.scale.ticks {
                @let y = self.y(*value);
                (across(y, line_of(*value)))
                (plot_style::text("tick", self.left - 8.0, y + below, "end", text))
            }
            (across(self.bottom(), "axis"))
            @for (at, place) in self.plot.places.iter().enumerate() { (self.place(at, place)) }
            (plot_style::text("unit", (self.left + self.right()) / 2.0,
                self.bottom() + self.foot - 8.0, "middle", &self.plot.place_axis))
        }
    }

    fn place(&self, at: usize, name: &str) -> Markup {
        let (x, y) = (self.x(at, None), self.bottom() + self.paper.text + 5.0);
        if !self.turned {
            return plot_style::text("tick", x, y, "middle", name);
        }
        let x = x + self.paper.text * 0.35;
        let turn = format!("rotate(-{TURN} {} {})", plot_style::at(x), plot_style::at(y));
        html! {
            text.tick x=(plot_style::at(x)) y=(plot_style::at(y)) text-anchor="end"
                transform=(turn) {
                (label_layout::shortened(name, self.paper.text, PLACE_MAX)) title { (name) }
            }
        }
    }

    fn track(&self, at: usize, track: &PlotSeries) -> Markup {
        html! {
            g class={ "track " (plot_style::class(track.style)) } {
                @for path in self.paths(at, track) { path.line d=(path) {} }
                @for (place, mark) in track.marks() {
                    @let (x, spread) = (self.x(place, Some(at)), mark.spread);
                    g {
                        title { (mark.hint) }
                        @if spread.high > spread.low {
                            (range(x, self.y(spread.low), self.y(spread.high)))
                        }
                        (plot_style::mark(track.style, x, self.y(spread.median)))
                    }
                }
                @for place in track.unsound() {
                    @let hint = format!("{}, {}: not sound", track.name, self.plot.places[place]);
                    (plot_style::cross(self.x(place, Some(at)), self.bottom() - 6.0, &hint))
                }
            }
        }
    }

    /// Returns the lines through the medians. The lines break at a flagged figure.
    fn paths(&self, at: usize, track: &PlotSeries) -> Vec<String> {
        let mut paths = vec![String::new()];
        for (place, spot) in track.points.iter().enumerate() {
            match spot {
                PlotPoint::Missing => {}
                PlotPoint::Unsound => paths.push(String::new()),
                PlotPoint::Mark(mark) => {
                    let (x, y) = (self.x(place, Some(at)), self.y(mark.spread.median));
                    let path = paths.last_mut().expect("there is always one");
                    path.push(if path.is_empty() { 'M' } else { 'L' });
                    path.push_str(&format!("{} {}", plot_style::at(x), plot_style::at(y)));
                }
            }
        }
        paths.retain(|path| path.contains('L'));
        paths
    }

    /// Returns the names of the series right of their ends, without overlap.
    fn labels(&self) -> Markup {
        let ends: Vec<(f64, f64)> = self
            .plot
            .series
            .iter()
            .enumerate()
            .map(|(at, track)| {
                let last = track.marks().next_back();
                let place = last.map_or(0, |(place, _)| place);
                let y = last.map_or(self.bottom(), |(_, mark)| self.y(mark.spread.median));
                (self.x(place, Some(at)), y)
            })
            .collect();
        let wishes: Vec<f64> = ends.iter().map(|(_, y)| *y).collect();
        let rows = label_layout::apart(&wishes, ROW, self.top, self.bottom());
        let x = self.right() + 22.0;
        html! {
            @for ((track, row), (end_x, end_y)) in self.plot.series.iter().zip(rows).zip(ends) {
                @let seen = track.marks().next().is_some();
                g class={ "label " (plot_style::class(track.style)) } {
                    @if seen { (plot_style::line("leader", (end_x + 6.0, end_y), (x - 4.0, row))) }
                    (plot_style::mark(track.style, x + 2.0, row))
                    (self.name(track, x + 11.0, row, LABEL_MAX))
                }
            }
        }
    }

    /// Returns the names of the series below the plot, and their number of rows.
    fn legend(&self) -> (Markup, usize) {
        let whole = self.right() + self.margin;
        let names: Vec<String> = self.plot.series.iter().map(PlotSeries::label).collect();
        let widest = label_layout::widest(names.iter().map(String::as_str), self.paper.text);
        let columns = if widest + 36.0 <= whole / 2.0 { 2 } else { 1 };
        let column = whole / columns as f64;
        let top = self.bottom() + self.foot + ROW / 2.0;
        let keys = html! {
            @for (at, track) in self.plot.series.iter().enumerate() {
                @let (x, y) = ((at % columns) as f64 * column, top + (at / columns) as f64 * ROW);
                g class={ "track " (plot_style::class(track.style)) } {
                    (plot_style::line("line", (x + 4.0, y), (x + 26.0, y)))
                    (plot_style::mark(track.style, x + 15.0, y))
                    (self.name(track, x + 32.0, y, column - 36.0))
                }
            }
        };
        (keys, names.len().div_ceil(columns))
    }

    fn name(&self, track: &PlotSeries, x: f64, y: f64, width_max: f64) -> Markup {
        let name = track.label();
        html! {
            text.name x=(plot_style::at(x)) y=(plot_style::at(y + self.paper.text * 0.35)) {
                (label_layout::shortened(&name, self.paper.text, width_max))
                title { (name) }
            }
        }
    }
}

/// Returns how far turned place names reach left of the line area.
fn overhang(plot: &Plot, paper: PlotFormat) -> f64 {
    let wide = |place: &String| label_layout::width(place, paper.text).min(PLACE_MAX);
    let reach =
        plot.places.iter().enumerate().map(|(at, place)| {
            wide(place) * TURN.to_radians().cos() - (at as f64 + 0.5) * SLOT_MIN
        });
    reach.fold(0.0, f64::max)
}

/// Returns a bar from the lowest to the highest repetition.
fn range(x: f64, low: f64, high: f64) -> Markup {
    let [x, left, right, low, high] = [x, x - 3.0, x + 3.0, low, high].map(plot_style::at);
    let shape = format!("M{left} {low}H{right}M{x} {low}V{high}M{left} {high}H{right}");
    html! { path.range d=(shape) {} }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::html::figure_comparison::Comparison;
    use crate::report::html::outcome_fixtures;

    fn drawn(points: &[(&str, f64)], paper: PlotFormat) -> String {
        let outcome = outcome_fixtures::outcome("reads", &[("ours", points)]);
        let compared = Comparison::of(&outcome, &outcome.figures[0], &[]).unwrap();
        svg(&Plot::of(&compared, "bits"), paper, "id").into_string()
    }

    #[test]
    fn line_breaks_at_a_flagged_figure() {
        let mut points = [("0", 5.0), ("1", 4.0), ("2", 3.0), ("3", 2.0), ("4", 1.0)];
        let lines = |drawing: String| drawing.matches("class=\"line\" d=").count();
        assert_eq!(lines(drawn(&points, PlotFormat::WIDE)), 1);
        points[2].1 = f64::NAN;
        let drawing = drawn(&points, PlotFormat::WIDE);
        assert!(drawing.contains("ours, 2: not sound"), "{drawing}");
        assert_eq!((drawing.matches("class=\"cross\"").count(), lines(drawing)), (1, 2));
    }

    #[test]
    fn logarithmic_axis_is_labelled() {
        assert!(drawn(&[("0", 1.0), ("1", 100.0)], PlotFormat::WIDE).contains(">µs, log scale<"));
        assert!(drawn(&[("0", 1.0), ("1", 10.0)], PlotFormat::WIDE).contains(">µs<"));
    }

    #[test]
    fn only_labels_that_do_not_fit_are_turned() {
        let points = [("a place with a name", 1.0), ("another of them", 2.0), ("a third", 3.0)];
        assert!(!drawn(&points, PlotFormat::WIDE).contains("rotate"));
        assert_eq!(drawn(&points, PlotFormat::NARROW).matches("rotate").count(), 3);
    }

    #[test]
    fn many_labels_widen_the_plot() {
        let names: Vec<String> = (0..40).map(|at| at.to_string()).collect();
        let points: Vec<(&str, f64)> = names.iter().map(|name| (name.as_str(), 1.0)).collect();
        assert!(drawn(&points, PlotFormat::NARROW).contains("viewBox=\"0 0 8"));
        assert!(drawn(&points[..9], PlotFormat::NARROW).contains("viewBox=\"0 0 350.0 "));
    }
}

//! Draws a plot with one place as bars, one below the other, with names and values.

use maud::{Markup, html};

use crate::report::html::axis_scale::AxisScale;
use crate::report::html::label_layout;
use crate::report::html::plot_model::{Plot, PlotMark, PlotSeries, SeriesStyle};
use crate::report::html::plot_style::{self, PlotFormat};

/// The thickness of a bar.
const BAR: f64 = 18.0;
/// Gaps above an article's bar and above a bar of our results.
const GAPS: [f64; 2] = [4.0, 12.0];
/// Largest width of a name.
const NAME_MAX: f64 = 210.0;
/// Height below the bars, for the ticks and the name of the axis.
const FOOT: f64 = 46.0;

/// Layout of the parts.
struct BarLayout<'a> {
    plot: &'a Plot,
    paper: PlotFormat,
    scale: AxisScale,
    left: f64,
    width: f64,
    margin: f64,
    /// Top of each bar.
    tops: Vec<f64>,
    bottom: f64,
}

/// Returns the plot as an `svg` element; `id` is unique in the page.
pub fn svg(plot: &Plot, paper: PlotFormat, id: &str) -> Markup {
    let area = BarLayout::new(plot, paper);
    let (title, described) = (format!("{id}-title"), format!("{id}-about"));
    html! {
        svg class={ "plot " (paper.class()) } role="img" aria-labelledby=(title)
            aria-describedby=(described) style=(paper.style(paper.width))
            viewBox={
                "0 0 " (plot_style::at(paper.width)) " " (plot_style::at(area.bottom + FOOT))
            } {
            title id=(title) { (plot.title) }
            desc id=(described) { (plot.description) }
            (area.axis())
            @for (track, top) in plot.series.iter().zip(&area.tops) { (area.bar(track, *top)) }
        }
    }
}

impl<'a> BarLayout<'a> {
    fn new(plot: &'a Plot, paper: PlotFormat) -> BarLayout<'a> {
        let scale = AxisScale::covering(plot.values());
        let names: Vec<String> = plot.series.iter().map(PlotSeries::label).collect();
        let names = label_layout::widest(names.iter().map(String::as_str), paper.text);
        let left = if paper.wide { names.min(NAME_MAX) + 14.0 } else { 12.0 };
        let marks = plot.series.iter().flat_map(PlotSeries::marks);
        let values: Vec<String> =
            marks.map(|(_, mark)| plot.value_text(mark.spread.median)).collect();
        let margin = label_layout::widest(values.iter().map(String::as_str), paper.text) + 14.0;
        let mut bottom = 0.0;
        let mut tops = Vec::new();
        for track in &plot.series {
            bottom += GAPS[usize::from(matches!(track.style, SeriesStyle::Ours(_)))];
            // On a narrow page the name is above its bar.
            bottom += if paper.wide { 0.0 } else { paper.text + 5.0 };
            tops.push(bottom);
            bottom += BAR;
        }
        let width = paper.width - left - margin;
        BarLayout { plot, paper, scale, left, width, margin, tops, bottom: bottom + 10.0 }
    }

    fn x(&self, value: f64) -> f64 {
        self.left + self.scale.share(value) * self.width
    }

    fn axis(&self) -> Markup {
        let log = if self.scale.is_log() { ", log scale" } else { "" };
        let name = format!("{}{log}", self.plot.value_axis);
        let line_of = |value: f64| match value {
            0.0 => "axis",
            1.0 if self.plot.of_ratios => "grid one",
            _ => "grid",
        };
        html! {
            @for (value, text) in self.ticks() {
                @let x = self.x(*value);
                (plot_style::line(line_of(*value), (x, 4.0), (x, self.bottom)))
                (plot_style::text("tick", x, self.bottom + self.paper.text + 3.0, "middle", text))
            }
            (plot_style::line("axis", (self.left, 4.0), (self.left, self.bottom)))
            (plot_style::text("unit", self.left + self.width / 2.0, self.bottom + FOOT - 8.0,
                "middle", &name))
        }
    }

    /// Returns the ticks that fit beside each other.
    fn ticks(&self) -> impl Iterator<Item = &(f64, String)> {
        let ticks = &self.scale.ticks;
        let widest =
            label_layout::widest(ticks.iter().map(|(_, text)| text.as_str()), self.paper.text);
        let ticks_max = (self.width / (widest + 10.0)).max(1.0) as usize;
        ticks.iter().step_by(ticks.len().div_ceil(ticks_max).max(1))
    }

    fn bar(&self, track: &PlotSeries, top: f64) -> Markup {
        let middle = top + BAR / 2.0;
        let baseline = middle + self.paper.text * 0.35;
        let is_unsound = track.unsound().next().is_some();
        let name = if is_unsound { track.name.clone() } else { track.label() };
        html! {
            g class={ "track " (plot_style::class(bar_style(track.style))) } {
                @if self.paper.wide {
                    @let short = label_layout::shortened(&name, self.paper.text, NAME_MAX);
                    (plot_style::text("name", self.left - 8.0, baseline, "end", &short))
                } @else {
                    @let width = self.paper.width - 16.0;
                    @let short = label_layout::shortened(&name, self.paper.text, width);
                    (plot_style::text("name", self.left, top - 5.0, "start", &short))
                }
                @for (_, mark) in track.marks() {
                    g {
                        title { (mark.hint) }
                        (self.body(track.style, mark, top))
                        (self.value(mark, baseline))
                    }
                }
                @if is_unsound {
                    (plot_style::text("tick", self.left + 6.0, baseline, "start", "not sound"))
                }
            }
        }
    }

    /// Returns the bar, or a mark on a logarithmic axis, on which lengths have no meaning.
    fn body(&self, look: SeriesStyle, mark: &PlotMark, top: f64) -> Markup {
        let (spread, middle) = (mark.spread, top + BAR / 2.0);
        let (from, to) = (self.x(0.0), self.x(spread.median));
        html! {
            @if self.scale.is_log() {
                (plot_style::line("guide", (self.left, middle), (self.left + self.width, middle)))
            } @else {
                rect.bar x=(plot_style::at(from.min(to))) y=(plot_style::at(top))
                    height=(plot_style::at(BAR)) width=(plot_style::at((to - from).abs())) {}
            }
            @if spread.high > spread.low {
                (range(middle, self.x(spread.low), self.x(spread.high)))
            }
            @if self.scale.is_log() { (plot_style::mark(bar_style(look), to, middle)) }
        }
    }

    /// Returns the value, right of the drawing and inside the page.
    fn value(&self, mark: &PlotMark, baseline: f64) -> Markup {
        let ends = [mark.spread.median, mark.spread.high].map(|value| self.x(value));
        let x = ends[0].max(ends[1]).max(self.x(0.0)) + 7.0;
        let x = x.min(self.left + self.width + self.margin);
        plot_style::text("value", x, baseline, "start", &self.plot.value_text(mark.spread.median))
    }
}

/// Returns the style of a bar: names distinguish bars, so all of ours have one colour.
fn bar_style(look: SeriesStyle) -> SeriesStyle {
    match look {
        SeriesStyle::Ours(_) => SeriesStyle::Ours(0),
        SeriesStyle::Article(_) => SeriesStyle::Article(0),
    }
}

/// Returns a bar from the lowest to the highest repetition.
fn range(y: f64, low: f64, high: f64) -> Markup {
    let [y, top, bottom, low, high] = [y, y - 4.0, y + 4.0, low, high].map(plot_style::at);
    let shape = format!("M{low} {top}V{bottom}M{low} {y}H{high}M{high} {top}V{bottom}");
    html! { path.range d=(shape) {} }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::html::figure_comparison::Comparison;
    use crate::report::html::outcome_fixtures;

    fn drawn(values: [f64; 3], paper: PlotFormat) -> String {
        let points = values.map(|value| [("all", value)]);
        let names = ["one", "two", "three"];
        let lines = [0, 1, 2].map(|at| (names[at], points[at].as_slice()));
        let outcome = outcome_fixtures::outcome("reads", &lines);
        let compared = Comparison::of(&outcome, &outcome.figures[0], &[]).unwrap();
        svg(&Plot::of(&compared, "bits"), paper, "id").into_string()
    }

    #[test]
    fn every_bar_has_its_name_and_its_value() {
        for paper in [PlotFormat::WIDE, PlotFormat::NARROW] {
            let drawing = drawn([20.0, 40.0, f64::NAN], paper);
            let bars = drawing.matches("<rect").count();
            assert_eq!((bars, drawing.matches("class=\"value\"").count()), (2, 2));
            for text in [">one<", ">20.0<", ">two<", ">40.0<", ">three<", ">not sound<"] {
                assert_eq!(drawing.matches(text).count(), 1, "{text} in {drawing}");
            }
        }
    }

    #[test]
    fn lengths_begin_at_zero() {
        let drawing = drawn([20.0, 40.0, 10.0], PlotFormat::WIDE);
        let width_of = |rect: &str| {
            let (_, rest) = rect.split_once("width=\"")?;
            rest.split_once('"')?.0.parse::<f64>().ok()
        };
        let widths: Vec<f64> = drawing.split("<rect").skip(1).filter_map(width_of).collect();
        assert!((widths[1] / widths[0] - 2.0).abs() < 0.01, "{widths:?}");
        assert!((widths[0] / widths[2] - 2.0).abs() < 0.01, "{widths:?}");
    }

    #[test]
    fn logarithmic_axis_has_marks_instead_of_bars() {
        let drawing = drawn([1.0, 40.0, 1000.0], PlotFormat::WIDE);
        assert!(drawing.contains(">µs, log scale<") && !drawing.contains("<rect"), "{drawing}");
        assert_eq!(drawing.matches("class=\"mark\"").count(), 3);
    }
}

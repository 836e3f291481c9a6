//! Draws a plot of one place as bars, one below the other, each with its name and its value.

use maud::{Markup, html};

use crate::report::ink::{self, Paper};
use crate::report::labels;
use crate::report::plot::{Look, Mark, Plot, Track};
use crate::report::scale::Scale;

/// The thickness of a bar.
const BAR: f64 = 18.0;
/// Between an article's bar and ours, and between one of ours and what is before it.
const GAPS: [f64; 2] = [4.0, 12.0];
/// The widest name.
const NAME_MAX: f64 = 210.0;
/// Below the bars: the ticks and the name of the axis.
const FOOT: f64 = 46.0;

/// Where everything goes.
struct Area<'a> {
    plot: &'a Plot,
    paper: Paper,
    scale: Scale,
    left: f64,
    width: f64,
    margin: f64,
    /// The top of each bar.
    tops: Vec<f64>,
    bottom: f64,
}

/// The plot as an `svg` element; `id` is unique in the page.
pub fn svg(plot: &Plot, paper: Paper, id: &str) -> Markup {
    let area = Area::new(plot, paper);
    let (title, described) = (format!("{id}-title"), format!("{id}-about"));
    html! {
        svg class={ "plot " (paper.class()) } role="img" aria-labelledby=(title)
            aria-describedby=(described) style=(paper.style(paper.width))
            viewBox={ "0 0 " (ink::at(paper.width)) " " (ink::at(area.bottom + FOOT)) } {
            title id=(title) { (plot.title) }
            desc id=(described) { (plot.description) }
            (area.axis())
            @for (track, top) in plot.tracks.iter().zip(&area.tops) { (area.bar(track, *top)) }
        }
    }
}

impl<'a> Area<'a> {
    fn new(plot: &'a Plot, paper: Paper) -> Area<'a> {
        let scale = Scale::covering(plot.values());
        let names: Vec<String> = plot.tracks.iter().map(Track::label).collect();
        let names = labels::widest(names.iter().map(String::as_str), paper.text);
        let left = if paper.wide { names.min(NAME_MAX) + 14.0 } else { 12.0 };
        let marks = plot.tracks.iter().flat_map(Track::marks);
        let values: Vec<String> =
            marks.map(|(_, mark)| plot.value_text(mark.spread.median)).collect();
        let margin = labels::widest(values.iter().map(String::as_str), paper.text) + 14.0;
        let mut bottom = 0.0;
        let mut tops = Vec::new();
        for track in &plot.tracks {
            bottom += GAPS[usize::from(matches!(track.look, Look::Ours(_)))];
            // On a narrow paper the name stands above its bar.
            bottom += if paper.wide { 0.0 } else { paper.text + 5.0 };
            tops.push(bottom);
            bottom += BAR;
        }
        let width = paper.width - left - margin;
        Area { plot, paper, scale, left, width, margin, tops, bottom: bottom + 10.0 }
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
                (ink::line(line_of(*value), (x, 4.0), (x, self.bottom)))
                (ink::text("tick", x, self.bottom + self.paper.text + 3.0, "middle", text))
            }
            (ink::line("axis", (self.left, 4.0), (self.left, self.bottom)))
            (ink::text("unit", self.left + self.width / 2.0, self.bottom + FOOT - 8.0, "middle",
                &name))
        }
    }

    /// Those that have room beside each other.
    fn ticks(&self) -> impl Iterator<Item = &(f64, String)> {
        let ticks = &self.scale.ticks;
        let widest = labels::widest(ticks.iter().map(|(_, text)| text.as_str()), self.paper.text);
        let room = (self.width / (widest + 10.0)).max(1.0) as usize;
        ticks.iter().step_by(ticks.len().div_ceil(room).max(1))
    }

    fn bar(&self, track: &Track, top: f64) -> Markup {
        let middle = top + BAR / 2.0;
        let baseline = middle + self.paper.text * 0.35;
        let is_unsound = track.unsound().next().is_some();
        let name = if is_unsound { track.name.clone() } else { track.label() };
        html! {
            g class={ "track " (ink::class(bar_look(track.look))) } {
                @if self.paper.wide {
                    @let short = labels::shortened(&name, self.paper.text, NAME_MAX);
                    (ink::text("name", self.left - 8.0, baseline, "end", &short))
                } @else {
                    @let short = labels::shortened(&name, self.paper.text, self.paper.width - 16.0);
                    (ink::text("name", self.left, top - 5.0, "start", &short))
                }
                @for (_, mark) in track.marks() {
                    g {
                        title { (mark.hint) }
                        (self.body(track.look, mark, top))
                        (self.value(mark, baseline))
                    }
                }
                @if is_unsound {
                    (ink::text("tick", self.left + 6.0, baseline, "start", "not sound"))
                }
            }
        }
    }

    /// The bar, or a mark where the axis is logarithmic: lengths say nothing there.
    fn body(&self, look: Look, mark: &Mark, top: f64) -> Markup {
        let (spread, middle) = (mark.spread, top + BAR / 2.0);
        let (from, to) = (self.x(0.0), self.x(spread.median));
        html! {
            @if self.scale.is_log() {
                (ink::line("guide", (self.left, middle), (self.left + self.width, middle)))
            } @else {
                rect.bar x=(ink::at(from.min(to))) y=(ink::at(top)) height=(ink::at(BAR))
                    width=(ink::at((to - from).abs())) {}
            }
            @if spread.high > spread.low {
                (range(middle, self.x(spread.low), self.x(spread.high)))
            }
            @if self.scale.is_log() { (ink::mark(bar_look(look), to, middle)) }
        }
    }

    /// The value, right of all that is drawn and always inside the paper.
    fn value(&self, mark: &Mark, baseline: f64) -> Markup {
        let ends = [mark.spread.median, mark.spread.high].map(|value| self.x(value));
        let x = ends[0].max(ends[1]).max(self.x(0.0)) + 7.0;
        let x = x.min(self.left + self.width + self.margin);
        ink::text("value", x, baseline, "start", &self.plot.value_text(mark.spread.median))
    }
}

/// Names tell bars apart: all of ours have one colour.
fn bar_look(look: Look) -> Look {
    match look {
        Look::Ours(_) => Look::Ours(0),
        Look::Article(_) => Look::Article(0),
    }
}

/// A bar from the lowest to the highest repetition.
fn range(y: f64, low: f64, high: f64) -> Markup {
    let [y, top, bottom, low, high] = [y, y - 4.0, y + 4.0, low, high].map(ink::at);
    let shape = format!("M{low} {top}V{bottom}M{low} {y}H{high}M{high} {top}V{bottom}");
    html! { path.range d=(shape) {} }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::comparison::Comparison;
    use crate::report::sample;

    fn drawn(values: [f64; 3], paper: Paper) -> String {
        let points = values.map(|value| [("all", value)]);
        let names = ["one", "two", "three"];
        let lines = [0, 1, 2].map(|at| (names[at], points[at].as_slice()));
        let outcome = sample::outcome("reads", &lines);
        let compared = Comparison::of(&outcome, &outcome.figures[0], &[]).unwrap();
        svg(&Plot::of(&compared, "bits"), paper, "id").into_string()
    }

    #[test]
    fn every_bar_has_its_name_and_its_value() {
        for paper in [Paper::WIDE, Paper::NARROW] {
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
        let drawing = drawn([20.0, 40.0, 10.0], Paper::WIDE);
        let width_of = |rect: &str| {
            let (_, rest) = rect.split_once("width=\"")?;
            rest.split_once('"')?.0.parse::<f64>().ok()
        };
        let widths: Vec<f64> = drawing.split("<rect").skip(1).filter_map(width_of).collect();
        assert!((widths[1] / widths[0] - 2.0).abs() < 0.01, "{widths:?}");
        assert!((widths[0] / widths[2] - 2.0).abs() < 0.01, "{widths:?}");
    }

    #[test]
    fn a_logarithmic_axis_has_marks_instead_of_bars() {
        let drawing = drawn([1.0, 40.0, 1000.0], Paper::WIDE);
        assert!(drawing.contains(">µs, log scale<") && !drawing.contains("<rect"), "{drawing}");
        assert_eq!(drawing.matches("class=\"mark\"").count(), 3);
    }
}

//! Styles of lines, bars and marks of a plot, and its size.

use maud::{Markup, html};

use crate::report::html::plot_model::SeriesStyle;

/// Number of colours; the style sheet has `--series-1` to `--series-10`.
const COLOURS: usize = 10;
/// Number of shapes.
const SHAPES: usize = 5;
/// Half the width of a mark.
const RADIUS: f64 = 4.0;
/// Smallest readable text size; a plot is never shown smaller.
const TEXT_MIN: f64 = 11.0;

/// Page format for which a plot is drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlotFormat {
    /// Width in units of the drawing, about a pixel each.
    pub width: f64,
    /// Size of text in these units.
    pub text: f64,
    /// Whether labels fit beside the plot.
    pub wide: bool,
}

impl PlotFormat {
    /// Screens and printed pages.
    pub const WIDE: PlotFormat = PlotFormat { width: 820.0, text: 13.0, wide: true };
    /// Telephones.
    pub const NARROW: PlotFormat = PlotFormat { width: 350.0, text: 12.0, wide: false };

    /// Returns the class of a plot in this format.
    pub fn class(&self) -> &'static str {
        if self.wide { "wide" } else { "narrow" }
    }

    /// Returns the style of a plot of this width, which keeps its text readable.
    pub fn style(&self, width: f64) -> String {
        format!("min-width:{:.0}px;max-width:{width:.0}px", width * TEXT_MIN / self.text)
    }
}

/// Returns the class that gives a series its colour.
pub fn class(look: SeriesStyle) -> String {
    match look {
        SeriesStyle::Ours(at) => format!("s{}", at % COLOURS + 1),
        SeriesStyle::Article(_) => "article".to_string(),
    }
}

/// Formats a coordinate, to a tenth of a unit.
pub fn at(value: f64) -> String {
    format!("{:.1}", if value.is_finite() { value } else { 0.0 })
}

/// Returns a mark: every series has its own shape or filling, not only its own colour.
pub fn mark(look: SeriesStyle, x: f64, y: f64) -> Markup {
    let (shape, hollow) = match look {
        SeriesStyle::Ours(at) => (at % SHAPES, at / SHAPES % 2 == 1),
        SeriesStyle::Article(beside) => (beside % SHAPES, true),
    };
    let r = RADIUS;
    let (left, right, top, low) = (at(x - r), at(x + r), at(y - r), at(y + r));
    let (x_text, y_text) = (at(x), at(y));
    let outline = match shape {
        0 => {
            let turn = format!("A{r} {r} 0 1 1");
            format!("M{left} {y_text}{turn} {right} {y_text}{turn} {left} {y_text}Z")
        }
        1 => format!("M{left} {top}H{right}V{low}H{left}Z"),
        2 => format!("M{x_text} {top}L{right} {low}H{left}Z"),
        3 => format!("M{x_text} {top}L{right} {y_text}L{x_text} {low}L{left} {y_text}Z"),
        _ => format!("M{left} {top}H{right}L{x_text} {low}Z"),
    };
    html! { path class={ "mark" @if hollow { " hollow" } } d=(outline) {} }
}

/// Returns a cross, for a point whose repetitions were all flagged.
pub fn cross(x: f64, y: f64, hint: &str) -> Markup {
    let r = RADIUS;
    let (left, right, top, low) = (at(x - r), at(x + r), at(y - r), at(y + r));
    html! {
        path class="cross" d={ "M" (left) " " (top) "L" (right) " " (low) "M" (left) " " (low) "L"
            (right) " " (top) } { title { (hint) } }
    }
}

/// Returns a straight line.
pub fn line(class: &str, from: (f64, f64), to: (f64, f64)) -> Markup {
    html! { line class=(class) x1=(at(from.0)) y1=(at(from.1)) x2=(at(to.0)) y2=(at(to.1)) {} }
}

/// Returns a text; `anchor` is `start`, `middle` or `end`.
pub fn text(class: &str, x: f64, y: f64, anchor: &str, text: &str) -> Markup {
    html! { text class=(class) x=(at(x)) y=(at(y)) text-anchor=(anchor) { (text) } }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ten_series_look_different_without_colours_too() {
        let looks = |at| mark(SeriesStyle::Ours(at), 0.0, 0.0).into_string();
        assert_eq!((0..10).map(looks).collect::<HashSet<String>>().len(), 10);
        let classes = |at| class(SeriesStyle::Ours(at));
        assert_eq!((0..10).map(classes).collect::<HashSet<String>>().len(), 10);
        assert_eq!(class(SeriesStyle::Ours(10)), "s1");
    }

    #[test]
    fn text_is_never_smaller_than_eleven_pixels() {
        assert_eq!(PlotFormat::NARROW.style(360.0), "min-width:330px;max-width:360px");
    }
}

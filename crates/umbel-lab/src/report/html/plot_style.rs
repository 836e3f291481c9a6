//! What lines, bars and marks of a plot look like, and how large a plot is.

use maud::{Markup, html};

use crate::report::plot::Look;

/// How many colours there are; the style sheet has `--series-1` to `--series-10`.
const COLOURS: usize = 10;
/// How many shapes there are.
const SHAPES: usize = 5;
/// Half the width of a mark.
const RADIUS: f64 = 4.0;
/// Smaller text than this cannot be read; a plot is never shown smaller.
const TEXT_MIN: f64 = 11.0;

/// For which paper a plot is drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Paper {
    /// The width in units of the drawing, each about a pixel.
    pub width: f64,
    /// The size of text in these units.
    pub text: f64,
    /// Whether there is room for labels beside the plot.
    pub wide: bool,
}

impl Paper {
    /// Screens and printed pages.
    pub const WIDE: Paper = Paper { width: 820.0, text: 13.0, wide: true };
    /// Telephones.
    pub const NARROW: Paper = Paper { width: 350.0, text: 12.0, wide: false };

    /// The class of a plot on it.
    pub fn class(&self) -> &'static str {
        if self.wide { "wide" } else { "narrow" }
    }

    /// The style of a plot of this width, by which its text never becomes too small to read.
    pub fn style(&self, width: f64) -> String {
        format!("min-width:{:.0}px;max-width:{width:.0}px", width * TEXT_MIN / self.text)
    }
}

/// The class that gives a track its colour.
pub fn class(look: Look) -> String {
    match look {
        Look::Ours(at) => format!("s{}", at % COLOURS + 1),
        Look::Article(_) => "article".to_string(),
    }
}

/// A coordinate, to a tenth of a unit.
pub fn at(value: f64) -> String {
    format!("{:.1}", if value.is_finite() { value } else { 0.0 })
}

/// A mark: every series has its own shape or filling, so that colour is never all that differs.
pub fn mark(look: Look, x: f64, y: f64) -> Markup {
    let (shape, hollow) = match look {
        Look::Ours(at) => (at % SHAPES, at / SHAPES % 2 == 1),
        Look::Article(beside) => (beside % SHAPES, true),
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

/// A cross where all repetitions were flagged.
pub fn cross(x: f64, y: f64, hint: &str) -> Markup {
    let r = RADIUS;
    let (left, right, top, low) = (at(x - r), at(x + r), at(y - r), at(y + r));
    html! {
        path class="cross" d={ "M" (left) " " (top) "L" (right) " " (low) "M" (left) " " (low) "L"
            (right) " " (top) } { title { (hint) } }
    }
}

/// A straight line.
pub fn line(class: &str, from: (f64, f64), to: (f64, f64)) -> Markup {
    html! { line class=(class) x1=(at(from.0)) y1=(at(from.1)) x2=(at(to.0)) y2=(at(to.1)) {} }
}

/// A text; `anchor` is `start`, `middle` or `end`.
pub fn text(class: &str, x: f64, y: f64, anchor: &str, text: &str) -> Markup {
    html! { text class=(class) x=(at(x)) y=(at(y)) text-anchor=(anchor) { (text) } }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ten_series_look_different_without_colours_too() {
        let looks = |at| mark(Look::Ours(at), 0.0, 0.0).into_string();
        assert_eq!((0..10).map(looks).collect::<HashSet<String>>().len(), 10);
        let classes = |at| class(Look::Ours(at));
        assert_eq!((0..10).map(classes).collect::<HashSet<String>>().len(), 10);
        assert_eq!(class(Look::Ours(10)), "s1");
    }

    #[test]
    fn text_is_never_smaller_than_eleven_pixels() {
        assert_eq!(Paper::NARROW.style(360.0), "min-width:330px;max-width:360px");
    }
}

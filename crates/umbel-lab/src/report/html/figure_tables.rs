//! Tables of an experiment: every figure at every place of every series.

use maud::{Markup, html};

use crate::experiment::PublishedSeries;
use crate::number_format::short;
use crate::report::html::figure_comparison::{
    ArticleSeries, Cell, CellVerdict, Comparison, PublishedValue,
};
use crate::report::html::number_labels::{range, times};
use crate::report::html::plot_model;
use crate::results::outcome::FigureNote;

/// Returns all figures of an experiment: in one table if there is one series or one place,
/// otherwise in a table for each figure.
pub fn tables(axis: &str, comparisons: &[Comparison<'_>]) -> Markup {
    let places = union(comparisons.iter().flat_map(|of| of.places.iter().copied()));
    let lines = || comparisons.iter().flat_map(|of| &of.lines);
    let series = union(lines().map(|line| line.series));
    let name_of = |row: &str| {
        lines().find(|line| line.series == row).map_or_else(String::new, |line| line.name.into())
    };
    html! {
        @if let ([only], false) = (series.as_slice(), places.is_empty()) {
            (by_figure(axis, &places, comparisons, |place| (place.to_string(), only, place)))
        } @else if let [only] = places.as_slice() {
            (by_figure("series", &series, comparisons, |row| (name_of(row), row, only)))
        } @else {
            @for comparison in comparisons { (by_series(axis, comparison)) }
        }
        (published(comparisons))
    }
}

/// Returns a table with a row for each of `rows` and columns for each figure.
fn by_figure<'a>(
    head: &str,
    rows: &[&'a str],
    comparisons: &[Comparison<'_>],
    cell_of: impl Fn(&'a str) -> (String, &'a str, &'a str),
) -> Markup {
    let caption = "Medians, with the lowest and the highest repetition.";
    scrolling(
        caption,
        html! {
            table {
                    thead {
                    tr {
                        th.corner rowspan="2" scope="col" { (head) }
                        @for column in comparisons {
                            th.first colspan=(columns(column)) scope="colgroup" {
                                (figure_head(column.figure))
                            }
                        }
                    }
                    tr { @for column in comparisons { (column_heads(column)) } }
                }
                tbody {
                    @for row in rows {
                        @let (name, series, place) = cell_of(row);
                        tr {
                            th.long[is_long(&name)] scope="row" { (name) }
                            @for column in comparisons {
                                @let cell = column.cell(series, place);
                                td.first { (value(cell)) }
                                @if has_ratios(column) { td { (ratio(cell)) } }
                                @if has_published(column) {
                                    @let found = column.published(series, place);
                                    td.article { (published_values(column, &found)) }
                                    td.article { (published_ratios(&found)) }
                                }
                            }
                        }
                    }
                }
            }
        },
    )
}

/// Returns a table with a row for each place and a column for each series.
fn by_series(axis: &str, comparison: &Comparison<'_>) -> Markup {
    let ratios = match comparison.base_name() {
        Some(base) => format!("the ratio to “{base}”"),
        None if comparison.compares_series() => "the ratio to the first series".to_string(),
        None => "the ratio to the first place of the series".to_string(),
    };
    let mut caption = format!(
        "{}: medians, with the lowest and the highest repetition, and {ratios}",
        plot_model::title(comparison.figure)
    );
    if has_published(comparison) {
        caption.push_str("; below, what was published");
        if let Some(unit) = published_unit(comparison) {
            caption.push_str(&format!(" in {unit}"));
        }
        caption.push_str(" with its own ratio");
    }
    scrolling(
        &caption,
        html! {
            table.stacked {
                    thead {
                    tr {
                        th.corner scope="col" { (axis) }
                        @for line in &comparison.lines { th scope="col" { (line.name) } }
                    }
                }
                tbody {
                    @for place in &comparison.places {
                        tr {
                            th.long[is_long(place)] scope="row" { (place) }
                            @for line in &comparison.lines {
                                @let cell = comparison.cell(line.series, place);
                                @let found = comparison.published(line.series, place);
                                td {
                                    (value(cell)) " " (ratio(cell))
                                    @if !found.is_empty() {
                                        span.article {
                                            (published_values(comparison, &found)) " "
                                            (published_ratios(&found))
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        },
    )
}

/// Wraps a table in a container, so that the page never scrolls sideways.
fn scrolling(name: &str, table: Markup) -> Markup {
    html! {
        p.caption { (name) }
        div.scroll role="region" aria-label=(name) tabindex="0" { (table) }
    }
}

/// Whether a name takes more than one line at the head of a row.
fn is_long(name: &str) -> bool {
    name.chars().count() > 24
}

fn figure_head(figure: &FigureNote) -> Markup {
    let better = plot_model::better(figure.better);
    html! {
        (figure.name)
        small { (figure.unit) @if !better.is_empty() { ", " (better) } }
    }
}

fn columns(column: &Comparison<'_>) -> usize {
    1 + usize::from(has_ratios(column)) + 2 * usize::from(has_published(column))
}

fn column_heads(column: &Comparison<'_>) -> Markup {
    html! {
        th.first scope="col" { "measured" }
        @if has_ratios(column) {
            th scope="col" {
                "ratio"
                @if let Some(base) = column.base_name() { small { "to “" (base) "”" } }
            }
        }
        @if has_published(column) {
            th.article scope="col" {
                (published_name(column))
                @if let Some(unit) = published_unit(column) { small { (unit) } }
            }
            th.article scope="col" { "its ratio" }
        }
    }
}

fn has_ratios(column: &Comparison<'_>) -> bool {
    let mut cells = column.lines.iter().flat_map(|line| &line.cells);
    cells.any(|cell| !matches!(cell.verdict, CellVerdict::Alone | CellVerdict::Base))
}

fn has_published(column: &Comparison<'_>) -> bool {
    let beside = column.articles.iter().filter(|article| article.beside.is_some());
    beside.flat_map(|article| &article.cells).any(|cell| cell.value.is_some())
}

/// Returns the name of the published article if all results compare with the same one.
fn published_name<'a>(column: &Comparison<'a>) -> &'a str {
    let mut names = column.articles.iter().map(|article| article.seed.series);
    let first = names.next().unwrap_or_default();
    if names.all(|name| name == first) { first } else { "published" }
}

/// Returns the common unit of all articles.
fn published_unit<'a>(column: &Comparison<'a>) -> Option<&'a str> {
    let unit = column.articles.first()?.seed.unit;
    column.articles.iter().all(|article| article.seed.unit == unit).then_some(unit)
}

fn value(cell: Option<&Cell<'_>>) -> Markup {
    let Some(cell) = cell.filter(|cell| cell.point.is_some()) else {
        return html! { ("–") };
    };
    let Some(spread) = cell.spread else {
        return html! { span.unsound { "not sound" } };
    };
    html! {
        b { (short(spread.median)) } " "
        @if spread.high > spread.low {
            small { (range(spread.low, spread.high)) }
        }
    }
}

fn ratio(cell: Option<&Cell<'_>>) -> Markup {
    let Some(cell) = cell else { return html! {} };
    let class = match cell.verdict {
        CellVerdict::Better => "ratio better",
        CellVerdict::Worse => "ratio worse",
        CellVerdict::Alone | CellVerdict::Base | CellVerdict::Equal | CellVerdict::Different => {
            "ratio"
        }
    };
    let times = cell.ratio.map(|ratio| times(ratio.median));
    html! {
        @match cell.verdict {
            CellVerdict::Alone => {},
            CellVerdict::Base => span.ratio { "base" },
            verdict => span class=(class) {
                @if verdict == CellVerdict::Equal { b title="equal within the spread" { "=" } " " }
                (times.unwrap_or_default())
                @match verdict {
                    CellVerdict::Better => small { " better" },
                    CellVerdict::Worse => small { " worse" },
                    _ => {},
                }
            },
        }
    }
}

fn published_values(
    column: &Comparison<'_>,
    found: &[(&PublishedSeries, PublishedValue)],
) -> Markup {
    let shared = published_unit(column).is_some();
    html! {
        @for (seed, cell) in found {
            @if let Some(value) = cell.value {
                span title=(seed.series) {
                    (short(value)) @if !shared { " " (seed.unit) }
                } " "
            }
        }
    }
}

fn published_ratios(found: &[(&PublishedSeries, PublishedValue)]) -> Markup {
    html! {
        @for (_, cell) in found {
            @if let Some(ratio) = cell.ratio { span { (times(ratio)) } " " }
        }
    }
}

/// Lists the published series with our series beside them, and their further points.
fn published(comparisons: &[Comparison<'_>]) -> Markup {
    html! {
        @for of in comparisons {
            @let sentences: Vec<String> =
                of.articles.iter().filter_map(|article| sentence(of, article)).collect();
            @if !sentences.is_empty() { p.note { (sentences.join(" ")) } }
        }
    }
}

fn sentence(of: &Comparison<'_>, article: &ArticleSeries<'_>) -> Option<String> {
    let seed = article.seed;
    let others = unmeasured(of, seed, article.beside.is_some());
    if of.lines.len() < 2 && others.is_empty() {
        return None;
    }
    let mut text = format!("“{}” has {} in {}", seed.series, of.figure.name, seed.unit);
    if article.beside.is_some() && !seed.beside.is_empty() {
        text.push_str(&format!(", beside our “{}”", seed.beside));
    }
    if !others.is_empty() {
        text.push_str(&format!("; beside nothing of ours: {}", others.join(", ")));
    }
    Some(text + ".")
}

/// Returns the points of an article that have no place in the table.
fn unmeasured(of: &Comparison<'_>, seed: &PublishedSeries, beside: bool) -> Vec<String> {
    let points = seed.points.iter().filter(|(place, _)| !beside || !of.places.contains(place));
    points.map(|(place, value)| format!("{} at {place}", short(*value))).collect()
}

/// Returns each name once, in the order of its first appearance.
fn union<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
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
    use crate::report::html::outcome_fixtures;
    use crate::results::outcome::Outcome;

    fn table_of(outcome: &Outcome, seeds: &[PublishedSeries]) -> String {
        let of = |figure| Comparison::of(outcome, figure, seeds);
        let comparisons: Vec<Comparison<'_>> = outcome.figures.iter().filter_map(of).collect();
        tables(&outcome.axis, &comparisons).into_string()
    }

    #[test]
    fn flagged_figure_shows_no_number() {
        let points = [("0", 20.0), ("10", f64::NAN), ("20", 10.0)];
        let table = table_of(&outcome_fixtures::outcome("reads", &[("ours", &points)]), &[]);
        let rows: Vec<&str> = table.split("<tr>").collect();
        let row = rows.iter().find(|row| row.contains(">10</th>")).expect("its row");
        assert!(row.contains("not sound") && !row.contains("<b>"), "{row}");
        assert!(!table.contains("666"), "a flagged value is shown");
        let other = rows.iter().find(|row| row.contains(">20</th>")).expect("its row");
        assert!(other.contains("<b>10.0</b>") && other.contains("0.500×"), "{other}");
    }

    #[test]
    fn figures_within_the_spread_are_equal() {
        let points = [("0", 20.0), ("10", 20.1), ("20", 30.0)];
        let table = table_of(&outcome_fixtures::outcome("reads", &[("ours", &points)]), &[]);
        assert_eq!(table.matches(">=</b>").count(), 1);
        // The word, for readers that cannot distinguish the colours.
        assert!(table.contains("ratio worse\">1.50×<small> worse</small>"), "{table}");
        let points = [("0", 20.0), ("10", 10.0)];
        let table = table_of(&outcome_fixtures::outcome("reads", &[("ours", &points)]), &[]);
        assert!(table.contains("ratio better\">0.500×<small> better</small>"), "{table}");
        let table = table_of(
            &outcome_fixtures::outcome("reads", &[("ours", &[("0", 1.0), ("10", 1.0)])]),
            &[],
        );
        assert!(!table.contains("> better<") && !table.contains("> worse<"), "{table}");
        assert_eq!(table.matches(">base<").count(), 1);
    }

    #[test]
    fn published_figure_has_its_own_ratio() {
        let seeds = [PublishedSeries {
            series: "a store",
            beside: "ours",
            figure: "reads",
            unit: "ms",
            points: &[("0", 400.0), ("20", 100.0), ("99", 1.0)],
        }];
        let points = [("0", 20.0), ("20", 10.0)];
        let one = table_of(&outcome_fixtures::outcome("reads", &[("ours", &points)]), &seeds);
        assert!(one.contains("400") && one.contains("0.250×"), "{one}");
        assert!(one.contains("beside nothing of ours: 1.00 at 99"), "{one}");
        let two = outcome_fixtures::outcome("reads", &[("theirs", &points), ("ours", &points)]);
        let two = table_of(&two, &seeds);
        assert!(two.contains("400") && two.contains("0.250×"), "{two}");
    }

    #[test]
    fn every_series_has_its_column_and_every_place_its_row() {
        let table = table_of(&outcome_fixtures::grid(10, 9), &[]);
        assert_eq!(table.matches("<td>").count(), 90);
        assert_eq!(table.matches("scope=\"row\"").count(), 9);
        let bars = table_of(&outcome_fixtures::grid(7, 1), &[]);
        assert_eq!(bars.matches("scope=\"row\"").count(), 7);
        let alone = table_of(&outcome_fixtures::grid(1, 1), &[]);
        assert!(!alone.contains("ratio"), "{alone}");
    }
}

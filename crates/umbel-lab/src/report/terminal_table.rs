//! A result as a table for the terminal.

use crate::experiment::Experiment;
use crate::number_format::{ratio, short};
use crate::results::outcome::{Outcome, Spread};

/// Returns the terminal output about an experiment.
pub fn text(experiment: &Experiment, outcome: &Outcome) -> String {
    let mut text = format!("{}: {}\n\n", outcome.experiment, experiment.question);
    text.push_str(&table(outcome));
    for paragraph in (experiment.meaning)(outcome) {
        text.push('\n');
        text.push_str(&fold_text(&paragraph, 96));
    }
    let (flagged, all) = (outcome.flagged_count(), repetitions(outcome));
    if flagged > 0 {
        text.push_str(&format!(
            "\n{flagged} of {all} repetitions count for nothing; the report says why\n"
        ));
    }
    text
}

fn repetitions(outcome: &Outcome) -> usize {
    outcome.points.iter().map(|point| point.repetitions.len()).sum()
}

/// Returns a row for each place of each series and a column for each figure. A cell has median,
/// minimum and maximum, and the ratio to the first place of the series, or `=` if the two are
/// statistically equal.
fn table(outcome: &Outcome) -> String {
    let several = outcome.series().len() > 1;
    let mut head = vec![outcome.axis.clone()];
    if several {
        head.insert(0, String::new());
    }
    head.extend(outcome.figures.iter().map(|figure| format!("{}, {}", figure.name, figure.unit)));
    let mut rows = vec![head];
    for series in outcome.series() {
        let places = outcome.places();
        let has =
            |x: &&str| outcome.points.iter().any(|point| point.series == series && point.x == *x);
        let places: Vec<&str> = places.into_iter().filter(has).collect();
        for x in &places {
            let mut row = vec![(*x).to_string()];
            if several {
                row.insert(0, series.to_string());
            }
            let first = places.first().copied().unwrap_or_default();
            row.extend(outcome.figures.iter().map(|figure| {
                let base = outcome.spread(series, first, &figure.name);
                let point = outcome.point(series, x, &figure.name);
                cell(
                    point.map(crate::results::outcome::Point::spread),
                    base.filter(|_| *x != first),
                )
            }));
            rows.push(row);
        }
    }
    align_columns(&rows)
}

fn cell(spread: Option<Option<Spread>>, base: Option<Spread>) -> String {
    let Some(spread) = spread else { return "–".to_string() };
    let Some(spread) = spread else { return "not sound".to_string() };
    let range = if spread.low < spread.high {
        format!(" ({}–{})", short(spread.low), short(spread.high))
    } else {
        String::new()
    };
    let beside = match base {
        None => String::new(),
        Some(base) if base.equals(&spread) => "  =".to_string(),
        Some(Spread { median: 0.0, .. }) => String::new(),
        Some(base) => format!("  ×{}", ratio(spread.median, base.median)),
    };
    format!("{}{range}{beside}", short(spread.median))
}

/// Aligns columns with two spaces between them.
pub fn align_columns(rows: &[Vec<String>]) -> String {
    let plain = |cell: &String| -> String {
        // A result may come from an untrusted source.
        let shown = |letter: char| match letter {
            letter if letter.is_control() => letter.escape_default().collect(),
            letter => vec![letter],
        };
        cell.chars().flat_map(shown).collect()
    };
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(plain).collect()).collect();
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// Folds a paragraph into lines of at most `width` characters.
fn fold_text(paragraph: &str, width: usize) -> String {
    let (mut text, mut length) = (String::new(), 0);
    for word in paragraph.split_whitespace() {
        let letters = word.chars().count();
        if length > 0 && length + 1 + letters > width {
            text.push('\n');
            length = 0;
        } else if length > 0 {
            text.push(' ');
            length += 1;
        }
        text.push_str(word);
        length += letters;
    }
    text + "\n"
}

//! Tables of Markdown, and the figures in them.

use std::fmt::Write as _;

use crate::kv::kv_results::Spread;

/// Markdown table whose columns are aligned.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Makes a table with these column heads.
    pub fn new<'a>(first: &str, heads: impl IntoIterator<Item = &'a str>) -> Table {
        let mut row = vec![first.to_string()];
        row.extend(heads.into_iter().map(str::to_string));
        Table { rows: vec![row] }
    }

    /// Adds a row.
    pub fn row(&mut self, first: &str, cells: impl IntoIterator<Item = String>) {
        self.rows.push(std::iter::once(first.to_string()).chain(cells).collect());
    }

    /// Returns the table as text.
    pub fn text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for (at, row) in self.rows.iter().enumerate() {
            for (cell, width) in row.iter().zip(&widths) {
                let _ = write!(text, "| {cell:width$} ");
            }
            text.push_str("|\n");
            if at == 0 {
                let rules = widths.iter().map(|width| "-".repeat(width + 2));
                let _ = writeln!(text, "|{}|", rules.collect::<Vec<_>>().join("|"));
            }
        }
        text
    }
}

/// Cell without a measurement.
pub const NO_VALUE: &str = "–";

/// Formats the median, and the extremes if they differ from it.
pub fn cell(spread: Option<Spread>) -> String {
    let Some(Spread { least, median, most }) = spread else { return NO_VALUE.to_string() };
    if least == most {
        return figure(median);
    }
    format!("{} ({}–{})", figure(median), figure(least), figure(most))
}

/// Formats a figure, if there is one.
pub fn optional_cell(number: Option<f64>) -> String {
    number.map_or(NO_VALUE.to_string(), figure)
}

/// Formats a figure with three significant digits, and all digits before the point.
pub fn figure(number: f64) -> String {
    match number.abs() {
        n if n >= 1000.0 => grouped(&format!("{number:.0}")),
        n if n >= 100.0 => format!("{number:.0}"),
        n if n >= 10.0 => format!("{number:.1}"),
        _ => format!("{number:.2}"),
    }
}

/// Groups the digits of a whole number by three.
fn grouped(digits: &str) -> String {
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_keep_three_digits() {
        assert_eq!(figure(0.1234), "0.12");
        assert_eq!(figure(12.34), "12.3");
        assert_eq!(figure(123.4), "123");
        assert_eq!(figure(12_345.6), "12,346");
        assert_eq!(figure(1_234_567.0), "1,234,567");
    }

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new("a", ["head"]);
        table.row("longer", ["–".to_string()]);
        assert_eq!(table.text(), "| a      | head |\n|--------|------|\n| longer | –    |\n");
    }
}

//! Comparison of two results of one experiment.

use serde_json::{Value, json};

use crate::lab_error::LabError;
use crate::number_format::{ratio, short};
use crate::report::terminal_table::align_columns;
use crate::results::outcome::{Better, Outcome, Spread};

/// Verdict on a figure that is in both results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiffVerdict {
    /// The figures are statistically equal.
    Equal,
    /// The second figure is better.
    Better,
    /// The second figure is worse.
    Worse,
    /// The figures differ, and neither direction is better.
    Different,
    /// One of the figures was measured only once, so that its spread is unknown.
    Once,
    /// One of the figures has no repetition that counts.
    NotSound,
}

impl DiffVerdict {
    /// Returns the verdict as a word.
    pub fn name(self) -> &'static str {
        match self {
            DiffVerdict::Equal => "equal",
            DiffVerdict::Better => "better",
            DiffVerdict::Worse => "worse",
            DiffVerdict::Different => "different",
            DiffVerdict::Once => "once",
            DiffVerdict::NotSound => "not sound",
        }
    }
}

/// A figure in both results.
#[derive(Debug, Clone, PartialEq)]
pub struct FigureDiff {
    /// The series and the place.
    pub point: (String, String),
    /// The name of the figure.
    pub figure: String,
    /// Spreads of the figure in both results.
    pub spreads: [Option<Spread>; 2],
    /// Verdict on the two spreads.
    pub verdict: DiffVerdict,
}

/// Compares every point that both results have.
///
/// # Errors
/// [`LabError::Usage`] if the results are of different experiments or scales, or share no point.
pub fn figure_diffs(a: &Outcome, b: &Outcome) -> Result<Vec<FigureDiff>, LabError> {
    if a.experiment != b.experiment {
        return Err(LabError::Usage(format!(
            "the first result is of `{}` and the second of `{}`; compare results of one experiment",
            a.experiment, b.experiment
        )));
    }
    if a.scale != b.scale {
        let (a, b) = (a.scale.name(), b.scale.name());
        return Err(LabError::Usage(format!(
            "the first result was measured with --scale {a} and the second with {b}; compare \
             results of one scale"
        )));
    }
    let mut rows = Vec::new();
    for point in &a.points {
        let Some(other) = b.point(&point.series, &point.x, &point.figure) else { continue };
        let figure = a.figures.iter().find(|figure| figure.name == point.figure);
        let better = figure.map_or(Better::Neither, |figure| figure.better);
        let spreads = [point.spread(), other.spread()];
        rows.push(FigureDiff {
            point: (point.series.clone(), point.x.clone()),
            figure: point.figure.clone(),
            spreads,
            verdict: verdict(spreads, better),
        });
    }
    if rows.is_empty() {
        return Err(LabError::Usage("the two results have no point in common".to_string()));
    }
    Ok(rows)
}

fn verdict(spreads: [Option<Spread>; 2], better: Better) -> DiffVerdict {
    let [Some(a), Some(b)] = spreads else { return DiffVerdict::NotSound };
    if a.equals(&b) {
        return DiffVerdict::Equal;
    }
    if a.count.min(b.count) < 2 {
        return DiffVerdict::Once;
    }
    match (better, b.median < a.median) {
        (Better::Neither, _) => DiffVerdict::Different,
        (Better::Lower, true) | (Better::Higher, false) => DiffVerdict::Better,
        (Better::Lower, false) | (Better::Higher, true) => DiffVerdict::Worse,
    }
}

/// Formats the comparison as a table, with the conditions in which the two differ.
pub fn text(a: &Outcome, b: &Outcome, rows: &[FigureDiff]) -> String {
    let mut text = format!("{}, --scale {}\n", a.experiment, a.scale.name());
    let mut note_difference = |what: &str, a: &str, b: &str| {
        if a != b {
            text.push_str(&format!("{what}: {a} | {b}\n"));
        }
    };
    note_difference("begun", &a.started, &b.started);
    note_difference("commit", &a.machine.commit, &b.machine.commit);
    note_difference("processor", &a.machine.processor, &b.machine.processor);
    note_difference("kernel", &a.machine.kernel, &b.machine.kernel);
    note_difference("file system", &a.machine.file_system, &b.machine.file_system);
    note_difference("binary", &a.machine.binary, &b.machine.binary);
    let settings = |outcome: &Outcome| {
        let named = |(name, value): &(String, String)| format!("{name}: {value}");
        outcome.settings.iter().map(named).collect::<Vec<_>>().join("; ")
    };
    note_difference("settings", &settings(a), &settings(b));
    let engines = |outcome: &Outcome| {
        let named = |engine: &crate::results::outcome::EngineNote| {
            format!("{} {}", engine.name, engine.version)
        };
        outcome.engines.iter().map(named).collect::<Vec<_>>().join(", ")
    };
    note_difference("engines", &engines(a), &engines(b));
    let shown = |spread: Option<Spread>| {
        spread.map_or_else(
            || "–".to_string(),
            |spread| {
                format!("{} ({}–{})", short(spread.median), short(spread.low), short(spread.high))
            },
        )
    };
    let head = ["", &a.axis, "figure", "first", "second", "second / first", ""];
    let mut table = vec![head.map(str::to_string).to_vec()];
    for row in rows {
        let [first, second] = row.spreads;
        let share = first.zip(second).map_or_else(String::new, |(a, b)| ratio(b.median, a.median));
        table.push(vec![
            row.point.0.clone(),
            row.point.1.clone(),
            row.figure.clone(),
            shown(first),
            shown(second),
            share,
            row.verdict.name().to_string(),
        ]);
    }
    text.push('\n');
    text.push_str(&align_columns(&table));
    let count = |verdict| rows.iter().filter(|row| row.verdict == verdict).count();
    text.push_str(&format!(
        "\n{} figures: {} equal within their spread, {} better, {} worse, {} different, {} that \
         were measured once and differ, {} not sound\n",
        rows.len(),
        count(DiffVerdict::Equal),
        count(DiffVerdict::Better),
        count(DiffVerdict::Worse),
        count(DiffVerdict::Different),
        count(DiffVerdict::Once),
        count(DiffVerdict::NotSound)
    ));
    text
}

/// Formats the comparison as JSON.
pub fn json(a: &Outcome, rows: &[FigureDiff]) -> Value {
    let spread = |spread: Option<Spread>| {
        spread.map(|s| json!({ "median": s.median, "low": s.low, "high": s.high }))
    };
    let row = |row: &FigureDiff| {
        json!({
            "series": row.point.0,
            "x": row.point.1,
            "figure": row.figure,
            "first": spread(row.spreads[0]),
            "second": spread(row.spreads[1]),
            "verdict": row.verdict.name(),
        })
    };
    json!({ "experiment": a.experiment, "rows": rows.iter().map(row).collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdict_follows_the_better_direction() {
        let of = |value: f64| Spread::of(vec![value, value]);
        let says = |a, b, better| verdict([of(a), of(b)], better);
        assert_eq!(says(1.0, 2.0, Better::Lower), DiffVerdict::Worse);
        assert_eq!(says(1.0, 2.0, Better::Higher), DiffVerdict::Better);
        assert_eq!(says(2.0, 1.0, Better::Lower), DiffVerdict::Better);
        assert_eq!(says(2.0, 1.0, Better::Neither), DiffVerdict::Different);
        assert_eq!(says(1.0, 1.01, Better::Lower), DiffVerdict::Equal);
        assert_eq!(verdict([of(1.0), None], Better::Lower), DiffVerdict::NotSound);
    }

    /// Story: a hundred million keys are measured once at full scale. Two such runs were called
    /// better and worse, by intervals of one number.
    #[test]
    fn single_repetition_has_no_verdict() {
        let (once, twice) = (Spread::of(vec![1.0]), Spread::of(vec![2.0, 2.1]));
        assert_eq!(verdict([once, twice], Better::Lower), DiffVerdict::Once);
        assert_eq!(verdict([twice, once], Better::Neither), DiffVerdict::Once);
        assert_eq!(verdict([once, Spread::of(vec![1.01])], Better::Lower), DiffVerdict::Equal);
        assert_eq!(verdict([once, None], Better::Lower), DiffVerdict::NotSound);
    }
}

//! Two results of one experiment beside each other.

use serde_json::{Value, json};

use crate::lab_error::LabError;
use crate::number::{ratio, short};
use crate::outcome::{Better, Outcome, Spread};
use crate::terminal::aligned;

/// What is said of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The two cannot be told apart.
    Equal,
    /// The second is better.
    Better,
    /// The second is worse.
    Worse,
    /// The two differ, and neither way is better.
    Different,
    /// One of them was measured once, so that nobody knows its spread.
    Once,
    /// One of them has no repetition that counts.
    NotSound,
}

impl Verdict {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Equal => "equal",
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::Different => "different",
            Verdict::Once => "once",
            Verdict::NotSound => "not sound",
        }
    }
}

/// A figure in both results.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The series and the place.
    pub at: (String, String),
    /// The name of the figure.
    pub figure: String,
    /// Both spreads.
    pub spreads: [Option<Spread>; 2],
    /// What that means.
    pub verdict: Verdict,
}

/// Every point that both have.
///
/// # Errors
/// [`LabError::Usage`] where they are of two experiments or scales, or share no point.
pub fn rows(a: &Outcome, b: &Outcome) -> Result<Vec<Row>, LabError> {
    if a.experiment != b.experiment {
        return Err(LabError::Usage(format!(
            "the first is of `{}` and the second of `{}`; compare two of one experiment",
            a.experiment, b.experiment
        )));
    }
    if a.scale != b.scale {
        let (a, b) = (a.scale.name(), b.scale.name());
        return Err(LabError::Usage(format!(
            "the first was measured with --scale {a} and the second with {b}, which are different \
             amounts of work"
        )));
    }
    let mut rows = Vec::new();
    for point in &a.points {
        let Some(other) = b.point(&point.series, &point.x, &point.figure) else { continue };
        let figure = a.figures.iter().find(|figure| figure.name == point.figure);
        let better = figure.map_or(Better::Neither, |figure| figure.better);
        let spreads = [point.spread(), other.spread()];
        rows.push(Row {
            at: (point.series.clone(), point.x.clone()),
            figure: point.figure.clone(),
            spreads,
            verdict: verdict(spreads, better),
        });
    }
    if rows.is_empty() {
        return Err(LabError::Usage("the two have no point in common".to_string()));
    }
    Ok(rows)
}

fn verdict(spreads: [Option<Spread>; 2], better: Better) -> Verdict {
    let [Some(a), Some(b)] = spreads else { return Verdict::NotSound };
    if a.equals(&b) {
        return Verdict::Equal;
    }
    if a.count.min(b.count) < 2 {
        return Verdict::Once;
    }
    match (better, b.median < a.median) {
        (Better::Neither, _) => Verdict::Different,
        (Better::Lower, true) | (Better::Higher, false) => Verdict::Better,
        (Better::Lower, false) | (Better::Higher, true) => Verdict::Worse,
    }
}

/// The comparison as a table, and what the two were measured with where that differs.
pub fn text(a: &Outcome, b: &Outcome, rows: &[Row]) -> String {
    let mut text = format!("{}, --scale {}\n", a.experiment, a.scale.name());
    let mut said = |what: &str, a: &str, b: &str| {
        if a != b {
            text.push_str(&format!("{what}: {a} | {b}\n"));
        }
    };
    said("begun", &a.started, &b.started);
    said("commit", &a.machine.commit, &b.machine.commit);
    said("processor", &a.machine.processor, &b.machine.processor);
    said("kernel", &a.machine.kernel, &b.machine.kernel);
    said("file system", &a.machine.file_system, &b.machine.file_system);
    said("binary", &a.machine.binary, &b.machine.binary);
    let settings = |outcome: &Outcome| {
        let named = |(name, value): &(String, String)| format!("{name}: {value}");
        outcome.settings.iter().map(named).collect::<Vec<_>>().join("; ")
    };
    said("settings", &settings(a), &settings(b));
    let engines = |outcome: &Outcome| {
        let named =
            |engine: &crate::outcome::EngineNote| format!("{} {}", engine.name, engine.version);
        outcome.engines.iter().map(named).collect::<Vec<_>>().join(", ")
    };
    said("engines", &engines(a), &engines(b));
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
            row.at.0.clone(),
            row.at.1.clone(),
            row.figure.clone(),
            shown(first),
            shown(second),
            share,
            row.verdict.name().to_string(),
        ]);
    }
    text.push('\n');
    text.push_str(&aligned(&table));
    let count = |verdict| rows.iter().filter(|row| row.verdict == verdict).count();
    text.push_str(&format!(
        "\n{} figures: {} equal within their spread, {} better, {} worse, {} different, {} that \
         were measured once and differ, {} not sound\n",
        rows.len(),
        count(Verdict::Equal),
        count(Verdict::Better),
        count(Verdict::Worse),
        count(Verdict::Different),
        count(Verdict::Once),
        count(Verdict::NotSound)
    ));
    text
}

/// The comparison for a program.
pub fn json(a: &Outcome, rows: &[Row]) -> Value {
    let spread = |spread: Option<Spread>| {
        spread.map(|s| json!({ "median": s.median, "low": s.low, "high": s.high }))
    };
    let row = |row: &Row| {
        json!({
            "series": row.at.0,
            "x": row.at.1,
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
    fn verdicts_follow_which_way_is_better() {
        let of = |value: f64| Spread::of(vec![value, value]);
        let says = |a, b, better| verdict([of(a), of(b)], better);
        assert_eq!(says(1.0, 2.0, Better::Lower), Verdict::Worse);
        assert_eq!(says(1.0, 2.0, Better::Higher), Verdict::Better);
        assert_eq!(says(2.0, 1.0, Better::Lower), Verdict::Better);
        assert_eq!(says(2.0, 1.0, Better::Neither), Verdict::Different);
        assert_eq!(says(1.0, 1.01, Better::Lower), Verdict::Equal);
        assert_eq!(verdict([of(1.0), None], Better::Lower), Verdict::NotSound);
    }

    /// A hundred million keys are measured once at full scale. Two such runs were called better and
    /// worse, by ends that were the same number.
    #[test]
    fn what_was_measured_once_has_no_spread_to_differ_by() {
        let (once, twice) = (Spread::of(vec![1.0]), Spread::of(vec![2.0, 2.1]));
        assert_eq!(verdict([once, twice], Better::Lower), Verdict::Once);
        assert_eq!(verdict([twice, once], Better::Neither), Verdict::Once);
        assert_eq!(verdict([once, Spread::of(vec![1.01])], Better::Lower), Verdict::Equal);
        assert_eq!(verdict([once, None], Better::Lower), Verdict::NotSound);
    }
}

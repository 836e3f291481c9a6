//! Table of processor time beside wall time.

use maud::{Markup, html};

use crate::number_format::short;
use crate::results::outcome::{Cost, Outcome, Point, Spread};

/// Returns a row for each point with a known cost; nothing without one.
pub fn table(outcome: &Outcome) -> Markup {
    let rows: Vec<(&Point, [f64; 4])> =
        outcome.points.iter().filter_map(|point| Some((point, medians(point)?))).collect();
    if rows.is_empty() {
        return html! {};
    }
    html! {
        details {
            summary { "Time on the wall and of the processor" }
            p.note {
                "Nanoseconds for each operation, medians of the repetitions that count. The last \
                column is the processor time of the other threads, in shares of a processor: \
                flushes, compactions and collectors."
            }
            div.scroll {
                table.list {
                    thead { tr {
                        (point_heads(outcome))
                        th scope="col" { "on the wall" }
                        th scope="col" { "reading thread" }
                        th scope="col" { "all threads" }
                        th scope="col" { "others" }
                    } }
                    tbody {
                        @for (point, [wall, thread, process, others]) in &rows {
                            tr {
                                (point_cells(outcome, point))
                                td { (short(*wall)) }
                                td { (short(*thread)) }
                                td { (short(*process)) }
                                td { (format!("{:.0} %", others * 100.0)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Returns the medians for an operation: wall time, processor time of the thread and of all
/// threads, and the share of a processor that the other threads used.
fn medians(point: &Point) -> Option<[f64; 4]> {
    let counting = point.repetitions.iter().filter(|repetition| repetition.flags.is_empty());
    let costs: Vec<Cost> = counting.filter_map(|repetition| repetition.cost).collect();
    let median = |of: fn(&Cost) -> f64| Some(Spread::of(costs.iter().map(of).collect())?.median);
    Some([
        median(|cost| each(cost, cost.wall_ns))?,
        median(|cost| each(cost, cost.thread_ns))?,
        median(|cost| each(cost, cost.process_ns))?,
        median(|cost| {
            cost.process_ns.saturating_sub(cost.thread_ns) as f64 / cost.wall_ns.max(1) as f64
        })?,
    ])
}

fn each(cost: &Cost, ns: u64) -> f64 {
    ns as f64 / cost.operations.max(1) as f64
}

/// Returns the column heads that name a point.
pub(super) fn point_heads(outcome: &Outcome) -> Markup {
    html! {
        @if has_series(outcome) { th scope="col" { "series" } }
        th scope="col" { (outcome.axis) }
        th scope="col" { "figure" }
    }
}

/// Returns the cells that name a point.
pub(super) fn point_cells(outcome: &Outcome, point: &Point) -> Markup {
    html! {
        @if has_series(outcome) { td.words { (point.series) } }
        td.words { (point.x) }
        td.words { (point.figure) }
    }
}

/// Whether series have names.
fn has_series(outcome: &Outcome) -> bool {
    outcome.series() != [""]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::html::outcome_fixtures;

    #[test]
    fn background_work_is_shown_beside_the_wall_time() {
        let mut outcome =
            outcome_fixtures::outcome("reads", &[("ours", &[("0", 20.0), ("10", 10.0)])]);
        assert_eq!(table(&outcome).into_string(), "", "nothing is known of results of version 1");
        let repetitions = &mut outcome.points[1].repetitions;
        for (at, repetition) in repetitions.iter_mut().enumerate() {
            let (wall_ns, thread_ns) = (2_000 + at as u64, 1_500);
            repetition.cost = Some(Cost { operations: 10, wall_ns, thread_ns, process_ns: 2_500 });
        }
        // Flagged repetitions do not count here either.
        repetitions[0].flags.push("the clock jumped".to_string());
        repetitions[0].cost = Some(Cost { operations: 1, wall_ns: 1, thread_ns: 1, process_ns: 9 });
        let text = table(&outcome).into_string();
        assert_eq!(text.matches("<tr>").count(), 2, "{text}");
        let cells = "<td>200</td><td>150</td><td>250</td><td>50 %</td>";
        assert!(text.contains(cells), "{text}");
    }
}

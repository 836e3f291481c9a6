//! Section of the page about one experiment.

use maud::{Markup, html};

use crate::experiment::Experiment;
use crate::measure::machine::Machine;
use crate::number_format::short;
use crate::report::html::cpu_time_table::{point_cells, point_heads};
use crate::report::html::figure_comparison::Comparison;
use crate::report::html::number_labels::{duration, tick};
use crate::report::html::plot_model::Plot;
use crate::report::html::plot_style::PlotFormat;
use crate::report::html::{cpu_time_table, draw_bars, draw_lines, figure_tables};
use crate::results::outcome::{EngineNote, Outcome, Repetition};

/// One experiment with its outcome.
pub struct ExperimentSection<'a> {
    /// Target of links; unique in the page.
    pub id: String,
    /// The experiment's definition.
    pub experiment: &'a Experiment,
    /// The experiment's outcome.
    pub outcome: &'a Outcome,
    /// Interpretation, one paragraph each.
    pub meaning: Vec<String>,
}

impl<'a> ExperimentSection<'a> {
    /// Creates the section of an experiment; `id` is unique in the page.
    pub fn new(
        id: String,
        experiment: &'a Experiment,
        outcome: &'a Outcome,
    ) -> ExperimentSection<'a> {
        ExperimentSection { id, experiment, outcome, meaning: (experiment.meaning)(outcome) }
    }

    /// Returns the whole section.
    pub fn markup(&self) -> Markup {
        let (experiment, outcome) = (self.experiment, self.outcome);
        let seeds = experiment.seeds;
        let compared = |figure| Comparison::of(outcome, figure, seeds);
        let comparisons: Vec<Comparison<'a>> =
            outcome.figures.iter().filter_map(compared).collect();
        html! {
            section id=(self.id) aria-labelledby={ (self.id) "-head" } {
                h2 id={ (self.id) "-head" } { (experiment.title) }
                p.asks { (experiment.question) }
                p { strong { "Expected: " } (experiment.hypothesis) }
                p.note { "Source: " (experiment.source.name) ", " (experiment.source.part) "." }
                h3 { "What was measured" }
                (self.circumstances())
                (engines(&outcome.engines))
                h3 { "Results" }
                @if comparisons.is_empty() { p { "Nothing was measured." } }
                @for (at, comparison) in comparisons.iter().enumerate() {
                    @if self.is_plotted(comparison) { (self.plot(at, comparison)) }
                }
                (figure_tables::tables(&outcome.axis, &comparisons))
                h3 { "What it means" }
                @if self.meaning.is_empty() { p { "Nothing can be said about these figures." } }
                @for paragraph in &self.meaning { p { (paragraph) } }
                (cpu_time_table::table(outcome))
                (self.flagged())
                (self.repetitions())
            }
        }
    }

    fn circumstances(&self) -> Markup {
        let outcome = self.outcome;
        let machine = &outcome.machine;
        html! {
            div.scroll {
                table.facts {
                    tbody {
                        @for (name, value) in &outcome.settings { (fact(name, value)) }
                        (fact("scale", outcome.scale.name()))
                        (fact("machine", &machine_text(machine)))
                        (fact("commit", &machine.commit))
                        (fact("begun", &outcome.started))
                        (fact("took", &duration(outcome.seconds)))
                        (fact("order", &order_text(outcome)))
                    }
                }
            }
        }
    }

    /// Whether a figure has a plot; a single value has none.
    fn is_plotted(&self, comparison: &Comparison<'_>) -> bool {
        if comparison.compares_series() && comparison.lines.len() == 1 {
            return false;
        }
        let name = &comparison.figure.name;
        self.experiment.figures.iter().any(|figure| figure.plot && figure.name == name)
    }

    fn plot(&self, at: usize, comparison: &Comparison<'_>) -> Markup {
        let plot = Plot::of(comparison, &self.outcome.axis);
        let draw = if comparison.compares_series() { draw_bars::svg } else { draw_lines::svg };
        let id = |paper: PlotFormat| format!("{}-plot-{at}-{}", self.id, paper.class());
        html! {
            figure {
                figcaption { strong { (plot.title) } " " (plot.caption) }
                @for paper in [PlotFormat::WIDE, PlotFormat::NARROW] {
                    div class={ "scroll " (paper.class()) } { (draw(&plot, paper, &id(paper))) }
                }
            }
        }
    }

    fn flagged(&self) -> Markup {
        let outcome = self.outcome;
        let all: usize = outcome.points.iter().map(|point| point.repetitions.len()).sum();
        let flagged = outcome.flagged_count();
        if flagged == 0 {
            return html! { p { "None of " (tick(all as f64)) " repetitions was flagged." } };
        }
        html! {
            details {
                summary {
                    (tick(flagged as f64)) " of " (tick(all as f64))
                    " repetitions were flagged and count for nothing"
                }
                div.scroll {
                    table.list {
                        thead { tr {
                            (point_heads(outcome))
                            th scope="col" { "round" }
                            th scope="col" { "why" }
                        } }
                        tbody {
                            @for point in &outcome.points {
                                @for repetition in &point.repetitions {
                                    @if !repetition.flags.is_empty() {
                                        tr {
                                            (point_cells(outcome, point))
                                            td { (repetition.round) }
                                            td.words.long { (repetition.flags.join("; ")) }
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    fn repetitions(&self) -> Markup {
        let outcome = self.outcome;
        let unit_of = |name: &str| {
            let figure = outcome.figures.iter().find(|figure| figure.name == name);
            figure.map_or("", |figure| figure.unit.as_str())
        };
        html! {
            details {
                summary { "Every repetition" }
                p.note { "In the order of the rounds; those that were flagged are struck out." }
                div.scroll {
                    table.list {
                        thead { tr {
                            (point_heads(outcome))
                            th scope="col" { "unit" }
                            th scope="col" { "values" }
                        } }
                        tbody {
                            @for point in &outcome.points {
                                tr {
                                    (point_cells(outcome, point))
                                    td.words { (unit_of(&point.figure)) }
                                    td.words.long { (values(&point.repetitions)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Returns a summary of the rounds, in one line.
fn order_text(outcome: &Outcome) -> String {
    let Some(order) = &outcome.order else {
        return format!("{} rounds, each in the same order", outcome.rounds);
    };
    let begun = order.rounds.iter().filter_map(|turns| order.subjects.get(*turns.first()?));
    let begun: Vec<&str> = begun.map(String::as_str).collect();
    match (order.subjects.len(), order.rounds.len()) {
        (1, rounds) => format!("{rounds} rounds"),
        (_, rounds) => format!("{rounds} rounds, begun with {}", begun.join("; ")),
    }
}

/// Describes a machine in one line.
pub fn machine_text(machine: &Machine) -> String {
    let memory = machine.memory_mib.map(|mib| tick((mib as f64 / 1024.0 * 10.0).round() / 10.0));
    let memory = memory.map_or_else(String::new, |gib| format!(", {gib} GiB of memory"));
    format!(
        "{}, {} threads{memory}, {}, {}",
        machine.processor, machine.threads, machine.kernel, machine.file_system
    )
}

fn fact(name: &str, value: &str) -> Markup {
    html! { tr { th scope="row" { (name) } td.words { (value) } } }
}

fn engines(engines: &[EngineNote]) -> Markup {
    if engines.is_empty() {
        return html! { p { "No engine took part." } };
    }
    html! {
        div.scroll {
            table.list {
                thead { tr {
                    @for head in ["engine", "version", "settings", "recommended"] {
                        th scope="col" { (head) }
                    }
                } }
                tbody {
                    @for engine in engines {
                        tr {
                            th scope="row" { (engine.name) }
                            td.words { (engine.version) }
                            td.words.long { (engine.settings) }
                            td.words.long {
                                @if engine.recommended.is_empty() { ("–") }
                                @for (at, place) in engine.recommended.iter().enumerate() {
                                    @if at > 0 { br; }
                                    (link(place))
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Returns a link if the text is a web address, otherwise the text.
fn link(text: &str) -> Markup {
    let is_address = ["https://", "http://"].iter().any(|scheme| text.starts_with(scheme));
    html! {
        @if is_address && !text.contains(char::is_whitespace) {
            a href=(text) rel="noreferrer" { (text) }
        } @else {
            (text)
        }
    }
}

fn values(repetitions: &[Repetition]) -> Markup {
    html! {
        @for (at, repetition) in repetitions.iter().enumerate() {
            @if at > 0 { ", " }
            @if repetition.flags.is_empty() {
                (short(repetition.value))
            } @else {
                s title=(repetition.flags.join("; ")) { (short(repetition.value)) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::html::outcome_fixtures;

    #[test]
    fn only_addresses_of_pages_become_links() {
        assert!(link("https://example.org/a?b=1&c").into_string().contains("href="));
        for text in ["javascript:alert(1)", "the handbook", "https://a b", "data:text/html,x"] {
            assert!(!link(text).into_string().contains("href"), "{text}");
        }
    }

    #[test]
    fn flagged_repetitions_are_listed_with_reasons() {
        let points = [("0", 20.0), ("10", f64::NAN)];
        let outcome = outcome_fixtures::outcome("reads", &[("ours", &points)]);
        let section =
            ExperimentSection::new("a".to_string(), &outcome_fixtures::EXPERIMENT, &outcome);
        let text = section.markup().into_string();
        assert!(text.contains("3 of 6 repetitions were flagged"), "{text}");
        assert!(text.contains("the clock jumped &amp; fell"), "{text}");
        assert_eq!(text.matches("<s title=\"the clock jumped &amp; fell\">").count(), 3);

        let outcome = outcome_fixtures::outcome("reads", &[("ours", &points[..1])]);
        let section =
            ExperimentSection::new("a".to_string(), &outcome_fixtures::EXPERIMENT, &outcome);
        let text = section.markup().into_string();
        assert!(text.contains("None of 3 repetitions was flagged."), "{text}");
    }
}

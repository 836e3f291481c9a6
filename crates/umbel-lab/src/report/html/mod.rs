//! The results of experiments as one HTML page without scripts or other files.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::experiment::Experiment;
use crate::results::outcome::{INTERVAL_COUNT_MIN, NOISE_FLOOR, NOISE_FLOOR_FEW, Outcome};

mod axis_scale;
mod cpu_time_table;
mod draw_bars;
mod draw_lines;
mod experiment_section;
mod figure_comparison;
mod figure_tables;
mod label_layout;
mod number_labels;
mod plot_model;
mod plot_style;

#[cfg(test)]
mod outcome_fixtures;

use experiment_section::ExperimentSection;

/// The only style sheet of the page.
const STYLE: &str = include_str!("style.css");
/// Content security policy: nothing is loaded, whatever a name in a result file contains.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; \
                      form-action 'none'";

/// Returns a page about these experiments, in this order.
pub fn page(results: &[(&Experiment, &Outcome)]) -> String {
    let mut sections: Vec<ExperimentSection<'_>> = Vec::new();
    for (experiment, outcome) in results {
        let same = results.iter().zip(&sections).filter(|((of, _), _)| of.name == experiment.name);
        let id = match same.count() {
            0 => experiment.name.to_string(),
            before => format!("{}-{}", experiment.name, before + 1),
        };
        sections.push(ExperimentSection::new(id, experiment, outcome));
    }
    let title = match results {
        [(only, _)] => only.title,
        _ => "What the settings buy",
    };
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main {
                    (head(title, results))
                    (contents(&sections))
                    (how_to_read())
                    @for section in &sections { (section.markup()) }
                }
            }
        }
    };
    readable(&page.into_string())
}

fn head(title: &str, results: &[(&Experiment, &Outcome)]) -> Markup {
    let all = |of: fn(&Outcome) -> String| {
        let mut texts: Vec<String> = results.iter().map(|(_, outcome)| of(outcome)).collect();
        texts.sort();
        texts.dedup();
        texts
    };
    let facts = [
        ("measured", all(|outcome| outcome.machine.date.clone())),
        ("scale", all(|outcome| outcome.scale.name().to_string())),
        ("machine", all(|outcome| experiment_section::machine_text(&outcome.machine))),
        ("commit", all(|outcome| outcome.machine.commit.clone())),
    ];
    html! {
        header {
            h1 { (title) }
            @if results.is_empty() {
                p { "There are no results." }
            } @else {
                table.facts {
                    @for (name, values) in &facts {
                        tr {
                            th scope="row" { (name) }
                            td.words { @for value in values { div { (value) } } }
                        }
                    }
                }
            }
        }
    }
}

fn contents(sections: &[ExperimentSection<'_>]) -> Markup {
    html! {
        nav aria-label="Experiments" {
            h2 { "Results in short" }
            ol {
                @for section in sections {
                    li {
                        a href={ "#" (section.id) } { (section.experiment.title) }
                        @if let Some(first) = section.meaning.first() { div { (first) } }
                    }
                }
            }
        }
    }
}

fn how_to_read() -> Markup {
    html! {
        section.reading aria-labelledby="how-to-read" {
            h2 id="how-to-read" { "How to read this" }
            ul {
                li {
                    "Each figure is the " strong { "median" } " of its repetitions. The "
                    strong { "range" } " beside it, a bar in the plots, goes from the lowest to \
                    the highest."
                }
                li {
                    "Two figures are " strong { "equal" } ", marked " b { "=" } ", where the \
                    intervals of their medians meet (of up to eight repetitions, their ranges) or \
                    the medians differ by less than " (number_labels::tick(NOISE_FLOOR * 100.0))
                    " %, " (number_labels::tick(NOISE_FLOOR_FEW * 100.0)) " % where one has fewer "
                    "than " (INTERVAL_COUNT_MIN) " repetitions: they are statistically equal."
                }
                li {
                    "A " strong { "ratio" } " is to the first place of the same series or, where \
                    there is only one place, to the first series; that one is marked “base”. \
                    Where it is not sound, is 0 or is not in the article beside it, the next one \
                    is the base. "
                    span.better { "Better" } " and " span.worse { "worse" } " than the base have \
                    these colours, and the word beside them."
                }
                li {
                    strong { "Keys and values" } " are made in batches before they are used, while \
                    the clock is stopped: no figure has the making of them in it. Threads of an \
                    engine go on meanwhile, some hundredths of the time of a fill; what they take \
                    of the processor is in its account. (Results of version 1 of the format have \
                    the making in their times.)"
                }
                li {
                    "In each round a subject has one " strong { "turn" } ", and each round begins \
                    with another: round 2 with the second, round 3 with the third. Rounds that \
                    are added, since too few repetitions count, measure every subject too."
                }
                li {
                    strong { "Processor time" } " is what the reading thread and all threads of \
                    the program took, user and system, as the operating system counts it: work in \
                    the background is counted even where it costs the reading thread nothing."
                }
                li {
                    "A repetition is " strong { "flagged" } " where something spoke against it, \
                    such as a clock that jumped, and counts for nothing. Where all are flagged, \
                    the figure is “not sound” and has a cross in the plot."
                }
                li {
                    "Figures of " strong { "articles" } " come from other machines, engines and \
                    sizes: compare their ratios with ours, not their values."
                }
            }
        }
    }
}

/// Removes characters that no document may have or that reverse the order of text.
fn readable(page: &str) -> String {
    let is_bad = |letter: char| match letter {
        '\n' | '\t' => false,
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{fffe}' | '\u{ffff}' => true,
        letter => letter.is_control(),
    };
    page.chars().map(|letter| if is_bad(letter) { '\u{fffd}' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::outcome::EngineNote;

    /// Returns every `svg` element of a page.
    fn drawings(page: &str) -> Vec<&str> {
        page.match_indices("<svg")
            .map(|(from, _)| {
                let length = page[from..].find("</svg>").expect("its end") + "</svg>".len();
                &page[from..from + length]
            })
            .collect()
    }

    fn check(page: &str) {
        for drawing in drawings(page) {
            let parsed = roxmltree::Document::parse(drawing).expect("well-formed");
            let root = parsed.root_element();
            assert!(root.attribute("viewBox").is_some() && root.attribute("role") == Some("img"));
            for name in ["aria-labelledby", "aria-describedby"] {
                let id = root.attribute(name).expect("it is named and described");
                assert_eq!(page.matches(&format!("id=\"{id}\"")).count(), 1, "{id}");
                let mut children = root.children();
                assert!(children.any(|child| child.attribute("id") == Some(id)), "{id}");
            }
            assert!(!drawing.contains("NaN") && !drawing.contains("inf"), "{drawing}");
        }
        for load in ["src=", "src =", "url(", "@import", "<script", "<link", "<img", "<iframe"] {
            assert!(!page.contains(load), "{load}");
        }
        for (at, _) in page.match_indices("http") {
            let before = &page[..at];
            let is_link = before.ends_with("href=\"") || before.ends_with('>');
            assert!(is_link || page[at..].starts_with("http-equiv="), "{}", &page[at..at + 60]);
        }
    }

    #[test]
    fn results_of_every_shape_render() {
        let shapes = [(1, 1), (1, 2), (1, 9), (2, 1), (7, 1), (10, 6), (10, 9), (23, 40)];
        for (series, places) in shapes {
            for experiment in [&outcome_fixtures::EXPERIMENT, &outcome_fixtures::SEEDED] {
                let outcome = outcome_fixtures::grid(series, places);
                let page = page(&[(experiment, &outcome)]);
                let drawn = if series * places > 1 { 2 } else { 0 };
                assert_eq!(drawings(&page).len(), drawn, "{series} series at {places} places");
                check(&page);
                for at in 0..series {
                    let name = format!("series {at}");
                    assert!(drawings(&page).iter().all(|drawing| drawing.contains(&name)));
                }
            }
        }
    }

    #[test]
    fn values_of_every_kind_render() {
        let lines: [(&str, &[(&str, f64)]); 5] = [
            ("zeros", &[("0", 0.0), ("10", 0.0), ("20", 0.0)]),
            ("some zeros", &[("0", 0.0), ("10", 1e-9), ("20", 1e12)]),
            ("negative", &[("0", -5.0), ("10", 5.0), ("20", 0.0)]),
            ("huge", &[("0", 1e307), ("10", 5e-324), ("20", 1.0)]),
            ("unsound", &[("0", f64::NAN), ("10", f64::NAN), ("20", f64::NAN)]),
        ];
        for line in lines {
            for points in [line.1, &line.1[..1]] {
                let outcome = outcome_fixtures::outcome("reads", &[(line.0, points)]);
                check(&page(&[(&outcome_fixtures::SEEDED, &outcome)]));
                let both = outcome_fixtures::outcome(
                    "reads",
                    &[("other", &[("0", 1.0)]), (line.0, points)],
                );
                check(&page(&[(&outcome_fixtures::SEEDED, &both)]));
            }
        }
        check(&page(&[(&outcome_fixtures::EXPERIMENT, &outcome_fixtures::outcome("reads", &[]))]));
        assert!(page(&[]).contains("There are no results."));
    }

    #[test]
    fn hostile_names_are_escaped() {
        const HOSTILE: &str = "</style></title><script>alert(\"1\")</script><img src=x onerror='a'>\
                               &amp;\u{0}\u{1b}[31m\u{202e}]]>";
        let points: [(&str, f64); 2] = [(HOSTILE, 3.0), ("10", f64::NAN)];
        let other: [(&str, f64); 2] = [(HOSTILE, 2.0), ("10", 1.0)];
        let mut outcome =
            outcome_fixtures::outcome(HOSTILE, &[(HOSTILE, &points), ("other", &other)]);
        let text = || HOSTILE.to_string();
        outcome.settings = vec![(text(), text())];
        (outcome.axis, outcome.started, outcome.figures[0].unit) = (text(), text(), text());
        outcome.points[1].repetitions[0].flags = vec![text()];
        let machine = &mut outcome.machine;
        (machine.date, machine.processor, machine.kernel) = (text(), text(), text());
        (machine.file_system, machine.commit) = (text(), text());
        let (name, version, settings) = (text(), text(), text());
        let recommended = vec![text(), format!("https://{HOSTILE}")];
        outcome.engines =
            vec![EngineNote { name, version, settings, recommended, bloom_bits_max: None }];
        let experiment = Experiment {
            title: HOSTILE,
            figures: &[crate::experiment::Figure {
                name: HOSTILE,
                unit: HOSTILE,
                better: crate::results::outcome::Better::Lower,
                plot: true,
            }],
            meaning: |outcome| vec![outcome.axis.clone()],
            ..outcome_fixtures::EXPERIMENT
        };
        let bars =
            outcome_fixtures::outcome(HOSTILE, &[(HOSTILE, &points[..1]), ("other", &other[..1])]);
        for outcome in [outcome, bars] {
            let page = page(&[(&experiment, &outcome)]);
            for bad in ["<script", "<img", "\u{0}", "\u{1b}", "\u{202e}", "&amp;amp;\u{0}"] {
                assert!(!page.contains(bad), "{bad:?}");
            }
            assert_eq!((page.matches("</style>").count(), drawings(&page).len()), (1, 2));
            assert!(page.contains("&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;"));
            for drawing in drawings(&page) {
                roxmltree::Document::parse(drawing).expect("well-formed");
            }
        }
    }

    #[test]
    fn contents_lead_to_every_section() {
        let outcome = outcome_fixtures::grid(1, 3);
        let page = page(&[
            (&outcome_fixtures::EXPERIMENT, &outcome),
            (&outcome_fixtures::EXPERIMENT, &outcome),
        ]);
        for id in ["sample", "sample-2"] {
            assert_eq!(page.matches(&format!("<section id=\"{id}\"")).count(), 1);
            assert_eq!(page.matches(&format!("<a href=\"#{id}\">")).count(), 1);
        }
        let contents = &page[page.find("<nav").unwrap()..page.find("</nav>").unwrap()];
        assert_eq!(contents.matches("3 points were measured.").count(), 2);
        check(&page);
    }

    #[test]
    fn every_colour_is_named_in_both_styles() {
        let (light, dark) = STYLE.split_once("prefers-color-scheme: dark").expect("both");
        for at in 1..=10 {
            let name = format!("--series-{at}:");
            assert!(light.contains(&name) && dark.contains(&name), "{name}");
            assert!(STYLE.contains(&format!(".s{at} {{ --track: var(--series-{at}); }}")));
        }
    }
}

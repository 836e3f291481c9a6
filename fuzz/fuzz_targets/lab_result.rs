//! Result files of the lab, the repetitions of a run in progress and the user's own keys: any bytes
//! are read without a panic. The target adds correct checksums to results without one and to
//! journal lines, so that inputs reach the code after the checksums.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use umbel_lab::experiments;
use umbel_lab::report::{compare_results, html, terminal_table};
use umbel_lab::results::journal::{self, JournalEntry, JournalHeading};
use umbel_lab::results::outcome::Outcome;
use umbel_lab::results::result_file;
use umbel_lab::results::sample_recorder::Record;
use umbel_lab::workload::data_file::UserData;

fuzz_target!(|input: &[u8]| {
    if let Ok(outcome) = result_file::parse("input", input) {
        show(&outcome);
    }
    read_journal(input);
    if let Ok(outcome) = serde_json::from_slice::<Outcome>(input) {
        show(&outcome);
        let text = result_file::text_of(&outcome).expect("JSON text round-trips");
        if let Ok(read) = result_file::parse("input", text.as_bytes()) {
            assert_eq!(read, outcome);
        }
        journal_of(&outcome);
    }
    if let Ok(data) = UserData::parse("input", input) {
        assert!(data.missing.len() <= data.gets.len());
    }
});

/// Renders every output that the lab makes of a result.
fn show(outcome: &Outcome) {
    if let Ok(rows) = compare_results::figure_diffs(outcome, outcome) {
        let _ =
            (compare_results::text(outcome, outcome, &rows), compare_results::json(outcome, &rows));
    }
    if let Some(one) = experiments::ALL.into_iter().find(|one| one.name == outcome.experiment) {
        let _ = (terminal_table::text(one, outcome), html::page(&[(one, outcome)]));
    }
}

fn read_journal(input: &[u8]) {
    if let Ok(Some(parsed)) = journal::parse(Path::new("input"), input) {
        assert!(parsed.end <= input.len() as u64);
        let subjects = parsed.heading.subjects.len();
        assert!(parsed.entries.iter().all(|entry| entry.subject < subjects));
        let ends = input.iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(parsed.entries.len() + parsed.rejected.len(), ends - 1);
    }
}

/// Returns a journal with the findings of the result, one line for each round.
fn journal_of(outcome: &Outcome) {
    let heading = JournalHeading {
        umbel_lab_part: outcome.umbel_lab,
        experiment: outcome.experiment.clone(),
        scale: outcome.scale,
        engines: outcome.engines.clone(),
        settings: outcome.settings.clone(),
        subjects: vec![outcome.axis.clone()],
        machine: outcome.machine.clone(),
        started: outcome.started.clone(),
        rounds: outcome.rounds,
    };
    let entry = |round: u32| {
        let records = outcome.points.iter().flat_map(|point| {
            let of_round = point.repetitions.iter().filter(move |one| one.round == round);
            of_round.map(|repetition| Record {
                series: point.series.clone(),
                x: point.x.clone(),
                figure: point.figure.clone(),
                repetition: repetition.clone(),
            })
        });
        JournalEntry { subject: 0, round, seconds: outcome.seconds, records: records.collect() }
    };
    let entries: Vec<JournalEntry> = (0..4).map(entry).collect();
    let text = journal::text_of(&heading, &entries).expect("JSON text round-trips");
    let parsed = journal::parse(Path::new("input"), text.as_bytes()).expect("its heading");
    let parsed = parsed.expect("its lines");
    assert_eq!(parsed.heading, heading);
    if outcome.seconds >= 0.0 {
        assert_eq!(parsed.entries, entries);
    }
}

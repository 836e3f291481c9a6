//! Result files of the lab, the repetitions of a run under way and the user's own keys: any bytes
//! are read without a panic.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use umbel_lab::user_data::UserData;
use umbel_lab::{compare, journal, results};

fuzz_target!(|input: &[u8]| {
    if let Ok(outcome) = results::parse("input", input) {
        for point in &outcome.points {
            let _ = point.spread();
        }
        let _ = compare::rows(&outcome, &outcome);
    }
    if let Ok(Some((heading, entries, end))) = journal::parse(Path::new("input"), input) {
        assert!(end <= input.len() as u64);
        assert!(entries.iter().all(|entry| entry.subject < heading.subjects.len()));
    }
    if let Ok(data) = UserData::parse("input", input) {
        assert!(data.missing.len() <= data.gets.len());
    }
});

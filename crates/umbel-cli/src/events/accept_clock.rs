//! `umbel doctor --accept-clock`: confirms the wall clock for a closed event store.

use std::path::Path;

use serde_json::json;
use umbel_env::Env;
use umbel_events::{ClockOutcome, ClockReport, accept_clock};

use crate::errors::CommandResult;
use crate::events::open_event_store::existing_directory;
use crate::events::timestamps::rfc3339;
use crate::global_options::StoreLimits;
use crate::io::output::Output;

/// Accepts the clock for the event store in the directory, and prints what changed.
pub fn run(directory: Option<&Path>, json: bool, limits: StoreLimits) -> CommandResult<()> {
    let directory = existing_directory(directory)?;
    let report = accept_clock(&Env::system(), directory, limits.lock_wait())?;
    let mut output = Output::new().after("the store believes the clock");
    match json {
        true => output.json(&to_json(&report))?,
        false => output.line(&text(directory, &report))?,
    }
    output.flush()
}

fn text(directory: &Path, report: &ClockReport) -> String {
    let (shown, wall) = (directory.display(), rfc3339(report.wall));
    let last = match report.last_event {
        Some(created) => format!("the last event is of {}", rfc3339(created)),
        None => "there is no event".to_string(),
    };
    match report.outcome {
        ClockOutcome::Unchanged => {
            format!("the event store in {shown} agrees with the clock, {wall}; nothing was changed")
        }
        ClockOutcome::Believed => {
            format!("the event store in {shown} believes the clock, {wall}; {last}")
        }
        ClockOutcome::NewEpoch(number) => format!(
            "clock epoch {number} of the event store in {shown} began at {wall}; {last}, and later \
             events get times from the clock"
        ),
    }
}

fn to_json(report: &ClockReport) -> serde_json::Value {
    let (outcome, epoch) = match report.outcome {
        ClockOutcome::Unchanged => ("unchanged", None),
        ClockOutcome::Believed => ("believed", None),
        ClockOutcome::NewEpoch(number) => ("new_epoch", Some(number)),
    };
    json!({
        "outcome": outcome,
        "new_epoch": epoch,
        "clock": rfc3339(report.wall),
        "last_event": report.last_event.map(rfc3339),
    })
}

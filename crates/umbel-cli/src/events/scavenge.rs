//! `umbel scavenge`: the space of events that nobody can read from their streams any more.

use std::path::Path;
use std::time::Duration;

use serde_json::json;
use umbel::Durability;
use umbel_env::Env;
use umbel_events::{ScavengeOptions, ScavengeReport};

use super::args::ScavengeArgs;
use super::store;
use crate::errors::Outcome;
use crate::limits::Limits;
use crate::number;
use crate::output::{Output, note};
use crate::progress::{Progress, Unit};

/// How often progress is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// Scavenges the store. Killed and begun again it goes on.
pub fn run(folder: Option<&Path>, args: &ScavengeArgs, json: bool, limits: Limits) -> Outcome<()> {
    let clock = Env::system().clock;
    let store = store::open(folder, limits, Durability::Buffered)?;
    let options = ScavengeOptions {
        bytes_per_second: args.throttle.map(|mebibytes| mebibytes << 20),
        busy_percent: args.busy,
        from_start: args.from_start,
        ..ScavengeOptions::default()
    };
    let running = store.start_scavenge(&options)?;
    let mut progress = Progress::new("scavenge", Unit::Operations, None, &clock);
    while !running.wait_for(LOOK) {
        let so_far = running.progress();
        progress.set(so_far.events, || said(&so_far));
    }
    let seconds = progress.elapsed().as_secs_f64();
    progress.finish();
    let report = running.wait()?;
    let shown = store.path().display().to_string();
    store.close()?;
    if report.resumed_from.is_some() && !json {
        note("an earlier scavenge had not ended; this one went on there");
    }
    let mut output = Output::new();
    match json {
        true => output.json(&to_json(&report, seconds))?,
        false => output.line(&format!(
            "scavenged the event store in {shown}: {} events removed, {} emptied, {} given back \
             out of {} in {seconds:.1} s",
            number::grouped(report.events_removed),
            number::grouped(report.events_emptied),
            number::bytes(report.bytes_given_back),
            chunks(report.chunks_packed),
        ))?,
    }
    output.flush()
}

fn chunks(count: u64) -> String {
    match count {
        1 => "1 chunk".to_string(),
        _ => format!("{} chunks", number::grouped(count)),
    }
}

fn said(report: &ScavengeReport) -> String {
    format!(
        "{} of {}, {} given back",
        number::grouped(report.chunks_examined),
        chunks(report.chunks),
        number::bytes(report.bytes_given_back),
    )
}

fn to_json(report: &ScavengeReport, seconds: f64) -> serde_json::Value {
    json!({
        "chunks": report.chunks,
        "chunks_examined": report.chunks_examined,
        "chunks_packed": report.chunks_packed,
        "events": report.events,
        "events_removed": report.events_removed,
        "events_emptied": report.events_emptied,
        "bytes_given_back": report.bytes_given_back,
        "resumed_from": report.resumed_from,
        "seconds": seconds,
    })
}

//! `umbel verify` of an event store: reads and checks every event, and the index.

use std::collections::HashSet;
use std::path::Path;

use serde_json::json;
use umbel_env::Env;

use crate::errors::{CommandError, CommandResult, INDEX_IS_REBUILT};
use crate::events::client::shell_command::store_command;
use crate::events::open_event_store;
use crate::global_options::StoreLimits;
use crate::io::output::Output;
use crate::store_kind::{KV_DIRECTORY, is_event_store};
use crate::text::escaping::printable_line;
use crate::text::numbers;

/// Maximum number of damages that are named; the others are only counted.
const REPORTED_DAMAGES_MAX: usize = 20;

/// Returns an error if opening the store would drop bytes that may be appended events.
///
/// A record that another process is writing can look torn. A writing process stores the bytes
/// before a record earlier than the record. So bytes that look torn at two checks are torn.
fn check_dropped_tail(directory: Option<&Path>) -> CommandResult<()> {
    let Some(directory) = directory.filter(|directory| is_event_store(directory)) else {
        return Ok(());
    };
    let env = Env::system();
    let left_out = umbel_events::find_unrecovered(&env, directory)?;
    if left_out.is_empty() {
        return Ok(());
    }
    let again = umbel_events::find_unrecovered(&env, directory)?;
    let Some(first) = left_out.iter().find(|left| again.contains(left)) else { return Ok(()) };
    Err(CommandError::Damaged(format!(
        "the event store in {} was not closed. {first}; `{}` moves aside bytes that may be events, \
         and with --accept-unproven keeps these events",
        directory.display(),
        store_command(&["repair"], directory)
    )))
}

/// Checks the store. Prints each damage with file and offset; the command then fails.
pub fn run(directory: Option<&Path>, json: bool, limits: StoreLimits) -> CommandResult<()> {
    let clock = Env::system().clock;
    let start = clock.now();
    check_dropped_tail(directory)?;
    let store = open_event_store::open_read_only(directory, limits)?;
    let report = store.verify()?;
    let seconds = clock.now().saturating_sub(start).as_secs_f64();
    let mut damage: Vec<String> =
        report.damage.iter().map(umbel_events::Error::message_without_advice).collect();
    // A block of the index that the check of the events met, too, is one place.
    let known: HashSet<String> = damage.iter().cloned().collect();
    damage.extend(report.index.damage.iter().filter(|text| !known.contains(*text)).cloned());
    let mut output = Output::of_verdict();
    let shown = directory.unwrap_or(store.path()).display().to_string();
    if json {
        output.json(&json!({
            "events": report.events,
            "bytes": report.bytes,
            "index_tables": report.index.tables,
            "index_entries": report.index.entries,
            "damage": damage,
            "seconds": seconds,
        }))?;
    } else if damage.is_empty() {
        output.line(&format!(
            "the event store in {shown} is undamaged: {}, {} of log, {} index entries \
             checked in {seconds:.1} s",
            numbers::counted(report.events, "event"),
            numbers::bytes(report.bytes),
            numbers::grouped(report.index.entries),
        ))?;
    } else {
        for damage in damage.iter().take(REPORTED_DAMAGES_MAX) {
            output.line(&printable_line(damage))?;
        }
    }
    let keys = store.path().join(KV_DIRECTORY);
    if !json && keys.is_dir() {
        output.line(&format!(
            "the key-value store in {} was not checked: run {}",
            keys.display(),
            store_command(&["verify"], &keys)
        ))?;
    }
    output.flush()?;
    if damage.is_empty() {
        return Ok(store.close()?);
    }
    // An entry of the index that disagrees with the log does not tell which of the two is right.
    let advice = match report.damage.iter().all(umbel_events::Error::is_index_damage) {
        true => {
            format!("no event is damaged: move {shown}/index away: {INDEX_IS_REBUILT}")
        }
        false => format!(
            "restore the store from a backup, or save the readable events with `{}`",
            store_command(&["repair"], directory.unwrap_or(store.path()))
        ),
    };
    Err(CommandError::Damaged(format!(
        "the event store in {shown} is damaged in {}; {advice}",
        numbers::counted(damage.len() as u64, "place")
    )))
}

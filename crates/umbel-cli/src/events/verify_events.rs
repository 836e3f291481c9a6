//! `umbel verify` of an event store: every event read and checked, and the index with it.

use std::path::Path;

use serde_json::json;
use umbel_env::Env;

use super::store;
use crate::errors::{Failure, INDEX_IS_REBUILT, Outcome};
use crate::folders::{KV_FOLDER, is_event_store};
use crate::limits::Limits;
use crate::number;
use crate::output::Output;

/// Named damages; the rest is counted.
const NAMED_DAMAGES: usize = 20;

/// An error where opening the store would leave out what may have been appended.
///
/// What another process writes at this moment looks torn, but is not. It stores what stands before
/// a record before the record. So what looked torn is whole at the second look, or it is torn.
fn check_left_out(folder: Option<&Path>) -> Outcome<()> {
    let Some(folder) = folder.filter(|folder| is_event_store(folder)) else { return Ok(()) };
    let env = Env::system();
    let left_out = umbel_events::left_out(&env, folder)?;
    if left_out.is_empty() {
        return Ok(());
    }
    let again = umbel_events::left_out(&env, folder)?;
    let Some(first) = left_out.iter().find(|left| again.contains(left)) else { return Ok(()) };
    Err(Failure::Damaged(format!(
        "the event store in {} was not closed. {first}; `umbel repair` keeps aside what may be \
         events, and with --accept-unproven takes it back",
        folder.display()
    )))
}

/// Checks the store. Each damage is said with file and offset, then the command fails.
pub fn run(folder: Option<&Path>, json: bool, limits: Limits) -> Outcome<()> {
    let clock = Env::system().clock;
    let start = clock.now();
    check_left_out(folder)?;
    let store = store::open_to_look(folder, limits)?;
    let report = store.verify()?;
    let seconds = clock.now().saturating_sub(start).as_secs_f64();
    let mut damage: Vec<String> =
        report.damage.iter().map(umbel_events::Error::without_remedy).collect();
    damage.extend(report.index.damage.iter().cloned());
    let mut output = Output::new();
    let shown = folder.unwrap_or(store.path()).display().to_string();
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
            "the event store in {shown} is whole: {} events, {} of log, {} index entries checked \
             in {seconds:.1} s",
            number::grouped(report.events),
            number::bytes(report.bytes),
            number::grouped(report.index.entries),
        ))?;
    } else {
        for damage in damage.iter().take(NAMED_DAMAGES) {
            output.line(damage)?;
        }
    }
    let keys = store.path().join(KV_FOLDER);
    if !json && keys.is_dir() {
        let keys = keys.display();
        output.line(&format!(
            "the keys and values in {keys} were not looked at: umbel verify --db {keys}"
        ))?;
    }
    output.flush()?;
    if damage.is_empty() {
        return Ok(store.close()?);
    }
    // An entry of the index that disagrees with the log does not tell which of the two is right.
    let advice = match report.damage.iter().all(umbel_events::Error::is_damage_of_index) {
        true => {
            format!("the events are whole: move the folder {shown}/index away, {INDEX_IS_REBUILT}")
        }
        false => {
            "restore it from a backup, or have `umbel repair` save what can be read".to_string()
        }
    };
    Err(Failure::Damaged(format!(
        "the event store in {shown} is damaged in {} places; {advice}",
        number::grouped(damage.len() as u64)
    )))
}

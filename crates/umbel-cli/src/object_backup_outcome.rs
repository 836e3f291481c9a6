//! [`ObjectBackupOutcome`]: what a command about a backup in an object store prints.

use std::fmt::Display;
use std::path::Path;

use serde_json::Value;
use umbel_env::ObjectName;

use crate::errors::{CommandError, CommandResult};
use crate::io::output::{Output, note};
use crate::text::numbers;

/// Maximum number of damages and ranges that are named; the others are only counted.
const REPORTED_LINES_MAX: usize = 20;

/// Output of a command about a backup in an object store.
#[derive(Debug)]
pub struct ObjectBackupOutcome {
    /// Lines of text.
    pub lines: Vec<String>,
    /// The JSON document.
    pub json: Value,
    /// Number of damages.
    pub damage: usize,
    /// Work that is done, such as "the backup was made"; `None` for a check.
    pub done: Option<&'static str>,
}

/// Warns of objects that something else had deleted, and that a run has replaced.
pub fn note_replaced(lost: &[ObjectName], location: &str) {
    let Some(first) = lost.first() else { return };
    note(&format!(
        "umbel: warning: {} of the backup in {location} had been deleted by something else, such \
         as {first}, and the newest state was uploaded again; check the lifecycle rules of the \
         bucket and who can delete objects",
        numbers::counted(lost.len() as u64, "object"),
    ));
}

/// Says that an interrupted restore was resumed.
pub fn note_resumed(is_resumed: bool, directory: &Path) {
    if is_resumed {
        note(&format!(
            "umbel: the interrupted restore into {} was resumed: it ends where the backup ended \
             when it began; for later data, remove the directory and restore again",
            directory.display()
        ));
    }
}

impl ObjectBackupOutcome {
    /// Returns the outcome of work that is done, without damage.
    pub fn new(done: &'static str, lines: Vec<String>, json: Value) -> ObjectBackupOutcome {
        ObjectBackupOutcome { lines, json, damage: 0, done: Some(done) }
    }

    /// Returns the outcome of a run that uploaded these bytes in a number of objects. `contents`
    /// says what the backup has.
    pub fn backed_up(
        location: &str,
        contents: &str,
        (bytes, objects): (u64, u64),
        json: Value,
    ) -> ObjectBackupOutcome {
        let line = format!(
            "backed up to {location}: {contents}, {} in {} uploaded now",
            numbers::bytes(bytes),
            numbers::counted(objects, "object"),
        );
        ObjectBackupOutcome::new("the backup was made", vec![line], json)
    }

    /// Adds a line about a retention that deletes these manifests and objects with their bytes.
    /// `first` is the earliest state that can be restored afterwards.
    pub fn add_retention(
        &mut self,
        is_dry_run: bool,
        (manifests, objects, bytes): (u64, u64, u64),
        first: &str,
    ) {
        let verb = if is_dry_run { "would be deleted" } else { "deleted" };
        self.lines.push(format!(
            "{verb}: {} and {} with {}; every state from {first} on can be restored",
            numbers::counted(manifests, "manifest"),
            numbers::counted(objects, "object"),
            numbers::bytes(bytes),
        ));
    }

    /// Returns the outcome of a check. `undamaged` is the line for a backup without damage,
    /// `ranges` has a line for each range of states that can be restored.
    pub fn verified(
        damage: &[impl Display],
        undamaged: String,
        ranges: impl Iterator<Item = String>,
        json: Value,
    ) -> ObjectBackupOutcome {
        let named = damage.iter().take(REPORTED_LINES_MAX).map(ToString::to_string);
        let undamaged = damage.is_empty().then_some(undamaged);
        let lines = named.chain(undamaged).chain(ranges.take(REPORTED_LINES_MAX)).collect();
        ObjectBackupOutcome { lines, json, damage: damage.len(), done: None }
    }

    /// Adds the outcome of the keys and values of the same server.
    pub fn add_kv(&mut self, kv: ObjectBackupOutcome) {
        self.lines.extend(kv.lines.into_iter().map(|line| format!("keys and values: {line}")));
        self.json["kv"] = kv.json;
        self.damage += kv.damage;
    }

    /// Prints the outcome.
    pub fn print(&self, json: bool) -> CommandResult<()> {
        let mut output = Output::of_verdict();
        if let Some(done) = self.done {
            output = output.after(done);
        }
        match json {
            true => output.json(&self.json)?,
            false => self.lines.iter().try_for_each(|line| output.line(line))?,
        }
        output.flush()
    }

    /// Returns an error if the backup below `location` is damaged.
    pub fn check(&self, location: &str) -> CommandResult<()> {
        if self.damage == 0 {
            return Ok(());
        }
        Err(CommandError::Damaged(format!(
            "the backup in {location} is damaged in {}: restore the objects from a version or a \
             copy, or back up the store to another prefix",
            numbers::counted(self.damage as u64, "place")
        )))
    }
}

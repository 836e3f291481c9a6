//! [`ObjectBackupOutcome`]: what a command about a backup in an object store prints.

use serde_json::Value;

use crate::errors::{CommandError, CommandResult};
use crate::io::output::Output;
use crate::text::numbers;

/// Output of a command about a backup in an object store.
#[derive(Debug)]
pub struct ObjectBackupOutcome {
    /// Lines of text.
    pub lines: Vec<String>,
    /// The JSON document.
    pub json: Value,
    /// Number of damages.
    pub damage: usize,
}

impl ObjectBackupOutcome {
    /// Returns the outcome of an undamaged backup.
    pub fn new(lines: Vec<String>, json: Value) -> ObjectBackupOutcome {
        ObjectBackupOutcome { lines, json, damage: 0 }
    }

    /// Adds the outcome of the keys and values of the same server.
    pub fn add_kv(&mut self, kv: ObjectBackupOutcome) {
        self.lines.extend(kv.lines.into_iter().map(|line| format!("keys and values: {line}")));
        self.json["kv"] = kv.json;
        self.damage += kv.damage;
    }

    /// Prints the outcome.
    pub fn print(&self, json: bool) -> CommandResult<()> {
        let mut output = Output::new();
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

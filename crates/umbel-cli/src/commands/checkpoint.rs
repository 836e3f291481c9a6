//! `umbel checkpoint`: a consistent copy by hard links.

use serde_json::json;
use umbel::Durability;

use crate::args::CheckpointArgs;
use crate::errors::Outcome;
use crate::output::Output;
use crate::store::Store;

/// Copies the store into a folder that does not exist yet.
pub fn run(store: &Store, args: &CheckpointArgs, json: bool) -> Outcome<()> {
    let db = store.open_to_change(Durability::Buffered)?;
    db.checkpoint(&args.target)?;
    db.close()?;
    let mut output = Output::new();
    if json {
        output.json(&json!({ "checkpoint": args.target.to_string_lossy() }))?;
    } else {
        output.line(&format!("the store as it is now is in {}", args.target.display()))?;
    }
    output.flush()
}

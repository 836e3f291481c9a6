//! `umbel checkpoint`: a consistent copy, by hard links where they can be had.

use serde_json::json;
use umbel::Durability;

use crate::args::CheckpointArgs;
use crate::errors::Outcome;
use crate::output::Output;
use crate::store::Store;

/// Copies the store into a folder that does not exist yet.
pub fn run(store: &Store, args: &CheckpointArgs, json: bool) -> Outcome<()> {
    let db = store.open_to_change(Durability::Buffered)?;
    let report = db.checkpoint(&args.target)?;
    db.close()?;
    let mut output = Output::new();
    if json {
        output.json(&json!({
            "checkpoint": args.target.to_string_lossy(),
            "files_linked": report.files_linked,
            "files_copied": report.files_copied,
            "bytes_copied": report.bytes_copied,
        }))?;
    } else {
        output.line(&format!("the store as it is now is in {}", args.target.display()))?;
        if report.files_copied > 0 {
            output.line(&format!(
                "{} files ({} bytes) were copied: the file system of the target cannot share them \
                 by hard links",
                report.files_copied, report.bytes_copied
            ))?;
        }
    }
    output.flush()
}

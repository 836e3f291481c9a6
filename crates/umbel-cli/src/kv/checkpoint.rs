//! `umbel checkpoint`: makes a consistent copy of a store, by hard links if the file system allows
//! them.

use serde_json::json;
use umbel::Durability;

use crate::command_line::CheckpointArgs;
use crate::errors::CommandResult;
use crate::io::output::Output;
use crate::open_kv_store::StoreLocation;

/// Creates the checkpoint in a directory that does not exist yet.
pub fn run(store: &StoreLocation, args: &CheckpointArgs, json: bool) -> CommandResult<()> {
    let db = store.open_existing(Durability::Buffered)?;
    let report = db.checkpoint(&args.target)?;
    db.close()?;
    let mut output = Output::new().after("the checkpoint was created");
    if json {
        output.json(&json!({
            "checkpoint": args.target.to_string_lossy(),
            "files_linked": report.files_linked,
            "files_copied": report.files_copied,
            "bytes_copied": report.bytes_copied,
        }))?;
    } else {
        output.line(&format!("created a checkpoint of the store in {}", args.target.display()))?;
        if report.files_copied > 0 {
            output.line(&format!(
                "{} files ({} bytes) were copied: the target is on another file system or without \
                 hard links",
                report.files_copied, report.bytes_copied
            ))?;
        }
    }
    output.flush()
}

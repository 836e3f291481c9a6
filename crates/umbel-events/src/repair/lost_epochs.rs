//! Clock epochs of a store whose manifest is lost or belongs to another copy.
//!
//! An epoch begins with a chunk. Within an epoch times never decrease, so a chunk whose first event
//! is older than the event before it begins an epoch.

use std::path::Path;

use umbel_env::Env;

use crate::event_log::clock_epochs::ClockEpochs;
use crate::repair::log_survey::LogSurvey;
use crate::repair::renamed_chunks::ChunkOutline;
use crate::types::error::Result;

/// Returns the epochs of the manifest and, if the manifest is lost, those that the times of events
/// show.
pub fn derive_epochs(env: &Env, folder: &Path, survey: &LogSurvey) -> Result<ClockEpochs> {
    let mut epochs = survey.manifest.epochs.clone();
    if survey.manifest_damage.is_none() {
        return Ok(epochs);
    }
    let mut before = None;
    for found in &survey.chunks {
        let outline = ChunkOutline::of(env, folder, &epochs, found)?;
        let Some((_, last)) = outline.positions else { continue };
        if let Some(before) = before {
            epochs.derive(before, (found.entry.start, outline.times.0));
        }
        before = Some((last, outline.last_created));
    }
    Ok(epochs)
}

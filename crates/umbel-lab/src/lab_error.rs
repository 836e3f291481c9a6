//! Why the lab did not do what it was asked.

use std::fmt;
use std::path::Path;

use crate::engine::Failure;

/// Why the lab did not do what it was asked, as a sentence for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LabError {
    /// The request is wrong; the sentence says how to change it.
    Usage(String),
    /// Bytes on disk are not what was written.
    Damaged(String),
    /// The operating system refused something, or there is too little of it.
    System(String),
    /// Two engines gave different answers, or one failed.
    Failed(String),
    /// Somebody asked the run to stop.
    Stopped(String),
}

impl LabError {
    /// What cannot happen but where this program has a fault.
    pub fn bug(error: impl fmt::Display) -> LabError {
        LabError::Failed(format!("this is a fault of umbel: {error}"))
    }

    /// An error where a path is empty; `what` names the thing that it is of.
    ///
    /// # Errors
    /// [`LabError::Usage`].
    pub fn check_path(what: &str, path: &Path) -> Result<(), LabError> {
        umbel_env::check_path(what, path).map_err(|error| LabError::Usage(error.to_string()))
    }

    /// A failure of an experiment.
    pub fn of(experiment: &str, subject: &str, failure: &Failure) -> LabError {
        LabError::Failed(format!("{experiment}, {subject}: {failure}"))
    }
}

impl fmt::Display for LabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LabError::Usage(text)
            | LabError::Damaged(text)
            | LabError::System(text)
            | LabError::Failed(text)
            | LabError::Stopped(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for LabError {}

//! Reason why the lab could not complete its work.

use std::fmt;
use std::path::Path;

use crate::engine::BoxError;

/// Reason why the lab could not complete its work, as a sentence for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LabError {
    /// The request of the user is wrong; the sentence names the remedy.
    Usage(String),
    /// Bytes on disk are damaged.
    Damaged(String),
    /// An error of the operating system, or a lack of disk or memory.
    System(String),
    /// Two engines gave different answers, or one failed.
    Failed(String),
    /// The operator stopped the run.
    Stopped(String),
}

impl LabError {
    /// Returns the error of a condition that only a bug can cause.
    pub fn bug(error: impl fmt::Display) -> LabError {
        LabError::Failed(format!("this is a bug in umbel: {error}"))
    }

    /// Fails if a path is empty; `what` names its purpose.
    ///
    /// # Errors
    /// [`LabError::Usage`].
    pub fn check_path(what: &str, path: &Path) -> Result<(), LabError> {
        umbel_env::check_path(what, path).map_err(|error| LabError::Usage(error.to_string()))
    }

    /// Returns the failure of an experiment.
    pub fn of(experiment: &str, subject: &str, failure: &BoxError) -> LabError {
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

#[cfg(test)]
mod tests {
    use umbel_env::Env;

    use super::*;
    use crate::results::result_file;
    use crate::runner::run_experiment;
    use crate::workload::data_file::UserData;

    /// Story: with an empty path, results were written into the current folder, and stores were
    /// made and removed there.
    #[test]
    fn empty_path_is_a_usage_error() {
        let (env, empty) = (Env::system(), Path::new(""));
        let refused = [
            run_experiment::stores_in(empty).map(drop),
            result_file::write_whole(&env, empty, b"x"),
            result_file::load(&env, empty).map(drop),
            UserData::read(&env, empty).map(drop).map_err(LabError::Usage),
        ];
        for refused in refused {
            let error = refused.unwrap_err();
            assert!(matches!(error, LabError::Usage(_)), "{error:?}");
            assert!(error.to_string().contains("is empty"), "{error}");
        }
    }
}

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

#[cfg(test)]
mod tests {
    use umbel_env::Env;

    use super::*;
    use crate::user_data::UserData;
    use crate::{results, run};

    /// Story: with an empty path results were written into the current folder, and stores made and
    /// removed there.
    #[test]
    fn an_empty_path_is_a_wrong_request() {
        let (env, empty) = (Env::system(), Path::new(""));
        let refused = [
            run::stores_in(empty).map(drop),
            results::write_whole(&env, empty, b"x"),
            results::load(&env, empty).map(drop),
            UserData::read(&env, empty).map(drop).map_err(LabError::Usage),
        ];
        for refused in refused {
            let error = refused.unwrap_err();
            assert!(matches!(error, LabError::Usage(_)), "{error:?}");
            assert!(error.to_string().contains("is empty"), "{error}");
        }
    }
}

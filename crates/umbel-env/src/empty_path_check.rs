//! The check of every path that a function takes from a caller.

use std::path::Path;

use umbel_base::{Error, Result};

/// Refuses an empty path. An empty path mostly comes from an unset variable, and joined with a file
/// name would mean the current directory. `what` says what is at the path, for the message: "the
/// store".
///
/// # Errors
/// `Invalid` if the path is empty.
pub fn check_path(what: &str, path: &Path) -> Result<()> {
    match path.as_os_str().is_empty() {
        true => Err(Error::invalid(format!(
            "the path of {what} is empty; give one that is not, such as `./data`"
        ))),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_path_is_refused_with_its_purpose() {
        let error = check_path("the backup", Path::new("")).unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{error:?}");
        assert!(error.to_string().starts_with("the path of the backup is empty; "), "{error}");
        for path in [".", "/", " ", "data"] {
            check_path("the backup", Path::new(path)).unwrap();
        }
    }
}

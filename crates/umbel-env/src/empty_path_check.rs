//! The check that every function makes which takes a path from a caller.

use std::path::Path;

use umbel_base::{Error, Result};

/// Refuses an empty path. It is most often an unset variable, and joined with a file name it would
/// mean the current folder. `what` names the object of the path: "the store".
///
/// # Errors
/// `Invalid` where the path is empty.
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

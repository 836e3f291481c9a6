//! Checks which folders may hold an event store.

use std::path::Path;

use umbel_env::Env;

use crate::types::error::{Error, Result};

/// Returns an error if the folder is within the folder of another store.
pub fn check_not_nested(env: &Env, folder: &Path) -> Result<()> {
    match umbel::enclosing_store(env, folder) {
        None => Ok(()),
        Some(store) => Err(Error::invalid(format!(
            "{} lies in the directory of the store {}, which can hold no other directories; name \
             a directory outside that store",
            folder.display(),
            store.display()
        ))),
    }
}

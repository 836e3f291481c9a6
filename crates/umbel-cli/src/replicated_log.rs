//! The object store of a replicated log in commands.

use std::sync::Arc;

use umbel_base::shell_word::quote;
use umbel_env::{Env, Objects};
use umbel_slots::{SlotError, StoreObject};

use crate::backup_url::request_error;
use crate::errors::{CommandError, CommandResult};

/// Hexadecimal digits of the id of a replicated log.
const ID_DIGITS: usize = 32;

/// Parses the id of a replicated log, as `umbel store init` prints it.
pub fn parse_log_id(text: &str) -> Result<String, String> {
    let is_id = text.len() == ID_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match is_id {
        true => Ok(text.to_ascii_lowercase()),
        false => {
            Err("must be the id that `umbel store init` printed: 32 hexadecimal digits".to_string())
        }
    }
}

/// Opens the object store of a replicated log, and reads which log it has.
///
/// # Errors
/// The URL names no store, or the store has no log that this program can use.
pub fn open(env: &Env, url: &str) -> CommandResult<(Arc<dyn Objects>, StoreObject)> {
    let objects = umbel_objects::open(env, url).map_err(CommandError::Store)?;
    let found = StoreObject::read(&*objects, &*env.clock).map_err(slot_error)?;
    match found {
        Some(object) => Ok((objects, object)),
        None => Err(missing_log(&*objects, url)),
    }
}

/// Returns the failure of a command whose object store has no `STORE`.
fn missing_log(objects: &dyn Objects, url: &str) -> CommandError {
    let location = objects.location();
    let page = match objects.list("", None, 1) {
        Ok(page) => page.value,
        Err(error) => return request_error(error),
    };
    CommandError::usage(match page.objects.first() {
        Some(object) => format!(
            "{location} lacks the object STORE, and has {}: restore STORE if the object store lost \
             it, or check the URL",
            object.name.as_str()
        ),
        None => format!(
            "{location} has no replicated log: it lacks the object STORE; check the URL, or create \
             a log with `umbel store init {}`",
            quote(url)
        ),
    })
}

/// Returns the failure of a command about a replicated log.
pub fn slot_error(error: SlotError) -> CommandError {
    match error {
        SlotError::Objects(error) => request_error(error),
        SlotError::Damaged { .. } => CommandError::Damaged(error.to_string()),
        SlotError::Refused(reason) => CommandError::Usage(reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_32_digits() {
        let id = "0123456789ABCDEF0123456789abcdef";
        assert_eq!(parse_log_id(id), Ok(id.to_ascii_lowercase()));
        for wrong in ["", "0", &id[1..], "0123456789abcdef0123456789abcdeg", &format!("{id}0")] {
            assert!(parse_log_id(wrong).is_err(), "{wrong}");
        }
    }
}

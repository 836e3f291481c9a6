//! [`Rules`]: what the store says about users and rights, kept until somebody changes it.

use std::sync::Arc;

use umbel_events::{Direction, Error, Revision, Store, metadata_stream};

use crate::acl::{Acl, Defaults, SETTINGS, Wanted};
use crate::convert;
use crate::known::{Entry, Known};
use crate::limits::{ACLS_KEPT, USERS_KEPT};
use crate::users::{self, User};

/// What is kept of a user: `None` where there is nobody with this name.
pub type KnownUser = Arc<Entry<Option<User>>>;

/// What the store says about users and rights.
#[derive(Debug)]
pub struct Rules {
    acls: Known<Acl>,
    defaults: Known<Defaults>,
    users: Known<Option<User>>,
}

impl Default for Rules {
    fn default() -> Rules {
        let (acls, defaults) = (Known::of(ACLS_KEPT, Acl::is_short), Known::new(1));
        Rules { acls, defaults, users: Known::new(USERS_KEPT) }
    }
}

impl Rules {
    /// Somebody appended to this stream or deleted it, and is about to be told that it is done.
    pub fn forget(&self, stream: &str) {
        let Some(rest) = stream.strip_prefix('$') else { return };
        if let Some(subject) = rest.strip_prefix('$') {
            self.acls.forget(subject);
        }
        if stream == SETTINGS {
            self.defaults.forget(SETTINGS);
        }
        if let Some(login) = rest.trim_start_matches('$').strip_prefix("user-") {
            self.users.forget(login);
        }
    }

    /// The user with this name.
    pub fn user(&self, store: &Store, login: &str) -> Result<KnownUser, Error> {
        let stream = users::stream(login);
        // A stream is deleted by its metadata.
        let streams = [&*stream, &*metadata_stream(&stream)];
        self.users.get_or_read(store, login, &streams, |store| users::read(store, login))
    }

    /// Whether a user may; `None` where the store has to be asked.
    pub fn is_known_permitted(&self, user: &User, wanted: Wanted<'_>) -> Option<bool> {
        if user.is_in(users::ADMINS) {
            return Some(true);
        }
        let (acl, defaults) = (self.acls.get(wanted.subject)?, self.defaults.get(SETTINGS)?);
        Some(wanted.is_permitted(user, &acl.value, &defaults.value))
    }

    /// Whether a user may.
    pub fn is_permitted(
        &self,
        store: &Store,
        user: &User,
        wanted: Wanted<'_>,
    ) -> Result<bool, Error> {
        if let Some(known) = self.is_known_permitted(user, wanted) {
            return Ok(known);
        }
        let defaults = self.defaults.get_or_read(store, SETTINGS, &[SETTINGS], |store| {
            let said = last(store, SETTINGS)?;
            Ok(said.map_or_else(Defaults::default, |data| Defaults::of_settings(&data)))
        })?;
        // There is no such stream, and nothing is kept of its name.
        if convert::is_too_long(wanted.subject.as_bytes()) {
            return Ok(wanted.is_permitted(user, &Acl::default(), &defaults.value));
        }
        let stream = metadata_stream(wanted.subject);
        let acl = self.acls.get_or_read(store, wanted.subject, &[&*stream], |store| {
            Ok(last(store, &stream)?.map_or_else(Acl::default, |data| Acl::of_metadata(&data)))
        })?;
        Ok(wanted.is_permitted(user, &acl.value, &defaults.value))
    }
}

/// What the last event of a stream says.
fn last(store: &Store, stream: &str) -> Result<Option<Vec<u8>>, Error> {
    match store.read(stream, Revision::END, Direction::Backwards).next() {
        None | Some(Err(Error::Deleted { .. })) => Ok(None),
        Some(event) => Ok(Some(event?.data)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acl::Action;
    use crate::stage::Stage;
    use umbel_events::limits::STREAM_NAME_BYTES_MAX;
    use umbel_events::{Expected, NewEvent};

    /// Story: what the rights of a stream are was kept under any name somebody had asked for,
    /// also one of 17 MiB, sixteen thousand of them.
    #[test]
    fn nothing_is_kept_of_names_that_no_stream_has_and_of_long_rights() {
        let (stage, rules, user) = (Stage::new(), Rules::default(), User::with_login("ada"));
        let permitted = |stream: &str| {
            let wanted = Wanted::new(Action::Read, stream);
            rules.is_permitted(&stage.store, &user, wanted).unwrap()
        };
        let (long, longest) = ("x".repeat(1 << 20), "y".repeat(STREAM_NAME_BYTES_MAX));
        assert!(permitted(&long) && permitted(&longest));
        assert!(!permitted(&format!("${long}")), "users may not read what is the system's");
        assert!(rules.acls.get(&long).is_none() && rules.acls.get(&longest).is_some());
        let names = serde_json::json!({ "$acl": { "$r": vec!["nobody"; 1000] } }).to_string();
        let id = stage.store.new_id().unwrap();
        let event = NewEvent::json(id, "$metadata", names.as_bytes());
        stage.store.append("$$guarded", Expected::Any, &[event]).unwrap();
        assert!(!permitted("guarded") && !permitted("guarded"));
        assert!(rules.acls.get("guarded").is_none());
    }
}

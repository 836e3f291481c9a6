//! [`Rules`]: what the store says about users and rights, kept until somebody changes it.

use std::sync::Arc;

use umbel_events::{Direction, Error, Revision, Store, metadata_stream};

use crate::acl::{Acl, Defaults, SETTINGS, Wanted};
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
        let (acls, defaults) = (Known::new(ACLS_KEPT), Known::new(1));
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
        let stream = metadata_stream(wanted.subject);
        let acl = self.acls.get_or_read(store, wanted.subject, &[&*stream], |store| {
            Ok(last(store, &stream)?.map_or_else(Acl::default, |data| Acl::of_metadata(&data)))
        })?;
        let defaults = self.defaults.get_or_read(store, SETTINGS, &[SETTINGS], |store| {
            let said = last(store, SETTINGS)?;
            Ok(said.map_or_else(Defaults::default, |data| Defaults::of_settings(&data)))
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

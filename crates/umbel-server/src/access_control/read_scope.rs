//! [`Sight`]: what somebody sees of other streams than the one he reads.
//!
//! Who reads all events, or what links point to, sees of each stream what he may read of it; the
//! rest is left out, or stays a link.

use std::sync::Arc;

use umbel_events::{Error, Store};

use crate::acl::{Action, Wanted};
use crate::rules::{KnownUser, Rules};
use crate::users::ADMINS;

/// What of other streams a reader sees.
#[derive(Debug, Clone)]
pub struct Sight {
    rules: Arc<Rules>,
    user: KnownUser,
}

impl Sight {
    /// What this user sees; `None` where it is everything.
    pub fn of(rules: &Arc<Rules>, user: &KnownUser) -> Option<Sight> {
        let is_admin = user.value.as_ref().is_some_and(|user| user.is_in(ADMINS));
        (!is_admin).then(|| Sight { rules: Arc::clone(rules), user: Arc::clone(user) })
    }

    /// Whether the reader may read this stream.
    pub fn shows(&self, store: &Store, stream: &str) -> Result<bool, Error> {
        let Some(user) = &self.user.value else { return Ok(false) };
        self.rules.is_permitted(store, user, Wanted::new(Action::Read, stream))
    }
}

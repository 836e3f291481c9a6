//! [`ReadableStreams`]: the streams that a reader may see besides the one it reads.
//!
//! A read of all events, or of links, shows only the events of streams that the user may read.
//! Other events are left out, and links to them stay unresolved.

use std::sync::Arc;

use umbel_events::{Error, Store};

use crate::access_control::acl::{AccessRequest, StreamAction};
use crate::access_control::acl_cache::{AclCache, CachedUser};
use crate::access_control::users::ADMINS_GROUP;

/// The part of the other streams that a reader may see.
#[derive(Debug, Clone)]
pub struct ReadableStreams {
    acl_cache: Arc<AclCache>,
    user: CachedUser,
}

impl ReadableStreams {
    /// The scope of this user; `None` for an administrator, for whom nothing is hidden.
    pub fn for_user(rules: &Arc<AclCache>, user: &CachedUser) -> Option<ReadableStreams> {
        let is_admin = user.value.as_ref().is_some_and(|user| user.is_in(ADMINS_GROUP));
        (!is_admin)
            .then(|| ReadableStreams { acl_cache: Arc::clone(rules), user: Arc::clone(user) })
    }

    /// Whether the reader may read this stream.
    pub fn allows(&self, store: &Store, stream: &str) -> Result<bool, Error> {
        let Some(user) = &self.user.value else { return Ok(false) };
        self.acl_cache.is_permitted(store, user, AccessRequest::new(StreamAction::Read, stream))
    }
}

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
///
/// INVARIANT: each check uses the ACL cache, and no result of an earlier check. A cached ACL is
/// stale once an append to its stream calls the watch of the cache entry. A kept result would
/// hide that.
#[derive(Debug)]
pub struct ReadableStreams {
    acl_cache: Arc<AclCache>,
    user: CachedUser,
}

impl ReadableStreams {
    /// The readable streams of this user; `None` for an administrator, who may see all streams.
    pub fn for_user(rules: &Arc<AclCache>, user: &CachedUser) -> Option<ReadableStreams> {
        let is_admin = user.value.as_ref().is_some_and(|user| user.is_in(ADMINS_GROUP));
        (!is_admin)
            .then(|| ReadableStreams { acl_cache: Arc::clone(rules), user: Arc::clone(user) })
    }

    /// Whether the reader may read this stream.
    pub fn allows(&self, store: &Store, stream: &str) -> Result<bool, Error> {
        let Some(user) = &self.user.value else { return Ok(false) };
        let wanted = AccessRequest::new(StreamAction::Read, stream);
        self.acl_cache.is_permitted(store, user, wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access_control::append_invalidated_cache::CacheEntry;
    use crate::access_control::users::User;
    use crate::test_support::test_service::TestService;
    use umbel_events::{ExpectedVersion, NewEvent};

    /// Story: a page kept the result of each check until the ACL cache was invalidated. An append
    /// of an ACL is visible before that, so the page could show an event that the new ACL hides.
    #[test]
    fn visible_acl_applies_within_a_page_before_the_cache_is_invalidated() {
        let fixture = TestService::new();
        let (store, rules) = (&fixture.store, Arc::new(AclCache::default()));
        let user = Arc::new(CacheEntry::fresh(Some(User::with_login("ada"))));
        let scope = ReadableStreams::for_user(&rules, &user).unwrap();
        let append_acl = |metadata: &[u8]| {
            let event = NewEvent::json(store.new_id().unwrap(), "$metadata", metadata);
            store.append("$$guarded", ExpectedVersion::Any, &[event]).unwrap();
        };
        assert!(scope.allows(store, "guarded").unwrap());
        append_acl(br#"{ "$acl": { "$r": "$admins" } }"#);
        assert!(!scope.allows(store, "guarded").unwrap(), "the ACL hides the stream");
        append_acl(b"{}");
        assert!(scope.allows(store, "guarded").unwrap(), "the ACL is removed");
        assert_eq!(rules.reads(), 3, "once for each ACL");
        for _ in 0..50 {
            assert!(scope.allows(store, "guarded").unwrap());
        }
        assert_eq!(rules.reads(), 3, "the ACL cache has the ACL");
    }
}

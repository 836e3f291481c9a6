//! [`ReadableStreams`]: the streams that a reader may see besides the one it reads.
//!
//! A read of all events, or of links, shows only the events of streams that the user may read.
//! Other events are left out, and links to them stay unresolved.

use std::collections::HashMap;
use std::sync::Arc;

use umbel_events::{Error, Store};

use crate::access_control::acl::{AccessRequest, StreamAction};
use crate::access_control::acl_cache::{AclCache, CachedUser};
use crate::access_control::users::ADMINS_GROUP;
use crate::limits::PAGE_PERMISSIONS_MAX;

/// The part of the other streams that a reader may see.
///
/// INVARIANT: `checked` includes every change of an ACL that was acknowledged before `changes`
/// counted it. So a later change empties it.
#[derive(Debug)]
pub struct ReadableStreams {
    acl_cache: Arc<AclCache>,
    user: CachedUser,
    /// Streams that were checked, and whether the reader may read them.
    checked: HashMap<Box<str>, bool>,
    /// Number of changes of ACLs before these checks.
    changes: u64,
}

impl ReadableStreams {
    /// The readable streams of this user; `None` for an administrator, who may see all streams.
    pub fn for_user(rules: &Arc<AclCache>, user: &CachedUser) -> Option<ReadableStreams> {
        let is_admin = user.value.as_ref().is_some_and(|user| user.is_in(ADMINS_GROUP));
        (!is_admin).then(|| ReadableStreams {
            acl_cache: Arc::clone(rules),
            user: Arc::clone(user),
            checked: HashMap::new(),
            changes: 0,
        })
    }

    /// Whether the reader may read this stream. Checks each stream once while no ACL changes.
    pub fn allows(&mut self, store: &Store, stream: &str) -> Result<bool, Error> {
        let Some(user) = &self.user.value else { return Ok(false) };
        let changes = self.acl_cache.changes();
        if changes != self.changes || self.checked.len() >= PAGE_PERMISSIONS_MAX {
            self.checked.clear();
            self.changes = changes;
        }
        if let Some(is_permitted) = self.checked.get(stream) {
            return Ok(*is_permitted);
        }
        let wanted = AccessRequest::new(StreamAction::Read, stream);
        let is_permitted = self.acl_cache.is_permitted(store, user, wanted)?;
        self.checked.insert(stream.into(), is_permitted);
        Ok(is_permitted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access_control::append_invalidated_cache::CacheEntry;
    use crate::access_control::users::User;
    use crate::test_support::test_service::TestService;
    use umbel_events::{ExpectedVersion, ImportedEvent, NewEvent};

    /// Story: a read of all events checked the ACL of its stream for each event. A large one was
    /// read from the log and parsed each time.
    #[test]
    fn page_checks_each_stream_once_until_an_acl_changes() {
        let fixture = TestService::new();
        let (store, rules) = (&fixture.store, Arc::new(AclCache::default()));
        let user = Arc::new(CacheEntry::fresh(Some(User::with_login("ada"))));
        let mut scope = ReadableStreams::for_user(&rules, &user).unwrap();
        let names: Vec<String> = (0..30_000).map(|number| format!("{number:064}")).collect();
        let acl = serde_json::json!({ "$acl": { "$r": names } }).to_string();
        let event = NewEvent::json(store.new_id().unwrap(), "$metadata", acl.as_bytes());
        let mut import = store.import().unwrap();
        let stream = "$$guarded";
        import.add(&ImportedEvent { stream, revision: None, created: None, event }).unwrap();
        import.finish().unwrap();
        for _ in 0..50 {
            assert!(!scope.allows(store, "guarded").unwrap());
            assert!(scope.allows(store, "open").unwrap());
        }
        assert_eq!(rules.reads(), 2, "each stream once");
        let event = NewEvent::json(store.new_id().unwrap(), "$metadata", b"{}");
        store.append("$$guarded", ExpectedVersion::Any, &[event]).unwrap();
        rules.invalidate("$$guarded");
        assert!(scope.allows(store, "guarded").unwrap(), "the change takes effect at once");
        for number in 0..PAGE_PERMISSIONS_MAX + 10 {
            scope.allows(store, &format!("s{number}")).unwrap();
            assert!(scope.checked.len() <= PAGE_PERMISSIONS_MAX);
        }
    }
}

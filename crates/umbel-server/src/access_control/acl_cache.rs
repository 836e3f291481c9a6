//! [`AclCache`]: users and ACLs of the store, cached until their streams change.

use std::sync::Arc;

use umbel_events::{Direction, Error, Revision, Store, metadata_stream};

use crate::access_control::acl::{AccessRequest, Acl, DefaultAcls, SETTINGS};
use crate::access_control::append_invalidated_cache::{CacheEntry, CacheLimits, StreamCache};
use crate::access_control::users::{self, User};
use crate::limits::{
    CACHED_ACLS_BYTES_MAX, CACHED_ACLS_MAX, CACHED_USERS_BYTES_MAX, CACHED_USERS_MAX,
};
use crate::protocol::proto_convert;
use crate::system_stream;

/// A cached user; `None` if no user has the name.
pub type CachedUser = Arc<CacheEntry<Option<User>>>;

/// Cached users and ACLs of the store.
#[derive(Debug)]
pub struct AclCache {
    acls: StreamCache<Acl>,
    defaults: StreamCache<DefaultAcls>,
    users: StreamCache<Option<User>>,
}

impl Default for AclCache {
    fn default() -> AclCache {
        let limits = |entries_max, bytes_max| CacheLimits { entries_max, bytes_max };
        let (acls, users) = (
            limits(CACHED_ACLS_MAX, CACHED_ACLS_BYTES_MAX),
            limits(CACHED_USERS_MAX, CACHED_USERS_BYTES_MAX),
        );
        let user_bytes = |user: &Option<User>| user.as_ref().map_or(0, User::bytes);
        AclCache {
            acls: StreamCache::with_limits(acls, Acl::bytes),
            defaults: StreamCache::with_limits(limits(1, usize::MAX), DefaultAcls::bytes),
            users: StreamCache::with_limits(users, user_bytes),
        }
    }
}

impl AclCache {
    /// Invalidates cached values of this stream. Callers call this after an append or delete,
    /// before its acknowledgment.
    pub fn invalidate(&self, stream: &str) {
        let Some(rest) = stream.strip_prefix('$') else { return };
        if let Some(subject) = rest.strip_prefix('$') {
            self.acls.invalidate(subject);
        }
        // Also where its metadata changes, and where a stream replaces it.
        if rest.trim_start_matches('$').starts_with(&SETTINGS[1..]) {
            self.defaults.invalidate(SETTINGS);
        }
        if let Some(login) = rest.trim_start_matches('$').strip_prefix("user-") {
            self.users.invalidate(login);
        }
    }

    /// Number of ACLs that were read from the store.
    #[cfg(test)]
    pub fn reads(&self) -> u64 {
        self.acls.reads.load(std::sync::atomic::Ordering::SeqCst)
    }

    /// The user with this name, if it is cached.
    pub fn user_if_cached(&self, login: &str) -> Option<CachedUser> {
        self.users.get(login)
    }

    /// The user with this name.
    pub fn user(&self, store: &Store, login: &str) -> Result<CachedUser, Error> {
        let stream = users::user_stream(login);
        // A delete is written to the stream's metadata.
        let streams = [&*stream, &*metadata_stream(&stream)];
        self.users.get_or_read(store, login, &streams, |store| users::read(store, login))
    }

    /// Whether a user has access; `None` if the answer is not cached.
    pub fn is_permitted_if_cached(&self, user: &User, wanted: AccessRequest<'_>) -> Option<bool> {
        if user.is_in(users::ADMINS_GROUP) {
            return Some(true);
        }
        let (acl, defaults) =
            (self.acls.get(wanted.governing_stream)?, self.defaults.get(SETTINGS)?);
        Some(wanted.is_permitted(user, &acl.value, &defaults.value))
    }

    /// Whether a user has access.
    pub fn is_permitted(
        &self,
        store: &Store,
        user: &User,
        wanted: AccessRequest<'_>,
    ) -> Result<bool, Error> {
        if let Some(known) = self.is_permitted_if_cached(user, wanted) {
            return Ok(known);
        }
        let defaults = match self.defaults.get(SETTINGS) {
            Some(defaults) => defaults,
            None => self.read_defaults(store)?,
        };
        // No stream has such a name, and nothing is cached under it.
        if proto_convert::is_name_too_long(wanted.governing_stream.as_bytes()) {
            return Ok(wanted.is_permitted(user, &Acl::default(), &defaults.value));
        }
        let stream = metadata_stream(wanted.governing_stream);
        let acl = self.acls.get_or_read(store, wanted.governing_stream, &[&*stream], |store| {
            // A tombstoned stream keeps its ACL: it governs events in views and of all streams.
            let metadata = store.metadata(wanted.governing_stream)?;
            Ok(metadata.map_or_else(Acl::default, |event| Acl::from_metadata(&event.data)))
        })?;
        Ok(wanted.is_permitted(user, &acl.value, &defaults.value))
    }
}

impl AclCache {
    /// Reads the default ACLs from `$settings`, or from the stream that replaces it.
    fn read_defaults(&self, store: &Store) -> Result<Arc<CacheEntry<DefaultAcls>>, Error> {
        let (stream, _) = system_stream::find_or_own(store, SETTINGS)?;
        if stream != SETTINGS {
            tracing::warn!(
                stream,
                "the stream $settings was tombstoned; the server reads the default ACLs from the \
                 stream that replaces it, to which an administrator can append them"
            );
        }
        // A delete is written to the stream's metadata.
        let streams = [SETTINGS, &*stream, &*metadata_stream(&stream)];
        self.defaults.get_or_read(store, SETTINGS, &streams, |store| {
            let settings = last_event_data(store, &stream)?;
            Ok(settings.map_or_else(DefaultAcls::default, |data| DefaultAcls::from_settings(&data)))
        })
    }
}

/// The data of a stream's last event.
fn last_event_data(store: &Store, stream: &str) -> Result<Option<Vec<u8>>, Error> {
    match store.read(stream, Revision::END, Direction::Backwards).next() {
        None | Some(Err(Error::StreamDeleted { .. })) => Ok(None),
        Some(event) => Ok(Some(event?.data)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access_control::acl::StreamAction;
    use crate::test_support::test_service::TestService;
    use umbel_events::limits::{ACL_BYTES_MAX, STREAM_NAME_BYTES_MAX};
    use umbel_events::{ExpectedVersion, ImportedEvent, NewEvent};

    fn append_acl(store: &Store, stream: &str, names: &[String]) {
        let acl = serde_json::json!({ "$acl": { "$r": names } }).to_string();
        let event = NewEvent::json(store.new_id().unwrap(), "$metadata", acl.as_bytes());
        store.append(&metadata_stream(stream), ExpectedVersion::Any, &[event]).unwrap();
    }

    fn import_acl(store: &Store, stream: &str, names: &[String]) {
        let acl = serde_json::json!({ "$acl": { "$r": names } }).to_string();
        let event = NewEvent::json(store.new_id().unwrap(), "$metadata", acl.as_bytes());
        let stream = &*metadata_stream(stream);
        let mut import = store.import().unwrap();
        import.add(&ImportedEvent { stream, revision: None, created: None, event }).unwrap();
        import.finish().unwrap();
    }

    /// As many names of this many bytes as an ACL may have.
    fn most_names(bytes: usize) -> Vec<String> {
        let count = (ACL_BYTES_MAX - 8) / (bytes + 3);
        (0..count).map(|number| format!("{number:0bytes$x}")).collect()
    }

    /// Story: only ACLs with 4 KiB of names were cached. A longer one, in metadata of 8 MiB, was
    /// read and parsed for each call and each event of a read.
    #[test]
    fn longest_valid_acls_are_read_once() {
        let (fixture, rules) = (TestService::new(), AclCache::default());
        let user = User::with_groups("ada", &["00007"]);
        let wanted = AccessRequest::new(StreamAction::Read, "guarded");
        for (round, bytes) in [5, 4, 256].into_iter().enumerate() {
            append_acl(&fixture.store, "guarded", &most_names(bytes));
            for _ in 0..100 {
                let is_permitted = rules.is_permitted(&fixture.store, &user, wanted).unwrap();
                assert_eq!(is_permitted, bytes == 5);
            }
            assert_eq!(rules.reads(), round as u64 + 1, "once for each ACL");
        }
    }

    /// Story: a delete of `$settings` took effect at the next start only, and a tombstone of it was
    /// final.
    #[test]
    fn default_acls_follow_every_state_of_their_stream() {
        let (fixture, rules) = (TestService::new(), AclCache::default());
        let (store, user) = (&fixture.store, User::with_login("ada"));
        let is_open = || {
            let access = AccessRequest::new(StreamAction::Read, "cart");
            rules.is_permitted(store, &user, access).unwrap()
        };
        let put = |stream: &str, data: &str| {
            let event = NewEvent::json(store.new_id().unwrap(), "update", data.as_bytes());
            store.append(stream, ExpectedVersion::Any, &[event]).unwrap();
        };
        let closed = r#"{"$userStreamAcl":{"$r":["bob"]}}"#;
        assert!(is_open());
        put(SETTINGS, closed);
        assert!(!is_open());
        store.delete(SETTINGS, ExpectedVersion::Any).unwrap();
        assert!(is_open(), "deleted");
        put(SETTINGS, closed);
        assert!(!is_open(), "recreated");
        put("$$$settings", r#"{"$tb":99}"#);
        assert!(is_open(), "truncated");
        put("$$$settings", r#"{"$tb":0}"#);
        put(SETTINGS, "junk");
        assert!(!is_open(), "only administrators have access until valid settings follow");
        put(SETTINGS, "{}");
        assert!(is_open());
        put(SETTINGS, closed);
        store.tombstone(SETTINGS, ExpectedVersion::Any).unwrap();
        assert!(is_open(), "tombstoned");
        put("$settings.2", closed);
        assert!(!is_open(), "replaced");
        assert!(AccessRequest::new(StreamAction::Write, "$settings.2").is_admin_only());
    }

    /// A tombstoned stream's metadata cannot be read as a stream, but its ACL still applies.
    #[test]
    fn acl_of_a_tombstoned_stream_applies() {
        let (fixture, rules) = (TestService::new(), AclCache::default());
        append_acl(&fixture.store, "guarded", &["bob".to_string()]);
        fixture.store.tombstone("guarded", ExpectedVersion::Any).unwrap();
        for (login, wanted) in [("ada", false), ("bob", true)] {
            let access = AccessRequest::new(StreamAction::Read, "guarded");
            let user = User::with_login(login);
            assert_eq!(rules.is_permitted(&fixture.store, &user, access).unwrap(), wanted);
        }
    }

    /// Story: the ACL of a stream was cached under every requested name, up to 16 thousand names of
    /// 17 MiB each. An imported ACL over a limit was not cached, but parsed for each request.
    #[test]
    fn invalid_names_are_not_cached_but_every_acl_is() {
        let (fixture, rules, user) =
            (TestService::new(), AclCache::default(), User::with_login("ada"));
        let permitted = |stream: &str| {
            let wanted = AccessRequest::new(StreamAction::Read, stream);
            rules.is_permitted(&fixture.store, &user, wanted).unwrap()
        };
        let (long, longest) = ("x".repeat(1 << 20), "y".repeat(STREAM_NAME_BYTES_MAX));
        assert!(permitted(&long) && permitted(&longest));
        assert!(!permitted(&format!("${long}")), "users may not read what is the system's");
        assert!(rules.acls.get(&long).is_none() && rules.acls.get(&longest).is_some());
        // An import takes what no append may have.
        let names: Vec<String> = (0..(1 << 20) - 8).map(|number| format!("{number:05x}")).collect();
        import_acl(&fixture.store, "guarded", &names);
        let before = rules.reads();
        assert!((0..64).all(|_| !permitted("guarded")));
        assert_eq!(rules.reads(), before + 1, "an ACL of 8 MiB is read once");
        let bytes = rules.acls.get("guarded").unwrap().value.bytes();
        assert!(bytes <= CACHED_ACLS_BYTES_MAX, "{bytes}");
    }
}

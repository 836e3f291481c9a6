//! [`User`]: the users of the server, stored as in EventStoreDB. The last event of `$user-NAME`
//! describes the user, and `$users` lists the name of every user that ever existed.

use serde_json::{Value, json};
use umbel_base::fail_point;
use umbel_env::Env;
use umbel_events::{
    Direction, Error, EventId, ExpectedVersion, NewEvent, RecordedEvent, Revision, Store,
    StreamAppend, StreamState, read_json_keys,
};

use crate::access_control::name_list::NameList;
use crate::access_control::passwords::{self, Secret};
use crate::protocol::bounded_list::BoundedList;

/// The group of all users.
pub const ALL_GROUP: &str = "$all";
/// The group of users with full access.
pub const ADMINS_GROUP: &str = "$admins";
/// The group of operators.
pub const OPERATORS_GROUP: &str = "$ops";
/// Names of the users that the first start of a server creates.
pub const ADMIN_LOGIN: &str = "admin";
const OPS_LOGIN: &str = "ops";

/// The stream that lists all users.
const USERS_STREAM: &str = "$users";
/// Name prefix of a user's stream.
const USER_STREAM_PREFIX: &str = "$user-";
const USER_NAMED_TYPE: &str = "$User";
const USER_CREATED_TYPE: &str = "$UserCreated";
const USER_UPDATED_TYPE: &str = "$UserUpdated";

/// Most bytes of the name of a user or a group.
pub const NAME_BYTES_MAX: usize = 256;
/// Most bytes of a full name.
const FULL_NAME_BYTES_MAX: usize = 1024;
/// Most groups of one user.
pub const GROUPS_MAX: usize = 100;
/// Maximum number of groups of a stored user, which another server may have created.
const STORED_GROUPS_MAX: usize = 1000;
/// Number of stream names that a page of [`list`] examines.
const LIST_PAGE_NAMES: usize = 256;

/// A user of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The name that the user presents to log in.
    pub login: String,
    /// The full name, for display.
    pub full_name: String,
    /// The groups of the user.
    pub groups: Vec<String>,
    /// Whether the user is disabled, so that its calls are refused.
    pub is_disabled: bool,
    /// The Argon2id hash of the password.
    pub password_hash: String,
    /// Time of the last change, in ticks of 100 ns since 1970.
    pub changed_at: u64,
    /// Revision of the last change in the user's stream.
    pub revision: u64,
}

/// Passwords that the operator chose for the first users.
#[derive(Debug, Clone, Default)]
pub struct BootstrapPasswords {
    /// The password of `admin`, who has all permissions.
    pub admin: Option<Secret>,
    /// The password of `ops`, an operator.
    pub ops: Option<Secret>,
}

impl User {
    /// Whether the user is not disabled.
    pub fn is_active(&self) -> bool {
        fail_point!("server-accept-disabled-user", |_| true);
        !self.is_disabled
    }

    /// A user without groups and password. For fuzzing and tests only.
    pub fn with_login(login: &str) -> User {
        User {
            login: login.to_string(),
            full_name: String::new(),
            groups: Vec::new(),
            is_disabled: false,
            password_hash: String::new(),
            changed_at: 0,
            revision: 0,
        }
    }

    /// Bytes of memory that the user's texts take, about.
    pub fn bytes(&self) -> usize {
        let groups = self.groups.iter().map(|group| size_of::<String>() + group.len());
        let texts = [&self.login, &self.full_name, &self.password_hash];
        texts.map(String::len).iter().sum::<usize>() + groups.sum::<usize>()
    }

    /// Whether the user is in this group.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }

    /// Whether one of these names is that of the user, or of one of the user's groups.
    pub fn matches_any(&self, names: &NameList) -> bool {
        names.contains(ALL_GROUP)
            || (!self.login.starts_with('$') && names.contains(&self.login))
            || self.groups.iter().any(|group| names.contains(group))
    }

    /// Whether the user is an operator.
    pub fn is_operator(&self) -> bool {
        self.is_in(ADMINS_GROUP) || self.is_in(OPERATORS_GROUP)
    }

    /// The first invalid property of the user, as a sentence.
    pub fn validation_error(&self) -> Option<String> {
        let is_bad =
            |name: &str| name.is_empty() || name.len() > NAME_BYTES_MAX || is_invalid_name(name);
        if is_bad(&self.login) || self.login.contains(':') || self.login.starts_with('$') {
            return Some(format!(
                "a user's name has 1 to {NAME_BYTES_MAX} bytes, no colon and no control \
                 characters, and does not begin with $"
            ));
        }
        if self.groups.len() > GROUPS_MAX || self.groups.iter().any(|group| is_bad(group)) {
            return Some(format!(
                "a user is in at most {GROUPS_MAX} groups, whose names have 1 to {NAME_BYTES_MAX} \
                 bytes without control characters"
            ));
        }
        (self.full_name.len() > FULL_NAME_BYTES_MAX).then(|| {
            format!("a user's full name has {FULL_NAME_BYTES_MAX} bytes at most; shorten it")
        })
    }

    fn parse(login: &str, event: &RecordedEvent) -> Option<User> {
        if event.kind != USER_CREATED_TYPE && event.kind != USER_UPDATED_TYPE {
            return None;
        }
        let keys = ["loginName", "fullName", "groups", "disabled", "hash"];
        let [name, full_name, groups, is_disabled, hash] =
            read_json_keys(&event.data, keys).ok()?;
        let text = |value: Option<&str>| serde_json::from_str::<String>(value?).ok();
        let groups = match groups {
            None | Some("null") => Vec::new(),
            Some(groups) => serde_json::from_str::<BoundedList<STORED_GROUPS_MAX>>(groups).ok()?.0,
        };
        Some(User {
            login: text(name).filter(|value| value == login)?,
            full_name: text(full_name).unwrap_or_default(),
            groups,
            is_disabled: is_disabled.map_or(Ok(false), serde_json::from_str).ok()?,
            password_hash: text(hash)?,
            changed_at: event.created,
            revision: event.revision,
        })
    }

    fn to_json(&self) -> Vec<u8> {
        let value = json!({
            "loginName": self.login,
            "fullName": self.full_name,
            // The hash contains its salt.
            "salt": "",
            "hash": self.password_hash,
            "disabled": self.is_disabled,
            "groups": self.groups,
        });
        value.to_string().into_bytes()
    }
}

fn is_invalid_name(name: &str) -> bool {
    name.chars().any(char::is_control)
}

/// The stream of the user with this name.
pub fn user_stream(login: &str) -> String {
    format!("{USER_STREAM_PREFIX}{login}")
}

/// The user with this name; `None` if the stream holds no valid user.
pub fn read(store: &Store, login: &str) -> Result<Option<User>, Error> {
    match store.read(&user_stream(login), Revision::END, Direction::Backwards).next() {
        None | Some(Err(Error::StreamDeleted { .. })) => Ok(None),
        Some(event) => Ok(User::parse(login, &event?)),
    }
}

/// Returns one page of users after this name, in name order, and the name after which the next page
/// starts. A page examines at most `LIST_PAGE_NAMES` names; the last page has no next name.
pub fn list(store: &Store, after: Option<&str>) -> Result<(Vec<User>, Option<String>), Error> {
    let after = after.map(user_stream);
    let names = store.streams(USER_STREAM_PREFIX, after.as_deref(), LIST_PAGE_NAMES)?;
    let next = (names.len() == LIST_PAGE_NAMES)
        .then(|| names.last().map(|(name, _)| name[USER_STREAM_PREFIX.len()..].to_string()));
    let mut users = Vec::with_capacity(names.len());
    for (name, state) in names {
        if matches!(state, StreamState::Live { .. }) {
            users.extend(read(store, &name[USER_STREAM_PREFIX.len()..])?);
        }
    }
    Ok((users, next.flatten()))
}

/// Writes a user that does not exist yet.
pub fn create(store: &Store, user: &User) -> Result<(), Error> {
    let (data, name) = (user.to_json(), user_stream(&user.login));
    let login = user.login.as_bytes();
    let named = NewEvent {
        id: store.new_id()?,
        kind: USER_NAMED_TYPE,
        is_json: false,
        data: login,
        metadata: b"",
    };
    let created = NewEvent::json(store.new_id()?, USER_CREATED_TYPE, &data);
    let appends = [
        StreamAppend { stream: &name, expected: ExpectedVersion::NoStream, events: &[created] },
        StreamAppend { stream: USERS_STREAM, expected: ExpectedVersion::Any, events: &[named] },
    ];
    match store.append_streams(&appends, &[]) {
        // The server finds users by the names of their streams.
        Err(Error::StreamDeleted { stream }) if stream == USERS_STREAM => {
            tracing::warn!(
                stream,
                login = user.login,
                "the list of all users was tombstoned; the server creates users without it"
            );
            store.append_streams(&appends[..1], &[]).map(drop)
        }
        done => done.map(drop),
    }
}

/// Writes a changed user, unless the user changed since it was read.
pub fn update(store: &Store, user: &User, id: EventId) -> Result<(), Error> {
    let data = user.to_json();
    let event = NewEvent::json(id, USER_UPDATED_TYPE, &data);
    store
        .append(&user_stream(&user.login), ExpectedVersion::Exact(user.revision), &[event])
        .map(drop)
}

/// Deletes a user, unless the user changed since it was read.
pub fn delete(store: &Store, user: &User) -> Result<(), Error> {
    store.delete(&user_stream(&user.login), ExpectedVersion::Exact(user.revision)).map(drop)
}

/// Creates each of the first users that never existed. Returns the generated passwords of users for
/// whom the operator chose none. Logs which passwords of the operator have no effect, because the
/// user existed before.
pub fn bootstrap(
    store: &Store,
    env: &Env,
    chosen: &BootstrapPasswords,
) -> Result<Vec<(&'static str, Secret)>, String> {
    let (mut made, mut ignored) = (Vec::new(), Vec::new());
    let first = [
        (ADMIN_LOGIN, "Event Store Administrator", ADMINS_GROUP, &chosen.admin),
        (OPS_LOGIN, "Event Store Operations", OPERATORS_GROUP, &chosen.ops),
    ];
    for (login, full_name, group, password) in first {
        let state = store.stream_state(&user_stream(login)).map_err(|error| error.to_string())?;
        if state != StreamState::Missing {
            ignored.extend(
                password.as_ref().filter(|it| !has_password(store, login, it)).map(|_| login),
            );
            continue;
        }
        let secret = match password {
            Some(secret) => secret.clone(),
            None => Secret::generate(&*env.entropy).map_err(|error| error.to_string())?,
        };
        let say = |status: tonic::Status| format!("{login}: {}", status.message());
        passwords::check_length(secret.reveal()).map_err(say)?;
        let user = User {
            login: login.to_string(),
            full_name: full_name.to_string(),
            groups: vec![group.to_string()],
            is_disabled: false,
            password_hash: passwords::hash_password(secret.reveal(), &*env.entropy).map_err(say)?,
            changed_at: 0,
            revision: 0,
        };
        create(store, &user).map_err(|error| error.to_string())?;
        if password.is_none() {
            made.push((login, secret));
        }
    }
    if !ignored.is_empty() {
        tracing::warn!(
            "the configured password for {} has no effect: the user was created before, by an \
             earlier start or an import. To change a password, run 'umbel user passwd USER \
             --connect ADDRESS'; to create a deleted user, run 'umbel user add USER --connect \
             ADDRESS'. Without a valid password, start the server with --insecure on a loopback \
             address for that command",
            ignored.join(" and ")
        );
    }
    Ok(made)
}

/// Whether a user exists and has this password. A user whose record cannot be read counts as having
/// no password; other users are not affected.
fn has_password(store: &Store, login: &str, password: &Secret) -> bool {
    let user = read(store, login).ok().flatten();
    user.is_some_and(|user| passwords::verify(password.reveal(), &user.password_hash))
}

/// Parses a stored user. For measurements only.
pub fn parse(event: &RecordedEvent) {
    drop(User::parse("ada", event));
}

/// Checks that a user is unchanged after being written and read. For fuzzing only.
pub fn check(event: &RecordedEvent) {
    let value = serde_json::from_slice::<Value>(&event.data).ok();
    let login =
        value.as_ref().and_then(|value| value.get("loginName")?.as_str()).unwrap_or_default();
    let Some(user) = User::parse(login, event) else { return };
    assert_eq!(user.login, login);
    assert_eq!(User::parse(&format!("{login}x"), event), None, "the name in the event differs");
    let again = RecordedEvent { data: user.to_json(), ..event.clone() };
    assert_eq!(User::parse(login, &again), Some(user), "it can be written and read again");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::test_service::TestService;

    impl User {
        /// A user in these groups, without a password.
        pub fn with_groups(login: &str, groups: &[&str]) -> User {
            let groups = groups.iter().map(|group| (*group).to_string()).collect();
            User { groups, ..User::with_login(login) }
        }
    }

    #[test]
    fn default_users_are_created_once_with_random_passwords() {
        let (fixture, env) = (TestService::new(), Env::system());
        let ops = Some(Secret::new("chosen"));
        let chosen = BootstrapPasswords { admin: None, ops };
        let made = bootstrap(&fixture.store, &env, &chosen).unwrap();
        let [(ADMIN_LOGIN, secret)] = &made[..] else { panic!("{made:?}") };
        let admin = read(&fixture.store, ADMIN_LOGIN).unwrap().unwrap();
        assert!(
            admin.is_in(ADMINS_GROUP) && passwords::verify(secret.reveal(), &admin.password_hash)
        );
        let ops = read(&fixture.store, OPS_LOGIN).unwrap().unwrap();
        assert!(!ops.is_in(ADMINS_GROUP) && passwords::verify("chosen", &ops.password_hash));
        delete(&fixture.store, &ops).unwrap();
        let again = BootstrapPasswords { admin: Some(Secret::new("other")), ops: None };
        assert!(
            bootstrap(&fixture.store, &env, &again).unwrap().is_empty(),
            "users are created once"
        );
        assert_eq!(read(&fixture.store, ADMIN_LOGIN).unwrap().unwrap(), admin);
        assert_eq!(read(&fixture.store, OPS_LOGIN).unwrap(), None, "a deleted user stays deleted");
    }

    #[test]
    fn user_round_trips_through_its_stream() {
        let fixture = TestService::new();
        let mut ada = User::with_groups("ada", &["readers"]);
        ada.full_name = "Ada \"L\"".to_string();
        create(&fixture.store, &ada).unwrap();
        assert!(matches!(create(&fixture.store, &ada), Err(Error::WrongExpectedVersion { .. })));
        let mut read_back = read(&fixture.store, "ada").unwrap().unwrap();
        assert!(read_back.changed_at > 0);
        read_back.changed_at = 0;
        assert_eq!(read_back, ada);
        ada.is_disabled = true;
        update(&fixture.store, &ada, fixture.store.new_id().unwrap()).unwrap();
        let late = update(&fixture.store, &ada, fixture.store.new_id().unwrap());
        assert!(
            matches!(late, Err(Error::WrongExpectedVersion { .. })),
            "a concurrent change conflicts"
        );
        let read_back = read(&fixture.store, "ada").unwrap().unwrap();
        assert!(read_back.is_disabled && read_back.revision == 1);
        create(&fixture.store, &User::with_groups("bob", &[])).unwrap();
        let (users, next) = list(&fixture.store, None).unwrap();
        let names: Vec<&str> = users.iter().map(|user| &*user.login).collect();
        assert_eq!((names, next), (vec!["ada", "bob"], None));
        delete(&fixture.store, &read_back).unwrap();
        assert_eq!(list(&fixture.store, None).unwrap().0.len(), 1);
        create(&fixture.store, &ada).unwrap();
    }

    /// Story: after a tombstone of `$users` no user could be created, for ever.
    #[test]
    fn users_are_created_in_every_state_of_their_list() {
        type Change = fn(&Store);
        let metadata = |store: &Store, json: &str| {
            let event = NewEvent::json(store.new_id().unwrap(), "$metadata", json.as_bytes());
            store.append("$$$users", ExpectedVersion::Any, &[event]).unwrap();
        };
        let changes: [Change; 5] = [
            |store| _ = store.delete(USERS_STREAM, ExpectedVersion::Any).unwrap(),
            |store| _ = store.tombstone(USERS_STREAM, ExpectedVersion::Any).unwrap(),
            |_| (),
            |store| {
                let junk = NewEvent::binary(store.new_id().unwrap(), "Other", b"\xff");
                store.append(USERS_STREAM, ExpectedVersion::Any, &[junk]).unwrap();
            },
            |store| {
                store.delete(USERS_STREAM, ExpectedVersion::Any).unwrap();
                create(store, &User::with_login("eve")).unwrap();
            },
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let store = &TestService::new().store;
            create(store, &User::with_login("ada")).unwrap();
            match number {
                2 => metadata(store, r#"{"$tb":9}"#),
                _ => change(store),
            }
            create(store, &User::with_login("bob")).unwrap();
            let again = create(store, &User::with_login("bob"));
            assert!(matches!(again, Err(Error::WrongExpectedVersion { .. })), "{number}");
            let bob = read(store, "bob").unwrap().unwrap();
            delete(store, &bob).unwrap();
            create(store, &User::with_login("bob")).unwrap();
            assert!(list(store, None).unwrap().0.len() >= 2, "{number}");
        }
    }

    #[test]
    fn malformed_user_event_is_no_user() {
        let fixture = TestService::new();
        let append = |kind: &str, data: &[u8]| {
            let event = NewEvent::json(fixture.store.new_id().unwrap(), kind, data);
            fixture.store.append("$user-eve", ExpectedVersion::Any, &[event]).unwrap();
        };
        let complete = br#"{"loginName":"eve","hash":"x","groups":["$admins"]}"#;
        let broken: [(&str, &[u8]); 7] = [
            ("Other", complete),
            (USER_CREATED_TYPE, b"\xff"),
            (USER_CREATED_TYPE, b"[]"),
            (USER_CREATED_TYPE, br#"{"loginName":"admin","hash":"x"}"#),
            (USER_CREATED_TYPE, br#"{"loginName":"eve"}"#),
            (USER_CREATED_TYPE, br#"{"loginName":"eve","hash":"x","groups":"$admins"}"#),
            (USER_UPDATED_TYPE, br#"{"loginName":"eve","hash":"x","disabled":"no"}"#),
        ];
        for (kind, data) in broken {
            append(kind, data);
            assert_eq!(read(&fixture.store, "eve").unwrap(), None, "{kind}");
        }
        append(USER_UPDATED_TYPE, complete);
        assert!(read(&fixture.store, "eve").unwrap().unwrap().is_in(ADMINS_GROUP));
    }

    #[test]
    fn ambiguous_login_names_are_rejected() {
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        for name in ["", "a:b", "$admins", "$all", "a\nb", &long] {
            assert!(User::with_groups(name, &[]).validation_error().is_some(), "{name}");
        }
        for group in ["", "a\0", &long] {
            assert!(User::with_groups("ada", &[group]).validation_error().is_some(), "{group}");
        }
        let ada = User::with_groups("ada@example.org", &["$admins", "käse"]);
        assert_eq!(ada.validation_error(), None);
        let matches = |names: &[&str]| {
            let names: NameList = names.iter().copied().collect();
            ada.matches_any(&names)
        };
        assert!(matches(&["käse"]) && matches(&["$all"]) && matches(&["ada@example.org", "b"]));
        assert!(!matches(&["ada", "kä", "käse2", "$ops"]) && !matches(&[]));
    }
}

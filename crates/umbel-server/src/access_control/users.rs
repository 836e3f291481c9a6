//! [`User`]: who may use the server, kept in the store as servers of this kind keep it: the last
//! event of `$user-NAME` says who he is, and `$users` names everybody who ever was one.

use serde_json::{Value, json};
use umbel_env::Env;
use umbel_events::{
    Direction, Error, EventId, Expected, NewEvent, RecordedEvent, Revision, Store, StreamAppend,
    StreamState,
};

use crate::passwords::{self, Secret};

/// The group that everybody is in.
pub const ALL: &str = "$all";
/// The group that may do everything.
pub const ADMINS: &str = "$admins";
/// The group that looks after the server.
pub const OPERATORS: &str = "$ops";
/// Who is there from the first start on.
pub const ADMIN: &str = "admin";
const OPS: &str = "ops";

/// The stream that names all users.
const NAMES: &str = "$users";
/// What the name of a user's stream begins with.
const PREFIX: &str = "$user-";
const NAMED: &str = "$User";
const CREATED: &str = "$UserCreated";
const UPDATED: &str = "$UserUpdated";

/// Most bytes of the name of a user or a group,
pub const NAME_BYTES_MAX: usize = 256;
/// of his name among people,
const FULL_NAME_BYTES_MAX: usize = 1024;
/// and most groups that he is in.
const GROUPS_MAX: usize = 100;
/// How many names of streams are looked at in one go.
const PAGE: usize = 256;

/// Who may use the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// By what he says who he is.
    pub login: String,
    /// His name among people.
    pub full_name: String,
    /// The groups that he is in.
    pub groups: Vec<String>,
    /// Whether he is refused.
    pub is_disabled: bool,
    /// What is kept of his password.
    pub kept_password: String,
    /// When that was written, in ticks of 100 ns since 1970,
    pub changed: u64,
    /// and where in his stream.
    pub revision: u64,
}

/// The passwords of those who are there from the first start on, where somebody chose them.
#[derive(Debug, Clone, Default)]
pub struct FirstPasswords {
    /// That of `admin`, who may do everything.
    pub admin: Option<Secret>,
    /// That of `ops`, who looks after the server.
    pub ops: Option<Secret>,
}

impl User {
    /// One in no group, who has no password. For fuzzing and tests only.
    pub fn with_login(login: &str) -> User {
        User {
            login: login.to_string(),
            full_name: String::new(),
            groups: Vec::new(),
            is_disabled: false,
            kept_password: String::new(),
            changed: 0,
            revision: 0,
        }
    }

    /// Whether he is in this group.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }

    /// Whether this is his name or that of a group he is in.
    pub fn is_called(&self, name: &str) -> bool {
        name == ALL || (name == self.login && !name.starts_with('$')) || self.is_in(name)
    }

    /// Whether he looks after the server.
    pub fn is_operator(&self) -> bool {
        self.is_in(ADMINS) || self.is_in(OPERATORS)
    }

    /// What is wrong with him, as a sentence.
    pub fn complaint(&self) -> Option<String> {
        let is_bad = |name: &str| name.is_empty() || name.len() > NAME_BYTES_MAX || is_odd(name);
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
        if event.kind != CREATED && event.kind != UPDATED {
            return None;
        }
        let said: Value = serde_json::from_slice(&event.data).ok()?;
        let text = |key: &str| said.get(key)?.as_str().map(str::to_string);
        let groups = match said.get("groups") {
            None | Some(Value::Null) => Vec::new(),
            Some(groups) => {
                let name = |group: &Value| group.as_str().map(str::to_string);
                groups.as_array()?.iter().map(name).collect::<Option<_>>()?
            }
        };
        Some(User {
            login: text("loginName").filter(|said| said == login)?,
            full_name: text("fullName").unwrap_or_default(),
            groups,
            is_disabled: said.get("disabled").map_or(Some(false), Value::as_bool)?,
            kept_password: text("hash")?,
            changed: event.created,
            revision: event.revision,
        })
    }

    fn said(&self) -> Vec<u8> {
        let said = json!({
            "loginName": self.login,
            "fullName": self.full_name,
            // The hash says its salt itself.
            "salt": "",
            "hash": self.kept_password,
            "disabled": self.is_disabled,
            "groups": self.groups,
        });
        said.to_string().into_bytes()
    }
}

fn is_odd(name: &str) -> bool {
    name.chars().any(char::is_control)
}

/// The stream of the user with this name.
pub fn stream(login: &str) -> String {
    format!("{PREFIX}{login}")
}

/// The user with this name. What is no user is nobody.
pub fn read(store: &Store, login: &str) -> Result<Option<User>, Error> {
    match store.read(&stream(login), Revision::END, Direction::Backwards).next() {
        None | Some(Err(Error::Deleted { .. })) => Ok(None),
        Some(event) => Ok(User::parse(login, &event?)),
    }
}

/// All users behind this name in the order of their names, at most so many names looked at; and
/// the last name looked at, where there may be more.
pub fn list(store: &Store, after: Option<&str>) -> Result<(Vec<User>, Option<String>), Error> {
    let after = after.map(stream);
    let names = store.streams(PREFIX, after.as_deref(), PAGE)?;
    let next = (names.len() == PAGE)
        .then(|| names.last().map(|(name, _)| name[PREFIX.len()..].to_string()));
    let mut users = Vec::with_capacity(names.len());
    for (name, state) in names {
        if matches!(state, StreamState::Live { .. }) {
            users.extend(read(store, &name[PREFIX.len()..])?);
        }
    }
    Ok((users, next.flatten()))
}

/// Writes a user who is not there yet.
pub fn create(store: &Store, user: &User) -> Result<(), Error> {
    let (data, name) = (user.said(), stream(&user.login));
    let login = user.login.as_bytes();
    let named =
        NewEvent { id: store.new_id()?, kind: NAMED, is_json: false, data: login, metadata: b"" };
    let created = NewEvent::json(store.new_id()?, CREATED, &data);
    let appends = [
        StreamAppend { stream: &name, expected: Expected::NoStream, events: &[created] },
        StreamAppend { stream: NAMES, expected: Expected::Any, events: &[named] },
    ];
    store.append_together(&appends, &[]).map(drop)
}

/// Writes what became of a user, unless somebody else has since he was read.
pub fn update(store: &Store, user: &User, id: EventId) -> Result<(), Error> {
    let data = user.said();
    let event = NewEvent::json(id, UPDATED, &data);
    store.append(&stream(&user.login), Expected::Exact(user.revision), &[event]).map(drop)
}

/// Deletes a user, unless somebody else has changed him since he was read.
pub fn delete(store: &Store, user: &User) -> Result<(), Error> {
    store.delete(&stream(&user.login), Expected::Exact(user.revision)).map(drop)
}

/// Writes those who are there from the first start on, unless they ever were. Returns the passwords
/// that were made because nobody chose any.
pub fn begin(
    store: &Store,
    env: &Env,
    chosen: &FirstPasswords,
) -> Result<Vec<(&'static str, Secret)>, String> {
    let mut made = Vec::new();
    let first = [
        (ADMIN, "Event Store Administrator", ADMINS, &chosen.admin),
        (OPS, "Event Store Operations", OPERATORS, &chosen.ops),
    ];
    for (login, full_name, group, password) in first {
        let state = store.stream(&stream(login)).map_err(|error| error.to_string())?;
        if state != StreamState::Missing {
            continue;
        }
        let secret = match password {
            Some(secret) => secret.clone(),
            None => Secret::make(&*env.entropy).map_err(|error| error.to_string())?,
        };
        let say = |status: tonic::Status| format!("{login}: {}", status.message());
        passwords::check(secret.reveal()).map_err(say)?;
        let user = User {
            login: login.to_string(),
            full_name: full_name.to_string(),
            groups: vec![group.to_string()],
            is_disabled: false,
            kept_password: passwords::keep(secret.reveal(), &*env.entropy).map_err(say)?,
            changed: 0,
            revision: 0,
        };
        create(store, &user).map_err(|error| error.to_string())?;
        if password.is_none() {
            made.push((login, secret));
        }
    }
    Ok(made)
}

/// What stands in a user's stream is read as it was written. For fuzzing only.
pub fn check(event: &RecordedEvent) {
    let said = serde_json::from_slice::<Value>(&event.data).ok();
    let login = said.as_ref().and_then(|said| said.get("loginName")?.as_str()).unwrap_or_default();
    let Some(user) = User::parse(login, event) else { return };
    assert_eq!(user.login, login);
    assert_eq!(User::parse(&format!("{login}x"), event), None, "it is another user's");
    let again = RecordedEvent { data: user.said(), ..event.clone() };
    assert_eq!(User::parse(login, &again), Some(user), "it can be written and read again");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::Stage;

    impl User {
        /// One in these groups, who has no password.
        pub fn with_groups(login: &str, groups: &[&str]) -> User {
            let groups = groups.iter().map(|group| (*group).to_string()).collect();
            User { groups, ..User::with_login(login) }
        }
    }

    #[test]
    fn the_first_users_are_made_once_with_passwords_that_nobody_knows() {
        let (stage, env) = (Stage::new(), Env::system());
        let ops = Some(Secret::new("chosen"));
        let chosen = FirstPasswords { admin: None, ops };
        let made = begin(&stage.store, &env, &chosen).unwrap();
        let [(ADMIN, secret)] = &made[..] else { panic!("{made:?}") };
        let admin = read(&stage.store, ADMIN).unwrap().unwrap();
        assert!(admin.is_in(ADMINS) && passwords::is_right(secret.reveal(), &admin.kept_password));
        let ops = read(&stage.store, OPS).unwrap().unwrap();
        assert!(!ops.is_in(ADMINS) && passwords::is_right("chosen", &ops.kept_password));
        delete(&stage.store, &ops).unwrap();
        let again = FirstPasswords { admin: Some(Secret::new("other")), ops: None };
        assert!(begin(&stage.store, &env, &again).unwrap().is_empty(), "nobody is made twice");
        assert_eq!(read(&stage.store, ADMIN).unwrap().unwrap(), admin);
        assert_eq!(read(&stage.store, OPS).unwrap(), None, "who was deleted stays away");
    }

    #[test]
    fn users_are_kept_as_they_are() {
        let stage = Stage::new();
        let mut ada = User::with_groups("ada", &["readers"]);
        ada.full_name = "Ada \"L\"".to_string();
        create(&stage.store, &ada).unwrap();
        assert!(matches!(create(&stage.store, &ada), Err(Error::WrongExpected { .. })));
        let mut read_back = read(&stage.store, "ada").unwrap().unwrap();
        assert!(read_back.changed > 0);
        read_back.changed = 0;
        assert_eq!(read_back, ada);
        ada.is_disabled = true;
        update(&stage.store, &ada, stage.store.new_id().unwrap()).unwrap();
        let late = update(&stage.store, &ada, stage.store.new_id().unwrap());
        assert!(matches!(late, Err(Error::WrongExpected { .. })), "somebody else was faster");
        let read_back = read(&stage.store, "ada").unwrap().unwrap();
        assert!(read_back.is_disabled && read_back.revision == 1);
        create(&stage.store, &User::with_groups("bob", &[])).unwrap();
        let (users, next) = list(&stage.store, None).unwrap();
        let names: Vec<&str> = users.iter().map(|user| &*user.login).collect();
        assert_eq!((names, next), (vec!["ada", "bob"], None));
        delete(&stage.store, &read_back).unwrap();
        assert_eq!(list(&stage.store, None).unwrap().0.len(), 1);
        create(&stage.store, &ada).unwrap();
    }

    #[test]
    fn what_is_no_user_is_nobody() {
        let stage = Stage::new();
        let append = |kind: &str, data: &[u8]| {
            let event = NewEvent::json(stage.store.new_id().unwrap(), kind, data);
            stage.store.append("$user-eve", Expected::Any, &[event]).unwrap();
        };
        let whole = br#"{"loginName":"eve","hash":"x","groups":["$admins"]}"#;
        let broken: [(&str, &[u8]); 7] = [
            ("Other", whole),
            (CREATED, b"\xff"),
            (CREATED, b"[]"),
            (CREATED, br#"{"loginName":"admin","hash":"x"}"#),
            (CREATED, br#"{"loginName":"eve"}"#),
            (CREATED, br#"{"loginName":"eve","hash":"x","groups":"$admins"}"#),
            (UPDATED, br#"{"loginName":"eve","hash":"x","disabled":"no"}"#),
        ];
        for (kind, data) in broken {
            append(kind, data);
            assert_eq!(read(&stage.store, "eve").unwrap(), None, "{kind}");
        }
        append(UPDATED, whole);
        assert!(read(&stage.store, "eve").unwrap().unwrap().is_in(ADMINS));
    }

    #[test]
    fn names_that_could_be_taken_for_something_else_are_refused() {
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        for name in ["", "a:b", "$admins", "$all", "a\nb", &long] {
            assert!(User::with_groups(name, &[]).complaint().is_some(), "{name}");
        }
        for group in ["", "a\0", &long] {
            assert!(User::with_groups("ada", &[group]).complaint().is_some(), "{group}");
        }
        let ada = User::with_groups("ada@example.org", &["$admins", "käse"]);
        assert_eq!(ada.complaint(), None);
        assert!(ada.is_called("käse") && ada.is_called("$all") && !ada.is_called("ada"));
    }
}

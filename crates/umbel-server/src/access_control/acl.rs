//! [`Acl`]: who may do what with a stream, as its metadata and `$settings` say it, and what holds
//! where they say nothing.
//!
//! What cannot be understood permits nothing to anybody but administrators.

use std::sync::{Mutex, PoisonError};

use serde_json::{Map, Value};
use umbel_events::is_view;
use umbel_events::limits::ACL_BYTES_MAX;

use crate::limits::ACL_BYTES_KEPT;
use crate::users::{ADMINS, User};

/// Metadata with more bytes is read one at a time.
const LONG_BYTES: usize = 4 * ACL_BYTES_MAX;

/// The stream whose last event says what holds for streams that say nothing.
pub const SETTINGS: &str = "$settings";
/// What it says of streams of users, and of those that begin with `$`. Metadata names them, too.
const USERS_ACL: &str = "$userStreamAcl";
const SYSTEM_ACL: &str = "$systemStreamAcl";
/// What the name of a stream with the metadata of another begins with.
const METADATA: &str = "$$";

/// What somebody wants to do with a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Read it, or follow it.
    Read,
    /// Append to it.
    Write,
    /// Delete it, for a while or for good.
    Delete,
}

/// What there is to be permitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Right {
    Read,
    Write,
    Delete,
    ReadMetadata,
    WriteMetadata,
}

const RIGHTS: [(Right, &str); 5] = [
    (Right::Read, "$r"),
    (Right::Write, "$w"),
    (Right::Delete, "$d"),
    (Right::ReadMetadata, "$mr"),
    (Right::WriteMetadata, "$mw"),
];

/// To whom what is permitted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Acl {
    /// For each right users and groups, where something is said.
    named: [Option<Box<[Box<str>]>>; RIGHTS.len()],
    /// Whether what it says nothing of is as for system streams, whatever the stream's name.
    as_system: Option<bool>,
}

/// What holds where a stream says nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Defaults {
    users: Acl,
    system: Acl,
}

/// The stream and the right that somebody needs.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// The stream whose metadata says who may.
    pub subject: &'a str,
    right: Right,
    /// Whether only administrators may, whatever is said.
    is_guarded: bool,
}

impl<'a> Wanted<'a> {
    /// What is needed for this.
    pub fn new(action: Action, stream: &'a str) -> Wanted<'a> {
        let of_metadata = stream.strip_prefix(METADATA);
        let subject = of_metadata.unwrap_or(stream);
        let right = match (action, of_metadata) {
            (Action::Read, None) => Right::Read,
            (Action::Write, None) => Right::Write,
            (Action::Delete, None) => Right::Delete,
            (Action::Read, Some(_)) => Right::ReadMetadata,
            (Action::Write | Action::Delete, Some(_)) => Right::WriteMetadata,
        };
        let reads = matches!(right, Right::Read | Right::ReadMetadata);
        // Who writes these makes himself whoever he likes.
        let is_guarded = keeps_users(subject) || (says_who_may(subject) && !reads);
        Wanted { subject, right, is_guarded }
    }

    /// Whether this user may.
    pub fn is_permitted(&self, user: &User, acl: &Acl, defaults: &Defaults) -> bool {
        if user.is_in(ADMINS) {
            return true;
        }
        if self.is_guarded {
            return false;
        }
        let is_system = acl.as_system.unwrap_or_else(|| self.subject.starts_with('$'));
        let general = if is_system { &defaults.system } else { &defaults.users };
        let reads = matches!(self.right, Right::Read | Right::ReadMetadata);
        match acl.of(self.right) {
            Some(names) => names.iter().any(|name| user.is_called(name)),
            // A view shows what is in streams, which say themselves who may read them.
            None if is_view(self.subject) && reads => true,
            None => match general.of(self.right) {
                Some(names) => names.iter().any(|name| user.is_called(name)),
                None => !is_system,
            },
        }
    }
}

/// Whether the stream has users or their passwords.
fn keeps_users(stream: &str) -> bool {
    stream == "$users" || stream.starts_with("$user-") || stream.starts_with("$users-")
}

/// Whether the stream has a say in who may do what with others.
fn says_who_may(stream: &str) -> bool {
    stream == SETTINGS || stream == "$all" || stream.starts_with("$umbel-")
}

impl Acl {
    /// What the metadata of a stream says.
    pub fn of_metadata(data: &[u8]) -> Acl {
        // Long metadata takes many times its bytes while it is read.
        static TURN: Mutex<()> = Mutex::new(());
        let _turn =
            (data.len() > LONG_BYTES).then(|| TURN.lock().unwrap_or_else(PoisonError::into_inner));
        match serde_json::from_slice::<Map<String, Value>>(data) {
            Ok(object) => object.get("$acl").map_or_else(Acl::default, Acl::parse),
            Err(_) => Acl::closed(),
        }
    }

    fn parse(value: &Value) -> Acl {
        match value {
            Value::Null => Acl::default(),
            Value::Object(object) => {
                let named = RIGHTS.map(|(_, key)| object.get(key).and_then(names));
                Acl { named, as_system: None }
            }
            Value::String(general) => match &**general {
                USERS_ACL => Acl { as_system: Some(false), ..Acl::default() },
                SYSTEM_ACL => Acl { as_system: Some(true), ..Acl::default() },
                _ => Acl::closed(),
            },
            _ => Acl::closed(),
        }
    }

    /// Whether it is as short as nearly all are.
    pub fn is_short(&self) -> bool {
        let names = self.named.iter().flatten().flatten();
        names.map(|name| name.len() + size_of::<Box<str>>()).sum::<usize>() <= ACL_BYTES_KEPT
    }

    /// One by which only administrators may do anything.
    fn closed() -> Acl {
        Acl { named: RIGHTS.map(|_| Some(Box::default())), as_system: None }
    }

    fn of(&self, right: Right) -> Option<&[Box<str>]> {
        self.named[right as usize].as_deref()
    }
}

/// Users and groups as one text or a list of texts; nobody where it is neither.
fn names(value: &Value) -> Option<Box<[Box<str>]>> {
    let text = |value: &Value| value.as_str().map(Box::from);
    match value {
        Value::Null => None,
        Value::Array(values) => {
            let names: Option<Vec<Box<str>>> = values.iter().map(text).collect();
            Some(names.unwrap_or_default().into())
        }
        value => Some(text(value).into_iter().collect()),
    }
}

impl Defaults {
    /// What the last event of `$settings` says.
    pub fn of_settings(data: &[u8]) -> Defaults {
        let said = |object: &Map<String, Value>, key| {
            object.get(key).map_or_else(Acl::default, Acl::parse)
        };
        match serde_json::from_slice::<Map<String, Value>>(data) {
            Ok(object) => {
                Defaults { users: said(&object, USERS_ACL), system: said(&object, SYSTEM_ACL) }
            }
            Err(_) => Defaults { users: Acl::closed(), system: Acl::closed() },
        }
    }
}

/// What an ACL and what holds where it says nothing permit is what they say. For fuzzing only.
pub fn check(acl: &Acl, data: &[u8]) {
    let said = serde_json::from_slice::<Map<String, Value>>(data).ok();
    let own = said.as_ref().map(|said| said.get("$acl").unwrap_or(&Value::Null));
    for (right, key) in RIGHTS {
        // Said anew and without the words above.
        let named = match own {
            None => Some(Vec::new()),
            Some(Value::Null) => None,
            Some(Value::String(text)) if [USERS_ACL, SYSTEM_ACL].contains(&&**text) => None,
            Some(Value::Object(rights)) => match rights.get(key) {
                None | Some(Value::Null) => None,
                Some(Value::String(name)) => Some(vec![name.clone()]),
                Some(list) => Some(serde_json::from_value(list.clone()).unwrap_or_default()),
            },
            Some(_) => Some(Vec::new()),
        };
        let read: Option<Vec<String>> =
            acl.of(right).map(|names| names.iter().map(ToString::to_string).collect());
        assert_eq!(read, named, "{right:?}");
    }
    guards(acl, &Defaults::default());
}

/// What `$settings` says permits nobody what only administrators may. For fuzzing only.
pub fn check_defaults(settings: &[u8], metadata: &[u8]) {
    let (defaults, acl) = (Defaults::of_settings(settings), Acl::of_metadata(metadata));
    if serde_json::from_slice::<Map<String, Value>>(settings).is_err() {
        let user = User::with_login("ada");
        let wanted = Wanted::new(Action::Read, "cart");
        assert!(!wanted.is_permitted(&user, &Acl::default(), &defaults), "it is no JSON");
    }
    guards(&acl, &defaults);
}

fn guards(acl: &Acl, defaults: &Defaults) {
    let user = User::with_login("ada");
    for action in [Action::Read, Action::Write, Action::Delete] {
        for stream in ["$user-ada", "$$$user-ada", "$users", "$users-x"] {
            assert!(!Wanted::new(action, stream).is_permitted(&user, acl, defaults), "{stream}");
        }
    }
    for stream in [SETTINGS, "$$$settings", "$$$all", "$umbel-views"] {
        let wanted = Wanted::new(Action::Write, stream);
        assert!(!wanted.is_permitted(&user, acl, defaults), "{stream}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACTIONS: [Action; 3] = [Action::Read, Action::Write, Action::Delete];

    fn user(groups: &[&str]) -> User {
        User::with_groups("ada", groups)
    }

    fn may(user: &User, action: Action, stream: &str, metadata: &str, settings: &str) -> bool {
        let acl = Acl::of_metadata(metadata.as_bytes());
        let defaults = Defaults::of_settings(settings.as_bytes());
        Wanted::new(action, stream).is_permitted(user, &acl, &defaults)
    }

    #[test]
    fn without_a_word_users_have_their_streams_and_administrators_all() {
        for action in ACTIONS {
            for stream in ["cart", "$$cart"] {
                assert!(may(&user(&[]), action, stream, "{}", "{}"));
            }
            for stream in ["$all", "$settings", "$$$settings", "$user-ada", "$x", "$$$x"] {
                assert!(!may(&user(&["$ops"]), action, stream, "{}", "{}"), "{stream}");
                assert!(may(&user(&["$admins"]), action, stream, "{}", "{}"), "{stream}");
            }
        }
        for view in ["$ce-cart", "$et-Opened", "$streams", "$$$ce-cart"] {
            assert!(may(&user(&[]), Action::Read, view, "{}", "{}"));
            assert!(!may(&user(&[]), Action::Write, view, "{}", "{}"));
        }
    }

    #[test]
    fn an_acl_names_users_or_groups_alone_or_in_a_list() {
        for (metadata, wanted) in [
            (r#"{"$acl":{"$r":"ada"}}"#, true),
            (r#"{"$acl":{"$r":["bob","ada"]}}"#, true),
            (r#"{"$acl":{"$r":"readers"}}"#, true),
            (r#"{"$acl":{"$r":"$all"}}"#, true),
            (r#"{"$acl":{"$r":null}}"#, true),
            (r#"{"$acl":{"$w":[]}}"#, true),
            (r#"{"$acl":{"$r":"bob"}}"#, false),
            (r#"{"$acl":{"$r":["Ada"]}}"#, false),
            (r#"{"$acl":{"$r":[]}}"#, false),
            (r#"{"$acl":{"$r":""}}"#, false),
            (r#"{"$acl":{"$r":7}}"#, false),
            (r#"{"$acl":{"$r":["ada",7]}}"#, false),
            (r#"{"$acl":[]}"#, false),
            ("no json", false),
        ] {
            let ada = user(&["readers"]);
            assert_eq!(may(&ada, Action::Read, "cart", metadata, "{}"), wanted, "{metadata}");
            assert!(may(&user(&["$admins"]), Action::Read, "cart", metadata, "{}"));
        }
        let each = r#"{"$acl":{"$r":[],"$w":"ada","$d":[],"$mr":"ada","$mw":[]}}"#;
        for (action, stream, wanted) in [
            (Action::Read, "cart", false),
            (Action::Write, "cart", true),
            (Action::Delete, "cart", false),
            (Action::Read, "$$cart", true),
            (Action::Write, "$$cart", false),
            (Action::Delete, "$$cart", false),
        ] {
            assert_eq!(may(&user(&[]), action, stream, each, "{}"), wanted, "{action:?} {stream}");
        }
    }

    #[test]
    fn settings_hold_where_a_stream_says_nothing() {
        let settings = r#"{"$userStreamAcl":{"$r":"readers","$w":[]},
            "$systemStreamAcl":{"$r":"$all"}}"#;
        let (ada, reader) = (user(&[]), user(&["readers"]));
        assert!(!may(&ada, Action::Read, "cart", "{}", settings));
        assert!(may(&reader, Action::Read, "cart", "{}", settings));
        assert!(!may(&reader, Action::Write, "cart", "{}", settings));
        assert!(may(&reader, Action::Delete, "cart", "{}", settings), "of that it says nothing");
        assert!(may(&ada, Action::Read, "cart", r#"{"$acl":{"$r":"ada"}}"#, settings));
        assert!(may(&ada, Action::Read, "$x", "{}", settings));
        assert!(!may(&ada, Action::Write, "$x", "{}", settings));
        for broken in ["", "[]", r#"{"$userStreamAcl":7}"#] {
            assert!(!may(&ada, Action::Read, "cart", "{}", broken), "{broken}");
        }
    }

    /// Clients write the name of what holds in general in place of an ACL.
    #[test]
    fn an_acl_may_name_what_holds_in_general() {
        let settings = r#"{"$systemStreamAcl":{"$w":"readers"}}"#;
        let (users, system) = (r#"{"$acl":"$userStreamAcl"}"#, r#"{"$acl":"$systemStreamAcl"}"#);
        for stream in ["cart", "$x"] {
            for (metadata, group, wanted) in [
                (users, "readers", true),
                (users, "others", true),
                (system, "readers", true),
                (system, "others", false),
            ] {
                let ada = user(&[group]);
                assert_eq!(may(&ada, Action::Write, stream, metadata, settings), wanted);
            }
        }
        assert!(!may(&user(&[]), Action::Read, "cart", r#"{"$acl":"ada"}"#, "{}"));
    }

    /// Whoever could write a user could make himself an administrator.
    #[test]
    fn nobody_is_let_to_users_and_rules_but_administrators() {
        let open = r#"{"$acl":{"$r":"$all","$w":"$all","$d":"$all","$mr":"$all","$mw":"$all"}}"#;
        let settings = r#"{"$systemStreamAcl":{"$r":"$all","$w":"$all","$mw":"$all"}}"#;
        for stream in ["$user-admin", "$$$user-admin", "$users", "$$$users"] {
            for action in ACTIONS {
                assert!(!may(&user(&["$ops"]), action, stream, open, settings), "{stream}");
            }
        }
        for stream in ["$settings", "$$$settings", "$$$all", "$umbel-views"] {
            assert!(may(&user(&[]), Action::Read, stream, open, settings), "{stream}");
            assert!(!may(&user(&[]), Action::Write, stream, open, settings), "{stream}");
        }
        assert!(may(&user(&[]), Action::Read, "$all", open, settings));
    }
}

//! [`Acl`]: the permissions on a stream, from its metadata and `$settings`, and the defaults for
//! rights that neither mentions.
//!
//! A malformed ACL permits access only to administrators.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use umbel_events::{is_view, read_json_keys};

use crate::access_control::name_list::NameList;
use crate::access_control::users::{ADMINS_GROUP, User};

/// The stream whose last event holds the default ACLs of all streams.
pub const SETTINGS: &str = "$settings";
/// Keys of the default ACLs of user streams and of streams that begin with `$`. A stream's metadata
/// can name these keys instead of an ACL.
const USERS_ACL: &str = "$userStreamAcl";
const SYSTEM_ACL: &str = "$systemStreamAcl";
/// Name prefix of the views of events whose type begins with `$`.
const SYSTEM_TYPE_VIEW_PREFIX: &str = "$et-$";
/// Name prefix of a metadata stream.
const METADATA_PREFIX: &str = "$$";

/// An access to a stream that a caller requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamAction {
    /// Read the stream, or subscribe to it.
    Read,
    /// Append to the stream.
    Write,
    /// Delete or tombstone the stream.
    Delete,
}

/// The rights that an ACL grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AclRight {
    Read,
    Write,
    Delete,
    ReadMetadata,
    WriteMetadata,
}

const RIGHTS: [(AclRight, &str); 5] = [
    (AclRight::Read, "$r"),
    (AclRight::Write, "$w"),
    (AclRight::Delete, "$d"),
    (AclRight::ReadMetadata, "$mr"),
    (AclRight::WriteMetadata, "$mw"),
];

/// The users and groups that have each right.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Acl {
    /// Users and groups with each right; `None` if the ACL does not mention the right.
    grants: [Option<NameList>; RIGHTS.len()],
    /// Whether missing rights follow the defaults of system streams, whatever the stream's name.
    uses_system_default: Option<bool>,
}

/// The ACLs that apply to rights which a stream's own ACL does not mention.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DefaultAcls {
    users: Acl,
    system: Acl,
}

/// The stream and the right that a caller needs.
#[derive(Debug, Clone, Copy)]
pub struct AccessRequest<'a> {
    /// The stream whose metadata grants the right.
    pub governing_stream: &'a str,
    right: AclRight,
    /// Whether only administrators have access, whatever the ACLs grant.
    is_admin_only: bool,
}

impl<'a> AccessRequest<'a> {
    /// Whether only administrators have access.
    #[cfg(test)]
    pub fn is_admin_only(&self) -> bool {
        self.is_admin_only
    }

    /// A sentence with the users that have the requested right.
    pub fn requirement(&self) -> String {
        if self.is_admin_only {
            return "this stream requires a user in $admins".to_string();
        }
        let right = match self.right {
            AclRight::Read => "read the stream",
            AclRight::Write => "append to the stream",
            AclRight::Delete => "delete the stream",
            AclRight::ReadMetadata => "read the metadata of the stream",
            AclRight::WriteMetadata => "change the metadata of the stream",
        };
        let users = match self.governing_stream.starts_with('$') {
            true => "a system stream requires a user in $admins, unless an ACL names others",
            false => "connect as a user that the ACL of the stream names, or as one in $admins",
        };
        format!("the user may not {right}; {users}")
    }

    /// Returns the stream and the right that this action needs.
    pub fn new(action: StreamAction, stream: &'a str) -> AccessRequest<'a> {
        let of_metadata = stream.strip_prefix(METADATA_PREFIX);
        let subject = of_metadata.unwrap_or(stream);
        let right = match (action, of_metadata) {
            (StreamAction::Read, None) => AclRight::Read,
            (StreamAction::Write, None) => AclRight::Write,
            (StreamAction::Delete, None) => AclRight::Delete,
            (StreamAction::Read, Some(_)) => AclRight::ReadMetadata,
            (StreamAction::Write | StreamAction::Delete, Some(_)) => AclRight::WriteMetadata,
        };
        let reads = matches!(right, AclRight::Read | AclRight::ReadMetadata);
        // A user with write access to these streams could become any other user.
        let is_guarded = holds_credentials(subject) || (holds_permissions(subject) && !reads);
        AccessRequest { governing_stream: subject, right, is_admin_only: is_guarded }
    }

    /// Whether this user has the requested right.
    pub fn is_permitted(&self, user: &User, acl: &Acl, defaults: &DefaultAcls) -> bool {
        if user.is_in(ADMINS_GROUP) {
            return true;
        }
        if self.is_admin_only {
            return false;
        }
        let is_system =
            acl.uses_system_default.unwrap_or_else(|| self.governing_stream.starts_with('$'));
        let general = if is_system { &defaults.system } else { &defaults.users };
        let reads = matches!(self.right, AclRight::Read | AclRight::ReadMetadata);
        match acl.grants_for(self.right) {
            Some(names) => user.matches_any(names),
            // A view shows events of streams whose own ACLs control reads.
            None if is_open_view(self.governing_stream) && reads => true,
            None => match general.grants_for(self.right) {
                Some(names) => user.matches_any(names),
                None => !is_system,
            },
        }
    }
}

/// Whether the stream is a view of events of any streams. Events of a type that begins with `$` are
/// in streams of the system, so their views have the default of such streams.
fn is_open_view(stream: &str) -> bool {
    is_view(stream) && !stream.starts_with(SYSTEM_TYPE_VIEW_PREFIX)
}

/// Whether the stream holds users with their passwords.
fn holds_credentials(stream: &str) -> bool {
    stream == "$users" || stream.starts_with("$user-") || stream.starts_with("$users-")
}

/// Whether the stream controls access to other streams.
fn holds_permissions(stream: &str) -> bool {
    // Also of streams that replace it.
    let is_settings =
        stream.strip_prefix(SETTINGS).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    is_settings || stream == "$all" || stream.starts_with("$umbel-")
}

impl Acl {
    /// Parses the ACL in a stream's metadata.
    pub fn from_metadata(data: &[u8]) -> Acl {
        match read_json_keys(data, ["$acl"]) {
            Ok([acl]) => acl.map_or_else(Acl::default, Acl::parse),
            Err(_) => Acl::admin_only(),
        }
    }

    /// Parses JSON that stands for an ACL.
    fn parse(json: &str) -> Acl {
        if json == "null" {
            return Acl::default();
        }
        if json.starts_with('{') {
            let Ok(names) = read_json_keys(json.as_bytes(), RIGHTS.map(|(_, key)| key)) else {
                return Acl::admin_only();
            };
            let grants = names.map(|names| names.and_then(parse_names));
            return Acl { grants, uses_system_default: None };
        }
        match serde_json::from_str::<String>(json).as_deref() {
            Ok(USERS_ACL) => Acl { uses_system_default: Some(false), ..Acl::default() },
            Ok(SYSTEM_ACL) => Acl { uses_system_default: Some(true), ..Acl::default() },
            _ => Acl::admin_only(),
        }
    }

    /// Bytes of memory that its names take.
    pub fn bytes(&self) -> usize {
        self.grants.iter().flatten().map(NameList::bytes).sum()
    }

    /// An ACL that permits access only to administrators.
    fn admin_only() -> Acl {
        Acl { grants: RIGHTS.map(|_| Some(NameList::default())), uses_system_default: None }
    }

    fn grants_for(&self, right: AclRight) -> Option<&NameList> {
        self.grants[right as usize].as_ref()
    }
}

/// Users and groups from a JSON string or a list of strings; no names for any other value.
fn parse_names(json: &str) -> Option<NameList> {
    if json == "null" {
        return None;
    }
    if json.starts_with('[') {
        return Some(NameList::from_json_list(json));
    }
    let name = serde_json::from_str::<String>(json);
    Some(name.iter().map(String::as_str).collect())
}

impl DefaultAcls {
    /// Parses the last event of `$settings`.
    pub fn from_settings(data: &[u8]) -> DefaultAcls {
        match read_json_keys(data, [USERS_ACL, SYSTEM_ACL]) {
            Ok(acls) => {
                let [users, system] = acls.map(|acl| acl.map_or_else(Acl::default, Acl::parse));
                DefaultAcls { users, system }
            }
            Err(_) => DefaultAcls { users: Acl::admin_only(), system: Acl::admin_only() },
        }
    }

    /// Bytes of memory that the names take.
    pub fn bytes(&self) -> usize {
        self.users.bytes() + self.system.bytes()
    }
}

/// Checks that an ACL and the defaults permit exactly what they declare. For fuzzing only.
pub fn check(acl: &Acl, data: &[u8]) {
    let acl_of = serde_json::from_slice::<Map<String, Value>>(data).ok();
    let own = acl_of.as_ref().map(|acl_of| acl_of.get("$acl").unwrap_or(&Value::Null));
    for (right, key) in RIGHTS {
        // Computed again without the code above.
        let named = match own {
            None => Some(Vec::new()),
            Some(Value::Null) => None,
            Some(Value::String(text)) if [USERS_ACL, SYSTEM_ACL].contains(&&**text) => None,
            Some(Value::Object(rights)) => match rights.get(key) {
                None | Some(Value::Null) => None,
                Some(Value::String(name)) => Some(vec![name.clone()]),
                Some(list) => {
                    let names = serde_json::from_value::<BTreeSet<String>>(list.clone());
                    Some(names.unwrap_or_default().into_iter().collect())
                }
            },
            Some(_) => Some(Vec::new()),
        };
        let read: Option<Vec<String>> =
            acl.grants_for(right).map(|names| names.iter().map(str::to_string).collect());
        assert_eq!(read, named, "{right:?}");
    }
    assert_guarded(acl, &DefaultAcls::default());
}

/// Checks that `$settings` grants no user a right reserved for administrators. For fuzzing only.
pub fn check_defaults(settings: &[u8], metadata: &[u8]) {
    let (defaults, acl) = (DefaultAcls::from_settings(settings), Acl::from_metadata(metadata));
    if serde_json::from_slice::<Map<String, Value>>(settings).is_err() {
        let user = User::with_login("ada");
        let wanted = AccessRequest::new(StreamAction::Read, "cart");
        assert!(!wanted.is_permitted(&user, &Acl::default(), &defaults), "it is no JSON");
    }
    assert_guarded(&acl, &defaults);
}

fn assert_guarded(acl: &Acl, defaults: &DefaultAcls) {
    let user = User::with_login("ada");
    for action in [StreamAction::Read, StreamAction::Write, StreamAction::Delete] {
        for stream in ["$user-ada", "$$$user-ada", "$users", "$users-x"] {
            assert!(
                !AccessRequest::new(action, stream).is_permitted(&user, acl, defaults),
                "{stream}"
            );
        }
    }
    for stream in [SETTINGS, "$$$settings", "$$$all", "$umbel-views"] {
        let wanted = AccessRequest::new(StreamAction::Write, stream);
        assert!(!wanted.is_permitted(&user, acl, defaults), "{stream}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ACTIONS: [StreamAction; 3] =
        [StreamAction::Read, StreamAction::Write, StreamAction::Delete];

    fn user(groups: &[&str]) -> User {
        User::with_groups("ada", groups)
    }

    fn may(
        user: &User,
        action: StreamAction,
        stream: &str,
        metadata: &str,
        settings: &str,
    ) -> bool {
        let acl = Acl::from_metadata(metadata.as_bytes());
        let defaults = DefaultAcls::from_settings(settings.as_bytes());
        AccessRequest::new(action, stream).is_permitted(user, &acl, &defaults)
    }

    #[test]
    fn default_acls_permit_user_streams_and_admins_everything() {
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
            assert!(may(&user(&[]), StreamAction::Read, view, "{}", "{}"));
            assert!(!may(&user(&[]), StreamAction::Write, view, "{}", "{}"));
        }
    }

    #[test]
    fn acl_role_is_a_name_or_a_list_of_names() {
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
            assert_eq!(may(&ada, StreamAction::Read, "cart", metadata, "{}"), wanted, "{metadata}");
            assert!(may(&user(&["$admins"]), StreamAction::Read, "cart", metadata, "{}"));
        }
        let each = r#"{"$acl":{"$r":[],"$w":"ada","$d":[],"$mr":"ada","$mw":[]}}"#;
        for (action, stream, wanted) in [
            (StreamAction::Read, "cart", false),
            (StreamAction::Write, "cart", true),
            (StreamAction::Delete, "cart", false),
            (StreamAction::Read, "$$cart", true),
            (StreamAction::Write, "$$cart", false),
            (StreamAction::Delete, "$$cart", false),
        ] {
            assert_eq!(may(&user(&[]), action, stream, each, "{}"), wanted, "{action:?} {stream}");
        }
    }

    #[test]
    fn default_acl_settings_apply_without_a_stream_acl() {
        let settings = r#"{"$userStreamAcl":{"$r":"readers","$w":[]},
            "$systemStreamAcl":{"$r":"$all"}}"#;
        let (ada, reader) = (user(&[]), user(&["readers"]));
        assert!(!may(&ada, StreamAction::Read, "cart", "{}", settings));
        assert!(may(&reader, StreamAction::Read, "cart", "{}", settings));
        assert!(!may(&reader, StreamAction::Write, "cart", "{}", settings));
        assert!(
            may(&reader, StreamAction::Delete, "cart", "{}", settings),
            "that ACL has no such role"
        );
        assert!(may(&ada, StreamAction::Read, "cart", r#"{"$acl":{"$r":"ada"}}"#, settings));
        assert!(may(&ada, StreamAction::Read, "$x", "{}", settings));
        assert!(!may(&ada, StreamAction::Write, "$x", "{}", settings));
        for broken in ["", "[]", r#"{"$userStreamAcl":7}"#] {
            assert!(!may(&ada, StreamAction::Read, "cart", "{}", broken), "{broken}");
        }
    }

    /// A stream's metadata can have the name of a default ACL in place of an ACL, as clients write
    /// it.
    #[test]
    fn acl_may_reference_a_default_acl() {
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
                assert_eq!(may(&ada, StreamAction::Write, stream, metadata, settings), wanted);
            }
        }
        assert!(!may(&user(&[]), StreamAction::Read, "cart", r#"{"$acl":"ada"}"#, "{}"));
    }

    /// A user with write access to user streams could become an administrator.
    #[test]
    fn user_and_settings_streams_are_writable_by_admins_only() {
        let open = r#"{"$acl":{"$r":"$all","$w":"$all","$d":"$all","$mr":"$all","$mw":"$all"}}"#;
        let settings = r#"{"$systemStreamAcl":{"$r":"$all","$w":"$all","$mw":"$all"}}"#;
        for stream in ["$user-admin", "$$$user-admin", "$users", "$$$users"] {
            for action in ACTIONS {
                assert!(!may(&user(&["$ops"]), action, stream, open, settings), "{stream}");
            }
        }
        for stream in ["$settings", "$$$settings", "$$$all", "$umbel-views"] {
            assert!(may(&user(&[]), StreamAction::Read, stream, open, settings), "{stream}");
            assert!(!may(&user(&[]), StreamAction::Write, stream, open, settings), "{stream}");
        }
        assert!(may(&user(&[]), StreamAction::Read, "$all", open, settings));
    }
}

//! [`required_role`]: the role that a call requires. A path that is not in the table requires an
//! administrator. [`requires_leader`]: whether only the leader of a replicated log serves a call.

/// The role that a call requires of its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequiredRole {
    /// No role; credentials are not checked.
    Public,
    /// Any user.
    User,
    /// A user; the call checks every stream with
    /// [`Authorizer::authorize`](crate::auth::authorization::Authorizer::authorize).
    StreamAcl,
    /// An operator: a user in `$ops` or `$admins`.
    Operator,
    /// A user in `$admins`.
    Admin,
}

impl RequiredRole {
    /// A sentence with the users that have the role.
    pub fn requirement(self) -> &'static str {
        match self {
            RequiredRole::Public => "the call requires no user",
            RequiredRole::User | RequiredRole::StreamAcl => "the call requires a user",
            RequiredRole::Operator => "the call requires a user in $ops or $admins",
            RequiredRole::Admin => "the call requires a user in $admins",
        }
    }
}

/// The required role of each call, by service.
const TABLE: &[(&str, &[(&str, RequiredRole)])] = &[
    (
        "/event_store.client.streams.Streams/",
        &[
            ("Read", RequiredRole::StreamAcl),
            ("Append", RequiredRole::StreamAcl),
            ("BatchAppend", RequiredRole::StreamAcl),
            ("Delete", RequiredRole::StreamAcl),
            ("Tombstone", RequiredRole::StreamAcl),
        ],
    ),
    (
        "/kurrentdb.protocol.v2.streams.StreamsService/",
        &[("AppendSession", RequiredRole::StreamAcl), ("AppendRecords", RequiredRole::StreamAcl)],
    ),
    (
        "/event_store.client.persistent_subscriptions.PersistentSubscriptions/",
        &[
            ("Create", RequiredRole::Operator),
            ("Update", RequiredRole::Operator),
            ("Delete", RequiredRole::Operator),
            ("ReplayParked", RequiredRole::Operator),
            ("TruncateParked", RequiredRole::Operator),
            ("RestartSubsystem", RequiredRole::Operator),
            ("GetInfo", RequiredRole::User),
            ("List", RequiredRole::User),
            ("Read", RequiredRole::StreamAcl),
        ],
    ),
    (
        "/event_store.client.projections.Projections/",
        &[
            ("Create", RequiredRole::Operator),
            ("Update", RequiredRole::Operator),
            ("Delete", RequiredRole::Operator),
            ("Disable", RequiredRole::Operator),
            ("Enable", RequiredRole::Operator),
            ("Reset", RequiredRole::Operator),
            ("RestartSubsystem", RequiredRole::Operator),
            ("Statistics", RequiredRole::User),
            ("State", RequiredRole::User),
            ("Result", RequiredRole::User),
        ],
    ),
    (
        "/event_store.client.operations.Operations/",
        &[
            ("StartScavenge", RequiredRole::Operator),
            ("StopScavenge", RequiredRole::Operator),
            ("Shutdown", RequiredRole::Operator),
            ("MergeIndexes", RequiredRole::Operator),
            ("ResignNode", RequiredRole::Operator),
            ("SetNodePriority", RequiredRole::Operator),
            ("RestartPersistentSubscriptions", RequiredRole::Operator),
        ],
    ),
    (
        "/event_store.client.users.Users/",
        &[
            ("Create", RequiredRole::Admin),
            ("Update", RequiredRole::Admin),
            ("Delete", RequiredRole::Admin),
            ("Disable", RequiredRole::Admin),
            ("Enable", RequiredRole::Admin),
            ("ResetPassword", RequiredRole::Admin),
            // Users may view and change themselves, which the calls check; other users require
            // `$admins`.
            ("Details", RequiredRole::User),
            ("ChangePassword", RequiredRole::User),
        ],
    ),
    ("/event_store.client.monitoring.Monitoring/", &[("Stats", RequiredRole::User)]),
    (
        "/umbel.kv.v1.KeyValue/",
        &[
            ("Get", RequiredRole::Operator),
            ("MultiGet", RequiredRole::Operator),
            ("Put", RequiredRole::Operator),
            ("Delete", RequiredRole::Operator),
            ("Batch", RequiredRole::Operator),
            ("Scan", RequiredRole::Operator),
            ("Watch", RequiredRole::Operator),
            ("ListKeyspaces", RequiredRole::Operator),
            ("CreateKeyspace", RequiredRole::Operator),
            ("DropKeyspace", RequiredRole::Operator),
        ],
    ),
    // The descriptors are public, but each call costs the server a task.
    ("/grpc.reflection.v1.ServerReflection/", &[("ServerReflectionInfo", RequiredRole::User)]),
    ("/grpc.reflection.v1alpha.ServerReflection/", &[("ServerReflectionInfo", RequiredRole::User)]),
    (
        "/console/api/",
        &[
            ("overview", RequiredRole::User),
            ("history", RequiredRole::User),
            ("streams", RequiredRole::User),
            ("views", RequiredRole::User),
            ("stream", RequiredRole::StreamAcl),
            ("all", RequiredRole::StreamAcl),
            ("tail", RequiredRole::StreamAcl),
            ("search", RequiredRole::StreamAcl),
            ("download", RequiredRole::StreamAcl),
            ("group", RequiredRole::User),
            ("groups", RequiredRole::User),
            ("levels", RequiredRole::User),
            ("advice", RequiredRole::User),
            ("users", RequiredRole::Admin),
            ("append", RequiredRole::StreamAcl),
            ("replay", RequiredRole::Operator),
            ("change-group", RequiredRole::Operator),
            ("scavenge", RequiredRole::Operator),
            ("stop-scavenge", RequiredRole::Operator),
            ("redact", RequiredRole::Operator),
            ("backup", RequiredRole::Operator),
            ("stop-backup", RequiredRole::Operator),
            ("work", RequiredRole::User),
            ("auto-scavenge", RequiredRole::Operator),
            ("user", RequiredRole::Admin),
            ("password", RequiredRole::User),
        ],
    ),
    // Calls that clients make before they send credentials.
    (
        "/event_store.client.server_features.ServerFeatures/",
        &[("GetSupportedMethods", RequiredRole::Public)],
    ),
    ("/event_store.client.gossip.Gossip/", &[("Read", RequiredRole::Public)]),
    ("/admin/", &[("promote", RequiredRole::Operator)]),
    (
        "/",
        &[
            ("", RequiredRole::Public),
            ("console", RequiredRole::Public),
            ("console/", RequiredRole::User),
            ("console/console.css", RequiredRole::User),
            ("console/console.js", RequiredRole::User),
            ("console/event.js", RequiredRole::User),
            ("console/groups.js", RequiredRole::User),
            ("console/live.js", RequiredRole::User),
            ("console/overview.js", RequiredRole::User),
            ("console/page.js", RequiredRole::User),
            ("console/search.js", RequiredRole::User),
            ("console/store.js", RequiredRole::User),
            ("console/streams.js", RequiredRole::User),
            ("console/users.js", RequiredRole::User),
            ("console/uplot.js", RequiredRole::User),
            ("console/views.js", RequiredRole::User),
            ("console/work.js", RequiredRole::User),
            ("health/live", RequiredRole::Public),
            ("health/ready", RequiredRole::Public),
            ("ping", RequiredRole::Public),
            ("info", RequiredRole::Public),
            ("gossip", RequiredRole::Public),
            ("openapi.json", RequiredRole::Public),
            ("auto-scavenge/enabled", RequiredRole::User),
            ("auto-scavenge/status", RequiredRole::User),
            ("stats", RequiredRole::User),
            ("metrics", RequiredRole::User),
        ],
    ),
];

/// The role that a call with this path requires.
pub fn required_role(path: &str) -> RequiredRole {
    find_role(path).unwrap_or(RequiredRole::Admin)
}

/// Whether the path is in the table. Clients can send any number of other paths.
pub fn is_listed(path: &str) -> bool {
    find_role(path).is_some()
}

/// Services all of whose calls only the leader serves. A consumer group has one place.
const SERVICES_OF_LEADERS: [&str; 2] = [
    "/kurrentdb.protocol.v2.streams.StreamsService/",
    "/event_store.client.persistent_subscriptions.PersistentSubscriptions/",
];
/// Other calls that only the leader serves, since they write, or start work that writes.
const CALLS_OF_LEADERS: [(&str, &[&str]); 5] = [
    ("/event_store.client.streams.Streams/", &["Append", "BatchAppend", "Delete", "Tombstone"]),
    (
        "/event_store.client.projections.Projections/",
        &["Create", "Update", "Delete", "Disable", "Enable", "Reset"],
    ),
    (
        "/event_store.client.operations.Operations/",
        &["StartScavenge", "RestartPersistentSubscriptions"],
    ),
    (
        "/event_store.client.users.Users/",
        &["Create", "Update", "Delete", "Disable", "Enable", "ResetPassword", "ChangePassword"],
    ),
    (
        "/console/api/",
        &[
            "append",
            "replay",
            "change-group",
            "scavenge",
            "redact",
            "backup",
            "auto-scavenge",
            "user",
            "password",
        ],
    ),
];

/// Whether only the leader of a replicated log serves a call with this path. Requests over HTTP
/// that only read are served by every node, although their paths require the same role.
pub fn requires_leader(path: &str) -> bool {
    let is_listed = |(service, calls): &(&str, &[&str])| {
        path.strip_prefix(service).is_some_and(|name| calls.contains(&name))
    };
    SERVICES_OF_LEADERS.iter().any(|service| path.starts_with(service))
        || CALLS_OF_LEADERS.iter().any(is_listed)
}

fn find_role(path: &str) -> Option<RequiredRole> {
    TABLE.iter().find_map(|(service, calls)| {
        let name = path.strip_prefix(service)?;
        calls.iter().find(|(call, _)| *call == name).map(|(_, need)| *need)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use prost::Message;
    use prost_types::FileDescriptorSet;

    use super::*;
    use crate::http::console::API_PREFIX;
    use crate::http::console::{console_actions, console_data};
    use crate::services::server_features::supported_methods;

    /// Reflection describes what clients can call, so the protocol definitions must have exactly
    /// the calls of the table.
    #[test]
    fn the_definitions_have_the_calls_of_the_table() {
        let set = FileDescriptorSet::decode(umbel_proto::DESCRIPTORS).unwrap();
        let services = set
            .file
            .iter()
            .flat_map(|file| file.service.iter().map(move |service| (file.package(), service)));
        let defined: BTreeSet<String> = services
            .flat_map(|(package, service)| {
                let path = move |call: &str| format!("/{package}.{}/{call}", service.name());
                service.method.iter().map(move |call| path(call.name()))
            })
            .collect();
        let is_ours = |service: &str| service.contains('.') && !service.contains("reflection");
        let listed =
            TABLE.iter().filter(|(service, _)| is_ours(service)).flat_map(|(service, calls)| {
                calls.iter().map(move |(call, _)| format!("{service}{call}"))
            });
        assert_eq!(defined, listed.collect());
    }

    #[test]
    fn every_served_call_has_a_policy_row() {
        let rows: Vec<String> = TABLE
            .iter()
            .flat_map(|(service, calls)| {
                calls.iter().map(move |(call, _)| format!("{service}{call}"))
            })
            .map(|path| path.to_ascii_lowercase())
            .collect();
        for method in supported_methods().methods {
            let path = format!("/{}/{}", method.service_name, method.method_name);
            assert!(rows.contains(&path), "{path} has no row: add its policy");
        }
        let of_console = console_data::DATA_PATHS.iter().chain(&console_actions::ACTIONS);
        for name in of_console {
            let row = format!("{API_PREFIX}{name}");
            assert!(rows.contains(&row), "{row} has no row");
        }
        for call in crate::services::kv::CALLS {
            let path = format!("/{}/{call}", umbel_proto::kv::SERVICE);
            assert_eq!(required_role(&path), RequiredRole::Operator, "{path}");
            assert!(rows.contains(&path.to_ascii_lowercase()), "{path} has no row");
        }
        for path in crate::http::console::static_paths().chain(crate::http::PATHS) {
            assert!(rows.iter().any(|row| row == path), "{path} has no row");
        }
    }

    #[test]
    fn calls_of_leaders_are_served_calls_that_write() {
        for (service, calls) in CALLS_OF_LEADERS {
            for call in calls {
                assert!(is_listed(&format!("{service}{call}")), "{service}{call}");
            }
        }
        let group = "/event_store.client.persistent_subscriptions.PersistentSubscriptions/Read";
        for path in [group, "/event_store.client.streams.Streams/Append", "/console/api/append"] {
            assert!(requires_leader(path), "{path}");
        }
        for path in [
            "/event_store.client.streams.Streams/Read",
            "/event_store.client.gossip.Gossip/Read",
            "/event_store.client.operations.Operations/Shutdown",
            "/admin/promote",
            "/stats",
        ] {
            assert!(is_listed(path) && !requires_leader(path), "{path}");
        }
    }

    #[test]
    fn calls_without_a_row_require_an_admin() {
        for path in [
            "",
            "/new",
            "/console/new",
            "/console/api/new",
            "/event_store.client.streams.Streams/New",
            "/health/live/",
        ] {
            assert_eq!(required_role(path), RequiredRole::Admin, "{path}");
        }
        assert_eq!(required_role("/health/live"), RequiredRole::Public);
        assert_eq!(
            required_role("/event_store.client.streams.Streams/Read"),
            RequiredRole::StreamAcl
        );
    }
}

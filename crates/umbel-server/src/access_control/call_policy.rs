//! [`need`]: what somebody must be to make a call at all. A path that is not in the table is for
//! administrators.

/// What somebody must be to make a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Anybody; nobody looks at what he says of himself.
    Nothing,
    /// A user, whichever.
    User,
    /// A user. The call asks [`Access::check`](crate::access::Access::check) for every stream.
    Stream,
    /// A user who looks after the server: in `$ops` or `$admins`.
    Operator,
    /// A user in `$admins`.
    Admin,
}

/// Services whose calls all need the same, and where they do not, the calls.
const TABLE: &[(&str, &[(&str, Need)])] = &[
    (
        "/event_store.client.streams.Streams/",
        &[
            ("Read", Need::Stream),
            ("Append", Need::Stream),
            ("BatchAppend", Need::Stream),
            ("Delete", Need::Stream),
            ("Tombstone", Need::Stream),
        ],
    ),
    (
        "/kurrentdb.protocol.v2.streams.StreamsService/",
        &[("AppendSession", Need::Stream), ("AppendRecords", Need::Stream)],
    ),
    (
        "/event_store.client.persistent_subscriptions.PersistentSubscriptions/",
        &[
            ("Create", Need::Operator),
            ("Update", Need::Operator),
            ("Delete", Need::Operator),
            ("ReplayParked", Need::Operator),
            ("RestartSubsystem", Need::Operator),
            ("GetInfo", Need::User),
            ("List", Need::User),
            ("Read", Need::Stream),
        ],
    ),
    (
        "/event_store.client.projections.Projections/",
        &[
            ("Create", Need::Operator),
            ("Update", Need::Operator),
            ("Delete", Need::Operator),
            ("Disable", Need::Operator),
            ("Enable", Need::Operator),
            ("Reset", Need::Operator),
            ("RestartSubsystem", Need::Operator),
            ("Statistics", Need::User),
            ("State", Need::User),
            ("Result", Need::User),
        ],
    ),
    (
        "/event_store.client.operations.Operations/",
        &[
            ("StartScavenge", Need::Operator),
            ("StopScavenge", Need::Operator),
            ("Shutdown", Need::Operator),
            ("MergeIndexes", Need::Operator),
            ("ResignNode", Need::Operator),
            ("SetNodePriority", Need::Operator),
            ("RestartPersistentSubscriptions", Need::Operator),
        ],
    ),
    (
        "/event_store.client.users.Users/",
        &[
            ("Create", Need::Admin),
            ("Update", Need::Admin),
            ("Delete", Need::Admin),
            ("Disable", Need::Admin),
            ("Enable", Need::Admin),
            ("ResetPassword", Need::Admin),
            // Of himself, which the calls look at; of others, administrators only.
            ("Details", Need::User),
            ("ChangePassword", Need::User),
        ],
    ),
    ("/event_store.client.monitoring.Monitoring/", &[("Stats", Need::User)]),
    (
        "/umbel.kv.v1.KeyValue/",
        &[
            ("Get", Need::Operator),
            ("MultiGet", Need::Operator),
            ("Put", Need::Operator),
            ("Delete", Need::Operator),
            ("Batch", Need::Operator),
            ("Scan", Need::Operator),
            ("Watch", Need::Operator),
            ("ListKeyspaces", Need::Operator),
            ("CreateKeyspace", Need::Operator),
        ],
    ),
    // What is told there is public; that somebody asks costs the server a task.
    ("/grpc.reflection.v1.ServerReflection/", &[("ServerReflectionInfo", Need::User)]),
    ("/grpc.reflection.v1alpha.ServerReflection/", &[("ServerReflectionInfo", Need::User)]),
    (
        "/console/api/",
        &[
            ("overview", Need::User),
            ("streams", Need::User),
            ("views", Need::User),
            ("stream", Need::Stream),
            ("all", Need::Stream),
            ("groups", Need::User),
            ("levels", Need::User),
            ("advice", Need::User),
            ("users", Need::Admin),
            ("append", Need::Stream),
            ("replay", Need::Operator),
            ("scavenge", Need::Operator),
            ("stop-scavenge", Need::Operator),
            ("backup", Need::Operator),
            ("user", Need::Admin),
        ],
    ),
    // What clients ask before they say who they are.
    (
        "/event_store.client.server_features.ServerFeatures/",
        &[("GetSupportedMethods", Need::Nothing)],
    ),
    ("/event_store.client.gossip.Gossip/", &[("Read", Need::Nothing)]),
    (
        "/",
        &[
            ("", Need::Nothing),
            ("console", Need::Nothing),
            ("console/", Need::User),
            ("console/console.css", Need::User),
            ("console/console.js", Need::User),
            ("health/live", Need::Nothing),
            ("health/ready", Need::Nothing),
            ("ping", Need::Nothing),
            ("info", Need::Nothing),
            ("gossip", Need::Nothing),
            ("stats", Need::User),
            ("metrics", Need::User),
        ],
    ),
];

/// What somebody must be to make the call with this path.
pub fn need(path: &str) -> Need {
    listed(path).unwrap_or(Need::Admin)
}

/// Whether the path is in the table: others are as many as clients like.
pub fn is_listed(path: &str) -> bool {
    listed(path).is_some()
}

fn listed(path: &str) -> Option<Need> {
    TABLE.iter().find_map(|(service, calls)| {
        let name = path.strip_prefix(service)?;
        calls.iter().find(|(call, _)| *call == name).map(|(_, need)| *need)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console::VIEWS;
    use crate::features::supported;
    use crate::{console_changes, console_views};

    #[test]
    fn every_call_that_is_served_is_in_the_table() {
        let rows: Vec<String> = TABLE
            .iter()
            .flat_map(|(service, calls)| {
                calls.iter().map(move |(call, _)| format!("{service}{call}"))
            })
            .map(|path| path.to_ascii_lowercase())
            .collect();
        for method in supported().methods {
            let path = format!("/{}/{}", method.service_name, method.method_name);
            assert!(rows.contains(&path), "{path} has no row: say who may call it");
        }
        let of_console = console_views::NAMES.iter().chain(&console_changes::NAMES);
        for name in of_console {
            let row = format!("{VIEWS}{name}");
            assert!(rows.contains(&row), "{row} has no row");
        }
        for call in crate::kv::CALLS {
            let path = format!("/{}/{call}", umbel_proto::kv::SERVICE);
            assert_eq!(need(&path), Need::Operator, "{path}");
            assert!(rows.contains(&path.to_ascii_lowercase()), "{path} has no row");
        }
        for path in crate::http::PATHS {
            assert!(rows.iter().any(|row| row == path), "{path} has no row");
        }
    }

    #[test]
    fn what_nobody_spoke_of_is_for_administrators() {
        for path in [
            "",
            "/new",
            "/console/new",
            "/console/api/new",
            "/event_store.client.streams.Streams/New",
            "/health/live/",
        ] {
            assert_eq!(need(path), Need::Admin, "{path}");
        }
        assert_eq!(need("/health/live"), Need::Nothing);
        assert_eq!(need("/event_store.client.streams.Streams/Read"), Need::Stream);
    }
}

//! List of the methods and features that the server supports.

use umbel_proto::gossip;
use umbel_proto::server_features::{self, SupportedMethod, SupportedMethods};
use umbel_proto::{monitoring, operations, persistent, projections, streams, users, v2};

/// Version of the protocol. Clients expect three numbers.
pub const VERSION: &str = "26.1.0";

/// Sources of consumer groups.
const GROUP_SOURCES: &[&str] = &["stream", "all"];

/// Every method, with its features beyond the first version.
const METHOD_FEATURES: [(&str, &str, &[&str]); 44] = [
    (streams::SERVICE, "append", &[]),
    (streams::SERVICE, "batchappend", &["deadline_duration"]),
    (streams::SERVICE, "delete", &[]),
    (streams::SERVICE, "read", &["position", "events"]),
    (streams::SERVICE, "tombstone", &[]),
    (server_features::SERVICE, "getsupportedmethods", &[]),
    (gossip::SERVICE, "read", &[]),
    (v2::streams::SERVICE, "appendsession", &[]),
    (v2::streams::SERVICE, "appendrecords", &[]),
    // Clients that miss this feature use HTTP instead, and get less information.
    (projections::SERVICE, "create", &["track_emitted_streams"]),
    (projections::SERVICE, "update", &[]),
    (projections::SERVICE, "delete", &[]),
    (projections::SERVICE, "statistics", &[]),
    (projections::SERVICE, "disable", &[]),
    (projections::SERVICE, "enable", &[]),
    (projections::SERVICE, "reset", &[]),
    (projections::SERVICE, "state", &[]),
    (projections::SERVICE, "result", &[]),
    (projections::SERVICE, "restartsubsystem", &[]),
    (persistent::SERVICE, "create", GROUP_SOURCES),
    (persistent::SERVICE, "update", GROUP_SOURCES),
    (persistent::SERVICE, "delete", GROUP_SOURCES),
    (persistent::SERVICE, "read", GROUP_SOURCES),
    (persistent::SERVICE, "getinfo", GROUP_SOURCES),
    (persistent::SERVICE, "replayparked", GROUP_SOURCES),
    (persistent::SERVICE, "truncateparked", GROUP_SOURCES),
    (persistent::SERVICE, "list", GROUP_SOURCES),
    (persistent::SERVICE, "restartsubsystem", GROUP_SOURCES),
    (users::SERVICE, "create", &[]),
    (users::SERVICE, "update", &[]),
    (users::SERVICE, "delete", &[]),
    (users::SERVICE, "disable", &[]),
    (users::SERVICE, "enable", &[]),
    (users::SERVICE, "details", &[]),
    (users::SERVICE, "changepassword", &[]),
    (users::SERVICE, "resetpassword", &[]),
    (operations::SERVICE, "startscavenge", &[]),
    (operations::SERVICE, "stopscavenge", &[]),
    (operations::SERVICE, "shutdown", &[]),
    (operations::SERVICE, "mergeindexes", &[]),
    (operations::SERVICE, "resignnode", &[]),
    (operations::SERVICE, "setnodepriority", &[]),
    (operations::SERVICE, "restartpersistentsubscriptions", &[]),
    (monitoring::SERVICE, "stats", &[]),
];

/// Builds the list of supported methods.
pub fn supported_methods() -> SupportedMethods {
    let method = |(service, method, features): &(&str, &str, &[&str])| SupportedMethod {
        method_name: (*method).to_string(),
        service_name: service.to_ascii_lowercase(),
        features: features.iter().map(|feature| (*feature).to_string()).collect(),
    };
    SupportedMethods {
        methods: METHOD_FEATURES.iter().map(method).collect(),
        event_store_server_version: VERSION.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn method_names_are_lower_case_and_version_has_three_parts() {
        let supported = supported_methods();
        assert_eq!(supported.methods.len(), METHOD_FEATURES.len());
        for method in &supported.methods {
            for name in [&method.method_name, &method.service_name] {
                assert!(!name.contains(|letter: char| letter.is_ascii_uppercase()), "{name}");
            }
        }
        let numbers: Vec<u32> = supported
            .event_store_server_version
            .split('.')
            .map(|part| part.parse().unwrap())
            .collect();
        assert!(numbers.len() == 3 && numbers >= vec![26, 1, 0], "{numbers:?}");
    }
}

//! What the server says it can do.

use umbel_proto::gossip;
use umbel_proto::server_features::{self, SupportedMethod, SupportedMethods};
use umbel_proto::{monitoring, operations, persistent, projections, streams, users, v2};

/// The version of the protocol that is spoken. Clients want three numbers.
pub const VERSION: &str = "26.1.0";

/// What groups of consumers can be of.
const GROUPS: &[&str] = &["stream", "all"];

/// Every method, with what it can do beyond its first form.
const METHODS: [(&str, &str, &[&str]); 43] = [
    (streams::SERVICE, "append", &[]),
    (streams::SERVICE, "batchappend", &["deadline_duration"]),
    (streams::SERVICE, "delete", &[]),
    (streams::SERVICE, "read", &["position", "events"]),
    (streams::SERVICE, "tombstone", &[]),
    (server_features::SERVICE, "getsupportedmethods", &[]),
    (gossip::SERVICE, "read", &[]),
    (v2::streams::SERVICE, "appendsession", &[]),
    (v2::streams::SERVICE, "appendrecords", &[]),
    // Clients that do not find this feature ask over HTTP instead, and are told less.
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
    (persistent::SERVICE, "create", GROUPS),
    (persistent::SERVICE, "update", GROUPS),
    (persistent::SERVICE, "delete", GROUPS),
    (persistent::SERVICE, "read", GROUPS),
    (persistent::SERVICE, "getinfo", GROUPS),
    (persistent::SERVICE, "replayparked", GROUPS),
    (persistent::SERVICE, "list", GROUPS),
    (persistent::SERVICE, "restartsubsystem", GROUPS),
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

/// What the server says it can do.
pub fn supported() -> SupportedMethods {
    let method = |(service, method, features): &(&str, &str, &[&str])| SupportedMethod {
        method_name: (*method).to_string(),
        service_name: service.to_ascii_lowercase(),
        features: features.iter().map(|feature| (*feature).to_string()).collect(),
    };
    SupportedMethods {
        methods: METHODS.iter().map(method).collect(),
        event_store_server_version: VERSION.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_lower_case_and_the_version_has_three_numbers() {
        let said = supported();
        assert_eq!(said.methods.len(), METHODS.len());
        for method in &said.methods {
            for name in [&method.method_name, &method.service_name] {
                assert!(!name.contains(|letter: char| letter.is_ascii_uppercase()), "{name}");
            }
        }
        let numbers: Vec<u32> =
            said.event_store_server_version.split('.').map(|part| part.parse().unwrap()).collect();
        assert!(numbers.len() == 3 && numbers >= vec![26, 1, 0], "{numbers:?}");
    }
}

//! Failpoints of consumer groups and of request decoding, which the model tests must detect, each
//! with the effect of the active failpoint.
//!
//! The list exists only with the feature `failpoints`. A failpoint is active in the whole process,
//! so run these tests alone: `cargo test -p umbel-server --features failpoints --lib failpoint`.

use umbel_base::failpoints::{FailGuard, FailScenario};

/// Failpoints of consumer groups.
pub const GROUPS: [(&str, &str); 17] = [
    ("group-checkpoint-ignore-parking", "the checkpoint passes events that wait to be parked"),
    ("group-checkpoint-too-far", "the first event in flight counts as processed"),
    ("group-checkpoint-last-offered", "the checkpoint is the last event read"),
    ("group-accept-acks-of-others", "an ack of any consumer completes an event"),
    ("group-lose-events-of-disconnected", "events in flight to a disconnected consumer are lost"),
    ("group-exceed-capacity", "a consumer gets one event more than its limit"),
    ("group-ignore-timeouts", "no event times out"),
    ("group-forget-retry-count", "deliveries of an event are not counted"),
    ("group-retry-once-more", "an event is retried once more than allowed"),
    ("group-drop-events-to-park", "events to be parked are dropped"),
    ("group-drop-events-to-retry", "events to be retried are dropped"),
    ("group-ignore-pins", "pinned events go to any consumer with capacity"),
    ("group-single-is-last", "the single active consumer is the last one"),
    ("group-park-without-write", "a parked event counts before it is written"),
    ("group-truncate-replayed-early", "replayed events count as processed once they are read"),
    ("group-skip-first-of-replay", "a replay skips its first event"),
    ("group-skip-first-of-page", "each page that is read loses its first event"),
];

/// Failpoints of requests to the event store.
pub const REQUESTS: [(&str, &str); 6] = [
    ("append-default-missing-revision", "a missing expected revision means any"),
    ("append-accept-invalid-id", "an invalid identifier reads as all zeros"),
    ("read-accept-unknown-direction", "an unknown direction reads as forwards"),
    ("append-accept-truncated", "a truncated append counts as complete"),
    ("request-malformed-is-internal", "a malformed message counts as a failure of the server"),
    ("append-accept-empty-part", "an empty part ends an append"),
];

/// Failpoints of requests about keys and values.
pub const KV_REQUESTS: [(&str, &str); 6] = [
    ("kv-accept-missing-kind", "a batch operation without a kind is skipped"),
    ("kv-skip-first-condition", "the first condition of a batch is skipped"),
    ("kv-replace-missing-keyspace", "a missing keyspace reads as the default one"),
    ("kv-conflict-is-internal", "a condition that does not hold counts as a failure of the server"),
    ("kv-scan-ignore-prefix", "a scan ignores its prefix"),
    ("kv-scan-ignore-reverse", "a scan ignores that it is reversed"),
];

/// Returns the failpoints that `hunt` does not detect when only this failpoint is active.
pub fn unnoticed(
    failpoints: &[(&'static str, &'static str)],
    hunt: impl Fn() -> Option<String>,
) -> Vec<&'static str> {
    // Other tests with failpoints wait for its end.
    let _scenario = FailScenario::setup();
    let is_unnoticed = |name: &str, fault: &str| {
        let _active = FailGuard::new(name, "return").expect("`return` is an action");
        let found = hunt();
        println!("{name}: {fault}: {found:?}");
        found.is_none()
    };
    let unnoticed = failpoints.iter().filter(|(name, fault)| is_unnoticed(name, fault));
    unnoticed.map(|(name, _)| *name).collect()
}

//! Metrics of a node of a replicated log.

use umbel_events::{NodeRole, NodeStatus};

use crate::http::metrics::metric_set::MetricSet;

/// Adds the metrics of a node.
pub fn add(set: &mut MetricSet, status: &NodeStatus) {
    let flag = |is_set: bool| f64::from(u8::from(is_set));
    let help = "1 if this node leads its replicated log and accepts writes";
    set.gauge("replication_leader", help, flag(status.role == NodeRole::Leader));
    let help = "1 if the leader of the replicated log lives, as far as this node knows";
    set.gauge("replication_leader_alive", help, flag(status.is_leader_alive));
    let help = "Epoch of the last slot of this node";
    set.gauge("replication_epoch", help, status.epoch as f64);
    let help = "Number of the last slot of this node";
    set.gauge("replication_slot", help, status.slot as f64);
    let help = "Slots that this node has not applied, as far as it knows";
    set.gauge("replication_lag_slots", help, status.slots_behind as f64);
    if let Some(age) = status.contact_age {
        let help = "Seconds since the object store of the slots last answered as it should";
        set.gauge("replication_contact_age_seconds", help, age.as_secs_f64());
    }
    let help = "Bytes of appends that wait for a slot";
    set.gauge("replication_unslotted_bytes", help, status.bytes_not_in_slots as f64);
}

//! JSON of `/info`, `/gossip` and `/stats`.

use hyper::http::uri::Authority;
use serde_json::{Value, json};
use umbel_env::DiskSpace;
use umbel_events::{NodeStatus, Stats};
use umbel_proto::gossip::VNodeState;

use crate::continuous_backup::ContinuousBackup;
use crate::protocol::proto_convert;
use crate::server_context::ServerContext;
use crate::services::gossip::{self, GossipMember};
use crate::services::server_features::VERSION;

/// Describes the server.
pub fn info(service: &ServerContext) -> Value {
    let has_users = service.authorizer.has_users();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "esVersion": VERSION,
        "state": gossip::own_state(service).as_str_name().to_ascii_lowercase(),
        "features": { "projections": false, "userManagement": has_users, "atomPub": false },
        "authentication": {
            "type": if has_users { "internal" } else { "insecure" },
            "properties": {},
        },
    })
}

/// Describes the nodes in KurrentDB's form, of which clients decode every field. A port of 0 means
/// that the protocol is not served. A follower knows the position of the leader only as its own.
pub fn gossip(service: &ServerContext, reached: Option<&Authority>) -> Value {
    let (host, port) = gossip::node_address(service, reached);
    let now = proto_convert::to_timestamp(service.env.clock.wall_micros());
    let position = service.store.visible_position();
    let epoch = service.replica.as_ref().map_or(0, |node| node.status().epoch);
    let member = |member: GossipMember| {
        let (id, (host, port)) = (member.instance_id.to_string(), member.address);
        json!({
            "instanceId": id,
            "timeStamp": now.to_string(),
            "state": member.state.as_str_name(),
            "isAlive": member.is_alive,
            "internalTcpIp": host,
            "internalTcpPort": 0,
            "internalSecureTcpPort": 0,
            "externalTcpIp": host,
            "externalTcpPort": 0,
            "externalSecureTcpPort": 0,
            "internalHttpEndPointIp": host,
            "internalHttpEndPointPort": port,
            "httpEndPointIp": host,
            "httpEndPointPort": port,
            "lastCommitPosition": position,
            "writerCheckpoint": position,
            "chaserCheckpoint": position,
            "epochPosition": 0,
            "epochNumber": epoch,
            "epochId": id,
            "nodePriority": 0,
            "isReadOnlyReplica": member.state == VNodeState::ReadOnlyReplica,
            "esVersion": VERSION,
        })
    };
    let members: Vec<Value> = gossip::members(service, reached).into_iter().map(member).collect();
    json!({ "members": members, "serverIp": host, "serverPort": port })
}

/// Lists the store's statistics. Where the server has keys and values, exports telemetry, or backs
/// up continuously, its state is in the page.
pub fn stats_page(store: &Stats, disk: Option<&DiskSpace>, service: &ServerContext) -> Value {
    let mut shown = stats(store);
    if let Some(DiskSpace { available_bytes, total_bytes }) = disk {
        shown["disk"] = json!({ "availableBytes": available_bytes, "totalBytes": total_bytes });
    }
    let directory = &store.directory;
    let path = directory.path_now.as_ref().unwrap_or(&directory.path);
    shown["directory"] = json!({
        "path": path.display().to_string(),
        "isMoved": directory.is_moved,
        "isRemoved": directory.is_removed,
    });
    if let Some(kv) = kv_stats(service) {
        shown["kv"] = kv;
    }
    if let Some(hub) = &service.telemetry {
        shown["openTelemetry"] = hub.status();
    }
    ContinuousBackup::show_all(&service.continuous_backups, &mut shown);
    if let Some(node) = &service.replica {
        shown["replication"] = replication(&node.status());
    }
    shown
}

/// Lists the state of a node of a replicated log.
fn replication(status: &NodeStatus) -> Value {
    let leader = status
        .leader
        .as_ref()
        .map(|leader| json!({ "node": leader.node, "host": leader.host, "port": leader.port }));
    json!({
        "log": status.log,
        "store": status.store,
        "node": status.node,
        "role": status.role.name(),
        "isReadOnly": status.is_read_only,
        "epoch": status.epoch,
        "slot": status.slot,
        "slotsBehind": status.slots_behind,
        "contactSeconds": status.contact_age.map(|age| age.as_secs_f64()),
        "bytesNotInSlots": status.bytes_not_in_slots,
        "leader": leader,
        "isLeaderAlive": status.is_leader_alive,
        "failure": status.failure,
    })
}

/// Lists the statistics of keys and values; `None` if the server has none.
pub fn kv_stats(service: &ServerContext) -> Option<Value> {
    let kv = service.kv.as_ref()?;
    let count = kv.damage_errors() + service.damaged_kv_runs();
    Some(json!({ "damageErrors": count }))
}

/// Lists the store's statistics.
pub fn stats(stats: &Stats) -> Value {
    let (existence, index) = (&stats.existence, &stats.index);
    json!({
        "store": {
            "position": stats.position,
            "logBytes": stats.log_bytes,
            "logQuotaBytes": stats.log_quota_bytes,
            "logChunks": stats.chunks,
            "clockRejectedSeconds": stats.clock_rejected.as_secs(),
            "clockBehindSeconds": stats.clock_behind.as_secs(),
            "clockEpoch": stats.clock_epoch,
            "clockEpochStartSeconds": stats.clock_epoch_start.map(|start| start.as_secs()),
            "indexedThrough": stats.indexed_through,
            "damageErrors": stats.damage_errors,
        },
        "existenceFilter": {
            "state": existence.state(),
            "items": existence.items,
            "designedItems": existence.designed_items,
            "memoryBytes": existence.memory_bytes,
            "fill": existence.fill,
            "designedRate": existence.designed_rate,
            "estimatedRate": existence.estimated_rate,
            "measuredRate": existence.measured_rate,
            "denied": existence.denied,
            "maybe": existence.maybe,
            "inVain": existence.false_positives,
            "lagItems": existence.lag_items,
            "bytesWritten": existence.bytes_written,
            "damagedLines": existence.damaged_lines,
            "healedLines": existence.healed_lines,
            "damagedJournals": existence.damaged_journals,
            "growths": existence.growths,
            "rebuilds": existence.rebuilds,
        },
        "index": {
            "memoryBytes": index.memory.held_bytes,
            "memoryBudgetBytes": index.memory.budget_bytes,
            "cacheHits": index.cache_hits,
            "cacheMisses": index.cache_misses,
            "writeAmplification": index.write_amplification,
            "stalls": index.stalls,
            "readOnlyReason": index.read_only_reason,
        },
    })
}

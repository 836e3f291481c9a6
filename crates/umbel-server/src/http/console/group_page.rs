//! Consumer groups as the console shows them: a page of groups, or one group, with their lag.

use std::sync::Arc;

use serde_json::{Value, json};
use tonic::Status;

use crate::consumer_groups::group_config::{filter_json, format_position};
use crate::consumer_groups::group_reading::{GroupLag, GroupReadings};
use crate::http::console::query_string::QueryString;
use crate::limits::CONSOLE_GROUPS_MAX;
use crate::protocol::group_key::{ALL_SOURCE, GroupKey};
use crate::protocol::grpc_status;
use crate::server_context::ServerContext;
use crate::services::persistent_subscriptions::group_infos::GroupInfo;

/// Serves a page of groups whose source or name contains `search`, after the given number of them.
pub async fn groups(service: &Arc<ServerContext>, query: &QueryString) -> Result<Value, Status> {
    let search = query.text("search").to_string();
    let skipped = usize::try_from(query.number("skip")?.unwrap_or(0)).unwrap_or(usize::MAX);
    let configs = service.group_registry.configs(service).await?;
    let total = configs.len();
    // A search of thousands of names would occupy an asynchronous worker too long.
    let matching = service.store.blocking(move |_| {
        let is_found =
            |key: &&GroupKey| key.source().contains(&search) || key.group.contains(&search);
        let found = configs.keys().filter(is_found);
        let page = found.clone().skip(skipped).take(CONSOLE_GROUPS_MAX).cloned();
        Ok((page.collect::<Vec<GroupKey>>(), found.count()))
    });
    let (page, found) = matching.await.map_err(|error| grpc_status::status(&error))?;
    let mut groups = Vec::with_capacity(page.len());
    for key in &page {
        // A group that was deleted meanwhile is left out.
        if let Ok(group) = service.group_registry.info(service, key).await {
            groups.push(group_json(key, &group));
        }
    }
    let readings = service.group_registry.readings(service).await;
    let largest = |of: fn(&GroupReadings) -> &Option<(GroupKey, u64)>| {
        let (key, lag) = of(readings.as_deref()?).as_ref()?;
        Some(json!({ "source": key.source(), "group": key.group, "lag": lag.to_string() }))
    };
    let is_whole = found.saturating_sub(skipped) <= CONSOLE_GROUPS_MAX;
    let size = CONSOLE_GROUPS_MAX;
    Ok(json!({
        "groups": groups, "total": total, "found": found, "pageSize": size, "isWhole": is_whole,
        "largestLagEvents": largest(|readings| &readings.largest_events),
        "largestLagBytes": largest(|readings| &readings.largest_bytes),
    }))
}

/// Serves one group, with its filter.
pub async fn one_group(service: &Arc<ServerContext>, query: &QueryString) -> Result<Value, Status> {
    let stream = Some(query.text("source").to_string()).filter(|source| source != ALL_SOURCE);
    let key = GroupKey { stream, group: query.text("group").to_string() };
    let group = service.group_registry.info(service, &key).await?;
    let mut shown = group_json(&key, &group);
    shown["filter"] = filter_json(group.filter.as_ref());
    Ok(shown)
}

fn group_json(key: &GroupKey, group: &GroupInfo) -> Value {
    let info = &group.info;
    let (lag_events, lag_bytes) = match group.lag {
        GroupLag::Events(events) => (Some(events.to_string()), None),
        GroupLag::LogBytes(bytes) => (None, Some(bytes)),
    };
    json!({
        "source": info.event_source,
        "group": info.group_name,
        "status": info.status,
        "parked": info.parked_message_count.to_string(),
        "parkedStream": group.parked_stream,
        "inFlight": info.total_in_flight_messages,
        "waiting": info.read_buffer_count,
        "retrying": info.retry_buffer_count,
        "total": info.total_items.to_string(),
        "perSecond": info.average_per_second,
        "lagEvents": lag_events,
        "lagBytes": lag_bytes,
        "checkpoint": info.last_checkpointed_event_position,
        "lastRead": group.last_read.map(|at| format_position(key, at)),
        "lastKnown": info.last_known_event_position,
        "settings": {
            "startFrom": info.start_from,
            "resolveLinks": info.resolve_link_tos,
            "extraStatistics": info.extra_statistics,
            "consumerStrategy": info.named_consumer_strategy,
            "messageTimeoutMs": info.message_timeout_milliseconds,
            "maxRetryCount": info.max_retry_count,
            "checkpointAfterMs": info.check_point_after_milliseconds,
            "minCheckpointCount": info.min_check_point_count,
            "maxCheckpointCount": info.max_check_point_count,
            "maxSubscriberCount": info.max_subscriber_count,
            "liveBufferSize": info.live_buffer_size,
            "readBatchSize": info.read_batch_size,
            "historyBufferSize": info.buffer_size,
        },
        "consumers": info.connections.iter().map(|one| json!({
            "name": one.connection_name,
            "user": one.username,
            "total": one.total_items.to_string(),
            "perSecond": one.average_items_per_second,
            "inFlight": one.in_flight_messages,
            "free": one.available_slots,
        })).collect::<Vec<_>>(),
    })
}

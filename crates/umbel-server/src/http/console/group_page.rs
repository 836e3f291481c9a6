//! Consumer groups as the console shows them: a page of groups, or one group, with their lag.

use std::sync::Arc;

use serde_json::{Value, json};
use tonic::Status;
use umbel_events::{Error, Source, Store, StreamState};
use umbel_proto::persistent::SubscriptionInfo;

use crate::http::console::query_string::QueryString;
use crate::limits::CONSOLE_GROUPS_MAX;
use crate::protocol::group_key::{ALL_SOURCE, GroupKey};
use crate::protocol::grpc_status;
use crate::server_context::ServerContext;

/// Events that a group has not processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum GroupLag {
    /// Number of events of a stream or view.
    Events(u64),
    /// Bytes of the event log, for a group of all events.
    LogBytes(u64),
}

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
        if let Ok(shown) = group(service, key).await {
            groups.push(shown);
        }
    }
    let is_whole = found.saturating_sub(skipped) <= CONSOLE_GROUPS_MAX;
    let size = CONSOLE_GROUPS_MAX;
    Ok(json!({
        "groups": groups, "total": total, "found": found, "pageSize": size, "isWhole": is_whole,
    }))
}

/// Serves one group.
pub async fn one_group(service: &Arc<ServerContext>, query: &QueryString) -> Result<Value, Status> {
    let stream = Some(query.text("source").to_string()).filter(|source| source != ALL_SOURCE);
    group(service, &GroupKey { stream, group: query.text("group").to_string() }).await
}

async fn group(service: &Arc<ServerContext>, key: &GroupKey) -> Result<Value, Status> {
    let info = service.group_registry.info(service, key).await?;
    let (source, last_read) = (key.event_source(), position(&info.last_known_event_position));
    let checkpoint = position(&info.last_checkpointed_event_position);
    let pending = [info.total_in_flight_messages, info.read_buffer_count, info.retry_buffer_count];
    let pending = pending.iter().map(|count| u64::try_from(*count).unwrap_or(0)).sum();
    let through = service.system_projections.limit_of(&source);
    let lag = service
        .store
        .blocking(move |store| lag(store, &source, through, last_read.or(checkpoint), pending));
    let lag = lag.await.map_err(|error| grpc_status::status(&error))?;
    Ok(group_json(key, &info, lag))
}

/// The number in a revision or in a position such as `C:7/P:7`; `None` for others.
fn position(text: &str) -> Option<u64> {
    let text = text.strip_prefix("C:").unwrap_or(text);
    text.split('/').next()?.parse().ok()
}

/// Events between the event that the group read last and the end of its source, with those that
/// were read and not acknowledged.
fn lag(
    store: &Store,
    source: &Source,
    through: umbel_events::Position,
    last_read: Option<u64>,
    pending: u64,
) -> Result<GroupLag, Error> {
    let last = match source {
        Source::Stream(stream) => match store.stream_state(stream)? {
            StreamState::Live { last, .. } => Some(last),
            _ => None,
        },
        Source::View(view) => store.view(view, through)?.map(|view| view.last),
        Source::All | Source::Filtered(_) => {
            let end = store.visible_position().0;
            return Ok(GroupLag::LogBytes(end.saturating_sub(last_read.unwrap_or(0))));
        }
    };
    let unread = match (last, last_read) {
        (None, _) => 0,
        (Some(last), None) => last.saturating_add(1),
        (Some(last), Some(read)) => last.saturating_sub(read),
    };
    Ok(GroupLag::Events(unread.saturating_add(pending)))
}

fn group_json(key: &GroupKey, info: &SubscriptionInfo, lag: GroupLag) -> Value {
    let (lag_events, lag_bytes) = match lag {
        GroupLag::Events(events) => (Some(events.to_string()), None),
        GroupLag::LogBytes(bytes) => (None, Some(bytes)),
    };
    json!({
        "source": info.event_source,
        "group": info.group_name,
        "status": info.status,
        "parked": info.parked_message_count.to_string(),
        "parkedStream": key.parked_stream(),
        "inFlight": info.total_in_flight_messages,
        "waiting": info.read_buffer_count,
        "retrying": info.retry_buffer_count,
        "total": info.total_items.to_string(),
        "perSecond": info.average_per_second,
        "lagEvents": lag_events,
        "lagBytes": lag_bytes,
        "checkpoint": info.last_checkpointed_event_position,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_of_streams_and_of_the_log_are_read() {
        let cases = [("7", Some(7)), ("C:9/P:8", Some(9)), ("", None), ("-1", None), ("C:", None)];
        for (text, wanted) in cases {
            assert_eq!(position(text), wanted, "{text}");
        }
        let end = "18446744073709551615";
        assert_eq!(position(end), Some(u64::MAX), "{end}");
    }
}

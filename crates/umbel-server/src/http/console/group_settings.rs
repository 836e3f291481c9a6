//! Creates, changes and deletes consumer groups for the console.

use std::sync::Arc;

use prost::bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use tonic::Status;
use umbel_proto::persistent::{
    CheckpointAfter, CreateOptions, GroupAllOptions, GroupFilter, GroupOrigin, GroupStart,
    MessageTimeout, Settings,
};
use umbel_proto::shared::StreamIdentifier;
use umbel_proto::streams::read_req::{
    Expression, Filter, FilterOptions, Position, RevisionOption, StreamOptions,
};

use crate::auth::authorization::Caller;
use crate::consumer_groups::group_config::{GroupConfig, group_name};
use crate::protocol::group_key::{ALL_SOURCE, GroupKey};
use crate::server_context::ServerContext;
use crate::services::persistent_subscriptions;
use crate::services::persistent_subscriptions::group_manager::GroupChange;

/// Name of the action.
pub const CHANGE_GROUP: &str = "change-group";

/// Request to create, change or delete a group.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct GroupRequest {
    /// `create`, `update` or `delete`.
    r#do: String,
    /// Stream, or `$all` for all events.
    source: String,
    group: String,
    #[serde(default)]
    settings: GroupSettings,
}

/// Settings of a group. The defaults are those of the client libraries.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
struct GroupSettings {
    /// `start`, `end`, or the revision or position at which the group starts.
    start_from: String,
    resolve_links: bool,
    extra_statistics: bool,
    consumer_strategy: String,
    message_timeout_ms: i32,
    max_retry_count: i32,
    checkpoint_after_ms: i32,
    min_checkpoint_count: i32,
    max_checkpoint_count: i32,
    max_subscriber_count: i32,
    live_buffer_size: i32,
    read_batch_size: i32,
    history_buffer_size: i32,
    /// Filter of a group of all events: `stream` or `type`; empty without a filter.
    filter_by: String,
    filter_regex: String,
}

impl Default for GroupSettings {
    fn default() -> GroupSettings {
        GroupSettings {
            start_from: "end".to_string(),
            resolve_links: false,
            extra_statistics: false,
            consumer_strategy: "RoundRobin".to_string(),
            message_timeout_ms: 30_000,
            max_retry_count: 10,
            checkpoint_after_ms: 2_000,
            min_checkpoint_count: 10,
            max_checkpoint_count: 1_000,
            max_subscriber_count: 0,
            live_buffer_size: 500,
            read_batch_size: 20,
            history_buffer_size: 500,
            filter_by: String::new(),
            filter_regex: String::new(),
        }
    }
}

/// Runs a change, which completes even if the caller leaves.
pub async fn change_group(
    service: &Arc<ServerContext>,
    caller: &Caller,
    body: Bytes,
) -> Result<Value, Status> {
    let request: GroupRequest = serde_json::from_slice(&body)
        .map_err(|error| Status::invalid_argument(format!("the request is invalid: {error}")))?;
    if request.source.is_empty() {
        return Err(Status::invalid_argument("the request names no stream; $all means all events"));
    }
    let (key, change) = match &*request.r#do {
        "create" => {
            let (key, config) = config(request)?;
            (key, GroupChange::Create(config))
        }
        "update" => {
            let (key, config) = config(request)?;
            (key, GroupChange::Update(config))
        }
        "delete" => {
            let stream = Some(request.source).filter(|source| source != ALL_SOURCE);
            (GroupKey { stream, group: group_name(request.group)? }, GroupChange::Delete)
        }
        other => {
            return Err(Status::invalid_argument(format!(
                "{other} is not an action on groups; use create, update or delete"
            )));
        }
    };
    persistent_subscriptions::change_group(Arc::clone(service), key, change, caller.clone())
        .await?;
    Ok(json!({}))
}

/// The requested group. Invalid settings are the caller's error, whatever code the calls of clients
/// give them.
fn config(request: GroupRequest) -> Result<(GroupKey, GroupConfig), Status> {
    GroupConfig::from_request(Some(options(request)?))
        .map_err(|status| Status::invalid_argument(status.message()))
}

fn options(request: GroupRequest) -> Result<CreateOptions, Status> {
    let GroupRequest { source, group, settings, .. } = request;
    let origin = if source == ALL_SOURCE {
        let all_option = match &*settings.start_from {
            "start" => GroupStart::Start(()),
            "end" => GroupStart::End(()),
            position => {
                let position = number(position)?;
                let (commit_position, prepare_position) = (position, position);
                GroupStart::Position(Position { commit_position, prepare_position })
            }
        };
        let filter_option = filter(&settings)?.map(GroupFilter::Filter);
        GroupOrigin::All(GroupAllOptions { all_option: Some(all_option), filter_option })
    } else {
        let revision = match &*settings.start_from {
            "start" => RevisionOption::Start(()),
            "end" => RevisionOption::End(()),
            revision => RevisionOption::Revision(number(revision)?),
        };
        let stream_name = source.into_bytes().into();
        GroupOrigin::Stream(StreamOptions {
            stream_identifier: Some(StreamIdentifier { stream_name }),
            revision_option: Some(revision),
        })
    };
    Ok(CreateOptions {
        stream_identifier: None,
        group_name: group,
        settings: Some(settings.into()),
        stream_option: Some(origin),
    })
}

fn number(text: &str) -> Result<u64, Status> {
    text.parse().map_err(|_| {
        Status::invalid_argument(format!(
            "the group starts from {text}; use start, end, or a revision or position"
        ))
    })
}

fn filter(settings: &GroupSettings) -> Result<Option<FilterOptions>, Status> {
    let expression = Expression { regex: settings.filter_regex.clone(), prefix: Vec::new() };
    let filter = match &*settings.filter_by {
        "" => return Ok(None),
        "stream" => Filter::StreamIdentifier(expression),
        "type" => Filter::EventType(expression),
        other => {
            return Err(Status::invalid_argument(format!(
                "the filter is by {other}; use stream or type"
            )));
        }
    };
    let filter = Some(filter);
    Ok(Some(FilterOptions { filter, window: None, checkpoint_interval_multiplier: 1 }))
}

impl From<GroupSettings> for Settings {
    fn from(settings: GroupSettings) -> Settings {
        Settings {
            resolve_links: settings.resolve_links,
            revision: 0,
            extra_statistics: settings.extra_statistics,
            message_timeout: Some(MessageTimeout::MessageTimeoutMs(settings.message_timeout_ms)),
            max_retry_count: settings.max_retry_count,
            checkpoint_after: Some(CheckpointAfter::CheckpointAfterMs(
                settings.checkpoint_after_ms,
            )),
            min_checkpoint_count: settings.min_checkpoint_count,
            max_checkpoint_count: settings.max_checkpoint_count,
            max_subscriber_count: settings.max_subscriber_count,
            live_buffer_size: settings.live_buffer_size,
            read_batch_size: settings.read_batch_size,
            history_buffer_size: settings.history_buffer_size,
            named_consumer_strategy: 0,
            consumer_strategy: settings.consumer_strategy,
        }
    }
}

//! Routes of `/subscriptions`: consumer groups, over the calls of clients.

use std::sync::Arc;

use hyper::StatusCode;
use hyper::header::LOCATION;
use serde::Deserialize;
use serde_json::{Value, json};
use umbel_proto::persistent::{
    CheckpointAfter, CreateOptions, GroupAllOptions, GroupFilter, GroupOrigin, GroupStart,
    MessageTimeout, Settings,
};
use umbel_proto::streams::read_req::{Position, RevisionOption, StreamOptions};

use crate::consumer_groups::group_config::{GroupConfig, filter_json, group_name, parse_position};
use crate::http::api::api_request::{ApiRequest, encode_segment, parse_json};
use crate::http::api::api_response::{
    ApiError, ApiResult, HttpResponse, json_response, json_text_response, set_header,
};
use crate::http::api::route_table::Operation;
use crate::limits::LIST_BYTES;
use crate::protocol::group_key::{ALL_SOURCE, GroupKey};
use crate::protocol::{grpc_status, proto_convert};
use crate::server_context::ServerContext;
use crate::services::persistent_subscriptions::group_infos::{GroupInfo, GroupPage};
use crate::services::persistent_subscriptions::group_manager::GroupChange;
use crate::services::persistent_subscriptions::{self, change_group};

/// Settings of a group, with KurrentDB's names and defaults.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct GroupSettings {
    #[serde(alias = "resolveLinkTos")]
    resolve_linktos: bool,
    start_from: i64,
    start_position: Option<String>,
    message_timeout_milliseconds: i32,
    extra_statistics: bool,
    max_retry_count: i32,
    live_buffer_size: i32,
    buffer_size: i32,
    read_batch_size: i32,
    prefer_round_robin: bool,
    check_point_after_milliseconds: i32,
    min_check_point_count: i32,
    max_check_point_count: i32,
    max_subscriber_count: i32,
    named_consumer_strategy: Option<String>,
}

impl Default for GroupSettings {
    fn default() -> GroupSettings {
        GroupSettings {
            resolve_linktos: false,
            start_from: 0,
            start_position: None,
            message_timeout_milliseconds: 10_000,
            extra_statistics: false,
            max_retry_count: 10,
            live_buffer_size: 500,
            buffer_size: 500,
            read_batch_size: 20,
            prefer_round_robin: true,
            check_point_after_milliseconds: 1000,
            min_check_point_count: 10,
            max_check_point_count: 500,
            max_subscriber_count: 10,
            named_consumer_strategy: None,
        }
    }
}

/// Start of a group in a request.
enum Start {
    End,
    At(u64),
}

impl GroupSettings {
    fn start(&self) -> Result<Start, ApiError> {
        let Some(text) = &self.start_position else {
            return Ok(u64::try_from(self.start_from).map_or(Start::End, Start::At));
        };
        if matches!(text.as_str(), "-1" | "C:-1/P:-1" | "end") {
            return Ok(Start::End);
        }
        parse_position(text).map(Start::At).ok_or_else(|| {
            ApiError::bad_request(
                "startPosition must be a revision, -1 for the end, or with $all \
                 C:POSITION/P:POSITION",
            )
        })
    }

    /// Converts to the request of the client's call.
    fn to_options(&self, key: &GroupKey) -> Result<CreateOptions, ApiError> {
        let start = self.start()?;
        let origin = match &key.stream {
            Some(stream) => GroupOrigin::Stream(StreamOptions {
                stream_identifier: Some(proto_convert::stream_identifier(stream)),
                revision_option: Some(match start {
                    Start::End => RevisionOption::End(()),
                    Start::At(0) => RevisionOption::Start(()),
                    Start::At(revision) => RevisionOption::Revision(revision),
                }),
            }),
            None => GroupOrigin::All(GroupAllOptions {
                all_option: Some(match start {
                    Start::End => GroupStart::End(()),
                    Start::At(0) => GroupStart::Start(()),
                    Start::At(position) => GroupStart::Position(Position {
                        commit_position: position,
                        prepare_position: position,
                    }),
                }),
                filter_option: Some(GroupFilter::NoFilter(())),
            }),
        };
        let strategy = self.named_consumer_strategy.clone().filter(|name| !name.is_empty());
        let by_flag = if self.prefer_round_robin { "RoundRobin" } else { "DispatchToSingle" };
        let (timeout, checkpoint) =
            (self.message_timeout_milliseconds, self.check_point_after_milliseconds);
        let settings = Settings {
            resolve_links: self.resolve_linktos,
            extra_statistics: self.extra_statistics,
            message_timeout: Some(MessageTimeout::MessageTimeoutMs(timeout)),
            max_retry_count: self.max_retry_count,
            checkpoint_after: Some(CheckpointAfter::CheckpointAfterMs(checkpoint)),
            min_checkpoint_count: self.min_check_point_count,
            max_checkpoint_count: self.max_check_point_count,
            max_subscriber_count: self.max_subscriber_count,
            live_buffer_size: self.live_buffer_size,
            read_batch_size: self.read_batch_size,
            history_buffer_size: self.buffer_size,
            consumer_strategy: strategy.unwrap_or_else(|| by_flag.to_string()),
            ..Settings::default()
        };
        Ok(CreateOptions {
            stream_identifier: None,
            group_name: key.group.clone(),
            settings: Some(settings),
            stream_option: Some(origin),
        })
    }
}

/// Parses the settings of a group. For fuzzing and measurements.
pub fn check(bytes: &[u8]) {
    let Ok(settings) = parse_json::<GroupSettings>(bytes) else { return };
    let key = GroupKey { stream: None, group: "group".to_string() };
    if let Ok(options) = settings.to_options(&key)
        && let Ok((_, config)) = GroupConfig::from_request(Some(options))
    {
        assert!(GroupConfig::parse(&config.to_json(&key).to_string()).is_some());
    }
}

/// Runs an operation of this page.
pub async fn run(
    service: &Arc<ServerContext>,
    operation: Operation,
    mut request: ApiRequest,
) -> ApiResult {
    match operation {
        Operation::ListGroups => return list(service, &request, None).await,
        Operation::ListGroupsOfSource => {
            let source = source(request.parameter(0));
            return list(service, &request, Some(source)).await;
        }
        Operation::RestartGroups => {
            persistent_subscriptions::restart(Arc::clone(service), &request.caller()).await?;
            return Ok(json_response(StatusCode::OK, &json!("Restarting")));
        }
        _ => {}
    }
    let group = group_name(request.parameter(1).to_string())?;
    let key = GroupKey { stream: source(request.parameter(0)), group };
    let is_create = operation == Operation::CreateGroup;
    let change = match operation {
        Operation::ReadGroup => return info(service, &request, key).await,
        Operation::ReplayParked => {
            let before = request.query().number("stopAt")?.unwrap_or(u64::MAX);
            let caller = request.caller();
            persistent_subscriptions::replay_before(service, &key, before, &caller).await?;
            return Ok(success(StatusCode::OK));
        }
        Operation::DeleteGroup => GroupChange::Delete,
        _ => {
            let settings: GroupSettings = request.json(service).await?;
            let options = settings.to_options(&key)?;
            let (_, config) = GroupConfig::from_request(Some(options))?;
            if is_create { GroupChange::Create(config) } else { GroupChange::Update(config) }
        }
    };
    let is_deletion = matches!(change, GroupChange::Delete);
    let path = group_path(key.source(), &key.group);
    change_group(Arc::clone(service), key, change, request.caller()).await?;
    let mut response = success(if is_create { StatusCode::CREATED } else { StatusCode::OK });
    if !is_deletion {
        set_header(&mut response, LOCATION, &path);
    }
    Ok(response)
}

fn success(status: StatusCode) -> HttpResponse {
    json_response(status, &json!({ "result": "Success", "reason": "" }))
}

fn source(name: &str) -> Option<String> {
    Some(name.to_string()).filter(|name| name != ALL_SOURCE)
}

fn group_path(source: &str, group: &str) -> String {
    format!("/subscriptions/{}/{}", encode_segment(source), encode_segment(group))
}

/// Lists all groups, or those of one source. With `count` the answer is a page with its place.
async fn list(
    service: &Arc<ServerContext>,
    request: &ApiRequest,
    of: Option<Option<String>>,
) -> ApiResult {
    let (offset, count) = (request.query().number("offset")?, request.query().number("count")?);
    if count == Some(0) || (offset.is_some() && count.is_none()) {
        return Err(ApiError::bad_request("count must be a number, at least 1"));
    }
    let place = count.map(|count| (offset.unwrap_or(0), count));
    let context = Arc::clone(service);
    let work = async move {
        let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        let shown =
            place.map_or((0, usize::MAX), |(offset, count)| (number(offset), number(count)));
        let page = context.group_registry.list(&context, of.as_ref(), shown).await?;
        if let Some(stream) = of.filter(|_| page.total == 0) {
            return Err(grpc_status::groups_missing(stream));
        }
        // Thousands of groups would occupy an asynchronous worker too long.
        let text = context.store.blocking(move |_| Ok(list_json(&page, place)));
        text.await.map_err(|error| grpc_status::status(&error))
    };
    let bytes = persistent_subscriptions::list_bytes(service).await?;
    within_quota(service, request, bytes, work).await
}

/// The text of a list. Each group becomes text at once, since a tree of all groups takes many times
/// the bytes of the text.
fn list_json(page: &GroupPage, place: Option<(u64, u64)>) -> String {
    let mut groups = String::from("[");
    for (index, info) in page.infos.iter().enumerate() {
        if index > 0 {
            groups.push(',');
        }
        groups.push_str(&summary(info).to_string());
    }
    groups.push(']');
    let Some((offset, count)) = place else { return groups };
    let total = page.total as u64;
    let link = |offset: u64, relation: &str| {
        let href = format!("/subscriptions?offset={offset}&count={count}");
        json!({ "href": href, "rel": relation })
    };
    let mut links = vec![link(offset, "self"), link(0, "first")];
    if offset > 0 {
        links.push(link(offset.saturating_sub(count), "previous"));
    }
    if offset.saturating_add(count) < total {
        links.push(link(offset + count, "next"));
    }
    let links = Value::from(links);
    format!(
        "{{\"count\":{count},\"links\":{links},\"offset\":{offset},\"subscriptions\":{groups},\
         \"total\":{total}}}"
    )
}

/// Sends a text that may be long, within the quota of responses.
async fn within_quota(
    service: &Arc<ServerContext>,
    request: &ApiRequest,
    bytes: usize,
    work: impl Future<Output = Result<String, tonic::Status>> + Send + 'static,
) -> ApiResult {
    let held = service.outbound_quota.new_share(request.connection());
    let (text, unsent) = held.produce(bytes, work, String::len).await?;
    let mut response = json_text_response(text);
    response.extensions_mut().insert(unsent);
    Ok(response)
}

async fn info(service: &Arc<ServerContext>, request: &ApiRequest, key: GroupKey) -> ApiResult {
    let context = Arc::clone(service);
    let work = async move {
        let group = context.group_registry.info(&context, &key).await?;
        Ok(info_json(&group).to_string())
    };
    within_quota(service, request, LIST_BYTES, work).await
}

/// Members that lists and single groups have.
fn summary(GroupInfo { info, parked_stream, .. }: &GroupInfo) -> Value {
    let path = group_path(&info.event_source, &info.group_name);
    // KurrentDB's older members, which have no position of $all.
    let number = |text: &str| text.parse::<i64>().unwrap_or(0);
    json!({
        "links": [
            { "href": format!("{path}/info"), "rel": "detail" },
            { "href": format!("{path}/replayParked"), "rel": "replayParked" },
        ],
        "eventStreamId": info.event_source,
        "groupName": info.group_name,
        "parkedMessageUri": format!("/streams/{}", encode_segment(parked_stream)),
        "status": info.status,
        "averageItemsPerSecond": info.average_per_second,
        "totalItemsProcessed": info.total_items,
        "lastProcessedEventNumber": number(&info.last_checkpointed_event_position),
        "lastCheckpointedEventPosition": info.last_checkpointed_event_position,
        "lastKnownEventNumber": number(&info.last_known_event_position),
        "lastKnownEventPosition": info.last_known_event_position,
        "connectionCount": info.connections.len(),
        "totalInFlightMessages": info.total_in_flight_messages,
        "parkedMessageCount": info.parked_message_count,
    })
}

fn info_json(group: &GroupInfo) -> Value {
    let info = &group.info;
    let connections = info.connections.iter().map(|consumer| {
        let measurements = consumer.observed_measurements.iter();
        let measurements = measurements.map(|one| json!({ "key": one.key, "value": one.value }));
        json!({
            "from": consumer.from,
            "username": consumer.username,
            "averageItemsPerSecond": consumer.average_items_per_second,
            "totalItemsProcessed": consumer.total_items,
            "countSinceLastMeasurement": consumer.count_since_last_measurement,
            "extraStatistics": measurements.collect::<Vec<_>>(),
            "availableSlots": consumer.available_slots,
            "inFlightMessages": consumer.in_flight_messages,
            "connectionName": consumer.connection_name,
        })
    });
    let mut value = summary(group);
    value["config"] = json!({
        "resolveLinktos": info.resolve_link_tos,
        "startFrom": info.start_from.parse::<i64>().unwrap_or(0),
        "startPosition": info.start_from,
        "messageTimeoutMilliseconds": info.message_timeout_milliseconds,
        "extraStatistics": info.extra_statistics,
        "maxRetryCount": info.max_retry_count,
        "liveBufferSize": info.live_buffer_size,
        "bufferSize": info.buffer_size,
        "readBatchSize": info.read_batch_size,
        "preferRoundRobin": info.named_consumer_strategy == "RoundRobin",
        "checkPointAfterMilliseconds": info.check_point_after_milliseconds,
        "minCheckPointCount": info.min_check_point_count,
        "maxCheckPointCount": info.max_check_point_count,
        "maxSubscriberCount": info.max_subscriber_count,
        "namedConsumerStrategy": info.named_consumer_strategy,
    });
    for (name, member) in [
        // Beside the settings, since an update keeps the filter.
        ("filter", filter_json(group.filter.as_ref())),
        ("countSinceLastMeasurement", json!(info.count_since_last_measurement)),
        ("readBufferCount", json!(info.read_buffer_count)),
        ("liveBufferCount", json!(info.live_buffer_count)),
        ("retryBufferCount", json!(info.retry_buffer_count)),
        ("outstandingMessagesCount", json!(info.outstanding_messages_count)),
        ("connections", connections.collect()),
    ] {
        value[name] = member;
    }
    value
}

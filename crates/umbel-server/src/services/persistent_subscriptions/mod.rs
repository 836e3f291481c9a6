//! Calls about persistent subscriptions: create, change, read and inspect them.

use std::sync::Arc;

use prost::Message;
use prost::bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tonic::body::Body;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};
use umbel_events::EventId;
use umbel_proto::persistent::{
    CreateReq, DeleteReq, DeleteStreamOption, GetInfoReq, GetInfoResp, GetInfoStreamOption,
    ListOption, ListReq, ListStreamOption, NackAction, ReadOptions, ReadReq, ReadReqContent,
    ReadResp, ReadRespContent, ReadRespEvent, ReadStreamOption, ReplayParkedReq,
    ReplayStreamOption, StopAt, SubscriptionConfirmation, SubscriptionInfo,
};
use umbel_proto::shared::{StreamIdentifier, Uuid};

use crate::auth::authorization::Caller;
use crate::consumer_groups::dispatcher::{ConsumerId, NackDecision};
use crate::consumer_groups::group_command::{
    ConsumerRequest, ConsumerResponse, GroupCommand, park_reason,
};
use crate::consumer_groups::group_config::{GroupConfig, group_name};
use crate::event_store::event_resolution::view_system_target;
use crate::grpc::grpc_dispatch::{Handler, grpc_dispatch};
use crate::grpc::message_stream::MessageStream;
use crate::grpc::request_body::RequestBody;
use crate::grpc::response_stream::{
    ResponseStream, respond_within_quota, stream_steps, with_pending_page,
};
use crate::limits::{CONNECTION_NAME_BYTES_MAX, GROUP_EVENTS_MAX, GROUP_INFO_BYTES, LIST_BYTES};
use crate::protocol::deadline::{self, Deadline};
use crate::protocol::group_key::{ALL_SOURCE, GroupKey};
use crate::protocol::truncate_text::truncate_text;
use crate::protocol::{grpc_status, proto_convert};
use crate::resources::connection_registry::Connection;
use crate::server_context::ServerContext;
use crate::services::persistent_subscriptions::group_manager::GroupChange;
use crate::services::read_permission::{ALL_STREAM, ReadPermission};

pub mod group_infos;
pub mod group_manager;
mod group_readings;
pub mod group_task;

/// Serves a call.
pub async fn call(
    service: Arc<ServerContext>,
    deadline: Deadline,
    request: hyper::Request<RequestBody>,
) -> hyper::Response<Body> {
    let path = request.uri().path();
    let method =
        path.strip_prefix("/event_store.client.persistent_subscriptions.PersistentSubscriptions/");
    match method {
        Some("Create") => {
            let create = Handler::new(move |request: Request<CreateReq>| async move {
                let caller = Caller::from_extensions(request.extensions());
                let (key, config) = GroupConfig::from_request(request.into_inner().options)?;
                change_group(service, key, GroupChange::Create(config), caller).await
            });
            grpc_dispatch().unary(create, request).await
        }
        Some("Update") => {
            let update = Handler::new(move |request: Request<CreateReq>| async move {
                let caller = Caller::from_extensions(request.extensions());
                let (key, config) = GroupConfig::from_request(request.into_inner().options)?;
                change_group(service, key, GroupChange::Update(config), caller).await
            });
            grpc_dispatch().unary(update, request).await
        }
        Some("Delete") => {
            let delete = Handler::new(move |request| delete(service, request));
            grpc_dispatch().unary(delete, request).await
        }
        Some("Read") => {
            let read = Handler::new(move |messages| read(service, deadline, messages));
            grpc_dispatch().streaming(read, request).await
        }
        Some("GetInfo") => {
            let info = Handler::new(move |request| info(service, request));
            grpc_dispatch().unary(info, request).await
        }
        Some("ReplayParked") => {
            let replay = Handler::new(move |request| replay(service, request));
            grpc_dispatch().unary(replay, request).await
        }
        Some("TruncateParked") => {
            let truncate = Handler::new(move |request| truncate_parked(service, request));
            grpc_dispatch().unary(truncate, request).await
        }
        Some("List") => {
            let list = Handler::new(move |request| list(service, request));
            grpc_dispatch().unary(list, request).await
        }
        Some("RestartSubsystem") => {
            let restart = Handler::new(move |request: Request<()>| async move {
                restart(service, &Caller::from_extensions(request.extensions())).await
            });
            grpc_dispatch().unary(restart, request).await
        }
        _ => grpc_status::unknown_method(path).into_http(),
    }
}

/// Creates, changes or deletes a group.
pub async fn change_group(
    service: Arc<ServerContext>,
    key: GroupKey,
    change: GroupChange,
    caller: Caller,
) -> Result<Response<()>, Status> {
    let what = match change {
        GroupChange::Create(_) => "created",
        GroupChange::Update(_) => "changed",
        GroupChange::Delete => "deleted",
    };
    // The change completes even if its client leaves.
    let changing = tokio::spawn(async move {
        service.group_registry.change(&service, &key, change).await?;
        log_action(&key, &caller, what);
        Ok::<(), Status>(())
    });
    changing.await.map_err(|_| grpc_status::shutting_down())?.map(Response::new)
}

/// Logs who did something to a group.
fn log_action(key: &GroupKey, caller: &Caller, what: &str) {
    let (stream, group) = (key.source(), key.group.as_str());
    tracing::info!(stream, group, by = caller.user_name(), "consumer group {what}");
}

async fn delete(
    service: Arc<ServerContext>,
    request: Request<DeleteReq>,
) -> Result<Response<()>, Status> {
    let caller = Caller::from_extensions(request.extensions());
    let options = request.into_inner().options.ok_or_else(missing_options)?;
    let stream = match options.stream_option.ok_or_else(missing_stream)? {
        DeleteStreamOption::StreamIdentifier(stream) => Some(stream),
        DeleteStreamOption::All(()) => None,
    };
    let key = parse_key(stream, options.group_name)?;
    change_group(service, key, GroupChange::Delete, caller).await
}

async fn info(
    service: Arc<ServerContext>,
    request: Request<GetInfoReq>,
) -> Result<Response<GetInfoResp>, Status> {
    let held = service.outbound_quota.held_for(request.extensions());
    let options = request.into_inner().options.ok_or_else(missing_options)?;
    let stream = match options.stream_option.ok_or_else(missing_stream)? {
        GetInfoStreamOption::StreamIdentifier(stream) => Some(stream),
        GetInfoStreamOption::All(()) => None,
    };
    let key = parse_key(stream, options.group_name)?;
    let info = async move {
        let group = service.group_registry.info(&service, &key).await?;
        Ok(GetInfoResp { subscription_info: Some(group.info), filter: group.filter })
    };
    respond_within_quota(held, info).await
}

async fn replay(
    service: Arc<ServerContext>,
    request: Request<ReplayParkedReq>,
) -> Result<Response<()>, Status> {
    let caller = Caller::from_extensions(request.extensions());
    let (key, before) = parse_parked_range(request.into_inner())?;
    replay_before(&service, &key, before, &caller).await.map(Response::new)
}

async fn truncate_parked(
    service: Arc<ServerContext>,
    request: Request<ReplayParkedReq>,
) -> Result<Response<()>, Status> {
    let caller = Caller::from_extensions(request.extensions());
    let (key, before) = parse_parked_range(request.into_inner())?;
    let group = service.group_registry.command_sender(&service, &key).await?;
    let (answer, done) = oneshot::channel();
    // If the group ended meanwhile, the reply sender is dropped.
    let _ = group.send(GroupCommand::TruncateParked(before, answer)).await;
    done.await.map_err(|_| grpc_status::group_missing(&key))??;
    log_action(&key, &caller, "loses parked events");
    Ok(Response::new(()))
}

/// The group of a request about parked events, and the revision of the parked stream before which
/// the request applies.
fn parse_parked_range(request: ReplayParkedReq) -> Result<(GroupKey, u64), Status> {
    let options = request.options.ok_or_else(missing_options)?;
    let stream = match options.stream_option.ok_or_else(missing_stream)? {
        ReplayStreamOption::StreamIdentifier(stream) => Some(stream),
        ReplayStreamOption::All(()) => None,
    };
    let key = parse_key(stream, options.group_name)?;
    let before = match options.stop_at_option {
        Some(StopAt::StopAt(revision)) => u64::try_from(revision).map_err(|_| {
            Status::invalid_argument("the revision to stop at is negative; send 0 or more")
        })?,
        Some(StopAt::NoLimit(())) | None => u64::MAX,
    };
    Ok((key, before))
}

/// Replays the parked events before this revision of the parked stream.
pub async fn replay_before(
    service: &Arc<ServerContext>,
    key: &GroupKey,
    before: u64,
    caller: &Caller,
) -> Result<(), Status> {
    let group = service.group_registry.command_sender(service, key).await?;
    let (answer, done) = oneshot::channel();
    // If the group ended meanwhile, the reply sender is dropped.
    let _ = group.send(GroupCommand::Replay(before, answer)).await;
    done.await.map_err(|_| grpc_status::group_missing(key))??;
    log_action(key, caller, "replays parked events");
    Ok(())
}

async fn list(
    service: Arc<ServerContext>,
    request: Request<ListReq>,
) -> Result<Response<EncodedList>, Status> {
    let held = service.outbound_quota.held_for(request.extensions());
    let options = request.into_inner().options.ok_or_else(missing_options)?;
    let of = match options.list_option.ok_or_else(missing_options)? {
        ListOption::ListAllSubscriptions(()) => None,
        ListOption::ListForStream(of) => {
            Some(match of.stream_option.ok_or_else(missing_stream)? {
                ListStreamOption::Stream(stream) => Some(proto_convert::stream_name(Some(stream))?)
                    .filter(|name| name != ALL_SOURCE),
                ListStreamOption::All(()) => None,
            })
        }
    };
    let bytes = list_bytes(&service).await?;
    let list = async move {
        let all = (0, usize::MAX);
        let page = service.group_registry.list(&service, of.as_ref(), all).await?;
        let infos: Vec<_> = page.infos.into_iter().map(|group| group.info).collect();
        if let Some(stream) = of.filter(|_| infos.is_empty()) {
            return Err(grpc_status::groups_missing(stream));
        }
        // Thousands of groups would occupy an asynchronous worker too long.
        let encoded = service.store.blocking(move |_| Ok(EncodedList::new(&infos)));
        encoded.await.map_err(|error| grpc_status::status(&error))
    };
    let (answer, unsent) = held.produce(bytes, list, EncodedList::encoded_len).await?;
    Ok(with_pending_page(answer, unsent))
}

/// A `ListResp` whose groups are encoded already. It has the same bytes.
#[derive(Clone, PartialEq, Message)]
struct EncodedList {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    subscriptions: Vec<Bytes>,
}

impl EncodedList {
    fn new(infos: &[SubscriptionInfo]) -> EncodedList {
        EncodedList {
            subscriptions: infos.iter().map(|info| info.encode_to_vec().into()).collect(),
        }
    }
}

/// Reservation for a list of groups, which is in memory before its bytes count.
pub async fn list_bytes(service: &ServerContext) -> Result<usize, Status> {
    let groups = service.group_registry.configs(service).await?.len();
    Ok(LIST_BYTES.max(groups * GROUP_INFO_BYTES))
}

/// Ends all groups; the groups resume from their checkpoints when a call next needs them.
pub async fn restart(service: Arc<ServerContext>, caller: &Caller) -> Result<Response<()>, Status> {
    tracing::info!(by = caller.user_name(), "all consumer groups restart");
    let restarting = tokio::spawn(async move { service.group_registry.restart().await });
    restarting.await.map(Response::new).map_err(|_| grpc_status::shutting_down())
}

/// Header with the name that a client gives its connection.
const CONNECTION_NAME: &str = "connection-name";

/// The name that the client gave its connection, cut; empty without one.
fn connection_name(headers: &MetadataMap) -> String {
    let name = headers.get(CONNECTION_NAME).and_then(|name| name.to_str().ok());
    truncate_text(name.unwrap_or_default(), CONNECTION_NAME_BYTES_MAX).to_string()
}

/// Joins a group: responds with events as long as the consumer stays.
async fn read(
    service: Arc<ServerContext>,
    deadline: Deadline,
    request: Request<MessageStream<ReadReq>>,
) -> Result<Response<ResponseStream<ReadResp>>, Status> {
    let caller = Caller::from_extensions(request.extensions());
    let username = caller.user_name().unwrap_or_default().to_string();
    let connection_name = connection_name(request.metadata());
    let peer = request.extensions().get::<Arc<Connection>>().cloned();
    let mut messages = request.into_inner();
    let options = match deadline.limit(messages.message()).await?? {
        Some(ReadReq { content: Some(ReadReqContent::Options(options)) }) => options,
        _ => return Err(Status::invalid_argument("the first message names the group to join")),
    };
    let ReadOptions { stream_option, group_name, buffer_size, uuid_option } = options;
    let stream = match stream_option.ok_or_else(missing_stream)? {
        ReadStreamOption::StreamIdentifier(stream) => Some(stream),
        ReadStreamOption::All(()) => None,
    };
    let key = parse_key(stream, group_name)?;
    let capacity = usize::try_from(buffer_size)
        .ok()
        .filter(|capacity| (1..=GROUP_EVENTS_MAX).contains(capacity));
    let capacity = capacity.ok_or_else(|| {
        Status::invalid_argument(format!(
            "the buffer size is {buffer_size}; it must be 1 to {GROUP_EVENTS_MAX}"
        ))
    })?;
    let form = uuid_option
        .and_then(|option| option.content)
        .ok_or_else(|| Status::invalid_argument("the options have no uuid_option"))?;
    let stream = key.stream.as_deref().unwrap_or(ALL_STREAM);
    let mut permission = ReadPermission::new(&service, caller, stream).await?;
    let is_of_all = key.stream.is_none();
    revalidate(&mut permission, &service, is_of_all).await?;
    let group = service.group_registry.command_sender(&service, &key).await?;
    let (answers, events) = mpsc::channel(capacity + 2);
    let joining = ConsumerRequest {
        capacity,
        form,
        username,
        connection_name,
        responses: answers.clone(),
        connection: peer,
    };
    let (answer, joined) = oneshot::channel();
    // If the group ended meanwhile, the reply sender is dropped.
    let _ = group.send(GroupCommand::Connect(joining, answer)).await;
    let id = joined.await.map_err(|_| grpc_status::group_dropped(&key))??;
    let (stays, closed) = oneshot::channel();
    service.tasks.spawn(forward_commands(messages, group, id, answers, closed));
    let reading = ConsumerStream {
        service,
        permission,
        reads_all_streams: is_of_all,
        deadline,
        // Clients compare it with their request.
        confirmation: Some(format!("{}::{}", key.source(), key.group)),
        events,
        _guard: stays,
    };
    Ok(Response::new(stream_steps(reading, ConsumerStream::step)))
}

/// Forwards a consumer's messages to the group, until the consumer leaves.
async fn forward_commands(
    mut messages: MessageStream<ReadReq>,
    group: mpsc::Sender<GroupCommand>,
    id: ConsumerId,
    answers: mpsc::Sender<ConsumerResponse>,
    mut closed: oneshot::Receiver<()>,
) {
    let why = loop {
        let message = tokio::select! {
            message = messages.message() => message,
            _ = &mut closed => break None,
        };
        let command = match message {
            Ok(Some(ReadReq { content: Some(content) })) => parse_command(id, content),
            Ok(Some(ReadReq { content: None })) => Err(empty_message()),
            Ok(None) => break None,
            Err(status) => Err(status),
        };
        match command {
            Ok(Some(message)) => {
                if group.send(message).await.is_err() {
                    return;
                }
            }
            Ok(None) => break Some(Status::cancelled("the consumer stopped itself with a nack")),
            Err(status) => break Some(status),
        }
    };
    // If the group has ended, the consumer was notified.
    let _ = group.send(GroupCommand::Disconnect(id)).await;
    if let Some(status) = why {
        let _ = answers.try_send(Err(status));
    }
}

/// Parses a consumer's message; `None` if the consumer has ended its messages.
fn parse_command(id: ConsumerId, content: ReadReqContent) -> Result<Option<GroupCommand>, Status> {
    let ids = |ids: Vec<Uuid>| -> Result<Vec<EventId>, Status> {
        if ids.len() > GROUP_EVENTS_MAX {
            return Err(Status::invalid_argument(format!(
                "the message names {} events; the limit is {GROUP_EVENTS_MAX}",
                ids.len()
            )));
        }
        ids.iter().map(|id| proto_convert::event_id(Some(id))).collect()
    };
    Ok(Some(match content {
        ReadReqContent::Ack(ack) => GroupCommand::Ack(id, ids(ack.ids)?),
        ReadReqContent::Nack(nack) => {
            let action = match NackAction::try_from(nack.action) {
                Ok(NackAction::Park) => NackDecision::Park(park_reason(&nack.reason)),
                Ok(NackAction::Skip) => NackDecision::Skip,
                Ok(NackAction::Retry | NackAction::Unknown) => NackDecision::Retry,
                Ok(NackAction::Stop) => return Ok(None),
                Err(_) => {
                    return Err(Status::invalid_argument("the nack's action is unknown"));
                }
            };
            GroupCommand::Nack(id, ids(nack.ids)?, action)
        }
        ReadReqContent::Options(_) => {
            return Err(Status::invalid_argument(
                "the call has named its group already; one call joins one group",
            ));
        }
    }))
}

/// Response stream of a consumer.
struct ConsumerStream {
    service: Arc<ServerContext>,
    permission: ReadPermission,
    /// Whether the group's source is all streams.
    reads_all_streams: bool,
    deadline: Deadline,
    confirmation: Option<String>,
    events: mpsc::Receiver<ConsumerResponse>,
    /// Dropped when the consumer leaves.
    _guard: oneshot::Sender<()>,
}

impl ConsumerStream {
    async fn step(mut self) -> (Vec<ConsumerResponse>, Option<ConsumerStream>) {
        if let Some(subscription_id) = self.confirmation.take() {
            let confirmation =
                ReadRespContent::SubscriptionConfirmation(SubscriptionConfirmation {
                    subscription_id,
                });
            return (vec![Ok(ReadResp { content: Some(confirmation) })], Some(self));
        }
        let service = Arc::clone(&self.service);
        let answer = tokio::select! {
            answer = self.events.recv() => answer,
            () = service.wait_stopping() => Some(Err(grpc_status::shutting_down())),
            () = self.deadline.wait() => Some(Err(deadline::deadline_exceeded())),
        };
        match answer {
            Some(Ok(answer)) => match self.redact(answer).await {
                Ok(answer) => (vec![Ok(answer)], Some(self)),
                Err(status) => (vec![Err(status)], None),
            },
            Some(Err(status)) => (vec![Err(status)], None),
            None => (Vec::new(), None),
        }
    }

    /// Restricts a response to what the consumer may see: links to streams without read permission
    /// stay unresolved, and those of a view into streams of the system have no data.
    async fn redact(&mut self, mut answer: ReadResp) -> ConsumerResponse {
        let sees_all =
            revalidate(&mut self.permission, &self.service, self.reads_all_streams).await?;
        if !sees_all
            && let Some(ReadRespContent::Event(ReadRespEvent { event, link, .. })) =
                &mut answer.content
            && let Some(original) = link.as_mut().or(event.as_mut())
            && let Some(stream) = &original.stream_identifier
            && let Some(target) = str::from_utf8(&stream.stream_name)
                .ok()
                .and_then(|stream| view_system_target(stream, &original.data))
            && !self.permission.allows(&self.service, target).await?
        {
            original.data = Bytes::new();
        }
        if !sees_all
            && let Some(ReadRespContent::Event(ReadRespEvent { event, link: Some(_), .. })) =
                &mut answer.content
            && let Some(target) = event.as_ref().and_then(|event| event.stream_identifier.clone())
            && !self
                .permission
                .allows(&self.service, &proto_convert::stream_name(Some(target))?)
                .await?
        {
            *event = None;
        }
        Ok(answer)
    }
}

/// Whether the consumer may read every stream; an error if it has lost the permission to consume. A
/// group of all events sends each event to only one consumer, so each consumer must be allowed to
/// see all events.
async fn revalidate(
    permission: &mut ReadPermission,
    service: &ServerContext,
    is_of_all: bool,
) -> Result<bool, Status> {
    let sees_all = permission.revalidate(service).await?.is_none();
    match is_of_all && !sees_all {
        true => Err(grpc_status::access_denied(
            "a group of all events requires a consumer that may read every stream, such as a user \
             in $admins",
        )),
        false => Ok(sees_all),
    }
}

fn parse_key(stream: Option<StreamIdentifier>, group: String) -> Result<GroupKey, Status> {
    let stream = match stream {
        Some(stream) => {
            Some(proto_convert::stream_name(Some(stream))?).filter(|name| name != ALL_SOURCE)
        }
        None => None,
    };
    Ok(GroupKey { stream, group: group_name(group)? })
}

fn missing_options() -> Status {
    Status::invalid_argument("the request has no options, so it names no group")
}

fn missing_stream() -> Status {
    Status::invalid_argument("the request names neither a stream nor all events")
}

fn empty_message() -> Status {
    Status::invalid_argument("the message has neither an ack nor a nack")
}

#[cfg(test)]
mod tests {
    use umbel_proto::persistent::ListResp;

    use super::*;

    #[test]
    fn encoded_list_has_the_bytes_of_the_message() {
        let info = |group: &str, parked| SubscriptionInfo {
            group_name: group.to_string(),
            parked_message_count: parked,
            ..SubscriptionInfo::default()
        };
        let infos = vec![info("billing", 3), SubscriptionInfo::default(), info("audit", 0)];
        let encoded = EncodedList::new(&infos).encode_to_vec();
        assert_eq!(encoded, ListResp { subscriptions: infos }.encode_to_vec());
    }
}

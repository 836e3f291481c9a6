//! Consumer of a group, and requests about groups.

use futures_util::stream;
use tokio::sync::mpsc;
use tonic::{Status, Streaming};
use umbel_proto::persistent::{
    Ack, CheckpointAfter, CreateOptions, CreateReq, DeleteOptions, DeleteReq, DeleteStreamOption,
    GetInfoOptions, GetInfoReq, GetInfoResp, GetInfoStreamOption, GroupAllOptions, GroupFilter,
    GroupOrigin, GroupStart, ListOption, ListOptions, ListReq, ListResp, MessageTimeout, Nack,
    NackAction, ReadOptions, ReadReq, ReadReqContent, ReadResp, ReadRespContent, ReadRespEvent,
    ReadStreamOption, ReplayParkedOptions, ReplayParkedReq, ReplayStreamOption, SERVICE, Settings,
    StopAt, SubscriptionInfo,
};
use umbel_proto::shared::Uuid;
use umbel_proto::streams::read_req::{
    Expression, Filter, FilterOptions, RevisionOption, StreamOptions, UuidForm, UuidOption, Window,
};

use crate::serving::soak::soak_context::{WorkResult, failed, unexpected_answer};
use umbel_testing::server_connection::Connection;

/// Number of events that may be in flight to a consumer.
const IN_FLIGHT_MAX: i32 = 100;

/// Source of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum GroupSource {
    /// A stream.
    Stream(String),
    /// All events of streams whose name begins with this prefix.
    All(String),
}

/// Group by its source and name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GroupName {
    /// Source of the group.
    pub(super) of: GroupSource,
    /// Name of the group.
    pub(super) group: String,
}

impl GroupName {
    /// Creates the group from the first event on.
    pub(super) async fn create(&self, connection: &Connection) -> WorkResult {
        let origin = match &self.of {
            GroupSource::Stream(stream) => GroupOrigin::Stream(StreamOptions {
                stream_identifier: Some(stream.as_str().into()),
                revision_option: Some(RevisionOption::Start(())),
            }),
            GroupSource::All(prefix) => GroupOrigin::All(GroupAllOptions {
                all_option: Some(GroupStart::Start(())),
                filter_option: Some(GroupFilter::Filter(begins_with(prefix))),
            }),
        };
        let options = CreateOptions {
            stream_identifier: None,
            group_name: self.group.clone(),
            settings: Some(settings()),
            stream_option: Some(origin),
        };
        let request = CreateReq { options: Some(options) };
        connection.unary(SERVICE, "Create", request).await.map_err(failed("creating a group"))
    }

    /// Deletes the group.
    pub(super) async fn delete(&self, connection: &Connection) -> WorkResult {
        let stream_option = Some(match &self.of {
            GroupSource::Stream(stream) => {
                DeleteStreamOption::StreamIdentifier(stream.as_str().into())
            }
            GroupSource::All(_) => DeleteStreamOption::All(()),
        });
        let options = DeleteOptions { stream_option, group_name: self.group.clone() };
        let request = DeleteReq { options: Some(options) };
        connection.unary(SERVICE, "Delete", request).await.map_err(failed("deleting a group"))
    }

    /// Requests the state of the group.
    pub(super) async fn info(&self, connection: &Connection) -> WorkResult<SubscriptionInfo> {
        let stream_option = Some(match &self.of {
            GroupSource::Stream(stream) => {
                GetInfoStreamOption::StreamIdentifier(stream.as_str().into())
            }
            GroupSource::All(_) => GetInfoStreamOption::All(()),
        });
        let options = GetInfoOptions { stream_option, group_name: self.group.clone() };
        let request = GetInfoReq { options: Some(options) };
        let answer: Result<GetInfoResp, Status> =
            connection.unary(SERVICE, "GetInfo", request).await;
        match answer.map_err(failed("requesting the state of a group"))?.subscription_info {
            Some(info) if info.group_name == self.group => Ok(info),
            other => unexpected_answer("requesting the state of a group", other),
        }
    }

    /// Replays all parked events.
    pub(super) async fn replay(&self, connection: &Connection) -> WorkResult {
        let options = ReplayParkedOptions {
            group_name: self.group.clone(),
            stream_option: Some(match &self.of {
                GroupSource::Stream(stream) => {
                    ReplayStreamOption::StreamIdentifier(stream.as_str().into())
                }
                GroupSource::All(_) => ReplayStreamOption::All(()),
            }),
            stop_at_option: Some(StopAt::NoLimit(())),
        };
        let request = ReplayParkedReq { options: Some(options) };
        connection.unary(SERVICE, "ReplayParked", request).await.map_err(failed("replaying"))
    }
}

/// Lists the names of all groups.
pub(super) async fn groups(connection: &Connection) -> WorkResult<Vec<String>> {
    let options = ListOptions { list_option: Some(ListOption::ListAllSubscriptions(())) };
    let request = ListReq { options: Some(options) };
    let answer: Result<ListResp, Status> = connection.unary(SERVICE, "List", request).await;
    let groups = answer.map_err(failed("listing groups"))?.subscriptions;
    let mut names: Vec<String> = groups.into_iter().map(|group| group.group_name).collect();
    names.sort_unstable();
    Ok(names)
}

fn settings() -> Settings {
    Settings {
        message_timeout: Some(MessageTimeout::MessageTimeoutMs(30_000)),
        max_retry_count: 10,
        checkpoint_after: Some(CheckpointAfter::CheckpointAfterMs(2000)),
        min_checkpoint_count: 10,
        max_checkpoint_count: 1000,
        live_buffer_size: 500,
        read_batch_size: 20,
        history_buffer_size: 500,
        consumer_strategy: "RoundRobin".to_string(),
        ..Settings::default()
    }
}

fn begins_with(prefix: &str) -> FilterOptions {
    let expression = Expression { regex: String::new(), prefix: vec![prefix.to_string()] };
    FilterOptions {
        filter: Some(Filter::StreamIdentifier(expression)),
        window: Some(Window::Max(32)),
        checkpoint_interval_multiplier: 1,
    }
}

/// Consumer that has joined a group.
pub(super) struct GroupConsumer {
    sender: mpsc::UnboundedSender<ReadReq>,
    answers: Streaming<ReadResp>,
}

impl GroupConsumer {
    /// Joins a group.
    pub(super) async fn join(
        connection: &Connection,
        name: &GroupName,
    ) -> WorkResult<GroupConsumer> {
        let options = ReadOptions {
            stream_option: Some(match &name.of {
                GroupSource::Stream(stream) => {
                    ReadStreamOption::StreamIdentifier(stream.as_str().into())
                }
                GroupSource::All(_) => ReadStreamOption::All(()),
            }),
            group_name: name.group.clone(),
            buffer_size: IN_FLIGHT_MAX,
            uuid_option: Some(UuidOption { content: Some(UuidForm::Structured(())) }),
        };
        let (sender, receiver) = mpsc::unbounded_channel();
        let requests = stream::unfold(receiver, |mut receiver| async {
            Some((receiver.recv().await?, receiver))
        });
        let joining = failed("joining a group");
        sender
            .send(ReadReq { content: Some(ReadReqContent::Options(options)) })
            .map_err(failed("joining a group"))?;
        let mut answers: Streaming<ReadResp> = connection
            .streaming(SERVICE, "Read", requests)
            .await
            .map_err(|status: Status| joining(status))?;
        let first = answers.message().await.map_err(joining)?;
        match first.and_then(|answer| answer.content) {
            Some(ReadRespContent::SubscriptionConfirmation(_)) => {
                Ok(GroupConsumer { sender, answers })
            }
            other => unexpected_answer("joining a group", other),
        }
    }

    /// Receives the next event.
    pub(super) async fn next(&mut self) -> WorkResult<ReadRespEvent> {
        let answer = self.answers.message().await.map_err(failed("a consumer"))?;
        match answer.and_then(|answer| answer.content) {
            Some(ReadRespContent::Event(event)) => Ok(event),
            other => unexpected_answer("a consumer", other),
        }
    }

    /// Acknowledges an event.
    pub(super) fn acknowledge(&self, event: &ReadRespEvent) -> WorkResult {
        let ack = Ack { id: Vec::new(), ids: vec![id_of(event)?] };
        self.sender
            .send(ReadReq { content: Some(ReadReqContent::Ack(ack)) })
            .map_err(failed("a consumer"))
    }

    /// Refuses an event with an action.
    pub(super) fn refuse(&self, event: &ReadRespEvent, action: NackAction) -> WorkResult {
        let reason = "refused by the soak".to_string();
        let ids = vec![id_of(event)?];
        let nack = Nack { id: Vec::new(), ids, action: action.into(), reason };
        self.sender
            .send(ReadReq { content: Some(ReadReqContent::Nack(nack)) })
            .map_err(failed("a consumer"))
    }
}

/// Returns the id by which a consumer acknowledges an event: the id of the link, if the event came
/// through one.
fn id_of(event: &ReadRespEvent) -> WorkResult<Uuid> {
    let through = event.link.as_ref().or(event.event.as_ref());
    through.and_then(|event| event.id.clone()).ok_or_else(|| "an event without an id".to_string())
}

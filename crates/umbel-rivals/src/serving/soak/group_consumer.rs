//! A consumer of a group, and what is asked of groups.

use futures_util::stream;
use tokio::sync::mpsc;
use tonic::{Status, Streaming};
use umbel_proto::persistent::{
    Ack, CheckpointAfter, CreateOptions, CreateReq, DeleteOptions, DeleteReq, DeletedStream,
    GetInfoOptions, GetInfoReq, GetInfoResp, GroupAllOptions, GroupFilter, GroupOrigin, GroupStart,
    JoinedStream, ListOption, ListOptions, ListReq, ListResp, ListedStream, MessageTimeout, Nack,
    NackAction, ReadOptions, ReadReq, ReadResp, ReplayParkedOptions, ReplayParkedReq,
    ReplayedStream, SERVICE, Said, Sent, SentEvent, Settings, StopAt, SubscriptionInfo,
};
use umbel_proto::shared::Uuid;
use umbel_proto::streams::read_req::{
    Expression, Filter, FilterOptions, RevisionOption, StreamOptions, UuidForm, UuidOption, Window,
};

use super::ground::{Done, failed, odd};
use crate::serving::connection::Connection;

/// How many events may be on the way to a consumer.
const ROOM: i32 = 100;

/// What a group is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Of {
    /// A stream.
    Stream(String),
    /// All events whose stream begins so.
    All(String),
}

/// A group by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name {
    /// What it is of.
    pub(super) of: Of,
    /// What it is called.
    pub(super) group: String,
}

impl Name {
    /// Makes the group; it begins with the first event.
    pub(super) async fn create(&self, connection: &Connection) -> Done {
        let origin = match &self.of {
            Of::Stream(stream) => GroupOrigin::Stream(StreamOptions {
                stream_identifier: Some(stream.as_str().into()),
                revision_option: Some(RevisionOption::Start(())),
            }),
            Of::All(prefix) => GroupOrigin::All(GroupAllOptions {
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
        let asked = CreateReq { options: Some(options) };
        connection.unary(SERVICE, "Create", asked).await.map_err(failed("making a group"))
    }

    /// Deletes it.
    pub(super) async fn delete(&self, connection: &Connection) -> Done {
        let stream_option = Some(match &self.of {
            Of::Stream(stream) => DeletedStream::Stream(stream.as_str().into()),
            Of::All(_) => DeletedStream::All(()),
        });
        let options = DeleteOptions { stream_option, group_name: self.group.clone() };
        let asked = DeleteReq { options: Some(options) };
        connection.unary(SERVICE, "Delete", asked).await.map_err(failed("deleting a group"))
    }

    /// Asks what it does.
    pub(super) async fn info(&self, connection: &Connection) -> Done<SubscriptionInfo> {
        let stream_option = Some(match &self.of {
            Of::Stream(stream) => ListedStream::Stream(stream.as_str().into()),
            Of::All(_) => ListedStream::All(()),
        });
        let options = GetInfoOptions { stream_option, group_name: self.group.clone() };
        let asked = GetInfoReq { options: Some(options) };
        let answer: Result<GetInfoResp, Status> = connection.unary(SERVICE, "GetInfo", asked).await;
        match answer.map_err(failed("asking for a group"))?.subscription_info {
            Some(info) if info.group_name == self.group => Ok(info),
            other => odd("asking for a group", other),
        }
    }

    /// Has everything sent again that is parked.
    pub(super) async fn replay(&self, connection: &Connection) -> Done {
        let options = ReplayParkedOptions {
            group_name: self.group.clone(),
            stream_option: Some(match &self.of {
                Of::Stream(stream) => ReplayedStream::Stream(stream.as_str().into()),
                Of::All(_) => ReplayedStream::All(()),
            }),
            stop_at_option: Some(StopAt::NoLimit(())),
        };
        let asked = ReplayParkedReq { options: Some(options) };
        connection.unary(SERVICE, "ReplayParked", asked).await.map_err(failed("replaying"))
    }
}

/// The groups there are, by their names.
pub(super) async fn groups(connection: &Connection) -> Done<Vec<String>> {
    let options = ListOptions { list_option: Some(ListOption::AllSubscriptions(())) };
    let asked = ListReq { options: Some(options) };
    let answer: Result<ListResp, Status> = connection.unary(SERVICE, "List", asked).await;
    let groups = answer.map_err(failed("listing groups"))?.subscriptions;
    let mut names: Vec<String> = groups.into_iter().map(|group| group.group_name).collect();
    names.sort_unstable();
    Ok(names)
}

fn settings() -> Settings {
    Settings {
        message_timeout: Some(MessageTimeout::Millis(30_000)),
        max_retry_count: 10,
        checkpoint_after: Some(CheckpointAfter::Millis(2000)),
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

/// A consumer that has joined.
pub(super) struct Consumer {
    says: mpsc::UnboundedSender<ReadReq>,
    answers: Streaming<ReadResp>,
}

impl Consumer {
    /// Joins a group.
    pub(super) async fn join(connection: &Connection, name: &Name) -> Done<Consumer> {
        let options = ReadOptions {
            stream_option: Some(match &name.of {
                Of::Stream(stream) => JoinedStream::Stream(stream.as_str().into()),
                Of::All(_) => JoinedStream::All(()),
            }),
            group_name: name.group.clone(),
            buffer_size: ROOM,
            uuid_option: Some(UuidOption { content: Some(UuidForm::Structured(())) }),
        };
        let (says, receiver) = mpsc::unbounded_channel();
        let said = stream::unfold(receiver, |mut receiver| async {
            Some((receiver.recv().await?, receiver))
        });
        let joining = failed("joining a group");
        says.send(ReadReq { content: Some(Said::Options(options)) })
            .map_err(failed("joining a group"))?;
        let mut answers: Streaming<ReadResp> = connection
            .streaming(SERVICE, "Read", said)
            .await
            .map_err(|status: Status| joining(status))?;
        let first = answers.message().await.map_err(joining)?;
        match first.and_then(|answer| answer.content) {
            Some(Sent::Confirmation(_)) => Ok(Consumer { says, answers }),
            other => odd("joining a group", other),
        }
    }

    /// The next event.
    pub(super) async fn next(&mut self) -> Done<SentEvent> {
        let answer = self.answers.message().await.map_err(failed("a consumer"))?;
        match answer.and_then(|answer| answer.content) {
            Some(Sent::Event(event)) => Ok(event),
            other => odd("a consumer", other),
        }
    }

    /// Says that an event is done.
    pub(super) fn done(&self, event: &SentEvent) -> Done {
        let ack = Ack { id: Vec::new(), ids: vec![id_of(event)?] };
        self.says.send(ReadReq { content: Some(Said::Ack(ack)) }).map_err(failed("a consumer"))
    }

    /// Says what to do with an event that is not.
    pub(super) fn not_done(&self, event: &SentEvent, action: NackAction) -> Done {
        let reason = "the soak wants it so".to_string();
        let ids = vec![id_of(event)?];
        let nack = Nack { id: Vec::new(), ids, action: action.into(), reason };
        self.says.send(ReadReq { content: Some(Said::Nack(nack)) }).map_err(failed("a consumer"))
    }
}

/// By what a consumer names an event: where it came through a link, the link.
fn id_of(event: &SentEvent) -> Done<Uuid> {
    let through = event.link.as_ref().or(event.event.as_ref());
    through.and_then(|event| event.id.clone()).ok_or_else(|| "an event without an id".to_string())
}

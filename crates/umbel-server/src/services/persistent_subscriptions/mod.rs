//! The calls about groups of consumers: making and changing them, joining them, and asking what
//! they do.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tonic::body::Body;
use tonic::{Request, Response, Status};
use umbel_events::EventId;
use umbel_proto::persistent::{
    CreateReq, DeleteReq, DeletedStream, GetInfoReq, GetInfoResp, JoinedStream, ListOption,
    ListReq, ListResp, ListedStream, NackAction, ReadOptions, ReadReq, ReadResp, ReplayParkedReq,
    ReplayedStream, Said, Sent, SentEvent, StopAt, SubscriptionConfirmation,
};
use umbel_proto::shared::{StreamIdentifier, Uuid};

use crate::access::Caller;
use crate::answers::{Answers, in_steps, one_counted};
use crate::asked::Asked;
use crate::consumers::{Action, ConsumerId};
use crate::deadline::{self, Deadline};
use crate::group_config::{GroupConfig, group_name};
use crate::group_key::{ALL, GroupKey};
use crate::group_message::{Answer, Joining, Message, reason};
use crate::groups::Change;
use crate::handler::{Handler, grpc};
use crate::limits::GROUP_EVENTS_MAX;
use crate::messages::Messages;
use crate::peers::Peer;
use crate::permit::{ALL_STREAM, Permit};
use crate::service::Service;
use crate::{convert, failure};

/// Serves a call.
pub async fn call(
    service: Arc<Service>,
    deadline: Deadline,
    request: hyper::Request<Asked>,
) -> hyper::Response<Body> {
    let path = request.uri().path();
    let method =
        path.strip_prefix("/event_store.client.persistent_subscriptions.PersistentSubscriptions/");
    match method {
        Some("Create") => {
            let create = Handler::new(move |asked: Request<CreateReq>| async move {
                let (key, config) = GroupConfig::read(asked.into_inner().options)?;
                change(service, key, Change::Create(config)).await
            });
            grpc().unary(create, request).await
        }
        Some("Update") => {
            let update = Handler::new(move |asked: Request<CreateReq>| async move {
                let (key, config) = GroupConfig::read(asked.into_inner().options)?;
                change(service, key, Change::Update(config)).await
            });
            grpc().unary(update, request).await
        }
        Some("Delete") => {
            let delete = Handler::new(move |asked| delete(service, asked));
            grpc().unary(delete, request).await
        }
        Some("Read") => {
            let read = Handler::new(move |said| read(service, deadline, said));
            grpc().streaming(read, request).await
        }
        Some("GetInfo") => {
            let info = Handler::new(move |asked| info(service, asked));
            grpc().unary(info, request).await
        }
        Some("ReplayParked") => {
            let replay = Handler::new(move |asked| replay(service, asked));
            grpc().unary(replay, request).await
        }
        Some("List") => {
            let list = Handler::new(move |asked| list(service, asked));
            grpc().unary(list, request).await
        }
        Some("RestartSubsystem") => {
            let restart = Handler::new(move |_: Request<()>| restart(service));
            grpc().unary(restart, request).await
        }
        _ => failure::not_served(path).into_http(),
    }
}

async fn change(
    service: Arc<Service>,
    key: GroupKey,
    change: Change,
) -> Result<Response<()>, Status> {
    // Whoever asked may go away; the change is done to its end all the same.
    let changing = tokio::spawn(async move { service.groups.change(&service, &key, change).await });
    changing.await.map_err(|_| failure::stopping())?.map(Response::new)
}

async fn delete(
    service: Arc<Service>,
    request: Request<DeleteReq>,
) -> Result<Response<()>, Status> {
    let options = request.into_inner().options.ok_or_else(no_options)?;
    let stream = match options.stream_option.ok_or_else(no_stream)? {
        DeletedStream::Stream(stream) => Some(stream),
        DeletedStream::All(()) => None,
    };
    change(service, key(stream, options.group_name)?, Change::Delete).await
}

async fn info(
    service: Arc<Service>,
    request: Request<GetInfoReq>,
) -> Result<Response<GetInfoResp>, Status> {
    let held = service.unread.held_for(request.extensions());
    let options = request.into_inner().options.ok_or_else(no_options)?;
    let stream = listed(options.stream_option)?;
    let key = key(stream, options.group_name)?;
    let info = async move {
        let subscription_info = Some(service.groups.info(&service, &key).await?);
        Ok(GetInfoResp { subscription_info })
    };
    one_counted(held, info).await
}

async fn replay(
    service: Arc<Service>,
    request: Request<ReplayParkedReq>,
) -> Result<Response<()>, Status> {
    let options = request.into_inner().options.ok_or_else(no_options)?;
    let stream = match options.stream_option.ok_or_else(no_stream)? {
        ReplayedStream::Stream(stream) => Some(stream),
        ReplayedStream::All(()) => None,
    };
    let key = key(stream, options.group_name)?;
    let before = match options.stop_at_option {
        Some(StopAt::Revision(revision)) => u64::try_from(revision).map_err(|_| {
            Status::invalid_argument("the revision to stop at is negative; say 0 or more")
        })?,
        Some(StopAt::NoLimit(())) | None => u64::MAX,
    };
    replay_before(&service, &key, before).await.map(Response::new)
}

/// Sends again what is parked before this revision of the stream of parked events.
pub async fn replay_before(
    service: &Arc<Service>,
    key: &GroupKey,
    before: u64,
) -> Result<(), Status> {
    let group = service.groups.serve(service, key).await?;
    let (answer, done) = oneshot::channel();
    // Where the group ended meanwhile, nobody answers.
    let _ = group.send(Message::Replay(before, answer)).await;
    done.await.map_err(|_| failure::group_missing(key))?
}

async fn list(
    service: Arc<Service>,
    request: Request<ListReq>,
) -> Result<Response<ListResp>, Status> {
    let held = service.unread.held_for(request.extensions());
    let options = request.into_inner().options.ok_or_else(no_options)?;
    let of = match options.list_option.ok_or_else(no_options)? {
        ListOption::AllSubscriptions(()) => None,
        ListOption::ForStream(of) => Some(match listed(of.stream_option)? {
            Some(stream) => Some(convert::stream_name(Some(stream))?).filter(|name| name != ALL),
            None => None,
        }),
    };
    let list = async move {
        let subscriptions = service.groups.list(&service, of.as_ref()).await?;
        if let Some(stream) = of.filter(|_| subscriptions.is_empty()) {
            return Err(failure::group_missing(&GroupKey { stream, group: String::new() }));
        }
        Ok(ListResp { subscriptions })
    };
    one_counted(held, list).await
}

/// Ends what groups do; they go on from what they keep when somebody asks for them.
pub async fn restart(service: Arc<Service>) -> Result<Response<()>, Status> {
    let restarting = tokio::spawn(async move { service.groups.restart().await });
    restarting.await.map(Response::new).map_err(|_| failure::stopping())
}

/// Joins a group: answers with events as long as the consumer stays.
async fn read(
    service: Arc<Service>,
    deadline: Deadline,
    request: Request<Messages<ReadReq>>,
) -> Result<Response<Answers<ReadResp>>, Status> {
    let caller = Caller::of(request.extensions());
    let username = caller.name().unwrap_or_default().to_string();
    let peer = request.extensions().get::<Arc<Peer>>().cloned();
    let mut said = request.into_inner();
    let options = match deadline.limit(said.message()).await?? {
        Some(ReadReq { content: Some(Said::Options(options)) }) => options,
        _ => return Err(Status::invalid_argument("the first message names the group to join")),
    };
    let ReadOptions { stream_option, group_name, buffer_size, uuid_option } = options;
    let stream = match stream_option.ok_or_else(no_stream)? {
        JoinedStream::Stream(stream) => Some(stream),
        JoinedStream::All(()) => None,
    };
    let key = key(stream, group_name)?;
    let room =
        usize::try_from(buffer_size).ok().filter(|room| (1..=GROUP_EVENTS_MAX).contains(room));
    let room = room.ok_or_else(|| {
        Status::invalid_argument(format!(
            "the buffer size is {buffer_size}; it must be 1 to {GROUP_EVENTS_MAX}"
        ))
    })?;
    let form = uuid_option.and_then(|option| option.content).ok_or_else(|| {
        Status::invalid_argument("a read says in which form identifiers are answered")
    })?;
    let stream = key.stream.as_deref().unwrap_or(ALL_STREAM);
    let mut permit = Permit::new(&service, caller, stream).await?;
    let is_of_all = key.stream.is_none();
    renewed(&mut permit, &service, is_of_all).await?;
    let group = service.groups.serve(&service, &key).await?;
    let (answers, events) = mpsc::channel(room + 2);
    let joining = Joining { room, form, username, answers: answers.clone(), peer };
    let (answer, joined) = oneshot::channel();
    // Where the group ended meanwhile, nobody answers.
    let _ = group.send(Message::Connect(joining, answer)).await;
    let id = joined.await.map_err(|_| failure::group_dropped(&key))??;
    let (stays, gone) = oneshot::channel();
    tokio::spawn(listen(said, group, id, answers, gone));
    let reading = Reading {
        service,
        permit,
        is_of_all,
        deadline,
        // Clients compare it with what they asked for.
        confirmation: Some(format!("{}::{}", key.source(), key.group)),
        events,
        _stays: stays,
    };
    Ok(Response::new(in_steps(reading, Reading::step)))
}

/// Passes on what a consumer says, until it goes away.
async fn listen(
    mut said: Messages<ReadReq>,
    group: mpsc::Sender<Message>,
    id: ConsumerId,
    answers: mpsc::Sender<Answer>,
    mut gone: oneshot::Receiver<()>,
) {
    let why = loop {
        let message = tokio::select! {
            message = said.message() => message,
            _ = &mut gone => break None,
        };
        let heard = match message {
            Ok(Some(ReadReq { content: Some(content) })) => heard(id, content),
            Ok(Some(ReadReq { content: None })) => Err(says_nothing()),
            Ok(None) => break None,
            Err(status) => Err(status),
        };
        match heard {
            Ok(Some(message)) => {
                if group.send(message).await.is_err() {
                    return;
                }
            }
            Ok(None) => break Some(Status::cancelled("the consumer stops, as it said")),
            Err(status) => break Some(status),
        }
    };
    // Where the group ended, the consumer knows.
    let _ = group.send(Message::Disconnect(id)).await;
    if let Some(status) = why {
        let _ = answers.try_send(Err(status));
    }
}

/// What a consumer said; `None` where it stops.
fn heard(id: ConsumerId, content: Said) -> Result<Option<Message>, Status> {
    let ids = |ids: Vec<Uuid>| -> Result<Vec<EventId>, Status> {
        if ids.len() > GROUP_EVENTS_MAX {
            return Err(Status::invalid_argument(format!(
                "the message names {} events; name {GROUP_EVENTS_MAX} at most in one",
                ids.len()
            )));
        }
        ids.iter().map(|id| convert::event_id(Some(id))).collect()
    };
    Ok(Some(match content {
        Said::Ack(ack) => Message::Ack(id, ids(ack.ids)?),
        Said::Nack(nack) => {
            let action = match NackAction::try_from(nack.action) {
                Ok(NackAction::Park) => Action::Park(reason(&nack.reason)),
                Ok(NackAction::Skip) => Action::Skip,
                Ok(NackAction::Retry | NackAction::Unknown) => Action::Retry,
                Ok(NackAction::Stop) => return Ok(None),
                Err(_) => {
                    return Err(Status::invalid_argument("the action is none of those known"));
                }
            };
            Message::Nack(id, ids(nack.ids)?, action)
        }
        Said::Options(_) => {
            return Err(Status::invalid_argument("the group was named before; one call joins one"));
        }
    }))
}

/// What a consumer is sent.
struct Reading {
    service: Arc<Service>,
    permit: Permit,
    /// Whether the group shares the events of all streams.
    is_of_all: bool,
    deadline: Deadline,
    confirmation: Option<String>,
    events: mpsc::Receiver<Answer>,
    /// Dropped when the consumer goes away.
    _stays: oneshot::Sender<()>,
}

impl Reading {
    async fn step(mut self) -> (Vec<Answer>, Option<Reading>) {
        if let Some(subscription_id) = self.confirmation.take() {
            let confirmation = Sent::Confirmation(SubscriptionConfirmation { subscription_id });
            return (vec![Ok(ReadResp { content: Some(confirmation) })], Some(self));
        }
        let service = Arc::clone(&self.service);
        let answer = tokio::select! {
            answer = self.events.recv() => answer,
            () = service.stopping() => Some(Err(failure::stopping())),
            () = self.deadline.passed() => Some(Err(deadline::too_late())),
        };
        match answer {
            Some(Ok(answer)) => match self.shown(answer).await {
                Ok(answer) => (vec![Ok(answer)], Some(self)),
                Err(status) => (vec![Err(status)], None),
            },
            Some(Err(status)) => (vec![Err(status)], None),
            None => (Vec::new(), None),
        }
    }

    /// What the consumer may see of an answer: links to streams that he may not read stay links.
    async fn shown(&mut self, mut answer: ReadResp) -> Answer {
        let sees_all = renewed(&mut self.permit, &self.service, self.is_of_all).await?;
        if !sees_all
            && let Some(Sent::Event(SentEvent { event, link: Some(_), .. })) = &mut answer.content
            && let Some(target) = event.as_ref().and_then(|event| event.stream_identifier.clone())
            && !self.permit.shows(&self.service, &convert::stream_name(Some(target))?).await?
        {
            *event = None;
        }
        Ok(answer)
    }
}

/// Whether the consumer sees every stream; an error where he may not consume any more. A group of
/// all events gives each of them to one consumer, who has to see them all.
async fn renewed(permit: &mut Permit, service: &Service, is_of_all: bool) -> Result<bool, Status> {
    let sees_all = permit.renewed(service).await?.is_none();
    if is_of_all && !sees_all { Err(failure::access_denied()) } else { Ok(sees_all) }
}

fn key(stream: Option<StreamIdentifier>, group: String) -> Result<GroupKey, Status> {
    let stream = match stream {
        Some(stream) => Some(convert::stream_name(Some(stream))?).filter(|name| name != ALL),
        None => None,
    };
    Ok(GroupKey { stream, group: group_name(group)? })
}

fn listed(option: Option<ListedStream>) -> Result<Option<StreamIdentifier>, Status> {
    match option.ok_or_else(no_stream)? {
        ListedStream::Stream(stream) => Ok(Some(stream)),
        ListedStream::All(()) => Ok(None),
    }
}

fn no_options() -> Status {
    Status::invalid_argument("the request has no options, so it names no group")
}

fn no_stream() -> Status {
    Status::invalid_argument("the request names neither a stream nor all events")
}

fn says_nothing() -> Status {
    Status::invalid_argument("a message acknowledges events or does not; this one says nothing")
}

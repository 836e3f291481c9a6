//! Consumer groups: created, changed, deleted, described, listed and joined.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::stream;
use tokio::sync::mpsc;
use tonic::{Code, Status, Streaming};
use umbel_proto::operations;
use umbel_proto::persistent::{
    CheckpointAfter, CreateOptions, CreateReq, DeleteOptions, DeleteReq, DeleteStreamOption,
    GetInfoOptions, GetInfoReq, GetInfoResp, GetInfoStreamOption, GroupAllOptions, GroupOrigin,
    GroupStart, ListOption, ListOptions, ListReq, ListResp, ListStream, ListStreamOption,
    MessageTimeout, ReadOptions, ReadReq, ReadReqContent, ReadResp, ReadRespContent,
    ReadStreamOption, ReplayParkedOptions, ReplayParkedReq, ReplayStreamOption, SERVICE, Settings,
    StopAt, SubscriptionInfo,
};
use umbel_proto::streams::read_req::{RevisionOption, StreamOptions, UuidForm, UuidOption};
use umbel_sim::Random;

use super::{CallRun, STREAM_NAMES};
use crate::server::calls::call_server::{ExpectedEnd, WRONG, one_of};

const GROUPS: [&str; 2] = ["one", "two"];
const STRATEGIES: [&str; 3] = ["RoundRobin", "DispatchToSingle", "Pinned"];
const MISSING: ExpectedEnd =
    ExpectedEnd::Named(Code::NotFound, "persistent-subscription-does-not-exist");
const EXISTS: ExpectedEnd =
    ExpectedEnd::Named(Code::AlreadyExists, "persistent-subscription-exists");
const FAILED: ExpectedEnd = ExpectedEnd::Named(Code::Internal, "persistent-subscription-failed");
const FULL: ExpectedEnd =
    ExpectedEnd::Named(Code::FailedPrecondition, "maximum-subscribers-reached");
const DROPPED: ExpectedEnd = ExpectedEnd::Named(Code::Cancelled, "persistent-subscription-dropped");
/// Maximum time until the server's counts show a change of a group's consumers.
const CONSUMER_TIMEOUT: Duration = Duration::from_secs(10);

/// Stream and name of a group; no stream means a group of all events.
type GroupKey = (Option<&'static str>, &'static str);

/// Expected state of a group.
struct GroupState {
    settings: Settings,
    begins_at_end: bool,
    consumers: Vec<TestConsumer>,
}

/// A joined consumer.
struct TestConsumer {
    _sender: mpsc::UnboundedSender<ReadReq>,
    answers: Streaming<ReadResp>,
}

/// The groups, and the group of the last call.
#[derive(Default)]
pub struct GroupStates(BTreeMap<GroupKey, GroupState>, Option<GroupKey>);

/// Makes one call.
pub async fn call(run: &mut CallRun<'_>) -> Result<(), String> {
    run.tally.add("calls about groups judged", 1);
    match run.random.below(12) {
        10 => restart(run).await,
        11 => replay(run).await,
        0 => create_or_update(run, true).await,
        1 | 2 => create_or_update(run, false).await,
        3 => delete(run).await,
        4 | 5 => info(run).await,
        6 => list(run).await,
        7 => leave(run).await,
        _ => join(run).await,
    }
}

/// Returns a group, mostly the group of the last call, so that the effect of that call is checked.
fn key(run: &mut CallRun<'_>) -> GroupKey {
    if !run.random.once_in(3)
        && let Some(last) = run.groups.1
    {
        return last;
    }
    let stream = one_of(&mut run.random, &[None, Some(STREAM_NAMES[1]), Some(STREAM_NAMES[2])]);
    let key = (stream, one_of(&mut run.random, &GROUPS));
    run.groups.1 = Some(key);
    key
}

fn source(key: GroupKey) -> &'static str {
    key.0.unwrap_or("$all")
}

fn settings(random: &mut Random) -> Settings {
    let read_batch_size = 1 + random.below(20) as i32;
    Settings {
        resolve_links: random.once_in(2),
        extra_statistics: random.once_in(2),
        message_timeout: Some(MessageTimeout::MessageTimeoutMs(random.below(60_000) as i32)),
        max_retry_count: random.below(10) as i32,
        checkpoint_after: Some(CheckpointAfter::CheckpointAfterMs(random.below(5000) as i32)),
        min_checkpoint_count: random.below(10) as i32,
        max_checkpoint_count: random.below(100) as i32,
        max_subscriber_count: random.below(3) as i32,
        live_buffer_size: random.below(500) as i32,
        read_batch_size,
        history_buffer_size: read_batch_size + 1 + random.below(500) as i32,
        consumer_strategy: one_of(random, &STRATEGIES).to_string(),
        ..Settings::default()
    }
}

/// Makes a group's settings invalid.
fn add_flaw(settings: &mut Settings, random: &mut Random) {
    match random.below(7) {
        0 => settings.read_batch_size = settings.history_buffer_size,
        1 => settings.read_batch_size = 0,
        2 => settings.live_buffer_size = -1,
        3 => settings.history_buffer_size = 10_001,
        4 => settings.max_retry_count = -1,
        5 => settings.message_timeout = Some(MessageTimeout::MessageTimeoutMs(-1)),
        _ => settings.consumer_strategy = "Dice".to_string(),
    }
}

/// Creates or updates a group.
async fn create_or_update(run: &mut CallRun<'_>, is_new: bool) -> Result<(), String> {
    let (key, mut settings) = (key(run), settings(&mut run.random));
    let begins_at_end = run.random.once_in(2);
    let flaw = run.random.below(16);
    let mut options = CreateOptions {
        stream_identifier: None,
        group_name: key.1.to_string(),
        settings: None,
        stream_option: Some(origin(key, begins_at_end)),
    };
    match flaw {
        0 => add_flaw(&mut settings, &mut run.random),
        1 => options.group_name.clear(),
        2 => options.group_name = "g".repeat(513),
        3 => options.stream_option = None,
        _ => {}
    }
    options.settings = Some(settings.clone()).filter(|_| flaw != 4);
    let is_there = run.groups.0.contains_key(&key);
    let end = match (flaw, is_new, is_there) {
        (0, ..) => FAILED,
        (1..=4, ..) => WRONG,
        (_, true, true) => EXISTS,
        (_, false, false) => MISSING,
        _ => ExpectedEnd::Success,
    };
    let method = if is_new { "Create" } else { "Update" };
    let what = format!("{method} of the group {key:?}, flaw {flaw}");
    let request = CreateReq { options: Some(options) };
    end.check(&what, run.admin().unary::<_, ()>(SERVICE, method, request).await)?;
    if end == ExpectedEnd::Success {
        let group = GroupState { settings, begins_at_end, consumers: Vec::new() };
        if let Some(old) = run.groups.0.insert(key, group) {
            check_consumers_dropped(old.consumers, &what).await?;
        }
    }
    Ok(())
}

fn origin((stream, _): GroupKey, begins_at_end: bool) -> GroupOrigin {
    match (stream, begins_at_end) {
        (Some(stream), _) => GroupOrigin::Stream(StreamOptions {
            stream_identifier: Some(stream.into()),
            revision_option: Some(match begins_at_end {
                true => RevisionOption::End(()),
                false => RevisionOption::Start(()),
            }),
        }),
        (None, _) => GroupOrigin::All(GroupAllOptions {
            all_option: Some(match begins_at_end {
                true => GroupStart::End(()),
                false => GroupStart::Start(()),
            }),
            filter_option: None,
        }),
    }
}

/// Checks that every consumer of a changed or deleted group is dropped.
async fn check_consumers_dropped(consumers: Vec<TestConsumer>, what: &str) -> Result<(), String> {
    for mut consumer in consumers {
        let ended = async {
            loop {
                match consumer.answers.message().await {
                    Ok(Some(_)) => {}
                    Ok(None) => return Ok(()),
                    Err(status) => return Err(status),
                }
            }
        };
        let ended = tokio::time::timeout(CONSUMER_TIMEOUT, ended).await;
        let ended = ended.map_err(|_| format!("{what}: a consumer is not dropped"))?;
        DROPPED.check(&format!("{what}: a consumer"), ended)?;
    }
    Ok(())
}

async fn delete(run: &mut CallRun<'_>) -> Result<(), String> {
    let key = key(run);
    let stream_option = Some(match key.0 {
        Some(stream) => DeleteStreamOption::StreamIdentifier(stream.into()),
        None => DeleteStreamOption::All(()),
    });
    let has_name = !run.random.once_in(10);
    let group_name = if has_name { key.1.to_string() } else { String::new() };
    let old = if has_name { run.groups.0.remove(&key) } else { None };
    let end = match (has_name, &old) {
        (false, _) => WRONG,
        (true, None) => MISSING,
        (true, Some(_)) => ExpectedEnd::Success,
    };
    let what = format!("Delete of the group {key:?}");
    let request = DeleteReq { options: Some(DeleteOptions { stream_option, group_name }) };
    end.check(&what, run.admin().unary::<_, ()>(SERVICE, "Delete", request).await)?;
    match old {
        Some(old) => check_consumers_dropped(old.consumers, &what).await,
        None => Ok(()),
    }
}

fn info_stream_option((stream, _): GroupKey) -> GetInfoStreamOption {
    match stream {
        Some(stream) => GetInfoStreamOption::StreamIdentifier(stream.into()),
        None => GetInfoStreamOption::All(()),
    }
}

fn list_stream_option((stream, _): GroupKey) -> ListStreamOption {
    match stream {
        Some(stream) => ListStreamOption::Stream(stream.into()),
        None => ListStreamOption::All(()),
    }
}

async fn fetch_info(run: &CallRun<'_>, key: GroupKey) -> Result<SubscriptionInfo, Status> {
    let options = Some(GetInfoOptions {
        stream_option: Some(info_stream_option(key)),
        group_name: key.1.to_string(),
    });
    let request = GetInfoReq { options };
    let answer: GetInfoResp = run.admin().unary(SERVICE, "GetInfo", request).await?;
    answer.subscription_info.ok_or_else(|| Status::internal("the answer has no info"))
}

async fn info(run: &mut CallRun<'_>) -> Result<(), String> {
    let key = key(run);
    let what = format!("GetInfo of the group {key:?}");
    if !run.groups.0.contains_key(&key) {
        return MISSING.check(&what, fetch_info(run, key).await).map(drop);
    }
    // A consumer that left is counted until the server notices.
    let due = tokio::time::Instant::now() + CONSUMER_TIMEOUT;
    loop {
        let info = ExpectedEnd::Success.check(&what, fetch_info(run, key).await)?;
        let info = info.ok_or("the answer has no info")?;
        let group = run.groups.0.get(&key).ok_or("it is there")?;
        match check_info(&info, key, group) {
            Ok(()) => return Ok(()),
            Err(text) if tokio::time::Instant::now() > due => {
                return Err(format!("{what}: {text}"));
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(2)).await,
        }
    }
}

fn check_info(info: &SubscriptionInfo, key: GroupKey, group: &GroupState) -> Result<(), String> {
    let GroupState { settings, begins_at_end, consumers } = group;
    let start_from = match (key.0.is_some(), begins_at_end) {
        (true, false) => "0",
        (true, true) => "-1",
        (false, false) => "C:0/P:0",
        (false, true) => "C:-1/P:-1",
    };
    let millis = match settings.message_timeout {
        Some(MessageTimeout::MessageTimeoutMs(millis)) => millis,
        _ => 0,
    };
    let after = match settings.checkpoint_after {
        Some(CheckpointAfter::CheckpointAfterMs(millis)) => millis,
        _ => 0,
    };
    let names = [
        ("source", &*info.event_source, source(key)),
        ("name", &*info.group_name, key.1),
        ("start", &*info.start_from, start_from),
        ("strategy", &*info.named_consumer_strategy, &*settings.consumer_strategy),
        ("status", &*info.status, "Live"),
    ];
    let numbers = [
        ("timeout", info.message_timeout_milliseconds, millis),
        ("checkpoint time", info.check_point_after_milliseconds, after),
        ("retries", info.max_retry_count, settings.max_retry_count),
        ("live buffer", info.live_buffer_size, settings.live_buffer_size),
        ("history buffer", info.buffer_size, settings.history_buffer_size),
        ("read batch", info.read_batch_size, settings.read_batch_size),
        ("least checkpoint", info.min_check_point_count, settings.min_checkpoint_count),
        ("most checkpoint", info.max_check_point_count, settings.max_checkpoint_count),
        ("most consumers", info.max_subscriber_count, settings.max_subscriber_count),
        ("consumers", info.connections.len() as i32, consumers.len() as i32),
    ];
    let name = names.iter().find(|(_, info, wanted)| info != wanted);
    let number = numbers.iter().find(|(_, info, wanted)| info != wanted);
    let flags = (info.resolve_link_tos, info.extra_statistics);
    match (name, number) {
        (None, None) if flags == (settings.resolve_links, settings.extra_statistics) => Ok(()),
        (name, number) => Err(format!("{name:?}, {number:?}, {flags:?}: {info:?}, {settings:?}")),
    }
}

async fn list(run: &mut CallRun<'_>) -> Result<(), String> {
    let of = run.random.once_in(2).then(|| key(run));
    let wanted: Vec<(&str, &str)> = run
        .groups
        .0
        .keys()
        .filter(|key| of.is_none_or(|of| of.0 == key.0))
        .map(|key| (source(*key), key.1))
        .collect();
    let list_option = Some(match of {
        None => ListOption::ListAllSubscriptions(()),
        Some(key) => {
            ListOption::ListForStream(ListStream { stream_option: Some(list_stream_option(key)) })
        }
    });
    let has_options = !run.random.once_in(8);
    let options = Some(ListOptions { list_option }).filter(|_| has_options);
    let end = match (has_options, of, wanted.is_empty()) {
        (false, ..) => WRONG,
        (true, Some(_), true) => MISSING,
        _ => ExpectedEnd::Success,
    };
    let what = format!("List of groups of {of:?}");
    let answer = run.admin().unary::<_, ListResp>(SERVICE, "List", ListReq { options }).await;
    let Some(listed) = end.check(&what, answer)? else { return Ok(()) };
    let mut listed: Vec<(&str, &str)> = listed
        .subscriptions
        .iter()
        .map(|group| (&*group.event_source, &*group.group_name))
        .collect();
    let mut wanted = wanted;
    listed.sort_unstable();
    wanted.sort_unstable();
    if listed == wanted { Ok(()) } else { Err(format!("{what}: {listed:?} and not {wanted:?}")) }
}

/// Restarts all groups; their consumers are dropped.
async fn restart(run: &mut CallRun<'_>) -> Result<(), String> {
    let (service, method) = match run.random.once_in(2) {
        true => (SERVICE, "RestartSubsystem"),
        false => (operations::SERVICE, "RestartPersistentSubscriptions"),
    };
    ExpectedEnd::Success.check(method, run.admin().unary::<_, ()>(service, method, ()).await)?;
    for group in run.groups.0.values_mut() {
        check_consumers_dropped(std::mem::take(&mut group.consumers), method).await?;
    }
    Ok(())
}

/// Replays parked events.
async fn replay(run: &mut CallRun<'_>) -> Result<(), String> {
    let (key, flaw) = (key(run), run.random.below(8));
    let stop = if flaw == 0 { StopAt::StopAt(-1) } else { StopAt::NoLimit(()) };
    let options = ReplayParkedOptions {
        group_name: key.1.to_string(),
        stream_option: Some(match key.0 {
            Some(stream) => ReplayStreamOption::StreamIdentifier(stream.into()),
            None => ReplayStreamOption::All(()),
        })
        .filter(|_| flaw != 1),
        stop_at_option: Some(stop),
    };
    let end = match (flaw, run.groups.0.contains_key(&key)) {
        (0 | 1, _) => WRONG,
        (_, false) => MISSING,
        (_, true) => ExpectedEnd::Success,
    };
    let request = ReplayParkedReq { options: Some(options) };
    let answer = run.admin().unary::<_, ()>(SERVICE, "ReplayParked", request).await;
    end.check(&format!("a replay of the group {key:?}, flaw {flaw}"), answer).map(drop)
}

/// Makes a consumer leave.
async fn leave(run: &mut CallRun<'_>) -> Result<(), String> {
    let key = key(run);
    if let Some(group) = run.groups.0.get_mut(&key) {
        drop(group.consumers.pop());
        // Counted until the server notices, which must be before the next consumer joins.
        return wait_for_consumers(run, key).await;
    }
    Ok(())
}

async fn wait_for_consumers(run: &CallRun<'_>, key: GroupKey) -> Result<(), String> {
    let wanted = run.groups.0.get(&key).map_or(0, |group| group.consumers.len());
    let due = tokio::time::Instant::now() + CONSUMER_TIMEOUT;
    while tokio::time::Instant::now() < due {
        let info = fetch_info(run, key).await.map_err(|status| format!("{status:?}"))?;
        if info.connections.len() == wanted {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Err(format!("the group {key:?} does not have {wanted} consumers"))
}

async fn join(run: &mut CallRun<'_>) -> Result<(), String> {
    let key = key(run);
    let (mut buffer_size, mut form) =
        (1 + run.random.below(50) as i32, Some(UuidForm::Structured(())));
    let flaw = run.random.below(16);
    match flaw {
        0 => buffer_size = one_of(&mut run.random, &[0, -1, 10_001]),
        1 => form = None,
        _ => {}
    }
    let group = run.groups.0.get(&key);
    let is_full = group.is_some_and(|group| {
        let consumers_max = group.settings.max_subscriber_count as usize;
        consumers_max > 0 && group.consumers.len() >= consumers_max
    });
    let end = match (flaw, group) {
        (0..=2, _) => WRONG,
        (_, None) => MISSING,
        (_, Some(_)) if is_full => FULL,
        (_, Some(_)) => ExpectedEnd::Success,
    };
    let options = ReadOptions {
        stream_option: Some(match key.0 {
            Some(stream) => ReadStreamOption::StreamIdentifier(stream.into()),
            None => ReadStreamOption::All(()),
        })
        .filter(|_| flaw != 2),
        group_name: key.1.to_string(),
        buffer_size,
        uuid_option: Some(UuidOption { content: form }),
    };
    let what = format!("joining the group {key:?}, flaw {flaw}");
    let Some((consumer, confirmed)) = end.check(&what, consumer(run, options).await)? else {
        return Ok(());
    };
    let wanted = format!("{}::{}", source(key), key.1);
    if confirmed != wanted {
        return Err(format!("{what}: the confirmation is {confirmed} and not {wanted}"));
    }
    if let Some(group) = run.groups.0.get_mut(&key) {
        group.consumers.push(consumer);
    }
    Ok(())
}

/// Joins a consumer; returns it and its subscription id.
async fn consumer(
    run: &CallRun<'_>,
    options: ReadOptions,
) -> Result<(TestConsumer, String), Status> {
    let (sender, receiver) = mpsc::unbounded_channel();
    let requests =
        stream::unfold(receiver, |mut receiver| async { Some((receiver.recv().await?, receiver)) });
    let options = ReadReq { content: Some(ReadReqContent::Options(options)) };
    sender.send(options).map_err(|error| Status::internal(error.to_string()))?;
    let mut answers: Streaming<ReadResp> = run.admin().streaming(SERVICE, "Read", requests).await?;
    match answers.message().await?.and_then(|answer| answer.content) {
        Some(ReadRespContent::SubscriptionConfirmation(confirmation)) => {
            Ok((TestConsumer { _sender: sender, answers }, confirmation.subscription_id))
        }
        other => Err(Status::internal(format!("the first answer is {other:?}"))),
    }
}

impl std::fmt::Debug for TestConsumer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a consumer")
    }
}

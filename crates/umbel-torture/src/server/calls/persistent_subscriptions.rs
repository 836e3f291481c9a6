//! Groups of consumers: made, changed, deleted, described, listed and joined.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::stream;
use tokio::sync::mpsc;
use tonic::{Code, Status, Streaming};
use umbel_proto::operations;
use umbel_proto::persistent::{
    CheckpointAfter, CreateOptions, CreateReq, DeleteOptions, DeleteReq, DeletedStream,
    GetInfoOptions, GetInfoReq, GetInfoResp, GroupAllOptions, GroupOrigin, GroupStart,
    JoinedStream, ListOption, ListOptions, ListReq, ListResp, ListStream, ListedStream,
    MessageTimeout, ReadOptions, ReadReq, ReadResp, ReplayParkedOptions, ReplayParkedReq,
    ReplayedStream, SERVICE, Said, Sent, Settings, StopAt, SubscriptionInfo,
};
use umbel_proto::streams::read_req::{RevisionOption, StreamOptions, UuidForm, UuidOption};

use super::world::{End, WRONG, one_of};
use super::{NAMES, Run};
use crate::random::Random;

const GROUPS: [&str; 2] = ["one", "two"];
const STRATEGIES: [&str; 3] = ["RoundRobin", "DispatchToSingle", "Pinned"];
const MISSING: End = End::Named(Code::NotFound, "persistent-subscription-does-not-exist");
const EXISTS: End = End::Named(Code::AlreadyExists, "persistent-subscription-exists");
const FAILED: End = End::Named(Code::Internal, "persistent-subscription-failed");
const FULL: End = End::Named(Code::FailedPrecondition, "maximum-subscribers-reached");
const DROPPED: End = End::Named(Code::Cancelled, "persistent-subscription-dropped");
/// How long a consumer may take to be counted, or no longer to be.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a group is of, and its name.
type Key = (Option<&'static str>, &'static str);

/// A group as it has to be.
struct Group {
    settings: Settings,
    begins_at_end: bool,
    consumers: Vec<Consumer>,
}

/// A consumer that has joined.
struct Consumer {
    _says: mpsc::UnboundedSender<ReadReq>,
    answers: Streaming<ReadResp>,
}

/// The groups, and which was called about last.
#[derive(Default)]
pub struct Groups(BTreeMap<Key, Group>, Option<Key>);

/// One call.
pub async fn call(run: &mut Run<'_>) -> Result<(), String> {
    run.tally.add("calls about groups judged", 1);
    match run.random.below(12) {
        10 => restart(run).await,
        11 => replay(run).await,
        0 => make(run, true).await,
        1 | 2 => make(run, false).await,
        3 => delete(run).await,
        4 | 5 => info(run).await,
        6 => list(run).await,
        7 => leave(run).await,
        _ => join(run).await,
    }
}

/// A group, mostly the one that was called about last: what became of it is asked at once.
fn key(run: &mut Run<'_>) -> Key {
    if !run.random.once_in(3)
        && let Some(last) = run.groups.1
    {
        return last;
    }
    let stream = one_of(&mut run.random, &[None, Some(NAMES[1]), Some(NAMES[2])]);
    let key = (stream, one_of(&mut run.random, &GROUPS));
    run.groups.1 = Some(key);
    key
}

fn source(key: Key) -> &'static str {
    key.0.unwrap_or("$all")
}

fn settings(random: &mut Random) -> Settings {
    let read_batch_size = 1 + random.below(20) as i32;
    Settings {
        resolve_links: random.once_in(2),
        extra_statistics: random.once_in(2),
        message_timeout: Some(MessageTimeout::Millis(random.below(60_000) as i32)),
        max_retry_count: random.below(10) as i32,
        checkpoint_after: Some(CheckpointAfter::Millis(random.below(5000) as i32)),
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

/// Settings with something wrong in them.
fn spoil(settings: &mut Settings, random: &mut Random) {
    match random.below(7) {
        0 => settings.read_batch_size = settings.history_buffer_size,
        1 => settings.read_batch_size = 0,
        2 => settings.live_buffer_size = -1,
        3 => settings.history_buffer_size = 10_001,
        4 => settings.max_retry_count = -1,
        5 => settings.message_timeout = Some(MessageTimeout::Millis(-1)),
        _ => settings.consumer_strategy = "Dice".to_string(),
    }
}

/// Makes a group, or changes one.
async fn make(run: &mut Run<'_>, is_new: bool) -> Result<(), String> {
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
        0 => spoil(&mut settings, &mut run.random),
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
        _ => End::Well,
    };
    let method = if is_new { "Create" } else { "Update" };
    let what = format!("{method} of the group {key:?}, flaw {flaw}");
    let asked = CreateReq { options: Some(options) };
    end.is(&what, run.admin().unary::<_, ()>(SERVICE, method, asked).await)?;
    if end == End::Well {
        let group = Group { settings, begins_at_end, consumers: Vec::new() };
        if let Some(old) = run.groups.0.insert(key, group) {
            dropped(old.consumers, &what).await?;
        }
    }
    Ok(())
}

fn origin((stream, _): Key, begins_at_end: bool) -> GroupOrigin {
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

/// Whether every consumer of a group that is no more as it was is told so.
async fn dropped(consumers: Vec<Consumer>, what: &str) -> Result<(), String> {
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
        let ended = tokio::time::timeout(PATIENCE, ended).await;
        let ended = ended.map_err(|_| format!("{what}: a consumer is not told"))?;
        DROPPED.is(&format!("{what}: a consumer"), ended)?;
    }
    Ok(())
}

async fn delete(run: &mut Run<'_>) -> Result<(), String> {
    let key = key(run);
    let stream_option = Some(match key.0 {
        Some(stream) => DeletedStream::Stream(stream.into()),
        None => DeletedStream::All(()),
    });
    let has_name = !run.random.once_in(10);
    let group_name = if has_name { key.1.to_string() } else { String::new() };
    let old = if has_name { run.groups.0.remove(&key) } else { None };
    let end = match (has_name, &old) {
        (false, _) => WRONG,
        (true, None) => MISSING,
        (true, Some(_)) => End::Well,
    };
    let what = format!("Delete of the group {key:?}");
    let asked = DeleteReq { options: Some(DeleteOptions { stream_option, group_name }) };
    end.is(&what, run.admin().unary::<_, ()>(SERVICE, "Delete", asked).await)?;
    match old {
        Some(old) => dropped(old.consumers, &what).await,
        None => Ok(()),
    }
}

fn listed((stream, _): Key) -> ListedStream {
    match stream {
        Some(stream) => ListedStream::Stream(stream.into()),
        None => ListedStream::All(()),
    }
}

async fn ask(run: &Run<'_>, key: Key) -> Result<SubscriptionInfo, Status> {
    let options =
        Some(GetInfoOptions { stream_option: Some(listed(key)), group_name: key.1.to_string() });
    let asked = GetInfoReq { options };
    let answer: GetInfoResp = run.admin().unary(SERVICE, "GetInfo", asked).await?;
    answer.subscription_info.ok_or_else(|| Status::internal("nothing is told"))
}

async fn info(run: &mut Run<'_>) -> Result<(), String> {
    let key = key(run);
    let what = format!("GetInfo of the group {key:?}");
    if !run.groups.0.contains_key(&key) {
        return MISSING.is(&what, ask(run, key).await).map(drop);
    }
    // A consumer that went away is counted until the server hears of it.
    let due = tokio::time::Instant::now() + PATIENCE;
    loop {
        let told = End::Well.is(&what, ask(run, key).await)?;
        let told = told.ok_or("nothing is told")?;
        let group = run.groups.0.get(&key).ok_or("it is there")?;
        match is_told(&told, key, group) {
            Ok(()) => return Ok(()),
            Err(text) if tokio::time::Instant::now() > due => {
                return Err(format!("{what}: {text}"));
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(2)).await,
        }
    }
}

fn is_told(told: &SubscriptionInfo, key: Key, group: &Group) -> Result<(), String> {
    let Group { settings, begins_at_end, consumers } = group;
    let start_from = match (key.0.is_some(), begins_at_end) {
        (true, false) => "0",
        (true, true) => "-1",
        (false, false) => "C:0/P:0",
        (false, true) => "C:-1/P:-1",
    };
    let millis = match settings.message_timeout {
        Some(MessageTimeout::Millis(millis)) => millis,
        _ => 0,
    };
    let after = match settings.checkpoint_after {
        Some(CheckpointAfter::Millis(millis)) => millis,
        _ => 0,
    };
    let names = [
        ("source", &*told.event_source, source(key)),
        ("name", &*told.group_name, key.1),
        ("start", &*told.start_from, start_from),
        ("strategy", &*told.named_consumer_strategy, &*settings.consumer_strategy),
        ("status", &*told.status, "Live"),
    ];
    let numbers = [
        ("timeout", told.message_timeout_milliseconds, millis),
        ("checkpoint time", told.check_point_after_milliseconds, after),
        ("retries", told.max_retry_count, settings.max_retry_count),
        ("live buffer", told.live_buffer_size, settings.live_buffer_size),
        ("history buffer", told.buffer_size, settings.history_buffer_size),
        ("read batch", told.read_batch_size, settings.read_batch_size),
        ("least checkpoint", told.min_check_point_count, settings.min_checkpoint_count),
        ("most checkpoint", told.max_check_point_count, settings.max_checkpoint_count),
        ("most consumers", told.max_subscriber_count, settings.max_subscriber_count),
        ("consumers", told.connections.len() as i32, consumers.len() as i32),
    ];
    let name = names.iter().find(|(_, told, wanted)| told != wanted);
    let number = numbers.iter().find(|(_, told, wanted)| told != wanted);
    let flags = (told.resolve_link_tos, told.extra_statistics);
    match (name, number) {
        (None, None) if flags == (settings.resolve_links, settings.extra_statistics) => Ok(()),
        (name, number) => Err(format!("{name:?}, {number:?}, {flags:?}: {told:?}, {settings:?}")),
    }
}

async fn list(run: &mut Run<'_>) -> Result<(), String> {
    let of = run.random.once_in(2).then(|| key(run));
    let wanted: Vec<(&str, &str)> = run
        .groups
        .0
        .keys()
        .filter(|key| of.is_none_or(|of| of.0 == key.0))
        .map(|key| (source(*key), key.1))
        .collect();
    let list_option = Some(match of {
        None => ListOption::AllSubscriptions(()),
        Some(key) => ListOption::ForStream(ListStream { stream_option: Some(listed(key)) }),
    });
    let has_options = !run.random.once_in(8);
    let options = Some(ListOptions { list_option }).filter(|_| has_options);
    let end = match (has_options, of, wanted.is_empty()) {
        (false, ..) => WRONG,
        (true, Some(_), true) => MISSING,
        _ => End::Well,
    };
    let what = format!("List of groups of {of:?}");
    let answer = run.admin().unary::<_, ListResp>(SERVICE, "List", ListReq { options }).await;
    let Some(told) = end.is(&what, answer)? else { return Ok(()) };
    let mut told: Vec<(&str, &str)> =
        told.subscriptions.iter().map(|group| (&*group.event_source, &*group.group_name)).collect();
    let mut wanted = wanted;
    told.sort_unstable();
    wanted.sort_unstable();
    if told == wanted { Ok(()) } else { Err(format!("{what}: {told:?} and not {wanted:?}")) }
}

/// Has all groups begin anew; their consumers are dropped.
async fn restart(run: &mut Run<'_>) -> Result<(), String> {
    let (service, method) = match run.random.once_in(2) {
        true => (SERVICE, "RestartSubsystem"),
        false => (operations::SERVICE, "RestartPersistentSubscriptions"),
    };
    End::Well.is(method, run.admin().unary::<_, ()>(service, method, ()).await)?;
    for group in run.groups.0.values_mut() {
        dropped(std::mem::take(&mut group.consumers), method).await?;
    }
    Ok(())
}

/// Has sent again what is parked.
async fn replay(run: &mut Run<'_>) -> Result<(), String> {
    let (key, flaw) = (key(run), run.random.below(8));
    let stop = if flaw == 0 { StopAt::Revision(-1) } else { StopAt::NoLimit(()) };
    let options = ReplayParkedOptions {
        group_name: key.1.to_string(),
        stream_option: Some(match key.0 {
            Some(stream) => ReplayedStream::Stream(stream.into()),
            None => ReplayedStream::All(()),
        })
        .filter(|_| flaw != 1),
        stop_at_option: Some(stop),
    };
    let end = match (flaw, run.groups.0.contains_key(&key)) {
        (0 | 1, _) => WRONG,
        (_, false) => MISSING,
        (_, true) => End::Well,
    };
    let asked = ReplayParkedReq { options: Some(options) };
    let answer = run.admin().unary::<_, ()>(SERVICE, "ReplayParked", asked).await;
    end.is(&format!("a replay of the group {key:?}, flaw {flaw}"), answer).map(drop)
}

/// A consumer goes away.
async fn leave(run: &mut Run<'_>) -> Result<(), String> {
    let key = key(run);
    if let Some(group) = run.groups.0.get_mut(&key) {
        drop(group.consumers.pop());
        // Counted until the server hears of it, which the next who joins must not meet.
        return until_counted(run, key).await;
    }
    Ok(())
}

async fn until_counted(run: &Run<'_>, key: Key) -> Result<(), String> {
    let wanted = run.groups.0.get(&key).map_or(0, |group| group.consumers.len());
    let due = tokio::time::Instant::now() + PATIENCE;
    while tokio::time::Instant::now() < due {
        let told = ask(run, key).await.map_err(|status| format!("{status:?}"))?;
        if told.connections.len() == wanted {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Err(format!("the group {key:?} does not have {wanted} consumers"))
}

async fn join(run: &mut Run<'_>) -> Result<(), String> {
    let key = key(run);
    let (mut room, mut form) = (1 + run.random.below(50) as i32, Some(UuidForm::Structured(())));
    let flaw = run.random.below(16);
    match flaw {
        0 => room = one_of(&mut run.random, &[0, -1, 10_001]),
        1 => form = None,
        _ => {}
    }
    let group = run.groups.0.get(&key);
    let is_full = group.is_some_and(|group| {
        let most = group.settings.max_subscriber_count as usize;
        most > 0 && group.consumers.len() >= most
    });
    let end = match (flaw, group) {
        (0..=2, _) => WRONG,
        (_, None) => MISSING,
        (_, Some(_)) if is_full => FULL,
        (_, Some(_)) => End::Well,
    };
    let options = ReadOptions {
        stream_option: Some(match key.0 {
            Some(stream) => JoinedStream::Stream(stream.into()),
            None => JoinedStream::All(()),
        })
        .filter(|_| flaw != 2),
        group_name: key.1.to_string(),
        buffer_size: room,
        uuid_option: Some(UuidOption { content: form }),
    };
    let what = format!("joining the group {key:?}, flaw {flaw}");
    let Some((consumer, confirmed)) = end.is(&what, consumer(run, options).await)? else {
        return Ok(());
    };
    let wanted = format!("{}::{}", source(key), key.1);
    if confirmed != wanted {
        return Err(format!("{what}: it is told {confirmed} and not {wanted}"));
    }
    if let Some(group) = run.groups.0.get_mut(&key) {
        group.consumers.push(consumer);
    }
    Ok(())
}

/// A consumer, and what its joining is called.
async fn consumer(run: &Run<'_>, options: ReadOptions) -> Result<(Consumer, String), Status> {
    let (says, receiver) = mpsc::unbounded_channel();
    let said =
        stream::unfold(receiver, |mut receiver| async { Some((receiver.recv().await?, receiver)) });
    let options = ReadReq { content: Some(Said::Options(options)) };
    says.send(options).map_err(|error| Status::internal(error.to_string()))?;
    let mut answers: Streaming<ReadResp> = run.admin().streaming(SERVICE, "Read", said).await?;
    match answers.message().await?.and_then(|answer| answer.content) {
        Some(Sent::Confirmation(told)) => {
            Ok((Consumer { _says: says, answers }, told.subscription_id))
        }
        other => Err(Status::internal(format!("the first answer is {other:?}"))),
    }
}

impl std::fmt::Debug for Consumer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a consumer")
    }
}

//! What the console's pages show, as JSON. Numbers that JavaScript would round are texts.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tonic::Status;
use umbel::{FilterAdvice, LevelAdvice, LevelStats};
use umbel_events::{
    Direction, Error, RecordedEvent, ResolvedEvent, Stats, Store, StreamState, ViewKind, is_view,
};
use umbel_proto::persistent::SubscriptionInfo;

use crate::access::Caller;
use crate::console_query::Query;
use crate::features::VERSION;
use crate::group_key::GroupKey;
use crate::limits::{CONSOLE_EVENTS_MAX, CONSOLE_NAMES_MAX};
use crate::peers::Peer;
use crate::permit::{ALL_STREAM, Permit};
use crate::reader::{Reader, Source};
use crate::rules::KnownUser;
use crate::service::Service;
use crate::sight::Sight;
use crate::unread::{Held, Room};
use crate::users::{self, User};
use crate::{failure, pages};

/// What can be asked for.
pub const NAMES: [&str; 9] =
    ["overview", "streams", "views", "stream", "all", "groups", "levels", "advice", "users"];

/// Names of streams that are looked at for one page, where some of them may not be seen.
pub const NAMES_EXAMINED_MAX: usize = 10_000;

/// What an answer is made of, and room for it, where that is counted.
pub type Shown = (Value, Option<(Held, Room)>);

/// Answers one of them, over this connection.
pub async fn view(
    service: &Arc<Service>,
    (caller, peer): (&Caller, Option<Arc<Peer>>),
    name: &str,
    query: &Query,
) -> Result<Shown, Status> {
    let stream = match name {
        "stream" => stream(query)?,
        "all" => ALL_STREAM,
        _ => return Ok((small(service, caller, name, query).await?, None)),
    };
    let held = service.unread.held(peer);
    let room = held.room().await?;
    let (shown, room) = events(service, caller, stream, query, room).await?;
    Ok((shown, Some((held, room))))
}

/// Answers one that has no events.
async fn small(
    service: &Arc<Service>,
    caller: &Caller,
    name: &str,
    query: &Query,
) -> Result<Value, Status> {
    match name {
        "overview" => overview(service, caller).await,
        "streams" => streams(service, caller, query).await,
        "views" => views(service, query).await,
        "groups" => groups(service).await,
        "levels" => levels(service).await,
        "advice" => advice(service).await,
        _ => everybody(service, query).await,
    }
}

/// The stream whose events are asked for.
fn stream(query: &Query) -> Result<&str, Status> {
    match query.text("stream") {
        "" => Err(Status::invalid_argument("the request names no stream: say stream=NAME")),
        name => Ok(name),
    }
}

async fn stats(service: &Service) -> Result<Stats, Status> {
    service.store.stats().await.map_err(|error| failure::status(&error))
}

async fn overview(service: &Service, caller: &Caller) -> Result<Value, Status> {
    let stats = stats(service).await?;
    let (is_admin, is_operator) = match caller {
        Caller::Trusted => (true, true),
        Caller::Nobody => (false, false),
        Caller::User(user) => {
            let is_admin = user.value.as_ref().is_some_and(|user| user.is_in(users::ADMINS));
            (is_admin, is_operator(user))
        }
    };
    Ok(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "esVersion": VERSION,
        "nowMicros": service.env.clock.wall_micros(),
        "instance": service.instance.to_string(),
        "user": caller.name(),
        "hasUsers": service.access.has_users(),
        "isAdmin": is_admin,
        "isOperator": is_operator,
        "stats": pages::stats(&stats),
        "connections": service.peers.count(),
        "appendsBytes": service.budget.bytes(),
        "unreadBytes": service.unread.bytes(),
        "calls": service.calls.totals(),
        "scavenge": service.scavenging.progress(),
        "backup": service.backups.progress(),
    }))
}

async fn streams(service: &Service, caller: &Caller, query: &Query) -> Result<Value, Status> {
    let (prefix, after) = (query.text("prefix").to_string(), after(query));
    let sight = match caller {
        Caller::Trusted => None,
        Caller::Nobody => return Err(failure::access_denied()),
        Caller::User(user) if is_operator(user) => None,
        Caller::User(user) => Sight::of(service.access.rules(), user),
    };
    let listed =
        service.store.blocking(move |store| list(store, sight.as_ref(), &prefix, after)).await;
    let Listed { names, is_whole, is_cut } = listed.map_err(|error| failure::status(&error))?;
    let streams: Vec<Value> = names
        .into_iter()
        .map(|(name, state)| {
            let (state, last) = match state {
                StreamState::Missing => ("missing", None),
                StreamState::Live { last, .. } => ("live", Some(last)),
                StreamState::Deleted { last } => ("deleted", Some(last)),
                StreamState::Tombstoned => ("tombstoned", None),
            };
            json!({ "name": name, "state": state, "last": last.map(|last| last.to_string()) })
        })
        .collect();
    Ok(json!({ "streams": streams, "isWhole": is_whole, "isCut": is_cut }))
}

fn is_operator(user: &KnownUser) -> bool {
    user.value.as_ref().is_some_and(User::is_operator)
}

/// A page of the names of streams.
struct Listed {
    names: Vec<(String, StreamState)>,
    /// Whether there are none behind it,
    is_whole: bool,
    /// or too many were looked at to find one more that may be seen.
    is_cut: bool,
}

/// The streams whose names begin so and stand behind another one, as far as somebody may read them.
fn list(
    store: &Store,
    sight: Option<&Sight>,
    prefix: &str,
    mut after: Option<String>,
) -> Result<Listed, Error> {
    let mut names = Vec::new();
    let mut examined = 0;
    loop {
        let page = store.streams(prefix, after.as_deref(), CONSOLE_NAMES_MAX)?;
        let is_last = page.len() < CONSOLE_NAMES_MAX;
        examined += page.len();
        after = page.last().map(|(name, _)| name.clone());
        for (name, state) in page {
            if sight.map_or(Ok(true), |sight| sight.shows(store, &name))? {
                names.push((name, state));
            }
            if names.len() == CONSOLE_NAMES_MAX {
                return Ok(Listed { names, is_whole: false, is_cut: false });
            }
        }
        if is_last || examined >= NAMES_EXAMINED_MAX {
            return Ok(Listed { names, is_whole: is_last, is_cut: !is_last });
        }
    }
}

fn after(query: &Query) -> Option<String> {
    Some(query.text("after").to_string()).filter(|after| !after.is_empty())
}

async fn views(service: &Service, query: &Query) -> Result<Value, Status> {
    let kinds = [("category", ViewKind::Category), ("type", ViewKind::Type)];
    let kind = query.one_of("kind", kinds)?.unwrap_or(ViewKind::Category);
    let (prefix, after) = (query.text("prefix").to_string(), after(query));
    let listed = service
        .store
        .blocking(move |store| store.views(kind, &prefix, after.as_deref(), CONSOLE_NAMES_MAX));
    let names = listed.await.map_err(|error| failure::status(&error))?;
    let is_whole = names.len() < CONSOLE_NAMES_MAX;
    let views: Vec<Value> = names
        .into_iter()
        .map(|(name, events)| json!({ "name": name, "events": events.to_string() }))
        .collect();
    Ok(json!({ "views": views, "isWhole": is_whole }))
}

/// Some events of a stream, a view, or all, which fit in this room.
async fn events(
    service: &Arc<Service>,
    caller: &Caller,
    stream: &str,
    query: &Query,
    room: Room,
) -> Result<(Value, Room), Status> {
    let directions = [("forwards", Direction::Forwards), ("backwards", Direction::Backwards)];
    let direction = query.one_of("direction", directions)?.unwrap_or(Direction::Backwards);
    let mut permit = Permit::new(service, caller.clone(), stream).await?;
    let from = query.number("from")?.unwrap_or(match direction {
        Direction::Forwards => 0,
        Direction::Backwards => u64::MAX,
    });
    let source = if stream == ALL_STREAM {
        Source::All
    } else if is_view(stream) {
        Source::View(stream.into(), service.gates.through(stream))
    } else {
        Source::Stream(stream.into())
    };
    let most = query.number("count")?.unwrap_or(CONSOLE_EVENTS_MAX).clamp(1, CONSOLE_EVENTS_MAX);
    let mut reader = Reader::new(source, direction, from, true);
    reader.show(permit.renewed(service).await?);
    let read = service.store.page(reader, most, room).await;
    let (page, room) = read.map_err(|error| failure::status(&error))?;
    let state = page.state.map(|state| match state {
        StreamState::Missing => json!({ "is": "missing" }),
        StreamState::Live { first, last } => {
            json!({ "is": "live", "first": first.to_string(), "last": last.to_string() })
        }
        StreamState::Deleted { .. } => json!({ "is": "deleted" }),
        StreamState::Tombstoned => json!({ "is": "tombstoned" }),
    });
    let is_whole = page.reader.is_none();
    let events: Vec<Value> = page.events.iter().map(event).collect();
    Ok((json!({ "events": events, "isWhole": is_whole, "state": state }), room))
}

fn event(resolved: &ResolvedEvent) -> Value {
    let shown = resolved.event.as_ref().map(recorded);
    json!({ "event": shown, "link": resolved.link.as_ref().map(recorded) })
}

fn recorded(event: &RecordedEvent) -> Value {
    json!({
        "stream": event.stream,
        "revision": event.revision.to_string(),
        "position": event.position.to_string(),
        "id": event.id.to_string(),
        "type": event.kind,
        "isJson": event.is_json,
        "createdMicros": event.created / 10,
        "data": bytes(&event.data),
        "metadata": bytes(&event.metadata),
    })
}

/// Bytes as text where they are one, else coded, of much only the beginning.
fn bytes(bytes: &[u8]) -> Value {
    let shown = &bytes[..bytes.len().min(SHOWN_BYTES)];
    let length = bytes.len();
    match std::str::from_utf8(bytes) {
        Ok(text) if shown.len() == length => json!({ "text": text, "bytes": length }),
        Ok(text) => {
            let end = (0..=SHOWN_BYTES).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            json!({ "text": &text[..end], "bytes": length, "isCut": true })
        }
        Err(_) => json!({
            "base64": STANDARD.encode(shown),
            "bytes": length,
            "isCut": shown.len() < length,
        }),
    }
}

/// Bytes of data or metadata that are shown.
const SHOWN_BYTES: usize = 64 << 10;

async fn groups(service: &Arc<Service>) -> Result<Value, Status> {
    let groups = service.groups.list(service, None).await?;
    Ok(json!({ "groups": groups.iter().map(group).collect::<Vec<_>>() }))
}

fn group(info: &SubscriptionInfo) -> Value {
    let is_of_all = info.event_source == ALL_STREAM;
    let stream = (!is_of_all).then(|| info.event_source.clone());
    let key = GroupKey { stream, group: info.group_name.clone() };
    json!({
        "source": info.event_source,
        "group": info.group_name,
        "strategy": info.named_consumer_strategy,
        "status": info.status,
        "parked": info.parked_message_count,
        "parkedStream": key.parked_stream(),
        "inFlight": info.total_in_flight_messages,
        "waiting": info.read_buffer_count,
        "total": info.total_items,
        "checkpoint": info.last_checkpointed_event_position,
        "lastKnown": info.last_known_event_position,
        "maxRetries": info.max_retry_count,
        "consumers": info.connections.iter().map(|one| json!({
            "user": one.username,
            "total": one.total_items,
            "inFlight": one.in_flight_messages,
            "free": one.available_slots,
        })).collect::<Vec<_>>(),
    })
}

async fn levels(service: &Service) -> Result<Value, Status> {
    let stats = stats(service).await?;
    let keyspaces: Vec<Value> = stats
        .index
        .keyspaces
        .iter()
        .map(|keyspace| {
            let levels: Vec<Value> =
                keyspace.levels.iter().filter(|level| level.tables > 0).map(level).collect();
            json!({ "name": keyspace.name, "levels": levels })
        })
        .collect();
    Ok(json!({ "keyspaces": keyspaces }))
}

fn level(level: &LevelStats) -> Value {
    json!({
        "level": level.level,
        "tables": level.tables,
        "bytes": level.bytes,
        "entries": level.entries,
        "filterBytes": level.filter_bytes,
        "filterBytesInMemory": level.filter_bytes_in_memory,
        "asked": level.filter_probes,
        "saved": level.filter_true_negatives,
        "inVain": level.filter_false_positives,
        "designedRate": level.designed_rate,
        "measuredRate": level.measured_rate,
    })
}

async fn advice(service: &Service) -> Result<Value, Status> {
    let advice = service.store.blocking(|store| store.advice());
    let advice = advice.await.map_err(|error| failure::status(&error))?;
    Ok(json!({ "keyspaces": advice.iter().map(advised).collect::<Vec<_>>() }))
}

fn advised(advice: &FilterAdvice) -> Value {
    let [half, same, twice] = advice.best_false_reads;
    json!({
        "keyspace": advice.keyspace,
        "isOn": advice.is_on,
        "gets": advice.gets,
        "absentShare": advice.absent_share,
        "bloomBits": advice.bloom_bits,
        "keptBytes": advice.kept_bytes,
        "plainBytes": advice.plain_bytes,
        "falseReads": advice.false_reads,
        "plainFalseReads": advice.plain_false_reads,
        "best": { "half": half, "same": same, "twice": twice },
        "levels": advice.levels.iter().map(level_advice).collect::<Vec<_>>(),
    })
}

fn level_advice(level: &LevelAdvice) -> Value {
    json!({ "level": level.level, "kept": level.kept, "why": level.why })
}

async fn everybody(service: &Service, query: &Query) -> Result<Value, Status> {
    let after = after(query);
    let listed = service.store.blocking(move |store| users::list(store, after.as_deref()));
    let (users, next) = listed.await.map_err(|error| failure::status(&error))?;
    let users: Vec<Value> = users
        .into_iter()
        .map(|user| {
            json!({
                "login": user.login,
                "fullName": user.full_name,
                "groups": user.groups,
                "isDisabled": user.is_disabled,
            })
        })
        .collect();
    Ok(json!({ "users": users, "next": next }))
}

//! The data of the console's pages, as JSON. Numbers that JavaScript would round are strings.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tonic::Status;
use umbel::{FilterAdvice, LevelAdvice, LevelStats};
use umbel_events::{
    Direction, Error, RecordedEvent, ResolvedEvent, SYSTEM_STREAMS_END, Source, Stats, Store,
    StreamState, ViewKind, skip_system_streams,
};

use crate::access_control::acl_cache::CachedUser;
use crate::access_control::readable_streams::ReadableStreams;
use crate::access_control::users::{self, User};
use crate::auth::authorization::Caller;
use crate::continuous_backup::ContinuousBackup;
use crate::event_store::event_pager::{EventPage, EventPager, ReadRange};
use crate::event_store::work_history::WorkHistory;
use crate::http::console::event_download::{self, DOWNLOAD, EventDownload};
use crate::http::console::event_search::{self, SEARCH};
use crate::http::console::query_string::QueryString;
use crate::http::console::{group_page, live_tail};
use crate::limits::{CONSOLE_EVENTS_MAX, CONSOLE_NAMES_MAX, CONSOLE_PAGES_MAX, LISTED_NAMES_MAX};
use crate::protocol::grpc_status;
use crate::resources::connection_registry::Connection;
use crate::resources::outbound_call_share::OutboundShare;
use crate::resources::outbound_quota::PageReservation;
use crate::server_context::ServerContext;
use crate::services::node_info;
use crate::services::read_permission::{ALL_STREAM, ReadPermission};
use crate::services::server_features::VERSION;

/// The data endpoints.
pub const DATA_PATHS: [&str; 15] = [
    "overview", "history", "streams", "views", "stream", "all", "tail", SEARCH, DOWNLOAD, "groups",
    "group", "levels", "advice", "users", "work",
];

/// The endpoints whose data can be long: a blocking thread writes its JSON text. The text of the
/// others waits for no such thread.
const LISTS: [&str; 6] = ["streams", "views", "groups", "group", "advice", "users"];

/// Maximum length of a history, in minutes, that an asynchronous worker writes. A longer one has up
/// to 26,000 numbers.
const INLINE_MINUTES_MAX: u64 = 15;

/// Maximum number of stream names that are examined for one page, since some of them may be hidden
/// from the caller.
pub const STREAMS_EXAMINED_MAX: usize = 10_000;

/// The content of a response.
#[derive(Debug)]
pub enum PageContent {
    /// JSON text of the data for a page.
    Json(String),
    /// A file.
    Download(EventDownload),
}

/// The content of a response, with its quota reservation if the content counts against the quota.
pub type PageData = (PageContent, Option<(OutboundShare, PageReservation)>);

/// Serves the data of an endpoint of the console.
pub async fn page_data(
    service: &Arc<ServerContext>,
    (caller, peer): (&Caller, Option<Arc<Connection>>),
    name: &str,
    query: &QueryString,
) -> Result<PageData, Status> {
    let stream = match name {
        "stream" | DOWNLOAD => stream(query)?,
        "all" | "tail" | SEARCH => ALL_STREAM,
        _ => {
            let text = summary_text(service, caller, name, query).await?;
            return Ok((PageContent::Json(text), None));
        }
    };
    let held = service.outbound_quota.new_share(peer);
    let reservation = held.reserve_page().await?;
    let (text, reservation) = match name {
        DOWNLOAD => {
            let read = event_download::download(service, caller, stream, query, reservation);
            let (file, reservation) = read.await?;
            return Ok((PageContent::Download(file), Some((held, reservation))));
        }
        SEARCH => event_search::search(service, caller, query, reservation).await?,
        "tail" => live_tail::live_tail(service, caller, query, reservation).await?,
        _ => match events(service, caller, stream, query, reservation).await? {
            Some(read) => read,
            None => return Ok((PageContent::Json(tombstoned_stream().to_string()), None)),
        },
    };
    Ok((PageContent::Json(text), Some((held, reservation))))
}

/// Serves the JSON text of an endpoint without events.
async fn summary_text(
    service: &Arc<ServerContext>,
    caller: &Caller,
    name: &str,
    query: &QueryString,
) -> Result<String, Status> {
    if name == "history" {
        let minutes = history_minutes(query)?;
        if minutes > INLINE_MINUTES_MAX {
            let shared = Arc::clone(service);
            return write_blocking(service, move || shared.metric_history.last_minutes(minutes))
                .await;
        }
    }
    let data = summary_data(service, caller, name, query).await?;
    match LISTS.contains(&name) {
        true => write_blocking(service, move || data).await,
        false => Ok(data.to_string()),
    }
}

/// Writes the JSON text of data on a blocking thread.
async fn write_blocking(
    service: &ServerContext,
    data: impl FnOnce() -> Value + Send + 'static,
) -> Result<String, Status> {
    let text = service.store.blocking(move |_| Ok(data().to_string())).await;
    text.map_err(|error| grpc_status::status(&error))
}

/// Serves an endpoint without events.
async fn summary_data(
    service: &Arc<ServerContext>,
    caller: &Caller,
    name: &str,
    query: &QueryString,
) -> Result<Value, Status> {
    match name {
        "overview" => overview(service, caller).await,
        "history" => history(service, query),
        "streams" => streams(service, caller, query).await,
        "views" => views(service, query).await,
        "groups" => group_page::groups(service, query).await,
        "group" => group_page::one_group(service, query).await,
        "levels" => levels(service).await,
        "advice" => advice(service).await,
        "work" => Ok(work(service, caller)),
        _ => users_data(service, query).await,
    }
}

/// The stream whose events are requested.
fn stream(query: &QueryString) -> Result<&str, Status> {
    match query.text("stream") {
        "" => Err(Status::invalid_argument("the request names no stream: add stream=NAME")),
        name => Ok(name),
    }
}

async fn stats(service: &ServerContext) -> Result<Stats, Status> {
    service.store.stats().await.map_err(|error| grpc_status::status(&error))
}

/// Serves the samples of the last minutes for plots.
fn history(service: &ServerContext, query: &QueryString) -> Result<Value, Status> {
    Ok(service.metric_history.last_minutes(history_minutes(query)?))
}

fn history_minutes(query: &QueryString) -> Result<u64, Status> {
    Ok(query.number("minutes")?.unwrap_or(15).clamp(1, 24 * 60))
}

async fn overview(service: &Arc<ServerContext>, caller: &Caller) -> Result<Value, Status> {
    let usage = service.store.stats_and_usage(&service.env.resources);
    let (stats, process, disk) = usage.await.map_err(|error| grpc_status::status(&error))?;
    let (is_admin, is_operator) = match caller {
        Caller::Trusted => (true, true),
        Caller::Anonymous => (false, false),
        Caller::User(user) => {
            let is_admin = user.value.as_ref().is_some_and(|user| user.is_in(users::ADMINS_GROUP));
            (is_admin, is_operator(user))
        }
    };
    let mut shown = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "esVersion": VERSION,
        "nowMicros": service.env.clock.wall_micros(),
        "instance": service.instance_id.to_string(),
        "user": caller.user_name(),
        "hasUsers": service.authorizer.has_users(),
        "isAdmin": is_admin,
        "isOperator": is_operator,
        "stats": node_info::stats(&stats),
        "kv": node_info::kv_stats(service),
        "connections": service.connections.count(),
        "appendsBytes": service.append_quota.used_bytes(),
        "openCalls": service.call_metrics.open_calls(),
        "requestsBufferedBytes": service.receive_quota.used_bytes(),
        "unreadBytes": service.outbound_quota.bytes(),
        "groupsBufferedBytes": service.group_quota.bytes(),
        "revision": service.revision,
        "failure": service.failure(),
        "eventsAppended": stats.events_appended.to_string(),
        "appendsRefused": service.call_metrics.appends().refused().to_string(),
        "eventsRead": service.store.events_read().to_string(),
        "process": process.map(|process| json!({
            "startedMicros": u64::try_from(process.started.as_micros()).unwrap_or(u64::MAX),
            "residentBytes": process.resident_bytes,
            "threads": process.threads,
        })),
        "disk": disk.map(|disk| json!({
            "availableBytes": disk.available_bytes,
            "totalBytes": disk.total_bytes,
        })),
        "calls": service.call_metrics.totals(),
        "scavenge": service.scavenger.progress(),
        "backup": service.backups.progress(),
    });
    ContinuousBackup::show_all(&service.continuous_backups, &mut shown);
    Ok(shown)
}

async fn streams(
    service: &ServerContext,
    caller: &Caller,
    query: &QueryString,
) -> Result<Value, Status> {
    let (prefix, after) = (query.text("prefix").to_string(), after_name(query));
    let (part, names_max) = (query.text("contains").to_string(), names_max(query)?);
    let has_system = query.choice("system", [("yes", true), ("no", false)])?.unwrap_or(true);
    let scope = match caller {
        Caller::Trusted => None,
        Caller::Anonymous => return Err(grpc_status::authentication_required()),
        Caller::User(user) if is_operator(user) => None,
        Caller::User(user) => ReadableStreams::for_user(service.authorizer.acl_cache(), user),
    };
    let listed = service
        .store
        .blocking(move |store| {
            let filter = NameFilter { scope: scope.as_ref(), part: &part, has_system };
            list_streams(store, &filter, &prefix, (after, names_max))
        })
        .await;
    let StreamNames { names, is_complete: is_whole, is_truncated: is_cut, last_examined } =
        listed.map_err(|error| grpc_status::status(&error))?;
    let streams: Vec<Value> = names
        .into_iter()
        .map(|(name, state)| {
            let (state, first, last) = match state {
                StreamState::Missing => ("missing", None, None),
                StreamState::Live { first, last } => ("live", Some(first), Some(last)),
                StreamState::Deleted { last } => ("deleted", None, Some(last)),
                StreamState::Tombstoned => ("tombstoned", None, None),
            };
            let text = |revision: Option<u64>| revision.map(|revision| revision.to_string());
            json!({ "name": name, "state": state, "first": text(first), "last": text(last) })
        })
        .collect();
    Ok(json!({
        "streams": streams, "isWhole": is_whole, "isCut": is_cut, "lastExamined": last_examined,
    }))
}

/// Scavenges and backups. Only operators see the history, which has names of users and of files.
fn work(service: &ServerContext, caller: &Caller) -> Value {
    let sees_history = match caller {
        Caller::Trusted => true,
        Caller::Anonymous => false,
        Caller::User(user) => is_operator(user),
    };
    let history = |history: &WorkHistory| sees_history.then(|| history.to_json());
    let mut shown = json!({
        "scavenge": service.scavenger.progress(),
        "autoScavenge": service.auto_scavenge.status().to_json(),
        "scavenges": history(&service.scavenge_history),
        "backup": service.backups.progress(),
        "backups": history(service.backups.history()),
    });
    ContinuousBackup::show_all(&service.continuous_backups, &mut shown);
    shown
}

fn is_operator(user: &CachedUser) -> bool {
    user.value.as_ref().is_some_and(User::is_operator)
}

/// A page of stream names.
struct StreamNames {
    names: Vec<(String, StreamState)>,
    /// Whether no more names follow.
    is_complete: bool,
    /// Whether the page ended early, after [`STREAMS_EXAMINED_MAX`] names.
    is_truncated: bool,
    /// The last name that was examined, at which the next page continues. `None` if that name is
    /// hidden from the caller.
    last_examined: Option<String>,
}

/// The names that a list shows.
struct NameFilter<'a> {
    /// The streams that the caller may read; `None` for all.
    scope: Option<&'a ReadableStreams>,
    /// Text that a name contains.
    part: &'a str,
    /// Whether names that begin with `$` are shown.
    has_system: bool,
}

impl NameFilter<'_> {
    fn shows(&self, store: &Store, name: &str) -> Result<bool, Error> {
        let is_wanted = self.has_system || !name.starts_with('$');
        Ok(is_wanted && name.contains(self.part) && self.allows(store, name)?)
    }

    /// Returns the name after which a page continues that has examined the names up to this one.
    fn next_after(&self, examined: String) -> String {
        match self.has_system {
            true => examined,
            false => skip_system_streams(examined),
        }
    }

    fn allows(&self, store: &Store, name: &str) -> Result<bool, Error> {
        self.scope.map_or(Ok(true), |scope| scope.allows(store, name))
    }
}

/// Returns a page of at most `names_max` streams that the filter shows, with this name prefix and
/// after this name.
fn list_streams(
    store: &Store,
    filter: &NameFilter<'_>,
    prefix: &str,
    (mut after, names_max): (Option<String>, usize),
) -> Result<StreamNames, Error> {
    let mut names: Vec<(String, StreamState)> = Vec::new();
    let mut examined = 0;
    loop {
        let page = store.streams(prefix, after.as_deref(), names_max)?;
        let is_last = page.len() < names_max;
        examined += page.len();
        after = page.last().map(|(name, _)| filter.next_after(name.clone()));
        for (name, state) in page {
            if filter.shows(store, &name)? {
                names.push((name, state));
            }
            if names.len() == names_max {
                let last_examined = names.last().map(|(name, _)| name.clone());
                let (is_complete, is_truncated) = (false, false);
                return Ok(StreamNames { names, is_complete, is_truncated, last_examined });
            }
        }
        if is_last || examined >= STREAMS_EXAMINED_MAX {
            let last_examined = match after {
                Some(name) if name == SYSTEM_STREAMS_END || filter.allows(store, &name)? => {
                    Some(name)
                }
                _ => None,
            };
            let (is_complete, is_truncated) = (is_last, !is_last);
            return Ok(StreamNames { names, is_complete, is_truncated, last_examined });
        }
    }
}

/// Number of names of the page that is requested.
fn names_max(query: &QueryString) -> Result<usize, Status> {
    let count = query.number("count")?.map(|count| usize::try_from(count).unwrap_or(usize::MAX));
    Ok(count.unwrap_or(CONSOLE_NAMES_MAX).clamp(1, LISTED_NAMES_MAX))
}

fn after_name(query: &QueryString) -> Option<String> {
    Some(query.text("after").to_string()).filter(|after| !after.is_empty())
}

async fn views(service: &ServerContext, query: &QueryString) -> Result<Value, Status> {
    let kinds = [("category", ViewKind::Category), ("type", ViewKind::Type)];
    let kind = query.choice("kind", kinds)?.unwrap_or(ViewKind::Category);
    let (prefix, after) = (query.text("prefix").to_string(), after_name(query));
    let names_max = names_max(query)?;
    let listed = service
        .store
        .blocking(move |store| store.views(kind, &prefix, after.as_deref(), names_max));
    let names = listed.await.map_err(|error| grpc_status::status(&error))?;
    let is_whole = names.len() < names_max;
    let views: Vec<Value> = names
        .into_iter()
        .map(|(name, events)| json!({ "name": name, "events": events.to_string() }))
        .collect();
    Ok(json!({ "views": views, "isWhole": is_whole }))
}

/// Returns a page of events of a stream, of a view, or of all events, which fits into this
/// reservation. `None` for a tombstoned stream.
async fn events(
    service: &Arc<ServerContext>,
    caller: &Caller,
    stream: &str,
    query: &QueryString,
    reservation: PageReservation,
) -> Result<Option<(String, PageReservation)>, Status> {
    grpc_status::check_not_index(stream)?;
    let directions = [("forwards", Direction::Forwards), ("backwards", Direction::Backwards)];
    let direction = query.choice("direction", directions)?.unwrap_or(Direction::Backwards);
    let mut permission = ReadPermission::new(service, caller.clone(), stream).await?;
    let from = query.number("from")?.unwrap_or(match direction {
        Direction::Forwards => 0,
        Direction::Backwards => u64::MAX,
    });
    let source = if stream == ALL_STREAM { Source::All } else { Source::named(stream) };
    let is_view = matches!(source, Source::View(_));
    let through = service.system_projections.limit_of(&source);
    let max_events =
        query.number("count")?.unwrap_or(CONSOLE_EVENTS_MAX).clamp(1, CONSOLE_EVENTS_MAX);
    let mut reader = EventPager::new(ReadRange { source, direction, from, through }, true);
    reader.set_readable_streams(permission.revalidate(service).await?);
    let read = first_events(service, reader, max_events, reservation).await;
    if matches!(read, Err(Error::StreamDeleted { .. })) {
        return Ok(None);
    }
    let (page, reservation) = read.map_err(|error| grpc_status::status(&error))?;
    // Events can have many bytes, which take long to write.
    let write = move || {
        let state = page.state.map(stream_state);
        let events = page.events.iter().map(event).collect();
        let parts = [
            ("events", Value::Array(events)),
            ("isWhole", Value::Bool(page.pager.is_none())),
            ("isView", Value::Bool(is_view)),
            ("state", state.unwrap_or_default()),
        ];
        let parts = parts.map(|(name, part)| (name.to_string(), part));
        Value::Object(parts.into_iter().collect()).to_string()
    };
    let written = reservation.fill_blocking(write).await;
    Ok(Some(written.map_err(|error| grpc_status::status(&error.into()))?))
}

/// The page of a tombstoned stream. A read of its events fails, which is no error of the page.
fn tombstoned_stream() -> Value {
    let state = stream_state(StreamState::Tombstoned);
    json!({ "events": [], "isWhole": true, "state": state })
}

fn stream_state(state: StreamState) -> Value {
    match state {
        StreamState::Missing => json!({ "is": "missing" }),
        StreamState::Live { first, last } => {
            json!({ "is": "live", "first": first.to_string(), "last": last.to_string() })
        }
        StreamState::Deleted { last } => json!({ "is": "deleted", "last": last.to_string() }),
        StreamState::Tombstoned => json!({ "is": "tombstoned" }),
    }
}

/// Reads the first page that has events, or one of a bounded number of pages without events.
async fn first_events(
    service: &ServerContext,
    mut reader: EventPager,
    max_events: u64,
    mut reservation: PageReservation,
) -> Result<(EventPage, PageReservation), Error> {
    let mut pages = 0;
    loop {
        let (page, left) = service.store.read_page(reader, max_events, reservation).await?;
        pages += 1;
        match page {
            EventPage { events, pager: Some(next), .. }
                if events.is_empty() && pages < CONSOLE_PAGES_MAX =>
            {
                (reader, reservation) = (next, left);
                tokio::task::yield_now().await;
            }
            page => return Ok((page, left)),
        }
    }
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

/// Returns bytes as text if they are UTF-8, otherwise in base64; long data is cut.
fn bytes(bytes: &[u8]) -> Value {
    let shown = &bytes[..bytes.len().min(PREVIEW_BYTES)];
    let length = bytes.len();
    match std::str::from_utf8(bytes) {
        Ok(text) if shown.len() == length => json!({ "text": text, "bytes": length }),
        Ok(text) => {
            let end = (0..=PREVIEW_BYTES).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            json!({ "text": &text[..end], "bytes": length, "isCut": true })
        }
        Err(_) => json!({
            "base64": STANDARD.encode(shown),
            "bytes": length,
            "isCut": shown.len() < length,
        }),
    }
}

/// Most bytes of data or metadata that are shown.
const PREVIEW_BYTES: usize = 64 << 10;

async fn levels(service: &ServerContext) -> Result<Value, Status> {
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

async fn advice(service: &ServerContext) -> Result<Value, Status> {
    let advice = service.store.blocking(|store| store.filter_advice());
    let advice = advice.await.map_err(|error| grpc_status::status(&error))?;
    Ok(json!({ "keyspaces": advice.iter().map(filter_advice).collect::<Vec<_>>() }))
}

fn filter_advice(advice: &FilterAdvice) -> Value {
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

async fn users_data(service: &ServerContext, query: &QueryString) -> Result<Value, Status> {
    let (after, login) = (after_name(query), query.text("login").to_string());
    let listed = service.store.blocking(move |store| match &*login {
        "" => users::list(store, after.as_deref()),
        login => Ok((users::read(store, login)?.into_iter().collect(), None)),
    });
    let (users, next) = listed.await.map_err(|error| grpc_status::status(&error))?;
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

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::test_support::test_service::TestService;

    /// Story: pages that only read memory waited for a blocking thread, so they did not open while
    /// all of these were busy.
    #[test]
    fn pages_of_memory_wait_for_no_blocking_thread() {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            let fixture = TestService::new();
            let (release, released) = std::sync::mpsc::channel::<()>();
            let busy = tokio::task::spawn_blocking(move || released.recv());
            let query = QueryString::parse("").unwrap();
            for name in ["history", "work"] {
                let page = page_data(&fixture.service, (&Caller::Trusted, None), name, &query);
                let page = page.now_or_never().expect(name);
                assert!(matches!(page, Ok((PageContent::Json(_), None))), "{name}");
            }
            // Story: an asynchronous worker wrote the 26,000 numbers of a day.
            let day = QueryString::parse("minutes=1440").unwrap();
            let page = page_data(&fixture.service, (&Caller::Trusted, None), "history", &day);
            let mut page = Box::pin(page);
            assert!(page.as_mut().now_or_never().is_none());
            release.send(()).unwrap();
            busy.await.unwrap().unwrap();
            assert!(matches!(page.await, Ok((PageContent::Json(_), None))));
        });
    }
}

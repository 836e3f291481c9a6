//! Routes of `/streams` that read: pages of events, and single events.

use std::sync::Arc;

use hyper::header::ACCEPT;
use hyper::{HeaderMap, StatusCode};
use prost::bytes::Bytes;
use umbel_events::{Direction, Error, ResolvedEvent, Source, StreamState};

use crate::event_store::event_pager::{EventPage, EventPager, ReadRange};
use crate::http::api::api_request::ApiRequest;
use crate::http::api::api_response::{
    ApiError, ApiResult, HttpResponse, bytes_response, json_text_response,
};
use crate::http::api::event_json::{Embed, FeedPage, entry_text};
use crate::http::api::route_table::Operation;
use crate::limits::API_READ_TIME;
use crate::protocol::grpc_status;
use crate::resources::outbound_call_share::OutboundShare;
use crate::resources::outbound_quota::PageReservation;
use crate::server_context::ServerContext;
use crate::services::read_permission::{ALL_STREAM, ReadPermission};

/// Number of events in a page whose path does not say it.
const PAGE_EVENTS: u64 = 20;
/// Largest number of events that a path may request, as in KurrentDB.
const COUNT_MAX: u64 = 4096;
const RESOLVE_LINKS: [&str; 2] = ["kurrent-resolvelinktos", "es-resolvelinktos"];
/// Media types in which pages and events are sent.
const JSON_TYPES: [&str; 5] = [
    "*/*",
    "application/*",
    "application/json",
    "application/vnd.kurrent.events+json",
    "application/vnd.eventstore.events+json",
];
const OCTETS: &str = "application/octet-stream";
const EMBEDS: [(&str, Embed); 6] = [
    ("none", Embed::None),
    ("rich", Embed::Rich),
    ("body", Embed::Body),
    ("pretty", Embed::Body),
    ("tryharder", Embed::Body),
    ("content", Embed::Content),
];

/// A read of events.
struct PageRead {
    stream: String,
    direction: Direction,
    from: u64,
    count: u64,
    resolves_links: bool,
}

/// Runs an operation of this page.
pub async fn run(
    service: &Arc<ServerContext>,
    operation: Operation,
    request: &ApiRequest,
) -> ApiResult {
    let is_event = operation == Operation::ReadEvent;
    check_accept(request.headers(), is_event)?;
    let embed = request.query().choice("embed", EMBEDS)?;
    let read = PageRead::new(operation, request)?;
    let permission = ReadPermission::new(service, request.caller(), &read.stream).await?;
    let held = service.outbound_quota.new_share(request.connection());
    let work = async {
        let (page, reservation) = first_events(service, &held, permission, &read).await?;
        match is_event {
            true => event_response(read, page, embed, reservation).await,
            false => page_response(read, page, embed.unwrap_or(Embed::Body), reservation).await,
        }
    };
    let late = |_| {
        let why = "the read takes too long, because many events are hidden; try again";
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, why)
    };
    let (mut response, bytes, reservation) =
        tokio::time::timeout(API_READ_TIME, work).await.map_err(late)??;
    held.charge(reservation, bytes);
    response.extensions_mut().insert(held.unsent_page());
    Ok(response)
}

impl PageRead {
    fn new(operation: Operation, request: &ApiRequest) -> Result<PageRead, ApiError> {
        let stream = request.parameter(0).to_string();
        grpc_status::check_not_index(&stream)?;
        let is_all = stream == ALL_STREAM;
        let (from, direction, count) = match operation {
            Operation::ReadNewest => (u64::MAX, Direction::Backwards, PAGE_EVENTS),
            Operation::ReadEvent if is_all => {
                return Err(ApiError::bad_request(
                    "$all has no single events; read /streams/STREAM/REVISION, or the page \
                     /streams/$all/POSITION/forward/1",
                ));
            }
            Operation::ReadEvent => {
                (parse_place(request.parameter(1), is_all)?, Direction::Backwards, 1)
            }
            _ => {
                let direction = match request.parameter(2) {
                    "forward" => Direction::Forwards,
                    "backward" => Direction::Backwards,
                    _ => {
                        let why = "the direction must be forward or backward";
                        return Err(ApiError::bad_request(why));
                    }
                };
                let count = request.parameter(3).parse().ok();
                let count = count.filter(|count| (1..=COUNT_MAX).contains(count));
                let wrong = || {
                    ApiError::bad_request(format!("the number of events must be 1 to {COUNT_MAX}"))
                };
                (parse_place(request.parameter(1), is_all)?, direction, count.ok_or_else(wrong)?)
            }
        };
        let resolves_links = match request.header(RESOLVE_LINKS)? {
            None => true,
            Some(text) if text.eq_ignore_ascii_case("true") => true,
            Some(text) if text.eq_ignore_ascii_case("false") => false,
            Some(_) => {
                let why = "the header Kurrent-ResolveLinkTos must be true or false";
                return Err(ApiError::bad_request(why));
            }
        };
        Ok(PageRead { stream, direction, from, count, resolves_links })
    }

    fn source(&self) -> Source {
        match self.stream.as_str() {
            ALL_STREAM => Source::All,
            name => Source::named(name),
        }
    }
}

/// Parses a revision, a position or `head`. A position can have KurrentDB's form: 16 hex digits of
/// the commit position, then 16 of the prepare position.
fn parse_place(text: &str, is_all: bool) -> Result<u64, ApiError> {
    let is_pair = is_all && text.len() == 32 && text.bytes().all(|it| it.is_ascii_hexdigit());
    let parsed = match text {
        "head" => Some(u64::MAX),
        pair if is_pair => u64::from_str_radix(&pair[..16], 16).ok(),
        number => number.parse().ok(),
    };
    let name = if is_all { "position" } else { "revision" };
    parsed.ok_or_else(|| ApiError::bad_request(format!("the {name} must be a number, or head")))
}

/// Fails if the client accepts neither JSON nor, for a single event, bytes.
fn check_accept(headers: &HeaderMap, is_event: bool) -> Result<(), ApiError> {
    let mut names = Vec::new();
    for value in headers.get_all(ACCEPT) {
        let text = value.to_str().unwrap_or_default();
        names.extend(text.split(',').map(|name| {
            let name = name.split_once(';').map_or(name, |(name, _)| name);
            name.trim().to_ascii_lowercase()
        }));
    }
    let is_known =
        |name: &String| JSON_TYPES.contains(&name.as_str()) || (is_event && name == OCTETS);
    if names.is_empty() || names.iter().any(is_known) {
        return Ok(());
    }
    let is_feed = names.iter().any(|name| name.contains("atom") || name.contains("xml"));
    let why = match is_feed {
        true => {
            "Atom feeds and XML are not served; send `accept: application/json`, which has the \
             same pages, links and entries as JSON"
        }
        false => "pages are sent as JSON only; send `accept: application/json`",
    };
    Err(ApiError::new(StatusCode::NOT_ACCEPTABLE, why))
}

/// Reads the first page with events; an empty page if there is none.
async fn first_events(
    service: &Arc<ServerContext>,
    held: &OutboundShare,
    mut permission: ReadPermission,
    read: &PageRead,
) -> Result<(EventPage, PageReservation), ApiError> {
    let source = read.source();
    let through = service.system_projections.limit_of(&source);
    let range = ReadRange { source, direction: read.direction, from: read.from, through };
    let mut reader = EventPager::new(range, read.resolves_links);
    let mut reservation = held.reserve_page().await?;
    loop {
        if service.is_stopping() {
            return Err(grpc_status::shutting_down().into());
        }
        reader.set_readable_streams(permission.revalidate(service).await?);
        let page = service.store.read_page(reader, read.count, reservation).await;
        let (page, left) = page.map_err(|error| grpc_status::status(&error))?;
        match page {
            EventPage { events, pager: Some(next), .. } if events.is_empty() => {
                (reader, reservation) = (next, left);
                tokio::task::yield_now().await;
            }
            page => return Ok((page, left)),
        }
    }
}

fn missing_stream(stream: &str, state: Option<StreamState>) -> Option<ApiError> {
    match state {
        Some(StreamState::Tombstoned) => Some(grpc_status::stream_deleted(stream).into()),
        Some(StreamState::Missing | StreamState::Deleted { .. }) => {
            Some(ApiError::not_found("the stream does not exist"))
        }
        Some(StreamState::Live { .. }) | None => None,
    }
}

/// A response, its bytes, and the reservation that they are charged to.
type SizedResponse = Result<(HttpResponse, usize, PageReservation), ApiError>;

async fn page_response(
    read: PageRead,
    page: EventPage,
    embed: Embed,
    reservation: PageReservation,
) -> SizedResponse {
    let EventPage { events, pager, state } = page;
    if events.is_empty()
        && let Some(error) = missing_stream(&read.stream, state)
    {
        return Err(error);
    }
    let PageRead { stream, direction, from, count, .. } = read;
    let is_last = pager.is_none();
    let feed = FeedPage { stream, direction, from, count, events, is_last, state };
    // A full page takes more than a moment.
    let (text, reservation) = reservation
        .fill_blocking(move || feed.to_text(embed))
        .await
        .map_err(|error| grpc_status::status(&Error::from(error)))?;
    let bytes = text.len();
    Ok((json_text_response(text), bytes, reservation))
}

/// Responds with the data of an event, or with its entry.
async fn event_response(
    read: PageRead,
    page: EventPage,
    embed: Option<Embed>,
    reservation: PageReservation,
) -> SizedResponse {
    let wanted = |event: &ResolvedEvent| {
        let original = event.link.as_ref().or(event.event.as_ref());
        original.is_some_and(|event| read.from == u64::MAX || event.revision == read.from)
    };
    let EventPage { events, state, .. } = page;
    let Some(resolved) = events.into_iter().next().filter(wanted) else {
        let missing = || ApiError::not_found("the stream has no event with this revision");
        return Err(missing_stream(&read.stream, state).unwrap_or_else(missing));
    };
    let Some(embed) = embed else {
        let Some(event) = resolved.event.or(resolved.link) else {
            return Err(ApiError::not_found("the event is gone"));
        };
        let kind = if event.is_json { "application/json" } else { OCTETS };
        let bytes = event.data.len();
        let response = bytes_response(StatusCode::OK, kind, Bytes::from(event.data));
        return Ok((response, bytes, reservation));
    };
    let (text, reservation) = reservation
        .fill_blocking(move || entry_text(&resolved, embed))
        .await
        .map_err(|error| grpc_status::status(&Error::from(error)))?;
    let text = text.ok_or_else(|| ApiError::not_found("the event is gone"))?;
    let bytes = text.len();
    Ok((json_text_response(text), bytes, reservation))
}

//! Download of the whole data or metadata of an event.

use std::sync::Arc;

use prost::bytes::Bytes;
use tonic::Status;
use umbel_events::{Direction, RecordedEvent, Source};

use crate::auth::authorization::Caller;
use crate::event_store::event_pager::{EventPager, ReadRange};
use crate::http::console::query_string::QueryString;
use crate::protocol::grpc_status;
use crate::resources::outbound_quota::PageReservation;
use crate::server_context::ServerContext;
use crate::services::read_permission::ReadPermission;

/// Name of the endpoint.
pub const DOWNLOAD: &str = "download";
/// Maximum number of characters of a stream's name in the name of a file.
const FILE_NAME_CHARS_MAX: usize = 80;

/// The part of an event to download.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EventPart {
    Data,
    Metadata,
}

/// A downloaded part of an event.
#[derive(Debug)]
pub struct EventDownload {
    /// The bytes.
    pub content: Bytes,
    /// Name for the file, of ASCII letters, digits, `-`, `_` and `.`.
    pub file_name: String,
}

/// Reads a part of the event at a revision of a stream. For a link, reads the event to which the
/// link leads.
pub async fn download(
    service: &Arc<ServerContext>,
    caller: &Caller,
    stream: &str,
    query: &QueryString,
    reservation: PageReservation,
) -> Result<(EventDownload, PageReservation), Status> {
    grpc_status::check_not_index(stream)?;
    let parts = [("data", EventPart::Data), ("metadata", EventPart::Metadata)];
    let part = query.choice("part", parts)?.unwrap_or(EventPart::Data);
    let missing = || Status::invalid_argument("the request names no revision: add revision=NUMBER");
    let from = query.number("revision")?.ok_or_else(missing)?;
    let mut permission = ReadPermission::new(service, caller.clone(), stream).await?;
    let source = Source::named(stream);
    let through = service.system_projections.limit_of(&source);
    let range = ReadRange { source, direction: Direction::Forwards, from, through };
    let mut pager = EventPager::new(range, true);
    pager.set_readable_streams(permission.revalidate(service).await?);
    let read = service.store.read_page(pager, 1, reservation).await;
    let (page, reservation) = read.map_err(|error| grpc_status::status(&error))?;
    let found = page.events.into_iter().next().filter(|found| {
        let shown = found.link.as_ref().or(found.event.as_ref());
        shown.is_some_and(|event| event.revision == from)
    });
    let event = found.and_then(|found| found.event.or(found.link));
    let absent = || Status::not_found(format!("{stream} has no event with revision {from}"));
    let event = event.ok_or_else(absent)?;
    let file_name = file_name(stream, from, &event, part);
    let content = match part {
        EventPart::Data => event.data,
        EventPart::Metadata => event.metadata,
    };
    Ok((EventDownload { content: content.into(), file_name }, reservation))
}

fn file_name(stream: &str, revision: u64, event: &RecordedEvent, part: EventPart) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let plain = stream.chars().map(|c| if is_plain(c) { c } else { '_' });
    let stream: String = plain.take(FILE_NAME_CHARS_MAX).collect();
    let (suffix, is_json) = match part {
        EventPart::Data => ("", event.is_json),
        EventPart::Metadata => ("-metadata", str::from_utf8(&event.metadata).is_ok()),
    };
    let extension = if is_json { "json" } else { "bin" };
    format!("{stream}-{revision}{suffix}.{extension}")
}

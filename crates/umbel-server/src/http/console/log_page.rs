//! Pages with events of all streams: the part that the live tail and the search share.

use std::sync::Arc;

use serde::{Serialize, Serializer};
use tonic::Status;
use umbel_events::{Error, RecordedEvent, Store, is_view};

use crate::auth::authorization::Caller;
use crate::event_store::event_resolution::EventResolution;
use crate::protocol::grpc_status;
use crate::resources::outbound_quota::PageReservation;
use crate::server_context::ServerContext;
use crate::services::read_permission::{ALL_STREAM, ReadPermission};

/// Type of the events that are links.
const LINK_TYPE: &str = "$>";
/// Maximum bytes of a link's data that are shown.
const LINK_BYTES_MAX: usize = 1200;

/// Checks that the caller may read all events, and reads a page of them on a blocking thread, which
/// makes its JSON text, too. `read` gets the store and the rules that hide events from the caller.
///
/// # Errors
/// The caller lacks the permission, the quota of responses is used up, or the read fails.
pub async fn log_page<Page: Serialize>(
    service: &Arc<ServerContext>,
    caller: &Caller,
    reservation: PageReservation,
    read: impl FnOnce(Store, EventResolution) -> Result<Page, Error> + Send + 'static,
) -> Result<(String, PageReservation), Status> {
    let mut permission = ReadPermission::new(service, caller.clone(), ALL_STREAM).await?;
    let resolution = EventResolution {
        resolve_links: false,
        hides_streams: true,
        readable_streams: permission.revalidate(service).await?,
    };
    let store = service.store.handle();
    let write = move || {
        let page = read(store, resolution).map_err(|error| grpc_status::status(&error))?;
        serde_json::to_string(&page).map_err(|error| Status::internal(error.to_string()))
    };
    let (text, reservation) = reservation
        .fill_blocking(write)
        .await
        .map_err(|error| grpc_status::status(&error.into()))?;
    Ok((text?, reservation))
}

/// Summary of an event for a list.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EventSummary {
    stream: String,
    #[serde(serialize_with = "as_text")]
    revision: u64,
    #[serde(serialize_with = "as_text")]
    position: u64,
    #[serde(rename = "type")]
    kind: String,
    created_micros: u64,
    bytes: usize,
    links_to: Option<String>,
}

impl From<RecordedEvent> for EventSummary {
    fn from(event: RecordedEvent) -> EventSummary {
        let is_link = event.kind == LINK_TYPE || is_view(&event.stream);
        let target = &event.data[..event.data.len().min(LINK_BYTES_MAX)];
        let links_to = is_link.then(|| String::from_utf8_lossy(target).into_owned());
        EventSummary {
            revision: event.revision,
            position: event.position,
            created_micros: event.created / 10,
            bytes: event.data.len(),
            links_to,
            stream: event.stream,
            kind: event.kind,
        }
    }
}

/// Writes a number as text, since JavaScript would round a large one.
pub fn as_text<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(number)
}

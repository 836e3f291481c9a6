//! Pages with events of all streams: the part that the live tail and the search share.

use std::sync::Arc;

use serde_json::{Value, json};
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

/// Checks that the caller may read all events, and reads a page of them on a blocking thread.
/// `read` gets the store and the rules by which events are hidden from the caller.
///
/// # Errors
/// The caller lacks the permission, the quota of responses is used up, or the read fails.
pub async fn log_page(
    service: &Arc<ServerContext>,
    caller: &Caller,
    reservation: PageReservation,
    read: impl FnOnce(Store, EventResolution) -> Result<Value, Error> + Send + 'static,
) -> Result<(Value, PageReservation), Status> {
    let mut permission = ReadPermission::new(service, caller.clone(), ALL_STREAM).await?;
    let resolution = EventResolution {
        resolve_links: false,
        hides_streams: true,
        readable_streams: permission.revalidate(service).await?,
    };
    let store = service.store.handle();
    let (read, reservation) = reservation
        .fill_blocking(move || read(store, resolution))
        .await
        .map_err(|error| grpc_status::status(&error.into()))?;
    Ok((read.map_err(|error| grpc_status::status(&error))?, reservation))
}

/// Summary of an event for a list.
pub fn event_summary(event: &RecordedEvent) -> Value {
    let is_link = event.kind == LINK_TYPE || is_view(&event.stream);
    let target = &event.data[..event.data.len().min(LINK_BYTES_MAX)];
    json!({
        "stream": event.stream,
        "revision": event.revision.to_string(),
        "position": event.position.to_string(),
        "type": event.kind,
        "createdMicros": event.created / 10,
        "bytes": event.data.len(),
        "linksTo": is_link.then(|| String::from_utf8_lossy(target)),
    })
}

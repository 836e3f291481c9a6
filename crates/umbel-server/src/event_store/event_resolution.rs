//! [`EventResolution`]: turns an event into what its reader may see.

use umbel_events::{Error, RecordedEvent, ResolvedEvent, Store, is_view};

use crate::access_control::readable_streams::ReadableStreams;
use crate::limits::RESPONSE_OVERHEAD_BYTES;

/// Rules by which events are shown to a reader.
#[derive(Debug)]
pub struct EventResolution {
    /// Whether links are resolved to their targets.
    pub resolve_links: bool,
    /// Whether events of streams that the reader must not read are left out.
    pub hides_streams: bool,
    /// The streams that the reader may see besides the stream it reads; `None` for all.
    pub readable_streams: Option<ReadableStreams>,
}

impl EventResolution {
    /// The event, or the link with its target, as sent to the client. `None` for an event of a
    /// stream that is left out.
    pub fn resolve(
        &self,
        store: &Store,
        event: RecordedEvent,
    ) -> Result<Option<ResolvedEvent>, Error> {
        if self.hides_streams && !self.allows(store, &event)? {
            return Ok(None);
        }
        if self.is_hidden_link(store, &event)? {
            return Ok(None);
        }
        if !self.resolve_links {
            return Ok(Some(ResolvedEvent { event: Some(event), link: None }));
        }
        let mut resolved = store.resolve(event)?;
        if resolved.link.is_some()
            && let Some(target) = &resolved.event
            && !self.allows(store, target)?
        {
            resolved.event = None;
        }
        Ok(Some(resolved))
    }

    /// Whether the event is a view's link into a stream of the system that the reader may not read.
    /// The link itself would show the stream's name, such as the name of a user.
    fn is_hidden_link(&self, store: &Store, event: &RecordedEvent) -> Result<bool, Error> {
        let Some(scope) = &self.readable_streams else { return Ok(false) };
        match view_system_target(&event.stream, &event.data) {
            Some(target) => Ok(!scope.allows(store, target)?),
            None => Ok(false),
        }
    }

    /// Whether the reader may read the stream of this event.
    fn allows(&self, store: &Store, event: &RecordedEvent) -> Result<bool, Error> {
        self.readable_streams.as_ref().map_or(Ok(true), |scope| scope.allows(store, &event.stream))
    }
}

/// The stream of the system to which a view's link with this data leads; `None` for other events.
pub fn view_system_target<'a>(stream: &str, data: &'a [u8]) -> Option<&'a str> {
    let (_, target) = str::from_utf8(data).ok().filter(|_| is_view(stream))?.split_once('@')?;
    target.starts_with('$').then_some(target)
}

/// The bytes of a resolved event in a response.
pub fn resolved_bytes(resolved: &ResolvedEvent) -> usize {
    resolved.event.iter().chain(&resolved.link).map(recorded_bytes).sum()
}

/// The bytes of an event, with its stream name and type, in a response.
pub fn recorded_bytes(event: &RecordedEvent) -> usize {
    let names = event.stream.len() + event.kind.len();
    RESPONSE_OVERHEAD_BYTES + names + event.data.len() + event.metadata.len()
}

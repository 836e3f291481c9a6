//! Lists of events in requests: `application/vnd.kurrent.events+json`.

use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use tonic::Status;
use umbel_events::{Error, EventId};

use crate::http::api::api_response::ApiError;
use crate::limits::ERROR_BYTES_MAX;
use crate::protocol::proto_convert::ProposedEvent;
use crate::protocol::truncate_text::truncate_text;
use crate::resources::inbound_quota::InboundQuota;
use crate::services::streams::append::EventBuffer;

/// An event of a list.
#[derive(Default)]
struct ListedEvent<'a> {
    id: Option<String>,
    kind: Option<String>,
    data: Option<&'a RawValue>,
    metadata: Option<&'a RawValue>,
}

/// A member of an event.
enum Member {
    Id,
    Kind,
    Data,
    Metadata,
}

/// Reads the name of a member. The error has only the beginning of an unknown name, which can be as
/// long as the body.
struct MemberVisitor;

impl Visitor<'_> for MemberVisitor {
    type Value = Member;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("eventId, eventType, data or metadata")
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Member, E> {
        match name {
            "eventId" => Ok(Member::Id),
            "eventType" => Ok(Member::Kind),
            "data" => Ok(Member::Data),
            "metadata" | "metaData" => Ok(Member::Metadata),
            name => {
                let shown = truncate_text(name, ERROR_BYTES_MAX);
                Err(E::custom(format!("an event has the unknown member `{shown}`")))
            }
        }
    }
}

impl<'de> Deserialize<'de> for Member {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Member, D::Error> {
        deserializer.deserialize_identifier(MemberVisitor)
    }
}

struct EventVisitor;

impl<'de> Visitor<'de> for EventVisitor {
    type Value = ListedEvent<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an event")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<ListedEvent<'de>, A::Error> {
        let mut event = ListedEvent::default();
        while let Some(member) = members.next_key::<Member>()? {
            match member {
                Member::Id => event.id = members.next_value()?,
                Member::Kind => event.kind = Some(members.next_value()?),
                Member::Data => event.data = Some(members.next_value()?),
                Member::Metadata => event.metadata = members.next_value()?,
            }
        }
        Ok(event)
    }
}

impl<'de> Deserialize<'de> for ListedEvent<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<ListedEvent<'de>, D::Error> {
        deserializer.deserialize_map(EventVisitor)
    }
}

/// Parses a list of events. `new_id` generates the ids of events without one.
///
/// # Errors
/// The bytes are no list of events, an event is invalid, or the events exceed a limit.
pub fn parse(
    quota: &Arc<InboundQuota>,
    bytes: &[u8],
    new_id: impl FnMut() -> Result<EventId, Status>,
) -> Result<EventBuffer, ApiError> {
    // The parser's error of another value would repeat the value.
    if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'[') {
        return Err(ApiError::bad_request("the body must be a list of events"));
    }
    let mut buffer = EventBuffer::new(quota);
    let mut refusal = None;
    let list = EventList { new_id, buffer: &mut buffer, refusal: &mut refusal };
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let parsed = list.deserialize(&mut deserializer).and_then(|()| deserializer.end());
    match (refusal, parsed) {
        (Some(status), _) => return Err(status.into()),
        (None, Err(error)) => {
            return Err(ApiError::bad_request(format!(
                "the body is not a list of events with eventType, data, and optionally eventId and \
                 metadata: {error}"
            )));
        }
        (None, Ok(())) => {}
    }
    match buffer.events.is_empty() {
        true => Err(ApiError::bad_request("the list has no events")),
        false => Ok(buffer),
    }
}

/// Checks that the data of parsed events is JSON. For fuzzing and measurements.
pub fn check(bytes: &[u8]) {
    let quota = Arc::new(InboundQuota::default());
    let Ok(buffer) = parse(&quota, bytes, || Ok(EventId([7; 16]))) else { return };
    for event in &*buffer.events {
        let event = event.as_new_event();
        for part in [event.data, event.metadata] {
            assert!(part.is_empty() || serde_json::from_slice::<&RawValue>(part).is_ok());
        }
    }
    drop(buffer);
    assert_eq!(quota.used_bytes(), 0, "the events have released their quota");
}

/// An event of a request, as [`EventBuffer::add`] takes it.
pub fn proposed_event(
    id: EventId,
    kind: String,
    is_json: bool,
    (data, metadata): (&[u8], &[u8]),
) -> ProposedEvent {
    ProposedEvent::new(id, kind.into(), is_json, (data.to_vec().into(), metadata.into()))
}

/// Adds the events of a list to a buffer while they are parsed, so that the quota of appends bounds
/// the list.
struct EventList<'b, N> {
    new_id: N,
    buffer: &'b mut EventBuffer,
    /// The status with which the buffer refused an event.
    refusal: &'b mut Option<Status>,
}

impl<N: FnMut() -> Result<EventId, Status>> EventList<'_, N> {
    fn add<'de>(&mut self, event: ListedEvent<'de>) -> Result<(), Status> {
        let id = match event.id {
            Some(text) => {
                text.parse().map_err(|error: Error| Status::invalid_argument(error.to_string()))?
            }
            None => (self.new_id)()?,
        };
        let missing = || Status::invalid_argument("an event of the list has no eventType");
        let kind = event.kind.ok_or_else(missing)?;
        let bytes = |value: Option<&'de RawValue>| value.map_or("", RawValue::get).as_bytes();
        let content = (bytes(event.data), bytes(event.metadata));
        self.buffer.add(proposed_event(id, kind, true, content))
    }
}

impl<'de, N: FnMut() -> Result<EventId, Status>> DeserializeSeed<'de> for EventList<'_, N> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, N: FnMut() -> Result<EventId, Status>> Visitor<'de> for EventList<'_, N> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<(), A::Error> {
        while let Some(element) = list.next_element::<&'de RawValue>()? {
            let element = element.get();
            // The parser's error of another value would repeat the value.
            if !element.starts_with('{') {
                return Err(A::Error::custom("an element is no object"));
            }
            let event = serde_json::from_str::<ListedEvent<'de>>(element);
            let event = event.map_err(A::Error::custom)?;
            if let Err(status) = self.add(event) {
                *self.refusal = Some(status);
                return Err(A::Error::custom("an event was refused"));
            }
        }
        Ok(())
    }
}

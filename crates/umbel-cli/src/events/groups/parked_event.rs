//! [`ParkedEvent`]: an event in the stream of parked events of a group, with the time and the
//! reason of its parking.

use serde::Deserialize;
use serde_json::Value;
use umbel_events::RecordedEvent;

use crate::events::event_json;
use crate::events::timestamps;

/// A parked event.
#[derive(Debug)]
pub struct ParkedEvent {
    /// The event, or its link if the event is gone.
    event: RecordedEvent,
    /// Time of the parking, in units of 100 ns since 1970.
    parked: u64,
    /// Reason of the consumer; `None` if it gave none.
    reason: Option<String>,
}

/// Metadata of the link to a parked event. Other writers may give the members any type.
#[derive(Debug, Default, Deserialize)]
struct LinkMetadata {
    added: Option<Value>,
    reason: Option<Value>,
}

impl LinkMetadata {
    /// Time of the parking: a number of microseconds, or the text that KurrentDB writes.
    fn parked(&self) -> Option<u64> {
        match self.added.as_ref()? {
            Value::String(text) => timestamps::parse(text),
            added => added.as_u64().map(|micros| micros.saturating_mul(10)),
        }
    }

    fn reason(&self) -> Option<String> {
        let reason = self.reason.as_ref()?.as_str()?;
        Some(reason.to_string()).filter(|reason| !reason.is_empty())
    }
}

impl ParkedEvent {
    /// Combines a link in the stream of parked events with its event; `None` without both. A link
    /// without a time was parked when it was appended.
    pub fn new(link: Option<RecordedEvent>, event: Option<RecordedEvent>) -> Option<ParkedEvent> {
        let parking = link.as_ref().or(event.as_ref())?;
        let metadata: LinkMetadata = serde_json::from_slice(&parking.metadata).unwrap_or_default();
        let parked = metadata.parked().unwrap_or(parking.created);
        Some(ParkedEvent { reason: metadata.reason(), parked, event: event.or(link)? })
    }

    /// Returns the output line of the event.
    pub fn to_line(&self) -> String {
        event_json::parked_json(&self.event, self.parked, self.reason.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(stream: &str, created: u64, metadata: &str) -> RecordedEvent {
        RecordedEvent {
            stream: stream.to_string(),
            revision: 0,
            position: 0,
            id: "00000000-0000-0000-0000-000000000007".parse().unwrap(),
            kind: "Opened".to_string(),
            is_json: true,
            created,
            data: b"{}".to_vec(),
            metadata: metadata.as_bytes().to_vec(),
        }
    }

    #[test]
    fn parking_is_read_from_any_link() {
        for (metadata, parked, reason) in [
            (r#"{"added":5,"reason":"no stock"}"#, 50, Some("no stock")),
            (r#"{"added":5,"reason":""}"#, 50, None),
            (r#"{"added":"1970-01-01T00:00:00.0000009Z","reason":7}"#, 9, None),
            (r#"{"added":-1,"reason":null}"#, 3, None),
            ("{}", 3, None),
            ("[1", 3, None),
            ("", 3, None),
        ] {
            let link = recorded("parked", 3, metadata);
            let event = recorded("cart", 1, r#"{"added":8,"reason":"another"}"#);
            let found = ParkedEvent::new(Some(link.clone()), Some(event)).unwrap();
            assert_eq!((found.parked, found.reason.as_deref()), (parked, reason), "{metadata}");
            assert_eq!(found.event.stream, "cart");
            let gone = ParkedEvent::new(Some(link), None).unwrap();
            assert_eq!((gone.parked, &*gone.event.stream), (parked, "parked"), "{metadata}");
        }
        assert!(ParkedEvent::new(None, None).is_none());
    }
}

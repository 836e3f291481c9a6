//! Events of the soak: each names its writer, its number among the writer's events, and its time.

use umbel_proto::shared::{Uuid, uuid};
use umbel_proto::streams::append_req::ProposedMessage;

use crate::serving::messages::{made_at, mix, now};

/// Bytes of an event's data.
const DATA_BYTES: usize = 100;

/// Content of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EventInfo {
    /// Time at which the event was made, in microseconds since 1970.
    pub(super) made_at: u64,
    /// Writer of the event.
    pub(super) writer: usize,
    /// Number among the events of its writer, from 0.
    pub(super) number: u64,
}

/// Makes the event of this writer with this number.
pub(super) fn proposed(writer: usize, number: u64) -> ProposedMessage {
    let mut data = format!(
        "{{\"at\":{:020},\"writer\":{writer:04},\"number\":{number:012},\"note\":\"",
        now()
    );
    let rest = DATA_BYTES - data.len() - 2;
    data.extend(std::iter::repeat_n('x', rest));
    data.push_str("\"}");
    ProposedMessage {
        id: Some(id(writer, number)),
        metadata: [("type", "soaked"), ("content-type", "application/json")]
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .into(),
        custom_metadata: Vec::new().into(),
        data: data.into_bytes().into(),
    }
}

fn id(writer: usize, number: u64) -> Uuid {
    let halves = uuid::Structured {
        most_significant_bits: mix(!(writer as u64)) as i64,
        least_significant_bits: mix(number) as i64,
    };
    Uuid { value: Some(uuid::Value::Structured(halves)) }
}

/// Parses the data of an event; `None` if it is not an event of the soak.
pub(super) fn event_info(data: &[u8]) -> Option<EventInfo> {
    let text = std::str::from_utf8(data).ok()?;
    let number_after = |head: &str, digits: usize| -> Option<u64> {
        let from = text.find(head)? + head.len();
        text.get(from..from + digits)?.parse().ok()
    };
    let writer = usize::try_from(number_after("\"writer\":", 4)?).ok()?;
    Some(EventInfo { made_at: made_at(data)?, writer, number: number_after("\"number\":", 12)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_data_names_writer_and_number() {
        let event = proposed(13, 10_800_000);
        assert_eq!(event.data.len(), DATA_BYTES);
        let info = event_info(&event.data).unwrap();
        assert_eq!((info.writer, info.number), (13, 10_800_000));
        assert!(info.made_at <= now());
    }

    #[test]
    fn other_data_has_no_event_info() {
        for other in [&b"{}"[..], b"0@soak-old-04-00", b"\xff", b"{\"at\":1,\"writer\":0001"] {
            assert_eq!(event_info(other), None);
        }
    }
}

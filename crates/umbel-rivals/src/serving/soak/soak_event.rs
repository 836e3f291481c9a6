//! The events of the soak: each says who wrote it, as which of his, and when.

use umbel_proto::shared::{Uuid, uuid};
use umbel_proto::streams::append_req::ProposedMessage;

use crate::serving::messages::{made_at, mix, now};

/// Bytes of an event's data.
const DATA_BYTES: usize = 100;

/// What an event says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Told {
    /// When it was made, in microseconds since 1970.
    pub(super) made_at: u64,
    /// Who wrote it,
    pub(super) writer: usize,
    /// and as which of his, from 0.
    pub(super) number: u64,
}

/// The event of this writer with this number.
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

/// What an event with this data says, if it is one of the soak's.
pub(super) fn told(data: &[u8]) -> Option<Told> {
    let text = std::str::from_utf8(data).ok()?;
    let behind = |head: &str, digits: usize| -> Option<u64> {
        let from = text.find(head)? + head.len();
        text.get(from..from + digits)?.parse().ok()
    };
    let writer = usize::try_from(behind("\"writer\":", 4)?).ok()?;
    Some(Told { made_at: made_at(data)?, writer, number: behind("\"number\":", 12)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_says_who_wrote_it_and_as_which() {
        let event = proposed(13, 10_800_000);
        assert_eq!(event.data.len(), DATA_BYTES);
        let told = told(&event.data).unwrap();
        assert_eq!((told.writer, told.number), (13, 10_800_000));
        assert!(told.made_at <= now());
    }

    #[test]
    fn what_is_not_of_the_soak_says_nothing() {
        for other in [&b"{}"[..], b"0@soak-old-04-00", b"\xff", b"{\"at\":1,\"writer\":0001"] {
            assert_eq!(told(other), None);
        }
    }
}

//! Messages that both servers receive, and answers of the bare server.

use std::time::{SystemTime, UNIX_EPOCH};

use umbel_proto::shared::{AllStreamPosition, Uuid, uuid};
use umbel_proto::streams::{
    AppendReq, AppendResp, BatchAppendReq, BatchAppendResp, ExpectedRevision, ReadResp, append_req,
    append_resp, batch_append_req, batch_append_resp, read_resp,
};

/// Bytes of an event's data.
pub(super) const DATA_BYTES: usize = 100;

/// Converts a number to a pseudo-random number by SplitMix64.
pub(super) fn mix(number: u64) -> u64 {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// Makes an identifier from two numbers.
pub(super) fn id(tag: u64, number: u64) -> Uuid {
    let halves = uuid::Structured {
        most_significant_bits: mix(tag) as i64,
        least_significant_bits: mix(number) as i64,
    };
    Uuid { value: Some(uuid::Value::Structured(halves)) }
}

/// Returns the time in microseconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros() as u64)
}

/// Makes the event with this identifier. The event's data holds its creation time; all events have
/// the same size.
pub(super) fn proposed(id: Uuid) -> append_req::ProposedMessage {
    let mut data = format!("{{\"at\":{:020},\"note\":\"", now());
    let rest = DATA_BYTES - data.len() - 2;
    data.extend(std::iter::repeat_n('x', rest));
    data.push_str("\"}");
    append_req::ProposedMessage {
        id: Some(id),
        metadata: [("type", "order-placed"), ("content-type", "application/json")]
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .into(),
        custom_metadata: Vec::new().into(),
        data: data.into_bytes().into(),
    }
}

/// Returns the time at which the event with this data was made.
pub(super) fn made_at(data: &[u8]) -> Option<u64> {
    std::str::from_utf8(data.get(6..26)?).ok()?.parse().ok()
}

/// Makes the messages of an append of these events.
pub(super) fn append(
    stream: &str,
    expected: ExpectedRevision,
    events: impl IntoIterator<Item = append_req::ProposedMessage>,
) -> Vec<AppendReq> {
    let options = append_req::Options {
        stream_identifier: Some(stream.into()),
        expected_stream_revision: Some(expected),
    };
    let part = |content| AppendReq { content: Some(content) };
    let events = events.into_iter().map(append_req::Content::ProposedMessage);
    std::iter::once(append_req::Content::Options(options)).chain(events).map(part).collect()
}

/// Makes a batch of these events.
pub(super) fn batch(
    number: u64,
    stream: &str,
    expected: ExpectedRevision,
    events: Vec<append_req::ProposedMessage>,
) -> BatchAppendReq {
    let halves =
        uuid::Structured { most_significant_bits: 0, least_significant_bits: number as i64 };
    BatchAppendReq {
        correlation_id: Some(Uuid { value: Some(uuid::Value::Structured(halves)) }),
        options: Some(batch_append_req::Options {
            stream_identifier: Some(stream.into()),
            expected_stream_position: Some(expected.into()),
            deadline_option: None,
        }),
        proposed_messages: events,
        is_final: true,
    }
}

/// Returns the number of the batch with this correlation id.
pub(super) fn batch_number(id: Option<Uuid>) -> Option<u64> {
    match id?.value? {
        uuid::Value::Structured(halves) => Some(halves.least_significant_bits as u64),
        uuid::Value::String(text) => u64::from_str_radix(&text.replace('-', ""), 16).ok(),
    }
}

/// Position whose encoded length equals that of positions in a store of some size.
const POSITION: u64 = 1 << 30;

fn success() -> append_resp::Success {
    let position = AllStreamPosition { commit_position: POSITION, prepare_position: POSITION };
    append_resp::Success {
        current_revision_option: Some(append_resp::CurrentRevision::CurrentRevision(0)),
        position_option: Some(append_resp::PositionOption::Position(position)),
    }
}

/// Makes the answer to an append.
pub(super) fn appended() -> AppendResp {
    AppendResp { result: Some(append_resp::Outcome::Success(success())) }
}

/// Makes the answer to a batch.
pub(super) fn batch_appended(request: &BatchAppendReq) -> BatchAppendResp {
    let options = request.options.as_ref();
    BatchAppendResp {
        correlation_id: request.correlation_id.clone(),
        result: Some(batch_append_resp::Outcome::Success(success())),
        stream_identifier: options.and_then(|options| options.stream_identifier.clone()),
        expected_stream_position: Some(batch_append_resp::Expected::NoStream(())),
    }
}

/// Makes the answer to a reader with an event.
pub(super) fn recorded(stream: &str, proposed: &append_req::ProposedMessage) -> ReadResp {
    let mut metadata = proposed.metadata.clone();
    metadata.insert("created".to_string(), (now() * 10).to_string());
    let event = read_resp::RecordedEvent {
        id: proposed.id.clone(),
        stream_identifier: Some(stream.into()),
        stream_revision: 1,
        prepare_position: POSITION,
        commit_position: POSITION,
        metadata,
        custom_metadata: proposed.custom_metadata.clone(),
        data: proposed.data.clone(),
    };
    let position = Some(read_resp::EventPosition::CommitPosition(POSITION));
    let event = read_resp::ReadEvent { event: Some(event), link: None, position };
    ReadResp { content: Some(read_resp::Content::Event(event)) }
}

/// Makes the first answer to a subscriber.
pub(super) fn confirmed() -> ReadResp {
    let confirmation = read_resp::SubscriptionConfirmation { subscription_id: "bare".to_string() };
    ReadResp { content: Some(read_resp::Content::Confirmation(confirmation)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_have_the_documented_size() {
        let event = proposed(id(1, 2));
        assert_eq!(event.data.len(), DATA_BYTES);
        let at = made_at(&event.data).unwrap();
        assert!(at <= now() && at > 1_700_000_000_000_000);
        assert_eq!(
            batch_number(batch(7, "s", ExpectedRevision::Any(()), vec![]).correlation_id),
            Some(7)
        );
    }
}

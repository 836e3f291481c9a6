//! [`AppendRequest`]: a request to the store, and [`WriteResult`]: its result.

use std::collections::HashSet;

use umbel_base::checksum::checksum;

use crate::append::written_prefix::WrittenPrefix;
use crate::event_log::event_format;
use crate::limits::{
    APPEND_BYTES_MAX, APPEND_EVENTS_MAX, APPEND_STREAMS_MAX, EVENT_BYTES_MAX, STREAM_NAME_BYTES_MAX,
};
use crate::types::error::{Error, Result};
use crate::types::event::NewEvent;
use crate::types::expected_version::ExpectedVersion;
use crate::types::stream_metadata::{RetentionRules, validate_settings};
use crate::types::stream_names;

/// Maximum number of appends of one request whose streams are prefetched.
const PREFETCHED_APPENDS_MAX: usize = 16;

/// Events for one stream.
#[derive(Debug, Clone, Copy)]
pub struct StreamAppend<'a> {
    /// The stream.
    pub stream: &'a str,
    /// Expected version of the stream.
    pub expected: ExpectedVersion,
    /// The events, in order.
    pub events: &'a [NewEvent<'a>],
}

/// An additional condition on a stream, checked before the request writes anything.
#[derive(Debug, Clone, Copy)]
pub struct StreamCheck<'a> {
    /// The stream.
    pub stream: &'a str,
    /// Expected version of the stream.
    pub expected: ExpectedVersion,
}

/// Appends that are applied together or not at all.
#[derive(Debug, Clone, Copy)]
pub struct AppendRequest<'a> {
    /// The appends, each to a different stream.
    pub appends: &'a [StreamAppend<'a>],
    /// Additional conditions. Several conditions may name the same stream, which may also be in
    /// `appends`.
    pub checks: &'a [StreamCheck<'a>],
}

/// Result of an append to one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteResult {
    /// Revision of the first event; `None` where the append had no events.
    pub first: Option<u64>,
    /// Revision of the last event. For an append without events: the stream's last revision, or
    /// `None` for a stream without events.
    pub last: Option<u64>,
    /// Position of the last event; `None` where the append had no events.
    pub position: Option<u64>,
    /// Whether the events existed before, so that this was a retry.
    pub is_retry: bool,
}

/// Retention rules in the metadata that a request appends. Reading them takes time, so the
/// appender gets them with the request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CheckedMetadata {
    /// The rules in the last event of each append to a metadata stream, in order.
    rules: Vec<RetentionRules>,
    /// The request, if everything was checked that needs no stream's state.
    request: Option<Box<CheckedRequest>>,
}

/// A request of which everything was checked that needs no stream's state.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CheckedRequest {
    fingerprint: u64,
    /// Written events of each append; empty if they were not looked for.
    written: Vec<Option<WrittenPrefix>>,
}

impl CheckedMetadata {
    /// Metadata with these rules, of a request with one append.
    pub(crate) fn of_single_append(rules: RetentionRules) -> CheckedMetadata {
        CheckedMetadata { rules: vec![rules], request: None }
    }

    /// Adds the written events of each append.
    pub(crate) fn with_written(mut self, written: Vec<Option<WrittenPrefix>>) -> CheckedMetadata {
        if let Some(request) = &mut self.request {
            request.written = written;
        }
        self
    }

    /// The written events of the append with this index, if they were looked for.
    pub(crate) fn written(&self, append: usize) -> Option<WrittenPrefix> {
        self.request.as_ref()?.written.get(append).copied().flatten()
    }

    /// The rules, one for each append to a metadata stream.
    pub(crate) fn rules(&self) -> impl Iterator<Item = RetentionRules> {
        self.rules.iter().copied()
    }
}

impl<'a> AppendRequest<'a> {
    /// Checks everything that needs no stream's state: names, types, sizes and metadata. The store
    /// does not repeat these checks, which take milliseconds for the longest requests.
    ///
    /// # Errors
    /// `Invalid` and `TooLarge`.
    pub fn check(&self) -> Result<CheckedMetadata> {
        self.validate()?;
        let checked = self.check_metadata()?;
        let request = CheckedRequest { fingerprint: self.fingerprint(), written: Vec::new() };
        Ok(CheckedMetadata { request: Some(Box::new(request)), ..checked })
    }

    /// Fingerprint of the names of the streams, and of ids and lengths of the events: what was
    /// checked does not count for another request.
    fn fingerprint(&self) -> u64 {
        let mut fingerprint = mix(self.appends.len() as u64, self.checks.len() as u64);
        for append in self.appends {
            fingerprint = mix(fingerprint, checksum(0, 0, append.stream.as_bytes()));
            fingerprint = mix(fingerprint, append.events.len() as u64);
            for event in append.events {
                let id = u128::from_le_bytes(event.id.0);
                fingerprint = mix(mix(fingerprint, id as u64), (id >> 64) as u64);
                for field in [event.kind.as_bytes(), event.data, event.metadata] {
                    fingerprint = mix(fingerprint, field.len() as u64);
                }
            }
        }
        fingerprint
    }

    /// Number of events of all streams.
    pub(crate) fn event_count(&self) -> usize {
        self.appends.iter().map(|append| append.events.len()).sum()
    }

    /// Returns an error that describes why the request is invalid, apart from its metadata. Relies
    /// on an earlier [`AppendRequest::check`] of the same request, and refuses that of another one.
    pub(crate) fn validate_unless_checked(&self, metadata: &CheckedMetadata) -> Result<()> {
        match &metadata.request {
            None => self.validate(),
            Some(checked) if checked.fingerprint == self.fingerprint() => {
                debug_assert!(self.validate().is_ok(), "the request was checked");
                Ok(())
            }
            Some(_) => {
                Err(Error::invalid("internal: the result of the check is that of another append"))
            }
        }
    }

    /// Checks the metadata that the request appends, and reads the retention rules.
    ///
    /// # Errors
    /// `Invalid` for metadata that is too long, no JSON object, or has an invalid value.
    pub fn check_metadata(&self) -> Result<CheckedMetadata> {
        let mut checked = CheckedMetadata::default();
        for append in self.appends.iter().filter(|append| append.stream.starts_with('$')) {
            if let Some(subject) = stream_names::metadata_subject(append.stream) {
                let mut last = RetentionRules::default();
                for event in append.events {
                    last = RetentionRules::validate(subject, event.data)?;
                }
                checked.rules.push(last);
            }
            if append.stream == stream_names::SETTINGS_STREAM {
                append.events.iter().try_for_each(|it| validate_settings(it.data))?;
            }
        }
        Ok(checked)
    }

    /// Appends to prefetch before the request is checked. The number of these appends is small,
    /// since a processor supports few cache misses in flight. Appends with too long a stream name
    /// are left out.
    pub(crate) fn appends_to_prefetch(&self) -> impl Iterator<Item = &'a StreamAppend<'a>> {
        let is_sound = |append: &&StreamAppend<'_>| append.stream.len() <= STREAM_NAME_BYTES_MAX;
        self.appends.iter().take(PREFETCHED_APPENDS_MAX).filter(is_sound)
    }

    /// Returns an error that describes why the request is invalid, apart from its metadata.
    pub(crate) fn validate(&self) -> Result<()> {
        let streams = self.appends.len() + self.checks.len();
        if streams > APPEND_STREAMS_MAX {
            return Err(Error::invalid(format!(
                "an append names {streams} streams; at most {APPEND_STREAMS_MAX} are allowed"
            )));
        }
        if self.appends.is_empty() {
            return Err(Error::invalid("there is no stream to append to"));
        }
        let mut events = 0;
        let mut bytes = 0;
        for append in self.appends {
            stream_names::check_stream(append.stream)?;
            events += append.events.len();
            for event in append.events {
                stream_names::check_event_type(event.kind)?;
                check_event_bytes(event)?;
                bytes += event_format::frame_bytes(append.stream, event);
            }
        }
        if events > APPEND_EVENTS_MAX {
            return Err(Error::invalid(format!(
                "an append has {events} events, but may have at most {APPEND_EVENTS_MAX}; append \
                 the events in parts"
            )));
        }
        check_append_bytes(bytes)?;
        if self.appends.len() > 1 {
            self.validate_distinct()?;
        }
        Ok(())
    }

    fn validate_distinct(&self) -> Result<()> {
        let mut seen = HashSet::new();
        for stream in self.appends.iter().map(|append| append.stream) {
            if !seen.insert(stream) {
                return Err(Error::invalid(format!(
                    "one append names the stream '{}' twice; name it once",
                    stream.escape_debug()
                )));
            }
        }
        Ok(())
    }
}

/// Adds a number to a fingerprint, which depends on the order of the numbers.
fn mix(fingerprint: u64, number: u64) -> u64 {
    (fingerprint.rotate_left(23) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Returns an error if `bytes` of the log are more than one append may take.
pub fn check_append_bytes(bytes: usize) -> Result<()> {
    if bytes <= APPEND_BYTES_MAX {
        return Ok(());
    }
    let (bytes, max_bytes) = (bytes as u64, APPEND_BYTES_MAX as u64);
    Err(Error::TooLarge { event: None, bytes, max_bytes })
}

/// Returns an error if the event's data and metadata have too many bytes.
pub fn check_event_bytes(event: &NewEvent<'_>) -> Result<()> {
    let bytes = event.limited_bytes();
    if bytes <= EVENT_BYTES_MAX {
        return Ok(());
    }
    let (bytes, max_bytes) = (bytes as u64, EVENT_BYTES_MAX as u64);
    Err(Error::TooLarge { event: Some(event.id), bytes, max_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::event::EventId;

    fn append<'a>(stream: &'a str, events: &'a [NewEvent<'a>]) -> StreamAppend<'a> {
        StreamAppend { stream, expected: ExpectedVersion::Any, events }
    }

    #[test]
    fn oversized_or_duplicate_streams_are_rejected() {
        let data = vec![0; EVENT_BYTES_MAX];
        let event = NewEvent::binary(EventId([1; 16]), "t", &data);
        let check =
            |appends: &[StreamAppend<'_>]| AppendRequest { appends, checks: &[] }.validate();
        check(&[append("a", &[event])]).expect("as large as may be");
        let too_large = check(&[append("a", &[event.with_metadata(b"m")])]);
        assert!(matches!(too_large, Err(Error::TooLarge { event: Some(_), .. })));
        let together = check(&[append("a", &[event, event])]);
        assert!(matches!(together, Err(Error::TooLarge { event: None, .. })));
        let small = NewEvent::binary(EventId([1; 16]), "t", b"");
        let twice = check(&[append("a", &[small]), append("a", &[small])]).expect_err("twice");
        assert!(twice.to_string().contains("names the stream 'a' twice"), "{twice}");
        assert!(check(&[]).is_err());
        let events = [small];
        let invalid = AppendRequest { appends: &[append("", &events)], checks: &[] };
        assert!(invalid.check().is_err());
        let metadata = AppendRequest { appends: &[append("$$a", &events)], checks: &[] };
        assert!(metadata.check_metadata().is_err(), "metadata is JSON");
    }

    /// Story: the result of a check counted for each request with as many events. So an append over
    /// the limits, or with an invalid name, could reach the log.
    #[test]
    fn result_of_a_check_counts_for_its_request_only() {
        let event = NewEvent::binary(EventId([1; 16]), "t", b"data");
        let events = [event, event.with_metadata(b"m")];
        let whole = [append("a", &events)];
        let divided = vec![append("a", &events[..1]), append("b", &events[1..])];
        let request = AppendRequest { appends: &whole, checks: &[] };
        let checked = request.check().expect("valid");
        request.validate_unless_checked(&checked).expect("checked");
        let others = [
            [events[1], event],
            [NewEvent { id: EventId([2; 16]), ..event }, events[1]],
            [NewEvent { kind: "type", ..event }, events[1]],
            [NewEvent { data: b"longer", ..event }, events[1]],
        ];
        let mut appends: Vec<Vec<StreamAppend<'_>>> =
            others.iter().map(|events| vec![append("a", events)]).collect();
        appends.extend([vec![append("b", &events)], divided, Vec::new()]);
        for appends in &appends {
            let other = AppendRequest { appends, checks: &[] };
            assert!(other.validate_unless_checked(&checked).is_err(), "{other:?}");
        }
        let checks = [StreamCheck { stream: "c", expected: ExpectedVersion::Any }];
        let with_check = AppendRequest { appends: &whole, checks: &checks };
        assert!(with_check.validate_unless_checked(&checked).is_err());
    }
}

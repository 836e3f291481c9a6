//! [`Request`]: what is asked of a store, and [`Appended`]: what came of it.

use std::collections::HashSet;

use crate::error::{Error, Result};
use crate::event::{Expected, NewEvent};
use crate::format;
use crate::limits::{
    APPEND_BYTES_MAX, APPEND_EVENTS_MAX, APPEND_STREAMS_MAX, EVENT_BYTES_MAX, STREAM_NAME_BYTES_MAX,
};
use crate::names;
use crate::settings::Settings;

/// For the streams of so many appends of a request memory is fetched ahead.
const PREFETCHED_MOST: usize = 16;

/// Events for one stream.
#[derive(Debug, Clone, Copy)]
pub struct StreamAppend<'a> {
    /// The stream.
    pub stream: &'a str,
    /// What is expected of it.
    pub expected: Expected,
    /// The events, in order.
    pub events: &'a [NewEvent<'a>],
}

/// What is expected of a stream besides, before anything is written.
#[derive(Debug, Clone, Copy)]
pub struct Check<'a> {
    /// The stream.
    pub stream: &'a str,
    /// What is expected of it.
    pub expected: Expected,
}

/// Appends that happen together or not at all.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// To which streams, each once.
    pub appends: &'a [StreamAppend<'a>],
    /// What else has to be so. A stream may be there more than once, and be appended to as well.
    pub checks: &'a [Check<'a>],
}

/// What came of an append to one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// The revision of the first event; `None` where there was none to append.
    pub first: Option<u64>,
    /// The revision of the last event; where there was none to append, of the stream's last, if it
    /// has one.
    pub last: Option<u64>,
    /// The position of the last event, where there was one.
    pub position: Option<u64>,
    /// Whether the events had been there before, so that this was a retry.
    pub was_there: bool,
}

impl<'a> Request<'a> {
    /// Those for which memory is fetched before the request is checked: few, for the processor has
    /// few misses under way, and none with a name that will be refused for its length.
    pub(crate) fn prefetched(&self) -> impl Iterator<Item = &'a StreamAppend<'a>> {
        let is_sound = |append: &&StreamAppend<'_>| append.stream.len() <= STREAM_NAME_BYTES_MAX;
        self.appends.iter().take(PREFETCHED_MOST).filter(is_sound)
    }

    /// An error that says what is wrong with it.
    pub(crate) fn check(&self) -> Result<()> {
        let streams = self.appends.len() + self.checks.len();
        if streams > APPEND_STREAMS_MAX {
            return Err(Error::invalid(format!(
                "an append is about {streams} streams, but may be about {APPEND_STREAMS_MAX}"
            )));
        }
        if self.appends.is_empty() {
            return Err(Error::invalid("there is no stream to append to"));
        }
        let mut events = 0;
        let mut bytes = 0;
        for append in self.appends {
            names::check_stream(append.stream)?;
            events += append.events.len();
            for event in append.events {
                check_event(append.stream, event)?;
                bytes += format::frame_bytes(append.stream, event);
            }
        }
        if events > APPEND_EVENTS_MAX {
            return Err(Error::invalid(format!(
                "an append has {events} events, but may have {APPEND_EVENTS_MAX}; append them in \
                 parts"
            )));
        }
        if bytes > APPEND_BYTES_MAX {
            let (bytes, most) = (bytes as u64, APPEND_BYTES_MAX as u64);
            return Err(Error::TooLarge { event: None, bytes, most });
        }
        if self.appends.len() > 1 {
            self.check_distinct()?;
        }
        Ok(())
    }

    fn check_distinct(&self) -> Result<()> {
        let mut seen = HashSet::new();
        for stream in self.appends.iter().map(|append| append.stream) {
            if !seen.insert(stream) {
                return Err(Error::invalid(format!(
                    "the stream '{}' is there twice in one append; name it once",
                    stream.escape_debug()
                )));
            }
        }
        Ok(())
    }
}

fn check_event(stream: &str, event: &NewEvent<'_>) -> Result<()> {
    names::check_kind(event.kind)?;
    let bytes = (event.data.len() + event.metadata.len()) as u64;
    if bytes > EVENT_BYTES_MAX as u64 {
        let most = EVENT_BYTES_MAX as u64;
        return Err(Error::TooLarge { event: Some(event.id), bytes, most });
    }
    if let Some(subject) = names::subject(stream) {
        Settings::check(subject, event.data)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::EventId;

    #[test]
    fn what_is_too_large_or_named_twice_is_refused() {
        let data = vec![0; EVENT_BYTES_MAX];
        let event = NewEvent::binary(EventId([1; 16]), "t", &data);
        fn append<'a>(stream: &'a str, events: &'a [NewEvent<'a>]) -> StreamAppend<'a> {
            StreamAppend { stream, expected: Expected::Any, events }
        }
        let check = |appends: &[StreamAppend<'_>]| Request { appends, checks: &[] }.check();
        check(&[append("a", &[event])]).expect("as large as may be");
        let too_large = check(&[append("a", &[event.with_metadata(b"m")])]);
        assert!(matches!(too_large, Err(Error::TooLarge { event: Some(_), .. })));
        let together = check(&[append("a", &[event, event])]);
        assert!(matches!(together, Err(Error::TooLarge { event: None, .. })));
        let small = NewEvent::binary(EventId([1; 16]), "t", b"");
        let twice = check(&[append("a", &[small]), append("a", &[small])]).expect_err("twice");
        assert!(twice.to_string().contains("'a' is there twice"), "{twice}");
        assert!(check(&[]).is_err());
        assert!(check(&[append("$$a", &[small])]).is_err(), "metadata is JSON");
    }
}

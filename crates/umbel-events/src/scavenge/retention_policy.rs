//! [`Judge`]: which events of a chunk stay, which leave a stub, and which go.

use std::collections::HashMap;

use crate::error::Result;
use crate::format::Frame;
use crate::head::Head;
use crate::limits::TOMBSTONE_REVISION;
use crate::names;
use crate::parts::Parts;
use crate::settings::Settings;

/// Units of 100 ns in a second.
const TICKS: u64 = 10_000_000;

/// What becomes of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It stays as it is.
    Stay,
    /// Its name, type, id and revision stay.
    Stub,
    /// It goes.
    Go,
}

/// Judges the events of one chunk, each stream as it was when it was first asked for.
#[derive(Debug)]
pub struct Judge<'a> {
    parts: &'a Parts,
    streams: HashMap<String, Option<Stream>>,
    /// When it is, as events say it.
    now: u64,
    /// Events from this position on leave stubs at least, so that retries are known.
    stubs_from: u64,
}

/// What counts of a stream.
#[derive(Debug, Clone, Copy)]
struct Stream {
    head: Head,
    /// Lower revisions are hidden for good.
    first: u64,
    /// Events that were appended before are.
    oldest: u64,
}

impl Judge<'_> {
    /// Judges by the store as it is.
    pub fn new(parts: &Parts, stubs_from: u64) -> Judge<'_> {
        let now = parts.env.clock.wall_micros().saturating_mul(10);
        Judge { parts, streams: HashMap::new(), now, stubs_from }
    }

    fn stream(&self, name: &str) -> Result<Option<Stream>> {
        let Some(head) = self.parts.head(name)? else { return Ok(None) };
        let mut stream = Stream { head, first: 0, oldest: 0 };
        let is_ended = |head: Option<Head>| head.is_some_and(|head| head.is_tombstoned);
        if let Some(subject) = names::subject(name) {
            let ended = is_ended(self.parts.head(subject)?);
            stream.first = if ended { u64::MAX } else { head.last_revision };
            return Ok(Some(stream));
        }
        if head.is_tombstoned {
            stream.first = u64::MAX;
            return Ok(Some(stream));
        }
        let metadata = self.parts.head(&names::metadata_stream(name))?;
        let settings = metadata.and_then(|metadata| metadata.settings);
        let settings: Settings = settings.unwrap_or_default();
        stream.first = settings.first_revision(head.last_revision);
        let age = settings.max_age_seconds.map(|seconds| seconds.saturating_mul(TICKS));
        stream.oldest = age.map_or(0, |age| self.now.saturating_sub(age));
        Ok(Some(stream))
    }

    /// What becomes of an event.
    pub fn judge(&mut self, frame: &Frame<'_>) -> Result<Verdict> {
        let (revision, position) = (frame.stamp.revision, frame.stamp.position);
        if revision == TOMBSTONE_REVISION {
            return Ok(Verdict::Stay);
        }
        let stream = match self.streams.get(frame.stream) {
            Some(stream) => *stream,
            None => {
                let stream = self.stream(frame.stream)?;
                self.streams.insert(frame.stream.to_string(), stream);
                stream
            }
        };
        // Of what the index does not know nothing is said.
        let Some(Stream { head, first, oldest }) = stream else { return Ok(Verdict::Stay) };
        let is_hidden = revision < first || frame.stamp.created < oldest || frame.is_stub;
        if !is_hidden || revision > head.last_revision {
            return Ok(Verdict::Stay);
        }
        let is_last = revision == head.last_revision;
        Ok(match is_last || position >= self.stubs_from {
            true => Verdict::Stub,
            false => Verdict::Go,
        })
    }
}

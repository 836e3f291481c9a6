//! Links: events that point at other events.
//!
//! A link is an event of the type `$>` whose data is `number@stream`. Any client can write a link,
//! so the link's data is not trusted. A link that names no readable event points at nothing.

use std::sync::Arc;

use crate::read::stream_reader::StreamReader;
use crate::shared_store_state::StoreInner;
use crate::types::error::{Error, Result};
use crate::types::event::RecordedEvent;

/// Type of links.
const LINK_TYPE: &str = "$>";

/// Event, with the link that led to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedEvent {
    /// The event. `None` if the link's target is malformed, was never written, was deleted, or is
    /// hidden by its stream's metadata.
    pub event: Option<RecordedEvent>,
    /// The link that led to the event; `None` if the event was read directly.
    pub link: Option<RecordedEvent>,
}

/// Resolves a link. A link to a link is not followed.
pub fn resolve(shared: &Arc<StoreInner>, event: RecordedEvent) -> Result<ResolvedEvent> {
    if event.kind != LINK_TYPE {
        return Ok(ResolvedEvent { event: Some(event), link: None });
    }
    let target = match parse_target(&event.data) {
        Some((revision, stream)) => read_target(shared, stream, revision)?,
        None => None,
    };
    Ok(ResolvedEvent { event: target, link: Some(event) })
}

fn read_target(
    shared: &Arc<StoreInner>,
    stream: &str,
    revision: u64,
) -> Result<Option<RecordedEvent>> {
    match StreamReader::single(shared, stream, revision).next() {
        // A tombstoned stream reads like one that never existed.
        None | Some(Err(Error::StreamDeleted { .. })) => Ok(None),
        Some(event) => event.map(Some),
    }
}

/// Parses the revision and the stream that a link names.
fn parse_target(data: &[u8]) -> Option<(u64, &str)> {
    let (number, stream) = std::str::from_utf8(data).ok()?.split_once('@')?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let revision = is_number.then(|| number.parse().ok())??;
    (!stream.is_empty()).then_some((revision, stream))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_data_parses_to_revision_and_stream_or_none() {
        let whole: [(&[u8], _); 4] = [
            (b"0@a", (0, "a")),
            (b"007@a", (7, "a")),
            (b"18446744073709551615@a@b", (u64::MAX, "a@b")),
            ("3@käse".as_bytes(), (3, "käse")),
        ];
        for (data, named) in whole {
            assert_eq!(parse_target(data), Some(named));
        }
        let broken: [&[u8]; 9] =
            [b"", b"@", b"1@", b"@a", b"1", b"-1@a", b"+1@a", b"18446744073709551616@a", b"1@\xff"];
        for data in broken {
            assert_eq!(parse_target(data), None, "{data:?}");
        }
    }
}

//! Links: events that stand for others.
//!
//! A link is an event of the type `$>` whose data is `number@stream`. Anybody can write one, so
//! nothing of it is believed: what names no event that can be read is a link to nothing.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::event::RecordedEvent;
use crate::read::StreamReader;
use crate::shared::Shared;

/// The type of links.
const LINK_TYPE: &str = "$>";

/// An event, with the link that led to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedEvent {
    /// The event. `None` where a link points to what cannot be read: never written, deleted,
    /// hidden by its stream's metadata, or nothing at all.
    pub event: Option<RecordedEvent>,
    /// The link, where the event was found through one.
    pub link: Option<RecordedEvent>,
}

/// Finds out what a link points to. A link to a link is not followed.
pub fn resolve(shared: &Arc<Shared>, event: RecordedEvent) -> Result<ResolvedEvent> {
    if event.kind != LINK_TYPE {
        return Ok(ResolvedEvent { event: Some(event), link: None });
    }
    let target = match target(&event.data) {
        Some((revision, stream)) => read(shared, stream, revision)?,
        None => None,
    };
    Ok(ResolvedEvent { event: target, link: Some(event) })
}

fn read(shared: &Arc<Shared>, stream: &str, revision: u64) -> Result<Option<RecordedEvent>> {
    match StreamReader::only(shared, stream, revision).next() {
        // What was tombstoned is as gone as what never was.
        None | Some(Err(Error::Deleted { .. })) => Ok(None),
        Some(event) => event.map(Some),
    }
}

/// The revision and the stream that a link names.
fn target(data: &[u8]) -> Option<(u64, &str)> {
    let (number, stream) = std::str::from_utf8(data).ok()?.split_once('@')?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let revision = is_number.then(|| number.parse().ok())??;
    (!stream.is_empty()).then_some((revision, stream))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_names_a_revision_and_a_stream_or_nothing() {
        let whole: [(&[u8], _); 4] = [
            (b"0@a", (0, "a")),
            (b"007@a", (7, "a")),
            (b"18446744073709551615@a@b", (u64::MAX, "a@b")),
            ("3@käse".as_bytes(), (3, "käse")),
        ];
        for (data, named) in whole {
            assert_eq!(target(data), Some(named));
        }
        let broken: [&[u8]; 9] =
            [b"", b"@", b"1@", b"@a", b"1", b"-1@a", b"+1@a", b"18446744073709551616@a", b"1@\xff"];
        for data in broken {
            assert_eq!(target(data), None, "{data:?}");
        }
    }
}

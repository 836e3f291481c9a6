//! Names of the streams in which the server keeps its own state. A tombstoned stream accepts no
//! events any more, so another stream replaces it.

use std::sync::atomic::{AtomicU64, Ordering};

use umbel_env::ProcessLocal;
use umbel_events::limits::STREAM_NAME_BYTES_MAX;
use umbel_events::{Direction, Error, RecordedEvent, Revision, Store, StreamState};

/// Number of names that a stream can have: its own and those of its replacements.
const NAMES_MAX: u64 = 9;
/// Maximum number of events that are examined, in case other writers wrote the last ones.
pub const EVENTS_EXAMINED_MAX: usize = 1000;
/// Name prefix of the streams with the state of a consumer group. A replacement keeps the end of
/// the name, by which filters recognize it.
pub const GROUP_PREFIX: &str = "$persistentsubscription";

/// Number of tombstoned streams for which the server began a replacement.
static REPLACEMENTS: ProcessLocal<AtomicU64> = ProcessLocal::new();

/// Names of a stream: its own, then those of its replacements.
pub fn names(own: &str) -> impl Iterator<Item = String> {
    let replacement = move |number: u64| match own.strip_prefix(GROUP_PREFIX) {
        Some(rest) if rest.starts_with('-') => format!("{GROUP_PREFIX}.{number}{rest}"),
        _ => format!("{own}.{number}"),
    };
    let is_valid = |name: &String| name.len() <= STREAM_NAME_BYTES_MAX;
    std::iter::once(own.to_string()).chain((2..=NAMES_MAX).map(replacement).take_while(is_valid))
}

/// The first name of a stream that is not tombstoned, and the state of the stream with that name.
///
/// # Errors
/// `StreamDeleted` if the streams with all names are tombstoned; errors of reads.
pub fn find(store: &Store, own: &str) -> Result<(String, StreamState), Error> {
    for name in names(own) {
        let state = store.stream_state(&name)?;
        if state != StreamState::Tombstoned {
            return Ok((name, state));
        }
    }
    Err(Error::StreamDeleted { stream: own.to_string() })
}

/// Like [`find`], for readers: a stream whose names are all tombstoned has no events.
///
/// # Errors
/// Errors of reads.
pub fn find_or_own(store: &Store, own: &str) -> Result<(String, StreamState), Error> {
    match find(store, own) {
        Err(Error::StreamDeleted { stream }) => Ok((stream, StreamState::Tombstoned)),
        found => found,
    }
}

/// The newest event of a stream, above revision `after`, from which `parse` gets a value. A stream
/// that is tombstoned meanwhile has none.
///
/// # Errors
/// Errors of reads and of `parse`.
pub fn newest_valid<T>(
    store: &Store,
    stream: &str,
    after: Option<u64>,
    mut parse: impl FnMut(&RecordedEvent) -> Result<Option<T>, Error>,
) -> Result<Option<T>, Error> {
    for event in store.read(stream, Revision::END, Direction::Backwards).take(EVENTS_EXAMINED_MAX) {
        let event = match event {
            Err(Error::StreamDeleted { .. }) => return Ok(None),
            event => event?,
        };
        if Some(event.revision) <= after {
            return Ok(None);
        }
        if let Some(value) = parse(&event)? {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

/// Reports that a replacement began: the tombstoned stream's content is lost to the server.
pub fn report_replacement(own: &str, name: &str, effect: &str) {
    REPLACEMENTS.get().fetch_add(1, Ordering::Relaxed);
    tracing::warn!(
        stream = own,
        replacement = name,
        "a stream of the server was tombstoned; the server continues with its replacement, and \
         {effect}"
    );
}

/// Number of tombstoned streams for which the server began a replacement.
pub fn replacements() -> u64 {
    REPLACEMENTS.get().load(Ordering::Relaxed)
}

/// The revision of the stream's last event, whether or not the event is readable.
pub fn last_revision(state: StreamState) -> Option<u64> {
    match state {
        StreamState::Live { last, .. } | StreamState::Deleted { last } => Some(last),
        StreamState::Missing | StreamState::Tombstoned => None,
    }
}

#[cfg(test)]
mod tests {
    use umbel_events::ExpectedVersion;

    use super::*;
    use crate::test_support::test_service::TestService;

    #[test]
    fn replacement_names_keep_their_meaning() {
        let names_of = |own: &str| names(own).take(3).collect::<Vec<_>>();
        let group = "$persistentsubscription-$all::billing-parked";
        let wanted = [
            group,
            "$persistentsubscription.2-$all::billing-parked",
            "$persistentsubscription.3-$all::billing-parked",
        ];
        assert_eq!(names_of(group), wanted);
        let config = "$persistentSubscriptionConfig";
        assert_eq!(names_of(config)[1], "$persistentSubscriptionConfig.2");
        assert_eq!(names("$umbel-views").count(), 9);
        let long = format!("{GROUP_PREFIX}-{}", "x".repeat(STREAM_NAME_BYTES_MAX - 24));
        assert_eq!(names(&long).count(), 1, "a name that is too long is left out");
    }

    #[test]
    fn first_stream_without_tombstone_is_found() {
        let store = &TestService::new().store;
        for number in 0..NAMES_MAX {
            let name = find(store, "$umbel-views").unwrap().0;
            assert_eq!(Some(&name), names("$umbel-views").nth(number as usize).as_ref());
            store.tombstone(&name, ExpectedVersion::Any).unwrap();
        }
        assert!(matches!(find(store, "$umbel-views"), Err(Error::StreamDeleted { .. })));
    }
}

//! `umbel read`: the events of a stream, or all of them, as JSON lines.

use std::path::Path;

use umbel_events::{
    Direction, FilteredItem, FilteredReader, Position, RecordedEvent, Result, Revision, Store,
    StreamState, ViewEvent, is_view,
};

use crate::errors::{CommandError, CommandResult};
use crate::events::event_args::ReadArgs;
use crate::events::event_json;
use crate::events::open_event_store;
use crate::global_options::StoreLimits;
use crate::io::output::Output;

/// Reads events.
pub fn run(directory: Option<&Path>, args: &ReadArgs, limits: StoreLimits) -> CommandResult<()> {
    let store = open_event_store::open_read_only(directory, limits)?;
    let direction = if args.backwards { Direction::Backwards } else { Direction::Forwards };
    let from = args.from.unwrap_or(if args.backwards { u64::MAX } else { 0 });
    match &args.stream {
        Some(view) if is_view(view) => {
            if store.view(view, Position::END)?.is_none() {
                return Err(not_found_error(&store, "event in the view", view));
            }
            let resolve = |event: ViewEvent| match args.resolve_links {
                true => event.event.unwrap_or(event.link),
                false => event.link,
            };
            let events = store.read_view(view, Revision(from), direction, Position::END);
            write(events.map(|event| event.map(resolve)), args.count)?;
        }
        Some(stream) => {
            if let StreamState::Missing | StreamState::Deleted { .. } =
                store.stream_state(stream)?
            {
                return Err(not_found_error(&store, "stream", stream));
            }
            write(store.read(stream, Revision(from), direction), args.count)?;
        }
        None => match args.filter.to_store_filter()? {
            Some(filter) => {
                let mut reader = store.read_filtered(Position(from), direction, filter);
                write(std::iter::from_fn(|| next(&mut reader)), args.count)?;
            }
            None => write(store.read_all(Position(from), direction), args.count)?,
        },
    }
    Ok(store.close()?)
}

fn not_found_error(store: &Store, what: &str, name: &str) -> CommandError {
    CommandError::NoSuchKey(format!(
        "there is no {what} '{}' in {}; `umbel streams` lists all",
        name.escape_debug(),
        store.path().display()
    ))
}

/// The next event that passes.
fn next(reader: &mut FilteredReader) -> Option<Result<RecordedEvent>> {
    loop {
        match reader.next_within(usize::MAX) {
            Ok(FilteredItem::Event(event)) => return Some(Ok(event)),
            Ok(FilteredItem::Examined(_)) => {}
            Ok(FilteredItem::End(_)) => return None,
            Err(error) => return Some(Err(error)),
        }
    }
}

fn write(
    events: impl Iterator<Item = Result<RecordedEvent>>,
    count: Option<u64>,
) -> CommandResult<()> {
    let count_max = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX);
    let mut output = Output::new();
    for event in events.take(count_max) {
        output.line(&event_json::recorded_json(&event?))?;
    }
    output.flush()
}

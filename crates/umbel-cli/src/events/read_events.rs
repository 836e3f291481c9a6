//! `umbel read`: prints the events of a stream, or all events, as JSON lines.

use std::path::Path;

use umbel_events::{
    Direction, Position, ReadItem, RecordedEvent, Result, Revision, Source, Store, StreamState,
    ViewEvent,
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
    let source = match &args.stream {
        Some(name) => Source::named(name.as_str()),
        None => Source::all(args.filter.to_store_filter()?),
    };
    match &source {
        Source::View(view) => {
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
        Source::Stream(stream) => {
            if let StreamState::Missing | StreamState::Deleted { .. } =
                store.stream_state(stream)?
            {
                return Err(not_found_error(&store, "stream", stream));
            }
            write(read(&store, &source, from, direction), args.count)?;
        }
        Source::All | Source::Filtered(_) => {
            write(read(&store, &source, from, direction), args.count)?;
        }
    }
    Ok(store.close()?)
}

fn not_found_error(store: &Store, what: &str, name: &str) -> CommandError {
    CommandError::NoSuchKey(format!(
        "there is no {what} '{}' in {}; `umbel streams` lists the streams",
        name.escape_debug(),
        store.path().display()
    ))
}

/// Prints the events of a source.
fn read(
    store: &Store,
    source: &Source,
    from: u64,
    direction: Direction,
) -> impl Iterator<Item = Result<RecordedEvent>> {
    let mut reader = store.read_source(source, from, direction, Position::END);
    std::iter::from_fn(move || ReadItem::next_event(|limit| reader.next_within(limit)))
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

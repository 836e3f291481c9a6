//! `umbel read`: the events of a stream, or all of them, as JSON lines.

use std::path::Path;

use umbel_events::{
    Direction, FilteredReader, Position, RecordedEvent, Result, Revision, Step, Store, StreamState,
    ViewEvent, is_view,
};

use super::args::ReadArgs;
use super::line;
use super::store;
use crate::errors::{Failure, Outcome};
use crate::limits::Limits;
use crate::output::Output;

/// Reads events.
pub fn run(folder: Option<&Path>, args: &ReadArgs, limits: Limits) -> Outcome<()> {
    let store = store::open_to_look(folder, limits)?;
    let direction = if args.backwards { Direction::Backwards } else { Direction::Forwards };
    let from = args.from.unwrap_or(if args.backwards { u64::MAX } else { 0 });
    match &args.stream {
        Some(view) if is_view(view) => {
            if store.view(view, Position::END)?.is_none() {
                return Err(nothing(&store, "event in the view", view));
            }
            let resolve = |event: ViewEvent| match args.resolve_links {
                true => event.event.unwrap_or(event.link),
                false => event.link,
            };
            let events = store.read_view(view, Revision(from), direction, Position::END);
            write(events.map(|event| event.map(resolve)), args.count)?;
        }
        Some(stream) => {
            if let StreamState::Missing | StreamState::Deleted { .. } = store.stream(stream)? {
                return Err(nothing(&store, "stream", stream));
            }
            write(store.read(stream, Revision(from), direction), args.count)?;
        }
        None => match args.filter.of_store()? {
            Some(filter) => {
                let mut reader = store.read_filtered(Position(from), direction, filter);
                write(std::iter::from_fn(|| next(&mut reader)), args.count)?;
            }
            None => write(store.read_all(Position(from), direction), args.count)?,
        },
    }
    Ok(store.close()?)
}

fn nothing(store: &Store, what: &str, name: &str) -> Failure {
    Failure::NoSuchKey(format!(
        "there is no {what} '{}' in {}; `umbel streams` lists those there are",
        name.escape_debug(),
        store.path().display()
    ))
}

/// The next event that passes.
fn next(reader: &mut FilteredReader) -> Option<Result<RecordedEvent>> {
    loop {
        match reader.next_within(usize::MAX) {
            Ok(Step::Event(event)) => return Some(Ok(event)),
            Ok(Step::Examined(_)) => {}
            Ok(Step::End(_)) => return None,
            Err(error) => return Some(Err(error)),
        }
    }
}

fn write(events: impl Iterator<Item = Result<RecordedEvent>>, count: Option<u64>) -> Outcome<()> {
    let most = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX);
    let mut output = Output::new();
    for event in events.take(most) {
        output.line(&line::of_recorded(&event?))?;
    }
    output.flush()
}

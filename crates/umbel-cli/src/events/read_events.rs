//! `umbel read`: prints the events of a stream, or all events, as JSON lines.

use std::path::Path;

use tonic::Streaming;
use umbel_events::{
    Direction, Error, Position, ReadItem, RecordedEvent, Result, Revision, Source, Store,
    StreamState, ViewEvent,
};
use umbel_proto::read_options::{
    at_most, at_position, backwards, filtered, of_all, of_stream, resolving_links,
};
use umbel_proto::streams::ReadResp;
use umbel_proto::streams::read_req::{AllOption, Options, RevisionOption};
use umbel_proto::streams::read_resp::Content;

use crate::errors::{CommandError, CommandResult};
use crate::events::client::connection_string::ConnectionString;
use crate::events::client::grpc_connection::{self, Connection};
use crate::events::client::shell_command::{store_command, umbel_command};
use crate::events::event_args::ReadArgs;
use crate::events::event_json;
use crate::events::open_event_store;
use crate::events::subscribe::{
    CHECKPOINT_INTERVAL, decode_recorded, protocol_error, refuse_all_as_stream,
};
use crate::events::tombstoned_stream::{events_error, read_error};
use crate::global_options::StoreLimits;
use crate::io::output::Output;

/// Reads events.
pub fn run(directory: Option<&Path>, args: &ReadArgs, limits: StoreLimits) -> CommandResult<()> {
    refuse_all_as_stream(args.stream.as_deref())?;
    if let Some(connect) = &args.connect {
        // Before the call, which reports it only once the server is reached.
        args.filter.to_store_filter()?;
        let address = ConnectionString::parse("--connect", connect)?;
        return grpc_connection::runtime()?.block_on(read_from_server(&address, args));
    }
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
            write(events.map(|event| Ok(event.map(resolve)?)), args.count)?;
        }
        Source::Stream(stream) => {
            match store.stream_state(stream)? {
                StreamState::Missing | StreamState::Deleted { .. } => {
                    return Err(not_found_error(&store, "stream", stream));
                }
                StreamState::Tombstoned => return Err(events_error(stream, &list_command(&store))),
                StreamState::Live { .. } => {}
            }
            // Another process may tombstone the stream meanwhile.
            let read = read(&store, &source, from, direction).map(|event| match event {
                Err(Error::StreamDeleted { .. }) => {
                    Err(events_error(stream, &list_command(&store)))
                }
                event => Ok(event?),
            });
            write(read, args.count)?;
        }
        Source::All | Source::Filtered(_) => {
            let read = read(&store, &source, from, direction);
            write(read.map(|event| Ok(event?)), args.count)?;
        }
    }
    Ok(store.close()?)
}

/// The options of the read in the form that is sent to a server.
fn server_options(args: &ReadArgs) -> Options {
    let options = match &args.stream {
        Some(stream) => {
            let first =
                if args.backwards { RevisionOption::End(()) } else { RevisionOption::Start(()) };
            of_stream(stream, args.from.map_or(first, RevisionOption::Revision))
        }
        None => {
            let first = if args.backwards { AllOption::End(()) } else { AllOption::Start(()) };
            of_all(args.from.map_or(first, at_position))
        }
    };
    let options = match args.filter.to_server_filter() {
        Some(filter) => filtered(filter, CHECKPOINT_INTERVAL, options),
        None => options,
    };
    let options = if args.backwards { backwards(options) } else { options };
    let options = if args.resolve_links { resolving_links(options) } else { options };
    let count_max = i64::MAX as u64;
    at_most(args.count.unwrap_or(count_max).min(count_max), options)
}

/// Reads events at a server and prints them.
async fn read_from_server(address: &ConnectionString, args: &ReadArgs) -> CommandResult<()> {
    let connection = Connection::open(address).await?;
    if args.count == Some(0) {
        return Ok(());
    }
    let mut output = Output::new();
    let stream = args.stream.as_deref();
    let answers = connection.read_or_status(server_options(args)).await?;
    let mut answers = answers.map_err(|status| read_error(&status, stream, address))?;
    while let Some(answer) = next_answer(&mut answers, (stream, address), &mut output).await? {
        match answer.content {
            Some(Content::Event(read)) => {
                // A link whose event cannot be read is printed itself.
                let event = read.event.or(read.link).ok_or_else(protocol_error)?;
                output.line(&event_json::recorded_json(&decode_recorded(event)?))?;
            }
            Some(Content::StreamNotFound(_)) => {
                return Err(CommandError::NoSuchKey(format!(
                    "there is no stream '{}' at {}; `{}` lists the streams",
                    stream.unwrap_or_default().escape_debug(),
                    address.host_and_port_text(),
                    umbel_command(&["streams"], address)
                )));
            }
            _ => {}
        }
    }
    output.flush()
}

/// Returns the next message. An error follows the events that came before it.
async fn next_answer(
    answers: &mut Streaming<ReadResp>,
    (stream, address): (Option<&str>, &ConnectionString),
    output: &mut Output,
) -> CommandResult<Option<ReadResp>> {
    match answers.message().await {
        Ok(answer) => Ok(answer),
        Err(status) => {
            output.flush()?;
            Err(read_error(&status, stream, address))
        }
    }
}

fn not_found_error(store: &Store, what: &str, name: &str) -> CommandError {
    CommandError::NoSuchKey(format!(
        "there is no {what} '{}' in {}; `{}` lists the streams",
        name.escape_debug(),
        store.path().display(),
        list_command(store)
    ))
}

/// The command that lists the streams of the store.
fn list_command(store: &Store) -> String {
    store_command(&["streams"], store.path())
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
    events: impl Iterator<Item = CommandResult<RecordedEvent>>,
    count: Option<u64>,
) -> CommandResult<()> {
    let count_max = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX);
    let mut output = Output::new();
    for event in events.take(count_max) {
        output.line(&event_json::recorded_json(&event?))?;
    }
    output.flush()
}

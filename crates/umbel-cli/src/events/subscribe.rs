//! `umbel subscribe`: prints the events of a server as JSON lines.
//!
//! The command subscribes to a server, not to a directory.

use umbel_events::RecordedEvent;
use umbel_proto::read_options::{at_position, filtered, of_all, of_stream, subscription};
use umbel_proto::streams::read_req::{AllOption, Options, RevisionOption};
use umbel_proto::streams::read_resp::{self, Content};

use crate::errors::{CommandError, CommandResult};
use crate::events::client::connection_string::ConnectionString;
use crate::events::client::grpc_connection::{self, Connection, event_id};
use crate::events::event_args::SubscribeArgs;
use crate::events::event_json;
use crate::events::tombstoned_stream::read_error;
use crate::io::output::Output;

/// Number of filtered events between two checkpoints of the server; the command ignores
/// checkpoints.
pub const CHECKPOINT_INTERVAL: u32 = 10_000;

/// Prints events until the last existing one, if requested, or until the operator stops the
/// command.
pub fn run(args: &SubscribeArgs) -> CommandResult<()> {
    // Before the call to the server, which reports it only once it is reached.
    refuse_all_as_stream(args.stream.as_deref())?;
    args.filter.to_store_filter()?;
    let address = ConnectionString::parse("--connect", &args.connect)?;
    grpc_connection::runtime()?.block_on(print_events(&address, args))
}

fn read_options(args: &SubscribeArgs) -> Options {
    let of = match &args.stream {
        Some(stream) => {
            let from = args.from.map_or(RevisionOption::Start(()), RevisionOption::Revision);
            of_stream(stream, from)
        }
        None => of_all(args.from.map_or(AllOption::Start(()), at_position)),
    };
    let of = match args.filter.to_server_filter() {
        Some(filter) => filtered(filter, CHECKPOINT_INTERVAL, of),
        None => of,
    };
    subscription(of)
}

async fn print_events(address: &ConnectionString, args: &SubscribeArgs) -> CommandResult<()> {
    let stopped = tokio::signal::ctrl_c();
    tokio::pin!(stopped);
    let stream = args.stream.as_deref();
    let answers = Connection::open(address).await?.read_or_status(read_options(args)).await?;
    let mut answers = answers.map_err(|status| read_error(&status, stream, address))?;
    let mut output = Output::new();
    let mut has_caught_up = false;
    loop {
        let answer = tokio::select! {
            answer = answers.message() => answer,
            _ = &mut stopped => return output.flush(),
        };
        let answer = match answer {
            Ok(Some(answer)) => answer,
            Ok(None) => {
                output.flush()?;
                return Err(CommandError::System("the server ended the subscription".to_string()));
            }
            Err(status) => {
                output.flush()?;
                return Err(read_error(&status, stream, address));
            }
        };
        match answer.content {
            Some(Content::Event(event)) => {
                let recorded = event.event.ok_or_else(protocol_error).and_then(decode_recorded)?;
                output.line(&event_json::recorded_json(&recorded))?;
                if has_caught_up {
                    output.flush()?;
                }
            }
            Some(Content::CaughtUp(_)) => {
                output.flush()?;
                has_caught_up = true;
                if args.until_caught_up {
                    return Ok(());
                }
            }
            _ => {}
        }
    }
}

/// Rejects the name of all streams as the name of one.
pub fn refuse_all_as_stream(stream: Option<&str>) -> CommandResult<()> {
    match stream {
        Some("$all") => Err(CommandError::usage(
            "'$all' is the name of all streams: write --all instead of --stream '$all'",
        )),
        _ => Ok(()),
    }
}

/// The error of an event that is incomplete.
pub fn protocol_error() -> CommandError {
    CommandError::System("the server sent an invalid event".to_string())
}

/// Decodes an event from its message.
pub fn decode_recorded(mut event: read_resp::RecordedEvent) -> CommandResult<RecordedEvent> {
    let id = event.id.and_then(event_id).ok_or_else(protocol_error)?;
    let name = event.stream_identifier.ok_or_else(protocol_error)?.stream_name;
    let created = event.metadata.get("created").and_then(|created| created.parse().ok());
    Ok(RecordedEvent {
        stream: String::from_utf8(name.into()).map_err(|_| protocol_error())?,
        revision: event.stream_revision,
        position: event.commit_position,
        id,
        kind: event.metadata.remove("type").ok_or_else(protocol_error)?,
        is_json: event.metadata.get("content-type").is_some_and(|kind| kind == "application/json"),
        created: created.ok_or_else(protocol_error)?,
        data: event.data.into(),
        metadata: event.custom_metadata.into(),
    })
}

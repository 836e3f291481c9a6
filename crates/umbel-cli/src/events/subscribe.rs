//! `umbel subscribe`: the events of a server as they come, as JSON lines.
//!
//! One process has a store open at a time, so that nobody could append to one that is followed
//! here: it is a server that is followed.

use umbel_events::RecordedEvent;
use umbel_proto::reading::{at, filtered, of_all, of_stream, subscription};
use umbel_proto::streams::read_req::{AllOption, Options, RevisionOption};
use umbel_proto::streams::read_resp::{self, Content};

use super::args::SubscribeArgs;
use super::connection::{self, Connection, event_id, refused};
use super::line;
use super::server_address::ServerAddress;
use crate::errors::{Failure, Outcome};
use crate::output::Output;

/// After how many events that were looked at the server says how far it is. Nobody listens here.
const INTERVAL: u32 = 10_000;

/// Follows events until there is no more or somebody stops it.
pub fn run(args: &SubscribeArgs) -> Outcome<()> {
    // Before the server is asked, which tells of it only once it is reached.
    args.filter.of_store()?;
    let address = ServerAddress::parse("--connect", &args.connect)?;
    connection::runtime()?.block_on(follow(&address, args))
}

fn options(args: &SubscribeArgs) -> Options {
    let of = match &args.stream {
        Some(stream) => {
            let from = args.from.map_or(RevisionOption::Start(()), RevisionOption::Revision);
            of_stream(stream, from)
        }
        None => of_all(args.from.map_or(AllOption::Start(()), at)),
    };
    let of = match args.filter.of_server() {
        Some(filter) => filtered(filter, INTERVAL, of),
        None => of,
    };
    subscription(of)
}

async fn follow(address: &ServerAddress, args: &SubscribeArgs) -> Outcome<()> {
    let stopped = tokio::signal::ctrl_c();
    tokio::pin!(stopped);
    let mut answers = Connection::open(address).await?.read(options(args)).await?;
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
                return Err(Failure::System("the server ended the subscription".to_string()));
            }
            Err(status) => {
                output.flush()?;
                return Err(refused(&status));
            }
        };
        match answer.content {
            Some(Content::Event(event)) => {
                let recorded = event.event.ok_or_else(strange).and_then(recorded)?;
                output.line(&line::of_recorded(&recorded))?;
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

fn strange() -> Failure {
    Failure::System("the server answered with what is no event".to_string())
}

fn recorded(mut event: read_resp::RecordedEvent) -> Outcome<RecordedEvent> {
    let id = event.id.and_then(event_id).ok_or_else(strange)?;
    let name = event.stream_identifier.ok_or_else(strange)?.stream_name;
    let created = event.metadata.get("created").and_then(|created| created.parse().ok());
    Ok(RecordedEvent {
        stream: String::from_utf8(name.into()).map_err(|_| strange())?,
        revision: event.stream_revision,
        position: event.commit_position,
        id,
        kind: event.metadata.remove("type").ok_or_else(strange)?,
        is_json: event.metadata.get("content-type").is_some_and(|kind| kind == "application/json"),
        created: created.ok_or_else(strange)?,
        data: event.data.into(),
        metadata: event.custom_metadata.into(),
    })
}

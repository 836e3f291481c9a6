//! `umbel delete --stream`: deletes a stream, or tombstones it for good, and prints what it did.

use std::path::Path;

use serde_json::json;
use umbel::Durability;

use crate::errors::{CommandError, CommandResult};
use crate::events::client::connection_string::ConnectionString;
use crate::events::client::grpc_connection::{self, Connection};
use crate::events::client::stream_writes;
use crate::events::event_args;
use crate::events::open_event_store;
use crate::events::remaining_data::with_server_remedy;
use crate::global_options::StoreLimits;
use crate::io::output::Output;
use crate::text::escaping::escaped;

/// Remedy where a server has the store open.
const AT_A_SERVER: &str = "delete the stream there: umbel delete --stream NAME --connect ADDRESS";

/// Stream to delete, and the kind of deletion.
#[derive(Debug, Clone, Copy)]
pub struct DeleteRequest<'a> {
    /// The stream.
    pub stream: &'a str,
    /// Expected revision of the stream.
    pub expected: Option<&'a str>,
    /// Whether the stream is tombstoned, which deletes it for good.
    pub tombstone: bool,
    /// Whether the command returns only once the delete survives power loss.
    pub sync: bool,
    /// Address of the server that deletes the stream; `None` for the store in the directory.
    pub connect: Option<&'a str>,
}

/// Deletes the stream.
pub fn run(
    directory: Option<&Path>,
    deletion: DeleteRequest<'_>,
    json: bool,
    limits: StoreLimits,
) -> CommandResult<()> {
    let DeleteRequest { stream, expected, tombstone, sync, connect } = deletion;
    let durability = if sync { Durability::Synced } else { Durability::Buffered };
    let expected = expected.unwrap_or("any");
    let expected = event_args::parse_expected(expected)
        .map_err(|reason| CommandError::usage(format!("--expected is {expected}: {reason}")))?;
    if let Some(connect) = connect {
        let address = ConnectionString::parse("--connect", connect)?;
        grpc_connection::runtime()?.block_on(async {
            let connection = Connection::open(&address).await?;
            stream_writes::delete(&connection, stream, expected, tombstone).await
        })?;
        return report(stream, tombstone, json);
    }
    let store = open_event_store::open(directory, limits, durability)
        .map_err(|failure| with_server_remedy(failure, limits, AT_A_SERVER))?;
    match tombstone {
        true => store.tombstone(stream, expected)?,
        false => store.delete(stream, expected)?,
    };
    store.close()?;
    report(stream, tombstone, json)
}

fn report(stream: &str, tombstone: bool, json: bool) -> CommandResult<()> {
    let done = if tombstone { "tombstoned" } else { "deleted" };
    let shown = escaped(stream.as_bytes());
    let mut output = Output::new().after(format!("the stream '{shown}' was {done}"));
    match json {
        true => output.json(&json!({ "stream": stream, "outcome": done }))?,
        false => output.line(&format!("{shown}: {done}"))?,
    }
    output.flush()
}

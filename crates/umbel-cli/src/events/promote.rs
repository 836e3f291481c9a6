//! `umbel promote`: makes a running node the leader of its replicated log.

use hyper::Method;
use serde_json::json;

use crate::errors::CommandResult;
use crate::events::client::grpc_connection::{self, Connection};
use crate::events::client::server_work::{protocol_error, request};
use crate::events::event_args::PromoteArgs;
use crate::io::output::Output;

/// Promotes the node at the address, and waits until it leads.
pub fn run(args: &PromoteArgs, json: bool) -> CommandResult<()> {
    let address = args.server.address()?;
    let answer = grpc_connection::runtime()?.block_on(async {
        let connection = Connection::open(&address).await?;
        request(&connection, Method::POST, "/admin/promote").await
    })?;
    let epoch = answer["epoch"].as_u64().ok_or_else(protocol_error)?;
    let node = address.host_and_port_text();
    let mut output = Output::new().after("the node was promoted");
    match json {
        true => output.json(&json!({ "node": node, "epoch": epoch }))?,
        false => output.line(&format!("{node} leads in epoch {epoch}"))?,
    }
    output.flush()
}

//! [`ServerWork`]: work of a server, such as a backup, that a command starts over HTTP and whose
//! outcome it waits for.

use std::time::Duration;

use hyper::body::Bytes;
use hyper::{Method, StatusCode};
use serde_json::Value;

use crate::errors::{CommandError, CommandResult};
use crate::events::client::connection_string::ConnectionString;
use crate::events::client::grpc_connection::{self, ACCESS_REMEDY, Connection};
use crate::events::client::shell_command::umbel_command;
use crate::io::output::note;
use crate::text::escaping::printable_line;

/// Most bytes of a line of text with the reason of a refusal.
const LINE_BYTES_MAX: usize = 500;
/// Interval between two requests for the progress.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Kind of work of a server.
#[derive(Debug)]
pub struct ServerWork {
    /// Path and query of the request that starts the work.
    pub start: String,
    /// Member of the first response with the path of the work.
    pub link: &'static str,
    /// Member of later responses with the phase of the work.
    pub result: &'static str,
    /// Member of the first response with the id of the work.
    pub id: &'static str,
    /// Name of the work in messages.
    pub name: &'static str,
    /// Words of the `umbel` command that lists outcomes.
    pub history: &'static [&'static str],
}

impl ServerWork {
    /// Starts the work and waits for its outcome. `show` gets the progress.
    ///
    /// # Errors
    /// The server refuses the work, the work fails, or the connection ends. The work continues
    /// without the connection.
    pub fn run(
        &self,
        address: &ConnectionString,
        show: impl FnMut(&Value),
    ) -> CommandResult<Value> {
        grpc_connection::runtime()?.block_on(self.run_on(address, show))
    }

    async fn run_on(
        &self,
        address: &ConnectionString,
        mut show: impl FnMut(&Value),
    ) -> CommandResult<Value> {
        let connection = Connection::open(address).await?;
        let started = request(&connection, Method::POST, &self.start).await?;
        let path = started[self.link].as_str().ok_or_else(protocol_error)?;
        let id = printable_line(started[self.id].as_str().unwrap_or("unknown"));
        let name = self.name;
        let command = umbel_command(self.history, address);
        note(&format!(
            "umbel: {name} {id} runs on the server, also if this command ends; its outcome: \
             {command}"
        ));
        loop {
            let state = request(&connection, Method::GET, path).await.map_err(|failure| {
                let why =
                    format!("{name} {id} may continue on the server (its outcome: {command})");
                failure.with_prefix(&why)
            })?;
            match state[self.result].as_str().ok_or_else(protocol_error)? {
                "InProgress" => show(&state),
                "Success" => return Ok(state),
                result => {
                    let text = match (state["error"].as_str(), result) {
                        (None, "Stopped") => format!("the {name} was stopped at the server"),
                        (reason, _) => format!("the server says: {}", reason.unwrap_or(result)),
                    };
                    return Err(CommandError::System(text));
                }
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

/// The JSON of a successful response.
///
/// # Errors
/// The server refuses the request, or the connection ends.
pub async fn request(connection: &Connection, method: Method, path: &str) -> CommandResult<Value> {
    answer_of(path, connection.http(method, path).await?)
}

/// Like [`request`], with a JSON body.
///
/// # Errors
/// The errors of [`request`].
pub async fn request_with_json(
    connection: &Connection,
    method: Method,
    path: &str,
    body: &Value,
) -> CommandResult<Value> {
    answer_of(path, connection.http_with_json(method, path, body).await?)
}

/// Like [`request_with_json`], for an action of the console.
///
/// # Errors
/// The errors of [`request`].
pub async fn request_action(
    connection: &Connection,
    path: &str,
    body: &Value,
) -> CommandResult<Value> {
    answer_of(path, connection.console_action(path, body).await?)
}

fn answer_of(path: &str, (status, body): (StatusCode, Bytes)) -> CommandResult<Value> {
    let value = serde_json::from_slice::<Value>(&body).unwrap_or(Value::Null);
    if status.is_success() {
        return Ok(value);
    }
    let is_denied = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&status);
    // An action of the console has its reason as `error`. A refused login has a line of text.
    let line = std::str::from_utf8(&body).unwrap_or_default().trim();
    let is_line = !line.is_empty() && line.len() <= LINE_BYTES_MAX && !line.contains(['<', '\n']);
    let reason = value["message"].as_str().or_else(|| value["error"].as_str());
    let reason = reason.or_else(|| is_line.then_some(line));
    let text = match reason {
        Some(message) if is_denied => format!("the server says: {message}; {ACCESS_REMEDY}"),
        Some(message) => format!("the server says: {message}"),
        None => format!("the server answers {path} with {status}"),
    };
    let is_busy = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS].contains(&status);
    match status.is_client_error() && !is_busy {
        true => Err(CommandError::usage(text)),
        false => Err(CommandError::System(text)),
    }
}

/// The error of a response that is not as expected.
pub fn protocol_error() -> CommandError {
    CommandError::System("the server sent an unexpected response".to_string())
}

//! `umbel scavenge` with `--schedule`, `--pause`, `--resume`, `--status` or `--history`: the
//! automatic scavenges of a running server, and the outcomes of its scavenges.

use hyper::Method;
use serde_json::{Map, Value, json};

use crate::errors::{CommandError, CommandResult};
use crate::events::client::connection_string::ConnectionString;
use crate::events::client::grpc_connection::{self, Connection};
use crate::events::client::server_work::{request, request_with_json};
use crate::events::event_args::ScavengeArgs;
use crate::io::output::Output;
use crate::text::escaping::escaped;
use crate::text::numbers;

/// Value of `--schedule` for no automatic scavenges.
const NO_SCHEDULE: &str = "none";

/// Request on the automatic scavenges of a server.
#[derive(Debug, PartialEq)]
pub enum AutoScavengeRequest {
    /// Changes settings to these.
    Configure(Value),
    /// Starts no scavenge until a resume.
    Pause,
    /// Ends a pause.
    Resume,
    /// Reports state and settings.
    Status,
    /// Lists the last scavenges.
    History,
}

impl AutoScavengeRequest {
    /// The request of these arguments; `None` if they request one scavenge.
    pub fn of(args: &ScavengeArgs) -> Option<AutoScavengeRequest> {
        if let Some(schedule) = &args.schedule {
            let schedule = Some(schedule).filter(|schedule| *schedule != NO_SCHEDULE);
            let mut settings = Map::from_iter([("schedule".to_string(), json!(schedule))]);
            for (name, value) in
                [("thresholdPercent", args.threshold), ("throttlePercent", args.busy)]
            {
                settings.extend(value.map(|value| (name.to_string(), value.into())));
            }
            return Some(AutoScavengeRequest::Configure(Value::Object(settings)));
        }
        match args {
            ScavengeArgs { pause: true, .. } => Some(AutoScavengeRequest::Pause),
            ScavengeArgs { resume: true, .. } => Some(AutoScavengeRequest::Resume),
            ScavengeArgs { status: true, .. } => Some(AutoScavengeRequest::Status),
            ScavengeArgs { history: true, .. } => Some(AutoScavengeRequest::History),
            _ => None,
        }
    }

    /// Sends the request and prints the answer.
    ///
    /// # Errors
    /// The server refuses the request, or the connection ends.
    pub fn run(&self, connect: &str, json: bool) -> CommandResult<()> {
        let address = ConnectionString::parse("--connect", connect)?;
        let answer = grpc_connection::runtime()?.block_on(self.send(&address))?;
        let mut output = Output::new();
        match self {
            AutoScavengeRequest::History => {
                let works = answer["scavenges"].as_array().ok_or_else(unexpected)?;
                for work in works {
                    match json {
                        true => output.json(work)?,
                        false => output.line(&work_text(work))?,
                    }
                }
            }
            _ if json => output.json(&answer)?,
            _ => output.line(&status_text(&answer))?,
        }
        output.flush()
    }

    async fn send(&self, address: &ConnectionString) -> CommandResult<Value> {
        let connection = Connection::open(address).await?;
        match self {
            AutoScavengeRequest::Configure(settings) => {
                let path = "/auto-scavenge/configure";
                request_with_json(&connection, Method::POST, path, settings).await
            }
            AutoScavengeRequest::Pause => {
                request(&connection, Method::POST, "/auto-scavenge/pause").await
            }
            AutoScavengeRequest::Resume => {
                request(&connection, Method::POST, "/auto-scavenge/resume").await
            }
            AutoScavengeRequest::Status => {
                request(&connection, Method::GET, "/auto-scavenge/status").await
            }
            AutoScavengeRequest::History => {
                request(&connection, Method::GET, "/admin/scavenge/history").await
            }
        }
    }
}

fn unexpected() -> CommandError {
    CommandError::System("the server sent an unexpected response".to_string())
}

/// Text of the server as it can be printed.
fn text(value: &Value) -> Option<String> {
    value.as_str().map(|text| escaped(text.as_bytes()))
}

fn status_text(status: &Value) -> String {
    let number = |name: &str| status[name].as_u64().unwrap_or_default();
    let state = match status["state"].as_str().unwrap_or_default() {
        "NotConfigured" => "no schedule is set".to_string(),
        "Waiting" => "waiting for the next scavenge".to_string(),
        "InProgress" => "a scavenge is running".to_string(),
        "Pausing" => "paused; a scavenge is still stopping".to_string(),
        "Paused" => "paused".to_string(),
        other => escaped(other.as_bytes()),
    };
    let schedule = text(&status["schedule"]).unwrap_or_else(|| NO_SCHEDULE.to_string());
    let next = text(&status["nextScavenge"]).unwrap_or_else(|| "none".to_string());
    format!(
        "state      {state}\nschedule   {schedule} (UTC)\nnext       {next}\nthreshold  {} % dead \
         bytes\nthrottle   {} % of the time",
        number("thresholdPercent"),
        number("throttlePercent"),
    )
}

fn work_text(work: &Value) -> String {
    let number = |name: &str| work[name].as_u64().unwrap_or_default();
    let started = text(&work["started"]).unwrap_or_default();
    let result = text(&work["scavengeResult"]).unwrap_or_default();
    let origin = match (text(&work["user"]), text(&work["scheduled"])) {
        (_, Some(_)) => "the schedule".to_string(),
        (Some(user), None) => user,
        (None, None) => "unknown user".to_string(),
    };
    let id = text(&work["scavengeId"]).unwrap_or_default();
    let error = text(&work["error"]).map(|error| format!("\t{error}")).unwrap_or_default();
    format!(
        "{started}\t{result}\tby {origin}\t{} freed\t{} removed\t{} emptied\t{id}{error}",
        numbers::bytes(number("bytesFreed")),
        numbers::grouped(number("eventsRemoved")),
        numbers::grouped(number("eventsStubbed")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_show_missing_values_as_words() {
        let status = json!({
            "state": "NotConfigured", "schedule": null, "nextScavenge": null,
            "thresholdPercent": 30, "throttlePercent": 25,
        });
        let shown = status_text(&status);
        assert!(shown.contains("no schedule is set") && shown.contains("30 % dead"), "{shown}");
        let work = json!({ "scavengeResult": "Missed", "error": "late\u{1b}", "user": null });
        let shown = work_text(&work);
        assert!(shown.contains("Missed") && !shown.contains('\u{1b}'), "{shown}");
        assert!(!shown.contains("null"), "{shown}");
    }
}

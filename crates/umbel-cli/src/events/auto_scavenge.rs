//! `umbel scavenge` with `--schedule`, `--pause`, `--resume` or `--status`: the automatic scavenges
//! of a running server.

use hyper::Method;
use serde_json::{Map, Value, json};

use crate::errors::CommandResult;
use crate::events::client::connection_string::ConnectionString;
use crate::events::client::grpc_connection::{self, Connection};
use crate::events::client::server_work::{request, request_with_json};
use crate::events::event_args::ScavengeArgs;
use crate::events::server_history::printable;
use crate::io::output::Output;
use crate::text::escaping::escaped;

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
        let mut output = match self {
            AutoScavengeRequest::Status => Output::new(),
            _ => Output::new().after("the server has made the change"),
        };
        match json {
            true => output.json(&answer)?,
            false => output.line(&status_text(&answer))?,
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
        }
    }
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
    let schedule = printable(&status["schedule"]).unwrap_or_else(|| NO_SCHEDULE.to_string());
    let next = printable(&status["nextScavenge"]).unwrap_or_else(|| "none".to_string());
    format!(
        "state      {state}\nschedule   {schedule} (UTC)\nnext       {next}\nthreshold  {} % dead \
         bytes\nthrottle   {} % of the time",
        number("thresholdPercent"),
        number("throttlePercent"),
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
    }
}

//! `umbel scavenge --history` and `umbel backup --history`: the outcomes of a running server's last
//! scavenges and backups.

use hyper::Method;
use serde_json::Value;

use crate::errors::CommandResult;
use crate::events::client::connection_string::ConnectionString;
use crate::events::client::grpc_connection::{self, Connection};
use crate::events::client::server_work::{protocol_error, request};
use crate::io::output::Output;
use crate::text::escaping::escaped;
use crate::text::numbers;

/// Kind of work whose outcomes a server keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerHistory {
    /// Scavenges.
    Scavenges,
    /// Backups into the backup directory of the server.
    Backups,
}

impl ServerHistory {
    /// Prints the last outcomes, newest first: a line for each one.
    ///
    /// # Errors
    /// The server refuses the request, or the connection ends.
    pub fn print(self, connect: &str, json: bool) -> CommandResult<()> {
        let address = ConnectionString::parse("--connect", connect)?;
        let path = format!("/admin/{}/history", self.name());
        let answer = grpc_connection::runtime()?.block_on(async {
            let connection = Connection::open(&address).await?;
            request(&connection, Method::GET, &path).await
        })?;
        let works = answer[format!("{}s", self.name())].as_array().ok_or_else(protocol_error)?;
        let mut output = Output::new();
        for work in works {
            match json {
                true => output.json(work)?,
                false => output.line(&self.to_text(work))?,
            }
        }
        output.flush()
    }

    /// Name of the work, with which names of JSON members begin.
    fn name(self) -> &'static str {
        match self {
            ServerHistory::Scavenges => "scavenge",
            ServerHistory::Backups => "backup",
        }
    }

    fn to_text(self, work: &Value) -> String {
        let started = printable(&work["started"]).unwrap_or_default();
        let result = printable(&work[format!("{}Result", self.name())]).unwrap_or_default();
        let origin = match (printable(&work["user"]), printable(&work["scheduled"])) {
            (_, Some(_)) => "the schedule".to_string(),
            (Some(user), None) => user,
            (None, None) => "unknown user".to_string(),
        };
        let id = printable(&work[format!("{}Id", self.name())]).unwrap_or_default();
        let error = printable(&work["error"]).map(|error| format!("\t{error}"));
        let (report, error) = (self.report_text(work), error.unwrap_or_default());
        format!("{started}\t{result}\tby {origin}\t{report}\t{id}{error}")
    }

    /// The numbers that the work reported; 0 for those that it did not report.
    fn report_text(self, work: &Value) -> String {
        let number = |name: &str| work[name].as_u64().unwrap_or_default();
        match self {
            ServerHistory::Scavenges => format!(
                "{} freed\t{} removed\t{} emptied",
                numbers::bytes(number("bytesFreed")),
                numbers::grouped(number("eventsRemoved")),
                numbers::grouped(number("eventsStubbed")),
            ),
            ServerHistory::Backups => {
                let through = printable(&work["through"]).unwrap_or_else(|| "none".to_string());
                let copied = numbers::bytes(number("copiedBytes"));
                format!("{copied} copied\tup to position {through}")
            }
        }
    }
}

/// Text of the server as it can be printed.
pub fn printable(value: &Value) -> Option<String> {
    value.as_str().map(|text| escaped(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_show_missing_values_as_words() {
        let work = json!({ "scavengeResult": "Missed", "error": "late\u{1b}", "user": null });
        let shown = ServerHistory::Scavenges.to_text(&work);
        assert!(shown.contains("Missed") && !shown.contains('\u{1b}'), "{shown}");
        assert!(!shown.contains("null"), "{shown}");
        let killed = json!({
            "backupId": "7", "backupResult": "Interrupted", "error": "no outcome was recorded",
            "user": "ops", "scheduled": null, "started": "2026-11-29T03:00:00.000Z", "ended": null,
        });
        assert_eq!(
            ServerHistory::Backups.to_text(&killed),
            "2026-11-29T03:00:00.000Z\tInterrupted\tby ops\t0 B copied\tup to position none\t7\t\
             no outcome was recorded"
        );
        let complete = json!({
            "backupId": "8", "backupResult": "Success", "user": "ops", "copiedBytes": 376,
            "through": "340", "started": "2026-11-29T04:00:00.000Z", "error": null,
        });
        assert_eq!(
            ServerHistory::Backups.to_text(&complete),
            "2026-11-29T04:00:00.000Z\tSuccess\tby ops\t376 B copied\tup to position 340\t8"
        );
    }
}

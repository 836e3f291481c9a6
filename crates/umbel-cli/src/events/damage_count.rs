//! Number of operations of a server that met damaged data, from its metrics.

use std::time::Duration;

use crate::events::client::grpc_connection::Connection;

/// Counter of all operations that met damage.
const DAMAGE_ERRORS: &str = "umbel_damage_errors_total";
/// Counter of failed calls by code, of servers without the other counter.
const FAILED_CALLS: &str = "umbel_calls_failed_total";

/// Reads the number of operations that met damage since the server started; `None` if the server
/// does not report it to this user within the time.
pub async fn read_damage_count(connection: &Connection, timeout: Duration) -> Option<u64> {
    let page = tokio::time::timeout(timeout, connection.http_get("/metrics")).await.ok()?;
    let (_, body) = page.ok().filter(|(status, _)| status.is_success())?;
    damage_count(&String::from_utf8_lossy(&body))
}

/// The number in a page of metrics; `None` in the page of another server.
fn damage_count(page: &str) -> Option<u64> {
    let samples = || page.lines().filter(|line| line.starts_with("umbel_"));
    samples().next()?;
    let of = |line: &&str| line.starts_with(DAMAGE_ERRORS);
    if samples().any(|line| of(&line)) {
        return Some(samples().filter(of).map(value).sum());
    }
    let failed = samples().filter(|line| line.starts_with(FAILED_CALLS));
    Some(failed.filter(|line| line.contains("code=\"DataLoss\"")).map(value).sum())
}

/// The value of a sample, at the end of its line.
fn value(sample: &str) -> u64 {
    let number = sample.rsplit(' ').next().and_then(|number| number.parse::<f64>().ok());
    number.unwrap_or_default() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_counted_from_either_counter() {
        let calls = "umbel_calls_failed_total{call=\"A/B\",code=\"DataLoss\"} 2\n\
                     umbel_calls_failed_total{call=\"A/C\",code=\"DataLoss\"} 1\n\
                     umbel_calls_failed_total{call=\"A/C\",code=\"NotFound\"} 7\n";
        let none = "# TYPE umbel_position gauge\numbel_position 5\n";
        assert_eq!(damage_count(calls), Some(3));
        assert_eq!(damage_count(none), Some(0), "no call has failed");
        let total = "umbel_damage_errors_total{store=\"events\"} 4\n\
                     umbel_damage_errors_total{store=\"kv\"} 1.0\n";
        assert_eq!(damage_count(&format!("{none}{calls}{total}")), Some(5));
        let zero = "umbel_damage_errors_total{store=\"events\"} 0\n";
        assert_eq!(damage_count(&format!("{zero}{none}")), Some(0));
        assert_eq!(damage_count("kurrentdb_uptime 9\n"), None, "KurrentDB");
        assert_eq!(damage_count(""), None);
    }
}

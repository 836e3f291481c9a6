//! Number of errors of a server for damaged data: from its statistics, or from the metrics of an
//! older server.

use std::time::Duration;

use serde_json::Value;

use crate::events::client::grpc_connection::Connection;

/// Counter of all errors for damaged data.
const DAMAGE_ERRORS: &str = "umbel_damage_errors_total";
/// Counter of failed calls by code, of servers without the other counter.
const FAILED_CALLS: &str = "umbel_calls_failed_total";

/// The number in statistics; `None` if the server does not report it there.
pub fn damage_in_stats(stats: &Value) -> Option<u64> {
    let count = |store: &str| stats[store]["damageErrors"].as_u64();
    Some(count("store")?.saturating_add(count("kv").unwrap_or_default()))
}

/// Reads the number from the metrics.
///
/// # Errors
/// The reason why the number is unknown.
pub async fn read_damage_count(connection: &Connection, timeout: Duration) -> Result<u64, String> {
    match tokio::time::timeout(timeout, connection.http_get("/metrics")).await {
        Err(_) => Err(format!("no response to /metrics within {} s", timeout.as_secs())),
        Ok(Err(failure)) => Err(failure.to_string()),
        Ok(Ok((status, body))) if status.is_success() => {
            let count = damage_in_metrics(&String::from_utf8_lossy(&body));
            count.ok_or_else(|| "the server does not report damaged data".to_string())
        }
        Ok(Ok((status, _))) => Err(format!("the server returned {status} for /metrics")),
    }
}

/// The number in a page of metrics; `None` in the page of another server.
fn damage_in_metrics(page: &str) -> Option<u64> {
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
    use serde_json::json;

    use super::*;

    /// Story: where the metrics could not be read, damage was not mentioned.
    #[test]
    fn damage_is_counted_in_the_statistics() {
        let stats = json!({ "store": { "damageErrors": 2 }, "kv": { "damageErrors": 3 } });
        assert_eq!(damage_in_stats(&stats), Some(5));
        assert_eq!(damage_in_stats(&json!({ "store": { "damageErrors": 0 } })), Some(0));
        assert_eq!(damage_in_stats(&json!({ "store": { "position": 7 } })), None, "older");
    }

    #[test]
    fn damage_is_counted_from_either_counter() {
        let calls = "umbel_calls_failed_total{call=\"A/B\",code=\"DataLoss\"} 2\n\
                     umbel_calls_failed_total{call=\"A/C\",code=\"DataLoss\"} 1\n\
                     umbel_calls_failed_total{call=\"A/C\",code=\"NotFound\"} 7\n";
        let none = "# TYPE umbel_position gauge\numbel_position 5\n";
        assert_eq!(damage_in_metrics(calls), Some(3));
        assert_eq!(damage_in_metrics(none), Some(0), "no call has failed");
        let total = "umbel_damage_errors_total{store=\"events\"} 4\n\
                     umbel_damage_errors_total{store=\"kv\"} 1.0\n";
        assert_eq!(damage_in_metrics(&format!("{none}{calls}{total}")), Some(5));
        let zero = "umbel_damage_errors_total{store=\"events\"} 0\n";
        assert_eq!(damage_in_metrics(&format!("{zero}{none}")), Some(0));
        assert_eq!(damage_in_metrics("kurrentdb_uptime 9\n"), None, "KurrentDB");
        assert_eq!(damage_in_metrics(""), None);
    }
}

//! [`BusyThreads`]: how long single steps hold the server's threads, from its metrics.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::PASSWORD;

const METRIC: &str = "umbel_worker_busy_seconds_bucket{";
/// Bound in microseconds over which a step is a fault.
pub const STEP_US_MAX: u64 = 2000;

/// Counts of steps by their time, of all threads together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BusyThreads {
    /// Steps up to each bound in microseconds, `u64::MAX` for all.
    counts: BTreeMap<u64, u64>,
}

impl BusyThreads {
    /// Reads the counts of a server.
    pub async fn read(address: SocketAddr) -> Result<BusyThreads, String> {
        let failed = |error: std::io::Error| format!("reading the metrics: {error}");
        let mut stream = TcpStream::connect(address).await.map_err(failed)?;
        let credentials = STANDARD.encode(format!("admin:{PASSWORD}"));
        let request = format!(
            "GET /metrics HTTP/1.1\r\nhost: {address}\r\nauthorization: Basic {credentials}\r\n\
             connection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.map_err(failed)?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await.map_err(failed)?;
        match BusyThreads::parse(&text) {
            Some(busy) => Ok(busy),
            None => Err(format!("the metrics have no {METRIC}…: {}", &text[..text.len().min(200)])),
        }
    }

    fn parse(metrics: &str) -> Option<BusyThreads> {
        let mut busy = BusyThreads::default();
        for line in metrics.lines().filter_map(|line| line.strip_prefix(METRIC)) {
            let (labels, count) = line.split_once("} ")?;
            let bound = labels.split("le=\"").nth(1)?.split('"').next()?;
            let bound = match bound {
                "+Inf" => u64::MAX,
                seconds => (seconds.parse::<f64>().ok()? * 1e6).round() as u64,
            };
            *busy.counts.entry(bound).or_default() += count.trim().parse::<u64>().ok()?;
        }
        (!busy.counts.is_empty()).then_some(busy)
    }

    /// The steps since an earlier reading.
    pub fn since(&self, earlier: &BusyThreads) -> BusyThreads {
        let more = |(bound, count): (&u64, &u64)| {
            let before = earlier.counts.get(bound).copied().unwrap_or(0);
            (*bound, count.saturating_sub(before))
        };
        BusyThreads { counts: self.counts.iter().map(more).collect() }
    }

    /// Number of steps that took longer than the limit.
    pub fn faults(&self) -> u64 {
        let all = self.counts.get(&u64::MAX).copied().unwrap_or(0);
        all - self.counts.get(&STEP_US_MAX).copied().unwrap_or(0).min(all)
    }

    /// The least bound that no step exceeds, in milliseconds as text.
    pub fn bound(&self) -> String {
        let all = self.counts.get(&u64::MAX).copied().unwrap_or(0);
        let bound = self.counts.iter().find(|(_, count)| **count == all).map(|(bound, _)| *bound);
        match (bound, self.counts.keys().rev().nth(1)) {
            (Some(u64::MAX), Some(last)) => format!("> {}", *last as f64 / 1000.0),
            (Some(bound), _) => format!("≤ {}", bound as f64 / 1000.0),
            (None, _) => "–".to_string(),
        }
    }
}

/// The steps of several windows.
pub fn sum<'a>(windows: impl Iterator<Item = &'a BusyThreads>) -> BusyThreads {
    let mut sum = BusyThreads::default();
    for (bound, count) in windows.flat_map(|window| &window.counts) {
        *sum.counts.entry(*bound).or_default() += count;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_over_the_limit_are_counted_between_two_readings() {
        let page = |slow: u64| {
            let lines = [("0.001", 5), ("0.002", 7), ("0.005", 7 + slow), ("+Inf", 7 + slow)];
            let line = |(bound, count): (&str, u64)| {
                format!(
                    "umbel_worker_busy_seconds_bucket{{le=\"{bound}\",thread=\"worker\"}} {count}\n"
                )
            };
            BusyThreads::parse(&lines.map(line).concat()).unwrap()
        };
        assert_eq!((page(0).faults(), page(0).bound()), (0, "≤ 2".to_string()));
        assert_eq!((page(3).faults(), page(3).bound()), (3, "≤ 5".to_string()));
        assert_eq!(page(3).since(&page(1)).faults(), 2);
        assert_eq!(sum([page(1), page(2)].iter()).faults(), 3);
        assert_eq!(BusyThreads::parse("HTTP/1.1 401"), None);
    }
}

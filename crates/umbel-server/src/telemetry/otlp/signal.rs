//! [`Signal`]: metrics, logs and traces.

use std::fmt;

/// Kind of telemetry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// Values of the metrics.
    Metrics,
    /// Lines of the log.
    Logs,
    /// Spans of calls.
    Traces,
}

impl Signal {
    /// All signals.
    pub const ALL: [Signal; 3] = [Signal::Metrics, Signal::Logs, Signal::Traces];

    /// Name of the signal, which is also the last segment of its path at the collector.
    pub fn name(self) -> &'static str {
        match self {
            Signal::Metrics => "metrics",
            Signal::Logs => "logs",
            Signal::Traces => "traces",
        }
    }

    /// Parses names with commas between them.
    ///
    /// # Errors
    /// A name is unknown, or there is none.
    pub fn parse_list(text: &str) -> Result<Vec<Signal>, String> {
        let wrong = || "must be some of metrics, logs and traces, with commas".to_string();
        let parse = |name: &str| {
            let name = name.trim();
            Signal::ALL.into_iter().find(|signal| signal.name().eq_ignore_ascii_case(name))
        };
        text.split(',').map(|name| parse(name).ok_or_else(wrong)).collect()
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_parsed_from_their_names() {
        assert_eq!(Signal::parse_list("logs"), Ok(vec![Signal::Logs]));
        let all = Signal::parse_list("Metrics, logs ,traces").unwrap();
        assert_eq!(all, Signal::ALL);
        for wrong in ["", "spans", "logs,", "logs traces"] {
            assert!(Signal::parse_list(wrong).is_err(), "{wrong}");
        }
    }
}

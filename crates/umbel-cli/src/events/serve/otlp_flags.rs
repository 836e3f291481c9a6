//! Values of the flags of the export to an OpenTelemetry collector.

use umbel_server::{CollectorEndpoint, Signal};

/// Exported signals, in the order of the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignalList(pub Vec<Signal>);

impl SignalList {
    /// Parses names with commas between them.
    pub fn parse(text: &str) -> Result<SignalList, String> {
        Signal::parse_list(text).map(SignalList)
    }

    /// The names with commas between them.
    pub fn names(&self) -> String {
        self.0.iter().map(|signal| signal.name()).collect::<Vec<_>>().join(",")
    }
}

/// Parses the address of a collector.
pub fn parse_endpoint(text: &str) -> Result<CollectorEndpoint, String> {
    CollectorEndpoint::parse(text)
}

/// Parses a share of calls.
pub fn parse_ratio(text: &str) -> Result<f64, String> {
    let ratio = text.parse::<f64>().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
    ratio.ok_or_else(|| "must be a number from 0 to 1".to_string())
}

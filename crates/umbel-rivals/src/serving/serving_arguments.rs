//! Command line of `serving`.

use std::path::PathBuf;

use clap::Parser;

use crate::serving::server_observers::ObserverKind;
use crate::serving::server_process::ServerKind;
use crate::whole_number::whole_number;

/// Minimum number of events a second of a soak; batches supply the events that single appends do
/// not.
pub const RATE_MIN: u64 = 500;

/// Compare `umbel serve` with a bare tonic server, in one run
#[derive(Debug, Clone, PartialEq, Eq, Parser)]
#[command(name = "serving", max_term_width = 100)]
pub struct ServingArguments {
    /// Binary of Umbel, built with `cargo build --release`
    #[arg(
        long,
        value_name = "PATH",
        required = false,
        required_unless_present = "bare",
        default_value_if("bare", "true", "umbel")
    )]
    pub umbel: PathBuf,
    /// Compare with `umbel serve` of this binary instead of the bare server
    #[arg(long, value_name = "PATH", conflicts_with_all = ["bare", "soak"])]
    pub against: Option<PathBuf>,
    /// Compare `umbel serve` with itself: one server's metrics are scraped each second, its console
    /// shows the overview and the live page, and it exports telemetry with 1 % of the calls traced
    #[arg(long, conflicts_with_all = ["bare", "soak", "against"])]
    pub observed: bool,
    /// Observers of the observed server; all without this flag
    #[arg(long, value_name = "A,B", value_delimiter = ',', requires = "observed")]
    pub observers: Vec<ObserverKind>,
    /// Seconds of each work in each round
    #[arg(long, value_name = "N", default_value = "2",
        value_parser = whole_number::<u64>(1, 3_600))]
    pub seconds: u64,
    /// Repetitions
    #[arg(long, value_name = "N", default_value = "5",
        value_parser = whole_number::<u64>(1, 1_000))]
    pub rounds: u64,
    /// Only work whose name contains one of these
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub work: Vec<String>,
    /// Live subscriptions
    #[arg(long, value_name = "N", default_value = "1000",
        value_parser = whole_number::<usize>(1, 20_000))]
    pub subscribers: usize,
    /// Directory of the stores, which are removed at the end
    #[arg(long, value_name = "DIR", default_value_os_t = std::env::temp_dir())]
    pub dir: PathBuf,
    /// Instead, all client calls against umbel alone for these minutes, with every answer, memory
    /// and descriptors checked. Exits with 1 if these grow or an answer is wrong; the report is
    /// soak-DATE.md and .json
    #[arg(long, value_name = "MINUTES", value_parser = whole_number::<u64>(1, 14_400))]
    pub soak: Option<u64>,
    /// Events a second of the soak
    #[arg(long, value_name = "N", default_value = "3000",
        value_parser = whole_number::<u64>(RATE_MIN as i64, 100_000))]
    pub rate: u64,
    /// Directory of the reports serving-DATE.md and .json
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Text in the names of the reports after the date
    #[arg(long, value_name = "TEXT")]
    pub label: Option<String>,
    /// Run as the bare server: prints its address, ends with its input
    #[arg(long)]
    pub bare: bool,
    /// With --bare: write and sync appends to this file
    #[arg(long, value_name = "FILE")]
    pub sync: Option<PathBuf>,
}

impl ServingArguments {
    /// Whether this observer observes the observed server.
    pub fn has_observer(&self, kind: ObserverKind) -> bool {
        self.observed && (self.observers.is_empty() || self.observers.contains(&kind))
    }

    /// Returns the kind of server that Umbel is compared with.
    pub fn rival(&self) -> ServerKind {
        match self.observed || self.against.is_some() {
            true => ServerKind::Baseline,
            false => ServerKind::Bare,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_parsed_and_wrong_ones_are_reported() {
        let parse = |line: &str| {
            let words = std::iter::once("serving").chain(line.split_whitespace());
            ServingArguments::try_parse_from(words).map_err(|error| error.to_string())
        };
        let arguments = parse("--umbel u --rounds 3 --work append,read").unwrap();
        assert_eq!((arguments.rounds, arguments.seconds, arguments.bare), (3, 2, false));
        assert_eq!(arguments.work, ["append", "read"]);
        assert_eq!(arguments.rival(), ServerKind::Bare);
        assert!(parse("--bare").unwrap().bare);
        assert_eq!(parse("--umbel u --observed").unwrap().rival(), ServerKind::Baseline);
        assert!(parse("--umbel u --observed").unwrap().has_observer(ObserverKind::Live));
        let scraped = parse("--umbel u --observed --observers metrics,overview").unwrap();
        assert!(scraped.has_observer(ObserverKind::Metrics));
        assert!(!scraped.has_observer(ObserverKind::Live));
        assert!(parse("--umbel u --observers live").unwrap_err().contains("--observed"));
        assert_eq!(parse("--umbel u --against v").unwrap().rival(), ServerKind::Baseline);
        assert!(parse("--umbel u --observed --against v").unwrap_err().contains("--against"));
        let soak = parse("--umbel u --soak 60 --rate 4_000").unwrap();
        assert_eq!((soak.soak, soak.rate), (Some(60), 4000));
        assert!(parse("--umbel u --rate 499").unwrap_err().contains("from 500 to"));
        assert!(parse("--rounds 3").unwrap_err().contains("--umbel"));
        assert!(parse("--umbel u --rounds 0").unwrap_err().contains("from 1 to 1000"));
        let error = parse("--umbel u --speed 3").unwrap_err();
        assert!(error.contains("unexpected argument '--speed'"), "{error}");
        assert!(parse("--umbel").is_err());
    }
}

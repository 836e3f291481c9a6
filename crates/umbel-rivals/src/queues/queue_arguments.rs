//! Command line of `queues`.

use clap::Parser;

use crate::engine_runs::EngineRunArguments;
use crate::whole_number::whole_number;

/// Compare engines as queues and time series: the same puts, pops and answers, in one run
#[derive(Debug, Clone, PartialEq, Eq, Parser)]
#[command(name = "queues", max_term_width = 100)]
pub struct QueueArguments {
    /// Options that each comparison of engines has
    #[command(flatten)]
    pub runs: EngineRunArguments,
    /// Only workloads whose names contain one of these
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub workloads: Vec<String>,
    /// Number of pops in a span
    #[arg(long, value_name = "N", default_value = "10000",
        value_parser = whole_number::<u64>(1, 100_000_000))]
    pub pops: u64,
    /// Number of spans
    #[arg(long, value_name = "N", default_value = "4", value_parser = whole_number::<u64>(2, 1000))]
    pub spans: u64,
    /// Seconds after which no further span of an engine begins
    #[arg(long, value_name = "N", default_value = "120",
        value_parser = whole_number::<u64>(1, 100_000))]
    pub seconds_limit: u64,
}

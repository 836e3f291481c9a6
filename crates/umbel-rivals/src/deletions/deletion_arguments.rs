//! Command line of `deletions`.

use clap::Parser;

use crate::engine_runs::EngineRunArguments;
use crate::whole_number::whole_number;

/// Compare the disk space that engines free after deletes, in one run
#[derive(Debug, Clone, PartialEq, Eq, Parser)]
#[command(name = "deletions", max_term_width = 100)]
pub struct DeletionArguments {
    /// Options that each comparison of engines has
    #[command(flatten)]
    pub runs: EngineRunArguments,
    /// Only kinds of deletion whose names contain one of these
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub kinds: Vec<String>,
    /// Percentage of the usual number of entries
    #[arg(long, value_name = "N", default_value = "100",
        value_parser = whole_number::<u64>(1, 1000))]
    pub scale: u64,
    /// Mebibytes of a memtable: few beside the entries, as in a store that is in use for a while
    #[arg(long, value_name = "N", default_value = "16",
        value_parser = whole_number::<u64>(1, 4096))]
    pub memtable_mib: u64,
    /// Seconds of idle time after the deletes
    #[arg(long, value_name = "N", default_value = "20",
        value_parser = whole_number::<u64>(6, 3600))]
    pub idle_seconds: u64,
    /// Seconds of steady writes
    #[arg(long, value_name = "N", default_value = "60",
        value_parser = whole_number::<u64>(6, 3600))]
    pub steady_seconds: u64,
    /// Steady writes a second
    #[arg(long, value_name = "N", default_value = "20000",
        value_parser = whole_number::<u64>(10, 10_000_000))]
    pub rate: u64,
}

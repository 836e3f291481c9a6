//! Command line of `deletions`.

use std::path::PathBuf;

use clap::Parser;

use crate::whole_number::whole_number;

/// Compare the disk space that engines free after deletes, in one run
#[derive(Debug, Clone, PartialEq, Eq, Parser)]
#[command(name = "deletions", max_term_width = 100)]
pub struct DeletionArguments {
    /// Engines, as of `umbel-rivals`
    #[arg(
        long,
        value_name = "A,B",
        value_delimiter = ',',
        default_value = "umbel,lmdb,rocksdb,leveldb,fjall"
    )]
    pub engines: Vec<String>,
    /// Only kinds of deletion whose names contain one of these
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    pub kinds: Vec<String>,
    /// Percentage of the usual number of entries
    #[arg(long, value_name = "N", default_value = "100",
        value_parser = whole_number::<u64>(1, 1000))]
    pub scale: u64,
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
    /// Directory in which the stores are made
    #[arg(long, value_name = "DIR")]
    pub stores: Option<PathBuf>,
    /// Directory of the report deletions-DATE.md
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

//! Bloom filters of Parquet files, exchanged with DuckDB both ways, where Python can have it.

use std::process::Command;

use crate::installed;
use crate::steps::{Outcome, run_counting};
use crate::{programs, tree};

/// DuckDB writes Parquet files with filters and says what it reads of them.
const DUCKDB: &str = "1.4.2";

/// Exchanges filters. REQUIRES: the binary is built.
pub fn exchange() -> Outcome {
    let python = match installed::python("parquet-exchange", "duckdb", DUCKDB) {
        Ok(python) => python,
        Err(reason) => return Outcome::skip(format!("exchange with DuckDB: {reason}")),
    };
    let folder = std::env::temp_dir().join(format!("umbel-parquet-{}", std::process::id()));
    if let Err(error) = std::fs::create_dir_all(&folder) {
        println!("{}: {error}", folder.display());
        return Outcome::of(false);
    }
    let script = tree::root().join("xtask").join("parquet_exchange.py");
    let outcome = run_counting(
        Command::new(python).arg("-I").arg(script).arg(programs::umbel()).arg(&folder),
        |_| true,
    );
    // Nothing depends on whether the folder goes: its name is this process's own.
    std::fs::remove_dir_all(&folder).ok();
    outcome
}

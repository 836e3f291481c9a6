//! Exchange of Parquet files with Bloom filters with DuckDB, in both directions.

use std::process::Command;

use crate::checkout::file_tree;
use crate::tools::built_programs;
use crate::tools::check_steps::{StepOutcome, run_counting};
use crate::tools::tool_install;

/// Version of DuckDB, which writes and reads Parquet files with filters.
const DUCKDB: &str = "1.4.2";

/// Exchanges files. REQUIRES: the binary is built.
pub fn exchange() -> StepOutcome {
    let python = match tool_install::python("parquet-exchange", "duckdb", DUCKDB) {
        Ok(python) => python,
        Err(reason) => return StepOutcome::skip(format!("exchange with DuckDB: {reason}")),
    };
    let folder = std::env::temp_dir().join(format!("umbel-parquet-{}", std::process::id()));
    if let Err(error) = std::fs::create_dir_all(&folder) {
        println!("{}: {error}", folder.display());
        return StepOutcome::of(false);
    }
    let script = file_tree::root().join("xtask").join("parquet_exchange.py");
    let outcome = run_counting(
        Command::new(python)
            .arg("-I")
            .arg(script)
            .arg(built_programs::umbel_program())
            .arg(&folder),
        |_| true,
    );
    // Nothing depends on whether the folder goes: its name is this process's own.
    std::fs::remove_dir_all(&folder).ok();
    outcome
}

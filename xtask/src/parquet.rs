//! Bloom filters of Parquet files, exchanged with DuckDB both ways, where Python can have it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::steps::{Outcome, run_counting};
use crate::{smoke, tree};

/// DuckDB writes Parquet files with filters and says what it reads of them.
const DUCKDB: &str = "duckdb==1.4.2";
/// No sources, which would be compiled for an hour, no questions, and no endless tries.
const INSTALL: [&str; 11] = [
    "-I",
    "-m",
    "pip",
    "install",
    "--quiet",
    "--only-binary=:all:",
    "--no-input",
    "--no-cache-dir",
    "--disable-pip-version-check",
    "--retries=1",
    "--timeout=20",
];

/// Exchanges filters. REQUIRES: the release binary is built.
pub fn exchange() -> Outcome {
    let python = match python_with_duckdb() {
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
        Command::new(python).arg("-I").arg(script).arg(smoke::binary()).arg(&folder),
        |_| true,
    );
    // Nothing depends on whether the folder goes: its name is this process's own.
    std::fs::remove_dir_all(&folder).ok();
    outcome
}

/// A Python that has DuckDB, in an environment of its own below the target folder, made on first
/// use. The error says what is missing.
fn python_with_duckdb() -> Result<PathBuf, String> {
    let environment = smoke::target().join("parquet-exchange");
    let python = environment.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
    if has_duckdb(&python) {
        return Ok(python);
    }
    let made = Command::new(if cfg!(windows) { "python" } else { "python3" })
        .args(["-m", "venv", "--clear"])
        .arg(&environment)
        .output();
    succeeded("python3 -m venv", made)?;
    let pip = format!("pip install {DUCKDB}");
    succeeded(&pip, Command::new(&python).args(INSTALL).arg(DUCKDB).output())?;
    if has_duckdb(&python) {
        return Ok(python);
    }
    Err(format!("`{pip}` succeeded, but what it installed cannot be imported"))
}

fn has_duckdb(python: &Path) -> bool {
    let version = DUCKDB.rsplit('=').next().unwrap_or_default();
    let check = format!("import duckdb; assert duckdb.__version__ == '{version}'");
    let output = Command::new(python).args(["-I", "-c", &check]).output();
    output.is_ok_and(|output| output.status.success())
}

fn succeeded(what: &str, output: std::io::Result<Output>) -> Result<(), String> {
    let output = output.map_err(|error| format!("`{what}` did not start: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).trim().to_string();
    Err(format!("`{what}` failed: {}", said.lines().last().unwrap_or("it said nothing")))
}

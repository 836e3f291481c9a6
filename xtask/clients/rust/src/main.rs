//! The Rust client, unchanged, against a server.
//!
//! `umbel-rust-client CONNECTION`: each case is a line, the last line says how many passed, failed
//! and were skipped.
#![forbid(unsafe_code)]

mod cases;

use std::process::ExitCode;
use std::time::Duration;

use kurrentdb::Client;

/// Nothing here takes longer, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> ExitCode {
    let Some(connection) = std::env::args().nth(1) else {
        eprintln!("umbel-rust-client CONNECTION");
        return ExitCode::from(2);
    };
    let settings = match connection.parse() {
        Ok(settings) => settings,
        Err(error) => {
            eprintln!("{connection}: {error}");
            return ExitCode::from(2);
        }
    };
    let client = match Client::new(settings) {
        Ok(client) => client,
        Err(error) => {
            eprintln!("{connection}: {error}");
            return ExitCode::FAILURE;
        }
    };
    let (mut passed, mut failed) = (0, 0);
    for (name, case) in cases::all(&client, &connection) {
        let limited = tokio::time::timeout(PATIENCE, case).await;
        match limited.unwrap_or_else(|_| Err("it hangs".into())) {
            Ok(()) => {
                passed += 1;
                println!("ok Rust: {name}");
            }
            Err(error) => {
                failed += 1;
                println!("FAILED Rust: {name}: {error}");
            }
        }
    }
    println!("{passed} passed, {failed} failed, 0 skipped");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

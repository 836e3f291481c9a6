//! The Rust client, unchanged, against a server.
//!
//! `umbel-rust-client CONNECTION FILE [again]` prints one line for each case; the last line counts
//! passed, failed and skipped cases. FILE keeps state for the cases that run with "again", after a
//! restart of the server. With "secure", CONNECTION names a TLS server and FILE a folder of
//! certificates. `umbel-rust-client certificates FOLDER` makes such a folder.
#![forbid(unsafe_code)]

mod basic_cases;
mod certificates;
mod filter_cases;
mod persistent_subscription_cases;
mod projection_cases;
mod tls_cases;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use kurrentdb::Client;

/// Time limit of a case; a case that takes longer counts as hanging.
const CASE_TIMEOUT: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(connection), Some(kept)) = (arguments.next(), arguments.next()) else {
        eprintln!("umbel-rust-client CONNECTION FILE [again|secure]");
        return ExitCode::from(2);
    };
    if connection == "certificates" {
        return match certificates::make(Path::new(&kept)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        };
    }
    let mode = arguments.next();
    if mode.as_deref() == Some("secure") {
        return run(tls_cases::all(&connection, Path::new(&kept))).await;
    }
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
    let cases = if mode.is_some() {
        filter_cases::again(&client, &kept)
    } else {
        let mut cases = basic_cases::all(&client, &connection);
        cases.extend(filter_cases::all(&client, &kept));
        cases.extend(projection_cases::all(&client, &connection));
        cases.extend(persistent_subscription_cases::all(&client));
        cases
    };
    run(cases).await
}

/// Runs cases one after the other.
async fn run(cases: Vec<basic_cases::Case<'_>>) -> ExitCode {
    let (mut passed, mut failed) = (0, 0);
    for (name, case) in cases {
        let limited = tokio::time::timeout(CASE_TIMEOUT, case).await;
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

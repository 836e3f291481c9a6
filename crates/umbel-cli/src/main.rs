//! The binary `umbel`, which is all in the library beside it.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    umbel_cli::main()
}

//! Binary `umbel`; all of its code is in the library.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    umbel_cli::main()
}

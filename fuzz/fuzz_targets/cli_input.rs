//! Parses any text as input of `umbel`: as connection strings, and as server options in a file and
//! in variables.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| umbel_cli::fuzz_entry_points::texts(input));

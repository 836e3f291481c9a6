//! Texts that people write for `umbel`: connection strings, and options of a server as a file and
//! as variables, out of any text.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| umbel_cli::fuzz_entry_points::texts(input));

//! Decodes any bytes as messages of clients.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| umbel_server::fuzz_entry_points::requests(input));

//! Decodes any bytes as an event of a user's stream.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| umbel_server::fuzz_entry_points::stored_user(input));

//! Decodes any bytes as stored consumer groups, as a group's checkpoint, and as stopped views.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| umbel_server::fuzz_entry_points::stored_settings(input));

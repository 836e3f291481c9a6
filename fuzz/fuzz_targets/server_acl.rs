//! Decodes any bytes as the metadata of a stream and as `$settings`, and checks the rights of each
//! user.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| umbel_server::fuzz_entry_points::rights(input));

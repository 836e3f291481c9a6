//! The metadata of a stream and `$settings` from any bytes: the rights of each user.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| umbel_server::fuzz_entry_points::rights(input));

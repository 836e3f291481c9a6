//! The metadata of a stream and `$settings` out of any bytes: who may do what.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| umbel_server::fuzz::rights(input));

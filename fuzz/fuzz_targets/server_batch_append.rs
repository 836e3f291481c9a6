//! Filters any bytes as the body of a batch append call, which may contain messages over the limit.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| umbel_server::fuzz_entry_points::batches(input));

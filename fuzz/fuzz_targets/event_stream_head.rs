//! Decodes any bytes as a stream head.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| umbel_events::fuzz_stream_head(input));

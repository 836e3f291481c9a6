//! Decodes any bytes as the head and as a block of a view.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| umbel_events::fuzz_view(input));
